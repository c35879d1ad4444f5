//! The mail service as a service of the program, and `nighttrain mail`, which runs it alone.
//!
//! ```text
//!  loops (crate mail) ◀── SMTP, LMTP     thread "mail-web": pages, APIs
//!        ▲ queries ────────────────────────────┘
//! ```
//! When the service stops, it first lets mails in progress finish, then writes everything to the store, and
//! finally stops the pages. On SIGHUP it reads the ban list again.

use std::{
    future::Future,
    net::{IpAddr, SocketAddr, TcpListener},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use engine::{
    cold_mutex::ColdMutex,
    journal::Journal,
    meter::{Registry, Source},
    network::Network,
    tls::certificates::Certificates,
};
use mail::{
    Addresses, CertificateSource, Mailstore, Server,
    config::Store,
    mailboxes::Mailboxes,
    web::{self, HandedOutPages, IndexLocation, Web},
};

use crate::{
    admin::OperatorView,
    cli::MailTask,
    failure::{Failure, Fault, failed},
    machine::ServerSet,
    services::{
        operation::{ConfigSources, RunningCommand, admin_by_default},
        shell::{self, ConfigApply, ServerHandle, Service, ServiceSet, StopMessages},
    },
    settings::{
        Section, Setting, Settings, mail_settings::MAIL_ADMIN, precedence::ActiveSettings, units::size_text,
    },
};

/// Settings of mail that SIGHUP changes.
const CHANGEABLE: [&str; 1] = ["banned"];

/// Runs the mail service until a signal ends it.
pub(crate) fn mail(task: &MailTask) -> Result<(), Failure> {
    let complete = |in_force: &mut ActiveSettings| {
        admin_by_default(in_force, MAIL_ADMIN);
        Ok(())
    };
    let sources = ConfigSources {
        file: task.config.path(),
        flags: task.settings.0.clone(),
        complete: Box::new(complete),
        servers: ServerSet::MAIL,
    };
    let (operation, access) = RunningCommand::begin(sources)?;
    // Contradictory settings are reported before any port is bound.
    config_of(operation.settings(), None)?;
    shell::run(operation, access, |settings, journal| {
        let (post, http) = MailService::start(settings, None, journal)?;
        let beside = vec![post.show(http, post.mailstore(), settings, None)?];
        Ok(ServiceSet { services: vec![post as Arc<dyn Service>], beside, ..ServiceSet::default() })
    })
}

fn config_of(settings: &Settings, shared: Option<&Arc<Certificates>>) -> Result<mail::Config, Failure> {
    settings
        .mail
        .config(settings.cache.state.as_ref(), shared)
        .map_err(|fault| Failure::Configuration(vec![fault]))
}

/// A running mail service, as the admin server and signals see it.
pub(crate) struct MailService {
    running: ServerHandle<Server>,
    /// Web pages, from [`MailService::show`] until the drain.
    web: ColdMutex<Option<Web>>,
    mailstore: Mailstore,
    addresses: Addresses,
    pages: SocketAddr,
    handed_out: Arc<HandedOutPages>,
    /// Certificates for clients that connect over TLS.
    shown: Option<CertificateSource>,
    has_pages_under_tls: bool,
    /// Last line of the announcement, which says who may see the mail of all inboxes.
    all_mail: &'static str,
    /// Human-readable description of the mail store.
    kept: String,
    /// Location of the search index; `None` unless the mail store is file-backed.
    index: Option<IndexLocation>,
}

impl MailService {
    /// Starts the service and returns the listener on which [`MailService::show`] serves the pages. `shared`
    /// holds the certificates of the process.
    ///
    /// # Errors
    /// Returns a `Failure` that says what prevents the start.
    pub(crate) fn start(
        settings: &Settings,
        shared: Option<&Arc<Certificates>>,
        journal: Option<&Arc<Journal>>,
    ) -> Result<(Arc<Self>, TcpListener), Failure> {
        let config = config_of(settings, shared)?;
        let shown = config.tls.clone();
        let http = TcpListener::bind(settings.mail.http)
            .map_err(|error| Failure::Failed(format!("cannot listen on {}: {error}", settings.mail.http)))?;
        let pages = http.local_addr().map_err(failed("mail pages"))?;
        let (store, size) = (config.store.clone(), size_text(config.store_bytes));
        let server =
            Server::start_logged(config, journal).map_err(|error| Failure::Failed(error.to_string()))?;
        let (kept, index) = match store {
            Store::Anonymous => (format!("{size} of memory, lost at exit"), None),
            Store::File(path) => {
                let kept = format!("{} ({size}); {} mails", path.display(), server.recovered_mails());
                let mut directory = path.into_os_string();
                directory.push(".index");
                (kept, Some(IndexLocation::new(directory.into(), server.store_header().seed())))
            }
        };
        let post = Self {
            mailstore: server.mailstore(),
            addresses: server.addresses(),
            running: ServerHandle::new(server),
            web: ColdMutex::default(),
            pages,
            handed_out: Arc::default(),
            shown,
            has_pages_under_tls: settings.mail.has_pages_under_tls(),
            all_mail: settings.mail.all_mail(),
            kept,
            index,
        };
        Ok((Arc::new(post), http))
    }

    /// Serves pages and APIs of `mailboxes` until the drain, and returns their counters. `in_front` is the
    /// address from which our own accelerator connects if it is in front of the pages.
    ///
    /// # Errors
    /// Returns the system's error, or the fault in the settings of the pages.
    pub(crate) fn show(
        &self,
        http: TcpListener,
        mailboxes: impl Mailboxes,
        settings: &Settings,
        in_front: Option<IpAddr>,
    ) -> Result<Arc<dyn Source>, Failure> {
        let mut config = settings
            .mail
            .web(self.addresses.smtp, self.shown.clone(), self.index.clone())
            .map_err(|fault| Failure::Configuration(vec![fault]))?;
        config.proxies.extend(in_front.map(Network::from));
        config.handed_out = Arc::clone(&self.handed_out);
        let web = web::serve(http, mailboxes, config).map_err(failed("cannot serve the pages"))?;
        let counters = web.counters();
        *self.web.lock() = Some(web);
        Ok(counters)
    }

    /// Returns the mail store.
    pub(crate) fn mailstore(&self) -> Mailstore {
        self.mailstore.clone()
    }

    /// Returns the addresses on which mail is received.
    pub(crate) fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Returns the inboxes whose pages caches may hold.
    pub(crate) fn handed_out(&self) -> Arc<HandedOutPages> {
        Arc::clone(&self.handed_out)
    }

    /// Returns the address of the pages.
    pub(crate) fn pages(&self) -> SocketAddr {
        self.pages
    }
}

impl OperatorView for MailService {
    fn registry(&self) -> Arc<Registry> {
        self.running.registry()
    }

    fn is_ready(&self) -> bool {
        self.running.is_ready()
    }
}

impl Service for MailService {
    fn announcement(&self) -> String {
        let Addresses { smtp, smtps, lmtp } = self.addresses;
        let mut text = format!("mail: listening on smtp://{smtp}\n");
        for (scheme, address) in [("smtps", smtps), ("lmtp", lmtp)] {
            if let Some(address) = address {
                text.push_str(&format!("mail: listening on {scheme}://{address}\n"));
            }
        }
        let scheme = if self.has_pages_under_tls { "https" } else { "http" };
        let (kept, pages, all_mail) = (&self.kept, self.pages, self.all_mail);
        text + &format!("mail: kept in {kept}\nmail: inboxes on {scheme}://{pages}\nmail: {all_mail}\n")
    }

    fn section(&self) -> Section {
        Section::Mail
    }

    fn follows(&self, setting: &Setting) -> bool {
        CHANGEABLE.contains(&setting.key)
    }

    fn check(&self, settings: &Settings) -> Result<ConfigApply<'_>, Fault> {
        let lists = settings.mail.lists()?;
        Ok(Box::new(move || {
            let remark = format!("{} lines of bans", lists.len());
            if self.running.ask(|server| server.set_lists(lists)) == Some(false) {
                tracing::error!("reload: a core was too busy to load the bans; try again");
            }
            Ok(Some(remark))
        }))
    }

    fn until_loop_fails(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.running.ended())
    }

    fn begin_drain(&self) {
        self.running.begin_drain();
    }

    fn drain(&self, at_most: Duration) -> Result<bool, Failure> {
        let whole = self.running.drain(at_most);
        if let Some(web) = self.web.lock().take() {
            web.stop();
        }
        whole
    }

    /// Drains first, because the other services must still receive its events.
    fn stage(&self) -> u8 {
        0
    }

    fn words(&self, at_most: Duration) -> StopMessages {
        StopMessages {
            stopping: format!("no new connections; mails under way have up to {at_most:?}"),
            whole: "all mails under way were answered",
            cut: "time limit reached before all mails under way were answered",
        }
    }
}
