//! Servers that have joined a hub as leaf nodes. The producer is at the leaf node and the consumer at the
//! hub, so that each message crosses the link between them.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use lab::paired::place::free_port;
use lab::paired::tree::{Cores, Tree, pinned};

use lab::peers::feed::contenders::{Contender, ServerProcess, wait_until_ready};
use lab::peers::{PeerError, last_words};

/// Time within which a leaf node joins the hub on any machine fit for measuring. A leaf node that has not
/// joined by then loses messages, and a run with a lost message is rejected.
const JOIN_WAIT: Duration = Duration::from_secs(2);

/// A nats-server as the hub, and its port for leaf nodes.
#[derive(Debug)]
pub(crate) struct Hub {
    /// The hub's process; clients connect to its address.
    pub(crate) running: ServerProcess,
    leaf_port: u16,
}

/// Starts a nats-server that accepts leaf nodes.
///
/// # Errors
/// `PeerError` with the server's last output lines if it ended or did not answer.
pub(crate) fn start(program: &Path, directory: &Path, cores: &Cores) -> Result<Hub, PeerError> {
    let leaf_port = free_port()?;
    let lines = format!("leafnodes {{ listen: \"127.0.0.1:{leaf_port}\" }}\n");
    let running = with_file(Contender::Nats, "hub", program, directory, cores, &lines)?;
    Ok(Hub { running, leaf_port })
}

/// Starts a contender as a leaf node of a hub.
///
/// # Errors
/// The errors of [`start`], or an error if the contender cannot be a leaf node.
pub(crate) fn join(
    contender: Contender,
    name: &str,
    program: &Path,
    directory: &Path,
    cores: &Cores,
    hub: &Hub,
) -> Result<ServerProcess, PeerError> {
    let url = format!("nats-leaf://127.0.0.1:{}", hub.leaf_port);
    let running = match contender {
        Contender::Nats | Contender::NatsOfDebian => {
            let lines = format!("leafnodes {{ remotes = [ {{ url: \"{url}\" }} ] }}\n");
            with_file(contender, name, program, directory, cores, &lines)?
        }
        Contender::Ours | Contender::Other => {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
            let mut command = pinned(cores, &program.to_string_lossy());
            command.arg("feed").arg("--listen").arg(address.to_string());
            command.args(["--monitor", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--leaf", &url]);
            command.arg("--cores").arg(cores.to_string());
            started(contender, name, address, directory, cores, command)?
        }
        _ => return Err(PeerError::failed(format!("{name} is no leaf node"))),
    };
    sleep(JOIN_WAIT);
    Ok(running)
}

fn with_file(
    contender: Contender,
    name: &str,
    program: &Path,
    directory: &Path,
    cores: &Cores,
    lines: &str,
) -> Result<ServerProcess, PeerError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
    let file = directory.join(format!("{}.conf", name.replace([' ', ','], "-")));
    fs::write(&file, format!("listen: \"{address}\"\n{lines}"))?;
    let mut command = pinned(cores, &program.to_string_lossy());
    command.arg("-c").arg(file);
    started(contender, name, address, directory, cores, command)
}

fn started(
    contender: Contender,
    name: &str,
    address: SocketAddr,
    directory: &Path,
    cores: &Cores,
    mut command: Command,
) -> Result<ServerProcess, PeerError> {
    let output = directory.join(format!("{}.txt", name.replace([' ', ','], "-")));
    let file = File::create(&output)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let tree = Tree::start(command)?;
    let name = name.to_owned();
    let mut running = ServerProcess { contender, name, address, cores: cores.clone(), consumers: None, tree };
    wait_until_ready(&mut running).map_err(|why| {
        let name = &running.name;
        PeerError::failed(format!("{name} did not start: {why}; it said: {}", last_words(&output)))
    })?;
    Ok(running)
}
