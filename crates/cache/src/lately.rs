//! Stale objects for which the origin was asked a moment ago, so that it is not asked for them at each hit.
//!
//! Who lost its place ([`places`](crate::places)) has the origin asked once more: no harm is done.

use engine::store::Hash;

use crate::places::Places;

/// Objects that a core remembers.
const PLACES: usize = 1024;
/// For how long: a failing origin is asked for an object once in this time by each core.
const FOR_MS: u64 = 1000;

/// Until when it was a moment ago, by the object.
pub(crate) struct Lately(Places<u64>);

impl Default for Lately {
    fn default() -> Self {
        Self(Places::new(PLACES))
    }
}

impl Lately {
    /// The origin is being asked for an object.
    pub(crate) fn note(&self, hash: Hash, now_ms: u64) {
        self.0.set(hash, now_ms + FOR_MS);
    }

    /// It is not, after all.
    pub(crate) fn forget(&self, hash: Hash) {
        self.0.set(hash, 0);
    }

    /// Whether it was within the last second.
    pub(crate) fn has(&self, hash: Hash, now_ms: u64) -> bool {
        self.0.get(hash).is_some_and(|until_ms| now_ms < until_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_remembered_for_a_second() {
        let lately = Lately::default();
        let (one, other) = (Hash::seeded(b"one", 0), Hash::seeded(b"other", 0));
        assert!(!lately.has(one, 5));
        lately.note(one, 5);
        assert!(
            lately.has(one, 5) && lately.has(one, 1004) && !lately.has(one, 1005) && !lately.has(other, 5)
        );
        lately.forget(one);
        assert!(!lately.has(one, 5));
    }
}
