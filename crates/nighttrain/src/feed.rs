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
    path::PathBuf,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use engine::meter::Registry;
use feed::{Config, Drained, NoAnswer, Server, Snapshot, StartError, monitor};
use tokio::sync::watch;

use crate::{
    admin::{self, Access, Token},
    cli::FeedTask,
    effective,
    failure::{Failure, Fault},
    feed_admin,
    feed_settings::{FEED_ADMIN, join_nats_config},
    log::{self, FilterHandle},
    precedence::{self, Flags, InForce, Source},
    print,
    run::{Signals, fault, stop_on_panic, token_of},
    settings::by_key,
};

/// Beyond the lame duck's own times, for what is under way.
const DRAIN_MARGIN: Duration = Duration::from_secs(5);

/// What SIGHUP does not change.
const FIXED: [&str; 6] = ["cores", "admin", "listen", "monitor", "websocket", "admin-token-file"];

/// Runs the feed until a signal ends it.
pub(crate) fn feed(task: &FeedTask) -> Result<(), Failure> {
    let sources = Sources { file: task.config.path(), flags: task.settings.0.clone() };
    let in_force = sources.read().map_err(Failure::Configuration)?;
    let settings = &in_force.settings;
    let filter = log::start(&settings.log).map_err(Failure::Failed)?;
    stop_on_panic();
    let config = settings.feed.config().map_err(|fault| Failure::Configuration(vec![fault]))?;
    let token = token_of(settings)?;
    let access = Access::for_address(settings.admin, token.as_ref().map(watch::Sender::subscribe))
        .map_err(|message| fault("admin", message))?;
    let failed =
        |what: &'static str| move |error: std::io::Error| Failure::Failed(format!("{what}: {error}"));
    // Signals first: who reads that we listen may send one at once.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed("cannot start"))?;
    let signals = {
        let _inside = runtime.enter();
        Signals::new().map_err(failed("cannot catch signals"))?
    };
    let admin_listener = admin::bind(settings.admin).map_err(failed("admin"))?;
    let admin_address = admin_listener.local_addr().map_err(failed("admin"))?;
    let monitor_listener = admin::bind(settings.feed.monitor).map_err(failed("monitor"))?;
    let monitor_address = monitor_listener.local_addr().map_err(failed("monitor"))?;
    let started = Started::start(config)?;
    admin::serve("admin", admin_listener, feed_admin::pages(access, Arc::clone(&started)))
        .map_err(failed("the admin server cannot start"))?;
    admin::serve("monitor", monitor_listener, monitor::router(Arc::clone(&started), monitor_address))
        .map_err(failed("the monitoring pages cannot be served"))?;
    print(&announcement(&started.addresses, monitor_address, admin_address))?;
    let mut running = Running { sources, in_force, filter, token };
    runtime.block_on(until_stopped(signals, &started, &mut running))
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
    fn start(config: Config) -> Result<Arc<Self>, Failure> {
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

    /// What it counts.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry)
    }

    async fn ended(&self) {
        let ended = self.with(Server::ended);
        if let Some(ended) = ended {
            ended.await;
        }
    }

    /// Asks the server something that takes no time; none once it is drained.
    fn with<T>(&self, ask: impl FnOnce(&Server) -> T) -> Option<T> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(ask)
    }

    fn reload(&self, config: Config) -> Result<(), String> {
        self.with(|server| server.reload(config.clone())).transpose().map_err(|error| error.to_string())?;
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
        Ok(())
    }

    fn drain(&self, at_most: Duration) -> Result<Drained, Failure> {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        server.map_or(Ok(Drained::Clean), |server| {
            server.drain(at_most).map_err(|error| Failure::Failed(error.to_string()))
        })
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
        !self.draining.load(Ordering::Acquire) && self.with(Server::is_ready) == Some(true)
    }
}

async fn until_stopped(
    mut signals: Signals,
    started: &Arc<Started>,
    running: &mut Running,
) -> Result<(), Failure> {
    loop {
        tokio::select! {
            // The drain that follows says why.
            () = started.ended() => break,
            _ = signals.hangup.recv() => running.reload(started),
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
        }
    }
    started.draining.store(true, Ordering::Release);
    let config = monitor::Watched::config(&**started);
    let at_most = config.lame_duck_grace_period + config.lame_duck_duration + DRAIN_MARGIN;
    tracing::info!(
        "stopping: no new clients; those that are here have up to {at_most:?} to leave; a second signal stops at once"
    );
    let draining = Arc::clone(started);
    let drained = tokio::task::spawn_blocking(move || draining.drain(at_most));
    tokio::select! {
        drained = drained => match drained {
            Ok(Ok(Drained::Clean)) => tracing::info!("stopped: every client has left or was asked to"),
            Ok(Ok(Drained::CutShort)) => tracing::warn!("stopped: the time was up before every client had left"),
            Ok(Err(failure)) => return Err(failure),
            Err(error) => return Err(Failure::Failed(format!("the drain broke off: {error}"))),
        },
        () = signals.stop() => {
            tracing::warn!("stopped at once by a second signal");
            // The drain holds a thread that nothing can end.
            std::process::exit(1);
        }
    }
    Ok(())
}

/// Where the configuration comes from.
struct Sources {
    file: Option<PathBuf>,
    flags: Flags,
}

impl Sources {
    /// All of it put together; the lines of the NATS file that are not honoured are told on stderr.
    fn read(&self) -> Result<InForce, Vec<Fault>> {
        let mut in_force =
            precedence::in_force(self.file.as_deref(), |name| std::env::var_os(name), &self.flags)?;
        let nobody_said =
            by_key("admin").is_some_and(|(place, _)| in_force.sources[place] == Source::Default);
        if nobody_said {
            in_force.settings.admin = FEED_ADMIN;
        }
        let path = in_force.settings.feed.nats_config.clone().unwrap_or_default();
        for line in join_nats_config(&mut in_force)? {
            // Before the log is there, and whatever its filter says.
            _ = std::io::Write::write_fmt(
                &mut std::io::stderr(),
                format_args!(
                    "nighttrain: {}:{}: `{}` is not honoured\n",
                    path.display(),
                    line.line,
                    line.key
                ),
            );
        }
        Ok(in_force)
    }
}

/// What SIGHUP may change.
struct Running {
    sources: Sources,
    in_force: InForce,
    filter: FilterHandle,
    token: Option<watch::Sender<Token>>,
}

impl Running {
    /// Reads the configuration again. What is wrong is logged and changes nothing; what cannot change is named.
    fn reload(&mut self, started: &Started) {
        let read = self.sources.read().and_then(|new| {
            let config = new.settings.feed.config().map_err(|fault| vec![fault])?;
            Ok((new, config))
        });
        let (new, config) = match read {
            Ok(new) => new,
            Err(faults) => {
                for fault in faults {
                    tracing::error!("reload: {fault}");
                }
                tracing::error!("reload: the configuration stays as it was");
                return;
            }
        };
        if let Err(error) = started.reload(config) {
            tracing::error!("reload: {error}; the configuration stays as it was");
            return;
        }
        if new.settings.log != self.in_force.settings.log
            && let Err(error) = self.filter.change(&new.settings.log)
        {
            tracing::error!("reload: log: {error}");
        }
        if let (Some(token), Some(path)) = (&self.token, &self.in_force.settings.admin_token_file) {
            match admin::read_token(path) {
                Ok(new) => _ = token.send_replace(new),
                Err(message) => tracing::error!("reload: {message}; the old token stays"),
            }
        }
        let changed = effective::changed(&self.in_force, &new);
        let fixed: Vec<_> = changed.into_iter().filter(|key| FIXED.contains(key)).collect();
        self.in_force = new;
        if fixed.is_empty() {
            tracing::info!("reload: done");
        } else {
            tracing::warn!("reload: done; only a restart changes {}", fixed.join(", "));
        }
    }
}
