//! `nighttrain serve`: accelerator, feed and mail in one process.
//!
//! ```text
//!  senders ──SMTP──▶ mail ──events──┬──▶ live pages, waits
//!                     ▲ questions   ├──▶ announce ──▶ feed ──NATS──▶ subscribers
//!                     │             └──▶ purge of the pages that have changed
//!  browsers ─HTTP─▶ accelerator ─HTTP─▶ pages
//! ```
//! Mail's own events are what pages, waits and purges go by; the feed is an outlet, on which nobody else may publish what mail
//! announces ([`keep_for_mail`]). The loops of the three share nothing but the processors. One admin port shows them all.
//! They stop in the order in which work flows: no new mail, then the pages, the accelerator, and the feed last.

mod announce;
mod samples;
mod subject;

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use feed::{
    Config,
    identity::{Entry, Reserved},
    monitor,
};
use mail::{
    mailboxes::{Inbox, Mailboxes},
    web::{self, Web},
};

use self::announce::{Announcer, Urls};
use crate::{
    accelerator::{self, Accelerator},
    admin::{self, Operated},
    cli::ServeTask,
    failure::Failure,
    feed::{Started as Feed, join_and_tell},
    mail::Started as Post,
    operated::Together,
    operation::{Operation, Signals, Sources, Wish, failed},
    print,
    run::origin_at,
    settings::Settings,
    units::size_text,
};

/// What SIGHUP changes; of the feed, what its own reload changes.
const CHANGEABLE: [&str; 3] = ["log", "drain-time-max", "banned"];

/// Runs everything until a signal ends it.
pub(crate) fn serve(task: &ServeTask) -> Result<(), Failure> {
    let sources =
        Sources { file: task.config.path(), flags: task.settings.0.clone(), complete: join_and_tell };
    let (mut operation, access) = Operation::begin(sources)?;
    let settings = operation.settings();
    let (runtime, signals) = Signals::caught()?;
    let admin_listener = admin::bind(settings.admin).map_err(failed("admin"))?;
    let servers = Servers::start(settings)?;
    let beside = vec![servers.web.counters(), servers.announcer.counters()];
    let all = Together::new(servers.operated(), beside);
    let admin_address = admin_listener.local_addr().map_err(failed("admin"))?;
    let purges = Arc::clone(&servers.accelerator) as Arc<dyn Accelerator>;
    admin::serve("admin", admin_listener, admin::pages(access, Arc::new(all), Some(purges)))
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
}

impl Servers {
    fn start(settings: &Settings) -> Result<Self, Failure> {
        let configuration = |fault| Failure::Configuration(vec![fault]);
        let mut config = settings.feed.config().map_err(configuration)?;
        keep_for_mail(&mut config, settings.mail.asks_for_token());
        let feed = Feed::start(config)?;
        let monitor_listener = admin::bind(settings.feed.monitor).map_err(failed("monitor"))?;
        let monitor = monitor_listener.local_addr().map_err(failed("monitor"))?;
        admin::serve("monitor", monitor_listener, monitor::router(Arc::clone(&feed), monitor))
            .map_err(failed("the monitoring pages cannot be served"))?;

        let post = Post::start(settings.mail.config(settings.cache.state.as_ref()).map_err(configuration)?)?;
        let http = TcpListener::bind(settings.mail.http)
            .map_err(|error| Failure::Failed(format!("cannot listen on {}: {error}", settings.mail.http)))?;
        let pages_at = http.local_addr().map_err(failed("mail pages"))?;

        let origin = settings.origin.clone().unwrap_or_else(|| origin_at(pages_at));
        let accelerator = accelerator::Started::start(settings.accelerator(origin))?;
        let Some(publisher) = feed.publisher() else {
            return Err(Failure::Failed("the feed has ended".to_owned()));
        };
        let mailstore = post.mailstore();
        let announcer = Announcer::start(
            publisher,
            || mailstore.events(),
            Arc::clone(&accelerator) as Arc<dyn Accelerator>,
            urls(accelerator.addresses(), &settings.mail.config.default_domain),
        )
        .map_err(failed("mail cannot be announced"))?;
        let pages = settings.mail.web(post.addresses().smtp).map_err(configuration)?;
        let web = web::serve(http, post.mailstore(), pages).map_err(failed("the pages cannot be served"))?;
        Ok(Self { accelerator, feed, post, web, announcer, monitor })
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

/// Keeps mail's subjects for what mail announces: nobody who connects may publish there. To subscribe is to see all mail, which
/// is for those who may see it on the pages: this machine where no token is configured. So where the feed is reached from
/// beyond it, or pages of any site may connect, or a token is asked for, users hear of mail only if their permissions name it.
fn keep_for_mail(config: &mut Config, token_is_asked_for: bool) {
    let all = || vec![Entry::of(subject::ALL)];
    let mut listeners =
        [Some(config.listen), config.websocket.as_ref().map(|web| web.listen)].into_iter().flatten();
    let here_alone = listeners.all(|listener| listener.ip().is_loopback());
    let any_page =
        config.websocket.as_ref().is_some_and(|web| web.allowed_origins.iter().any(|origin| origin == "*"));
    let is_shown = here_alone && !any_page && !token_is_asked_for;
    let subscribe = if is_shown { Vec::new() } else { all() };
    config.authorization.reserved = Reserved { publish: all(), subscribe };
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
    fn who_may_see_all_mail_may_hear_of_it() {
        let reserved = |listen: &str, websocket: Option<(&str, &[&str])>, token: bool| {
            let websocket = websocket.map(|(listen, origins)| feed::WebSocket {
                listen: listen.parse().expect("an address"),
                tls: None,
                allowed_origins: origins.iter().map(|&origin| origin.to_owned()).collect(),
            });
            let mut config =
                Config { listen: listen.parse().expect("an address"), websocket, ..Config::default() };
            keep_for_mail(&mut config, token);
            let reserved = config.authorization.reserved;
            assert_eq!(reserved.publish, [Entry::of("mail.>")]);
            reserved.subscribe == [Entry::of("mail.>")]
        };
        assert!(!reserved("127.0.0.1:4222", None, false));
        assert!(!reserved("[::1]:4222", Some(("127.0.0.1:8081", &["http://good.example"])), false));
        assert!(reserved("127.0.0.1:4222", None, true), "there is a token that it would go around");
        assert!(reserved("0.0.0.0:4222", None, false));
        assert!(reserved("192.0.2.1:4222", None, false));
        assert!(reserved("127.0.0.1:4222", Some(("0.0.0.0:8081", &[])), false));
        assert!(reserved("127.0.0.1:4222", Some(("127.0.0.1:8081", &["*"])), false));
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
