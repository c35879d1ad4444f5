//! What every bench is told, and how it begins and ends.
#![allow(clippy::print_stderr, reason = "talks to the person who started it")]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{apart, place::workspace};
use crate::peers::PeerError;

/// What of a bench is to run.
#[derive(Debug, Clone, Args)]
pub struct Chosen {
    /// Everything once, short and small, without verdicts: shows that it works.
    #[arg(long)]
    pub quick: bool,
    /// Only these contenders (see --list).
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Only these scenarios (see --list).
    #[arg(long, value_delimiter = ',')]
    pub scenario: Vec<String>,
    /// Rounds in every scenario, instead of its own number.
    #[arg(long)]
    pub rounds: Option<usize>,
    /// Where the record goes; by default bench/records, for --quick target/bench.
    #[arg(long)]
    pub records: Option<PathBuf>,
    /// Names the scenarios and contenders, and ends.
    #[arg(long)]
    pub list: bool,
}

impl Chosen {
    /// Rounds of a scenario that has so many of its own.
    #[must_use]
    pub fn rounds(&self, own: usize) -> usize {
        self.rounds.unwrap_or(if self.quick { 1 } else { own })
    }

    /// The directory that the record goes to.
    #[must_use]
    pub fn records(&self) -> PathBuf {
        let default = if self.quick { "target/bench" } else { "bench/records" };
        self.records.clone().unwrap_or_else(|| workspace().join(default))
    }
}

/// Runs a bench in a namespace of its own, where there can be one; `run` is told what the record must say about that, and
/// says whether all went well.
pub fn run(name: &str, run: impl FnOnce(Vec<String>) -> Result<bool, PeerError>) -> ExitCode {
    let outcome = match apart::enter() {
        Ok(apart::Entered::Done(code)) => return code,
        Ok(apart::Entered::Here { remarks }) => run(remarks),
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}
