//! Comparing servers fairly on a machine that is neither quiet nor ours alone.
//!
//! A figure from one run says as much about the moment as about the program. So contenders are measured *in
//! turn, again and again* (A B C A B C …): what disturbs one round disturbs all who take part in it, and the
//! ratio of two contenders is taken round by round before anything is summed up. What counts is the CPU time
//! that a server's whole process tree spends on a unit of work, not how fast a load generator on the same
//! machine could drive it; medians and their spread are given, and a bound that lies inside a ratio's interval
//! is neither met nor missed: it is *too noisy to say*.
//!
//! ```text
//!  interleave ─► round 1: A B C ─► round 2: A B C ─► …        each cell: Tree::usage ─ work ─ Tree::usage
//!                   │                                                              │
//!                   └────────────► Sample{cpu, units, switches, rss} ◄─────────────┘
//!                                        │
//!            Series (median, MAD, min…max) ─► Ratio to a reference (paired, bootstrap) ─► Verdict
//! ```
//!
//! - [`tree`]: a server as a pinned process tree, and what it used, from `/proc`;
//! - [`spread`]: medians, ratios with an interval, verdicts;
//! - [`place`]: where programs are found;
//! - [`machine`]: the machine, for the record of a run.

pub mod machine;
pub mod place;
pub mod spread;
pub mod tree;

use std::time::Instant;

use serde::{Deserialize, Serialize};

use tree::{Cores, Tree};

/// What the work between two readings came to.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Units done: hits, messages, mails.
    pub units: u64,
    /// Seconds that the load ran, where it knows better than a clock around it (its start-up is not load).
    pub wall_s: Option<f64>,
    /// How long units took, where the load knows.
    pub latency: Option<Latency>,
    /// Why this sample should be doubted; empty if it should not. A marked sample carries no verdict.
    pub doubts: Vec<String>,
}

/// How long units took, from the load's side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Microseconds that half of them took at most.
    pub p50_us: f64,
    /// Microseconds that 95 in 100 took at most, where that was measured.
    #[serde(default)]
    pub p95_us: Option<f64>,
    /// Microseconds that 99 in 100 took at most.
    pub p99_us: f64,
    /// Microseconds that the longest took, where that was measured.
    #[serde(default)]
    pub last_us: Option<f64>,
}

/// One contender in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Units done.
    pub units: u64,
    /// Seconds that the load ran.
    pub wall_s: f64,
    /// Seconds of CPU in user mode, over the tree.
    pub cpu_user_s: f64,
    /// Seconds of CPU in the kernel, over the tree.
    pub cpu_system_s: f64,
    /// Context switches because the server waited, over the threads that lived through the run.
    pub switches_voluntary: u64,
    /// Context switches because the server was made to wait.
    pub switches_involuntary: u64,
    /// Bytes resident at the end, summed over the tree (pages that processes share count in each).
    pub rss_bytes: u64,
    /// Of the server's cores, the share of time that somebody else used (other processes, the hypervisor).
    pub foreign_share: f64,
    /// How long units took, where the load knows.
    #[serde(default)]
    pub latency: Option<Latency>,
    /// Why this sample should be doubted.
    pub doubts: Vec<String>,
}

impl Sample {
    /// A round in which nothing could be measured, and why.
    pub fn nothing(why: String) -> Self {
        Self {
            units: 0,
            wall_s: 0.0,
            cpu_user_s: 0.0,
            cpu_system_s: 0.0,
            switches_voluntary: 0,
            switches_involuntary: 0,
            rss_bytes: 0,
            foreign_share: 0.0,
            latency: None,
            doubts: vec![why],
        }
    }

    /// Microseconds that half of the units took at most.
    pub fn p50_us(&self) -> Option<f64> {
        Some(self.latency?.p50_us)
    }

    /// Microseconds that 95 in 100 units took at most.
    pub fn p95_us(&self) -> Option<f64> {
        self.latency?.p95_us
    }

    /// Microseconds that 99 in 100 units took at most.
    pub fn p99_us(&self) -> Option<f64> {
        Some(self.latency?.p99_us)
    }

    /// Microseconds that the longest unit took.
    pub fn last_us(&self) -> Option<f64> {
        self.latency?.last_us
    }

    /// Microseconds of CPU that a unit cost; `None` when nothing was done.
    pub fn cpu_us_per_unit(&self) -> Option<f64> {
        (self.units > 0).then(|| (self.cpu_user_s + self.cpu_system_s) * 1e6 / self.units as f64)
    }
}

/// Runs `work` against `tree` and reads before and after it what the tree used. `cores` are the server's.
///
/// # Errors
/// Whatever `work` fails with, or what cannot be read from `/proc` (the server died, say).
pub fn measure<E: From<tree::TreeError>>(
    tree: &Tree,
    cores: &Cores,
    work: impl FnOnce() -> Result<Work, E>,
) -> Result<Sample, E> {
    let busy_before = tree::busy_s(cores)?;
    let before = tree.usage()?;
    let begun = Instant::now();
    let work = work()?;
    let elapsed_s = begun.elapsed().as_secs_f64();
    let after = tree.usage()?;
    let busy_s = tree::busy_s(cores)? - busy_before;

    let cpu_user_s = after.cpu_user_s - before.cpu_user_s;
    let cpu_system_s = after.cpu_system_s - before.cpu_system_s;
    let foreign_s = (busy_s - cpu_user_s - cpu_system_s).max(0.0);
    Ok(Sample {
        units: work.units,
        wall_s: work.wall_s.unwrap_or(elapsed_s),
        cpu_user_s,
        cpu_system_s,
        switches_voluntary: after.switches_voluntary.saturating_sub(before.switches_voluntary),
        switches_involuntary: after.switches_involuntary.saturating_sub(before.switches_involuntary),
        rss_bytes: after.rss_bytes,
        foreign_share: foreign_s / (elapsed_s * cores.count() as f64),
        latency: work.latency,
        doubts: work.doubts,
    })
}

/// All samples of one contender, in the order of the rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// The contender.
    pub name: String,
    /// One sample a round; a round's index is the same in every series of an interleaved run.
    pub samples: Vec<Sample>,
}

impl Series {
    /// Each round's cost in microseconds of CPU a unit; `None` where nothing was done.
    pub fn costs_us(&self) -> Vec<Option<f64>> {
        self.each(Sample::cpu_us_per_unit)
    }

    /// A figure of each round.
    pub fn each(&self, figure: impl Fn(&Sample) -> Option<f64>) -> Vec<Option<f64>> {
        self.samples.iter().map(figure).collect()
    }

    /// The first reason to doubt any of its samples.
    pub fn doubt(&self) -> Option<&str> {
        self.samples.iter().flat_map(|sample| &sample.doubts).map(String::as_str).next()
    }
}

/// Measures every contender once a round, for `rounds` rounds, in the given order (A B C A B C …).
///
/// # Errors
/// The first error of `measure` ends the run.
pub fn interleave<C, E>(
    contenders: &[(String, C)],
    rounds: usize,
    mut measure: impl FnMut(&C, usize) -> Result<Sample, E>,
) -> Result<Vec<Series>, E> {
    let mut all: Vec<Series> = contenders
        .iter()
        .map(|(name, _)| Series { name: name.clone(), samples: Vec::with_capacity(rounds) })
        .collect();
    for round in 0..rounds {
        for (series, (_, contender)) in all.iter_mut().zip(contenders) {
            series.samples.push(measure(contender, round)?);
        }
    }
    Ok(all)
}
