//! Sites: which origin a request is for.
//!
//! ```text
//!  host ─ SiteTable::of_host ─▶ SiteId ─┬─▶ rules (SiteTable)
//!                                   └─▶ Group: which member ─▶ Upstream of this core, Member of all cores
//! ```
//! *recv* says which; from there on the request carries the site's number. What talks to a server (permits, connections,
//! addresses, how it fares) is that server's: sites and origins with the same one, by the same rules, share that.

mod table;

use std::{
    cell::RefCell,
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use engine::meter::CounterSet;

pub use self::table::SitesError;
pub(crate) use self::table::{SiteId, SiteTable};
use crate::{
    config::{Config, Limits, Server, ServerRules, SiteRules},
    origin::{Group, Member, MemberId, NameCounter, Names, SetUpError, Streams, Tell, Tried, Upstream, Wish},
    unfresh::Unfresh,
};

/// What all cores share of the sites.
pub(crate) struct Sites {
    table: Arc<SiteTable>,
    pub(crate) members: Arc<[Arc<Member>]>,
    groups: Arc<[Group]>,
    of_sites: Arc<[OfSite]>,
}

/// What all cores know of one site.
struct OfSite {
    /// The place of its origin among the groups.
    group: usize,
    told_of_shared_pages: AtomicBool,
    unfresh: Unfresh,
}

/// The servers of all origins, each once.
#[derive(Default)]
struct Members<'c> {
    all: Vec<Arc<Member>>,
    places: HashMap<(&'c Server, &'c ServerRules, Option<&'c str>), usize>,
}

impl<'c> Members<'c> {
    fn add(&mut self, server: &'c Server, rules: &'c SiteRules, names: &mut Names) -> Result<(), SetUpError> {
        let host = rules.host.as_deref();
        let place = (server, &rules.origin.server, host);
        if !self.places.contains_key(&place) {
            self.all.push(Arc::new(Member::new(server, &rules.origin.server, host, names)?));
            self.places.insert(place, self.all.len() - 1);
        }
        Ok(())
    }

    fn of(&self, server: &Server, rules: &SiteRules) -> (MemberId, Arc<Member>) {
        let at = self.places[&(server, &rules.origin.server, rules.host.as_deref())];
        (MemberId::of(at), Arc::clone(&self.all[at]))
    }
}

impl Sites {
    /// Those of a configuration, for so many cores; `table` is made of the same. `counters` are of looking names up.
    ///
    /// # Errors
    /// There is no thread to look names up with, or TLS with a server cannot be spoken.
    pub(crate) fn new(
        config: &Config,
        table: Arc<SiteTable>,
        cores: usize,
        counters: Arc<CounterSet<NameCounter>>,
    ) -> Result<Self, SetUpError> {
        let mut names = Names::new(&config.resolver, counters);
        let (mut members, mut groups, mut places) = (Members::default(), Vec::new(), HashMap::new());
        let origins = config.sites.iter().map(|site| (Some(&site.origin), &site.rules));
        let mut of_sites = Vec::new();
        for (origin, rules) in [(config.origin.as_ref(), &config.rules)].into_iter().chain(origins) {
            let key = (origin, &rules.origin, rules.host.as_deref());
            let group = match places.entry(key) {
                Entry::Occupied(place) => *place.get(),
                Entry::Vacant(place) => {
                    groups.push(match origin {
                        None => Group::of_nobody(),
                        Some(origin) => {
                            origin
                                .members()
                                .iter()
                                .try_for_each(|member| members.add(&member.server, rules, &mut names))?;
                            Group::new(origin, &rules.origin, |server| members.of(server, rules))
                        }
                    });
                    *place.insert(groups.len() - 1)
                }
            };
            of_sites.push(OfSite {
                group,
                told_of_shared_pages: AtomicBool::new(false),
                unfresh: Unfresh::new(cores),
            });
        }
        Ok(Self { table, members: members.all.into(), groups: groups.into(), of_sites: of_sites.into() })
    }

    /// One core's part of them.
    pub(crate) fn of_core(&self, limits: &Limits, tell: Tell) -> SitesOfCore {
        let streams = Streams::new(limits);
        let upstreams = self
            .members
            .iter()
            .map(|member| RefCell::new(Upstream::new(Arc::clone(member), limits, streams.clone(), tell)));
        SitesOfCore {
            table: Arc::clone(&self.table),
            upstreams: upstreams.collect(),
            turns: self.groups.iter().map(|group| RefCell::new(group.turns())).collect(),
            groups: Arc::clone(&self.groups),
            of_sites: Arc::clone(&self.of_sites),
        }
    }
}

/// One core's part of the sites.
pub(crate) struct SitesOfCore {
    /// Which site a host is of, and their rules.
    pub(crate) table: Arc<SiteTable>,
    upstreams: Box<[RefCell<Upstream>]>,
    /// Of each group, whose turn it is on this core.
    turns: Box<[RefCell<Box<[i64]>>]>,
    groups: Arc<[Group]>,
    of_sites: Arc<[OfSite]>,
}

impl SitesOfCore {
    /// The rules of a site.
    pub(crate) fn rules(&self, site: SiteId) -> &SiteRules {
        self.table.rules(site)
    }

    /// The connections to a server.
    pub(crate) fn upstream(&self, member: MemberId) -> &RefCell<Upstream> {
        &self.upstreams[member.index()]
    }

    /// A site's origin.
    pub(crate) fn group(&self, site: SiteId) -> &Group {
        &self.groups[self.of_sites[site.index()].group]
    }

    /// The server of a site's origin that is asked next.
    pub(crate) fn choose(
        &self,
        site: SiteId,
        wish: Wish,
        tried: &mut Tried,
        now_ms: u64,
    ) -> Option<MemberId> {
        let group = self.of_sites[site.index()].group;
        self.groups[group].choose(wish, tried, &mut self.turns[group].borrow_mut(), now_ms)
    }

    /// Whether it was said that what a site's visitors share differs between them ([`shared_pages`](crate::shared_pages)).
    pub(crate) fn is_told_of_shared_pages(&self, site: SiteId) -> &AtomicBool {
        &self.of_sites[site.index()].told_of_shared_pages
    }

    /// Whether a site's answers say how long they are fresh.
    pub(crate) fn unfresh(&self, site: SiteId) -> &Unfresh {
        &self.of_sites[site.index()].unfresh
    }

    /// Closes connections to origins that have been idle for too long; when the next one will have been.
    pub(crate) fn close_old(&self) -> Option<Duration> {
        self.upstreams.iter().filter_map(|upstream| upstream.borrow_mut().close_old()).min()
    }
}
