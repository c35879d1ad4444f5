//! A report for programs. Names in it stay; new ones may come.

use serde_json::{Value, json};

use crate::experiment::{Options, Outcome, Refusal};
use crate::paired::machine::{Machine, date};

/// All outcomes as one value: `{lab, date, quick, version, machine, experiments: [...]}`.
///
/// An experiment that could not be done has `refusal` (`{kind: missing | usage | failed, text}`) and neither
/// verdicts nor data. Figures are drawings, so that only their titles are here; what they draw is in `data`.
#[must_use]
pub fn render(outcomes: &[Outcome], options: &Options) -> Value {
    json!({
        "lab": 1,
        "date": date(),
        "quick": options.quick,
        "version": env!("CARGO_PKG_VERSION"),
        "machine": Machine::here(),
        "experiments": outcomes.iter().map(one).collect::<Vec<_>>(),
    })
}

fn one(outcome: &Outcome) -> Value {
    let experiment = outcome.experiment;
    let mut value = json!({
        "name": experiment.name,
        "claims": experiment.claims,
        "title": experiment.title,
        "statement": experiment.statement,
        "source": experiment.source,
        "seconds": outcome.seconds,
    });
    match &outcome.result {
        Ok(report) => {
            value["verdicts"] = json!(report.verdicts);
            value["tables"] = json!(report.tables);
            value["figures"] =
                json!(report.figures.iter().map(|figure| figure.title.as_str()).collect::<Vec<_>>());
            value["notes"] = json!(report.notes);
            value["data"] = report.data.clone();
        }
        Err(refusal) => {
            let (kind, text) = match refusal {
                Refusal::Missing(text) => ("missing", text),
                Refusal::Usage(text) => ("usage", text),
                Refusal::Failed(text) => ("failed", text),
            };
            value["refusal"] = json!({ "kind": kind, "text": text });
        }
    }
    value
}
