//! The hash of a key: which core owns it, which page it is looked up in.

/// 64 bits of XXH3 over a key; never zero, because zero marks an empty slot.
///
/// The bits have separate jobs, so that one choice says nothing about the other: the low 32 choose the shard, the
/// high 32 (the *prefix*) the page, and the five lowest of these the bucket in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(u64);

impl Hash {
    /// The hash of a key under a seed. Whoever can guess the seed can choose keys that share a bucket until it is full:
    /// a store's own is [`Store::hash`](super::Store::hash).
    #[inline]
    pub fn seeded(key: &[u8], seed: u64) -> Self {
        Self::from_word(xxhash_rust::xxh3::xxh3_64_with_seed(key, seed))
    }

    /// A hash from its value; zero becomes one.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self(if word == 0 { 1 } else { word })
    }

    /// Its value.
    #[inline]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The high half: what an expiry entry remembers.
    #[inline]
    pub const fn prefix(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The shard, of so many.
    #[inline]
    pub const fn owner(self, cores: usize) -> usize {
        (((self.0 & 0xffff_ffff) * cores as u64) >> 32) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_no_hash_and_owners_share_alike() {
        assert_eq!(Hash::from_word(0).word(), 1);
        for cores in [1, 2, 3, 64] {
            let mut owned = vec![0_u32; cores];
            for i in 0..64_000_u32 {
                owned[Hash::seeded(&i.to_le_bytes(), 7).owner(cores)] += 1;
            }
            let fair = 64_000 / cores as u32;
            assert!(owned.iter().all(|count| count.abs_diff(fair) < fair / 5), "{owned:?}");
        }
    }
}
