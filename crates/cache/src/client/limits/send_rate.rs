//! Minimum rate at which a client must read its answers.
//!
//! ```text
//!  credit: initially and at most send_rate_grace       each second of waiting for the client takes one second of credit
//!                                                      each byte that the client reads adds 1 / send_rate_min of a second
//! ```
//! A client that reads more slowly than the rate uses up its credit and is then cut; a client that was fast
//! for a while never has more credit than the grace. No credit is taken while nothing waits for the client.

use std::time::Duration;

use crate::config::Limits;

/// Time credit of one connection.
pub(crate) struct SendRate {
    /// Minimum rate in bytes per second; 0 means no limit.
    rate_min: u64,
    grace_ms: u64,
    credit_ms: u64,
    /// Time at which the connection began to wait for the client, in milliseconds.
    since_ms: Option<u64>,
}

impl SendRate {
    pub(crate) fn new(limits: &Limits) -> Self {
        let grace_ms = u64::try_from(limits.send_rate_grace.as_millis()).unwrap_or(u64::MAX);
        Self { rate_min: limits.send_rate_min, grace_ms, credit_ms: grace_ms, since_ms: None }
    }

    /// Starts waiting for the client. Returns the maximum time that the client may read nothing.
    pub(crate) fn wait(&mut self, now_ms: u64) -> Duration {
        let since_ms = *self.since_ms.get_or_insert(now_ms);
        if self.rate_min == 0 {
            return Duration::MAX;
        }
        Duration::from_millis(self.credit_ms.saturating_sub(now_ms.saturating_sub(since_ms)))
    }

    /// Returns whether the client has used up its credit.
    pub(crate) fn is_over(&self, now_ms: u64) -> bool {
        let waited_ms = self.since_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms));
        self.rate_min > 0 && waited_ms >= self.credit_ms
    }

    /// Records that the client has read `bytes` bytes.
    #[inline]
    pub(crate) fn took(&mut self, bytes: usize, now_ms: impl FnOnce() -> u64) {
        if self.since_ms.is_some() || self.credit_ms < self.grace_ms {
            self.took_after_a_wait(bytes, now_ms());
        }
    }

    #[cold]
    fn took_after_a_wait(&mut self, bytes: usize, now_ms: u64) {
        if self.rate_min == 0 {
            self.since_ms = None;
            return;
        }
        let waited_ms = self.since_ms.take().map_or(0, |since_ms| now_ms.saturating_sub(since_ms));
        let earned_ms = (bytes as u64).saturating_mul(1000) / self.rate_min;
        self.credit_ms =
            self.credit_ms.saturating_sub(waited_ms).saturating_add(earned_ms).min(self.grace_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taking(rate_min: u64) -> SendRate {
        SendRate::new(&Limits {
            send_rate_min: rate_min,
            send_rate_grace: Duration::from_secs(30),
            ..Limits::default()
        })
    }

    /// Returns the number of seconds until a client that reads `bytes` bytes per second is cut; at most an
    /// hour.
    fn seconds_of(bytes: usize, rate_min: u64) -> u64 {
        let mut taking = taking(rate_min);
        for second in 0..3600 {
            taking.wait(second * 1000);
            if taking.is_over((second + 1) * 1000 - 1) {
                return second;
            }
            taking.took(bytes, || (second + 1) * 1000);
        }
        3600
    }

    #[test]
    fn a30_a_slow_reader_uses_up_its_grace() {
        assert_eq!(seconds_of(512, 512), 3600);
        assert_eq!(seconds_of(1_000_000, 512), 3600);
        assert!((29..=31).contains(&seconds_of(0, 512)));
        assert!((58..=61).contains(&seconds_of(256, 512)), "at half of the rate it lasts twice as long");
        assert!((29..=31).contains(&seconds_of(1, 512)));
        assert_eq!(seconds_of(0, 0), 3600, "there is no limit");
    }

    #[test]
    fn a30_a_fast_reader_earns_no_extra_grace() {
        let mut taking = taking(512);
        taking.took(1 << 30, || 0);
        assert_eq!(taking.wait(1000), Duration::from_secs(30));
        assert_eq!(taking.wait(11_000), Duration::from_secs(20), "the same wait");
        assert!(!taking.is_over(30_900) && taking.is_over(31_000));
        taking.took(5120, || 11_000);
        assert_eq!(taking.wait(50_000), Duration::from_secs(30), "what is not its time does not count");
    }
}
