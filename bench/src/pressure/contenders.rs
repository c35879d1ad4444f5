//! The compared servers, and how each is started in its memory cgroup with a store on the disk
//! (`bench/pressure/`).
//!
//! Every contender has one core, the same limit on memory including page cache, a store of the same size on
//! the same file system, and no logs. When the bench runs as root, the peers run as an unprivileged user,
//! because each of them would otherwise drop privileges in its own way.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lab::experiments::bheap_paging::group::Group;
use lab::paired::machine::first_line;
use lab::paired::place::{self, find};
use lab::paired::tree::Tree;
use lab::peers::{PeerError, UNPRIVILEGED, hand_over, last_words};

use crate::pressure::load::Client;

/// Time that a server may take until it answers (Traffic Server initialises its storage first, Squid its
/// directories).
const READY_WAIT: Duration = Duration::from_secs(60);
const READY_POLL: Duration = Duration::from_millis(5);
/// ID of an object that only the readiness check requests.
const PROBE: u64 = u64::MAX >> 1;
/// Number of keys per MiB of nginx's key zone.
const KEYS_IN_MIB: u64 = 8_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    OursKernel,
    OursDirect,
    Varnish,
    Nginx,
    TrafficServer,
    Squid,
}

impl Contender {
    pub(crate) const ALL: [Self; 6] =
        [Self::OursKernel, Self::OursDirect, Self::Varnish, Self::Nginx, Self::TrafficServer, Self::Squid];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::OursKernel => "ours-kernel",
            Self::OursDirect => "ours-direct",
            Self::Varnish => "varnish",
            Self::Nginx => "nginx",
            Self::TrafficServer => "trafficserver",
            Self::Squid => "squid",
        }
    }

    pub(crate) const fn is_ours(self) -> bool {
        matches!(self, Self::OursKernel | Self::OursDirect)
    }

    /// Returns the prefix of the names of the threads that serve requests.
    pub(crate) const fn loops(self) -> &'static str {
        match self {
            Self::OursKernel | Self::OursDirect => "cache-0",
            // Varnish has a thread per connection, so all of its worker threads count.
            Self::Varnish => "cache-worker",
            Self::Nginx => "nginx",
            Self::TrafficServer => "[ET_NET",
            Self::Squid => "squid",
        }
    }

    /// Returns the path of the program, or a message with the command that installs it.
    pub(crate) fn program(self) -> Result<PathBuf, String> {
        let packaged = |name: &str| {
            find(name).ok_or_else(|| format!("{} is not installed: sudo bench/install-peers.sh", self.name()))
        };
        match self {
            Self::OursKernel | Self::OursDirect => ours(),
            Self::Varnish => packaged("varnishd"),
            Self::Nginx => packaged("nginx"),
            Self::TrafficServer => packaged("traffic_server"),
            Self::Squid => packaged("squid"),
        }
    }

    /// Returns the version that the program reports.
    pub(crate) fn version(self, program: &Path) -> String {
        let flag = match self {
            Self::OursKernel | Self::OursDirect => "--version",
            Self::Varnish | Self::TrafficServer => "-V",
            Self::Nginx | Self::Squid => "-v",
        };
        first_line(Command::new(program).arg(flag)).unwrap_or_else(|| "unknown".into())
    }
}

/// Returns the `nighttrain` program, if it is built and supports a store on a file.
fn ours() -> Result<PathBuf, String> {
    let program = place::ours()?;
    let help =
        Command::new(&program).args(["cache", "--help"]).output().map_err(|error| error.to_string())?;
    if String::from_utf8_lossy(&help.stdout).contains("--paging") {
        Ok(program)
    } else {
        Err(format!("{} keeps its store in memory alone: it has no --paging", program.display()))
    }
}

/// Resources and settings that a server is started with.
pub(crate) struct Ground<'a> {
    pub(crate) contender: Contender,
    pub(crate) program: &'a Path,
    /// The server's own directory, on a disk.
    pub(crate) directory: &'a Path,
    pub(crate) group: &'a Group,
    pub(crate) core: usize,
    pub(crate) origin_port: u16,
    pub(crate) memory_mib: u64,
    pub(crate) store_mib: u64,
    pub(crate) objects: u64,
    /// Ports of the server and of Nighttrain's admin server. They stay the same at each start, because the
    /// host and port are part of an object's key.
    pub(crate) ports: (u16, u16),
}

/// A running server that answers requests.
pub(crate) struct Server {
    pub(crate) port: u16,
    /// Port of Nighttrain's admin server.
    pub(crate) admin_port: u16,
    pub(crate) tree: Tree,
    /// Seconds from the start to the first correct answer.
    pub(crate) ready_s: f64,
}

/// Starts a server in its cgroup and waits until it answers.
pub(crate) fn start(ground: &Ground<'_>) -> Result<Server, PeerError> {
    let name = ground.contender.name();
    let (port, admin_port) = ground.ports;
    let mut command = ground.command(port, admin_port)?;
    let output = ground.directory.join("output.txt");
    let file = File::options().create(true).append(true).open(&output)?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let begun = Instant::now();
    let mut tree = Tree::start(command)?;
    loop {
        let Err(error) = Client::new(port).fetch(PROBE) else { break };
        let ended = tree.ended()?;
        if ended.is_some() || begun.elapsed() > READY_WAIT {
            let said = last_words(&output);
            let why = ended.map_or_else(|| format!("no good answer ({error})"), |status| status.to_string());
            return Err(PeerError::failed(format!("{name} did not start: {why}; it said: {said}")));
        }
        sleep(READY_POLL);
    }
    Ok(Server { port, admin_port, tree, ready_s: begun.elapsed().as_secs_f64() })
}

impl Ground<'_> {
    fn command(&self, port: u16, admin_port: u16) -> Result<Command, PeerError> {
        let file = |name: &str, template: &str| self.configuration(port, name, template);
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let directory = self.directory.to_string_lossy();
        let arguments: Vec<String> = match self.contender {
            Contender::OursKernel | Contender::OursDirect => self.ours(port, admin_port),
            Contender::Varnish => {
                let policy = file("default.vcl", include_str!("../../pressure/varnish.vcl"))?;
                let mut arguments = vec!["-F".into(), "-j".into(), "none".into(), "-f".into(), text(policy)];
                arguments.extend(["-n".into(), format!("{directory}/state")]);
                arguments.extend(["-a".into(), format!("127.0.0.1:{port}")]);
                let storage = format!("file,{directory}/store,{}M,4096,random", self.store_mib);
                arguments.extend(["-s".into(), storage]);
                // Varnish uses one thread per busy connection. Its shared-memory log is small, to fit the
                // memory limit.
                for parameter in
                    ["thread_pools=1", "thread_pool_min=100", "thread_pool_max=400", "vsl_space=1M"]
                {
                    arguments.extend(["-p".into(), parameter.into()]);
                }
                arguments
            }
            Contender::Nginx => {
                let path = file("nginx.conf", include_str!("../../pressure/nginx.conf"))?;
                // nginx would otherwise open the package's error log before it reads the configuration.
                let log = format!("{directory}/error.log");
                vec!["-c".into(), text(path), "-p".into(), directory.into_owned(), "-e".into(), log]
            }
            Contender::TrafficServer => {
                for below in ["etc", "share", "state", "run", "log", "cache"] {
                    fs::create_dir_all(self.directory.join(below))?;
                }
                // Settings that do not matter to the bench come from the package's own files.
                for entry in
                    fs::read_dir("/etc/trafficserver")?.flatten().filter(|entry| entry.path().is_file())
                {
                    fs::copy(entry.path(), self.directory.join("etc").join(entry.file_name()))?;
                }
                let records = include_str!("../../pressure/trafficserver/records.config");
                file("etc/records.config", records)?;
                file("etc/remap.config", include_str!("../../pressure/trafficserver/remap.config"))?;
                let storage = include_str!("../../pressure/trafficserver/storage.config");
                file("etc/storage.config", storage)?;
                let root = include_str!("../../pressure/trafficserver/runroot.yaml");
                vec![format!("--run-root={}", text(file("runroot.yaml", root)?))]
            }
            Contender::Squid => {
                let path = text(file("squid.conf", include_str!("../../pressure/squid.conf"))?);
                let made = self.inside(&["-N".into(), "-z".into(), "-f".into(), path.clone()])?.output()?;
                if !made.status.success() {
                    let said = String::from_utf8_lossy(&made.stderr).into_owned();
                    return Err(PeerError::failed(format!("squid cannot make its directories: {said}")));
                }
                vec!["-N".into(), "-f".into(), path]
            }
        };
        self.inside(&arguments)
    }

    fn ours(&self, port: u16, admin_port: u16) -> Vec<String> {
        let kernel = self.contender == Contender::OursKernel;
        // The rest of the memory is for the process, its buffers and the metadata of each object (Nighttrain
        // adds them up at its start and refuses sizes that do not fit), and with `kernel` paging for the page
        // cache. Nothing is compressed, as by the peers.
        let percent = if kernel { 25 } else { 35 };
        [
            "cache",
            "--origin",
            &format!("http://127.0.0.1:{}", self.origin_port),
            "--listen",
            &format!("127.0.0.1:{port}"),
            "--admin",
            &format!("127.0.0.1:{admin_port}"),
            "--cores",
            &self.core.to_string(),
            "--store",
            &self.directory.join("store").to_string_lossy(),
            "--store-size",
            &format!("{}MiB", self.store_mib),
            "--memory",
            &format!("{}MiB", self.memory_mib * percent / 100),
            "--compress",
            "none",
            "--compress-bytes-max",
            "64KiB",
            "--paging",
            if kernel { "kernel" } else { "direct" },
        ]
        .map(str::to_owned)
        .into()
    }

    /// Returns a command that runs the program with `arguments` on its core. The shell joins the cgroup
    /// before it executes the program; a peer runs as an unprivileged user if the bench runs as root. Call it
    /// last, because it changes the directory's owner.
    fn inside(&self, arguments: &[String]) -> Result<Command, PeerError> {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.group.path().join("cgroup.procs"));
        command.args(["taskset", "-c"]).arg(self.core.to_string());
        if !self.contender.is_ours() && rustix::process::geteuid().is_root() {
            hand_over(self.directory)?;
            command.arg("setpriv").arg(format!("--reuid={UNPRIVILEGED}"));
            command.arg(format!("--regid={UNPRIVILEGED}")).args(["--clear-groups", "--"]);
        }
        command.arg(self.program).args(arguments);
        Ok(command)
    }

    /// Writes a configuration file with its placeholders replaced.
    fn configuration(&self, port: u16, name: &str, template: &str) -> Result<PathBuf, PeerError> {
        let numbers = [
            ("@PORT@", u64::from(port)),
            ("@ORIGIN_PORT@", self.origin_port.into()),
            ("@STORE_MIB@", self.store_mib),
            ("@QUARTER_MIB@", self.memory_mib / 4),
            ("@QUARTER_BYTES@", (self.memory_mib / 4) << 20),
            ("@KEYS_MIB@", (self.objects * 2).div_ceil(KEYS_IN_MIB)),
        ];
        let text = template.replace("@DIR@", &self.directory.to_string_lossy());
        let text = numbers.iter().fold(text, |text, (mark, number)| text.replace(mark, &number.to_string()));
        let path = self.directory.join(name);
        fs::write(&path, text)?;
        Ok(path)
    }
}
