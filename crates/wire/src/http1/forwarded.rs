//! Who asks, and over which scheme, where proxies stand between.
//!
//! A proxy appends the address that it was asked from to `X-Forwarded-For` (or to `Forwarded`, RFC 7239). So the last
//! element is the word of the peer itself; it is believed if the peer is listed, and so on towards the front as long as
//! those named are listed too. The first that is not is who asks: what stands before it anybody can have written.
//!
//! `X-Forwarded-For` is what counts where there is both: nearly every proxy writes that, and many let a visitor's
//! `Forwarded` through. A proxy that writes `Forwarded` alone has to drop the visitor's `X-Forwarded-For`.

use std::net::{IpAddr, SocketAddr};

use super::url::Scheme;

/// Who asks: `peer`, or whom the proxies name that are believed. Of each field the values as they came.
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
    // From the last comma: what stands before is another's, with whatever quotes it left open.
    // By bytes: one of a visitor's that is no text must not make the whole field, and the proxy's word in it, unread.
    for said in fields.iter().rev().flat_map(|field| field.rsplit(|byte| *byte == b',')) {
        // A proxy that will not say, or cannot, asks for itself.
        let said = std::str::from_utf8(said).ok();
        let Some(address) = said.and_then(|said| address_of(said.trim())) else { break };
        client = address.to_canonical();
        if !is_believed(client) {
            break;
        }
    }
    client
}

/// Over which scheme a proxy that is believed was asked: the last word of `X-Forwarded-Proto`, else of `Forwarded`.
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

/// `192.0.2.7`, `192.0.2.7:4711`, `2001:db8::7`, `[2001:db8::7]`, `[2001:db8::7]:4711`.
fn address(text: &str) -> Option<IpAddr> {
    let bare = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.parse().ok().or_else(bare).or_else(with_port)
}

/// `for="[2001:db8::7]:4711";proto=https`, in any order (RFC 7239, 4 and 6).
fn for_address(element: &str) -> Option<IpAddr> {
    address(pair(element, "for")?)
}

/// The value of a pair of one element, without its quotes.
fn pair<'e>(element: &'e str, name: &str) -> Option<&'e str> {
    // The first counts, also if it names nobody: what stands behind it may be a visitor's word (`host="a;for=b"`).
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
    fn the_last_that_is_no_proxy_of_ours_asks() {
        let ours = |address: IpAddr| {
            let text = address.to_string();
            text == "127.0.0.1" || text.starts_with("10.")
        };
        for (peer, fields, who) in [
            ("127.0.0.1", &[][..], "127.0.0.1"),
            ("::ffff:127.0.0.1", &[(X, "192.0.2.7")], "192.0.2.7"),
            // A stranger's word about itself.
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
            // Quotes that a visitor leaves open swallow nothing of what the proxy says.
            ("127.0.0.1", &[(F, "for=\"8.8.8.8, for=192.0.2.7")], "192.0.2.7"),
            ("127.0.0.1", &[(F, "for=8.8.8.8, for=_hidden")], "127.0.0.1"),
            ("127.0.0.1", &[(F, "for=_hidden;host=\"a;for=8.8.8.8\"")], "127.0.0.1"),
            // Bytes beyond ASCII of a visitor's, to which the proxy appended.
            ("127.0.0.1", &[(X, "\u{e9}, 192.0.2.7")], "192.0.2.7"),
            ("127.0.0.1", &[(X, "8.8.8.8"), (X, "\u{e9}, 10.0.0.1")], "10.0.0.1"),
            // The visitor's own Forwarded, which a proxy let through.
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
