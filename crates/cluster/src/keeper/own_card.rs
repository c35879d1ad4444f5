//! Our card in the bucket: whose the name is, each link of the lease, and what the watcher brings of ours and of others.

use std::{future::Future, time::Duration};

use async_nats::jetstream::kv;
use engine::cores::clock;
use tokio::time::{sleep, timeout};

use super::{ClusterTask, Fault};
use crate::{
    card::Heartbeat,
    counts::count,
    lease::{Lease, LeaseExpiry},
    view::with_margin,
};

/// Our own cards whose sending is remembered until the watcher brings them.
const SENT_MAX: usize = 64;

/// A card that is known to be taken.
pub(super) struct AcceptedHeartbeat {
    pub(super) revision: u64,
    sent_boot_ms: u64,
}

impl ClusterTask {
    /// Makes the name ours: nobody has it, or who had it is gone.
    pub(super) async fn take_name(&mut self, bucket: &kv::Store) -> Result<(), Fault> {
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
        let card = Heartbeat::of_bytes(&entry.value).filter(|_| entry.operation == kv::Operation::Put);
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
    pub(super) fn put(
        &mut self,
        bucket: &kv::Store,
    ) -> Result<impl Future<Output = Result<AcceptedHeartbeat, Fault>> + use<>, Fault> {
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
                Ok(Ok(revision)) => Ok(AcceptedHeartbeat { revision, sent_boot_ms }),
                Ok(Err(error)) => Err(Fault::of("the bucket cannot be written", &error)),
                Err(_) => {
                    let why = "the bucket does not answer: too few of its servers may be up, or the way there is cut";
                    Err(Fault::Cannot(why.to_owned()))
                }
            }
        })
    }

    /// Our card is in the bucket.
    pub(super) fn taken(&mut self, taken: &AcceptedHeartbeat) -> Result<(), Fault> {
        count(&self.common.counts.renewals);
        self.revision = self.revision.max(taken.revision);
        match &mut self.lease {
            Some(lease) => {
                lease.renewed(taken.sent_boot_ms, clock::boot_ms()).map_err(|LeaseExpiry| Fault::Lapsed)
            }
            None => {
                self.lease = Some(Lease::begin(self.lease_ms(), taken.sent_boot_ms));
                Ok(())
            }
        }
    }

    /// The watcher has brought something.
    pub(super) fn see(&mut self, entry: Option<Result<kv::Entry, kv::WatcherError>>) -> Result<(), Fault> {
        let cannot = || Fault::Cannot("the bucket cannot be watched".to_owned());
        let entry =
            entry.ok_or_else(cannot)?.map_err(|error| Fault::of("the bucket cannot be watched", &error))?;
        let is_put = entry.operation == kv::Operation::Put;
        let card = Heartbeat::of_bytes(&entry.value).filter(|_| is_put);
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

    /// Says in the bucket that we have stopped.
    pub(super) async fn leave(&mut self) {
        let Some(bucket) = self.bucket.take() else { return };
        self.card.left = true;
        if let Ok(put) = self.put(&bucket) {
            // Then our lease is waited for.
            let _ = put.await;
        }
    }
}
