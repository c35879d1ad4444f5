//! Sites: which origin a request is for.
//!
//! *recv* says which; from there on the request carries the site's number, and what talks to the origin (permits,
//! connections, addresses) is the site's. Today one site takes every name.

use std::{
    cell::RefCell,
    io,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use crate::{
    config::{Config, Limits},
    origin::{Resolver, Upstream},
};

/// Which site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SiteId(u16);

impl SiteId {
    /// The one that takes every name.
    pub(crate) const ONLY: Self = Self(0);
}

/// What all cores share of the sites.
pub(crate) struct Sites {
    resolvers: Vec<Arc<Resolver>>,
    told_of_shared_pages: Arc<[AtomicBool]>,
}

impl Sites {
    /// Those of a configuration.
    ///
    /// # Errors
    /// There is no thread to look names up with.
    pub(crate) fn new(config: &Config) -> io::Result<Self> {
        let resolvers = vec![Resolver::new(&config.origin)?];
        let told_of_shared_pages = resolvers.iter().map(|_| AtomicBool::new(false)).collect();
        Ok(Self { resolvers, told_of_shared_pages })
    }

    /// One core's part of them.
    pub(crate) fn of_core(&self, limits: &Limits) -> SitesOfCore {
        let upstreams =
            self.resolvers.iter().map(|resolver| RefCell::new(Upstream::new(Arc::clone(resolver), limits)));
        let told_of_shared_pages = Arc::clone(&self.told_of_shared_pages);
        SitesOfCore { upstreams: upstreams.collect(), told_of_shared_pages }
    }
}

/// One core's part of the sites.
pub(crate) struct SitesOfCore {
    upstreams: Box<[RefCell<Upstream>]>,
    told_of_shared_pages: Arc<[AtomicBool]>,
}

impl SitesOfCore {
    /// The connections to a site's origin.
    pub(crate) fn upstream(&self, site: SiteId) -> &RefCell<Upstream> {
        &self.upstreams[usize::from(site.0)]
    }

    /// Whether it was said that what a site's visitors share differs between them ([`shared_pages`](crate::shared_pages)).
    pub(crate) fn is_told_of_shared_pages(&self, site: SiteId) -> &AtomicBool {
        &self.told_of_shared_pages[usize::from(site.0)]
    }

    /// Closes connections to origins that have been idle for too long; when the next one will have been.
    pub(crate) fn close_old(&self) -> Option<Duration> {
        self.upstreams.iter().filter_map(|upstream| upstream.borrow_mut().close_old()).min()
    }
}
