//! A table of fixed size, one a core, in which the hash of something gives it its place, and the last who comes has it:
//! who lost its place is as one who never came. Nothing allocates or is waited for. Nobody can aim, since hashes have a
//! seed.

use std::cell::Cell;

use engine::store::Hash;

/// What is known of each.
pub(crate) struct Places<T>(Box<[Cell<(u64, T)>]>);

impl<T: Copy + Default> Places<T> {
    /// So many.
    pub(crate) fn new(places: usize) -> Self {
        // 0 is no hash.
        Self((0..places).map(|_| Cell::default()).collect())
    }

    #[inline]
    fn of(&self, hash: Hash) -> &Cell<(u64, T)> {
        // The core was chosen by the highest bits of the low half, the page of the index by those of the high one.
        &self.0[hash.word() as usize % self.0.len()]
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
