//! `bench run pressure`: stores 19 times larger than their memory, in Nighttrain and other programs, in one
//! run.
//!
//! | scenario | measured | compared with |
//! |---|---|---|
//! | [`servers`] | whole servers, under a memory cgroup: latency, hits, faults, restarts | varnish, nginx, traffic server, squid |
//! | [`stores`] | the store as a library, which replays traces at equal bytes | foyer, segcache (feature `libraries`) |
//! | [`cold`] | cold hits in one process | the disk itself |
//! | [`resident`] | a hit in memory | an unchecked read of memory |
//! | [`start_again`] | a restart with ten million objects | – |
//!
//! ```text
//!   memory cgroup, core 0: the server          core 1: origin (bodies from the URL) and the load
//!   ours kernel · ours direct · varnish ·  ◄── rounds of phases ── workers, each answer verified in full
//!   nginx · trafficserver · squid          ── misses ─►  origin (counts)
//! ```
//!
//! Every server gets the same memory limit, the same store size on the same file system, the same objects
//! ([`lab::pressure`]) and the same requests at the same due times; latency counts from the due time of a
//! request. The thousand most popular objects are called *hot*; the figure is their latency with and without
//! pressure.

mod accounting;
pub(crate) mod cold;
mod contenders;
pub(crate) mod figures;
mod load;
mod metrics;
mod origin;
mod raw;
mod report;
mod resident;
pub(crate) mod row;
mod run;
mod servers;
pub(crate) mod start_again;
pub(crate) mod stores;
mod threads;
mod traces;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::part::{Contents, Entry};
use crate::selection::{self, Selection};
use contenders::Contender;

/// Default number of rounds.
const ROUNDS: usize = 3;

/// Options of this part.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    selection: Selection,
    /// Total memory that a server may use, in MiB. The store is 19 times as large.
    #[arg(long, default_value_t = 192)]
    memory_mib: u64,
    /// Objects that are requested by popularity; by default as many as fill nine tenths of the store.
    #[arg(long)]
    objects: Option<u64>,
    /// Requests per second in the phases with due times.
    #[arg(long, default_value_t = 3_000)]
    rate: u64,
    /// Seconds of each phase.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Connections of the load.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Memory of each store of the scenario `stores`, in MiB; a file is 19 times as large.
    #[arg(long)]
    stores_memory_mib: Option<u64>,
    /// Objects of the scenario `start`.
    #[arg(long)]
    start_objects: Option<u64>,
    /// Directory on a disk for the stores.
    #[arg(long)]
    directory: Option<PathBuf>,
}

/// Scenarios: name, description, and seconds of a full and of a quick run.
const SCENARIOS: [(&str, &str, [u64; 2]); 5] = [
    (COLD, "Hits that only the disk has, beside raw reads of it.", [120, 5]),
    (RESIDENT, "Hits in memory, beside unchecked reads.", [30, 2]),
    (STORES, "The store as a library, beside foyer and segcache.", [240, 10]),
    (START, "Starts with ten million objects in the file.", [240, 5]),
    (SERVERS, "Servers under a memory limit, beside Varnish, nginx, Traffic Server and Squid.", [900, 60]),
];

const COLD: &str = "cold";
const RESIDENT: &str = "resident";
const STORES: &str = "stores";
const START: &str = "start";
const SERVERS: &str = "servers";

pub(crate) fn contents(quick: bool) -> Contents {
    let entry = |(name, what, seconds): (&str, &str, [u64; 2])| Entry {
        name: name.into(),
        what: what.into(),
        seconds: seconds[usize::from(quick)],
    };
    Contents {
        scenarios: SCENARIOS.map(entry).into(),
        contenders: Contender::ALL.map(Contender::name).into(),
        start_s: 0,
    }
}

/// Performs the task of a child process: a measurement in a separate process runs this program again.
pub(crate) fn do_task() {
    stores::do_task();
    cold::do_task();
    start_again::do_task();
}

pub(crate) fn run(options: &Options) -> ExitCode {
    selection::exit_code("pressure", run::run(options).map(|()| true))
}
