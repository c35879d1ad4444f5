//! Starts and stops the mail service: sockets, store, one loop per core, and the tasks that run on each core
//! in addition to its sessions.

mod core_task;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, atomic::AtomicU64},
    thread,
    time::Duration,
};

use engine::{
    cores::{
        self, clock,
        listener::bind_all,
        mesh::Receiver,
        run::{CoreFailure, DrainReport},
        service::{Service, ServiceSetup},
    },
    journal::Journal,
    log::{Disk, Header, Log},
    meter::{CounterSet, Registry},
    random,
    share::CommonPart,
    size::Size,
    tls::{self, TlsError},
};
use tokio::sync::{Notify, broadcast};

use crate::{
    abuse::{Lists, PeerLimits},
    config::{Config, STORE_BYTES_MIN},
    counters::Counter,
    mailbox::mailstore::Mailstore,
    smtp::ListenerKind,
    store::{
        core::{CORES_MAX, CoreParts, Message, SharedState},
        recovery::{self, StoreError},
    },
};

use core_task::run_core;

/// Capacity of the ring from one core to another.
const RING_MESSAGES: usize = 4096;
/// Number of events that a listener may lag behind before it loses the oldest.
const EVENTS_BEHIND_MAX: usize = 4096;
/// Longest sleep of an idle core with a mail to expire, because the system's clock may be set during the
/// sleep.
const EXPIRY_LOOK_MAX: Duration = Duration::from_secs(10);
/// Delay between an event and waking its listeners, so that one wake-up serves all events of that time.
const TELL_EVERY: Duration = Duration::from_millis(2);
/// Number of mails that housekeeping drops before it yields.
const FORGOTTEN_A_ROUND: usize = 256;
/// Free segments kept in reserve, in addition to one per core; see [`Core::segments_ahead`].
const SEGMENTS_AHEAD: usize = 2;
/// Upper bounds for the configured largest mail: a number of bytes, and 1/`MAIL_SHARE` of the store, so that
/// one mail does not displace most others.
const MAIL_BYTES_MAX: u64 = 256 << 20;
const MAIL_SHARE: u64 = 4;
/// Pause after an accept that failed for lack of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Reason why the mail service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Listening on an address failed.
    #[error("{0}")]
    Listen(io::Error),
    /// The store cannot be opened.
    #[error("mail store: {0}")]
    Store(#[from] StoreError),
    /// The configured store is smaller than [`STORE_BYTES_MIN`].
    #[error("the mail store is too small: at least {} are needed, {} were given", Size(STORE_BYTES_MIN), Size(*.0))]
    StoreTooSmall(u64),
    /// The configured largest mail is too large, or takes too much of the store.
    #[error(
        "the largest mail is too large: at most {} (256 MiB, and a quarter of the store), {} were given",
        Size(*most),
        Size(*given)
    )]
    MailBytes {
        /// Largest value allowed.
        most: u64,
        /// Configured value.
        given: u64,
    },
    /// The TLS configuration is invalid.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    /// An address for SMTP with implicit TLS is set, but no certificate.
    #[error("TLS: an address for SMTP under TLS is set, but no certificate")]
    NoCertificate,
    /// There are more loops than the core bits of a mail ID can number.
    #[error("too many cores: mail runs on at most {CORES_MAX}, {0} were given")]
    TooManyCores(usize),
    /// The processors cannot be listed, or the channels between loops cannot be created.
    #[error("cannot prepare the event loops: {0}")]
    Prepare(io::Error),
    /// The loops cannot be started.
    #[error("cannot start the event loops: {0}")]
    Cores(#[from] cores::run::StartError),
}

/// A running mail service. Dropping it stops it immediately; [`Server::drain`] first lets mails being
/// received complete.
pub struct Server {
    addresses: Addresses,
    mailstore: Mailstore,
    service: Service,
    recovered_mails: usize,
    teller: Option<thread::JoinHandle<()>>,
    stop_telling: Arc<Notify>,
    header: Header,
    _shared: Arc<SharedState>,
    /// Last field: dropping the log writes out what was appended.
    log: Log,
}

/// Bound addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// Address of SMTP.
    pub smtp: SocketAddr,
    /// Address of SMTP with implicit TLS.
    pub smtps: Option<SocketAddr>,
    /// Address of LMTP.
    pub lmtp: Option<SocketAddr>,
}

/// Parts from which a core is started.
struct Seed {
    listeners: Vec<(TcpListener, ListenerKind)>,
    receiver: Receiver<Message>,
    core: CoreParts,
}

impl Server {
    /// Opens the store, recovers its mails, binds, and starts one loop per core. Once this returns, mail is
    /// accepted.
    ///
    /// # Errors
    /// Returns a [`StartError`] if the configuration is invalid, or the store, a socket, TLS or a loop cannot
    /// be set up.
    pub fn start(config: Config) -> Result<Self, StartError> {
        Self::start_with(config, None, None)
    }

    /// Starts the service like [`Server::start`], with transaction records in a journal that has a free ring
    /// for each loop.
    ///
    /// # Errors
    /// Returns a [`StartError`], like [`Server::start`].
    pub fn start_logged(config: Config, journal: Option<&Arc<Journal>>) -> Result<Self, StartError> {
        Self::start_with(config, None, journal)
    }

    /// Starts the service like [`Server::start`], with the store on a disk provided by the caller; `header`
    /// is the value of [`Server::store_header`] for an existing store, and `None` creates a new one. For
    /// tests of power loss.
    ///
    /// # Errors
    /// Returns a [`StartError`], like [`Server::start`].
    pub fn start_on(config: Config, disk: Arc<dyn Disk>, header: Option<Header>) -> Result<Self, StartError> {
        Self::start_with(config, Some((disk, header)), None)
    }

    fn start_with(
        config: Config,
        on: Option<(Arc<dyn Disk>, Option<Header>)>,
        journal: Option<&Arc<Journal>>,
    ) -> Result<Self, StartError> {
        check(&config)?;
        let mut setup = ServiceSetup::new(&config.cores, usize::MAX).map_err(StartError::Prepare)?;
        let loops = setup.loops();
        if loops > CORES_MAX {
            return Err(StartError::TooManyCores(loops));
        }
        let tls = config.tls.as_ref().map(|shown| tls::acceptor(shown, &[], None)).transpose()?;
        let (addresses, mut listeners) = bind(&config, loops)?;
        let recovered = recovery::recover(&config, on, loops, clock::unix_ms())?;
        let counters = CounterSet::<Counter>::new(loops + 1);
        setup.registry.register(counters.clone());
        let rings = setup.rings(RING_MESSAGES).map_err(StartError::Prepare)?;
        let (log, header) = (recovered.log, recovered.header);
        let seed = random::number().map_err(StartError::Prepare)?;
        let shared = Arc::new(SharedState {
            receiving: CommonPart::within(config.client_budget.as_ref()),
            connections: CommonPart::within(config.client_budget.as_ref()),
            parts_bytes: AtomicU64::default(),
            peers: PeerLimits::new(&config.rates, config.limits.address_connections_max(), seed),
            reader: log.reader(),
            balance: Arc::clone(&setup.stage.balance),
            listening: Arc::default(),
            events: broadcast::Sender::new(EVENTS_BEHIND_MAX),
            tls,
            config,
        });
        let seeds = recovered.cores.into_iter().zip(recovered.writers).zip(rings.endpoints).enumerate();
        let seeds = seeds
            .map(|(number, ((of_core, writer), endpoint))| {
                let (sender, receiver) = endpoint.split();
                let core = CoreParts {
                    recovered: of_core,
                    writer,
                    sender,
                    counters: counters.core(number),
                    last_name: recovered.last_name,
                    scribe: journal.map(Journal::scribe),
                };
                let listeners =
                    listeners.iter_mut().filter_map(|(of, kind)| Some((of.pop()?, *kind))).collect();
                Seed { listeners, receiver, core }
            })
            .collect();
        let mailstore = Mailstore::new(&shared, loops, rings.outside, Arc::clone(&counters), recovered.noted);
        let stop_telling = Arc::new(Notify::new());
        let teller = spawn_event_thread(rings.to_outside, Arc::clone(&shared), Arc::clone(&stop_telling))
            .map_err(StartError::Prepare)?;
        let on_core = (Arc::downgrade(&shared), Arc::clone(&setup.stage));
        let service = setup.start("mail", seeds, move |context, seed| {
            let (shared, stage) = on_core.clone();
            run_core(context, seed, shared, stage)
        })?;
        Ok(Self {
            addresses,
            mailstore,
            service,
            recovered_mails: recovered.mails,
            teller: Some(teller),
            stop_telling,
            header,
            _shared: shared,
            log,
        })
    }

    /// Returns the bound addresses.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Returns a handle to the stored mail, for pages and APIs.
    #[must_use]
    pub fn mailstore(&self) -> Mailstore {
        self.mailstore.clone()
    }

    /// Returns all counters, gauges and histograms.
    #[must_use]
    pub fn registry(&self) -> Arc<Registry> {
        self.service.registry()
    }

    /// Returns the usage of the store's log.
    #[must_use]
    pub fn log_usage(&self) -> engine::log::LogUsage {
        self.log.usage()
    }

    /// Returns the header of the store's log.
    #[must_use]
    pub fn store_header(&self) -> Header {
        self.header
    }

    /// Returns the number of mails recovered at the start.
    #[must_use]
    pub fn recovered_mails(&self) -> usize {
        self.recovered_mails
    }

    /// Returns whether every loop accepts connections.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.service.is_ready()
    }

    /// Replaces the ban lists, effective from the next command on. Returns whether every core was notified.
    pub fn set_lists(&self, lists: Lists) -> bool {
        let lists = Arc::new(lists);
        (0..self.service.loops())
            .all(|core| self.mailstore.send_to_core(core, Message::Lists(Arc::clone(&lists))))
    }

    /// Returns a future that completes once a loop has ended, which only happens when it fails.
    /// [`Server::drain`] then reports the cause.
    pub fn ended(&self) -> impl Future<Output = ()> + Send + use<> {
        self.service.ended()
    }

    /// Stops accepting connections, lets mails being received complete, writes everything out and stops.
    /// Blocks.
    ///
    /// # Errors
    /// Returns a [`CoreFailure`] if a loop has failed, or fails during the drain.
    pub fn drain(mut self, at_most: Duration) -> Result<DrainReport, CoreFailure> {
        let drained = self.service.drain(at_most)?;
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

/// Starts the thread that passes events from the cores' rings to the listeners.
fn spawn_event_thread(
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
                        // The send fails if there is no listener any more.
                        let _ = shared.events.send(event);
                    }
                }
            }
        });
    })
}
