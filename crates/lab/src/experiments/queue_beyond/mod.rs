//! `queue-beyond`: the page queue under short memory, in RAM, operation by operation, and its bytes (C8).
//!
//! ```text
//! keys ─┬─▶ pressure    simulated memory of every size: transfers an operation beside both heaps
//!       ├─▶ ram         CPU time an operation, in turns with nine other heaps and the C++ library's
//!       ├─▶ operations  each one's comparisons, moves and time: is any of them long?
//!       └─▶ space       bytes in use for each live item
//!                                  └──▶ verdicts: each figure beside its goal
//! ```
//! The parts do not need each other: `--part ram` runs one of them.

pub mod contenders;
pub mod cpp;
pub mod keys;
pub mod operations;
pub mod pressure;
pub mod ram;
pub mod space;
mod verdicts;

use serde_json::json;

use crate::experiment::{Experiment, Options, Refusal, Report};
use crate::experiments::bheap_sim::article::ITEMS;
use cpp::Program;
use keys::Keys;
use operations::Times;
use pressure::Which;

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

/// The parts by name.
pub const PARTS: [&str; 4] = ["pressure", "ram", "operations", "space"];

/// How much is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// Items in the simulated queues.
    pub simulated: usize,
    /// Items in the queues that are timed, and rounds.
    pub timed: Vec<(usize, usize)>,
    /// Items in the queue whose operations are counted and timed one by one.
    pub counted: usize,
    /// The same, over other keys.
    pub counted_others: usize,
    /// Items in the queue whose bytes are looked at.
    pub space: usize,
}

impl Sizes {
    /// For people who wait (under half a minute), or for the record.
    #[must_use]
    pub fn of(options: &Options) -> Self {
        let mut sizes = if options.quick {
            Self {
                simulated: ITEMS,
                timed: vec![(1_000, 5), (250_000, 3)],
                counted: 500_000,
                counted_others: 50_000,
                space: 250_000,
            }
        } else {
            Self {
                simulated: ITEMS,
                timed: vec![(1_000, 15), (1_000_000, 7), (16_000_000, 3)],
                counted: 16_000_000,
                counted_others: 1_000_000,
                space: 4_000_000,
            }
        };
        if let Some(items) = options.items {
            let rounds = if items >= 4_000_000 { 3 } else { 7 };
            sizes = Self {
                simulated: items,
                timed: vec![(items, rounds)],
                counted: items,
                counted_others: items.min(sizes.counted_others),
                space: items,
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

/// The report of some parts.
///
/// # Errors
/// In words, if a queue did other work than it should have.
pub fn measured(sizes: &Sizes, parts: &[&str], options: &Options) -> Result<Report, String> {
    let mut report = Report { data: json!({}), ..Report::default() };
    for part in parts {
        match *part {
            "pressure" => pressed(&mut report, sizes, options)?,
            "ram" => in_ram(&mut report, sizes, options)?,
            "operations" => each(&mut report, sizes, options)?,
            _ => spaced(&mut report, sizes, options)?,
        }
    }
    Ok(report)
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn pressed(report: &mut Report, sizes: &Sizes, options: &Options) -> Result<(), String> {
    let items = sizes.simulated;
    let queues = [Which::Binary, Which::BHeap, Which::PageQueue(9), Which::PageQueue(64)];
    options.say("the article's keys through four queues");
    // Two at a time: the binary heap's simulation takes as long as the others' together.
    let [binary, paged, nine, many] = std::thread::scope(|scope| {
        let others =
            scope.spawn(|| queues[1..].iter().map(|queue| queue.simulate(items, Keys::Uniform(1))).collect());
        let binary = queues[0].simulate(items, Keys::Uniform(1));
        let others: Result<Vec<_>, _> = others.join().map_err(|_| "the simulation panicked".to_owned())?;
        let all: Vec<_> = std::iter::once(binary.map_err(words)?).chain(others.map_err(words)?).collect();
        <[pressure::Simulated; 4]>::try_from(all).map_err(|_| "four queues".to_owned())
    })?;
    verdicts::pressure(report, &[&binary, &paged, &nine, &many]);

    let few = items.div_ceil(2);
    let mut rows = Vec::new();
    for keys in Keys::OTHERS {
        options.say(&format!("other keys: {}", keys.name()));
        let [heap, nine, many] = std::thread::scope(|scope| {
            let heap = scope.spawn(|| Which::BHeap.simulate(few, keys));
            let queues = [Which::PageQueue(9), Which::PageQueue(64)].map(|queue| queue.simulate(few, keys));
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
    for &(items, rounds) in &sizes.timed {
        let measured = ram::measure(items, rounds, program.as_ref().ok(), options)?;
        verdicts::ram(report, &measured, program.is_ok());
    }
    report.note(
        "In RAM: u64 keys and u64 handles, the article's three phases from an empty queue without reserved memory, every \
         queue the same items in every round (a checksum over the keys that left proves it), CPU time of the thread. Each \
         round begins with another queue. From 4 million items on, only those within 1.25 times the best are timed again \
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

    let ours = &contenders::ALL[0];
    let mut passes = Vec::new();
    for pass in 1..=operations::PASSES {
        options.say(&format!("timing each operation, pass {pass} of {}", operations::PASSES));
        passes.push(operations::timed(ours, items).map_err(words)?);
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
    let other = Times::of(operations::timed(&contenders::ALL[3], items).map_err(words)?);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Verdict;

    fn tiny() -> Sizes {
        Sizes {
            simulated: 20_000,
            timed: vec![(500, 3)],
            counted: 4_000,
            counted_others: 2_000,
            space: 20_000,
        }
    }

    #[test]
    fn tiny_as_it_is_it_says_all_and_does_not_boast() {
        let report = measured(&tiny(), &PARTS, &Options::default()).unwrap();
        for table in
            ["Transfers an operation", "Other keys", "500 items", "one operation", "longest", "Bytes in use"]
        {
            assert!(report.tables.iter().any(|shown| shown.title.contains(table)), "no table of {table}");
        }
        assert_eq!(report.figures.len(), 2);
        // The goals are for a million items and more; fewer prove nothing about them.
        for judgement in &report.verdicts {
            if judgement.article.contains("1,000,000 items") || judgement.article.contains("16,000,000 items")
            {
                assert_eq!(judgement.verdict, Verdict::CannotBeTestedHere, "{judgement:?}");
            }
        }
        for part in ["sizes", "other_keys", "ram", "operations", "space"] {
            assert!(report.data.get(part).is_some(), "no {part} for programs");
        }
    }

    #[test]
    fn a_part_that_nobody_knows_is_refused_and_one_runs_alone() {
        let part = |part: &str| Options { part: Some(part.into()), items: Some(1_000), ..Options::default() };
        assert!(matches!(run(&part("speed")), Err(Refusal::Usage(said)) if said.contains("pressure, ram")));
        let report = run(&part("space")).unwrap();
        assert_eq!(report.tables.len(), 1);
        assert!(matches!(run(&Options { items: Some(3), ..Options::default() }), Err(Refusal::Usage(_))));
    }
}
