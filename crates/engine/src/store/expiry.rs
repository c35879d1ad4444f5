//! The expiry queue of a shard.
//!
//! A heap of plain words, expiry seconds in the high half and the high half of the hash in the low: 8 bytes an
//! entry, and no touch of the object. When one is due, the slots of that prefix with that very expiry go. An entry
//! whose object was replaced, refreshed or evicted finds nothing: lazy deletion.
//!
//! Entries that will find nothing are bounded: when they outnumber the objects by half, the queue is sifted: popped
//! from the old heap some at a time, kept in the new one if the index still knows them, dropped otherwise. Equal
//! entries come one after the other and melt into one.

use bheap::BinaryHeap;

/// Entries from which sifting is worth it.
const SIFT_FROM: usize = 4096;

/// The queue.
#[derive(Debug)]
pub(super) struct ExpiryQueue {
    heap: BinaryHeap<u64>,
    /// What is not sifted yet; empty most of the time.
    unsifted: BinaryHeap<u64>,
    last_sifted: Option<u64>,
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
        Self { heap: BinaryHeap::new(), unsifted: BinaryHeap::new(), last_sifted: None }
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

    /// Sifts up to `limit` entries if there are too many for so many objects.
    #[inline]
    pub(super) fn sift(&mut self, objects: usize, limit: usize, is_live: impl Fn(Due) -> bool) {
        if self.unsifted.is_empty() {
            if self.heap.len() < SIFT_FROM || self.heap.len() < objects + objects / 2 {
                return;
            }
            std::mem::swap(&mut self.heap, &mut self.unsifted);
            self.last_sifted = None;
        }
        for _ in 0..limit {
            let Some(word) = self.unsifted.pop() else {
                self.unsifted = BinaryHeap::new();
                return;
            };
            if self.last_sifted != Some(word) && is_live(Due::of(word)) {
                self.heap.push(word);
            }
            self.last_sifted = Some(word);
        }
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
