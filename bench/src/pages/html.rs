//! One record as a self-contained HTML page: its charts, its tables and its verdicts.

use std::fs;
use std::path::Path;

use lab::paired::spread::median;
use lab::report::page::{self, FigureOrigin};
use lab::report::plot::{Axis, Plot, Series, Stroke};
use lab::report::{Report, Table, json};

use crate::pages::contenders::is_peer;
use crate::pages::record_set::{AnyRecord, Pressure, RecordFile, comparison, parse};
use crate::pages::{edge, feed, mail, pressure};
use crate::record::{Comparison, Record};

/// The feed's scenarios with their number of consumers, the x axis of a chart.
const FANS: [(&str, f64); 3] = [("one", 1.0), ("ten", 10.0), ("hundred", 100.0)];
/// Position of "none stored" on a logarithmic axis.
const NONE_STORED: f64 = 1.0;

/// Renders the page of a record's file.
pub(crate) fn render(path: &Path) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()))?;
    let name = path.display().to_string();
    let parsed = parse(&text).map_err(|why| format!("{name}: {why}"))?;
    match parsed {
        AnyRecord::Paired(record) => Ok(of_paired(&record)),
        AnyRecord::Pressure(record) => Ok(of_pressure(&RecordFile { path: name, record })),
        AnyRecord::Lab(_) => {
            let (outcomes, options, taken) = json::parse(&text).map_err(|why| format!("{name}: {why}"))?;
            Ok(page::render_as_of(&outcomes, &options, &taken))
        }
    }
}

fn of_paired(record: &Record) -> String {
    let mut report = Report::default();
    if let Some(svg) = fan_out(&record.comparisons) {
        report.figure(
            "What a delivery costs the server",
            svg,
            "CPU time of the server's process tree, both scales logarithmic; 100 bytes a message. The cheapest peer is the \
             cheapest of all in that scenario.",
        );
    }
    if let Some(svg) = comparison(record, "stored").and_then(over_stored) {
        report.figure(
            "What a mail costs by how many are stored",
            svg,
            "CPU time of the server's process tree a mail, medians over interleaved rounds; 4 KiB mails, connections kept. \
             None stored is drawn at 1.",
        );
    }
    if !record.comparisons.is_empty() {
        report.tables.push(costs(record));
    }
    record.add_to(&mut report);
    let (title, repeat) = match record.name.as_str() {
        feed::BENCH => ("What a relayed message costs", "make bench PART=feed"),
        mail::BENCH => ("What a mail costs", "make bench PART=mail"),
        edge::BENCH => ("What TLS and HTTP/2 cost", "make bench PART=tls"),
        _ => ("What a hit costs", "make bench PART=cache"),
    };
    let taken = FigureOrigin { date: record.date.clone(), machine: record.machine.clone() };
    page::alone_as_of(title, &report, repeat, &taken)
}

/// Tabulates the cost of every contender in every scenario.
fn costs(record: &Record) -> Table {
    let mut costs = Table::new(
        "CPU a unit, medians over interleaved rounds",
        &[
            ("scenario", ""),
            ("contender", ""),
            ("unit", ""),
            ("cost", "µs"),
            ("× reference", ""),
            ("rate", "1/s"),
            ("doubt", ""),
        ],
    );
    for comparison in &record.comparisons {
        for series in &comparison.series {
            let done = series.samples.iter().filter(|sample| sample.units > 0);
            let rates: Vec<f64> = done.map(|sample| sample.units as f64 / sample.wall_s).collect();
            let shown = |value: Option<f64>, places: usize| {
                value.map_or_else(|| "–".to_owned(), |value| format!("{value:.places$}"))
            };
            let ratio = crate::pages::markdown::ratio(comparison, &series.name, &record.reference);
            costs.row([
                comparison.scenario.clone(),
                series.name.clone(),
                comparison.unit.clone(),
                shown(comparison.cost(&series.name), 3),
                ratio.map_or_else(|| "–".to_owned(), crate::pages::markdown::interval),
                shown(median(&rates), 0),
                series.doubt().unwrap_or_default().to_owned(),
            ]);
        }
    }
    costs
}

fn of_pressure(kept: &RecordFile<Pressure>) -> String {
    let mut report = Report::default();
    if !kept.record.rows.is_empty() {
        report.tables.push(plain(pressure::servers(kept)));
    }
    let mut bounds =
        Table::new("Bounds", &[("of", ""), ("figure", ""), ("found", ""), ("bound", ""), ("", "")]);
    for bound in &kept.record.figures {
        bounds.row(
            [&bound.of, &bound.what, &bound.found, &bound.bound, bound.verdict.words()].map(str::to_owned),
        );
    }
    report.tables.push(bounds);
    for (name, value) in &kept.record.settings {
        report.note(format!("{name}: {value}"));
    }
    let taken = FigureOrigin { date: kept.record.date.clone(), machine: kept.record.machine.clone() };
    page::alone_as_of("Stores that are larger than memory", &report, "make bench PART=pressure", &taken)
}

/// Removes Markdown markup from a table.
fn plain(mut table: Table) -> Table {
    for cell in table.rows.iter_mut().flatten() {
        *cell = cell.replace("**", "").replace('`', "");
    }
    table
}

fn fan_out(comparisons: &[Comparison]) -> Option<String> {
    let points = |cost_of: &dyn Fn(&Comparison) -> Option<f64>| -> Vec<(f64, f64)> {
        FANS.iter()
            .filter_map(|&(scenario, consumers)| {
                let comparison = comparisons.iter().find(|comparison| comparison.scenario == scenario)?;
                Some((consumers, cost_of(comparison)?))
            })
            .collect()
    };
    let of = |name: &str| points(&|comparison| comparison.cost(name));
    let cheapest = points(&|comparison| {
        let peers = comparison.series.iter().map(|series| series.name.as_str()).filter(|name| is_peer(name));
        comparison.cost(&comparison.cheapest(peers)?.name)
    });
    let series = [
        Series::new("ours", Stroke::One, of("ours")),
        Series::new("nats-server", Stroke::Two, of("nats-server")),
        Series::new("the cheapest peer", Stroke::Four, cheapest),
        Series::new("the floor", Stroke::Three, of("floor")),
    ];
    let series: Vec<Series> =
        series.into_iter().filter(|series| !series.points.is_empty()).map(Series::with_discs).collect();
    if series.is_empty() {
        return None;
    }
    let plot = Plot {
        x: Axis::log("consumers", 1.0, 100.0),
        left: Axis::log("CPU µs a delivery", 0.01, 10.0),
        right: None,
        series,
        references: Vec::new(),
    };
    Some(plot.draw("CPU time of the server a delivery, by the number of consumers"))
}

fn over_stored(comparison: &Comparison) -> Option<String> {
    let points: Vec<(f64, f64)> = comparison
        .series
        .iter()
        .filter_map(|series| {
            let stored: f64 = series.name.split(' ').nth(1)?.parse().ok()?;
            Some((stored.max(NONE_STORED), comparison.cost(&series.name)?))
        })
        .collect();
    if points.is_empty() {
        return None;
    }
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
    Some(plot.draw("CPU time of the server a mail, by how many mails are stored"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::record_set::RecordSet;
    use lab::paired::place::workspace;

    #[test]
    fn records_become_pages_that_stand_alone() {
        let root = workspace();
        let set = RecordSet::read(&root).unwrap();
        let paired = set.paired.iter().map(|kept| (&kept.path, &kept.record.date));
        let pressure = set.pressure.iter().map(|kept| (&kept.path, &kept.record.date));
        for (path, date) in paired.chain(pressure).chain([(&set.lab.path, &set.lab.record.date)]) {
            let page = render(&root.join(path)).unwrap();
            assert!(page.contains(date), "{path}: {date}");
            assert!(!page.contains("src=") && !page.contains("url("), "{path}: fetches something");
        }
        let lab = render(&root.join(&set.lab.path)).unwrap();
        assert!(lab.contains("Figure 5: in a textbook heap") && lab.contains("data-play=\"heap\""));
        assert!(render(&root.join("Cargo.toml")).is_err());
    }
}
