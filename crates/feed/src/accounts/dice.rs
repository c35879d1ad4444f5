//! Random numbers for the choice among a mapping's destinations.

use std::hash::{BuildHasher as _, RandomState};

/// Generator of random numbers that clients cannot predict: xorshift (Marsaglia 2003), seeded by the system.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new() -> Self {
        Self(RandomState::new().hash_one(0) | 1)
    }

    /// Returns a random number below `below`, which must not be 0.
    #[inline]
    pub(crate) fn throw(&mut self, below: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32 % below
    }
}
