//! A hash table of numbers: the things that they stand for lie elsewhere, with their keys.
//!
//! Open addressing with linear probing, at most ¾ full; removal shifts back what follows, so there are no tombstones and
//! churn costs no rehash. Eight bytes an entry at most: the trie's edges and the subscriptions of a connection are
//! found by it.

/// No entry here.
const VACANT: u32 = u32::MAX;
/// Slots of the smallest table.
const SLOTS_MIN: usize = 8;

/// Numbers by the hash of what they stand for.
#[derive(Debug, Default)]
pub(crate) struct IdTable {
    slots: Vec<u32>,
    len: usize,
}

impl IdTable {
    /// The number with this hash of which `is_it` is true.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.place(hash);
        loop {
            match self.slots[at] {
                VACANT => return None,
                id if is_it(id) => return Some(id),
                _ => at = (at + 1) & (self.slots.len() - 1),
            }
        }
    }

    /// Adds a number that is not there yet. `hash_of` gives the hash of any number in the table.
    pub(crate) fn insert(&mut self, id: u32, hash_of: impl Fn(u32) -> u64) {
        assert!(id != VACANT, "a number of the table's own");
        if (self.len + 1) * 4 > self.slots.len() * 3 {
            self.resize((self.slots.len() * 2).max(SLOTS_MIN), &hash_of);
        }
        self.put(id, hash_of(id));
        self.len += 1;
    }

    /// Takes out a number that is there.
    pub(crate) fn remove(&mut self, id: u32, hash_of: impl Fn(u32) -> u64) {
        let mask = self.slots.len() - 1;
        let mut hole = self.place(hash_of(id));
        while self.slots[hole] != id {
            assert!(self.slots[hole] != VACANT, "what is removed is in the table");
            hole = (hole + 1) & mask;
        }
        self.slots[hole] = VACANT;
        self.len -= 1;
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let moving = self.slots[at];
            if moving == VACANT {
                break;
            }
            // It may fill the hole if its own place is not between the hole and where it is.
            let home = self.place(hash_of(moving));
            if (at.wrapping_sub(home) & mask) >= (at.wrapping_sub(hole) & mask) {
                self.slots[hole] = moving;
                self.slots[at] = VACANT;
                hole = at;
            }
        }
        if self.len == 0 {
            self.slots = Vec::new();
        } else if self.slots.len() > SLOTS_MIN && self.len * 8 < self.slots.len() {
            self.resize(self.slots.len() / 2, &hash_of);
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// All of them, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().copied().filter(|&id| id != VACANT)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the low bits choose the place")]
    fn place(&self, hash: u64) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    fn put(&mut self, id: u32, hash: u64) {
        let mut at = self.place(hash);
        while self.slots[at] != VACANT {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = id;
    }

    fn resize(&mut self, slots: usize, hash_of: &impl Fn(u32) -> u64) {
        let before = std::mem::replace(&mut self.slots, vec![VACANT; slots]);
        for id in before.into_iter().filter(|&id| id != VACANT) {
            self.put(id, hash_of(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a set: what was put in and not taken out is found, whatever collides.
        #[test]
        fn like_a_set(steps in prop::collection::vec((any::<bool>(), 0_u32..60), 0..400), bits in 0_u32..6) {
            let hash_of = |id: u32| u64::from(id) & ((1 << bits) - 1);
            let (mut table, mut twin) = (IdTable::default(), BTreeSet::new());
            for (add, id) in steps {
                if add && twin.insert(id) {
                    table.insert(id, hash_of);
                } else if !add && twin.remove(&id) {
                    table.remove(id, hash_of);
                }
                for id in 0..60 {
                    prop_assert_eq!(table.find(hash_of(id), |found| found == id), twin.get(&id).copied());
                }
                prop_assert_eq!(table.len(), twin.len());
                prop_assert_eq!(table.iter().collect::<BTreeSet<_>>(), twin.clone());
            }
        }
    }
}
