//! Key sequences other than the B-heap article's; none of their seeds was used for tuning.

use crate::experiments::bheap_sim::keys::Random3;
use crate::experiments::memory_ladder::random::Random;

/// A kind of key sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// Keys of random(3), as in the B-heap article, after `srandom` with this seed.
    Uniform(u32),
    /// Each key is larger than all before.
    Sorted,
    /// Each key is smaller than all before, so that the queue is a stack.
    Reversed,
    /// Fifty clusters of ten thousand neighbours.
    Clustered,
    /// Expiries in milliseconds: the current time, plus one of four popular ttls, plus up to a second.
    Expiries,
    /// Ten different keys.
    Ten,
}

impl Keys {
    /// Sequences that are measured in addition to the B-heap article's own.
    pub const OTHERS: [Self; 7] = [
        Self::Uniform(20_250_101),
        Self::Uniform(7_654_321),
        Self::Sorted,
        Self::Reversed,
        Self::Clustered,
        Self::Expiries,
        Self::Ten,
    ];

    /// Returns the name in words.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Uniform(seed) => format!("uniform, seed {seed}"),
            Self::Sorted => "sorted".to_owned(),
            Self::Reversed => "reversed".to_owned(),
            Self::Clustered => "clustered".to_owned(),
            Self::Expiries => "expiries: now + a popular ttl".to_owned(),
            Self::Ten => "ten different keys".to_owned(),
        }
    }

    /// Returns the sequence. Each key is derived from the key that was removed last, which is the current
    /// time if keys are times.
    #[must_use]
    pub fn sequence(self) -> Box<dyn FnMut(u64) -> u64> {
        let mut random = Random::new(0x51ed_270b);
        let mut step = 0;
        match self {
            Self::Uniform(seed) => {
                let mut random3 = Random3::new(seed);
                Box::new(move |_| random3.next().map_or(0, u64::from))
            }
            Self::Sorted => Box::new(move |_| {
                step += 1;
                step
            }),
            Self::Reversed => Box::new(move |_| {
                step += 1;
                u64::MAX / 2 - step
            }),
            Self::Clustered => {
                Box::new(move |_| ((random.below(50) as u64) << 40) + random.below(10_000) as u64)
            }
            Self::Expiries => Box::new(move |now| {
                let ttl_ms = [60_000, 600_000, 3_600_000, 86_400_000][random.below(4)];
                now + ttl_ms + random.below(1000) as u64
            }),
            Self::Ten => Box::new(move |_| random.below(10) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_what_it_is_called() {
        let of = |keys: Keys| -> Vec<u64> {
            let mut next = keys.sequence();
            (0..1000).map(|_| next(5)).collect()
        };
        assert!(of(Keys::Sorted).windows(2).all(|pair| pair[0] < pair[1]));
        assert!(of(Keys::Reversed).windows(2).all(|pair| pair[0] > pair[1]));
        let mut ten = of(Keys::Ten);
        ten.sort_unstable();
        ten.dedup();
        assert_eq!(ten, (0..10).collect::<Vec<_>>());
        assert!(of(Keys::Expiries).iter().all(|&key| (60_005..=86_401_005).contains(&key)));
        assert_ne!(of(Keys::OTHERS[0]), of(Keys::OTHERS[1]));
        let article: Vec<u64> = Random3::new(1).take(1000).map(u64::from).collect();
        assert!(Keys::OTHERS.iter().all(|&keys| of(keys) != article), "other seeds than the article's");
    }
}
