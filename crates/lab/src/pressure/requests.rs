//! The sequence of requests: objects with Zipf popularity, and a scan over other objects, which requests one
//! after the other.

use crate::paired::spread::Draws;

/// Exponent of the Zipf distribution; the literature reports 0.6 to 1.0 for web traces.
pub const EXPONENT: f64 = 0.99;
/// Percentage of the requests that belong to the scan.
pub const SCAN_PERCENT: usize = 10;

/// An endless sequence of object numbers.
#[derive(Debug, Clone)]
pub struct Requests {
    zipf: Zipf,
    draws: Draws,
    objects: u64,
    /// Factor that is coprime to `objects`; it spreads the ranks over the object numbers.
    spread: u64,
    /// Number of scan requests so far. The scan has as many objects as there are popular ones; their numbers
    /// begin at `objects`.
    scanned: u64,
}

impl Requests {
    /// Creates the sequence. Objects 0 to `objects` − 1 are requested by popularity; a scan requests the next
    /// `objects` numbers one after the other.
    ///
    /// # Panics
    /// Panics if `objects` is zero.
    #[must_use]
    pub fn new(objects: u64, seed: u64) -> Self {
        assert!(objects > 0, "requests for nothing");
        Self {
            zipf: Zipf::new(objects, EXPONENT),
            draws: Draws::new(seed),
            objects,
            spread: spread(objects),
            scanned: 0,
        }
    }
}

impl Iterator for Requests {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.draws.below(100) < SCAN_PERCENT {
            self.scanned += 1;
            return Some(self.objects + (self.scanned - 1) % self.objects);
        }
        let rank = self.zipf.draw(&mut self.draws) - 1;
        Some(spread_over(rank, self.spread, self.objects))
    }
}

/// Returns a number that is coprime to `objects`.
pub fn spread(objects: u64) -> u64 {
    // These numbers are large, so that neighbouring ranks are spread widely; the first one that is coprime is
    // used.
    [2_654_435_761, 2_654_435_769, 4_294_967_291]
        .into_iter()
        .find(|prime| greatest_common_divisor(*prime, objects) == 1)
        .unwrap_or(1)
}

/// Returns the object with this popularity rank; neighbouring ranks have distant object numbers.
pub fn spread_over(rank: u64, spread: u64, objects: u64) -> u64 {
    // The remainder is below `objects`, so it fits into 64 bits.
    (u128::from(rank) * u128::from(spread) % u128::from(objects)) as u64
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Sampler of ranks 1 to n with probability proportional to `rank^-exponent`, in constant memory:
/// rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to generate variates from monotone
/// discrete distributions", 1996). A table of the cumulative distribution would be as large as the metadata
/// that is being measured.
#[derive(Debug, Clone)]
pub struct Zipf {
    ranks: u64,
    exponent: f64,
    integral_first: f64,
    integral_last: f64,
    shortcut: f64,
}

impl Zipf {
    /// Creates a sampler for this number of ranks.
    pub fn new(ranks: u64, exponent: f64) -> Self {
        let mut zipf = Self { ranks, exponent, integral_first: 0.0, integral_last: 0.0, shortcut: 0.0 };
        zipf.integral_first = zipf.integral(1.5) - 1.0;
        zipf.integral_last = zipf.integral(ranks as f64 + 0.5);
        zipf.shortcut = 2.0 - zipf.integral_inverse(zipf.integral(2.5) - zipf.law(2.0));
        zipf
    }

    fn law(&self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    /// Returns the integral of `x^-exponent` from 1 to `x`.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let power = (1.0 - self.exponent) * log;
        log * if power.abs() > 1e-8 { power.exp_m1() / power } else { 1.0 + power / 2.0 }
    }

    fn integral_inverse(&self, y: f64) -> f64 {
        let t = (y * (1.0 - self.exponent)).max(-1.0);
        (y * if t.abs() > 1e-8 { t.ln_1p() / t } else { 1.0 - t / 2.0 }).exp()
    }

    /// Returns the next random rank, counted from 1.
    pub fn draw(&self, draws: &mut Draws) -> u64 {
        loop {
            let u = self.integral_last + draws.unit() * (self.integral_first - self.integral_last);
            let x = self.integral_inverse(u);
            let rank = x.round().clamp(1.0, self.ranks as f64);
            if rank - x <= self.shortcut || u >= self.integral(rank + 0.5) - self.law(rank) {
                return rank as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn ranks_follow_the_law() {
        let zipf = Zipf::new(1000, EXPONENT);
        let mut draws = Draws::new(1);
        let mut counts = [0_u32; 1001];
        for _ in 0..400_000 {
            counts[zipf.draw(&mut draws) as usize] += 1;
        }
        let sum: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-EXPONENT)).sum();
        for rank in [1, 2, 3, 10, 50] {
            let expected = 400_000.0 * f64::from(rank as u32).powf(-EXPONENT) / sum;
            let share = f64::from(counts[rank]) / expected;
            assert!((0.94..1.06).contains(&share), "rank {rank}: {share} of what the law says");
        }
        assert!(counts[0] == 0 && counts[1000] > 0);
    }

    #[test]
    fn scanned_objects_are_requested_once() {
        let objects = 5_000;
        let mut seen: HashMap<u64, u32> = HashMap::new();
        for id in Requests::new(objects, 7).take(40_000) {
            *seen.entry(id).or_default() += 1;
        }
        let scanned: Vec<u64> = seen.keys().copied().filter(|id| *id >= objects).collect();
        assert!((3_500..4_500).contains(&scanned.len()), "{}", scanned.len());
        assert!(scanned.iter().all(|id| *id < 2 * objects && seen[id] == 1));
        // The mapping from ranks to objects is a bijection, so that different ranks request different
        // objects.
        assert!(seen.len() - scanned.len() > 2_000);
        assert_eq!(
            Requests::new(objects, 7).take(100).collect::<Vec<_>>(),
            Requests::new(objects, 7).take(100).collect::<Vec<_>>()
        );
    }
}
