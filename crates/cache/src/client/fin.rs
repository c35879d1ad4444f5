//! Exchanges that end when the client closes its sending half (FIN).
//!
//! A client may close its half and wait for the answer (RFC 9112 §9.6), so by default an exchange continues.
//! For an event stream, a long poll or an upgrade a FIN usually means a closed browser tab, and going on
//! would keep a connection to the origin open until the origin falls silent.

use wire::http1::fields::list;

use crate::{
    core::with_core_of,
    request::{Request, key},
    states::pipe,
};

/// Returns whether the client's FIN ends the exchange: for an event stream, a long poll (`Prefer: wait`, RFC
/// 7240 §4.3, or a path that ends in `/wait`, as in the API of the mail server), an upgrade, and every
/// request of a site with `ends_at_fin`.
pub(crate) fn ends_exchange(request: &Request) -> bool {
    let head = request.head();
    let has = |name: &str, begins: &[u8]| {
        head.headers(name)
            .flat_map(list)
            .any(|member| member.get(..begins.len()).is_some_and(|start| start.eq_ignore_ascii_case(begins)))
    };
    let path = key::path(request.primary());
    let path = path.split(|&b| b == b'?').next().unwrap_or_default();
    path.ends_with(b"/wait")
        || has("accept", b"text/event-stream")
        || has("prefer", b"wait=")
        || pipe::is_asked_for(&head)
        || with_core_of(request, |core| core.manner(request.site).rules.ends_at_fin)
}
