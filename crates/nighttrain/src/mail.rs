//! `nighttrain mail`: puts the mail service's parts together, runs until a signal ends it.
//!
//! ```text
//!  loops (crate mail) ◀── SMTP, LMTP     thread "mail-web": pages, APIs     thread "admin": /metrics, /stat, …
//!        ▲ questions ──────────────────────────┘                                │ snapshot
//!        └──────────────────────────────────────────────────────────────────────┘
//!  main thread: signals
//! ```
//! SIGTERM and SIGINT let mails under way end, write everything out and stop, a second one ends at once; SIGHUP reads the
//! list of what is banned again.

use std::{
    net::TcpListener,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use engine::meter::Registry;
use mail::{Addresses, Config, Drained, Mailstore, Server, config::Store, web};

use crate::{
    admin::{self, Operated, Port},
    cli::MailTask,
    failure::Failure,
    mail_settings::MAIL_ADMIN,
    operated::Together,
    operation::{Operation, Signals, Sources, Wish, admin_by_default, failed},
    precedence::InForce,
    print,
    units::size_text,
};

/// What SIGHUP changes.
const CHANGEABLE: [&str; 3] = ["log", "drain-time-max", "banned"];

/// Runs the mail service until a signal ends it.
pub(crate) fn mail(task: &MailTask) -> Result<(), Failure> {
    let complete = |in_force: &mut InForce| {
        admin_by_default(in_force, MAIL_ADMIN);
        Ok(())
    };
    let sources = Sources { file: task.config.path(), flags: task.settings.0.clone(), complete };
    let (mut operation, access) = Operation::begin(sources)?;
    let settings = operation.settings();
    let config = settings
        .mail
        .config(settings.cache.state.as_ref())
        .map_err(|fault| Failure::Configuration(vec![fault]))?;
    let (runtime, signals) = Signals::caught()?;
    let port = Port::bind("admin", settings.admin).map_err(failed("admin"))?;
    let admin_address = port.address();
    let http = TcpListener::bind(settings.mail.http)
        .map_err(|error| Failure::Failed(format!("cannot listen on {}: {error}", settings.mail.http)))?;
    let started = Started::start(config)?;
    let pages =
        settings.mail.web(started.addresses.smtp).map_err(|fault| Failure::Configuration(vec![fault]))?;
    let web = web::serve(http, started.mailstore(), pages).map_err(failed("the pages cannot be served"))?;
    let all = Together::new(vec![Arc::clone(&started) as Arc<dyn Operated>], vec![web.counters(), port.counters()]);
    port.serve(admin::pages(access, Arc::new(all), None))
        .map_err(failed("the admin server cannot start"))?;
    print(&format!(
        "nighttrain {}\n{}mail: inboxes on http://{}\nadmin: listening on http://{admin_address}\n",
        env!("CARGO_PKG_VERSION"),
        started.announcement(),
        web.address()
    ))?;
    let ended = runtime.block_on(until_stopped(signals, &started, &mut operation));
    web.stop();
    ended
}

/// A running mail service without its pages, as admin server and signals see it.
pub(crate) struct Started {
    /// None once it is drained.
    server: OneAtATime<Option<Server>>,
    registry: Arc<Registry>,
    mailstore: Mailstore,
    addresses: Addresses,
    config: Config,
    recovered: usize,
    draining: AtomicBool,
}

#[expect(clippy::disallowed_types, reason = "the operator's path, not a mail's")]
type OneAtATime<T> = std::sync::Mutex<T>;

impl Started {
    /// Starts it.
    ///
    /// # Errors
    /// One line that says what stands in the way.
    pub(crate) fn start(config: Config) -> Result<Arc<Self>, Failure> {
        let server = Server::start(config.clone()).map_err(|error| Failure::Failed(error.to_string()))?;
        Ok(Arc::new(Self {
            registry: server.registry(),
            mailstore: server.mailstore(),
            addresses: server.addresses(),
            recovered: server.recovered_mails(),
            config,
            server: OneAtATime::new(Some(server)),
            draining: AtomicBool::new(false),
        }))
    }

    /// The stored mail.
    pub(crate) fn mailstore(&self) -> Mailstore {
        self.mailstore.clone()
    }

    /// Says from now on that it is not ready.
    pub(crate) fn begin_drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Takes no more mail, and blocks until what is under way has ended or the time is up.
    ///
    /// # Errors
    /// A loop had ended before it was asked to.
    pub(crate) fn drain(&self, at_most: Duration) -> Result<Drained, Failure> {
        self.begin_drain();
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        server.map_or(Ok(Drained::Clean), |server| {
            server.drain(at_most).map_err(|error| Failure::Failed(error.to_string()))
        })
    }

    /// Ready once a loop has failed.
    pub(crate) async fn ended(&self) {
        let ended = self.with(Server::ended);
        if let Some(ended) = ended {
            ended.await;
        }
    }

    /// What is said at the start: every address that was bound, one a line, and where mail is kept.
    pub(crate) fn announcement(&self) -> String {
        let Addresses { smtp, smtps, lmtp } = self.addresses;
        let mut text = format!("mail: listening on smtp://{smtp}\n");
        for (scheme, address) in [("smtps", smtps), ("lmtp", lmtp)] {
            if let Some(address) = address {
                text.push_str(&format!("mail: listening on {scheme}://{address}\n"));
            }
        }
        let size = size_text(self.config.store_bytes);
        text + &match &self.config.store {
            Store::Anonymous => format!("mail: kept in {size} of memory, gone at the end\n"),
            Store::File(path) => {
                format!("mail: kept in {} ({size}); {} mails are there\n", path.display(), self.recovered)
            }
        }
    }

    /// Takes new lists of what is banned.
    pub(crate) fn set_lists(&self, lists: mail::Lists) {
        if self.with(|server| server.set_lists(lists)) == Some(false) {
            tracing::error!("reload: a core was too busy to be told what is banned; try again");
        }
    }

    /// Where mail is taken.
    pub(crate) fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Asks the server something that takes no time; none once it is drained.
    fn with<T>(&self, ask: impl FnOnce(&Server) -> T) -> Option<T> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(ask)
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
                Wish::Upgrade => Signals::cannot_upgrade(),
                Wish::Stop => break,
            },
        }
    }
    started.begin_drain();
    let at_most = operation.settings().drain_time_max;
    tracing::info!(
        "stopping: no new connections; mails under way have up to {at_most:?}; a second signal stops at once"
    );
    let draining = Arc::clone(started);
    let drain = move || Ok(draining.drain(at_most)? == Drained::Clean);
    let (whole, cut) =
        ("every mail under way was answered", "the time was up before every mail under way was answered");
    signals.drain(drain, whole, cut).await
}

/// Reads the configuration and its files again. What is wrong is logged and changes nothing; what cannot change is
/// named.
fn reload(operation: &mut Operation, started: &Started) {
    let Some((new, lists)) = operation.read_again(|settings| settings.mail.lists()) else { return };
    let done = format!("done; {} lines of bans", lists.len());
    started.set_lists(lists);
    operation.accept(new, &done, |key| !CHANGEABLE.contains(&key));
}
