//! What an experiment is: a claim that somebody made, and a function that puts it to the test on this machine.
//!
//! An experiment returns a [`Report`], which says what was measured and what follows from it, or a [`Refusal`],
//! which says what is missing here. It never prints: `nighttrain lab` renders reports as text, JSON or a page.
//! A new one is a module below [`crate::experiments`] and one line in [`crate::experiments::all`].

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub use crate::experiments::bheap_sim::costs::Costs;
pub use crate::report::{Column, Figure, Judgement, Report, Table, Verdict};

/// A claim and its test.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// How it is asked for: `nighttrain lab NAME`.
    pub name: &'static str,
    /// The claims that it tests, as numbered in the project's list: `C3`.
    pub claims: &'static [&'static str],
    /// What it is about, in a few words.
    pub title: &'static str,
    /// The claim in one sentence, with the figures that were published.
    pub statement: &'static str,
    /// Who made the claim, and where.
    pub source: &'static str,
    /// Takes the measurement.
    pub run: fn(&Options) -> Result<Report, Refusal>,
}

/// Is told what is being done, for whoever waits.
pub type Progress = Arc<dyn Fn(&str) + Send + Sync>;

/// What the user asked of a run.
#[derive(Clone, Default)]
pub struct Options {
    /// At most 30 seconds an experiment, at the price of fewer rounds or smaller sets; the report says which.
    pub quick: bool,
    /// Goes through the experiment's parameters instead of taking the article's alone.
    pub sweep: bool,
    /// How many items, where the experiment has items and the user chose.
    pub items: Option<usize>,
    /// Bytes in a page, where the experiment has pages and the user chose. A power of two.
    pub page_bytes: Option<usize>,
    /// Bytes in an item, where the experiment has items and the user chose.
    pub item_bytes: Option<usize>,
    /// What transfers and operations cost, for simulations.
    pub costs: Costs,
    /// Only this part of the experiment, where it has parts that stand alone.
    pub part: Option<String>,
    /// A directory for large files of its own; the system's for temporary files if none is named.
    pub directory: Option<PathBuf>,
    /// Where [`Options::say`] goes.
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
    /// Tells whoever waits what is being done now.
    pub fn say(&self, what: &str) {
        if let Some(progress) = &self.progress {
            progress(what);
        }
    }
}

/// Why there is no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// This machine lacks what the claim needs: says what, and how to provide it.
    #[error("cannot be tested here: {0}")]
    Missing(String),
    /// What was asked for makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Something went wrong that should have worked.
    #[error("failed: {0}")]
    Failed(String),
}

/// An experiment with what came of it.
#[derive(Debug)]
pub struct Outcome {
    /// Which one.
    pub experiment: &'static Experiment,
    /// What it found.
    pub result: Result<Report, Refusal>,
    /// How long it took, in seconds.
    pub seconds: f64,
}

impl Outcome {
    /// Runs an experiment.
    #[must_use]
    pub fn of(experiment: &'static Experiment, options: &Options) -> Self {
        let start = std::time::Instant::now();
        let result = (experiment.run)(options);
        Self { experiment, result, seconds: start.elapsed().as_secs_f64() }
    }
}
