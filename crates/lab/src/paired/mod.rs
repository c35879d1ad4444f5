//! Fair comparison of servers on a noisy, shared machine.
//!
//! A figure from one run depends on the moment as much as on the program. So contenders are measured in
//! interleaved rounds (A B C A B C …): a disturbance in one round affects every contender of that round, and
//! the ratio of two contenders is computed per round before anything is summarised. The measure is the CPU
//! time that a server's whole process tree spends on a unit of work, not how fast a load generator on the
//! same machine could drive it. Results are medians with their spread. A bound that lies inside a ratio's
//! interval is neither met nor missed: the verdict is *too noisy to say*.
//!
//! ```text
//!  interleave ─► round 1: A B C ─► round 2: A B C ─► …        each cell: Tree::usage ─ work ─ Tree::usage
//!                   │                                                              │
//!                   └────────────► Sample{cpu, units, switches, rss} ◄─────────────┘
//!                                        │
//!            Series (median, MAD, min…max) ─► Ratio to a reference (paired, bootstrap) ─► Verdict
//! ```
//!
//! - [`tree`]: a server as a pinned process tree, and its resource usage from `/proc`;
//! - [`spread`]: medians, ratios with an interval, verdicts;
//! - [`place`]: lookup of programs and free ports;
//! - [`machine`]: the machine, for the record of a run.

pub mod machine;
pub mod place;
pub mod spread;
pub mod tree;

use std::time::Instant;

use serde::{Deserialize, Serialize};

use tree::{Cores, Tree};

/// Work that a load did between two readings of a server's usage.
#[derive(Clone, Debug, Default)]
pub struct Work {
    /// Number of completed units: hits, messages or mails.
    pub units: u64,
    /// Seconds that the load ran, if the load generator reports them. Its start-up time is excluded; a clock
    /// started and stopped by the caller would include it.
    pub wall_s: Option<f64>,
    /// Latency of the units, if the load measures it.
    pub latency: Option<Latency>,
    /// Reasons to distrust this sample; empty if there are none. A comparison with a doubtful sample gets no
    /// verdict.
    pub doubts: Vec<String>,
}

/// Latency of the units, as the load measures it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Median latency, in microseconds.
    pub p50_us: f64,
    /// 95th percentile of the latency in microseconds, if measured.
    #[serde(default)]
    pub p95_us: Option<f64>,
    /// 99th percentile of the latency, in microseconds.
    pub p99_us: f64,
    /// Latency of the slowest unit in microseconds, if measured.
    #[serde(default)]
    pub last_us: Option<f64>,
}

/// Measurement of one contender in one round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Number of completed units.
    pub units: u64,
    /// Seconds for which the load ran.
    pub wall_s: f64,
    /// CPU seconds in user mode, summed over the process tree.
    pub cpu_user_s: f64,
    /// CPU seconds in the kernel, summed over the process tree.
    pub cpu_system_s: f64,
    /// Voluntary context switches (the server waited), of threads that lived through the whole run.
    pub switches_voluntary: u64,
    /// Involuntary context switches (the server was preempted).
    pub switches_involuntary: u64,
    /// Resident bytes at the end of the run, summed over the process tree (shared pages count once per
    /// process).
    pub rss_bytes: u64,
    /// Share of the server cores' time that other processes or the hypervisor used.
    pub foreign_share: f64,
    /// Latency of the units, if the load measures it.
    #[serde(default)]
    pub latency: Option<Latency>,
    /// Reasons to distrust this sample.
    pub doubts: Vec<String>,
}

impl Sample {
    /// Returns an empty sample for a round in which nothing could be measured, with the reason as its doubt.
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

    /// Returns the median latency in microseconds.
    pub fn p50_us(&self) -> Option<f64> {
        Some(self.latency?.p50_us)
    }

    /// Returns the 95th percentile of the latency in microseconds.
    pub fn p95_us(&self) -> Option<f64> {
        self.latency?.p95_us
    }

    /// Returns the 99th percentile of the latency in microseconds.
    pub fn p99_us(&self) -> Option<f64> {
        Some(self.latency?.p99_us)
    }

    /// Returns the latency of the slowest unit in microseconds.
    pub fn last_us(&self) -> Option<f64> {
        self.latency?.last_us
    }

    /// Returns the CPU time per unit in microseconds; `None` when no unit was completed.
    pub fn cpu_us_per_unit(&self) -> Option<f64> {
        (self.units > 0).then(|| (self.cpu_user_s + self.cpu_system_s) * 1e6 / self.units as f64)
    }
}

/// Runs `work` against the server `tree`, and reads the tree's usage before and after. `cores` are the
/// server's cores.
///
/// # Errors
/// Returns any error of `work`, or an error from reading `/proc` (for instance because the server died).
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
    /// Name of the contender.
    pub name: String,
    /// One sample per round; a round has the same index in every series of an interleaved run.
    pub samples: Vec<Sample>,
}

impl Series {
    /// Returns the CPU time per unit of each round in microseconds; `None` for a round without units.
    pub fn costs_us(&self) -> Vec<Option<f64>> {
        self.each(Sample::cpu_us_per_unit)
    }

    /// Returns `figure` of each round's sample.
    pub fn each(&self, figure: impl Fn(&Sample) -> Option<f64>) -> Vec<Option<f64>> {
        self.samples.iter().map(figure).collect()
    }

    /// Returns the first doubt recorded in any of the samples.
    pub fn doubt(&self) -> Option<&str> {
        self.samples.iter().flat_map(|sample| &sample.doubts).map(String::as_str).next()
    }
}

/// Measures every contender once per round, for `rounds` rounds, in the given order (A B C A B C …).
///
/// # Errors
/// Returns the first error of `measure`, which ends the run.
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
