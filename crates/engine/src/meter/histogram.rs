//! Histograms with fixed log-linear buckets.
//!
//! Values below 256 have a bucket each; above, every power of two is divided into 128 buckets of equal width.
//! A value is thus known to within 1/128 (0.8%) from 1 up to 2^37 − 1 (137 s in nanoseconds), in 3,968
//! buckets, 31 KiB. Nothing is resized or allocated after startup.
//!
//! ```text
//!   value   0 … 255 │ 256 … 511 │ 512 … 1023 │ … │ 2^36 … 2^37−1
//!   width      1    │     2     │     4      │ … │    2^29
//! ```

use std::{
    cell::Cell,
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use super::snapshot::{Family, Point, Source, Unit, Value};

/// Number of buckets per power of two, as a base-2 logarithm.
const SUB_BITS: u32 = 7;

/// Largest value that has a bucket: 137 s in nanoseconds. Larger values are counted in the last bucket, and
/// separately as [`Distribution::beyond`].
const VALUE_MAX: u64 = (1 << 37) - 1;

const BUCKETS: usize = bucket_of(VALUE_MAX) + 1;

/// Returns the bucket of a value that is at most [`VALUE_MAX`].
#[inline(always)]
const fn bucket_of(value: u64) -> usize {
    let shift = (u64::BITS - 1 - SUB_BITS) - (value | 1 << SUB_BITS).leading_zeros();
    ((shift as usize) << SUB_BITS) + (value >> shift) as usize
}

/// Returns the smallest and the largest value of a bucket.
const fn bounds_of(bucket: usize) -> (u64, u64) {
    let shift = (bucket >> SUB_BITS).saturating_sub(1);
    let low = ((bucket - (shift << SUB_BITS)) as u64) << shift;
    (low, low + ((1 << shift) - 1))
}

/// One writer's histogram. Any thread may read it at any time.
#[derive(Debug)]
#[repr(align(128))]
pub struct Histogram {
    buckets: Box<[AtomicU64]>,
    /// Exact sum of all recorded values.
    sum: AtomicU64,
    max: AtomicU64,
    /// Number of values above [`VALUE_MAX`].
    beyond: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Histogram {
    /// Creates an empty histogram of 31 KiB.
    #[must_use]
    pub fn new() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
            beyond: AtomicU64::new(0),
        }
    }

    /// Counts `value` (nanoseconds, bytes or pieces, depending on the histogram).
    ///
    /// Only one thread may record at a time; a second one would only lose counts. [`Histograms`] ensures this
    /// by giving each core its own histogram.
    #[inline]
    pub fn record(&self, value: u64) {
        add(&self.buckets[bucket_of(value.min(VALUE_MAX))], 1);
        add(&self.sum, value);
        if value > self.max.load(Ordering::Relaxed) {
            self.max.store(value, Ordering::Relaxed);
        }
        if value > VALUE_MAX {
            add(&self.beyond, 1);
        }
    }

    /// Returns the values recorded up to about now. Allocates; called by the reading thread.
    #[must_use]
    pub fn read(&self) -> Distribution {
        Distribution {
            counts: self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect(),
            sum: self.sum.load(Ordering::Relaxed),
            max: self.max.load(Ordering::Relaxed),
            beyond: self.beyond.load(Ordering::Relaxed),
        }
    }
}

/// Adds with a load and a store, because there is one writer; no other core's cache line is written.
#[inline(always)]
fn add(cell: &AtomicU64, n: u64) {
    cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

/// Contents of a histogram at the time it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distribution {
    /// Counts per bucket.
    counts: Box<[u64]>,
    sum: u64,
    max: u64,
    beyond: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS].into(), sum: 0, max: 0, beyond: 0 }
    }
}

impl Distribution {
    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the exact sum of all values.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the exact largest value; 0 if no value was recorded.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Returns how many values were too large for any bucket (above 2^37 − 1) and were counted in the last
    /// one.
    #[must_use]
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    /// Adds the values of another distribution.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.sum = self.sum.wrapping_add(other.sum);
        self.max = self.max.max(other.max);
        self.beyond += other.beyond;
    }

    /// Converts to a histogram of the `hdrhistogram` crate, for percentiles, iteration and its file format.
    /// Each value is placed at the upper end of its bucket: never below the recorded value, and at most 0.8%
    /// above.
    #[must_use]
    pub fn to_hdr(&self) -> hdrhistogram::Histogram<u64> {
        #[expect(
            clippy::expect_used,
            reason = "the bounds are constants that the crate accepts, as a test shows"
        )]
        let mut hdr = hdrhistogram::Histogram::new_with_bounds(1, VALUE_MAX, 3).expect("constant bounds");
        for (bucket, &count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            hdr.saturating_record_n(bounds_of(bucket).1.min(self.max), count);
        }
        hdr
    }

    /// Returns the values at the given quantiles (0 to 1), in the given order: at most 1% above the true ones
    /// and never below; 1 gives the exact maximum. Returns zeros if nothing was recorded.
    #[must_use]
    pub fn quantiles<const N: usize>(&self, quantiles: [f64; N]) -> [u64; N] {
        let hdr = self.to_hdr();
        quantiles.map(|quantile| {
            if quantile >= 1.0 {
                return self.max;
            }
            // At quantile 0 the crate returns the lower end of the first bucket, elsewhere the upper.
            hdr.highest_equivalent(hdr.value_at_quantile(quantile)).min(self.max)
        })
    }

    /// Returns, for each of the ascending `bounds`, how many values are at or below it and above the previous
    /// bound. A bucket that straddles a bound counts as within it, so the error is one bucket's width, 0.8%
    /// of the bound; a value that equals a bound is always within it.
    #[must_use]
    pub fn counts_up_to(&self, bounds: &[u64]) -> Vec<u64> {
        let mut counts = vec![0; bounds.len()];
        let mut at = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            while at < bounds.len() && bounds_of(bucket).0 > bounds[at] {
                at += 1;
            }
            match counts.get_mut(at) {
                Some(slot) => *slot += count,
                None => break,
            }
        }
        counts
    }
}

/// Name, help text and unit of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistogramSpec {
    /// Prometheus name, including the unit: `cache_hit_seconds`.
    pub name: &'static str,
    /// Help text, one sentence.
    pub help: &'static str,
    /// Unit of the values: nanoseconds are recorded for `Seconds` (and converted when read), otherwise bytes
    /// or a number of items.
    pub unit: Unit,
}

/// Histograms under one name, one per core, merged when read.
#[derive(Debug)]
pub struct Histograms {
    spec: HistogramSpec,
    cores: Box<[Histogram]>,
    /// For each core, whether its [`Recorder`] has been taken.
    taken: Box<[AtomicBool]>,
}

impl Histograms {
    /// Creates empty histograms for `cores` writers.
    ///
    /// # Panics
    /// Panics if the name does not end in its unit (`_bytes`, `_seconds`).
    #[must_use]
    pub fn new(spec: HistogramSpec, cores: usize) -> Arc<Self> {
        spec.unit.assert_ends(spec.name);
        Arc::new(Self {
            spec,
            cores: (0..cores).map(|_| Histogram::new()).collect(),
            taken: (0..cores).map(|_| AtomicBool::new(false)).collect(),
        })
    }

    /// Takes the recorder of `core`.
    ///
    /// # Panics
    /// Panics if there is no such core, or if its recorder is already taken, because two writers would lose
    /// counts.
    #[must_use]
    pub fn core(self: &Arc<Self>, core: usize) -> Recorder {
        assert!(!self.taken[core].swap(true, Ordering::Acquire), "histogram of core {core}: a second writer");
        Recorder { set: Arc::clone(self), core, one_thread: PhantomData }
    }

    /// Returns the values of all cores together.
    #[must_use]
    pub fn read(&self) -> Distribution {
        let mut all = Distribution::default();
        for histogram in &self.cores {
            all.merge(&histogram.read());
        }
        all
    }
}

impl Source for Histograms {
    fn collect(&self, families: &mut Vec<Family>) {
        families.push(Family {
            name: self.spec.name,
            help: self.spec.help,
            unit: self.spec.unit,
            points: vec![Point { labels: Vec::new(), value: Value::Histogram(self.read()) }],
        });
    }
}

/// Handle for recording values of one core.
#[derive(Debug)]
pub struct Recorder {
    set: Arc<Histograms>,
    core: usize,
    /// Not `Sync`, because two threads that record at once would lose counts.
    one_thread: PhantomData<Cell<()>>,
}

impl Recorder {
    /// Counts `value` like [`Histogram::record`].
    #[inline]
    pub fn record(&self, value: u64) {
        self.set.cores[self.core].record(value);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.set.taken[self.core].store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_tile_the_range() {
        assert_eq!(BUCKETS, 3968);
        let mut next = 0;
        for bucket in 0..BUCKETS {
            let (low, high) = bounds_of(bucket);
            assert_eq!(low, next, "bucket {bucket}");
            assert_eq!((bucket_of(low), bucket_of(high)), (bucket, bucket));
            assert!(high - low <= low / 128, "bucket {bucket} is too wide");
            next = high + 1;
        }
        assert_eq!(next, VALUE_MAX + 1);
    }
}
