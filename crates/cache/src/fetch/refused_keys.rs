//! Keys that were not stored when they were asked for once: the second request within a minute is.
//!
//! A bound on what a path or an address adds to the store must not keep out what visitors ask for. Keys that a client
//! makes up are asked for once each, and visitors ask again. A key that lost its place in the table
//! ([`direct_mapped_table`](crate::core::direct_mapped_table)) counts as never asked for.

use engine::store::Hash;

use crate::core::direct_mapped_table::DirectMappedTable;

/// Keys that a core remembers.
const KEYS: usize = 4096;
/// For how long a refused key is remembered.
const REMEMBERED_S: u64 = 60;

/// The refused keys of a core, with the time of each refusal.
pub(crate) struct RefusedKeys(DirectMappedTable<u64>);

impl Default for RefusedKeys {
    fn default() -> Self {
        Self(DirectMappedTable::new(KEYS))
    }
}

impl RefusedKeys {
    /// Returns whether a key was refused within the last minute; a key that was not counts as refused now.
    pub(crate) fn has_or_insert(&self, key: Hash, now_s: u64) -> bool {
        let is_known = self.0.get(key).is_some_and(|at_s| now_s.saturating_sub(at_s) < REMEMBERED_S);
        if !is_known {
            self.0.set(key, now_s);
        }
        is_known
    }
}
