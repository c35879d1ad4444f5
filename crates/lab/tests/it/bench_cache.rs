//! A tiny run of the benchmark, so that it does not rot: every installed server takes part, is filled, and
//! answers hits.
//!
//! The figures are not checked: they need a quiet machine and `make bench-cache`.

use std::env;
use std::error::Error;
use std::fs;
use std::process::Command;

use lab::paired::record::Record;
use lab::paired::spread::Verdict;

use crate::quick::{installed, ours_can, said};

const BENCH: &str = env!("CARGO_BIN_EXE_bench-cache");
const PEERS: [(&str, &str); 5] = [
    ("varnish", "varnishd"),
    ("nginx", "nginx"),
    ("haproxy", "haproxy"),
    ("trafficserver", "traffic_server"),
    ("squid", "squid"),
];

type Outcome = Result<(), Box<dyn Error>>;

/// Returns whether the program is built and has the accelerator.
fn ours_can_serve() -> bool {
    ours_can(BENCH, "cache", "--origin")
}

#[test]
fn a_quick_run_measures_everybody_who_is_here() -> Outcome {
    let directory = tempfile::tempdir()?;
    let mut command = Command::new(BENCH);
    command.arg("--quick").arg("--records").arg(directory.path()).env_remove("NIGHTTRAIN_BIN");
    let mut expected: Vec<&str> =
        PEERS.iter().filter(|(_, program)| installed(program)).map(|&(name, _)| name).collect();
    expected.push("limit");
    if ours_can_serve() {
        expected.extend(["ours", "ours-file"]);
    }
    let storeless = ["limit-crowd", "direct"];
    command.arg("--only").arg([&expected[..], &storeless].concat().join(","));
    let output = command.output()?;
    let said = said(&output);
    if ["wrk", "cc", "taskset", "setpriv"].iter().any(|tool| !installed(tool)) {
        assert!(!output.status.success() && said.contains("bench/install-peers.sh"), "{said}");
        return Ok(());
    }
    assert!(output.status.success(), "{said}");

    let mut records = Vec::new();
    for entry in fs::read_dir(directory.path())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            records.push(serde_json::from_str::<Record>(&fs::read_to_string(path)?)?);
        }
    }
    let [record] = &records[..] else { return Err(format!("{} records: {said}", records.len()).into()) };
    for scenario in ["one-1k-64", "one-64k-64", "zipf-1k-64"] {
        let comparison = record.comparisons.iter().find(|comparison| comparison.scenario == scenario);
        let comparison = comparison.ok_or_else(|| format!("{scenario} is missing: {said}"))?;
        for name in &expected {
            let series =
                comparison.series(name).ok_or_else(|| format!("{name} is missing in {scenario}: {said}"))?;
            let [sample] = &series.samples[..] else {
                return Err(format!("one round, not: {series:?}").into());
            };
            assert!(sample.units > 0 && sample.cpu_us_per_unit().is_some(), "{name} in {scenario}: {said}");
            let from_origin = sample.doubts.iter().find(|doubt| doubt.contains("origin"));
            assert_eq!(from_origin, None, "{name} in {scenario}");
        }
    }
    // The floor programs have no origin, and only some of the peers are proxies that are compared.
    let proxies = ["varnish", "nginx", "haproxy", "ours"];
    let with = |names: &[&'static str]| [&proxies[..], names].concat();
    for (scenario, takes_part) in [
        ("miss-1k", with(&[])),
        ("checked-1k", with(&[])),
        ("pass-1k", with(&[])),
        ("pass-64k", with(&[])),
        ("upload-1m", with(&[])),
        ("private-100", with(&["direct"])),
        ("crowd-1000", vec!["limit-crowd", "varnish", "nginx", "ours"]),
    ] {
        let through: Vec<_> =
            expected.iter().chain(&storeless).filter(|name| takes_part.contains(name)).collect();
        let comparison = record.comparisons.iter().find(|comparison| comparison.scenario == scenario);
        assert_eq!(comparison.map_or(0, |comparison| comparison.series.len()), through.len(), "{said}");
        for series in comparison.iter().flat_map(|comparison| &comparison.series) {
            let sample = series.samples.first().ok_or_else(|| format!("no round: {series:?}"))?;
            assert!(sample.units > 0 && sample.latency.is_some(), "{} in {scenario}: {said}", series.name);
            let stayed = sample.doubts.iter().find(|doubt| doubt.contains("origin"));
            assert_eq!(stayed, None, "{} in {scenario}", series.name);
        }
    }
    // A single round proves nothing, and the record must not claim otherwise.
    let verdicts: Vec<Verdict> = record.figures.iter().map(|figure| figure.verdict).collect();
    assert!(!verdicts.is_empty());
    assert!(
        verdicts.iter().all(|verdict| matches!(verdict, Verdict::TooNoisy | Verdict::NotMeasured)),
        "{said}"
    );
    assert!(expected.iter().all(|name| record.versions.contains_key(*name)), "{said}");
    Ok(())
}

#[test]
fn what_is_missing_is_said_with_the_command_that_installs_it() -> Outcome {
    let directory = tempfile::tempdir()?;
    let output = Command::new(BENCH).arg("--quick").env("PATH", directory.path()).output()?;
    let said = said(&output);
    // Servers are in /usr/sbin, tools are not: with an empty PATH all tools are missing.
    assert!(!output.status.success(), "{said}");
    for part in ["wrk", "gcc", "util-linux", "apt-get install", "bench/install-peers.sh"] {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
    Ok(())
}

#[test]
fn an_unknown_name_is_answered_with_the_known_ones() -> Outcome {
    let output = Command::new(BENCH).args(["--quick", "--scenario", "one-1k-63"]).output()?;
    let said = said(&output);
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("one-1k-63") && said.contains("zipf-1k-64") || said.contains("install-peers"),
        "{said}"
    );
    let list = Command::new(BENCH).arg("--list").output()?;
    let text = String::from_utf8_lossy(&list.stdout);
    assert!(list.status.success() && text.contains("two-cores") && text.contains("trafficserver"), "{text}");
    Ok(())
}
