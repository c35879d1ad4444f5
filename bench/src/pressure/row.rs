//! Results of one server.

use lab::paired::spread::{Spread, median};
use serde::{Deserialize, Serialize};

/// Results of a start with an existing store file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Warm {
    /// Seconds from the start of the process to its first correct answer.
    pub(crate) ready_s: f64,
    /// Seconds until the store has read the directory of its file; until then it answers as if the file were
    /// empty. `None` if it never finishes.
    pub(crate) known_s: Option<f64>,
    /// Percentage of the requested objects that were answered without a request to the origin.
    pub(crate) kept_percent: f64,
}

/// Lateness of Nighttrain's event loop.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Late {
    /// Number of samples, one every 10 ms.
    pub(crate) looks: u64,
    /// Number of samples more than a millisecond late.
    pub(crate) late: u64,
    /// Histogram bounds of the p99.99; with fewer than 10,000 samples, of the maximum.
    pub(crate) p9999_us: (f64, f64),
}

/// Results of one round's phases. Latencies are the p50, p99 and p99.9 of hot objects, in microseconds from
/// their due times.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Round {
    /// Latencies with requests for hot objects only.
    pub(crate) calm_us: [f64; 3],
    /// Latencies among requests for all objects.
    pub(crate) pressure_us: [f64; 3],
    /// Latencies with requests for hot objects only, measured again just before the inserts.
    pub(crate) before_inserts_us: [f64; 3],
    /// Latencies while other objects are inserted.
    pub(crate) inserts_us: [f64; 3],
    pub(crate) insert_mib_per_s: f64,
    /// Hit ratio under pressure.
    pub(crate) hit_percent: f64,
    #[serde(default)]
    pub(crate) answered_percent: f64,
    pub(crate) cpu_us: f64,
}

/// Results of one contender.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Objects and MiB per second while the store was filled.
    #[serde(default)]
    pub(crate) fill_per_s: f64,
    #[serde(default)]
    pub(crate) fill_mib_per_s: f64,
    pub(crate) rounds: Vec<Round>,
    /// Number of answers in the pressure phases of all rounds.
    #[serde(default)]
    pub(crate) answers: u64,
    #[serde(default)]
    pub(crate) major_faults: u64,
    #[serde(default)]
    pub(crate) loop_major_faults: u64,
    /// Lateness of Nighttrain's loop without load, and in the pressure phases of all rounds.
    pub(crate) idle: Option<Late>,
    pub(crate) under_load: Option<Late>,
    /// Time that Nighttrain's loop waited for the disk under pressure, if the kernel measured it.
    pub(crate) disk_wait_us: Option<u64>,
    /// Answers per second that did not come from the origin, with requests for objects all over the store at
    /// full speed.
    pub(crate) cold_per_s: f64,
    #[serde(default)]
    pub(crate) cold_hit_percent: f64,
    /// Disk reads per object that came from the disk.
    pub(crate) reads_an_object: Option<f64>,
    #[serde(default)]
    pub(crate) rss_mib: u64,
    pub(crate) after_stop: Option<Warm>,
    pub(crate) after_kill: Option<Warm>,
    pub(crate) remarks: Vec<String>,
}

impl Row {
    pub(crate) fn is_ours(&self) -> bool {
        self.name.starts_with("ours")
    }

    /// Returns a value of each round.
    pub(crate) fn each(&self, value: impl Fn(&Round) -> f64) -> Vec<f64> {
        self.rounds.iter().map(value).collect()
    }

    /// Returns the median of a value over the rounds; 0 without a round.
    pub(crate) fn middle(&self, value: impl Fn(&Round) -> f64) -> f64 {
        median(&self.each(value)).unwrap_or(0.0)
    }

    /// Formats the medians of three quantiles.
    pub(crate) fn three(&self, value: impl Fn(&Round) -> [f64; 3]) -> String {
        let at = |number: usize| self.middle(|round| value(round)[number]);
        format!("{:.0} / {:.0} / {:.0}", at(0), at(1), at(2))
    }

    /// Returns the spread of a value over the rounds.
    pub(crate) fn spread(&self, value: impl Fn(&Round) -> f64) -> Option<Spread> {
        Spread::of(&self.each(value))
    }
}
