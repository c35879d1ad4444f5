//! `bench run tls`: the cost of TLS and HTTP/2 in Nighttrain and three other servers: hits, handshakes, idle
//! connections.
//!
//! ```text
//!   core 0: the server being measured (all are running, one is busy)      core 1: wrk, h2load, `lab load`, or a client of
//!   limit-h2 · [reference] · ours · nginx · haproxy ·  ◄── hits ──          our own that shakes hands, one at a time
//!   hitch + varnish                                     ── misses ─►        origin (counts what gets through)
//! ```
//!
//! Servers, origin and rounds are those of the part `cache` ([`lab::paired`], [`lab::peers::cache`]): the
//! figure is CPU time of the server's process tree per unit. All servers present the same certificates and
//! speak TLS 1.3 with one cipher and one group; all other settings follow each server's documentation
//! (`bench/peers/`).

mod figures;
mod handshakes;
mod idle;
mod run;
mod scenarios;
mod streams;

use std::process::ExitCode;

use clap::Args;
use lab::peers::cache::contenders::Contender;

use crate::part::{Contents, Entry, round_seconds};
use crate::selection::{self, Selection};

/// Options of this part.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    selection: Selection,
}

/// Seconds of a round in a full and in a quick run, and seconds per round for warming up and starting the
/// load.
const ROUND_S: f64 = 0.9;
const ROUND_QUICK_S: f64 = 0.1;
const BESIDE_S: f64 = 0.1;

pub(crate) fn contents(quick: bool) -> Contents {
    let selection = Selection { quick, ..Selection::default() };
    let entry = |scenario: &scenarios::Scenario| {
        let contenders = Contender::EDGE
            .into_iter()
            .filter(|one| scenario.is_for(*one) && !crate::cache::is_extra(*one))
            .count();
        let seconds = match (scenario.way, quick) {
            (scenarios::Way::Idle, true) => 10,
            (scenarios::Way::Idle, false) => 120,
            (_, true) => round_seconds(selection.pairs(scenario.rounds), contenders, ROUND_QUICK_S, BESIDE_S),
            (_, false) => round_seconds(scenario.rounds, contenders, ROUND_S, BESIDE_S),
        };
        Entry { name: scenario.name.clone(), what: scenario.what(), seconds }
    };
    Contents {
        scenarios: scenarios::all(quick).iter().map(entry).collect(),
        contenders: Contender::EDGE.map(Contender::name).into(),
        start_s: 10,
    }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    selection::run_apart("tls", |remarks| run::run(options, remarks))
}
