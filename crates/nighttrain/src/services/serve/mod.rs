//! `nighttrain serve`: accelerator, feed and mail in one process.
//!
//! ```text
//!  senders ──SMTP──▶ mail ──events──┬──▶ live pages, waits
//!                     ▲ questions   ├──▶ announce ──▶ feed ──NATS──▶ subscribers
//!                     │             └──▶ purge of the pages that have changed
//!  browsers ─HTTP─▶ accelerator ─HTTP─▶ pages
//! ```
//! Pages, waits and purges are driven by mail's own events; the feed only publishes them, and no client may
//! publish on mail's subjects ([`keep_for_mail`]). The loops of the three servers share nothing but the
//! cores. One admin port serves all three. They stop in the order in which data flows: first no new mail,
//! then the pages, the accelerator, and the feed last.

mod announce;
mod samples;
mod subject;

use std::{net::SocketAddr, sync::Arc};

use engine::{journal::Journal, tls::certificates::Certificates as Table};
use feed::{
    Config,
    identity::{Entry, ReservedSubjects},
};
use mail::mailboxes::Mailboxes;

use self::announce::Announcer;
use crate::{
    admin::Purger,
    cli::ServeTask,
    failure::{Failure, Fault, failed, fault},
    machine::ServerSet,
    services::{
        accelerator::{Accelerator, OriginChoice},
        cache_command::origin_at,
        certificates::Certificates,
        feed::{Feed, join_nats_config_and_warn},
        mail::MailService,
        operation::{ConfigSources, RunningCommand},
        shell::{self, Service, ServiceSet},
    },
    settings::Settings,
};

/// Runs all servers until a signal ends them.
pub(crate) fn serve(task: &ServeTask) -> Result<(), Failure> {
    let sources = ConfigSources {
        file: task.config.path(),
        flags: task.settings.0.clone(),
        complete: Box::new(join_nats_config_and_warn),
        servers: ServerSet::ALL,
    };
    let (operation, access) = RunningCommand::begin(sources)?;
    shell::run(operation, access, |settings, journal| start(settings, journal, task.demo))
}

fn start(settings: &Settings, journal: Option<&Arc<Journal>>, demo: bool) -> Result<ServiceSet, Failure> {
    let certificates = Certificates::of(settings).map_err(|fault| Failure::Configuration(vec![fault]))?;
    let shared = certificates.as_ref().map(|certificates| Arc::clone(&certificates.tls.certificates));
    let of_feed = shared.clone();
    let feed = Feed::start(settings, journal, Box::new(move |settings| feed_of(settings, of_feed.as_ref())))?;
    let (post, http) = MailService::start(settings, shared.as_ref(), journal)?;
    let in_front_of = match &settings.origin {
        Some(origin) => origin.to_string(),
        None if settings.mail.has_pages_under_tls() => {
            let message = "the accelerator is in front of the pages and connects to them by http; visitors use https \
                           at tls-listen of [cache]";
            return Err(fault("http-tls", message.to_owned()));
        }
        None => "the mail pages".to_owned(),
    };
    let pages = origin_at(post.pages());
    let origin_of: OriginChoice =
        Box::new(move |settings| Some(settings.origin.clone().unwrap_or_else(|| pages.clone())));
    let accelerator =
        Accelerator::start(settings, origin_of, certificates.clone(), journal, in_front_of, false)?;
    let Some(publisher) = feed.publisher() else {
        return Err(Failure::Failed("the feed has ended".to_owned()));
    };
    let mailstore = post.mailstore();
    let announcer = Announcer::start(
        publisher,
        || mailstore.events(),
        Arc::clone(&accelerator) as Arc<dyn Purger>,
        post.handed_out(),
    )
    .map_err(failed("cannot announce mail on the feed"))?;
    // The accelerator connects to the pages from the same address, which belongs to this machine.
    let in_front = settings.origin.is_none().then(|| reachable(post.pages()).ip());
    let web = post.show(http, mailstore.clone(), settings, in_front)?;
    if demo {
        samples::trickle(reachable(post.addresses().smtp)).map_err(failed("cannot send sample mails"))?;
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
    let mut beside = vec![web, announcer.counters(), feed.monitor_counters()];
    beside.extend(accelerator.cluster_counters());
    beside.extend(certificates.as_ref().and_then(|certificates| certificates.counters()));
    Ok(ServiceSet {
        beside,
        certificates: shared,
        purges: Some(Arc::clone(&accelerator) as Arc<dyn Purger>),
        services: vec![accelerator as Arc<dyn Service>, feed, post],
        hint,
    })
}

/// Returns the address to connect to: loopback for a server that listens on every address.
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

/// Builds the feed's configuration, with mail's subjects reserved for mail.
fn feed_of(settings: &Settings, shared: Option<&Arc<Table>>) -> Result<Config, Fault> {
    let mut config = settings.feed.config(shared)?;
    keep_for_mail(&mut config, settings.mail.asks_for_token());
    Ok(config)
}

/// Reserves mail's subjects for mail's own events: no client may publish there. A subscriber would see all
/// mail, which is meant for those who may see it on the pages: this machine if no token is configured.
/// If the feed listens beyond this machine or accepts web pages of any origin, or if mail demands a token,
/// users receive mail's subjects only if their permissions name them.
fn keep_for_mail(config: &mut Config, token_is_asked_for: bool) {
    let all = || vec![Entry::of(subject::ALL)];
    let mut listeners =
        [Some(config.listen), config.websocket.as_ref().map(|web| web.listen)].into_iter().flatten();
    let here_alone = listeners.all(|listener| listener.ip().is_loopback());
    let any_page =
        config.websocket.as_ref().is_some_and(|web| web.allowed_origins.iter().any(|origin| origin == "*"));
    let is_shown = here_alone && !any_page && !token_is_asked_for;
    let subscribe = if is_shown { Vec::new() } else { all() };
    config.authorization.reserved = ReservedSubjects { publish: all(), subscribe };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_events_need_access_to_all_mail() {
        let reserved = |listen: &str, websocket: Option<(&str, &[&str])>, token: bool| {
            let websocket = websocket.map(|(listen, origins)| feed::WebSocket {
                listen: listen.parse().expect("an address"),
                tls: None,
                allowed_origins: origins.iter().map(|&origin| origin.to_owned()).collect(),
                same_origin: false,
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
}
