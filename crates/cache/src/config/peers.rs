//! Configuration of peers, the other accelerators that share keys with this accelerator.

use std::{net::SocketAddr, time::Duration};

use subtle::ConstantTimeEq as _;

/// Maximum number of accelerators that share keys.
pub const PEERS_MAX: usize = 256;

/// Rules for requests between peers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerRules {
    /// Address for requests from peers; port 0 picks a free port.
    pub listen: SocketAddr,
    /// Name of this accelerator among its peers.
    pub name: String,
    /// All peers and this accelerator, if they are known at the start;
    /// [`Server::set_peers`](crate::Server::set_peers) sets them later.
    pub members: Vec<PeerAt>,
    /// Shared secret that authenticates peers.
    pub secret: PeerSecret,
    /// Time that a peer may stay silent before the origin is asked instead.
    pub patience: Duration,
    /// Maximum number of connections per core to each peer; a request that would need one more goes to the
    /// origin.
    pub connections_max: usize,
    /// Maximum number of peers' requests that are answered simultaneously, over all cores; further requests
    /// are declined, so that the peer asks the origin.
    pub requests_max: usize,
}

/// Name and address of an accelerator.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PeerAt {
    /// Name of the accelerator; the keys that it owns are derived from the names.
    pub name: String,
    /// Address for requests from peers: `HOST:PORT`.
    pub address: String,
}

/// Secret shared by all peers. `Debug` does not show it, and it is never logged or sent.
#[derive(Clone)]
pub struct PeerSecret(Box<[u8]>);

impl PeerSecret {
    /// Creates a secret from its bytes.
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
