//! The mail server's section of docs/benchmarks.md.

use askama::Template;
use lab::paired::spread::Verdict;

use crate::pages::cache::cheaper_peers;
use crate::pages::markdown::{SourcedTable, costs, dash, goals, interval, list, ratio, table};
use crate::pages::record_set::{RecordSet, comparison, table as titled};

pub(crate) const BENCH: &str = "bench-mail";
/// Scenario of the chart.
pub(crate) const SCENARIO: &str = "reused";
/// Tables of the section, by the beginning of their titles; each comes from the newest record that has it.
pub(crate) const TABLES: [&str; 11] = [
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
/// Scenarios whose costs are listed in a sentence per scenario.
const TOLD: [&str; 6] = ["pages", "list-100", "search", "rare-word", "newsletter", "stored"];

/// Template of the mail server's section.
#[derive(Debug, Template)]
#[template(path = "mail.md", escape = "none")]
struct Section {
    mail: String,
    mails: SourcedTable,
    costs: Vec<String>,
    tables: Vec<(String, String)>,
    losses: String,
    goals: String,
}

pub(crate) fn section(set: &RecordSet) -> Result<String, String> {
    let newest = set.beside_peers(BENCH, SCENARIO)?;
    let scenarios = [("reused", "connections reused"), ("connections", "a connection for each mail")];
    let section = Section {
        mail: newest.record.settings.get("mail").cloned().unwrap_or_default(),
        mails: SourcedTable::new(newest, table(&costs(&newest.record, &scenarios, 0)?)),
        costs: TOLD.iter().filter_map(|scenario| cost(set, scenario)).collect(),
        tables: TABLES.iter().filter_map(|title| titled_table(set, title)).collect(),
        losses: list(losses(set)?),
        goals: goals(&set.bounds(BENCH)),
    };
    section.render().map_err(|why| why.to_string())
}

/// Returns a sentence with each contender's cost in a scenario.
fn cost(set: &RecordSet, scenario: &str) -> Option<String> {
    let kept = set.newest(BENCH, |record| comparison(record, scenario).is_some())?;
    let found = comparison(&kept.record, scenario)?;
    let costs: Vec<String> = found
        .series
        .iter()
        .filter_map(|series| Some(format!("{}: {:.0}", series.name, found.cost(&series.name)?)))
        .collect();
    let what = found.what.trim_end_matches('.');
    Some(format!("CPU µs a {} ({what}). {} ({}).", found.unit, costs.join("; "), kept.link()))
}

/// Returns the newest table whose title begins with `title`, after the link to its record.
fn titled_table(set: &RecordSet, title: &str) -> Option<(String, String)> {
    let kept = set.newest(BENCH, |record| titled(&record.tables, title).is_some())?;
    Some((kept.link(), table(titled(&kept.record.tables, title)?)))
}

/// Returns one sentence for each figure that is worse than a peer's or a goal, with a link to its record.
pub(crate) fn losses(set: &RecordSet) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    let kept = set.beside_peers(BENCH, SCENARIO)?;
    for scenario in ["reused", "connections"] {
        all.extend(cheaper_peers(kept, scenario, "a mail"));
        if let Some(found) = comparison(&kept.record, scenario)
            && let Some(above) = ratio(found, "ours", "sink").filter(|ratio| ratio.median > 1.0)
        {
            all.push(format!("{}: {} times smtp-sink ({}).", found.what, interval(above), kept.link()));
        }
    }
    for (figure, kept) in set.bounds(BENCH) {
        let how = match figure.verdict {
            Verdict::NotMet => "Goal not met",
            Verdict::TooNoisy => "Undecided",
            Verdict::Met | Verdict::NotMeasured => continue,
        };
        let found = figure.ratio.map_or_else(dash, interval);
        all.push(format!("{how}: {}: {found} ({}).", figure.what, kept.link()));
    }
    for scenario in TOLD {
        if let Some(kept) = set.newest(BENCH, |record| comparison(record, scenario).is_some()) {
            all.extend(cheaper_peers(kept, scenario, "in it"));
            let lost = kept.record.remarks.iter().filter_map(|remark| missed(remark, true));
            all.extend(lost.map(|sentence| format!("{sentence} ({}).", kept.link())));
        }
    }
    all.dedup();
    if let Some(share) = others(&kept.record.remarks) {
        all.push(format!("Other programs used {share} of the server's core ({}).", kept.link()));
    }
    if let Some(quoted) = titled(&kept.record.tables, "Quoted") {
        let names: Vec<&str> = quoted.rows.iter().filter_map(|row| row.first().map(String::as_str)).collect();
        all.push(format!(
            "{} were not measured here: their figures are those of others ({}).",
            names.join(" and "),
            kept.link()
        ));
    }
    Ok(all)
}

/// Returns a sentence about a missed goal, from a record's remark (`WHAT, ≤ GOAL UNIT: FOUND UNIT → not
/// met`).
pub(crate) fn missed(remark: &str, is_whole: bool) -> Option<String> {
    let (what, rest) = remark.strip_suffix(" → not met")?.split_once(", ≤ ")?;
    let (goal, found) = rest.split_once(": ")?;
    let number = goal.split(' ').next()?;
    let Some(mails) = what.strip_prefix("memory with ") else {
        return Some(format!("{what}: {found} (goal {number})"));
    };
    let count = match mails.split(' ').next()? {
        "1000000" => "a million",
        other => other,
    };
    let buffers = if is_whole { ", the log's buffers not counted" } else { "" };
    Some(format!("{found} of memory for {count} mails{buffers} (goal {number})"))
}

/// Returns the share of the server's core that other programs used, if a remark has it.
pub(crate) fn others(remarks: &[String]) -> Option<&str> {
    let remark =
        remarks.iter().find_map(|remark| remark.strip_prefix("not a quiet machine: others used "))?;
    remark.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_goals_are_said_in_plain_words() {
        let memory = "memory with 1000000 stored, ≤ 150 MiB beyond the log's buffers: 172 MiB → not met";
        assert_eq!(missed(memory, false).unwrap(), "172 MiB of memory for a million mails (goal 150)");
        let paint = "a mail, first paint, median, ≤ 150 ms: 171.0 ms → not met";
        assert_eq!(missed(paint, true).unwrap(), "a mail, first paint, median: 171.0 ms (goal 150)");
        assert_eq!(missed("memory with 1000000 stored, ≤ 150 MiB: 99 MiB → met", true), None);
        let noisy = ["not a quiet machine: others used 27% of the server's core (median)".to_owned()];
        assert_eq!(others(&noisy), Some("27%"));
    }
}
