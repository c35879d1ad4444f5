//! Smoke tests of stores that are larger than memory.

use lab::experiments::bheap_paging::group::Group;
use serde_json::Value;

use super::{Outcome, is_installed, smoke};

/// Returns the record of a tiny run; `None` if there is no memory cgroup or no disk, which the run must have
/// reported.
fn record(arguments: &[&str]) -> Result<Option<Value>, Box<dyn std::error::Error>> {
    let directory = ["--directory", env!("CARGO_TARGET_TMPDIR")];
    match (smoke("pressure", &[arguments, &directory].concat()), Group::create()) {
        (Ok(smoke), _) => Ok(Some(smoke.record)),
        (Err(error), Err(missing)) if error.to_string().contains(&missing.to_string()) => Ok(None),
        (Err(error), _) if error.to_string().contains("no directory on a disk") => Ok(None),
        (Err(error), _) => Err(error),
    }
}

#[test]
fn servers_under_pressure_are_compared() -> Outcome {
    let Some(record) = record(&["--scenario", "servers", "--only", "nginx"])? else { return Ok(()) };
    if is_installed("nginx") && rustix::process::geteuid().is_root() {
        let row = &record["rows"][0];
        assert_eq!(row["name"], "nginx");
        let has_no_remark = row["remarks"].as_array().is_some_and(Vec::is_empty);
        assert!(row["answers"].as_u64() > Some(0) && has_no_remark, "{row}");
        let hits = row["rounds"][0]["hit_percent"].as_f64();
        assert!(hits > Some(0.0) && hits < Some(100.0), "{row}");
    }
    Ok(())
}

#[test]
fn each_scenario_of_the_store_has_figures() -> Outcome {
    let Some(record) = record(&["--scenario", "stores,cold,resident,start"])? else { return Ok(()) };
    let list = |name: &str| record[name].as_array().map_or(&[][..], Vec::as_slice);
    for cold in list("cold") {
        let is_done = cold["cold_per_s"][0].as_f64() > Some(0.0) && cold["raw_per_s"][0].as_f64() > Some(0.0);
        assert!(is_done, "{cold}");
        // The ratio is not exactly 1: two requests may ask for one object at once, and an object may still be
        // on its way to the file.
        let reads = cold["reads_an_object"].as_f64();
        assert!(reads > Some(0.0) && reads <= Some(1.1), "{cold}");
    }
    assert_eq!((list("cold").len(), list("resident").len(), list("starts").len()), (2, 4, 2));
    let ours: Vec<&Value> = list("stores").iter().filter(|store| store["ours"] == true).collect();
    assert_eq!(ours.len(), 6, "three traces, with and without a file");
    for store in ours {
        assert!(store["memory_hits"].as_u64() > Some(0) && store["remark"].is_null(), "{store}");
    }
    for start in list("starts") {
        assert_eq!(start["found"], start["objects"], "{start}");
    }
    assert!(list("figures").len() >= 14, "{record}");
    Ok(())
}
