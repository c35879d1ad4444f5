//! A run of servers in front of one origin: the parts `cache` and `tls` share it.

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

/// The share of its answers that a measured run may get from the origin.
pub(crate) const MISS_SHARE_MAX: f64 = 0.001;
/// The script that installs the peers.
pub(crate) const SCRIPT: &str = "bench/install-peers.sh";

/// The length of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    /// All requests of so long.
    Time(Duration),
    /// So many requests, or a few more, however long they take: to see that it works.
    Units(u32),
}

/// A [`Session`] with the origin that all servers stand in front of.
#[derive(Debug)]
pub(crate) struct CacheSession {
    session: Session,
    /// The server behind the caches. It lives in this process.
    pub(crate) origin: Origin,
    /// The bodies that it answers with.
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
    /// Moves to the load's core, and starts the origin.
    ///
    /// # Errors
    /// A fault of [`Session::begin`], or the origin cannot listen.
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

    /// The program of a contender.
    pub(crate) fn program(&mut self, contender: Contender) -> Option<PathBuf> {
        let version = |program: &Path| contender.version(program);
        self.session.program(contender.name(), contender.program(), version)
    }

    /// Starts a server on its cores, with its load on others; a failure is noted.
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

    /// The run without the origin, for its record.
    pub(crate) fn end(self) -> Session {
        self.session
    }
}

/// A doubt about a round of hits in which so many requests reached the origin.
#[must_use]
pub(crate) fn not_hits(requests: u64, at_origin: u64) -> Option<String> {
    (at_origin > (requests as f64 * MISS_SHARE_MAX) as u64)
        .then(|| format!("{at_origin} of {requests} answers came from the origin"))
}
