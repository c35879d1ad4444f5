//! Membership of an accelerator in a cluster: until when it may serve stored answers, and which purges it has
//! applied.
//!
//! *Memory:* a few words that all cores read, and that one thread outside the loops writes rarely. Their
//! cache line stays shared, so a hit costs one load. *Why a point in time and not a flag:* the thread that
//! would clear the flag may be stopped together with the loops. A point in time passes by itself.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Release},
};

use engine::cores::clock;

/// No lease: a single accelerator, which serves stored answers for as long as they are fresh.
const ALONE: u64 = u64::MAX;

/// Bits of a purge position that hold the sequence: enough for more purges than a stream ever has.
const SEQUENCE_BITS: u32 = 44;

/// Returns a purge's position in the order of all purges. Streams that were created one after the other have
/// increasing generations, and in each stream the sequence starts at 1 again.
fn at(generation: u64, sequence: u64) -> u64 {
    let generation = generation.min((1 << (u64::BITS - SEQUENCE_BITS)) - 1);
    generation << SEQUENCE_BITS | sequence.min((1 << SEQUENCE_BITS) - 1)
}

/// Membership state, shared by all cores and the holder of the lease.
#[derive(Debug)]
pub struct Membership {
    /// Time at which the lease ends, in milliseconds of the clock that also counts while the machine is
    /// suspended.
    lease_ends_ms: AtomicU64,
    /// Last purge that all cores have applied, by its [position](at).
    applied: AtomicU64,
    /// Last purge that was begun; never earlier than `applied`.
    begun: AtomicU64,
}

impl Default for Membership {
    fn default() -> Self {
        Self { lease_ends_ms: AtomicU64::new(ALONE), applied: AtomicU64::new(0), begun: AtomicU64::new(0) }
    }
}

impl Membership {
    /// Creates a cluster member that has no lease yet.
    pub fn without_lease() -> Self {
        let membership = Self::default();
        membership.set_lease(0);
        membership
    }

    /// Sets the end of the lease, in milliseconds of [`clock::boot_ms`].
    pub fn set_lease(&self, boot_ms: u64) {
        self.lease_ends_ms.store(boot_ms, Release);
    }

    /// Removes the need for a lease: for a single accelerator, or one that serves even without contact to the
    /// cluster.
    pub fn drop_lease(&self) {
        self.set_lease(ALONE);
    }

    /// Returns whether stored answers may be served now without asking their origin. Must be called after the
    /// request was read, because the process may have been stopped before. Without a cluster this costs a
    /// load and a comparison.
    #[inline]
    pub fn may_serve(&self) -> bool {
        match self.lease_ends_ms.load(Acquire) {
            ALONE => true,
            ends_ms => clock::boot_ms() < ends_ms,
        }
    }

    /// Returns for how many more milliseconds stored answers may be served; `None` without a lease.
    pub fn lease_left_ms(&self) -> Option<u64> {
        match self.lease_ends_ms.load(Acquire) {
            ALONE => None,
            ends_ms => Some(ends_ms.saturating_sub(clock::boot_ms())),
        }
    }

    /// Records that a purge begins. Answers from peers that have not applied it are no longer stored. Called
    /// before any core applies the purge.
    pub fn note_begun(&self, generation: u64, sequence: u64) {
        self.begun.fetch_max(at(generation, sequence), AcqRel);
    }

    /// Records that all cores have applied the purges up to this sequence of the stream with this generation.
    pub fn note_applied(&self, generation: u64, sequence: u64) {
        self.note_begun(generation, sequence);
        self.applied.fetch_max(at(generation, sequence), Release);
    }

    /// Returns the last purge that was begun; 0 if there is none.
    pub fn begun(&self) -> u64 {
        self.begun.load(Acquire)
    }

    /// Returns the last purge that all cores have applied; 0 if there is none.
    pub fn applied(&self) -> u64 {
        self.applied.load(Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_serves_alone_or_under_lease() {
        let membership = Membership::default();
        assert!(membership.may_serve());
        assert_eq!(membership.lease_left_ms(), None);
        membership.set_lease(clock::boot_ms() + 60_000);
        assert!(membership.may_serve());
        assert!(membership.lease_left_ms().is_some_and(|left_ms| left_ms > 50_000));
        membership.set_lease(clock::boot_ms());
        assert!(!membership.may_serve());
        assert!(!Membership::without_lease().may_serve());
        membership.drop_lease();
        assert!(membership.may_serve());
    }

    #[test]
    fn a_sequence_never_goes_back() {
        let membership = Membership::default();
        membership.note_applied(0, 7);
        membership.note_applied(0, 5);
        assert_eq!((membership.applied(), membership.begun()), (7, 7));
        membership.note_begun(0, 9);
        assert_eq!((membership.applied(), membership.begun()), (7, 9));
        // The sequence of a new stream starts at 1, and counts as later than that of the previous stream.
        membership.note_applied(1, 1);
        assert!(membership.applied() > 9 && membership.begun() == membership.applied());
        membership.note_applied(0, 1_000_000);
        assert!(membership.begun() == membership.applied() && membership.applied() == at(1, 1));
        assert!(at(u64::MAX, u64::MAX) == u64::MAX && at(1, 0) > at(0, u64::MAX));
    }
}
