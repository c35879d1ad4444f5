//! The message servers under comparison: how each is started, with a simple and fair configuration, and
//! stopped.
//!
//! Every contender runs on one core, without logs or files. Its handling of slow consumers is not tested,
//! because the load limits messages to a window. nats-server takes its number of processors from its CPU
//! affinity.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::paired::machine::first_line;
use crate::paired::place::{find, free_port, other, other_build, ours, reference_floor, workspace};
use crate::paired::tree::{Cores, Tree, pinned};

use super::wire::Wire;
use crate::peers::{PeerError, last_words};

/// Maximum time from a server's start until it answers.
const READY_WAIT: Duration = Duration::from_secs(20);
const READY_POLL: Duration = Duration::from_millis(20);
/// Path of Debian's nats-server; the first one on `PATH` is the newest.
const NATS_OF_DEBIAN: &str = "/usr/sbin/nats-server";

/// A server that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// Minimal C server that shows the lowest possible cost of relaying a message (a *floor*):
    /// `bench/relay/relay.c`
    Floor,
    /// Shared reference version of [`Self::Floor`], if its directory is given; ours is compared with it.
    Reference,
    /// `nighttrain feed`
    Ours,
    /// Another build of `nighttrain feed`.
    Other,
    /// The newest nats-server.
    Nats,
    /// The nats-server of Debian's package.
    NatsOfDebian,
    /// Redis publish/subscribe.
    Redis,
    /// Mosquitto, an MQTT broker.
    Mosquitto,
}

impl Contender {
    /// All contenders.
    pub const ALL: [Self; 8] = [
        Self::Floor,
        Self::Reference,
        Self::Ours,
        Self::Other,
        Self::Nats,
        Self::NatsOfDebian,
        Self::Redis,
        Self::Mosquitto,
    ];
    /// Third-party servers.
    pub const PEERS: [Self; 4] = [Self::Nats, Self::NatsOfDebian, Self::Redis, Self::Mosquitto];

    /// Returns the name that reports and records use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Reference => "reference",
            Self::Ours => "ours",
            Self::Other => "ours-other",
            Self::Nats => "nats-server",
            Self::NatsOfDebian => "nats-server-debian",
            Self::Redis => "redis",
            Self::Mosquitto => "mosquitto",
        }
    }

    /// Returns whether the contender is a floor, a minimal server that is started for a fixed number of
    /// consumers.
    pub const fn is_floor(self) -> bool {
        matches!(self, Self::Floor | Self::Reference)
    }

    /// Returns the protocol that the server speaks.
    pub const fn wire(self) -> Wire {
        match self {
            Self::Floor | Self::Reference => Wire::Floor,
            Self::Ours | Self::Other | Self::Nats | Self::NatsOfDebian => Wire::Nats,
            Self::Redis => Wire::Redis,
            Self::Mosquitto => Wire::Mqtt,
        }
    }

    /// Returns the path of the contender's program.
    ///
    /// # Errors
    /// A message with the command that installs or builds it.
    pub fn program(self) -> Result<PathBuf, String> {
        let absent = || format!("{} is not installed: sudo bench/install-feed-peers.sh", self.name());
        match self {
            Self::Floor => find("cc").ok_or_else(absent),
            Self::Reference => reference_floor("relay.c"),
            Self::Ours => ours(),
            Self::Other => other(),
            Self::Nats => {
                let other = other_build("nats-server");
                other
                    .or_else(|| find("nats-server").filter(|path| path != Path::new(NATS_OF_DEBIAN)))
                    .ok_or_else(absent)
            }
            Self::NatsOfDebian => {
                Some(PathBuf::from(NATS_OF_DEBIAN)).filter(|path| path.is_file()).ok_or_else(absent)
            }
            Self::Redis => find("redis-server").ok_or_else(absent),
            Self::Mosquitto => find("mosquitto").ok_or_else(absent),
        }
    }

    /// Returns the version that the program reports.
    pub fn version(self, program: &Path) -> String {
        let flag = match self {
            Self::Reference => return "the shared relay.c, by the same compiler".to_owned(),
            Self::Mosquitto => "-h",
            _ => "--version",
        };
        first_line(Command::new(program).arg(flag)).unwrap_or_else(|| "unknown".into())
    }
}

/// A running contender that answers clients.
#[derive(Debug)]
pub struct ServerProcess {
    /// The contender that this process runs.
    pub contender: Contender,
    /// Name of the server in this run's reports.
    pub name: String,
    /// Address that the server listens on.
    pub address: SocketAddr,
    /// Cores that the server runs on.
    pub cores: Cores,
    /// Number of consumers for which a minimal server ([`Contender::is_floor`]) was started; `None` for other
    /// servers.
    pub consumers: Option<usize>,
    /// The server's processes.
    pub tree: Tree,
}

/// Starts a contender under `name` at an address of this machine, on these cores, and waits until it answers.
/// Floors and mosquitto always listen on loopback.
///
/// # Errors
/// `PeerError` with the server's last output lines if the server ended or did not answer.
pub fn start(
    contender: Contender,
    name: &str,
    program: &Path,
    directory: &Path,
    (ip, cores): (Ipv4Addr, &Cores),
    consumers: Option<usize>,
) -> Result<ServerProcess, PeerError> {
    let directory = directory.join(format!("{name}-{}", consumers.unwrap_or(0)));
    fs::create_dir_all(&directory)?;
    let port = free_port()?;
    let address = SocketAddr::V4(SocketAddrV4::new(ip, port));
    let mut command = match contender {
        Contender::Floor => {
            floor(&workspace().join("bench/relay/relay.c"), &directory, cores, port, consumers)?
        }
        Contender::Reference => floor(program, &directory, cores, port, consumers)?,
        Contender::Ours | Contender::Other => {
            let mut command = pinned(cores, &program.to_string_lossy());
            command.arg("feed").arg("--listen").arg(format!("{ip}:{port}"));
            command.args([
                "--monitor",
                "127.0.0.1:0",
                "--admin",
                "127.0.0.1:0",
                "--max-connections",
                "65536",
            ]);
            command.arg("--cores").arg(cores.to_string());
            command
        }
        Contender::Nats | Contender::NatsOfDebian => {
            let mut command = pinned(cores, &program.to_string_lossy());
            command.args(["--addr", &ip.to_string(), "--port"]).arg(port.to_string());
            command
        }
        Contender::Redis => {
            let mut command = pinned(cores, &program.to_string_lossy());
            command.arg("--port").arg(port.to_string()).arg("--dir").arg(&directory);
            command.args(["--bind", &ip.to_string(), "--save", "", "--appendonly", "no"]);
            command.args(["--client-output-buffer-limit", "pubsub 0 0 0"]);
            command
        }
        Contender::Mosquitto => {
            let path = directory.join("mosquitto.conf");
            let text = include_str!("../../../../../bench/peers/mosquitto.conf");
            fs::write(&path, text.replace("@PORT@", &port.to_string()))?;
            let mut command = pinned(cores, &program.to_string_lossy());
            command.arg("-c").arg(path);
            command
        }
    };
    let output = directory.join("output.txt");
    let file = File::create(&output)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let tree = Tree::start(command)?;
    let mut running =
        ServerProcess { contender, name: name.to_owned(), address, cores: cores.clone(), consumers, tree };
    wait_until_ready(&mut running).map_err(|why| {
        PeerError::failed(format!("{name} did not start: {why}; it said: {}", last_words(&output)))
    })?;
    Ok(running)
}

fn floor(
    source: &Path,
    directory: &Path,
    cores: &Cores,
    port: u16,
    consumers: Option<usize>,
) -> Result<Command, PeerError> {
    let binary = directory.join("relay");
    let compiled = Command::new("cc").args(["-O2", "-o"]).arg(&binary).arg(source).output()?;
    if !compiled.status.success() {
        let said = String::from_utf8_lossy(&compiled.stderr);
        return Err(PeerError::failed(format!("{} does not compile: {said}", source.display())));
    }
    let mut command = pinned(cores, &binary.to_string_lossy());
    command.arg(port.to_string()).arg(consumers.unwrap_or(0).to_string());
    Ok(command)
}

/// Waits until a started server accepts connections.
///
/// # Errors
/// `PeerError::Failed` if the server ended or does not accept connections.
pub fn wait_until_ready(running: &mut ServerProcess) -> Result<(), PeerError> {
    let begun = Instant::now();
    loop {
        // A floor counts its connections, so readiness is checked without opening one.
        let outcome = if running.contender.is_floor() {
            check_listening(running.address.port())
        } else {
            running.contender.wire().producer(running.address).map(drop)
        };
        let Err(error) = outcome else { return Ok(()) };
        if let Some(status) = running.tree.ended()? {
            return Err(PeerError::failed(format!("it ended ({status})")));
        }
        if begun.elapsed() > READY_WAIT {
            let waited = READY_WAIT.as_secs();
            return Err(PeerError::failed(format!("no good answer in {waited} s ({error})")));
        }
        sleep(READY_POLL);
    }
}

/// Checks in `/proc/net/tcp` that a socket listens on this loopback port.
///
/// # Errors
/// `PeerError::Failed` if no socket listens on it yet.
fn check_listening(port: u16) -> Result<(), PeerError> {
    let wanted = format!(":{port:04X} 00000000:0000 0A");
    if fs::read_to_string("/proc/net/tcp")?.contains(&wanted) {
        Ok(())
    } else {
        Err(PeerError::failed("nobody listens yet"))
    }
}
