//! The feed as the program holds it, and `nighttrain feed`: the feed by itself.
//!
//! ```text
//!  loops (crate feed) ◀── clients          thread "monitor": /varz, /connz, …
//!        ▲ snapshot, reload, drain ───────────────┘
//! ```
//! Its drain is nats-server's lame duck; alone, it is one by SIGUSR2 too.

use std::{future::Future, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use engine::{
    journal::Journal,
    meter::{Registry, Source},
};
use feed::{Config, Looker, NoAnswer, Server, StartError, monitor};

use crate::{
    admin::{OperatorView, Port},
    cli::FeedTask,
    failure::{Failure, Fault},
    machine::ServerSet,
    services::{
        operation::{ConfigSources, RunningCommand, admin_by_default, failed, fault},
        shell::{self, ConfigApply, ServerHandle, Service, ServiceSet, StopMessages},
    },
    settings::{
        Section, Setting, Settings,
        feed_settings::FEED_ADMIN,
        nats_file::{join_nats_config, word_on_origins},
        precedence::ActiveSettings,
    },
};

/// Beyond the lame duck's own times, for what is under way.
const DRAIN_MARGIN: Duration = Duration::from_secs(5);

/// What SIGHUP does not change of the feed's settings.
const FIXED: [&str; 3] = ["listen", "monitor", "websocket"];

/// Runs the feed until a signal ends it.
pub(crate) fn feed(task: &FeedTask) -> Result<(), Failure> {
    let nats = task.nats.clone();
    let complete = move |in_force: &mut ActiveSettings| {
        admin_by_default(in_force, FEED_ADMIN);
        join_and_tell(in_force)?;
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
    // What does not go together is told before any port is taken.
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

/// Adds what the NATS file says; its words that are not honoured are told on stderr, in one line.
///
/// # Errors
/// What is wrong in the file.
pub(crate) fn join_and_tell(in_force: &mut ActiveSettings) -> Result<(), Vec<Fault>> {
    let path = in_force.settings.feed.nats_config.clone().unwrap_or_default();
    let passed_over: Vec<String> = join_nats_config(in_force)?.iter().map(ToString::to_string).collect();
    if !passed_over.is_empty() {
        // Before the log is there, and whatever its filter says.
        _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("nighttrain: {}: not honoured: {}\n", path.display(), passed_over.join(", ")),
        );
    }
    if let Some(word) = word_on_origins(in_force) {
        _ = std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("nighttrain: {}: {word}\n", path.display()),
        );
    }
    Ok(())
}

/// What the feed's configuration is made of: the settings, and what the command adds to them. It is made at the start
/// and at every reload.
pub(crate) type ConfigBuilder = Box<dyn Fn(&Settings) -> Result<Config, Fault> + Send + Sync>;

#[expect(clippy::disallowed_types, reason = "the operator's path, not a message's")]
type Lock<T> = std::sync::Mutex<T>;

/// A running feed, as admin server, monitoring and signals see it.
pub(crate) struct Feed {
    running: ServerHandle<Server>,
    make: ConfigBuilder,
    config: Lock<Arc<Config>>,
    addresses: Vec<SocketAddr>,
    monitor: SocketAddr,
    monitor_counters: Arc<dyn Source>,
}

impl Feed {
    /// Starts it, with its monitoring pages.
    ///
    /// # Errors
    /// One line that says what stands in the way.
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
            config: Lock::new(Arc::new(config)),
            monitor: port.address(),
            monitor_counters: port.counters(),
        });
        port.serve(monitor::router(Arc::clone(&feed), feed.monitor), None)
            .map_err(failed("the monitoring pages cannot be served"))?;
        Ok(feed)
    }

    /// What the listener of the monitoring pages counts.
    pub(crate) fn monitor_counters(&self) -> Arc<dyn Source> {
        Arc::clone(&self.monitor_counters)
    }

    /// What publishes for the program itself; none once it is drained.
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

impl monitor::Watched for Feed {
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
            *self.config.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(config);
            Ok(None)
        }))
    }

    fn is_lame_duck_by_signal(&self) -> bool {
        true
    }

    fn ended(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.running.ended())
    }

    fn begin_drain(&self) {
        self.running.begin_drain();
    }

    /// A lame duck's own times, and a margin for what is under way.
    fn drain_time(&self, _: &Settings) -> Duration {
        let config = self.config.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        config.lame_duck_grace_period + config.lame_duck_duration + DRAIN_MARGIN
    }

    fn drain(&self, at_most: Duration) -> Result<bool, Failure> {
        self.running.drain(at_most)
    }

    /// The last: the others may announce on it what they still do.
    fn stage(&self) -> u8 {
        2
    }

    fn words(&self, at_most: Duration) -> StopMessages {
        StopMessages {
            stopping: format!("no new clients; those that are here have up to {at_most:?} to leave"),
            whole: "every client has left or was asked to",
            cut: "the time was up before every client had left",
        }
    }
}
