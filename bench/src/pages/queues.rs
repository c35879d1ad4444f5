//! The queues on the page: what `queue-beyond` found in the full run of all claims.

use lab::report::Verdict;

use crate::pages::markdown::{list, paragraph, table};
use crate::pages::shelf::Shelf;

const EXPERIMENT: &str = "queue-beyond";
/// Tables by how their titles begin.
const TABLES: [&str; 5] = [
    "Transfers an operation",
    "Other keys",
    "1,000 items of 16 bytes in RAM, compared by key:",
    "1,000,000 items of 16 bytes in RAM, compared by key:",
    "16,000,000 items of 16 bytes in RAM, compared by key:",
];

pub(crate) fn section(out: &mut String, shelf: &Shelf) -> Result<(), String> {
    let kept = &shelf.lab;
    let found = kept
        .record
        .experiments
        .iter()
        .find(|one| one.name == EXPERIMENT)
        .ok_or_else(|| format!("{} has no {EXPERIMENT}", kept.path))?;
    out.push_str("## The queues\n\n");
    paragraph(
        out,
        &format!(
            "The crate [`bheap`](../crates/bheap/README.md), held to its goals beside nine other heaps and C++, in simulated \
             memory (perfect LRU) and in RAM. From the [run of all claims](lab/README.md) ([all of it](lab/results.json)); \
             `nighttrain lab {EXPERIMENT}` repeats it."
        ),
    );
    for title in TABLES {
        for one in found.tables.iter().filter(|table| table.title.starts_with(title)) {
            table(out, one);
        }
    }
    out.push_str("### What the queues lose at\n\n");
    list(
        out,
        found
            .verdicts
            .iter()
            .filter(|judged| {
                matches!(judged.verdict, Verdict::DoesNotHoldHere | Verdict::HoldsWithAnotherFigure)
            })
            .map(|judged| {
                format!(
                    "{}: {} ([run](lab/results.json)).",
                    judged.article,
                    judged.ours.trim_end_matches('.')
                )
            }),
    );
    Ok(())
}
