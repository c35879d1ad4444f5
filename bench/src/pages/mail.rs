//! Mail on the page.

use lab::paired::spread::Verdict;

use crate::pages::cache::cheaper_peers;
use crate::pages::markdown::{bounds, costs, dash, interval, list, paragraph, ratio, table};
use crate::pages::shelf::{Shelf, comparison, table as titled};

pub(crate) const BENCH: &str = "bench-mail";
/// What the chart is about.
pub(crate) const SCENARIO: &str = "reused";
/// Tables of the newest record that has them, by how their titles begin.
const TABLES: [&str; 11] = [
    "Lists of 100",
    "A rare word",
    "Index for searches",
    "Pages, 250 a second",
    "Mails made to be slow",
    "In a browser",
    "Memory of ours",
    "Memory of Mailpit",
    "Pipelined",
    "Idle connections",
    "Quoted",
];
/// Scenarios of which each contender's cost is told in a sentence.
const TOLD: [&str; 6] = ["pages", "list-100", "search", "rare-word", "newsletter", "stored"];

pub(crate) fn section(out: &mut String, shelf: &Shelf) -> Result<(), String> {
    let newest = shelf.beside_peers(BENCH, SCENARIO)?;
    out.push_str("## Mail\n\n### A mail taken\n\n");
    paragraph(
        out,
        &format!(
            "CPU time of the server for one mail ({}), on one core, and how many times that of postfix's `smtp-sink`, which \
             throws the mail away. Ours stores, indexes and announces it, and its 250 means that the mail survives `kill -9`. \
             The first row of ours stores each mail whole. {}; `make bench-mail` repeats it.",
            newest.record.settings.get("mail").map_or("", String::as_str),
            newest.links()
        ),
    );
    let scenarios = [("reused", "connections reused"), ("connections", "a connection for each mail")];
    table(out, &costs(&newest.record, &scenarios, 0)?);

    out.push_str("### Pages, lists, searches, stored mails, many connections\n\n");
    for scenario in TOLD {
        let Some(kept) = shelf.newest(BENCH, |record| comparison(record, scenario).is_some()) else {
            continue;
        };
        let Some(found) = comparison(&kept.record, scenario) else { continue };
        let costs: Vec<String> = found
            .series
            .iter()
            .filter_map(|series| Some(format!("{}: {:.0}", series.name, found.cost(&series.name)?)))
            .collect();
        let what = found.what.trim_end_matches('.');
        paragraph(out, &format!("CPU µs a {} ({what}). {} ({}).", found.unit, costs.join("; "), kept.link()));
    }
    for title in TABLES {
        let Some(kept) = shelf.newest(BENCH, |record| titled(&record.tables, title).is_some()) else {
            continue;
        };
        if let Some(found) = titled(&kept.record.tables, title) {
            table(out, found);
            paragraph(out, &format!("From {}.", kept.link()));
        }
    }

    out.push_str("### What mail loses at\n\n");
    list(out, losses(shelf)?);
    out.push_str("### Bounds of mail\n\n");
    bounds(out, &shelf.bounds(BENCH));
    Ok(())
}

/// One sentence each, with its record.
pub(crate) fn losses(shelf: &Shelf) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    let kept = shelf.beside_peers(BENCH, SCENARIO)?;
    for scenario in ["reused", "connections"] {
        all.extend(cheaper_peers(kept, scenario, "a mail"));
        if let Some(found) = comparison(&kept.record, scenario)
            && let Some(above) = ratio(found, "ours", "sink").filter(|ratio| ratio.median > 1.0)
        {
            all.push(format!("{}: {} times the sink ({}).", found.what, interval(above), kept.link()));
        }
    }
    for (figure, kept) in shelf.bounds(BENCH) {
        let how = match figure.verdict {
            Verdict::NotMet => "Not met",
            Verdict::TooNoisy => "Too noisy to say",
            Verdict::Met | Verdict::NotMeasured => continue,
        };
        let found = figure.ratio.map_or_else(dash, interval);
        all.push(format!("{how}: {}: {found} ({}).", figure.what, kept.link()));
    }
    for scenario in TOLD {
        if let Some(kept) = shelf.newest(BENCH, |record| comparison(record, scenario).is_some()) {
            all.extend(cheaper_peers(kept, scenario, "in it"));
            let lost = kept.record.remarks.iter().filter(|remark| remark.ends_with("→ not met"));
            all.extend(lost.map(|remark| format!("{remark} ({}).", kept.link())));
        }
    }
    all.dedup();
    for remark in kept.record.remarks.iter().filter(|remark| remark.contains("not a quiet machine")) {
        all.push(format!("Of the record: {remark} ({}).", kept.link()));
    }
    if let Some(quoted) = titled(&kept.record.tables, "Quoted") {
        let names: Vec<&str> = quoted.rows.iter().filter_map(|row| row.first().map(String::as_str)).collect();
        all.push(format!(
            "{} were not measured here: what is said of them was measured by others ({}).",
            names.join(", "),
            kept.link()
        ));
    }
    Ok(all)
}
