//! Starting and stopping: sockets, store, one loop per core, and what runs on each beside its sessions.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    rc::Rc,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use engine::{
    cores::{
        self, CoreContext, Cores, CoresConfig, clock,
        listener::{Balance, bind_all},
        mesh::{Mesh, Receiver, Sender},
        run::{CoreFailure, DrainReport},
    },
    journal::{Journal, Scribe},
    log::{Disk, Header, Log, Writer},
    meter::{CoreCounters, CounterSet, Registry},
    random,
    share::CommonPart,
    size::Size,
    tls::{self, TlsError},
};
use tokio::{
    net::TcpStream,
    sync::{Notify, broadcast},
};

use crate::{
    abuse::{Lists, PeerLimits},
    config::{Config, STORE_BYTES_MIN},
    counters::Counter,
    mailbox::{mailstore::Mailstore, questions},
    smtp::{ListenerKind, connection},
    store::{
        annotations::Notes,
        core::{CORES_MAX, Core, CoreParts, Message, SharedState},
        delivery_refs::DeliveryRefs,
        index::Index,
        recovery::{self, StoreError},
    },
};

/// Messages from one core to another that may wait.
const RING_MESSAGES: usize = 4096;
/// Events that a listener may lag behind before it loses the oldest.
const EVENTS_BEHIND_MAX: usize = 4096;
/// The longest that an idle core with something to expire sleeps: somebody may set the clock meanwhile.
const EXPIRY_LOOK_MAX: Duration = Duration::from_secs(10);
/// How long an event may lie in the ring before its listeners are woken: one wake-up for all of that time.
const TELL_EVERY: Duration = Duration::from_millis(2);
/// Mails that housekeeping forgets in one go.
const FORGOTTEN_A_ROUND: usize = 256;
/// Free segments that are kept ahead of need, besides one a core; see [`Core::segments_ahead`].
const SEGMENTS_AHEAD: usize = 2;
/// The largest that the largest mail may be, and the part of the store that it may take: so much is left of others when
/// one comes.
const MAIL_BYTES_MAX: u64 = 256 << 20;
const MAIL_SHARE: u64 = 4;
/// Pause after an accept that failed for want of files or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Why mail could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be listened on.
    #[error("{0}")]
    Listen(io::Error),
    /// The store cannot be opened.
    #[error("the mail store: {0}")]
    Store(#[from] StoreError),
    /// The store is too small to be one.
    #[error("the mail store must have at least {}, and {} were given", Size(STORE_BYTES_MIN), Size(*.0))]
    StoreTooSmall(u64),
    /// The largest mail would be too large, or take too much of the store.
    #[error(
        "the largest mail may have {} at most (256 MiB, and a quarter of the store), and {} were given",
        Size(*most),
        Size(*given)
    )]
    MailBytes {
        /// The most.
        most: u64,
        /// What was asked for.
        given: u64,
    },
    /// TLS cannot be offered.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    /// TLS is to be offered, and nothing says with what.
    #[error("TLS: there is an address for SMTP under TLS, but no certificate")]
    NoCertificate,
    /// More loops than names can tell apart.
    #[error("mail runs on {CORES_MAX} cores at most, and {0} were given")]
    TooManyCores(usize),
    /// The processors, or what wakes the loops, cannot be had.
    #[error("cannot prepare the loops: {0}")]
    Prepare(io::Error),
    /// The loops cannot be started.
    #[error("cannot start the loops: {0}")]
    Cores(#[from] cores::run::StartError),
}

/// A running mail service. Dropping it stops it at once; [`Server::drain`] lets mails under way end first.
pub struct Server {
    addresses: Addresses,
    registry: Arc<Registry>,
    mailstore: Mailstore,
    cores: Cores,
    ready: Arc<AtomicUsize>,
    loops: usize,
    recovered_mails: usize,
    teller: Option<thread::JoinHandle<()>>,
    stop_telling: Arc<Notify>,
    header: Header,
    _shared: Arc<SharedState>,
    /// Last: what was appended is written out when it goes.
    log: Log,
}

/// What was bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// SMTP.
    pub smtp: SocketAddr,
    /// SMTP under TLS.
    pub smtps: Option<SocketAddr>,
    /// LMTP.
    pub lmtp: Option<SocketAddr>,
}

/// What one core is started with.
struct Seed {
    listeners: Vec<(TcpListener, ListenerKind)>,
    index: Index,
    letters: DeliveryRefs,
    notes: Notes,
    writer: Writer,
    sender: Sender<Message>,
    receiver: Receiver<Message>,
    counters: CoreCounters<Counter>,
    last_name: u64,
    scribe: Option<Scribe>,
}

impl Server {
    /// Opens the store, reads what is in it, binds, and starts one loop per core. When it returns, mail is taken.
    ///
    /// # Errors
    /// [`StartError`]
    pub fn start(config: Config) -> Result<Self, StartError> {
        Self::start_with(config, None, None)
    }

    /// As [`Server::start`]; what becomes of mails is said in a journal that has a ring left for each loop.
    ///
    /// # Errors
    /// [`StartError`]
    pub fn start_logged(config: Config, journal: Option<&Arc<Journal>>) -> Result<Self, StartError> {
        Self::start_with(config, None, journal)
    }

    /// As [`Server::start`], with the store on a disk that the caller has; `header` is what [`Server::store_header`]
    /// said of the disk's store, `None` makes one. For tests that take the power away.
    ///
    /// # Errors
    /// [`StartError`]
    pub fn start_on(config: Config, disk: Arc<dyn Disk>, header: Option<Header>) -> Result<Self, StartError> {
        Self::start_with(config, Some((disk, header)), None)
    }

    fn start_with(
        config: Config,
        on: Option<(Arc<dyn Disk>, Option<Header>)>,
        journal: Option<&Arc<Journal>>,
    ) -> Result<Self, StartError> {
        check(&config)?;
        let processors = if config.cores.is_empty() {
            cores::available().map_err(StartError::Prepare)?
        } else {
            config.cores.clone()
        };
        let loops = processors.len();
        if loops > CORES_MAX {
            return Err(StartError::TooManyCores(loops));
        }
        let tls = config.tls.as_ref().map(|shown| tls::acceptor(shown, &[], None)).transpose()?;
        let (addresses, mut listeners) = bind(&config, loops)?;
        let recovered = recovery::recover(&config, on, loops, clock::unix_ms())?;
        let mesh = Mesh::new(loops, 1, RING_MESSAGES).map_err(StartError::Prepare)?;
        let counters = CounterSet::<Counter>::new(loops + 1);
        let mut registry = Registry::new();
        registry.register(counters.clone());
        registry.register(mesh.counters());
        let mut endpoints = mesh.into_endpoints();
        let Some(outside) = endpoints.pop() else { unreachable!("there is one endpoint for the outside") };
        let (outside_sender, outside_receiver) = outside.split();
        let (log, header) = (recovered.log, recovered.header);
        let seed = random::number().map_err(StartError::Prepare)?;
        let shared = Arc::new(SharedState {
            receiving: CommonPart::within(config.client_budget.as_ref()),
            connections: CommonPart::within(config.client_budget.as_ref()),
            parts_bytes: AtomicU64::default(),
            peers: PeerLimits::new(&config.rates, config.limits.address_connections_max(), seed),
            reader: log.reader(),
            balance: Balance::new(loops),
            listening: Arc::default(),
            events: broadcast::Sender::new(EVENTS_BEHIND_MAX),
            tls,
            config,
        });
        let seeds = recovered.cores.into_iter().zip(recovered.writers).zip(endpoints).enumerate();
        let seeds = seeds
            .map(|(number, (((index, letters, notes), writer), endpoint))| {
                let (sender, receiver) = endpoint.split();
                Seed {
                    listeners: listeners
                        .iter_mut()
                        .filter_map(|(of, kind)| Some((of.pop()?, *kind)))
                        .collect(),
                    index,
                    letters,
                    notes,
                    writer,
                    sender,
                    receiver,
                    counters: counters.core(number),
                    last_name: recovered.last_name,
                    scribe: journal.map(Journal::scribe),
                }
            })
            .collect();
        let ready = Arc::new(AtomicUsize::new(0));
        let mailstore =
            Mailstore::new(&shared, loops, outside_sender, Arc::clone(&counters), recovered.noted);
        let stop_telling = Arc::new(Notify::new());
        let teller = tell(outside_receiver, Arc::clone(&shared), Arc::clone(&stop_telling))
            .map_err(StartError::Prepare)?;
        let cores_config = CoresConfig { cores: processors, name: "mail", ..CoresConfig::default() };
        let on_core = (Arc::downgrade(&shared), Arc::clone(&ready));
        let started = Cores::start_each(cores_config, seeds, move |context, seed| {
            let (shared, ready) = on_core.clone();
            run_core(context, seed, shared, ready)
        })?;
        registry.register(started.lateness());
        Ok(Self {
            addresses,
            registry: Arc::new(registry),
            mailstore,
            cores: started,
            ready,
            loops,
            recovered_mails: recovered.mails,
            teller: Some(teller),
            stop_telling,
            header,
            _shared: shared,
            log,
        })
    }

    /// What was bound.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// The stored mail, for pages and APIs.
    #[must_use]
    pub fn mailstore(&self) -> Mailstore {
        self.mailstore.clone()
    }

    /// All counters, gauges and histograms.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry)
    }

    /// What the log of the store has done.
    #[must_use]
    pub fn log_usage(&self) -> engine::log::LogUsage {
        self.log.usage()
    }

    /// The header of the store's log.
    #[must_use]
    pub fn store_header(&self) -> Header {
        self.header
    }

    /// How many mails the store had at the start.
    #[must_use]
    pub fn recovered_mails(&self) -> usize {
        self.recovered_mails
    }

    /// Whether every loop takes connections.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire) == self.loops
    }

    /// Takes other lists of what is banned, from the next command on. Whether every core was told.
    pub fn set_lists(&self, lists: Lists) -> bool {
        let lists = Arc::new(lists);
        (0..self.loops).all(|core| self.mailstore.give(core, Message::Lists(Arc::clone(&lists))))
    }

    /// Ready once a loop has ended, which it does by itself only when it fails. [`Server::drain`] then says why.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        self.cores.ended()
    }

    /// Takes no more connections, lets mails under way end, writes everything out and stops. Blocks.
    ///
    /// # Errors
    /// A loop had failed, or fails now.
    pub fn drain(mut self, at_most: Duration) -> Result<DrainReport, CoreFailure> {
        let drained = self.cores.drain(at_most)?;
        self.mailstore.stop();
        Ok(drained)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.mailstore.stop();
        self.stop_telling.notify_one();
        if let Some(teller) = self.teller.take() {
            let _ = teller.join();
        }
    }
}

fn check(config: &Config) -> Result<(), StartError> {
    if config.store_bytes < STORE_BYTES_MIN {
        return Err(StartError::StoreTooSmall(config.store_bytes));
    }
    let most = MAIL_BYTES_MAX.min(config.store_bytes / MAIL_SHARE);
    let given = config.limits.mail_bytes_max;
    if given > most {
        return Err(StartError::MailBytes { most, given });
    }
    if config.smtps.is_some() && config.tls.is_none() {
        return Err(StartError::NoCertificate);
    }
    Ok(())
}

type Listeners = Vec<(Vec<TcpListener>, ListenerKind)>;

fn bind(config: &Config, loops: usize) -> Result<(Addresses, Listeners), StartError> {
    let mut listeners = Vec::new();
    let mut bound = |address: SocketAddr, kind| {
        let all = bind_all(address, loops).map_err(StartError::Listen)?;
        let address = all.first().map(TcpListener::local_addr).transpose().map_err(StartError::Listen)?;
        listeners.push((all, kind));
        Ok::<_, StartError>(address)
    };
    let smtp = bound(config.smtp, ListenerKind::Smtp)?.unwrap_or(config.smtp);
    let smtps = config.smtps.map(|address| bound(address, ListenerKind::Smtps)).transpose()?.flatten();
    let lmtp = config.lmtp.map(|address| bound(address, ListenerKind::Lmtp)).transpose()?.flatten();
    Ok((Addresses { smtp, smtps, lmtp }, listeners))
}

/// The thread that hands events from the cores' rings to whoever listens.
fn tell(
    mut receiver: Receiver<Message>,
    shared: Arc<SharedState>,
    stop: Arc<Notify>,
) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name("mail-events".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return tracing::error!(%error, "the mail event thread failed to start"),
        };
        runtime.block_on(async {
            let mut batch = Vec::new();
            loop {
                tokio::select! {
                    _ = receiver.recv_batch(&mut batch) => {}
                    () = stop.notified() => return,
                }
                for message in batch.drain(..) {
                    if let Message::Told(event) = message {
                        // Nobody listens any more.
                        let _ = shared.events.send(event);
                    }
                }
            }
        });
    })
}

async fn run_core(
    context: CoreContext,
    seed: Seed,
    shared: Weak<SharedState>,
    ready: Arc<AtomicUsize>,
) -> io::Result<()> {
    // The server went before its loops had begun.
    let Some(shared) = shared.upgrade() else { return Ok(()) };
    let Seed { listeners, index, letters, notes, writer, sender, receiver, counters, last_name, scribe } =
        seed;
    let owned = CoreParts { index, letters, notes, writer, sender, counters, last_name, scribe };
    let core = Rc::new(Core::new(context.index, context.cores, shared, owned));
    core.gauges();
    let beside = [
        tokio::task::spawn_local(receive_messages(Rc::clone(&core), receiver)),
        tokio::task::spawn_local(keep_house(Rc::clone(&core))),
        tokio::task::spawn_local(tell_listeners(Rc::clone(&core))),
        tokio::task::spawn_local(make_room(Rc::clone(&core))),
    ];
    let mut accepting = Vec::new();
    for (listener, kind) in listeners {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        accepting.push(tokio::task::spawn_local(accept(Rc::clone(&core), listener, kind)));
    }
    ready.fetch_add(1, Ordering::AcqRel);
    context.shutdown.requested().await;
    accepting.iter().for_each(tokio::task::JoinHandle::abort);
    ready.fetch_sub(1, Ordering::AcqRel);
    core.draining.set(true);
    // Another core's mails may yet come to our inboxes: a loop stays until the last session of all is gone.
    loop {
        core.watches.borrow().end_idle();
        if core.shared.balance.total() == 0 && core.backlog.borrow().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    beside.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

async fn accept(core: Rc<Core>, listener: tokio::net::TcpListener, kind: ListenerKind) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                core.count(Counter::Accepted);
                let to = core.shared.balance.hand_off_to(core.number);
                // A core that does not take what it is sent is handed no connection.
                match to.filter(|to| !core.backlog.borrow().has(*to)) {
                    Some(to) => hand_off(&core, to, stream, address, kind),
                    None => {
                        _ = tokio::task::spawn_local(connection::serve(
                            Rc::clone(&core),
                            stream,
                            address,
                            kind,
                        ))
                    }
                }
            }
            Err(error) => {
                // Out of files or memory, or a peer that was gone at once: the loop must live on.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Gives a fresh connection to a core that has fewer.
fn hand_off(core: &Core, to: usize, stream: TcpStream, address: SocketAddr, kind: ListenerKind) {
    let Ok(stream) = stream.into_std() else { return };
    core.count(Counter::HandedOff);
    core.give(to, Message::Accept(stream, address, kind));
}

async fn receive_messages(core: Rc<Core>, mut receiver: Receiver<Message>) {
    let mut batch = Vec::new();
    loop {
        receiver.recv_batch(&mut batch).await;
        for message in batch.drain(..) {
            match message {
                Message::Arrived(arrivals) => core.enter(arrivals),
                Message::LetGo(let_go) => core.hear_let_go(let_go),
                Message::Ask(question) => questions::answer(&core, question),
                Message::Remember(summaries) => {
                    summaries.into_iter().for_each(|summary| core.recent.borrow_mut().insert(summary));
                }
                Message::Reclaim(segment) => {
                    tokio::task::spawn_local(reclaim(Rc::clone(&core), segment));
                }
                Message::Accept(stream, address, kind) => match TcpStream::from_std(stream) {
                    Ok(stream) => {
                        tokio::task::spawn_local(connection::serve(Rc::clone(&core), stream, address, kind));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "cannot register an accepted socket with the event loop")
                    }
                },
                Message::Lists(lists) => core.abuse.borrow_mut().lists = lists,
                Message::Told(_) => unreachable!("events go to the listeners"),
            }
        }
    }
}

/// Deadlines, expiries, gauges, what other cores had no room for; for as long as there is anything of that.
async fn keep_house(core: Rc<Core>) {
    loop {
        core.watches.borrow_mut().sweep(clock::monotonic_ms());
        core.give_backlog();
        loop {
            let forgotten = core.expire(FORGOTTEN_A_ROUND);
            if forgotten < FORGOTTEN_A_ROUND {
                break;
            }
            // Between two rounds the loop serves its peers.
            tokio::task::yield_now().await;
        }
        core.gauges();
        let is_short = core.shared.reader.free_segments() < core.segments_ahead();
        if is_short {
            core.wants_room.notify_one();
        }
        core.rounds.pause(if is_short { Some(Duration::ZERO) } else { core.due_in() }).await;
    }
}

/// Wakes the listeners of events, at most once in a while.
async fn tell_listeners(core: Rc<Core>) {
    loop {
        core.told.notified().await;
        tokio::time::sleep(TELL_EVERY).await;
        core.wake_listeners();
    }
}

/// Forgets the oldest segment's mails when the store gets full.
async fn make_room(core: Rc<Core>) {
    loop {
        core.wants_room.notified().await;
        // Those that die already will be free soon: counted in one look, so that none is missed on its way.
        let usage = core.shared.reader.usage();
        let coming = usize::try_from(usage.segments_free + usage.segments_dying).unwrap_or(usize::MAX);
        let missing = core.segments_ahead().saturating_sub(coming);
        if missing == 0 {
            continue;
        }
        for _ in 0..missing {
            let Some(segment) = core.oldest_segment() else { break };
            for other in (0..core.cores).filter(|other| *other != core.number) {
                // While the store is short of room a core is asked again: the question need not wait.
                if !core.backlog.borrow().has(other) {
                    core.give(other, Message::Reclaim(segment));
                }
            }
            reclaim(Rc::clone(&core), segment).await;
        }
        // The reaper has to come by before the same segments are asked for again.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Forgets what lies in a segment.
async fn reclaim(core: Rc<Core>, segment: u32) {
    loop {
        let gone = core.index.borrow_mut().drain_segment(segment, FORGOTTEN_A_ROUND);
        let last = gone.len() < FORGOTTEN_A_ROUND;
        core.counters.add(Counter::DroppedForBytes, gone.len() as u64);
        gone.into_iter().for_each(|gone| _ = core.end(gone, false));
        if last {
            break;
        }
        tokio::task::yield_now().await;
    }
}

impl Core {
    /// Free segments that are kept ahead of need: one a core and some more, but at most a quarter of a small store, or
    /// room would be made where mails have all they need.
    fn segments_ahead(&self) -> usize {
        let segments = self.config().store_bytes / u64::from(recovery::SEGMENT_BYTES);
        let quarter = usize::try_from(segments / 4).unwrap_or(usize::MAX);
        (SEGMENTS_AHEAD + self.cores).min(quarter)
    }

    /// When a core that nobody asks for anything has something to look after again.
    fn due_in(&self) -> Option<Duration> {
        // A session has deadlines.
        if self.shared.balance.held(self.number) > 0 || !self.backlog.borrow().is_empty() {
            return Some(Duration::ZERO);
        }
        let expires_ms = self.index.borrow().next_expiry_ms()?;
        Some(Duration::from_millis(expires_ms.saturating_sub(self.now_ms())).min(EXPIRY_LOOK_MAX))
    }

    /// The segment to give up next: where the oldest mail of this core lies, whose age is as good as any core's. If
    /// that is still being filled, or this core has none, the one that was begun first.
    fn oldest_segment(&self) -> Option<u32> {
        let sealed = self.shared.reader.sealed();
        let oldest = self.index.borrow().oldest_segment();
        let first = || sealed.first().map(|sealed| sealed.segment);
        oldest.filter(|oldest| sealed.iter().any(|sealed| sealed.segment == *oldest)).or_else(first)
    }

    /// Forgets up to `most` mails that are over age; how many.
    fn expire(&self, most: usize) -> usize {
        let now_ms = self.now_ms();
        for count in 0..most {
            let gone = self.index.borrow_mut().expire_one(now_ms);
            let Some(gone) = gone else { return count };
            self.count(Counter::Expired);
            // After a crash its age is its end again: nothing needs to be written. Not so where its end was brought
            // forward: what says so dies with the mail.
            let for_good = gone.hurried_by.is_some();
            self.end(gone, for_good);
        }
        most
    }

    /// Asks for room in the store.
    pub(crate) fn make_room(&self) {
        self.wants_room.notify_one();
    }

    fn gauges(&self) {
        let index = self.index.borrow();
        self.counters.set(Counter::Stored, index.len() as u64);
        self.counters.set(Counter::StoredBytes, index.mail_bytes());
        self.counters.set(Counter::Inboxes, index.inboxes() as u64);
        self.counters.set(Counter::IndexBytes, index.bytes() as u64);
        self.counters.set(Counter::Backlog, self.backlog.borrow().len() as u64);
    }
}
