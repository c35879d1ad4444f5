//! The NATS client protocol, and that of leaf nodes, both directions, as functions from bytes to values.
//!
//! ```text
//!   a client's bytes ──▶ client::parse ──▶ ClientOp<'bytes>            server::parse ◀── a server's bytes
//!                        client::repeats (a run of publishes,            │
//!                        one comparison each)                            ▼
//!   write::… ◀── what the other side is sent                          ServerOp<'bytes>
//! ```
//!
//! - [`client`]: what clients send (CONNECT, PUB, HPUB, SUB, UNSUB, PING, PONG).
//! - [`server`]: what servers send (INFO, MSG, HMSG, PING, PONG, +OK, -ERR).
//! - [`leaf`]: what a leaf node and its hub send each other (LS+, LS-, LMSG, HMSG, INFO, CONNECT, PING, PONG, -ERR).
//! - [`credentials`]: what a file of credentials holds, and until when it is good.
//! - [`subject`]: subjects and patterns: which are valid, which match.
//! - [`rejection`]: what a server says when a client breaks a rule, and whether it then closes.
//! - [`stamp`](mod@stamp): a payload that whoever receives it can verify, for tools and tests.
//! - [`write`](mod@write): both sides' lines as bytes.
//!
//! Where the published documentation and nats-server differ, nats-server 2.15 decides: clients were written against it.
//! What it answers to each of the inputs in `tests/nats_rules.rs` was taken from the wire.
//!
//! An operation is handed out only when its last byte is there, payload and line end included: nothing of a message
//! can be passed on before all of it has come. Values borrow from the caller's buffer; nothing is copied or allocated.

pub mod client;
pub mod credentials;
pub mod leaf;
mod line;
pub mod rejection;
pub mod server;
pub mod stamp;
pub mod subject;
pub mod write;

/// What a parser came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress<T> {
    /// An operation, and how many bytes it took.
    Complete(T, usize),
    /// The bytes so far begin an operation that is at least so long in all; always more than there are.
    NeedMore(usize),
}
