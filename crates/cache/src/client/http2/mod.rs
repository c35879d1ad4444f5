//! HTTP/2 over a socket, plain or under TLS: many requests at once, each on a stream.
//!
//! ```text
//!               ┌ connection ── a turn: read, frames, hit::answer, begin, one write ──▶ wait
//!   socket ─────┤     │ not a hit, or content that does not leave at once
//!   (multiplex) │     ▼
//!               └ stream ── a task: respond (the states), with upload as the request's body; deliver::finish
//! ```
//! The socket, what waits to be written to it, and the streams of a connection are its [`Multiplex`], which lies in the
//! core's memory and is found by number: the connection's task reads and writes, the streams' tasks send through it.
//! Frames, windows and what a client may make us do are [`wire::http2`]'s (docs/decisions/036-http2.md); a request is
//! rendered as a head of HTTP/1 and goes the way of all requests, an answer's head is encoded here ([`encode`], and
//! [`blocks`] for what was encoded a moment ago).

mod connection;
mod encode;
mod gather;
mod hpack_cache;
mod multiplex;
mod stream;
mod upload;

pub(crate) use self::{
    connection::serve,
    multiplex::{Multiplexes, Scratch},
};
