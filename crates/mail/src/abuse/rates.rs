//! Rate limits per minute, with bursts of up to half a minute's worth of arrivals.
//!
//! Each slot is one word: the theoretical arrival time of the generic cell rate algorithm (ITU-T I.371).

use std::sync::atomic::{AtomicU64, Ordering};

use std::time::Duration;

/// Rates above which a peer is refused. Replies are delayed once half of the burst is used. 0: no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rates {
    /// Connections from one address (IPv6: one /64).
    pub connections_per_minute: u32,
    /// Mails from one address.
    pub mails_per_minute: u32,
    /// Mails to one inbox.
    pub inbox_mails_per_minute: u32,
    /// Mails with one subject.
    pub subject_mails_per_minute: u32,
    /// Mails with nearly the same text.
    pub campaign_mails_per_minute: u32,
    /// Delay of replies to a peer that is near a rate limit.
    pub tarpit: Duration,
}

/// State of a slot relative to its rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RateVerdict {
    Fine,
    Near,
    Over,
}

const PLACES: usize = 64 * 1024;
/// Size of a burst, expressed as time.
const BURST_MS: u64 = 30_000;

/// One rate limit with a slot for each key's hash.
#[derive(Debug)]
pub(super) struct RateTable {
    /// Theoretical arrival time of each slot (ITU-T I.371), in microseconds. Each accepted arrival advances
    /// it by `each_us`.
    paid_us: Box<[AtomicU64]>,
    each_us: u64,
}

impl RateTable {
    /// Creates the table; a rate without a limit gets an empty table.
    pub(super) fn new(per_minute: u32) -> Self {
        let places = if per_minute == 0 { 0 } else { PLACES };
        Self {
            paid_us: (0..places).map(|_| AtomicU64::new(0)).collect(),
            each_us: 60_000_000 / u64::from(per_minute.max(1)),
        }
    }

    pub(super) fn is_limited(&self) -> bool {
        !self.paid_us.is_empty()
    }

    /// Counts an arrival for `hash`. An arrival over the rate is refused and not counted, so that a sender
    /// that waits is accepted again.
    pub(super) fn charge(&self, hash: impl FnOnce() -> u64, now_ms: u64) -> RateVerdict {
        if self.paid_us.is_empty() {
            return RateVerdict::Fine;
        }
        let (now_us, burst_us) = (now_ms * 1000, (BURST_MS * 1000).max(self.each_us));
        let place = &self.paid_us[hash() as usize % PLACES];
        let mut pace = RateVerdict::Over;
        // Relaxed is enough: a core may see a value that is a moment old, and no other memory depends on it.
        let _ = place.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |paid_us| {
            let paid_us = paid_us.max(now_us) + self.each_us;
            let ahead_us = paid_us - now_us;
            pace = match ahead_us {
                _ if ahead_us > burst_us => RateVerdict::Over,
                _ if ahead_us > burst_us / 2 => RateVerdict::Near,
                _ => RateVerdict::Fine,
            };
            (pace != RateVerdict::Over).then_some(paid_us)
        });
        pace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_allows_a_half_minute_burst() {
        let table = RateTable::new(60);
        let paces: Vec<RateVerdict> = (0..40).map(|_| table.charge(|| 7, 1_000_000)).collect();
        assert_eq!(paces.iter().filter(|pace| **pace == RateVerdict::Fine).count(), 15);
        assert_eq!(paces.iter().filter(|pace| **pace == RateVerdict::Near).count(), 15);
        assert_eq!(table.charge(|| 8, 1_000_000), RateVerdict::Fine, "another's rate is its own");
        assert_eq!(table.charge(|| 7, 1_000_900), RateVerdict::Over);
        assert_eq!(table.charge(|| 7, 1_001_000), RateVerdict::Near);
        assert_eq!(table.charge(|| 7, 1_001_000), RateVerdict::Over);
        assert_eq!(table.charge(|| 7, 2_000_000), RateVerdict::Fine);
    }

    #[test]
    fn no_limit_holds_no_table() {
        let table = RateTable::new(0);
        assert!((0..10_000).all(|_| table.charge(|| unreachable!(), 0) == RateVerdict::Fine));
    }
}
