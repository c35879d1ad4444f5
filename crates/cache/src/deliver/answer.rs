//! An answer before it is written to a client.
//!
//! The states (*hit*, *miss*, *pass*, *purge*, *synth*) create answers and know no socket. A downstream
//! ([`deliver`](crate::deliver)) writes them, and alone decides what belongs to its protocol: framing,
//! keep-alive or close, and the handling of an unread request body.
//!
//! ```text
//!  Answer ┬ head    whose lines: a stored object's · a fetched answer's · our own page's
//!         ├ edits   which of the lines go out (all · those of a 304 · those of a 206), Age, Cache-Status, the length
//!         └ body    none · copied · a pinned range · parts of the file · slices · growing · our own bytes
//! ```
//! A head is a status line and field lines as stored, names and values one after the other: HTTP/1 copies
//! them, another protocol would walk them. Where the data is: an answer from the store borrows its data for
//! the turn, so a hit copies only the bytes that it sends; [`Answer::into_owned`] makes an answer that
//! outlives the turn.

use std::{ops::Range, sync::Arc};

use engine::{
    store::{Object, PinnedObject},
    sys::span::Span,
};
use wire::http1::head::Version;

use crate::{
    body::{
        copy::copy_body, growing::Cursor, multipart_ranges::MultipartRanges, parts::Parts, slices::Blocks,
    },
    fetch::response::Response,
    head::response_head::{CacheStatus, CodedHead, Outcome},
    request::lookup_key::LookupKey,
};

/// An answer to a request.
pub(crate) struct Answer<'a> {
    pub(crate) head: Head<'a>,
    /// Lines of the head that are sent.
    pub(crate) lines: Lines,
    /// Length of the content, as far as it is known.
    pub(crate) length: Length,
    /// Value of `Age`, if it must be stated.
    pub(crate) age_s: Option<u64>,
    /// Value of `Cache-Status`; `None` for our own page, which has neither this field nor `Via`.
    pub(crate) cache_status: Option<CacheStatus>,
    /// HTTP version of the origin.
    pub(crate) received: Version,
    /// True if `Vary: Accept-Encoding` must be added because other clients get another coding.
    pub(crate) varies: bool,
    /// Seconds for which browsers must use https only (RFC 6797 §6.1).
    pub(crate) hsts_s: Option<u64>,
    pub(crate) body: Body<'a>,
    /// Set if the answer is stale and must be refreshed in the background (RFC 5861 §3).
    pub(crate) refresh: Option<LookupKey>,
    /// Reason for our own page, in the log's words.
    pub(crate) reason: Option<&'static str>,
}

/// Source of the status line and field lines.
pub(crate) enum Head<'a> {
    /// Complete head of a stored object, in the store's memory. (Conditions are compared with a copy.)
    Stored(Span<'a>),
    /// Head of a stored object whose content is sent as an encoded variant.
    Coded(Span<'a>, CodedHead),
    /// Copy of a stored head, made to compare conditions.
    Copied(&'a [u8]),
    /// Head of a fetched answer.
    Fetched(Arc<Response>),
    /// Head of our own answer.
    Owned(Vec<u8>),
}

/// Lines of a head that are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lines {
    /// All lines.
    All,
    /// Lines of a 304 (RFC 9110 §15.4.5).
    NotModified,
    /// Lines of a 206 (RFC 9110 §15.3.7).
    Partial,
}

/// Length of the content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// No content and no length to state (204, 304; RFC 9110 §8.6).
    None,
    /// Number of bytes; for HEAD, of the content that GET would get.
    Exact(u64),
    /// A part of the whole.
    Part {
        /// The first byte.
        first: u64,
        /// The last byte.
        last: u64,
        /// Bytes of the whole.
        complete: u64,
    },
    /// The length is not known yet.
    Unknown,
}

/// Location of the content.
pub(crate) enum Body<'a> {
    /// No content is sent.
    None,
    /// In the store's memory, borrowed for a turn: small enough to be copied behind the head.
    Stored { object: Object<'a>, range: Range<u64> },
    /// In the store's memory, pinned.
    Pinned { object: PinnedObject, range: Range<u64> },
    /// On the file, in parts.
    Parts(Box<Parts>),
    /// In slices, some of which may have to be fetched.
    Blocks(Box<Blocks>),
    /// Several ranges of a pinned or sliced object.
    MultipartRanges(Box<MultipartRanges>),
    /// Arriving content, from byte `from` up to `to`, or to its end.
    Growing { cursor: Cursor, from: u64, to: Option<u64> },
    /// Our own content.
    Owned { bytes: Vec<u8>, trailers: Vec<u8> },
}

/// Position of the status in a status line.
const STATUS_AT: usize = "HTTP/1.1 ".len();
const STATUS_END: usize = STATUS_AT + 3;

impl Body<'_> {
    /// Returns whether trailers are known to follow the body.
    pub(crate) fn has_trailers(&self) -> bool {
        match self {
            Body::Stored { object, .. } => !object.tail().is_empty(),
            Body::Pinned { object, .. } => !object.tail().is_empty(),
            Body::Parts(parts) => !parts.trailers().is_empty(),
            Body::Owned { trailers, .. } => !trailers.is_empty(),
            Body::None | Body::Blocks(_) | Body::MultipartRanges(_) | Body::Growing { .. } => false,
        }
    }
}

impl Answer<'_> {
    /// Returns whether the status is 2xx.
    pub(crate) fn is_successful(&self) -> bool {
        let mut first = Vec::new();
        let line = match &self.head {
            Head::Stored(span) | Head::Coded(span, _) => {
                span.slice(0..span.len().min(STATUS_END)).copy_to(&mut first);
                &first[..]
            }
            Head::Copied(bytes) => bytes,
            Head::Owned(bytes) => bytes,
            Head::Fetched(response) => &response.head[..],
        };
        line.get(STATUS_AT) == Some(&b'2')
    }

    /// Returns whether the answer came from the store.
    pub(crate) fn is_hit(&self) -> bool {
        self.cache_status.is_some_and(|status| status.outcome == Outcome::Hit)
    }

    /// Appends field lines to an owned head; a head of any other kind stays as it is.
    pub(crate) fn append_lines(&mut self, lines: &[u8]) {
        if let (Head::Owned(bytes), false) = (&mut self.head, lines.is_empty()) {
            bytes.extend_from_slice(lines);
        }
    }

    /// Returns the answer with copies of everything that it borrowed for a turn.
    pub(crate) fn into_owned(self) -> Answer<'static> {
        let Self {
            head,
            lines,
            length,
            age_s,
            cache_status,
            received,
            varies,
            hsts_s,
            body,
            refresh,
            reason,
        } = self;
        let head = match head {
            Head::Stored(span) => {
                let mut bytes = Vec::with_capacity(span.len());
                span.copy_to(&mut bytes);
                Head::Owned(bytes)
            }
            Head::Coded(span, coded) => {
                let mut bytes = Vec::with_capacity(span.len() + 64);
                coded.append_span(span, &mut bytes);
                Head::Owned(bytes)
            }
            Head::Copied(bytes) => Head::Owned(bytes.to_vec()),
            Head::Fetched(response) => Head::Fetched(response),
            Head::Owned(bytes) => Head::Owned(bytes),
        };
        let body = match body {
            Body::None => Body::None,
            Body::Stored { object, range } => {
                let (mut bytes, mut trailers) = (Vec::new(), Vec::new());
                copy_body(&object, range, &mut bytes);
                object.tail().copy_to(&mut trailers);
                Body::Owned { bytes, trailers }
            }
            Body::Pinned { object, range } => Body::Pinned { object, range },
            Body::Parts(parts) => Body::Parts(parts),
            Body::Blocks(blocks) => Body::Blocks(blocks),
            Body::MultipartRanges(several) => Body::MultipartRanges(several),
            Body::Growing { cursor, from, to } => Body::Growing { cursor, from, to },
            Body::Owned { bytes, trailers } => Body::Owned { bytes, trailers },
        };
        Answer { head, lines, length, age_s, cache_status, received, varies, hsts_s, body, refresh, reason }
    }
}
