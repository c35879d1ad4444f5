//! What visitors with cookies were answered at some addresses, so that it can be compared with what the next one is
//! ([`cookie_leak_check`](crate::admin::cookie_leak_check)).

use std::collections::HashMap;

/// Addresses that a core compares.
pub(crate) const SAMPLES: usize = 256;
/// An address that nobody fetched anew for so long gives its place to another.
const KEPT_S: u32 = 600;
/// Fetches in a row that differ before it is said: a page may just have been changed.
const DIFFERENCES: u8 = 2;

/// What an address's last visitor with a cookie was answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// A number for who asked.
    pub(crate) cookie: u64,
    /// A number for what came.
    pub(crate) content: u64,
    pub(crate) fetched_s: u32,
}

/// The addresses that one core compares, each with how many visitors in a row got something else than the one before.
#[derive(Default)]
pub(crate) struct Samples(HashMap<u64, (Sample, u8)>);

impl Samples {
    /// Whether what visitors were answered at an address differs so often by now that it has to be said.
    pub(crate) fn differs(&mut self, address: u64, now: Sample) -> bool {
        if self.0.len() == SAMPLES && !self.0.contains_key(&address) {
            self.0.retain(|_, (sample, _)| now.fetched_s.saturating_sub(sample.fetched_s) < KEPT_S);
            if self.0.len() == SAMPLES {
                return false;
            }
        }
        let (before, differences) = self.0.entry(address).or_insert((now, 0));
        if before.content == now.content {
            *differences = 0;
        } else if before.cookie != now.cookie {
            // The same visitor gets something new where it changes with time: that tells nothing.
            *differences = differences.saturating_add(1);
        }
        *before = now;
        *differences >= DIFFERENCES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(fetches: &[(u64, u64)]) -> Option<usize> {
        let mut pages = Samples::default();
        let sample =
            |(at, &(cookie, content))| Sample { cookie, content, fetched_s: u32::try_from(at).expect("few") };
        fetches.iter().enumerate().map(sample).position(|sample| pages.differs(7, sample))
    }

    #[test]
    fn what_differs_by_visitor_is_told_the_second_time() {
        assert_eq!(told(&[(1, 10), (2, 20), (3, 30)]), Some(2), "(cookie, content)");
        assert_eq!(told(&[(1, 10), (2, 20), (1, 10)]), Some(2));
        assert_eq!(told(&[(1, 10), (2, 10), (3, 10), (4, 10)]), None, "all the same");
        assert_eq!(told(&[(1, 10), (1, 11), (1, 12), (1, 13)]), None, "one visitor, and time");
        assert_eq!(told(&[(1, 10), (2, 20), (3, 20), (4, 30), (5, 30)]), None, "it was changed twice");
    }

    #[test]
    fn an_address_keeps_its_place_while_it_is_fetched() {
        let mut pages = Samples::default();
        let sample = |fetched_s| Sample { cookie: 1, content: 1, fetched_s };
        for address in 0..SAMPLES as u64 {
            pages.differs(address, sample(u32::from(address > 0)));
        }
        let other = SAMPLES as u64;
        pages.differs(other, sample(KEPT_S - 1));
        assert!(pages.0.contains_key(&0) && !pages.0.contains_key(&other));
        pages.differs(other, sample(KEPT_S));
        assert!(!pages.0.contains_key(&0) && pages.0.contains_key(&other));
    }
}
