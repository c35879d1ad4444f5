//! One run of one part: its cores, its directory, and the contents of its record.
//!
//! All parts use this module, so that programs are found, failures reported and records written in the same
//! way.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use lab::paired::Series;
use lab::paired::machine::{self, Machine};
use lab::paired::place::find;
use lab::paired::spread::median;
use lab::paired::tree::Cores;
use lab::peers::PeerError;
use lab::placement::restrict;
use lab::report::Table;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::record::{Comparison, Figure, Record};

/// Share of CPU time used by other programs above which the record calls the machine noisy.
const FOREIGN_SHARE_NOISY: f64 = 0.1;

/// Programs that a part requires.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tools {
    /// Each program with the package that contains it.
    pub(crate) all: &'static [(&'static str, &'static str)],
    /// Script that installs the programs and the peers.
    pub(crate) script: &'static str,
}

/// State of a run.
#[derive(Debug)]
pub(crate) struct Session {
    /// Directory on a memory file system for the servers' files.
    pub(crate) work: tempfile::TempDir,
    /// Core reserved for the servers.
    pub(crate) server: Cores,
    /// Core of the load.
    pub(crate) load: Cores,
    /// The cores of the servers and of the load.
    pub(crate) both: Cores,
    /// Settings of the run, for the record.
    pub(crate) settings: BTreeMap<String, String>,
    /// Version that each contender's program reports.
    pub(crate) versions: BTreeMap<String, String>,
    /// Remarks for the record.
    pub(crate) remarks: Vec<String>,
    /// True once an installed contender has not worked.
    pub(crate) has_failed: bool,
    date: String,
    machine: Machine,
    begun: Instant,
}

impl Session {
    /// Begins a run.
    ///
    /// # Errors
    /// `PeerError` if a tool or a second processor is missing, or the system refuses the directory or the
    /// limit on open files.
    pub(crate) fn begin(tools: Tools, remarks: Vec<String>) -> Result<Self, PeerError> {
        let missing: Vec<&str> =
            tools.all.iter().filter(|(tool, _)| find(tool).is_none()).map(|&(_, package)| package).collect();
        if !missing.is_empty() {
            let (packages, script) = (missing.join(" "), tools.script);
            return Err(PeerError::failed(format!(
                "needs {packages}: sudo apt-get install {packages}, or all of it by sudo {script}"
            )));
        }
        let [first, second, ..] = Cores::allowed()?[..] else {
            return Err(PeerError::failed("needs two processors: one for the server, one for the load"));
        };
        let cores = |list| Cores::new(list).ok_or_else(|| PeerError::failed("no core"));
        let machine = Machine::here();
        // The limit is raised for ten thousand connections on either side, and for nginx, which opens a file
        // per object.
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
            .map_err(std::io::Error::from)?;

        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let work = tempfile::Builder::new().prefix("nighttrain-bench-").tempdir_in(parent)?;
        // The unprivileged peers must be able to enter the directory.
        fs::set_permissions(work.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        Ok(Self {
            work,
            server: cores(vec![first])?,
            load: cores(vec![second])?,
            both: cores(vec![first, second])?,
            settings: BTreeMap::new(),
            versions: BTreeMap::new(),
            remarks,
            has_failed: false,
            date: machine::date(),
            machine,
            begun: Instant::now(),
        })
    }

    /// Binds this process, which is part of the load, to the load's core, before it starts threads.
    ///
    /// # Errors
    /// `PeerError` if the system refuses the affinity.
    pub(crate) fn take_load_core(&self) -> Result<(), PeerError> {
        Ok(restrict(self.load.list())?)
    }

    /// Adds settings to the record.
    pub(crate) fn set<V: Into<String>>(&mut self, settings: impl IntoIterator<Item = (&'static str, V)>) {
        self.settings.extend(settings.into_iter().map(|(name, value)| (name.to_owned(), value.into())));
    }

    /// Returns the program of a contender and records its version; a missing program becomes a remark.
    pub(crate) fn program(
        &mut self,
        name: &str,
        program: Result<PathBuf, String>,
        version: impl FnOnce(&Path) -> String,
    ) -> Option<PathBuf> {
        match program {
            Ok(program) => {
                self.versions.insert(name.into(), version(&program));
                Some(program)
            }
            Err(why) => {
                println!("{why}");
                self.remarks.push(why);
                None
            }
        }
    }

    /// Returns a started server; a failure is recorded.
    pub(crate) fn up<T>(&mut self, started: Result<T, PeerError>) -> Option<T> {
        started.map_err(|error| self.fail(error.to_string())).ok()
    }

    /// Records a failure; the run continues and fails at its end.
    pub(crate) fn fail(&mut self, why: String) {
        println!("{why}");
        self.remarks.push(why);
        self.has_failed = true;
    }

    /// Prints and writes the record. `apart` selects the series whose server had its core to itself, which
    /// show how quiet the machine was. Returns `Ok(false)` when an installed contender did not work.
    ///
    /// # Errors
    /// `PeerError` if the record cannot be written.
    pub(crate) fn record(
        mut self,
        directory: &Path,
        (name, reference): (&str, &str),
        outcome: Outcome,
        apart: impl Fn(&Comparison, &Series) -> bool,
    ) -> Result<bool, PeerError> {
        self.settings.insert("took".into(), format!("{} s", self.begun.elapsed().as_secs()));
        if let Some(share) =
            disturbance(&outcome.comparisons, apart).filter(|share| *share > FOREIGN_SHARE_NOISY)
        {
            let percent = 100.0 * share;
            self.remarks.push(format!(
                "not a quiet machine: others used {percent:.0}% of the server's core (median)"
            ));
        }
        let record = Record {
            name: name.into(),
            date: self.date,
            commit: machine::commit(),
            machine: self.machine,
            settings: self.settings,
            versions: self.versions,
            reference: reference.into(),
            figures: outcome.figures,
            tables: outcome.tables,
            comparisons: outcome.comparisons,
            attached: outcome.attached,
            remarks: self.remarks,
        };
        println!("{}", record.outcome_text());
        println!("{}", record.write(directory)?.display());
        Ok(!self.has_failed)
    }
}

/// Measurements of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Results of each scenario.
    pub(crate) comparisons: Vec<Comparison>,
    /// Bounds with their verdicts.
    pub(crate) figures: Vec<Figure>,
    /// Measurements other than costs per unit.
    pub(crate) tables: Vec<Table>,
    /// Measurements by other programs.
    pub(crate) attached: BTreeMap<String, serde_json::Value>,
}

/// Returns the share of the server's core that other programs used: the median over the rounds of the series
/// that `apart` selects.
fn disturbance(comparisons: &[Comparison], apart: impl Fn(&Comparison, &Series) -> bool) -> Option<f64> {
    let shares: Vec<f64> = comparisons
        .iter()
        .flat_map(|comparison| comparison.series.iter().map(move |series| (comparison, series)))
        .filter(|(comparison, series)| apart(comparison, series))
        .flat_map(|(_, series)| series.samples.iter().map(|sample| sample.foreign_share))
        .collect();
    median(&shares)
}
