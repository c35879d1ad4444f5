//! `nighttrain cache`: puts the parts together, runs until a signal ends it.
//!
//! The main thread starts the loops, the admin server and, for `--demo`, the slow site; then it waits for signals and
//! says once in a while what was saved. SIGTERM and SIGINT drain, a second one ends at once; SIGHUP reads the
//! configuration again.

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use cache::config::Origin;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

use crate::{
    accelerator::{Accelerator, Drained, Started},
    admin::{self, Access, Operated, Token},
    cli::CacheTask,
    demo, effective,
    failure::{Failure, Fault},
    log::{self, FilterHandle},
    precedence::{self, Flags, InForce},
    print,
    savings::Savings,
    settings::{Settings, origin_text},
    stat::Report,
    units::size_text,
};

/// How often it may be said what was saved.
const SAVINGS_EVERY: Duration = Duration::from_secs(10);

/// What SIGHUP changes without a restart; the rest it names.
const CHANGEABLE: [&str; 2] = ["log", "drain-time-max"];

/// Runs the accelerator until a signal ends it.
pub(crate) fn cache(task: &CacheTask) -> Result<(), Failure> {
    let sources = Sources { file: task.config.path(), flags: task.settings.0.clone() };
    let in_force = sources.read().map_err(Failure::Configuration)?;
    let settings = &in_force.settings;
    let filter = log::start(&settings.log).map_err(Failure::Failed)?;
    stop_on_panic();

    let token = token_of(settings)?;
    let access = Access::for_address(settings.admin, token.as_ref().map(watch::Sender::subscribe))
        .map_err(|message| fault("admin", message))?;
    if !task.demo && settings.origin.is_none() {
        return Err(Failure::Usage(
            "no origin: which web server is to be accelerated? Say --origin http://HOST:PORT (or `origin` in [cache], \
             or NIGHTTRAIN_CACHE_ORIGIN), or --demo to try it on a site of its own"
                .to_owned(),
        ));
    }
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
    let origin = match (&settings.origin, task.demo) {
        (Some(origin), false) => origin.clone(),
        _ => origin_at(demo::start().map_err(failed("the demonstration site cannot start"))?),
    };
    let accelerator = Started::start(settings.accelerator(origin.clone()))?;
    let operated = Arc::clone(&accelerator) as Arc<dyn Operated>;
    let purges = Arc::clone(&accelerator) as Arc<dyn Accelerator>;
    admin::serve("admin", admin_listener, admin::pages(access, operated, Some(purges)))
        .map_err(failed("the admin server cannot start"))?;

    print(&announcement(settings, &origin, accelerator.addresses(), admin_address, task.demo))?;
    let mut running = Running { sources, in_force, filter, token };
    runtime.block_on(until_stopped(signals, &accelerator, &mut running))
}

pub(crate) fn origin_at(address: SocketAddr) -> Origin {
    Origin { host: address.ip().to_string(), port: address.port() }
}

pub(crate) fn fault(key: &str, message: String) -> Failure {
    Failure::Configuration(vec![Fault { place: key.to_owned(), message }])
}

pub(crate) fn token_of(settings: &Settings) -> Result<Option<watch::Sender<Token>>, Failure> {
    let Some(path) = &settings.admin_token_file else { return Ok(None) };
    let token = admin::read_token(path).map_err(|message| fault("admin-token-file", message))?;
    Ok(Some(watch::Sender::new(token)))
}

/// What is said at the start: every address that was bound, one a line.
fn announcement(
    settings: &Settings,
    origin: &Origin,
    addresses: &[SocketAddr],
    admin: SocketAddr,
    demo: bool,
) -> String {
    let mut text = format!("nighttrain {}\n", env!("CARGO_PKG_VERSION"));
    for address in addresses {
        text.push_str(&format!("cache: listening on http://{address}\n"));
    }
    let site = if demo { ", a slow demonstration site (200 ms an answer)" } else { "" };
    text.push_str(&format!(
        "cache: in front of {}{site}, with {} of memory\nadmin: listening on http://{admin}\n",
        origin_text(origin),
        size_text(settings.cache.memory_bytes),
    ));
    if let Some(path) = &settings.cache.store {
        text.push_str(&format!(
            "cache: keeps what it stores in {}, {}\n",
            path.display(),
            size_text(settings.cache.store_bytes)
        ));
    }
    if let (true, Some(address)) = (demo, addresses.first()) {
        text.push_str(&format!("Open http://{address}/ in a browser, and reload. Ctrl-C stops.\n"));
    }
    text
}

/// A broken invariant of our own ends the process, whichever thread finds it: a server that goes on with one loop
/// less, or with a store that is not what it says, is worse than one that is restarted.
pub(crate) fn stop_on_panic() {
    let show = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        show(panic);
        std::process::abort();
    }));
}

/// What may be asked of a server from outside.
pub(crate) struct Signals {
    pub terminate: Signal,
    pub interrupt: Signal,
    pub hangup: Signal,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// One that asks for the end.
    pub(crate) async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

async fn until_stopped(
    mut signals: Signals,
    accelerator: &Arc<Started>,
    running: &mut Running,
) -> Result<(), Failure> {
    let mut savings = Savings::default();
    let mut say = || match savings.line(&Report::new(&accelerator.registry().snapshot(), true, 0)) {
        Some(line) => print(&format!("{line}\n")),
        None => Ok(()),
    };
    let mut every = tokio::time::interval(SAVINGS_EVERY);
    let mut dropped_lines = 0;
    loop {
        tokio::select! {
            _ = every.tick() => {
                say()?;
                let dropped = running.filter.dropped();
                if dropped > dropped_lines {
                    tracing::warn!("{} lines of this log were dropped: stderr is too slow for them", dropped - dropped_lines);
                    dropped_lines = dropped;
                }
            }
            // The drain that follows says why.
            () = accelerator.ended() => break,
            _ = signals.hangup.recv() => running.reload(),
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
        }
    }
    accelerator.begin_drain();
    let at_most = running.in_force.settings.drain_time_max;
    tracing::info!(
        "stopping: no new requests; those under way have up to {at_most:?}; a second signal stops at once"
    );
    let draining = Arc::clone(accelerator);
    let drained = tokio::task::spawn_blocking(move || draining.drain(at_most));
    tokio::select! {
        drained = drained => match drained {
            Ok(Ok(Drained::Clean)) => tracing::info!("stopped: every request was answered"),
            Ok(Ok(Drained::CutShort)) => {
                tracing::warn!("stopped: the time was up before every request was answered");
            }
            Ok(Err(failure)) => return Err(failure),
            Err(error) => return Err(Failure::Failed(format!("the drain broke off: {error}"))),
        },
        () = signals.stop() => {
            tracing::warn!("stopped at once by a second signal");
            // The drain holds a thread that nothing can end.
            std::process::exit(1);
        }
    }
    say()
}

/// Where the configuration comes from.
struct Sources {
    file: Option<PathBuf>,
    flags: Flags,
}

impl Sources {
    fn read(&self) -> Result<InForce, Vec<Fault>> {
        precedence::in_force(self.file.as_deref(), |name| std::env::var_os(name), &self.flags)
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
    fn reload(&mut self) {
        let new = match self.sources.read() {
            Ok(new) => new,
            Err(faults) => {
                for fault in faults {
                    tracing::error!("reload: {fault}");
                }
                tracing::error!("reload: the configuration stays as it was");
                return;
            }
        };
        let changed = effective::changed(&self.in_force, &new);
        let (now, later): (Vec<_>, Vec<_>) = changed.into_iter().partition(|key| CHANGEABLE.contains(key));
        self.in_force.settings.drain_time_max = new.settings.drain_time_max;
        if new.settings.log != self.in_force.settings.log {
            match self.filter.change(&new.settings.log) {
                Ok(()) => self.in_force.settings.log = new.settings.log,
                Err(error) => tracing::error!("reload: log: {error}"),
            }
        }
        // The file may hold another token under the same name.
        if let (Some(token), Some(path)) = (&self.token, &self.in_force.settings.admin_token_file) {
            match admin::read_token(path) {
                Ok(new) => _ = token.send_replace(new),
                Err(message) => tracing::error!("reload: {message}; the old token stays"),
            }
        }
        match (now.is_empty(), later.is_empty()) {
            (true, true) => tracing::info!("reload: nothing changed"),
            (false, true) => tracing::info!("reload: changed {}", now.join(", ")),
            (true, false) => tracing::warn!("reload: only a restart changes {}", later.join(", ")),
            (false, false) => tracing::warn!(
                "reload: changed {}; only a restart changes {}",
                now.join(", "),
                later.join(", ")
            ),
        }
    }
}
