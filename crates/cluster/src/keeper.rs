//! The thread's work: connects, joins, carries out what the stream says, renews the lease, and does it again when something
//! fails.
//!
//! ```text
//!  connect ─▶ session: stream, bucket ─▶ our card (a link of the lease) ─▶ `here` into the stream, at sequence m
//!     ▲          ▲                                                              │
//!     │          │ lapsed, another stream                  have we missed none? ┴ else everything is doubted
//!     │          │                                                              ▼
//!     └─ failed ─┴──── purges from our position on ─▶ carried out, one after the other ─▶ at m: the lease is served by
//! ```
//! **Before it serves**, an instance has its card in the bucket, then writes `here`, then carries out all before that: so a
//! purge was published before (and is carried out), or its publisher sees the card (and waits for us).
//!
//! Where the data live: all of it on this thread. What others see goes through [`Common`]. *Bounds:* one card under way, one
//! purge being carried out by a helper; what comes meanwhile waits in the connection and in the stream.

use std::{
    collections::VecDeque,
    future::{Future, pending},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use async_nats::jetstream::{
    self, Context,
    consumer::{DeliverPolicy, push},
    kv,
};
use engine::cores::clock;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::{
    sync::mpsc,
    task::{LocalSet, spawn_blocking, spawn_local},
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout},
};

use crate::{
    CarriesOut, NotCarried,
    card::Card,
    client::{Common, State},
    config::WhenCutOff,
    connect::{Connection, connect},
    counts::count,
    lease::{Lapsed, Lease},
    open,
    position::{Position, PositionFile},
    record::{Carried, Purge, Record, Says, What},
    view::with_margin,
    wish::{self, CarriedOut, Wish},
};

/// The pause before the cluster is asked again: the first, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// The pause before a purge is carried out again that could not be.
const AGAIN: Duration = Duration::from_millis(200);
/// A purge whose publisher was told is in our card within this.
const CARD_WITHIN: Duration = Duration::from_millis(50);
/// How long a stop waits for the cluster to know of it.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);
/// Our own cards whose sending is remembered until the watcher brings them.
const SENT_MAX: usize = 64;

/// Why the cluster is not what it has to be, for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It cannot be reached or asked, or does not allow it.
    Cannot(String),
    /// Another instance has our name.
    NameTaken,
    /// The lease ran out before it was renewed.
    Lapsed,
    /// The stream is not the one that it was.
    OtherStream,
}

impl Fault {
    pub(crate) fn of(what: &str, error: &dyn std::error::Error) -> Self {
        Self::Cannot(format!("{what}: {error}"))
    }

    fn words(&self, name: &str) -> String {
        match self {
            Self::Cannot(why) => why.clone(),
            Self::NameTaken => {
                format!("another instance has the name {name}; each needs its own (name in [cluster])")
            }
            Self::Lapsed => "the lease ran out before it was renewed".to_owned(),
            Self::OtherStream => "the stream is not the one that it was".to_owned(),
        }
    }
}

/// What a position's file held when it was opened.
pub(crate) type Opened = Option<(PositionFile, Option<(Position, u128)>)>;

type Waiting<T> = Option<Pin<Box<dyn Future<Output = T>>>>;

/// What comes of something that may not be under way.
async fn of<T>(waiting: &mut Waiting<T>) -> T {
    match waiting {
        Some(future) => {
            let done = future.as_mut().await;
            *waiting = None;
            done
        }
        None => pending().await,
    }
}

/// Runs until nobody can wish for anything any more.
pub(crate) async fn run(
    common: Arc<Common>,
    server: Arc<dyn CarriesOut>,
    opened: Opened,
    mut wishes: mpsc::Receiver<Wish>,
) {
    let carried_out = CarriedOut::default();
    let of_wishes = Arc::clone(&server);
    let (file, before) = opened.map_or((None, None), |(file, before)| (Some(Arc::new(file)), before));
    let config = &common.config;
    let serves_on = config.when_cut_off == WhenCutOff::Serve;
    let card = Card::new(common.instance.clone(), config.lease, serves_on, config.address.clone());
    let mut keeper = Keeper {
        common: Arc::clone(&common),
        server,
        carried_out: Rc::clone(&carried_out),
        file,
        was: before.map(|(_, instance)| format!("{instance:032x}")),
        position: before.map(|(position, _)| position),
        card,
        revision: 0,
        sent: VecDeque::new(),
        lease: None,
        said: None,
        bucket: None,
        is_another: false,
        there: Vec::new(),
    };
    if serves_on {
        keeper.server.lease_until(None);
    }
    let take_wishes = async {
        while let Some(wish) = wishes.recv().await {
            let server = Arc::clone(&of_wishes);
            spawn_local(wish::fulfil(Arc::clone(&common), server, Rc::clone(&carried_out), wish));
        }
    };
    let local = LocalSet::new();
    local
        .run_until(async {
            tokio::select! {
                () = keeper.keep() => {}
                () = take_wishes => {}
            }
            // Who still waits is told, and nobody serves by a lease whose card says that we are gone.
            common.open.send_replace(None);
            if !serves_on {
                keeper.server.lease_until(Some(0));
            }
            let _ = timeout(LEAVE_WITHIN, keeper.leave()).await;
        })
        .await;
}

struct Keeper {
    common: Arc<Common>,
    server: Arc<dyn CarriesOut>,
    carried_out: CarriedOut,
    file: Option<Arc<PositionFile>>,
    /// The process before us with this store, which is gone.
    was: Option<String>,
    /// `None`: what was purged of what is stored, nobody knows.
    position: Option<Position>,
    card: Card,
    /// That of our card.
    revision: u64,
    /// Our cards that the watcher has not brought yet: which, and when they were sent.
    sent: VecDeque<(u64, u64)>,
    lease: Option<Lease>,
    said: Option<String>,
    bucket: Option<kv::Store>,
    /// What was published got a sequence that we have had before.
    is_another: bool,
    /// Who is there, as the server was told.
    there: Vec<(String, String)>,
}

/// A card that is known to be taken.
struct Taken {
    revision: u64,
    sent_boot_ms: u64,
}

impl Keeper {
    fn lease(&self) -> Duration {
        self.common.config.lease
    }

    fn lease_ms(&self) -> u64 {
        u64::try_from(self.lease().as_millis()).unwrap_or(u64::MAX)
    }

    /// A card has so long: after that the connection is of no use to us.
    fn patience(&self) -> Duration {
        self.lease() / 2
    }

    async fn keep(&mut self) {
        let mut pause = PAUSE.0;
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
                pause = PAUSE.0;
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Says once what is wrong, and shows it for as long as it is.
    fn say(&mut self, fault: &Fault) {
        let words = fault.words(self.common.config.name.as_str());
        if self.said.as_ref() != Some(&words) {
            tracing::warn!(why = %words, "not joined to the cluster");
            self.said = Some(words.clone());
        }
        self.common.state.send_replace(State { words, is_joined: false });
    }

    /// Until the connection is of no use.
    async fn connected(&mut self, connection: &Connection) -> Fault {
        loop {
            let gone = async {
                connection.gone.notified().await;
                Fault::Cannot("the connection to it was lost".to_owned())
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

    async fn join_and_follow(&mut self, connection: &Connection) -> Result<std::convert::Infallible, Fault> {
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
        let watch = bucket.watch_with_history(">").await;
        let mut watch = watch.map_err(|error| Fault::of("the bucket cannot be watched", &error))?;
        self.sent.clear();
        common.view.send_modify(|view| {
            view.watch_begins(common.now_ms());
            view.forget(u64::try_from(open::CARDS_KEPT.as_millis()).unwrap_or(u64::MAX), common.now_ms());
        });

        let inbox = connection.client.new_inbox();
        let answers = connection.client.subscribe(inbox.clone()).await;
        let mut answers = answers.map_err(|error| Fault::of("no inbox can be subscribed to", &error))?;
        common.inbox.send_replace(inbox);

        self.take_name(&bucket).await?;
        let taken = self.put(&bucket)?.await?;
        self.taken(&taken)?;
        // What the watcher brings before our own card was there before.
        while self.revision < taken.revision || !self.sent.is_empty() {
            let entry = timeout(patience, watch.next()).await;
            self.see(entry.ok().flatten())?;
        }
        self.revision = self.revision.max(taken.revision);
        let here = self.write_here(&common).await?;
        self.find_position(&context, here).await?;
        let Some(Position { applied, .. }) = self.position else { return Err(Fault::OtherStream) };
        let mut purges = consume(&context, &common, applied + 1).await?;
        tracing::debug!(here, applied, "joined");

        let mut beat = interval(self.lease() / 3);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut putting, mut carrying): (Waiting<Result<Taken, Fault>>, Waiting<Position>) = (None, None);
        let (mut is_wanted, mut is_serving) = (false, false);
        let (mut card_by, mut answer_to): (Option<Instant>, Option<String>) = (None, None);
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
                taken = of(&mut putting) => {
                    self.taken(&taken?)?;
                    if is_serving {
                        self.show_lease();
                    }
                }
                position = of(&mut carrying) => {
                    self.is_at(position);
                    match answer_to.take() {
                        Some(to) => {
                            let said = Carried {
                                name: common.config.name.to_string(),
                                instance: common.instance.clone(),
                                generation: position.generation,
                                applied: position.applied,
                            };
                            // One that is lost, or not allowed, is in the card soon.
                            let bytes = serde_json::to_vec(&said).unwrap_or_default();
                            let _ = connection.client.publish(to, bytes.into()).await;
                            card_by.get_or_insert(Instant::now() + CARD_WITHIN);
                        }
                        None => is_wanted = true,
                    }
                }
                purge = purges.next(), if carrying.is_none() => {
                    let purge = purge.ok_or_else(|| Fault::Cannot("the stream has ended".to_owned()))?;
                    let purge = purge.map_err(|error| Fault::of("the stream cannot be read", &error))?;
                    let sequence = purge.info().map_err(|error| Fault::Cannot(error.to_string()))?.stream_sequence;
                    let record = Record::of_bytes(&purge.payload);
                    let is_own = record.id.starts_with(&common.instance);
                    answer_to = (!is_own && !record.to.is_empty()).then(|| record.to.clone());
                    carrying = Some(self.carry_out(record, sequence));
                }
                entry = watch.next() => {
                    self.see(entry)?;
                    let seen = common.view.borrow().generation();
                    if self.position.is_some_and(|position| position.generation < seen) {
                        return Err(Fault::OtherStream);
                    }
                }
                carried = answers.next() => {
                    let carried = carried.ok_or_else(|| Fault::Cannot("the connection to it was lost".to_owned()))?;
                    if let Ok(carried) = serde_json::from_slice::<Carried>(&carried.payload) {
                        common.view.send_modify(|view| view.hear(&carried));
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

    /// Makes the name ours: nobody has it, or who had it is gone.
    async fn take_name(&mut self, bucket: &kv::Store) -> Result<(), Fault> {
        let name = self.common.config.name.to_string();
        let asked = async || {
            let entry = bucket.entry(name.clone()).await;
            entry.map_err(|error| Fault::of("the bucket cannot be read", &error))
        };
        let Some(entry) = asked().await? else {
            self.revision = 0;
            return Ok(());
        };
        self.revision = entry.revision;
        let card = Card::of_bytes(&entry.value).filter(|_| entry.operation == kv::Operation::Put);
        let longest = u64::try_from(crate::LEASE_MAX.as_millis()).unwrap_or(u64::MAX);
        let is_free = entry.operation != kv::Operation::Put
            || card.as_ref().is_some_and(|card| {
                card.left || card.instance == self.card.instance || Some(&card.instance) == self.was.as_ref()
            });
        if is_free {
            return Ok(());
        }
        // Perhaps it is a process that was killed: then its card does not change any more.
        self.say(&Fault::Cannot("it waits whether another instance has its name".to_owned()));
        let lease_ms = card.map_or(longest, |card| card.lease_ms());
        sleep(Duration::from_millis(with_margin(lease_ms))).await;
        match asked().await? {
            Some(again) if again.revision != entry.revision => Err(Fault::NameTaken),
            _ => Ok(()),
        }
    }

    /// Writes our card; it is sent when the answer is first waited for.
    fn put(
        &mut self,
        bucket: &kv::Store,
    ) -> Result<impl Future<Output = Result<Taken, Fault>> + use<>, Fault> {
        if let Some(position) = self.position {
            (self.card.generation, self.card.applied) = (position.generation, position.applied);
        }
        self.card.written += 1;
        // Before it is sent: the lease counts from here.
        let (sent_boot_ms, sent_ms) = (clock::boot_ms(), self.common.now_ms());
        if self.sent.len() == SENT_MAX {
            return Err(Fault::Cannot(
                "the bucket is written, and what is written does not come back".to_owned(),
            ));
        }
        self.sent.push_back((self.card.written, sent_ms));
        let (bucket, name) = (bucket.clone(), self.common.config.name.to_string());
        let (bytes, revision, patience) = (self.card.to_bytes(), self.revision, self.patience());
        Ok(async move {
            match timeout(patience, bucket.update(name, bytes.into(), revision)).await {
                Ok(Ok(revision)) => Ok(Taken { revision, sent_boot_ms }),
                Ok(Err(error)) => Err(Fault::of("the bucket cannot be written", &error)),
                Err(_) => {
                    let why = "the bucket does not answer: too few of its servers may be up, or the way there is cut";
                    Err(Fault::Cannot(why.to_owned()))
                }
            }
        })
    }

    /// Our card is in the bucket.
    fn taken(&mut self, taken: &Taken) -> Result<(), Fault> {
        count(&self.common.counts.renewals);
        self.revision = self.revision.max(taken.revision);
        match &mut self.lease {
            Some(lease) => {
                lease.renewed(taken.sent_boot_ms, clock::boot_ms()).map_err(|Lapsed| Fault::Lapsed)
            }
            None => {
                self.lease = Some(Lease::begin(self.lease_ms(), taken.sent_boot_ms));
                Ok(())
            }
        }
    }

    /// The watcher has brought something.
    fn see(&mut self, entry: Option<Result<kv::Entry, kv::WatcherError>>) -> Result<(), Fault> {
        let cannot = || Fault::Cannot("the bucket cannot be watched".to_owned());
        let entry =
            entry.ok_or_else(cannot)?.map_err(|error| Fault::of("the bucket cannot be watched", &error))?;
        let is_put = entry.operation == kv::Operation::Put;
        let card = Card::of_bytes(&entry.value).filter(|_| is_put);
        let longest = u64::try_from(crate::LEASE_MAX.as_millis()).unwrap_or(u64::MAX);
        let now_ms = self.common.now_ms();
        let own = (entry.key == self.common.config.name.as_str()).then_some(());
        if own.is_some() {
            let is_ours = card.as_ref().is_some_and(|card| card.instance == self.card.instance);
            if !is_ours && entry.revision > self.revision && is_put {
                return Err(Fault::NameTaken);
            }
            self.revision = self.revision.max(entry.revision);
        }
        let mut sent_ms = None;
        if let (Some(()), Some(card)) = (own, &card)
            && card.instance == self.card.instance
        {
            while let Some((written, at_ms)) =
                self.sent.front().copied().filter(|(written, _)| *written <= card.written)
            {
                self.sent.pop_front();
                sent_ms = (written == card.written).then_some(at_ms);
            }
        }
        self.common.view.send_modify(|view| {
            if let (Some(card), Some(sent_ms)) = (&card, sent_ms) {
                view.see_own(card, sent_ms);
            }
            view.see(&entry.key, card, longest, now_ms);
        });
        self.tell_who_is_there();
        Ok(())
    }

    /// Tells the server who is there, if it is others than before.
    fn tell_who_is_there(&mut self) {
        let there = self.common.view.borrow().there(self.common.now_ms());
        if there != self.there {
            self.server.are_there(&there);
            self.there = there;
        }
    }

    /// Tells the stream that we are here; where that is.
    async fn write_here(&mut self, common: &Common) -> Result<u64, Fault> {
        let id = format!("{}-{}", common.instance, common.next_number());
        let record = Record { id, by: common.config.name.to_string(), to: String::new(), says: Says::Here };
        let until = Instant::now() + self.patience();
        let told = wish::tell(common, &record, until).await;
        told.map(|place| place.sequence).map_err(|refused| Fault::Cannot(refused.to_string()))
    }

    /// Whether nothing of what was purged since our position is missing in the stream; else everything is doubted, and the
    /// position is where the stream is now.
    async fn find_position(&mut self, context: &Context, here: u64) -> Result<(), Fault> {
        let stream = open::stream(context, &self.common.config).await?;
        let seen = self.common.view.borrow().generation();
        let generation = match self.position {
            Some(position) if position.generation < seen => Err((seen, "others have found another stream")),
            Some(position) if position.made_ns != stream.made_ns => {
                Err((position.generation + 1, "the stream was made anew"))
            }
            Some(position) if here <= position.applied || self.is_another => {
                Err((position.generation + 1, "the stream holds older data than we have had"))
            }
            Some(position) if stream.first > position.applied + 1 => {
                Err((position.generation, "the stream does not have all any more that we have missed"))
            }
            Some(_) => Ok(()),
            None => Err((seen, "")),
        };
        // `here` itself may have been such a one.
        let _ = self.common.doubt.notified().now_or_never();
        let Err((generation, why)) = generation else { return Ok(()) };
        if !why.is_empty() {
            tracing::warn!(
                why,
                "what was purged meanwhile is not known: everything stored is validated before it is shown"
            );
            count(&self.common.counts.doubts);
        }
        let server = Arc::clone(&self.server);
        loop {
            let of_helper = Arc::clone(&server);
            match spawn_blocking(move || of_helper.doubt_all()).await {
                Ok(Ok(())) => break,
                Ok(Err(error)) => {
                    tracing::warn!(%error, "what is stored cannot be marked as doubtful; trying again");
                    count(&self.common.counts.not_carried);
                    sleep(AGAIN).await;
                }
                Err(error) => return Err(Fault::Cannot(error.to_string())),
            }
        }
        self.is_another = false;
        let position = Position { generation, made_ns: stream.made_ns, applied: here };
        self.is_at(position);
        self.keep_position(position);
        Ok(())
    }

    fn is_at(&mut self, position: Position) {
        self.position = Some(position);
        self.common.is_at(position);
        self.server.has_applied(position.generation, position.applied);
    }

    fn keep_position(&self, position: Position) {
        if let Some(file) = &self.file
            && let Err(error) = file.write(position)
        {
            tracing::warn!(%error, "how far this instance is cannot be kept: after a restart everything is doubted");
        }
    }

    /// Has a helper carry out a record, however often it takes.
    fn carry_out(&mut self, record: Record, sequence: u64) -> Pin<Box<dyn Future<Output = Position>>> {
        let position = Position {
            applied: sequence,
            ..self.position.unwrap_or(Position { generation: 0, made_ns: 0, applied: 0 })
        };
        let is_done = self.carried_out.borrow_mut().remove(&record.id);
        let purge = match record.says {
            Says::Here => None,
            Says::Purge(_) if is_done && !self.server.carries_own_again() => None,
            Says::Purge(purge) => Some(purge),
            Says::Unknown { is_soft, why } => {
                tracing::warn!(by = record.by, why, "a purge is not understood: everything is purged");
                count(&self.common.counts.unknown);
                Some(Purge { what: What::All, is_soft })
            }
        };
        let (server, file, common) = (Arc::clone(&self.server), self.file.clone(), Arc::clone(&self.common));
        server.begins(position.generation, sequence);
        Box::pin(async move {
            let mut purge = purge;
            let is_purge = purge.is_some();
            loop {
                let (server, file, asked) = (Arc::clone(&server), file.clone(), purge.clone());
                let done = spawn_blocking(move || {
                    asked.map_or(Ok(()), |purge| server.carry_out(&purge))?;
                    if let Some(file) = file
                        && let Err(error) = file.write(position)
                    {
                        tracing::warn!(%error, "how far this instance is cannot be kept");
                    }
                    Ok::<_, NotCarried>(())
                });
                match done.await {
                    Ok(Ok(())) => break,
                    Ok(Err(NotCarried::NotUnderstood(why))) => {
                        tracing::warn!(why, "a purge is not understood: everything is purged");
                        count(&common.counts.unknown);
                        purge = purge.map(|purge| Purge { what: What::All, ..purge });
                    }
                    Ok(Err(NotCarried::NotNow(why))) => {
                        tracing::warn!(why, "a purge cannot be carried out; trying again");
                        count(&common.counts.not_carried);
                        sleep(AGAIN).await;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a purge broke off; trying again");
                        sleep(AGAIN).await;
                    }
                }
            }
            if is_purge {
                count(&common.counts.applied);
            }
            position
        })
    }

    /// All has been caught up with: what is stored may be served by the lease.
    fn serve(&mut self) -> Result<(), Fault> {
        if self.lease.is_none_or(|lease| lease.is_over(clock::boot_ms())) {
            return Err(Fault::Lapsed);
        }
        self.show_lease();
        count(&self.common.counts.joins);
        if self.said.take().is_some() {
            tracing::info!("joined to the cluster");
        }
        let words = "joined".to_owned();
        self.common.state.send_replace(State { words, is_joined: true });
        Ok(())
    }

    fn show_lease(&self) {
        if let (Some(lease), WhenCutOff::Revalidate) = (self.lease, self.common.config.when_cut_off) {
            self.server.lease_until(Some(lease.ends_ms()));
        }
    }

    /// Says in the bucket that we have stopped.
    async fn leave(&mut self) {
        let Some(bucket) = self.bucket.take() else { return };
        self.card.left = true;
        if let Ok(put) = self.put(&bucket) {
            // Then our lease is waited for.
            let _ = put.await;
        }
    }
}

/// The purges from a sequence on.
async fn consume(context: &Context, common: &Common, from: u64) -> Result<push::Ordered, Fault> {
    let config = push::OrderedConfig {
        deliver_subject: context.client().new_inbox(),
        name: None,
        description: Some(format!("nighttrain {}", common.config.name)),
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: from },
        ..push::OrderedConfig::default()
    };
    let consumer = context.create_consumer_on_stream(config, common.config.stream.as_str()).await;
    let consumer = consumer.map_err(|error| Fault::of("the stream cannot be read", &error))?;
    consumer.messages().await.map_err(|error| Fault::of("the stream cannot be read", &error))
}
