//! A direct-mapped table of fixed size, one per core. The hash of a key chooses its slot, and a new entry
//! replaces the old one in its slot. No operation allocates or waits. Clients cannot target a slot, because
//! hashes are seeded.

use std::cell::Cell;

use engine::store::Hash;

/// Table that maps hashes to values. Several hashes may share a slot, which holds the value that was set
/// last.
pub(crate) struct DirectMappedTable<T>(Box<[Cell<(u64, T)>]>);

impl<T: Copy + Default> DirectMappedTable<T> {
    /// Creates a table with `places` slots.
    pub(crate) fn new(places: usize) -> Self {
        // A zero word marks an empty slot, because 0 is never a hash.
        Self((0..places).map(|_| Cell::default()).collect())
    }

    #[inline]
    fn of(&self, hash: Hash) -> &Cell<(u64, T)> {
        // The prefix is used because all variants of an address share the low half, which chooses their core.
        &self.0[hash.prefix() as usize % self.0.len()]
    }

    /// Returns the value that was set, unless another hash has replaced it.
    #[inline]
    pub(crate) fn get(&self, hash: Hash) -> Option<T> {
        let (word, known) = self.of(hash).get();
        (word == hash.word()).then_some(known)
    }

    #[inline]
    pub(crate) fn set(&self, hash: Hash, known: T) {
        self.of(hash).set((hash.word(), known));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::dependent::hash_of_dependent;

    #[test]
    fn new_entries_overwrite_and_variants_are_separate() {
        let places = DirectMappedTable::new(1024);
        let hash = |number: u32| Hash::seeded(&number.to_le_bytes(), 0);
        let address = hash(0);
        let variants: Vec<Hash> = (1..9).map(|number| hash_of_dependent(address, hash(number))).collect();
        assert_eq!(places.get(variants[0]), None);
        variants.iter().zip(1..).for_each(|(variant, number)| places.set(*variant, number));
        let kept =
            variants.iter().zip(1..).filter(|(variant, number)| places.get(**variant) == Some(*number));
        assert!(kept.count() >= 7, "of eight in a thousand places hardly two meet");
        (9..9000).for_each(|number| places.set(hash(number), number));
        assert!(variants.iter().all(|variant| places.get(*variant).is_none()));
    }
}
