//! Start and stop of the feed: its sockets, one loop per core, and the tasks on each loop.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use engine::{
    cold_mutex::ColdMutex,
    cores::{
        self, CoreContext,
        listener::bind_all,
        mesh,
        run::{CoreFailure, DrainReport},
        service::{Service, ServiceSetup, Stage},
    },
    journal::{Journal, Scribe},
    meter::{CoreCounters, CounterSet, Registry},
    tls::TlsError,
};
use tokio::sync::mpsc;

use crate::{
    accounts::identity::{Identities, SpecError},
    client::{accept::accept, acceptors::Acceptors, connection::CloseReason, door::Door},
    config::Config,
    counters::Counter,
    delivery::publisher::{Outside, Publisher},
    leaf,
    mesh::{
        core::{CoreSeed, Local},
        links::{Message, RING_MESSAGES},
        settings::Settings,
        shared::SharedState,
    },
    monitor::{
        inspector::Looker,
        look::NoAnswer,
        snapshot::Snapshot,
        system::{self, QUESTIONS_MAX, question::SystemEvent},
    },
    routing::trie::CORES_MAX,
};

/// Time limit for every core to accept the message of a reload.
const RELOAD_TIME_MAX: Duration = Duration::from_secs(2);

/// Interval between looks whether every core has room for the message of a reload.
const ROOM_EVERY: Duration = Duration::from_millis(5);

/// Reason why the feed cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be bound; the error names it.
    #[error("{0}")]
    Listen(io::Error),
    /// The users, accounts or permissions are invalid.
    #[error("invalid authorization: {0}")]
    Authorization(#[from] SpecError),
    /// The certificates or keys are unusable.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] TlsError),
    /// The configuration of a hub is invalid.
    #[error("{0}")]
    Leaf(String),
    /// There are more loops than the bit mask of cores can hold.
    #[error("{0} cores are too many: the feed uses at most {CORES_MAX}; choose some with --cores")]
    TooManyCores(usize),
    /// The processors, or the wake-up handles of the loops, are not available.
    #[error("cannot prepare the event loops: {0}")]
    Prepare(io::Error),
    /// The event loops cannot be started.
    #[error("cannot start the event loops: {0}")]
    Cores(#[from] cores::run::StartError),
}

/// Error of a reload; the old configuration stays active.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The users, accounts or permissions are invalid.
    #[error("invalid authorization: {0}")]
    Authorization(#[from] SpecError),
    /// The certificates or keys are unusable.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] TlsError),
    /// The configuration of a hub is invalid.
    #[error("{0}")]
    Leaf(String),
    /// A core did not accept the new configuration.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
}

/// A running feed. Dropping it stops it at once; [`Server::drain`] lets clients leave first.
pub struct Server {
    addresses: Vec<SocketAddr>,
    counters: Arc<CounterSet<Counter>>,
    shared: Arc<SharedState>,
    settings: Arc<ColdMutex<Arc<Settings>>>,
    service: Service,
    outside: Arc<Outside>,
}

/// Resources with which one core is started.
struct Seed {
    listener: TcpListener,
    web_listener: Option<TcpListener>,
    sender: mesh::Sender<Message>,
    receiver: mesh::Receiver<Message>,
    counters: CoreCounters<Counter>,
    scribe: Option<Scribe>,
}

/// Resources that all cores share.
struct Common {
    shared: Arc<SharedState>,
    settings: Arc<Settings>,
    stage: Arc<Stage>,
    system: mpsc::Sender<SystemEvent>,
}

impl Server {
    /// Binds the sockets and starts one loop per core. Connections are accepted once the function has
    /// returned.
    ///
    /// # Errors
    /// [`StartError`] if the configuration is invalid, an address cannot be bound, or the loops cannot be
    /// started.
    pub fn start(config: Config) -> Result<Self, StartError> {
        Self::start_logged(config, None)
    }

    /// Starts the feed as [`Server::start`] does, with a journal for records of slow consumers that are cut
    /// off. The journal must have a free ring for each loop.
    ///
    /// # Errors
    /// [`StartError`]: see [`Server::start`].
    pub fn start_logged(config: Config, journal: Option<&Arc<Journal>>) -> Result<Self, StartError> {
        let mut setup = ServiceSetup::new(&config.cores, CORES_MAX).map_err(StartError::Prepare)?;
        let loops = setup.loops();
        if loops > CORES_MAX {
            return Err(StartError::TooManyCores(loops));
        }
        let identities = Identities::build(&config.authorization, None)?;
        let address = config.listen;
        let listeners = bind_all(address, loops).map_err(StartError::Listen)?;
        let mut web_listeners: Vec<Option<TcpListener>> = (0..loops).map(|_| None).collect();
        if let Some(web) = &config.websocket {
            let address = web.listen;
            let bound = bind_all(address, loops).map_err(StartError::Listen)?;
            web_listeners = bound.into_iter().map(Some).collect();
        }
        let first = listeners.first().into_iter().chain(web_listeners.first().and_then(Option::as_ref));
        let addresses: Vec<SocketAddr> = first.filter_map(|listener| listener.local_addr().ok()).collect();
        let counters = CounterSet::<Counter>::new(loops);
        let shared = SharedState::new(
            addresses.first().copied().unwrap_or(address),
            Arc::clone(&counters),
            config.client_budget.as_ref(),
        );
        let acceptors = Acceptors::build(&config)?;
        let hubs = leaf::seeds(&config, &identities, &shared.server_id, &[]).map_err(StartError::Leaf)?;
        let settings = Arc::new(Settings { config, identities, acceptors, hubs });
        setup.registry.register(counters.clone());
        let rings = setup.rings(RING_MESSAGES).map_err(StartError::Prepare)?;
        let seeds = listeners.into_iter().zip(web_listeners).zip(rings.endpoints).enumerate();
        let seeds = seeds
            .map(|(index, ((listener, web_listener), endpoint))| {
                let (sender, receiver) = endpoint.split();
                let (counters, scribe) = (counters.core(index), journal.map(Journal::scribe));
                Seed { listener, web_listener, sender, receiver, counters, scribe }
            })
            .collect();
        let (system, told) = mpsc::channel(QUESTIONS_MAX);
        let common = Arc::new(Common {
            shared: Arc::clone(&shared),
            settings: Arc::clone(&settings),
            stage: Arc::clone(&setup.stage),
            system,
        });
        let service =
            setup.start("feed", seeds, move |context, seed| run_core(context, seed, Arc::clone(&common)))?;
        let server = Self {
            addresses,
            counters,
            shared,
            settings: Arc::new(ColdMutex::new(settings)),
            service,
            outside: Arc::new(Outside::new(rings.outside)),
        };
        server.answer_in_system(told).map_err(StartError::Prepare)?;
        Ok(server)
    }

    /// Starts the thread that answers requests in the system account; the thread ends with the last loop.
    fn answer_in_system(&self, told: mpsc::Receiver<SystemEvent>) -> io::Result<()> {
        let (looker, settings) = (self.looker(), Arc::clone(&self.settings));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let now = move || {
            let settings = Arc::clone(&settings.lock());
            Looker { settings, ..looker.clone() }
        };
        let answer = move || runtime.block_on(system::answer_all(told, now));
        std::thread::Builder::new().name("feed-system".to_owned()).spawn(answer).map(drop)
    }

    /// Returns the bound addresses: first the NATS listener's, then the WebSocket listener's if there is one.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
    }

    /// Returns the registry of all counters, gauges and histograms.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.service.registry()
    }

    /// Returns the value of a counter, summed over all cores.
    #[must_use]
    pub fn counted(&self, counter: Counter) -> u64 {
        self.counters.total(counter)
    }

    /// Returns whether every loop accepts connections.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.service.is_ready()
    }

    /// Returns the data source for the monitoring pages.
    #[must_use]
    pub fn looker(&self) -> Looker {
        Looker {
            outside: Arc::clone(&self.outside),
            shared: Arc::clone(&self.shared),
            settings: self.settings_now(),
            loops: self.service.loops(),
        }
    }

    /// Takes a snapshot of the server without its subscriptions, in short steps on each loop.
    ///
    /// # Errors
    /// [`NoAnswer`] if a loop did not answer within two seconds.
    pub fn snapshot(&self) -> impl Future<Output = Result<Snapshot, NoAnswer>> + Send + use<> {
        let looker = self.looker();
        async move {
            let connections = looker.open().await?.into_iter().map(|(_, connection)| connection).collect();
            let closed = looker.closed().await?;
            let tables = looker.tables().await?;
            Ok(Snapshot {
                totals: looker.totals(),
                connections,
                closed,
                trie_nodes: tables.trie_nodes,
                matches_found: tables.matches_found,
                matches_made: tables.matches_made,
            })
        }
    }

    /// Returns a publisher for the program's own messages.
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        Publisher::new(Arc::clone(&self.outside))
    }

    /// Activates a new configuration: users, permissions, limits, the server's name. Clients whose user,
    /// secret or account has been removed or changed are closed. Other clients get the new permissions, and
    /// lose the subscriptions that these do not allow. If there are more connections than the new limit, the
    /// newest connections on each core get an error and are closed. A hub whose configuration is unchanged
    /// stays joined; other hubs are left or joined. The addresses and the number of cores do not change.
    ///
    /// # Errors
    /// [`ReloadError`] if the configuration is invalid, the server is stopping, or a core has accepted no
    /// message for two seconds. In this case nothing has changed on any core.
    pub fn reload(&self, config: Config) -> Result<(), ReloadError> {
        let before = self.settings_now();
        let identities = Identities::build(&config.authorization, Some(&before.identities))?;
        let acceptors = Acceptors::build(&config)?;
        let hubs = leaf::seeds(&config, &identities, &self.shared.server_id, &before.hubs)
            .map_err(ReloadError::Leaf)?;
        let settings = Arc::new(Settings { config, identities, acceptors, hubs });
        let outside = self.with_room_for_all()?;
        let max = settings.config.limits.max_connections as u64;
        let surplus = self.counters.total(Counter::Connections).saturating_sub(max);
        self.shared.surplus.store(usize::try_from(surplus).unwrap_or(usize::MAX), Ordering::Release);
        for core in 0..self.service.loops() {
            // Every core has room for the message, and the lock excludes other senders.
            outside.send(core, Message::Reload(Arc::clone(&settings))).map_err(|_| NoAnswer)?;
        }
        outside.flush();
        drop(outside);
        *self.settings.lock() = settings;
        Ok(())
    }

    /// Completes once a loop has ended. A loop ends on its own only when it fails; [`Server::drain`] then
    /// returns the reason.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        self.service.ended()
    }

    /// Stops accepting connections, tells clients to use another server, gives them time to leave, closes the
    /// remaining connections, and stops.
    ///
    /// # Errors
    /// [`CoreFailure`] if a loop failed earlier, or fails during the drain.
    pub fn drain(mut self, at_most: Duration) -> Result<DrainReport, CoreFailure> {
        self.service.drain(at_most)
    }

    /// Locks the sender to the cores once every core has room for one more message.
    fn with_room_for_all(&self) -> Result<std::sync::MutexGuard<'_, mesh::Sender<Message>>, NoAnswer> {
        let begun = cores::clock::now();
        loop {
            let outside = self.outside.lock();
            if (0..self.service.loops()).all(|core| outside.has_room(core)) {
                return Ok(outside);
            }
            drop(outside);
            if begun.elapsed() > RELOAD_TIME_MAX {
                return Err(NoAnswer);
            }
            #[expect(clippy::disallowed_methods, reason = "the operator's thread, not a loop")]
            std::thread::sleep(ROOM_EVERY);
        }
    }

    fn settings_now(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.lock())
    }
}

async fn run_core(context: CoreContext, seed: Seed, common: Arc<Common>) -> io::Result<()> {
    let Seed { listener, web_listener, sender, receiver, counters, scribe } = seed;
    let local = Local::new(CoreSeed {
        index: context.index,
        cores: context.cores,
        shared: Arc::clone(&common.shared),
        settings: Arc::clone(&common.settings),
        sender,
        receiver,
        counters,
        balance: Arc::clone(&common.stage.balance),
        system: common.system.clone(),
        scribe,
    });
    let inbox = tokio::task::spawn_local(Rc::clone(&local).attend_inbox());
    let housekeeping = tokio::task::spawn_local(Rc::clone(&local).keep_house());
    let holds = tokio::task::spawn_local(Rc::clone(&local).attend_holds());
    let places = leaf::places_of(context.index, context.cores);
    let joining: Vec<_> =
        places.map(|place| tokio::task::spawn_local(leaf::keep_place(Rc::clone(&local), place))).collect();
    let mut accepting = Vec::new();
    let doors = [(Some(listener), Door::Nats), (web_listener, Door::Web)];
    for (listener, door) in doors.into_iter().filter_map(|(listener, door)| Some((listener?, door))) {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        accepting.push(tokio::task::spawn_local(accept(Rc::clone(&local), listener, door)));
    }
    common.stage.serve(&context, accepting, || ()).await;
    run_lame_duck(&local).await;
    // Messages of other loops' clients may still be on their way here, so the loop stays until the last client
    // of all loops has left.
    common.stage.drain(|| true).await;
    leaf::say_goodbye(&local).await;
    joining.iter().for_each(tokio::task::JoinHandle::abort);
    housekeeping.abort();
    holds.abort();
    inbox.abort();
    Ok(())
}

/// Lame duck mode: tells clients to use another server, and closes the remaining ones one by one.
async fn run_lame_duck(local: &Rc<Local>) {
    let (grace, duration) = {
        let core = &mut *local.core.borrow_mut();
        core.clients.is_lame = true;
        let settings = Arc::clone(&core.settings);
        core.reload(settings);
        core.end_turn();
        let config = &core.settings.config;
        (config.lame_duck_grace_period, config.lame_duck_duration)
    };
    let is_empty = || local.core.borrow().clients() == 0;
    let step = Duration::from_millis(10);
    let mut waited = Duration::ZERO;
    while waited < grace && !is_empty() {
        tokio::time::sleep(step).await;
        waited += step;
    }
    let mut waited = Duration::ZERO;
    let at_first = local.core.borrow().clients();
    loop {
        {
            let core = &mut *local.core.borrow_mut();
            let left = core.clients();
            let may_be_left = (at_first as f64
                * (1.0 - waited.as_secs_f64() / duration.as_secs_f64().max(1e-3)))
            .max(0.0) as usize;
            let open: Vec<u32> = core
                .outputs
                .connections
                .iter()
                .filter(|(_, connection)| connection.closing.is_none() && connection.hub.is_none())
                .map(|(id, _)| id)
                .take(left.saturating_sub(may_be_left))
                .collect();
            for id in open {
                core.outputs.close(id, CloseReason::ServerShutdown);
            }
            core.end_turn();
            if left == 0 {
                return;
            }
        }
        tokio::time::sleep(step).await;
        waited += step;
    }
}
