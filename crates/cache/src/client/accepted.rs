//! Who has come, and over what.

use std::net::SocketAddr;

/// What a listener's connections are under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    Plain,
    Tls,
    /// Other accelerators of ours come there.
    Peer,
}

/// Who has come, and where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Accepted {
    pub(crate) address: SocketAddr,
    pub(crate) over: ListenerKind,
}
