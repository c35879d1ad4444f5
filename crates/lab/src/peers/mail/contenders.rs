//! The mail servers under comparison: how each is started, with a simple configuration, on one processor.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use crate::paired::{
    machine::first_line,
    place::{find, free_port, other, other_build, ours, workspace},
    tree::{Cores, Tree, pinned},
};

use crate::peers::{PeerError, last_words};

/// Store size of Nighttrain, which reserves it on the disk at startup.
const STORE_GIB: u64 = 6;
/// Maximum time from a server's start until it sends its SMTP greeting.
const READY_WAIT: Duration = Duration::from_secs(60);

/// A server that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// `smtp-sink`, which discards every mail: the upper limit for any server.
    Sink,
    /// Nighttrain: `nighttrain mail`
    Ours,
    /// Another build of `nighttrain mail`.
    Other,
    /// `nighttrain mail` with common bodies stored once per segment, which is its default.
    Shared,
    /// `nighttrain mail` without its search index.
    Unindexed,
    /// Mailpit, in Go with SQLite: the usual server in test suites.
    Mailpit,
    /// Postfix with delivery to Maildirs: the standard server of a distribution.
    Postfix,
    /// aiosmtpd, in Python, which delivers into a Maildir.
    Aiosmtpd,
    /// MailDev, in Node.js.
    Maildev,
    /// GreenMail, in Java.
    Greenmail,
}

impl Contender {
    /// Contenders in the scenarios that measure the receiving of mail.
    pub const ALL: [Self; 9] = [
        Self::Sink,
        Self::Ours,
        Self::Other,
        Self::Shared,
        Self::Mailpit,
        Self::Postfix,
        Self::Aiosmtpd,
        Self::Maildev,
        Self::Greenmail,
    ];

    /// Returns the name that reports and records use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sink => "sink",
            Self::Ours => "ours",
            Self::Other => "ours-other",
            Self::Shared => "ours-shared",
            Self::Unindexed => "ours-unindexed",
            Self::Mailpit => "mailpit",
            Self::Postfix => "postfix",
            Self::Aiosmtpd => "aiosmtpd",
            Self::Maildev => "maildev",
            Self::Greenmail => "greenmail",
        }
    }
}

/// A running contender that accepts mail.
#[derive(Debug)]
pub struct ServerProcess {
    /// The server's processes.
    pub tree: Tree,
    /// SMTP address of the server.
    pub address: SocketAddr,
    /// Version that the program reports.
    pub version: Option<String>,
    /// True for a server that accepts about a thousand mails per second or fewer; it is sent fewer mails.
    pub is_slow: bool,
    /// Admin port, for builds of Nighttrain only.
    admin: Option<u16>,
    /// HTTP port of the web pages and APIs, for Nighttrain and Mailpit.
    pub http: Option<u16>,
    /// Command that stops Postfix, whose master process detaches from the process that started it.
    stop: Option<Command>,
    /// Directory of the server's data, deleted with this value.
    directory: tempfile::TempDir,
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        if let Some(stop) = &mut self.stop {
            // An error means that the server has already ended.
            let _ = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

/// Returns the directory where `bench/install-mail-peers.sh` installs peers that are not Debian packages.
fn peers() -> PathBuf {
    workspace().join("target/bench/mail-peers")
}

/// Returns a peer's program: the build that its environment variable names, or else the installed one.
fn peer(name: &str, installed: &str) -> Result<PathBuf, String> {
    let path = other_build(name).unwrap_or_else(|| peers().join(installed));
    if path.exists() {
        Ok(path)
    } else {
        Err(format!("{} is missing (bench/install-mail-peers.sh)", path.display()))
    }
}

/// Starts a contender at an address of this machine, on these cores, and waits for its SMTP greeting; peers
/// always listen on loopback.
///
/// # Errors
/// A message with the missing program and its installation command, or the server's last output lines.
pub fn start(contender: Contender, place: (Ipv4Addr, &Cores)) -> Result<ServerProcess, String> {
    start_with_store(contender, place, STORE_GIB)
}

/// Starts a contender like [`start`]; Nighttrain gets a store of `store_gib` GiB.
///
/// # Errors
/// The errors of [`start`].
pub fn start_with_store(
    contender: Contender,
    (ip, cores): (Ipv4Addr, &Cores),
    store_gib: u64,
) -> Result<ServerProcess, String> {
    let said = |error: std::io::Error| error.to_string();
    let directory = tempfile::Builder::new().prefix("bench-mail-").tempdir().map_err(said)?;
    let port = free_port().map_err(said)?;
    let address = SocketAddr::V4(SocketAddrV4::new(ip, port));
    let (mut admin, mut http, mut version) = (None, None, None);
    let mut command = match contender {
        Contender::Sink => {
            let program = find("smtp-sink").ok_or("smtp-sink is missing (Debian: postfix)")?;
            let mut command = pinned(cores, &program.to_string_lossy());
            command.args(["-u", "nobody", &format!("127.0.0.1:{port}"), "1000"]);
            version = first_line(Command::new("postconf").args(["-d", "-h", "mail_version"]))
                .map(|text| format!("postfix {text}"));
            command
        }
        Contender::Ours | Contender::Other | Contender::Shared | Contender::Unindexed => {
            let program = if contender == Contender::Other { other()? } else { ours()? };
            let mut command = pinned(cores, &program.to_string_lossy());
            let port_of_admin = free_port().map_err(said)?;
            admin = Some(port_of_admin);
            let port_of_pages = free_port().map_err(said)?;
            http = Some(port_of_pages);
            let shares = contender == Contender::Shared;
            let store = directory.path().join("mail.store");
            command.args(["mail", "--smtp", &address.to_string(), "--cores", &cores.to_string(), "--http"]);
            command.arg(format!("127.0.0.1:{port_of_pages}"));
            // All of the load comes from one address, so the limit per address is off.
            command.args(["--connections-per-address-max", "0"]);
            // The bench's mails have the same body; the cost of a mail shows only if every body is stored.
            command.arg(format!("--share-bodies={shares}"));
            command.arg(format!("--search-index={}", contender != Contender::Unindexed));
            command.args([
                "--admin",
                &format!("127.0.0.1:{port_of_admin}"),
                "--store-size",
                &format!("{store_gib}GiB"),
                "--store",
            ]);
            command.arg(store);
            command
        }
        Contender::Mailpit => {
            let program =
                peer("mailpit", "mailpit").map_err(|why| why.replace("-mail-peers.sh", "-mailpit.sh"))?;
            version = match other_build("mailpit") {
                Some(other) => first_line(Command::new(other).arg("version").arg("--no-release-check")),
                None => fs::read_to_string(peers().join("mailpit.version"))
                    .ok()
                    .map(|text| text.trim().to_owned()),
            };
            let port_of_pages = free_port().map_err(said)?;
            http = Some(port_of_pages);
            let mut command = pinned(cores, &program.to_string_lossy());
            command.args([
                "--smtp",
                &format!("127.0.0.1:{port}"),
                "--listen",
                &format!("127.0.0.1:{port_of_pages}"),
            ]);
            // Mailpit keeps any number of mails and makes no requests to other hosts.
            command.args([
                "--max",
                "0",
                "--quiet",
                "--disable-version-check",
                "--smtp-disable-rdns",
                "--database",
            ]);
            command.arg(directory.path().join("mailpit.db"));
            command
        }
        Contender::Postfix => postfix(cores, directory.path(), port)?,
        Contender::Aiosmtpd => {
            let python = peer("aiosmtpd-python", "python/bin/python")?;
            version = first_line(Command::new(&python).args(["-m", "aiosmtpd", "--version"]));
            let mut command = pinned(cores, &python.to_string_lossy());
            command.args(["-m", "aiosmtpd", "-n", "-l", &format!("127.0.0.1:{port}")]);
            command.args(["-c", "aiosmtpd.handlers.Mailbox"]).arg(directory.path().join("maildir"));
            command
        }
        Contender::Maildev => {
            let script = peer("maildev", "node/node_modules/maildev/bin/maildev")?;
            version = first_line(Command::new(&script).arg("--version"));
            let web = free_port().map_err(said)?;
            let mut command = pinned(cores, "node");
            command.arg(script).args([
                "--ip",
                "127.0.0.1",
                "-s",
                &port.to_string(),
                "-w",
                &web.to_string(),
                "--silent",
            ]);
            command.arg("--mail-directory").arg(directory.path());
            command
        }
        Contender::Greenmail => {
            let jar = peer("greenmail-jar", "greenmail-standalone.jar")?;
            version =
                fs::read_to_string(peers().join("greenmail.version")).ok().map(|text| text.trim().to_owned());
            let mut command = pinned(cores, "java");
            command.args([&format!("-Dgreenmail.smtp.port={port}"), "-Dgreenmail.smtp.hostname=127.0.0.1"]);
            command.args(["-Dgreenmail.auth.disabled", "-Xmx1g", "-jar"]).arg(jar);
            command
        }
    };
    let log = fs::File::create(directory.path().join("bench.log")).map_err(said)?;
    command.stdout(Stdio::null()).stderr(log).stdin(Stdio::null());
    let tree = Tree::start(command).map_err(|error| error.to_string())?;
    let stop = (contender == Contender::Postfix).then(|| {
        let mut stop = Command::new("postfix");
        stop.arg("-c").arg(directory.path().join("etc")).arg("stop");
        stop
    });
    let is_ours =
        matches!(contender, Contender::Ours | Contender::Other | Contender::Shared | Contender::Unindexed);
    let is_slow = !is_ours && contender != Contender::Sink;
    let mut running = ServerProcess { tree, address, version, is_slow, admin, http, stop, directory };
    running.wait()?;
    if is_ours {
        running.version = Some(env!("CARGO_PKG_VERSION").to_owned());
    }
    Ok(running)
}

/// Prepares Postfix with nothing but smtpd, the queue, and delivery into one Maildir.
fn postfix(cores: &Cores, directory: &Path, port: u16) -> Result<Command, String> {
    let said = |error: std::io::Error| error.to_string();
    let program = find("postfix").ok_or("postfix is missing (Debian: postfix)")?;
    if !rustix::process::geteuid().is_root() {
        return Err("postfix starts as root only".to_owned());
    }
    let main = include_str!("../../../../../bench/peers/postfix-main.cf");
    let master = include_str!("../../../../../bench/peers/postfix-master.cf");
    let place = directory.to_string_lossy();
    let (configuration, mails) = (directory.join("etc"), directory.join("mails"));
    for path in [&configuration, &mails, &directory.join("spool"), &directory.join("data")] {
        fs::create_dir_all(path).map_err(said)?;
    }
    fs::write(configuration.join("main.cf"), main.replace("@DIR@", &place)).map_err(said)?;
    fs::write(configuration.join("master.cf"), master.replace("@PORT@", &port.to_string())).map_err(said)?;
    let open = |path: &Path, mode| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    };
    open(directory, 0o755).map_err(said)?;
    open(&mails, 0o777).map_err(said)?;
    let owned = Command::new("chown").arg("postfix").arg(directory.join("data")).status().map_err(said)?;
    if !owned.success() {
        return Err("there is no user postfix".to_owned());
    }
    let mut command = pinned(cores, &program.to_string_lossy());
    command.arg("-c").arg(configuration).arg("start-fg");
    Ok(command)
}

impl ServerProcess {
    /// Returns the address of the server's web pages and APIs.
    ///
    /// # Errors
    /// `PeerError` if the server has none.
    pub fn pages(&self) -> Result<SocketAddr, PeerError> {
        let port = self.http.ok_or_else(|| PeerError::failed("it has no pages"))?;
        Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
    }

    /// Returns whether the server is a build of Nighttrain.
    pub fn is_ours(&self) -> bool {
        self.admin.is_some()
    }

    /// Waits until the server sends its SMTP greeting and its web port is open.
    fn wait(&mut self) -> Result<(), String> {
        let until = Instant::now() + READY_WAIT;
        loop {
            if let Ok(Some(status)) = self.tree.ended() {
                return Err(format!(
                    "it ended at once ({status}): {}",
                    last_words(&self.directory.path().join("bench.log"))
                ));
            }
            if let Ok(mut stream) = TcpStream::connect(self.address) {
                let mut greeting = [0; 3];
                let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
                let has_pages = self.http.is_none_or(|port| TcpStream::connect(("127.0.0.1", port)).is_ok());
                if stream.read_exact(&mut greeting).is_ok() && &greeting == b"220" && has_pages {
                    let _ = stream.write_all(b"QUIT\r\n");
                    return Ok(());
                }
            }
            if Instant::now() > until {
                return Err("it does not greet".to_owned());
            }
            sleep(Duration::from_millis(50));
        }
    }

    /// Returns the value of a metric of Nighttrain.
    ///
    /// # Errors
    /// `PeerError` if the server does not answer, or has no such metric.
    pub fn metric(&self, name: &str) -> Result<f64, PeerError> {
        let port = self.admin.ok_or_else(|| PeerError::Failed("only ours has metrics".to_owned()))?;
        // The wait lets the gauges be updated, which happens ten times per second.
        sleep(Duration::from_millis(250));
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
            .ok_or_else(|| PeerError::Failed(format!("ours does not say {name}")))
    }

    /// Returns the number of stored mails: from the metrics of Nighttrain, or by counting the files of
    /// servers that write one per mail; `None` for other servers.
    ///
    /// # Errors
    /// `PeerError` if Nighttrain does not answer, or a directory cannot be read.
    pub fn stored(&self) -> Result<Option<u64>, PeerError> {
        if self.admin.is_some() {
            return Ok(Some(self.metric("mail_stored")? as u64));
        }
        for place in ["mails/all/new", "maildir/new"] {
            let place = self.directory.path().join(place);
            if place.is_dir() {
                return Ok(Some(fs::read_dir(place)?.count() as u64));
            }
        }
        Ok(None)
    }

    /// Returns the number of mails that Nighttrain lists in an inbox, and the raw text of the newest; `None`
    /// for peers.
    ///
    /// # Errors
    /// `PeerError` if the server does not answer, or its answer has an unexpected form.
    pub fn inbox(&self, domain: &str, inbox: &str) -> Result<Option<(usize, String)>, PeerError> {
        let Some(port) = self.http.filter(|_| self.admin.is_some()) else { return Ok(None) };
        let base = format!("/api/v2/domains/{domain}/inboxes/{inbox}");
        let wrong = || PeerError::failed(format!("the list of {inbox} is none"));
        let listed: serde_json::Value = serde_json::from_str(&page(port, &base)?).map_err(|_| wrong())?;
        let mails = listed["msgs"].as_array().ok_or_else(wrong)?;
        let Some(id) = mails.first().and_then(|mail| mail["id"].as_str()) else {
            return Ok(Some((0, String::new())));
        };
        let raw = page(port, &format!("{base}/messages/{id}/raw"))?;
        Ok(Some((mails.len(), raw)))
    }

    /// Returns the resident MiB of anonymous mappings of at least 64 MiB whose size is a multiple of 16 MiB:
    /// only the log's buffers match.
    ///
    /// # Errors
    /// An I/O error if the process has ended.
    pub fn buffers_mib(&self) -> Result<u64, PeerError> {
        let smaps = fs::read_to_string(format!("/proc/{}/smaps", self.tree.id()))?;
        let (mut large, mut kib) = (false, 0);
        for line in smaps.lines() {
            if let Some((range, rest)) = line.split_once(' ').filter(|(range, _)| range.contains('-')) {
                let mut ends = range.split('-').filter_map(|end| u64::from_str_radix(end, 16).ok());
                let bytes = ends.next().zip(ends.next()).map_or(0, |(from, to)| to.saturating_sub(from));
                large = bytes >= 64 << 20 && bytes % (16 << 20) == 0 && !rest.contains('/');
            } else if let Some(rest) = line.strip_prefix("Rss:").filter(|_| large) {
                kib += rest.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
            }
        }
        Ok(kib >> 10)
    }
}

/// Fetches a page on loopback and returns its body.
fn page(port: u16, path: &str) -> Result<String, PeerError> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    match text.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
        _ => Err(PeerError::failed(format!("{path}: {}", text.lines().next().unwrap_or("no answer")))),
    }
}
