//! Client address of a request that came through proxies ([`wire::http1::forwarded`]).

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderValue, header};
use engine::network::Network;
use wire::http1::forwarded;

/// Returns the client's address.
pub(super) fn client(peer: IpAddr, headers: &HeaderMap, proxies: &[Network]) -> IpAddr {
    let values = |name| headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let is_believed = |address| proxies.iter().any(|network| network.contains(address));
    forwarded::client(peer, values("x-forwarded-for"), values(header::FORWARDED.as_str()), is_believed)
}
