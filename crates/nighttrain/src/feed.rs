//! `nighttrain feed`: puts the feed's parts together, runs until a signal ends it.
//!
//! ```text
//!  loops (crate feed) ◀── clients          thread "admin": /metrics, /stat, …      thread "monitor": /varz, /connz, …
//!        ▲ snapshot, reload, drain ─────────────────┴───────────────────────────────────┘
//!  main thread: signals
//! ```
//! SIGTERM and SIGINT drain as a lame duck, a second one ends at once; SIGHUP reads the configuration again.

use std::{
    net::SocketAddr,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use engine::meter::Registry;
use feed::{Config, Drained, NoAnswer, Server, Snapshot, StartError, monitor};

use crate::{
    admin::{self, Operated},
    cli::FeedTask,
    failure::{Failure, Fault},
    feed_settings::{FEED_ADMIN, join_nats_config},
    operation::{Operation, Signals, Sources, Wish, admin_by_default, failed, fault},
    precedence::InForce,
    print,
};

/// Beyond the lame duck's own times, for what is under way.
const DRAIN_MARGIN: Duration = Duration::from_secs(5);

/// What SIGHUP does not change.
const FIXED: [&str; 6] = ["cores", "admin", "listen", "monitor", "websocket", "admin-token-file"];

/// Runs the feed until a signal ends it.
pub(crate) fn feed(task: &FeedTask) -> Result<(), Failure> {
    let sources = Sources { file: task.config.path(), flags: task.settings.0.clone(), complete };
    let (mut operation, access) = Operation::begin(sources)?;
    let settings = operation.settings();
    let config = settings.feed.config().map_err(|fault| Failure::Configuration(vec![fault]))?;
    let (runtime, signals) = Signals::caught()?;
    let admin_listener = admin::bind(settings.admin).map_err(failed("admin"))?;
    let admin_address = admin_listener.local_addr().map_err(failed("admin"))?;
    let monitor_listener = admin::bind(settings.feed.monitor).map_err(failed("monitor"))?;
    let monitor_address = monitor_listener.local_addr().map_err(failed("monitor"))?;
    let started = Started::start(config)?;
    admin::serve(
        "admin",
        admin_listener,
        admin::pages(access, Arc::clone(&started) as Arc<dyn Operated>, None),
    )
    .map_err(failed("the admin server cannot start"))?;
    admin::serve("monitor", monitor_listener, monitor::router(Arc::clone(&started), monitor_address))
        .map_err(failed("the monitoring pages cannot be served"))?;
    print(&announcement(&started.addresses, monitor_address, admin_address))?;
    runtime.block_on(until_stopped(signals, &started, &mut operation))
}

fn complete(in_force: &mut InForce) -> Result<(), Vec<Fault>> {
    admin_by_default(in_force, FEED_ADMIN);
    join_and_tell(in_force)
}

/// Adds what the NATS file says; its lines that are not honoured are told on stderr.
///
/// # Errors
/// What is wrong in the file.
pub(crate) fn join_and_tell(in_force: &mut InForce) -> Result<(), Vec<Fault>> {
    let path = in_force.settings.feed.nats_config.clone().unwrap_or_default();
    for line in join_nats_config(in_force)? {
        // Before the log is there, and whatever its filter says.
        _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("nighttrain: {}:{}: `{}` is not honoured\n", path.display(), line.line, line.key),
        );
    }
    Ok(())
}

/// What is said at the start: every address that was bound, one a line.
fn announcement(addresses: &[SocketAddr], monitor: SocketAddr, admin: SocketAddr) -> String {
    let mut text = format!("nighttrain {}\n", env!("CARGO_PKG_VERSION"));
    for (address, scheme) in addresses.iter().zip(["nats", "ws"]) {
        text.push_str(&format!("feed: listening on {scheme}://{address}\n"));
    }
    text + &format!("monitor: listening on http://{monitor}\nadmin: listening on http://{admin}\n")
}

/// A running feed, as admin server, monitoring and signals see it.
pub(crate) struct Started {
    /// None once it is drained.
    server: OneAtATime<Option<Server>>,
    config: OneAtATime<Arc<Config>>,
    registry: Arc<Registry>,
    addresses: Vec<SocketAddr>,
    draining: AtomicBool,
}

#[expect(clippy::disallowed_types, reason = "the operator's path, not a message's")]
type OneAtATime<T> = std::sync::Mutex<T>;

impl Started {
    /// Starts it.
    ///
    /// # Errors
    /// One line that says what stands in the way.
    pub(crate) fn start(config: Config) -> Result<Arc<Self>, Failure> {
        let server = Server::start(config.clone()).map_err(|error| match error {
            // It names the address itself.
            StartError::Listen { source, .. } => Failure::Failed(source.to_string()),
            StartError::Authorization(error) => fault("authorization", error.to_string()),
            StartError::Tls(error) => fault("tls", error.to_string()),
            other => Failure::Failed(other.to_string()),
        })?;
        Ok(Arc::new(Self {
            registry: server.registry(),
            addresses: server.addresses(),
            server: OneAtATime::new(Some(server)),
            config: OneAtATime::new(Arc::new(config)),
            draining: AtomicBool::new(false),
        }))
    }

    /// Ready once a loop has failed.
    pub(crate) async fn ended(&self) {
        let ended = self.with(Server::ended);
        if let Some(ended) = ended {
            ended.await;
        }
    }

    /// How long a lame duck may take, and a margin for what is under way.
    pub(crate) fn drain_time(&self) -> Duration {
        let config = monitor::Watched::config(self);
        config.lame_duck_grace_period + config.lame_duck_duration + DRAIN_MARGIN
    }

    /// Where clients connect: NATS, then WebSocket if there is one.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// What publishes for the program itself; none once it is drained.
    pub(crate) fn publisher(&self) -> Option<feed::Publisher> {
        self.with(Server::publisher)
    }

    /// Asks the server something that takes no time; none once it is drained.
    fn with<T>(&self, ask: impl FnOnce(&Server) -> T) -> Option<T> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(ask)
    }

    /// Takes a configuration into force, as far as that goes without a restart.
    ///
    /// # Errors
    /// What is wrong with it; all stays as it was.
    pub(crate) fn reload(&self, config: Config) -> Result<(), String> {
        self.with(|server| server.reload(config.clone())).transpose().map_err(|error| error.to_string())?;
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
        Ok(())
    }

    /// Takes no more clients, and blocks until those that are here have left or the time is up.
    ///
    /// # Errors
    /// A loop had ended before it was asked to.
    pub(crate) fn drain(&self, at_most: Duration) -> Result<Drained, Failure> {
        self.draining.store(true, Ordering::Release);
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        server.map_or(Ok(Drained::Clean), |server| {
            server.drain(at_most).map_err(|error| Failure::Failed(error.to_string()))
        })
    }
}

impl Operated for Started {
    fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry)
    }

    fn is_ready(&self) -> bool {
        !self.draining.load(Ordering::Acquire) && self.with(Server::is_ready) == Some(true)
    }
}

impl monitor::Watched for Started {
    async fn snapshot(&self) -> Result<Snapshot, NoAnswer> {
        match self.with(Server::snapshot) {
            Some(snapshot) => snapshot.await,
            None => Err(NoAnswer),
        }
    }

    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn is_ready(&self) -> bool {
        Operated::is_ready(self)
    }
}

async fn until_stopped(
    mut signals: Signals,
    started: &Arc<Started>,
    operation: &mut Operation,
) -> Result<(), Failure> {
    loop {
        tokio::select! {
            // The drain that follows says why.
            () = started.ended() => break,
            wish = signals.next() => match wish {
                Wish::Reload => reload(operation, started),
                Wish::Stop => break,
            },
        }
    }
    started.draining.store(true, Ordering::Release);
    let at_most = started.drain_time();
    tracing::info!(
        "stopping: no new clients; those that are here have up to {at_most:?} to leave; a second signal stops at once"
    );
    let draining = Arc::clone(started);
    let drain = move || Ok(draining.drain(at_most)? == Drained::Clean);
    let (whole, cut) =
        ("every client has left or was asked to", "the time was up before every client had left");
    signals.drain(drain, whole, cut).await
}

/// Reads the configuration again. What is wrong is logged and changes nothing; what cannot change is named.
fn reload(operation: &mut Operation, started: &Started) {
    let Some((new, config)) = operation.read_again(|settings| settings.feed.config()) else { return };
    if let Err(error) = started.reload(config) {
        tracing::error!("reload: {error}; the configuration stays as it was");
        return;
    }
    operation.accept(new, "done", |key| FIXED.contains(&key));
}
