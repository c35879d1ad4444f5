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
            ("cluster_renewals", "Renewals of this instance's lease that the cluster took.", &self.renewals),
            ("cluster_failures", "Times that the cluster could not be asked, or not joined.", &self.failures),
            ("cluster_lapses", "Times that the lease ran out before it was renewed.", &self.lapses),
            ("cluster_joins", "Times that it joined and caught up.", &self.joins),
            ("cluster_purges_told", "Purges that this instance put into the stream.", &self.told),
            ("cluster_purges_applied", "Purges of the stream that were carried out here.", &self.applied),
            ("cluster_purges_retried", "Times that one could not be carried out at once.", &self.not_carried),
            (
                "cluster_purges_unknown",
                "Purges that were not understood: everything was purged.",
                &self.unknown,
            ),
            (
                "cluster_doubts",
                "Times that it is not known what was purged, so that everything has to be validated.",
                &self.doubts,
            ),
            (
                "cluster_purges_refused",
                "Purges refused because too many waited for the cluster.",
                &self.refused,
            ),
            (
                "cluster_purges_late",
                "Purges that did not hold everywhere in the time that they had.",
                &self.late,
            ),
            (
                "cluster_vault_turns",
                "Times that it was our turn to change what instances share.",
                &self.vault_turns,
            ),
            ("cluster_vault_writes", "Values that this instance shared with the others.", &self.vault_writes),
            (
                "cluster_vault_foreign",
                "Shared values that were sealed by another secret, or not by an instance.",
                &self.vault_foreign,
            ),
        ] {
            let points = vec![Point { labels: Vec::new(), value: Value::Counter(number.load(Relaxed)) }];
            families.push(Family { name, help, unit: Unit::None, points });
        }
    }
}
