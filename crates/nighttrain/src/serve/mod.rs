//! `nighttrain serve`: accelerator, feed and mail in one process, joined by their own protocols.
//!
//! ```text
//!  senders ──SMTP──▶ mail ──events──▶ announce ──NATS──▶ feed ──NATS──▶ subscribers
//!                     ▲ questions         ▲───────────────┘
//!                     │                   ├──▶ live pages (the web takes its events from the feed)
//!  browsers ─HTTP─▶ accelerator ─HTTP─▶ pages      └──▶ purge of the pages that have changed
//! ```
//! The loops of the three share nothing but the processors. One admin port shows them all. They stop in the order in
//! which work flows: no new mail, then the pages, the accelerator, and the feed last.

mod announce;
mod samples;
mod subject;

use std::{
    io::Read,
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use engine::meter::Source;
use feed::{
    identity::{Authorization, Secret, User},
    monitor,
};
use mail::{
    Mailstore,
    mailboxes::{Event, Inbox, Mail, MailId, Mailboxes, Scope, Summary, Totals, Unavailable},
    web::{self, Web},
};
use tokio::sync::broadcast;

use self::announce::{Announcer, Entrance, Urls};
use crate::{
    accelerator::{self, Accelerator},
    admin::{self, Operated, Port},
    cli::ServeTask,
    failure::Failure,
    feed::Started as Feed,
    mail::Started as Post,
    operated::Together,
    operation::{Operation, Signals, Sources, Wish, failed, fault},
    print,
    run::origin_at,
    settings::Settings,
    units::size_text,
};

/// Who announces mail on a feed that asks for names.
const ANNOUNCER: &str = "nighttrain";
/// What SIGHUP changes; of the feed, what its own reload changes.
const CHANGEABLE: [&str; 3] = ["log", "drain-time-max", "banned"];

/// Runs everything until a signal ends it.
pub(crate) fn serve(task: &ServeTask) -> Result<(), Failure> {
    let sources = Sources { file: task.config.path(), flags: task.settings.0.clone(), complete: |_| Ok(()) };
    let (mut operation, access) = Operation::begin(sources)?;
    let settings = operation.settings();
    let (runtime, signals) = Signals::caught()?;
    let port = Port::bind("admin", settings.admin).map_err(failed("admin"))?;
    let servers = Servers::start(settings)?;
    let beside = vec![
        servers.web.counters(),
        servers.announcer.counters(),
        servers.monitoring.clone(),
        port.counters(),
    ];
    let all = Together::new(servers.operated(), beside);
    let admin_address = port.address();
    let purges = Arc::clone(&servers.accelerator) as Arc<dyn Accelerator>;
    port.serve(admin::pages(access, Arc::new(all), Some(purges)))
        .map_err(failed("the admin server cannot start"))?;
    if task.demo {
        samples::trickle(servers.post.addresses().smtp).map_err(failed("samples cannot be sent"))?;
    }
    print(&servers.announcement(settings, admin_address, task.demo))?;
    runtime.block_on(until_stopped(signals, servers, &mut operation))
}

/// What runs.
struct Servers {
    accelerator: Arc<accelerator::Started>,
    feed: Arc<Feed>,
    post: Arc<Post>,
    web: Web,
    announcer: Announcer,
    monitor: SocketAddr,
    monitoring: Arc<dyn Source>,
}

impl Servers {
    fn start(settings: &Settings) -> Result<Self, Failure> {
        let configuration = |fault| Failure::Configuration(vec![fault]);
        let (feed, connect) = feed_of(settings)?;
        let port = Port::bind("monitor", settings.feed.monitor).map_err(failed("monitor"))?;
        let (monitor, monitoring) = (port.address(), port.counters());
        port.serve(monitor::router(Arc::clone(&feed), monitor))
            .map_err(failed("the monitoring pages cannot be served"))?;

        let post = Post::start(settings.mail.config(settings.cache.state.as_ref()).map_err(configuration)?)?;
        let http = TcpListener::bind(settings.mail.http)
            .map_err(|error| Failure::Failed(format!("cannot listen on {}: {error}", settings.mail.http)))?;
        let pages_at = http.local_addr().map_err(failed("mail pages"))?;

        let origin = settings.origin.clone().unwrap_or_else(|| origin_at(pages_at));
        let accelerator = accelerator::Started::start(settings.accelerator(origin))?;
        let Some(&address) = feed.addresses().first() else {
            return Err(Failure::Failed("the feed listens nowhere".to_owned()));
        };
        let announcer = Announcer::start(
            Entrance { address: reachable(address), connect },
            post.mailstore().events(),
            Arc::clone(&accelerator) as Arc<dyn Accelerator>,
            urls(accelerator.addresses(), &settings.mail.config.default_domain),
        )
        .map_err(failed("mail cannot be announced"))?;
        let announced = Announced { stored: post.mailstore(), events: announcer.events() };
        let pages = settings.mail.web(post.addresses().smtp).map_err(configuration)?;
        let web = web::serve(http, announced, pages).map_err(failed("the pages cannot be served"))?;
        Ok(Self { accelerator, feed, post, web, announcer, monitor, monitoring })
    }

    fn operated(&self) -> Vec<Arc<dyn Operated>> {
        vec![
            Arc::clone(&self.accelerator) as Arc<dyn Operated>,
            Arc::clone(&self.feed) as Arc<dyn Operated>,
            Arc::clone(&self.post) as Arc<dyn Operated>,
        ]
    }

    /// What is said at the start: every address that was bound, one a line.
    fn announcement(&self, settings: &Settings, admin: SocketAddr, demo: bool) -> String {
        let mut text = format!("nighttrain {}\n", env!("CARGO_PKG_VERSION"));
        for address in self.accelerator.addresses() {
            text.push_str(&format!("cache: listening on http://{address}\n"));
        }
        let memory = size_text(settings.cache.memory_bytes);
        text.push_str(&match &settings.origin {
            Some(origin) => {
                let origin = crate::settings::origin_text(origin);
                format!("cache: in front of {origin}, with {memory} of memory\n")
            }
            None => format!("cache: in front of the mail pages, with {memory} of memory\n"),
        });
        for (address, scheme) in self.feed.addresses().iter().zip(["nats", "ws"]) {
            text.push_str(&format!("feed: listening on {scheme}://{address}\n"));
        }
        text.push_str(&format!("monitor: listening on http://{}\n", self.monitor));
        text.push_str(&self.post.announcement());
        text.push_str(&format!("mail: inboxes on http://{}\n", self.web.address()));
        text.push_str(&format!("admin: listening on http://{admin}\n"));
        if let (true, Some(address)) = (demo, self.accelerator.addresses().first()) {
            text.push_str(&format!(
                "Open http://{address}/inbox/{} in a browser: a sample mail arrives every {} seconds.\n\
                 See them on the feed: nighttrain feed sub '{}'. Ctrl-C stops.\n",
                samples::RECIPIENT,
                samples::EVERY.as_secs(),
                subject::ALL,
            ));
        }
        text
    }

    /// Takes no more work, in the order in which it flows.
    fn drain(self, at_most: Duration) -> Result<bool, Failure> {
        let mail = self.post.drain(at_most)?;
        self.web.stop();
        let cache = self.accelerator.drain(at_most)?;
        let feed = self.feed.drain(self.feed.drain_time())?;
        Ok(mail == mail::Drained::Clean
            && cache == accelerator::Drained::Clean
            && feed == feed::Drained::Clean)
    }
}

/// An address that listens everywhere is reached on loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let mut address = address;
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// The feed, and what whoever announces mail says in CONNECT.
fn feed_of(settings: &Settings) -> Result<(Arc<Feed>, String), Failure> {
    let mut config = settings.feed.config().map_err(|fault| Failure::Configuration(vec![fault]))?;
    if config.tls.is_some() {
        let message = "mail is announced on this feed without TLS, so `serve` cannot demand it of all; \
                       run `nighttrain feed` by itself for that";
        return Err(fault("[feed] tls-cert", message.to_owned()));
    }
    let connect = connect_of(&mut config.authorization)
        .map_err(|error| Failure::Failed(format!("no random bytes: {error}")))?;
    Ok((Feed::start(config)?, connect))
}

/// Lets the announcer in: as it is where anyone may come in, else by the token or as a user of its own.
fn connect_of(authorization: &mut Authorization) -> std::io::Result<String> {
    let mut connect = serde_json::json!({
        "verbose": false, "pedantic": false, "name": "nighttrain mail", "lang": "rust",
        "version": env!("CARGO_PKG_VERSION"), "protocol": 1,
    });
    if authorization.is_open() {
        return Ok(connect.to_string());
    }
    let mut bytes = [0_u8; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let password: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    if let Some(Secret::Plain(token)) = &authorization.token {
        connect["auth_token"] = serde_json::json!(&**token);
        return Ok(connect.to_string());
    }
    authorization.users.push(User {
        user: Some(ANNOUNCER.to_owned()),
        password: Some(Secret::new(&password)),
        ..User::default()
    });
    connect["user"] = serde_json::json!(ANNOUNCER);
    connect["pass"] = serde_json::json!(password);
    Ok(connect.to_string())
}

/// The first page of an inbox under each name that visitors have for the accelerator here. Others see a page that is
/// up to a second old.
fn urls(addresses: &[SocketAddr], domain: &str) -> Urls {
    let mut hosts = Vec::new();
    for address in addresses {
        let address = reachable(*address);
        hosts.push(address.to_string());
        hosts.push(format!("localhost:{}", address.port()));
        hosts.push(domain.to_owned());
    }
    Box::new(move |inbox: &Inbox| {
        let tag = web::inbox_tag(inbox);
        let segment = tag.strip_prefix("inbox:").unwrap_or(&tag);
        hosts.iter().map(|host| format!("http://{host}/inbox/{segment}")).collect()
    })
}

/// The stored mail, with its events as they came over the feed.
#[derive(Clone)]
struct Announced {
    stored: Mailstore,
    events: broadcast::Sender<Event>,
}

impl Mailboxes for Announced {
    async fn list(&self, scope: &Scope, skip: usize, limit: usize) -> Result<Vec<Arc<Summary>>, Unavailable> {
        self.stored.list(scope, skip, limit).await
    }

    async fn count(&self, scope: &Scope) -> Result<u64, Unavailable> {
        self.stored.count(scope).await
    }

    async fn mail(&self, id: MailId) -> Result<Option<Mail>, Unavailable> {
        self.stored.mail(id).await
    }

    async fn delete(&self, id: MailId) -> Result<bool, Unavailable> {
        self.stored.delete(id).await
    }

    async fn delete_all(&self, scope: &Scope) -> Result<u64, Unavailable> {
        self.stored.delete_all(scope).await
    }

    async fn deliver(
        &self,
        envelope_from: &str,
        recipients: &[String],
        raw: &[u8],
    ) -> Result<Vec<MailId>, Unavailable> {
        self.stored.deliver(envelope_from, recipients, raw).await
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    fn totals(&self) -> Totals {
        self.stored.totals()
    }
}

async fn until_stopped(
    mut signals: Signals,
    servers: Servers,
    operation: &mut Operation,
) -> Result<(), Failure> {
    loop {
        tokio::select! {
            // The drain that follows says why.
            () = servers.accelerator.ended() => break,
            () = servers.feed.ended() => break,
            () = servers.post.ended() => break,
            wish = signals.next() => match wish {
                Wish::Reload => reload(operation, &servers),
                Wish::Upgrade => Signals::cannot_upgrade(),
                Wish::Stop => break,
            },
        }
    }
    servers.accelerator.begin_drain();
    servers.post.begin_drain();
    let at_most = operation.settings().drain_time_max;
    tracing::info!(
        "stopping: what is under way has up to {at_most:?} a server; a second signal stops at once"
    );
    let (whole, cut) =
        ("all that was under way has ended", "the time was up before all that was under way had ended");
    signals.drain(move || servers.drain(at_most), whole, cut).await
}

/// Reads the configuration and its files again. What is wrong is logged and changes nothing; what cannot change is
/// named.
fn reload(operation: &mut Operation, servers: &Servers) {
    let Some((new, lists)) = operation.read_again(|settings| settings.mail.lists()) else { return };
    servers.post.set_lists(lists);
    operation.accept(new, "done", |key| !CHANGEABLE.contains(&key));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announcer_comes_in_whatever_the_feed_asks_for() {
        let connect = |authorization: &mut Authorization| {
            let text = connect_of(authorization).expect("random bytes");
            serde_json::from_str::<serde_json::Value>(&text).expect("JSON")
        };
        let mut open = Authorization::default();
        assert!(connect(&mut open).get("user").is_none() && open.is_open());

        let mut token = Authorization { token: Some(Secret::new("s3cret")), ..Authorization::default() };
        assert_eq!(connect(&mut token)["auth_token"], "s3cret");

        let somebody = User { user: Some("a".into()), password: Some(Secret::new("b")), ..User::default() };
        let mut users = Authorization { users: vec![somebody], ..Authorization::default() };
        let said = connect(&mut users);
        assert_eq!((said["user"].as_str(), users.users.len()), (Some(ANNOUNCER), 2));
        assert!(said["pass"].as_str().expect("a password").len() == 64);
    }

    #[test]
    fn purges_name_each_host_that_visitors_may_use_here() {
        let urls = urls(&[SocketAddr::from(([0, 0, 0, 0], 8080))], "example.org");
        let inbox = Inbox { local: "a b".into(), domain: "example.org".into() };
        let all = urls(&inbox);
        assert_eq!(all.len(), 3);
        assert!(all[0].starts_with("http://127.0.0.1:8080/inbox/a%20b"), "{}", all[0]);
        assert!(
            all[1].starts_with("http://localhost:8080/inbox/") && all[2].starts_with("http://example.org/")
        );
    }
}
