//! Sites: the choice of the origin for a request.
//!
//! ```text
//!  host ─ SiteTable::of_host ─▶ SiteId ─┬─▶ rules (SiteTable)
//!                                   └─▶ Group: which member ─▶ Member of all cores, Upstream of this core (Pool)
//! ```
//! *recv* determines the site. From there on the request carries the site's number, and the configuration in
//! which it is numbered ([`active_config`](crate::request::active_config)). Permits, connections, addresses
//! and health belong to a server: sites and origins with the same server and the same rules share them, and
//! so do a configuration and the one before it.

mod table;

use std::{
    collections::HashMap,
    sync::{Arc, atomic::AtomicBool},
};

use engine::tls::authorities::AuthoritiesId;

pub use self::table::SitesError;
pub(crate) use self::table::{SiteId, SiteTable};
use crate::{
    admin::majority::Majority,
    config::{Config, Origin, OriginRules, Server, ServerRules, SiteRules},
    origin::{Group, Member, Names, SetUpError},
};

/// The sites of a configuration, shared by all cores.
pub(crate) struct Sites {
    /// Table of hosts and rules.
    pub(crate) table: Arc<SiteTable>,
    /// Servers of all origins, without duplicates.
    pub(crate) members: Members,
    groups: HashMap<OfGroup, Arc<Group>>,
    of_sites: Box<[OfSite]>,
}

/// Identity of a server's connections: its address, its rules, and the host sent to it.
type OfMember = (Server, ServerRules, Option<Box<str>>);
/// Identity of an origin's group of servers: the origin, its rules, and the host sent to it.
type OfGroup = (Option<Origin>, OriginRules, Option<Box<str>>);

/// Servers of all origins.
#[derive(Default)]
pub(crate) struct Members {
    /// Servers in the order of the configuration.
    pub(crate) all: Vec<Arc<Member>>,
    places: HashMap<OfMember, usize>,
}

/// State of one site that all cores share.
struct OfSite {
    group: Arc<Group>,
    /// Authorities that sign the certificates of the site's clients.
    authorities: Option<AuthoritiesId>,
    told: Arc<SiteHints>,
}

/// Hints that the log gives about a site: flags for hints already given, and statistics for others. Kept
/// while the site has the same hosts.
struct SiteHints {
    of_shared_pages: AtomicBool,
    unfresh: Majority,
    by_cookie: Majority,
}

impl Members {
    fn key(server: &Server, rules: &SiteRules) -> OfMember {
        (server.clone(), rules.origin.server.clone(), rules.host.clone())
    }

    fn get(&self, key: &OfMember) -> Option<&Arc<Member>> {
        self.places.get(key).map(|at| &self.all[*at])
    }

    /// Adds a server, with its state in `before` if it was there.
    fn add(
        &mut self,
        before: Option<&Sites>,
        server: &Server,
        rules: &SiteRules,
        names: &mut Names,
    ) -> Result<(), SetUpError> {
        let key = Self::key(server, rules);
        if self.get(&key).is_none() {
            let known = before.and_then(|before| before.members.get(&key)).cloned();
            let made =
                || Member::new(server, &rules.origin.server, rules.host.as_deref(), names).map(Arc::new);
            self.all.push(known.map_or_else(made, Ok)?);
            self.places.insert(key, self.all.len() - 1);
        }
        Ok(())
    }
}

impl Sites {
    /// Builds the sites of a configuration, for a number of cores. `table` and `authorities`, indexed by
    /// sites, must be built from the same configuration. Parts that are unchanged since `before` are shared
    /// with it. `names` resolves new names.
    ///
    /// # Errors
    /// [`SetUpError`] if the thread that resolves names cannot be started, or TLS with a server cannot be set
    /// up.
    pub(crate) fn new(
        config: &Config,
        table: Arc<SiteTable>,
        authorities: &[Option<AuthoritiesId>],
        cores: usize,
        before: Option<&Self>,
        names: &mut Names,
    ) -> Result<Self, SetUpError> {
        let (mut members, mut groups) = (Members::default(), HashMap::<OfGroup, Arc<Group>>::new());
        let origins = config.sites.iter().map(|site| (Some(&site.origin), &site.rules));
        let mut of_sites = Vec::new();
        for (origin, rules) in [(config.origin.as_ref(), &config.rules)].into_iter().chain(origins) {
            let key = (origin.cloned(), rules.origin.clone(), rules.host.clone());
            if let Some(origin) = origin {
                let mut all = origin.members().iter();
                all.try_for_each(|of| members.add(before, &of.server, rules, names))?;
            }
            let made = || match origin {
                None => Group::of_nobody(),
                Some(origin) => Group::new(origin, &rules.origin, |server| {
                    Arc::clone(&members.all[members.places[&Members::key(server, rules)]])
                }),
            };
            let known = groups.get(&key).or_else(|| before.and_then(|before| before.groups.get(&key)));
            let group = known.cloned().unwrap_or_else(|| Arc::new(made()));
            groups.insert(key, Arc::clone(&group));
            let site = of_sites.len();
            let told = before.and_then(|before| before.told_of(table.names_at(site))).unwrap_or_else(|| {
                Arc::new(SiteHints {
                    of_shared_pages: AtomicBool::new(false),
                    unfresh: Majority::new(cores),
                    by_cookie: Majority::new(cores),
                })
            });
            of_sites.push(OfSite { group, authorities: authorities.get(site).copied().flatten(), told });
        }
        Ok(Self { table, members, groups, of_sites: of_sites.into() })
    }

    fn told_of(&self, names: &str) -> Option<Arc<SiteHints>> {
        let site = (0..self.of_sites.len()).find(|site| self.table.names_at(*site) == names)?;
        Some(Arc::clone(&self.of_sites[site].told))
    }

    /// Returns the rules of a site.
    #[inline]
    pub(crate) fn rules(&self, site: SiteId) -> &SiteRules {
        self.table.rules(site)
    }

    /// Returns the authorities that sign the certificates of a site's clients, if the site requests some.
    pub(crate) fn authorities(&self, site: SiteId) -> Option<AuthoritiesId> {
        self.of_sites[site.index()].authorities
    }

    /// Returns a site's origin.
    pub(crate) fn group(&self, site: SiteId) -> &Arc<Group> {
        &self.of_sites[site.index()].group
    }

    /// Returns the flag that is set once the log has warned of pages that differ between a site's visitors
    /// ([`cookie_leak_check`](crate::admin::cookie_leak_check)).
    pub(crate) fn cookie_leak_flag(&self, site: SiteId) -> &AtomicBool {
        &self.of_sites[site.index()].told.of_shared_pages
    }

    /// Returns the statistics on whether a site's answers state their freshness.
    pub(crate) fn missing_freshness(&self, site: SiteId) -> &Majority {
        &self.of_sites[site.index()].told.unfresh
    }

    /// Returns the statistics on a site's requests for pages that are answered by an origin, and on those
    /// that are sent there only because of a cookie.
    pub(crate) fn by_cookie(&self, site: SiteId) -> &Majority {
        &self.of_sites[site.index()].told.by_cookie
    }
}
