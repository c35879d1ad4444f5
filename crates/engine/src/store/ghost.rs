//! The ghost list: hashes of objects that were evicted from probation not long ago (S3-FIFO).
//!
//! A table of small rings: a hash names its ring, eviction overwrites the ring's oldest. So the list as a whole is
//! bounded, first in first out where it matters, and one cache line to ask. A fingerprint of 19 bits errs once in
//! 35,000 questions, which costs a place in the main log.
//!
//! ```text
//! entry: fingerprint 20 | age 12         an age is a sixteenth of as many evictions as there are objects
//! ```
//! A ghost counts until as many more objects have been evicted as the store has objects. An object that is asked for
//! again later than that would not be in a store twice as large either, and in the main log it takes the place of one
//! that would: a loop over three times what memory holds, remembered for its whole length, filled the main log and cost
//! six hits in a hundred requests.

use super::hash::Hash;
use crate::sys::arena::prefetch as prefetch_plain;

/// Entries of a ring: with its cursor a cache line.
const RING: usize = 15;
/// Bytes of a shard for which one ghost is remembered: evicted objects below this size are overwritten sooner than
/// their age would have it.
const BYTES_A_GHOST: usize = 1024;
/// Bits of an entry's age. It goes round after 256 times as many evictions as there are objects; by then the ring has
/// been overwritten many times over, unless objects are larger than half a MiB.
const AGE_BITS: u32 = 12;
const AGE_MASK: u32 = (1 << AGE_BITS) - 1;
/// Ages for which a ghost counts.
const AGES: u32 = 16;

/// The ghosts of a shard.
#[derive(Debug)]
pub(super) struct Ghosts {
    /// `RING` entries (0: none), then the number of the oldest.
    rings: Vec<[u32; RING + 1]>,
    /// The age that it is now.
    age: u32,
    /// How many were remembered in it.
    in_age: usize,
}

impl Ghosts {
    /// As many as a share of the store is worth remembering. Untouched rings are not resident.
    pub(super) fn new(share_bytes: usize) -> Self {
        let rings = (share_bytes / BYTES_A_GHOST / RING).max(1).next_power_of_two();
        Self { rings: vec![[0; RING + 1]; rings], age: 0, in_age: 0 }
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.rings.len() * size_of::<[u32; RING + 1]>()) as u64
    }

    fn ring_and_print(&mut self, hash: Hash) -> (&mut [u32; RING + 1], u32) {
        let ring = hash.prefix() as usize & (self.rings.len() - 1);
        // Never zero. The low bits, because the highest of these 32 chose the shard and are alike in it.
        (&mut self.rings[ring], (hash.word() as u32 | 1) << AGE_BITS)
    }

    /// Brings near what [`Ghosts::recall`] will look at.
    #[inline]
    pub(super) fn prefetch(&self, hash: Hash) {
        prefetch_plain(&self.rings[hash.prefix() as usize & (self.rings.len() - 1)]);
    }

    /// Remembers an object that was evicted from among so many.
    pub(super) fn remember(&mut self, hash: Hash, objects: usize) {
        self.in_age += 1;
        if self.in_age > objects / AGES as usize {
            self.in_age = 0;
            self.age = (self.age + 1) & AGE_MASK;
        }
        let age = self.age;
        let (ring, print) = self.ring_and_print(hash);
        let oldest = ring[RING] as usize % RING;
        ring[oldest] = print | age;
        ring[RING] = (oldest as u32 + 1) % RING as u32;
    }

    /// Whether the object was evicted not long ago; forgets it.
    pub(super) fn recall(&mut self, hash: Hash) -> bool {
        let age = self.age;
        let (ring, print) = self.ring_and_print(hash);
        let is_it = |entry: u32| entry & !AGE_MASK == print && age.wrapping_sub(entry) & AGE_MASK <= AGES;
        let found = ring[..RING].iter_mut().find(|entry| is_it(**entry));
        found.is_some_and(|entry| {
            *entry = 0;
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recent_are_recalled_once_and_the_old_are_forgotten() {
        let mut ghosts = Ghosts::new(1 << 20);
        let hash = |i: u32| Hash::seeded(&i.to_le_bytes(), 0);
        let capacity = ghosts.rings.len() * RING;
        (0..10 * capacity as u32).for_each(|i| ghosts.remember(hash(i), usize::MAX));
        let recent = (9 * capacity as u32 + capacity as u32 / 2..10 * capacity as u32)
            .filter(|i| ghosts.recall(hash(*i)));
        assert!(recent.count() > capacity * 4 / 10, "half of the newest capacity is mostly there");
        // Of some hundred thousand that are long gone, a few have the fingerprint of one that is there.
        let forgotten = (0..7 * capacity as u32).filter(|i| ghosts.recall(hash(*i))).count();
        assert!(forgotten < 10, "{forgotten} that should be forgotten");
        ghosts.remember(hash(1), usize::MAX);
        assert!(ghosts.recall(hash(1)));
        assert!(!ghosts.recall(hash(1)));
    }

    #[test]
    fn who_was_evicted_before_as_many_as_there_are_is_forgotten() {
        let mut ghosts = Ghosts::new(64 << 20);
        let hash = |i: u32| Hash::seeded(&i.to_le_bytes(), 0);
        let all = 160 * 200;
        (0..all).for_each(|i| ghosts.remember(hash(i), 160));
        let found: Vec<u32> = (0..all).filter(|i| ghosts.recall(hash(*i))).collect();
        let (oldest, newest) = (found.first().copied().unwrap_or(0), found.last().copied().unwrap_or(0));
        // Fingerprints err once in a while.
        let among = found.iter().filter(|i| **i + 200 >= all).count();
        assert!(newest == all - 1 && (150..=190).contains(&among), "{among} from {oldest} to {newest}");
        assert!(found.len() - among < 10, "{} that should be forgotten", found.len() - among);
    }
}
