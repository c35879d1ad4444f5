//! Stores that are larger than memory: servers beside each other, libraries beside each other, starts.

use lab::paired::spread::{Verdict, median};
use lab::report::{Table, grouped};

use crate::pages::contenders::{is_ours, shown};
use crate::pages::markdown::{bold_if_ours, dash, paragraph, table};
use crate::pages::shelf::{Bound, Kept, Pressure, Round, Server, Shelf};

/// Those with fewer servers say how one of them is, not how it stands beside the others.
const SERVERS_MIN: usize = 3;

fn beside_peers(shelf: &Shelf) -> Result<&Kept<Pressure>, String> {
    shelf
        .pressed(|record| record.rows.len() >= SERVERS_MIN)
        .ok_or_else(|| format!("no record of bench-pressure has {SERVERS_MIN} servers"))
}

pub(crate) fn section(out: &mut String, shelf: &Shelf) -> Result<(), String> {
    let kept = beside_peers(shelf)?;
    out.push_str("### A store that is larger than memory\n\n");
    let settings: Vec<String> =
        kept.record.settings.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    paragraph(
        out,
        &format!(
            "{}. Latencies are of objects that memory holds, from when they were due: with no other load, among requests for \
             all objects by Zipf with scans mixed in, and beside inserts without end. Medians of the rounds. {}; `make \
             bench-pressure` repeats it.",
            settings.join("; "),
            kept.links()
        ),
    );
    table(out, &servers(kept));
    for row in kept.record.rows.iter().filter(|row| !row.remarks.is_empty()) {
        paragraph(out, &format!("{}: {}.", name(row), row.remarks.join("; ")));
    }
    if let Some(alone) = shelf.pressed(|record| !record.rows.is_empty() && record.rows.len() < SERVERS_MIN) {
        let settings: Vec<&str> =
            alone.record.settings.iter().take(3).map(|(_, value)| value.as_str()).collect();
        paragraph(
            out,
            &format!(
                "Larger, with ours alone (memory allowed, store, objects: {}). {}.",
                settings.join(", "),
                alone.links()
            ),
        );
        table(out, &servers(alone));
    }
    starts(out, shelf);
    libraries(out, shelf);
    cold(out, shelf);
    Ok(())
}

fn name(row: &Server) -> String {
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

fn middle(row: &Server, value: impl Fn(&Round) -> f64) -> f64 {
    median(&row.rounds.iter().map(value).collect::<Vec<_>>()).unwrap_or(0.0)
}

pub(crate) fn servers(kept: &Kept<Pressure>) -> Table {
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
        // Who was killed while it was filled has rounds of nothing.
        if middle(row, |round| round.hit_percent) == 0.0 {
            let mut cells = vec![name(row), "–".to_owned()];
            cells.extend(std::iter::repeat_n("–".to_owned(), 6));
            found.row(cells);
            continue;
        }
        let whole = |value: f64| grouped(value.round() as u64);
        let p99 = |phase: fn(&Round) -> [f64; 3]| whole(middle(row, |round| phase(round)[1]));
        found.row([
            name(row),
            format!("{:.1}", middle(row, |round| round.hit_percent)),
            p99(|round| round.calm_us),
            p99(|round| round.pressure_us),
            format!("{} → {}", p99(|round| round.before_inserts_us), p99(|round| round.inserts_us)),
            format!("{:.1}", middle(row, |round| round.insert_mib_per_s)),
            format!("{:.0}", middle(row, |round| round.cpu_us)),
            whole(row.cold_per_s),
        ]);
    }
    found
}

fn starts(out: &mut String, shelf: &Shelf) {
    let Some(kept) = shelf.pressed(|record| !record.starts.is_empty()) else { return };
    paragraph(
        out,
        &format!("A start with a store's file that is there already, none of it cached. {}.", kept.links()),
    );
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
    table(out, &found);
}

fn libraries(out: &mut String, shelf: &Shelf) {
    let Some(kept) = shelf.pressed(|record| !record.stores.is_empty()) else { return };
    out.push_str("### The store beside other libraries\n\n");
    paragraph(
        out,
        &format!(
            "The same traces and the same bytes, of memory or of memory and disk: what was answered, and the CPU time of a \
             request. {}.",
            kept.links()
        ),
    );
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
        table(out, &found);
    }
}

fn cold(out: &mut String, shelf: &Shelf) {
    let Some(kept) = shelf.pressed(|record| !record.cold.is_empty()) else { return };
    paragraph(
        out,
        &format!(
            "Hits that only the disk has, in one process, beside raw random reads of the same sizes by as many threads. {}.",
            kept.links()
        ),
    );
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
    table(out, &found);
}

/// Each bound once, as judged last, with its record. The rate of inserts stands in the words of its bound and differs
/// from run to run.
fn judged(shelf: &Shelf) -> Vec<(&Bound, &Kept<Pressure>)> {
    let mut found: Vec<(&Bound, &Kept<Pressure>)> = Vec::new();
    let subject =
        |bound: &Bound| (bound.of.clone(), bound.what.split(" (").next().unwrap_or_default().to_owned());
    for kept in &shelf.pressure {
        for bound in kept.record.figures.iter().filter(|bound| bound.verdict != Verdict::NotMeasured) {
            match found.iter_mut().find(|(known, _)| subject(known) == subject(bound)) {
                Some(place) => *place = (bound, kept),
                None => found.push((bound, kept)),
            }
        }
    }
    found
}

pub(crate) fn bounds(out: &mut String, shelf: &Shelf) {
    let mut found =
        Table::new("", &[("of", ""), ("figure", ""), ("found", ""), ("bound", ""), ("", ""), ("record", "")]);
    for (bound, kept) in judged(shelf) {
        found.row([
            bound.of.clone(),
            bound.what.clone(),
            bound.found.clone(),
            bound.bound.clone(),
            bound.verdict.words().to_owned(),
            kept.link(),
        ]);
    }
    table(out, &found);
}

/// What was judged *not met*, and peers that were better at something.
pub(crate) fn losses(shelf: &Shelf) -> Vec<String> {
    let mut all: Vec<String> = judged(shelf)
        .into_iter()
        .filter(|(bound, _)| bound.verdict == Verdict::NotMet)
        .map(|(bound, kept)| {
            let what = &bound.what;
            format!(
                "Not met by {}: {what}: {}; aimed at: {} ({}).",
                bound.of,
                bound.found,
                bound.bound,
                kept.link()
            )
        })
        .collect();
    if let Ok(kept) = beside_peers(shelf) {
        all.extend(better_peers(kept));
    }
    all
}

fn better_peers(kept: &Kept<Pressure>) -> Vec<String> {
    let rows = || kept.record.rows.iter().filter(|row| middle(row, |round| round.hit_percent) > 0.0);
    let mut all = Vec::new();
    for (what, phase) in [
        ("alone", (|round: &Round| round.calm_us[1]) as fn(&Round) -> f64),
        ("under pressure", |round| round.pressure_us[1]),
        ("beside inserts", |round| round.inserts_us[1]),
    ] {
        let Some(ours) =
            rows().filter(|row| is_ours(&row.name)).map(|row| middle(row, phase)).reduce(f64::min)
        else {
            continue;
        };
        let better: Vec<String> = rows()
            .filter(|row| !is_ours(&row.name) && middle(row, phase) < ours)
            .map(|row| format!("{} {:.0}", name(row), middle(row, phase)))
            .collect();
        if !better.is_empty() {
            all.push(format!(
                "p99 of hot objects {what}, µs: {}; the better of ours {ours:.0} ({}).",
                better.join(", "),
                kept.link()
            ));
        }
    }
    all
}

/// Of each trace in memory alone: our share of what is answered, and the best of the others with its.
pub(crate) fn memory_traces(shelf: &Shelf) -> Vec<(String, f64, String, f64)> {
    let Some(kept) = shelf.pressed(|record| !record.stores.is_empty()) else { return Vec::new() };
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
