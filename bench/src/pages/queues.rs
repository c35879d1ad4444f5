//! The section about queues: the results of the experiment `queue-beyond` in the full run of all claims.

use askama::Template;
use lab::report::Verdict;

use crate::pages::markdown::{list, table};
use crate::pages::record_set::RecordSet;

const EXPERIMENT: &str = "queue-beyond";
/// Tables of the section, by the beginning of their titles.
const TABLES: [&str; 5] = [
    "Transfers an operation",
    "Other keys",
    "1,000 items of 16 bytes in RAM, compared by key:",
    "1,000,000 items of 16 bytes in RAM, compared by key:",
    "16,000,000 items of 16 bytes in RAM, compared by key:",
];

/// Template of the section about queues.
#[derive(Debug, Template)]
#[template(path = "queues.md", escape = "none")]
struct Section {
    experiment: &'static str,
    tables: Vec<String>,
    losses: String,
}

pub(crate) fn section(set: &RecordSet) -> Result<String, String> {
    let kept = &set.lab;
    let found = kept
        .record
        .experiments
        .iter()
        .find(|one| one.name == EXPERIMENT)
        .ok_or_else(|| format!("{} has no {EXPERIMENT}", kept.path))?;
    let of = |title: &'static str| found.tables.iter().filter(move |one| one.title.starts_with(title));
    let is_lost =
        |verdict: Verdict| matches!(verdict, Verdict::DoesNotHoldHere | Verdict::HoldsWithAnotherFigure);
    let lost = found.verdicts.iter().filter(|judged| is_lost(judged.verdict));
    let section = Section {
        experiment: EXPERIMENT,
        tables: TABLES.into_iter().flat_map(of).map(table).collect(),
        losses: list(lost.map(|judged| {
            format!("{}: {} ([run](lab/results.json)).", judged.article, judged.ours.trim_end_matches('.'))
        })),
    };
    section.render().map_err(|why| why.to_string())
}
