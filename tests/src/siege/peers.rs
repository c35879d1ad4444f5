//! Peers under the same attacks: nats-server for comparison with the feed, Varnish with the accelerator.

use std::{
    fmt::Write as _,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{Part, Target, origin::Origin, server::memory_bytes};
use crate::{hub, pebble::free_ports};

/// Time within which a peer must listen.
const START: Duration = Duration::from_secs(20);

/// A running peer; ended on drop.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    /// Name in tables.
    pub name: &'static str,
    /// Addresses of the peer's parts.
    pub target: Target,
    _directory: tempfile::TempDir,
}

impl Peer {
    /// Starts the peer of a part.
    ///
    /// # Errors
    /// A sentence: the peer is not installed, or does not start.
    ///
    /// # Panics
    /// If there is no directory for it.
    pub fn start(part: Part, origin: &Origin) -> Result<Self, String> {
        let directory = tempfile::tempdir().expect("a directory");
        let ports: [u16; 2] = free_ports();
        let [address, pages] = ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let (name, mut command, target) = match part {
            Part::Feed => {
                let Some((_, program)) = hub::programs().into_iter().next() else {
                    return Err("nats-server is left out: it is not installed".to_owned());
                };
                let mut command = Command::new(program);
                command.args(["-a", "127.0.0.1", "-p", &ports[0].to_string(), "-m", &ports[1].to_string()]);
                (
                    "nats-server",
                    command,
                    Target { feed: Some(address), monitor: Some(pages), ..Target::default() },
                )
            }
            Part::Cache => {
                let program = PathBuf::from("/usr/sbin/varnishd");
                if !program.is_file() {
                    return Err("Varnish is left out: it is not installed".to_owned());
                }
                let mut command = Command::new(program);
                // The memory that `serve` has for stored objects, and HTTP/2 enabled as in `serve`.
                command.args(["-F", "-a", &address.to_string(), "-b", &origin.address.to_string()]);
                command.args(["-s", "malloc,256m", "-p", "feature=+http2", "-n"]).arg(directory.path());
                ("Varnish", command, Target { cache: Some(address), ..Target::default() })
            }
        };
        let log = fs::File::create(directory.path().join("log")).expect("a file");
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("what is installed can be started");
        let mut peer = Self { child, name, target, _directory: directory };
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            if start.elapsed() > START || peer.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Err(format!("{name} is left out: it does not start"));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(peer)
    }

    /// Returns the bytes of memory that belong to the peer and its children alone.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        let mut path = String::new();
        let _ = write!(path, "/proc/{0}/task/{0}/children", self.child.id());
        let children = fs::read_to_string(path).unwrap_or_default();
        let children = children.split_whitespace().filter_map(|id| id.parse().ok());
        memory_bytes(self.child.id()) + children.map(memory_bytes).sum::<u64>()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // SIGTERM, so that Varnish's manager ends its worker.
        if let Some(pid) = Pid::from_raw(self.child.id().cast_signed()) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}
