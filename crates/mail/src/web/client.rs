//! Who asks, where what is shared is shared out.

use std::{
    convert::Infallible,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use axum::{extract::FromRequestParts, http::request::Parts};

use super::{app::App, connections::Peer, scope::peer};
use crate::mailboxes::Mailboxes;

/// One asker: an address, or a network of IPv6 that one has by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client(IpAddr);

impl Client {
    pub(crate) fn of(peer: Peer) -> Self {
        Self(match peer.0.ip().to_canonical() {
            // A customer's network has 64 bits of its own (RFC 6177); so do the places of connections count.
            IpAddr::V6(v6) if !v6.is_loopback() => {
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)))
            }
            address => address,
        })
    }

    /// This machine: the accelerator in front with all who come through it, a test suite. It has no share of its own,
    /// only the whole's bound.
    pub(super) fn is_here(self) -> bool {
        self.0.is_loopback()
    }
}

impl<M: Mailboxes> FromRequestParts<Arc<App<M>>> for Client {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App<M>>) -> Result<Self, Infallible> {
        Ok(Self::of(peer(parts).await))
    }
}
