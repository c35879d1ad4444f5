//! What an accelerator that is one of several is told from outside: until when it may serve what is stored, and which
//! purges it has carried out.
//!
//! *Where the data live:* a few words that all cores read and one thread outside writes, seldom; so their cache line
//! stays shared, and a hit pays a load. *Why a point in time and no flag:* whoever would clear the flag may be
//! stopped together with the loops. A point in time passes by itself.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Release},
};

use engine::cores::clock;

/// No lease: one accelerator alone, which serves what is stored for as long as it is fresh.
const ALONE: u64 = u64::MAX;

/// Bits of a place that are for the sequence: more purges than a stream ever has.
const SEQUENCE_BITS: u32 = 44;

/// The place of a purge among all: streams that were made one after the other have numbers, and sequences begin anew in each.
fn at(generation: u64, sequence: u64) -> u64 {
    let generation = generation.min((1 << (u64::BITS - SEQUENCE_BITS)) - 1);
    generation << SEQUENCE_BITS | sequence.min((1 << SEQUENCE_BITS) - 1)
}

/// Shared by all cores and by whatever holds the lease.
#[derive(Debug)]
pub struct Membership {
    /// Milliseconds of the clock that goes on while the machine sleeps, at which the lease ends.
    lease_ends_ms: AtomicU64,
    /// The last purge that all cores have carried out, by its [place](at).
    applied: AtomicU64,
    /// The last one that was begun with; no older than that.
    begun: AtomicU64,
}

impl Default for Membership {
    fn default() -> Self {
        Self { lease_ends_ms: AtomicU64::new(ALONE), applied: AtomicU64::new(0), begun: AtomicU64::new(0) }
    }
}

impl Membership {
    /// One of several that has no lease yet.
    pub fn without_lease() -> Self {
        let membership = Self::default();
        membership.lease_until(0);
        membership
    }

    /// The lease ends at this point of [`clock::boot_ms`].
    pub fn lease_until(&self, boot_ms: u64) {
        self.lease_ends_ms.store(boot_ms, Release);
    }

    /// No lease is needed: one accelerator alone, or one that serves on whatever becomes of it.
    pub fn serve_on(&self) {
        self.lease_until(ALONE);
    }

    /// Whether what is stored may be served now without asking its origin. To be asked after the request was read:
    /// between the two the process may have been stopped. Who is alone pays for a load and a comparison.
    #[inline]
    pub fn may_serve(&self) -> bool {
        match self.lease_ends_ms.load(Acquire) {
            ALONE => true,
            ends_ms => clock::boot_ms() < ends_ms,
        }
    }

    /// For how many milliseconds more that is so; `None`: for as long as anybody likes.
    pub fn lease_left_ms(&self) -> Option<u64> {
        match self.lease_ends_ms.load(Acquire) {
            ALONE => None,
            ends_ms => Some(ends_ms.saturating_sub(clock::boot_ms())),
        }
    }

    /// A purge is going to be carried out: what others have answered before they had carried it out is not stored any more.
    /// Said before any core knows of it.
    pub fn begins(&self, generation: u64, sequence: u64) {
        self.begun.fetch_max(at(generation, sequence), AcqRel);
    }

    /// All cores have carried out the purges up to this sequence of the stream with this number.
    pub fn has_applied(&self, generation: u64, sequence: u64) {
        self.begins(generation, sequence);
        self.applied.fetch_max(at(generation, sequence), Release);
    }

    /// The last purge that was begun with; 0: none.
    pub fn begun(&self) -> u64 {
        self.begun.load(Acquire)
    }

    /// The last purge that all cores have carried out; 0: none.
    pub fn applied(&self) -> u64 {
        self.applied.load(Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alone_it_serves_for_ever_and_with_a_lease_until_that_ends() {
        let membership = Membership::default();
        assert!(membership.may_serve());
        assert_eq!(membership.lease_left_ms(), None);
        membership.lease_until(clock::boot_ms() + 60_000);
        assert!(membership.may_serve());
        assert!(membership.lease_left_ms().is_some_and(|left_ms| left_ms > 50_000));
        membership.lease_until(clock::boot_ms());
        assert!(!membership.may_serve());
        assert!(!Membership::without_lease().may_serve());
        membership.serve_on();
        assert!(membership.may_serve());
    }

    #[test]
    fn a_sequence_never_goes_back() {
        let membership = Membership::default();
        membership.has_applied(0, 7);
        membership.has_applied(0, 5);
        assert_eq!((membership.applied(), membership.begun()), (7, 7));
        membership.begins(0, 9);
        assert_eq!((membership.applied(), membership.begun()), (7, 9));
        // Another stream begins with 1, and comes behind.
        membership.has_applied(1, 1);
        assert!(membership.applied() > 9 && membership.begun() == membership.applied());
        membership.has_applied(0, 1_000_000);
        assert!(membership.begun() == membership.applied() && membership.applied() == at(1, 1));
        assert!(at(u64::MAX, u64::MAX) == u64::MAX && at(1, 0) > at(0, u64::MAX));
    }
}
