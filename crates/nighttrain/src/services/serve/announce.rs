//! Publishes mail's events on the feed, and tells the accelerator which pages have changed.
//!
//! ```text
//!  crate mail ──broadcast──▶ announce ──in this process──▶ crate feed ──MSG──▶ nighttrain feed sub 'mail.>'
//!       │                 └▶ changes: inboxes whose pages it may hold ──▶ accelerator
//!       └──broadcast──▶ live pages, waits
//! ```
//! Nothing flows back: messages from the feed's clients reach neither pages nor store. *Thread:* one,
//! "announce", with a runtime of its own. *Bounds:* events wait in mail's ring; a receiver that lags loses
//! the oldest, learns of it, and publishes that fact (`mail.missed`). Tags of changed pages wait in a set of
//! [`CHANGES_MAX`]; if one does not fit or an event was lost, all pages of inboxes count as changed.
//! *Waiting:* no server waits for this thread, whatever the feed's clients do.

use std::{
    collections::HashSet,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use cache::PurgeError;
use engine::meter::{Family, Point, Source, Unit, Value};
use feed::Publisher;
use mail::{
    mailboxes::Event,
    web::{self, HandedOutPages, PageChange},
};
use tokio::{
    sync::broadcast::{
        Receiver,
        error::{RecvError, TryRecvError},
    },
    time::{MissedTickBehavior, interval, sleep},
};

use super::subject::announcement;
use crate::admin::Purger;

/// Maximum number of changed inboxes that wait.
const CHANGES_MAX: usize = 1024;
/// Interval over which changes are collected. A reader sees a mail within a second of its 250; what the
/// accelerator allows leaves room for two such intervals.
const CHANGES_EVERY: Duration = Duration::from_millis(50);
/// Pause before retrying a batch that the feed did not accept.
const RETRY: Duration = Duration::from_millis(5);
/// Maximum number of events that are published together.
const BATCH: usize = 256;

/// Thread that carries mail's events to the feed and the accelerator.
pub(crate) struct Announcer {
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    announced: AtomicU64,
    lost: AtomicU64,
    changes: AtomicU64,
    changes_lost: AtomicU64,
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
                "Inboxes whose pages the accelerator was told to renew or drop because of an event",
                &self.changes,
            ),
            (
                "announce_purges_dropped",
                "Times that changes were lost, so that the accelerator was told to renew the pages of all inboxes",
                &self.changes_lost,
            ),
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
        handed_out: Arc<HandedOutPages>,
    ) -> io::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build()?;
        let counts = Arc::new(Counts::default());
        let counting = Arc::clone(&counts);
        let (to_announce, to_tell) = (events(), events());
        std::thread::Builder::new().name("announce".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::join!(
                    announce(to_announce, publisher, &counting),
                    tell_changes(to_tell, accelerator, &handed_out, &counting)
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

/// Changed pages of which the accelerator is to be told.
#[derive(Debug, Default)]
struct Changes {
    /// Tags of lists in which mail has arrived.
    arrived: HashSet<String>,
    /// Tags of inboxes from which mail was deleted.
    deleted: HashSet<String>,
    /// True if changes are unknown.
    is_lost: bool,
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.arrived.is_empty() && self.deleted.is_empty() && !self.is_lost
    }

    fn put(&mut self, tag: String, is_deletion: bool) {
        let tags = if is_deletion { &mut self.deleted } else { &mut self.arrived };
        if tags.len() < CHANGES_MAX {
            tags.insert(tag);
        } else {
            self.is_lost |= !tags.contains(&tag);
        }
    }

    /// Tells the accelerator; returns the number of inboxes. Blocks.
    fn tell(self, accelerator: &dyn Purger) -> Result<u64, PurgeError> {
        if self.is_lost {
            // Events are lost in a flood. If all lists were dropped then, the flood would reach their readers.
            return accelerator.note_changes(&[], false).map(|()| 0);
        }
        let mut told = 0;
        for (tags, is_deletion) in [(self.arrived, false), (self.deleted, true)] {
            let tags: Vec<String> = tags.into_iter().collect();
            if !tags.is_empty() {
                accelerator.note_changes(&tags, is_deletion)?;
                told += tags.len() as u64;
            }
        }
        Ok(told)
    }
}

/// Tells the accelerator which pages have changed, until the mail service has ended.
async fn tell_changes(
    mut events: Receiver<Event>,
    accelerator: Arc<dyn Purger>,
    handed_out: &HandedOutPages,
    counts: &Counts,
) {
    let mut every = interval(CHANGES_EVERY);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut changes = Changes::default();
    let mut by_users = handed_out.changes();
    loop {
        let received = tokio::select! {
            received = events.recv() => received,
            changed = by_users.recv() => {
                match changed {
                    Ok(PageChange { inbox, is_deletion: true }) => changes.put(web::inbox_tag(&inbox), true),
                    Ok(PageChange { inbox, is_deletion: false }) => changes.put(web::list_tag(&inbox), false),
                    Err(RecvError::Lagged(_)) => changes.is_lost = true,
                    // The sender is in `handed_out`.
                    Err(RecvError::Closed) => {}
                }
                continue;
            }
            _ = every.tick(), if !changes.is_empty() => {
                counts.changes_lost.fetch_add(u64::from(changes.is_lost), Relaxed);
                let (told, accelerator) = (std::mem::take(&mut changes), Arc::clone(&accelerator));
                // A core's ring may be full, so it must not be told on this runtime's thread.
                let told = tokio::task::spawn_blocking(move || told.tell(&*accelerator));
                match told.await {
                    Ok(Ok(told)) => _ = counts.changes.fetch_add(told, Relaxed),
                    // Told again, and more widely.
                    _ => changes.is_lost = true,
                }
                continue;
            }
        };
        match received {
            Ok(Event::Arrived(summary)) if handed_out.may_be_cached(&summary.inbox) => {
                changes.put(web::list_tag(&summary.inbox), false);
            }
            Ok(Event::Deleted { inbox, .. }) if handed_out.may_be_cached(&inbox) => {
                changes.put(web::inbox_tag(&inbox), true);
            }
            // Pages that list the mail of all inboxes are not stored.
            Ok(Event::Arrived(_) | Event::Deleted { .. } | Event::Over { .. }) => {}
            Ok(Event::Missed) | Err(RecvError::Lagged(_)) => changes.is_lost = true,
            Err(RecvError::Closed) => return,
        }
    }
}
