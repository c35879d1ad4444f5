//! HTTP/2 over a socket, plain or under TLS: many requests at once, each on a stream.
//!
//! ```text
//!               ┌ connection ── a turn: read, frames, hit::answer, begin, one write ──▶ wait
//!   socket ─────┤     │ not a hit, or content that cannot be sent at once
//!   (multiplex) │     ▼
//!               └ stream ── a task: respond (the states), with upload as the request's body; deliver::finish
//! ```
//! The socket, its pending output and the streams of a connection form its [`Multiplex`]. It is kept in
//! a table of the thread and found by its number: the connection's task reads and writes, and the streams' tasks send
//! through it. Frames, windows and the limits on a client's demands are in [`wire::http2`]
//! (docs/decisions/036-http2.md). A request is rendered as an HTTP/1 head and handled like any other request;
//! an answer's head is encoded here ([`encode`], with [`hpack_cache`] for recently encoded heads).

mod connection;
mod encode;
mod gather;
mod hpack_cache;
mod multiplex;
mod scratch;
mod stream;
mod stream_body;
mod upload;

pub(crate) use self::{connection::serve, scratch::Scratch};
