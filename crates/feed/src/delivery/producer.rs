//! Numbers that identify a connection on its core, and a producer on any core.

/// Index of a connection on its core; reused after the connection is closed.
pub(crate) type ConnId = u32;
/// Placeholder for the connection of a subscription that has ended, while a suspended delivery may still
/// refer to the subscription.
pub(crate) const GONE: ConnId = ConnId::MAX - 1;
/// Placeholder for the connection of a foreign subscription, which represents a client's subscription in
/// another account (see `accounts::imports`).
pub(crate) const FOREIGN: ConnId = ConnId::MAX - 2;

/// Connection that publishes, on any core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Producer {
    pub(crate) core: u16,
    pub(crate) conn: ConnId,
    /// Number of the connection that is never reused; it distinguishes the connection from later ones with
    /// the same `conn`.
    pub(crate) cid: u64,
}

impl Producer {
    /// Returns the producer of messages that no connection has published. It is never held, because no
    /// connection has its number.
    #[expect(clippy::cast_possible_truncation, reason = "there are at most 64 cores")]
    pub(crate) fn nobody(core: usize) -> Self {
        Self { core: core as u16, conn: ConnId::MAX, cid: 0 }
    }
}
