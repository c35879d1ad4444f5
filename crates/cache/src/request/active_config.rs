//! What is in force: a configuration, and all that was made of it. It is replaced as a whole.
//!
//! ```text
//!  reload ─▶ ActiveConfig, checked ─▶ to each core, between two of its turns: from then on its requests are judged by it
//!                                 └ a request that is under way keeps the one that it was judged by, on whatever core
//! ```
//! So no request is answered half by one configuration and half by another, and a hit takes neither a lock nor a count: a
//! core's is plain memory of its thread. What stays as it was (servers with their connections and health, tables of rates,
//! tickets) is the same in both. *Bounds:* as many as there are requests under way that are older than a reload.

use std::sync::Arc;

use engine::tls::authorities::AuthoritiesId;

use crate::{
    client::limits::{connection_counts::ConnectionCounts, crawlers::Work, rates::Rates},
    config::{Config, CrawlerRules, Limits},
    origin::{Names, SetUpError},
    site::{SiteTable, Sites},
};

/// A configuration and what was made of it.
pub(crate) struct ActiveConfig {
    pub(crate) config: Arc<Config>,
    pub(crate) sites: Arc<Sites>,
    /// Connections by client.
    pub(crate) clients: Arc<ConnectionCounts>,
    /// How often each client may ask.
    pub(crate) rates: Arc<Rates>,
    /// What crawlers and strangers have cost the origins.
    pub(crate) work: Arc<Work>,
}

impl ActiveConfig {
    /// What a configuration comes to, for so many cores; `table` and `authorities`, by sites, are made of the same. What is
    /// as it was `before` goes on; `names` has new ones looked up.
    ///
    /// # Errors
    /// What talks to an origin cannot be made.
    pub(crate) fn new(
        config: Config,
        table: Arc<SiteTable>,
        authorities: &[Option<AuthoritiesId>],
        cores: usize,
        before: Option<&Self>,
        names: &mut Names,
    ) -> Result<Arc<Self>, SetUpError> {
        let sites_before = before.map(|before| &*before.sites);
        let sites = Sites::new(&config, table, authorities, cores, sites_before, names)?;
        let limits = &config.limits;
        let as_before =
            |same: fn(&Limits, &Limits) -> bool| before.filter(|before| same(&before.config.limits, limits));
        let same_crawlers = |before: &&Self| {
            let CrawlerRules { budget, strangers, .. } = &before.config.crawlers;
            (*budget, *strangers) == (config.crawlers.budget, config.crawlers.strangers)
        };
        Ok(Arc::new(Self {
            // Whoever is connected is not counted in a new table: until it goes, its limit is a weaker one.
            clients: as_before(ConnectionCounts::is_same)
                .map_or_else(|| ConnectionCounts::new(limits), |before| Arc::clone(&before.clients)),
            rates: as_before(Rates::is_same)
                .map_or_else(|| Arc::new(Rates::new(limits)), |before| Arc::clone(&before.rates)),
            work: before
                .filter(same_crawlers)
                .map_or_else(|| Arc::new(Work::new(&config.crawlers)), |before| Arc::clone(&before.work)),
            sites: Arc::new(sites),
            config: Arc::new(config),
        }))
    }
}

#[cfg(test)]
impl ActiveConfig {
    /// What a test's configuration comes to, for so many cores.
    pub(crate) fn of_test(config: Config, cores: usize) -> Arc<Self> {
        let table = Arc::new(SiteTable::of(&config).expect("sites"));
        let mut names = Names::new(&config.resolver, engine::meter::CounterSet::new(1));
        Self::new(config, table, &[], cores, None, &mut names).expect("sites")
    }
}
