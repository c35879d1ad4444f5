//! The hash of a key: it selects the owning core and the index page.

/// 64 bits of XXH3 over a key; never zero, because zero marks an empty slot.
///
/// The bits have separate jobs, so that the choices are independent: the low 32 bits choose the shard, the
/// high 32 (the *prefix*) the page, and the five lowest bits of the prefix the bucket in the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(u64);

impl Hash {
    /// Hashes a key with a seed. An attacker who can guess the seed can choose keys that overfill one bucket,
    /// so a store hashes with its own secret seed ([`Store::hash`](super::Store::hash)).
    #[inline]
    pub fn seeded(key: &[u8], seed: u64) -> Self {
        Self::from_word(xxhash_rust::xxh3::xxh3_64_with_seed(key, seed))
    }

    /// Creates a hash from its value; zero becomes one.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self(if word == 0 { 1 } else { word })
    }

    /// Returns the hash as a 64-bit word.
    #[inline]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Returns the high half (the prefix), which entries of the expiry queue store.
    #[inline]
    pub const fn prefix(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the index of the shard that owns this hash, if there are `cores` shards.
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
