//! `bench run cache`: the cost of a cache hit in Nighttrain, five other servers and the kernel's floor; and
//! of misses, passes and uploads in Nighttrain and three of the servers.
//!
//! ```text
//!   core 0: the server being measured (all are running, one is busy)      core 1: wrk, and this process:
//!   limit · [reference] · ours · varnish · nginx · haproxy ·  ◄── hits ──   wrk (one load for all)
//!   trafficserver · squid                                    ── misses ─►   origin (counts what gets through)
//! ```
//!
//! Every contender is started from a temporary directory on a loopback port, filled with the same objects,
//! checked byte for byte while filling, and then measured in interleaved rounds ([`lab::paired`]). The figure
//! is CPU time of the server's process tree per hit. A run in which more than 0.1% of the answers came from
//! the origin is marked as doubtful and carries no verdict. Where every request must reach the origin, a run
//! is doubtful if more than 0.1% did not; there the latency of a request is a figure as well as its CPU time.
//! As root, everything happens in a separate network, process and mount namespace, so that the congestion
//! control can be pinned and nothing is left behind.

mod crowd;
mod figures;
mod run;
mod scenarios;
pub(crate) mod session;

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
    /// Seconds of a round, for each contender
    #[arg(long)]
    seconds: Option<u64>,
}

/// Seconds per round for warming up and starting the load, in addition to the measured time.
const BESIDE_S: f64 = 0.15;

pub(crate) fn contents(quick: bool) -> Contents {
    let selection = Selection { quick, ..Selection::default() };
    let entry = |scenario: &scenarios::Scenario| {
        let contenders = match scenario.sides {
            scenarios::Sides::Apart => {
                Contender::ALL.into_iter().filter(|one| scenario.is_for(*one) && !is_extra(*one)).count()
            }
            scenarios::Sides::OneAndTwo => 3,
        };
        let rounds = selection.pairs(scenario.rounds);
        let seconds = round_seconds(rounds, contenders, run::seconds(quick) as f64, BESIDE_S);
        Entry { name: scenario.name.into(), what: scenario.what(), seconds }
    };
    Contents {
        scenarios: scenarios::all(quick).iter().map(entry).collect(),
        contenders: Contender::ALL.map(Contender::name).into(),
        start_s: if quick { 20 } else { 180 },
    }
}

/// Returns whether a contender takes part only if the environment names its build.
pub(crate) const fn is_extra(contender: Contender) -> bool {
    matches!(contender, Contender::Reference | Contender::ReferenceStreams | Contender::Other)
}

pub(crate) fn run(options: &Options) -> ExitCode {
    selection::run_apart("cache", |remarks| run::run(options, remarks))
}
