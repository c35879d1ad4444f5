//! The record as a page: what a delivery costs by the number of consumers, and all tables.

use lab::paired::record::{Comparison, Record};
use lab::paired::spread::median;
use lab::report::plot::{Axis, Plot, Series, Stroke};
use lab::report::{Report, Table, page};

use lab::peers::feed::contenders::Contender;

/// The scenarios along the axis.
const FANS: [(&str, f64); 3] = [("one", 1.0), ("ten", 10.0), ("hundred", 100.0)];

pub(crate) fn render(record: &Record) -> String {
    let mut report = Report::default();
    let svg = fan_out(&record.comparisons);
    report.figure(
        "What a delivery costs the server",
        svg,
        "CPU time of the server's process tree, both scales logarithmic; 100 bytes a message. The cheapest peer is \
         the cheapest of all four in that scenario.",
    );
    let mut costs = Table::new(
        "CPU a unit, medians over interleaved rounds",
        &[("scenario", ""), ("contender", ""), ("cost", "µs"), ("rate", "1/s"), ("doubt", "")],
    );
    for comparison in &record.comparisons {
        for series in &comparison.series {
            let rates: Vec<f64> = series
                .samples
                .iter()
                .filter(|sample| sample.units > 0)
                .map(|sample| sample.units as f64 / sample.wall_s)
                .collect();
            let shown = |value: Option<f64>, places: usize| {
                value.map_or_else(|| "–".to_owned(), |value| format!("{value:.places$}"))
            };
            costs.row([
                comparison.scenario.clone(),
                series.name.clone(),
                shown(comparison.cost(&series.name), 3),
                shown(median(&rates), 0),
                series.doubt().unwrap_or_default().to_owned(),
            ]);
        }
    }
    report.tables.push(costs);
    record.tell(&mut report);
    page::alone("What a relayed message costs", &report, "make bench-feed")
}

fn fan_out(comparisons: &[Comparison]) -> String {
    let points = |cost_of: &dyn Fn(&Comparison) -> Option<f64>| -> Vec<(f64, f64)> {
        FANS.iter()
            .filter_map(|&(scenario, consumers)| {
                let comparison = comparisons.iter().find(|comparison| comparison.scenario == scenario)?;
                Some((consumers, cost_of(comparison)?))
            })
            .collect()
    };
    let of = |contender: Contender| points(&|comparison| comparison.cost(contender.name()));
    let cheapest = points(&|comparison| {
        let cheapest = comparison.cheapest(Contender::PEERS.map(Contender::name))?.name.clone();
        comparison.cost(&cheapest)
    });
    let series = [
        Series::new("ours", Stroke::One, of(Contender::Ours)),
        Series::new("nats-server", Stroke::Two, of(Contender::Nats)),
        Series::new("the cheapest peer", Stroke::Four, cheapest),
        Series::new("the floor", Stroke::Three, of(Contender::Floor)),
    ];
    let plot = Plot {
        x: Axis::log("consumers", 1.0, 100.0),
        left: Axis::log("CPU µs a delivery", 0.01, 10.0),
        right: None,
        series: series
            .into_iter()
            .filter(|series| !series.points.is_empty())
            .map(Series::with_discs)
            .collect(),
        references: Vec::new(),
    };
    plot.draw("CPU time of the server a delivery, by the number of consumers")
}
