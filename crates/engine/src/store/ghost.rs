//! The ghost list: hashes of objects that were evicted from probation not long ago (S3-FIFO).
//!
//! A table of small rings: a hash names its ring, eviction overwrites the ring's oldest. So the list as a whole is
//! bounded, first in first out where it matters, and one cache line to ask. A fingerprint of 31 bits errs once in
//! 270 million questions, which costs a place in the main log.

use super::hash::Hash;
use crate::sys::arena::prefetch as prefetch_plain;

/// Entries of a ring: with its cursor a cache line.
const RING: usize = 15;
/// Bytes of a shard for which one ghost is remembered: evicted objects below this size are remembered for a shorter
/// time than they lived, larger ones for longer.
const BYTES_A_GHOST: usize = 1024;

/// The ghosts of a shard.
#[derive(Debug)]
pub(super) struct Ghosts {
    /// `RING` fingerprints (0: none), then the number of the oldest.
    rings: Vec<[u32; RING + 1]>,
}

impl Ghosts {
    /// As many as a share of the store is worth remembering. Untouched rings are not resident.
    pub(super) fn new(share_bytes: usize) -> Self {
        let rings = (share_bytes / BYTES_A_GHOST / RING).max(1).next_power_of_two();
        Self { rings: vec![[0; RING + 1]; rings] }
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.rings.len() * size_of::<[u32; RING + 1]>()) as u64
    }

    fn ring_and_print(&mut self, hash: Hash) -> (&mut [u32; RING + 1], u32) {
        let ring = hash.prefix() as usize & (self.rings.len() - 1);
        (&mut self.rings[ring], hash.word() as u32 | 1)
    }

    /// Brings near what [`Ghosts::recall`] will look at.
    #[inline]
    pub(super) fn prefetch(&self, hash: Hash) {
        prefetch_plain(&self.rings[hash.prefix() as usize & (self.rings.len() - 1)]);
    }

    /// Remembers an evicted object.
    pub(super) fn remember(&mut self, hash: Hash) {
        let (ring, print) = self.ring_and_print(hash);
        let oldest = ring[RING] as usize % RING;
        ring[oldest] = print;
        ring[RING] = (oldest as u32 + 1) % RING as u32;
    }

    /// Whether the object was evicted not long ago; forgets it.
    pub(super) fn recall(&mut self, hash: Hash) -> bool {
        let (ring, print) = self.ring_and_print(hash);
        let found = ring[..RING].iter_mut().find(|entry| **entry == print);
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
        let hash = |i: u32| Hash::of(&i.to_le_bytes());
        let capacity = ghosts.rings.len() * RING;
        (0..10 * capacity as u32).for_each(|i| ghosts.remember(hash(i)));
        let recent = (9 * capacity as u32 + capacity as u32 / 2..10 * capacity as u32)
            .filter(|i| ghosts.recall(hash(*i)));
        assert!(recent.count() > capacity * 4 / 10, "half of the newest capacity is mostly there");
        assert_eq!((0..7 * capacity as u32).filter(|i| ghosts.recall(hash(*i))).count(), 0);
        ghosts.remember(hash(1));
        assert!(ghosts.recall(hash(1)));
        assert!(!ghosts.recall(hash(1)));
    }
}
