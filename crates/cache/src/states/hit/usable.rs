//! Decision how a stored object may be used for a request: fresh, stale, or not at all (RFC 9111 §4).

use engine::{cores::clock, store::Object};

use super::CLOCK_BACK_S_MAX;
use crate::{
    core::{Core, store_s},
    counters::Counter,
    fetch::revalidate,
    head::response_head::{CacheStatus, Fwd, StoredMeta},
    policy::{self, NotReused, RequestFacts, Reuse},
    purging::momentary,
    request::lookup_key::LookupKey,
    states::state::Trust,
};

/// Permitted use of a stored object.
pub(super) struct ObjectUse {
    pub(super) status: CacheStatus,
    pub(super) is_to_be_refreshed: bool,
}

impl ObjectUse {
    #[inline]
    fn fresh(ttl_s: u32) -> Self {
        Self { status: CacheStatus::hit(i64::from(ttl_s)), is_to_be_refreshed: false }
    }

    fn stale(stale_s: u64, detail: &'static str, is_to_be_refreshed: bool) -> Self {
        let ttl_s = i64::try_from(stale_s).map_or(i64::MIN, |stale_s| -stale_s);
        Self { status: CacheStatus { detail: Some(detail), ..CacheStatus::hit(ttl_s) }, is_to_be_refreshed }
    }

    /// Counts the use of a stale object; once for a request that looks up twice.
    #[inline]
    pub(super) fn count(&self, core: &Core) {
        if self.status.detail.is_some() {
            core.count(Counter::HitsStale);
        }
    }
}

/// Returns how a stored object may be used for this request. The error says whether the object must not be
/// used by a second lookup either, and the reason for Cache-Status.
#[inline]
pub(super) fn usable(
    core: &Core,
    object: &Object<'_>,
    meta: &StoredMeta,
    facts: &RequestFacts,
    keyed: LookupKey,
    trust: Trust,
    now_s: u64,
) -> Result<ObjectUse, (bool, Fwd)> {
    if object.expires_s() <= store_s(now_s) {
        return Err((false, Fwd::Stale));
    }
    // The object was stored at a later time than now: the clock was set back by an unknown amount. By the
    // clock alone the object would be used for longer than its lifetime.
    if meta.born_s > now_s + CLOCK_BACK_S_MAX {
        return Err((true, Fwd::Stale));
    }
    // A member of a cluster that has lost contact for too long may have missed purges.
    if trust != Trust::Validated && !core.purges.cluster.membership.may_serve() {
        core.count(Counter::LeasesOut);
        return Err((true, Fwd::Stale));
    }
    if !meta.may_answer(facts, core.config.cookies) || revalidate::may_not_set_cookie(core, object, meta) {
        return Err((true, Fwd::Request));
    }
    match policy::judge_reuse(meta.stored(now_s), &facts.directives) {
        Reuse::Fresh { ttl_s } => Ok(ObjectUse::fresh(ttl_s)),
        reuse => stale(core, reuse, keyed, trust, meta.is_momentary()),
    }
}

/// Returns how an object may be used that is not fresh, or not fresh enough for this request.
#[cold]
pub(super) fn stale(
    core: &Core,
    reuse: Reuse,
    keyed: LookupKey,
    trust: Trust,
    is_momentary: bool,
) -> Result<ObjectUse, (bool, Fwd)> {
    let now_ms = clock::monotonic_ms();
    match (reuse, trust) {
        (_, Trust::Validated) => Ok(ObjectUse::fresh(0)),
        (Reuse::Fresh { ttl_s }, _) => Ok(ObjectUse::fresh(ttl_s)),
        (Reuse::StaleAccepted { stale_s }, _) => Ok(ObjectUse::stale(stale_s, "max-stale", false)),
        (Reuse::StaleWhileRevalidate { stale_s }, _) => {
            let is_asked = core.fetches.refreshed_lately.has(keyed.hash, now_ms)
                || core.sites.group(keyed.site).is_failing(now_ms);
            if !is_asked {
                // Noted now, not when the fetch begins: a pipeline may request the object many times until
                // then.
                if is_momentary {
                    // The content may change again while it is fetched.
                    core.fetches.refreshed_lately.note_for(keyed.hash, now_ms, momentary::RENEW_EVERY_MS);
                } else {
                    core.fetches.refreshed_lately.note(keyed.hash, now_ms);
                }
            }
            Ok(ObjectUse::stale(stale_s, "stale-while-revalidate", !is_asked))
        }
        (Reuse::StaleIfError { stale_s }, trust) => {
            let fails = trust == Trust::StandIn
                || core.fetches.refreshed_lately.has(keyed.hash, now_ms)
                || core.sites.group(keyed.site).is_failing(now_ms);
            if fails {
                Ok(ObjectUse::stale(stale_s, "stale-if-error", false))
            } else {
                Err((false, Fwd::Stale))
            }
        }
        (Reuse::No(NotReused::Stale), _) => Err((false, Fwd::Stale)),
        // An object that is fresh, but not fresh enough for the request's directives, is fetched again.
        (Reuse::No(_), _) => Err((true, Fwd::Request)),
    }
}
