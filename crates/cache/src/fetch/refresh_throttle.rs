//! Throttle of background refreshes: stale objects whose refresh began a moment ago, so that the origin is
//! not asked at every hit.
//!
//! An object that lost its slot ([`direct_mapped_table`](crate::core::direct_mapped_table)) is refreshed once
//! more.

use engine::store::Hash;

use crate::core::direct_mapped_table::DirectMappedTable;

/// Slots of the table on each core.
const PLACES: usize = 1024;
/// Milliseconds for which an event is kept: each core asks a failing origin for an object at most once in
/// this time.
const FOR_MS: u64 = 1000;

/// Objects for which an event was recorded recently, each with the time until which the event counts.
pub(crate) struct RefreshThrottle {
    until_ms: DirectMappedTable<u64>,
    for_ms: u64,
}

impl Default for RefreshThrottle {
    fn default() -> Self {
        Self::lasting(FOR_MS)
    }
}

impl RefreshThrottle {
    /// Creates a table that keeps an event for `for_ms` milliseconds.
    pub(crate) fn lasting(for_ms: u64) -> Self {
        Self { until_ms: DirectMappedTable::new(PLACES), for_ms }
    }

    /// Records an event for an object.
    pub(crate) fn note(&self, hash: Hash, now_ms: u64) {
        self.note_for(hash, now_ms, self.for_ms);
    }

    /// Records an event for an object, for `for_ms` milliseconds.
    pub(crate) fn note_for(&self, hash: Hash, now_ms: u64, for_ms: u64) {
        self.until_ms.set(hash, now_ms + for_ms);
    }

    /// Removes the event of an object.
    pub(crate) fn forget(&self, hash: Hash) {
        self.until_ms.set(hash, 0);
    }

    /// Returns whether an event was recorded for the object within the table's time.
    pub(crate) fn has(&self, hash: Hash, now_ms: u64) -> bool {
        self.until_ms.get(hash).is_some_and(|until_ms| now_ms < until_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_remembered_for_a_second() {
        let lately = RefreshThrottle::default();
        let (one, other) = (Hash::seeded(b"one", 0), Hash::seeded(b"other", 0));
        assert!(!lately.has(one, 5));
        lately.note(one, 5);
        assert!(
            lately.has(one, 5) && lately.has(one, 1004) && !lately.has(one, 1005) && !lately.has(other, 5)
        );
        lately.forget(one);
        assert!(!lately.has(one, 5));
    }
}
