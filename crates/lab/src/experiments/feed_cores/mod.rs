//! `feed-cores`: producer, server, consumer; the server on one core, on two, on all, and unpinned (C10).
//!
//! ```text
//!   load: anywhere ──100 bytes, numbered──▶ server: tied to 1, 2, … cores, or not ──▶ load: verifies every message
//! ```
//! The load is never pinned, so that two figures differ only in the server's placement. One server for each
//! placement runs all the time; they are loaded alternately, one at a time.

mod verdicts;

use std::{net::Ipv4Addr, path::PathBuf, time::Duration};

use super::servers::{all_cores, needed};
use crate::{
    cores::{Placement, placements},
    experiment::{Experiment, Options, Refusal, Report},
    paired::{
        Sample, Series, interleave, measure,
        tree::{Cores, Tree},
    },
    peers::{
        PeerError,
        feed::{
            contenders::{self, Contender, ServerProcess},
            drive::{Load, driven},
        },
    },
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "feed-cores",
    claims: &["C10"],
    title: "passing messages on: the server on one core, on two, on all",
    statement: "Producer, server, consumer, 100-byte messages, numbered and verified: 120 k/s where the system places \
                the server's threads, 270 k/s on six cores, 530 k/s on two, 790 k/s on one",
    source: "P. Tyma, How I sped up my server by a factor of 6, June 2010",
    run,
};

/// Number of independent flows in the runs with more than one flow.
const PAIRS: usize = 16;

/// Sizes of the measurement.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    rounds: usize,
    duration: Duration,
}

impl Sizes {
    const fn of(quick: bool) -> Self {
        if quick {
            Self { rounds: 3, duration: Duration::from_millis(150) }
        } else {
            Self { rounds: 9, duration: Duration::from_secs(1) }
        }
    }
}

/// Figures of one server under every placement, with one flow or with many.
#[derive(Debug, Clone, serde::Serialize)]
struct Graph {
    server: &'static str,
    flows: usize,
    placements: Vec<Placement>,
    /// Series in the order of the placements.
    series: Vec<Series>,
}

fn run(options: &Options) -> Result<Report, Refusal> {
    let ours = needed(Contender::Ours.program())?;
    let mut programs = vec![(Contender::Ours, ours)];
    let mut remarks = Vec::new();
    let peers = [Contender::Nats, Contender::NatsOfDebian];
    match peers.iter().find_map(|peer| Some((*peer, peer.program().ok()?))) {
        Some(peer) => programs.push(peer),
        None => remarks.extend(Contender::Nats.program().err()),
    }
    let graphs = measured(&programs, &Sizes::of(options.quick), &|what| options.say(what))?;
    let mut report = verdicts::report(&graphs);
    for remark in remarks {
        report.note(remark);
    }
    Ok(report)
}

fn measured(
    programs: &[(Contender, PathBuf)],
    sizes: &Sizes,
    say: &dyn Fn(&str),
) -> Result<Vec<Graph>, Refusal> {
    let directory = super::servers::directory()?;
    let placements = placements().map_err(|error| Refusal::Failed(error.to_string()))?;
    let mut seats: Vec<(String, ServerProcess)> = Vec::new();
    for (contender, program) in programs {
        for placement in &placements {
            let name = format!("{}, {}", contender.name(), placement.name);
            say(&format!("starting {name}"));
            let cores = Cores::new(placement.cores.clone())
                .ok_or_else(|| Refusal::Failed("a placement on no core".to_owned()))?;
            let place = (Ipv4Addr::LOCALHOST, &cores);
            let slug = name.replace([' ', ','], "-");
            seats.push((name, contenders::start(*contender, &slug, program, directory.path(), place, None)?));
        }
    }
    let threads = all_cores()?.count();
    let mut graphs = Vec::new();
    for load in [Load::one(sizes.duration), Load::many(PAIRS, threads, sizes.duration)] {
        let mut series = interleave(&seats, sizes.rounds, |server, round| {
            let of = sizes.rounds;
            say(&format!("{} flows, round {} of {of}: {}", load.shape.flows, round + 1, server.name));
            Ok::<_, Refusal>(sample(&server.tree, server, &load))
        })?
        .into_iter();
        for (contender, _) in programs {
            graphs.push(Graph {
                server: contender.name(),
                flows: load.shape.flows,
                placements: placements.clone(),
                series: series.by_ref().take(placements.len()).collect(),
            });
        }
    }
    Ok(graphs)
}

/// Measures one round. If the server dies or loses a message, the sample is empty and states the reason.
fn sample(tree: &Tree, server: &ServerProcess, load: &Load) -> Sample {
    measure(tree, &server.cores, || driven(server.contender.wire(), server.address, load))
        .unwrap_or_else(|error: PeerError| Sample::nothing(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_program_it_cannot_be_tested() {
        // The tests of this crate run from a directory without a `nighttrain` program.
        if Contender::Ours.program().is_err() {
            let refused = run(&Options { quick: true, ..Options::default() }).unwrap_err();
            assert!(matches!(refused, Refusal::Missing(why) if why.contains("cargo build")));
        }
    }
}
