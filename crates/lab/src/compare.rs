//! Comparison of two records of the same measurement: figures that changed beyond noise (rows L7 and L8 of
//! `docs/features.md`).
//!
//! A record is JSON of `nighttrain lab --json` or of a benchmark. Every list of numbers that has at least
//! [`ROUNDS_MIN`] entries and is at the same path in both records is taken as the rounds of one figure. Its
//! median has changed if the 95% bootstrap interval of the ratio of medians does not contain 1 *and* the
//! change is at least [`SMALLEST`]: with many figures some intervals miss 1 by chance.
//!
//! Verdicts that differ are listed. Records from different machines are refused by default: the ratio of two
//! machines is not a change.

use serde::Serialize;
use serde_json::Value;

use crate::paired::spread::{Draws, RESAMPLES, ROUNDS_MIN, median};

/// Smallest relative change that is reported.
pub const SMALLEST: f64 = 0.03;
const SEED: u64 = 8;
/// Properties of the machine that must be equal in both records.
const MACHINE: [&str; 4] = ["cpu", "cores", "memory_mib", "kernel"];
/// Maximum nesting depth that is searched; no record is deeper.
const DEPTH_MAX: usize = 32;

/// A figure that both records have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// Path in the record, such as `big-o / lengths / 50 / ns / 0`.
    pub place: String,
    /// Median in the first record.
    pub before: f64,
    /// Median in the second record.
    pub after: f64,
    /// Ratio of the second median to the first.
    pub ratio: f64,
    /// Lower end of the ratio's 95% interval.
    pub low: f64,
    /// Upper end of the ratio's 95% interval.
    pub high: f64,
}

/// Differences between two records.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Comparison {
    /// Figures that changed beyond noise, the largest change first.
    pub changed: Vec<Change>,
    /// Number of figures that were compared.
    pub compared: usize,
    /// Number of figures that only one of the records has.
    pub unmatched: usize,
    /// Claims whose verdicts differ: claim, before, after.
    pub verdicts: Vec<(String, String, String)>,
}

/// Reason why two records were not compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// A record names no machine, or the machines differ.
    #[error(
        "the records are from different machines ({field}: {before} and {after}); --any-machine compares them all the same"
    )]
    Machines {
        /// Property that differs.
        field: &'static str,
        /// Value in the first record.
        before: String,
        /// Value in the second record.
        after: String,
    },
    /// The records have no figure in common.
    #[error("the records have no figure in common: are they of the same measurement?")]
    NothingInCommon,
}

/// Compares two records.
///
/// # Errors
/// [`CompareError::Machines`] if the machines differ and `any_machine` is false;
/// [`CompareError::NothingInCommon`] if no figure is in both records.
pub fn compare(before: &Value, after: &Value, any_machine: bool) -> Result<Comparison, CompareError> {
    if !any_machine {
        for field in MACHINE {
            let of = |record: &Value| {
                record
                    .pointer(&format!("/machine/{field}"))
                    .map_or_else(|| "not said".to_owned(), Value::to_string)
            };
            let (before, after) = (of(before), of(after));
            if before != after || before == "not said" {
                return Err(CompareError::Machines { field, before, after });
            }
        }
    }
    let (mut old, mut new) = (Vec::new(), Vec::new());
    figures(before, String::new(), 0, &mut old);
    figures(after, String::new(), 0, &mut new);
    let mut comparison = Comparison::default();
    for (place, rounds) in &new {
        let Some((_, earlier)) = old.iter().find(|(other, _)| other == place) else {
            comparison.unmatched += 1;
            continue;
        };
        let Some(change) = change(place, earlier, rounds) else { continue };
        comparison.compared += 1;
        let certain = change.low > 1.0 || change.high < 1.0;
        if certain && (change.ratio - 1.0).abs() >= SMALLEST {
            comparison.changed.push(change);
        }
    }
    comparison.unmatched +=
        old.iter().filter(|(place, _)| !new.iter().any(|(other, _)| other == place)).count();
    comparison.changed.sort_by(|a, b| b.ratio.ln().abs().total_cmp(&a.ratio.ln().abs()));
    comparison.verdicts = verdicts(before, after);
    if comparison.compared == 0 && comparison.verdicts.is_empty() && verdicts_of(after).is_empty() {
        return Err(CompareError::NothingInCommon);
    }
    Ok(comparison)
}

/// Collects the lists of numbers with their paths.
fn figures(value: &Value, place: String, depth: usize, found: &mut Vec<(String, Vec<f64>)>) {
    if depth > DEPTH_MAX {
        return;
    }
    let below = |name: &str| if place.is_empty() { name.to_owned() } else { format!("{place} / {name}") };
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(name, _)| *name != "machine") {
                figures(value, below(name), depth + 1, found);
            }
        }
        Value::Array(items) => {
            let numbers: Vec<f64> = items.iter().filter_map(Value::as_f64).collect();
            if numbers.len() == items.len() && numbers.len() >= ROUNDS_MIN {
                found.push((place, numbers));
                return;
            }
            for (at, item) in items.iter().enumerate() {
                figures(item, below(&named(item, at)), depth + 1, found);
            }
        }
        _ => {}
    }
}

/// Returns the name of a list's entry: its own name or size rather than its index, so that a longer list
/// still matches.
fn named(item: &Value, at: usize) -> String {
    for field in ["name", "scenario", "items", "rate", "offered", "order"] {
        match item.get(field) {
            Some(Value::String(name)) => return name.clone(),
            Some(Value::Number(number)) => return format!("{field} {number}"),
            _ => {}
        }
    }
    at.to_string()
}

fn change(place: &str, before: &[f64], after: &[f64]) -> Option<Change> {
    let (old, new) = (median(before)?, median(after)?);
    if old <= 0.0 || new <= 0.0 {
        return None;
    }
    let mut draws = Draws::new(SEED);
    let mut resampled = |rounds: &[f64]| {
        let drawn: Vec<f64> = rounds.iter().map(|_| rounds[draws.below(rounds.len())]).collect();
        median(&drawn)
    };
    let mut ratios: Vec<f64> = (0..RESAMPLES)
        .filter_map(|_| Some(resampled(after)? / resampled(before)?))
        .filter(|ratio| ratio.is_finite())
        .collect();
    ratios.sort_by(f64::total_cmp);
    let tail = ratios.len() / 40;
    Some(Change {
        place: place.to_owned(),
        before: old,
        after: new,
        ratio: new / old,
        low: *ratios.get(tail)?,
        high: *ratios.get(ratios.len() - 1 - tail)?,
    })
}

/// Returns the claims with their verdicts.
fn verdicts_of(record: &Value) -> Vec<(String, String)> {
    let experiments = record.get("experiments").and_then(Value::as_array).into_iter().flatten();
    experiments
        .flat_map(|experiment| experiment.get("verdicts").and_then(Value::as_array).into_iter().flatten())
        .filter_map(|verdict| {
            Some((verdict.get("claim")?.as_str()?.to_owned(), verdict.get("verdict")?.as_str()?.to_owned()))
        })
        .collect()
}

fn verdicts(before: &Value, after: &Value) -> Vec<(String, String, String)> {
    let old = verdicts_of(before);
    verdicts_of(after)
        .into_iter()
        .filter_map(|(claim, now)| {
            let was = old.iter().find(|(other, _)| *other == claim)?.1.clone();
            (was != now).then_some((claim, was, now))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(kernel: &str, rounds: &[f64], verdict: &str) -> Value {
        json!({
            "machine": { "cpu": "x", "cores": 2, "memory_mib": 1, "kernel": kernel },
            "experiments": [{
                "name": "big-o",
                "verdicts": [{ "claim": "C14", "verdict": verdict }],
                "data": { "lengths": [{ "items": 50, "ns": rounds }], "one": 7.0 },
            }],
        })
    }

    const QUIET: [f64; 7] = [10.0, 10.1, 9.9, 10.0, 10.2, 9.8, 10.0];

    #[test]
    fn a_planted_change_is_detected_and_noise_ignored() {
        let before = record("k", &QUIET, "holds");
        let slower: Vec<f64> = QUIET.iter().map(|ns| ns * 1.2).collect();
        let comparison = compare(&before, &record("k", &slower, "does-not-hold-here"), false).unwrap();
        assert_eq!(comparison.changed[0].place, "experiments / big-o / data / lengths / items 50 / ns");
        assert!((comparison.changed[0].ratio - 1.2).abs() < 0.01);
        assert_eq!(comparison.verdicts, [("C14".into(), "holds".into(), "does-not-hold-here".into())]);

        // Another sample of the same distribution shows no change.
        let again = [10.1, 9.9, 10.0, 9.8, 10.1, 10.0, 10.2];
        let comparison = compare(&before, &record("k", &again, "holds"), false).unwrap();
        assert_eq!((comparison.changed.len(), comparison.compared), (0, 1));
        // The median is a fifth higher, but the rounds scatter more than that.
        let wild = [5.0, 30.0, 12.0, 4.0, 25.0, 12.0, 9.0];
        assert!(compare(&before, &record("k", &wild, "holds"), false).unwrap().changed.is_empty());
    }

    #[test]
    fn other_machines_and_other_measurements_are_refused() {
        let (one, other) = (record("k", &QUIET, "holds"), record("other", &QUIET, "holds"));
        let error = compare(&one, &other, false).unwrap_err();
        assert!(matches!(error, CompareError::Machines { field: "kernel", .. }));
        assert!(compare(&one, &other, true).is_ok());
        assert!(matches!(compare(&json!({}), &one, false), Err(CompareError::Machines { .. })));
        assert_eq!(compare(&one, &json!({ "a": [1, 2, 3] }), true), Err(CompareError::NothingInCommon));
    }

    #[test]
    fn entries_match_by_name_in_longer_lists() {
        let shorter = json!({ "s": [{ "name": "b", "ns": QUIET }] });
        let longer = json!({ "s": [{ "name": "a", "ns": [1.0, 1.0, 1.0] }, { "name": "b", "ns": QUIET }] });
        let comparison = compare(&shorter, &longer, true).unwrap();
        assert_eq!((comparison.compared, comparison.unmatched, comparison.changed.len()), (1, 1, 0));
    }
}
