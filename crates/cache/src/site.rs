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
    of_sites: Arc<[OfSite]>,
    failing_until_ms: Arc<[AtomicU64]>,
}

/// What all cores know of one site.
struct OfSite {
    /// The place of its origin among the origins.
    origin: usize,
    told_of_shared_pages: AtomicBool,
    unfresh: Unfresh,
}

impl Sites {
    /// Those of a configuration, for so many cores; `table` is made of the same.
    ///
    /// # Errors
    /// There is no thread to look names up with.
    pub(crate) fn new(config: &Config, table: Arc<SiteTable>, cores: usize) -> io::Result<Self> {
        let (mut resolvers, mut places) = (Vec::new(), HashMap::new());
        let origins = config.sites.iter().map(|site| Some(&site.origin));
        let of_sites = [config.origin.as_ref()].into_iter().chain(origins).map(|origin| {
            let place = match places.get(&origin) {
                Some(place) => *place,
                None => {
                    resolvers.push(match origin {
                        Some(origin) => Resolver::new(origin)?,
                        None => Resolver::of_nobody(),
                    });
                    places.insert(origin, resolvers.len() - 1);
                    resolvers.len() - 1
                }
            };
            let told_of_shared_pages = AtomicBool::new(false);
            Ok(OfSite { origin: place, told_of_shared_pages, unfresh: Unfresh::new(cores) })
        });
        let of_sites = of_sites.collect::<io::Result<_>>()?;
        let failing_until_ms = resolvers.iter().map(|_| AtomicU64::new(0)).collect();
        Ok(Self { table, resolvers, of_sites, failing_until_ms })
    }

    /// One core's part of them.
    pub(crate) fn of_core(&self, limits: &Limits) -> SitesOfCore {
        let upstreams =
            self.resolvers.iter().map(|resolver| RefCell::new(Upstream::new(Arc::clone(resolver), limits)));
        SitesOfCore {
            table: Arc::clone(&self.table),
            upstreams: upstreams.collect(),
            of_sites: Arc::clone(&self.of_sites),
            failing_until_ms: Arc::clone(&self.failing_until_ms),
        }
    }
}

/// One core's part of the sites.
pub(crate) struct SitesOfCore {
    /// Which site a host is of, and their rules.
    pub(crate) table: Arc<SiteTable>,
    upstreams: Box<[RefCell<Upstream>]>,
    of_sites: Arc<[OfSite]>,
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
        &self.upstreams[self.of_sites[site.index()].origin]
    }

    /// Whether it was said that what a site's visitors share differs between them ([`shared_pages`](crate::shared_pages)).
    pub(crate) fn is_told_of_shared_pages(&self, site: SiteId) -> &AtomicBool {
        &self.of_sites[site.index()].told_of_shared_pages
    }

    /// Whether a site's answers say how long they are fresh.
    pub(crate) fn unfresh(&self, site: SiteId) -> &Unfresh {
        &self.of_sites[site.index()].unfresh
    }

    fn failing(&self, site: SiteId) -> &AtomicU64 {
        &self.failing_until_ms[self.of_sites[site.index()].origin]
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
