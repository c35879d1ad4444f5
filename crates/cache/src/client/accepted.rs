//! Who has come, and over what.

use std::net::SocketAddr;

/// What a listener's connections are under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Plain,
    Tls,
    /// Other accelerators of ours come there.
    Peer,
}

/// Who has come, and where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) address: SocketAddr,
    pub(crate) over: Over,
}
