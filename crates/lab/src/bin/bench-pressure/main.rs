//! `make bench-pressure`: a store 19 times larger than its memory, ours beside four others, in one sitting.
//!
//! ```text
//!   memory cgroup, core 0: the server          core 1: origin (bodies from the URL) and the load
//!   ours kernel · ours direct · varnish ·  ◄── fill · calm · pressure · cold · inserts ── workers, each answer
//!   nginx · trafficserver · squid          ── misses ─►  origin (counts)                   verified in full
//! ```
//!
//! Every contender gets the same memory limit, the same bytes of store on the same file system, the same objects
//! ([`lab::pressure`]) and the same requests at the same due times; latency counts from when a request was due. What
//! is asked for by the thousand most popular objects is called *hot*; its latency with and without pressure is the
//! figure. Beside the servers stands the disk itself: random reads of the same sizes by as many threads.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a bench reads clocks and waits for processes; nothing here runs on a loop"
)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "talks to the person who started it")]

mod contenders;
mod load;
mod origin;
mod raw;
mod report;
mod run;
mod threads;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// Compares stores that are much larger than their memory.
#[derive(Debug, Clone, Parser)]
#[command(name = "bench-pressure")]
pub(crate) struct Options {
    /// Memory that a server may use, all in all, in MiB. The store is 19 times as large.
    #[arg(long, default_value_t = 96)]
    memory_mib: u64,
    /// Objects that are asked for by popularity; by default as many as fill nine tenths of the store.
    #[arg(long)]
    objects: Option<u64>,
    /// Requests a second in the phases with due times.
    #[arg(long, default_value_t = 3_000)]
    rate: u64,
    /// Seconds of each phase.
    #[arg(long, default_value_t = 6.0)]
    seconds: f64,
    /// Connections of the load.
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// Only these contenders (disk, ours-kernel, ours-direct, varnish, nginx, trafficserver, squid).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
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

/// What ends a run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Tree(#[from] lab::paired::tree::TreeError),
    /// Said in full already.
    #[error("{0}")]
    Failed(String),
}

impl BenchError {
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self::Failed(what.into())
    }
}

fn main() -> ExitCode {
    match run::run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-pressure: {error}");
            ExitCode::FAILURE
        }
    }
}
