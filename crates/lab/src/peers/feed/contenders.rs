//! Everybody who takes part: how each is started, plainly and fairly, and stopped.
//!
//! All of them: one core, no logs, nothing kept on disk, no patience with slow consumers tested (the load keeps a
//! window). nats-server takes the number of its processors from the affinity that it is given.

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

/// How long a server may take until it answers.
const READY_WAIT: Duration = Duration::from_secs(20);
const READY_POLL: Duration = Duration::from_millis(20);
/// Where Debian's nats-server is; the newest one comes first on the path.
const NATS_OF_DEBIAN: &str = "/usr/sbin/nats-server";

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// `bench/relay/relay.c`
    Floor,
    /// The shared floor that ours must not exceed, if a path to it is given.
    Reference,
    /// `nighttrain feed`
    Ours,
    /// Another build of it.
    Other,
    /// The newest nats-server.
    Nats,
    /// Debian's nats-server.
    NatsOfDebian,
    /// Redis' publish and subscribe.
    Redis,
    /// An MQTT broker.
    Mosquitto,
}

impl Contender {
    /// All of them.
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
    /// Those that others wrote.
    pub const PEERS: [Self; 4] = [Self::Nats, Self::NatsOfDebian, Self::Redis, Self::Mosquitto];

    /// For people and records.
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

    /// A floor is started for a number of consumers, and knows nothing else.
    pub const fn is_floor(self) -> bool {
        matches!(self, Self::Floor | Self::Reference)
    }

    /// What it speaks.
    pub const fn wire(self) -> Wire {
        match self {
            Self::Floor | Self::Reference => Wire::Floor,
            Self::Ours | Self::Other | Self::Nats | Self::NatsOfDebian => Wire::Nats,
            Self::Redis => Wire::Redis,
            Self::Mosquitto => Wire::Mqtt,
        }
    }

    /// The program, or what to do to have it.
    ///
    /// # Errors
    /// A sentence with the command that installs it.
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

    /// Its version in its own words.
    pub fn version(self, program: &Path) -> String {
        let flag = match self {
            Self::Reference => return "the shared relay.c, by the same compiler".to_owned(),
            Self::Mosquitto => "-h",
            _ => "--version",
        };
        first_line(Command::new(program).arg(flag)).unwrap_or_else(|| "unknown".into())
    }
}

/// A server that answers.
#[derive(Debug)]
pub struct ServerProcess {
    /// Who it is.
    pub contender: Contender,
    /// What it is called here.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it runs.
    pub cores: Cores,
    /// How many consumers it is for, if it is a floor.
    pub consumers: Option<usize>,
    /// Its processes.
    pub tree: Tree,
}

/// Starts a contender under `name` at an address of this machine, on these cores, and waits until it answers. A floor
/// and mosquitto listen on loopback whatever the address is.
///
/// # Errors
/// It ended or did not answer; in its own last words.
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

/// Waits until a server that was started takes connections.
///
/// # Errors
/// `Failed`: it ended, or takes none.
pub fn wait_until_ready(running: &mut ServerProcess) -> Result<(), PeerError> {
    let begun = Instant::now();
    loop {
        // A floor counts its connections: it is looked at without making one.
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

/// Whether somebody listens on this port of loopback, from `/proc/net/tcp`.
fn check_listening(port: u16) -> Result<(), PeerError> {
    let wanted = format!(":{port:04X} 00000000:0000 0A");
    if fs::read_to_string("/proc/net/tcp")?.contains(&wanted) {
        Ok(())
    } else {
        Err(PeerError::failed("nobody listens yet"))
    }
}
