//! Keys for which the answer to the first request was not stored: the answer to a second request within a
//! minute is stored.
//!
//! A bound on new objects of a path or an address must not keep out the objects that visitors want. Keys that
//! a client makes up are requested once each, while visitors request the same key again. A key that lost its
//! slot in the table ([`direct_mapped_table`](crate::core::direct_mapped_table)) counts as never requested.

use engine::store::Hash;

use crate::core::direct_mapped_table::DirectMappedTable;

/// Slots of the table on each core.
const KEYS: usize = 4096;
/// Seconds for which a refused key is kept.
const REMEMBERED_S: u64 = 60;

/// Refused keys of a core, with the time of each refusal.
pub(crate) struct RefusedKeys(DirectMappedTable<u64>);

impl Default for RefusedKeys {
    fn default() -> Self {
        Self(DirectMappedTable::new(KEYS))
    }
}

impl RefusedKeys {
    /// Returns whether a key was refused within the last minute; otherwise records it as refused now.
    pub(crate) fn has_or_insert(&self, key: Hash, now_s: u64) -> bool {
        let is_known = self.0.get(key).is_some_and(|at_s| now_s.saturating_sub(at_s) < REMEMBERED_S);
        if !is_known {
            self.0.set(key, now_s);
        }
        is_known
    }
}
