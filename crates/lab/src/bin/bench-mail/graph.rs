//! The record as a page: what a mail costs by how many are stored, and all tables.

use lab::paired::record::{Comparison, Record};
use lab::report::{
    Report, Table, page,
    plot::{Axis, Plot, Series, Stroke},
};

/// Where "none stored" stands on a logarithmic axis.
const NONE_STORED: f64 = 1.0;

pub(crate) fn render(record: &Record) -> String {
    let mut report = Report::default();
    if let Some(stored) = record.comparisons.iter().find(|comparison| comparison.scenario == "stored") {
        report.figure(
            "What a mail costs by how many are stored",
            over_stored(stored),
            "CPU time of the server's process tree a mail, medians over interleaved rounds; 4 KiB mails, connections kept. \
             None stored is drawn at 1.",
        );
    }
    let mut costs = Table::new(
        "CPU a unit, medians over interleaved rounds",
        &[("scenario", ""), ("who", ""), ("unit", ""), ("cost", "µs"), ("doubt", "")],
    );
    for comparison in &record.comparisons {
        for series in &comparison.series {
            let cost = comparison.cost(&series.name);
            costs.row([
                comparison.scenario.clone(),
                series.name.clone(),
                comparison.unit.clone(),
                cost.map_or_else(|| "–".to_owned(), |cost| format!("{cost:.1}")),
                series.doubt().unwrap_or_default().to_owned(),
            ]);
        }
    }
    report.tables.push(costs);
    record.tell(&mut report);
    page::alone("What a mail costs", &report, "make bench-mail")
}

fn over_stored(comparison: &Comparison) -> String {
    let points: Vec<(f64, f64)> = comparison
        .series
        .iter()
        .filter_map(|series| {
            let stored: f64 = series.name.split(' ').nth(1)?.parse().ok()?;
            Some((stored.max(NONE_STORED), comparison.cost(&series.name)?))
        })
        .collect();
    let highest = points.iter().map(|point| point.1).fold(10.0, f64::max);
    let top = (highest * 1.2 / 20.0).ceil() * 20.0;
    let farthest = points.iter().map(|point| point.0).fold(10.0, f64::max);
    let plot = Plot {
        x: Axis::log("mails stored before", NONE_STORED, 10f64.powf(farthest.log10().ceil())),
        left: Axis::linear("CPU µs a mail", 0.0, top, 20.0),
        right: None,
        series: vec![Series::new("ours", Stroke::One, points).with_discs()],
        references: Vec::new(),
    };
    plot.draw("CPU time of the server a mail, by how many mails are stored")
}
