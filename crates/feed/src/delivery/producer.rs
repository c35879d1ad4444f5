//! Numbers that name a connection on its core, and a producer on any core.

/// Number of a connection on its core.
pub(crate) type ConnId = u32;
/// Connection of a subscription that has ended, while an unfinished delivery may still refer to it.
pub(crate) const GONE: ConnId = ConnId::MAX - 1;
/// Connection of a foreign subscription, which stands for a client's subscription in another account (see
/// `accounts::imports`).
pub(crate) const FOREIGN: ConnId = ConnId::MAX - 2;

/// A producer, on any core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Producer {
    pub(crate) core: u16,
    pub(crate) conn: ConnId,
    /// Permanent number of the connection, which tells it from later ones with the same `conn`.
    pub(crate) cid: u64,
}
