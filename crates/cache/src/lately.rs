//! Stale objects for which the origin was asked a moment ago, so that it is not asked for them at each hit.
//!
//! A table of fixed size, one a core, in which an object's place is given by its hash and the last who comes has it: who
//! lost its place asks the origin once more, no harm is done. Nothing here allocates or is waited for.

use std::cell::Cell;

use engine::store::Hash;

/// Objects that a core remembers.
const PLACES: usize = 1024;
/// For how long: a failing origin is asked for an object once in this time by each core.
const FOR_MS: u64 = 1000;

/// The table.
pub(crate) struct Lately(Box<[Cell<(u64, u64)>]>);

impl Default for Lately {
    fn default() -> Self {
        Self((0..PLACES).map(|_| Cell::new((0, 0))).collect())
    }
}

impl Lately {
    fn place(&self, hash: Hash) -> &Cell<(u64, u64)> {
        // The low half chose the core, the high half the page of the index: any bits will do.
        &self.0[hash.word() as usize % PLACES]
    }

    /// The origin is being asked for an object.
    pub(crate) fn note(&self, hash: Hash, now_ms: u64) {
        self.place(hash).set((hash.word(), now_ms + FOR_MS));
    }

    /// Whether it was within the last second.
    pub(crate) fn has(&self, hash: Hash, now_ms: u64) -> bool {
        let (word, until_ms) = self.place(hash).get();
        word == hash.word() && now_ms < until_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_remembered_for_a_second() {
        let lately = Lately::default();
        let (one, other) = (Hash::seeded(b"one", 0), Hash::seeded(b"other", 0));
        assert!(!lately.has(one, 5));
        lately.note(one, 5);
        assert!(
            lately.has(one, 5) && lately.has(one, 1004) && !lately.has(one, 1005) && !lately.has(other, 5)
        );
    }
}
