//! CPU time of the two classic heaps on this machine, without memory pressure.

use bheap::{BHeap, BinaryHeap, PageQueue};
use rustix::time::{ClockId, clock_gettime};

use super::keys::Random3;
use super::phases::{Subject, three_phases};

/// CPU seconds of each round, measured alternately for the binary heap and the B-heap.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuSeconds {
    /// Rounds of the binary heap.
    pub binary_s: Vec<f64>,
    /// Rounds of the B-heap.
    pub paged_s: Vec<f64>,
}

/// Runs both heaps through the phases alternately, `rounds` times. Other processes do not advance this
/// thread's CPU clock, but they do evict data from the caches: the spread of the rounds shows how much.
#[must_use]
pub fn measure(items: usize, page_bytes: usize, rounds: u32) -> CpuSeconds {
    let mut measured = CpuSeconds { binary_s: Vec::new(), paged_s: Vec::new() };
    for seed in 1..=rounds {
        measured.binary_s.push(seconds(&mut BinaryHeap::<u64>::default(), items, seed));
        if let Ok(mut queue) = BHeap::<u64>::new(page_bytes) {
            measured.paged_s.push(seconds(&mut queue, items, seed));
        }
    }
    measured
}

/// Returns the CPU seconds of the page queue: the median of `rounds` rounds.
#[must_use]
pub fn of_page_queue(items: usize, page_bytes: usize, rounds: u32) -> f64 {
    let round =
        |seed| PageQueue::<u64>::new(page_bytes).map(|mut queue| seconds(&mut queue, items, seed)).ok();
    median(&(1..=rounds).filter_map(round).collect::<Vec<f64>>())
}

fn seconds(queue: &mut impl Subject, items: usize, seed: u32) -> f64 {
    let mut random = Random3::new(seed);
    let start = cpu_s();
    three_phases(queue, items, |_| random.next().map_or(0, u64::from));
    cpu_s() - start
}

fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

impl CpuSeconds {
    /// Returns both medians: binary heap, B-heap.
    #[must_use]
    pub fn medians(&self) -> (f64, f64) {
        (median(&self.binary_s), median(&self.paged_s))
    }

    /// Returns the factor by which the B-heap took longer in each round: the smallest, the median, the
    /// largest.
    #[must_use]
    pub fn slower(&self) -> (f64, f64, f64) {
        let mut ratios: Vec<f64> = self.binary_s.iter().zip(&self.paged_s).map(|(b, p)| p / b).collect();
        ratios.sort_by(f64::total_cmp);
        (ratios.first().copied().unwrap_or(1.0), median(&ratios), ratios.last().copied().unwrap_or(1.0))
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_times_are_positive_and_quantiles_ordered() {
        let measured = measure(2_000, 4096, 3);
        assert_eq!((measured.binary_s.len(), measured.paged_s.len()), (3, 3));
        assert!(measured.binary_s.iter().chain(&measured.paged_s).all(|&s| s > 0.0), "{measured:?}");
        assert!(of_page_queue(2_000, 4096, 3) > 0.0);
        let (least, middle, most) = measured.slower();
        assert!(least <= middle && middle <= most);
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12 && (median(&[1.0, 2.0]) - 1.5).abs() < 1e-12);
    }
}
