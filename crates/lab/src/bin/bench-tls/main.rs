//! `make bench-tls`: what a site's edge costs, ours beside three others, in one sitting: hits under TLS and over HTTP/2,
//! handshakes, connections that rest.
//!
//! ```text
//!   core 0: the server being measured (all are running, one is busy)      core 1: wrk, h2load, `lab load`, or a client of
//!   limit-h2 · [reference] · ours · nginx · haproxy ·  ◄── hits ──          our own that shakes hands, one at a time
//!   hitch + varnish                                     ── misses ─►        origin (counts what gets through)
//! ```
//!
//! As in `bench-cache`, whose servers, origin and rounds these are ([`lab::paired`], [`lab::peers::cache`]): the figure is CPU
//! time of the server's process tree a unit. Everybody shows the same certificates, and speaks TLS 1.3 with one cipher and one
//! group; what else is set is what each one's documentation recommends (`bench/peers/`).
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a bench reads clocks and waits for processes; nothing here runs on a loop"
)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "talks to the person who started it")]

mod figures;
mod idle;
mod run;
mod scenarios;

use std::process::ExitCode;

use clap::Parser;
use lab::paired::chosen::{self, Chosen};
use lab::peers::cache::contenders::Contender;

/// Compares what TLS and HTTP/2 cost: ours, nginx, haproxy, Hitch with Varnish, and the limit.
#[derive(Debug, Clone, Parser)]
#[command(name = "bench-tls")]
pub(crate) struct Options {
    #[command(flatten)]
    chosen: Chosen,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.chosen.list {
        for scenario in scenarios::all(options.chosen.quick) {
            println!("{:<14} {}", scenario.name, scenario.what());
        }
        println!("contenders: {}", Contender::EDGE.map(Contender::name).join(", "));
        return ExitCode::SUCCESS;
    }
    chosen::run("bench-tls", |remarks| run::run(&options, remarks))
}
