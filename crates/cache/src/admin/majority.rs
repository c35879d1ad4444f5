//! Counts of a site's requests, to find out what most of them have in common and log a hint.
//!
//! Two things cost a site nearly all of its hits: answers without a freshness lifetime, and cookies that
//! every browser has. The operator sees passes but not the reason, so the log names the reason once per site,
//! together with the setting that helps.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Minimum number of requests of a site before the hint may be logged.
const REQUESTS_MIN: u64 = 100;

/// Counts of one core, on a cache line that no other core writes.
#[derive(Default)]
#[repr(align(64))]
struct OfCore {
    requests: AtomicU64,
    of_kind: AtomicU64,
}

/// Counts of one site's requests: the total, and the number that have a certain property.
pub(crate) struct Majority {
    of_cores: Box<[OfCore]>,
    is_told: AtomicBool,
}

impl Majority {
    pub(crate) fn new(cores: usize) -> Self {
        let of_cores = std::iter::repeat_with(OfCore::default).take(cores).collect();
        Self { of_cores, is_told: AtomicBool::new(false) }
    }

    /// Returns whether the hint was already logged; counting has stopped then.
    pub(crate) fn is_told(&self) -> bool {
        self.is_told.load(Relaxed)
    }

    /// Counts a request on a core. Returns the percentage of requests of this kind if the caller must log the
    /// hint: enough requests were counted and most are of this kind. Returns a percentage only once.
    pub(crate) fn count(&self, core: usize, is_of_kind: bool) -> Option<u64> {
        if self.is_told() {
            return None;
        }
        let own = &self.of_cores[core];
        own.requests.fetch_add(1, Relaxed);
        if !is_of_kind {
            return None;
        }
        own.of_kind.fetch_add(1, Relaxed);
        let sum = |of: fn(&OfCore) -> &AtomicU64| -> u64 {
            self.of_cores.iter().map(|core| of(core).load(Relaxed)).sum()
        };
        let (requests, of_kind) = (sum(|core| &core.requests), sum(|core| &core.of_kind));
        let is_due = requests >= REQUESTS_MIN && of_kind > requests / 2;
        (is_due && !self.is_told.swap(true, Relaxed)).then(|| of_kind * 100 / requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_of_many_requests_are_told_once() {
        let none = Majority::new(1);
        assert!((0..1_000).all(|_| none.count(0, false).is_none()));
        let half = Majority::new(2);
        assert!((0..1_000).all(|n| half.count(n / 2 % 2, n % 2 == 1).is_none()), "half are not most");
        let most = Majority::new(3);
        let told: Vec<_> = (1..=1_000).filter_map(|n| Some((n, most.count(n / 4 % 3, n % 4 > 0)?))).collect();
        assert_eq!(told, [(101, 75)]);
        let most = Majority::new(3);
        let told: Vec<usize> = (1..=1_000).filter(|n| most.count(n / 3 % 3, n % 3 > 0).is_some()).collect();
        assert_eq!(told, [100]);
    }
}
