//! The feed as a service of the program, and `nighttrain feed`, which runs it alone.
//!
//! ```text
//!  loops (crate feed) ◀── clients          thread "monitor": /varz, /connz, …
//!        ▲ snapshot, reload, drain ───────────────┘
//! ```
//! Its drain is nats-server's lame duck mode; when the feed runs alone, SIGUSR2 starts it too.

use std::{future::Future, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use engine::{
    cold_mutex::ColdMutex,
    journal::Journal,
    meter::{Registry, Source},
};
use feed::{Config, Looker, NoAnswer, Server, StartError, monitor};

use crate::{
    admin::{OperatorView, Port},
    cli::FeedTask,
    console::print_to_stderr,
    failure::{Failure, Fault, failed, fault},
    machine::ServerSet,
    services::{
        operation::{ConfigSources, RunningCommand, admin_by_default},
        shell::{self, ConfigApply, ServerHandle, Service, ServiceSet, StopMessages},
    },
    settings::{
        Section, Setting, Settings,
        feed_settings::FEED_ADMIN,
        nats_file::{join_nats_config, word_on_origins},
        precedence::ActiveSettings,
    },
};

/// Extra drain time for pending messages, in addition to lame duck mode's own periods.
const DRAIN_MARGIN: Duration = Duration::from_secs(5);

/// Settings of the feed that SIGHUP does not change.
const FIXED: [&str; 3] = ["listen", "monitor", "websocket"];

/// Runs the feed until a signal ends it.
pub(crate) fn feed(task: &FeedTask) -> Result<(), Failure> {
    let nats = task.nats.clone();
    let complete = move |in_force: &mut ActiveSettings| {
        admin_by_default(in_force, FEED_ADMIN);
        join_nats_config_and_warn(in_force)?;
        nats.join(in_force);
        Ok(())
    };
    let sources = ConfigSources {
        file: task.config.path(),
        flags: task.settings.0.clone(),
        complete: Box::new(complete),
        servers: ServerSet::FEED,
    };
    let (operation, access) = RunningCommand::begin(sources)?;
    let make: ConfigBuilder = Box::new(|settings| settings.feed.config(None));
    // Contradictory settings are reported before any port is bound.
    make(operation.settings()).map_err(|fault| Failure::Configuration(vec![fault]))?;
    shell::run(operation, access, |settings, journal| {
        let feed = Feed::start(settings, journal, make)?;
        Ok(ServiceSet {
            beside: vec![feed.monitor_counters()],
            services: vec![feed as Arc<dyn Service>],
            ..ServiceSet::default()
        })
    })
}

/// Adds the settings of the NATS file; settings that are not honoured are named on stderr, in one line.
///
/// # Errors
/// Returns the faults of the file.
pub(crate) fn join_nats_config_and_warn(in_force: &mut ActiveSettings) -> Result<(), Vec<Fault>> {
    let path = in_force.settings.feed.nats_config.clone().unwrap_or_default();
    let passed_over: Vec<String> = join_nats_config(in_force)?.iter().map(ToString::to_string).collect();
    if !passed_over.is_empty() {
        let ignored = passed_over.join(", ");
        print_to_stderr(&format_args!("nighttrain: {}: ignored: {ignored}", path.display()));
    }
    if let Some(word) = word_on_origins(in_force) {
        print_to_stderr(&format_args!("nighttrain: {}: {word}", path.display()));
    }
    Ok(())
}

/// Function that builds the feed's configuration from the settings and the command's additions. It runs at
/// the start and at every reload.
pub(crate) type ConfigBuilder = Box<dyn Fn(&Settings) -> Result<Config, Fault> + Send + Sync>;

/// A running feed, as the admin server, the monitoring pages and signals see it.
pub(crate) struct Feed {
    running: ServerHandle<Server>,
    make: ConfigBuilder,
    config: ColdMutex<Arc<Config>>,
    addresses: Vec<SocketAddr>,
    monitor: SocketAddr,
    monitor_counters: Arc<dyn Source>,
}

impl Feed {
    /// Starts the feed with its monitoring pages.
    ///
    /// # Errors
    /// Returns a `Failure` that says what prevents the start.
    pub(crate) fn start(
        settings: &Settings,
        journal: Option<&Arc<Journal>>,
        make: ConfigBuilder,
    ) -> Result<Arc<Self>, Failure> {
        let config = make(settings).map_err(|fault| Failure::Configuration(vec![fault]))?;
        let port = Port::bind("monitor", settings.feed.monitor, false).map_err(failed("monitor"))?;
        let server = Server::start_logged(config.clone(), journal).map_err(|error| match error {
            StartError::Authorization(error) => fault("authorization", error.to_string()),
            StartError::Tls(error) => fault("tls", error.to_string()),
            StartError::Leaf(error) => fault("leaf", error),
            other => Failure::Failed(other.to_string()),
        })?;
        let feed = Arc::new(Self {
            addresses: server.addresses(),
            running: ServerHandle::new(server),
            make,
            config: ColdMutex::new(Arc::new(config)),
            monitor: port.address(),
            monitor_counters: port.counters(),
        });
        port.serve(monitor::router(Arc::clone(&feed), feed.monitor), None)
            .map_err(failed("cannot serve the monitoring pages"))?;
        Ok(feed)
    }

    /// Returns the counters of the monitoring pages' listener.
    pub(crate) fn monitor_counters(&self) -> Arc<dyn Source> {
        Arc::clone(&self.monitor_counters)
    }

    /// Returns a publisher for the program itself; `None` once the feed is drained.
    pub(crate) fn publisher(&self) -> Option<feed::Publisher> {
        self.running.ask(Server::publisher)
    }
}

impl OperatorView for Feed {
    fn registry(&self) -> Arc<Registry> {
        self.running.registry()
    }

    fn is_ready(&self) -> bool {
        self.running.is_ready()
    }
}

impl monitor::MonitoredFeed for Feed {
    fn looker(&self) -> Result<Looker, NoAnswer> {
        self.running.ask(Server::looker).ok_or(NoAnswer)
    }

    fn is_ready(&self) -> bool {
        self.running.is_ready()
    }
}

impl Service for Feed {
    fn announcement(&self) -> String {
        let mut text = String::new();
        for (address, scheme) in self.addresses.iter().zip(["nats", "ws"]) {
            text.push_str(&format!("feed: listening on {scheme}://{address}\n"));
        }
        text + &format!("monitor: listening on http://{}\n", self.monitor)
    }

    fn section(&self) -> Section {
        Section::Feed
    }

    fn follows(&self, setting: &Setting) -> bool {
        !FIXED.contains(&setting.key)
    }

    fn check(&self, settings: &Settings) -> Result<ConfigApply<'_>, Fault> {
        let config = (self.make)(settings)?;
        Ok(Box::new(move || {
            let taken = self.running.ask(|server| server.reload(config.clone()));
            taken.transpose().map_err(|error| error.to_string())?;
            *self.config.lock() = Arc::new(config);
            Ok(None)
        }))
    }

    fn is_lame_duck_by_signal(&self) -> bool {
        true
    }

    fn until_loop_fails(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.running.ended())
    }

    fn begin_drain(&self) {
        self.running.begin_drain();
    }

    /// Returns the grace period and the duration of lame duck mode, plus a margin for pending messages.
    fn drain_time(&self, _: &Settings) -> Duration {
        let config = self.config.lock();
        config.lame_duck_grace_period + config.lame_duck_duration + DRAIN_MARGIN
    }

    fn drain(&self, at_most: Duration) -> Result<bool, Failure> {
        self.running.drain(at_most)
    }

    /// Drains last: the other services may still publish events on the feed.
    fn stage(&self) -> u8 {
        2
    }

    fn words(&self, at_most: Duration) -> StopMessages {
        StopMessages {
            stopping: format!("no new clients; connected ones have up to {at_most:?} to leave"),
            whole: "all clients have disconnected or were told to",
            cut: "time limit reached before all clients had left",
        }
    }
}
