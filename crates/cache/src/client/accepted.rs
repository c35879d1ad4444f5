//! Accepted connections: the client's address and the kind of listener.

use std::net::SocketAddr;

/// Kind of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenerKind {
    Plain,
    Tls,
    /// Port for peers, the other accelerators of the cluster.
    Peer,
}

/// Address of an accepted connection, and its listener's kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AcceptedConnection {
    pub(crate) address: SocketAddr,
    pub(crate) over: ListenerKind,
}
