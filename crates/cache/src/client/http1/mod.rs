//! HTTP/1 over a socket, plain or under TLS.
//!
//! ```text
//!  connection ── a turn: read, parse, hit::answer, deliver::begin, one write ──▶ wait
//!      │ not a hit: respond (the states), with upload as the request's body
//!      ▼
//!  deliver: Answer ─▶ head lines, framing, keep-alive or close ─▶ send: the body ─▶ client ─▶ transport
//! ```

pub(crate) mod client;
mod connection;
mod upload;

pub(crate) use crate::client::peer_endpoint::serve_peer;
pub(crate) use connection::{head_limits, serve, turn_away};
