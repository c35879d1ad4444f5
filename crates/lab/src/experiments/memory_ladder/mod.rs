//! `memory-ladder`: the cost of each step away from the processor on this machine, and three races that
//! follow from it.
//!
//! ```text
//! registers ▸ L1 ▸ L2 ▸ L3 ▸ RAM ▸ RAM through the page tables ▸ minor fault ▸ page-cache fault ▸ disk fault
//! └──────────── chase: one load after another ─────────────────┘  └──── faults: a page at a time ─────────┘
//! ```
//! Everything runs on one thread, so that one core is enough.

pub mod caches;
pub mod chase;
pub mod clock;
pub mod drawing;
pub mod faults;
pub mod races;
pub mod random;
pub mod sorts;
mod verdicts;

use std::io;
use std::path::Path;
use std::time::Duration;

use caches::{Cache, HugePages};
use chase::Circle;
use clock::Clock;
use faults::Faults;
use races::RaceSize;
use random::Random;
use serde::Serialize;
use sorts::SortTimes;

use super::counters::Counters;
use super::scratch::Scratch;
use crate::experiment::{Experiment, Options, Refusal, Report};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "memory-ladder",
    claims: &["C9", "C24"],
    title: "what each step away from the processor costs",
    statement: "The textbook's picture of a computer is wrong: a page fault costs millions of instructions (1,000 on \
                Atlas, 10 million with an SSD of 2010, 100 million with a disk), so that an O(n) or O(n²) algorithm \
                that does not fault beats an O(log n) one that does",
    source: "P.-H. Kamp, You're Doing It Wrong, ACM Queue 8(6), June 2010",
    run,
};

/// Sizes of the measurement.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Bytes of the largest cycle in memory, and of the file whose pages fault.
    pub far_bytes: usize,
    /// Number of rounds of each walk.
    pub rounds: usize,
    /// Duration of a walk's round.
    pub round: Duration,
    /// Number of faults of each kind to provoke.
    pub faults: usize,
    /// Numbers of items in the races: rising powers of two.
    pub race_items: Vec<usize>,
    /// Number of searches at each size.
    pub searches: usize,
    /// Numbers of items in the large shuffled array, and in the sorted one.
    pub sorts: (usize, usize),
}

impl Sizes {
    /// Returns the sizes for a quick run of under half a minute, or for a full run.
    #[must_use]
    pub fn of(quick: bool) -> Self {
        if quick {
            Self {
                far_bytes: 128 << 20,
                rounds: 5,
                round: Duration::from_millis(20),
                faults: 2000,
                race_items: (6..=23).map(|power| 1 << power).collect(),
                searches: 9,
                sorts: (1 << 21, 20_000),
            }
        } else {
            Self {
                far_bytes: 512 << 20,
                rounds: 15,
                round: Duration::from_millis(50),
                faults: 8_000,
                race_items: (6..=25).map(|power| 1 << power).collect(),
                searches: 41,
                sorts: (1 << 24, 60_000),
            }
        }
    }
}

/// A step of the ladder.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Rung {
    /// Name of the level of memory.
    pub name: String,
    /// Time in nanoseconds: the minimum of the rounds for loads, the median for faults.
    pub ns: f64,
    /// 99th percentile, for faults.
    pub p99_ns: Option<f64>,
    /// Cycles of this processor in that time.
    pub cycles: f64,
    /// Instructions that the processor executes in that time if it waits for nothing.
    pub instructions: f64,
    /// Number of touches, and the kernel's counters during them.
    pub counted: Option<(usize, Counters)>,
}

/// Measurements of the run.
#[derive(Debug, Clone, Serialize)]
pub struct Ladder {
    /// Clock of the processor.
    pub clock: Clock,
    /// Data caches as the kernel describes them.
    pub caches: Vec<Cache>,
    /// Policy for huge pages.
    pub huge_pages: HugePages,
    /// Rungs of the ladder, nearest first.
    pub rungs: Vec<Rung>,
    /// Time of a load by the size of the memory that is walked: bytes and nanoseconds.
    pub staircase: Vec<(usize, f64)>,
    /// Races, by size.
    pub heats: Vec<RaceSize>,
    /// Times of the sorts.
    pub spots: Vec<SortTimes>,
}

fn run(options: &Options) -> Result<Report, Refusal> {
    let ladder = measured(&Sizes::of(options.quick), options.directory.as_deref(), &|what| options.say(what))
        .map_err(|error| Refusal::Failed(error.to_string()))?;
    Ok(verdicts::report(&ladder))
}

/// Takes all measurements; files are created below `directory` if it is given.
///
/// # Errors
/// Returns the system's error: no directory on a disk, a full disk, no `/proc`.
pub fn measured(sizes: &Sizes, directory: Option<&Path>, say: &dyn Fn(&str)) -> io::Result<Ladder> {
    let mut random = Random::new(2010);
    let clock = Clock::measured(sizes.rounds * 4);
    let caches = caches::here();
    say("walking through memory");
    let mut walk = |bytes: usize, huge: bool| -> io::Result<f64> {
        Ok(Circle::new(bytes, huge, &mut random)?.ns_a_load(sizes.rounds, sizes.round))
    };
    let mut rungs = Vec::new();
    let mut rung = |name: String, ns: f64, faults: Option<&Faults>| {
        rungs.push(Rung {
            name,
            ns,
            p99_ns: faults.map(|faults| faults.quantile(0.99)),
            cycles: clock.cycles(ns),
            instructions: clock.instructions(ns),
            counted: faults.map(|faults| (faults.touched, faults.counted)),
        });
    };
    for cache in caches.iter().filter(|cache| cache.bytes * 2 <= sizes.far_bytes) {
        // The walk uses half of the cache: other code needs some of it, too.
        rung(format!("L{} ({})", cache.level, size(cache.bytes)), walk(cache.bytes / 2, true)?, None);
    }
    let huge_pages = HugePages::here();
    if huge_pages != HugePages::Never {
        rung("RAM, huge pages".into(), walk(sizes.far_bytes, true)?, None);
    }
    if huge_pages != HugePages::Always {
        rung("RAM, small pages".into(), walk(sizes.far_bytes, false)?, None);
    }
    let mut staircase = Vec::new();
    let mut bytes = 4 << 10;
    while bytes <= sizes.far_bytes {
        staircase.push((bytes, walk(bytes, true)?));
        bytes *= 2;
    }

    say("faulting");
    let page_bytes = rustix::param::page_size();
    let scratch = Scratch::on_disk(directory)?;
    let words = sizes.far_bytes / 8;
    let words = words.max(sizes.race_items.last().copied().unwrap_or(0));
    let file = scratch.words("ladder", words, races::key)?;
    let minor = faults::minor(sizes.faults, page_bytes)?;
    // If the kernel uses huge pages without a request, most touches do not fault, and their median does not
    // describe a fault.
    if minor.counted.minor_faults as usize >= minor.touched / 2 {
        rung("minor fault (fresh memory)".into(), minor.median(), Some(&minor));
    }
    let (cold, cached) = faults::disk_then_cached(&file, words, sizes.faults, &mut random)?;
    rung("page-cache fault".into(), cached.median(), Some(&cached));
    rung("disk fault (one page)".into(), cold.median(), Some(&cold));
    let ahead = faults::disk_ahead(&file, words, (sizes.faults / 500).max(4), &mut random)?;
    rung("disk fault with readahead".into(), ahead.median(), Some(&ahead));

    say("racing");
    let heats = sizes
        .race_items
        .iter()
        .filter(|items| **items <= words)
        .map(|items| races::heat(&file, *items, sizes.searches, &mut random))
        .collect::<io::Result<Vec<_>>>()?;
    say("sorting");
    let (large, sorted) = sizes.sorts;
    let spots = sorts::spots(2048, large, sorted, &mut random);
    Ok(Ladder { clock, caches, huge_pages, rungs, staircase, heats, spots })
}

/// Formats a size: `32 KiB`, `2 MiB`; exact if it is a whole number of units.
fn size(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_ladder_has_every_rung() {
        let sizes = Sizes {
            far_bytes: 4 << 20,
            rounds: 2,
            round: Duration::from_millis(1),
            faults: 60,
            race_items: vec![64, 1 << 14],
            searches: 3,
            sorts: (1000, 500),
        };
        let ladder = measured(&sizes, None, &|_| ()).unwrap();
        let rung = |name: &str| ladder.rungs.iter().find(|rung| rung.name.starts_with(name)).unwrap();
        let counted = |name: &str| rung(name).counted.unwrap().1;
        for name in ["RAM", "page-cache", "disk fault (", "disk fault with"] {
            assert!(rung(name).ns > 0.0, "{name}");
        }
        if ladder.huge_pages != HugePages::Always {
            assert!(rung("RAM, small").ns > 0.0);
            assert_eq!(counted("minor").major_faults, 0);
        }
        assert!((54..=90).contains(&counted("disk fault (").major_faults), "{:?}", counted("disk fault ("));
        assert_eq!(counted("page-cache").major_faults, 0);
        assert_eq!(counted("page-cache").bytes_read, 0);
        assert_eq!(ladder.heats.len(), 2);
        let report = verdicts::report(&ladder);
        assert_eq!(report.verdicts.len(), 2);
        assert!(report.figures[0].svg.contains("disk fault (one page)"));
        assert_eq!(report.data["rungs"].as_array().unwrap().len(), ladder.rungs.len());
    }
}
