//! `loopback-latency`: a round trip of one byte at rising rates, with and without the wait for sending
//! (C17–C19).
//!
//! [`raw`] is the loop, `limit` is the same loop in C, `servers` finds the knee of our three servers,
//! `instruments` checks loop, generator and recorder against their own bounds, `verdicts` has the
//! conclusions.

mod instruments;
mod limit;
mod peers;
pub mod raw;
mod servers;
mod verdicts;

use std::time::Duration;

use instruments::{GeneratorFigures, RecordingCost};
use limit::{Limit, LimitFigures};
use raw::{Round, Run, Wait};
use serde::Serialize;

use crate::{
    experiment::{Experiment, Options, Refusal, Report},
    latency::{Latencies, LatencyOrigin, Percentiles},
    placement::allowed,
};

/// The experiment.
pub const EXPERIMENT: Experiment = Experiment {
    name: "loopback-latency",
    claims: &["C17", "C18", "C19"],
    title: "latency at rising rates, with and without coordinated omission",
    statement: "One byte over loopback TCP and back: a server holds 100 k/s at 6.6 µs median and 317 µs worst and \
                breaks down at 140 k/s; leaving out the wait shows 23.3 µs median at 80 k/s instead of 6.0 s; the \
                sustainable rate is about the inverse of the service time",
    source: "The Effect of Coordinated Omission, 2 July 2015",
    run,
};

/// Sizes of the measurement.
#[derive(Debug, Clone)]
struct Sizes {
    rates: Vec<f64>,
    rounds: usize,
    duration: Duration,
    /// Number of rounds that are paired with a round of the C program.
    pairs: usize,
    /// Number of samples recorded to measure the cost of recording.
    samples: usize,
}

impl Sizes {
    fn of(quick: bool) -> Self {
        let thousands = |rates: &[u32]| rates.iter().map(|rate| f64::from(*rate) * 1e3).collect();
        if quick {
            let rates = thousands(&[10, 20, 40, 60, 80, 100, 140, 200]);
            Self { rates, rounds: 2, duration: Duration::from_millis(250), pairs: 5, samples: 300_000 }
        } else {
            let rates = thousands(&[10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 140, 160, 180, 200]);
            Self { rates, rounds: 5, duration: Duration::from_secs(1), pairs: 15, samples: 3_000_000 }
        }
    }
}

/// Figures of one rate, over its rounds.
#[derive(Debug, Clone, Serialize)]
struct RateFigures {
    offered: f64,
    /// Achieved rate of the chosen round, in messages per second.
    achieved: f64,
    corrected: Percentiles,
    uncorrected: Percentiles,
    #[serde(skip)]
    latencies: Latencies,
}

impl RateFigures {
    /// Returns whether the loop kept up with the rate.
    fn holds(&self) -> bool {
        self.achieved >= 0.98 * self.offered
    }
}

/// A loop that sends the next byte as soon as the previous one is back.
#[derive(Debug, Clone, Serialize)]
struct ClosedLoop {
    wait: Wait,
    cores: usize,
    /// Messages per second of the best round.
    per_s: f64,
    p50_ns: u64,
}

/// Measurements of the run.
#[derive(Debug, Clone, Serialize)]
struct WaitFigures {
    wait: Wait,
    cores: usize,
    rates: Vec<RateFigures>,
    closed: Vec<ClosedLoop>,
    /// Mean time of a message in the closed loop with the same waiting method, in nanoseconds.
    service_ns: f64,
    /// Pairs of rounds at the same rate: one of the C program and one of our loop, measured alternately.
    beside: Vec<(LimitFigures, Percentiles)>,
    beside_rate: f64,
    no_limit: Option<String>,
    /// Knees of our three servers.
    servers: Vec<servers::Knee>,
    no_servers: Option<String>,
    recording: RecordingCost,
    /// Figures of the generator on a core of its own; empty if there is only one core.
    sending: Vec<GeneratorFigures>,
}

fn run(options: &Options) -> Result<Report, Refusal> {
    let found = measured(&Sizes::of(options.quick), &|what| options.say(what))
        .map_err(|error| Refusal::Failed(error.to_string()))?;
    Ok(verdicts::report(&found))
}

fn measured(sizes: &Sizes, say: &dyn Fn(&str)) -> std::io::Result<WaitFigures> {
    let allowed = allowed()?;
    let (first, last) = (allowed[0], allowed[allowed.len() - 1]);
    let cores = (first, last);
    // Two polling threads on one core would only prevent each other from running.
    let wait = if first == last { Wait::Block } else { Wait::Busy };

    say("closed loops");
    let mut closed = Vec::new();
    for wait in [Wait::Busy, Wait::Epoll, Wait::Block] {
        for cores in [(first, last), (first, first)] {
            let one_core = cores.0 == cores.1;
            let again = one_core && first == last && closed.iter().any(|c: &ClosedLoop| c.wait == wait);
            if (wait == Wait::Busy && one_core) || again {
                continue;
            }
            let run = Run { wait, rate: None, duration: sizes.duration, cores };
            let rounds = (0..sizes.rounds).map(|_| raw::round(run)).collect::<std::io::Result<Vec<_>>>()?;
            let Some(best) = rounds.iter().max_by(|a, b| a.achieved.total_cmp(&b.achieved)) else { continue };
            closed.push(ClosedLoop {
                wait,
                cores: if one_core { 1 } else { 2 },
                per_s: best.achieved,
                p50_ns: best.latencies.quantile(LatencyOrigin::Sent, 0.5),
            });
        }
    }

    let mut rates = Vec::new();
    for &rate in &sizes.rates {
        say(&format!("{rate} messages a second"));
        let run = Run { wait, rate: Some(rate), duration: sizes.duration, cores };
        let rounds = (0..sizes.rounds).map(|_| raw::round(run)).collect::<std::io::Result<Vec<_>>>()?;
        rates.push(together(rate, rounds));
    }
    let service_ns = closed.iter().find(|c| c.wait == wait).map_or(f64::NAN, |c| 1e9 / c.per_s);

    // A rate well below the maximum of the C program and of our loop.
    let beside_rate = (0.3e9 / service_ns / 1e3).floor().max(1.0) * 1e3;
    let mut beside = Vec::new();
    let limit = if wait == Wait::Busy { Limit::compiled() } else { Err("there is one core only".to_owned()) };
    let no_limit = match limit {
        Err(reason) => Some(reason),
        Ok(limit) => {
            say("beside the limit in C");
            let count = (beside_rate * sizes.duration.as_secs_f64()) as usize;
            for _ in 0..sizes.pairs {
                let theirs = limit.run(beside_rate, count, cores).map_err(std::io::Error::other)?;
                let ours =
                    raw::round(Run { wait, rate: Some(beside_rate), duration: sizes.duration, cores })?;
                beside.push((theirs, ours.latencies.percentiles(LatencyOrigin::Due)));
            }
            None
        }
    };
    let (servers, no_servers) = match servers::knees(cores, sizes.duration, say) {
        Ok(knees) => (knees, None),
        Err(reason) => (Vec::new(), Some(reason)),
    };
    say("what recording a sample costs");
    let recording = instruments::recording(sizes.samples);
    let mut sending = Vec::new();
    if first != last {
        for kind in instruments::KINDS {
            say(&format!("the generator: {}", kind.name));
            sending.push(instruments::sending(kind, cores, sizes.duration.max(Duration::from_millis(500)))?);
        }
    }
    let cores = allowed.len();
    Ok(WaitFigures {
        wait,
        cores,
        rates,
        closed,
        service_ns,
        beside,
        beside_rate,
        no_limit,
        servers,
        no_servers,
        recording,
        sending,
    })
}

/// Combines the rounds of a rate: the round with the smallest 99th percentile is used, because disturbances
/// can only add latency.
fn together(offered: f64, rounds: Vec<Round>) -> RateFigures {
    let best = rounds.into_iter().min_by_key(|round| round.latencies.quantile(LatencyOrigin::Due, 0.99));
    let (latencies, achieved) = best.map_or((Latencies::new(), 0.0), |best| (best.latencies, best.achieved));
    RateFigures {
        offered,
        achieved,
        corrected: latencies.percentiles(LatencyOrigin::Due),
        uncorrected: latencies.percentiles(LatencyOrigin::Sent),
        latencies,
    }
}
