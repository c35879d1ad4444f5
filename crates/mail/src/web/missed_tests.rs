//! Tests that waits and lists repeat their lookup after events were lost, so that they do not wait for a mail
//! that is already stored.

use std::{
    io::{BufRead, BufReader},
    net::{IpAddr, TcpListener},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use engine::cores::clock;
use tokio::sync::broadcast;

use super::{Config, Web, serve};
use crate::{
    mailbox::{
        mailboxes::{
            Event, Inbox, Mail, MailId, Mailboxes, ReadBudget, RemainingName, Scope, Summary, Totals,
            Unavailable,
        },
        twin::{Retention, Twin},
    },
    store::annotations::{Note, RecoveredNote},
};

/// Way in which events get lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// The listener lags from the beginning.
    Lag,
    /// Events are lost before the broadcast, which reports the loss after the mail has arrived.
    BeforeTheBroadcast,
}

/// The twin with a mail that arrives just after a lookup, so that the lookup misses it; the mail's event may
/// be lost.
#[derive(Clone)]
struct LossyMailboxes {
    twin: Twin,
    events: broadcast::Sender<Event>,
    loss: Loss,
    /// Number of lookups after which the mail arrives.
    arrives_after: usize,
    is_told: bool,
    looks: Arc<AtomicUsize>,
}

impl LossyMailboxes {
    fn serve(loss: Loss, arrives_after: usize, is_told: bool) -> Web {
        let twin = Twin::new(Retention::default(), "night.test");
        let events = broadcast::channel(2).0;
        let mailboxes = Self { twin, events, loss, arrives_after, is_told, looks: Arc::default() };
        let config = Config { domain: "night.test".to_owned(), ..Config::default() };
        serve(TcpListener::bind("127.0.0.1:0").unwrap(), mailboxes, config).unwrap()
    }
}

impl Mailboxes for LossyMailboxes {
    async fn list(&self, scope: &Scope, skip: usize, limit: usize) -> Result<Vec<Arc<Summary>>, Unavailable> {
        let found = self.twin.list(scope, skip, limit).await;
        if self.looks.fetch_add(1, Ordering::Relaxed) + 1 == self.arrives_after {
            let to = ["ann".to_owned()];
            self.twin.deliver_at(clock::unix_ms(), "a@b.test", &to, b"Subject: here\r\n\r\n").unwrap();
            let arrived = self.twin.list(&Scope::All, 0, 1).await?.remove(0);
            if self.is_told {
                let _ = self.events.send(Event::Arrived(arrived));
            } else if self.loss == Loss::BeforeTheBroadcast {
                let _ = self.events.send(Event::Missed);
            }
        }
        found
    }

    async fn count(&self, scope: &Scope) -> Result<u64, Unavailable> {
        self.twin.count(scope).await
    }

    async fn find(&self, scope: &Scope, ids: &[MailId]) -> Result<Vec<Arc<Summary>>, Unavailable> {
        self.twin.find(scope, ids).await
    }

    async fn mail_into<R: ReadBudget>(
        &self,
        scope: &Scope,
        id: MailId,
        room: R,
    ) -> Result<Option<(Mail, R)>, Unavailable> {
        self.twin.mail_into(scope, id, room).await
    }

    async fn names_of(&self, letter: MailId) -> Result<Vec<MailId>, Unavailable> {
        self.twin.names_of(letter).await
    }

    async fn delete(&self, scope: &Scope, id: MailId) -> Result<bool, Unavailable> {
        self.twin.delete(scope, id).await
    }

    async fn delete_all(&self, scope: &Scope) -> Result<u64, Unavailable> {
        self.twin.delete_all(scope).await
    }

    async fn expire_early(&self, ids: &[MailId], expires_ms: u64) -> Result<(), Unavailable> {
        self.twin.expire_early(ids, expires_ms).await
    }

    async fn write_note(&self, notes: Vec<(MailId, Note)>) -> Result<(), Unavailable> {
        self.twin.write_note(notes).await
    }

    fn take_recovered_notes(&self) -> Vec<RecoveredNote> {
        self.twin.take_recovered_notes()
    }

    async fn deliver(
        &self,
        peer: IpAddr,
        from: &str,
        to: &[String],
        raw: &[u8],
    ) -> Result<Vec<MailId>, Unavailable> {
        self.twin.deliver(peer, from, to, raw).await
    }

    fn events(&self) -> broadcast::Receiver<Event> {
        let receiver = self.events.subscribe();
        if self.loss == Loss::Lag {
            let inbox = Inbox::of("bob", "night.test").unwrap();
            for number in 0..10 {
                let (inbox, id) = (inbox.clone(), MailId(number));
                let _ = self.events.send(Event::Deleted { inbox, id, remains: RemainingName::Nothing });
            }
        }
        receiver
    }

    fn totals(&self) -> Totals {
        self.twin.totals()
    }
}

fn get(web: &Web, path: &str) -> serde_json::Value {
    let url = format!("http://{}{path}", web.address());
    let text = ureq::get(&url).call().unwrap().into_body().read_to_string().unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A wait looks up once when it begins, and again whenever it missed events.
#[test]
fn a_wait_finds_mail_after_lost_events() {
    for (loss, arrives_after, is_told) in
        [(Loss::Lag, 1, false), (Loss::BeforeTheBroadcast, 1, false), (Loss::Lag, 2, true)]
    {
        let web = LossyMailboxes::serve(loss, arrives_after, is_told);
        let mail = get(&web, "/api/v2/domains/public/inboxes/ann/wait?timeout=30s");
        assert_eq!(mail["subject"], "here", "{loss:?}");
    }
}

/// A waiting list looks up once, again after it has subscribed, and whenever a mail arrives or events were
/// missed.
#[test]
fn a_waiting_list_finds_mail_despite_lost_events() {
    for (loss, arrives_after, is_told) in [
        (Loss::Lag, 1, false),
        (Loss::Lag, 2, false),
        (Loss::BeforeTheBroadcast, 2, false),
        // The missed events did not concern this list, so it keeps waiting.
        (Loss::Lag, 3, true),
    ] {
        let web = LossyMailboxes::serve(loss, arrives_after, is_told);
        let list = get(&web, "/api/v2/domains/public/inboxes/ann?wait=30s");
        assert_eq!(list["msgs"][0]["subject"], "here", "{loss:?} after {arrives_after}");
    }
}

#[test]
fn a_stream_announces_missed_events() {
    let web = LossyMailboxes::serve(Loss::Lag, 0, false);
    for (path, expected) in [
        ("/api/v2/domains/public/stream/ann", "event: missed"),
        ("/inbox/ann@night.test/events", "event: reload"),
    ] {
        let url = format!("http://{}{path}", web.address());
        let answer = ureq::get(&url).call().unwrap();
        let lines = BufReader::new(answer.into_body().into_reader()).lines();
        assert!(lines.map(|line| line.unwrap()).any(|line| line == expected), "{path}");
    }
}
