//! The feed's section of docs/benchmarks.md.

use askama::Template;
use lab::report::{Table, grouped};

use crate::pages::contenders::{is_peer, shown};
use crate::pages::markdown::{SourcedTable, bold_if_ours, costs, dash, goals, interval, list, ratio, table};
use crate::pages::record_set::{RecordFile, RecordSet, comparison, table as titled};
use crate::record::Record;

pub(crate) const BENCH: &str = "bench-feed";
/// Scenario of the chart.
pub(crate) const SCENARIO: &str = "one";
const LATENCY: &str = "Latency at ";

/// Template of the feed's section.
#[derive(Debug, Template)]
#[template(path = "feed.md", escape = "none")]
struct Section {
    messages: SourcedTable,
    latencies: Option<SourcedTable>,
    cores: Option<SourcedTable>,
    crowds: Vec<SourcedTable>,
    losses: String,
    goals: String,
}

pub(crate) fn section(set: &RecordSet) -> Result<String, String> {
    let newest = set.beside_peers(BENCH, SCENARIO)?;
    let scenarios = [("none", "no consumer"), ("one", "1 → 1"), ("ten", "1 → 10"), ("hundred", "1 → 100")];
    let section = Section {
        messages: SourcedTable::new(newest, table(&costs(&newest.record, &scenarios, 2)?)),
        latencies: latencies(set).map(latency_tables),
        cores: cores(set),
        crowds: ["Resident memory", "A verified flow"].iter().filter_map(|title| crowd(set, title)).collect(),
        losses: list(losses(set)?),
        goals: goals(&set.bounds(BENCH)),
    };
    section.render().map_err(|why| why.to_string())
}

fn latency_tables(kept: &RecordFile<Record>) -> SourcedTable {
    let mut all = String::new();
    for rates in kept.record.tables.iter().filter(|table| table.title.starts_with(LATENCY)) {
        let columns = [("", ""), ("p50", "µs"), ("p99", "µs"), ("p99.9", "µs"), ("worst", "µs")];
        let mut found = Table::new(&rates.title, &columns);
        for row in &rates.rows {
            let name = row.first().map_or("", String::as_str);
            let mut cells = vec![bold_if_ours(name, &shown(name, &kept.record.versions))];
            cells.extend(
                ["p50 median", "p99 median", "p99.9 median", "worst median"].map(|heading| {
                    cell(rates, row, heading).map_or_else(dash, |value| format!("{value:.0}"))
                }),
            );
            found.row(cells);
        }
        all.push_str(&(table(&found) + "\n"));
    }
    SourcedTable::new(kept, all)
}

fn cores(set: &RecordSet) -> Option<SourcedTable> {
    let kept = set.newest(BENCH, |record| comparison(record, "cores-one").is_some())?;
    let mut cores = Table::new("", &[("", ""), ("1 → 1", "×"), ("16 pairs", "×")]);
    for name in ["ours", "nats-server"] {
        let found = |scenario: &str| {
            let two = format!("{name}, two cores");
            comparison(&kept.record, scenario)
                .and_then(|found| ratio_of_rates(found, &two, name))
                .map_or_else(dash, |ratio| format!("{ratio:.2}"))
        };
        let shown = bold_if_ours(name, &shown(name, &kept.record.versions));
        cores.row([shown, found("cores-one"), found("cores-pairs")]);
    }
    Some(SourcedTable::new(kept, table(&cores)))
}

/// Returns the newest table whose title begins with `title`, with display names for its contenders.
fn crowd(set: &RecordSet, title: &str) -> Option<SourcedTable> {
    let kept = set.newest(BENCH, |record| titled(&record.tables, title).is_some())?;
    let mut named = titled(&kept.record.tables, title)?.clone();
    for name in named.rows.iter_mut().filter_map(|row| row.first_mut()) {
        *name = bold_if_ours(name, &shown(name, &kept.record.versions));
    }
    Some(SourcedTable::new(kept, table(&named)))
}

fn latencies(set: &RecordSet) -> Option<&RecordFile<Record>> {
    set.newest(BENCH, |record| record.tables.iter().any(|table| table.title.starts_with(LATENCY)))
}

/// Returns the ratio of the time per delivery in two series, as the median over the rounds.
fn ratio_of_rates(found: &crate::record::Comparison, name: &str, beside: &str) -> Option<f64> {
    let times = |name: &str| -> Option<Vec<Option<f64>>> {
        let samples = &found.series(name)?.samples;
        Some(samples.iter().map(|one| (one.units > 0).then(|| one.wall_s / one.units as f64)).collect())
    };
    Some(lab::paired::spread::Ratio::paired(&times(name)?, &times(beside)?)?.median)
}

/// Parses the number in the column with this heading.
fn cell(table: &Table, row: &[String], heading: &str) -> Option<f64> {
    let column = table.columns.iter().position(|column| column.heading == heading)?;
    row.get(column)?.replace(',', "").parse().ok()
}

/// Returns one sentence for each figure that is worse than a peer's or a goal, with a link to its record.
pub(crate) fn losses(set: &RecordSet) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    let kept = set.beside_peers(BENCH, SCENARIO)?;
    for scenario in ["none", "one", "ten", "hundred"] {
        all.extend(crate::pages::cache::cheaper_peers(kept, scenario, "a delivery"));
        // The floor is not a peer, but a cost far above it is published as a loss.
        if let Some(found) = comparison(&kept.record, scenario)
            && let Some(above) = ratio(found, "ours", "floor").filter(|ratio| ratio.low > 1.5)
        {
            all.push(format!(
                "{}: {} times a bare relay ({}).",
                found.what.trim_end_matches('.'),
                interval(above),
                kept.link()
            ));
        }
    }
    if let Some(kept) = latencies(set) {
        for rates in kept.record.tables.iter().filter(|table| table.title.starts_with(LATENCY)) {
            all.extend(["p50 median", "p99 median", "p99.9 median"].iter().filter_map(|heading| {
                let rate = rates.title.trim_start_matches(LATENCY).split('/').next().unwrap_or_default();
                beaten(kept, rates, heading, &format!("at {rate} a second"))
            }));
        }
    }
    if let Some((kept, churn)) = churn(set) {
        all.extend(["p50", "p99"].iter().filter_map(|heading| {
            beaten(
                kept,
                churn,
                heading,
                "of 10,000 messages a second beside 50,000 subscriptions that come and go",
            )
        }));
    }
    for (figure, kept) in set.bounds(BENCH) {
        if figure.verdict == lab::paired::spread::Verdict::NotMet {
            all.push(format!(
                "Goal not met: {}: {} ({}).",
                figure.what,
                figure.ratio.map_or_else(dash, interval),
                kept.link()
            ));
        }
    }
    Ok(all)
}

/// Returns the newest table about a message flow while other clients subscribe and unsubscribe.
fn churn(set: &RecordSet) -> Option<(&RecordFile<Record>, &Table)> {
    let flow = |table: &&Table| table.title.starts_with("A verified flow");
    let kept = set.newest(BENCH, |record| record.tables.iter().any(|table| flow(&table)))?;
    Some((kept, kept.record.tables.iter().find(flow)?))
}

/// Returns the p99 latency of that flow in µs, for Nighttrain and for nats-server.
pub(crate) fn churn_p99(set: &RecordSet) -> Option<(f64, f64)> {
    let (_, found) = churn(set)?;
    let of = |name: &str| {
        let row = found.rows.iter().find(|row| row.first().is_some_and(|first| first == name))?;
        cell(found, row, "p99")
    };
    Some((of("ours")?, of("nats-server")?))
}

/// Returns a sentence about the peers whose latency in this column is below Nighttrain's.
fn beaten(kept: &RecordFile<Record>, found: &Table, heading: &str, when: &str) -> Option<String> {
    let row = |name: &str| found.rows.iter().find(|row| row.first().is_some_and(|first| first == name));
    let ours = cell(found, row("ours")?, heading)?;
    let us = |value: f64| format!("{} µs", grouped(value.round() as u64));
    let better: Vec<String> = found
        .rows
        .iter()
        .filter(|row| row.first().is_some_and(|name| is_peer(name)))
        .filter_map(|row| {
            let value = cell(found, row, heading).filter(|value| *value < ours)?;
            Some(format!("{} {}", shown(row.first()?, &kept.record.versions), us(value)))
        })
        .collect();
    let which = heading.trim_end_matches(" median");
    let better = (!better.is_empty()).then(|| better.join(", "))?;
    Some(format!("{which} latency {when}: {}; {better} ({}).", us(ours), kept.link()))
}
