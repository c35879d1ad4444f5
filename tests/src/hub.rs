//! A nats-server that feeds join as leaf nodes: the newest release, as `tests/install-clients.sh` builds it,
//! or Debian's.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{clients::installed, eventually, pebble::free_ports};

/// A hub. Killed, by its process id, when dropped; its output is printed then if the test failed.
#[derive(Debug)]
pub struct Hub {
    program: PathBuf,
    child: Option<Child>,
    printed: Arc<Mutex<Vec<String>>>,
    ports: [u16; 4],
    directory: tempfile::TempDir,
}

/// Returns the installed hubs with their names, the newest first.
#[must_use]
pub fn programs() -> Vec<(&'static str, PathBuf)> {
    let debian = PathBuf::from("/usr/sbin/nats-server");
    let newest = installed("hub/nats-server").map(|path| ("the newest", path));
    newest.into_iter().chain(debian.is_file().then_some(("Debian's", debian))).collect()
}

impl Hub {
    /// Starts the newest nats-server with these lines of nats.conf, besides its ports for clients and
    /// monitoring. `{LEAF}` stands for a port for leaf nodes, `{WEB}` for another, `{DIR}` for
    /// [`Hub::directory`]. `None` if it is not installed.
    #[must_use]
    pub fn start(lines: &str) -> Option<Self> {
        installed("hub/nats-server").map(|program| Self::start_by(&program, lines))
    }

    /// Starts a hub that any leaf node may join.
    #[must_use]
    pub fn open() -> Option<Self> {
        Self::start(OPEN)
    }

    /// Starts a hub with this program.
    #[must_use]
    pub fn start_by(program: &Path, lines: &str) -> Self {
        let hub = Self::prepare_by(program);
        hub.configure(lines);
        let mut hub = hub;
        hub.begin();
        hub
    }

    /// Prepares a hub that does not run yet and has no configuration.
    #[must_use]
    pub fn prepare_by(program: &Path) -> Self {
        Self {
            program: program.to_owned(),
            child: None,
            printed: Arc::default(),
            ports: free_ports(),
            directory: tempfile::tempdir().expect("a directory"),
        }
    }

    /// Writes the configuration file.
    pub fn configure(&self, lines: &str) {
        let [client, monitor, leaf, web] = self.ports;
        let text = format!(
            "server_name: hub\nlisten: \"127.0.0.1:{client}\"\nhttp: \"127.0.0.1:{monitor}\"\n{}\n",
            lines
                .replace("{DIR}", &self.directory.path().to_string_lossy())
                .replace("{LEAF}", &leaf.to_string())
                .replace("{WEB}", &web.to_string())
        );
        fs::write(self.directory.path().join("nats.conf"), text).expect("a file");
    }

    /// Starts the hub, or restarts it on the same ports and with the same files.
    pub fn begin(&mut self) {
        let mut child = Command::new(&self.program)
            .arg("-c")
            .arg(self.directory.path().join("nats.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("nats-server can be started");
        let (stderr, printed) = (child.stderr.take().expect("a pipe"), Arc::clone(&self.printed));
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                printed.lock().expect("no thread panics with it").push(line);
            }
        });
        self.child = Some(child);
        eventually("the hub listens", || {
            let child = self.child.as_mut().expect("it was started");
            let ended = child.try_wait().expect("waitpid works");
            assert!(ended.is_none(), "the hub ended: {ended:?}\n{}", self.printed());
            TcpStream::connect(self.address()).is_ok()
        });
    }

    /// Ends the hub with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("it is ours");
            child.wait().expect("it ends");
        }
    }

    /// Sends a signal to the hub.
    pub fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(id, signal).expect("the process is ours");
    }

    /// Address where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports[0]))
    }

    /// Address of the monitoring pages.
    #[must_use]
    pub fn monitor_address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.ports[1]))
    }

    /// Port where leaf nodes connect.
    #[must_use]
    pub fn leaf_port(&self) -> u16 {
        self.ports[2]
    }

    /// Port that `{WEB}` stands for.
    #[must_use]
    pub fn web_port(&self) -> u16 {
        self.ports[3]
    }

    /// Returns `nats-leaf://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats-leaf://127.0.0.1:{}", self.leaf_port())
    }

    /// Directory of the hub's files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns the output so far.
    #[must_use]
    pub fn printed(&self) -> String {
        self.printed.lock().expect("no thread panics with it").join("\n")
    }
}

/// Lines for a hub that any leaf node may join.
pub const OPEN: &str = "leafnodes { listen: \"127.0.0.1:{LEAF}\" }";

impl Drop for Hub {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
        if thread::panicking() {
            eprintln!("the hub printed:\n{}", self.printed());
        }
    }
}
