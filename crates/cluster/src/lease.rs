//! Lease: the time until which this instance may serve stored objects, as a chain of renewals.
//!
//! ```text
//!   sent ──────────── lease ───────────────▶ ends
//!     └─▶ taken by the cluster, known here ──┤ before that: the next renewal, counted from its own send time
//!                                            └ after that: the lease has expired, whatever was accepted
//! ```
//! A renewal counts from its send time, because the cluster accepts it later, and the instances that wait for
//! us learn of it later still. **A reply that arrives after the lease has ended renews nothing:** between the
//! end and the reply a purge may have been acknowledged without us. The instance must then catch up with all
//! purges before the next chain begins.
//!
//! Times are milliseconds of the clock that also runs while the machine sleeps.

/// State of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease {
    length_ms: u64,
    ends_ms: u64,
}

/// Error for a renewal that arrives after the lease has expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseExpiry;

impl Lease {
    /// Begins a lease with a heartbeat sent at `sent_ms`.
    pub(crate) fn begin(length_ms: u64, sent_ms: u64) -> Self {
        Self { length_ms, ends_ms: sent_ms + length_ms }
    }

    /// Returns whether the lease has expired.
    pub(crate) fn is_over(&self, now_ms: u64) -> bool {
        now_ms >= self.ends_ms
    }

    /// Records at `now_ms` that a renewal sent at `sent_ms` was accepted.
    ///
    /// # Errors
    /// Returns [`LeaseExpiry`] if the lease has already expired.
    pub(crate) fn renewed(&mut self, sent_ms: u64, now_ms: u64) -> Result<(), LeaseExpiry> {
        if self.is_over(now_ms) {
            return Err(LeaseExpiry);
        }
        self.ends_ms = self.ends_ms.max(sent_ms + self.length_ms);
        Ok(())
    }

    /// Returns the end of the lease.
    pub(crate) fn ends_ms(&self) -> u64 {
        self.ends_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_counts_from_when_it_was_sent() {
        let mut lease = Lease::begin(100, 1_000);
        assert!(!lease.is_over(1_099));
        assert!(lease.is_over(1_100));
        assert_eq!(lease.renewed(1_030, 1_090), Ok(()));
        assert_eq!(lease.ends_ms(), 1_130);
        assert_eq!(lease.renewed(1_010, 1_095), Ok(()), "an older answer takes nothing away");
        assert_eq!(lease.ends_ms(), 1_130);
    }

    #[test]
    fn an_answer_after_the_end_renews_nothing() {
        let mut lease = Lease::begin(100, 1_000);
        assert_eq!(lease.renewed(1_099, 1_100), Err(LeaseExpiry));
        assert_eq!(lease.ends_ms(), 1_100);
    }
}
