//! Latency of requests, from the time when each was due and from the time when it was sent (claims C17–C19).
//!
//! A generator that waits for an answer before it sends the next request does not send those that were due in
//! between, and so omits the very requests that would have waited: *coordinated omission*. [`Latencies`]
//! keeps both times of each request side by side, so that a reader sees what the omission hides:
//!
//! ```text
//!   due ────────── sent ───────────── answered
//!    │              └── uncorrected ────┤
//!    └──────────────── corrected ────────┘
//! ```
//! *Memory:* two histograms with fixed bounds (1 ns to [`HIGHEST_NS`], three digits), made before the run:
//! recording neither allocates nor locks. Values beyond the bound are recorded as the bound, and counted.
//!
//! Source: *The Effect of Coordinated Omission*, 2 July 2015; the histograms are G. Tene's HdrHistogram.

use std::{fmt, io::Write, time::Duration};

use hdrhistogram::{
    Histogram,
    serialization::{V2DeflateSerializer, interval_log::IntervalLogWriterBuilder},
};
use serde::Serialize;

/// Highest latency that the histograms can record: one hour.
pub const HIGHEST_NS: u64 = 3_600_000_000_000;
/// Decimal digits that a recorded value keeps.
const DIGITS: u8 = 3;
/// Quantiles that the published tables show, as fractions; the maximum is shown in addition.
pub const QUANTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999];

/// The latencies of a run.
#[derive(Debug, Clone)]
pub struct Latencies {
    corrected: Histogram<u64>,
    uncorrected: Histogram<u64>,
    clipped: u64,
}

/// Start of a latency measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LatencyOrigin {
    /// Time when the request was due.
    Due,
    /// Time when the request was sent.
    Sent,
}

/// The usual percentiles, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// 50th percentile.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p99_9: u64,
    /// 99.99th percentile.
    pub p99_99: u64,
    /// 99.999th percentile.
    pub p99_999: u64,
    /// Maximum.
    pub worst: u64,
}

impl Percentiles {
    /// Returns the values in the order of the published tables.
    #[must_use]
    pub const fn row(&self) -> [u64; 7] {
        [self.p50, self.p90, self.p99, self.p99_9, self.p99_99, self.p99_999, self.worst]
    }
}

/// Error while writing a histogram for other tools.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the histogram: {0}")]
pub struct HistogramWriteFault(String);

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

fn histogram() -> Histogram<u64> {
    #[expect(clippy::expect_used, reason = "the bounds are constants that the library accepts")]
    Histogram::new_with_bounds(1, HIGHEST_NS, DIGITS).expect("one nanosecond to an hour, three digits")
}

impl Latencies {
    /// Creates an empty record.
    #[must_use]
    pub fn new() -> Self {
        Self { corrected: histogram(), uncorrected: histogram(), clipped: 0 }
    }

    /// Records a request. All three times are nanoseconds on the same clock; a time before its predecessor
    /// counts as equal to it.
    pub fn record(&mut self, due_ns: u64, sent_ns: u64, answered_ns: u64) {
        let corrected = answered_ns.saturating_sub(due_ns);
        self.clipped += u64::from(corrected > HIGHEST_NS);
        self.corrected.saturating_record(corrected);
        self.uncorrected.saturating_record(answered_ns.saturating_sub(sent_ns));
    }

    /// Records a request that was due and never sent, with its wait until `now_ns`. An unsent request has no
    /// latency from sending, so none is recorded.
    pub fn record_unsent(&mut self, due_ns: u64, now_ns: u64) {
        let waited = now_ns.saturating_sub(due_ns);
        self.clipped += u64::from(waited > HIGHEST_NS);
        self.corrected.saturating_record(waited);
    }

    /// Adds the latencies of another thread or round.
    pub fn add(&mut self, other: &Self) {
        #[expect(clippy::expect_used, reason = "both were made by `histogram`")]
        for (ours, theirs) in
            [(&mut self.corrected, &other.corrected), (&mut self.uncorrected, &other.uncorrected)]
        {
            ours.add(theirs).expect("the same bounds");
        }
        self.clipped += other.clipped;
    }

    /// Removes all latencies, as at the end of a warm-up.
    pub fn clear(&mut self) {
        self.corrected.reset();
        self.uncorrected.reset();
        self.clipped = 0;
    }

    /// Returns the number of recorded requests, including those never sent.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.corrected.len()
    }

    /// Returns the number of recorded requests that were sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.uncorrected.len()
    }

    /// Returns how many requests took longer than [`HIGHEST_NS`] and were recorded as that.
    #[must_use]
    pub const fn clipped(&self) -> u64 {
        self.clipped
    }

    /// Returns the value of a quantile (0 to 1) in nanoseconds: the highest value of its bucket.
    #[must_use]
    pub fn quantile(&self, from: LatencyOrigin, quantile: f64) -> u64 {
        self.of(from).value_at_quantile(quantile)
    }

    /// Returns the mean, in nanoseconds.
    #[must_use]
    pub fn mean(&self, from: LatencyOrigin) -> f64 {
        self.of(from).mean()
    }

    /// Returns the usual percentiles; all zero if nothing was recorded.
    #[must_use]
    pub fn percentiles(&self, from: LatencyOrigin) -> Percentiles {
        let [p50, p90, p99, p99_9, p99_99, p99_999] = QUANTILES.map(|quantile| self.quantile(from, quantile));
        let worst = if self.of(from).is_empty() { 0 } else { self.of(from).max() };
        Percentiles { p50, p90, p99, p99_9, p99_99, p99_999, worst }
    }

    /// Returns the points of a percentile plot, denser towards the tail: the inverse of the fraction of
    /// slower requests (1,000 for the 99.9th percentile), and the latency in nanoseconds.
    #[must_use]
    pub fn curve(&self, from: LatencyOrigin) -> Vec<(f64, u64)> {
        let count = self.of(from).len();
        if count == 0 {
            return Vec::new();
        }
        let mut points = Vec::new();
        let mut one_in = 1.0_f64;
        while one_in <= count as f64 {
            points.push((one_in, self.quantile(from, 1.0 - 1.0 / one_in)));
            one_in *= 1.25;
        }
        points.push((count as f64, self.of(from).max()));
        points
    }

    /// Returns the distribution as text that HdrHistogram's plotter reads (`.hgrm`), in microseconds.
    #[must_use]
    pub fn hgrm(&self, from: LatencyOrigin) -> String {
        let histogram = self.of(from);
        let mut text = String::from("       Value     Percentile TotalCount 1/(1-Percentile)\n\n");
        let us = |ns: f64| ns / 1_000.0;
        for step in histogram.iter_quantiles(5) {
            let quantile = step.quantile_iterated_to();
            let line = if quantile < 1.0 {
                format!(
                    "{:12.3} {quantile:14.12} {:10} {:14.2}\n",
                    us(step.value_iterated_to() as f64),
                    histogram.count_between(0, step.value_iterated_to()),
                    1.0 / (1.0 - quantile)
                )
            } else {
                format!(
                    "{:12.3} {quantile:14.12} {:10}\n",
                    us(step.value_iterated_to() as f64),
                    histogram.len()
                )
            };
            text.push_str(&line);
        }
        let (mean, deviation) = (us(histogram.mean()), us(histogram.stdev()));
        text.push_str(&format!("#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]\n"));
        text.push_str(&format!(
            "#[Max     = {:12.3}, Total count    = {:12}]\n",
            us(histogram.max() as f64),
            histogram.len()
        ));
        text.push_str(&format!("#[Buckets = {:12}, SubBuckets     = {:12}]\n", histogram.buckets(), 1 << 11));
        text
    }

    /// Writes both histograms as a log that HdrHistogram's tools read (`.hlog`), tagged `corrected` and
    /// `uncorrected`, in nanoseconds.
    ///
    /// # Errors
    /// Returns [`HistogramWriteFault`] if the library or the writer fails.
    pub fn write_hlog(&self, into: &mut impl Write, duration: Duration) -> Result<(), HistogramWriteFault> {
        let mut serializer = V2DeflateSerializer::new();
        let mut log = IntervalLogWriterBuilder::new()
            .begin_log_with(into, &mut serializer)
            .map_err(|error| HistogramWriteFault(error.to_string()))?;
        for (name, histogram) in [("corrected", &self.corrected), ("uncorrected", &self.uncorrected)] {
            #[expect(clippy::expect_used, reason = "both names are letters only")]
            let tag = hdrhistogram::serialization::interval_log::Tag::new(name)
                .expect("a tag without comma or space");
            log.write_histogram(histogram, Duration::ZERO, duration, Some(tag))
                .map_err(|error| HistogramWriteFault(format!("{error:?}")))?;
        }
        Ok(())
    }

    fn of(&self, from: LatencyOrigin) -> &Histogram<u64> {
        match from {
            LatencyOrigin::Due => &self.corrected,
            LatencyOrigin::Sent => &self.uncorrected,
        }
    }
}

/// Formats nanoseconds with three digits and a unit.
#[must_use]
pub fn readable(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let places = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.places$} {unit}")
}

impl fmt::Display for Percentiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row: Vec<String> = self.row().iter().map(|ns| readable(*ns)).collect();
        f.write_str(&row.join(" / "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paired::spread::Draws;

    /// Returns the exact quantile of sorted samples, to compare with the histogram's.
    fn exact(sorted: &[u64], quantile: f64) -> u64 {
        let rank = (quantile * sorted.len() as f64).ceil().max(1.0) as usize;
        sorted[rank.min(sorted.len()) - 1]
    }

    #[test]
    fn percentiles_match_the_raw_samples() {
        let mut draws = Draws::new(3);
        let mut latencies = Latencies::new();
        let (mut corrected, mut uncorrected) = (Vec::new(), Vec::new());
        for at in 0..200_000_u64 {
            let due = at * 10_000;
            // The samples are heavy-tailed, as latencies are.
            let wait = (1_000.0 / (draws.unit() + 1e-6)) as u64;
            let service = 2_000 + draws.below(9_000) as u64;
            latencies.record(due, due + wait, due + wait + service);
            corrected.push(wait + service);
            uncorrected.push(service);
        }
        corrected.sort_unstable();
        uncorrected.sort_unstable();
        for (from, sorted) in [(LatencyOrigin::Due, &corrected), (LatencyOrigin::Sent, &uncorrected)] {
            for quantile in QUANTILES {
                let (ours, truth) =
                    (latencies.quantile(from, quantile) as f64, exact(sorted, quantile) as f64);
                assert!((ours / truth - 1.0).abs() < 0.001, "{from:?} {quantile}: {ours} against {truth}");
            }
        }
    }

    #[test]
    fn a_stall_shows_only_in_corrected_latencies() {
        // 1,000 requests per second for a second; at 0.5 s the server stops for 100 ms, and it handles one
        // request at a time.
        let ms = 1_000_000;
        let mut latencies = Latencies::new();
        let mut free = 0;
        for at in 0..1_000_u64 {
            let due = at * ms;
            let sent = due.max(free);
            let service = if at == 500 { 100 * ms } else { ms / 10 };
            free = sent + service;
            latencies.record(due, sent, free);
        }
        assert!(latencies.quantile(LatencyOrigin::Due, 0.95) > 20 * ms);
        assert!(latencies.quantile(LatencyOrigin::Sent, 0.99) <= ms / 9);
        assert_eq!(latencies.percentiles(LatencyOrigin::Sent).worst / ms, 100);
    }

    /// Three methods find the same planted stall. wrk2 compares the n-th answer of a connection with `start +
    /// n / rate`, whenever the request was sent. HdrHistogram fills in the requests that a value longer than
    /// the interval has suppressed.
    #[test]
    fn wrk2_and_hdrhistogram_find_the_planted_stall() {
        let (ms, interval) = (1_000_000_u64, 1_000_000_u64);
        let mut ours = Latencies::new();
        let (mut wrk2, mut filled_in) = (histogram(), histogram());
        // Our generator has an open schedule.
        let mut free = 0;
        for at in 0..10_000_u64 {
            let due = at * interval;
            let sent = due.max(free);
            free = sent + if at == 5_000 { 100 * ms } else { ms / 10 };
            ours.record(due, sent, free);
        }
        // wrk2 has a closed loop that sends at once while it is behind.
        let (mut now, mut complete) = (0_u64, 0_u64);
        while complete < 10_000 {
            let expected = complete * interval;
            now = now.max(expected) + if complete == 5_000 { 100 * ms } else { ms / 10 };
            wrk2.record(now - expected).unwrap();
            complete += 1;
        }
        // A closed loop that then continues at its rate omits the requests that were due during the stall: 99
        // of them.
        for at in 0..(10_000 - 99) {
            let value = if at == 5_000 { 100 * ms } else { ms / 10 };
            filled_in.record_correct(value, interval).unwrap();
        }
        for quantile in [0.5, 0.9, 0.99, 0.995, 0.999, 1.0] {
            let value = ours.quantile(LatencyOrigin::Due, quantile);
            assert_eq!(value, wrk2.value_at_quantile(quantile), "wrk2 at {quantile}");
            // HdrHistogram's correction assumes that the queue is gone when the stall ends; working it off
            // takes a ninth longer. At 99% this is the difference between the last request that waited and
            // the first that did not.
            let filled = filled_in.value_at_quantile(quantile);
            let near = (value as f64 - filled as f64).abs() <= 0.15 * value as f64;
            assert!(near || quantile == 0.99, "filled in at {quantile}: {filled} against {value}");
        }
        assert!(
            ours.quantile(LatencyOrigin::Due, 0.995) > 50 * ms
                && ours.quantile(LatencyOrigin::Sent, 0.999) < ms
        );
    }

    #[test]
    fn unsent_requests_have_no_latency_from_sending() {
        let mut latencies = Latencies::new();
        latencies.record(0, 1_000, 3_000);
        for due in 0..99 {
            latencies.record_unsent(due, 1_000_000);
        }
        assert_eq!((latencies.count(), latencies.sent()), (100, 1));
        // Regression: the median was 0 ns when unsent requests counted as sent at the end.
        assert_eq!(latencies.quantile(LatencyOrigin::Sent, 0.5), 2_000);
        assert!(latencies.quantile(LatencyOrigin::Due, 0.5) > 990_000);
        let never = {
            let mut never = Latencies::new();
            never.record_unsent(0, 5);
            never
        };
        assert_eq!(never.percentiles(LatencyOrigin::Sent), Percentiles::default());
        assert!(never.curve(LatencyOrigin::Sent).is_empty());
    }

    #[test]
    fn latencies_add_up_and_start_at_zero() {
        let mut all = Latencies::new();
        assert_eq!(all.percentiles(LatencyOrigin::Due), Percentiles::default());
        assert!(all.curve(LatencyOrigin::Due).is_empty());
        let mut one = Latencies::new();
        one.record(0, 0, 5_000);
        // A request that was sent before it was due and took longer than an hour.
        one.record(10, 5, 10 + HIGHEST_NS + 7);
        all.add(&one);
        all.add(&one);
        assert_eq!((all.count(), all.clipped()), (4, 2));
        all.clear();
        assert_eq!((all.count(), all.clipped()), (0, 0));
    }

    #[test]
    fn the_files_are_those_that_other_tools_read() {
        let mut latencies = Latencies::new();
        for at in 1..=1_000 {
            latencies.record(0, 500 * at, 1_000 * at);
        }
        let hgrm = latencies.hgrm(LatencyOrigin::Due);
        assert!(hgrm.contains("1000.447 1.000000000000       1000\n"), "{hgrm}");
        assert!(hgrm.contains("0.500000000000"), "{hgrm}");
        assert!(hgrm.contains("Total count    =         1000]"), "{hgrm}");

        let mut file = Vec::new();
        latencies.write_hlog(&mut file, Duration::from_secs(1)).unwrap();
        let text = String::from_utf8(file.clone()).unwrap();
        let back: Vec<_> = hdrhistogram::serialization::interval_log::IntervalLogIterator::new(&file)
            .filter_map(Result::ok)
            .collect();
        assert_eq!(back.len(), 2, "{text}");
        assert!(text.contains("Tag=corrected,") && text.contains("Tag=uncorrected,"), "{text}");
    }

    #[test]
    fn times_are_read_in_three_digits() {
        let texts = [0, 999, 1_000, 9_994, 99_900, 123_456, 6_000_000_000].map(readable);
        assert_eq!(texts, ["0 ns", "999 ns", "1.00 µs", "9.99 µs", "99.9 µs", "123 µs", "6.00 s"]);
    }
}
