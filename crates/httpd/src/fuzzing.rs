//! What a fuzz target holds of this crate that nobody else can name: who asks behind proxies. Built for tests, which
//! replay the seeds, and by the fuzzer; in no program.

#![allow(clippy::expect_used, reason = "a check may fail")]

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderValue};
use engine::network::{InvalidNetwork, Network};

use crate::forwarded::client;

#[cfg(test)]
#[path = "../../../fuzz/checks/seeds.rs"]
mod seeds;

/// The input is lines: the networks of our proxies between commas, the peer, and from the third on fields, `X value` for
/// `X-Forwarded-For` and `F value` for `Forwarded`. A network is what its bits say; who asks is whom the twin names, and
/// is nobody that a visitor wrote in front.
pub fn forwarded(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let [proxies, peer] = [(); 2].map(|()| lines.next().and_then(|line| std::str::from_utf8(line).ok()));
    let proxies: Vec<Network> = proxies.unwrap_or_default().split(',').filter_map(network).collect();
    let Some(Ok(peer)) = peer.map(str::parse::<IpAddr>) else { return };
    let fields: Vec<(&str, HeaderValue)> = lines
        .filter_map(|line| {
            let (name, value) = line.split_at_checked(2)?;
            let name = if name == b"X " { "x-forwarded-for" } else { "forwarded" };
            Some((name, HeaderValue::from_bytes(value).ok()?))
        })
        .collect();
    let who = asked(peer, &fields, &proxies);
    let (want, is_stranger) = twin(peer, &fields, &proxies);
    assert_eq!(who, want, "{peer} {fields:?} behind {proxies:?}");
    assert_eq!(who, who.to_canonical());
    if !is_stranger {
        return;
    }
    // Whoever was named is one whom no proxy of ours vouches for: what stands before that word changes nothing.
    for (name, before) in [
        ("x-forwarded-for", "198.51.100.66"),
        ("x-forwarded-for", "\""),
        ("forwarded", "for=198.51.100.66"),
        ("forwarded", "for=\"198.51.100.66"),
    ] {
        // The first of the other field would not be in front, but instead.
        if fields.iter().any(|(known, _)| *known == name) {
            let before = (name, HeaderValue::from_static(before));
            let forged: Vec<_> = [before].into_iter().chain(fields.iter().cloned()).collect();
            assert_eq!(asked(peer, &forged, &proxies), who, "{forged:?} behind {proxies:?}");
        }
    }
}

fn asked(peer: IpAddr, fields: &[(&'static str, HeaderValue)], proxies: &[Network]) -> IpAddr {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(*name, value.clone());
    }
    client(peer, &headers, proxies)
}

/// The network that a text names, held to its bits.
fn network(text: &str) -> Option<Network> {
    let network: Network = match text.parse() {
        Ok(network) => network,
        Err(InvalidNetwork::Within { meant, .. }) => {
            assert_eq!(meant.to_string().parse(), Ok(meant), "what is proposed can be written");
            return None;
        }
        Err(_) => return None,
    };
    assert_eq!(network.to_string().parse(), Ok(network));
    let (first, prefix_bits) = match text.split_once('/') {
        Some((first, prefix_bits)) => (first, prefix_bits.parse().expect("digits")),
        None => (text, 128),
    };
    let first: IpAddr = first.parse().expect("an address");
    let own = bits(first);
    for turned in 0..own.len() {
        let mut other = own.clone();
        other[turned] ^= true;
        let is_inside = turned >= prefix_bits;
        let address = address_of(&other);
        // An address of IPv6 may be one of IPv4 by another name.
        if address.to_canonical() == address && first.to_canonical() == first {
            assert_eq!(network.contains(address), is_inside, "{text} {address}");
        }
    }
    Some(network)
}

fn bits(address: IpAddr) -> Vec<bool> {
    let octets = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    octets.iter().flat_map(|octet| (0..8).rev().map(move |bit| octet >> bit & 1 == 1)).collect()
}

fn address_of(bits: &[bool]) -> IpAddr {
    let octets: Vec<u8> =
        bits.chunks(8).map(|eight| eight.iter().fold(0, |octet, bit| octet << 1 | u8::from(*bit))).collect();
    match <[u8; 4]>::try_from(&octets[..]) {
        Ok(octets) => octets.into(),
        Err(_) => <[u8; 16]>::try_from(&octets[..]).expect("4 or 16").into(),
    }
}

/// All words from the first to the last in one list, which is gone through from its end; and whether it came to one who
/// is no proxy of ours.
fn twin(peer: IpAddr, fields: &[(&str, HeaderValue)], proxies: &[Network]) -> (IpAddr, bool) {
    let is_ours = |address: IpAddr| proxies.iter().any(|network| network.contains(address));
    let name = if fields.iter().any(|(name, _)| *name == "x-forwarded-for") {
        "x-forwarded-for"
    } else {
        "forwarded"
    };
    let mut words: Vec<Vec<u8>> = Vec::new();
    for (_, value) in fields.iter().filter(|(known, _)| *known == name) {
        words.extend(value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::to_vec));
    }
    let mut who = peer.to_canonical();
    while is_ours(who) {
        let Some(word) = words.pop() else { return (who, false) };
        let said = std::str::from_utf8(&word).ok().map(str::trim);
        let named = if name == "forwarded" { said.and_then(twin_for) } else { said.and_then(twin_address) };
        // A proxy that does not say asks for itself.
        let Some(named) = named else { return (who, true) };
        who = named.to_canonical();
    }
    (who, true)
}

fn twin_for(element: &str) -> Option<IpAddr> {
    for pair in element.split(';') {
        let Some((name, value)) = pair.split_once('=') else { continue };
        if name.trim().to_lowercase() != "for" {
            continue;
        }
        let value = value.trim();
        let is_quoted = value.len() > 1 && value.starts_with('"') && value.ends_with('"');
        return twin_address(if is_quoted { &value[1..value.len() - 1] } else { value });
    }
    None
}

fn twin_address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let with_port = text.parse::<SocketAddr>().map(|address| address.ip());
    let plain = text.parse().ok();
    plain.or_else(|| bare.parse().ok()).or_else(|| with_port.ok())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_seeds_of_fields_of_proxies() {
        super::seeds::replay("forwarded", super::forwarded);
    }
}
