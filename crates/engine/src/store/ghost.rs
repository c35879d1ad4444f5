//! The ghost list: hashes of objects that were evicted not long ago (S3-FIFO; and, as in ARC, from where).
//!
//! A table of small rings: a hash names its ring, eviction overwrites the ring's oldest. So the list as a whole is
//! bounded, first in first out among those that count, and one cache line to ask. A fingerprint of 18 bits errs once in
//! 17,000 questions, which costs a place in the main log.
//!
//! ```text
//! entry: fingerprint 19 | from 1 | age 12         an age is a sixteenth of as many evictions as there are objects
//! ```
//! A ghost counts until as many more objects have been evicted from where it was as the store has objects. An object that
//! is asked for again later than that would not be in a store twice as large either, and in the main log it takes the
//! place of one that would: a loop over three times what memory holds, remembered for its whole length, filled the main
//! log and cost six hits in a hundred requests.

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
const FROM_MAIN: u32 = 1 << AGE_BITS;
/// Ages for which a ghost counts.
const AGES: u32 = 16;

/// Where an object was when it was evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EvictedFrom {
    Probation = 0,
    Main = 1,
}

/// Evictions from one of the two, counted.
#[derive(Debug, Default, Clone, Copy)]
struct Age {
    /// The age that it is now.
    now: u32,
    /// How many were remembered in it.
    remembered: usize,
}

/// The ghosts of a shard.
#[derive(Debug)]
pub(super) struct Ghosts {
    /// `RING` entries (0: none), then the number of the oldest.
    rings: Vec<[u32; RING + 1]>,
    ages: [Age; 2],
}

impl Ghosts {
    /// As many as a share of the store is worth remembering. Untouched rings are not resident.
    pub(super) fn new(share_bytes: usize) -> Self {
        let rings = (share_bytes / BYTES_A_GHOST / RING).max(1).next_power_of_two();
        Self { rings: vec![[0; RING + 1]; rings], ages: Default::default() }
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.rings.len() * size_of::<[u32; RING + 1]>()) as u64
    }

    fn ring_and_print(&mut self, hash: Hash) -> (&mut [u32; RING + 1], u32) {
        let ring = hash.prefix() as usize & (self.rings.len() - 1);
        // Never zero. The low bits, because the highest of these 32 chose the shard and are alike in it.
        (&mut self.rings[ring], (hash.word() as u32 | 1) << (AGE_BITS + 1))
    }

    /// Brings near what [`Ghosts::recall`] will look at.
    #[inline]
    pub(super) fn prefetch(&self, hash: Hash) {
        prefetch_plain(&self.rings[hash.prefix() as usize & (self.rings.len() - 1)]);
    }

    /// Remembers an object that was evicted from among so many.
    pub(super) fn remember(&mut self, hash: Hash, from: EvictedFrom, objects: usize) {
        let age = &mut self.ages[from as usize];
        age.remembered += 1;
        if age.remembered > objects / AGES as usize {
            *age = Age { now: (age.now + 1) & AGE_MASK, remembered: 0 };
        }
        let entry = age.now | if from == EvictedFrom::Main { FROM_MAIN } else { 0 };
        let ages = self.ages;
        let (ring, print) = self.ring_and_print(hash);
        // Who does not count any more makes way first: many more are evicted from one place than from the other.
        let past = ring[..RING].iter().position(|entry| !is_young(&ages, *entry));
        let at = past.unwrap_or(ring[RING] as usize % RING);
        ring[at] = print | entry;
        ring[RING] = (at as u32 + 1) % RING as u32;
    }

    /// From where the object was evicted, if that was not long ago; forgets it.
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

/// Whether there is an entry that counts.
fn is_young(ages: &[Age; 2], entry: u32) -> bool {
    entry != 0 && ages[from(entry) as usize].now.wrapping_sub(entry) & AGE_MASK <= AGES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recent_are_recalled_once_and_the_old_are_forgotten() {
        let mut ghosts = Ghosts::new(1 << 20);
        let hash = |i: u32| Hash::seeded(&i.to_le_bytes(), 0);
        let capacity = ghosts.rings.len() * RING;
        (0..10 * capacity as u32).for_each(|i| ghosts.remember(hash(i), EvictedFrom::Probation, usize::MAX));
        let recent = (9 * capacity as u32 + capacity as u32 / 2..10 * capacity as u32)
            .filter(|i| ghosts.recall(hash(*i)).is_some());
        assert!(recent.count() > capacity * 4 / 10, "half of the newest capacity is mostly there");
        // Of some hundred thousand that are long gone, a few have the fingerprint of one that is there.
        let forgotten = (0..7 * capacity as u32).filter(|i| ghosts.recall(hash(*i)).is_some()).count();
        assert!(forgotten < 20, "{forgotten} that should be forgotten");
        for from in [EvictedFrom::Probation, EvictedFrom::Main] {
            ghosts.remember(hash(1), from, usize::MAX);
            assert_eq!(ghosts.recall(hash(1)), Some(from));
            assert_eq!(ghosts.recall(hash(1)), None);
        }
    }

    #[test]
    fn who_was_evicted_before_as_many_as_there_are_is_forgotten() {
        for (from, other) in
            [(EvictedFrom::Probation, EvictedFrom::Main), (EvictedFrom::Main, EvictedFrom::Probation)]
        {
            let mut ghosts = Ghosts::new(64 << 20);
            let hash = |i: u32| Hash::seeded(&i.to_le_bytes(), 0);
            let all = 160 * 200;
            // What is evicted from elsewhere makes nobody older.
            ghosts.remember(hash(all), other, 160);
            (0..all).for_each(|i| ghosts.remember(hash(i), from, 160));
            let found: Vec<u32> = (0..all).filter(|i| ghosts.recall(hash(*i)) == Some(from)).collect();
            let (oldest, newest) = (found.first().copied().unwrap_or(0), found.last().copied().unwrap_or(0));
            // Fingerprints err once in a while.
            let among = found.iter().filter(|i| **i + 200 >= all).count();
            assert!(newest == all - 1 && (150..=190).contains(&among), "{among} from {oldest} to {newest}");
            assert!(found.len() - among < 20, "{} that should be forgotten", found.len() - among);
            assert_eq!(ghosts.recall(hash(all)), Some(other));
        }
    }
}
