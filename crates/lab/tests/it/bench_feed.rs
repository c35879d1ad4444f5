//! A tiny run of the benchmark, so that it does not rot: every installed server takes part, and relays every
//! message intact.
//!
//! The figures are not checked: they need a quiet machine and `make bench-feed`.

use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use lab::paired::record::Record;
use lab::paired::spread::Verdict;

use crate::quick::{ours_can, said};

const BENCH: &str = env!("CARGO_BIN_EXE_bench-feed");
const PEERS: [(&str, &str); 4] = [
    ("nats-server", "/usr/local/bin/nats-server"),
    ("nats-server-debian", "/usr/sbin/nats-server"),
    ("redis", "/usr/bin/redis-server"),
    ("mosquitto", "/usr/sbin/mosquitto"),
];

type Outcome = Result<(), Box<dyn Error>>;

/// Returns whether the program is built and has the feed.
fn ours_can_serve() -> bool {
    ours_can(BENCH, "feed", "--monitor")
}

/// Returns the record as a page, which is made on demand.
fn page_of(record: &Path) -> Result<String, Box<dyn Error>> {
    let made = Command::new(env!("CARGO_BIN_EXE_records")).arg("html").arg(record).output()?;
    if made.status.success() { Ok(String::from_utf8(made.stdout)?) } else { Err(said(&made).into()) }
}

#[test]
fn a_quick_run_relays_through_everybody_who_is_here() -> Outcome {
    let directory = tempfile::tempdir()?;
    let mut command = Command::new(BENCH);
    let scenarios = "none,one,ten,one-64k,one-1m,fan-out,ask-one,ask-fifty,many-slow,leaf,cores-pairs,churn";
    command.args(["--quick", "--milliseconds", "30", "--scenario", scenarios]);
    command.arg("--records").arg(directory.path());
    command.env_remove("NIGHTTRAIN_BIN").env_remove("NIGHTTRAIN_REFERENCE_FLOORS");
    let mut expected: Vec<&str> =
        PEERS.iter().filter(|(_, program)| Path::new(program).is_file()).map(|&(name, _)| name).collect();
    expected.push("floor");
    if ours_can_serve() {
        expected.push("ours");
    }
    command.arg("--only").arg(expected.join(","));
    let output = command.output()?;
    let said = said(&output);
    assert!(output.status.success(), "{said}");

    let mut records = Vec::new();
    for entry in fs::read_dir(directory.path())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            records.push(serde_json::from_str::<Record>(&fs::read_to_string(&path)?)?);
            let page = page_of(&path)?;
            assert!(page.contains("<svg") && page.contains("CPU µs a delivery"), "no graph");
        }
    }
    let [record] = &records[..] else { return Err(format!("{} records: {said}", records.len()).into()) };
    for scenario in ["none", "one", "ten"] {
        let comparison = record.comparisons.iter().find(|comparison| comparison.scenario == scenario);
        let comparison = comparison.ok_or_else(|| format!("{scenario} is missing: {said}"))?;
        for name in &expected {
            let series =
                comparison.series(name).ok_or_else(|| format!("{name} is missing in {scenario}: {said}"))?;
            let [sample] = &series.samples[..] else {
                return Err(format!("one round, not: {series:?}").into());
            };
            assert!(sample.units > 0 && sample.doubts.is_empty(), "{name} in {scenario}: {said}");
            let consumers = if scenario == "ten" { 10 } else { 1 };
            assert_eq!(sample.units % consumers, 0, "{name}: every message reaches every consumer");
        }
    }
    // Scenarios in which only some servers take part.
    for scenario in ["one-64k", "one-1m", "fan-out", "ask-one", "ask-fifty", "many-slow"] {
        let comparison = record.comparisons.iter().find(|comparison| comparison.scenario == scenario);
        let series = comparison.ok_or_else(|| format!("{scenario} is missing: {said}"))?.series.iter();
        for sample in series.flat_map(|series| &series.samples) {
            assert!(sample.units > 0 && sample.doubts.is_empty(), "{scenario}: {said}");
        }
    }
    // A single round proves nothing, and the record must not claim otherwise.
    let verdicts = record.figures.iter().map(|figure| figure.verdict);
    assert!(
        verdicts.into_iter().all(|verdict| matches!(verdict, Verdict::TooNoisy | Verdict::NotMeasured)),
        "{said}"
    );
    Ok(())
}

#[test]
fn an_unknown_name_is_answered_with_the_known_ones() -> Outcome {
    let output = Command::new(BENCH).args(["--quick", "--scenario", "eleven"]).output()?;
    let said = said(&output);
    assert!(!output.status.success() && said.contains("eleven") && said.contains("hundred"), "{said}");
    let list = Command::new(BENCH).arg("--list").output()?;
    let text = String::from_utf8_lossy(&list.stdout);
    assert!(list.status.success() && text.contains("crowd") && text.contains("mosquitto"), "{text}");
    Ok(())
}
