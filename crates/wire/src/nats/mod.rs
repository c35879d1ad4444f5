//! The NATS client protocol and the leaf node protocol, in both directions, as functions from bytes to
//! values.
//!
//! ```text
//!   a client's bytes ──▶ client::parse ──▶ ClientOp<'bytes>            server::parse ◀── a server's bytes
//!                        client::repeats (a run of publishes,            │
//!                        one comparison each)                            ▼
//!   write::… ◀── lines for the other side                             ServerOp<'bytes>
//! ```
//!
//! - [`client`]: operations of clients (CONNECT, PUB, HPUB, SUB, UNSUB, PING, PONG).
//! - [`server`]: operations of servers (INFO, MSG, HMSG, PING, PONG, +OK, -ERR).
//! - [`leaf`]: operations between a leaf node and its hub (LS+, LS-, LMSG, HMSG, INFO, CONNECT, PING, PONG, -ERR).
//! - [`credentials`]: contents of a credentials file, and its expiry.
//! - [`subject`]: subjects and patterns: which are valid, which match.
//! - [`rejection`]: a server's errors for broken rules, and whether it then closes.
//! - [`stamp`](mod@stamp): a payload that its receiver can verify, for tools and tests.
//! - [`write`](mod@write): encoder for both sides' lines.
//!
//! nats-server 2.15 decides if the published documentation differs from it: clients were written against
//! nats-server. Its answers to the inputs in `tests/nats_rules.rs` were recorded from the network.
//!
//! An operation is returned only when its last byte has arrived, payload and line end included: no part of a
//! message can be forwarded before it is complete. Values borrow from the caller's buffer; nothing is copied
//! or allocated.

pub mod client;
pub mod credentials;
pub mod leaf;
mod line;
pub mod rejection;
pub mod server;
pub mod stamp;
pub mod subject;
pub mod write;

/// Result of an incremental parser.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress<T> {
    /// An operation, and the number of bytes consumed.
    Complete(T, usize),
    /// The input is incomplete; the number is the minimum total length needed, always greater than the length
    /// passed.
    NeedMore(usize),
}
