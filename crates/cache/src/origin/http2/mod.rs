//! Origins that speak HTTP/2: many exchanges share a connection.
//!
//! ```text
//!  Talk ── request ──▶ ┐                                    ┌─ DATA is kept until it is read: at most a window per stream
//!  Talk ── request ──▶ ├ Connection (h2) ◀─ drive ─▶ Line ──┤
//!  Body ◀── window ─── ┘   a task of the core, with pings   └─ bytes that were read reopen the window
//! ```
//! `h2` does the framing; this module sets the bounds and converts heads. *Memory:* received bytes stay in
//! `h2`'s buffers until they are read, and are then copied into the caller's memory. *Bounds:* a stream's
//! window (`origin_stream_bytes_max`) limits received bytes. Streams of a connection are limited by
//! `origin_streams_max`, and by the origin. A connection's window is the sum of its streams' windows, so that
//! a slow reader never stalls another. The streams of a core are limited by `origin_streams_bytes_max`, the
//! sum of their windows. Bytes to send are limited to [`SEND_BYTES_MAX`](connection::SEND_BYTES_MAX) per
//! stream. *Waiting:* the task of an exchange waits for its own stream only.
//!
//! An origin's answer becomes a head of HTTP/1 and goes through the same parser and checks as any HTTP/1
//! answer (`render`). From there on the two cannot be told apart.

mod connection;
mod render;
mod talk;

pub(super) use connection::{Connection, Place, open};
pub(super) use render::trailers;
pub(super) use talk::{Body, Talk};

use h2::Reason;
use wire::http2::error::ErrorCode;

use super::OriginError;
use crate::error_page::Rule;

/// Converts the error of a stream that failed before its answer's head arrived.
fn of_stream(error: &h2::Error) -> OriginError {
    if let Some(error) = error.get_io() {
        // The connection ended: it was reset, closed or broken.
        return match error.kind() {
            std::io::ErrorKind::ConnectionReset => OriginError::Reset,
            _ => OriginError::Closed,
        };
    }
    match error.reason() {
        // The stream's number is beyond the last one that the origin processed (RFC 9113 §6.8), or the
        // request came too late. h2 ends no other stream this way: streams that the origin may have seen
        // continue, or end with the connection.
        _ if error.is_remote() && error.is_go_away() => OriginError::Unprocessed,
        Some(Reason::REFUSED_STREAM) if error.is_remote() => OriginError::Unprocessed,
        Some(Reason::HTTP_1_1_REQUIRED) if error.is_remote() => OriginError::Http1Required,
        Some(reason) if error.is_library() && error.is_reset() => {
            OriginError::Invalid(Rule::Http2(ErrorCode(reason.into())))
        }
        _ => OriginError::Reset,
    }
}

#[cfg(test)]
mod tests;
