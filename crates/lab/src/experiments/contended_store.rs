//! `contended-store`: the cost of a store while another thread stores nearby (claim C12).
//!
//! ```text
//!   shared word        one line, two words       padded
//!   ┌────────┐         ┌────────┬────────┐       ┌────────┐ ┌────────┐
//!   │ A and B│         │   A    │   B    │       │   A    │ │   B    │
//!   └────────┘         └────────┴────────┘       └────────┘ └────────┘
//! ```
//! Each thread stores its own counter a fixed number of times. The figure is the thread's CPU time per store,
//! not wall-clock time, which would include other processes on a busy machine. Variants alternate, round by
//! round.

use std::{
    hint::black_box,
    sync::{
        Barrier,
        atomic::{
            AtomicU64,
            Ordering::{self, Relaxed, Release, SeqCst},
        },
    },
    thread,
};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::{
    experiment::{Experiment, Options, Refusal, Report, Table, Verdict},
    paired::spread::{Ratio, median},
    placement::{allowed, restrict},
    report::plot::{Axis, Plot, Series, Stroke},
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "contended-store",
    claims: &["C12"],
    title: "what a store costs when another core stores beside it",
    statement: "Contended volatile stores get slower with the second thread on two cores, not on one core; newer \
                processors suffer less",
    source: "P. Tyma, How I sped up my server by a factor of 6, June 2010",
    run,
};

/// Aligned to two cache lines, because some processors fetch lines in pairs.
#[repr(align(128))]
#[derive(Default)]
struct Line([AtomicU64; 16]);

/// Target of the threads' stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum StorePlacement {
    /// All threads store into one word.
    Word,
    /// Each thread stores into its own word; all words are in one cache line.
    Line,
    /// Each thread stores into its own cache line.
    Padded,
}

const PLACES: [(StorePlacement, &str); 3] = [
    (StorePlacement::Word, "one word"),
    (StorePlacement::Line, "one line"),
    (StorePlacement::Padded, "padded"),
];
const ORDERS: [(Ordering, &str); 3] =
    [(Relaxed, "relaxed"), (Release, "release"), (SeqCst, "sequentially consistent")];
/// Number of words in a line of 64 bytes.
const WORDS: usize = 8;

/// Sizes of the measurement.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    stores: u64,
    rounds: usize,
}

/// Figures of one variant, over all rounds.
#[derive(Debug, Clone, Serialize)]
struct Variant {
    order: &'static str,
    place: &'static str,
    threads: usize,
    /// Number of cores that the threads share.
    cores: usize,
    /// CPU nanoseconds per store, one per round.
    ns: Vec<f64>,
}

impl Variant {
    fn median(&self) -> f64 {
        median(&self.ns).unwrap_or(f64::NAN)
    }
}

fn run(options: &Options) -> Result<Report, Refusal> {
    let cores = allowed().map_err(|error| Refusal::Failed(error.to_string()))?;
    let sizes = if options.quick {
        Sizes { stores: 300_000, rounds: 7 }
    } else {
        Sizes { stores: 2_000_000, rounds: 21 }
    };
    let variants = measured(&cores, sizes, store, &|what| options.say(what))?;
    Ok(report(&variants, cores.len()))
}

/// Loop of a thread: `stores` stores into `word`.
type StoreLoop = fn(&AtomicU64, u64, Ordering);

fn store(word: &AtomicU64, stores: u64, order: Ordering) {
    // The order is a constant in each arm, so that the loop contains nothing but the store.
    match order {
        Relaxed => (0..stores).for_each(|n| word.store(black_box(n), Relaxed)),
        Release => (0..stores).for_each(|n| word.store(black_box(n), Release)),
        _ => (0..stores).for_each(|n| word.store(black_box(n), SeqCst)),
    }
}

fn measured(
    cores: &[usize],
    sizes: Sizes,
    work: StoreLoop,
    say: &dyn Fn(&str),
) -> Result<Vec<Variant>, Refusal> {
    let mut variants = Vec::new();
    for &(_, order) in &ORDERS {
        for &(_, place) in &PLACES {
            for on in [1, cores.len()] {
                if on == 1
                    && cores.len() == 1
                    && variants.iter().any(|v: &Variant| v.order == order && v.place == place && v.cores == 1)
                {
                    continue;
                }
                let threads_max = (2 * on).max(2);
                variants.extend((1..=threads_max).map(|threads| Variant {
                    order,
                    place,
                    threads,
                    cores: on,
                    ns: Vec::new(),
                }));
            }
        }
    }
    for round in 0..sizes.rounds {
        say(&format!("round {} of {}", round + 1, sizes.rounds));
        for variant in &mut variants {
            let order = ORDERS.iter().find(|o| o.1 == variant.order).map_or(SeqCst, |o| o.0);
            let place = PLACES.iter().find(|p| p.1 == variant.place).map_or(StorePlacement::Word, |p| p.0);
            let ns = one(&cores[..variant.cores], variant.threads, order, place, sizes.stores, work)
                .map_err(Refusal::Failed)?;
            variant.ns.push(ns);
        }
    }
    Ok(variants)
}

/// Returns CPU nanoseconds per store, the mean over the threads; thread `n` runs on core `n` modulo the
/// number of cores.
fn one(
    cores: &[usize],
    threads: usize,
    order: Ordering,
    place: StorePlacement,
    stores: u64,
    work: StoreLoop,
) -> Result<f64, String> {
    let lines: Vec<Line> = (0..threads).map(|_| Line::default()).collect();
    let start = Barrier::new(threads);
    let times: Result<Vec<u64>, String> = thread::scope(|scope| {
        let handles: Vec<_> = (0..threads)
            .map(|at| {
                let word = match place {
                    StorePlacement::Word => &lines[0].0[0],
                    StorePlacement::Line => &lines[0].0[at % WORDS],
                    StorePlacement::Padded => &lines[at].0[0],
                };
                let (start, core) = (&start, cores[at % cores.len()]);
                scope.spawn(move || {
                    let pinned = restrict(&[core]);
                    start.wait();
                    let before = cpu_ns();
                    work(word, stores, order);
                    pinned.map(|()| cpu_ns() - before).map_err(|error| format!("core {core}: {error}"))
                })
            })
            .collect();
        handles.into_iter().map(|h| h.join().map_err(|_| "a thread panicked".to_owned())?).collect()
    });
    let times = times?;
    Ok(times.iter().sum::<u64>() as f64 / (stores * threads as u64) as f64)
}

fn cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn find<'v>(
    variants: &'v [Variant],
    order: &str,
    place: &str,
    threads: usize,
    cores: usize,
) -> Option<&'v Variant> {
    variants.iter().find(|v| v.order == order && v.place == place && v.threads == threads && v.cores == cores)
}

/// Returns the factor by which a second thread makes a store slower.
fn second_thread(variants: &[Variant], place: &str, cores: usize) -> Option<Ratio> {
    let series = |v: &Variant| v.ns.iter().copied().map(Some).collect::<Vec<_>>();
    let order = ORDERS[2].1;
    let alone = find(variants, order, place, 1, cores)?;
    let both = find(variants, order, place, 2, cores)?;
    Ratio::paired(&series(both), &series(alone))
}

/// Minimum factor by which a second thread must make a store slower to count as an effect.
const EFFECT: f64 = 1.5;

fn report(variants: &[Variant], cores: usize) -> Report {
    let mut report = Report { data: serde_json::json!({ "variants": variants }), ..Report::default() };
    let mut table = Table::new(
        "CPU time a store",
        &[
            ("order", ""),
            ("cores", ""),
            ("threads", ""),
            ("one word", "ns"),
            ("one line", "ns"),
            ("padded", "ns"),
        ],
    );
    for variant in variants.iter().filter(|variant| variant.place == PLACES[0].1) {
        let cell = |place| {
            find(variants, variant.order, place, variant.threads, variant.cores)
                .map_or_else(|| "–".to_owned(), |v| format!("{:.2}", v.median()))
        };
        table.row([
            variant.order.to_owned(),
            variant.cores.to_string(),
            variant.threads.to_string(),
            cell(PLACES[0].1),
            cell(PLACES[1].1),
            cell(PLACES[2].1),
        ]);
    }
    report.tables.push(table);
    figure(variants, cores, &mut report);
    judge(variants, cores, &mut report);
    report.note(
        "Relaxed and release stores wait in the processor's store buffer, which hides the contention; a sequentially \
         consistent one (as Java's volatile) waits until it is done, and shows it. Nighttrain's counters are a line \
         for each core and are stored relaxed.",
    );
    report
}

fn figure(variants: &[Variant], cores: usize, report: &mut Report) {
    let strokes = [Stroke::One, Stroke::Two, Stroke::Four];
    let mut highest: f64 = 1.0;
    let mut threads_max = 2;
    let series: Vec<Series> = PLACES
        .iter()
        .zip(strokes)
        .map(|(&(_, place), stroke)| {
            let points: Vec<(f64, f64)> = variants
                .iter()
                .filter(|v| v.order == ORDERS[2].1 && v.place == place && v.cores == cores)
                .map(|v| (v.threads as f64, v.median()))
                .collect();
            highest = points.iter().map(|p| p.1).fold(highest, f64::max);
            threads_max = points.len().max(threads_max);
            Series::new(place, stroke, points).with_discs()
        })
        .collect();
    let step = (highest / 5.0).max(1.0).ceil();
    let plot = Plot {
        x: Axis::linear("threads", 1.0, threads_max as f64, 1.0),
        left: Axis::linear("CPU time a store [ns]", 0.0, step * 6.0, step),
        right: None,
        series,
        references: Vec::new(),
    };
    let title = match second_thread(variants, PLACES[0].1, cores) {
        Some(ratio) if cores > 1 => {
            format!("A second core makes an ordered store {:.1} times dearer", ratio.median)
        }
        _ => "One core: nobody to contend with".to_owned(),
    };
    report.figure(
        title.clone(),
        plot.draw(&title),
        format!("Sequentially consistent stores on {cores} cores. Padded words stay apart, and stay cheap."),
    );
}

fn judge(variants: &[Variant], cores: usize, report: &mut Report) {
    let article = "slower with the second thread on two cores, not on one";
    let (Some(two), Some(one), Some(padded)) = (
        second_thread(variants, PLACES[0].1, cores).filter(|_| cores > 1),
        second_thread(variants, PLACES[0].1, 1),
        second_thread(variants, PLACES[2].1, cores),
    ) else {
        report.judge("C12", article, "this process may use one core only", Verdict::CannotBeTestedHere);
        return;
    };
    let ours = format!(
        "a second thread makes a sequentially consistent store {:.1}× as dear on {cores} cores ({:.1} to {:.1}), \
         {:.1}× on one, {:.1}× on {cores} with a line for each",
        two.median, two.low, two.high, one.median, padded.median
    );
    let verdict = if two.low > EFFECT && one.high < EFFECT {
        Verdict::Holds
    } else if two.high <= EFFECT || one.low >= EFFECT {
        Verdict::DoesNotHoldHere
    } else {
        Verdict::TooNoisyToSay
    };
    report.judge("C12", article, ours, verdict);
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: Sizes = Sizes { stores: 2_000, rounds: 3 };

    fn planted(two_cores: f64, one_core: f64) -> Verdict {
        let mut variants = Vec::new();
        for (place, _) in [("one word", 0), ("padded", 0)] {
            for (threads, cores, ns) in [
                (1, 2, 5.0),
                (2, 2, if place == "padded" { 5.0 } else { 5.0 * two_cores }),
                (1, 1, 5.0),
                (2, 1, 5.0 * one_core),
            ] {
                let ns = vec![ns; 5];
                variants.push(Variant { order: ORDERS[2].1, place, threads, cores, ns });
            }
        }
        report(&variants, 2).verdicts[0].verdict
    }

    #[test]
    fn the_verdict_follows_the_planted_effects() {
        assert_eq!(planted(5.0, 1.1), Verdict::Holds);
        assert_eq!(planted(1.0, 1.0), Verdict::DoesNotHoldHere);
        assert_eq!(planted(5.0, 4.0), Verdict::DoesNotHoldHere);
    }

    /// The measurement detects planted sharing: a thread that finds another thread's value in its word works
    /// 200 times as long.
    #[test]
    fn planted_false_sharing_shows_in_the_measure() {
        fn planted(word: &AtomicU64, stores: u64, _: Ordering) {
            let mine = word as *const AtomicU64 as u64;
            // A word with another thread's value is shared.
            let shared = word.fetch_add(mine | 1, SeqCst) != 0;
            let work = if shared { 200 } else { 1 };
            for n in 0..stores * work {
                black_box(n);
            }
        }
        let cost = |place| one(&[allowed().unwrap()[0]], 2, SeqCst, place, 20_000, planted).unwrap();
        let (word, padded) = (cost(StorePlacement::Word), cost(StorePlacement::Padded));
        assert!(word > 10.0 * padded, "{word} against {padded}");
    }

    #[test]
    fn a_tiny_run_has_every_variant() {
        let cores = allowed().unwrap();
        let variants = measured(&cores, TINY, store, &|_| ()).unwrap();
        let report = report(&variants, cores.len());
        assert!(variants.iter().all(|v| v.ns.len() == TINY.rounds && v.median() > 0.0));
        assert_eq!(report.verdicts.len(), 1);
        assert_eq!(report.tables[0].rows.len() * PLACES.len(), variants.len());
        assert_eq!(report.verdicts[0].verdict == Verdict::CannotBeTestedHere, cores.len() == 1);
    }
}
