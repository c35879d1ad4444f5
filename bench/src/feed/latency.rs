//! Latency at a fixed rate: many short interleaved runs at two rates, counted from the time at which a
//! message was due.
//!
//! A shared host adds tails of its own. So each contender's best and median run are compared with the
//! other's, and the floor, which only relays, shows how much of a tail comes from the machine. The runs are
//! short and many, because a stall decides a run's p99 as soon as it takes a hundredth of the run: in 400 ms,
//! one time slice of another program (4 ms) is enough, and nearly every run of that length has one. The order
//! of the contenders changes with each round. Where other programs run meanwhile, `chrt -f 10 bench run feed
//! --scenario latency` keeps them away: servers and load inherit the real-time class.

use std::time::Duration;

use lab::paired::spread::{Ratio, Verdict, median};
use lab::peers::PeerError;
use lab::peers::feed::PAYLOAD_BYTES;
use lab::peers::feed::contenders::{Contender, ServerProcess};
use lab::peers::feed::load::{Flow, Shape, open_loop};
use lab::report::{Table, grouped};
use serde::Serialize;

use crate::record::Figure;
use crate::selection::Selection;

pub(crate) const RATES: [u64; 2] = [10_000, 100_000];
const ROUNDS: usize = 41;
const RUN: Duration = Duration::from_millis(100);
/// Quantiles that are recorded. Only the first two have bounds, because extreme tails differ from run to run.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("worst", 1.0)];

/// Results of one contender at one rate: each round's quantiles in nanoseconds, in the order of
/// [`QUANTILES`].
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Latencies {
    pub(crate) contender: &'static str,
    pub(crate) per_second: u64,
    rounds: Vec<Option<[u64; 4]>>,
    doubts: Vec<String>,
}

impl Latencies {
    fn of(&self, quantile: usize) -> Vec<Option<f64>> {
        self.rounds.iter().map(|round| round.map(|values| values[quantile] as f64)).collect()
    }
}

/// Measures every server at each rate, in interleaved rounds.
pub(crate) fn measure(
    running: &[&ServerProcess],
    selection: &Selection,
) -> Result<Vec<Latencies>, PeerError> {
    let rounds = selection.pairs(ROUNDS);
    let shape = Shape { flows: 1, consumers: 1, payload_bytes: PAYLOAD_BYTES, window: 0, per_second: None };
    let mut all = Vec::new();
    for per_second in RATES {
        println!("latency at {}/s: {} contenders × {rounds} rounds", grouped(per_second), running.len());
        let mut here: Vec<Latencies> = running
            .iter()
            .map(|server| Latencies {
                contender: server.contender.name(),
                per_second,
                rounds: Vec::new(),
                doubts: Vec::new(),
            })
            .collect();
        for round in 0..rounds {
            for place in 0..running.len() {
                let turn = (round + place) % running.len();
                let (server, latencies) = (running[turn], &mut here[turn]);
                let outcome = Flow::connect(server.contender.wire(), server.address, &shape, 0)
                    .and_then(|flow| open_loop(flow, per_second, RUN));
                latencies.rounds.push(match outcome {
                    Ok(values) => Some(quantiles(values)),
                    Err(error) => {
                        latencies.doubts.push(error.to_string());
                        None
                    }
                });
            }
        }
        all.extend(here);
    }
    Ok(all)
}

fn quantiles(mut values: Vec<u64>) -> [u64; 4] {
    values.sort_unstable();
    QUANTILES.map(|(_, quantile)| {
        let rank = (values.len() as f64 * quantile).ceil() as usize;
        values.get(rank.clamp(1, values.len().max(1)) - 1).copied().unwrap_or(0)
    })
}

/// Tabulates the medians over the rounds and the best round, in microseconds.
pub(crate) fn tables(all: &[Latencies]) -> Vec<Table> {
    RATES
        .iter()
        .map(|&rate| {
            let title = format!("Latency at {} messages/s, from when each was due", grouped(rate));
            let columns: Vec<(String, &str)> = QUANTILES
                .iter()
                .flat_map(|(name, _)| [(format!("{name} median"), "µs"), (format!("{name} best"), "µs")])
                .collect();
            let mut heads = vec![("", "")];
            heads.extend(columns.iter().map(|(name, unit)| (name.as_str(), *unit)));
            heads.push(("doubt", ""));
            let mut table = Table::new(title, &heads);
            for latencies in all.iter().filter(|latencies| latencies.per_second == rate) {
                let mut row = vec![latencies.contender.to_owned()];
                for quantile in 0..QUANTILES.len() {
                    let values: Vec<f64> = latencies.of(quantile).into_iter().flatten().collect();
                    let best = values.iter().copied().reduce(f64::min);
                    for value in [median(&values), best] {
                        row.push(value.map_or_else(|| "–".to_owned(), |ns| format!("{:.1}", ns / 1e3)));
                    }
                }
                row.push(latencies.doubts.first().cloned().unwrap_or_default());
                table.row(row);
            }
            table
        })
        .filter(|table| !table.rows.is_empty())
        .collect()
}

/// Compares the latency of Nighttrain with nats-server's and with the floor's.
pub(crate) fn figures(all: &[Latencies]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for rate in RATES {
        let of = |contender: Contender| {
            all.iter().find(|one| one.per_second == rate && one.contender == contender.name())
        };
        let Some(ours) = of(Contender::Ours) else { continue };
        for (quantile, (name, _)) in QUANTILES.iter().enumerate().take(2) {
            for (reference, bound) in [(Contender::Nats, 1.0), (Contender::Floor, 1.25)] {
                let what = format!(
                    "latency {name} at {}/s, ≤ {bound} × {}",
                    grouped(rate),
                    match reference {
                        Contender::Floor => "the floor",
                        other => other.name(),
                    }
                );
                let ratio =
                    of(reference).and_then(|other| Ratio::paired(&ours.of(quantile), &other.of(quantile)));
                let verdict = ratio.map_or(Verdict::NotMeasured, |ratio| Verdict::at_most(bound, &ratio));
                figures.push(Figure { what, bound, ratio, verdict, remark: String::new() });
            }
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        assert_eq!(quantiles((1..=1000).rev().collect()), [500, 990, 999, 1000]);
        assert_eq!(quantiles(vec![7]), [7; 4]);
        assert_eq!(quantiles(Vec::new()), [0; 4]);
    }
}
