//! `bench run feed`: the cost of a relayed message in Nighttrain, four other servers and the floor, in one
//! run.
//!
//! ```text
//!   core 0: the server being measured (all are running, one is busy)     core 1: this process, one thread
//!   relay · [reference] · ours · nats-server · nats-server of Debian ·  ◀── producer: encoded ahead, stamped
//!   redis · mosquitto                                                   ──▶ consumers: verify every message
//! ```
//!
//! The figure is CPU time of the server's process tree per delivery ([`lab::paired`]). Every consumer
//! verifies every message by sequence and checksum, and a run with a missing or wrong message is rejected. As
//! root, everything happens in a separate network, process and mount namespace, so that the congestion
//! control can be pinned and nothing is left behind.

mod asking;
mod crowd;
mod figures;
mod hub;
mod latency;
mod run;
mod scenarios;

use std::process::ExitCode;

use clap::Args;
use lab::peers::feed::contenders::Contender;

use crate::part::{Contents, Entry, round_seconds};
use crate::selection::{self, Selection};

/// Options of this part.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    selection: Selection,
    /// Milliseconds of a round, for each contender
    #[arg(long)]
    milliseconds: Option<u64>,
}

/// Seconds per round for connecting the clients, in addition to the measured time.
const BESIDE_S: f64 = 0.1;

pub(crate) fn contents(quick: bool) -> Contents {
    let selection = Selection { quick, ..Selection::default() };
    let entry = |scenario: &scenarios::Scenario| {
        let contenders = Contender::ALL
            .into_iter()
            .filter(|one| scenario.is_for(*one) && !matches!(one, Contender::Reference | Contender::Other))
            .count();
        let rounds = selection.pairs(scenario.rounds);
        let seconds = round_seconds(rounds, contenders, scenario.run.as_secs_f64(), BESIDE_S);
        Entry { name: scenario.name.into(), what: scenario.what(), seconds }
    };
    let other = |(name, what): (&str, &str)| Entry {
        name: name.into(),
        what: what.into(),
        seconds: if quick { 5 } else { 60 },
    };
    let mut all: Vec<Entry> = scenarios::all(quick).iter().map(entry).collect();
    all.extend(scenarios::OTHERS.map(other));
    Contents { scenarios: all, contenders: Contender::ALL.map(Contender::name).into(), start_s: 10 }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    selection::run_apart("feed", |remarks| run::run(options, remarks))
}
