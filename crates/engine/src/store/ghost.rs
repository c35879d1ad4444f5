//! The ghost list: hashes of recently evicted objects (S3-FIFO), each with the log it was evicted from (as in
//! ARC).
//!
//! The list is a table of small rings: a hash selects its ring, and an eviction overwrites the ring's oldest
//! entry. The list as a whole is therefore bounded, first in first out among the entries that still count,
//! and a lookup reads one cache line. A fingerprint of 18 bits gives one false match in 17,000 lookups, which
//! costs space in the main log.
//!
//! ```text
//! entry: fingerprint 19 | from 1 | age 12         one age: a sixteenth as many evictions as there are objects
//! ```
//! A ghost counts until as many objects have been evicted from the same log as the store has objects. An
//! object requested later than that would be missing even from a store of twice the size, and in the main log
//! it would displace an object that such a store would contain. In a test with a loop over three times as
//! many objects as fit into memory, ghosts remembered for the loop's whole length filled the main log and
//! cost six hits per hundred requests.

use super::hash::Hash;
use crate::sys::arena::prefetch as prefetch_plain;

/// Number of entries in a ring: together with its cursor they fill a cache line.
const RING: usize = 15;
/// Bytes of shard capacity per remembered ghost: if objects are smaller than this, their ghosts are
/// overwritten before their age expires.
const BYTES_A_GHOST: usize = 1024;
/// Number of bits for an entry's age. The age wraps around after 256 times as many evictions as there are
/// objects; by then the ring has been overwritten many times, unless objects are larger than half a MiB.
const AGE_BITS: u32 = 12;
const AGE_MASK: u32 = (1 << AGE_BITS) - 1;
const FROM_MAIN: u32 = 1 << AGE_BITS;
/// Number of ages (each a sixteenth of the store's objects evicted) for which a ghost counts.
const AGES: u32 = 16;

/// Log from which an object was evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EvictedFrom {
    Probation = 0,
    Main = 1,
}

/// Clock that counts the evictions from one log.
#[derive(Debug, Default, Clone, Copy)]
struct Age {
    /// Current age, which new ghosts get.
    now: u32,
    /// Number of evictions remembered since the current age began.
    remembered: usize,
}

/// Ghost list of a shard: hashes of recently evicted objects.
#[derive(Debug)]
pub(super) struct Ghosts {
    /// Each ring has `RING` entries (0: none), then the index of the oldest.
    rings: Vec<[u32; RING + 1]>,
    ages: [Age; 2],
}

impl Ghosts {
    /// Creates a ghost list sized for a shard of `share_bytes`. Untouched rings are not resident.
    pub(super) fn new(share_bytes: usize) -> Self {
        let rings = (share_bytes / BYTES_A_GHOST / RING).max(1).next_power_of_two();
        Self { rings: vec![[0; RING + 1]; rings], ages: Default::default() }
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.rings.len() * size_of::<[u32; RING + 1]>()) as u64
    }

    fn ring_and_print(&mut self, hash: Hash) -> (&mut [u32; RING + 1], u32) {
        let ring = hash.prefix() as usize & (self.rings.len() - 1);
        // The fingerprint is never zero. The low bits of the word are used, because the highest of these 32
        // bits chose the shard and are the same for all hashes of a shard.
        (&mut self.rings[ring], (hash.word() as u32 | 1) << (AGE_BITS + 1))
    }

    /// Prefetches the ring that [`Ghosts::recall`] will read.
    #[inline]
    pub(super) fn prefetch(&self, hash: Hash) {
        prefetch_plain(&self.rings[hash.prefix() as usize & (self.rings.len() - 1)]);
    }

    /// Remembers an evicted object; `objects` is the store's current number of objects.
    pub(super) fn remember(&mut self, hash: Hash, from: EvictedFrom, objects: usize) {
        let age = &mut self.ages[from as usize];
        age.remembered += 1;
        if age.remembered > objects / AGES as usize {
            *age = Age { now: (age.now + 1) & AGE_MASK, remembered: 0 };
        }
        let entry = age.now | if from == EvictedFrom::Main { FROM_MAIN } else { 0 };
        let ages = self.ages;
        let (ring, print) = self.ring_and_print(hash);
        // Entries that no longer count are overwritten first, because one log may evict many more objects
        // than the other.
        let past = ring[..RING].iter().position(|entry| !is_young(&ages, *entry));
        let at = past.unwrap_or(ring[RING] as usize % RING);
        ring[at] = print | entry;
        ring[RING] = (at as u32 + 1) % RING as u32;
    }

    /// Returns the log from which the object was evicted, if the ghost still counts, and forgets the ghost.
    pub(super) fn recall(&mut self, hash: Hash) -> Option<EvictedFrom> {
        let ages = self.ages;
        let (ring, print) = self.ring_and_print(hash);
        let is_it = |entry: u32| entry & !(AGE_MASK | FROM_MAIN) == print && is_young(&ages, entry);
        let entry = ring[..RING].iter_mut().find(|entry| is_it(**entry))?;
        Some(from(std::mem::take(entry)))
    }
}

fn from(entry: u32) -> EvictedFrom {
    if entry & FROM_MAIN == 0 { EvictedFrom::Probation } else { EvictedFrom::Main }
}

/// Returns whether an entry exists and is young enough to count.
fn is_young(ages: &[Age; 2], entry: u32) -> bool {
    entry != 0 && ages[from(entry) as usize].now.wrapping_sub(entry) & AGE_MASK <= AGES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_ghosts_are_recalled_old_ones_forgotten() {
        let mut ghosts = Ghosts::new(1 << 20);
        let hash = |i: u32| Hash::seeded(&i.to_le_bytes(), 0);
        let capacity = ghosts.rings.len() * RING;
        (0..10 * capacity as u32).for_each(|i| ghosts.remember(hash(i), EvictedFrom::Probation, usize::MAX));
        let recent = (9 * capacity as u32 + capacity as u32 / 2..10 * capacity as u32)
            .filter(|i| ghosts.recall(hash(*i)).is_some());
        assert!(recent.count() > capacity * 4 / 10, "half of the newest capacity is mostly there");
        // Among several hundred thousand forgotten hashes, a few have the same fingerprint as a remembered
        // one.
        let forgotten = (0..7 * capacity as u32).filter(|i| ghosts.recall(hash(*i)).is_some()).count();
        assert!(forgotten < 20, "{forgotten} that should be forgotten");
        for from in [EvictedFrom::Probation, EvictedFrom::Main] {
            ghosts.remember(hash(1), from, usize::MAX);
            assert_eq!(ghosts.recall(hash(1)), Some(from));
            assert_eq!(ghosts.recall(hash(1)), None);
        }
    }

    #[test]
    fn ghosts_older_than_the_object_count_are_forgotten() {
        for (from, other) in
            [(EvictedFrom::Probation, EvictedFrom::Main), (EvictedFrom::Main, EvictedFrom::Probation)]
        {
            let mut ghosts = Ghosts::new(64 << 20);
            let hash = |i: u32| Hash::seeded(&i.to_le_bytes(), 0);
            let all = 160 * 200;
            // Evictions from the other log do not age the ghosts of this log.
            ghosts.remember(hash(all), other, 160);
            (0..all).for_each(|i| ghosts.remember(hash(i), from, 160));
            let found: Vec<u32> = (0..all).filter(|i| ghosts.recall(hash(*i)) == Some(from)).collect();
            let (oldest, newest) = (found.first().copied().unwrap_or(0), found.last().copied().unwrap_or(0));
            // Some fingerprints match by chance.
            let among = found.iter().filter(|i| **i + 200 >= all).count();
            assert!(newest == all - 1 && (150..=190).contains(&among), "{among} from {oldest} to {newest}");
            assert!(found.len() - among < 20, "{} that should be forgotten", found.len() - among);
            assert_eq!(ghosts.recall(hash(all)), Some(other));
        }
    }
}
