//! Bounds on the instruments themselves: a figure is only as good as the instrument that measured it.
//!
//! - the raw loop compared with the same loop in C, alternately: its median within 5%, its 99th percentile within 10%;
//! - the generator on one core: 200,000 echoes and 100,000 HTTP requests per second, with its own lateness;
//! - recording a sample: 25 ns, and no allocation.

use std::{
    hint::black_box,
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use ::allocations::Allocations;
use serde::Serialize;

use super::{WaitFigures, limit::LimitFigures, peers};
use crate::{
    latency::{Latencies, LatencyOrigin, Percentiles, readable},
    load::{self, Plan, Target},
    paired::spread::{Draws, Ratio, median},
    placement::within,
    report::{Table, grouped},
};

/// Maximum time to record a sample, including both of its latencies.
const RECORDING_NS_MAX: f64 = 25.0;
/// Percentiles of the loop that are compared with those of the same loop in C: name, position in both
/// records, bound on the ratio.
const BESIDE: [(&str, Pick, usize, f64); 2] =
    [("median", |all| all.p50, 0, 1.05), ("99th percentile", |all| all.p99, 2, 1.10)];
type Pick = fn(&Percentiles) -> u64;
/// Fraction of a rate that must be reached.
const REACHED_MIN: f64 = 0.98;
/// Number of distinct samples, which repeat; they fit into a cache together with the histograms.
const SAMPLES: usize = 4_096;
/// Samples per round; the least disturbed round counts.
const ROUND: usize = 20_000;

/// Cost of recording a sample.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct RecordingCost {
    /// Minimum over the rounds.
    pub(super) ns: f64,
    /// Allocations over all rounds; `None` if the program does not count them.
    pub(super) allocations: Option<u64>,
}

/// Kind of load that the generator sends, and its server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// Name for reports.
    pub(super) name: &'static str,
    rate: f64,
    connections: usize,
    peer: fn(usize) -> io::Result<SocketAddr>,
    target: fn(SocketAddr) -> Option<Target>,
}

/// Rates that the generator must reach.
pub(super) const KINDS: [Kind; 2] = [
    Kind {
        name: "1-byte echoes",
        rate: 200e3,
        connections: 1,
        peer: peers::echo,
        target: |address| Some(Target::echo(address, 1)),
    },
    Kind {
        name: "HTTP requests",
        rate: 100e3,
        connections: 32,
        peer: peers::http,
        target: |address| Target::parse(&format!("http://{address}/"), 1, true).ok(),
    },
];

/// Figures of the generator at one of the rates in [`KINDS`].
#[derive(Debug, Clone, Serialize)]
pub(super) struct GeneratorFigures {
    name: &'static str,
    asked_per_s: f64,
    reached_per_s: f64,
    /// Delay of each request beyond the earliest time at which it could have been sent.
    lateness: Percentiles,
    /// Number of times that the generator's thread was preempted.
    preempted: u64,
}

/// Records `samples` heavy-tailed samples, like those of a run, and measures the cost.
pub(super) fn recording(samples: usize) -> RecordingCost {
    let mut draws = Draws::new(17);
    let times: Vec<(u64, u64, u64)> = (0..SAMPLES as u64)
        .map(|at| {
            let due = at * 10_000;
            let sent = due + (100.0 / (draws.unit() + 1e-4)) as u64;
            (due, sent, sent + 5_000 + draws.below(20_000) as u64)
        })
        .collect();
    let mut latencies = Latencies::new();
    let mut counter = Allocations::new().ok();
    let mark = |counter: &mut Option<Allocations>| {
        counter.as_mut().and_then(|counter| counter.mark().ok()).map(|counts| counts.allocations)
    };
    mark(&mut counter);
    let mut least = f64::INFINITY;
    for _ in 0..samples.div_ceil(ROUND) {
        let start = Instant::now();
        for (due, sent, answered) in times.iter().cycle().take(ROUND) {
            latencies.record(*due, *sent, *answered);
        }
        least = least.min(start.elapsed().as_nanos() as f64 / ROUND as f64);
    }
    let allocations = mark(&mut counter);
    black_box(&latencies);
    RecordingCost { ns: least, allocations }
}

/// Runs the generator on the second of `cores`, with its peer on the first.
pub(super) fn sending(kind: Kind, cores: (usize, usize), duration: Duration) -> io::Result<GeneratorFigures> {
    let address = (kind.peer)(cores.0)?;
    let target = (kind.target)(address).ok_or_else(|| io::Error::other("no such target"))?;
    let plan = Plan {
        rate: kind.rate,
        connections: kind.connections,
        warm_up: Duration::from_millis(200),
        duration,
        drain: Duration::from_millis(200),
        ..Plan::default()
    };
    let outcome = within(&[cores.1], || load::run(&target, &plan))?.map_err(io::Error::other)?;
    Ok(GeneratorFigures {
        name: kind.name,
        asked_per_s: outcome.offered,
        reached_per_s: outcome.achieved,
        lateness: outcome.lateness.percentiles(LatencyOrigin::Due),
        preempted: outcome.preempted,
    })
}

/// Builds the table of the bounds, the measured figures, and whether each bound was met.
pub(super) fn table(found: &WaitFigures) -> Table {
    let mut table = Table::new(
        "The instruments, held to their own bounds",
        &[("what", ""), ("bound", ""), ("here", ""), ("kept", "")],
    );
    for (name, ours, theirs, bound) in BESIDE {
        if let Some((_, _, ratio)) = beside(&found.beside, ours, theirs) {
            table.row([
                format!("the loop's {name}, beside C's"),
                format!("{bound:.2}×"),
                format!("{:.3}× ({:.3} to {:.3})", ratio.median, ratio.low, ratio.high),
                within_bound(&ratio, bound).to_owned(),
            ]);
        }
    }
    let RecordingCost { ns, allocations } = found.recording;
    table.row([
        "recording a sample".to_owned(),
        format!("{RECORDING_NS_MAX} ns"),
        format!("{ns:.1} ns"),
        kept(ns <= RECORDING_NS_MAX).to_owned(),
    ]);
    if let Some(allocations) = allocations {
        let row = ["allocations in recording".to_owned(), "0".to_owned(), allocations.to_string()];
        table.row(row.into_iter().chain([kept(allocations == 0).to_owned()]));
    }
    for one in &found.sending {
        table.row([
            format!("the generator: {} on one core", one.name),
            format!("{}/s", grouped(one.asked_per_s as u64)),
            format!("{}/s", grouped(one.reached_per_s.round() as u64)),
            kept(one.reached_per_s >= REACHED_MIN * one.asked_per_s).to_owned(),
        ]);
    }
    table
}

/// Returns notes for the table: the figures behind the ratios, and the lateness of the generator itself.
pub(super) fn notes(found: &WaitFigures) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, ours, theirs, _) in BESIDE {
        if let Some((ours, limit, ratio)) = beside(&found.beside, ours, theirs) {
            notes.push(format!(
                "Beside the same loop in C at {} k/s, {} rounds in turns: {name} {} against {}.",
                found.beside_rate / 1e3,
                ratio.rounds,
                readable(ours as u64),
                readable(limit as u64)
            ));
        }
    }
    for one in &found.sending {
        notes.push(format!(
            "The generator's own lateness with {}: {} median, {} at 99%, {} at worst; it was put off its core {} times.",
            one.name,
            readable(one.lateness.p50),
            readable(one.lateness.p99),
            readable(one.lateness.worst),
            one.preempted
        ));
    }
    notes
}

const fn kept(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

/// Maximum relative width of an interval; a wider one describes the machine rather than the loop.
const NOISE_MAX: f64 = 1.5;

fn within_bound(ratio: &Ratio, bound: f64) -> &'static str {
    if ratio.high <= bound {
        "yes"
    } else if ratio.high > NOISE_MAX * ratio.low {
        "too noisy to say"
    } else if ratio.low > bound {
        "no"
    } else {
        "too noisy to say"
    }
}

/// Returns the medians over the rounds of our loop and of the C loop, and the ratio of the paired rounds.
fn beside(rounds: &[(LimitFigures, Percentiles)], ours: Pick, theirs: usize) -> Option<(f64, f64, Ratio)> {
    let (mine, limit): (Vec<_>, Vec<_>) =
        rounds.iter().map(|(c, all)| (Some(ours(all) as f64), Some(c.corrected[theirs]))).unzip();
    let middle = |series: &[Option<f64>]| median(&series.iter().flatten().copied().collect::<Vec<_>>());
    Some((middle(&mine)?, middle(&limit)?, Ratio::paired(&mine, &limit)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::allowed;

    fn rounds(ratio: f64) -> Vec<(LimitFigures, Percentiles)> {
        let limit = LimitFigures { corrected: [10_000.0; 4], uncorrected: [0.0; 4], achieved: 0.0 };
        let ours = (10_000.0 * ratio) as u64;
        vec![(limit, Percentiles { p50: ours, p99: ours, ..Percentiles::default() }); 5]
    }

    #[test]
    fn an_excess_over_the_bound_is_reported() {
        for (planted, verdict) in [(1.0, "yes"), (1.04, "yes"), (0.5, "yes"), (1.2, "no")] {
            let (_, _, ratio) = beside(&rounds(planted), |all| all.p50, 0).unwrap();
            assert_eq!(within_bound(&ratio, 1.05), verdict, "{planted}");
        }
        let unsure = Ratio { median: 1.04, low: 0.9, high: 1.2, rounds: 5 };
        assert_eq!(within_bound(&unsure, 1.05), "too noisy to say");
        let disturbed = Ratio { median: 1.35, low: 1.08, high: 318.0, rounds: 5 };
        assert_eq!(within_bound(&disturbed, 1.05), "too noisy to say");
    }

    #[test]
    fn both_request_kinds_are_sent_and_answered() {
        let cores = allowed().unwrap();
        let cores = (cores[0], cores[cores.len() - 1]);
        for kind in KINDS {
            // Any machine reaches this rate: the test is that everything is counted.
            let kind = Kind { rate: 500.0, ..kind };
            let sent = sending(kind, cores, Duration::from_secs(1)).unwrap();
            // The warm-up lasts a fifth of a second, and requests that it leaves behind count.
            assert!(sent.reached_per_s > 0.0 && sent.reached_per_s <= 601.0, "{sent:?}");
            assert_eq!(sent.asked_per_s, 500.0);
        }
    }

    #[test]
    fn recording_cost_is_finite_and_positive() {
        let recording = recording(ROUND);
        assert!(recording.ns.is_finite() && recording.ns > 0.0);
    }
}
