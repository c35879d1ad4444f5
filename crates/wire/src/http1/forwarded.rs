//! Client address and scheme of a request that came through proxies.
//!
//! Each proxy appends its own client's address to `X-Forwarded-For` (or to `Forwarded`, RFC 7239). The last
//! element was therefore written by the connecting peer, and is trusted if the peer is listed as a trusted
//! proxy. The elements before it are read in the same way, from back to front, as long as the named addresses
//! are listed too. The first address that is not listed is the client: anybody may have written the elements
//! before it.
//!
//! `X-Forwarded-For` takes precedence over `Forwarded`: nearly every proxy writes the former, and many let a
//! visitor's `Forwarded` through. A proxy that writes `Forwarded` alone must drop the visitor's
//! `X-Forwarded-For`.

use std::net::{IpAddr, SocketAddr};

use super::url::Scheme;

/// Returns the client's address: `peer`, or the address that trusted proxies name. The iterators yield the
/// raw values of each field.
pub fn client<'v>(
    peer: IpAddr,
    x_forwarded_for: impl Iterator<Item = &'v [u8]>,
    forwarded: impl Iterator<Item = &'v [u8]>,
    is_believed: impl Fn(IpAddr) -> bool,
) -> IpAddr {
    let mut client = peer.to_canonical();
    if !is_believed(client) {
        return client;
    }
    let mut fields: Vec<&[u8]> = x_forwarded_for.collect();
    let mut address_of: fn(&str) -> Option<IpAddr> = address;
    if fields.is_empty() {
        fields.extend(forwarded);
        address_of = for_address;
    }
    // Splits at commas from the end, ignoring quotes: earlier elements come from other senders and may
    // contain unclosed quotes. Elements are split as bytes, so that a visitor's invalid UTF-8 does not make
    // the whole field unreadable, including the proxy's own element.
    for said in fields.iter().rev().flat_map(|field| field.rsplit(|byte| *byte == b',')) {
        // A proxy that hides the address, or cannot name it, counts as the client itself.
        let said = std::str::from_utf8(said).ok();
        let Some(address) = said.and_then(|said| address_of(said.trim())) else { break };
        client = address.to_canonical();
        if !is_believed(client) {
            break;
        }
    }
    client
}

/// Returns the scheme with which the request reached a trusted proxy: the last element of
/// `X-Forwarded-Proto`, or of `Forwarded` if the former is absent.
pub fn scheme<'v>(
    x_forwarded_proto: impl Iterator<Item = &'v [u8]>,
    forwarded: impl Iterator<Item = &'v [u8]>,
) -> Option<Scheme> {
    let last = |value: &'v [u8]| {
        let said = value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
        std::str::from_utf8(said).map(str::trim).unwrap_or_default()
    };
    let said = match x_forwarded_proto.last() {
        Some(value) => last(value),
        None => pair(last(forwarded.last()?), "proto")?,
    };
    let schemes = [("http", Scheme::Http), ("https", Scheme::Https)];
    schemes.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(said)).map(|(_, scheme)| scheme)
}

/// Parses `192.0.2.7`, `192.0.2.7:4711`, `2001:db8::7`, `[2001:db8::7]` or `[2001:db8::7]:4711`.
fn address(text: &str) -> Option<IpAddr> {
    let bare = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.parse().ok().or_else(bare).or_else(with_port)
}

/// Reads the address in `for="[2001:db8::7]:4711";proto=https`, with the pairs in any order (RFC 7239 §4,
/// §6).
fn for_address(element: &str) -> Option<IpAddr> {
    address(pair(element, "for")?)
}

/// Returns the value of the named pair in one element, without its quotes.
fn pair<'e>(element: &'e str, name: &str) -> Option<&'e str> {
    // The first pair of that name counts even if it names no address: a later pair may come from the visitor
    // (`host="a;for=b"`).
    let mut pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(said, _)| said.trim().eq_ignore_ascii_case(name))?;
    let value = value.trim();
    Some(value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: &str = "x-forwarded-for";
    const F: &str = "forwarded";

    fn asked(peer: &str, fields: &[(&str, &str)], is_believed: impl Fn(IpAddr) -> bool) -> String {
        let values = |of: &'static str| {
            let fields = fields.iter().filter(move |(name, _)| *name == of);
            fields.map(|(_, value)| value.as_bytes())
        };
        client(peer.parse().expect("an address"), values(X), values(F), is_believed).to_string()
    }

    #[test]
    fn the_last_untrusted_address_is_the_client() {
        let ours = |address: IpAddr| {
            let text = address.to_string();
            text == "127.0.0.1" || text.starts_with("10.")
        };
        for (peer, fields, who) in [
            ("127.0.0.1", &[][..], "127.0.0.1"),
            ("::ffff:127.0.0.1", &[(X, "192.0.2.7")], "192.0.2.7"),
            // An untrusted peer's claim about its own address is ignored.
            ("192.0.2.9", &[(X, "192.0.2.7")], "192.0.2.9"),
            ("127.0.0.1", &[(X, "8.8.8.8, 192.0.2.7")], "192.0.2.7"),
            ("127.0.0.1", &[(X, "8.8.8.8"), (X, "192.0.2.7,10.1.2.3")], "192.0.2.7"),
            ("127.0.0.1", &[(X, "10.1.2.3")], "10.1.2.3"),
            ("127.0.0.1", &[(X, "192.0.2.7:4711")], "192.0.2.7"),
            ("127.0.0.1", &[(X, "[2001:db8::7]:4711")], "2001:db8::7"),
            ("127.0.0.1", &[(X, "2001:db8::7")], "2001:db8::7"),
            ("127.0.0.1", &[(X, "192.0.2.7, unknown")], "127.0.0.1"),
            ("127.0.0.1", &[(X, "192.0.2.7, who, 10.0.0.1")], "10.0.0.1"),
            ("127.0.0.1", &[(X, "")], "127.0.0.1"),
            ("127.0.0.1", &[(F, "for=192.0.2.7")], "192.0.2.7"),
            ("127.0.0.1", &[(F, "proto=http; For=\"[2001:db8::7]:4711\"; by=10.0.0.1")], "2001:db8::7"),
            ("127.0.0.1", &[(F, "for=8.8.8.8, for=192.0.2.7, for=10.0.0.1")], "192.0.2.7"),
            // Quotes that a visitor leaves open do not swallow the proxy's own element.
            ("127.0.0.1", &[(F, "for=\"8.8.8.8, for=192.0.2.7")], "192.0.2.7"),
            ("127.0.0.1", &[(F, "for=8.8.8.8, for=_hidden")], "127.0.0.1"),
            ("127.0.0.1", &[(F, "for=_hidden;host=\"a;for=8.8.8.8\"")], "127.0.0.1"),
            // The proxy appended its element to a visitor's non-ASCII bytes.
            ("127.0.0.1", &[(X, "\u{e9}, 192.0.2.7")], "192.0.2.7"),
            ("127.0.0.1", &[(X, "8.8.8.8"), (X, "\u{e9}, 10.0.0.1")], "10.0.0.1"),
            // A proxy let the visitor's own `Forwarded` through.
            ("127.0.0.1", &[(F, "for=8.8.8.8"), (X, "192.0.2.7")], "192.0.2.7"),
        ] {
            assert_eq!(asked(peer, fields, ours), who, "{peer} {fields:?}");
        }
        assert_eq!(asked("127.0.0.1", &[(X, "192.0.2.7")], |_| false), "127.0.0.1", "nobody is believed");
    }

    #[test]
    fn the_last_word_on_the_scheme_counts() {
        for (protos, forwardeds, said) in [
            (&["https"][..], &[][..], Some(Scheme::Https)),
            (&["HTTP"], &["proto=https"], Some(Scheme::Http)),
            (&["https, http"], &[], Some(Scheme::Http)),
            (&["http", "http,https "], &[], Some(Scheme::Https)),
            (&["ftp"], &["proto=https"], None),
            (&[""], &[], None),
            (&[], &["for=1.2.3.4;proto=https"], Some(Scheme::Https)),
            (&[], &["proto=https, for=1.2.3.4;Proto=\"http\""], Some(Scheme::Http)),
            (&[], &["for=1.2.3.4"], None),
            (&[], &[], None),
        ] {
            let bytes = |texts: &'static [&str]| texts.iter().map(|text| text.as_bytes());
            assert_eq!(scheme(bytes(protos), bytes(forwardeds)), said, "{protos:?} {forwardeds:?}");
        }
    }
}
