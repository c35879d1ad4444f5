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
use lab::peers::cache::contenders::{self, Contender, Ground, Running};
use lab::peers::cache::origin::{Bodies, Origin};

use crate::sitting::{Sitting, Tools};

/// The share of its answers that a measured run may get from the origin.
pub(crate) const MISS_SHARE_MAX: f64 = 0.001;
/// The script that installs the peers.
pub(crate) const SCRIPT: &str = "bench/install-peers.sh";

/// The length of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    /// As much as there is in so long.
    Time(Duration),
    /// So much, or a little more, however long it takes: to see that it works.
    Units(u32),
}

/// A [`Sitting`] with the origin that all servers stand in front of.
#[derive(Debug)]
pub(crate) struct CacheSitting {
    sitting: Sitting,
    /// The server behind the caches. It lives in this process.
    pub(crate) origin: Origin,
    /// The bodies that it answers with.
    pub(crate) bodies: Bodies,
    /// Memory of each cache.
    pub(crate) memory_mib: u64,
    /// Certificates of the servers that speak TLS.
    pub(crate) certificates: Option<Certificates>,
}

impl Deref for CacheSitting {
    type Target = Sitting;

    fn deref(&self) -> &Sitting {
        &self.sitting
    }
}

impl DerefMut for CacheSitting {
    fn deref_mut(&mut self) -> &mut Sitting {
        &mut self.sitting
    }
}

impl CacheSitting {
    /// Moves to the load's core, and starts the origin.
    ///
    /// # Errors
    /// As [`Sitting::begin`]; or the origin cannot listen.
    pub(crate) fn begin(
        tools: &'static [(&'static str, &'static str)],
        memory_mib: u64,
        remarks: Vec<String>,
    ) -> Result<Self, PeerError> {
        let mut sitting = Sitting::begin(Tools { all: tools, script: SCRIPT }, remarks)?;
        sitting.take_load_core()?;
        let origin = Origin::start()?;
        let cores = format!("server {}, load and origin {}", sitting.server, sitting.load);
        sitting.set([
            ("cores", cores),
            ("memory of each cache", format!("{memory_mib} MiB")),
            ("load", first_line(Command::new(program("wrk")).arg("-v")).unwrap_or_default()),
        ]);
        Ok(Self { sitting, origin, bodies: Bodies::new(), memory_mib, certificates: None })
    }

    /// The program of a contender.
    pub(crate) fn program(&mut self, contender: Contender) -> Option<PathBuf> {
        let version = |program: &Path| contender.version(program);
        self.sitting.program(contender.name(), contender.program(), version)
    }

    /// Starts a server on its cores, with its load on others; a failure is noted.
    pub(crate) fn started(
        &mut self,
        contender: Contender,
        name: &str,
        program: &Path,
        cores: (&Cores, &Cores),
        body_bytes: Option<u64>,
    ) -> Option<Running> {
        let ground = Ground {
            directory: self.sitting.work.path(),
            origin_port: self.origin.port,
            memory_mib: self.memory_mib,
            bodies: &self.bodies,
            certificates: self.certificates.as_ref(),
        };
        let started = contenders::start(contender, name, program, &ground, cores, body_bytes);
        self.sitting.up(started)
    }

    /// The run without the origin, for its record.
    pub(crate) fn end(self) -> Sitting {
        self.sitting
    }
}

/// A doubt about a round of hits in which so many requests reached the origin.
#[must_use]
pub(crate) fn not_hits(requests: u64, at_origin: u64) -> Option<String> {
    (at_origin > (requests as f64 * MISS_SHARE_MAX) as u64)
        .then(|| format!("{at_origin} of {requests} answers came from the origin"))
}
