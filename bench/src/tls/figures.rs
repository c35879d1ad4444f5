//! The bounds for TLS and HTTP/2, and the verdict on each.

use lab::paired::Sample;
use lab::paired::spread::median;
use lab::peers::cache::contenders::Contender;
use lab::report::Table;

use crate::record::{Comparison, Figure};

/// Function that reads one measured value from a sample.
type Measure = fn(&Sample) -> Option<f64>;

/// Bounds on the ratio to the best peer: prefix of the scenario's name, description, bound.
const BESIDE_PEERS: [(&str, &str, f64); 5] = [
    ("tls-", "a hit over HTTP/1.1 under TLS", 0.7),
    ("full-", "a connection with a full handshake", 0.7),
    ("resumed-", "a connection with a resumed handshake", 0.7),
    ("h2-", "a hit over HTTP/2 under TLS", 0.5),
    ("h2c-", "a hit over HTTP/2 in the clear", 0.5),
];
/// Bound on the ratio of Nighttrain's cost to the floor's.
const FLOOR: f64 = 2.0;
/// Bound on the ratio of our floor's cost to the shared reference floor's.
const REFERENCE: f64 = 1.05;

/// Computes every figure that these comparisons have the data for.
pub(crate) fn all(comparisons: &[Comparison]) -> Vec<Figure> {
    let (ours, floor) = (Contender::Ours.name(), Contender::LimitStreams.name());
    let reference = Contender::ReferenceStreams.name();
    let mut figures = Vec::new();
    for comparison in comparisons {
        let name = &comparison.scenario;
        // With a single stream at a time, the cost is mostly that of waking up, in every server.
        if name.ends_with("x1") {
            continue;
        }
        if let Some((_, what, bound)) = BESIDE_PEERS.iter().find(|(start, ..)| name.starts_with(start)) {
            let what = format!("{what}, ≤ {bound} × the best peer ({name})");
            figures.push(Figure::at_most(what, *bound, comparison.series(ours), best(comparison)));
        }
        if comparison.series(floor).is_some() {
            let what = format!("a hit over HTTP/2, ≤ {FLOOR} × the floor ({name})");
            figures.push(Figure::at_most(what, FLOOR, comparison.series(ours), comparison.series(floor)));
        }
        if comparison.series(reference).is_some() {
            let what = format!("our floor, ≤ {REFERENCE} × the shared floor ({name})");
            let floor = comparison.series(floor);
            figures.push(Figure::at_most(what, REFERENCE, floor, comparison.series(reference)));
        }
        if name.starts_with("paced-") {
            let measured: [(&str, Measure); 2] = [("p50", Sample::p50_us), ("p99", Sample::p99_us)];
            for (quantile, measured) in measured {
                let what = format!("{quantile} at a steady rate, ≤ 1 × the best peer ({name})");
                let peers = Contender::EDGE_PEERS.map(Contender::name);
                let best = comparison.least(peers, measured);
                figures.push(Figure::of(what, 1.0, comparison.series(ours), best, measured));
            }
        }
    }
    figures
}

fn best(comparison: &Comparison) -> Option<&lab::paired::Series> {
    comparison.cheapest(Contender::EDGE_PEERS.map(Contender::name))
}

/// Tabulates the latencies of requests at a steady rate, as medians over the rounds.
pub(crate) fn latencies(comparisons: &[Comparison]) -> Option<Table> {
    let mut table = Table::new(
        "Latency at a steady rate, medians over the rounds",
        &[("scenario", ""), ("", ""), ("p50", "µs"), ("p99", "µs")],
    );
    for comparison in comparisons.iter().filter(|comparison| comparison.scenario.starts_with("paced-")) {
        for series in &comparison.series {
            let cell = |measured: Measure| {
                let rounds: Vec<f64> = series.each(measured).into_iter().flatten().collect();
                median(&rounds).map_or_else(|| "–".to_owned(), |us| format!("{us:.0}"))
            };
            let name = (comparison.scenario.clone(), series.name.clone());
            table.row([name.0, name.1, cell(Sample::p50_us), cell(Sample::p99_us)]);
        }
    }
    (!table.rows.is_empty()).then_some(table)
}
