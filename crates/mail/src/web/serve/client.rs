//! Who asks, where what is shared is shared out.

use std::{
    convert::Infallible,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

use axum::{
    extract::FromRequestParts,
    http::{Extensions, request::Parts},
};

use engine::{accounts::ClientKey, network::Network};

use super::app::App;
use crate::mailbox::mailboxes::Mailboxes;

/// Whoever is not known.
const NOBODY: httpd::Client = httpd::Client(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

/// One asker, behind a proxy that is believed whom it asks for: an address, or a network of IPv6 that one has by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client(IpAddr);

impl Client {
    /// Who asks what has these extensions.
    pub(crate) fn asking(extensions: &Extensions) -> Self {
        Self::of(extensions.get().copied().unwrap_or(NOBODY))
    }

    pub(crate) fn of(asker: httpd::Client) -> Self {
        Self(match asker.0 {
            // A customer's network has 64 bits of its own (RFC 6177); so do the places of connections count.
            IpAddr::V6(v6) if !v6.is_loopback() => {
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)))
            }
            address => address,
        })
    }

    /// Returns the client's key in an account. Each request of this machine and of a `shared` network is a client by
    /// itself: everybody may come from there.
    pub(crate) fn key(self, number: u64, shared: &[Network]) -> ClientKey {
        ClientKey::of_connection(self.0, number, shared)
    }

    /// Returns how many places a client may hold of `most` that all share: half of those that the others leave. `held` are
    /// taken by all, `own` of them by the client.
    pub(crate) fn share(most: usize, held: usize, own: usize) -> usize {
        (most + own).saturating_sub(held) / 2
    }

    /// This machine: the accelerator in front with all who come through it, a test suite. It has no share of its own,
    /// only the whole's bound.
    pub(crate) fn is_here(self) -> bool {
        self.0.is_loopback()
    }
}

impl<M: Mailboxes> FromRequestParts<Arc<App<M>>> for Client {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App<M>>) -> Result<Self, Infallible> {
        Ok(Self::asking(&parts.extensions))
    }
}
