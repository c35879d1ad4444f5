//! `queue-beyond`: the page queue when memory is short, in RAM, operation by operation, and its memory use
//! (C8).
//!
//! ```text
//! keys ─┬─▶ pressure    simulated memory of every size: transfers per operation, compared with both heaps
//!       ├─▶ ram         CPU time per operation, alternately with nine other heaps and the C++ library's
//!       ├─▶ operations  comparisons, moves and time of each operation: is any of them long?
//!       ├─▶ space       bytes in use for each live item
//!       └─▶ expiry      the pattern of the store's expiry, compared with the heap that the store uses
//!                                  └──▶ verdicts: each figure compared with its goal
//! ```
//! The parts are independent: `--part ram` runs one of them.

pub mod contenders;
pub mod cpp;
pub mod expiry;
pub mod keys;
pub mod operations;
pub mod pressure;
pub mod ram;
pub mod space;
mod verdicts;

use serde_json::json;

use crate::experiment::{Experiment, Options, Refusal, Report};
use crate::experiments::bheap_sim::article::ITEMS;
use contenders::ItemOrder;
use cpp::Program;
use keys::Keys;
use operations::Times;
use pressure::QueueChoice;

/// `nighttrain lab queue-beyond`
pub const EXPERIMENT: Experiment = Experiment {
    name: "queue-beyond",
    claims: &["C8"],
    title: "A queue beyond the B-heap",
    statement: "“I will not rule out that there are smarter ways”: a queue that moves fewer pages than the B-heap \
                when memory is short, takes less time than every heap when it is not, and never does much in one \
                operation.",
    source: "P.-H. Kamp, “You're Doing It Wrong”, ACM Queue 8(6), June 2010; the goals are this project's own",
    run,
};

/// Names of the parts.
pub const PARTS: [&str; 5] = ["pressure", "ram", "operations", "space", "expiry"];

/// Sizes of the measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// Number of items in the simulated queues.
    pub simulated: usize,
    /// Number of items in the queues that are simulated with other key sequences.
    pub simulated_others: usize,
    /// Number of items in each timed queue, their order, and the number of rounds.
    pub timed: Vec<(usize, ItemOrder, usize)>,
    /// Number of items in the queue whose operations are counted and timed one by one.
    pub counted: usize,
    /// Number of items in the queues that are counted with other key sequences.
    pub counted_others: usize,
    /// Number of items in the queue whose memory use is measured.
    pub space: usize,
    /// Number of objects in the store whose expiry is simulated, and number of rounds.
    pub expiring: Vec<(usize, usize)>,
}

impl Sizes {
    /// Returns the sizes for a quick run of under half a minute, or for a full run.
    #[must_use]
    pub fn of(options: &Options) -> Self {
        use ItemOrder::{Key, KeyAndHandle};
        let mut sizes = if options.quick {
            Self {
                simulated: ITEMS,
                simulated_others: 125_000,
                timed: vec![(1_000, Key, 5), (125_000, Key, 3), (125_000, KeyAndHandle, 3)],
                counted: 500_000,
                counted_others: 50_000,
                space: 250_000,
                expiring: vec![(50_000, 3)],
            }
        } else {
            Self {
                simulated: ITEMS,
                simulated_others: ITEMS / 2,
                timed: vec![
                    (1_000, Key, 15),
                    (1_000_000, Key, 7),
                    (1_000_000, KeyAndHandle, 5),
                    (16_000_000, Key, 3),
                ],
                counted: 16_000_000,
                counted_others: 1_000_000,
                space: 4_000_000,
                expiring: vec![(10_000, 7), (100_000, 5), (1_000_000, 5), (4_000_000, 3)],
            }
        };
        if let Some(items) = options.items {
            let rounds = if items >= 4_000_000 { 3 } else { 7 };
            sizes = Self {
                simulated: items,
                simulated_others: items,
                timed: vec![(items, Key, rounds)],
                counted: items,
                counted_others: items.min(sizes.counted_others),
                space: items,
                expiring: vec![(items, 3)],
            };
        }
        sizes
    }
}

fn run(options: &Options) -> Result<Report, Refusal> {
    let sizes = Sizes::of(options);
    if !(100..=100_000_000).contains(&sizes.counted) {
        return Err(Refusal::Usage(format!("--items {}: from 100 to 100000000", sizes.counted)));
    }
    let parts = match options.part.as_deref() {
        None => PARTS.to_vec(),
        Some(part) => match PARTS.iter().find(|known| **known == part) {
            Some(known) => vec![*known],
            None => return Err(Refusal::Usage(format!("--part {part}: one of {}", PARTS.join(", ")))),
        },
    };
    measured(&sizes, &parts, options).map_err(Refusal::Failed)
}

/// Builds the report of some parts.
///
/// # Errors
/// Returns a sentence if a queue did not do the expected work.
pub fn measured(sizes: &Sizes, parts: &[&str], options: &Options) -> Result<Report, String> {
    let mut report = Report { data: json!({}), ..Report::default() };
    for part in parts {
        match *part {
            "pressure" => pressed(&mut report, sizes, options)?,
            "ram" => in_ram(&mut report, sizes, options)?,
            "operations" => each(&mut report, sizes, options)?,
            "space" => spaced(&mut report, sizes, options)?,
            _ => expired(&mut report, sizes, options)?,
        }
    }
    Ok(report)
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn pressed(report: &mut Report, sizes: &Sizes, options: &Options) -> Result<(), String> {
    let items = sizes.simulated;
    let queues =
        [QueueChoice::Binary, QueueChoice::BHeap, QueueChoice::PageQueue(9), QueueChoice::PageQueue(64)];
    options.say("the article's keys through four queues");
    // Two threads suffice: the binary heap's simulation takes as long as the others together.
    let [binary, paged, nine, many] = std::thread::scope(|scope| {
        let others =
            scope.spawn(|| queues[1..].iter().map(|queue| queue.simulate(items, Keys::Uniform(1))).collect());
        let binary = queues[0].simulate(items, Keys::Uniform(1));
        let others: Result<Vec<_>, _> = others.join().map_err(|_| "the simulation panicked".to_owned())?;
        let all: Vec<_> = std::iter::once(binary.map_err(words)?).chain(others.map_err(words)?).collect();
        <[pressure::SimulatedQueue; 4]>::try_from(all).map_err(|_| "four queues".to_owned())
    })?;
    verdicts::pressure(report, &[&binary, &paged, &nine, &many]);

    let few = sizes.simulated_others;
    let mut rows = Vec::new();
    for keys in Keys::OTHERS {
        options.say(&format!("other keys: {}", keys.name()));
        let [heap, nine, many] = std::thread::scope(|scope| {
            let heap = scope.spawn(|| QueueChoice::BHeap.simulate(few, keys));
            let queues = [QueueChoice::PageQueue(9), QueueChoice::PageQueue(64)]
                .map(|queue| queue.simulate(few, keys));
            let [nine, many] = queues;
            let heap = heap.join().map_err(|_| "the simulation panicked".to_owned())?;
            Ok::<_, String>([heap.map_err(words)?, nine.map_err(words)?, many.map_err(words)?])
        })?;
        rows.push((keys, [heap, nine, many]));
    }
    verdicts::other_keys(report, &rows);
    Ok(())
}

fn in_ram(report: &mut Report, sizes: &Sizes, options: &Options) -> Result<(), String> {
    options.say("compiling the C++ queue");
    let program = Program::compile();
    match &program {
        Ok(program) => report.note(format!("C++: {}, -O3.", program.compiler)),
        Err(why) => report.note(format!("The C++ library's queue is left out: {why}.")),
    }
    for &(items, compared, rounds) in &sizes.timed {
        let measured = ram::measure(items, compared, rounds, program.as_ref().ok(), options)?;
        verdicts::ram(report, &measured, program.is_ok());
    }
    report.note(
        "In RAM: u64 keys and u64 handles, the article's three phases from an empty queue without reserved memory, every \
         queue the same items in every round (a checksum over the keys that left proves it), CPU time of the thread. Each \
         round begins with another queue. “By key”: the handle is not looked at, as a server would have it and as \
         orx-priority-queue always does. From 4 million items on, only those within 1.25 times the best are timed again \
         after the first round.",
    );
    Ok(())
}

fn each(report: &mut Report, sizes: &Sizes, options: &Options) -> Result<(), String> {
    let items = sizes.counted;
    options.say(&format!("counting the work of {} operations", 4 * items));
    let mut work = Vec::with_capacity(4 * items);
    let uniform =
        operations::counted(items, 16, operations::uniform(), |one| work.push(one)).map_err(words)?;
    let mut rows = vec![("uniform".to_owned(), items, 16, uniform)];
    for keys in Keys::OTHERS {
        for fan_out in [4, 16] {
            options.say(&format!("counting over other keys: {}", keys.name()));
            let few = sizes.counted_others;
            let bounds =
                operations::counted(few, fan_out, operations::with_handles(keys), |_| ()).map_err(words)?;
            rows.push((keys.name(), few, fan_out, bounds));
        }
    }
    verdicts::bounds(report, &rows);

    let mut passes = Vec::new();
    for pass in 1..=operations::PASSES {
        options.say(&format!("timing each operation, pass {pass} of {}", operations::PASSES));
        passes.push(operations::timed(0, items).map_err(words)?);
    }
    let mut least = passes[0].clone();
    for pass in &passes[1..] {
        for (least, time) in least.iter_mut().zip(pass) {
            *least = (*least).min(*time);
        }
    }
    let longest = verdicts::longest(&least, &passes, &work, items);
    drop(work);
    let first = Times::of(passes.swap_remove(0));
    drop(passes);
    options.say("timing each operation of the 8-ary heap");
    let other = Times::of(operations::timed(3, items).map_err(words)?);
    verdicts::times(report, items, &first, &Times::of(least), &other, longest);
    Ok(())
}

fn spaced(report: &mut Report, sizes: &Sizes, options: &Options) -> Result<(), String> {
    options.say("bytes in use");
    let plain = space::plain(sizes.space).map_err(words)?;
    let handled = space::with_handles(sizes.space).map_err(words)?;
    verdicts::space(report, plain, handled);
    Ok(())
}

fn expired(report: &mut Report, sizes: &Sizes, options: &Options) -> Result<(), String> {
    let mut found = Vec::new();
    for &(objects, rounds) in &sizes.expiring {
        let mut queues = vec![Vec::new(); expiry::NAMES.len()];
        for round in 0..rounds {
            for turn in 0..queues.len() {
                let at = (turn + round) % queues.len();
                options.say(&format!(
                    "expiry of {objects} objects, round {} of {rounds}: {}",
                    round + 1,
                    expiry::NAMES[at]
                ));
                queues[at].push(expiry::measure(at, objects).map_err(words)?);
            }
        }
        let first = queues[0][0].checksum;
        if queues.iter().flatten().any(|needed| needed.checksum != first) {
            return Err("a queue gave other entries, or in another order, than the rest".to_owned());
        }
        found.push((objects, queues));
    }
    verdicts::expiry(report, &found);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Verdict;

    fn tiny() -> Sizes {
        Sizes {
            simulated: 20_000,
            simulated_others: 10_000,
            timed: vec![(500, ItemOrder::Key, 3)],
            counted: 4_000,
            counted_others: 2_000,
            space: 20_000,
            expiring: vec![(2_000, 3)],
        }
    }

    #[test]
    fn a_small_run_is_complete_without_goal_verdicts() {
        let report = measured(&tiny(), &PARTS, &Options::default()).unwrap();
        for table in [
            "Transfers an operation",
            "Other keys",
            "500 items",
            "one operation",
            "longest",
            "store's expiry",
            "Bytes in use",
        ] {
            assert!(report.tables.iter().any(|shown| shown.title.contains(table)), "no table of {table}");
        }
        assert_eq!(report.figures.len(), 2);
        // The goals apply to a million items and more; fewer items prove nothing about them.
        for judgement in &report.verdicts {
            if judgement.article.contains("1,000,000 items") || judgement.article.contains("16,000,000 items")
            {
                assert_eq!(judgement.verdict, Verdict::CannotBeTestedHere, "{judgement:?}");
            }
        }
        for part in ["sizes", "other_keys", "ram", "operations", "space", "expiry"] {
            assert!(report.data.get(part).is_some(), "no {part} for programs");
        }
    }

    #[test]
    fn only_a_known_part_runs_alone() {
        let part = |part: &str| Options { part: Some(part.into()), items: Some(1_000), ..Options::default() };
        assert!(matches!(run(&part("speed")), Err(Refusal::Usage(said)) if said.contains("pressure, ram")));
        let report = run(&part("space")).unwrap();
        assert_eq!(report.tables.len(), 1);
        assert!(matches!(run(&Options { items: Some(3), ..Options::default() }), Err(Refusal::Usage(_))));
    }
}
