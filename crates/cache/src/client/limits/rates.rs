//! Request rates of each address and each network, over all cores and connections, if a limit is set.
//!
//! ```text
//!  address ─hash─▶ group of four words ─▶ its own word (by 16 bits of the hash), or the oldest one
//!                                                └ the time at which all requests of the address would be due
//! ```
//! This is the generic cell rate algorithm (ITU-T I.371): each request moves that time forward by the inverse
//! of the rate, and an address whose time is ahead of the clock by more than its burst is refused. Each
//! address has one word, and there is no lock. *Bounds:* the table has a fixed size. If four busy addresses
//! share a group, a fifth replaces the one with the fewest requests. So a flood from many addresses weakens
//! the limit per address, but hardly ever causes an uninvolved address to be refused (only if its group and
//! tag equal those of a flooding address: one in eight thousand, while the group is full). The limit per
//! network covers such a flood: 24 bits of IPv4, 64 of IPv6.

use std::{
    hash::{BuildHasher, RandomState},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::config::Limits;

/// Number of groups of four words; the table takes half a mebibyte.
const GROUPS: usize = 16 * 1024;
const WAYS: usize = 4;
/// Number of low bits of a word that hold a time in microseconds, enough for 8.9 years. The high bits hold
/// the address's tag.
const TIME_BITS: u32 = 48;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// Request rates of addresses and of networks.
#[derive(Debug)]
pub(crate) struct Rates {
    of_addresses: Option<Rate>,
    of_networks: Option<Rate>,
}

/// Limit that a request exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TooMany {
    Address,
    Network,
}

impl Rates {
    pub(crate) fn new(limits: &Limits) -> Self {
        let rate = |per_second: usize, burst: usize| (per_second > 0).then(|| Rate::new(per_second, burst));
        Self {
            of_addresses: rate(limits.client_requests_per_second_max, limits.client_requests_burst),
            of_networks: rate(limits.network_requests_per_second_max, limits.network_requests_burst),
        }
    }

    /// Returns whether two configurations have the same rate limits.
    pub(crate) fn is_same(one: &Limits, other: &Limits) -> bool {
        let of = |limits: &Limits| {
            (
                (limits.client_requests_per_second_max, limits.client_requests_burst),
                (limits.network_requests_per_second_max, limits.network_requests_burst),
            )
        };
        of(one) == of(other)
    }

    /// Counts a request; returns an error if the address or its network exceeds its rate.
    #[inline]
    pub(crate) fn admit(&self, address: IpAddr, now_ms: u64) -> Result<(), TooMany> {
        if self.of_addresses.is_none() && self.of_networks.is_none() {
            return Ok(());
        }
        self.admit_limited(address, now_ms)
    }

    #[cold]
    fn admit_limited(&self, address: IpAddr, now_ms: u64) -> Result<(), TooMany> {
        let now_us = now_ms * 1000;
        if self.of_addresses.as_ref().is_some_and(|rate| !rate.admit(address, now_us)) {
            return Err(TooMany::Address);
        }
        match &self.of_networks {
            Some(rate) if !rate.admit(network_of(address), now_us) => Err(TooMany::Network),
            _ => Ok(()),
        }
    }
}

/// Returns the network of an address (24 bits of IPv4, 64 of IPv6), because one client may have many
/// addresses.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => Ipv4Addr::from_bits(address.to_bits() & !0xff).into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[derive(Debug)]
struct Rate {
    words: Box<[AtomicU64]>,
    /// Random seed, so that no client can target another client's group.
    seed: RandomState,
    /// Interval between two requests at the maximum rate.
    each_us: u64,
    /// Maximum time by which an address may be ahead of the clock.
    burst_us: u64,
}

impl Rate {
    fn new(per_second: usize, burst: usize) -> Self {
        let each_us = (1_000_000 / per_second as u64).max(1);
        Self {
            words: (0..GROUPS * WAYS).map(|_| AtomicU64::new(0)).collect(),
            seed: RandomState::new(),
            each_us,
            burst_us: (each_us * burst.max(1) as u64).min(TIME_MASK / 2),
        }
    }

    fn admit(&self, whom: IpAddr, now_us: u64) -> bool {
        let hash = self.seed.hash_one(whom);
        // The tag is never 0, because 0 marks an empty word.
        let mark = hash >> TIME_BITS | 1;
        #[expect(clippy::cast_possible_truncation, reason = "only the low bits choose the group")]
        let group = hash as usize % GROUPS * WAYS;
        let group = &self.words[group..group + WAYS];
        let due_of = |word: &AtomicU64| word.load(Relaxed) & TIME_MASK;
        let own = group.iter().find(|word| word.load(Relaxed) >> TIME_BITS == mark);
        let Some(word) = own.or_else(|| group.iter().min_by_key(|word| due_of(word))) else { return true };
        let now_us = now_us & TIME_MASK;
        let next = |word: u64| {
            let is_own = word >> TIME_BITS == mark;
            let due = if is_own { (word & TIME_MASK).max(now_us) } else { now_us };
            let next = due + self.each_us;
            (next - now_us <= self.burst_us).then_some(mark << TIME_BITS | next & TIME_MASK)
        };
        // Two simultaneous requests on two cores are both counted.
        word.fetch_update(Relaxed, Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(number).into()
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let rate = Rate::new(10, 5);
        let count =
            |now_ms: u64, asked: usize| (0..asked).filter(|_| rate.admit(address(7), now_ms * 1000)).count();
        assert_eq!(count(1000, 20), 5);
        assert_eq!(count(1099, 5), 0);
        assert_eq!(count(1100, 5), 1);
        assert_eq!(count(1400, 5), 3);
        assert_eq!(count(9000, 20), 5, "what was not used is not kept beyond the burst");
        assert!(rate.admit(address(8), 9_000_000), "another one");
    }

    #[test]
    fn networks_are_24_bits_and_64() {
        let network = |text: &str| network_of(text.parse().expect("an address")).to_string();
        assert_eq!(network("192.0.2.77"), "192.0.2.0");
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        let limits =
            Limits { network_requests_per_second_max: 1, network_requests_burst: 2, ..Limits::default() };
        let rates = Rates::new(&limits);
        let ask = |text: &str| rates.admit(text.parse().expect("an address"), 5000);
        assert_eq!(ask("10.0.0.1"), Ok(()));
        assert_eq!(ask("10.0.0.2"), Ok(()));
        assert_eq!(ask("10.0.0.3"), Err(TooMany::Network));
        assert_eq!(ask("10.0.1.3"), Ok(()));
    }

    #[test]
    fn no_limit_holds_no_table() {
        let rates = Rates::new(&Limits::default());
        assert!(rates.of_addresses.is_none() && rates.of_networks.is_none());
        assert_eq!(rates.admit(address(1), 0), Ok(()));
    }

    #[test]
    fn a_flood_does_not_refuse_other_clients() {
        let rate = Rate::new(1, 1);
        for number in 0..400_000 {
            rate.admit(address(number), 1_000_000);
        }
        // About one address in 8000 has the same group and tag as another.
        let admitted = (500_000..501_000).filter(|number| rate.admit(address(*number), 1_000_000)).count();
        assert!(admitted >= 990, "{admitted}");
    }

    proptest! {
        /// The rates admit the same requests as a leaky bucket for each address.
        #[test]
        fn it_admits_what_a_bucket_admits(asked in prop::collection::vec((0_u32..3, 0_u64..400), 1..200)) {
            let rate = Rate::new(10, 3);
            let mut buckets: HashMap<u32, f64> = HashMap::new();
            let mut now_ms = 1000;
            let mut last_ms = HashMap::new();
            for (number, later_ms) in asked {
                now_ms += later_ms / 50 * 50;
                let level = buckets.entry(number).or_insert(0.0);
                let before = last_ms.insert(number, now_ms).unwrap_or(now_ms);
                *level = (*level - (now_ms - before) as f64 / 100.0).max(0.0);
                let is_room = *level + 1.0 <= 3.0 + 1e-9;
                if is_room {
                    *level += 1.0;
                }
                prop_assert_eq!(rate.admit(address(number), now_ms * 1000), is_room);
            }
        }
    }
}
