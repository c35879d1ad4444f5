//! The expiry queue of a shard.
//!
//! A heap of plain words, expiry seconds in the high half and the high half of the hash in the low: 8 bytes an
//! entry, and no touch of the object. When one is due, the slots of that prefix with that very expiry go. An entry
//! whose object was replaced, refreshed or evicted finds nothing: lazy deletion.
//!
//! Entries that will find nothing are bounded: when they outnumber the objects by half, the queue is sifted: taken
//! from the end of the old heap some at a time (which leaves it a heap), kept in the new one if the index still knows
//! them, dropped otherwise. So that equal entries melt into one, each slot notes in which of two turns of sifting it
//! was entered ([`Slot::sifting`](super::index::Slot::sifting)): one that says "this" has its entry already.

use bheap::BinaryHeap;

/// Entries from which sifting is worth it.
const SIFT_FROM: usize = 512;

/// The queue.
#[derive(Debug)]
pub(super) struct ExpiryQueue {
    heap: BinaryHeap<u64>,
    /// What is not sifted yet; empty most of the time.
    unsifted: BinaryHeap<u64>,
    /// Changes when sifting begins; what slots note.
    sifting: bool,
}

/// When, and which hash prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) expires_s: u32,
    pub(super) prefix: u32,
}

impl Due {
    fn word(self) -> u64 {
        u64::from(self.expires_s) << 32 | u64::from(self.prefix)
    }

    fn of(word: u64) -> Self {
        Self { expires_s: (word >> 32) as u32, prefix: word as u32 }
    }
}

impl ExpiryQueue {
    pub(super) fn new() -> Self {
        Self { heap: BinaryHeap::new(), unsifted: BinaryHeap::new(), sifting: false }
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len() + self.unsifted.len()
    }

    #[inline]
    pub(super) fn push(&mut self, due: Due) {
        self.heap.push(due.word());
    }

    /// The next entry that is due at `now_s`.
    pub(super) fn pop_due(&mut self, now_s: u32) -> Option<Due> {
        let heap = match (self.heap.peek(), self.unsifted.peek()) {
            (Some(sifted), Some(unsifted)) if unsifted < sifted => &mut self.unsifted,
            (None, Some(_)) => &mut self.unsifted,
            _ => &mut self.heap,
        };
        let next = Due::of(*heap.peek()?);
        if next.expires_s > now_s {
            return None;
        }
        heap.pop();
        Some(next)
    }

    /// What slots that are entered now note.
    #[inline]
    pub(super) fn sifting(&self) -> bool {
        self.sifting
    }

    /// Takes the next entry to sift, if there are too many for so many objects. The caller pushes it back if it is
    /// the only one of an object that lives.
    #[inline]
    pub(super) fn take_unsifted(&mut self, objects: usize) -> Option<Due> {
        if self.unsifted.is_empty() {
            if self.heap.len() < SIFT_FROM || self.heap.len() < objects + objects / 2 {
                return None;
            }
            std::mem::swap(&mut self.heap, &mut self.unsifted);
            // The other one is empty, but as long as it ever was; let go of that.
            self.heap = BinaryHeap::new();
            self.sifting = !self.sifting;
        }
        // The last is a leaf, so nothing else moves.
        self.unsifted.remove_at(self.unsifted.len() - 1).map(Due::of)
    }

    /// Prefixes that will be sifted soon, for their buckets to be brought near.
    pub(super) fn sifted_soon(&self, count: usize) -> impl Iterator<Item = u32> {
        self.unsifted.iter().rev().take(count).map(|word| Due::of(*word).prefix)
    }

    /// When the next entry is due.
    pub(super) fn next_s(&self) -> Option<u32> {
        let next = [self.heap.peek(), self.unsifted.peek()].into_iter().flatten().min()?;
        Some(Due::of(*next).expires_s)
    }

    /// All entries as expiry and prefix, for invariants.
    pub(super) fn entries(&self) -> std::collections::HashSet<(u32, u32)> {
        let words = self.heap.iter().chain(self.unsifted.iter());
        words.map(|word| Due::of(*word)).map(|due| (due.expires_s, due.prefix)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_when_due_in_order() {
        let mut queue = ExpiryQueue::new();
        for expires_s in [30, 10, 20] {
            queue.push(Due { expires_s, prefix: expires_s * 7 });
        }
        assert_eq!(queue.next_s(), Some(10));
        assert_eq!(queue.pop_due(9), None);
        assert_eq!(queue.pop_due(20), Some(Due { expires_s: 10, prefix: 70 }));
        assert_eq!(queue.pop_due(20), Some(Due { expires_s: 20, prefix: 140 }));
        assert_eq!(queue.pop_due(20), None);
        assert_eq!(queue.len(), 1);
    }

    /// One object is replaced all the time: its dead entries, the equal ones included, are bounded, and the entries
    /// of those that live are all kept.
    #[test]
    fn dead_and_equal_entries_are_bounded() {
        let objects = 10_000;
        for spread_s in [1, 1000] {
            let mut queue = ExpiryQueue::new();
            (0..objects).for_each(|prefix| queue.push(Due { expires_s: 5000, prefix }));
            let mut last = 0;
            let mut noted = vec![false; objects as usize];
            let mut noted_last = false;
            for round in 0..200_000 {
                last = 6000 + round % spread_s;
                queue.push(Due { expires_s: last, prefix: u32::MAX });
                noted_last = queue.sifting();
                for _ in 0..4 {
                    let Some(due) = queue.take_unsifted(objects as usize) else { break };
                    let noted = match due.prefix {
                        u32::MAX if due.expires_s != last => continue,
                        u32::MAX => &mut noted_last,
                        prefix => &mut noted[prefix as usize],
                    };
                    if *noted != queue.sifting() {
                        *noted = queue.sifting();
                        queue.push(due);
                    }
                }
                assert!(queue.len() <= objects as usize * 5 / 2 + SIFT_FROM, "{} entries", queue.len());
            }
            assert!(queue.heap.is_ordered() && queue.unsifted.is_ordered());
            let _ = noted_last;
            let entries = queue.entries();
            assert!(entries.contains(&(last, u32::MAX)));
            assert!((0..objects).all(|prefix| entries.contains(&(5000, prefix))));
        }
    }
}
