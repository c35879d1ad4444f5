//! *deliver*: turns an answer into a head and content for its client, in one place for all answers.
//!
//! Only this module decides how the body is delimited (RFC 9112 §6, RFC 9113 §8.1), whether the connection
//! persists (RFC 9112 §9.3), that HEAD gets no content, and how the end is counted and logged. The head is
//! HTTP/1 text; HTTP/2 encodes it.

pub(crate) mod answer;
pub(crate) mod downstream;
pub(crate) mod send;
pub(crate) mod sink;
pub(crate) mod trailers;

use engine::store::PinnedObject;
use wire::http1::{
    fields::persists,
    framing::ChunkedEncoder,
    head::{RequestHead, Version},
};

use crate::{
    body::{
        copy::copy_body, growing::Cursor, multipart_ranges::MultipartRanges, parts::Parts, slices::Blocks,
    },
    core::{Core, with_core},
    counters::Counter,
    deliver::{
        answer::{Answer, Body, Head, Length, Lines},
        send::{Cut, Ending},
        sink::{Sink, SinkError},
    },
    head::response_head::{
        BodyDelimiter, Dynamic, Persistence, append_dynamic, append_not_modified, append_partial,
    },
    log::transaction::{self, Draft, Outcome},
    states::hit::COALESCE_BYTES_MAX,
};

/// The client's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http10,
    Http11,
    Http2,
}

/// Properties of a request that decide how its answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AnswerContext {
    pub(crate) protocol: Protocol,
    pub(crate) is_head: bool,
    /// True if the request allows the connection to persist after the answer.
    pub(crate) persists: bool,
}

impl AnswerContext {
    #[inline]
    pub(crate) fn of(head: &RequestHead<'_, '_>) -> Self {
        Self {
            protocol: match head.version {
                Version::Http10 => Protocol::Http10,
                Version::Http11 => Protocol::Http11,
            },
            is_head: head.method == "HEAD",
            persists: persists(head.version, &head.headers),
        }
    }

    /// Context of a request on an HTTP/2 stream: fields that belong to a connection are left out.
    #[inline]
    pub(crate) fn on_stream(head: &RequestHead<'_, '_>) -> Self {
        Self { protocol: Protocol::Http2, is_head: head.method == "HEAD", persists: true }
    }

    /// Context of an invalid request on an HTTP/2 stream.
    pub(crate) const NO_STREAM: Self = Self { protocol: Protocol::Http2, is_head: false, persists: true };

    /// Context of an invalid request: the connection ends after its answer.
    pub(crate) const NOTHING: Self = Self { protocol: Protocol::Http11, is_head: false, persists: false };
}

/// Part of an answer that is still to be sent after the head has been written.
pub(crate) struct Remainder {
    /// Number of bytes of the head that was appended to the output; content may follow it.
    pub(crate) head_bytes: usize,
    pub(crate) rest: Rest,
    /// True if the connection ends after the answer.
    pub(crate) close: bool,
}

impl Remainder {
    /// Creates an empty remainder.
    pub(crate) const fn nothing(close: bool) -> Self {
        Self { head_bytes: 0, rest: Rest::None, close }
    }

    /// Returns whether nothing is left to send.
    pub(crate) const fn is_done(&self) -> bool {
        matches!(self.rest, Rest::None)
    }
}

/// Content that is still to be sent, by its location.
pub(crate) enum Rest {
    None,
    /// Trailer lines only.
    Trailers(Vec<u8>),
    /// A pinned object; with chunked framing, all of it is one chunk.
    Pinned {
        object: PinnedObject,
        from: u64,
        to: u64,
        ending: Ending,
    },
    /// Parts in the file; with chunked framing, all of them are one chunk.
    Parts {
        parts: Box<Parts>,
        ending: Ending,
    },
    Blocks(Box<Blocks>),
    MultipartRanges(Box<MultipartRanges>),
    Growing {
        cursor: Cursor,
        from: u64,
        to: Option<u64>,
        ending: Ending,
    },
}

/// Appends an answer's head to `out`, and small content too; [`finish`] sends the rest. The log record is
/// filled in; `before` is the number of bytes sent to the client so far, including those in `out`.
#[inline]
pub(crate) fn begin(
    core: &Core,
    answer: Answer<'_>,
    asked: AnswerContext,
    out: &mut Vec<u8>,
    draft: &mut Draft,
    before: u64,
) -> Remainder {
    let Answer {
        head,
        lines,
        length,
        age_s,
        cache_status,
        received,
        varies,
        hsts_s,
        body,
        refresh: _,
        reason,
    } = answer;
    let body = if asked.is_head { Body::None } else { body };
    let is_2 = asked.protocol == Protocol::Http2;
    let is_11 = asked.protocol == Protocol::Http11;
    // A body with trailers is sent in chunks, so that they can follow it (RFC 9112 §7.1.2).
    let chunked = is_11 && lines == Lines::All && body.has_trailers();
    let (delimited, ending) = match length {
        Length::None => (BodyDelimiter::Unstated, Ending::Length),
        Length::Part { first, last, complete } => {
            (BodyDelimiter::Part { first, last, complete }, Ending::Length)
        }
        _ if chunked => (BodyDelimiter::Chunked, Ending::Chunks),
        Length::Exact(bytes) if is_2 && lines == Lines::All => (BodyDelimiter::Length(bytes), Ending::Frames),
        Length::Exact(bytes) => (BodyDelimiter::Length(bytes), Ending::Length),
        Length::Unknown if is_2 => (BodyDelimiter::Unstated, Ending::Frames),
        Length::Unknown if asked.is_head => (BodyDelimiter::Unstated, Ending::Length),
        Length::Unknown if is_11 => (BodyDelimiter::Chunked, Ending::Chunks),
        // HTTP/1.0 has no chunks: the end of the connection ends the body.
        Length::Unknown => (BodyDelimiter::Unstated, Ending::Close),
    };
    let persistence = if is_2 {
        Persistence::Implied
    } else if !asked.persists || ending == Ending::Close || core.is_draining.get() {
        Persistence::Close
    } else if is_11 {
        Persistence::Implied
    } else {
        Persistence::KeepAlive
    };
    let from = out.len();
    let is_passed = matches!(&head, Head::Fetched(response) if !response.is_fetched());
    match &head {
        Head::Stored(span) => span.copy_to(out),
        Head::Coded(span, coded) => {
            coded.append_span(*span, out);
        }
        Head::Copied(bytes) => append_lines(bytes, lines, out),
        Head::Owned(bytes) => append_lines(bytes, lines, out),
        Head::Fetched(response) => append_lines(&response.head, lines, out),
    }
    if let Some(seconds) = hsts_s {
        append_hsts(seconds, from, out);
    }
    let dynamic = Dynamic { age_s, cache_status, received, persistence, framing: delimited, varies };
    append_dynamic(out, &core.names.identity, &dynamic);
    let head_bytes = out.len() - from;
    let rest = content(core, body, ending, out);
    if draft.is_some() {
        let whole = before + (out.len() - from) as u64;
        let to = match &rest {
            Rest::None => Some(whole),
            Rest::Pinned { from, to, ending: Ending::Length, .. } => Some(whole + (to - from)),
            _ => None,
        };
        let outcome = Outcome { cache_status, is_passed, reason };
        draft.answered(&out[from..from + head_bytes], outcome, before, to);
    }
    Remainder { head_bytes, rest, close: persistence == Persistence::Close }
}

/// Appends `Strict-Transport-Security`, unless the head that begins at `from` already has it: the origin's
/// value takes precedence.
fn append_hsts(seconds: u64, from: usize, out: &mut Vec<u8>) {
    const NAME: &[u8] = b"Strict-Transport-Security";
    let mut lines = out[from..].split(|byte| *byte == b'\n');
    if lines.any(|line| line.get(..NAME.len()).is_some_and(|name| name.eq_ignore_ascii_case(NAME))) {
        return;
    }
    for part in [NAME, b": max-age=", itoa::Buffer::new().format(seconds).as_bytes(), b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Appends small content, as one chunk with chunked framing. Returns the rest of larger content.
#[inline]
fn content(core: &Core, body: Body<'_>, ending: Ending, out: &mut Vec<u8>) -> Rest {
    let chunked = ending == Ending::Chunks;
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
            if ending == Ending::Frames && !object.tail().is_empty() {
                let mut trailers = Vec::new();
                object.tail().copy_to(&mut trailers);
                return Rest::Trailers(trailers);
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
            if ending == Ending::Frames && !trailers.is_empty() {
                return Rest::Trailers(trailers);
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
            Rest::Pinned { object, from: range.start, to: range.end, ending }
        }
        Body::Parts(parts) => {
            if chunked {
                let bytes = parts.range().end - parts.range().start;
                out.extend_from_slice(ChunkedEncoder::chunk_header(bytes).as_bytes());
            }
            Rest::Parts { parts, ending }
        }
        Body::Blocks(blocks) => Rest::Blocks(blocks),
        Body::MultipartRanges(several) => Rest::MultipartRanges(several),
        Body::Growing { from, to: Some(to), .. } if from == to => Rest::None,
        Body::Growing { cursor, from, to } => {
            let is_counted = matches!(ending, Ending::Length | Ending::Frames);
            let small = to.filter(|to| is_counted && to - from <= COALESCE_BYTES_MAX);
            match small.and_then(|to| cursor.whole(from, to)) {
                // The content has arrived already, as small bodies do together with their heads.
                Some(span) => {
                    span.copy_to(out);
                    Rest::None
                }
                None => Rest::Growing { cursor, from, to, ending },
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

/// Sends `prefix` and the rest of an answer, waiting for the client where needed. Returns whether all of it
/// was sent. The log records of the sent answers are completed here.
pub(crate) async fn finish(
    client: &mut impl Sink,
    prefix: Vec<u8>,
    rest: Rest,
    drafts: &mut Vec<Draft>,
) -> bool {
    let until_close = matches!(rest, Rest::Growing { ending: Ending::Close, .. });
    let sent = match rest {
        Rest::None => client.send_all(&prefix).await.map_err(Cut::Client),
        Rest::Trailers(lines) => send_prefix_and_trailers(client, &prefix, &lines).await,
        Rest::Pinned { mut object, from, to, ending } => {
            send::pinned(client, &prefix, &mut object, from, to, ending).await
        }
        // Boxed: waiting for a disk is rare, but unboxed it would enlarge every answer's future.
        Rest::Parts { mut parts, ending } => Box::pin(send::parts(client, &prefix, &mut parts, ending)).await,
        // Boxed for the same reason.
        Rest::Blocks(mut blocks) => Box::pin(send::send_slices(client, prefix, &mut blocks)).await,
        Rest::MultipartRanges(mut several) => Box::pin(send::send_ranges(client, prefix, &mut several)).await,
        Rest::Growing { mut cursor, from, to, ending } => {
            send::growing(client, prefix, &mut cursor, ending, from, to).await
        }
    };
    let sent = match sent {
        Ok(()) => client.flush().await.map_err(Cut::Client),
        cut => cut,
    };
    account(&sent);
    transaction::end_all(drafts, how_ended(&sent), client.sent_bytes());
    match sent {
        // The client has stopped reading: a reset lets the kernel drop the bytes that the client has not
        // read.
        Err(Cut::Client(SinkError::Stalled | SinkError::Slow | SinkError::Wanted | SinkError::GaveWay)) => {
            client.cut()
        }
        // With chunks or a length the client notices by itself that something is missing.
        Err(Cut::Origin) if until_close => client.cut(),
        _ => {}
    }
    sent.is_ok()
}

async fn send_prefix_and_trailers(client: &mut impl Sink, prefix: &[u8], trailers: &[u8]) -> Result<(), Cut> {
    client.send_all(prefix).await?;
    client.send_trailers(trailers).await?;
    Ok(())
}

/// Returns the reason why an answer was not sent completely, in the log's words.
fn how_ended(sent: &Result<(), Cut>) -> Option<&'static str> {
    match sent {
        Ok(()) => None,
        Err(Cut::Client(SinkError::Closed)) => Some("client-gone"),
        Err(Cut::Client(SinkError::Stalled)) => Some("client-stalled"),
        Err(Cut::Client(SinkError::Slow)) => Some("client-slow"),
        Err(Cut::Client(SinkError::Wanted | SinkError::GaveWay)) => Some("memory-wanted"),
        Err(Cut::Disk) => Some("disk-failed"),
        Err(Cut::Origin) => Some("origin-broke"),
    }
}

/// Counts an answer that was not sent completely.
fn account(sent: &Result<(), Cut>) {
    let counter = match sent {
        Ok(()) => return,
        Err(Cut::Client(SinkError::Closed)) => Counter::ClientsGone,
        Err(Cut::Client(SinkError::Stalled)) => Counter::ClientsStalled,
        Err(Cut::Client(SinkError::Slow)) => Counter::SlowReaders,
        // These errors were already counted where they occurred.
        Err(Cut::Client(SinkError::Wanted | SinkError::GaveWay)) => return,
        Err(Cut::Disk) => Counter::PartsCut,
        Err(Cut::Origin) => Counter::BodiesCut,
    };
    with_core(|core| core.count(counter));
}
