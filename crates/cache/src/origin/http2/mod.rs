//! Origins that speak HTTP/2: many exchanges share a connection.
//!
//! ```text
//!  Talk ── request ──▶ ┐                                    ┌─ DATA kept until it is read: at most a window a stream
//!  Talk ── request ──▶ ├ Connection (h2) ◀─ drive ─▶ Line ──┤
//!  Body ◀── window ─── ┘   a task of the core's, pings      └─ what was read is given back as window
//! ```
//! `h2` has the framing; here are the bounds and what is made of it. *Where the data lives:* what came and was not read
//! stays in `h2`'s buffers, and is copied into the memory that the caller hands in. *Bounds:* a stream's window
//! (`origin_stream_bytes_max`) for what comes; streams of a connection (`origin_streams_max`, and what the origin allows),
//! and a connection's window is that of all of them, so that who reads slowly never stalls another; streams of a core
//! (`origin_streams_bytes_max`, in windows); [`SEND_BYTES_MAX`](connection::SEND_BYTES_MAX) a stream for what goes out. *Who
//! waits:* the task of the exchange, for its stream alone.
//!
//! An origin's answer becomes a head of HTTP/1 and goes through the same parser and the same checks as one that came so
//! (`render`): from there on nobody can tell them apart.

mod connection;
mod render;
mod talk;

pub(super) use connection::{Connection, Place, open};
pub(super) use render::trailers;
pub(super) use talk::{Body, Talk, poll_hand};

use h2::Reason;
use wire::http2::error::ErrorCode;

use super::OriginError;
use crate::error_page::Rule;

/// What went wrong with a stream before its answer's head was there.
fn of_stream(error: &h2::Error) -> OriginError {
    if let Some(error) = error.get_io() {
        // The connection ended, whichever way.
        return match error.kind() {
            std::io::ErrorKind::ConnectionReset => OriginError::Reset,
            _ => OriginError::Closed,
        };
    }
    match error.reason() {
        // A stream of a number beyond the last one that was looked at (RFC 9113 §6.8), or a request that came too late.
        // h2 ends no other stream so: those that the origin may have seen go on, or end with the connection.
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
