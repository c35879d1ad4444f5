//! Publishes mail's events on the feed, and purges changed pages from the accelerator's store.
//!
//! ```text
//!  crate mail ──broadcast──▶ announce ──in this process──▶ crate feed ──MSG──▶ nighttrain feed sub 'mail.>'
//!       │                 └▶ purge: inboxes whose page has changed ──▶ accelerator
//!       └──broadcast──▶ live pages, waits
//! ```
//! Nothing flows back: messages from the feed's clients reach neither pages nor store. *Thread:* one,
//! "announce", with a runtime of its own. *Bounds:* events wait in mail's ring; a receiver that lags loses
//! the oldest, learns of it, and publishes that fact (`mail.missed`). Inboxes to purge wait in a set of
//! [`PURGES_MAX`]; if a purge does not fit or was lost, the page becomes stale by itself, because it is fresh
//! for only one second. *Waiting:* no server waits for this thread, whatever the feed's clients do.

use std::{
    collections::HashSet,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use engine::meter::{Family, Point, Source, Unit, Value};
use feed::Publisher;
use mail::mailboxes::{Event, Inbox};
use tokio::{
    sync::broadcast::{
        Receiver,
        error::{RecvError, TryRecvError},
    },
    time::{MissedTickBehavior, interval, sleep},
};

use super::subject::announcement;
use crate::admin::Purger;

/// Maximum number of inboxes that wait for a purge.
const PURGES_MAX: usize = 4096;
/// Interval over which purges are collected: all arrivals in an inbox during this time cause one purge.
const PURGE_EVERY: Duration = Duration::from_millis(50);
/// Pause before retrying a batch that the feed did not accept.
const RETRY: Duration = Duration::from_millis(5);
/// Maximum number of events that are published together.
const BATCH: usize = 256;

/// Thread that carries mail's events to the feed and the accelerator.
pub(crate) struct Announcer {
    counts: Arc<Counts>,
}

/// Function that returns every URL under which the accelerator stores an inbox's first page.
pub(crate) type InboxUrls = Box<dyn Fn(&Inbox) -> Vec<String> + Send + Sync>;

#[derive(Debug, Default)]
struct Counts {
    announced: AtomicU64,
    lost: AtomicU64,
    purged: AtomicU64,
    purges_dropped: AtomicU64,
    retries: AtomicU64,
}

impl Source for Counts {
    fn collect(&self, families: &mut Vec<Family>) {
        for (name, help, count) in [
            ("announce_events", "Mail events published on the feed", &self.announced),
            (
                "announce_lost",
                "Times that mail events were lost on their way to the feed; announced as mail.missed",
                &self.lost,
            ),
            (
                "announce_purges",
                "Pages dropped from the accelerator's store because of an event",
                &self.purged,
            ),
            ("announce_purges_dropped", "Purges dropped; the pages expire by age", &self.purges_dropped),
            ("announce_retries", "Times that publishing to the feed was retried", &self.retries),
        ] {
            let point = Point { labels: Vec::new(), value: Value::Counter(count.load(Relaxed)) };
            families.push(Family { name, help, unit: Unit::None, points: vec![point] });
        }
    }
}

impl Announcer {
    /// Starts the thread; `events` returns a new receiver at each call.
    ///
    /// # Errors
    /// Returns the system's error if the thread cannot start.
    pub(crate) fn start(
        publisher: Publisher,
        events: impl Fn() -> Receiver<Event>,
        accelerator: Arc<dyn Purger>,
        urls: InboxUrls,
    ) -> io::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build()?;
        let counts = Arc::new(Counts::default());
        let counting = Arc::clone(&counts);
        let (to_announce, to_purge) = (events(), events());
        std::thread::Builder::new().name("announce".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::join!(
                    announce(to_announce, publisher, &counting),
                    purge(to_purge, accelerator, &urls, &counting)
                );
            });
        })?;
        Ok(Self { counts })
    }

    /// Returns the counters.
    pub(crate) fn counters(&self) -> Arc<dyn Source> {
        Arc::clone(&self.counts) as Arc<dyn Source>
    }
}

/// Publishes events until the mail service has ended.
async fn announce(mut events: Receiver<Event>, mut publisher: Publisher, counts: &Counts) {
    let mut lost_in_feed = 0;
    loop {
        match events.recv().await {
            Ok(event) => put(&mut publisher, &event, counts).await,
            Err(RecvError::Lagged(_)) => put(&mut publisher, &Event::Missed, counts).await,
            Err(RecvError::Closed) => return,
        }
        for _ in 1..BATCH {
            match events.try_recv() {
                Ok(event) => put(&mut publisher, &event, counts).await,
                Err(TryRecvError::Lagged(_)) => put(&mut publisher, &Event::Missed, counts).await,
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            }
        }
        if publisher.lost() > lost_in_feed {
            lost_in_feed = publisher.lost();
            put(&mut publisher, &Event::Missed, counts).await;
        }
        send(&mut publisher, counts).await;
    }
}

/// Adds an event to the batch; a full batch is sent first.
async fn put(publisher: &mut Publisher, event: &Event, counts: &Counts) {
    let Some((subject, message)) = announcement(event) else { return };
    while !publisher.add(&subject, &message) {
        send(publisher, counts).await;
    }
    match event {
        Event::Missed => counts.lost.fetch_add(1, Relaxed),
        _ => counts.announced.fetch_add(1, Relaxed),
    };
}

/// Sends the batch, and retries while the feed does not accept it. Meanwhile events wait in mail's ring.
async fn send(publisher: &mut Publisher, counts: &Counts) {
    while publisher.send().is_err() {
        counts.retries.fetch_add(1, Relaxed);
        sleep(RETRY).await;
    }
}

/// Purges the pages of changed inboxes until the mail service has ended.
async fn purge(mut events: Receiver<Event>, accelerator: Arc<dyn Purger>, urls: &InboxUrls, counts: &Counts) {
    let mut every = interval(PURGE_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut gathered = HashSet::new();
    loop {
        let received = tokio::select! {
            received = events.recv() => received,
            _ = every.tick(), if !gathered.is_empty() => {
                let all: Vec<String> = gathered.drain().flat_map(|inbox: Inbox| urls(&inbox)).collect();
                let accelerator = Arc::clone(&accelerator);
                // A purge waits for the core that owns the page, so it must not run on this runtime's thread.
                let purged = tokio::task::spawn_blocking(move || {
                    all.iter().filter(|url| matches!(accelerator.drop_url(url), Ok(cache::PurgeResult::Dropped(_)))).count()
                });
                counts.purged.fetch_add(purged.await.unwrap_or(0) as u64, Relaxed);
                continue;
            }
        };
        let inbox = match received {
            Ok(Event::Arrived(summary)) => summary.inbox.clone(),
            Ok(Event::Deleted { inbox, .. }) => inbox,
            // Pages that list the mail of all inboxes are not stored.
            Ok(Event::Over { .. }) => continue,
            Ok(Event::Missed) | Err(RecvError::Lagged(_)) => {
                counts.purges_dropped.fetch_add(1, Relaxed);
                continue;
            }
            Err(RecvError::Closed) => return,
        };
        if gathered.len() < PURGES_MAX || gathered.contains(&inbox) {
            gathered.insert(inbox);
        } else {
            counts.purges_dropped.fetch_add(1, Relaxed);
        }
    }
}
