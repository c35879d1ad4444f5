//! The bench under pressure itself, tiny, so that it does not rot: one who is installed is limited, filled and measured.
//!
//! Nothing here looks at a figure: that is for a quiet machine and `make bench-pressure`.

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

#[test]
fn a_quick_run_measures_who_is_here_or_says_what_is_missing() -> Outcome {
    let records = tempfile::tempdir()?;
    let (done, said) = bench(&["--quick", "--only", "disk,nginx"], records.path())?;
    if let Err(missing) = Group::create() {
        assert!(!done && said.contains(&missing.to_string()), "{said}");
        return Ok(());
    }
    if said.contains("no directory on a disk") {
        assert!(!done);
        return Ok(());
    }
    assert!(done, "{said}");
    let json = fs::read_dir(records.path())?
        .filter_map(Result::ok)
        .find(|entry| entry.path().extension().is_some_and(|extension| extension == "json"))
        .ok_or("no record")?;
    let record: serde_json::Value = serde_json::from_str(&fs::read_to_string(json.path())?)?;
    assert!(record["disk"][0].as_f64() > Some(0.0), "{said}");
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
        assert!(
            row["hit_percent"].as_f64() > Some(0.0) && row["hit_percent"].as_f64() < Some(100.0),
            "{row}"
        );
    }
    Ok(())
}

#[test]
fn a_name_that_nobody_has_is_refused() -> Outcome {
    let records = tempfile::tempdir()?;
    let (done, said) = bench(&["--only", "nginx,apache"], records.path())?;
    assert!(!done && (said.contains("there is no contender apache") || said.contains("cgroup")), "{said}");
    Ok(())
}
