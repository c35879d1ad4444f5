//! One run of one part: its cores, its directory, and what its record will say.
//!
//! All parts begin and end here, so that programs are found, failures noted and records made in one way.

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

/// From this share on the record says that other programs were at work.
const FOREIGN_SHARE_NOISY: f64 = 0.1;

/// Programs that a part cannot do without.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tools {
    /// Each program with the package that has it.
    pub(crate) all: &'static [(&'static str, &'static str)],
    /// The script that installs them, and the peers.
    pub(crate) script: &'static str,
}

/// The state of a run, while contenders come and go.
#[derive(Debug)]
pub(crate) struct Session {
    /// A directory in memory, for all that the servers write.
    pub(crate) work: tempfile::TempDir,
    /// The core that servers have to themselves.
    pub(crate) server: Cores,
    /// The core of the load.
    pub(crate) load: Cores,
    /// Both of them.
    pub(crate) both: Cores,
    /// Settings of the run, for the record.
    pub(crate) settings: BTreeMap<String, String>,
    /// Each contender's version in its own words.
    pub(crate) versions: BTreeMap<String, String>,
    /// Remarks for the record.
    pub(crate) remarks: Vec<String>,
    /// True once a contender that is installed did not work.
    pub(crate) has_failed: bool,
    date: String,
    machine: Machine,
    begun: Instant,
}

impl Session {
    /// Begins a run.
    ///
    /// # Errors
    /// A tool or a second processor is missing, or the system refuses the directory or the limit on open files.
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
        // Ten thousand connections on either side, and a file for each of nginx's objects.
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
            .map_err(std::io::Error::from)?;

        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let work = tempfile::Builder::new().prefix("nighttrain-bench-").tempdir_in(parent)?;
        // The unprivileged peers must be able to pass through it.
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

    /// Moves this process, which is a part of the load, to the load's core: before its threads exist.
    ///
    /// # Errors
    /// The system refuses it.
    pub(crate) fn take_load_core(&self) -> Result<(), PeerError> {
        Ok(restrict(self.load.list())?)
    }

    /// Adds settings to the record.
    pub(crate) fn set<V: Into<String>>(&mut self, settings: impl IntoIterator<Item = (&'static str, V)>) {
        self.settings.extend(settings.into_iter().map(|(name, value)| (name.to_owned(), value.into())));
    }

    /// The program of a contender, with its version noted; a missing one becomes a remark.
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

    /// A server that was started; a failure is noted.
    pub(crate) fn up<T>(&mut self, started: Result<T, PeerError>) -> Option<T> {
        started.map_err(|error| self.fail(error.to_string())).ok()
    }

    /// Notes a failure; the run goes on, and fails in the end.
    pub(crate) fn fail(&mut self, why: String) {
        println!("{why}");
        self.remarks.push(why);
        self.has_failed = true;
    }

    /// Prints and writes the record. Only `apart`, the series whose server had its core to itself, tell how quiet the machine was.
    /// `Ok(false)` when a contender that is installed did not work.
    ///
    /// # Errors
    /// The record cannot be written.
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

/// The measurements of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Each scenario.
    pub(crate) comparisons: Vec<Comparison>,
    /// The verdicts.
    pub(crate) figures: Vec<Figure>,
    /// Measurements that are no cost of a unit.
    pub(crate) tables: Vec<Table>,
    /// Other programs' own measurements.
    pub(crate) attached: BTreeMap<String, serde_json::Value>,
}

/// The share of the server's core that other programs used: the median over the rounds of the series that `apart` names.
fn disturbance(comparisons: &[Comparison], apart: impl Fn(&Comparison, &Series) -> bool) -> Option<f64> {
    let shares: Vec<f64> = comparisons
        .iter()
        .flat_map(|comparison| comparison.series.iter().map(move |series| (comparison, series)))
        .filter(|(comparison, series)| apart(comparison, series))
        .flat_map(|(_, series)| series.samples.iter().map(|sample| sample.foreign_share))
        .collect();
    median(&shares)
}
