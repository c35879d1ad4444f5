//! The origin of a request's site, as seen by the core that serves the request.

use std::sync::Arc;

use engine::cores::clock;

use super::with_core;
use crate::{
    counters::Counter,
    origin::{Group, MemberId, OriginEvent, Pools, TriedMembers, Upstream, Upstreams, Wish},
    request::Request,
};

/// The origin of a site, in the pool of the current core.
pub(crate) struct SiteUpstreams {
    group: Arc<Group>,
    wish: Wish,
}

impl SiteUpstreams {
    /// Selects the origin for a request.
    pub(crate) fn of(request: &Request) -> Self {
        let group = Arc::clone(request.in_force.sites.group(request.site));
        let wish = group.routing_hints(request.primary(), &request.head());
        let block_of = request.block.as_ref().map_or(0, |block| block.of.meta.member);
        Self { group, wish: Wish { block_of, ..wish } }
    }

    /// Prefers the member that sent the head of a sliced object, so that its slices come from the same server
    /// (0: any member).
    pub(crate) fn with_member_of(self, member: u32) -> Self {
        let block_of = if member > 0 { member } else { self.wish.block_of };
        Self { wish: Wish { block_of, ..self.wish }, ..self }
    }
}

impl Upstreams for SiteUpstreams {
    fn choose(&self, tried: &mut TriedMembers) -> Option<MemberId> {
        with_core(|core| {
            core.origins.pool.borrow_mut().choose(&self.group, self.wish, tried, clock::monotonic_ms())
        })
    }

    fn note_retry(&self) {
        with_core(|core| core.count(Counter::OriginRetries));
    }

    fn note_outcome(&self, member: MemberId, is_well: bool) {
        let Some(member) = self.group.member(member) else { return };
        if member.note_outcome(is_well, clock::monotonic_ms()) {
            with_core(|core| core.count(Counter::OriginEjections));
        }
    }
}

impl Pools for SiteUpstreams {
    fn upstream<R>(&self, member: MemberId, with: impl FnOnce(&mut Upstream) -> R) -> Option<R> {
        let member = self.group.member(member)?;
        with_core(|core| Some(with(core.origins.pool.borrow_mut().upstream(member, &core.config.limits))))
    }
}

/// Counts the events of HTTP/2 connections to origins.
pub(crate) fn count_http2(told: OriginEvent) {
    with_core(|core| {
        let open = &core.origins.http2_connections;
        match told {
            OriginEvent::Begun => {
                open.set(open.get() + 1);
                core.count(Counter::OriginHttp2Connects);
            }
            OriginEvent::Ended => open.set(open.get().saturating_sub(1)),
            OriginEvent::Silent => core.count(Counter::OriginHttp2Silent),
            OriginEvent::Request => core.count(Counter::OriginHttp2Requests),
            OriginEvent::Unprocessed => core.count(Counter::OriginHttp2Unprocessed),
            OriginEvent::LongWait => core.count(Counter::OriginLongWaits),
        }
        core.gauge(Counter::OriginHttp2Open, open.get());
    });
}

/// All servers, in the pool of the current core.
pub(crate) struct OfCore;

impl Pools for OfCore {
    fn upstream<R>(&self, member: MemberId, with: impl FnOnce(&mut Upstream) -> R) -> Option<R> {
        with_core(|core| core.origins.pool.borrow_mut().known(member).map(with))
    }
}
