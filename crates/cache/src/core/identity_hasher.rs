//! Hasher for maps whose keys are hashes, or numbers that no client chooses.

use std::hash::Hasher;

/// Hasher that returns the key unchanged: a hash is seeded already, and hashing it again would gain nothing.
#[derive(Default)]
pub(crate) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("a key is one word");
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = word;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
