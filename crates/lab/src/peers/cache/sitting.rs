//! What stands while the contenders of one run come and go: the cores, the origin, the directory, the record's beginnings.
//!
//! `bench-cache` and `bench-tls` share it, so that a server is started, and a record made, in one way.

#![allow(clippy::print_stdout, reason = "talks to the person who started the bench")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::certificates::Certificates;
use super::contenders::{self, Contender, Ground, Running};
use super::origin::{Bodies, Origin};
use crate::paired::machine::{self, Machine, first_line};
use crate::paired::place::find;
use crate::paired::record::{Comparison, Figure, Record};
use crate::paired::spread::median;
use crate::paired::tree::Cores;
use crate::peers::PeerError;
use crate::placement::restrict;
use crate::report::Table;

/// A measured run may get this share of its answers from the origin.
pub const MISS_SHARE_MAX: f64 = 0.001;
/// From here on the record says that others were at work.
const FOREIGN_SHARE_NOISY: f64 = 0.1;

/// How much is done in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// As much as there is in so long.
    Time(Duration),
    /// So much, or a little more, however long it takes: for whoever only wants to see that it works.
    Units(u32),
}

/// One run of a bench.
#[derive(Debug)]
pub struct Sitting {
    /// In memory, for all that the servers write.
    pub work: tempfile::TempDir,
    /// What the caches stand in front of.
    pub origin: Origin,
    /// What it answers with.
    pub bodies: Bodies,
    /// Where servers run.
    pub server: Cores,
    /// Where their load runs, and this process with the origin in it.
    pub load: Cores,
    /// What each cache may use.
    pub memory_mib: u64,
    /// How the run goes, for the record.
    pub settings: BTreeMap<String, String>,
    /// Each contender's version in its own words.
    pub versions: BTreeMap<String, String>,
    /// What the record must say besides.
    pub remarks: Vec<String>,
    /// A contender that is here did not work.
    pub has_failed: bool,
    /// Where servers at the edge have theirs from.
    pub certificates: Option<Certificates>,
    date: String,
    machine: Machine,
    begun: Instant,
}

impl Sitting {
    /// Takes its place on the load's core, and starts the origin. `tools` are programs and their packages.
    ///
    /// # Errors
    /// A tool or a second processor is missing, or the system refuses something.
    pub fn begin(tools: &[(&str, &str)], memory_mib: u64, remarks: Vec<String>) -> Result<Self, PeerError> {
        let missing: Vec<&str> =
            tools.iter().filter(|(tool, _)| find(tool).is_none()).map(|&(_, package)| package).collect();
        if !missing.is_empty() {
            let packages = missing.join(" ");
            return Err(PeerError::failed(format!(
                "needs {packages}: sudo apt-get install {packages}, or all of it by sudo bench/install-peers.sh"
            )));
        }
        let [first, second, ..] = Cores::allowed()?[..] else {
            return Err(PeerError::failed("needs two processors: one for the server, one for the load"));
        };
        let one = |core| Cores::new(vec![core]).ok_or_else(|| PeerError::failed("no core"));
        let (server, load) = (one(first)?, one(second)?);
        let machine = Machine::here();

        // This process is part of the load: the origin lives in it. Before its threads exist.
        restrict(&[second])?;
        // A thousand connections on either side, and a file for each of nginx's objects.
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
            .map_err(std::io::Error::from)?;

        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let work = tempfile::Builder::new().prefix("nighttrain-bench-").tempdir_in(parent)?;
        // The unprivileged peers must be able to pass through it.
        fs::set_permissions(work.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;

        let origin = Origin::start()?;
        let wrk = first_line(Command::new("wrk").arg("-v")).unwrap_or_default();
        let settings = BTreeMap::from([
            ("cores".into(), format!("server {server}, load and origin {load}")),
            ("memory of each cache".into(), format!("{memory_mib} MiB")),
            ("load".into(), wrk),
        ]);
        Ok(Self {
            work,
            origin,
            bodies: Bodies::new(),
            server,
            load,
            memory_mib,
            settings,
            versions: BTreeMap::new(),
            remarks,
            has_failed: false,
            certificates: None,
            date: machine::date(),
            machine,
            begun: Instant::now(),
        })
    }

    /// The program of a contender, whose version is noted; one that is not here is a remark.
    pub fn program(&mut self, contender: Contender) -> Option<PathBuf> {
        match contender.program() {
            Ok(program) => {
                self.versions.insert(contender.name().into(), contender.version(&program));
                Some(program)
            }
            Err(why) => {
                println!("{why}");
                self.remarks.push(why);
                None
            }
        }
    }

    /// Starts a server; one that does not start is a remark, and makes the run fail in the end.
    pub fn started(
        &mut self,
        contender: Contender,
        name: &str,
        program: &Path,
        cores: (&Cores, &Cores),
        body_bytes: Option<u64>,
    ) -> Option<Running> {
        let ground = Ground {
            directory: self.work.path(),
            origin_port: self.origin.port,
            memory_mib: self.memory_mib,
            bodies: &self.bodies,
            certificates: self.certificates.as_ref(),
        };
        match contenders::start(contender, name, program, &ground, cores, body_bytes) {
            Ok(server) => Some(server),
            Err(error) => {
                self.fail(error.to_string());
                None
            }
        }
    }

    /// Notes why the run has failed; it goes on.
    pub fn fail(&mut self, why: String) {
        println!("{why}");
        self.remarks.push(why);
        self.has_failed = true;
    }

    /// Writes the record of the run. The machine's quiet is judged by those `series` that have a core of their own.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn record(
        mut self,
        directory: &Path,
        (name, reference): (&str, Contender),
        found: Found,
        has_own_core: impl Fn(&str) -> bool,
    ) -> Result<bool, PeerError> {
        self.settings.insert("took".into(), format!("{} s", self.begun.elapsed().as_secs()));
        if let Some(share) =
            disturbance(&found.comparisons, has_own_core).filter(|share| *share > FOREIGN_SHARE_NOISY)
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
            reference: reference.name().into(),
            figures: found.figures,
            tables: found.tables,
            comparisons: found.comparisons,
            attached: found.attached,
            remarks: self.remarks,
        };
        for figure in &record.figures {
            println!("{}", figure.line());
        }
        for remark in &record.remarks {
            println!("({remark})");
        }
        println!("{}", record.write(directory)?.display());
        Ok(!self.has_failed)
    }
}

/// What a run came to.
#[derive(Debug, Default)]
pub struct Found {
    /// Each scenario.
    pub comparisons: Vec<Comparison>,
    /// The verdicts.
    pub figures: Vec<Figure>,
    /// What is no cost of a unit.
    pub tables: Vec<Table>,
    /// Other programs' own measurements.
    pub attached: BTreeMap<String, serde_json::Value>,
}

/// Why a round of hits should be doubted in which so many requests reached the origin.
#[must_use]
pub fn not_hits(requests: u64, at_origin: u64) -> Option<String> {
    (at_origin > (requests as f64 * MISS_SHARE_MAX) as u64)
        .then(|| format!("{at_origin} of {requests} answers came from the origin"))
}

/// The median over all rounds in which the server had its core to itself, by the plan, of what others used of it.
fn disturbance(comparisons: &[Comparison], has_own_core: impl Fn(&str) -> bool) -> Option<f64> {
    let samples = comparisons
        .iter()
        .flat_map(|comparison| &comparison.series)
        .filter(|series| has_own_core(series.name.as_str()));
    let shares: Vec<f64> =
        samples.flat_map(|series| &series.samples).map(|sample| sample.foreign_share).collect();
    median(&shares)
}

/// Those of `all` that are `wanted` by name, or all of them where none is.
///
/// # Errors
/// A name that none has, with those that there are.
pub fn chosen<T>(
    what: &str,
    all: Vec<T>,
    wanted: &[String],
    name: fn(&T) -> &str,
) -> Result<Vec<T>, PeerError> {
    if let Some(unknown) = wanted.iter().find(|wanted| !all.iter().any(|one| name(one) == **wanted)) {
        let known: Vec<&str> = all.iter().map(name).collect();
        return Err(PeerError::failed(format!(
            "there is no {what} {unknown}; there are {}",
            known.join(", ")
        )));
    }
    Ok(all
        .into_iter()
        .filter(|one| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name(one)))
        .collect())
}
