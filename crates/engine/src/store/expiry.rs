//! The expiry queue of a shard.
//!
//! An entry is one word of 8 bytes, with the expiry second in the high half and the high half of the hash in
//! the low half; the object itself is not accessed. When an entry is due, the slots with that prefix and
//! exactly that expiry are unlinked. If an object was replaced, refreshed or evicted, its entry finds no
//! slot: lazy deletion.
//!
//! The queue is `bheap`'s page queue: entries that are not due soon are kept unsorted in pages that are not
//! accessed. An entry therefore costs only a fraction of what it costs in a heap, and this fraction shrinks
//! as the queue grows; no push copies the whole queue (`docs/decisions/022-expiry-queue.md`).
//!
//! Stale entries are bounded: once there are seven entries for four objects, the queue is sifted. Entries are
//! taken from the old queue a few at a time, earliest first, and pushed to the new queue if the index still
//! has a slot for them. To merge equal entries, each slot notes in which of two alternating siftings it was
//! entered ([`Slot::sifting`](super::index::Slot::sifting)): a slot that notes the current sifting has its
//! entry already.

use std::collections::VecDeque;

use bheap::PageQueue;

/// Minimum number of entries for which sifting is worthwhile.
const SIFT_FROM: usize = 512;
/// Number of entries taken in advance from the queue that is being sifted, so that their buckets can be
/// prefetched.
const AHEAD: usize = 8;
/// Size of the queue's blocks in bytes: one memory page.
const BLOCK_BYTES: usize = 4096;

/// Expiry queue of a shard, from which stale entries are sifted out a few at a time.
#[derive(Debug)]
pub(super) struct ExpiryQueue {
    sifted: PageQueue<u64>,
    /// Entries that are sifted next, smallest first. Invariant: none is larger than any entry in `unsifted`.
    ahead: VecDeque<u64>,
    /// Entries that are not sifted yet; empty most of the time. Invariant: empty if `ahead` is.
    unsifted: PageQueue<u64>,
    /// Identifier of the current sifting, noted in slots; flips when a sifting begins.
    sifting: bool,
}

fn empty() -> PageQueue<u64> {
    match PageQueue::new(BLOCK_BYTES) {
        Ok(queue) => queue,
        Err(_) => unreachable!("a block of {BLOCK_BYTES} bytes holds words"),
    }
}

/// Entry of the expiry queue: an expiry time and a hash prefix.
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
        Self { sifted: empty(), ahead: VecDeque::with_capacity(AHEAD), unsifted: empty(), sifting: false }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.sifted.len() + self.ahead.len() + self.unsifted.len()
    }

    #[inline]
    pub(super) fn push(&mut self, due: Due) {
        self.sifted.push(due.word());
    }

    /// Takes the next entry that is due at `now_s`.
    pub(super) fn pop_due(&mut self, now_s: u32) -> Option<Due> {
        let next = self.next_s()?;
        if next > now_s {
            return None;
        }
        let word = match (self.sifted.peek(), self.ahead.front()) {
            (Some(sifted), Some(ahead)) if ahead < sifted => self.take_ahead(),
            (None, Some(_)) => self.take_ahead(),
            _ => self.sifted.pop(),
        };
        word.map(Due::of)
    }

    /// Returns the identifier of the current sifting, which slots note when they are entered.
    #[inline]
    pub(super) fn sifting(&self) -> bool {
        self.sifting
    }

    /// Takes the next entry to sift, if the queue is too long for `objects`. The caller pushes the entry back
    /// if it is the only one of a live object.
    #[inline]
    pub(super) fn take_unsifted(&mut self, objects: usize) -> Option<Due> {
        if self.ahead.is_empty() {
            if self.sifted.len() < SIFT_FROM || self.sifted.len() < objects + objects / 4 * 3 {
                return None;
            }
            // The old queue is empty but keeps its memory blocks; replacing it frees them.
            self.unsifted = std::mem::replace(&mut self.sifted, empty());
            self.sifting = !self.sifting;
            self.look_ahead();
        }
        self.take_ahead().map(Due::of)
    }

    fn take_ahead(&mut self) -> Option<u64> {
        let word = self.ahead.pop_front();
        self.look_ahead();
        word
    }

    fn look_ahead(&mut self) {
        while self.ahead.len() < AHEAD
            && let Some(word) = self.unsifted.pop()
        {
            self.ahead.push_back(word);
        }
    }

    /// Returns hash prefixes of entries that will be sifted soon, so that their buckets can be prefetched.
    #[inline]
    pub(super) fn sifted_soon(&self, count: usize) -> impl Iterator<Item = u32> {
        self.ahead.iter().take(count).map(|word| Due::of(*word).prefix)
    }

    /// Returns the second at which the next entry is due.
    pub(super) fn next_s(&self) -> Option<u32> {
        let next = [self.sifted.peek(), self.ahead.front()].into_iter().flatten().min()?;
        Some(Due::of(*next).expires_s)
    }

    /// Returns all entries as pairs of expiry and hash prefix, for invariant checks.
    pub(super) fn entries(&self) -> std::collections::HashSet<(u32, u32)> {
        let mut all = std::collections::HashSet::with_capacity(self.len());
        let mut note = |word: &u64| {
            let due = Due::of(*word);
            all.insert((due.expires_s, due.prefix));
        };
        self.sifted.for_each(&mut note);
        self.unsifted.for_each(&mut note);
        self.ahead.iter().for_each(note);
        all
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

    /// While one object is replaced again and again, its stale and equal entries stay bounded, and the
    /// entries of all live objects are kept.
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
            let _ = noted_last;
            let entries = queue.entries();
            assert!(entries.contains(&(last, u32::MAX)));
            assert!((0..objects).all(|prefix| entries.contains(&(5000, prefix))));
            let mut expired_s = 0;
            while let Some(due) = queue.pop_due(u32::MAX - 1) {
                assert!(due.expires_s >= expired_s, "what is due first leaves first, sifted or not");
                expired_s = due.expires_s;
            }
            assert_eq!((expired_s, queue.len()), (last, 0));
        }
    }
}
