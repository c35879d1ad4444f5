//! Counters of the cluster.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use engine::meter::{Family, Point, Source, Unit, Value};

/// The counters, incremented by one thread.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) renewals: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) lapses: AtomicU64,
    pub(crate) joins: AtomicU64,
    pub(crate) told: AtomicU64,
    pub(crate) applied: AtomicU64,
    pub(crate) not_carried: AtomicU64,
    pub(crate) unknown: AtomicU64,
    pub(crate) doubts: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) vault_turns: AtomicU64,
    pub(crate) vault_writes: AtomicU64,
    pub(crate) vault_foreign: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl Source for Counts {
    fn collect(&self, families: &mut Vec<Family>) {
        for (name, help, number) in [
            ("cluster_renewals", "Renewals of this instance's lease.", &self.renewals),
            ("cluster_failures", "Failed requests or connections to the cluster.", &self.failures),
            ("cluster_lapses", "Times that the lease expired before it was renewed.", &self.lapses),
            ("cluster_joins", "Times that this instance joined the cluster and caught up.", &self.joins),
            ("cluster_purges_told", "Purges that this instance published to the stream.", &self.told),
            ("cluster_purges_applied", "Purges of the stream applied here.", &self.applied),
            ("cluster_purges_retried", "Purges that had to be retried.", &self.not_carried),
            ("cluster_purges_unknown", "Unknown purge records: everything was purged.", &self.unknown),
            (
                "cluster_doubts",
                "Times that purges may have been missed, so that all stored objects are revalidated before use.",
                &self.doubts,
            ),
            (
                "cluster_purges_refused",
                "Purges refused because too many were waiting for the cluster.",
                &self.refused,
            ),
            ("cluster_purges_late", "Purges not applied everywhere in time.", &self.late),
            (
                "cluster_vault_turns",
                "Times that this instance held the lease of the shared vault.",
                &self.vault_turns,
            ),
            (
                "cluster_vault_writes",
                "Values that this instance wrote to the shared vault.",
                &self.vault_writes,
            ),
            (
                "cluster_vault_foreign",
                "Values in the shared vault that were sealed with another secret, or not by Nighttrain.",
                &self.vault_foreign,
            ),
        ] {
            let points = vec![Point { labels: Vec::new(), value: Value::Counter(number.load(Relaxed)) }];
            families.push(Family { name, help, unit: Unit::None, points });
        }
    }
}
