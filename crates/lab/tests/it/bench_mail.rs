//! A tiny run of the benchmark, so that it does not rot: every installed server takes part, and each scenario
//! measures something.
//!
//! The figures are not checked: they need a quiet machine and `make bench-mail`.

use std::error::Error;
use std::fs;
use std::process::Command;

use lab::paired::record::Record;

use crate::quick::{ours_can, said};

const BENCH: &str = env!("CARGO_BIN_EXE_bench-mail");

type Outcome = Result<(), Box<dyn Error>>;

/// Returns whether the program is built and has the mail service.
fn ours_can_serve() -> bool {
    ours_can(BENCH, "mail", "--search-index")
}

#[test]
fn a_quick_run_measures_taking_pages_lists_searches_and_what_is_made_to_be_slow() -> Outcome {
    if !ours_can_serve() {
        return Ok(());
    }
    let directory = tempfile::tempdir()?;
    let mut command = Command::new(BENCH);
    command.args(["--quick", "--only", "ours,ours-unindexed,mailpit"]);
    command.args(["--scenario", "reused,connections,stored,pages,list-100,search,rare-word"]);
    command.args(["--scenario", "newsletter,slow-mails,browser"]);
    command.arg("--records").arg(directory.path());
    command.env_remove("NIGHTTRAIN_BIN");
    let output = command.output()?;
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    let mut records = Vec::new();
    for entry in fs::read_dir(directory.path())? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            records.push(serde_json::from_str::<Record>(&fs::read_to_string(&path)?)?);
        }
    }
    let [record] = &records[..] else { return Err(format!("{} records: {said}", records.len()).into()) };
    // Mailpit takes part if it is installed.
    for scenario in [
        "reused",
        "connections",
        "stored",
        "pages",
        "list-100",
        "search",
        "rare-word",
        "beside-searches",
        "newsletter",
    ] {
        let comparison = record.comparisons.iter().find(|comparison| comparison.scenario == scenario);
        let comparison = comparison.ok_or_else(|| format!("{scenario} is missing: {said}"))?;
        let has_mailpit = comparison.series.iter().any(|series| series.name.starts_with("mailpit"));
        assert_eq!(has_mailpit, record.versions.contains_key("mailpit"), "{scenario}: {said}");
        for sample in comparison.series.iter().flat_map(|series| &series.samples) {
            assert!(sample.units > 0 && sample.doubts.is_empty(), "{scenario}: {said}");
        }
    }
    for title in ["Index for searches", "A rare word", "Pages, 250 a second", "Mails made to be slow"] {
        assert!(record.tables.iter().any(|table| table.title.starts_with(title)), "{title}: {said}");
    }
    Ok(())
}

#[test]
fn an_unknown_scenario_is_answered_with_the_known_ones() -> Outcome {
    let output = Command::new(BENCH).args(["--quick", "--scenario", "eleven"]).output()?;
    let said = said(&output);
    assert!(!output.status.success() && said.contains("eleven") && said.contains("rare-word"), "{said}");
    Ok(())
}
