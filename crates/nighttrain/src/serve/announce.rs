//! Mail's events go out over the feed, and come back over it to the live pages and to the accelerator's store.
//!
//! ```text
//!  crate mail ──events──▶ publisher ──PUB mail.…──▶ crate feed ──MSG──▶ follower ──▶ live pages
//!                                                      │                  └─▶ inboxes to purge ──▶ accelerator
//!                                                      └──▶ anyone: nighttrain feed sub 'mail.>'
//! ```
//! *Which thread:* one, "announce", with a loop of its own: both sides are plain clients of the feed. *What is bounded:*
//! events wait in mail's ring, and who lags loses the oldest, counted; inboxes to purge wait in a set of
//! [`PURGES_MAX`], and what does not fit goes stale by itself within the second for which a page is fresh. *Who waits:*
//! nobody of the servers. When the feed is gone, both sides come back to it.

use std::{
    collections::HashSet,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use engine::meter::{Family, Point, Source, Unit, Value};
use mail::mailboxes::Event;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::broadcast::{self, error::RecvError},
    time::sleep,
};
use wire::nats::{
    Progress,
    server::{self, ServerOp},
    write,
};

use super::subject::{ALL, event, message, subject};
use crate::accelerator::Accelerator;

/// Events that may lie in the follower's ring.
const FOLLOWED_MAX: usize = 4096;
/// Inboxes that may wait for a purge.
const PURGES_MAX: usize = 4096;
/// How long purges are gathered: one for all arrivals of that time in an inbox.
const PURGE_EVERY: Duration = Duration::from_millis(50);
/// Before the feed is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// Events that leave in one write.
const BATCH: usize = 256;
const READ_BYTES: usize = 64 << 10;

/// What connects mail, feed and accelerator.
pub(crate) struct Announcer {
    followed: broadcast::Sender<Event>,
    counts: Arc<Counts>,
}

/// How the feed is entered.
#[derive(Debug, Clone)]
pub(crate) struct Entrance {
    /// Where it listens.
    pub address: SocketAddr,
    /// The JSON of CONNECT.
    pub connect: String,
}

/// What is purged for an inbox: every URL under which the accelerator knows its first page.
pub(crate) type Urls = Box<dyn Fn(&mail::mailboxes::Inbox) -> Vec<String> + Send + Sync>;

#[derive(Debug, Default)]
struct Counts {
    announced: AtomicU64,
    followed: AtomicU64,
    lost: AtomicU64,
    purged: AtomicU64,
    purges_dropped: AtomicU64,
    reconnects: AtomicU64,
}

impl Source for Counts {
    fn collect(&self, families: &mut Vec<Family>) {
        for (name, help, count) in [
            ("announce_events", "Mail events published on the feed", &self.announced),
            ("announce_followed", "Mail events that came back over the feed", &self.followed),
            ("announce_lost", "Mail events that were lost because the feed was slow or gone", &self.lost),
            (
                "announce_purges",
                "Pages dropped from the accelerator's store because of an event",
                &self.purged,
            ),
            ("announce_purges_dropped", "Purges left to the page's own age", &self.purges_dropped),
            ("announce_reconnects", "Times that the feed was entered anew", &self.reconnects),
        ] {
            let point = Point { labels: Vec::new(), value: Value::Counter(count.load(Relaxed)) };
            families.push(Family { name, help, unit: Unit::None, points: vec![point] });
        }
    }
}

impl Announcer {
    /// Starts the thread.
    ///
    /// # Errors
    /// What the system says of the thread.
    pub(crate) fn start(
        entrance: Entrance,
        events: broadcast::Receiver<Event>,
        accelerator: Arc<dyn Accelerator>,
        urls: Urls,
    ) -> io::Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build()?;
        let counts = Arc::new(Counts::default());
        let followed = broadcast::channel(FOLLOWED_MAX).0;
        let (counting, telling) = (Arc::clone(&counts), followed.clone());
        std::thread::Builder::new().name("announce".to_owned()).spawn(move || {
            runtime.block_on(async {
                let (dirty, to_purge) = tokio::sync::mpsc::channel(PURGES_MAX);
                tokio::join!(
                    publish(&entrance, events, &counting),
                    follow(&entrance, &telling, &dirty, &counting),
                    purge(to_purge, accelerator, &urls, &counting),
                );
            });
        })?;
        Ok(Self { followed, counts })
    }

    /// Events as they came back over the feed.
    pub(crate) fn events(&self) -> broadcast::Sender<Event> {
        self.followed.clone()
    }

    /// What it counts.
    pub(crate) fn counters(&self) -> Arc<dyn Source> {
        Arc::clone(&self.counts) as Arc<dyn Source>
    }
}

/// A client of the feed: what it has read and not used yet.
struct Feed {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Feed {
    async fn enter(entrance: &Entrance) -> io::Result<Self> {
        let stream = TcpStream::connect(entrance.address).await?;
        stream.set_nodelay(true)?;
        let mut feed = Self { stream, read: Vec::with_capacity(READ_BYTES) };
        let mut hello = Vec::new();
        write::connect(&mut hello, entrance.connect.as_bytes());
        hello.extend_from_slice(b"PING\r\n");
        feed.stream.write_all(&hello).await?;
        // Until the PONG the feed may still refuse.
        let mut entered = false;
        while !entered {
            feed.fill().await?;
            feed.take(|op| entered |= matches!(op, ServerOp::Pong)).await?;
        }
        Ok(feed)
    }

    /// Reads once.
    async fn fill(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Takes what has come whole, and answers PINGs.
    async fn take(&mut self, mut tell: impl FnMut(&ServerOp<'_>)) -> io::Result<()> {
        let (mut done, mut pings) = (0, 0);
        loop {
            match server::parse(&self.read[done..]) {
                Ok(Progress::Complete(op, bytes)) => {
                    done += bytes;
                    match op {
                        ServerOp::Ping => pings += 1,
                        ServerOp::Error { text } => {
                            return Err(io::Error::other(String::from_utf8_lossy(text).into_owned()));
                        }
                        op => tell(&op),
                    }
                }
                Ok(Progress::NeedMore(_)) => break,
                Err(fault) => return Err(io::Error::other(fault.to_string())),
            }
        }
        self.read.drain(..done);
        for _ in 0..pings {
            self.stream.write_all(b"PONG\r\n").await?;
        }
        Ok(())
    }
}

async fn publish(entrance: &Entrance, mut events: broadcast::Receiver<Event>, counts: &Counts) {
    loop {
        match publish_until_gone(entrance, &mut events, counts).await {
            Ok(()) => return,
            Err(error) => tracing::warn!("announcing mail: the feed is gone ({error}); trying again"),
        }
        counts.reconnects.fetch_add(1, Relaxed);
        sleep(RETRY).await;
    }
}

/// Returns when mail has ended.
async fn publish_until_gone(
    entrance: &Entrance,
    events: &mut broadcast::Receiver<Event>,
    counts: &Counts,
) -> io::Result<()> {
    let mut feed = Feed::enter(entrance).await?;
    let mut out = Vec::new();
    loop {
        let first = tokio::select! {
            event = events.recv() => event,
            filled = feed.fill() => {
                filled?;
                feed.take(|_| {}).await?;
                continue;
            }
        };
        out.clear();
        let mut next = Some(first);
        let mut announced = 0;
        while let Some(received) = next.take() {
            match received {
                Ok(event) => {
                    write::publish(&mut out, subject(&event).as_bytes(), b"", &message(&event));
                    announced += 1;
                }
                Err(RecvError::Lagged(lost)) => _ = counts.lost.fetch_add(lost, Relaxed),
                Err(RecvError::Closed) => return Ok(()),
            }
            if announced < BATCH {
                next = match events.try_recv() {
                    Ok(event) => Some(Ok(event)),
                    Err(broadcast::error::TryRecvError::Lagged(lost)) => Some(Err(RecvError::Lagged(lost))),
                    Err(_) => None,
                };
            }
        }
        feed.stream.write_all(&out).await?;
        counts.announced.fetch_add(announced as u64, Relaxed);
    }
}

async fn follow(
    entrance: &Entrance,
    followed: &broadcast::Sender<Event>,
    dirty: &tokio::sync::mpsc::Sender<Event>,
    counts: &Counts,
) {
    loop {
        if let Err(error) = follow_until_gone(entrance, followed, dirty, counts).await {
            tracing::warn!("following mail: the feed is gone ({error}); trying again");
        }
        counts.reconnects.fetch_add(1, Relaxed);
        sleep(RETRY).await;
    }
}

async fn follow_until_gone(
    entrance: &Entrance,
    followed: &broadcast::Sender<Event>,
    dirty: &tokio::sync::mpsc::Sender<Event>,
    counts: &Counts,
) -> io::Result<()> {
    let mut feed = Feed::enter(entrance).await?;
    let mut subscription = Vec::new();
    write::subscribe(&mut subscription, ALL.as_bytes(), b"", b"1");
    feed.stream.write_all(&subscription).await?;
    loop {
        feed.fill().await?;
        feed.take(|op| {
            let ServerOp::Message { payload, .. } = op else { return };
            // Anyone may publish below mail: what is none of ours is left alone.
            let Some(event) = event(payload) else { return };
            counts.followed.fetch_add(1, Relaxed);
            if dirty.try_send(event.clone()).is_err() {
                counts.purges_dropped.fetch_add(1, Relaxed);
            }
            // Nobody looks at a live page: no reason to keep it.
            _ = followed.send(event);
        })
        .await?;
    }
}

async fn purge(
    mut events: tokio::sync::mpsc::Receiver<Event>,
    accelerator: Arc<dyn Accelerator>,
    urls: &Urls,
    counts: &Counts,
) {
    let mut gathered = HashSet::new();
    while let Some(first) = events.recv().await {
        let mut next = Some(first);
        while let Some(event) = next {
            let (Event::Arrived(_) | Event::Deleted { .. }) = &event;
            gathered.insert(match event {
                Event::Arrived(summary) => summary.inbox.clone(),
                Event::Deleted { inbox, .. } => inbox,
            });
            next = events.try_recv().ok();
        }
        let all: Vec<String> = gathered.drain().flat_map(|inbox| urls(&inbox)).collect();
        let accelerator = Arc::clone(&accelerator);
        // It waits for the core that owns the page: not on this loop.
        let purged = tokio::task::spawn_blocking(move || {
            all.iter().filter(|url| matches!(accelerator.purge(url), Ok(cache::Purged::Dropped))).count()
        });
        counts.purged.fetch_add(purged.await.unwrap_or(0) as u64, Relaxed);
        sleep(PURGE_EVERY).await;
    }
}
