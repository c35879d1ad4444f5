//! Source of a request, as its connection and its headers show it: the client, this machine, a proxy, and the
//! page that made a browser send it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use axum::{
    extract::ConnectInfo,
    http::{Extensions, HeaderMap, HeaderName, header},
};

use super::connections::Peer;

/// Placeholder for an unknown peer: the unspecified address.
const NOBODY: Peer = Peer(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));

/// Source of a request: the peer of the connection, and the client that it names if it is a trusted proxy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestSource {
    pub(crate) peer: Peer,
    pub(crate) asker: IpAddr,
}

impl RequestSource {
    /// Reads the peer and the client from a request's extensions.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        let peer = extensions.get().map_or(NOBODY, |ConnectInfo(peer)| *peer);
        let asker = extensions.get::<httpd::Client>().map_or(peer.0.ip(), |client| client.0);
        Self { peer, asker }
    }

    /// Returns whether the client is on this machine.
    pub(super) fn is_here(self) -> bool {
        self.asker.is_loopback()
    }

    /// Returns whether the request does not come through a trusted proxy.
    pub(super) fn is_direct(self) -> bool {
        self.asker == self.peer.0.ip()
    }

    /// Returns whether an untrusted proxy states that it forwards the request.
    pub(super) fn is_spoken_for(self, headers: &HeaderMap) -> bool {
        self.is_direct() && through_a_proxy(headers)
    }
}

/// Initiator of a request, as far as the request's headers show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestInitiator {
    /// Our own page, the person at the browser, or a program that is not a browser.
    OwnPageOrProgram,
    /// A page of another origin.
    AnotherSite,
    /// A browser that does not reveal the initiator: a GET has no `Origin`, and has `Sec-Fetch-Site` only if
    /// its address is trustworthy (https, and this machine; Fetch Metadata, 2).
    UntoldBrowser,
}

/// Determines the [`RequestInitiator`] of a request.
pub(crate) fn asker(headers: &HeaderMap) -> RequestInitiator {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text(HeaderName::from_static("sec-fetch-site")) {
        return match site {
            "same-origin" | "none" => RequestInitiator::OwnPageOrProgram,
            _ => RequestInitiator::AnotherSite,
        };
    }
    if let Some(origin) = text(header::ORIGIN) {
        let host = origin.split_once("://").map_or(origin, |(_, host)| host);
        return match text(header::HOST) == Some(host) {
            true => RequestInitiator::OwnPageOrProgram,
            false => RequestInitiator::AnotherSite,
        };
    }
    // Every browser's user agent begins with this, and no page can change it in a request without a CORS
    // preflight.
    match text(header::USER_AGENT) {
        Some(name) if name.starts_with("Mozilla/") => RequestInitiator::UntoldBrowser,
        _ => RequestInitiator::OwnPageOrProgram,
    }
}

/// Returns whether a browser fetches a subresource of a page, such as a picture. A mail's frame has our
/// origin, but the reader did not choose the pictures that a mail names. Requests of our script have the
/// destination `empty`, links `document`.
pub(super) fn is_for_a_picture(headers: &HeaderMap) -> bool {
    headers
        .get(HeaderName::from_static("sec-fetch-dest"))
        .is_some_and(|dest| dest != "document" && dest != "empty")
}

/// Returns whether the request has a header that proxies or proxy services add.
fn through_a_proxy(headers: &HeaderMap) -> bool {
    const NAMES: [&str; 7] = [
        "forwarded",
        "via",
        "x-real-ip",
        "x-client-ip",
        "true-client-ip",
        "cf-connecting-ip",
        "x-original-host",
    ];
    headers.keys().any(|name| name.as_str().starts_with("x-forwarded-") || NAMES.contains(&name.as_str()))
}

pub(super) fn is_this_machine(headers: &HeaderMap, peer: Peer) -> bool {
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    peer.0.ip().is_loopback() && !through_a_proxy(headers) && is_this_machines_name(host_name(host))
}

/// Returns whether the name refers to this machine only: `localhost` (RFC 6761, 6.3), or a loopback or
/// unspecified address.
pub(crate) fn is_this_machines_name(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost")
        || name
            .trim_matches(['[', ']'])
            .parse::<IpAddr>()
            .is_ok_and(|address| address.to_canonical().is_loopback() || address.is_unspecified())
}

/// Returns a `Host` without its port, and without a dot at the end of the name.
pub(crate) fn host_name(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    name.strip_suffix('.').unwrap_or(name)
}

/// Returns whether the name is an address, or `localhost` (RFC 6761, 6.3).
pub(super) fn is_local_name(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_this_machine_is_this_machine() {
        let here = Peer("127.0.0.1:5".parse().unwrap());
        let there = Peer("192.0.2.1:5".parse().unwrap());
        let from = |pairs: &[(&'static str, &str)], peer| is_this_machine(&headers(pairs), peer);
        assert!(from(&[("host", "localhost:8025")], here));
        assert!(from(&[("host", "[::1]:8025")], here));
        assert!(from(&[("host", "127.0.0.1")], here));
        assert!(!from(&[("host", "localhost")], there));
        assert!(from(&[("host", "0.0.0.0:8025")], here));
        assert!(!from(&[("host", "rebound.test:8025")], here));
        assert!(!from(&[("host", "192.0.2.7:8025")], here), "a visitor of a proxy's address");
        assert!(!from(&[("host", "localhost"), ("x-forwarded-proto", "https")], here));
        assert!(!from(&[("host", "localhost"), ("x-forwarded-for", "192.0.2.1")], here));
        assert!(!from(&[], here));
    }
}
