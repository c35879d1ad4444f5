//! Due times of the requests, independent of the answers to earlier ones.

use crate::paired::spread::Draws;

/// Distribution of the due times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// Equal intervals.
    Constant,
    /// Exponential intervals, as from many independent visitors.
    Poisson,
}

/// Due times of a run, in nanoseconds on a single clock.
#[derive(Debug, Clone)]
pub struct Schedule {
    arrivals: Arrivals,
    interval_ns: f64,
    start_ns: u64,
    /// Offset from the start, not rounded, so that it does not drift.
    offset_ns: f64,
    draws: Draws,
}

impl Schedule {
    /// Creates a schedule of `rate` requests per second on average from `start_ns` on. Equal seeds give equal
    /// times.
    #[must_use]
    pub fn new(arrivals: Arrivals, rate: f64, start_ns: u64, seed: u64) -> Self {
        let mut schedule =
            Self { arrivals, interval_ns: 1e9 / rate, start_ns, offset_ns: 0.0, draws: Draws::new(seed) };
        if arrivals == Arrivals::Poisson {
            schedule.advance();
        }
        schedule
    }

    /// Returns the due time of the next request.
    #[must_use]
    pub fn due_ns(&self) -> u64 {
        self.start_ns + self.offset_ns as u64
    }

    /// Advances to the following request.
    pub fn advance(&mut self) {
        self.offset_ns += match self.arrivals {
            Arrivals::Constant => self.interval_ns,
            // 1 − u is in (0, 1], so that the logarithm is finite.
            Arrivals::Poisson => -(1.0 - self.draws.unit()).ln() * self.interval_ns,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn distances(arrivals: Arrivals, rate: f64, count: usize) -> Vec<u64> {
        let mut schedule = Schedule::new(arrivals, rate, 1_000, 7);
        let mut last = schedule.due_ns();
        (0..count)
            .map(|_| {
                schedule.advance();
                let distance = schedule.due_ns() - last;
                last = schedule.due_ns();
                distance
            })
            .collect()
    }

    #[test]
    fn constant_arrivals_are_equidistant_without_drift() {
        let distances = distances(Arrivals::Constant, 3.0, 3_000);
        assert!(distances.iter().all(|ns| (333_333_333..=333_333_334).contains(ns)));
        assert_eq!(distances.iter().sum::<u64>() / 1_000_000, 1_000_000);
    }

    #[test]
    fn poisson_arrivals_have_exponential_distances() {
        let distances = distances(Arrivals::Poisson, 1e6, 100_000);
        let mean = distances.iter().sum::<u64>() as f64 / 1e5;
        let variance = distances.iter().map(|ns| (*ns as f64 - mean).powi(2)).sum::<f64>() / 1e5;
        assert!((mean / 1_000.0 - 1.0).abs() < 0.02, "{mean}");
        // The mean and standard deviation of an exponential distribution are equal.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "{}", variance.sqrt());
    }
}
