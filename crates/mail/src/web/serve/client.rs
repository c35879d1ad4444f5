//! Client of a request, to which memory, jobs and slots are charged.

use std::{
    convert::Infallible,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use axum::{
    extract::FromRequestParts,
    http::{Extensions, request::Parts},
};
use engine::{accounts::ClientKey, network::Network};

/// Placeholder for an unknown client.
const NOBODY: httpd::Client = httpd::Client(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

/// A client: its address, or its IPv6 /64. Behind a trusted proxy it is the client that the proxy names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Client(IpAddr);

impl Client {
    /// Returns the client of a request with these extensions.
    pub(crate) fn asking(extensions: &Extensions) -> Self {
        Self::of(extensions.get().copied().unwrap_or(NOBODY))
    }

    pub(crate) fn of(asker: httpd::Client) -> Self {
        Self(match asker.0 {
            // A customer has a /64 (RFC 6177); the limit on connections counts the same way.
            IpAddr::V6(v6) if !v6.is_loopback() => {
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)))
            }
            address => address,
        })
    }

    /// Returns the client's key in an account. Each request from this machine or a `shared` network counts as
    /// a separate client, as anybody may be behind such an address.
    pub(crate) fn key(self, number: u64, shared: &[Network]) -> ClientKey {
        ClientKey::of_connection(self.0, number, shared)
    }

    /// Returns how many of `most` shared slots a client may hold: half of the slots that other clients leave
    /// free. All clients together hold `held` slots, this client holds `own` of them.
    pub(crate) fn share(most: usize, held: usize, own: usize) -> usize {
        (most + own).saturating_sub(held) / 2
    }

    /// Returns whether the client is this machine: the accelerator in front with all its clients, or a test
    /// suite. It has no share of its own, only the total limit.
    pub(crate) fn is_here(self) -> bool {
        self.0.is_loopback()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Client {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::asking(&parts.extensions))
    }
}
