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
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use engine::meter::{Family, Registry, Source};
use mail::{Addresses, Config, Drained, Mailstore, Server, config::Store, web};
use tokio::sync::watch;

use crate::{
    admin::{self, Access, Token},
    cli::MailTask,
    effective,
    failure::{Failure, Fault},
    log::{self, FilterHandle},
    mail_admin,
    mail_settings::MAIL_ADMIN,
    precedence::{self, Flags, InForce, Source as From},
    print,
    run::{Signals, fault, stop_on_panic, token_of},
    settings::by_key,
    units::size_text,
};

/// What SIGHUP changes.
const CHANGEABLE: [&str; 3] = ["log", "drain-time-max", "banned"];

/// Runs the mail service until a signal ends it.
pub(crate) fn mail(task: &MailTask) -> Result<(), Failure> {
    let sources = Sources { file: task.config.path(), flags: task.settings.0.clone() };
    let in_force = sources.read().map_err(Failure::Configuration)?;
    let settings = &in_force.settings;
    let filter = log::start(&settings.log).map_err(Failure::Failed)?;
    stop_on_panic();
    let token = token_of(settings)?;
    let access = Access::for_address(settings.admin, token.as_ref().map(watch::Sender::subscribe))
        .map_err(|message| fault("admin", message))?;
    let config = settings
        .mail
        .config(settings.cache.state.as_ref())
        .map_err(|fault| Failure::Configuration(vec![fault]))?;
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
    let http = TcpListener::bind(settings.mail.http)
        .map_err(|error| Failure::Failed(format!("cannot listen on {}: {error}", settings.mail.http)))?;
    let started = Started::start(config)?;
    let pages =
        settings.mail.web(started.addresses.smtp).map_err(|fault| Failure::Configuration(vec![fault]))?;
    let web = web::serve(http, started.mailstore(), pages).map_err(failed("the pages cannot be served"))?;
    let registry = with_pages(started.registry(), &web);
    admin::serve("admin", admin_listener, mail_admin::pages(access, Arc::clone(&started), registry))
        .map_err(failed("the admin server cannot start"))?;
    print(&announcement(&started, &web, admin_address))?;
    let mut running = Running { sources, in_force, filter, token };
    let ended = runtime.block_on(until_stopped(signals, &started, &mut running));
    web.stop();
    ended
}

/// What is said at the start: every address that was bound, one a line.
fn announcement(started: &Started, web: &web::Web, admin: SocketAddr) -> String {
    let Addresses { smtp, smtps, lmtp } = started.addresses;
    let mut text = format!("nighttrain {}\nmail: listening on smtp://{smtp}\n", env!("CARGO_PKG_VERSION"));
    for (scheme, address) in [("smtps", smtps), ("lmtp", lmtp)] {
        if let Some(address) = address {
            text.push_str(&format!("mail: listening on {scheme}://{address}\n"));
        }
    }
    let size = size_text(started.config.store_bytes);
    text.push_str(&match &started.config.store {
        Store::Anonymous => format!("mail: kept in {size} of memory, gone at the end\n"),
        Store::File(path) => {
            format!("mail: kept in {} ({size}); {} mails are there\n", path.display(), started.recovered)
        }
    });
    text + &format!("mail: inboxes on http://{}\nadmin: listening on http://{admin}\n", web.address())
}

/// What the service counts, and what its pages count.
fn with_pages(registry: Arc<Registry>, web: &web::Web) -> Arc<Registry> {
    #[derive(Debug)]
    struct Of(Arc<Registry>);
    impl Source for Of {
        fn collect(&self, families: &mut Vec<Family>) {
            families.extend(self.0.snapshot().families);
        }
    }
    let mut all = Registry::new();
    all.register(Arc::new(Of(registry)) as Arc<dyn Source>);
    all.register(web.counters());
    Arc::new(all)
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

    /// What it counts.
    pub(crate) fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.registry)
    }

    /// The stored mail.
    pub(crate) fn mailstore(&self) -> Mailstore {
        self.mailstore.clone()
    }

    /// Whether it takes mail: every loop listens, and no drain has begun.
    pub(crate) fn is_ready(&self) -> bool {
        !self.draining.load(Ordering::Acquire) && self.with(Server::is_ready) == Some(true)
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

    /// Asks the server something that takes no time; none once it is drained.
    fn with<T>(&self, ask: impl FnOnce(&Server) -> T) -> Option<T> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(ask)
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
    started.begin_drain();
    let at_most = running.in_force.settings.drain_time_max;
    tracing::info!(
        "stopping: no new connections; mails under way have up to {at_most:?}; a second signal stops at once"
    );
    let draining = Arc::clone(started);
    let drained = tokio::task::spawn_blocking(move || draining.drain(at_most));
    tokio::select! {
        drained = drained => match drained {
            Ok(Ok(Drained::Clean)) => tracing::info!("stopped: every mail under way was answered"),
            Ok(Ok(Drained::CutShort)) => {
                tracing::warn!("stopped: the time was up before every mail under way was answered");
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
    Ok(())
}

/// Where the configuration comes from.
struct Sources {
    file: Option<PathBuf>,
    flags: Flags,
}

impl Sources {
    fn read(&self) -> Result<InForce, Vec<Fault>> {
        let mut in_force =
            precedence::in_force(self.file.as_deref(), |name| std::env::var_os(name), &self.flags)?;
        let nobody_said = by_key("admin").is_some_and(|(place, _)| in_force.sources[place] == From::Default);
        if nobody_said {
            in_force.settings.admin = MAIL_ADMIN;
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
    /// Reads the configuration and its files again. What is wrong is logged and changes nothing; what cannot change is
    /// named.
    fn reload(&mut self, started: &Started) {
        let read = self.sources.read().and_then(|new| {
            let lists = new.settings.mail.lists().map_err(|fault| vec![fault])?;
            Ok((new, lists))
        });
        let (new, lists) = match read {
            Ok(new) => new,
            Err(faults) => {
                for fault in faults {
                    tracing::error!("reload: {fault}");
                }
                tracing::error!("reload: the configuration stays as it was");
                return;
            }
        };
        let bans = lists.len();
        if started.with(|server| server.set_lists(lists)) == Some(false) {
            tracing::error!("reload: a core was too busy to be told what is banned; try again");
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
        let fixed: Vec<_> = changed.into_iter().filter(|key| !CHANGEABLE.contains(key)).collect();
        self.in_force = new;
        if fixed.is_empty() {
            tracing::info!("reload: done; {bans} lines of bans");
        } else {
            tracing::warn!("reload: done; {bans} lines of bans; only a restart changes {}", fixed.join(", "));
        }
    }
}
