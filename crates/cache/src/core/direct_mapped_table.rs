//! A table of fixed size, one a core, in which the hash of something gives it its place, and the last who comes has it:
//! who lost its place is as one who never came. Nothing allocates or is waited for. Nobody can aim, since hashes have a
//! seed.

use std::cell::Cell;

use engine::store::Hash;

/// What is known of each.
pub(crate) struct DirectMappedTable<T>(Box<[Cell<(u64, T)>]>);

impl<T: Copy + Default> DirectMappedTable<T> {
    /// So many.
    pub(crate) fn new(places: usize) -> Self {
        // 0 is no hash.
        Self((0..places).map(|_| Cell::default()).collect())
    }

    #[inline]
    fn of(&self, hash: Hash) -> &Cell<(u64, T)> {
        // All variants of an address have the same low half, which chooses their core.
        &self.0[hash.prefix() as usize % self.0.len()]
    }

    /// What was set, if nobody else has the place by now.
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
    use crate::request::key;

    #[test]
    fn who_comes_last_has_the_place_and_variants_have_their_own() {
        let places = DirectMappedTable::new(1024);
        let hash = |number: u32| Hash::seeded(&number.to_le_bytes(), 0);
        let address = hash(0);
        let variants: Vec<Hash> = (1..9).map(|number| key::hash_of_variant(address, hash(number))).collect();
        assert_eq!(places.get(variants[0]), None);
        variants.iter().zip(1..).for_each(|(variant, number)| places.set(*variant, number));
        let kept =
            variants.iter().zip(1..).filter(|(variant, number)| places.get(**variant) == Some(*number));
        assert!(kept.count() >= 7, "of eight in a thousand places hardly two meet");
        (9..9000).for_each(|number| places.set(hash(number), number));
        assert!(variants.iter().all(|variant| places.get(*variant).is_none()));
    }
}
