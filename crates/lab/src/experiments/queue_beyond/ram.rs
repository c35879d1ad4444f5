//! Time per operation in RAM. All queues do the same work, alternately; each figure is the thread's CPU time,
//! as the median over the rounds.
//!
//! The phases are the three of the B-heap article; each insert or remove is an operation. The measure is CPU
//! time rather than wall-clock time, because other processes share the cores; their effect on the caches
//! remains, and the rounds show it.

use bheap::layout::PageSizeError;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

use super::contenders::{self, ItemOrder, Items, TimedQueue, checked};
use super::cpp::Program;
use crate::experiment::{Options, Table};
use crate::paired::spread::{Ratio, Spread, median};
use crate::report::grouped;

/// Times of one queue in one round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// Checksum of the removed keys, in order of removal.
    pub checksum: u64,
    /// CPU seconds: inserting, holding (remove and insert), removing.
    pub phases_s: [f64; 3],
}

/// Rounds of one queue.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Name of the queue.
    pub name: String,
    /// Nanoseconds per operation, by round; `None` if the queue was left out of a round.
    pub rounds: Vec<Option<[f64; 4]>>,
}

/// Rounds of all queues at one size.
#[derive(Debug, Clone, PartialEq)]
pub struct SizeSamples {
    /// Maximum number of items in each queue.
    pub items: usize,
    /// Order of the items.
    pub compared: ItemOrder,
    /// Samples of our queue, then of the others.
    pub samples: Vec<Sample>,
}

/// Minimum number of operations in a round, so that a small queue is timed over some milliseconds.
const OPERATIONS_MIN: usize = 400_000;
/// Number of items from which only queues near the best are timed again after the first round.
const LONG_FROM: usize = 4_000_000;
/// Maximum ratio of a queue's time to the time of the fastest other queue for the queue to count as near the
/// best.
const NEAR: f64 = 1.25;

/// Runs one queue through the phases `repeats` times.
///
/// # Panics
/// Panics if the queue loses an item.
pub fn time(queue: &mut dyn TimedQueue, items: usize, repeats: usize, seed: u64) -> Timing {
    let mut source = Items::new(seed);
    let (mut checksum, mut phases_s) = (0, [0.0; 3]);
    for _ in 0..repeats {
        let start = cpu_s();
        for _ in 0..items {
            queue.push(source.take());
        }
        let filled = cpu_s();
        for _ in 0..items {
            checksum = checked(checksum, left(queue));
            queue.push(source.take());
        }
        let held = cpu_s();
        for _ in 0..items {
            checksum = checked(checksum, left(queue));
        }
        let done = cpu_s();
        for (phase, spent) in phases_s.iter_mut().zip([filled - start, held - filled, done - held]) {
            *phase += spent;
        }
    }
    assert!(queue.pop().is_none(), "no item was doubled");
    Timing { checksum, phases_s }
}

fn left(queue: &mut dyn TimedQueue) -> u64 {
    let Some((key, _)) = queue.pop() else { panic!("an item was lost") };
    key
}

fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

impl Timing {
    /// Returns nanoseconds per operation in each phase, and over all three.
    fn ns(&self, items: usize, repeats: usize) -> [f64; 4] {
        let once = (items * repeats) as f64;
        let [insert, hold, remove] = self.phases_s.map(|seconds| seconds * 1e9);
        [insert / once, hold / once / 2.0, remove / once, (insert + hold + remove) / once / 4.0]
    }
}

/// Times all queues at one size, `rounds` times alternately.
///
/// # Errors
/// Returns a sentence if a queue did different work from the others, which would invalidate the comparison.
pub fn measure(
    items: usize,
    compared: ItemOrder,
    rounds: usize,
    cpp: Option<&Program>,
    options: &Options,
) -> Result<SizeSamples, String> {
    let repeats = (OPERATIONS_MIN / (4 * items)).max(1);
    let mut measured = SizeSamples { items, compared, samples: Vec::new() };
    let names: Vec<&str> = contenders::NAMES.into_iter().chain(cpp.map(|_| CPP)).collect();
    for name in &names {
        measured.samples.push(Sample { name: (*name).to_owned(), rounds: vec![None; rounds] });
    }
    for round in 0..rounds {
        let seed = 0x9e37_79b9_7f4a_7c15 ^ (round as u64 + 1);
        let mut checksum = None;
        for turn in 0..names.len() {
            // Each round begins with a different queue.
            let at = (turn + round) % names.len();
            if round > 0 && items >= LONG_FROM && !measured.is_near(at) {
                continue;
            }
            let name = names[at];
            options.say(&format!("{} items, round {} of {rounds}: {name}", grouped(items as u64), round + 1));
            let timing = match cpp.filter(|_| at == contenders::NAMES.len()) {
                Some(program) => program.time(items, compared, repeats, seed)?,
                None => {
                    let made = contenders::make(at, compared);
                    let mut queue = made.map_err(|error: PageSizeError| error.to_string())?;
                    time(queue.as_mut(), items, repeats, seed)
                }
            };
            if *checksum.get_or_insert(timing.checksum) != timing.checksum {
                return Err(format!(
                    "the {name} gave other keys, or in another order, than the queues before"
                ));
            }
            measured.samples[at].rounds[round] = Some(timing.ns(items, repeats));
        }
    }
    Ok(measured)
}

/// Name of the C++ library's queue in a report.
pub const CPP: &str = "C++ priority_queue";

impl Sample {
    /// Returns the median over rounds, by phase and over all phases.
    fn medians(&self) -> [f64; 4] {
        [0, 1, 2, 3].map(|phase| {
            let values: Vec<f64> = self.rounds.iter().flatten().map(|ns| ns[phase]).collect();
            median(&values).unwrap_or(f64::NAN)
        })
    }

    fn all(&self) -> Vec<Option<f64>> {
        self.rounds.iter().map(|ns| ns.map(|ns| ns[3])).collect()
    }
}

impl SizeSamples {
    /// Returns whether a queue is the page queue, or may still turn out to be the fastest of the others.
    fn is_near(&self, at: usize) -> bool {
        let first = |sample: &Sample| sample.rounds[0].map_or(f64::INFINITY, |ns| ns[3]);
        let best = self.samples.iter().skip(1).map(first).fold(f64::INFINITY, f64::min);
        at == 0 || first(&self.samples[at]) <= best * NEAR
    }

    /// Returns the fastest queue other than the page queue, by the median over all phases.
    #[must_use]
    pub fn best(&self) -> Option<&Sample> {
        self.samples.iter().skip(1).min_by(|a, b| a.medians()[3].total_cmp(&b.medians()[3]))
    }

    /// Returns the ratio of the page queue's time to the time of the fastest other queue: the median of the
    /// rounds' ratios, and its interval.
    #[must_use]
    pub fn share(&self) -> Option<Ratio> {
        Ratio::paired(&self.samples.first()?.all(), &self.best()?.all())
    }

    /// Returns nanoseconds per operation as a table, the fastest queue first.
    #[must_use]
    pub fn table(&self) -> Table {
        let rounds = self.samples.first().map_or(0, |sample| sample.rounds.len());
        let mut table = Table::new(
            format!(
                "{} items of 16 bytes in RAM, {}: CPU time an operation, medians of {rounds} interleaved rounds",
                grouped(self.items as u64),
                self.compared.words()
            ),
            &[
                ("queue", ""),
                ("insert", "ns"),
                ("remove + insert", "ns"),
                ("remove", "ns"),
                ("all", "ns"),
                ("rounds", ""),
                ("least to most", "ns"),
                ("of ours", "×"),
            ],
        );
        let ours = self.samples.first().map_or(f64::NAN, |sample| sample.medians()[3]);
        let mut order: Vec<&Sample> = self.samples.iter().collect();
        order.sort_by(|a, b| a.medians()[3].total_cmp(&b.medians()[3]));
        for sample in order {
            let [insert, hold, remove, all] = sample.medians();
            let values: Vec<f64> = sample.all().into_iter().flatten().collect();
            let Some(spread) = Spread::of(&values) else { continue };
            table.row([
                sample.name.clone(),
                format!("{insert:.1}"),
                format!("{hold:.1}"),
                format!("{remove:.1}"),
                format!("{all:.1}"),
                spread.rounds.to_string(),
                format!("{:.0} to {:.0}", spread.min, spread.max),
                format!("{:.2}", all / ours),
            ]);
        }
        table
    }

    /// Returns the figures as JSON.
    #[must_use]
    pub fn data(&self) -> Value {
        let queues: Vec<Value> = self
            .samples
            .iter()
            .map(|sample| {
                let [insert, hold, remove, all] = sample.medians();
                json!({
                    "queue": sample.name, "insert_ns": insert, "remove_insert_ns": hold,
                    "remove_ns": remove, "all_ns": all, "rounds_ns": sample.all(),
                })
            })
            .collect();
        json!({
            "items": self.items,
            "compared": self.compared.words(),
            "queues": queues,
            "best_of_the_others": self.best().map(|sample| sample.name.clone()),
            "share_of_the_best": self.share(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_queues_are_timed_on_equal_work() {
        let measured = measure(2_000, ItemOrder::Key, 2, None, &Options::default()).unwrap();
        assert_eq!(measured.samples.len(), contenders::NAMES.len());
        for sample in &measured.samples {
            assert!(sample.rounds.iter().all(|round| round.is_some_and(|ns| ns.iter().all(|&ns| ns > 0.0))));
        }
        assert_eq!(measured.table().rows.len(), contenders::NAMES.len());
    }

    fn sample(name: &str, all: &[Option<f64>]) -> Sample {
        let rounds = all.iter().map(|all| all.map(|all| [1.0, 2.0, 3.0, all])).collect();
        Sample { name: name.to_owned(), rounds }
    }

    #[test]
    fn the_share_compares_with_the_best_competitor() {
        let measured = SizeSamples {
            items: 1,
            compared: ItemOrder::Key,
            samples: vec![
                sample("ours", &[Some(50.0), Some(60.0), Some(55.0)]),
                sample("slow", &[Some(200.0), None, None]),
                sample("best", &[Some(100.0), Some(120.0), Some(110.0)]),
                sample("near", &[Some(120.0), Some(121.0), Some(122.0)]),
            ],
        };
        assert_eq!([0, 1, 2, 3].map(|at| measured.is_near(at)), [true, false, true, true]);
        assert_eq!(measured.best().unwrap().name, "best");
        let share = measured.share().unwrap();
        assert!((share.median - 0.5).abs() < 1e-9 && share.rounds == 3, "{share:?}");
        assert_eq!(measured.table().rows[0][0], "ours");
    }

    #[test]
    fn a_wrong_pop_order_changes_the_checksum() {
        struct LifoQueue(Vec<contenders::Item>);
        impl TimedQueue for LifoQueue {
            fn push(&mut self, item: contenders::Item) {
                self.0.push(item);
            }
            fn pop(&mut self) -> Option<contenders::Item> {
                self.0.pop()
            }
        }
        let checksum =
            |at: usize, compared| time(contenders::make(at, compared).unwrap().as_mut(), 100, 1, 3).checksum;
        let right = checksum(1, ItemOrder::Key);
        for at in 0..contenders::NAMES.len() {
            assert_eq!(checksum(at, ItemOrder::Key), right);
            assert_eq!(
                checksum(at, ItemOrder::KeyAndHandle),
                right,
                "keys leave in one order whatever the handles"
            );
        }
        assert_ne!(time(&mut LifoQueue(Vec::new()), 100, 1, 3).checksum, right);
    }
}
