//! Everybody who takes part: how each is started, tuned plainly and fairly (`bench/peers/`), and stopped.
//!
//! All of them: one core, memory of the same size, no logs, keep-alive without end, the cache warm. As root the
//! peers run as an unprivileged user, which each of them would insist on by itself in a different way.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::paired::machine::first_line;
use crate::paired::place::{find, free_port, other, ours, reference_floor, workspace};
use crate::paired::tree::{Cores, Tree, pinned};

use super::load::Filler;
use super::origin::Bodies;
use crate::peers::{PeerError, UNPRIVILEGED, hand_over, last_words};

/// Bytes.
pub const KIB: u64 = 1024;
/// How long a server may take until it answers (Traffic Server initialises its storage).
const READY_WAIT: Duration = Duration::from_secs(30);
const READY_POLL: Duration = Duration::from_millis(50);

/// Varnish writes a log record for each of these into shared memory on every request: off, like the others' logs.
const VARNISH_LOG_OFF: &str = "vsl_mask=-SessOpen,-SessClose,-Link,-Begin,-End,-Timestamp,-ReqStart,-ReqMethod,\
    -ReqURL,-ReqProtocol,-ReqHeader,-ReqUnset,-ReqAcct,-VCL_call,-VCL_return,-VCL_use,-Hit,-HitMiss,-HitPass,\
    -RespProtocol,-RespStatus,-RespReason,-RespHeader,-RespUnset,-Filters,-BereqMethod,-BereqURL,-BereqProtocol,\
    -BereqHeader,-BereqUnset,-BereqAcct,-BerespProtocol,-BerespStatus,-BerespReason,-BerespHeader,-BerespUnset,\
    -BackendOpen,-BackendClose,-Storage,-TTL,-Length,-Fetch_Body";

/// A file has room for what is in memory and for what is beside it.
const FILE_TIMES_MEMORY: u64 = 2;

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// `bench/limit/limit.c`
    Limit,
    /// `bench/limit/crowd.c`
    Crowd,
    /// Nobody: clients ask the origin.
    Direct,
    /// The shared floor that ours must not exceed, if a path to it is given.
    Reference,
    /// `nighttrain cache`
    Ours,
    /// Another build of it.
    Other,
    /// The same with its store on a file, of which all that is asked for is in memory too.
    OursOnFile,
    /// Varnish
    Varnish,
    /// nginx with `proxy_cache`
    Nginx,
    /// HAProxy with its cache
    Haproxy,
    /// Apache Traffic Server
    TrafficServer,
    /// Squid as an accelerator
    Squid,
}

impl Contender {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Limit,
        Self::Crowd,
        Self::Direct,
        Self::Reference,
        Self::Ours,
        Self::Other,
        Self::OursOnFile,
        Self::Varnish,
        Self::Nginx,
        Self::Haproxy,
        Self::TrafficServer,
        Self::Squid,
    ];
    /// Those that others wrote.
    pub const PEERS: [Self; 5] =
        [Self::Varnish, Self::Nginx, Self::Haproxy, Self::TrafficServer, Self::Squid];
    /// Those of them that ours is held against where it goes to the origin.
    pub const PROXIES: [Self; 3] = [Self::Varnish, Self::Nginx, Self::Haproxy];

    /// For people and records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Crowd => "limit-crowd",
            Self::Direct => "direct",
            Self::Reference => "reference",
            Self::Ours => "ours",
            Self::Other => "ours-other",
            Self::OursOnFile => "ours-file",
            Self::Varnish => "varnish",
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
            Self::TrafficServer => "trafficserver",
            Self::Squid => "squid",
        }
    }

    /// A floor answers one size only, with bytes of its own, and has no origin.
    pub const fn is_floor(self) -> bool {
        matches!(self, Self::Limit | Self::Reference)
    }

    /// It stores nothing.
    pub const fn is_storeless(self) -> bool {
        self.is_floor() || matches!(self, Self::Crowd | Self::Direct)
    }

    /// The program, or what to do to have it.
    ///
    /// # Errors
    /// A sentence with the command that installs it.
    pub fn program(self) -> Result<PathBuf, String> {
        let packaged = |name: &str| {
            find(name).ok_or_else(|| {
                format!("{name} is not installed: sudo bench/install-peers.sh", name = self.name())
            })
        };
        match self {
            Self::Limit | Self::Crowd => packaged("cc"),
            Self::Direct => packaged("sleep"),
            Self::Reference => reference_floor("limit.c"),
            Self::Ours | Self::OursOnFile => ours(),
            Self::Other => other(),
            Self::Varnish => packaged("varnishd"),
            Self::Nginx => packaged("nginx"),
            Self::Haproxy => packaged("haproxy"),
            Self::TrafficServer => packaged("traffic_server"),
            Self::Squid => packaged("squid"),
        }
    }

    /// Its version in its own words.
    pub fn version(self, program: &Path) -> String {
        let flag = match self {
            Self::Limit | Self::Crowd | Self::Direct | Self::Ours | Self::Other | Self::OursOnFile => {
                "--version"
            }
            Self::Reference => {
                return format!(
                    "{}, by the same compiler",
                    program.file_name().unwrap_or_default().to_string_lossy()
                );
            }
            Self::Varnish | Self::TrafficServer => "-V",
            Self::Nginx | Self::Haproxy | Self::Squid => "-v",
        };
        first_line(Command::new(program).arg(flag)).unwrap_or_else(|| "unknown".into())
    }
}

/// What a server is started with.
#[derive(Debug)]
pub struct Ground<'a> {
    /// In memory, empty, one directory a server below it.
    pub directory: &'a Path,
    /// Of loopback.
    pub origin_port: u16,
    /// What each may use.
    pub memory_mib: u64,
    /// What the origin answers with.
    pub bodies: &'a Bodies,
}

/// A server that answers.
#[derive(Debug)]
pub struct Running {
    /// Who it is.
    pub contender: Contender,
    /// What it is called here.
    pub name: String,
    /// Of loopback.
    pub port: u16,
    /// Where it runs.
    pub cores: Cores,
    /// Where its load runs.
    pub load_cores: Cores,
    /// The only body that it can answer with.
    pub body_bytes: Option<u64>,
    /// Its processes.
    pub tree: Tree,
}

/// Starts a contender under `name` and waits until it answers.
///
/// # Errors
/// It ended or did not answer; in its own last words.
pub fn start(
    contender: Contender,
    name: &str,
    program: &Path,
    ground: &Ground<'_>,
    (cores, load_cores): (&Cores, &Cores),
    body_bytes: Option<u64>,
) -> Result<Running, PeerError> {
    let directory = ground.directory.join(format!("{name}{}", body_bytes.unwrap_or(0)));
    fs::create_dir_all(&directory)?;
    let port = if contender == Contender::Direct { ground.origin_port } else { free_port()? };
    let place = Place { directory: &directory, port, ground, cores };
    let mut command = match contender {
        Contender::Limit => {
            place.floor(&workspace().join("bench/limit/limit.c"), body_bytes.unwrap_or(KIB))?
        }
        Contender::Crowd => {
            place.floor(&workspace().join("bench/limit/crowd.c"), u64::from(ground.origin_port))?
        }
        Contender::Direct => place.nobody(program),
        Contender::Reference => place.floor(program, body_bytes.unwrap_or(KIB))?,
        Contender::Ours | Contender::Other => place.ours(program),
        Contender::OursOnFile => {
            let mut command = place.ours(program);
            let bytes = format!("{}MiB", FILE_TIMES_MEMORY * ground.memory_mib);
            command.arg("--store").arg(directory.join("store")).arg("--store-size").arg(bytes);
            command
        }
        Contender::Varnish => place.varnish(program)?,
        Contender::Nginx => place.nginx(program)?,
        Contender::Haproxy => place.haproxy(program)?,
        Contender::TrafficServer => place.traffic_server(program)?,
        Contender::Squid => place.squid(program)?,
    };
    let output = directory.join("output.txt");
    let file = File::create(&output)?;
    command.stdin(std::process::Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let tree = Tree::start(command)?;
    let mut running = Running {
        contender,
        name: name.to_owned(),
        port,
        cores: cores.clone(),
        load_cores: load_cores.clone(),
        body_bytes,
        tree,
    };
    wait_until_ready(&mut running, ground.bodies).map_err(|why| {
        PeerError::failed(format!("{name} did not start: {why}; it said: {}", last_words(&output)))
    })?;
    Ok(running)
}

fn wait_until_ready(running: &mut Running, bodies: &Bodies) -> Result<(), PeerError> {
    let begun = Instant::now();
    loop {
        let outcome = if running.contender.is_storeless() {
            std::net::TcpStream::connect((std::net::Ipv4Addr::LOCALHOST, running.port))
                .map(drop)
                .map_err(Into::into)
        } else {
            Filler::new(running.port, bodies).fetch(KIB, 0)
        };
        let Err(error) = outcome else { return Ok(()) };
        if let Some(status) = running.tree.ended()? {
            return Err(PeerError::failed(format!("it ended ({status})")));
        }
        if begun.elapsed() > READY_WAIT {
            return Err(PeerError::failed(format!("no good answer in {} s ({error})", READY_WAIT.as_secs())));
        }
        sleep(READY_POLL);
    }
}

/// Where one server lives.
struct Place<'a> {
    directory: &'a Path,
    port: u16,
    ground: &'a Ground<'a>,
    cores: &'a Cores,
}

impl Place<'_> {
    /// A process to measure where there is none.
    fn nobody(&self, sleep: &Path) -> Command {
        let mut command = pinned(self.cores, &sleep.to_string_lossy());
        command.arg("infinity");
        command
    }

    /// A program in C that is told its port and `more`.
    fn floor(&self, source: &Path, more: u64) -> Result<Command, PeerError> {
        let binary = self.directory.join("floor");
        let compiled = Command::new("cc").arg("-O2").arg("-o").arg(&binary).arg(source).output()?;
        if !compiled.status.success() {
            let said = String::from_utf8_lossy(&compiled.stderr);
            return Err(PeerError::failed(format!("{} does not compile: {said}", source.display())));
        }
        let mut command = pinned(self.cores, &binary.to_string_lossy());
        command.arg(self.port.to_string()).arg(more.to_string());
        Ok(command)
    }

    fn ours(&self, program: &Path) -> Command {
        let mut command = pinned(self.cores, &program.to_string_lossy());
        command
            .arg("cache")
            .arg("--origin")
            .arg(format!("http://127.0.0.1:{}", self.ground.origin_port))
            .arg("--listen")
            .arg(format!("127.0.0.1:{}", self.port))
            .arg("--memory")
            .arg(format!("{}MiB", self.ground.memory_mib))
            .arg("--cores")
            .arg(self.cores.to_string())
            // Two of ours run at once, and one admin port is all that there is by default.
            .arg("--admin")
            .arg("127.0.0.1:0");
        command
    }

    fn varnish(&self, program: &Path) -> Result<Command, PeerError> {
        let policy =
            self.configuration("default.vcl", include_str!("../../../../../bench/peers/varnish.vcl"))?;
        let mut command = self.unprivileged(program)?;
        command.arg("-F").arg("-j").arg("none").arg("-f").arg(policy);
        command.arg("-n").arg(self.directory.join("state"));
        command.arg("-a").arg(format!("127.0.0.1:{}", self.port));
        command.arg("-s").arg(format!("malloc,{}M", self.ground.memory_mib));
        // A thread per busy connection is its design: have them before they are needed.
        for parameter in
            ["thread_pools=1", "thread_pool_min=1100", "thread_pool_max=2000", "listen_depth=4096"]
        {
            command.arg("-p").arg(parameter);
        }
        command.arg("-p").arg(VARNISH_LOG_OFF);
        Ok(command)
    }

    fn nginx(&self, program: &Path) -> Result<Command, PeerError> {
        self.configuration("proxy.conf", include_str!("../../../../../bench/peers/nginx-proxy.conf"))?;
        let path = self.configuration("nginx.conf", include_str!("../../../../../bench/peers/nginx.conf"))?;
        let mut command = self.unprivileged(program)?;
        command.arg("-c").arg(path).arg("-p").arg(self.directory);
        // Before the configuration is read, it would open the package's log.
        command.arg("-e").arg(self.directory.join("error.log"));
        Ok(command)
    }

    fn haproxy(&self, program: &Path) -> Result<Command, PeerError> {
        let path =
            self.configuration("haproxy.cfg", include_str!("../../../../../bench/peers/haproxy.cfg"))?;
        let mut command = self.unprivileged(program)?;
        command.arg("-db").arg("-f").arg(path);
        Ok(command)
    }

    fn traffic_server(&self, program: &Path) -> Result<Command, PeerError> {
        for directory in ["etc", "share", "state", "run", "log", "cache"] {
            fs::create_dir_all(self.directory.join(directory))?;
        }
        // The package's own files for everything that is not about this bench.
        for entry in fs::read_dir("/etc/trafficserver")?.flatten() {
            if entry.path().is_file() {
                fs::copy(entry.path(), self.directory.join("etc").join(entry.file_name()))?;
            }
        }
        self.configuration(
            "etc/records.config",
            include_str!("../../../../../bench/peers/trafficserver/records.config"),
        )?;
        self.configuration(
            "etc/remap.config",
            include_str!("../../../../../bench/peers/trafficserver/remap.config"),
        )?;
        self.configuration(
            "etc/storage.config",
            include_str!("../../../../../bench/peers/trafficserver/storage.config"),
        )?;
        let root = self.configuration(
            "runroot.yaml",
            include_str!("../../../../../bench/peers/trafficserver/runroot.yaml"),
        )?;
        let mut command = self.unprivileged(program)?;
        command.arg(format!("--run-root={}", root.display()));
        Ok(command)
    }

    fn squid(&self, program: &Path) -> Result<Command, PeerError> {
        let path = self.configuration("squid.conf", include_str!("../../../../../bench/peers/squid.conf"))?;
        let mut command = self.unprivileged(program)?;
        command.arg("-N").arg("-f").arg(path);
        Ok(command)
    }

    /// Writes a configuration with its placeholders filled in.
    fn configuration(&self, name: &str, template: &str) -> Result<PathBuf, PeerError> {
        let text = template
            .replace("@DIR@", &self.directory.to_string_lossy())
            .replace("@PORT@", &self.port.to_string())
            .replace("@ORIGIN_PORT@", &self.ground.origin_port.to_string())
            .replace("@MEMORY_MIB@", &self.ground.memory_mib.to_string())
            .replace("@MEMORY_BYTES@", &(self.ground.memory_mib << 20).to_string());
        let path = self.directory.join(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    /// `program` on our cores, and as nobody if we are somebody: call last, it hands the directory over.
    fn unprivileged(&self, program: &Path) -> Result<Command, PeerError> {
        let program = program.to_string_lossy();
        if !rustix::process::geteuid().is_root() {
            return Ok(pinned(self.cores, &program));
        }
        hand_over(self.directory)?;
        let mut command = pinned(self.cores, "setpriv");
        command.arg(format!("--reuid={UNPRIVILEGED}")).arg(format!("--regid={UNPRIVILEGED}"));
        command.args(["--clear-groups", "--"]).arg(&*program);
        Ok(command)
    }
}
