//! Hash table that maps a hash to the slot of an entry, with 4 bytes per entry and a third more for free
//! slots.
//!
//! The table uses open addressing with linear probing, in [`PARTS`] parts that grow independently: growing
//! moves the slots of one part only, so that a loop with a million entries is not blocked for tens of
//! milliseconds. Only the slot is stored; the owner of the entries recomputes the hash when needed.

/// Number of parts; the highest bits of the hash choose one. With a million entries in total, a part has
/// 4,096 or 8,192 slots.
const PARTS: usize = 256;
const VACANT: u32 = u32::MAX;
/// Initial slots of a part.
const PART_MIN: usize = 8;

#[derive(Debug, Default)]
struct Part {
    /// Slots; their number is a power of two, or 0.
    slots: Box<[u32]>,
    used: usize,
}

/// Hash table of slots.
#[derive(Debug)]
pub(super) struct SlotTable {
    parts: Box<[Part]>,
}

impl SlotTable {
    pub(super) fn new() -> Self {
        Self { parts: (0..PARTS).map(|_| Part::default()).collect() }
    }

    /// Returns the slot under `hash` for which `is` returns true.
    pub(super) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        let part = &self.parts[part_of(hash)];
        let mask = part.slots.len().wrapping_sub(1);
        let mut at = hash as usize & mask;
        while let Some(&slot) = part.slots.get(at) {
            if slot == VACANT {
                return None;
            }
            if is(slot) {
                return Some(slot);
            }
            at = (at + 1) & mask;
        }
        None
    }

    /// Inserts a slot that the table does not contain.
    pub(super) fn insert(&mut self, hash: u64, slot: u32, hash_of: impl Fn(u32) -> u64) {
        let part = &mut self.parts[part_of(hash)];
        if (part.used + 1) * 4 > part.slots.len() * 3 {
            let larger = vec![VACANT; (part.slots.len() * 2).max(PART_MIN)].into_boxed_slice();
            let smaller = std::mem::replace(&mut part.slots, larger);
            smaller.iter().filter(|slot| **slot != VACANT).for_each(|slot| part.put(hash_of(*slot), *slot));
        }
        part.put(hash, slot);
        part.used += 1;
    }

    /// Removes a slot.
    ///
    /// # Panics
    /// If the table does not contain the slot.
    pub(super) fn remove(&mut self, hash: u64, slot: u32, hash_of: impl Fn(u32) -> u64) {
        let part = &mut self.parts[part_of(hash)];
        let mask = part.slots.len().wrapping_sub(1);
        let mut hole = hash as usize & mask;
        while part.slots[hole] != slot {
            assert!(part.slots[hole] != VACANT, "what is taken out of the table is in it");
            hole = (hole + 1) & mask;
        }
        part.used -= 1;
        // Slots that probing placed behind the removed one move back, so that no search ends too early.
        let mut at = hole;
        loop {
            at = (at + 1) & mask;
            let moved = part.slots[at];
            if moved == VACANT {
                break;
            }
            let home = hash_of(moved) as usize & mask;
            if at.wrapping_sub(home) & mask >= at.wrapping_sub(hole) & mask {
                part.slots[hole] = moved;
                hole = at;
            }
        }
        part.slots[hole] = VACANT;
    }

    /// Memory of the table.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| size_of::<Part>() + part.slots.len() * size_of::<u32>()).sum()
    }
}

impl Part {
    fn put(&mut self, hash: u64, slot: u32) {
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        while self.slots[at] != VACANT {
            at = (at + 1) & mask;
        }
        self.slots[at] = slot;
    }
}

fn part_of(hash: u64) -> usize {
    (hash >> 56) as usize % PARTS
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Uses few different hashes, so that probe sequences overlap and wrap around the end.
        #[test]
        fn it_agrees_with_a_set(steps in proptest::collection::vec((any::<bool>(), 0u32..60), 0..400), spread in 1u64..20) {
            let hash_of = |slot: u32| u64::from(slot) % spread;
            let (mut table, mut twin) = (SlotTable::new(), HashSet::new());
            for (insert, slot) in steps {
                if insert && twin.insert(slot) {
                    table.insert(hash_of(slot), slot, hash_of);
                } else if !insert && twin.remove(&slot) {
                    table.remove(hash_of(slot), slot, hash_of);
                }
                for slot in 0..60 {
                    let found = table.find(hash_of(slot), |found| found == slot);
                    prop_assert_eq!(found.is_some(), twin.contains(&slot));
                }
            }
        }
    }
}
