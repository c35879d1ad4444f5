//! How much of the store the queries of one path take: by made-up queries (`?x=1`, `?x=2`, …) anyone could fill it with copies
//! of one page.
//!
//! A path's new queries are stored as they come while the store has room, and until they have taken half of what it holds.
//! Beyond, a query is stored at its second request ([`refused_keys`](crate::fetch::refused_keys)). A path's part of the store
//! shrinks as the store takes in other objects, which drive its own out. A path that lost its place in the table
//! ([`direct_mapped_table`](crate::core::direct_mapped_table)) begins anew.

use std::cell::Cell;

use engine::store::Hash;

use crate::{core::direct_mapped_table::DirectMappedTable, fetch::refused_keys::RefusedKeys};

/// Paths that a core remembers.
const PATHS: usize = 1024;
/// The queries of a path take one of so many parts of the store.
const SHARE: u64 = 2;
/// How often a path is named in the log at most.
const SAID_EVERY_S: u64 = 60;

/// The part of the store that a path's queries took.
#[derive(Debug, Clone, Copy, Default)]
struct PathUsage {
    bytes: u64,
    /// Bytes that the store had taken in by then.
    at: u64,
}

/// The paths of a core.
pub(crate) struct Queries {
    usage: DirectMappedTable<PathUsage>,
    refused: RefusedKeys,
    /// Bytes that the store has taken in.
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

/// Whether the answer to a new query is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueryAdmission {
    Stored,
    /// The path has its share, of so many percent of the store.
    OverShare {
        percent: u64,
        /// The log has not named a path for [`SAID_EVERY_S`].
        is_to_be_said: bool,
    },
}

impl Queries {
    /// Counts bytes of any other object that the store takes in.
    pub(crate) fn others_take(&self, bytes: u64) {
        self.all.set(self.all.get().saturating_add(bytes));
    }

    /// Decides on an answer of so many bytes under a key of a path that is not stored yet.
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
        // The store holds the youngest bytes, so as much of the path has gone as has come of everything since.
        let since = all.saturating_sub(at).min(capacity);
        let left = u128::from(taken) * u128::from(capacity - since) / u128::from(capacity);
        let left = u64::try_from(left).unwrap_or(u64::MAX);
        // Until the store is full, no object has to go for another.
        let is_roomy = all.saturating_add(bytes) <= capacity;
        let is_within = is_roomy || left.saturating_add(bytes) <= capacity / SHARE;
        if is_within || self.refused.has_or_insert(key, now_s) {
            self.others_take(bytes);
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
        queries.others_take(CAPACITY);
        let stored = (0..100_000).filter(|number| adds(&queries, 1, *number)).count() as u64;
        assert!((512..800).contains(&stored), "{stored} of a store of 1,024");
        assert!(adds(&queries, 2, 200_000), "another path");
        let said = queries.admit(hash(1), hash(7), BYTES, CAPACITY, 1000);
        let QueryAdmission::OverShare { percent, .. } = said else { panic!("{said:?}") };
        assert!((45..=50).contains(&percent), "{percent}");
        // A store that has room takes what comes.
        let queries = Queries::default();
        assert_eq!((0..1024).filter(|number| adds(&queries, 1, *number)).count(), 1024);
    }

    #[test]
    fn a_query_that_is_asked_for_again_is_stored() {
        let queries = Queries::default();
        queries.others_take(CAPACITY);
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
        queries.others_take(CAPACITY);
        let stored = (7000..17_000).filter(|number| adds(&queries, 1, *number)).count() as u64;
        assert!(stored >= 512, "{stored}");
    }
}
