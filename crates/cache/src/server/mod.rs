//! Start and stop of the accelerator: its sockets, its store, one loop per core, and each core's background
//! tasks.

mod core_task;
mod start_error;

use std::{io, net::SocketAddr, sync::Arc, thread, time::Duration};

use engine::{
    cold_mutex::ColdMutex,
    cores::{
        clock,
        run::{CoreFailure, DrainReport},
        service::{Service, ServiceSetup},
    },
    journal::Journal,
    log::RecoveryReport,
    meter::{CounterSet, Registry},
    store::{Store, StoreConfig},
};
use tokio::sync::oneshot;
use wire::http1::head::HeadLimits;

use crate::{
    admin::{
        explain,
        explanation::{ExplainError, Explanation, RequestOf},
        listing,
        objects::{Objects, ObjectsError},
        operator_port::Outside,
    },
    body::growing::PassingBudget,
    client::{
        http1,
        limits::client_memory::ClientMemory,
        listener::{ListenerSet, SocketFile},
        tls_terms::{Kinds, TlsTerms},
    },
    config::{Config, PeerAt},
    core::{
        CoreBusy, Message,
        store_file::{OpenFile, OpenStore, open_store},
    },
    counters::Counter,
    encoding::codec_pool::CodingPool,
    head::response_head::Identity,
    origin::{ByHand, MemberSaid, NameCounter, Names, Servers, SetUpError},
    peers::{
        PeerSeen, Peers,
        purge_broadcast::{ClusterHandle, Invalidate},
    },
    purging::{
        bans::{Ban, BanSeen},
        invalidations::What,
        purge_log::Book,
        spread,
    },
    request::{active_config::ActiveConfig, key},
    site::SiteTable,
};

use core_task::{Seed, SharedState, run_core};
pub use start_error::StartError;

/// Messages that may wait in the ring from one core to another. When the ring is full, the core that wants a
/// fetch passes the request through.
const RING_MESSAGES: usize = 1024;

/// Result of a purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PurgeResult {
    /// The stored answer and all its variants were dropped, under these URLs.
    Dropped(Vec<String>),
    /// Nothing was stored under the URL.
    Absent,
}

/// Error of a purge that was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum PurgeError {
    /// The text is not a URL of this accelerator.
    #[error("not a URL: {0:?}; it should look like http://www.example.org/path")]
    NotAUrl(String),
    /// The ban expression is invalid; the text says where, and what was expected there.
    #[error("invalid ban:\n{0}")]
    NotABan(String),
    /// The purge took effect in memory, but was not written to the disk.
    #[error("purged, but not written to disk: the purge may be lost in a crash")]
    NotWritten,
    /// The core that owns the object did not answer.
    #[error("the core that owns the object did not answer; the server may be stopping")]
    NoAnswer,
}

/// A running accelerator. Dropping it stops it at once; [`Server::drain`] lets requests end first.
pub struct Server {
    addresses: Vec<SocketAddr>,
    store: Arc<Store>,
    service: Service,
    /// The store's file. Dropped after the loops, so that everything the loops have appended is written.
    file: Option<OpenFile>,
    /// Threads that encode and decode content. Dropped after the loops.
    _coding: CodingPool,
    /// Channel to the cores for purges and queries from other threads.
    outside: Outside,
    book: Arc<Book>,
    head_limits: HeadLimits,
    /// Latest configuration that was given to the cores.
    in_force: ColdMutex<Arc<ActiveConfig>>,
    /// Resolver of the origins' host names.
    names: ColdMutex<Names>,
    /// Origin servers that `stat` shows.
    servers: Arc<Servers>,
    terms: Option<Arc<TlsTerms>>,
    peers: Option<Arc<Peers>>,
    /// Address of the peers' listener, if peers are configured.
    peers_address: Option<SocketAddr>,
    _socket: Option<SocketFile>,
}

/// Reads the certificates, if TLS is configured.
fn tls_terms(
    config: &Config,
    table: &Arc<SiteTable>,
    addresses: &[SocketAddr],
) -> Result<Option<Arc<TlsTerms>>, StartError> {
    let Some(tls) = &config.tls else { return Ok(None) };
    let port = addresses.get(1).map_or(0, SocketAddr::port);
    Ok(Some(Arc::new(TlsTerms::new(tls, config, table, port)?)))
}

/// A checked configuration that is ready to be activated.
pub struct PreparedConfig {
    in_force: Arc<ActiveConfig>,
    kinds: Option<Kinds>,
}

impl Server {
    /// Binds the sockets, reserves the store's memory and starts one loop per core. Connections are accepted
    /// once the function has returned.
    ///
    /// # Errors
    /// Returns [`StartError`] if an address is in use or cannot be bound, the store cannot be reserved, or
    /// the loops cannot be started.
    pub fn start(config: Config) -> Result<Self, StartError> {
        Self::start_logged(config, None)
    }

    /// Starts the accelerator as [`Server::start`] does, with a journal for the records of requests. The
    /// journal must have a free ring for each loop.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_logged(config: Config, journal: Option<&Arc<Journal>>) -> Result<Self, StartError> {
        Self::start_among(config, journal, ClusterHandle::default())
    }

    /// Starts the accelerator as [`Server::start_logged`] does, as a member of a cluster.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_among(
        config: Config,
        journal: Option<&Arc<Journal>>,
        among: ClusterHandle,
    ) -> Result<Self, StartError> {
        let mut setup = ServiceSetup::new(&config.cores, usize::MAX).map_err(StartError::Prepare)?;
        let loops = setup.loops();
        let table = Arc::new(SiteTable::of(&config)?);
        let identity = Identity::new(&config.name)?;
        let pseudonym = pseudonym(&config.name).map_err(StartError::Prepare)?;
        let ListenerSet { of_cores, addresses, peers: peers_address, file: socket } =
            ListenerSet::new(&config, loops).map_err(StartError::Listen)?;
        let terms = tls_terms(&config, &table, &addresses)?;
        let memory =
            StoreConfig { capacity_bytes: config.memory_bytes, cores: loops, ..StoreConfig::default() };
        let OpenStore { store, shards, file, reads } = open_store(&config, &memory)?;
        let (book, purged) = match &config.store {
            Some(path) => Book::open(path, &store)?,
            None => Default::default(),
        };
        let book = Arc::new(book);
        let counters = CounterSet::<Counter>::new(loops);
        setup.registry.register(counters.clone());
        setup.registry.register(Arc::clone(&store) as _);
        let rings = setup.rings(RING_MESSAGES).map_err(StartError::Prepare)?;
        let registry = &mut setup.registry;
        if let Some(file) = &file {
            file.register(registry);
        }
        let (coding, coders) = CodingPool::start(&config.compress, loops, config.client_budget.as_ref())
            .map_err(StartError::Prepare)?;
        let seeds = of_cores.into_iter().zip(shards).zip(reads).zip(rings.endpoints).zip(coders).enumerate();
        let seeds = seeds
            .map(|(index, ((((listeners, shard), file), endpoint), coding))| {
                let (sender, receiver) = endpoint.split();
                let (purged, counters) = (purged.clone(), counters.core(index));
                let scribe = journal.map(Journal::scribe);
                Seed { listeners, shard, file, coding, purged, sender, receiver, counters, scribe }
            })
            .collect();
        let authorities = terms.as_ref().map_or_else(Box::default, |terms| terms.authorities());
        let head_limits = http1::head_limits(&config);
        let name_counters = CounterSet::<NameCounter>::new(1);
        registry.register(name_counters.clone());
        let mut names = Names::new(&config.resolver, name_counters);
        let peers = config.peers.as_ref().map(|rules| Peers::new(rules, &config.limits, &mut names));
        let peers = peers.transpose()?.map(Arc::new);
        if let Some(peers) = &peers {
            registry.register(Arc::clone(peers) as _);
        }
        let in_force = ActiveConfig::new(config, table, &authorities, loops, None, &mut names)?;
        let servers = Arc::new(Servers::of(Arc::clone(&in_force.sites)));
        registry.register(Arc::clone(&servers) as _);
        let shared = Arc::new(SharedState {
            stage: Arc::clone(&setup.stage),
            store: Arc::clone(&store),
            terms: terms.clone(),
            identity,
            pseudonym,
            in_force: Arc::clone(&in_force),
            book: Arc::clone(&book),
            client_memory: ClientMemory::new(in_force.config.client_budget.as_ref(), loops),
            passing: PassingBudget::new(in_force.config.passing_bytes_max),
            among,
            peers: peers.clone(),
        });
        let service =
            setup.start("cache", seeds, move |context, seed| run_core(context, seed, Arc::clone(&shared)))?;
        Ok(Self {
            addresses,
            store,
            service,
            file,
            _coding: coding,
            outside: Outside::new(rings.outside),
            book,
            head_limits,
            in_force: ColdMutex::new(in_force),
            names: ColdMutex::new(names),
            servers,
            terms,
            peers,
            peers_address,
            _socket: socket,
        })
    }

    /// Returns the bound addresses: the one for plain HTTP, then the one for TLS if there is one.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    /// Returns the address of the peers' listener, if peers are configured.
    pub fn peers_address(&self) -> Option<SocketAddr> {
        self.peers_address
    }

    /// Sets the accelerators that share keys, this one included. No stored object is moved, and requests
    /// under way continue.
    ///
    /// # Errors
    /// Returns [`SetUpError`] if an address is invalid. Without a listener for peers the call does nothing.
    pub fn set_peers(&self, live: &[PeerAt]) -> Result<(), SetUpError> {
        let Some(peers) = &self.peers else { return Ok(()) };
        peers.set_members(live, &mut self.names.lock())
    }

    /// Returns the accelerators that share keys, this one included.
    pub fn peers(&self) -> Vec<PeerSeen> {
        self.peers.as_ref().map(|peers| peers.seen()).unwrap_or_default()
    }

    /// All counters, gauges and histograms.
    pub fn registry(&self) -> Arc<Registry> {
        self.service.registry()
    }

    /// Returns what the store's file held when the accelerator started; `None` without a file, or while the
    /// file is still being read.
    pub fn recovered(&self) -> Option<RecoveryReport> {
        self.file.as_ref().and_then(OpenFile::recovered)
    }

    /// Returns whether every loop accepts connections.
    pub fn is_ready(&self) -> bool {
        self.service.is_ready()
    }

    fn active_config(&self) -> Arc<ActiveConfig> {
        Arc::clone(&self.in_force.lock())
    }

    /// Builds everything that another configuration needs, and reads its files. Settings that only a restart
    /// can change keep their values: listeners, the store, the name, the size of a head, the number of
    /// connections to origins, the memory that slow clients may hold, and the codings.
    ///
    /// # Errors
    /// Returns [`StartError`] if the configuration is invalid.
    pub fn prepare(&self, config: Config) -> Result<PreparedConfig, StartError> {
        let before = self.active_config();
        let config = before.config.reloaded(config);
        let table = Arc::new(SiteTable::of(&config)?);
        let kinds = self.terms.as_ref().map(|terms| terms.prepare(&config, &table)).transpose()?;
        let authorities = kinds.as_ref().map_or_else(Box::default, Kinds::authorities);
        let mut names = self.names.lock();
        let in_force =
            ActiveConfig::new(config, table, &authorities, self.service.loops(), Some(&before), &mut names)?;
        Ok(PreparedConfig { in_force, kinds })
    }

    /// Activates a configuration on every core, between two turns of its loop. Requests under way are
    /// answered under the old configuration. Blocks until every core has switched.
    ///
    /// # Errors
    /// [`PurgeError::NoAnswer`] if the server is stopping.
    pub fn activate(&self, prepared: PreparedConfig) -> Result<(), PurgeError> {
        let PreparedConfig { in_force, kinds } = prepared;
        let mut told = Vec::new();
        for core in 0..self.service.loops() {
            let (done, answer) = oneshot::channel();
            let message = Message::ActiveConfig { in_force: Arc::clone(&in_force), done };
            self.outside.give(core, message).map_err(|CoreBusy| PurgeError::NoAnswer)?;
            told.push(answer);
        }
        // The caller may run on a thread of a tokio runtime, where tokio forbids blocking.
        let wait = || told.into_iter().all(|answer| answer.blocking_recv().is_ok());
        let is_told = thread::scope(|scope| scope.spawn(wait).join());
        if !is_told.unwrap_or(false) {
            return Err(PurgeError::NoAnswer);
        }
        if let (Some(terms), Some(kinds)) = (&self.terms, kinds) {
            terms.take(kinds);
        }
        self.servers.replace_sites(Arc::clone(&in_force.sites));
        *self.in_force.lock() = in_force;
        Ok(())
    }

    /// Returns the state of each origin server.
    pub fn origins(&self) -> Vec<MemberSaid> {
        let now_ms = clock::monotonic_ms();
        self.active_config().sites.members.all.iter().map(|member| member.said(now_ms)).collect()
    }

    /// Sets an operator's decision on a server, by its configured name. Returns false if no server has that
    /// name.
    pub fn set_origin(&self, name: &str, by_hand: ByHand) -> bool {
        let mut is_there = false;
        for member in self.active_config().sites.members.all.iter().filter(|member| member.is(name)) {
            member.set(by_hand);
            is_there = true;
        }
        is_there
    }

    /// Drops the object stored under a URL, with all its variants. Blocks until the object is gone.
    ///
    /// # Errors
    /// [`PurgeError`] if the URL cannot be parsed, or the server is stopping.
    pub fn purge(&self, url: &str) -> Result<PurgeResult, PurgeError> {
        let mut key = Vec::new();
        if !key::of_url(url, &self.active_config().sites.table, &mut key) {
            return Err(PurgeError::NotAUrl(url.to_owned()));
        }
        let (ports, place) = (&self.book.ports, key::place(&key).word());
        let purged = self.drop_forms(key::forms(&key, &ports.seen()));
        if ports.are_more() {
            let what = What::Address(place);
            match spread::spread_from_outside(self.service.loops(), &self.book, what, false, &self.outside) {
                Ok(true) => {}
                Ok(false) => return Err(PurgeError::NotWritten),
                Err(CoreBusy) => return Err(PurgeError::NoAnswer),
            }
        }
        purged
    }

    /// Notes that the content under these tags has changed just now, or all content if there are none. This
    /// concerns only answers that are fresh for a second at most: a changed one is shown for less than a second
    /// more while one fetch renews it, and not shown again if content was deleted. Nothing is written to the
    /// disk. Blocks while a core's ring is full.
    ///
    /// # Errors
    /// [`PurgeError::NoAnswer`] if the server is stopping, or a core's ring stayed full.
    pub fn note_changes(&self, tags: &[String], is_deletion: bool) -> Result<(), PurgeError> {
        let at_ms = clock::unix_ms();
        let tags: Arc<[u64]> = tags.iter().map(|tag| self.store.hash(tag.as_bytes()).word()).collect();
        (0..self.service.loops()).try_for_each(|index| {
            let message = Message::Changed { tags: Arc::clone(&tags), at_ms, is_deletion };
            self.outside.give(index, message).map_err(|CoreBusy| PurgeError::NoAnswer)
        })
    }

    fn drop_forms(&self, forms: Vec<Vec<u8>>) -> Result<PurgeResult, PurgeError> {
        let (mut answers, mut found) = (Vec::new(), Vec::new());
        for key in forms {
            let (url, hash) = (key::as_url(&key), self.store.hash(&key));
            let (done, answer) = oneshot::channel();
            let message = Message::Unlink { hash, key, is_purge: answers.is_empty(), lasting: true, done };
            self.outside.give(self.store.owner(hash), message).map_err(|CoreBusy| PurgeError::NoAnswer)?;
            answers.push((url, answer));
        }
        let mut is_kept = true;
        for (url, answer) in answers {
            let unlinked = answer.blocking_recv().map_err(|_| PurgeError::NoAnswer)?;
            is_kept &= unlinked.is_kept;
            found.extend(unlinked.was_there.then_some(url));
        }
        match found.is_empty() {
            _ if !is_kept => Err(PurgeError::NotWritten),
            true => Ok(PurgeResult::Absent),
            false => Ok(PurgeResult::Dropped(found)),
        }
    }

    /// Purges everything that has one of these tags, everything stored under a URL, or the whole store; hard
    /// or soft. Blocks until every core has applied the purge. The cost does not depend on the number of
    /// affected objects.
    ///
    /// # Errors
    /// [`PurgeError`] if the URL cannot be parsed, or the server is stopping.
    pub fn invalidate(&self, what: &Invalidate, is_soft: bool) -> Result<(), PurgeError> {
        let what = match what {
            Invalidate::Tags(tags) => {
                What::Tags(tags.iter().map(|tag| self.store.hash(tag.as_bytes()).word()).collect())
            }
            Invalidate::Url(url) => {
                let mut key = Vec::new();
                if !key::of_url(url, &self.active_config().sites.table, &mut key) {
                    return Err(PurgeError::NotAUrl(url.clone()));
                }
                What::Address(key::place(&key).word())
            }
            Invalidate::All => What::All,
            Invalidate::Tagged => What::Tagged,
            Invalidate::Doubted => What::Doubted,
            Invalidate::Ban(text) => {
                let ban = Ban::parse(text.as_bytes(), &self.active_config().config.tags);
                What::Ban(ban.map_err(|fault| PurgeError::NotABan(fault.marked(text.as_bytes())))?)
            }
        };
        match spread::spread_from_outside(self.service.loops(), &self.book, what, is_soft, &self.outside) {
            Ok(true) => Ok(()),
            Ok(false) => Err(PurgeError::NotWritten),
            Err(CoreBusy) => Err(PurgeError::NoAnswer),
        }
    }

    /// Returns the active bans. Blocks until a core has answered.
    ///
    /// # Errors
    /// [`PurgeError::NoAnswer`] if the core did not answer.
    pub fn bans(&self) -> Result<Vec<BanSeen>, PurgeError> {
        self.outside.ask(0, Message::Bans).map_err(|CoreBusy| PurgeError::NoAnswer)
    }

    /// Lists the objects stored in memory, or those that match an expression (in the syntax of bans), up to
    /// `rows_max`. Blocks until the cores have answered.
    ///
    /// # Errors
    /// [`ObjectsError`] if the expression is invalid, or a core did not answer.
    pub fn objects(&self, expression: Option<&str>, rows_max: usize) -> Result<Objects, ObjectsError> {
        listing::ask_from_outside(
            self.service.loops(),
            &self.active_config().config.tags,
            &self.outside,
            expression,
            rows_max,
        )
    }

    /// Explains how a request would be answered now, and which rule decides at each step. Nothing is changed,
    /// counted or fetched. Blocks until the core that owns the key has answered.
    ///
    /// # Errors
    /// [`ExplainError`] if the accelerator would refuse the request, or the core did not answer.
    pub fn explain(&self, request: &RequestOf) -> Result<Explanation, ExplainError> {
        let limits = &self.head_limits;
        let table = &self.active_config().sites.table;
        explain::ask_from_outside(&self.store, self.service.loops(), table, limits, request, &self.outside)
    }

    /// Completes once a loop has ended. A loop ends by itself only when it fails; [`Server::drain`] then
    /// returns the reason.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        self.service.ended()
    }

    /// Stops accepting connections, lets requests under way end, and stops.
    ///
    /// # Errors
    /// [`CoreFailure`] if a loop has failed before, or fails during the drain.
    pub fn drain(mut self, at_most: Duration) -> Result<DrainReport, CoreFailure> {
        self.service.drain(at_most)
    }
}

/// Our pseudonym in the `Via` of requests. No other instance uses it, so a request that arrives with it has
/// come back to us in a loop.
fn pseudonym(name: &str) -> io::Result<Arc<str>> {
    let number = engine::random::number()? as u32;
    Ok(format!("{name}-{number:08x}").into())
}
