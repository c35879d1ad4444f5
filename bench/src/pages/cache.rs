//! The accelerator on the page.

use crate::record::{Comparison, Record};
use lab::report::Table;

use crate::pages::contenders::{is_peer, shown};
use crate::pages::markdown::{bounds, costs, dash, interval, list, order, paragraph, ratio, table};
use crate::pages::shelf::{Shelf, comparison};

pub(crate) const BENCH: &str = "bench-cache";
/// What the chart and the first table are about.
pub(crate) const SCENARIO: &str = "one-1k-64";
/// What an insert into the store was to reach, in millions a second.
const INSERTS_AIMED_AT: f64 = 1.0;

pub(crate) fn section(out: &mut String, shelf: &Shelf) -> Result<(), String> {
    let newest = shelf.beside_peers(BENCH, SCENARIO)?;
    out.push_str("## The accelerator\n\n### A hit\n\n");
    let reference = format!(
        "CPU time of the server for one hit, on one core with 64 connections, and how many times that of *the limit*: an \
         event loop that parses nothing and always sends the same answer by `write`. A body of 64 KiB is lent to the socket \
         by nighttrain and not copied, which is how a hit can cost less than the limit's `write`. {}; `make bench-cache` \
         repeats it.",
        newest.links()
    );
    paragraph(out, &reference);
    let scenarios = [
        ("one-1k-64", "1 KiB, one URL"),
        ("zipf-1k-64", "1 KiB, 100,000 URLs"),
        ("one-64k-64", "64 KiB, one URL"),
        ("zipf-64k-64", "64 KiB, 4,096 URLs"),
    ];
    table(out, &costs(&newest.record, &scenarios, 1)?);

    out.push_str("### Few connections, many connections, two cores\n\n");
    let crowded = shelf.beside_peers(BENCH, "one-1k-1000")?;
    paragraph(out, &format!("The same with other numbers of connections. {}.", crowded.links()));
    let scenarios = [
        ("one-1k-8", "1 KiB, 8 connections"),
        ("one-1k-1000", "1 KiB, 1,000 connections"),
        ("one-64k-8", "64 KiB, 8"),
        ("one-64k-1000", "64 KiB, 1,000"),
    ];
    table(out, &costs(&crowded.record, &scenarios, 1)?);
    if let Some(kept) = shelf.newest(BENCH, |record| comparison(record, "two-cores").is_some())
        && let Some(two) = comparison(&kept.record, "two-cores")
    {
        let found = |name: &str, beside: &str| ratio(two, name, beside).map_or_else(dash, interval);
        paragraph(
            out,
            &format!(
                "On two cores that are shared with the load a hit costs {} times the CPU time of one core that is shared \
                 with it, and {} times that of a core of its own ({}).",
                found("ours, two cores", "ours, one core shared with the load"),
                found("ours, two cores", "ours"),
                kept.link()
            ),
        );
    }

    through(out, shelf);
    crate::pages::edge::section(out, shelf)?;
    out.push_str("### The store in memory, as a library\n\n");
    store(out, shelf);
    crate::pages::pressure::section(out, shelf)?;

    out.push_str("### What the accelerator loses at\n\n");
    list(out, losses(shelf)?);
    out.push_str("### Bounds of the accelerator\n\n");
    bounds(out, &shelf.bounds(BENCH));
    crate::pages::pressure::bounds(out, shelf);
    crate::pages::edge::bounds(out, shelf);
    Ok(())
}

/// Where each request goes to the origin (name, heading).
const THROUGH: [(&str, &str); 5] = [
    ("miss-1k", "a miss of 1 KiB"),
    ("checked-1k", "a revalidation of 1 KiB"),
    ("pass-1k", "a pass of 1 KiB"),
    ("pass-64k", "a pass of 64 KiB"),
    ("upload-1m", "an upload of 1 MiB"),
];

/// What is not a hit, once a record has it.
fn through(out: &mut String, shelf: &Shelf) {
    // Older records have no revalidation.
    let has_all = |record: &Record| {
        THROUGH.iter().all(|(name, _)| *name == "checked-1k" || comparison(record, name).is_some())
    };
    let Some(newest) = shelf.newest(BENCH, has_all) else { return };
    out.push_str("### A miss, a pass, an upload\n\n");
    let words = format!(
        "CPU time of the server for one request that goes to the origin, on one core with 64 connections (uploads: 16), \
         and how many times that of ours. {}.",
        newest.links()
    );
    paragraph(out, &words);
    let found: Vec<(&str, &Comparison)> = THROUGH
        .iter()
        .filter_map(|(name, heading)| Some((*heading, comparison(&newest.record, name)?)))
        .collect();
    let mut columns = vec![("", "")];
    columns.extend(found.iter().flat_map(|(heading, _)| [(*heading, "µs"), ("× nighttrain", "")]));
    let mut costs = Table::new("", &columns);
    for name in order(&newest.record, found.first().map(|(_, comparison)| *comparison)) {
        let mut cells = vec![shown(&name, &newest.record.versions)];
        for (_, comparison) in &found {
            cells.push(comparison.cost(&name).map_or_else(dash, |cost| format!("{cost:.1}")));
            cells.push(ratio(comparison, &name, "ours").map_or_else(dash, interval));
        }
        costs.row(cells);
    }
    table(out, &costs);
    for latencies in &newest.record.tables {
        paragraph(
            out,
            "How long such a request took, and what many clients waited for a private page of 100 ms:",
        );
        table(out, latencies);
    }
}

/// Each record's figures of the store's own interface.
fn store(out: &mut String, shelf: &Shelf) {
    let records: Vec<_> = shelf
        .paired
        .iter()
        .filter(|kept| kept.record.name == BENCH && kept.record.attached.contains_key("store"))
        .collect();
    paragraph(
        out,
        "Ten million objects of 200 bytes, one thread, no sockets. The runs lie as far apart as what else the host did.",
    );
    let mut columns = vec![("", ""), ("", "")];
    let names: Vec<String> = records.iter().map(|kept| kept.link()).collect();
    columns.extend(names.iter().map(|name| (name.as_str(), "")));
    let mut found = Table::new("", &columns);
    for row in [
        "Zipf 0.99, 16 a turn, hinted",
        "Zipf 0.99, one a turn",
        "uniform, 16 a turn, hinted",
        "uniform, one a turn",
        "inserts, fresh memory",
        "inserts, full store",
        "metadata, resident",
    ] {
        let of = |field: &str| {
            records.iter().map(|kept| kept.record.attached["store"][row][field].clone()).collect::<Vec<_>>()
        };
        let unit = of("unit").iter().find_map(|unit| unit.as_str().map(str::to_owned)).unwrap_or_default();
        let mut cells = vec![row.to_owned(), unit];
        cells.extend(
            of("value").iter().map(|value| value.as_f64().map_or_else(dash, |value| value.to_string())),
        );
        found.row(cells);
    }
    table(out, &found);
}

/// One sentence each, with its record.
pub(crate) fn losses(shelf: &Shelf) -> Result<Vec<String>, String> {
    let mut all = dearer(shelf, &[SCENARIO, "zipf-1k-64", "one-64k-64", "zipf-64k-64"], "a hit")?;
    all.extend(dearer(shelf, &["one-1k-8", "one-1k-1000", "one-64k-8", "one-64k-1000"], "a hit")?);
    for (name, what) in THROUGH {
        if let Some(kept) = shelf.newest(BENCH, |record| comparison(record, name).is_some()) {
            all.extend(cheaper_peers(kept, name, what));
        }
    }
    if let Some((value, link)) = inserts(shelf)
        && value < INSERTS_AIMED_AT
    {
        all.push(format!(
            "The store takes {value} million inserts a second when it is full, where {INSERTS_AIMED_AT} million was \
             aimed at ({link})."
        ));
    }
    all.extend(crate::pages::edge::losses(shelf));
    all.extend(crate::pages::pressure::losses(shelf));
    if all.is_empty() {
        all.push("Nothing that was measured.".into());
    }
    Ok(all)
}

/// Millions of inserts a second into a full store, as measured last.
pub(crate) fn inserts(shelf: &Shelf) -> Option<(f64, String)> {
    let kept = shelf.newest(BENCH, |record| record.attached.contains_key("store"))?;
    Some((kept.record.attached["store"]["inserts, full store"]["value"].as_f64()?, kept.link()))
}

/// Peers whose median cost is below ours.
pub(crate) fn dearer(shelf: &Shelf, scenarios: &[&str], unit: &str) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for scenario in scenarios {
        let kept = shelf.beside_peers(BENCH, scenario)?;
        all.extend(cheaper_peers(kept, scenario, unit));
    }
    Ok(all)
}

/// Sentences about peers that are cheaper than ours in a scenario.
pub(crate) fn cheaper_peers(
    kept: &crate::pages::shelf::Kept<crate::record::Record>,
    scenario: &str,
    unit: &str,
) -> Vec<String> {
    let Some(found) = comparison(&kept.record, scenario) else { return Vec::new() };
    found
        .series
        .iter()
        .filter(|series| is_peer(&series.name))
        .filter_map(|series| Some((series, ratio(found, "ours", &series.name)?)))
        .filter(|(_, ratio)| ratio.median > 1.0)
        .map(|(series, ratio)| {
            let name = shown(&series.name, &kept.record.versions);
            format!(
                "{}: {unit} costs {} times that of {name} ({}).",
                found.what.trim_end_matches('.'),
                interval(ratio),
                kept.link()
            )
        })
        .collect()
}
