//! The caches under comparison: how each is started, configured simply and fairly (`bench/peers/`), and
//! stopped.
//!
//! Every contender runs on one core with the same amount of memory, unlimited keep-alive and a warm cache;
//! logs are off except where logging is measured. When the bench runs as root, the peers run as an
//! unprivileged user, because each of them would otherwise drop privileges in its own way.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::paired::machine::first_line;
use crate::paired::place::{find, free_port, other, ours, reference_floor, workspace};
use crate::paired::tree::{Cores, Tree, pinned};

use super::certificates::{Certificates, RSA_NAME};
use super::load::Filler;
use super::origin::Bodies;
use crate::peers::{PeerError, UNPRIVILEGED, hand_over, last_words};

/// Bytes of a KiB.
pub const KIB: u64 = 1024;
/// Maximum time from a server's start until it answers (Traffic Server initialises its storage first).
const READY_WAIT: Duration = Duration::from_secs(30);
const READY_POLL: Duration = Duration::from_millis(50);

/// Turns off the log records that Varnish otherwise writes into shared memory on every request, as the logs
/// of the other servers are off too.
const VARNISH_LOG_OFF: &str = "vsl_mask=-SessOpen,-SessClose,-Link,-Begin,-End,-Timestamp,-ReqStart,-ReqMethod,\
    -ReqURL,-ReqProtocol,-ReqHeader,-ReqUnset,-ReqAcct,-VCL_call,-VCL_return,-VCL_use,-Hit,-HitMiss,-HitPass,\
    -RespProtocol,-RespStatus,-RespReason,-RespHeader,-RespUnset,-Filters,-BereqMethod,-BereqURL,-BereqProtocol,\
    -BereqHeader,-BereqUnset,-BereqAcct,-BerespProtocol,-BerespStatus,-BerespReason,-BerespHeader,-BerespUnset,\
    -BackendOpen,-BackendClose,-Storage,-TTL,-Length,-Fetch_Body";

/// Size of the file store as a multiple of the store's memory.
const FILE_TIMES_MEMORY: u64 = 2;

/// A server or setup that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// Minimal C server that shows the lowest possible cost of a cache hit over HTTP/1.1 (a *floor*):
    /// `bench/limit/limit.c`
    Limit,
    /// Minimal C server for a crowd of clients that wait for the same page: `bench/limit/crowd.c`
    Crowd,
    /// No proxy: clients connect to the origin directly.
    Direct,
    /// Shared reference version of [`Self::Limit`], if its directory is given; ours is compared with it.
    Reference,
    /// Nighttrain: `nighttrain cache`
    Ours,
    /// Another build of `nighttrain cache`.
    Other,
    /// `nighttrain cache` with a file-backed store, while all requested objects are also in memory.
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
    /// Minimal C server that shows the lowest possible cost of a cache hit over HTTP/2:
    /// `bench/limit/streams.c`
    LimitStreams,
    /// Shared reference version of [`Self::LimitStreams`], if its directory is given; ours is compared with
    /// it.
    ReferenceStreams,
    /// Hitch in front of Varnish, which has no TLS of its own
    HitchVarnish,
    /// `nighttrain cache` with an access log
    OursLogged,
    /// `nighttrain cache` without an access log, while `nighttrain log` reads its requests with a filter that
    /// matches none
    OursRead,
    /// nginx that writes a buffered access log
    NginxLogged,
    /// Varnish with its shared-memory log on, and `varnishncsa` that writes it to a file
    VarnishLogged,
}

impl Contender {
    /// Contenders that are compared over plain HTTP/1.1.
    pub const ALL: [Self; 16] = [
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
        Self::OursLogged,
        Self::OursRead,
        Self::NginxLogged,
        Self::VarnishLogged,
    ];
    /// Contenders whose requests are logged.
    pub const LOGGED: [Self; 4] = [Self::OursLogged, Self::OursRead, Self::NginxLogged, Self::VarnishLogged];
    /// Contenders that are compared over TLS and HTTP/2.
    pub const EDGE: [Self; 7] = [
        Self::LimitStreams,
        Self::ReferenceStreams,
        Self::Ours,
        Self::Other,
        Self::Nginx,
        Self::Haproxy,
        Self::HitchVarnish,
    ];
    /// Third-party servers among [`Self::EDGE`].
    pub const EDGE_PEERS: [Self; 3] = [Self::Nginx, Self::Haproxy, Self::HitchVarnish];
    /// Third-party servers among [`Self::ALL`].
    pub const PEERS: [Self; 5] =
        [Self::Varnish, Self::Nginx, Self::Haproxy, Self::TrafficServer, Self::Squid];
    /// Peers that Nighttrain is compared with on requests that go to the origin.
    pub const PROXIES: [Self; 3] = [Self::Varnish, Self::Nginx, Self::Haproxy];

    /// Returns the name that reports and records use.
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
            Self::LimitStreams => "limit-h2",
            Self::ReferenceStreams => "reference-h2",
            Self::HitchVarnish => "hitch+varnish",
            Self::OursLogged => "ours-logged",
            Self::OursRead => "ours-read",
            Self::NginxLogged => "nginx-logged",
            Self::VarnishLogged => "varnish-logged",
        }
    }

    /// Returns whether the contender is a floor, a minimal server that only shows the lowest possible cost:
    /// it answers with its own bytes of one fixed size and has no origin.
    pub const fn is_floor(self) -> bool {
        matches!(self, Self::Limit | Self::Reference | Self::LimitStreams | Self::ReferenceStreams)
    }

    /// Returns whether the contender stores nothing.
    pub const fn is_storeless(self) -> bool {
        self.is_floor() || matches!(self, Self::Crowd | Self::Direct)
    }

    /// Returns the path of the contender's program.
    ///
    /// # Errors
    /// A message with the command that installs or builds it.
    pub fn program(self) -> Result<PathBuf, String> {
        let packaged = |name: &str| {
            find(name).ok_or_else(|| {
                format!("{name} is not installed: sudo bench/install-peers.sh", name = self.name())
            })
        };
        match self {
            Self::Limit | Self::Crowd | Self::LimitStreams => packaged("cc"),
            Self::Direct => packaged("sleep"),
            Self::Reference => reference_floor("limit.c"),
            Self::ReferenceStreams => reference_floor("limit-h2.c"),
            Self::Ours | Self::OursOnFile | Self::OursLogged | Self::OursRead => ours(),
            Self::Other => other(),
            Self::Varnish => packaged("varnishd"),
            Self::VarnishLogged => packaged("varnishncsa").and_then(|_| packaged("varnishd")),
            Self::Nginx | Self::NginxLogged => packaged("nginx"),
            Self::Haproxy => packaged("haproxy"),
            Self::TrafficServer => packaged("traffic_server"),
            Self::Squid => packaged("squid"),
            Self::HitchVarnish => packaged("varnishd").and_then(|_| packaged("hitch")),
        }
    }

    /// Returns the version that the program reports.
    pub fn version(self, program: &Path) -> String {
        let flag = match self {
            Self::Limit
            | Self::Crowd
            | Self::LimitStreams
            | Self::Direct
            | Self::Ours
            | Self::Other
            | Self::OursOnFile
            | Self::OursLogged
            | Self::OursRead => "--version",
            Self::HitchVarnish => {
                let varnish = Self::Varnish.program().map(|program| Self::Varnish.version(&program));
                let hitch = first_line(Command::new(program).arg("-V")).unwrap_or_else(|| "unknown".into());
                return format!("{hitch} + {}", varnish.unwrap_or_default());
            }
            Self::Reference | Self::ReferenceStreams => {
                return format!(
                    "{}, by the same compiler",
                    program.file_name().unwrap_or_default().to_string_lossy()
                );
            }
            Self::Varnish | Self::VarnishLogged | Self::TrafficServer => "-V",
            Self::Nginx | Self::NginxLogged | Self::Haproxy | Self::Squid => "-v",
        };
        first_line(Command::new(program).arg(flag)).unwrap_or_else(|| "unknown".into())
    }
}

/// Resources and settings that every contender is started with.
#[derive(Debug)]
pub struct Ground<'a> {
    /// Empty directory on a memory file system; each server gets a subdirectory.
    pub directory: &'a Path,
    /// Loopback port of the origin.
    pub origin_port: u16,
    /// Memory of each cache.
    pub memory_mib: u64,
    /// Bodies that the origin answers with.
    pub bodies: &'a Bodies,
    /// Certificates for servers that are measured over TLS and HTTP/2.
    pub certificates: Option<&'a Certificates>,
}

/// Loopback ports for HTTP/2 and TLS.
#[derive(Clone, Copy, Debug, Default)]
pub struct EdgePorts {
    /// Port for HTTP/2 without TLS.
    pub streams: u16,
    /// Port for HTTP/1.1 and HTTP/2 over TLS.
    pub tls: u16,
}

/// A running contender that answers requests.
#[derive(Debug)]
pub struct ServerProcess {
    /// The contender that this process runs.
    pub contender: Contender,
    /// Name of the server in this run's reports.
    pub name: String,
    /// Loopback port of plain HTTP/1.1.
    pub port: u16,
    /// Ports for HTTP/2 without TLS and for TLS; 0 if the server has no certificates.
    pub edge: EdgePorts,
    /// Cores that the server runs on.
    pub cores: Cores,
    /// Cores that its load generator runs on.
    pub load_cores: Cores,
    /// Size of the one body with which a minimal server ([`Contender::is_floor`]) answers; `None` for other
    /// servers.
    pub body_bytes: Option<u64>,
    /// The server's processes.
    pub tree: Tree,
    /// Process that reads the server's log; its CPU time is not counted as the server's.
    pub reader: Option<Tree>,
}

/// Starts a contender under `name` and waits until it answers.
///
/// # Errors
/// `PeerError` with the server's last output lines if the server ended or did not answer.
pub fn start(
    contender: Contender,
    name: &str,
    program: &Path,
    ground: &Ground<'_>,
    (cores, load_cores): (&Cores, &Cores),
    body_bytes: Option<u64>,
) -> Result<ServerProcess, PeerError> {
    let directory = ground.directory.join(format!("{name}{}", body_bytes.unwrap_or(0)));
    fs::create_dir_all(&directory)?;
    let port = if contender == Contender::Direct { ground.origin_port } else { free_port()? };
    let edge = match (ground.certificates, contender) {
        (None, _) => EdgePorts::default(),
        // The other servers accept HTTP/1.1 and HTTP/2 on one port, and tell them apart by a connection's
        // first bytes.
        (Some(_), Contender::Nginx) => EdgePorts { streams: free_port()?, tls: free_port()? },
        (Some(_), _) => EdgePorts { streams: port, tls: free_port()? },
    };
    let admin_port = if contender == Contender::OursRead { free_port()? } else { 0 };
    let place = Place { directory: &directory, port, admin_port, edge, ground, cores };
    place.certificates()?;
    let mut command = match contender {
        Contender::Limit => {
            place.floor(&workspace().join("bench/limit/limit.c"), body_bytes.unwrap_or(KIB))?
        }
        Contender::Crowd => {
            place.floor(&workspace().join("bench/limit/crowd.c"), u64::from(ground.origin_port))?
        }
        Contender::LimitStreams => {
            place.floor(&workspace().join("bench/limit/streams.c"), body_bytes.unwrap_or(KIB))?
        }
        Contender::Direct => place.nobody(program),
        Contender::Reference | Contender::ReferenceStreams => {
            place.floor(program, body_bytes.unwrap_or(KIB))?
        }
        Contender::Ours | Contender::Other | Contender::OursRead => place.ours(program)?,
        Contender::OursLogged => {
            let mut command = place.ours(program)?;
            command.arg("--access-log").arg(directory.join("access.log"));
            command
        }
        Contender::OursOnFile => {
            let mut command = place.ours(program)?;
            let bytes = format!("{}MiB", FILE_TIMES_MEMORY * ground.memory_mib);
            command.arg("--store").arg(directory.join("store")).arg("--store-size").arg(bytes);
            command
        }
        Contender::Varnish => place.varnish(program)?,
        Contender::VarnishLogged => place.varnish_logged(program)?,
        Contender::Nginx => place.nginx(program, "access_log off;")?,
        Contender::NginxLogged => {
            place.nginx(program, "access_log @DIR@/access.log combined buffer=64k flush=1s;")?
        }
        Contender::Haproxy => place.haproxy(program)?,
        Contender::TrafficServer => place.traffic_server(program)?,
        Contender::Squid => place.squid(program)?,
        Contender::HitchVarnish => place.hitch_varnish(program)?,
    };
    let output = directory.join("output.txt");
    let file = File::create(&output)?;
    command.stdin(std::process::Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let tree = Tree::start(command)?;
    let mut running = ServerProcess {
        contender,
        name: name.to_owned(),
        port,
        edge,
        cores: cores.clone(),
        load_cores: load_cores.clone(),
        body_bytes,
        tree,
        reader: None,
    };
    wait_until_ready(&mut running, ground.bodies).map_err(|why| {
        PeerError::failed(format!("{name} did not start: {why}; it said: {}", last_words(&output)))
    })?;
    if contender == Contender::OursRead {
        let mut command = pinned(load_cores, &program.to_string_lossy());
        command.args(["log", "--admin", &format!("127.0.0.1:{admin_port}"), "status >= 500"]);
        let null = std::process::Stdio::null;
        command.stdin(null()).stdout(null()).stderr(null());
        running.reader = Some(Tree::start(command)?);
    }
    Ok(running)
}

fn wait_until_ready(running: &mut ServerProcess, bodies: &Bodies) -> Result<(), PeerError> {
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

/// Directory, ports and cores of one server.
struct Place<'a> {
    directory: &'a Path,
    port: u16,
    /// Admin port that serves Nighttrain's log; 0 lets the kernel choose a port.
    admin_port: u16,
    edge: EdgePorts,
    ground: &'a Ground<'a>,
    cores: &'a Cores,
}

impl Place<'_> {
    /// Starts `sleep infinity` as the measured process when clients connect to the origin directly.
    fn nobody(&self, sleep: &Path) -> Command {
        let mut command = pinned(self.cores, &sleep.to_string_lossy());
        command.arg("infinity");
        command
    }

    /// Compiles a floor, a minimal server in C, and returns its command, with the port and `more` as
    /// arguments.
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

    /// Writes the server's certificates and keys into its directory.
    fn certificates(&self) -> Result<(), PeerError> {
        if let Some(certificates) = self.ground.certificates {
            for (name, pair) in [("ecdsa", &certificates.ecdsa), ("rsa", &certificates.rsa)] {
                fs::write(self.directory.join(format!("{name}.crt")), &pair.certificate)?;
                fs::write(self.directory.join(format!("{name}.key")), &pair.key)?;
                // Some servers need certificate and key in one file.
                let both = format!("{}{}", pair.certificate, pair.key);
                fs::write(self.directory.join(format!("{name}.pem")), both)?;
            }
        }
        Ok(())
    }

    fn ours(&self, program: &Path) -> Result<Command, PeerError> {
        let mut command = pinned(self.cores, &program.to_string_lossy());
        let origin = format!("http://127.0.0.1:{}", self.ground.origin_port);
        command
            .arg("cache")
            .arg("--origin")
            .arg(&origin)
            .arg("--listen")
            .arg(format!("127.0.0.1:{}", self.port))
            .arg("--memory")
            .arg(format!("{}MiB", self.ground.memory_mib))
            .arg("--cores")
            .arg(self.cores.to_string())
            // Two Nighttrain servers run at once, so they cannot both use the default admin port.
            .arg("--admin")
            .arg(format!("127.0.0.1:{}", self.admin_port));
        if self.ground.certificates.is_some() {
            let file = self.configuration(
                "nighttrain.toml",
                include_str!("../../../../../bench/peers/nighttrain.toml"),
            )?;
            command.arg("--config").arg(file);
            command.arg("--tls-listen").arg(format!("127.0.0.1:{}", self.edge.tls));
        }
        Ok(command)
    }

    fn varnish(&self, program: &Path) -> Result<Command, PeerError> {
        let arguments = self.varnish_arguments(false)?;
        let mut command = self.unprivileged(program)?;
        command.args(arguments);
        Ok(command)
    }

    /// Runs both programs in one process tree: the shell becomes Varnish, and `varnishncsa` is its child.
    fn varnish_logged(&self, varnish: &Path) -> Result<Command, PeerError> {
        let arguments = self.varnish_arguments(true)?;
        let mut command = self.unprivileged(Path::new("sh"))?;
        let writer = find("varnishncsa").ok_or_else(|| PeerError::failed("varnishncsa is not installed"))?;
        let script =
            "state=$1 log=$2 writer=$3; shift 3; \"$writer\" -n \"$state\" -t off -w \"$log\" & exec \"$@\"";
        command.arg("-c").arg(script).arg("sh");
        command.arg(self.directory.join("state")).arg(self.directory.join("access.log")).arg(writer);
        command.arg(varnish).args(arguments);
        Ok(command)
    }

    fn varnish_arguments(&self, is_logged: bool) -> Result<Vec<String>, PeerError> {
        let policy =
            self.configuration("default.vcl", include_str!("../../../../../bench/peers/varnish.vcl"))?;
        let mut all: Vec<String> = ["-F", "-j", "none", "-f"].map(Into::into).into();
        all.push(policy.to_string_lossy().into());
        all.extend(["-n".into(), self.directory.join("state").to_string_lossy().into()]);
        all.extend(["-a".into(), format!("127.0.0.1:{}", self.port)]);
        all.extend(["-s".into(), format!("malloc,{}M", self.ground.memory_mib)]);
        // Varnish uses one thread per busy connection, so the threads are created in advance.
        for parameter in
            ["thread_pools=1", "thread_pool_min=1100", "thread_pool_max=2000", "listen_depth=4096"]
        {
            all.extend(["-p".into(), parameter.into()]);
        }
        if !is_logged {
            all.extend(["-p", VARNISH_LOG_OFF].map(Into::into));
        }
        Ok(all)
    }

    /// Runs both programs in one process tree: the shell becomes Hitch, and Varnish is its child.
    fn hitch_varnish(&self, hitch: &Path) -> Result<Command, PeerError> {
        let path = self.configuration("hitch.conf", include_str!("../../../../../bench/peers/hitch.conf"))?;
        let mut arguments = self.varnish_arguments(false)?;
        arguments.extend(["-a".into(), format!("{},PROXY", self.directory.join("varnish.sock").display())]);
        arguments.extend(["-p", "feature=+http2"].map(Into::into));
        let varnish = Contender::Varnish.program().map_err(PeerError::failed)?;
        let mut command = self.unprivileged(Path::new("sh"))?;
        // Hitch resolves its backend when it starts, so the script waits for Varnish's socket.
        let script = "socket=$1 hitch=$2 configuration=$3; shift 3; \"$@\" & \
                      until [ -S \"$socket\" ]; do sleep 0.05; done; \
                      exec \"$hitch\" --config=\"$configuration\"";
        command.arg("-c").arg(script).arg("sh");
        command.arg(self.directory.join("varnish.sock")).arg(hitch).arg(path);
        command.arg(varnish).args(arguments);
        Ok(command)
    }

    fn nginx(&self, program: &Path, log: &str) -> Result<Command, PeerError> {
        self.configuration("proxy.conf", include_str!("../../../../../bench/peers/nginx-proxy.conf"))?;
        self.configuration(
            "locations.conf",
            include_str!("../../../../../bench/peers/nginx-locations.conf"),
        )?;
        if self.ground.certificates.is_some() {
            self.configuration("edge.conf", include_str!("../../../../../bench/peers/nginx-edge.conf"))?;
        }
        let text = include_str!("../../../../../bench/peers/nginx.conf").replace("access_log off;", log);
        let path = self.configuration("nginx.conf", &text)?;
        let mut command = self.unprivileged(program)?;
        command.arg("-c").arg(path).arg("-p").arg(self.directory);
        // nginx would otherwise open the package's error log before it reads the configuration.
        command.arg("-e").arg(self.directory.join("error.log"));
        Ok(command)
    }

    fn haproxy(&self, program: &Path) -> Result<Command, PeerError> {
        let path =
            self.configuration("haproxy.cfg", include_str!("../../../../../bench/peers/haproxy.cfg"))?;
        let edge = match self.ground.certificates {
            None => None,
            Some(_) => Some(self.configuration(
                "haproxy-edge.cfg",
                include_str!("../../../../../bench/peers/haproxy-edge.cfg"),
            )?),
        };
        let mut command = self.unprivileged(program)?;
        command.arg("-db").arg("-f").arg(path);
        if let Some(edge) = edge {
            command.arg("-f").arg(edge);
        }
        Ok(command)
    }

    fn traffic_server(&self, program: &Path) -> Result<Command, PeerError> {
        for directory in ["etc", "share", "state", "run", "log", "cache"] {
            fs::create_dir_all(self.directory.join(directory))?;
        }
        // Settings that do not matter to the bench come from the package's own files.
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

    /// Writes a configuration file with its placeholders replaced.
    fn configuration(&self, name: &str, template: &str) -> Result<PathBuf, PeerError> {
        let text = template
            .replace("@DIR@", &self.directory.to_string_lossy())
            .replace("@PORT@", &self.port.to_string())
            .replace("@STREAMS_PORT@", &self.edge.streams.to_string())
            .replace("@TLS_PORT@", &self.edge.tls.to_string())
            .replace("@RSA_NAME@", RSA_NAME)
            .replace("@ORIGIN_PORT@", &self.ground.origin_port.to_string())
            .replace("@MEMORY_MIB@", &self.ground.memory_mib.to_string())
            .replace("@MEMORY_BYTES@", &(self.ground.memory_mib << 20).to_string());
        let path = self.directory.join(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    /// Returns a command that runs `program` on the server's cores, and as an unprivileged user if the bench
    /// runs as root. Call it last, because it changes the directory's owner.
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
