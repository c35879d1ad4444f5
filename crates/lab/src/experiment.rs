//! Experiments: each is a published claim, and a function that tests it on this machine.
//!
//! An experiment returns a [`Report`] with the measurements and the conclusions, or a [`Refusal`] that names
//! what this machine lacks. It never prints: `nighttrain lab` renders reports as text, JSON or a page. A new
//! experiment is a module below [`crate::experiments`] and one line in [`crate::experiments::all`].

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::costs::Costs;
pub use crate::report::{Column, Figure, Judgement, Report, Table, Verdict};

/// A claim and its test.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// Name on the command line: `nighttrain lab NAME`.
    pub name: &'static str,
    /// Claims that the experiment tests, by their numbers in the project's list: `C3`.
    pub claims: &'static [&'static str],
    /// Subject in a few words.
    pub title: &'static str,
    /// Claim in one sentence, with the published figures.
    pub statement: &'static str,
    /// Author and publication of the claim.
    pub source: &'static str,
    /// Function that takes the measurement.
    pub run: fn(&Options) -> Result<Report, Refusal>,
}

/// Callback that receives progress messages for the user.
pub type Progress = Arc<dyn Fn(&str) + Send + Sync>;

/// Options of a run.
#[derive(Clone, Default)]
pub struct Options {
    /// True limits an experiment to 30 seconds, at the price of fewer rounds or smaller sets; the report says
    /// which.
    pub quick: bool,
    /// True makes the experiment vary its parameters instead of using only the published ones.
    pub sweep: bool,
    /// Number of items, if the experiment has items and the user chose one.
    pub items: Option<usize>,
    /// Bytes of a page, if the experiment has pages and the user chose a size. A power of two.
    pub page_bytes: Option<usize>,
    /// Bytes of an item, if the experiment has items and the user chose a size.
    pub item_bytes: Option<usize>,
    /// Costs of transfers and operations, for simulations.
    pub costs: Costs,
    /// Part of the experiment to run, if it has independent parts; `None` runs all.
    pub part: Option<String>,
    /// Directory for large files; `None` is the system's directory for temporary files.
    pub directory: Option<PathBuf>,
    /// Callback that receives the messages of [`Options::say`].
    pub progress: Option<Progress>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("quick", &self.quick)
            .field("sweep", &self.sweep)
            .field("items", &self.items)
            .field("page_bytes", &self.page_bytes)
            .field("item_bytes", &self.item_bytes)
            .field("costs", &self.costs)
            .field("part", &self.part)
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// Sends a progress message to the user.
    pub fn say(&self, what: &str) {
        if let Some(progress) = &self.progress {
            progress(what);
        }
    }
}

/// Reason why an experiment has no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// This machine lacks something that the claim needs; the text says what, and how to provide it.
    #[error("cannot be tested here: {0}")]
    Missing(String),
    /// The options make no sense.
    #[error("{0}")]
    Usage(String),
    /// Something went wrong that should have worked.
    #[error("failed: {0}")]
    Failed(String),
}

/// An experiment with its result.
#[derive(Debug)]
pub struct Outcome {
    /// Experiment that was run.
    pub experiment: &'static Experiment,
    /// Report, or the reason why there is none.
    pub result: Result<Report, Refusal>,
    /// Run time in seconds.
    pub seconds: f64,
}

impl Outcome {
    /// Runs an experiment and measures its time.
    #[must_use]
    pub fn of(experiment: &'static Experiment, options: &Options) -> Self {
        let start = std::time::Instant::now();
        let result = (experiment.run)(options);
        Self { experiment, result, seconds: start.elapsed().as_secs_f64() }
    }
}
