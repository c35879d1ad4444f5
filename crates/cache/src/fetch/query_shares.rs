//! Share of the store used by the queries of one path: with made-up queries (`?x=1`, `?x=2`, …) any client
//! could fill the store with copies of one page.
//!
//! A path's new queries are stored at their first request while the store has room, and until they use half
//! of its capacity. Beyond that, a query is stored at its second request
//! ([`refused_keys`](crate::fetch::refused_keys)). A path's share shrinks as the store accepts other objects,
//! which evict the path's own. The count of a path that lost its slot in the table
//! ([`direct_mapped_table`](crate::core::direct_mapped_table)) starts at zero again.

use std::cell::Cell;

use engine::store::Hash;

use crate::{core::direct_mapped_table::DirectMappedTable, fetch::refused_keys::RefusedKeys};

/// Number of paths that each core counts.
const PATHS: usize = 1024;
/// Divisor: the queries of one path may use 1/`SHARE` of the store.
const SHARE: u64 = 2;
/// Minimum seconds between two log lines that name a path.
const SAID_EVERY_S: u64 = 60;

/// Bytes of the store that a path's queries use.
#[derive(Debug, Clone, Copy, Default)]
struct PathUsage {
    bytes: u64,
    /// Total bytes that the store had accepted at the last update.
    at: u64,
}

/// Usage of a core's store by path.
pub(crate) struct Queries {
    usage: DirectMappedTable<PathUsage>,
    refused: RefusedKeys,
    /// Total bytes that the store has accepted.
    all: Cell<u64>,
    said_s: Cell<u64>,
}

impl Default for Queries {
    fn default() -> Self {
        Self {
            usage: DirectMappedTable::new(PATHS),
            refused: RefusedKeys::default(),
            all: Cell::new(0),
            said_s: Cell::new(0),
        }
    }
}

/// Decision on storing the answer to a new query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueryAdmission {
    Stored,
    /// The path already has its share, of `percent` percent of the store.
    OverShare {
        percent: u64,
        /// True if the log must name the path, because it has named none for [`SAID_EVERY_S`] seconds.
        is_to_be_said: bool,
    },
}

impl Queries {
    /// Counts the bytes of any other object that the store accepts.
    pub(crate) fn note_other_bytes(&self, bytes: u64) {
        self.all.set(self.all.get().saturating_add(bytes));
    }

    /// Decides whether to store an answer of `bytes` bytes under a key of the path that is not stored yet.
    pub(crate) fn admit(
        &self,
        path: Hash,
        key: Hash,
        bytes: u64,
        capacity: u64,
        now_s: u64,
    ) -> QueryAdmission {
        let capacity = capacity.max(1);
        let all = self.all.get();
        let PathUsage { bytes: taken, at } = self.usage.get(path).unwrap_or_default();
        // The store evicts its oldest bytes first, so the path has lost the same fraction of its bytes as the
        // whole store has replaced since then.
        let since = all.saturating_sub(at).min(capacity);
        let left = u128::from(taken) * u128::from(capacity - since) / u128::from(capacity);
        let left = u64::try_from(left).unwrap_or(u64::MAX);
        // Until the store is full, storing an object evicts no other.
        let is_roomy = all.saturating_add(bytes) <= capacity;
        let is_within = is_roomy || left.saturating_add(bytes) <= capacity / SHARE;
        if is_within || self.refused.has_or_insert(key, now_s) {
            self.note_other_bytes(bytes);
            self.usage.set(path, PathUsage { bytes: left.saturating_add(bytes), at: self.all.get() });
            return QueryAdmission::Stored;
        }
        let is_to_be_said = now_s >= self.said_s.get();
        if is_to_be_said {
            self.said_s.set(now_s + SAID_EVERY_S);
        }
        QueryAdmission::OverShare { percent: left.saturating_mul(100) / capacity, is_to_be_said }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> Hash {
        Hash::seeded(&number.to_le_bytes(), 0)
    }

    const CAPACITY: u64 = 1 << 20;
    const BYTES: u64 = 1 << 10;

    fn adds(queries: &Queries, path: u64, number: u64) -> bool {
        queries.admit(hash(path), hash(1000 + number), BYTES, CAPACITY, 1000) == QueryAdmission::Stored
    }

    #[test]
    fn queries_of_a_path_take_half() {
        let queries = Queries::default();
        queries.note_other_bytes(CAPACITY);
        let stored = (0..100_000).filter(|number| adds(&queries, 1, *number)).count() as u64;
        assert!((512..800).contains(&stored), "{stored} of a store of 1,024");
        assert!(adds(&queries, 2, 200_000), "another path");
        let said = queries.admit(hash(1), hash(7), BYTES, CAPACITY, 1000);
        let QueryAdmission::OverShare { percent, .. } = said else { panic!("{said:?}") };
        assert!((45..=50).contains(&percent), "{percent}");
        // A store that has room accepts everything.
        let queries = Queries::default();
        assert_eq!((0..1024).filter(|number| adds(&queries, 1, *number)).count(), 1024);
    }

    #[test]
    fn a_repeated_query_is_stored() {
        let queries = Queries::default();
        queries.note_other_bytes(CAPACITY);
        for number in 0..5000 {
            adds(&queries, 1, number);
        }
        assert!(!adds(&queries, 1, 6000) && adds(&queries, 1, 6000));
    }

    #[test]
    fn what_other_things_drive_out_counts_no_more() {
        let queries = Queries::default();
        for number in 0..5000 {
            adds(&queries, 1, number);
        }
        assert!(!adds(&queries, 1, 6001));
        queries.note_other_bytes(CAPACITY);
        let stored = (7000..17_000).filter(|number| adds(&queries, 1, *number)).count() as u64;
        assert!(stored >= 512, "{stored}");
    }
}
