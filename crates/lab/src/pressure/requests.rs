//! The sequence of requests: a Zipf law over the objects, and scans that ask for each object of their own once.

use crate::paired::spread::Draws;

/// Zipf's exponent, as in the web traces of the literature (0.6 to 1.0).
pub const EXPONENT: f64 = 0.99;
/// Of a hundred requests, so many belong to a scan.
pub const SCAN_PERCENT: usize = 10;

/// A sequence of object numbers without end.
#[derive(Debug, Clone)]
pub struct Requests {
    zipf: Zipf,
    draws: Draws,
    objects: u64,
    /// A number without a common divisor with `objects`: spreads the ranks over the numbers.
    spread: u64,
    /// The scan is over numbers from `objects` on, as many again.
    scanned: u64,
}

impl Requests {
    /// Over `objects` objects that are asked for by popularity, numbered from 0, and as many behind them that a scan
    /// asks for, one after the other.
    ///
    /// # Panics
    /// If there are none.
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

/// A number without a common divisor with `objects`.
pub fn spread(objects: u64) -> u64 {
    // Some prime beyond: at most one of them divides.
    [2_654_435_761, 2_654_435_769, 4_294_967_291]
        .into_iter()
        .find(|prime| greatest_common_divisor(*prime, objects) == 1)
        .unwrap_or(1)
}

/// The object of a rank: neighbours in rank are no neighbours in number.
pub fn spread_over(rank: u64, spread: u64, objects: u64) -> u64 {
    // Below `objects`: fits.
    (u128::from(rank) * u128::from(spread) % u128::from(objects)) as u64
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Ranks 1 to n in proportion to `rank^-exponent`, in constant memory: rejection-inversion (Hörmann and Derflinger,
/// "Rejection-inversion to generate variates from monotone discrete distributions", 1996). A table of the cumulated
/// law would be as large as the metadata that is being measured.
#[derive(Debug, Clone)]
pub struct Zipf {
    ranks: u64,
    exponent: f64,
    integral_first: f64,
    integral_last: f64,
    shortcut: f64,
}

impl Zipf {
    /// The law over so many ranks.
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

    /// Of the law, from 1 to x.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let power = (1.0 - self.exponent) * log;
        log * if power.abs() > 1e-8 { power.exp_m1() / power } else { 1.0 + power / 2.0 }
    }

    fn integral_inverse(&self, y: f64) -> f64 {
        let t = (y * (1.0 - self.exponent)).max(-1.0);
        (y * if t.abs() > 1e-8 { t.ln_1p() / t } else { 1.0 - t / 2.0 }).exp()
    }

    /// The next rank, from 1.
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
    fn the_scan_asks_once_for_each_and_the_rest_stays_within() {
        let objects = 5_000;
        let mut seen: HashMap<u64, u32> = HashMap::new();
        for id in Requests::new(objects, 7).take(40_000) {
            *seen.entry(id).or_default() += 1;
        }
        let scanned: Vec<u64> = seen.keys().copied().filter(|id| *id >= objects).collect();
        assert!((3_500..4_500).contains(&scanned.len()), "{}", scanned.len());
        assert!(scanned.iter().all(|id| *id < 2 * objects && seen[id] == 1));
        // A bijection of ranks: as many different popular objects as different ranks, and no fewer.
        assert!(seen.len() - scanned.len() > 2_000);
        assert_eq!(
            Requests::new(objects, 7).take(100).collect::<Vec<_>>(),
            Requests::new(objects, 7).take(100).collect::<Vec<_>>()
        );
    }
}
