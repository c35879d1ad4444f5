//! HTTP/2 for servers (RFC 9113), with HPACK (RFC 7541), as functions from bytes to values.
//!
//! ```text
//!   a client's bytes ──> Connection::receive ──> Event ──> the caller: requests, content, resets
//!   [ caller's buffer ]    frame::parse             │
//!                          hpack::Decoder ──> FieldSection, one for each loop
//!                          request::read_request    │
//!                                                   v
//!   to the client    <── Connection::reply, send_headers, data_header, release, reset, drain
//! ```
//!
//! - [`connection`]: server side of a connection: streams, windows, and limits on the cost that a client may cause.
//! - [`error`]: error codes, and the faults of a peer.
//! - [`frame`]: frames in both directions.
//! - [`hpack`]: conversion between field blocks and fields.
//! - [`request`]: conversion of fields to a valid request, and of that request to HTTP/1.
//! - [`priority`]: the priority of a request.
//!
//! The reason for an implementation of our own: `docs/decisions/036-http2.md`.
#[macro_use]
mod rules;

pub mod connection;
pub mod error;
pub mod frame;
pub mod hpack;
pub mod priority;
pub mod request;

/// Result of an incremental parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress<T> {
    /// A value, and the number of bytes consumed.
    Complete(T, usize),
    /// The input is incomplete; the number is the minimum total length needed, always greater than the length
    /// passed.
    NeedMore(usize),
}
