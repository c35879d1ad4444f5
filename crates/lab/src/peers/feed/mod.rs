//! Servers that pass messages on, and flows through them of which every message is verified.

pub mod contenders;
pub mod drive;
pub mod ends;
pub mod load;
pub mod wire;

/// Bytes of a message: the article's size (ManyFeed), and nats bench's default.
pub const PAYLOAD_BYTES: usize = 100;
