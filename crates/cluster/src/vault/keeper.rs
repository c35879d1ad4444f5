//! Task of the shared data: it follows the bucket while connected, holds the lease, and answers requests.
//!
//! The bucket has the key `turn`, and for each instance `confirmed.NAME`, the last revision that the instance
//! has seen and was asked to confirm; all other keys are values. This task holds all state, but only the
//! revisions of the values, not the values.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_nats::jetstream::{Context, kv};
use engine::cores::clock;
use futures_util::{StreamExt as _, TryStreamExt as _};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    OnChange, Reply, VALUE_BYTES_MAX, Vault, VaultConfig, VaultError, VaultRequest,
    seal::{PlainValue, SealError, Sealer, SealingSecret},
};
use crate::{
    INSTANCES_MAX, client::Common, counts::count, keeper::Fault, lease::Lease, open, view::with_margin,
};

/// Length of the vault's lease as a multiple of the instance lease; it is renewed once per instance lease.
const TURN_LEASES: u32 = 3;
/// Pause before a bucket is opened again.
const PAUSE: Duration = Duration::from_millis(500);
/// Maximum number of keys that are followed; a certificate has three, an account two.
const KEYS_MAX: usize = 16 << 10;
/// Interval between attempts to reseal values that were sealed with another secret.
const SEAL_EVERY: Duration = Duration::from_secs(1);
/// Key that stores the lease's holder.
const TURN: &str = "turn";
/// Prefix of the keys with each instance's confirmed revision.
const CONFIRMED: &str = "confirmed.";

/// Holder of the lease.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Holder {
    /// Identity of the process; empty if the lease is free.
    instance: String,
    name: String,
    lease_ms: u64,
    /// Number of renewals, so that each renewal writes a new value.
    renewals: u64,
}

/// The lease while this instance holds it.
struct HeldLease {
    lease: Lease,
    revision: u64,
    renewals: u64,
    renew_at: Instant,
}

/// A write that all live instances must confirm.
struct UnconfirmedWrite {
    revision: u64,
    until: Instant,
    reply: Reply<()>,
}

/// Task that manages the shared data (see the module documentation).
pub(crate) struct VaultTask {
    common: Arc<Common>,
    config: VaultConfig,
    sealer: Sealer,
    hears: OnChange,
    asked: mpsc::Receiver<VaultRequest>,
    /// The revision of each value, or of its removal.
    known: BTreeMap<String, u64>,
    /// Keys whose values cannot be decrypted and for which this has already been logged.
    foreign: BTreeSet<String>,
    /// Keys that existed at the start and have not been read yet; `None` before the start.
    found: Option<BTreeSet<String>>,
    /// Keys found at the start whose values are sealed with an old secret and must be resealed; `seal_at` is
    /// the next attempt.
    to_seal: BTreeSet<String>,
    seal_at: Instant,
    /// Revision confirmed by each instance.
    confirmed: BTreeMap<String, u64>,
    /// Revision confirmed by this instance.
    own_confirmed: u64,
    held: Option<HeldLease>,
    /// Another instance's lease: its revision, and the time at which that was first seen.
    other: Option<(u64, u64)>,
    shown: Vec<UnconfirmedWrite>,
}

impl VaultTask {
    /// Creates a task, not yet running, and its handle. `None` if the secrets cannot be used.
    pub(crate) fn new(common: Arc<Common>, config: VaultConfig, hears: OnChange) -> Option<(Vault, Self)> {
        let sealer = Sealer::new(&config.secrets, config.bucket.as_str()).ok()?;
        let (vault, asked) = Vault::open();
        let keeper = Self {
            common,
            config,
            sealer,
            hears,
            asked,
            known: BTreeMap::new(),
            foreign: BTreeSet::new(),
            found: None,
            to_seal: BTreeSet::new(),
            seal_at: Instant::now(),
            confirmed: BTreeMap::new(),
            own_confirmed: 0,
            held: None,
            other: None,
            shown: Vec::new(),
        };
        Some((vault, keeper))
    }

    /// Runs until all handles are dropped.
    pub(crate) async fn run(mut self) {
        let mut open = self.common.open.subscribe();
        loop {
            let context = open.borrow_and_update().clone();
            let is_connected = context.is_some();
            let why = match context {
                None => self.common.state.borrow().words.clone(),
                Some(context) => tokio::select! {
                    ended = self.session(&context) => match ended {
                        Ok(TaskEnd) => return,
                        Err(fault) => fault.words(self.common.config.name.as_str()),
                    },
                    changed = open.changed() => match changed {
                        Ok(()) => "the connection was lost".to_owned(),
                        Err(_) => return,
                    },
                },
            };
            self.held = None;
            self.shown.clear();
            self.say(&why);
            let pause = sleep(PAUSE);
            tokio::pin!(pause);
            loop {
                tokio::select! {
                    ask = self.asked.recv() => match ask {
                        Some(ask) => refuse(ask, &VaultError::CutOff(why.clone())),
                        None => return,
                    },
                    changed = open.changed() => match changed {
                        Ok(()) => break,
                        Err(_) => return,
                    },
                    () = &mut pause, if is_connected => break,
                }
            }
        }
    }

    /// Updates the status, and logs it if it has changed.
    fn say(&self, words: &str) {
        self.common.vault.send_if_modified(|said| {
            let is_new = said.as_deref() != Some(words);
            if is_new {
                tracing::debug!(words, "shared vault status changed");
                *said = Some(words.to_owned());
            }
            is_new
        });
    }

    /// Returns the time limit for a call to the cluster.
    fn patience(&self) -> Duration {
        self.common.config.lease.max(Duration::from_millis(500))
    }

    async fn within<T, E: std::error::Error>(
        &self,
        what: &str,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Fault> {
        match timeout(self.patience(), call).await {
            Ok(done) => done.map_err(|error| Fault::of(what, &error)),
            Err(_) => Err(Fault::Cannot(format!("{what}: no answer in {:?}", self.patience()))),
        }
    }

    /// Serves requests until the bucket is unusable or all handles are dropped.
    async fn session(&mut self, context: &Context) -> Result<TaskEnd, Fault> {
        let bucket = open::vault(context, &self.common.config, &self.config.bucket).await?;
        let keys = self.within("cannot list the shared vault", bucket.keys()).await?;
        let there: BTreeSet<String> =
            self.within("cannot list the shared vault", keys.take(KEYS_MAX).try_collect()).await?;
        let watch = bucket.watch_with_history(">");
        let mut watch = self.within("cannot watch the shared vault", watch).await?;
        // These keys are missing now: the bucket was recreated, or is in an older state than the one seen
        // before.
        for key in std::mem::take(&mut self.known).into_keys().filter(|key| !there.contains(key)) {
            (self.hears)(&key, None);
        }
        self.found.get_or_insert(there);
        (self.confirmed, self.own_confirmed, self.other) = (BTreeMap::new(), 0, None);
        self.confirm(&bucket, 0).await?;
        self.say("the shared vault is open");
        loop {
            let next = self.held.as_ref().map(|held| held.renew_at);
            let next = next.into_iter().chain(self.shown.iter().map(|shown| shown.until));
            let next = next.chain((!self.to_seal.is_empty()).then_some(self.seal_at)).min();
            tokio::select! {
                entry = watch.next() => {
                    let entry = entry.ok_or_else(|| Fault::Cannot("the shared vault's watch has ended".to_owned()))?;
                    let entry = entry.map_err(|error| Fault::of("cannot watch the shared vault", &error))?;
                    self.see(&bucket, &entry).await?;
                }
                ask = self.asked.recv() => match ask {
                    Some(ask) => self.answer(&bucket, ask).await?,
                    None => return Ok(TaskEnd),
                },
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    self.renew(&bucket).await?;
                    self.seal_anew(&bucket).await?;
                }
            }
            self.settle();
        }
    }

    /// Processes a change in the bucket.
    async fn see(&mut self, bucket: &kv::Store, entry: &kv::Entry) -> Result<(), Fault> {
        let is_put = entry.operation == kv::Operation::Put;
        if entry.key == TURN {
            self.note_other(entry.revision);
            return Ok(());
        }
        if let Some(name) = entry.key.strip_prefix(CONFIRMED) {
            let revision = std::str::from_utf8(&entry.value).ok().and_then(|text| text.parse().ok());
            match revision.filter(|_| is_put) {
                Some(revision) => {
                    if self.confirmed.len() < INSTANCES_MAX || self.confirmed.contains_key(name) {
                        self.confirmed.insert(name.to_owned(), revision);
                    }
                }
                None => _ = self.confirmed.remove(name),
            }
            return Ok(());
        }
        if self.known.len() >= KEYS_MAX && !self.known.contains_key(&entry.key) {
            // Another program must be writing to the bucket if it has this many keys.
            count(&self.common.counts.vault_foreign);
            return Ok(());
        }
        self.note(&entry.key, entry.revision);
        if !is_put {
            (self.hears)(&entry.key, None);
            return Ok(());
        }
        match self.sealer.open(&entry.key, &entry.value) {
            Ok((PlainValue { is_confirmed, value }, by)) => {
                self.foreign.remove(&entry.key);
                // Only values found at the start are resealed: instances with the secrets in different orders
                // would otherwise reseal each other's values endlessly.
                let is_found = self.found.as_mut().is_some_and(|found| found.remove(&entry.key));
                if is_found && by == SealingSecret::ByOther {
                    self.to_seal.insert(entry.key.clone());
                }
                (self.hears)(&entry.key, Some(&value));
                if is_confirmed { self.confirm(bucket, entry.revision).await } else { Ok(()) }
            }
            Err(SealError) => {
                count(&self.common.counts.vault_foreign);
                if self.foreign.insert(entry.key.clone()) {
                    tracing::warn!("{}", VaultError::NotOurs(entry.key.clone()));
                }
                Ok(())
            }
        }
    }

    /// Records a revision. The watcher may deliver a revision older than that of our own last write.
    fn note(&mut self, key: &str, revision: u64) {
        let known = self.known.entry(key.to_owned()).or_default();
        *known = revision.max(*known);
    }

    fn note_other(&mut self, revision: u64) {
        if self.other.is_none_or(|(of, _)| of != revision) {
            self.other = Some((revision, self.common.now_ms()));
        }
    }

    /// Confirms that this instance has seen everything up to the revision.
    async fn confirm(&mut self, bucket: &kv::Store, revision: u64) -> Result<(), Fault> {
        self.own_confirmed = self.own_confirmed.max(revision);
        let name = self.common.config.name.as_str();
        let text = self.own_confirmed.to_string();
        self.within(
            "cannot write to the shared vault",
            bucket.put(format!("{CONFIRMED}{name}"), text.into()),
        )
        .await?;
        self.confirmed.insert(name.to_owned(), self.own_confirmed);
        Ok(())
    }

    /// Answers the writes that all live instances have confirmed, or whose time limit has passed.
    fn settle(&mut self) {
        if self.shown.is_empty() {
            return;
        }
        let (now, now_ms) = (Instant::now(), self.common.now_ms());
        let view = self.common.view.borrow();
        let least =
            self.confirmed.iter().filter(|(name, _)| view.is_there(name, now_ms)).map(|(_, of)| *of).min();
        let least = least.unwrap_or(0);
        self.shown.retain(|shown| {
            let is_over = shown.revision <= least || shown.until <= now;
            if is_over {
                // A requester that has stopped waiting needs no answer.
                let _ = shown.reply.try_send(Ok(()));
            }
            !is_over
        });
    }

    async fn answer(&mut self, bucket: &kv::Store, ask: VaultRequest) -> Result<(), Fault> {
        match ask {
            VaultRequest::TakeTurn(reply) => {
                let taken = self.take_turn(bucket).await;
                answered(reply, taken)
            }
            VaultRequest::EndTurn => {
                self.end_turn(bucket).await;
                Ok(())
            }
            VaultRequest::Read(key, reply) => {
                let read = self.read(bucket, &key).await;
                answered(reply, read)
            }
            VaultRequest::Write(key, value, shown, reply) => {
                match (self.write(bucket, &key, &value, shown.is_some()).await, shown) {
                    (Ok(revision), Some(at_most)) => {
                        self.shown.push(UnconfirmedWrite {
                            revision,
                            until: Instant::now() + at_most,
                            reply,
                        });
                        Ok(())
                    }
                    (written, _) => answered(reply, written.map(drop)),
                }
            }
            VaultRequest::Remove(key, reply) => {
                let removed = self.remove(bucket, &key).await;
                answered(reply, removed)
            }
        }
    }

    fn turn_ms(&self) -> u64 {
        u64::try_from((self.common.config.lease * TURN_LEASES).as_millis()).unwrap_or(u64::MAX)
    }

    fn as_holder(&self, renewals: u64) -> Vec<u8> {
        let holder = Holder {
            instance: self.common.instance.clone(),
            name: self.common.config.name.to_string(),
            lease_ms: self.turn_ms(),
            renewals,
        };
        serde_json::to_vec(&holder).unwrap_or_default()
    }

    async fn take_turn(&mut self, bucket: &kv::Store) -> Result<(), AskError> {
        if self.has_turn() {
            return Ok(());
        }
        let entry = self.within("cannot read the holder of the lease", bucket.entry(TURN)).await?;
        let revision = entry.as_ref().map_or(0, |entry| entry.revision);
        if let Some(entry) = entry.filter(|entry| entry.operation == kv::Operation::Put) {
            let longest = u64::try_from((crate::LEASE_MAX * TURN_LEASES).as_millis()).unwrap_or(u64::MAX);
            let holder: Holder = serde_json::from_slice(&entry.value).unwrap_or_else(|_| Holder {
                instance: "?".to_owned(),
                lease_ms: longest,
                ..Holder::default()
            });
            let is_free = holder.instance.is_empty() || holder.instance == self.common.instance;
            self.note_other(revision);
            let out_ms = with_margin(holder.lease_ms.min(longest));
            let since_ms = self.other.map_or(0, |(_, since_ms)| since_ms);
            if !is_free && self.common.now_ms().saturating_sub(since_ms) < out_ms {
                return Err(AskError::Said(VaultError::Busy(holder.name)));
            }
        }
        let sent_ms = clock::boot_ms();
        let taken = self.changed(bucket, TURN, self.as_holder(0), revision).await?;
        let lease = Lease::begin(self.turn_ms(), sent_ms);
        let renew_at = Instant::now() + self.common.config.lease;
        self.held = Some(HeldLease { lease, revision: taken, renewals: 0, renew_at });
        count(&self.common.counts.vault_turns);
        Ok(())
    }

    fn has_turn(&self) -> bool {
        self.held.as_ref().is_some_and(|held| !held.lease.is_over(clock::boot_ms()))
    }

    /// Renews our lease when it is due.
    async fn renew(&mut self, bucket: &kv::Store) -> Result<(), Fault> {
        let Some(mut held) = self.held.take_if(|held| held.renew_at <= Instant::now()) else { return Ok(()) };
        held.renewals += 1;
        let sent_ms = clock::boot_ms();
        // After a failed write the lease counts as lost: it was taken over, or its state is unknown.
        if let Ok(revision) = self.changed(bucket, TURN, self.as_holder(held.renewals), held.revision).await
            && held.lease.renewed(sent_ms, clock::boot_ms()).is_ok()
        {
            held.revision = revision;
            held.renew_at = Instant::now() + self.common.config.lease;
            self.held = Some(held);
        }
        Ok(())
    }

    /// Replaces the value of a key if it has this revision.
    async fn changed(
        &self,
        bucket: &kv::Store,
        key: &str,
        value: Vec<u8>,
        revision: u64,
    ) -> Result<u64, AskError> {
        match timeout(self.patience(), bucket.update(key, value.into(), revision)).await {
            Ok(Ok(revision)) => Ok(revision),
            Ok(Err(error)) if error.kind() == kv::UpdateErrorKind::WrongLastRevision => {
                Err(AskError::Said(VaultError::Changed(key.to_owned())))
            }
            Ok(Err(error)) => Err(AskError::Lost(Fault::of("cannot write to the shared vault", &error))),
            Err(_) => {
                let why = "cannot write to the shared vault: too few of its servers are up";
                Err(AskError::Lost(Fault::Cannot(why.to_owned())))
            }
        }
    }

    async fn read(&mut self, bucket: &kv::Store, key: &str) -> Result<Option<Vec<u8>>, AskError> {
        let entry = self.within("cannot read the shared vault", bucket.entry(key)).await?;
        let Some(entry) = entry else {
            self.known.remove(key);
            return Ok(None);
        };
        // The answer came from a server that lags behind, so its value is outdated.
        if self.known.get(key).is_some_and(|known| entry.revision < *known) {
            return Err(AskError::Said(VaultError::Changed(key.to_owned())));
        }
        self.note(key, entry.revision);
        if entry.operation != kv::Operation::Put {
            return Ok(None);
        }
        let opened = self.sealer.open(key, &entry.value);
        opened
            .map(|(opened, _)| Some(opened.value))
            .map_err(|SealError| AskError::Said(VaultError::NotOurs(key.to_owned())))
    }

    async fn write(
        &mut self,
        bucket: &kv::Store,
        key: &str,
        value: &[u8],
        is_confirmed: bool,
    ) -> Result<u64, AskError> {
        if !self.has_turn() {
            return Err(AskError::Said(VaultError::NotOurTurn));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(AskError::Said(VaultError::TooLong(key.to_owned())));
        }
        let opened = PlainValue { is_confirmed, value: value.to_vec() };
        let sealed = self.sealer.seal(key, &opened);
        let sealed = sealed.map_err(|SealError| AskError::Said(VaultError::NotOurs(key.to_owned())))?;
        let before = self.known.get(key).copied().unwrap_or(0);
        let revision = self.changed(bucket, key, sealed, before).await?;
        self.note(key, revision);
        count(&self.common.counts.vault_writes);
        Ok(revision)
    }

    /// Reseals values with the first secret, once the lease is available.
    async fn seal_anew(&mut self, bucket: &kv::Store) -> Result<(), Fault> {
        if self.to_seal.is_empty() || self.seal_at > Instant::now() {
            return Ok(());
        }
        self.seal_at = Instant::now() + SEAL_EVERY;
        let had_turn = self.has_turn();
        match self.take_turn(bucket).await {
            Ok(()) => {}
            Err(AskError::Said(_)) => return Ok(()),
            Err(AskError::Lost(fault)) => return Err(fault),
        }
        while let Some(key) = self.to_seal.first().cloned() {
            let sealed = match self.read(bucket, &key).await {
                Ok(Some(value)) => self.write(bucket, &key, &value, false).await.map(drop),
                Ok(None) => Ok(()),
                Err(refused) => Err(refused),
            };
            // A value that cannot be opened, or has changed, is left to the instance that changed it.
            if let Err(AskError::Lost(fault)) = sealed {
                return Err(fault);
            }
            self.to_seal.remove(&key);
        }
        if !had_turn {
            self.end_turn(bucket).await;
        }
        Ok(())
    }

    /// Releases our lease; one that cannot be released expires.
    async fn end_turn(&mut self, bucket: &kv::Store) {
        if let Some(held) = self.held.take() {
            let nobody = serde_json::to_vec(&Holder::default()).unwrap_or_default();
            let _ = timeout(self.patience(), bucket.update(TURN, nobody.into(), held.revision)).await;
        }
    }

    async fn remove(&mut self, bucket: &kv::Store, key: &str) -> Result<(), AskError> {
        if !self.has_turn() {
            return Err(AskError::Said(VaultError::NotOurTurn));
        }
        let before = self.known.get(key).copied();
        let removed = bucket.purge_expect_revision(key, before);
        Ok(self.within("cannot remove from the shared vault", removed).await?)
    }
}

/// End of the task: all handles are dropped.
struct TaskEnd;

/// Reason why a request failed.
enum AskError {
    Said(VaultError),
    /// The bucket must be opened again.
    Lost(Fault),
}

impl From<Fault> for AskError {
    fn from(fault: Fault) -> Self {
        Self::Lost(fault)
    }
}

fn answered<T>(reply: Reply<T>, outcome: Result<T, AskError>) -> Result<(), Fault> {
    let (said, lost) = match outcome {
        Ok(done) => (Ok(done), Ok(())),
        Err(AskError::Said(refused)) => (Err(refused), Ok(())),
        Err(AskError::Lost(fault)) => (Err(VaultError::CutOff(fault.words(""))), Err(fault)),
    };
    // A requester that has stopped waiting needs no answer.
    let _ = reply.try_send(said);
    lost
}

fn refuse(ask: VaultRequest, why: &VaultError) {
    let why = || Err(AskError::Said(why.clone()));
    let _ = match ask {
        VaultRequest::TakeTurn(reply)
        | VaultRequest::Write(_, _, _, reply)
        | VaultRequest::Remove(_, reply) => answered(reply, why()),
        VaultRequest::Read(_, reply) => answered(reply, why().map(|()| None)),
        VaultRequest::EndTurn => Ok(()),
    };
}
