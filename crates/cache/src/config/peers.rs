//! Other accelerators that share keys with this one.

use std::{net::SocketAddr, time::Duration};

use subtle::ConstantTimeEq as _;

/// Accelerators that can share keys.
pub const PEERS_MAX: usize = 256;

/// How accelerators ask each other for what they do not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerRules {
    /// Where the others ask this one; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The name of this one among them.
    pub name: String,
    /// All of them, this one too, where they are known from the start: [`Server::set_peers`](crate::Server::set_peers)
    /// says it later.
    pub members: Vec<PeerAt>,
    /// By which they know each other.
    pub secret: PeerSecret,
    /// For how long a peer may say nothing before its key's origin is asked instead.
    pub patience: Duration,
    /// Connections of a core to each of them; what needs another is asked of the origin.
    pub connections_max: usize,
    /// Requests of theirs that are answered at once, over all cores; more are sent to the origin.
    pub requests_max: usize,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PeerAt {
    /// Its name, by which keys find it.
    pub name: String,
    /// Where it is asked: `HOST:PORT`.
    pub address: String,
}

/// What all of them know and nobody else does. It has no `Debug` that shows it, and is never logged or sent.
#[derive(Clone)]
pub struct PeerSecret(Box<[u8]>);

impl PeerSecret {
    /// One of these bytes.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        Self(secret.into())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for PeerSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PeerSecret(…)")
    }
}

impl PartialEq for PeerSecret {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for PeerSecret {}
