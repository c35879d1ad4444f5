//! Rules that precede a lookup: ACME challenges, loops, schemes, client certificates, WebSockets, methods.

use std::sync::Arc;

use engine::tls::challenges::Challenges;
use wire::http1::{
    fields::list,
    head::RequestHead,
    known::KnownHeader,
    url::{Scheme, Target},
};

use crate::{
    core::Core,
    counters::Counter,
    error_page::Fault,
    head::response_head::Fwd,
    policy::{self, PassReason, Recv, RequestFacts, request::Method},
    request::{client_auth::ClientStanding, key},
    site::SiteId,
    states::{pipe, state::State},
};

/// Rules of a request that may be looked up.
pub(super) struct LookupRules {
    pub(super) must_fetch: bool,
    pub(super) only_if_cached: bool,
}

/// Returns the rules of the lookup, or the state of a request that no stored object answers.
#[inline]
pub(super) fn admit(
    core: &Core,
    head: &RequestHead<'_, '_>,
    facts: &RequestFacts,
    standing: ClientStanding,
    site: SiteId,
    key: &[u8],
) -> Result<LookupRules, (State, Fwd)> {
    // Precedes all rules, because the ACME authority connects over plain HTTP, with any Host.
    if let Some(challenges) = core.config.challenges.as_deref()
        && challenges.is_any_open()
        && let Some(answer) = of_challenge(core, challenges, head)
    {
        return Err((State::Challenge(answer), Fwd::Bypass));
    }
    if has_passed_here(core, head) {
        return Err((State::Synth(Fault::LoopDetected), Fwd::Bypass));
    }
    // A purge applies to the page under every scheme, and its sender follows no redirect.
    let is_purge = facts.method == Method::Purge;
    // An `https://` target is accepted on a TLS connection only (RFC 9110 §4.2.2).
    if !is_purge && key::said_by_target(head) == Some(Scheme::Https) && key::scheme(key) == Scheme::Http {
        core.count(Counter::Misdirected);
        return Err((State::Synth(Fault::Misdirected), Fwd::Bypass));
    }
    if !is_purge && core.sites.rules(site).https_only && key::scheme(key) == Scheme::Http {
        return Err((State::ToHttps, Fwd::Bypass));
    }
    // PURGE is exempt: `purge-from` and the token decide, not the site's client-certificate rule.
    if standing == ClientStanding::Wanted && !is_purge {
        if key::scheme(key) == Scheme::Http {
            return Err((State::ToHttps, Fwd::Bypass));
        }
        core.count(Counter::CertificatesWanted);
        return Err((State::Synth(Fault::CertificateWanted), Fwd::Bypass));
    }
    if !facts.has_body && pipe::is_asked_for(head) && !facts.ruled.is_misdirected {
        return Err((State::Pipe, Fwd::Bypass));
    }
    match policy::recv(facts) {
        Recv::Lookup { must_fetch, only_if_cached } => Ok(LookupRules { must_fetch, only_if_cached }),
        Recv::Pass(reason) => {
            let fwd = if reason == PassReason::Method { Fwd::Method } else { Fwd::Bypass };
            Err((State::Pass(Some(reason.name())), fwd))
        }
        Recv::Purge => Err((State::Purge, Fwd::Bypass)),
        Recv::Synth(fault) => {
            match fault {
                Fault::Misdirected => core.count(Counter::Misdirected),
                Fault::MethodNotTaken { .. } => core.count(Counter::MethodsRefused),
                _ => {}
            }
            Err((State::Synth(fault), Fwd::Bypass))
        }
    }
}

/// Returns the answer to an authority's request for an open ACME challenge.
#[cold]
fn of_challenge(core: &Core, challenges: &Challenges, head: &RequestHead<'_, '_>) -> Option<Arc<str>> {
    let (_, target) =
        Target::parse(head.method, head.target).filter(|_| matches!(head.method, "GET" | "HEAD"))?;
    let answer = challenges.answer(target.path_and_query)?;
    core.count(Counter::ChallengesAnswered);
    Some(answer)
}

/// Returns whether this request has passed through this instance before: its pseudonym is in Via (RFC 9110 §7.6.3). Every
/// instance has a pseudonym of its own.
#[inline]
fn has_passed_here(core: &Core, head: &RequestHead<'_, '_>) -> bool {
    head.headers.has(KnownHeader::Via)
        && head
            .headers
            .known_all(KnownHeader::Via)
            .flat_map(list)
            .any(|member| member.split(|&b| b == b' ').nth(1) == Some(core.names.pseudonym.as_bytes()))
}
