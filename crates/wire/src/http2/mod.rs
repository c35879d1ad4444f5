//! HTTP/2 as a server speaks it (RFC 9113), with HPACK (RFC 7541), as functions from bytes to values.
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
//! - [`connection`]: the server's side of a connection: streams, windows, and what a client may make us do.
//! - [`error`]: error codes, and what was broken where.
//! - [`frame`]: frames in both directions.
//! - [`hpack`]: field blocks to fields, and back.
//! - [`request`]: fields to a request that is sound, and to the same request in HTTP/1.
//! - [`priority`]: how urgent a request is.
//!
//! Why a framer of our own: `docs/decisions/036-http2.md`.
#[macro_use]
mod rules;

pub mod connection;
pub mod error;
pub mod frame;
pub mod hpack;
pub mod priority;
pub mod request;

/// What a parser came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress<T> {
    /// A value, and how many bytes it took.
    Complete(T, usize),
    /// The bytes so far begin something that is at least so long in all; always more than there are.
    NeedMore(usize),
}
