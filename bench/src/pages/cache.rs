//! The accelerator's section of docs/benchmarks.md.

use askama::Template;
use lab::paired::Sample;
use lab::paired::spread::Ratio;
use lab::report::Table;

use crate::pages::contenders::{is_peer, plain, shown};
use crate::pages::markdown::{
    SourcedTable, bold_if_ours, costs, dash, goals, interval, list, order, ratio, table,
};
use crate::pages::record_set::{RecordFile, RecordSet, comparison};
use crate::record::{Comparison, Record};

pub(crate) const BENCH: &str = "bench-cache";
/// Scenario of the chart and of the first table.
pub(crate) const SCENARIO: &str = "one-1k-64";
/// Goal for inserts into the store, in millions per second.
const INSERTS_AIMED_AT: f64 = 1.0;

/// Template of the accelerator's section.
#[derive(Debug, Template)]
#[template(path = "cache.md", escape = "none")]
struct Section {
    hits: SourcedTable,
    connections: SourcedTable,
    cores: Option<Cores>,
    through: Option<Through>,
    tls: String,
    store: String,
    pressure: String,
    losses: String,
    goals: String,
    pressure_goals: String,
    tls_goals: Option<String>,
}

/// Cost of a second core, as ratios.
#[derive(Debug)]
struct Cores {
    beside_one: String,
    beside_own: String,
    link: String,
}

/// Subsection about requests that go to the origin.
#[derive(Debug)]
struct Through {
    links: String,
    table: String,
    latencies: Vec<String>,
}

pub(crate) fn section(set: &RecordSet) -> Result<String, String> {
    let newest = set.beside_peers(BENCH, SCENARIO)?;
    let scenarios = [
        ("one-1k-64", "1 KiB, one URL"),
        ("zipf-1k-64", "1 KiB, 100,000 URLs"),
        ("one-64k-64", "64 KiB, one URL"),
        ("zipf-64k-64", "64 KiB, 4,096 URLs"),
    ];
    let hits = SourcedTable::new(newest, table(&costs(&newest.record, &scenarios, 1)?));
    let crowded = set.beside_peers(BENCH, "one-1k-1000")?;
    let scenarios = [
        ("one-1k-8", "1 KiB, 8 connections"),
        ("one-1k-1000", "1 KiB, 1,000 connections"),
        ("one-64k-8", "64 KiB, 8"),
        ("one-64k-1000", "64 KiB, 1,000"),
    ];
    let connections = SourcedTable::new(crowded, table(&costs(&crowded.record, &scenarios, 1)?));
    let section = Section {
        hits,
        connections,
        cores: cores(set),
        through: through(set),
        tls: crate::pages::edge::section(set)?,
        store: store(set),
        pressure: crate::pages::pressure::section(set)?,
        losses: list(losses(set)?),
        goals: goals(&set.bounds(BENCH)),
        pressure_goals: crate::pages::pressure::goals(set),
        tls_goals: crate::pages::edge::goals(set),
    };
    section.render().map_err(|why| why.to_string())
}

fn cores(set: &RecordSet) -> Option<Cores> {
    let kept = set.newest(BENCH, |record| comparison(record, "two-cores").is_some())?;
    let two = comparison(&kept.record, "two-cores")?;
    let found = |name: &str, beside: &str| ratio(two, name, beside).map_or_else(dash, interval);
    Some(Cores {
        beside_one: found("ours, two cores", "ours, one core shared with the load"),
        beside_own: found("ours, two cores", "ours"),
        link: kept.link(),
    })
}

/// Scenarios in which each request goes to the origin (name, heading).
const THROUGH: [(&str, &str); 5] = [
    ("miss-1k", "a miss of 1 KiB"),
    ("checked-1k", "a revalidation of 1 KiB"),
    ("pass-1k", "a pass of 1 KiB"),
    ("pass-64k", "a pass of 64 KiB"),
    ("upload-1m", "an upload of 1 MiB"),
];

/// Returns the newest record of requests that go to the origin.
fn newest_through(set: &RecordSet) -> Option<&RecordFile<Record>> {
    // The revalidation may be missing, as in older records, and the pass of 64 KiB, as in short runs.
    let may_be_missing = |name: &str| matches!(name, "checked-1k" | "pass-64k");
    let has_all = |record: &Record| {
        THROUGH.iter().all(|(name, _)| may_be_missing(name) || comparison(record, name).is_some())
    };
    set.newest(BENCH, has_all)
}

fn through(set: &RecordSet) -> Option<Through> {
    let newest = newest_through(set)?;
    let found: Vec<(&str, &Comparison)> = THROUGH
        .iter()
        .filter_map(|(name, heading)| Some((*heading, comparison(&newest.record, name)?)))
        .collect();
    let mut columns = vec![("", "")];
    columns.extend(found.iter().flat_map(|(heading, _)| [(*heading, "µs"), ("× nighttrain", "")]));
    let mut costs = Table::new("", &columns);
    for name in order(&newest.record, found.first().map(|(_, comparison)| *comparison)) {
        let mut cells = vec![bold_if_ours(&name, &shown(&name, &newest.record.versions))];
        for (_, comparison) in &found {
            cells.push(comparison.cost(&name).map_or_else(dash, |cost| format!("{cost:.1}")));
            cells.push(ratio(comparison, &name, "ours").map_or_else(dash, interval));
        }
        costs.row(cells);
    }
    let latencies = newest.record.tables.iter().map(table).collect();
    Some(Through { links: newest.links(), table: table(&costs), latencies })
}

/// Rows of the README's table (scenario, heading).
const REQUESTS: [(&str, &str); 5] = [
    (SCENARIO, "a hit, 1 KiB"),
    ("miss-1k", "a miss, 1 KiB"),
    ("checked-1k", "a revalidation, 1 KiB"),
    ("pass-1k", "a pass, 1 KiB"),
    ("upload-1m", "an upload, 1 MiB"),
];

/// Returns the README's table of requests for Nighttrain and the peers of the miss scenario, with links to
/// its records if there are two.
pub(crate) fn requests(set: &RecordSet) -> Result<(String, Option<String>), String> {
    let hits = set.beside_peers(BENCH, SCENARIO)?;
    let through = newest_through(set).ok_or("no record of requests that go to the origin")?;
    let names: Vec<String> = order(&through.record, comparison(&through.record, "miss-1k"))
        .into_iter()
        .filter(|name| name == "ours" || is_peer(name))
        .collect();
    let headings: Vec<String> = names
        .iter()
        .map(
            |name| {
                if name == "ours" { "Nighttrain".to_owned() } else { shown(name, &through.record.versions) }
            },
        )
        .collect();
    let mut columns = vec![("CPU time of one request, µs", "")];
    columns.extend(headings.iter().map(|heading| (heading.as_str(), "")));
    let mut found = Table::new("", &columns);
    for (scenario, heading) in REQUESTS {
        let kept = if scenario == SCENARIO { hits } else { through };
        let Some(costs) = comparison(&kept.record, scenario) else { continue };
        let cost = |name: &String| costs.cost(name).map_or_else(dash, |cost| format!("{cost:.1}"));
        found.row(std::iter::once(heading.to_owned()).chain(names.iter().map(cost)));
    }
    let records = (hits.path != through.path)
        .then(|| format!("Hits: {}; the others: {}.", hits.readme_link(), through.readme_link()));
    Ok((table(&found), records))
}

/// Returns a sentence about the peer with the cheapest miss, if it is cheaper than Nighttrain: the ratio of
/// CPU times and of the p99.
pub(crate) fn miss_loss(set: &RecordSet) -> Option<String> {
    let misses = comparison(&newest_through(set)?.record, "miss-1k")?;
    let peers = misses.series.iter().map(|series| series.name.as_str()).filter(|name| is_peer(name));
    let best = misses.cheapest(peers)?;
    let times = ratio(misses, "ours", &best.name)?.median;
    if times <= 1.0 {
        return None;
    }
    let ours = misses.series("ours")?.each(Sample::p99_us);
    let theirs = misses.series(&best.name)?.each(Sample::p99_us);
    let later = Ratio::paired(&ours, &theirs).map(|ratio| ratio.median).filter(|times| *times > 1.0);
    let later = later.map_or_else(String::new, |times| format!(" (p99 latency: {times:.2} times)"));
    Some(format!("a miss costs {times:.2} times {}'s CPU time{later}", plain(&best.name)))
}

/// Tabulates the figures of the store's own bench from each record.
fn store(set: &RecordSet) -> String {
    let records: Vec<_> = set
        .paired
        .iter()
        .filter(|kept| kept.record.name == BENCH && kept.record.attached.contains_key("store"))
        .collect();
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
    table(&found)
}

/// Returns one sentence for each figure that is worse than a peer's or a goal, with a link to its record.
pub(crate) fn losses(set: &RecordSet) -> Result<Vec<String>, String> {
    let mut all = dearer(set, &[SCENARIO, "zipf-1k-64", "one-64k-64", "zipf-64k-64"], "a hit")?;
    all.extend(dearer(set, &["one-1k-8", "one-1k-1000", "one-64k-8", "one-64k-1000"], "a hit")?);
    for (name, what) in THROUGH {
        if let Some(kept) = set.newest(BENCH, |record| comparison(record, name).is_some()) {
            all.extend(cheaper_peers(kept, name, what));
        }
    }
    if let Some((value, link)) = inserts(set)
        && value < INSERTS_AIMED_AT
    {
        all.push(format!(
            "A full store takes {value} million inserts a second (goal {INSERTS_AIMED_AT} million; {link})."
        ));
    }
    all.extend(crate::pages::edge::losses(set));
    all.extend(crate::pages::pressure::losses(set));
    if all.is_empty() {
        all.push("Nothing that was measured.".into());
    }
    Ok(all)
}

/// Returns the millions of inserts per second into a full store from the newest record, with its link.
pub(crate) fn inserts(set: &RecordSet) -> Option<(f64, String)> {
    let kept = set.newest(BENCH, |record| record.attached.contains_key("store"))?;
    Some((kept.record.attached["store"]["inserts, full store"]["value"].as_f64()?, kept.link()))
}

/// Returns a sentence for each peer whose median cost is below Nighttrain's, in any of the scenarios.
pub(crate) fn dearer(set: &RecordSet, scenarios: &[&str], unit: &str) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    for scenario in scenarios {
        let kept = set.beside_peers(BENCH, scenario)?;
        all.extend(cheaper_peers(kept, scenario, unit));
    }
    Ok(all)
}

/// Returns a sentence for each peer that is cheaper than Nighttrain in one scenario.
pub(crate) fn cheaper_peers(kept: &RecordFile<Record>, scenario: &str, unit: &str) -> Vec<String> {
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
