//! HTTP/1 over a socket, plain or under TLS.
//!
//! ```text
//!  connection ── a turn: read, parse, hit::answer, deliver::begin, one write ──▶ wait
//!      │ not a hit: respond (the states), with upload as the request's body
//!      ▼
//!  deliver: Answer ─▶ head lines, framing, keep-alive or close ─▶ send: the body from where it is ─▶ client ─▶ transport
//! ```

mod client;
mod connection;
mod peer;
mod upload;

pub(crate) use connection::{head_limits, serve, turn_away};
pub(crate) use peer::serve_peer;
