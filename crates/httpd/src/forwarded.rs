//! Who asks, where proxies stand between.
//!
//! A proxy appends the address that it was asked from to `X-Forwarded-For` (or to `Forwarded`, RFC 7239). So the last
//! element is the word of the peer itself; it is believed if the peer is listed, and so on towards the front as long as
//! those named are listed too. The first that is not is who asks: what stands before it anybody can have written.
//!
//! `X-Forwarded-For` is what counts where there is both: our own accelerator and nearly every other proxy writes that,
//! and lets a visitor's `Forwarded` through. A proxy that writes `Forwarded` alone has to drop the visitor's
//! `X-Forwarded-For`.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, header};
use engine::network::Network;

const X_FORWARDED_FOR: &str = "x-forwarded-for";

/// Who asks.
pub(super) fn client(peer: IpAddr, headers: &HeaderMap, proxies: &[Network]) -> IpAddr {
    let is_believed = |address| proxies.iter().any(|network| network.contains(address));
    let mut client = peer.to_canonical();
    if !is_believed(client) {
        return client;
    }
    let (name, address_of): (_, fn(&str) -> Option<IpAddr>) = match headers.contains_key(X_FORWARDED_FOR) {
        true => (X_FORWARDED_FOR, address),
        false => (header::FORWARDED.as_str(), for_address),
    };
    // From the last comma: what stands before is another's, with whatever quotes it left open.
    // By bytes: one of a visitor's that is no text must not make the whole field, and the proxy's word in it, unread.
    let fields = headers.get_all(name).iter().rev();
    for said in fields.flat_map(|field| field.as_bytes().rsplit(|byte| *byte == b',')) {
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

/// `192.0.2.7`, `192.0.2.7:4711`, `2001:db8::7`, `[2001:db8::7]`, `[2001:db8::7]:4711`.
fn address(text: &str) -> Option<IpAddr> {
    let bare = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    text.parse().ok().or_else(bare).or_else(with_port)
}

/// `for="[2001:db8::7]:4711";proto=https`, in any order (RFC 7239, 4 and 6).
fn for_address(element: &str) -> Option<IpAddr> {
    // The first counts, also if it names nobody: what stands behind it may be a visitor's word (`host="a;for=b"`).
    let mut pairs = element.split(';').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("for"))?;
    let value = value.trim();
    address(value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn asked(peer: &str, fields: &[(&'static str, &str)], proxies: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).expect("a value"));
        }
        let proxies: Vec<Network> = proxies.iter().map(|text| text.parse().expect("a network")).collect();
        client(peer.parse().expect("an address"), &headers, &proxies).to_string()
    }

    #[test]
    fn the_last_that_is_no_proxy_of_ours_asks() {
        const X: &str = "x-forwarded-for";
        const F: &str = "forwarded";
        let ours = &["127.0.0.1", "10.0.0.0/8"];
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
            // The visitor's own Forwarded, which the accelerator lets through.
            ("127.0.0.1", &[(F, "for=8.8.8.8"), (X, "192.0.2.7")], "192.0.2.7"),
        ] {
            assert_eq!(asked(peer, fields, ours), who, "{peer} {fields:?}");
        }
        assert_eq!(
            asked("127.0.0.1", &[(X, "192.0.2.7")], &[]),
            "127.0.0.1",
            "nobody is believed by default"
        );
    }
}
