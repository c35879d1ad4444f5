//! The feed on the page.

use lab::report::Table;

use crate::pages::contenders::{is_peer, shown};
use crate::pages::markdown::{bold_if_ours, bounds, costs, dash, interval, list, paragraph, ratio, table};
use crate::pages::shelf::{Kept, Shelf, comparison};
use crate::record::Record;

pub(crate) const BENCH: &str = "bench-feed";
/// What the chart is about.
pub(crate) const SCENARIO: &str = "one";
const LATENCY: &str = "Latency at ";

pub(crate) fn section(out: &mut String, shelf: &Shelf) -> Result<(), String> {
    let newest = shelf.beside_peers(BENCH, SCENARIO)?;
    out.push_str("## The feed\n\n### A relayed message\n\n");
    paragraph(
        out,
        &format!(
            "CPU time of the server for a message of 100 bytes (no consumer) or for each of its deliveries, on one core, and \
             how many times that of *the floor*: a relay in C that rewrites `PUB` into `MSG` and matches nothing. {}; `make \
             bench-feed` repeats it.",
            newest.links()
        ),
    );
    let scenarios = [("none", "no consumer"), ("one", "1 → 1"), ("ten", "1 → 10"), ("hundred", "1 → 100")];
    table(out, &costs(&newest.record, &scenarios, 2)?);

    out.push_str("### Latency\n\n");
    if let Some(kept) = latencies(shelf) {
        paragraph(
            out,
            &format!(
                "From when each message was due; medians of short interleaved rounds. This machine has long tails of its own, \
                 as the floor's show. {}.",
                kept.links()
            ),
        );
        for rates in kept.record.tables.iter().filter(|table| table.title.starts_with(LATENCY)) {
            let mut shown_rates = Table::new(
                &rates.title,
                &[("", ""), ("p50", "µs"), ("p99", "µs"), ("p99.9", "µs"), ("worst", "µs")],
            );
            for row in &rates.rows {
                let name = row.first().map_or("", String::as_str);
                let mut cells = vec![bold_if_ours(name, &shown(name, &kept.record.versions))];
                cells.extend(["p50 median", "p99 median", "p99.9 median", "worst median"].map(|heading| {
                    cell(rates, row, heading).map_or_else(dash, |value| format!("{value:.0}"))
                }));
                shown_rates.row(cells);
            }
            table(out, &shown_rates);
        }
    }

    out.push_str("### A second core\n\n");
    if let Some(kept) = shelf.newest(BENCH, |record| comparison(record, "cores-one").is_some()) {
        paragraph(
            out,
            &format!(
                "Time a delivery on two cores, in units of that on one, both shared with the load. {}.",
                kept.links()
            ),
        );
        let mut cores = Table::new("", &[("", ""), ("1 → 1", "×"), ("16 pairs", "×")]);
        for name in ["ours", "nats-server"] {
            let found = |scenario: &str| {
                let two = format!("{name}, two cores");
                comparison(&kept.record, scenario)
                    .and_then(|found| ratio_of_rates(found, &two, name))
                    .map_or_else(dash, |ratio| format!("{ratio:.2}"))
            };
            cores.row([
                bold_if_ours(name, &shown(name, &kept.record.versions)),
                found("cores-one"),
                found("cores-pairs"),
            ]);
        }
        table(out, &cores);
    }

    out.push_str("### Memory, and subscribers that come and go\n\n");
    for title in ["Resident memory", "A verified flow"] {
        let Some(kept) =
            shelf.newest(BENCH, |record| record.tables.iter().any(|table| table.title.starts_with(title)))
        else {
            continue;
        };
        let Some(found) = kept.record.tables.iter().find(|table| table.title.starts_with(title)) else {
            continue;
        };
        let mut named = found.clone();
        for row in &mut named.rows {
            if let Some(name) = row.first_mut() {
                *name = bold_if_ours(name, &shown(name, &kept.record.versions));
            }
        }
        paragraph(out, &format!("{}.", kept.links()));
        table(out, &named);
    }

    out.push_str("### What the feed loses at\n\n");
    list(out, losses(shelf)?);
    out.push_str("### Bounds of the feed\n\n");
    bounds(out, &shelf.bounds(BENCH));
    Ok(())
}

fn latencies(shelf: &Shelf) -> Option<&Kept<Record>> {
    shelf.newest(BENCH, |record| record.tables.iter().any(|table| table.title.starts_with(LATENCY)))
}

/// The median over the rounds of how much longer a delivery took in one series than in another.
fn ratio_of_rates(found: &crate::record::Comparison, name: &str, beside: &str) -> Option<f64> {
    let times = |name: &str| -> Option<Vec<Option<f64>>> {
        let samples = &found.series(name)?.samples;
        Some(samples.iter().map(|one| (one.units > 0).then(|| one.wall_s / one.units as f64)).collect())
    };
    Some(lab::paired::spread::Ratio::paired(&times(name)?, &times(beside)?)?.median)
}

/// A number in the column of this heading.
fn cell(table: &Table, row: &[String], heading: &str) -> Option<f64> {
    let column = table.columns.iter().position(|column| column.heading == heading)?;
    row.get(column)?.replace(',', "").parse().ok()
}

/// One sentence each, with its record.
pub(crate) fn losses(shelf: &Shelf) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    let kept = shelf.beside_peers(BENCH, SCENARIO)?;
    for scenario in ["none", "one", "ten", "hundred"] {
        all.extend(crate::pages::cache::cheaper_peers(kept, scenario, "a delivery"));
        // The floor is no peer, and what we pay above it is ours to publish.
        if let Some(found) = comparison(&kept.record, scenario)
            && let Some(above) = ratio(found, "ours", "floor").filter(|ratio| ratio.low > 1.5)
        {
            all.push(format!(
                "{}: {} times the floor ({}).",
                found.what.trim_end_matches('.'),
                interval(above),
                kept.link()
            ));
        }
    }
    if let Some(kept) = latencies(shelf) {
        for rates in kept.record.tables.iter().filter(|table| table.title.starts_with(LATENCY)) {
            all.extend(
                ["p50 median", "p99 median", "p99.9 median"]
                    .iter()
                    .filter_map(|heading| beaten(kept, rates, heading, "µs")),
            );
        }
    }
    if let Some((kept, churn)) = churn(shelf) {
        all.extend(["p50", "p99"].iter().filter_map(|heading| beaten(kept, churn, heading, "µs")));
    }
    for (figure, kept) in shelf.bounds(BENCH) {
        if figure.verdict == lab::paired::spread::Verdict::NotMet {
            all.push(format!(
                "Not met: {}: {} ({}).",
                figure.what,
                figure.ratio.map_or_else(dash, interval),
                kept.link()
            ));
        }
    }
    Ok(all)
}

/// What a flow of messages feels of clients that subscribe and unsubscribe.
fn churn(shelf: &Shelf) -> Option<(&Kept<Record>, &Table)> {
    let flow = |table: &&Table| table.title.starts_with("A verified flow");
    let kept = shelf.newest(BENCH, |record| record.tables.iter().any(|table| flow(&table)))?;
    Some((kept, kept.record.tables.iter().find(flow)?))
}

/// p99 of that flow in µs: ours, and nats-server's.
pub(crate) fn churn_p99(shelf: &Shelf) -> Option<(f64, f64)> {
    let (_, found) = churn(shelf)?;
    let of = |name: &str| {
        let row = found.rows.iter().find(|row| row.first().is_some_and(|first| first == name))?;
        cell(found, row, "p99")
    };
    Some((of("ours")?, of("nats-server")?))
}

/// Peers whose number in this column is below ours, as a sentence.
fn beaten(kept: &Kept<Record>, found: &Table, heading: &str, unit: &str) -> Option<String> {
    let row = |name: &str| found.rows.iter().find(|row| row.first().is_some_and(|first| first == name));
    let ours = cell(found, row("ours")?, heading)?;
    let better: Vec<String> = found
        .rows
        .iter()
        .filter(|row| row.first().is_some_and(|name| is_peer(name)))
        .filter_map(|row| {
            let value = cell(found, row, heading).filter(|value| *value < ours)?;
            Some(format!("{} {value:.0}", shown(row.first()?, &kept.record.versions)))
        })
        .collect();
    (!better.is_empty()).then(|| {
        format!(
            "{}, {}, {unit}: {}; ours {ours:.0} ({}).",
            found.title,
            heading.trim_end_matches(" median"),
            better.join(", "),
            kept.link()
        )
    })
}
