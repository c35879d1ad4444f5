//! Message servers that are compared, and the flows through them, in which every message is verified.

pub mod contenders;
pub mod drive;
pub mod ends;
pub mod load;
pub mod wire;

/// Payload size of a message: the size in the ManyFeed article, and the default of nats bench.
pub const PAYLOAD_BYTES: usize = 100;
