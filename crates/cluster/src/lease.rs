//! Until when this instance may serve what is stored: a chain of renewals.
//!
//! ```text
//!   sent ──────────── lease ───────────────▶ ends
//!     └─▶ taken by the cluster, known here ──┤ before that: the next link, from when *that* one was sent
//!                                            └ after that: the chain is broken, whatever was taken
//! ```
//! A link counts from when it was sent, because the cluster took it later than that, and who waits for us learned of it
//! later still. **An answer that comes after the lease has ended renews nothing:** between that end and the answer a purge
//! may have been acknowledged without us. Then everything that was purged is caught up with before the next chain begins.
//!
//! Times are milliseconds of the clock that goes on while the machine sleeps.

/// The chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease {
    length_ms: u64,
    ends_ms: u64,
}

/// The chain is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaseExpiry;

impl Lease {
    /// The first link.
    pub(crate) fn begin(length_ms: u64, sent_ms: u64) -> Self {
        Self { length_ms, ends_ms: sent_ms + length_ms }
    }

    /// Whether it is over.
    pub(crate) fn is_over(&self, now_ms: u64) -> bool {
        now_ms >= self.ends_ms
    }

    /// A renewal that was sent then is known to be taken now.
    ///
    /// # Errors
    /// Too late.
    pub(crate) fn renewed(&mut self, sent_ms: u64, now_ms: u64) -> Result<(), LeaseExpiry> {
        if self.is_over(now_ms) {
            return Err(LeaseExpiry);
        }
        self.ends_ms = self.ends_ms.max(sent_ms + self.length_ms);
        Ok(())
    }

    /// When it ends.
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
