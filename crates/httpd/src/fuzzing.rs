//! Fuzz target for private parts of this crate: the client address behind proxies. Built for tests, which
//! replay the seeds, and by the fuzzer; no program contains it.

#![allow(clippy::expect_used, reason = "a check may fail")]

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderValue};
use engine::network::{InvalidNetwork, Network};

use crate::forwarded::client;

#[cfg(test)]
#[path = "../../../fuzz/checks/seeds.rs"]
mod seeds;

/// Checks one input, which consists of lines: the proxies' networks separated by commas, the peer, and from
/// the third line on fields, `X value` for `X-Forwarded-For` and `F value` for `Forwarded`. A network must
/// contain exactly the addresses that its prefix covers; the client must be the one that the slow twin finds,
/// and elements that a visitor puts in front must not change the result.
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
    // The client found is not one of our proxies: elements before it must not change the result.
    for (name, before) in [
        ("x-forwarded-for", "198.51.100.66"),
        ("x-forwarded-for", "\""),
        ("forwarded", "for=198.51.100.66"),
        ("forwarded", "for=\"198.51.100.66"),
    ] {
        // A forged value is only put before values of the same field: as a new field it could replace the
        // other one, since `X-Forwarded-For` takes precedence.
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

/// Parses a network, and checks it bit by bit.
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
        // An IPv6 address may be an IPv4 address in mapped form.
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

/// Slow twin: collects all elements in one list and reads it from its end. Also returns whether it ended at
/// an address that is not one of our proxies.
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
        // A proxy that hides the address counts as the client itself.
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
