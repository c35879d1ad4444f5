//! A run of servers in front of one origin, shared by the parts `cache` and `tls`.

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lab::paired::machine::first_line;
use lab::paired::place::program;
use lab::paired::tree::Cores;
use lab::peers::PeerError;
use lab::peers::cache::certificates::Certificates;
use lab::peers::cache::contenders::{self, Contender, Ground, ServerProcess};
use lab::peers::cache::origin::{Bodies, Origin};

use crate::session::{Session, Tools};

/// Maximum share of answers that may come from the origin in a run of hits.
pub(crate) const MISS_SHARE_MAX: f64 = 0.001;
/// Script that installs the peers.
pub(crate) const SCRIPT: &str = "bench/install-peers.sh";

/// The length of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    /// All requests within this time.
    Time(Duration),
    /// This number of requests or slightly more, in any time, for a check that the scenario works.
    Units(u32),
}

/// A [`Session`] with the origin of all servers.
#[derive(Debug)]
pub(crate) struct CacheSession {
    session: Session,
    /// The origin behind the caches, which runs in this process.
    pub(crate) origin: Origin,
    /// Bodies that the origin answers with.
    pub(crate) bodies: Bodies,
    /// Memory of each cache.
    pub(crate) memory_mib: u64,
    /// Certificates of the servers that speak TLS.
    pub(crate) certificates: Option<Certificates>,
}

impl Deref for CacheSession {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.session
    }
}

impl DerefMut for CacheSession {
    fn deref_mut(&mut self) -> &mut Session {
        &mut self.session
    }
}

impl CacheSession {
    /// Moves this process to the load's core and starts the origin.
    ///
    /// # Errors
    /// The errors of [`Session::begin`], or an error if the origin cannot listen.
    pub(crate) fn begin(
        tools: &'static [(&'static str, &'static str)],
        memory_mib: u64,
        remarks: Vec<String>,
    ) -> Result<Self, PeerError> {
        let mut session = Session::begin(Tools { all: tools, script: SCRIPT }, remarks)?;
        session.take_load_core()?;
        let origin = Origin::start()?;
        let cores = format!("server {}, load and origin {}", session.server, session.load);
        session.set([
            ("cores", cores),
            ("memory of each cache", format!("{memory_mib} MiB")),
            ("load", first_line(Command::new(program("wrk")).arg("-v")).unwrap_or_default()),
        ]);
        Ok(Self { session, origin, bodies: Bodies::new(), memory_mib, certificates: None })
    }

    /// Returns the program of a contender; a missing one is remarked on.
    pub(crate) fn program(&mut self, contender: Contender) -> Option<PathBuf> {
        let version = |program: &Path| contender.version(program);
        self.session.program(contender.name(), contender.program(), version)
    }

    /// Starts a server on its cores, with other cores for its load; a failure is recorded.
    pub(crate) fn started(
        &mut self,
        contender: Contender,
        name: &str,
        program: &Path,
        cores: (&Cores, &Cores),
        body_bytes: Option<u64>,
    ) -> Option<ServerProcess> {
        let ground = Ground {
            directory: self.session.work.path(),
            origin_port: self.origin.port,
            memory_mib: self.memory_mib,
            bodies: &self.bodies,
            certificates: self.certificates.as_ref(),
        };
        let started = contenders::start(contender, name, program, &ground, cores, body_bytes);
        self.session.up(started)
    }

    /// Returns the session for recording the run, without the origin.
    pub(crate) fn end(self) -> Session {
        self.session
    }
}

/// Returns the reason for doubt if too many requests of a round of hits reached the origin.
#[must_use]
pub(crate) fn not_hits(requests: u64, at_origin: u64) -> Option<String> {
    (at_origin > (requests as f64 * MISS_SHARE_MAX) as u64)
        .then(|| format!("{at_origin} of {requests} answers came from the origin"))
}
