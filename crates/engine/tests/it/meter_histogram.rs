//! The histogram compared with sorted samples, and counters compared with sums.

use std::sync::Arc;

use engine::meter::{CounterSet, Distribution, Histogram, HistogramSpec, Histograms, Source, Unit, Value};
use proptest::prelude::*;

const LARGEST: u64 = (1 << 37) - 1;

/// Returns the value at a quantile by definition: the smallest with at least this share of all samples at or
/// below it.
fn exact(sorted: &[u64], quantile: f64) -> u64 {
    let rank = (quantile * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted[rank.min(sorted.len()) - 1]
}

fn within_a_hundredth(got: u64, exact: u64) -> bool {
    got >= exact && got as f64 <= exact as f64 * 1.01
}

const QUANTILES: [f64; 8] = [0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 0.99999, 1.0];

/// Quantile 0 is not below the smallest sample (found by a property test).
#[test]
fn quantile_0_is_not_below_the_smallest_sample() {
    let histogram = Histogram::new();
    histogram.record(2255);
    assert_eq!(histogram.read().quantiles([0.0]), [2255]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: unify::cases(256, 4_096), ..ProptestConfig::default() })]

    #[test]
    fn quantiles_are_those_of_the_sorted_samples(
        mut samples in prop::collection::vec(
            // Evenly distributed over the magnitudes, as latencies are, with some of every size.
            (0_u32..37).prop_flat_map(|power| 0..=(2_u64 << power) - 1), 1..500),
    ) {
        let histogram = Histogram::new();
        samples.iter().for_each(|&sample| histogram.record(sample));
        let read = histogram.read();
        samples.sort_unstable();
        prop_assert_eq!(read.count(), samples.len() as u64);
        prop_assert_eq!(read.sum(), samples.iter().sum::<u64>());
        prop_assert_eq!(read.max(), *samples.last().unwrap());
        prop_assert_eq!(read.beyond(), 0);
        let got = read.quantiles(QUANTILES);
        for (got, quantile) in got.into_iter().zip(QUANTILES) {
            let exact = exact(&samples, quantile);
            prop_assert!(within_a_hundredth(got, exact), "quantile {quantile}: {got} for {exact}");
        }
        prop_assert_eq!(got[QUANTILES.len() - 1], *samples.last().unwrap());
    }

    #[test]
    fn merging_is_recording_both(
        left in prop::collection::vec(0..1_u64 << 40, 0..100),
        right in prop::collection::vec(0..1_u64 << 40, 0..100),
    ) {
        let of = |samples: &[u64]| {
            let histogram = Histogram::new();
            samples.iter().for_each(|&sample| histogram.record(sample));
            histogram.read()
        };
        let mut merged = of(&left);
        merged.merge(&of(&right));
        prop_assert_eq!(&merged, &of(&[left.clone(), right.clone()].concat()));
        let beyond = left.iter().chain(&right).filter(|&&sample| sample > LARGEST).count();
        prop_assert_eq!(merged.beyond(), beyond as u64);
    }

    #[test]
    fn counts_up_to_are_those_of_the_samples(
        samples in prop::collection::vec(0..1_u64 << 38, 0..200),
        mut bounds in prop::collection::btree_set(0..1_u64 << 38, 1..20),
    ) {
        let histogram = Histogram::new();
        samples.iter().for_each(|&sample| histogram.record(sample));
        bounds.insert(1000);
        let bounds: Vec<u64> = bounds.into_iter().collect();
        let counts = histogram.read().counts_up_to(&bounds);
        let mut cumulative = 0;
        for (&bound, count) in bounds.iter().zip(counts) {
            cumulative += count;
            let capped = |sample: u64| sample.min(LARGEST);
            let least = samples.iter().filter(|&&sample| capped(sample) <= bound).count() as u64;
            let most = samples.iter().filter(|&&sample| capped(sample) <= bound + bound / 128).count() as u64;
            prop_assert!((least..=most).contains(&cumulative), "up to {bound}: {cumulative}, not {least}–{most}");
        }
    }
}

#[test]
fn an_empty_histogram_says_zero() {
    let read = Histogram::new().read();
    assert_eq!(read, Distribution::default());
    assert_eq!((read.count(), read.sum(), read.max()), (0, 0, 0));
    assert_eq!(read.quantiles([0.0, 0.5, 1.0]), [0, 0, 0]);
}

#[test]
fn what_is_too_large_is_counted_and_said() {
    let histogram = Histogram::new();
    for value in [LARGEST, LARGEST + 1, u64::MAX / 4, 5, LARGEST + 2] {
        histogram.record(value);
    }
    let read = histogram.read();
    assert_eq!((read.count(), read.beyond(), read.max()), (5, 3, u64::MAX / 4));
    assert_eq!(read.quantiles([0.5, 1.0]), [LARGEST, u64::MAX / 4]);
}

#[test]
fn cores_record_for_themselves_and_are_read_together() {
    const EACH: u64 = 50_000;
    let spec = HistogramSpec { name: "test_seconds", help: "A test.", unit: Unit::Seconds };
    let histograms = Histograms::new(spec, 2);
    let writers: Vec<_> = (0..2)
        .map(|core| {
            let recorder = histograms.core(core);
            std::thread::spawn(move || (0..EACH).for_each(|value| recorder.record(value)))
        })
        .collect();
    // A concurrent reader sees some of the values and stops no writer.
    assert!(histograms.read().count() <= 2 * EACH);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let read = histograms.read();
    assert_eq!((read.count(), read.sum(), read.max()), (2 * EACH, EACH * (EACH - 1), EACH - 1));
    let mut families = Vec::new();
    histograms.collect(&mut families);
    assert_eq!(families[0].points[0].value, Value::Histogram(read));
}

engine::counters! {
    /// More counters than one cache line holds.
    enum Many {
        A => Counter, "a", None, "A.";
        B => Counter, "b", None, "B.";
        C => Counter, "c", None, "C.";
        D => Counter, "d", None, "D.";
        E => Counter, "e", None, "E.";
        F => Counter, "f", None, "F.";
        G => Counter, "g", None, "G.";
        H => Counter, "h", None, "H.";
        I => Counter, "i", None, "I.";
        J => Counter, "j", None, "J.";
        K => Counter, "k", None, "K.";
        L => Counter, "l", None, "L.";
        M => Counter, "m", None, "M.";
        N => Counter, "n", None, "N.";
        O => Counter, "o", None, "O.";
        P => Counter, "p", None, "P.";
        Q => Counter, "q", None, "Q.";
        R => Gauge, "r", None, "R.";
    }
}

#[test]
fn counters_are_summed_over_cores_separately() {
    let set = CounterSet::<Many>::new(3);
    let writers: Vec<_> = (0..3)
        .map(|core| {
            let counters = set.core(core);
            std::thread::spawn(move || {
                for _ in 0..10_000 {
                    counters.add(Many::A, 1);
                    counters.add(Many::P, 2);
                    counters.add(Many::Q, core as u64);
                    counters.add(Many::R, 5);
                    counters.sub(Many::R, 4);
                }
                counters
            })
        })
        .collect();
    let handles: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    assert_eq!(set.total(Many::A), 30_000);
    assert_eq!(set.total(Many::P), 60_000);
    assert_eq!([0, 1, 2].map(|core| set.of(core, Many::Q)), [0, 10_000, 20_000]);
    assert_eq!(set.total(Many::B), 0);
    assert_eq!(set.total(Many::R), 30_000);
    // A gauge may be raised on one core and lowered on another.
    handles[2].set(Many::R, 7);
    handles[0].sub(Many::R, 10_001);
    handles[1].set(Many::R, 0);
    let mut families = Vec::new();
    set.collect(&mut families);
    assert_eq!(families.len(), 18);
    assert_eq!(families[17].points[0].value, Value::Gauge(6.0));
    assert_eq!(families[0].points[0].value, Value::Counter(30_000));
}

#[test]
fn a_row_has_one_writer_at_a_time() {
    let set = CounterSet::<Many>::new(1);
    let first = set.core(0);
    let again = Arc::clone(&set);
    assert!(std::panic::catch_unwind(move || drop(again.core(0))).is_err(), "the handle is out");
    drop(first);
    drop(set.core(0));
}

#[test]
#[should_panic(expected = "does not end in its unit")]
fn a_name_must_end_in_its_unit() {
    drop(Histograms::new(HistogramSpec { name: "test", help: "A test.", unit: Unit::Bytes }, 1));
}
