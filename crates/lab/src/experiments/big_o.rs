//! `big-o`: the length from which the better order of growth pays off (claim C14).
//!
//! Each round sorts fresh shuffles of the same length with every algorithm, alternately. The figure is
//! nanoseconds per operation, as the article defines it: sort the array and, after a library's sort, find one
//! key in it by binary search. Shuffling is not counted: the shuffles are made before the clock starts.

use std::{hint::black_box, time::Instant};

use serde::Serialize;

use super::memory_ladder::races::insertion_sort;
use crate::{
    experiment::{Experiment, Options, Refusal, Report, Table, Verdict},
    paired::spread::{Draws, Ratio, Spread},
    report::{
        grouped,
        plot::{Axis, Plot, Reference, Series, Stroke},
    },
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "big-o",
    claims: &["C14"],
    title: "where bubble sort stops beating the library",
    statement: "n = 50: bubble sort 114,932 operations/s, sorted search 90,012; n = 5,000: 171 and 915; the two \
                cross near 60 items; libraries switch algorithms at 286, 47, 29",
    source: "The difference between Efficiency and Performance, 28 July 2015",
    run,
};

/// Algorithms, in the order of the report's columns.
const WAYS: [Algorithm; 4] = [
    Algorithm { name: "bubble sort", sort: bubble_sort, searches: false, quadratic: true },
    Algorithm {
        name: "library, stable, and search",
        sort: |keys| keys.sort(),
        searches: true,
        quadratic: false,
    },
    Algorithm {
        name: "library, unstable, and search",
        sort: <[u64]>::sort_unstable,
        searches: true,
        quadratic: false,
    },
    Algorithm { name: "insertion sort", sort: insertion_sort, searches: false, quadratic: true },
];
const BUBBLE: usize = 0;
const STABLE: usize = 1;
const UNSTABLE: usize = 2;
const INSERTION: usize = 3;

struct Algorithm {
    name: &'static str,
    sort: fn(&mut [u64]),
    searches: bool,
    quadratic: bool,
}

/// Figures of one length, over all rounds.
#[derive(Debug, Clone, Serialize)]
struct Length {
    items: usize,
    /// Nanoseconds per operation, by algorithm and round.
    ns: [Vec<f64>; WAYS.len()],
}

impl Length {
    fn median(&self, way: usize) -> f64 {
        Spread::of(&self.ns[way]).map_or(f64::NAN, |spread| spread.median)
    }
}

/// Sizes of the measurement.
#[derive(Debug, Clone)]
struct Sizes {
    lengths: Vec<usize>,
    rounds: usize,
    /// Approximate duration of an algorithm's round in nanoseconds; a round has at least one operation.
    round_ns: f64,
}

impl Sizes {
    fn of(quick: bool) -> Self {
        let mut lengths: Vec<usize> = vec![2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 18, 20, 21, 22, 24, 28, 32];
        lengths.extend([40, 50, 60, 80, 100, 150, 200, 286, 400, 700, 1_000, 2_000, 5_000, 10_000]);
        if quick {
            lengths.retain(|items| *items <= 5_000);
            Self { lengths, rounds: 7, round_ns: 300_000.0 }
        } else {
            Self { lengths, rounds: 31, round_ns: 1_000_000.0 }
        }
    }
}

fn run(options: &Options) -> Result<Report, Refusal> {
    Ok(report(&measured(&Sizes::of(options.quick), &|what| options.say(what))))
}

/// The textbook's bubble sort: neighbours are swapped until a pass swaps nothing.
fn bubble_sort(keys: &mut [u64]) {
    let mut end = keys.len();
    while end > 1 {
        let mut last = 0;
        for at in 1..end {
            if keys[at - 1] > keys[at] {
                keys.swap(at - 1, at);
                last = at;
            }
        }
        end = last;
    }
}

fn measured(sizes: &Sizes, say: &dyn Fn(&str)) -> Vec<Length> {
    let mut draws = Draws::new(2015);
    let mut lengths: Vec<Length> =
        sizes.lengths.iter().map(|items| Length { items: *items, ns: Default::default() }).collect();
    for round in 0..sizes.rounds {
        say(&format!("round {} of {}", round + 1, sizes.rounds));
        for length in &mut lengths {
            for (way, ns) in WAYS.iter().zip(&mut length.ns) {
                ns.push(timed(way, length.items, sizes.round_ns, &mut draws));
            }
        }
    }
    lengths
}

/// Returns an algorithm's nanoseconds per operation on arrays of `items`.
fn timed(way: &Algorithm, items: usize, round_ns: f64, draws: &mut Draws) -> f64 {
    let n = items as f64;
    // A rough guess is enough: it only decides how many arrays fill the round.
    let guess = if way.quadratic { n * n } else { 4.0 * n * n.log2().max(1.0) } + 10.0;
    let arrays = ((round_ns / guess) as usize).clamp(1, 4_096);
    let mut keys: Vec<Vec<u64>> = (0..arrays).map(|_| shuffled(items, draws)).collect();
    let wanted = draws.below(items) as u64;
    let start = Instant::now();
    for array in &mut keys {
        (way.sort)(black_box(array));
        if way.searches {
            let _ = black_box(array.binary_search(black_box(&wanted)));
        }
    }
    let ns = start.elapsed().as_nanos() as f64 / arrays as f64;
    assert!(keys.iter().all(|array| array.is_sorted()), "{} sorts", way.name);
    ns
}

fn shuffled(items: usize, draws: &mut Draws) -> Vec<u64> {
    let mut keys: Vec<u64> = (0..items as u64).collect();
    for at in (1..items).rev() {
        keys.swap(at, draws.below(at + 1));
    }
    keys
}

/// Length at which an algorithm stops being faster than another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum CrossoverLength {
    /// The crossover is between the lengths `low` and `high`, at approximately `about`.
    Between { low: usize, high: usize, about: f64 },
    /// The algorithm is slower at every length.
    Never,
    /// The algorithm is faster at every length.
    Always,
}

/// Finds the length from which `way` is certainly slower than `against`: the interval of the ratio is above
/// one at `high`, and not at `low`.
fn crossing(lengths: &[Length], way: usize, against: usize) -> CrossoverLength {
    let ratio = |length: &Length| {
        let series = |way: usize| length.ns[way].iter().copied().map(Some).collect::<Vec<_>>();
        Ratio::paired(&series(way), &series(against))
    };
    let slower = |length: &Length| ratio(length).is_some_and(|ratio| ratio.low > 1.0);
    let Some(last) = lengths.iter().rposition(|length| !slower(length)) else {
        return CrossoverLength::Never;
    };
    let Some(high) = lengths.get(last + 1) else { return CrossoverLength::Always };
    let low = &lengths[last];
    let log = |length: &Length| ratio(length).map_or(0.0, |ratio| ratio.median.ln());
    let (under, over) = (log(low).min(0.0), log(high).max(f64::MIN_POSITIVE));
    let share = -under / (over - under);
    let about = (low.items as f64).ln() + share * (high.items as f64 / low.items as f64).ln();
    CrossoverLength::Between { low: low.items, high: high.items, about: about.exp() }
}

fn said(crossing: CrossoverLength) -> String {
    match crossing {
        CrossoverLength::Between { low, high, about } => {
            format!("near {about:.0} items (between {low} and {high})")
        }
        CrossoverLength::Never => "nowhere: it is slower from the smallest on".to_owned(),
        CrossoverLength::Always => "nowhere: it is faster up to the largest".to_owned(),
    }
}

/// Minimum ratio of the nanoseconds per item at one length to those at the previous length; a larger ratio
/// means that the library has switched to another algorithm.
const SWITCH: f64 = 1.25;

/// Returns the pairs of lengths between which the cost per item jumps, if the lengths are close enough to
/// tell.
fn switches(lengths: &[Length], way: usize) -> Vec<(usize, usize)> {
    let an_item = |length: &Length| length.median(way) / length.items as f64;
    lengths
        .windows(2)
        .filter(|pair| pair[0].items >= 16 && pair[1].items <= pair[0].items + 2)
        .filter(|pair| an_item(&pair[1]) / an_item(&pair[0]) > SWITCH)
        .map(|pair| (pair[0].items, pair[1].items))
        .collect()
}

fn report(lengths: &[Length]) -> Report {
    let crossings = [STABLE, UNSTABLE].map(|library| crossing(lengths, BUBBLE, library));
    let insertion = crossing(lengths, INSERTION, UNSTABLE);
    let switches = [STABLE, UNSTABLE].map(|way| switches(lengths, way));
    let mut report = Report {
        data: serde_json::json!({
            "lengths": lengths,
            "bubble_against_stable": crossings[0],
            "bubble_against_unstable": crossings[1],
            "insertion_against_unstable": insertion,
            "switches": { "stable": switches[0], "unstable": switches[1] },
        }),
        ..Report::default()
    };
    let mut columns = vec![("items", "")];
    columns.extend(WAYS.iter().map(|way| (way.name, "ns")));
    columns.push(("bubble : library", ""));
    let mut table = Table::new("Nanoseconds an operation, medians", &columns);
    for length in lengths {
        let mut row = vec![grouped(length.items as u64)];
        row.extend((0..WAYS.len()).map(|way| grouped(length.median(way).round() as u64)));
        row.push(format!("{:.2}", length.median(BUBBLE) / length.median(STABLE)));
        table.row(row);
    }
    report.tables.push(table);
    figure(lengths, crossings[0], &mut report);
    judge(lengths, crossings[0], &mut report);
    report.note(format!(
        "Against the library's unstable sort bubble sort loses {}; insertion sort {}.",
        said(crossings[1]),
        said(insertion)
    ));
    for (name, found) in [("stable", &switches[0]), ("unstable", &switches[1])] {
        report.note(match found.as_slice() {
            [] => format!("The {name} sort shows no jump between close lengths above {SWITCH}× an item."),
            found => {
                let places: Vec<String> = found.iter().map(|(a, b)| format!("{a} and {b}")).collect();
                format!(
                    "The {name} sort's cost an item jumps between {} items: there it switches algorithms (its source \
                     names 20).",
                    places.join(", and between ")
                )
            }
        });
    }
    report
}

fn figure(lengths: &[Length], crossing: CrossoverLength, report: &mut Report) {
    let series = |way: usize, stroke| {
        let points = lengths.iter().map(|l| (l.items as f64, l.median(way) / l.items as f64)).collect();
        Series::new(WAYS[way].name, stroke, points)
    };
    let last = lengths.last().map_or(10.0, |length| length.items as f64);
    let highest = lengths.iter().map(|l| l.median(BUBBLE) / l.items as f64).fold(10.0, f64::max);
    let mut references = vec![Reference::Place { at: 60.0, label: "article: they cross".into() }];
    if let CrossoverLength::Between { about, .. } = crossing {
        references.push(Reference::Place { at: about, label: "here".into() });
    }
    let plot = Plot {
        x: Axis::log("items", 2.0, last),
        left: Axis::log("time an item [ns]", 1.0, highest * 1.5),
        right: None,
        series: vec![
            series(BUBBLE, Stroke::One),
            series(STABLE, Stroke::Two),
            series(UNSTABLE, Stroke::Four),
            series(INSERTION, Stroke::Three),
        ],
        references,
    };
    let title = match crossing {
        CrossoverLength::Between { about, .. } => format!("Bubble sort loses from about {about:.0} items on"),
        CrossoverLength::Never => "Bubble sort loses at every length".to_owned(),
        CrossoverLength::Always => "Bubble sort wins at every length".to_owned(),
    };
    let caption = "Time an item, so that a flat line is linear growth. Both scales are logarithmic.";
    report.figure(title.clone(), plot.draw(&title), caption);
}

fn judge(lengths: &[Length], crossing: CrossoverLength, report: &mut Report) {
    let per_second = |items: usize, way: usize| {
        lengths
            .iter()
            .find(|length| length.items == items)
            .map_or_else(|| "–".to_owned(), |length| grouped((1e9 / length.median(way)).round() as u64))
    };
    let ours = format!(
        "n = 50: {} and {}; n = 5,000: {} and {} operations/s; bubble sort loses {}",
        per_second(50, BUBBLE),
        per_second(50, STABLE),
        per_second(5_000, BUBBLE),
        per_second(5_000, STABLE),
        said(crossing)
    );
    let verdict = match crossing {
        CrossoverLength::Between { about, .. } if (30.0..120.0).contains(&about) => Verdict::Holds,
        // The curves cross at another length: the point that small sets reverse the order still holds.
        CrossoverLength::Between { .. } => Verdict::HoldsWithAnotherFigure,
        CrossoverLength::Never | CrossoverLength::Always => Verdict::DoesNotHoldHere,
    };
    report.judge(
        "C14",
        "n = 50: 114,932 and 90,012; n = 5,000: 171 and 915; crossing near 60",
        ours,
        verdict,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns lengths with costs from formulas and a little noise that is the same each time.
    fn planted(bubble: impl Fn(f64) -> f64, library: impl Fn(f64) -> f64) -> Vec<Length> {
        let mut draws = Draws::new(1);
        [2, 4, 8, 16, 18, 20, 21, 32, 64, 128, 256, 5_000]
            .into_iter()
            .map(|items| {
                let n = items as f64;
                let mut series = |cost: f64| (0..7).map(|_| cost * (1.0 + 0.02 * draws.unit())).collect();
                let ns = [series(bubble(n)), series(library(n)), series(library(n)), series(bubble(n))];
                Length { items, ns }
            })
            .collect()
    }

    #[test]
    fn a_planted_crossover_determines_the_verdict() {
        let found = |at: f64| {
            let lengths = planted(|n| n * n, |n| at * n);
            (crossing(&lengths, BUBBLE, STABLE), report(&lengths).verdicts[0].verdict)
        };
        let (CrossoverLength::Between { low, high, about }, Verdict::Holds) = found(60.0) else { panic!() };
        assert_eq!((low, high), (32, 64));
        assert!((50.0..66.0).contains(&about), "{about}");
        assert_eq!(found(6.0).1, Verdict::HoldsWithAnotherFigure);
        assert_eq!(found(1.0), (CrossoverLength::Never, Verdict::DoesNotHoldHere));
        assert_eq!(found(1e6), (CrossoverLength::Always, Verdict::DoesNotHoldHere));
    }

    #[test]
    fn only_a_planted_switch_is_found() {
        let lengths = planted(|n| n, |n| if n > 20.0 { 9.0 * n } else { 5.0 * n });
        assert_eq!(switches(&lengths, STABLE), [(20, 21)]);
        assert_eq!(switches(&lengths, BUBBLE), []);
    }

    #[test]
    fn all_ways_sort_and_a_tiny_run_reports() {
        let sizes = Sizes { lengths: vec![2, 5, 50, 100], rounds: 3, round_ns: 1_000.0 };
        let lengths = measured(&sizes, &|_| ());
        assert!(lengths.iter().all(|l| l.ns.iter().all(|ns| ns.len() == 3 && ns.iter().all(|ns| *ns > 0.0))));
        let report = report(&lengths);
        assert_eq!(report.verdicts.len(), 1);
        assert_eq!(report.tables[0].rows.len(), 4);
    }

    #[test]
    fn bubble_sort_sorts() {
        let mut draws = Draws::new(5);
        for items in [0, 1, 2, 3, 50] {
            let mut keys: Vec<u64> = (0..items).map(|_| draws.bits() % 20).collect();
            let mut twin = keys.clone();
            bubble_sort(&mut keys);
            twin.sort_unstable();
            assert_eq!(keys, twin);
        }
    }
}
