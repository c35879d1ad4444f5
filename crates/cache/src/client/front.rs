//! Checks that HTTP/1 and HTTP/2 make before a client's request is looked up: framing, number of fields, request
//! rate, the host of the certificate.

use std::net::IpAddr;

use engine::{cores::clock, tls::session::Session};
use wire::http1::{
    framing::{Framing, request_framing},
    head::RequestHead,
};

use crate::{client::limits::rates::TooMany, core::Core, counters::Counter, error_page::Fault};

/// Counts a request; returns whether it is the last that its connection may carry.
#[inline]
pub(crate) fn count_request(core: &Core, requests: &mut usize) -> bool {
    core.count(Counter::Requests);
    *requests += 1;
    let is_last = *requests == core.config.limits.requests_per_connection_max;
    if is_last {
        core.count(Counter::ConnectionsUsedUp);
    }
    is_last
}

/// Returns the framing of a request's body; counts a head whose framing is ambiguous or invalid.
#[inline]
pub(crate) fn framing(core: &Core, head: &RequestHead<'_, '_>) -> Result<Framing, Fault> {
    request_framing(head).map_err(|error| {
        core.count(Counter::BadRequests);
        Fault::from(error)
    })
}

/// Checks that a request's head has no more fields than allowed, that its client's rate, against which the
/// request is counted, is within the limit, and that the connection's certificate covers the host.
#[inline]
pub(crate) fn admit(
    core: &Core,
    head: &RequestHead<'_, '_>,
    client: IpAddr,
    session: Option<&Session>,
) -> Result<(), Fault> {
    if head.headers.len() > core.config.limits.request_headers_max {
        core.count(Counter::HeadsTooLarge);
        return Err(Fault::HeadTooLarge);
    }
    admit_client(core, client)?;
    if is_misdirected(core, session, head) {
        core.count(Counter::Misdirected);
        return Err(Fault::Misdirected);
    }
    Ok(())
}

/// Counts a request of a client; returns the fault to answer if the rate limit is exceeded.
#[inline]
fn admit_client(core: &Core, client: IpAddr) -> Result<(), Fault> {
    core.in_force.rates.admit(client, clock::monotonic_ms()).map_err(|too_many| {
        core.count(match too_many {
            TooMany::Address => Counter::ClientRequestsRefused,
            TooMany::Network => Counter::NetworkRequestsRefused,
        });
        Fault::TooManyRequests
    })
}

/// Returns whether a request came over a connection on which another host's certificate was shown (RFC
/// 9110 §7.4). Browsers send requests for several hosts over one HTTP/2 connection (RFC 9113 §9.1.1);
/// over HTTP/1.1 such a client has connected to one site and asks for another.
#[inline]
fn is_misdirected(core: &Core, session: Option<&Session>, head: &RequestHead<'_, '_>) -> bool {
    let (Some(terms), Some(session)) = (&core.clients.terms, session) else { return false };
    head.authority().is_some_and(|authority| !terms.may_ask_for(authority.host, session.server_name()))
}
