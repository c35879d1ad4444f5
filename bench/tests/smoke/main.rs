//! Smoke test of every part: each installed contender takes part in each of its scenarios, and completes some
//! work.
//!
//! No figure is checked here: that needs a quiet machine and `make bench`.

mod pressure;
mod servers;

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const BENCH: &str = env!("CARGO_BIN_EXE_bench");

type Outcome = Result<(), Box<dyn Error>>;

/// Record of a tiny run, its file, and the printed output.
struct Smoke {
    record: Value,
    file: PathBuf,
    printed: String,
    _directory: tempfile::TempDir,
}

/// Returns the bench's command without the environment variables that name builds.
fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(BENCH);
    command.args(arguments).env_remove("NIGHTTRAIN_BIN").env_remove("NIGHTTRAIN_REFERENCE_FLOORS");
    command
}

/// Runs a part with one round and returns its record.
fn smoke(part: &str, arguments: &[&str]) -> Result<Smoke, Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let mut command = bench(&["run", part, "--quick", "--pairs", "1"]);
    let output = command.args(arguments).arg("--records").arg(directory.path()).output()?;
    let printed = printed(&output);
    if !output.status.success() {
        return Err(printed.into());
    }
    let files: Vec<PathBuf> = fs::read_dir(directory.path())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    let [file] = &files[..] else { return Err(format!("{} records: {printed}", files.len()).into()) };
    let record = serde_json::from_str(&fs::read_to_string(file)?)?;
    Ok(Smoke { record, file: file.clone(), printed, _directory: directory })
}

fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Returns whether a program is installed, under a name or at a path.
fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(["/usr/sbin".into()]);
    Path::new(program).is_file() || directories.map(|at| at.join(program)).any(|path| path.is_file())
}

/// Returns whether `nighttrain` is built beside the bench, and its command has this flag.
fn has_ours(command: &str, flag: &str) -> bool {
    let program = Path::new(BENCH).with_file_name("nighttrain");
    let help = Command::new(program).args([command, "--help"]).output();
    help.is_ok_and(|help| help.status.success() && printed(&help).contains(flag))
}

impl Smoke {
    /// Returns the names of the contenders in a scenario.
    fn contenders(&self, scenario: &str) -> Vec<&str> {
        self.series(scenario).iter().filter_map(|series| series["name"].as_str()).collect()
    }

    fn series(&self, scenario: &str) -> &[Value] {
        let comparisons = self.record["comparisons"].as_array().map_or(&[][..], Vec::as_slice);
        let comparison = comparisons.iter().find(|comparison| comparison["scenario"] == scenario);
        comparison.and_then(|comparison| comparison["series"].as_array()).map_or(&[], Vec::as_slice)
    }

    /// Returns each contender's only sample in a scenario.
    fn samples(&self, scenario: &str) -> Vec<(&str, &Value)> {
        let sample = |series: &'_ Value| series["samples"].as_array().map_or(0, Vec::len);
        let series = self.series(scenario);
        assert!(!series.is_empty(), "{scenario} is missing: {}", self.printed);
        assert!(series.iter().all(|series| sample(series) == 1), "one round of {scenario}: {}", self.printed);
        series
            .iter()
            .map(|series| (series["name"].as_str().unwrap_or_default(), &series["samples"][0]))
            .collect()
    }

    /// Asserts that each contender did some work, and that no doubt contains `doubted`.
    fn assert_worked(&self, scenario: &str, doubted: &str) {
        for (name, sample) in self.samples(scenario) {
            assert!(sample["units"].as_u64() > Some(0), "{name} in {scenario}: {}", self.printed);
            let doubts = sample["doubts"].as_array().map_or(&[][..], Vec::as_slice);
            let is_doubted = doubts.iter().filter_map(Value::as_str).any(|doubt| doubt.contains(doubted));
            assert!(!is_doubted, "{name} in {scenario}: {doubts:?}");
        }
    }

    /// Asserts that figures about times get no verdict from a single round.
    fn assert_undecided(&self, is_time: impl Fn(&str) -> bool) {
        let figures = self.record["figures"].as_array().map_or(&[][..], Vec::as_slice);
        for figure in figures.iter().filter(|figure| is_time(figure["what"].as_str().unwrap_or_default())) {
            assert!(figure["verdict"] == "too-noisy" || figure["verdict"] == "not-measured", "{figure}");
        }
    }
}

#[test]
fn unknown_names_are_answered_with_the_known() -> Outcome {
    for (arguments, known) in [
        (["tls", "--scenario", "h3"], "h2c-1k-10x100"),
        (["tls", "--only", "h3"], "hitch+varnish"),
        (["feed", "--scenario", "h3"], "hundred"),
        (["mail", "--scenario", "h3"], "rare-word"),
        (["mail", "--only", "h3"], "mailpit"),
        (["pressure", "--scenario", "h3"], "resident"),
    ] {
        let output = bench(&["run"]).args(arguments).arg("--quick").output()?;
        let printed = printed(&output);
        assert!(!output.status.success() && printed.contains("h3") && printed.contains(known), "{printed}");
    }
    Ok(())
}

#[test]
fn the_list_names_parts_scenarios_contenders() -> Outcome {
    let list = bench(&["list"]).output()?;
    let text = printed(&list);
    assert!(list.status.success(), "{text}");
    for name in
        ["two-cores", "trafficserver", "resumed-ecdsa", "crowd", "mosquitto", "rare-word", "ours-kernel"]
    {
        assert!(text.contains(name), "{name}: {text}");
    }
    Ok(())
}

#[test]
fn missing_tools_are_named_with_their_package() -> Outcome {
    let directory = tempfile::tempdir()?;
    let output = bench(&["run", "cache", "--quick"]).env("PATH", directory.path()).output()?;
    let text = printed(&output);
    assert!(!output.status.success(), "{text}");
    for part in ["wrk", "gcc", "util-linux", "apt-get install", "bench/install-peers.sh"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    Ok(())
}

/// A build that an environment variable names is used, and no other program in its place.
#[test]
fn variables_name_other_builds() -> Outcome {
    let directory = tempfile::tempdir()?;
    let records = directory.path().to_string_lossy().into_owned();
    let arguments =
        ["run", "feed", "--quick", "--pairs=1", "--only=mosquitto", "--scenario=none", "--records"];
    let run = |build: &str| bench(&arguments).arg(&records).env("BENCH_MOSQUITTO", build).output();
    let text = printed(&run("/nonexistent/mosquitto")?);
    assert!(text.contains("mosquitto is not installed"), "{text}");
    // A program that exists but is no broker is started and fails.
    let other = run("/bin/false")?;
    let text = printed(&other);
    assert!(!other.status.success() && text.contains("mosquitto did not start"), "{text}");
    Ok(())
}

/// A part that fails does not keep the other parts from running, and the run fails.
#[test]
fn all_parts_run_and_failures_are_named() -> Outcome {
    let output = bench(&["run", "--quick", "--scenario", "none-such"]).output()?;
    let text = printed(&output);
    assert!(!output.status.success() && text.starts_with("All parts take about"), "{text}");
    let failed = text.lines().next_back().unwrap_or_default();
    for part in ["cache", "tls", "feed", "mail", "pressure"] {
        assert!(text.contains(&format!("== {part} ==")) && failed.contains(part), "{part}: {text}");
    }
    Ok(())
}
