//! `make bench-cache`: what a cache hit costs, ours beside five others and the kernel's floor, in one sitting; and what
//! goes through to the origin (misses, passes, uploads), beside three of them.
//!
//! ```text
//!   core 0: the server being measured (all are running, one is busy)      core 1: wrk, and this process:
//!   limit · [reference] · ours · varnish · nginx · haproxy ·  ◄── hits ──   wrk (one load for all)
//!   trafficserver · squid                                    ── misses ─►   origin (counts what gets through)
//! ```
//!
//! Every contender is started from a temporary directory on a loopback port, filled with the same objects, checked
//! byte for byte while filling, and then measured in interleaved rounds ([`lab::paired`]). The figure is CPU time
//! of the server's process tree per hit; a run in which more than 0.1% of the answers came from the origin is
//! marked and carries no verdict. Where every request is to go through, so is a run in which 0.1% did not; there the
//! time that a request took is a figure beside its CPU. As root, everything happens in a network, process and mount namespace of its
//! own, so that the congestion control can be pinned and nothing is left behind.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a bench reads clocks and waits for processes; nothing here runs on a loop"
)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "talks to the person who started it")]

mod figures;
mod run;
mod scenarios;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use lab::paired::apart;
use lab::peers::PeerError;
use lab::peers::cache::contenders::Contender;

/// Compares what a cache hit costs: ours, five peers, and the limit; and a miss, a pass, an upload beside three.
#[derive(Debug, Clone, Parser)]
#[command(name = "bench-cache")]
pub(crate) struct Options {
    /// A minute in all: few URLs, one round of one second, no verdicts; shows that everything works.
    #[arg(long)]
    quick: bool,
    /// Only these contenders (see --list).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these scenarios (see --list).
    #[arg(long, value_delimiter = ',')]
    scenario: Vec<String>,
    /// Rounds in every scenario, instead of its own number.
    #[arg(long)]
    rounds: Option<usize>,
    /// Seconds a round and contender.
    #[arg(long)]
    seconds: Option<u64>,
    /// Where the record goes; by default bench/records, for --quick target/bench.
    #[arg(long)]
    records: Option<PathBuf>,
    /// Names the scenarios and contenders, and ends.
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.list {
        for scenario in scenarios::all(options.quick) {
            println!("{:<12} {}", scenario.name, scenario.what());
        }
        println!("contenders: {}", Contender::ALL.map(Contender::name).join(", "));
        return ExitCode::SUCCESS;
    }
    match apart::enter() {
        Ok(apart::Entered::Done(code)) => code,
        Ok(apart::Entered::Here { remarks }) => report(run::run(&options, remarks)),
        Err(error) => report(Err(error.into())),
    }
}

fn report(outcome: Result<bool, PeerError>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench-cache: {error}");
            ExitCode::FAILURE
        }
    }
}
