//! Sites: which origin a request is for.
//!
//! *recv* says which; from there on the request carries the site's number, and what talks to the origin (permits,
//! connections, addresses) is the site's. Today one site takes every name.

use std::{cell::RefCell, io, sync::Arc, time::Duration};

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
}

impl Sites {
    /// Those of a configuration.
    ///
    /// # Errors
    /// There is no thread to look names up with.
    pub(crate) fn new(config: &Config) -> io::Result<Self> {
        Ok(Self { resolvers: vec![Resolver::new(&config.origin)?] })
    }

    /// One core's part of them.
    pub(crate) fn of_core(&self, limits: &Limits) -> SitesOfCore {
        let upstreams =
            self.resolvers.iter().map(|resolver| RefCell::new(Upstream::new(Arc::clone(resolver), limits)));
        SitesOfCore { upstreams: upstreams.collect() }
    }
}

/// One core's part of the sites.
pub(crate) struct SitesOfCore {
    upstreams: Box<[RefCell<Upstream>]>,
}

impl SitesOfCore {
    /// The connections to a site's origin.
    pub(crate) fn upstream(&self, site: SiteId) -> &RefCell<Upstream> {
        &self.upstreams[usize::from(site.0)]
    }

    /// Closes connections to origins that have been idle for too long; when the next one will have been.
    pub(crate) fn close_old(&self) -> Option<Duration> {
        self.upstreams.iter().filter_map(|upstream| upstream.borrow_mut().close_old()).min()
    }
}
