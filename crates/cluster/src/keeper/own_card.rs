//! This instance's heartbeat in the bucket: ownership of the name, renewals of the lease, and the entries
//! that the watcher delivers.

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

/// Maximum number of own heartbeats whose send times are kept until the watcher delivers them.
const SENT_MAX: usize = 64;

/// A heartbeat that the bucket has accepted.
pub(super) struct AcceptedHeartbeat {
    pub(super) revision: u64,
    sent_boot_ms: u64,
}

/// A heartbeat that was sent to the bucket.
pub(super) struct SentHeartbeat {
    /// Number of the heartbeat ([`Heartbeat::written`]).
    number: u64,
    sent_ms: u64,
}

impl ClusterTask {
    /// Claims this instance's name, if no instance uses it or its former holder is gone.
    pub(super) async fn take_name(&mut self, bucket: &kv::Store) -> Result<(), Fault> {
        let name = self.common.config.name.to_string();
        let asked = async || {
            let entry = bucket.entry(name.clone()).await;
            entry.map_err(|error| Fault::of("cannot read the bucket", &error))
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
        // The holder may be a process that was killed; its heartbeat then no longer changes.
        self.say(&Fault::Cannot("waiting to see whether another instance has the same name".to_owned()));
        let lease_ms = card.map_or(longest, |card| card.lease_ms());
        sleep(Duration::from_millis(with_margin(lease_ms))).await;
        match asked().await? {
            Some(again) if again.revision != entry.revision => Err(Fault::NameTaken),
            _ => Ok(()),
        }
    }

    /// Prepares a write of our heartbeat; it is sent when the returned future is first polled.
    pub(super) fn put(
        &mut self,
        bucket: &kv::Store,
    ) -> Result<impl Future<Output = Result<AcceptedHeartbeat, Fault>> + use<>, Fault> {
        if let Some(position) = self.position {
            (self.card.generation, self.card.applied) = (position.generation, position.applied);
        }
        self.card.written += 1;
        // The times are taken before sending, because the lease runs from the send time.
        let (sent_boot_ms, sent_ms) = (clock::boot_ms(), self.common.now_ms());
        if self.sent.len() == SENT_MAX {
            return Err(Fault::Cannot("a value written to the bucket does not come back".to_owned()));
        }
        self.sent.push_back(SentHeartbeat { number: self.card.written, sent_ms });
        let (bucket, name) = (bucket.clone(), self.common.config.name.to_string());
        let (bytes, revision, patience) = (self.card.to_bytes(), self.revision, self.patience());
        Ok(async move {
            match timeout(patience, bucket.update(name, bytes.into(), revision)).await {
                Ok(Ok(revision)) => Ok(AcceptedHeartbeat { revision, sent_boot_ms }),
                Ok(Err(error)) => Err(Fault::of("cannot write to the bucket", &error)),
                Err(_) => {
                    let why =
                        "no answer from the bucket: too few of its servers are up, or the network is cut";
                    Err(Fault::Cannot(why.to_owned()))
                }
            }
        })
    }

    /// Records that the bucket has accepted our heartbeat, which renews the lease.
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

    /// Processes an entry from the watcher.
    pub(super) fn see(&mut self, entry: Option<Result<kv::Entry, kv::WatcherError>>) -> Result<(), Fault> {
        let cannot = || Fault::Cannot("cannot watch the bucket".to_owned());
        let entry =
            entry.ok_or_else(cannot)?.map_err(|error| Fault::of("cannot watch the bucket", &error))?;
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
            while let Some(sent) = self.sent.pop_front_if(|sent| sent.number <= card.written) {
                sent_ms = (sent.number == card.written).then_some(sent.sent_ms);
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

    /// Announces in the bucket that this instance has stopped.
    pub(super) async fn leave(&mut self) {
        let Some(bucket) = self.bucket.take() else { return };
        self.card.left = true;
        if let Ok(put) = self.put(&bucket) {
            // If the write fails, the others wait until our lease expires.
            let _ = put.await;
        }
    }
}
