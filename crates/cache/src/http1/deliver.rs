//! *deliver*: an answer becomes bytes of HTTP/1, in one place for all of them.
//!
//! Decided here and nowhere else: how the body is delimited (RFC 9112 §6), whether the connection goes on (§9.3),
//! that HEAD gets no content, what becomes of a request's body that nobody read, and how the end is counted.

use engine::store::PinnedObject;
use wire::http1::{
    fields::persists,
    framing::ChunkedEncoder,
    head::{RequestHead, Version},
};

use super::{
    client::{Client, Gone},
    send::{self, Cut},
};
use crate::{
    answer::{Answer, Body, Head, Length, Lines},
    blocks::Blocks,
    copy::copy_body,
    core::{Core, with_core},
    counters::Counter,
    growing::Cursor,
    hit::COALESCE_BYTES_MAX,
    parts::Parts,
    response_head::{Delimited, Dynamic, Persistence, append_dynamic, append_not_modified, append_partial},
    several::Several,
};

/// What of a request decides how its answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) version: Version,
    pub(super) is_head: bool,
    /// The connection goes on, as far as the client is concerned.
    pub(super) persists: bool,
}

impl Asked {
    #[inline]
    pub(super) fn of(head: &RequestHead<'_, '_>) -> Self {
        Self {
            version: head.version,
            is_head: head.method == "HEAD",
            persists: persists(head.version, &head.headers),
        }
    }

    /// Of what was no request: nothing follows its answer.
    pub(super) const NOTHING: Self = Self { version: Version::Http11, is_head: false, persists: false };
}

/// What is left to be sent when the head is written.
pub(super) struct Sending {
    pub(super) rest: Rest,
    /// The connection ends after it.
    pub(super) close: bool,
}

impl Sending {
    /// Nothing but what is written already.
    pub(super) const fn nothing(close: bool) -> Self {
        Self { rest: Rest::None, close }
    }

    /// Whether nothing is left.
    pub(super) const fn is_done(&self) -> bool {
        matches!(self.rest, Rest::None)
    }
}

/// Content that is sent from where it is.
pub(super) enum Rest {
    None,
    Pinned {
        object: PinnedObject,
        from: u64,
        to: u64,
        /// It is one chunk, and trailers follow.
        chunked: bool,
    },
    Parts {
        parts: Box<Parts>,
        chunked: bool,
    },
    Blocks(Box<Blocks>),
    Several(Box<Several>),
    Growing {
        cursor: Cursor,
        from: u64,
        to: Option<u64>,
        delimited: Ending,
    },
}

/// How the end of a growing body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// By its length.
    Length,
    /// By the last chunk (RFC 9112 §7.1).
    Chunks,
    /// By the end of the connection.
    Close,
}

/// Appends an answer's head to `out`, and its content where that is small; what is left is to be sent by [`finish`].
#[inline]
pub(super) fn begin(core: &Core, answer: Answer<'_>, asked: Asked, out: &mut Vec<u8>) -> Sending {
    let Answer { head, lines, length, age_s, cache_status, received, varies, body, refresh: _ } = answer;
    let body = if asked.is_head { Body::None } else { body };
    let is_11 = asked.version == Version::Http11;
    // A body with trailers is sent in chunks, so that they can follow it (RFC 9112 §7.1.2).
    let chunked = is_11 && lines == Lines::All && body.has_trailers();
    let (delimited, ending) = match length {
        Length::None => (Delimited::Unstated, Ending::Length),
        Length::Part { first, last, complete } => (Delimited::Part { first, last, complete }, Ending::Length),
        _ if chunked => (Delimited::Chunked, Ending::Chunks),
        Length::Exact(bytes) => (Delimited::Length(bytes), Ending::Length),
        Length::Unknown if asked.is_head => (Delimited::Unstated, Ending::Length),
        Length::Unknown if is_11 => (Delimited::Chunked, Ending::Chunks),
        // HTTP/1.0 knows no chunks: the end of the connection ends the body.
        Length::Unknown => (Delimited::Unstated, Ending::Close),
    };
    let persistence = if !asked.persists || ending == Ending::Close || core.draining.get() {
        Persistence::Close
    } else if is_11 {
        Persistence::Implied
    } else {
        Persistence::KeepAlive
    };
    match &head {
        Head::Stored(span) => span.copy_to(out),
        Head::Coded(span, coded) => {
            coded.append_span(*span, out);
        }
        Head::Copied(bytes) => append_lines(bytes, lines, out),
        Head::Owned(bytes) => append_lines(bytes, lines, out),
        Head::Fetched(response) => append_lines(&response.head, lines, out),
    }
    let dynamic = Dynamic { age_s, cache_status, received, persistence, framing: delimited, varies };
    append_dynamic(out, &core.identity, &dynamic);
    let rest = content(core, body, ending, chunked, out);
    Sending { rest, close: persistence == Persistence::Close }
}

/// Appends content that is small, in one chunk if it is `chunked`; what is left of other content.
#[inline]
fn content(core: &Core, body: Body<'_>, ending: Ending, chunked: bool, out: &mut Vec<u8>) -> Rest {
    match body {
        Body::None => Rest::None,
        Body::Stored { object, range } => {
            if chunked && !range.is_empty() {
                out.extend_from_slice(ChunkedEncoder::chunk_header(range.end - range.start).as_bytes());
            }
            let is_empty = range.is_empty();
            copy_body(&object, range, out);
            if chunked {
                if !is_empty {
                    out.extend_from_slice(ChunkedEncoder::CHUNK_END);
                }
                send::append_trailers(object.tail(), out);
            }
            Rest::None
        }
        Body::Owned { bytes, trailers } => {
            if chunked && !bytes.is_empty() {
                out.extend_from_slice(ChunkedEncoder::chunk_header(bytes.len() as u64).as_bytes());
                out.extend_from_slice(&bytes);
                out.extend_from_slice(ChunkedEncoder::CHUNK_END);
            } else {
                out.extend_from_slice(&bytes);
            }
            if chunked {
                ChunkedEncoder::last_chunk(&trailers)
                    .into_iter()
                    .for_each(|part| out.extend_from_slice(part));
            }
            Rest::None
        }
        Body::Pinned { object, range } => {
            if send::lends(core, range.start, range.end) {
                core.count(Counter::BodiesLent);
            }
            if chunked {
                out.extend_from_slice(ChunkedEncoder::chunk_header(range.end - range.start).as_bytes());
            }
            Rest::Pinned { object, from: range.start, to: range.end, chunked }
        }
        Body::Parts(parts) => {
            if chunked {
                let bytes = parts.range().end - parts.range().start;
                out.extend_from_slice(ChunkedEncoder::chunk_header(bytes).as_bytes());
            }
            Rest::Parts { parts, chunked }
        }
        Body::Blocks(blocks) => Rest::Blocks(blocks),
        Body::Several(several) => Rest::Several(several),
        Body::Growing { from, to: Some(to), .. } if from == to => Rest::None,
        Body::Growing { cursor, from, to } => {
            let small = to.filter(|to| ending == Ending::Length && to - from <= COALESCE_BYTES_MAX);
            match small.and_then(|to| cursor.whole(from, to)) {
                // It has arrived by now, as small bodies do together with their heads.
                Some(span) => {
                    span.copy_to(out);
                    Rest::None
                }
                None => Rest::Growing { cursor, from, to, delimited: ending },
            }
        }
    }
}

#[inline]
fn append_lines(head: &[u8], lines: Lines, out: &mut Vec<u8>) {
    match lines {
        Lines::All => out.extend_from_slice(head),
        Lines::NotModified => append_not_modified(out, head),
        Lines::Partial => append_partial(out, head),
    }
}

/// Sends `prefix` and what is left of an answer, waiting for the client where needed; whether the connection can go on.
pub(super) async fn finish(client: &Client, prefix: Vec<u8>, sending: Sending) -> bool {
    let Sending { rest, close } = sending;
    let until_close = matches!(rest, Rest::Growing { delimited: Ending::Close, .. });
    let sent = match rest {
        Rest::None => client.send_all(&prefix).await.map_err(Cut::Client),
        Rest::Pinned { mut object, from, to, chunked } => {
            send::pinned(client, &prefix, &mut object, from, to, chunked).await
        }
        // On the heap: a disk is waited for, and every answer would be larger by it.
        Rest::Parts { mut parts, chunked } => {
            Box::pin(send::parts(client, &prefix, &mut parts, chunked)).await
        }
        // Likewise.
        Rest::Blocks(mut blocks) => Box::pin(send::blocks(client, prefix, &mut blocks)).await,
        Rest::Several(mut several) => Box::pin(send::several(client, prefix, &mut several)).await,
        Rest::Growing { mut cursor, from, to, delimited } => {
            send::growing(client, prefix, &mut cursor, delimited == Ending::Chunks, from, to).await
        }
    };
    account(&sent);
    match sent {
        // The client has stopped reading: a reset lets the kernel drop what it has not read.
        Err(Cut::Client(Gone::Stalled | Gone::Wanted)) => send::reset_on_close(client),
        // Chunks and lengths show by themselves that something is missing.
        Err(Cut::Origin) if until_close => send::reset_on_close(client),
        _ => {}
    }
    sent.is_ok() && !close
}

/// Counts how an answer ended.
fn account(sent: &Result<(), Cut>) {
    let counter = match sent {
        Ok(()) => return,
        Err(Cut::Client(Gone::Closed)) => Counter::ClientsGone,
        Err(Cut::Client(Gone::Stalled)) => Counter::ClientsStalled,
        // Counted where it was decided.
        Err(Cut::Client(Gone::Wanted)) => return,
        Err(Cut::Disk) => Counter::PartsCut,
        Err(Cut::Origin) => Counter::BodiesCut,
    };
    with_core(|core| core.count(counter));
}
