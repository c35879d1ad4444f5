//! Report of `nighttrain lab load`, for a run or for a search for the knee.

use super::{Outcome, Plan, sweep::Knee};
use crate::{
    experiment::{Experiment, Refusal, Report, Table},
    latency::{LatencyOrigin, readable},
    report::{
        grouped,
        plot::{Axis, Plot, Reference, Series, Stroke},
    },
};

/// The load generator as the report describes it. It is not an experiment: it tests no published claim.
pub const LOAD: Experiment = Experiment {
    name: "load",
    claims: &["L1", "L2", "L3"],
    title: "a server under load, from when each request was due",
    statement: "Latency counts from when a request should have been sent; beside it stands what a generator that \
                waits for answers would have shown",
    source: "The Effect of Coordinated Omission, 2 July 2015",
    run: |_| Err(Refusal::Usage("`nighttrain lab load URL` runs it".to_owned())),
};

/// Builds the report of one run.
#[must_use]
pub fn of_run(url: &str, plan: &Plan, outcome: &Outcome) -> Report {
    let mut report =
        Report { data: serde_json::json!({ "url": url, "run": outcome.figures() }), ..Report::default() };
    report.tables.push(both(outcome));
    report.tables.push(counts(plan, outcome));
    let title = format!(
        "At {} requests a second, 99% are answered within {}",
        grouped(outcome.offered.round() as u64),
        readable(outcome.latencies.quantile(LatencyOrigin::Due, 0.99))
    );
    report.figure(title.clone(), percentiles(outcome).draw(&title), caption());
    for warning in outcome.warnings() {
        report.note(warning);
    }
    report
}

/// Builds the report of a search.
#[must_use]
pub fn of_sweep(url: &str, knee: &Knee, quantile: f64, at_most_ns: u64) -> Report {
    let tries: Vec<_> = knee
        .tries
        .iter()
        .map(|one| serde_json::json!({ "rate": one.rate, "held": one.held, "run": one.outcome.figures() }))
        .collect();
    let mut report = Report {
        data: serde_json::json!({
            "url": url, "held": knee.held, "broke": knee.broke,
            "quantile": quantile, "at_most_ns": at_most_ns, "tries": tries,
        }),
        ..Report::default()
    };
    let mut table = Table::new(
        "The rates that were tried",
        &[
            ("asked for", "1/s"),
            ("reached", "1/s"),
            ("50%", ""),
            ("99%", ""),
            ("99.9%", ""),
            ("worst", ""),
            ("99% from sent", ""),
            ("bound", ""),
        ],
    );
    for one in &knee.tries {
        let due = one.outcome.latencies.percentiles(LatencyOrigin::Due);
        table.row([
            grouped(one.rate.round() as u64),
            grouped(one.outcome.achieved.round() as u64),
            readable(due.p50),
            readable(due.p99),
            readable(due.p99_9),
            readable(due.worst),
            readable(one.outcome.latencies.quantile(LatencyOrigin::Sent, 0.99)),
            if one.held { "held" } else { "broken" }.to_owned(),
        ]);
    }
    report.tables.push(table);
    let bound = format!("{}% within {}", quantile * 100.0, readable(at_most_ns));
    let rate = |rate: f64| grouped(rate.round() as u64);
    let title = match (knee.held, knee.broke) {
        (Some(held), Some(broke)) => {
            format!("{bound}: up to {} requests a second, not at {}", rate(held), rate(broke))
        }
        (Some(held), None) => format!("{bound}: at every rate up to {}", rate(held)),
        (None, Some(broke)) => format!("{bound}: not even at {} requests a second", rate(broke)),
        (None, None) => "No rate was tried".to_owned(),
    };
    report.figure(
        title.clone(),
        rates(knee, at_most_ns).draw(&title),
        "Each rate that was tried. A rate counts as broken when two of three runs broke the bound.",
    );
    if let Some(last) = knee.tries.last() {
        for warning in last.outcome.warnings() {
            report.note(format!("At {} a second: {warning}.", rate(last.rate)));
        }
    }
    report
}

fn both(outcome: &Outcome) -> Table {
    let mut table = Table::new(
        "Latency",
        &[
            ("", ""),
            ("50%", ""),
            ("90%", ""),
            ("99%", ""),
            ("99.9%", ""),
            ("99.99%", ""),
            ("99.999%", ""),
            ("worst", ""),
        ],
    );
    for (name, latencies, from) in [
        ("from when it was due", &outcome.latencies, LatencyOrigin::Due),
        ("from when it was sent", &outcome.latencies, LatencyOrigin::Sent),
        ("the generator's own lateness", &outcome.lateness, LatencyOrigin::Due),
    ] {
        let mut row = vec![name.to_owned()];
        row.extend(latencies.percentiles(from).row().iter().map(|ns| readable(*ns)));
        table.row(row);
    }
    table
}

fn counts(plan: &Plan, outcome: &Outcome) -> Table {
    let mut table = Table::new("Requests", &[("", ""), ("number", "")]);
    for (name, value) in [
        ("asked for, a second", outcome.offered.round() as u64),
        ("reached, a second", outcome.achieved.round() as u64),
        ("connections", plan.connections as u64),
        ("connections opened", outcome.connections.opened),
        ("connections used", outcome.connections.used),
        ("connections answered", outcome.connections.answered),
        ("connections ended without an answer", outcome.connections.refused),
        ("due", outcome.due),
        ("answered", outcome.answered),
        ("refused by the server", outcome.refused),
        ("lost with their connection", outcome.lost),
        ("unanswered at the end", outcome.unanswered),
        ("connections opened anew", outcome.reconnects),
    ] {
        table.row([name.to_owned(), grouped(value)]);
    }
    table
}

const fn caption() -> &'static str {
    "Percentiles on the usual scale: each step to the right is ten times rarer. What lies between the curves is what \
     waiting for answers would have left out."
}

fn percentiles(outcome: &Outcome) -> Plot {
    let curve = |from| -> Vec<(f64, f64)> {
        outcome.latencies.curve(from).into_iter().map(|(one_in, ns)| (one_in, ns as f64 / 1e3)).collect()
    };
    let worst = outcome.latencies.percentiles(LatencyOrigin::Due).worst as f64 / 1e3;
    Plot {
        x: Axis::log("one request in … is slower", 1.0, (outcome.latencies.count() as f64).max(10.0)),
        left: Axis::log("latency [µs]", 1.0, worst.max(100.0) * 1.5),
        right: None,
        series: vec![
            Series::new("from when it was due", Stroke::One, curve(LatencyOrigin::Due)),
            Series::new("from when it was sent", Stroke::Two, curve(LatencyOrigin::Sent)),
        ],
        references: vec![
            Reference::Place { at: 2.0, label: "median".into() },
            Reference::Place { at: 100.0, label: "99%".into() },
        ],
    }
}

fn rates(knee: &Knee, at_most_ns: u64) -> Plot {
    let curve = |from, quantile: f64| -> Vec<(f64, f64)> {
        let tries = knee.tries.iter();
        tries.map(|one| (one.rate, one.outcome.latencies.quantile(from, quantile) as f64 / 1e3)).collect()
    };
    let ends =
        (knee.tries.first().map_or(1.0, |one| one.rate), knee.tries.last().map_or(10.0, |one| one.rate));
    let mut references =
        vec![Reference::Level { at: at_most_ns as f64 / 1e3, right: false, label: "the bound".into() }];
    if let Some(held) = knee.held {
        references.push(Reference::Place { at: held, label: "the knee".into() });
    }
    Plot {
        x: Axis::log("requests a second", ends.0 / 1.1, ends.1 * 1.1),
        left: Axis::log("latency [µs]", 1.0, 1e7),
        right: None,
        series: vec![
            Series::new("99%, from due", Stroke::One, curve(LatencyOrigin::Due, 0.99)).with_discs(),
            Series::new("99%, from sent", Stroke::Two, curve(LatencyOrigin::Sent, 0.99)).with_discs(),
            Series::new("median, from due", Stroke::Three, curve(LatencyOrigin::Due, 0.5)),
        ],
        references,
    }
}
