//! An answer, before anybody has written it.
//!
//! The states (*hit*, *miss*, *pass*, *purge*, *synth*) make answers and know no socket; a downstream
//! ([`deliver`](crate::deliver)) writes them, and alone decides what belongs to its protocol: framing,
//! keep-alive or close, what becomes of a request's body that nobody read.
//!
//! ```text
//!  Answer ┬ head    whose lines: a stored object's · a fetched answer's · our own page's
//!         ├ edits   which of the lines go out (all · those of a 304 · those of a 206), Age, Cache-Status, the length
//!         └ body    none · copied · a pinned range · parts of the file · blocks · growing · our own bytes
//! ```
//! A head is a status line and field lines as the store keeps them, names and values one after the other: HTTP/1 copies
//! them, another protocol would walk them. Where the data lives: an answer from the store borrows it for the length of
//! the turn, so a hit copies nothing but what it sends; [`Answer::into_owned`] makes one that outlives the turn.

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

/// What a request is answered.
pub(crate) struct Answer<'a> {
    pub(crate) head: Head<'a>,
    /// Which lines of the head go out.
    pub(crate) lines: Lines,
    /// How much follows, as far as that is known.
    pub(crate) length: Length,
    /// `Age`, where it must be stated.
    pub(crate) age_s: Option<u64>,
    /// What `Cache-Status` says; `None` for neither it nor `Via`, where the answer is our own page.
    pub(crate) cache_status: Option<CacheStatus>,
    /// The version that the origin spoke.
    pub(crate) received: Version,
    /// It must be said that others get another coding of it.
    pub(crate) varies: bool,
    /// For how long browsers are to come by https alone, in seconds (RFC 6797 §6.1).
    pub(crate) hsts_s: Option<u64>,
    pub(crate) body: Body<'a>,
    /// It is stale, and to be fetched anew beside (RFC 5861 §3).
    pub(crate) refresh: Option<LookupKey>,
    /// Why it is our own page, in the log's words.
    pub(crate) reason: Option<&'static str>,
}

/// Whose status line and field lines are sent.
pub(crate) enum Head<'a> {
    /// A stored object's, in the store's memory; all of its lines. (Conditions are compared with a copy.)
    Stored(Span<'a>),
    /// Likewise, of what is sent in a coding that we have made.
    Coded(Span<'a>, CodedHead),
    /// A copy of it that was needed to compare conditions.
    Copied(&'a [u8]),
    /// Of an answer that was fetched.
    Fetched(Arc<Response>),
    /// Our own.
    Owned(Vec<u8>),
}

/// Which lines of a head go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lines {
    /// All of them.
    All,
    /// Those of a 304 (RFC 9110 §15.4.5).
    NotModified,
    /// Those of a 206 (RFC 9110 §15.3.7).
    Partial,
}

/// How long the content is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    /// There is none, and none to state (204, 304; RFC 9110 §8.6).
    None,
    /// So many bytes; to HEAD, as many as GET would bring.
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
    /// Nobody knows yet.
    Unknown,
}

/// Where the content is.
pub(crate) enum Body<'a> {
    /// There is none to send.
    None,
    /// In the store's memory, for the length of a turn: small enough to be copied behind the head.
    Stored { object: Object<'a>, range: Range<u64> },
    /// In the store's memory, kept where it is.
    Pinned { object: PinnedObject, range: Range<u64> },
    /// On the file, in parts.
    Parts(Box<Parts>),
    /// In blocks, of which some may have to be fetched.
    Blocks(Box<Blocks>),
    /// Several ranges, of what is pinned or in blocks.
    MultipartRanges(Box<MultipartRanges>),
    /// On its way; from the first of these bytes to the second, or to its end.
    Growing { cursor: Cursor, from: u64, to: Option<u64> },
    /// Ours.
    Owned { bytes: Vec<u8>, trailers: Vec<u8> },
}

/// Where a status stands in the line that begins a head.
const STATUS_AT: usize = "HTTP/1.1 ".len();
const STATUS_END: usize = STATUS_AT + 3;

impl Body<'_> {
    /// Whether trailers are known to follow it.
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
    /// Whether its status is 2xx.
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

    /// Whether it came from the store.
    pub(crate) fn is_hit(&self) -> bool {
        self.cache_status.is_some_and(|status| status.outcome == Outcome::Hit)
    }

    /// Appends field lines to an owned head; a head of any other kind stays as it is.
    pub(crate) fn append_lines(&mut self, lines: &[u8]) {
        if let (Head::Owned(bytes), false) = (&mut self.head, lines.is_empty()) {
            bytes.extend_from_slice(lines);
        }
    }

    /// The same, without what it borrows of a turn.
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
