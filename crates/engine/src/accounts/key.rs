//! The identity of a client: decides which connections count as one client.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::network::Network;

/// Bits of an IPv6 address that do not identify a household or a machine, because its owner chooses them (RFC
/// 4291 §2.5.4).
const HOST_BITS: u32 = 64;
/// Bits of a /64 prefix that lie within the customer's network: the largest site prefix that RFC 6177 §2
/// names is a /48.
const SITE_BITS: u32 = 16;

/// A client of an account.
///
/// An IPv6 /64 counts as one client. Its /48 also counts as a client, with a share [as large as that of
/// sixteen clients](super::GROUP_SHARES).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClientKey {
    /// An IPv4 address. An IPv4-mapped IPv6 address (`::ffff:192.0.2.1`) is the IPv4 address.
    Address(Ipv4Addr),
    /// The upper 64 bits of an IPv6 address.
    Network64(u64),
    /// The upper 48 bits of an IPv6 address, in the lower bits of the number.
    Network48(u64),
    /// A single connection, identified by its number, when its address does not identify the client.
    Connection(u64),
}

impl ClientKey {
    /// Returns the client to which an address belongs.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::Address(address),
            IpAddr::V6(address) => Self::Network64((address.to_bits() >> HOST_BITS) as u64),
        }
    }

    /// Returns the client to which a connection belongs. `address` is the address of the peer, or the client
    /// address reported by a trusted proxy or a PROXY header. Each connection from loopback and from `shared`
    /// networks (a proxy without such a header, a large NAT) is a client of its own, because many people
    /// share these addresses.
    pub fn of_connection(address: IpAddr, number: u64, shared: &[Network]) -> Self {
        let address = address.to_canonical();
        if address.is_loopback() || shared.iter().any(|network| network.contains(address)) {
            return Self::Connection(number);
        }
        Self::of(address)
    }

    /// Returns the group of the client: the /48 of a /64, which has a share of its own.
    pub fn group(self) -> Option<Self> {
        match self {
            Self::Network64(bits) => Some(Self::Network48(bits >> SITE_BITS)),
            Self::Address(_) | Self::Network48(_) | Self::Connection(_) => None,
        }
    }

    /// Returns whether this is a /48, the group of /64 clients.
    pub(super) fn is_group(self) -> bool {
        matches!(self, Self::Network48(_))
    }
}

impl fmt::Display for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v6 = |bits: u64| Ipv6Addr::from_bits(u128::from(bits) << HOST_BITS);
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Network64(bits) => write!(f, "{}/64", v6(*bits)),
            Self::Network48(bits) => write!(f, "{}/48", v6(*bits << SITE_BITS)),
            Self::Connection(number) => write!(f, "connection {number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(address: &str) -> String {
        let shared =
            ["198.51.100.0/24".parse().expect("a network"), "2001:db8:5::/48".parse().expect("a network")];
        ClientKey::of_connection(address.parse().expect(address), 7, &shared).to_string()
    }

    #[test]
    fn an_address_names_its_client() {
        for (address, client) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("127.0.0.1", "connection 7"),
            ("127.9.9.9", "connection 7"),
            ("::1", "connection 7"),
            ("::ffff:127.0.0.1", "connection 7"),
            ("198.51.100.9", "connection 7"),
            ("::ffff:198.51.100.9", "connection 7"),
            ("2001:db8:5:1::1", "connection 7"),
        ] {
            assert_eq!(of(address), client, "{address}");
        }
    }

    #[test]
    fn a_slash_48_holds_its_slash_64s() {
        let group = |address: &str| {
            ClientKey::of(address.parse().expect(address)).group().map(|group| group.to_string())
        };
        assert_eq!(group("2001:db8:1:2::1").as_deref(), Some("2001:db8:1::/48"));
        assert_eq!(group("2001:db8:1:ffff::1").as_deref(), Some("2001:db8:1::/48"));
        assert_eq!(group("2001:db8:2:2::1").as_deref(), Some("2001:db8:2::/48"));
        assert_eq!(group("192.0.2.1"), None);
    }
}
