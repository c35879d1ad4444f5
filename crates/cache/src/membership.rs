//! What an accelerator that is one of several is told from outside: until when it may serve what is stored, and which
//! purges it has carried out.
//!
//! *Where the data live:* a few words that all cores read and one thread outside writes, seldom; so their cache line
//! stays shared, and a hit pays a load. *Why a point in time and no flag:* whoever would clear the flag may be
//! stopped together with the loops. A point in time passes by itself.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};

/// No lease: one accelerator alone, which serves what is stored for as long as it is fresh.
const ALONE: u64 = u64::MAX;

/// Shared by all cores and by whatever holds the lease.
#[derive(Debug)]
pub struct Membership {
    /// Milliseconds of the monotonic clock at which the lease ends.
    lease_ends_ms: AtomicU64,
    /// The sequence, in the cluster's stream of purges, of the last one that all cores have carried out.
    applied: AtomicU64,
}

impl Default for Membership {
    fn default() -> Self {
        Self { lease_ends_ms: AtomicU64::new(ALONE), applied: AtomicU64::new(0) }
    }
}

impl Membership {
    /// The lease ends at this point of the monotonic clock, in milliseconds.
    pub fn lease_until(&self, monotonic_ms: u64) {
        self.lease_ends_ms.store(monotonic_ms, Release);
    }

    /// Whether what is stored may be served at this point of the monotonic clock without asking its origin. The clock
    /// is to be read after the request was: between the two the process may have been stopped.
    pub fn may_serve(&self, monotonic_ms: u64) -> bool {
        monotonic_ms < self.lease_ends_ms.load(Acquire)
    }

    /// All cores have carried out the purges up to this sequence.
    pub fn has_applied(&self, sequence: u64) {
        self.applied.fetch_max(sequence, Release);
    }

    /// The sequence of the last purge that all cores have carried out; 0: none.
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
        assert!(membership.may_serve(u64::MAX - 1));
        membership.lease_until(1_000);
        assert!(membership.may_serve(999));
        assert!(!membership.may_serve(1_000));
    }

    #[test]
    fn a_sequence_never_goes_back() {
        let membership = Membership::default();
        membership.has_applied(7);
        membership.has_applied(5);
        assert_eq!(membership.applied(), 7);
    }
}
