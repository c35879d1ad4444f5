//! The section about stores larger than memory: servers, libraries, and restarts.

use askama::Template;
use lab::paired::spread::{Verdict, median};
use lab::report::{Table, grouped};

use crate::pages::contenders::{is_ours, plain, shown};
use crate::pages::markdown::{SourcedTable, bold_if_ours, dash, table, verdict};
use crate::pages::record_set::{Pressure, RecordFile, RecordSet};
use crate::pressure::{
    figures::Figure,
    row::{Round, Row},
};

/// Minimum number of servers in a comparison; a record with fewer describes a server by itself.
const SERVERS_MIN: usize = 3;

fn beside_peers(set: &RecordSet) -> Result<&RecordFile<Pressure>, String> {
    set.pressed(|record| record.rows.len() >= SERVERS_MIN)
        .ok_or_else(|| format!("no record of bench-pressure has {SERVERS_MIN} servers"))
}

/// Template of the section about stores larger than memory.
#[derive(Debug, Template)]
#[template(path = "pressure.md", escape = "none")]
struct Section {
    settings: String,
    links: String,
    servers: String,
    remarks: Vec<String>,
    alone: Option<OwnFigures>,
    starts: Option<SourcedTable>,
    libraries: Option<SourcedTable>,
    cold: Option<SourcedTable>,
}

/// Results of a run without peers.
#[derive(Debug)]
struct OwnFigures {
    settings: String,
    links: String,
    table: String,
}

pub(crate) fn section(set: &RecordSet) -> Result<String, String> {
    let kept = beside_peers(set)?;
    let settings: Vec<String> =
        kept.record.settings.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let mut settings = settings.join("; ");
    if let Some(first) = settings.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let rows = kept.record.rows.iter().filter(|row| !row.remarks.is_empty());
    let alone = set.pressed(|record| !record.rows.is_empty() && record.rows.len() < SERVERS_MIN);
    let section = Section {
        settings,
        links: kept.links(),
        servers: table(&servers(kept)),
        remarks: rows.map(|row| format!("{}: {}", name(row), row.remarks.join("; "))).collect(),
        alone: alone.map(|alone| OwnFigures {
            settings: alone
                .record
                .settings
                .iter()
                .take(3)
                .map(|(_, value)| value.as_str())
                .collect::<Vec<_>>()
                .join(", "),
            links: alone.links(),
            table: table(&servers(alone)),
        }),
        starts: starts(set),
        libraries: libraries(set),
        cold: cold(set),
    };
    section.render().map_err(|why| why.to_string())
}

fn name(row: &Row) -> String {
    let versions = std::iter::once((row.name.clone(), row.version.clone())).collect();
    let shown = shown(&row.name, &versions);
    bold_if_ours(
        &row.name,
        &match row.name.strip_prefix("ours-") {
            Some(paging) => format!("{shown}, `--paging {paging}`"),
            None => shown,
        },
    )
}

pub(crate) fn servers(kept: &RecordFile<Pressure>) -> Table {
    let mut found = Table::new(
        "",
        &[
            ("", ""),
            ("from the store", "%"),
            ("p99 alone", "µs"),
            ("p99 under pressure", "µs"),
            ("p99 before and beside inserts", "µs"),
            ("inserts", "MiB/s"),
            ("CPU a request", "µs"),
            ("cold hits", "1/s"),
        ],
    );
    for row in &kept.record.rows {
        // A server that was killed while being filled has empty rounds.
        if row.middle(|round| round.hit_percent) == 0.0 {
            let mut cells = vec![name(row), "–".to_owned()];
            cells.extend(std::iter::repeat_n("–".to_owned(), 6));
            found.row(cells);
            continue;
        }
        let whole = |value: f64| grouped(value.round() as u64);
        let p99 = |phase: fn(&Round) -> [f64; 3]| whole(row.middle(|round| phase(round)[1]));
        found.row([
            name(row),
            format!("{:.1}", row.middle(|round| round.hit_percent)),
            p99(|round| round.calm_us),
            p99(|round| round.pressure_us),
            format!("{} → {}", p99(|round| round.before_inserts_us), p99(|round| round.inserts_us)),
            format!("{:.1}", row.middle(|round| round.insert_mib_per_s)),
            format!("{:.0}", row.middle(|round| round.cpu_us)),
            whole(row.cold_per_s),
        ]);
    }
    found
}

fn starts(set: &RecordSet) -> Option<SourcedTable> {
    let kept = set.pressed(|record| !record.starts.is_empty())?;
    let mut found = Table::new(
        "",
        &[
            ("after", ""),
            ("objects", ""),
            ("found again", ""),
            ("known after", "s"),
            ("metadata", "bytes an object"),
        ],
    );
    for start in &kept.record.starts {
        found.row([
            start.after.clone(),
            grouped(start.objects),
            grouped(start.found),
            format!("{:.1}", start.seconds),
            format!("{:.0}", start.metadata_bytes),
        ]);
    }
    Some(SourcedTable::new(kept, table(&found)))
}

fn libraries(set: &RecordSet) -> Option<SourcedTable> {
    let kept = set.pressed(|record| !record.stores.is_empty())?;
    let mut traces: Vec<&str> = Vec::new();
    let mut names: Vec<(&str, bool, bool)> = Vec::new();
    for store in &kept.record.stores {
        if !traces.contains(&store.trace.as_str()) {
            traces.push(&store.trace);
        }
        let name = (store.store.as_str(), store.ours, store.on_disk);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut columns = vec![(String::new(), "")];
    for trace in &traces {
        columns.push((trace.to_string(), "%"));
        columns.push((format!("{trace}: a request"), "µs"));
    }
    let columns: Vec<(&str, &str)> = columns.iter().map(|(name, unit)| (name.as_str(), *unit)).collect();
    let mut all = String::new();
    for (on_disk, title) in [(false, "In memory alone"), (true, "In memory and on a disk")] {
        let mut found = Table::new(title, &columns);
        for (name, ours, _) in names.iter().filter(|name| name.2 == on_disk) {
            let mut cells = vec![if *ours { "**nighttrain**".to_owned() } else { (*name).to_owned() }];
            for trace in &traces {
                let replayed =
                    kept.record.stores.iter().find(|store| {
                        store.trace == *trace && store.store == *name && store.on_disk == on_disk
                    });
                cells.push(replayed.map_or_else(dash, |store| format!("{:.1}", store.hit_percent())));
                cells.push(replayed.map_or_else(dash, |store| format!("{:.2}", store.cpu_us)));
            }
            found.row(cells);
        }
        all.push_str(&(table(&found) + "\n"));
    }
    Some(SourcedTable::new(kept, all))
}

fn cold(set: &RecordSet) -> Option<SourcedTable> {
    let kept = set.pressed(|record| !record.cold.is_empty())?;
    let mut found = Table::new(
        "",
        &[("paging", ""), ("raw reads", "1/s"), ("cold hits", "1/s"), ("CPU a cold hit", "µs")],
    );
    for cold in &kept.record.cold {
        let whole = |values: &[f64]| median(values).map_or_else(dash, |value| grouped(value.round() as u64));
        found.row([
            cold.paging.clone(),
            whole(&cold.raw_per_s),
            whole(&cold.cold_per_s),
            format!("{:.1}", cold.cold_cpu_us),
        ]);
    }
    Some(SourcedTable::new(kept, table(&found)))
}

/// Returns each bound once with its latest verdict and its record. The text of a bound contains the rate of
/// inserts, which differs between runs, so bounds are matched by their text before the parenthesis.
fn judged(set: &RecordSet) -> Vec<(&Figure, &RecordFile<Pressure>)> {
    let mut found: Vec<(&Figure, &RecordFile<Pressure>)> = Vec::new();
    let subject =
        |bound: &Figure| (bound.of.clone(), bound.what.split(" (").next().unwrap_or_default().to_owned());
    for kept in &set.pressure {
        for bound in kept.record.figures.iter().filter(|bound| bound.verdict != Verdict::NotMeasured) {
            match found.iter_mut().find(|(known, _)| subject(known) == subject(bound)) {
                Some(place) => *place = (bound, kept),
                None => found.push((bound, kept)),
            }
        }
    }
    found
}

pub(crate) fn goals(set: &RecordSet) -> String {
    let mut found = Table::new(
        "",
        &[("of", ""), ("figure", ""), ("measured", ""), ("goal", ""), ("", ""), ("record", "")],
    );
    for (bound, kept) in judged(set) {
        found.row([
            bound.of.clone(),
            bound.what.clone(),
            bound.found.clone(),
            bound.bound.clone(),
            verdict(bound.verdict).to_owned(),
            kept.link(),
        ]);
    }
    table(&found)
}

/// Returns sentences about missed goals, and about figures in which a peer is better.
pub(crate) fn losses(set: &RecordSet) -> Vec<String> {
    let mut all: Vec<String> = judged(set)
        .into_iter()
        .filter(|(bound, _)| bound.verdict == Verdict::NotMet)
        .map(|(bound, kept)| format!("{} ({}).", missed(bound), kept.link()))
        .collect();
    if let Ok(kept) = beside_peers(set) {
        all.extend(better_peers(kept));
    }
    all
}

/// Describes a missed goal in a sentence.
fn missed(bound: &Figure) -> String {
    let Figure { of, what, found, bound, .. } = bound;
    if let Some(trace) = what.strip_prefix("hit ratio at equal bytes of memory, trace ") {
        return format!("Hit ratio with equal memory, trace *{trace}*: {found}; {}", theirs(bound));
    }
    if let Some(trace) = what.strip_prefix("CPU µs a request, trace ") {
        return format!("CPU time of a request, trace *{trace}*: {found} µs; {} µs", theirs(bound));
    }
    if let (Some(paging), true) = (of.strip_prefix("store, "), what.starts_with("cold hits, share of raw")) {
        return format!(
            "Store, `--paging {paging}`: cold hits reach {found} of the rate of raw random reads of the same sizes (goal: {bound})"
        );
    }
    if let (Some(objects), Some((more, unchecked))) = (
        what.strip_prefix("ns of a resident hit of 1 KiB above an unchecked read, "),
        found.split_once("; unchecked "),
    ) {
        let objects = objects.replace("evenly", "uniformly");
        let objects = match objects.split_once(' ').map(|(count, rest)| (count.parse(), rest)) {
            Some((Ok(count), rest)) => format!("{} {rest}", grouped(count)),
            _ => objects,
        };
        return format!(
            "Store: a resident hit of 1 KiB takes {} ns more than an unchecked read of {unchecked} ns, {objects} (goal: {bound})",
            whole(more)
        );
    }
    let of = if is_ours(of) { "Nighttrain".to_owned() } else { of.replace("store", "Store") };
    format!("{of}: {what}: {found} (goal: {bound})")
}

/// Returns the peer and its value in a goal: `foyer (S3-FIFO) 60.4%` for `at least foyer, S3-FIFO's 60.4%`.
fn theirs(goal: &str) -> String {
    let named = goal.trim_start_matches("at least ").trim_start_matches("at most ");
    named
        .split_once("'s ")
        .map_or_else(|| named.to_owned(), |(name, value)| format!("{} {value}", plain(name)))
}

/// Rounds the numbers in a text to integers.
fn whole(text: &str) -> String {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut out = String::new();
    for part in text.split_inclusive(|c| !is_number(c)) {
        let digits = part.trim_end_matches(|c| !is_number(c));
        out.push_str(
            &digits.parse::<f64>().map_or_else(|_| digits.to_owned(), |number| format!("{number:.0}")),
        );
        out.push_str(&part[digits.len()..]);
    }
    out
}

/// Returns the p99 of hits in milliseconds before and during inserts at full speed, for the better of
/// Nighttrain's two configurations, if it rises.
pub(crate) fn insert_loss(set: &RecordSet) -> Option<(f64, f64)> {
    let kept = beside_peers(set).ok()?;
    let p99 = |row: &Row| {
        let of = |phase: fn(&Round) -> f64| row.middle(phase) / 1e3;
        (of(|round| round.before_inserts_us[1]), of(|round| round.inserts_us[1]))
    };
    let ours = kept.record.rows.iter().filter(|row| is_ours(&row.name)).map(p99);
    ours.min_by(|a, b| a.1.total_cmp(&b.1)).filter(|(before, beside)| beside > before)
}

fn better_peers(kept: &RecordFile<Pressure>) -> Vec<String> {
    let rows = || kept.record.rows.iter().filter(|row| row.middle(|round| round.hit_percent) > 0.0);
    let mut all = Vec::new();
    for (what, phase) in [
        ("alone", (|round: &Round| round.calm_us[1]) as fn(&Round) -> f64),
        ("under pressure", |round| round.pressure_us[1]),
        ("beside inserts", |round| round.inserts_us[1]),
    ] {
        let Some(ours) =
            rows().filter(|row| is_ours(&row.name)).map(|row| row.middle(phase)).reduce(f64::min)
        else {
            continue;
        };
        let better: Vec<String> = rows()
            .filter(|row| !is_ours(&row.name) && row.middle(phase) < ours)
            .map(|row| format!("{} {} µs", name(row), grouped(row.middle(phase).round() as u64)))
            .collect();
        if !better.is_empty() {
            all.push(format!(
                "p99 latency of objects in memory, {what}: {} µs; {} ({}).",
                grouped(ours.round() as u64),
                better.join(", "),
                kept.link()
            ));
        }
    }
    all
}

/// Returns for each trace replayed in memory: Nighttrain's hit ratio, and the best other library with its hit
/// ratio.
pub(crate) fn memory_traces(set: &RecordSet) -> Vec<(String, f64, String, f64)> {
    let Some(kept) = set.pressed(|record| !record.stores.is_empty()) else { return Vec::new() };
    let in_memory = || kept.record.stores.iter().filter(|store| !store.on_disk);
    in_memory()
        .filter(|store| store.ours)
        .filter_map(|ours| {
            let best = in_memory()
                .filter(|store| !store.ours && store.trace == ours.trace)
                .max_by(|a, b| a.hit_percent().total_cmp(&b.hit_percent()))?;
            Some((ours.trace.clone(), ours.hit_percent(), best.store.clone(), best.hit_percent()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_goals_are_said_in_plain_words() {
        let bound = |of: &str, what: &str, found: &str, bound: &str| Figure {
            of: of.into(),
            what: what.into(),
            found: found.into(),
            bound: bound.into(),
            verdict: Verdict::NotMet,
        };
        let ratio = "hit ratio at equal bytes of memory, trace scans";
        assert_eq!(
            missed(&bound("ours", ratio, "55.6%", "at least foyer, S3-FIFO's 60.4%")),
            "Hit ratio with equal memory, trace *scans*: 55.6%; foyer (S3-FIFO) 60.4%"
        );
        let read = "ns of a resident hit of 1 KiB above an unchecked read, 1000 objects evenly";
        assert_eq!(
            missed(&bound("store", read, "52.64 (52.29–61.68); unchecked 40", "at most 50")),
            "Store: a resident hit of 1 KiB takes 53 (52–62) ns more than an unchecked read of 40 ns, 1,000 objects \
             uniformly (goal: at most 50)"
        );
    }
}
