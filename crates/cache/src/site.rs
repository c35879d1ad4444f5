//! Sites: which origin a request is for.
//!
//! ```text
//!  host ─ SiteTable::of_host ─▶ SiteId ─┬─▶ rules (SiteTable)
//!                                   └─▶ origin ─▶ Upstream of this core, Resolver and back-off of all cores
//! ```
//! *recv* says which; from there on the request carries the site's number. What talks to an origin (permits, connections,
//! addresses, how it fares) is the origin's: sites with the same one share that, and no two origins do.

mod table;

use std::{
    cell::RefCell,
    collections::HashMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

pub use self::table::SitesError;
pub(crate) use self::table::{SiteId, SiteTable};
use crate::{
    config::{Config, Limits, SiteRules},
    origin::{Resolver, Upstream},
    unfresh::Unfresh,
};

/// How long an origin that failed is left alone by those whose answer something stored may stand in for, in
/// milliseconds.
const RETRY_MS: u64 = 1000;

/// What all cores share of the sites.
pub(crate) struct Sites {
    table: Arc<SiteTable>,
    resolvers: Vec<Arc<Resolver>>,
    /// For each site the place of its origin's.
    origins: Arc<[usize]>,
    told_of_shared_pages: Arc<[AtomicBool]>,
    unfresh: Arc<[Unfresh]>,
    failing_until_ms: Arc<[AtomicU64]>,
}

impl Sites {
    /// Those of a configuration; `table` is made of the same.
    ///
    /// # Errors
    /// There is no thread to look names up with.
    pub(crate) fn new(config: &Config, table: Arc<SiteTable>) -> io::Result<Self> {
        let (mut resolvers, mut places) = (Vec::new(), HashMap::new());
        let of_sites = config.sites.iter().map(|site| Some(&site.origin));
        let origins = [config.origin.as_ref()].into_iter().chain(of_sites).map(|origin| {
            if let Some(place) = places.get(&origin) {
                return Ok(*place);
            }
            resolvers.push(match origin {
                Some(origin) => Resolver::new(origin)?,
                None => Resolver::of_nobody(),
            });
            places.insert(origin, resolvers.len() - 1);
            Ok(resolvers.len() - 1)
        });
        let origins = origins.collect::<io::Result<Arc<[usize]>>>()?;
        let told_of_shared_pages = origins.iter().map(|_| AtomicBool::new(false)).collect();
        let unfresh = origins.iter().map(|_| Unfresh::default()).collect();
        let failing_until_ms = resolvers.iter().map(|_| AtomicU64::new(0)).collect();
        Ok(Self { table, resolvers, origins, told_of_shared_pages, unfresh, failing_until_ms })
    }

    /// One core's part of them.
    pub(crate) fn of_core(&self, limits: &Limits) -> SitesOfCore {
        let upstreams =
            self.resolvers.iter().map(|resolver| RefCell::new(Upstream::new(Arc::clone(resolver), limits)));
        SitesOfCore {
            table: Arc::clone(&self.table),
            upstreams: upstreams.collect(),
            origins: Arc::clone(&self.origins),
            told_of_shared_pages: Arc::clone(&self.told_of_shared_pages),
            unfresh: Arc::clone(&self.unfresh),
            failing_until_ms: Arc::clone(&self.failing_until_ms),
        }
    }
}

/// One core's part of the sites.
pub(crate) struct SitesOfCore {
    /// Which site a host is of, and their rules.
    pub(crate) table: Arc<SiteTable>,
    upstreams: Box<[RefCell<Upstream>]>,
    origins: Arc<[usize]>,
    told_of_shared_pages: Arc<[AtomicBool]>,
    unfresh: Arc<[Unfresh]>,
    /// While it lies ahead, an origin has failed a moment ago; 0: it answered the last time. Written when an origin
    /// begins to fail, each second while it does, and when it answers again.
    failing_until_ms: Arc<[AtomicU64]>,
}

impl SitesOfCore {
    /// The rules of a site.
    pub(crate) fn rules(&self, site: SiteId) -> &SiteRules {
        self.table.rules(site)
    }

    /// The connections to a site's origin.
    pub(crate) fn upstream(&self, site: SiteId) -> &RefCell<Upstream> {
        &self.upstreams[self.origins[site.index()]]
    }

    /// Whether it was said that what a site's visitors share differs between them ([`shared_pages`](crate::shared_pages)).
    pub(crate) fn is_told_of_shared_pages(&self, site: SiteId) -> &AtomicBool {
        &self.told_of_shared_pages[site.index()]
    }

    /// Whether a site's answers say how long they are fresh.
    pub(crate) fn unfresh(&self, site: SiteId) -> &Unfresh {
        &self.unfresh[site.index()]
    }

    fn failing(&self, site: SiteId) -> &AtomicU64 {
        &self.failing_until_ms[self.origins[site.index()]]
    }

    /// Whether a site's origin failed a moment ago: what may stand in for its answer does, and it is left alone.
    pub(crate) fn is_failing(&self, site: SiteId, now_ms: u64) -> bool {
        now_ms < self.failing(site).load(Relaxed)
    }

    /// Leave to ask a site's origin for what something stored may stand in for: of a failing one, one request has it in
    /// [`RETRY_MS`].
    pub(crate) fn may_try(&self, site: SiteId, now_ms: u64) -> bool {
        let failing = self.failing(site);
        let until_ms = failing.load(Relaxed);
        until_ms == 0
            || until_ms <= now_ms
                && failing.compare_exchange(until_ms, now_ms + RETRY_MS, Relaxed, Relaxed).is_ok()
    }

    /// A site's origin could not be reached, or is silent to what it answered before.
    pub(crate) fn failed(&self, site: SiteId, now_ms: u64) {
        self.failing(site).store(now_ms + RETRY_MS, Relaxed);
    }

    /// A site's origin answered.
    pub(crate) fn answered(&self, site: SiteId) {
        let failing = self.failing(site);
        if failing.load(Relaxed) != 0 {
            failing.store(0, Relaxed);
        }
    }

    /// Closes connections to origins that have been idle for too long; when the next one will have been.
    pub(crate) fn close_old(&self) -> Option<Duration> {
        self.upstreams.iter().filter_map(|upstream| upstream.borrow_mut().close_old()).min()
    }
}
