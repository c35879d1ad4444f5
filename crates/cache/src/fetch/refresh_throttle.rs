//! Stale objects for which the origin was asked a moment ago, so that it is not asked for them at each hit.
//!
//! An object that lost its slot ([`direct_mapped_table`](crate::core::direct_mapped_table)) has the origin asked once more.

use engine::store::Hash;

use crate::core::direct_mapped_table::DirectMappedTable;

/// Objects that a core remembers.
const PLACES: usize = 1024;
/// For how long: a failing origin is asked for an object once in this time by each core.
const FOR_MS: u64 = 1000;

/// Objects for which an event was noted a moment ago, each with the end of that moment.
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
    /// Makes a table that keeps an event for `for_ms` milliseconds.
    pub(crate) fn lasting(for_ms: u64) -> Self {
        Self { until_ms: DirectMappedTable::new(PLACES), for_ms }
    }

    /// Notes an event for an object.
    pub(crate) fn note(&self, hash: Hash, now_ms: u64) {
        self.until_ms.set(hash, now_ms + self.for_ms);
    }

    /// Takes the event of an object back.
    pub(crate) fn forget(&self, hash: Hash) {
        self.until_ms.set(hash, 0);
    }

    /// Returns whether an event was noted for the object within the table's time.
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
