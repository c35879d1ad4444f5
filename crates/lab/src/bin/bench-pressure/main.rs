//! `make bench-pressure`: a store 19 times larger than its memory, ours beside others, in one sitting.
//!
//! | scenario | what | beside |
//! |---|---|---|
//! | [`servers`] | whole servers, under a memory cgroup: latency, hits, faults, restarts | varnish, nginx, traffic server, squid |
//! | [`stores`] | the store as a library, fed traces at equal bytes | foyer, segcache (feature `peers`) |
//! | [`cold`] | cold hits in one process | the disk itself |
//! | [`resident`] | a hit in memory | an unchecked read of memory |
//! | [`start_again`] | ten million objects, started again | – |
//!
//! ```text
//!   memory cgroup, core 0: the server          core 1: origin (bodies from the URL) and the load
//!   ours kernel · ours direct · varnish ·  ◄── rounds of phases ── workers, each answer verified in full
//!   nginx · trafficserver · squid          ── misses ─►  origin (counts)
//! ```
//!
//! Every server gets the same memory limit, the same bytes of store on the same file system, the same objects
//! ([`lab::pressure`]) and the same requests at the same due times; latency counts from when a request was due. What
//! is asked for by the thousand most popular objects is called *hot*; its latency with and without pressure is the
//! figure.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a bench reads clocks and waits for processes; nothing here runs on a loop"
)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "talks to the person who started it")]

mod accounting;
mod cold;
mod contenders;
mod figures;
mod load;
mod metrics;
mod origin;
mod raw;
mod report;
mod resident;
mod row;
mod run;
mod servers;
mod start_again;
mod stores;
mod threads;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, ValueEnum};

/// Compares stores that are much larger than their memory.
#[derive(Debug, Clone, Parser)]
#[command(name = "bench-pressure")]
pub(crate) struct Options {
    /// Memory that a server may use, all in all, in MiB. The store is 19 times as large.
    #[arg(long, default_value_t = 128)]
    memory_mib: u64,
    /// Objects that are asked for by popularity; by default as many as fill nine tenths of the store.
    #[arg(long)]
    objects: Option<u64>,
    /// Requests a second in the phases with due times.
    #[arg(long, default_value_t = 3_000)]
    rate: u64,
    /// Seconds of each phase.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Rounds of phases; fewer than three say nothing.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Connections of the load.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Only these servers (ours-kernel, ours-direct, varnish, nginx, trafficserver, squid).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these scenarios.
    #[arg(long, value_enum, value_delimiter = ',')]
    scenario: Vec<Scenario>,
    /// Memory of each store of the scenario `stores`, in MiB; a file is 19 times as large.
    #[arg(long)]
    stores_memory_mib: Option<u64>,
    /// Objects of the scenario `start`.
    #[arg(long)]
    start_objects: Option<u64>,
    /// Where the stores lie: a directory on a disk.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Where the record goes.
    #[arg(long, default_value = "target/bench")]
    records: PathBuf,
    /// Half a minute, 2,000 objects: shows that everything works, and measures nothing.
    #[arg(long)]
    quick: bool,
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scenario {
    /// Whole servers.
    Servers,
    /// The store as a library.
    Stores,
    /// Cold hits against the disk itself.
    Cold,
    /// Hits in memory against an unchecked read.
    Resident,
    /// Starts with ten million objects.
    Start,
}

fn main() -> ExitCode {
    // A measurement that is to have a process of its own is this program again.
    stores::do_task();
    cold::do_task();
    start_again::do_task();
    match run::run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-pressure: {error}");
            ExitCode::FAILURE
        }
    }
}
