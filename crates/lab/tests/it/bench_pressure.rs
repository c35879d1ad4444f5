//! A tiny run of the benchmark under memory pressure, so that it does not rot: an installed server is
//! limited, filled and measured.
//!
//! The figures are not checked: they need a quiet machine and `make bench-pressure`.

use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use lab::experiments::bheap_paging::group::Group;

const BENCH: &str = env!("CARGO_BIN_EXE_bench-pressure");

type Outcome = Result<(), Box<dyn Error>>;

fn bench(arguments: &[&str], records: &Path) -> Result<(bool, String), Box<dyn Error>> {
    let output = Command::new(BENCH)
        .args(arguments)
        .arg("--directory")
        .arg(env!("CARGO_TARGET_TMPDIR"))
        .arg("--records")
        .arg(records)
        .output()?;
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Ok((output.status.success(), said))
}

/// Returns the record of a quick run; `None` if there is no memory cgroup or no disk, which the run must have
/// reported.
fn recorded(arguments: &[&str]) -> Result<Option<serde_json::Value>, Box<dyn Error>> {
    let records = tempfile::tempdir()?;
    let (done, said) = bench(&[&["--quick"], arguments].concat(), records.path())?;
    if let Err(missing) = Group::create() {
        assert!(!done && said.contains(&missing.to_string()), "{said}");
        return Ok(None);
    }
    if said.contains("no directory on a disk") {
        assert!(!done);
        return Ok(None);
    }
    assert!(done, "{said}");
    let json = fs::read_dir(records.path())?
        .filter_map(Result::ok)
        .find(|entry| entry.path().extension().is_some_and(|extension| extension == "json"))
        .ok_or("no record")?;
    Ok(Some(serde_json::from_str(&fs::read_to_string(json.path())?)?))
}

#[test]
fn a_quick_run_measures_who_is_here_or_says_what_is_missing() -> Outcome {
    let Some(record) = recorded(&["--scenario", "servers", "--only", "nginx"])? else { return Ok(()) };
    let installed = env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .chain(["/usr/sbin".into()])
        .any(|directory| directory.join("nginx").is_file());
    if installed && rustix::process::geteuid().is_root() {
        let row = &record["rows"][0];
        assert_eq!(row["name"], "nginx");
        assert!(
            row["answers"].as_u64() > Some(0) && row["remarks"].as_array().is_some_and(Vec::is_empty),
            "{row}"
        );
        let hits = row["rounds"][0]["hit_percent"].as_f64();
        assert!(hits > Some(0.0) && hits < Some(100.0), "{row}");
    }
    Ok(())
}

#[test]
fn a_quick_run_of_the_store_alone_has_a_figure_for_each_scenario() -> Outcome {
    let arguments = ["--scenario", "stores,cold,resident,start"];
    let Some(record) = recorded(&arguments)? else { return Ok(()) };
    for cold in record["cold"].as_array().ok_or("no cold hits")? {
        assert!(
            cold["cold_per_s"][0].as_f64() > Some(0.0) && cold["raw_per_s"][0].as_f64() > Some(0.0),
            "{cold}"
        );
        // Two requests may read one object at the same time, and an object may still be on its way to the
        // file.
        let reads = cold["reads_an_object"].as_f64();
        assert!(reads > Some(0.0) && reads <= Some(1.1), "{cold}");
    }
    assert_eq!(record["cold"].as_array().map(Vec::len), Some(2));
    assert_eq!(record["resident"].as_array().map(Vec::len), Some(4));
    let ours: Vec<_> = record["stores"]
        .as_array()
        .ok_or("no stores")?
        .iter()
        .filter(|store| store["ours"] == true)
        .collect();
    assert_eq!(ours.len(), 6, "three traces, with and without a file");
    for store in ours {
        assert!(store["memory_hits"].as_u64() > Some(0) && store["remark"].is_null(), "{store}");
    }
    let starts = record["starts"].as_array().ok_or("no starts")?;
    assert_eq!(starts.len(), 2);
    for start in starts {
        assert_eq!(start["found"], start["objects"], "{start}");
    }
    assert!(record["figures"].as_array().is_some_and(|figures| figures.len() >= 14), "{record}");
    Ok(())
}

#[test]
fn a_name_that_nobody_has_is_refused() -> Outcome {
    let records = tempfile::tempdir()?;
    let (done, said) = bench(&["--only", "nginx,apache"], records.path())?;
    assert!(!done && (said.contains("there is no contender apache") || said.contains("cgroup")), "{said}");
    Ok(())
}
