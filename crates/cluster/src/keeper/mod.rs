//! The cluster thread: it connects, joins, carries out the stream's purges, renews the lease, and starts
//! again after a failure.
//!
//! ```text
//!  connect ─▶ session: stream, bucket ─▶ heartbeat (renews the lease) ─▶ `here` into the stream, at sequence m
//!     ▲          ▲                                                          │
//!     │          │ lapsed, another stream               no purge missed? ───┴── else all objects are revalidated
//!     │          │                                                          ▼
//!     └─ failed ─┴──── purges from our position on ─▶ carried out in order ─▶ at m: the lease may be used
//! ```
//! **Before it serves**, an instance writes its heartbeat to the bucket, then publishes `here`, then carries
//! out everything before that record. Every purge was therefore either published earlier (and is carried
//! out), or its publisher sees the heartbeat (and waits for this instance).
//!
//! All state belongs to this thread; other threads see what is in [`Common`]. *Bounds:* one heartbeat being
//! written, one purge being carried out by a helper; later ones wait in the connection and in the stream.

mod carrying;
mod fault;
mod own_card;

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::{Future, pending},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use async_nats::{
    Subscriber,
    jetstream::{self, consumer::push, kv},
};
use engine::cores::clock;
use futures_util::StreamExt as _;
use tokio::{
    sync::mpsc,
    task::{LocalSet, spawn_local},
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout},
};

use self::{
    carrying::{CarriedRecord, consume},
    own_card::{AcceptedHeartbeat, SentHeartbeat},
};
use crate::{
    PurgeExecutor,
    card::Heartbeat,
    client::{Common, State},
    config::WhenCutOff,
    connect::{Connection, connect},
    counts::count,
    lease::Lease,
    open,
    position::{Position, PositionFile},
    record::AppliedNotice,
    vault,
    view::LiveInstance,
    wish::{self, AppliedRecords, PurgeRequest},
};

pub(crate) use self::fault::Fault;

/// First pause before the cluster is asked again.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Longest pause before the cluster is asked again.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Time within which the heartbeat confirms a purge that was already reported to its publisher.
const CARD_WITHIN: Duration = Duration::from_millis(50);
/// Longest time that a shutdown takes to inform the cluster.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);

type OptionalFuture<T> = Option<Pin<Box<dyn Future<Output = T>>>>;

/// Awaits an optional future; never returns if there is none.
async fn await_if_some<T>(waiting: &mut OptionalFuture<T>) -> T {
    match waiting {
        Some(future) => {
            let done = future.as_mut().await;
            *waiting = None;
            done
        }
        None => pending().await,
    }
}

/// Runs until no more purges can be requested.
pub(crate) async fn run(
    common: Arc<Common>,
    server: Arc<dyn PurgeExecutor>,
    file: Option<PositionFile>,
    mut wishes: mpsc::Receiver<PurgeRequest>,
    mut vaults: mpsc::Receiver<vault::VaultTask>,
) {
    let carried_out = AppliedRecords::default();
    let of_wishes = Arc::clone(&server);
    let previous = file.as_ref().and_then(|file| file.previous);
    let config = &common.config;
    let serves_on = config.when_cut_off == WhenCutOff::Serve;
    let card = Heartbeat::new(common.instance.clone(), config.lease, serves_on, config.address.clone());
    let mut keeper = ClusterTask {
        common: Arc::clone(&common),
        server,
        carried_out: Rc::clone(&carried_out),
        file: file.map(Arc::new),
        was: previous.map(|previous| format!("{:032x}", previous.instance)),
        position: previous.map(|previous| previous.position),
        card,
        revision: 0,
        sent: VecDeque::new(),
        lease: None,
        said: None,
        bucket: None,
        is_another: false,
        has_gap: false,
        there: Vec::new(),
    };
    if serves_on {
        keeper.server.set_lease(None);
    }
    let take_wishes = async {
        while let Some(wish) = wishes.recv().await {
            let server = Arc::clone(&of_wishes);
            spawn_local(wish::publish_and_wait(Arc::clone(&common), server, Rc::clone(&carried_out), wish));
        }
    };
    let keep_vaults = async {
        while let Some(keeper) = vaults.recv().await {
            spawn_local(keeper.run());
        }
        pending::<()>().await;
    };
    let local = LocalSet::new();
    local
        .run_until(async {
            tokio::select! {
                () = keeper.keep() => {}
                () = take_wishes => {}
                () = keep_vaults => {}
            }
            // Waiting requests are answered, and the lease ends before the heartbeat says that this instance
            // is gone.
            common.open.send_replace(None);
            if !serves_on {
                keeper.server.set_lease(Some(0));
            }
            let _ = timeout(LEAVE_WITHIN, keeper.leave()).await;
        })
        .await;
}

/// A session that has joined the cluster, and what it reads from it.
struct Session {
    /// Sequence number of our `here` record in the stream.
    here: u64,
    bucket: kv::Store,
    /// Changes of the bucket.
    entries: kv::Watch,
    /// Notices from other instances, which have carried out our purges.
    notices: Subscriber,
    purges: push::Ordered,
}

struct ClusterTask {
    common: Arc<Common>,
    server: Arc<dyn PurgeExecutor>,
    carried_out: AppliedRecords,
    file: Option<Arc<PositionFile>>,
    /// Identity of the previous process that used this store; that process has ended.
    was: Option<String>,
    /// Position in the stream; `None` if it is unknown which purges the store has missed.
    position: Option<Position>,
    card: Heartbeat,
    /// Revision of our heartbeat.
    revision: u64,
    /// Own heartbeats that the watcher has not delivered yet.
    sent: VecDeque<SentHeartbeat>,
    lease: Option<Lease>,
    said: Option<String>,
    bucket: Option<kv::Store>,
    /// True if a published record got a sequence number that had been seen before, so the stream must be a
    /// different one.
    is_another: bool,
    /// True if the stream has skipped a sequence while this instance followed it: the purges in between are
    /// lost.
    has_gap: bool,
    /// The live instances last reported to the server.
    there: Vec<LiveInstance>,
}

impl ClusterTask {
    fn lease(&self) -> Duration {
        self.common.config.lease
    }

    fn lease_ms(&self) -> u64 {
        u64::try_from(self.lease().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the time limit for a heartbeat, after which the connection is given up.
    fn patience(&self) -> Duration {
        self.lease() / 2
    }

    async fn keep(&mut self) {
        let mut pause = PAUSE_MIN;
        loop {
            let began = Instant::now();
            let fault = match connect(&self.common.config).await {
                Ok(connection) => self.connected(&connection).await,
                Err(fault) => fault,
            };
            self.common.open.send_replace(None);
            self.bucket = None;
            count(&self.common.counts.failures);
            self.say(&fault);
            if began.elapsed() > self.lease() {
                pause = PAUSE_MIN;
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Logs a fault once, and shows it in the status for as long as it lasts.
    fn say(&mut self, fault: &Fault) {
        let words = fault.words(self.common.config.name.as_str());
        if self.said.as_ref() != Some(&words) {
            tracing::warn!(why = %words, "not joined to the cluster; trying again");
            self.said = Some(words.clone());
        }
        self.common.state.send_replace(State { words, is_joined: false });
    }

    /// Runs sessions until the connection is unusable.
    async fn connected(&mut self, connection: &Connection) -> Fault {
        loop {
            let gone = async {
                connection.gone.notified().await;
                Fault::Cannot("the connection was lost".to_owned())
            };
            let fault = tokio::select! {
                fault = self.session(connection) => fault,
                fault = gone => fault,
            };
            match fault {
                Fault::Lapsed => {
                    count(&self.common.counts.lapses);
                    self.lease = None;
                    self.say(&fault);
                }
                Fault::OtherStream => self.say(&fault),
                fault => return fault,
            }
        }
    }

    async fn session(&mut self, connection: &Connection) -> Fault {
        match self.join_and_follow(connection).await {
            Ok(never) => match never {},
            Err(fault) => fault,
        }
    }

    async fn join_and_follow(&mut self, connection: &Connection) -> Result<Infallible, Fault> {
        let session = self.join(connection).await?;
        self.follow(connection, session).await
    }

    /// Joins the cluster: writes our heartbeat, publishes `here`, and finds the position from which purges are
    /// read.
    async fn join(&mut self, connection: &Connection) -> Result<Session, Fault> {
        let common = Arc::clone(&self.common);
        let patience = self.patience();
        let context = jetstream::context::ContextBuilder::new()
            .timeout(patience.max(Duration::from_millis(500)))
            .ack_timeout(patience.max(Duration::from_millis(500)))
            .build(connection.client.clone());
        open::stream(&context, &common.config).await?;
        let bucket = open::bucket(&context, &common.config).await?;
        self.bucket = Some(bucket.clone());
        common.open.send_replace(Some(context.clone()));
        let entries = bucket.watch_with_history(">").await;
        let mut entries = entries.map_err(|error| Fault::of("cannot watch the bucket", &error))?;
        self.sent.clear();
        common.view.send_modify(|view| {
            view.watch_begins(common.now_ms());
            view.forget(u64::try_from(open::CARDS_KEPT.as_millis()).unwrap_or(u64::MAX), common.now_ms());
        });

        let inbox = connection.client.new_inbox();
        let notices = connection.client.subscribe(inbox.clone()).await;
        let notices = notices.map_err(|error| Fault::of("cannot subscribe to an inbox", &error))?;
        common.inbox.send_replace(inbox);

        self.take_name(&bucket).await?;
        let taken = self.put(&bucket)?.await?;
        self.taken(&taken)?;
        // Entries that the watcher delivers before our own heartbeat were written before it.
        while self.revision < taken.revision || !self.sent.is_empty() {
            let entry = timeout(patience, entries.next()).await;
            self.see(entry.ok().flatten())?;
        }
        self.revision = self.revision.max(taken.revision);
        let here = self.write_here(&common).await?;
        self.find_position(&context, here).await?;
        let Some(Position { applied, .. }) = self.position else { return Err(Fault::OtherStream) };
        let purges = consume(&context, &common, applied + 1).await?;
        tracing::debug!(here, applied, "cluster session started");
        Ok(Session { here, bucket, entries, notices, purges })
    }

    /// Carries out the stream's purges and renews the lease, until a fault ends the session.
    async fn follow(&mut self, connection: &Connection, session: Session) -> Result<Infallible, Fault> {
        let Session { here, bucket, mut entries, mut notices, mut purges } = session;
        let common = Arc::clone(&self.common);
        let mut beat = interval(self.lease() / 3);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut putting: OptionalFuture<Result<AcceptedHeartbeat, Fault>> = None;
        let mut carrying: OptionalFuture<CarriedRecord> = None;
        let (mut is_wanted, mut is_serving) = (false, false);
        let mut card_by: Option<Instant> = None;
        loop {
            let is_caught_up = self.position.is_some_and(|position| position.applied >= here);
            if is_caught_up && !is_serving {
                is_serving = true;
                self.serve()?;
            }
            if is_wanted && putting.is_none() {
                (is_wanted, card_by) = (false, None);
                putting = Some(Box::pin(self.put(&bucket)?));
            }
            tokio::select! {
                taken = await_if_some(&mut putting) => {
                    self.taken(&taken?)?;
                    if is_serving {
                        self.show_lease();
                    }
                }
                CarriedRecord { position, notice_to } = await_if_some(&mut carrying) => {
                    self.set_position(position);
                    match notice_to {
                        Some(to) => {
                            self.send_notice(connection, to, position).await;
                            card_by.get_or_insert(Instant::now() + CARD_WITHIN);
                        }
                        None => is_wanted = true,
                    }
                }
                purge = purges.next(), if carrying.is_none() => {
                    let purge = purge.ok_or_else(|| Fault::Cannot("the stream has ended".to_owned()))?;
                    let purge = purge.map_err(|error| Fault::of("cannot read the stream", &error))?;
                    carrying = self.carry_out_next(&purge)?;
                }
                entry = entries.next() => {
                    self.see(entry)?;
                    let seen = common.view.borrow().generation();
                    if self.position.is_some_and(|position| position.generation < seen) {
                        return Err(Fault::OtherStream);
                    }
                }
                notice = notices.next() => {
                    let notice = notice.ok_or_else(|| Fault::Cannot("the connection was lost".to_owned()))?;
                    if let Ok(applied) = serde_json::from_slice::<AppliedNotice>(&notice.payload) {
                        common.view.send_modify(|view| view.note_applied(&applied));
                    }
                }
                () = sleep_until(card_by.unwrap_or_else(Instant::now)), if card_by.is_some() => {
                    card_by = None;
                    is_wanted = true;
                }
                _ = beat.tick() => {
                    self.tell_who_is_there();
                    is_wanted = true;
                }
                () = common.renew.notified() => is_wanted = true,
                () = common.doubt.notified() => {
                    self.is_another = true;
                    return Err(Fault::OtherStream);
                }
            }
        }
    }

    /// Reports the live instances to the server if they have changed.
    fn tell_who_is_there(&mut self) {
        let there = self.common.view.borrow().live_instances(self.common.now_ms());
        if there != self.there {
            self.server.members_changed(&there);
            self.there = there;
        }
    }

    /// Allows the server to use the lease, after all purges have been carried out.
    fn serve(&mut self) -> Result<(), Fault> {
        if self.lease.is_none_or(|lease| lease.is_over(clock::boot_ms())) {
            return Err(Fault::Lapsed);
        }
        self.show_lease();
        count(&self.common.counts.joins);
        if self.said.take().is_some() {
            tracing::info!("joined the cluster");
        }
        let words = "joined".to_owned();
        self.common.state.send_replace(State { words, is_joined: true });
        Ok(())
    }

    fn show_lease(&self) {
        if let (Some(lease), WhenCutOff::Revalidate) = (self.lease, self.common.config.when_cut_off) {
            self.server.set_lease(Some(lease.ends_ms()));
        }
    }
}
