//! Command-line selection of contenders and scenarios, and the start and exit code of a run.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use lab::paired::place::workspace;
use lab::peers::PeerError;

use crate::namespace;

/// Rounds of a quick run, the minimum for a verdict.
const PAIRS_QUICK: usize = 3;

/// Options that select what a bench runs.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Selection {
    /// Runs everything short and small; the record goes to target/bench
    #[arg(long)]
    pub(crate) quick: bool,
    /// Contenders, by default all that are installed (`bench list` names them)
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// Scenarios, by default all (`bench list` names them)
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub(crate) scenario: Vec<String>,
    /// Rounds of each scenario; in each round every contender is measured once
    #[arg(long, value_name = "N")]
    pub(crate) pairs: Option<usize>,
    /// Directory of the record: by default bench/records, with --quick target/bench
    #[arg(long, value_name = "DIR")]
    pub(crate) records: Option<PathBuf>,
}

impl Selection {
    /// Returns the number of rounds of a scenario whose default is `own`.
    pub(crate) fn pairs(&self, own: usize) -> usize {
        self.pairs.unwrap_or(if self.quick { PAIRS_QUICK.min(own) } else { own })
    }

    /// Returns the directory for the record.
    pub(crate) fn records(&self) -> PathBuf {
        let default = if self.quick { "target/bench" } else { "bench/records" };
        self.records.clone().unwrap_or_else(|| workspace().join(default))
    }

    /// Returns whether a contender is selected.
    pub(crate) fn has_contender(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// Returns whether a scenario is selected.
    pub(crate) fn has_scenario(&self, name: &str) -> bool {
        self.scenario.is_empty() || self.scenario.iter().any(|only| only == name)
    }

    /// Returns the selected scenarios.
    ///
    /// # Errors
    /// `PeerError::Failed` if a selected name is not among `all`.
    pub(crate) fn scenarios<T>(&self, all: Vec<T>, name: fn(&T) -> &str) -> Result<Vec<T>, PeerError> {
        known("scenario", &self.scenario, all.iter().map(name))?;
        Ok(all.into_iter().filter(|one| self.has_scenario(name(one))).collect())
    }

    /// Returns the selected contenders.
    ///
    /// # Errors
    /// `PeerError::Failed` if a selected name is not among `all`.
    pub(crate) fn contenders<T: Copy>(
        &self,
        all: &[T],
        name: fn(T) -> &'static str,
    ) -> Result<Vec<T>, PeerError> {
        known("contender", &self.only, all.iter().map(|one| name(*one)))?;
        Ok(all.iter().copied().filter(|one| self.has_contender(name(*one))).collect())
    }

    /// Returns this selection as command-line flags, for running another part.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut all: Vec<String> = self.quick.then(|| "--quick".to_owned()).into_iter().collect();
        all.extend(self.pairs.map(|pairs| format!("--pairs={pairs}")));
        all.extend(self.records.as_ref().map(|records| format!("--records={}", records.display())));
        for (flag, names) in [("only", &self.only), ("scenario", &self.scenario)] {
            all.extend((!names.is_empty()).then(|| format!("--{flag}={}", names.join(","))));
        }
        all
    }
}

/// Checks that the selected names are known.
///
/// # Errors
/// `PeerError::Failed` if a name is unknown; the message lists the known ones.
pub(crate) fn known<'a>(
    what: &str,
    selected: &[String],
    all: impl Iterator<Item = &'a str>,
) -> Result<(), PeerError> {
    let all: Vec<&str> = all.collect();
    let Some(unknown) = selected.iter().find(|name| !all.contains(&name.as_str())) else { return Ok(()) };
    Err(PeerError::failed(format!("there is no {what} {unknown}; there are {}", all.join(", "))))
}

/// Runs a part in a separate namespace if possible. `run` gets the remarks about the namespace for the
/// record, and returns whether all contenders worked.
pub(crate) fn run_apart(name: &str, run: impl FnOnce(Vec<String>) -> Result<bool, PeerError>) -> ExitCode {
    match namespace::enter() {
        Ok(namespace::Namespace::Child(code)) => code,
        Ok(namespace::Namespace::Here { remarks }) => exit_code(name, run(remarks)),
        Err(error) => exit_code(name, Err(error.into())),
    }
}

/// Returns the exit code for the outcome of a run, and prints its error.
pub(crate) fn exit_code(name: &str, outcome: Result<bool, PeerError>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench {name}: {error}");
            ExitCode::FAILURE
        }
    }
}
