//! Active configuration, with everything that was built from it. It is replaced as a whole.
//!
//! ```text
//!  reload ─▶ ActiveConfig, checked ─▶ to each core, between two of its turns: from then on its requests are judged by it
//!                                 └ a request under way keeps the one that it was judged by, on whatever core
//! ```
//! No request is answered half by one configuration and half by another. A hit takes neither a lock nor a
//! reference count: a core's configuration is plain memory of its thread. Unchanged parts (servers with
//! their connections and health, tables of rates, tickets) are shared by both. *Bounds:* old configurations
//! live until the last request that began before the reload has ended.

use std::sync::Arc;

use engine::tls::authorities::AuthoritiesId;

use crate::{
    client::limits::{connection_counts::ConnectionCounts, crawlers::Work, rates::Rates},
    config::{Config, CrawlerRules, Limits},
    origin::{Names, SetUpError},
    site::{SiteTable, Sites},
};

/// A configuration with everything that was built from it.
pub(crate) struct ActiveConfig {
    pub(crate) config: Arc<Config>,
    pub(crate) sites: Arc<Sites>,
    /// Open connections of each client.
    pub(crate) clients: Arc<ConnectionCounts>,
    /// Request rates of each client.
    pub(crate) rates: Arc<Rates>,
    /// Budgets of crawlers and unknown clients for the cost of their requests to the origins.
    pub(crate) work: Arc<Work>,
}

impl ActiveConfig {
    /// Builds the state for a configuration and a number of cores. `table` and `authorities`, indexed by
    /// sites, must be built from the same configuration. Parts that are unchanged since `before` are kept;
    /// `names` resolves new names.
    ///
    /// # Errors
    /// [`SetUpError`] if the client side for an origin cannot be set up.
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
            // A new table does not count open connections: until they close, their clients' limits are
            // weaker.
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
    /// Builds the state for a test's configuration and a number of cores.
    pub(crate) fn of_test(config: Config, cores: usize) -> Arc<Self> {
        let table = Arc::new(SiteTable::of(&config).expect("sites"));
        let mut names = Names::new(&config.resolver, engine::meter::CounterSet::new(1));
        Self::new(config, table, &[], cores, None, &mut names).expect("sites")
    }
}
