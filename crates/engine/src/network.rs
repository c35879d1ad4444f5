//! A network of IP addresses, as an operator writes it: `10.0.0.0/8`, `2001:db8::/32`, or a single address.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

/// Returns the canonical form of an address: `[::ffff:192.0.2.1]:25`, an IPv4 peer of a socket on `[::]`,
/// becomes `192.0.2.1:25`.
#[must_use]
pub fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// A network: all addresses with the same prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// First address of the network: all bits after the prefix are 0.
    first: IpAddr,
    /// Length of the prefix in bits: at most 32 for IPv4, 128 for IPv6.
    prefix_bits: u8,
}

/// Error: the text is not a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNetwork {
    /// The part before the `/` is not an address.
    #[error(
        "invalid network `{0}`: expected an IP address or a network, such as 10.0.0.7, ::1 or 10.0.0.0/8"
    )]
    Address(String),
    /// The part after the `/` is not a valid number of bits.
    #[error("invalid prefix length in `{0}`: 0 to 32 for IPv4, 0 to 128 for IPv6")]
    Prefix(String),
    /// Bits after the prefix are set, so it is unclear whether the address or the whole network is meant.
    #[error("`{written}` has host bits set: write {meant} for the network, or the address without a prefix")]
    Within {
        /// Text as the operator wrote it.
        written: String,
        /// Network that contains the address, with the host bits cleared.
        meant: Network,
    },
}

impl Network {
    /// Returns whether the network contains an address. An IPv4 address from an IPv6 socket
    /// (`::ffff:10.0.0.7`) counts as that IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.first.is_ipv4() && first(address, self.prefix_bits) == self.first
    }

    fn bits_of(address: IpAddr) -> u8 {
        if address.is_ipv4() { 32 } else { 128 }
    }
}

/// Returns the address with all bits after the first `prefix_bits` set to 0.
fn first(address: IpAddr, prefix_bits: u8) -> IpAddr {
    let prefix_bits = u32::from(prefix_bits);
    match address {
        IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() & !u32::MAX.checked_shr(prefix_bits).unwrap_or(0)).into()),
        IpAddr::V6(v6) => {
            IpAddr::V6((v6.to_bits() & !u128::MAX.checked_shr(prefix_bits).unwrap_or(0)).into())
        }
    }
}

/// Converts an address to the network that contains only it.
impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        let first = address.to_canonical();
        Self { first, prefix_bits: Self::bits_of(first) }
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| InvalidNetwork::Address(text.to_owned()))?;
        let Some(bits) = bits else {
            return Ok(address.into());
        };
        let is_number = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
        let prefix_bits = bits.parse().ok().filter(|&bits: &u8| is_number && bits <= Self::bits_of(address));
        let prefix_bits = prefix_bits.ok_or_else(|| InvalidNetwork::Prefix(text.to_owned()))?;
        let network = Self { first: first(address, prefix_bits), prefix_bits };
        if network.first == address {
            Ok(network)
        } else {
            Err(InvalidNetwork::Within { written: text.to_owned(), meant: network })
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix_bits == Self::bits_of(self.first) {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}/{}", self.first, self.prefix_bits)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_so() {
        for (network, inside, outside) in [
            (
                "10.0.0.0/8",
                vec!["10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3"],
                vec!["11.0.0.0", "9.255.255.255", "::1"],
            ),
            ("192.0.2.7", vec!["192.0.2.7", "::ffff:192.0.2.7"], vec!["192.0.2.6", "192.0.2.8"]),
            ("192.0.2.128/25", vec!["192.0.2.128", "192.0.2.255"], vec!["192.0.2.127"]),
            ("192.0.2.7/32", vec!["192.0.2.7"], vec!["192.0.2.6"]),
            ("0.0.0.0/0", vec!["0.0.0.0", "255.255.255.255"], vec!["::", "2001:db8::1"]),
            ("::/0", vec!["::", "2001:db8::1"], vec!["10.0.0.1", "::ffff:10.0.0.1"]),
            ("2001:db8::/32", vec!["2001:db8:ffff::1"], vec!["2001:db9::"]),
            ("::1", vec!["::1"], vec!["::2", "127.0.0.1"]),
            ("::ffff:10.0.0.7", vec!["10.0.0.7"], vec!["10.0.0.8"]),
        ] {
            let parsed: Network = network.parse().expect(network);
            for address in inside {
                assert!(parsed.contains(address.parse().expect(address)), "{address} in {network}");
            }
            for address in outside {
                assert!(!parsed.contains(address.parse().expect(address)), "{address} in {network}");
            }
        }
    }

    #[test]
    fn a_mapped_address_becomes_ipv4() {
        for (accepted, said) in [
            ("[::ffff:192.0.2.1]:25", "192.0.2.1:25"),
            ("[::1]:25", "[::1]:25"),
            ("[2001:db8::1]:25", "[2001:db8::1]:25"),
            ("127.0.0.1:25", "127.0.0.1:25"),
        ] {
            assert_eq!(canonical(accepted.parse().expect(accepted)).to_string(), said);
        }
    }

    #[test]
    fn networks_are_written_as_they_are_read() {
        for text in ["10.0.0.0/8", "192.0.2.7", "0.0.0.0/0", "::1", "2001:db8::/32"] {
            assert_eq!(text.parse::<Network>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for (text, said) in [
            ("", "invalid network"),
            ("somewhere", "invalid network"),
            ("10.0.0/8", "invalid network"),
            ("/8", "invalid network"),
            ("10.0.0.0/33", "0 to 32"),
            ("10.0.0.0/", "0 to 32"),
            ("10.0.0.0/+8", "0 to 32"),
            ("10.0.0.0/8/8", "0 to 32"),
            ("10.0.0.0/256", "0 to 32"),
            ("::/129", "0 to 32"),
            ("10.0.0.7/8", "write 10.0.0.0/8"),
        ] {
            let error = text.parse::<Network>().expect_err(text).to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
