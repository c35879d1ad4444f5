//! `nighttrain lab load`, `cores` and `compare`: instruments that work with any server.

use std::{fs, path::Path, time::Duration};

use lab::{
    cores,
    experiment::{Experiment, Options, Outcome, Report},
    load::{
        self, Plan, Target,
        report::{LOAD, of_run, of_sweep},
        sweep::{LatencyBound, Search, sweep},
    },
};

use crate::{
    cli::{CompareTask, CoresTask, DisplayOptions, LoadTask},
    experiments::{Spinner, show},
    failure::Failure,
    print,
};

/// Factor by which a sweep may exceed the given rate.
const SWEEP_FACTOR: f64 = 10_000.0;

/// Runs `nighttrain lab load URL`.
///
/// # Errors
/// Returns `Failure` for an invalid URL or plan, a server that is not reachable, or a file that cannot be
/// written.
pub(crate) fn load(task: &LoadTask) -> Result<(), Failure> {
    let usage = |text: String| Failure::Usage(text);
    if !(task.percentile > 0.0 && task.percentile < 100.0) {
        return Err(usage(format!("--percentile {}: more than 0 and less than 100", task.percentile)));
    }
    let target = Target::parse(&task.url, task.bytes, !task.insecure)
        .and_then(|target| match task.streams {
            Some(streams) => target.with_streams(streams),
            None => Ok(target),
        })
        .map_err(|error| usage(error.to_string()))?;
    let plan = Plan {
        rate: task.rate,
        arrivals: task.arrivals.into(),
        seed: task.seed,
        connections: task.connections,
        warm_up: task.warm_up,
        duration: task.duration,
        ..Plan::default()
    };
    let spinner = Spinner::new();
    let failed = |error: load::LoadError| match error {
        load::LoadError::Plan(text) => Failure::Usage(text),
        other => Failure::Failed(other.to_string()),
    };
    let report = if task.sweep {
        let bound =
            LatencyBound { quantile: task.percentile / 100.0, at_most_ns: task.at_most.as_nanos() as u64 };
        let search = Search { from: task.rate, to: task.rate * SWEEP_FACTOR, precision: 1.05, bound };
        spinner.say(&format!("{} a second", task.rate));
        let knee = sweep(&target, &plan, &search, |tried| {
            let outcome = if tried.held { "held" } else { "broke" };
            spinner.say(&format!("{:.0} a second {outcome}", tried.rate));
        })
        .map_err(failed)?;
        of_sweep(&task.url, &knee, bound.quantile, bound.at_most_ns)
    } else {
        let seconds = (plan.warm_up + plan.duration).as_secs_f64();
        spinner.say(&format!("{} a second for {seconds} s", task.rate));
        let outcome = load::run(&target, &plan).map_err(failed)?;
        if let Some(prefix) = &task.hgrm {
            write_histograms(prefix, &outcome, task.duration)?;
        }
        of_run(&task.url, &plan, &outcome)
    };
    spinner.end();
    finish(&LOAD, report, &task.shown)
}

/// Writes `PREFIX.corrected.hgrm`, `PREFIX.uncorrected.hgrm` and `PREFIX.hlog`.
fn write_histograms(prefix: &Path, outcome: &load::Outcome, duration: Duration) -> Result<(), Failure> {
    let named = |ending: &str| {
        let mut name = prefix.as_os_str().to_owned();
        name.push(ending);
        std::path::PathBuf::from(name)
    };
    let unwritable = |path: &Path, error: &dyn std::fmt::Display| {
        Failure::Failed(format!("cannot write {}: {error}", path.display()))
    };
    for (ending, from) in [
        (".corrected.hgrm", lab::latency::LatencyOrigin::Due),
        (".uncorrected.hgrm", lab::latency::LatencyOrigin::Sent),
    ] {
        let path = named(ending);
        fs::write(&path, outcome.latencies.hgrm(from)).map_err(|error| unwritable(&path, &error))?;
    }
    let path = named(".hlog");
    let mut file = fs::File::create(&path).map_err(|error| unwritable(&path, &error))?;
    outcome.latencies.write_hlog(&mut file, duration).map_err(|error| unwritable(&path, &error))
}

/// Runs `nighttrain lab cores -- COMMAND`.
///
/// # Errors
/// Returns `Failure` for a command that cannot be started, fails, or prints no figure.
pub(crate) fn cores(task: &CoresTask) -> Result<(), Failure> {
    let trial = cores::Trial {
        command: task.command.clone(),
        load: task.load.clone(),
        figure: task.figure.clone(),
        rounds: task.rounds,
        settle: task.settle,
    };
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
    let placements = cores::placements().map_err(|error| failed(&error))?;
    let spinner = Spinner::new();
    let placed =
        cores::run(&trial, &placements, &|what| spinner.say(what)).map_err(|error| failed(&error))?;
    spinner.end();
    finish(&cores::CORES, cores::report(&trial, &placed), &task.shown)
}

/// Runs `nighttrain lab compare BEFORE AFTER`.
///
/// # Errors
/// Returns `Failure` for a file that is not a record, records of different machines, or records with nothing
/// in common.
pub(crate) fn compare(task: &CompareTask) -> Result<(), Failure> {
    let (before, after) = (record(&task.before)?, record(&task.after)?);
    let found = lab::compare::compare(&before, &after, task.any_machine)
        .map_err(|error| Failure::Failed(error.to_string()))?;
    if task.json {
        let value = serde_json::to_value(&found).map_err(|error| Failure::Failed(error.to_string()))?;
        return print(&format!("{value:#}\n"));
    }
    let mut text = String::new();
    for change in &found.changed {
        text.push_str(&format!(
            "{}: {:.3} → {:.3}, {:+.1}% ({:+.1}% to {:+.1}%)\n",
            change.place,
            change.before,
            change.after,
            (change.ratio - 1.0) * 100.0,
            (change.low - 1.0) * 100.0,
            (change.high - 1.0) * 100.0
        ));
    }
    for (claim, was, now) in &found.verdicts {
        text.push_str(&format!("{claim}: {was} → {now}\n"));
    }
    text.push_str(&format!(
        "{} of {} figures changed beyond noise; {} are in one record only.\n",
        found.changed.len(),
        found.compared,
        found.unmatched
    ));
    print(&text)
}

fn record(path: &Path) -> Result<serde_json::Value, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(format!("{}: {error}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
    serde_json::from_str(&text).map_err(|error| failed(&format_args!("not a record: {error}")))
}

fn finish(what: &'static Experiment, report: Report, shown: &DisplayOptions) -> Result<(), Failure> {
    let outcome = Outcome { experiment: what, result: Ok(report), seconds: 0.0 };
    show(&[outcome], &Options::default(), shown)
}
