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

use std::{io::Read, net::SocketAddr, sync::Arc};

use feed::{
    identity::{Authorization, Secret, User},
    monitor::Watched,
};
use mail::{
    Mailstore,
    mailboxes::{Event, Inbox, Mail, MailId, Mailboxes, Scope, Summary, Totals, Unavailable},
    web,
};
use tokio::sync::broadcast;

use self::announce::{Announcer, Entrance, Urls};
use crate::{
    accelerator::{Accelerator, Purges},
    cache_settings::origin_text,
    cli::ServeTask,
    failure::{Failure, Fault},
    feed::{Feed, Make, join_and_tell},
    mail::Post,
    operation::{Operation, Sources, failed},
    run::origin_at,
    settings::Settings,
    shell::{self, Service, Started},
};

/// Who announces mail on a feed that asks for names.
const ANNOUNCER: &str = "nighttrain";

/// Runs everything until a signal ends it.
pub(crate) fn serve(task: &ServeTask) -> Result<(), Failure> {
    let sources =
        Sources { file: task.config.path(), flags: task.settings.0.clone(), complete: join_and_tell };
    let (operation, access) = Operation::begin(sources)?;
    shell::run(operation, access, |settings| start(settings, task.demo))
}

fn start(settings: &Settings, demo: bool) -> Result<Started, Failure> {
    let password: Arc<str> =
        password().map_err(|error| Failure::Failed(format!("no random bytes: {error}")))?.into();
    let feed = Feed::start(settings, feed_of(Arc::clone(&password)))?;
    let (post, http) = Post::start(settings)?;
    let (origin, in_front_of) = match &settings.origin {
        Some(origin) => (origin.clone(), origin_text(origin)),
        None => (origin_at(post.pages()), "the mail pages".to_owned()),
    };
    let accelerator = Accelerator::start(settings.accelerator(origin), in_front_of, false)?;
    let Some(&address) = feed.addresses().first() else {
        return Err(Failure::Failed("the feed listens nowhere".to_owned()));
    };
    let of = Arc::clone(&feed);
    let announcer = Announcer::start(
        Entrance {
            address: reachable(address),
            connect: Box::new(move || connect_of(&Watched::config(&*of).authorization, &password)),
        },
        post.mailstore().events(),
        Arc::clone(&accelerator) as Arc<dyn Purges>,
        urls(accelerator.addresses(), &settings.mail.config.default_domain),
    )
    .map_err(failed("mail cannot be announced"))?;
    let announced = Announced { stored: post.mailstore(), events: announcer.events() };
    let web = post.show(http, announced, settings)?;
    if demo {
        samples::trickle(post.addresses().smtp).map_err(failed("samples cannot be sent"))?;
    }
    let hint = match accelerator.addresses().first() {
        Some(address) if demo => format!(
            "Open http://{address}/inbox/{} in a browser: a sample mail arrives every {} seconds.\n\
             See them on the feed: nighttrain feed sub '{}'. Ctrl-C stops.\n",
            samples::RECIPIENT,
            samples::EVERY.as_secs(),
            subject::ALL,
        ),
        _ => String::new(),
    };
    Ok(Started {
        beside: vec![web, announcer.counters(), feed.monitor_counters()],
        purges: Some(Arc::clone(&accelerator) as Arc<dyn Purges>),
        services: vec![accelerator as Arc<dyn Service>, feed, post],
        hint,
    })
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

/// The feed's configuration with the announcer let in.
fn feed_of(password: Arc<str>) -> Make {
    Box::new(move |settings| {
        let mut config = settings.feed.config()?;
        if config.tls.is_some() {
            let message = "mail is announced on this feed without TLS, so `serve` cannot demand it of all; \
                           run `nighttrain feed` by itself for that";
            return Err(Fault { place: "[feed] tls-cert".to_owned(), message: message.to_owned() });
        }
        admit(&mut config.authorization, &password);
        Ok(config)
    })
}

fn password() -> std::io::Result<String> {
    let mut bytes = [0_u8; 32];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Lets the announcer in: as it is where anyone may come in or a token is asked for, else as a user of its own.
fn admit(authorization: &mut Authorization, password: &str) {
    if !authorization.is_open() && !matches!(authorization.token, Some(Secret::Plain(_))) {
        authorization.users.push(User {
            user: Some(ANNOUNCER.to_owned()),
            password: Some(Secret::new(password)),
            ..User::default()
        });
    }
}

/// What the announcer says in CONNECT, whatever the feed asks for now: a reload may have changed it.
fn connect_of(authorization: &Authorization, password: &str) -> String {
    let mut connect = serde_json::json!({
        "verbose": false, "pedantic": false, "name": "nighttrain mail", "lang": "rust",
        "version": env!("CARGO_PKG_VERSION"), "protocol": 1,
    });
    if let Some(Secret::Plain(token)) = &authorization.token {
        connect["auth_token"] = serde_json::json!(&**token);
    } else if !authorization.is_open() {
        connect["user"] = serde_json::json!(ANNOUNCER);
        connect["pass"] = serde_json::json!(password);
    }
    connect.to_string()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announcer_comes_in_whatever_the_feed_asks_for() {
        let connect = |authorization: &mut Authorization| {
            admit(authorization, "s3same");
            serde_json::from_str::<serde_json::Value>(&connect_of(authorization, "s3same")).expect("JSON")
        };
        let mut open = Authorization::default();
        assert!(connect(&mut open).get("user").is_none() && open.is_open());

        let mut token = Authorization { token: Some(Secret::new("s3cret")), ..Authorization::default() };
        assert_eq!(connect(&mut token)["auth_token"], "s3cret");

        let somebody = User { user: Some("a".into()), password: Some(Secret::new("b")), ..User::default() };
        let mut users = Authorization { users: vec![somebody], ..Authorization::default() };
        let said = connect(&mut users);
        assert_eq!((said["user"].as_str(), users.users.len()), (Some(ANNOUNCER), 2));
        assert_eq!(said["pass"], "s3same");
        assert_eq!(password().expect("random bytes").len(), 64);
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
