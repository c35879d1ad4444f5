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

use std::process::ExitCode;

use clap::Parser;
use lab::paired::chosen::{self, Chosen};
use lab::peers::cache::contenders::Contender;

/// Compares what a cache hit costs: ours, five peers, and the limit; and a miss, a pass, an upload beside three.
#[derive(Debug, Clone, Parser)]
#[command(name = "bench-cache")]
pub(crate) struct Options {
    #[command(flatten)]
    chosen: Chosen,
    /// Seconds a round and contender.
    #[arg(long)]
    seconds: Option<u64>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.chosen.list {
        for scenario in scenarios::all(options.chosen.quick) {
            println!("{:<12} {}", scenario.name, scenario.what());
        }
        println!("contenders: {}", Contender::ALL.map(Contender::name).join(", "));
        return ExitCode::SUCCESS;
    }
    chosen::run("bench-cache", |remarks| run::run(&options, remarks))
}
