//! A report as JSON. Its names are stable; new ones may be added.
//!
//! The JSON is also the record that is kept: [`parse`] restores from it everything that a page shows.

use serde::Deserialize;
use serde_json::{Value, json};

use super::page::FigureOrigin;
use super::{Figure, Judgement, Report, Table};
use crate::experiment::{Options, Outcome, Refusal};
use crate::experiments::named;
use crate::paired::machine::{Machine, date};

/// Returns all outcomes as one value: `{lab, date, quick, version, machine, experiments: [...]}`.
///
/// An experiment that could not be run has `refusal` (`{kind: missing | usage | failed, text}`) and neither
/// verdicts nor data. `figures` are the titles of its drawings, `drawings` the drawings themselves; the data
/// that they draw is in `data`.
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
            value["drawings"] = json!(report.figures);
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

/// The parts of a record that a page shows.
#[derive(Debug, Deserialize)]
struct RecordView {
    date: String,
    quick: bool,
    machine: Machine,
    experiments: Vec<RecordOutcome>,
}

#[derive(Debug, Deserialize)]
struct RecordOutcome {
    name: String,
    seconds: f64,
    refusal: Option<RecordRefusal>,
    #[serde(default)]
    tables: Vec<Table>,
    /// Drawings; absent from records that are older than the field.
    #[serde(default)]
    drawings: Vec<Figure>,
    #[serde(default)]
    verdicts: Vec<Judgement>,
    #[serde(default)]
    notes: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct RecordRefusal {
    kind: String,
    text: String,
}

/// Parses the output of [`render`]: the outcomes, the options, the date and the machine. `data` is left out,
/// because no page shows it, and so is the command line beyond `--quick`, because a record does not have it.
///
/// # Errors
/// Returns a message about the fault in the text, or the name of an experiment that this version does not
/// have.
pub fn parse(text: &str) -> Result<(Vec<Outcome>, Options, FigureOrigin), String> {
    let kept: RecordView = serde_json::from_str(text).map_err(|why| why.to_string())?;
    let outcomes = kept.experiments.into_iter().map(outcome).collect::<Result<_, _>>()?;
    let options = Options { quick: kept.quick, ..Options::default() };
    Ok((outcomes, options, FigureOrigin { date: kept.date, machine: kept.machine }))
}

fn outcome(kept: RecordOutcome) -> Result<Outcome, String> {
    let experiment = named(&kept.name)
        .ok_or_else(|| format!("no experiment is called `{}` in this version", kept.name))?;
    let result = match kept.refusal {
        Some(RecordRefusal { kind, text }) => Err(match kind.as_str() {
            "missing" => Refusal::Missing(text),
            "usage" => Refusal::Usage(text),
            _ => Refusal::Failed(text),
        }),
        None => Ok(Report {
            tables: kept.tables,
            figures: kept.drawings,
            verdicts: kept.verdicts,
            data: Value::Null,
            notes: kept.notes,
        }),
    };
    Ok(Outcome { experiment, result, seconds: kept.seconds })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Verdict;
    use crate::report::{PlayKind, page};

    #[test]
    fn a_stored_run_renders_the_same_page() {
        let all = crate::experiments::all();
        let mut report = Report::default();
        let mut table = Table::new("Rows", &[("what", ""), ("how much", "ms")]);
        table.row(["this & that", "12"]);
        report.tables.push(table);
        report.figure("It is drawn", "<svg></svg>", "how to read it");
        report.play(PlayKind::Ladder, json!({ "names": ["a \"b\" <c>"] }));
        report.judge("C0", "10×", "9×", Verdict::TooNoisyToSay);
        report.note("a note");
        let outcomes = [
            Outcome { experiment: &all[0], result: Ok(report), seconds: 1.5 },
            Outcome { experiment: &all[1], result: Err(Refusal::Missing("a disk".into())), seconds: 0.25 },
        ];
        let options = Options { quick: true, ..Options::default() };
        let value = render(&outcomes, &options);
        let (parsed, options, taken) = parse(&value.to_string()).unwrap();
        assert_eq!(taken.date, value["date"]);
        assert_eq!(
            page::render_as_of(&parsed, &options, &taken),
            page::render_as_of(&outcomes, &options, &taken)
        );
        assert!(parse(r#"{"lab": 1}"#).is_err());
    }
}
