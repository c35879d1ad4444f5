//! Sites: which origin a request is for.
//!
//! ```text
//!  host ─ SiteTable::of_host ─▶ SiteId ─┬─▶ rules (SiteTable)
//!                                   └─▶ Group: which member ─▶ Member of all cores, Upstream of this core (Pool)
//! ```
//! *recv* says which; from there on the request carries the site's number, and that by which it was numbered
//! ([`active_config`](crate::request::active_config)). What talks to a server (permits, connections, addresses, how it fares) is that server's:
//! sites and origins with the same one, by the same rules, share that; and so do a configuration and the one before it.

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

/// The sites of a configuration, as all cores share them.
pub(crate) struct Sites {
    /// Which site a host is of, and their rules.
    pub(crate) table: Arc<SiteTable>,
    /// The servers of all origins, each once.
    pub(crate) members: Members,
    groups: HashMap<OfGroup, Arc<Group>>,
    of_sites: Box<[OfSite]>,
}

/// By what a server's connections are told from another's: where it is, how it is treated, and as which host.
type OfMember = (Server, ServerRules, Option<Box<str>>);
/// Likewise an origin.
type OfGroup = (Option<Origin>, OriginRules, Option<Box<str>>);

/// The servers of all origins.
#[derive(Default)]
pub(crate) struct Members {
    /// In the order in which they are configured.
    pub(crate) all: Vec<Arc<Member>>,
    places: HashMap<OfMember, usize>,
}

/// What all cores know of one site.
struct OfSite {
    group: Arc<Group>,
    /// Who signs its clients' certificates.
    authorities: Option<AuthoritiesId>,
    told: Arc<SiteHints>,
}

/// What was said of a site, once, as long as it has the same hosts.
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

    /// Enters a server, as it was `before` if it was there.
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
    /// Those of a configuration, for so many cores; `table` and `authorities`, by sites, are made of the same. What is as it
    /// was `before` is the same. `names` has new ones looked up.
    ///
    /// # Errors
    /// There is no thread to look names up with, or TLS with a server cannot be spoken.
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

    /// The rules of a site.
    #[inline]
    pub(crate) fn rules(&self, site: SiteId) -> &SiteRules {
        self.table.rules(site)
    }

    /// Who signs the certificates of a site's clients, where it asks for some.
    pub(crate) fn authorities(&self, site: SiteId) -> Option<AuthoritiesId> {
        self.of_sites[site.index()].authorities
    }

    /// A site's origin.
    pub(crate) fn group(&self, site: SiteId) -> &Arc<Group> {
        &self.of_sites[site.index()].group
    }

    /// The flag that the log has told of pages that differ between a site's visitors ([`cookie_leak_check`](crate::admin::cookie_leak_check)).
    pub(crate) fn is_told_of_shared_pages(&self, site: SiteId) -> &AtomicBool {
        &self.of_sites[site.index()].told.of_shared_pages
    }

    /// Whether a site's answers say how long they are fresh.
    pub(crate) fn unfresh(&self, site: SiteId) -> &Majority {
        &self.of_sites[site.index()].told.unfresh
    }

    /// The site's requests for pages that an origin answers, and those that go there because of a cookie alone.
    pub(crate) fn by_cookie(&self, site: SiteId) -> &Majority {
        &self.of_sites[site.index()].told.by_cookie
    }
}
