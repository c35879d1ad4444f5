//! HTTP/1 over a socket: the downstream of today.
//!
//! ```text
//!  connection ── a turn: read, parse, hit::answer, deliver::begin, one write ──▶ wait
//!      │ not a hit: respond (the states), with upload as the request's body
//!      ▼
//!  deliver: Answer ─▶ head lines, framing, keep-alive or close ─▶ send: the body from where it is ─▶ client (the socket)
//! ```
//! Nothing outside of this directory knows that there is a socket.

mod client;
mod connection;
mod deliver;
mod send;
mod upload;

pub(crate) use connection::{head_limits, serve, turn_away};
