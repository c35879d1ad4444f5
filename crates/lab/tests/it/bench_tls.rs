//! A tiny run of the benchmark, so that it does not rot: every installed server takes part, shakes hands, and
//! answers hits.
//!
//! The times are not checked: they need a quiet machine and `make bench-tls`. Memory does not depend on a
//! quiet machine.

use std::env;
use std::error::Error;
use std::fs;
use std::process::Command;

use lab::paired::record::Record;
use lab::paired::spread::Verdict;

use crate::quick::{installed, ours_can, said};

const BENCH: &str = env!("CARGO_BIN_EXE_bench-tls");
/// Peers, each with its programs.
const PEERS: [(&str, &[&str]); 3] =
    [("nginx", &["nginx"]), ("haproxy", &["haproxy"]), ("hitch+varnish", &["hitch", "varnishd"])];
const TOOLS: [&str; 6] = ["wrk", "h2load", "openssl", "cc", "taskset", "setpriv"];

type Outcome = Result<(), Box<dyn Error>>;

/// Returns whether the program is built and has TLS.
fn ours_can_serve() -> bool {
    ours_can(BENCH, "cache", "--tls-listen")
}

#[test]
fn a_quick_run_measures_everybody_who_is_here() -> Outcome {
    let directory = tempfile::tempdir()?;
    let mut command = Command::new(BENCH);
    command.arg("--quick").arg("--records").arg(directory.path());
    command.env_remove("NIGHTTRAIN_BIN").env_remove("NIGHTTRAIN_REFERENCE_FLOORS");
    let mut expected: Vec<&str> = PEERS
        .iter()
        .filter(|(_, programs)| programs.iter().all(|program| installed(program)))
        .map(|&(name, _)| name)
        .collect();
    if ours_can_serve() {
        expected.push("ours");
    }
    command.arg("--only").arg([&["limit-h2"], &expected[..]].concat().join(","));
    let output = command.output()?;
    let said = said(&output);
    if TOOLS.iter().any(|tool| !installed(tool)) {
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
    assert_eq!(record.comparisons.len(), 19, "{said}");
    for comparison in &record.comparisons {
        let scenario = &comparison.scenario;
        let with_floor = [&["limit-h2"], &expected[..]].concat();
        let takes_part = if scenario.starts_with("h2c-") { &with_floor } else { &expected };
        for name in takes_part {
            let series =
                comparison.series(name).ok_or_else(|| format!("{name} is missing in {scenario}: {said}"))?;
            let [sample] = &series.samples[..] else {
                return Err(format!("one round, not: {series:?}").into());
            };
            assert!(sample.units > 0, "{name} in {scenario}: {said}");
            // Doubts would be hits that were misses, handshakes of the other kind, or failures; a busy
            // machine causes none of these.
            assert_eq!(sample.doubts, [""; 0], "{name} in {scenario}: {said}");
            assert_eq!(
                sample.latency.is_some(),
                scenario.starts_with("paced-") || scenario.starts_with("tls-")
            );
        }
    }
    // A single round proves nothing about times, and the record must not claim otherwise.
    let (memory, times): (Vec<_>, Vec<_>) =
        record.figures.iter().partition(|figure| figure.what.contains("(idle)"));
    let is_silent = |verdict| matches!(verdict, Verdict::TooNoisy | Verdict::NotMeasured);
    assert!(!times.is_empty() && times.iter().all(|figure| is_silent(figure.verdict)), "{said}");
    if expected.contains(&"ours") {
        let met = memory.iter().filter(|figure| figure.verdict == Verdict::Met).count();
        assert_eq!((memory.len(), met), (3, 3), "{said}");
    }
    assert!(expected.iter().all(|name| record.versions.contains_key(*name)), "{said}");
    Ok(())
}

#[test]
fn an_unknown_name_is_answered_with_the_known_ones() -> Outcome {
    for (flag, known) in [("--scenario", "h2c-1k-10x100"), ("--only", "hitch+varnish")] {
        let output = Command::new(BENCH).args(["--quick", flag, "h3"]).output()?;
        let said = said(&output);
        assert!(!output.status.success() && said.contains("h3") && said.contains(known), "{said}");
    }
    let list = Command::new(BENCH).arg("--list").output()?;
    let text = String::from_utf8_lossy(&list.stdout);
    assert!(list.status.success() && text.contains("resumed-ecdsa") && text.contains("haproxy"), "{text}");
    Ok(())
}
