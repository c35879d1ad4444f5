//! Names for which certificates are obtained.

use std::{fmt, net::IpAddr, str::FromStr};

/// A host or an address for which a certificate is obtained.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    /// A host, in lower case.
    Host(Box<str>),
    /// An address (RFC 8738).
    Address(IpAddr),
}

/// Error for a name that cannot have a certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidName {
    /// The name is a wildcard.
    #[error(
        "{0}: a wildcard certificate needs the dns-01 challenge, which is not supported; name each host, or give this \
         site a certificate of its own (tls-cert, tls-key)"
    )]
    Wildcard(String),
    /// The text is not a host name.
    #[error(
        "invalid host {0:?}; expected a name such as www.example.org, or an address such as 192.0.2.1 or 2001:db8::1"
    )]
    NotAHost(String),
    /// The name is not public, so no CA can reach it.
    #[error(
        "{0}: not a public host name, so no certificate authority can validate it; expected a name such as www.example.org"
    )]
    NotPublic(String),
}

/// Maximum lengths of a label and of a whole name (RFC 1035 §2.3.4).
const LABEL_BYTES_MAX: usize = 63;
const NAME_BYTES_MAX: usize = 253;

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        if let Ok(address) = text.trim_matches(['[', ']']).parse() {
            return Ok(Self::Address(address));
        }
        let host = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        if host.starts_with("*.") {
            return Err(InvalidName::Wildcard(host));
        }
        let is_label = |label: &str| {
            (1..=LABEL_BYTES_MAX).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let is_number = |label: &str| label.bytes().all(|byte| byte.is_ascii_digit());
        if host.len() > NAME_BYTES_MAX
            || !host.split('.').all(is_label)
            || host.rsplit('.').next().is_none_or(is_number)
        {
            return Err(InvalidName::NotAHost(text.to_owned()));
        }
        if !host.contains('.') {
            return Err(InvalidName::NotPublic(host));
        }
        Ok(Self::Host(host.into()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => f.write_str(host),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

/// Groups names into certificates. Each host has its own, so that one failed validation does not delay the
/// others; all addresses share one, because a client that connects to an address sends no name.
pub(crate) fn grouped(names: &[Name]) -> Vec<Vec<Name>> {
    let mut groups: Vec<Vec<Name>> = Vec::new();
    let mut addresses: Vec<Name> = Vec::new();
    for name in names {
        match name {
            Name::Host(_) if !groups.iter().any(|group| group.contains(name)) => {
                groups.push(vec![name.clone()])
            }
            Name::Address(_) if !addresses.contains(name) => addresses.push(name.clone()),
            _ => {}
        }
    }
    addresses.sort();
    groups.extend((!addresses.is_empty()).then_some(addresses));
    groups
}

/// Returns the base name of the files of a certificate for these names.
pub(crate) fn file_name(names: &[Name]) -> String {
    match names {
        [Name::Host(host)] => host.to_string(),
        _ => "addresses".to_owned(),
    }
}

/// Returns the server name that a CA sends when it validates an address with tls-alpn-01 (RFC 8738 §6).
pub(crate) fn reverse(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(address) => {
            let nibbles = address.octets().into_iter().rev().flat_map(|byte| [byte & 15, byte >> 4]);
            nibbles.map(|nibble| format!("{nibble:x}.")).collect::<String>() + "ip6.arpa"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    #[test]
    fn a36_names_are_hosts_or_addresses() {
        assert_eq!(name("WWW.Example.org."), Name::Host("www.example.org".into()));
        assert_eq!(name("[2001:DB8::1]").to_string(), "2001:db8::1");
        assert_eq!(name("192.0.2.1"), Name::Address([192, 0, 2, 1].into()));
        let wrong = |text: &str| text.parse::<Name>().expect_err(text);
        assert!(matches!(wrong("*.example.org"), InvalidName::Wildcard(_)));
        assert!(wrong("*.example.org").to_string().contains("dns-01"));
        assert!(matches!(wrong("localhost"), InvalidName::NotPublic(_)));
        let long = format!("{}.org", "a".repeat(64));
        for text in [
            "",
            ".",
            "a..b",
            "-a.org",
            "a-.org",
            "a_b.org",
            "a b.org",
            "192.0.2",
            "b\u{fc}cher.de",
            "a.b:80",
            "http://a.b",
            &long,
        ] {
            assert!(matches!(wrong(text), InvalidName::NotAHost(_)), "{text}");
        }
    }

    #[test]
    fn a36_hosts_get_own_certificates_addresses_share_one() {
        let names: Vec<Name> =
            ["b.example", "192.0.2.2", "a.example", "b.example", "192.0.2.1"].map(name).to_vec();
        let groups = grouped(&names);
        let texts: Vec<String> =
            groups.iter().map(|group| group.iter().map(|name| format!("{name} ")).collect()).collect();
        assert_eq!(texts, ["b.example ", "a.example ", "192.0.2.1 192.0.2.2 "]);
        assert_eq!(
            groups.iter().map(|group| file_name(group)).collect::<Vec<_>>(),
            ["b.example", "a.example", "addresses"]
        );
    }

    #[test]
    fn a36_addresses_map_to_reverse_dns_names() {
        assert_eq!(reverse([192, 0, 2, 1].into()), "1.2.0.192.in-addr.arpa");
        let want = format!("{}{}8.b.d.0.1.0.0.2.ip6.arpa", "1.", "0.".repeat(23));
        assert_eq!(reverse("2001:db8::1".parse().expect("an address")), want);
    }
}
