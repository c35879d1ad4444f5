//! The last answers that visitors with cookies received for some addresses, kept for comparison with the next
//! answer ([`cookie_leak_check`](crate::admin::cookie_leak_check)).

use std::collections::HashMap;

/// Maximum number of addresses whose answers one core compares.
pub(crate) const SAMPLES: usize = 256;
/// Seconds without a new fetch after which an address may be replaced by another.
const KEPT_S: u32 = 600;
/// Number of consecutive fetches that must differ before the log reports it; a single difference may be an
/// edited page.
const DIFFERENCES: u8 = 2;

/// The answer that the last visitor with a cookie received for an address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// Hash of the visitor's `Cookie` field.
    pub(crate) cookie: u64,
    /// Hash of the answer's content.
    pub(crate) content: u64,
    pub(crate) fetched_s: u32,
}

/// The addresses that one core compares, each with the number of consecutive fetches whose content differed
/// from the previous fetch.
#[derive(Default)]
pub(crate) struct Samples(HashMap<u64, (Sample, u8)>);

impl Samples {
    /// Records an answer and returns whether the answers of its address have differed often enough in a row
    /// to log it.
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
            // If the content changes between two fetches by the same visitor, the page changes with time, not
            // with the visitor.
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
    fn a_cookie_leak_is_reported_on_second_difference() {
        assert_eq!(told(&[(1, 10), (2, 20), (3, 30)]), Some(2), "(cookie, content)");
        assert_eq!(told(&[(1, 10), (2, 20), (1, 10)]), Some(2));
        assert_eq!(told(&[(1, 10), (2, 10), (3, 10), (4, 10)]), None, "all the same");
        assert_eq!(told(&[(1, 10), (1, 11), (1, 12), (1, 13)]), None, "one visitor, and time");
        assert_eq!(told(&[(1, 10), (2, 20), (3, 20), (4, 30), (5, 30)]), None, "it was changed twice");
    }

    #[test]
    fn an_address_keeps_its_slot_while_fetched() {
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
