//! The results of one server.

use lab::paired::spread::{Spread, median};
use serde::Serialize;

/// A start with a store that is there already.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Warm {
    /// From the start of the process to its first good answer.
    pub(crate) ready_s: f64,
    /// To when it knows what its file holds; until then it answers as if that were empty. None: it never will.
    pub(crate) known_s: Option<f64>,
    /// Of the objects that were asked for, those that the origin was not asked for.
    pub(crate) kept_percent: f64,
}

/// How late our loop was.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Late {
    /// How often it was looked at: every 10 ms.
    pub(crate) looks: u64,
    /// Looks more than a millisecond late.
    pub(crate) late: u64,
    /// Between which bounds of its histogram p99.99 lies; of fewer than 10,000 looks that is the latest.
    pub(crate) p9999_us: (f64, f64),
}

/// The phases of one round. Latencies are of hot objects, in microseconds from when they were due: p50, p99, p99.9.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Round {
    /// Hot objects alone.
    pub(crate) calm_us: [f64; 3],
    /// Among all others.
    pub(crate) pressure_us: [f64; 3],
    /// Hot objects alone again, just before the next.
    pub(crate) before_inserts_us: [f64; 3],
    /// While others are inserted.
    pub(crate) inserts_us: [f64; 3],
    pub(crate) insert_mib_per_s: f64,
    /// Under pressure.
    pub(crate) hit_percent: f64,
    pub(crate) answered_percent: f64,
    pub(crate) cpu_us: f64,
}

/// One contender.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Objects a second and MiB a second while it was filled.
    pub(crate) fill_per_s: f64,
    pub(crate) fill_mib_per_s: f64,
    pub(crate) rounds: Vec<Round>,
    /// In all rounds' pressure.
    pub(crate) answers: u64,
    pub(crate) major_faults: u64,
    pub(crate) loop_major_faults: u64,
    /// Our loop without load, and in all rounds' pressure.
    pub(crate) idle: Option<Late>,
    pub(crate) under_load: Option<Late>,
    /// Wait of our loop for the disk under pressure, if the kernel counted it.
    pub(crate) disk_wait_us: Option<u64>,
    /// Objects all over the store, as fast as they are answered, that did not come from the origin.
    pub(crate) cold_per_s: f64,
    pub(crate) cold_hit_percent: f64,
    /// Reads of the disk for each that came from there.
    pub(crate) reads_an_object: Option<f64>,
    pub(crate) rss_mib: u64,
    pub(crate) after_stop: Option<Warm>,
    pub(crate) after_kill: Option<Warm>,
    pub(crate) remarks: Vec<String>,
}

impl Row {
    pub(crate) fn is_ours(&self) -> bool {
        self.name.starts_with("ours")
    }

    /// One number of each round.
    pub(crate) fn each(&self, value: impl Fn(&Round) -> f64) -> Vec<f64> {
        self.rounds.iter().map(value).collect()
    }

    /// The median of a value over the rounds; 0 without a round.
    pub(crate) fn middle(&self, value: impl Fn(&Round) -> f64) -> f64 {
        median(&self.each(value)).unwrap_or(0.0)
    }

    /// Medians of three quantiles.
    pub(crate) fn three(&self, value: impl Fn(&Round) -> [f64; 3]) -> String {
        let at = |number: usize| self.middle(|round| value(round)[number]);
        format!("{:.0} / {:.0} / {:.0}", at(0), at(1), at(2))
    }

    /// The least and the most of the rounds.
    pub(crate) fn spread(&self, value: impl Fn(&Round) -> f64) -> Option<Spread> {
        Spread::of(&self.each(value))
    }
}
