//! `make bench-feed`: what a relayed message costs, ours beside four others and the floor, in one sitting.
//!
//! ```text
//!   core 0: the server being measured (all are running, one is busy)     core 1: this process, one thread
//!   relay · [reference] · ours · nats-server · nats-server of Debian ·  ◀── producer: encoded ahead, stamped
//!   redis · mosquitto                                                   ──▶ consumers: verify every message
//! ```
//!
//! The figure is CPU time of the server's process tree per delivery ([`lab::paired`]); every message is verified by
//! sequence and checksum at every consumer, and a run in which one is missing or wrong is no sample. As root,
//! everything happens in a network, process and mount namespace of its own, so that the congestion control can be
//! pinned and nothing is left behind.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a bench reads clocks and waits for processes; nothing here runs on a loop"
)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "talks to the person who started it")]

mod crowd;
mod figures;
mod latency;
mod run;
mod scenarios;

use std::process::ExitCode;

use clap::Parser;
use lab::paired::chosen::{self, Chosen};
use lab::peers::feed::contenders::Contender;

/// Compares what a relayed message costs: ours, four peers, and the floor.
#[derive(Debug, Clone, Parser)]
#[command(name = "bench-feed")]
pub(crate) struct Options {
    #[command(flatten)]
    chosen: Chosen,
    /// Milliseconds a round and contender.
    #[arg(long)]
    milliseconds: Option<u64>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.chosen.list {
        for scenario in scenarios::all(options.chosen.quick) {
            println!("{:<12} {}", scenario.name, scenario.what());
        }
        for (name, what) in scenarios::OTHERS {
            println!("{name:<12} {what}");
        }
        println!("contenders: {}", Contender::ALL.map(Contender::name).join(", "));
        return ExitCode::SUCCESS;
    }
    chosen::run("bench-feed", |remarks| run::run(&options, remarks))
}
