//! A NATS server under test as a running process: ours, or the one that `NIGHTTRAIN_FEED_PEER` names.
//!
//! Both are configured by the same file in NATS's own format, so a test that is right against nats-server
//! tests ours in the same way.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{PATIENCE, clients::installed, eventually, program};

/// A running feed. Killed, by its process id, when dropped; its output is printed then if the test failed.
#[derive(Debug)]
pub struct Feed {
    child: Child,
    printed: Arc<Mutex<Vec<String>>>,
    port: u16,
    web_port: u16,
    monitor_port: u16,
    directory: PathBuf,
    _kept: Option<tempfile::TempDir>,
}

impl Feed {
    /// Starts a feed with these lines of nats.conf besides its ports; `{DIR}` stands for [`Feed::directory`].
    #[must_use]
    pub fn start(lines: &str) -> Self {
        let kept = tempfile::tempdir().expect("a directory");
        let directory = kept.path().to_owned();
        Self::start_in(directory, Some(kept), lines, free_port())
    }

    /// Starts our feed, never the peer, with additional flags.
    #[must_use]
    pub fn start_joined(lines: &str, flags: &[&str]) -> Self {
        let kept = tempfile::tempdir().expect("a directory");
        Self::start_by(None, kept.path().to_owned(), Some(kept), lines, free_port(), flags)
    }

    /// Starts the newest nats-server with these lines; `None` if nats-server is not installed.
    #[must_use]
    pub fn start_nats_server(lines: &str) -> Option<Self> {
        let path = installed("hub/nats-server")?;
        let kept = tempfile::tempdir().expect("a directory");
        Some(Self::start_by(Some(path), kept.path().to_owned(), Some(kept), lines, free_port(), &[]))
    }

    /// Starts a feed with files that the test has made in `directory`.
    #[must_use]
    pub fn start_with(directory: &Path, lines: &str) -> Self {
        Self::start_in(directory.to_owned(), None, lines, free_port())
    }

    /// Starts a feed on the port of another that has ended.
    #[must_use]
    pub fn start_on(port: u16, lines: &str) -> Self {
        let kept = tempfile::tempdir().expect("a directory");
        Self::start_in(kept.path().to_owned(), Some(kept), lines, port)
    }

    fn start_in(directory: PathBuf, kept: Option<tempfile::TempDir>, lines: &str, port: u16) -> Self {
        Self::start_by(peer(), directory, kept, lines, port, &[])
    }

    fn start_by(
        peer: Option<PathBuf>,
        directory: PathBuf,
        kept: Option<tempfile::TempDir>,
        lines: &str,
        port: u16,
        flags: &[&str],
    ) -> Self {
        let (web_port, monitor_port) = (free_port(), free_port());
        let file = directory.join("nats.conf");
        configure(&directory, [port, web_port, monitor_port], lines);
        let mut command = match peer {
            Some(path) => {
                let mut command = Command::new(path);
                command.arg("-c").arg(&file);
                command
            }
            None => {
                let mut command = program::command();
                command.args(["feed", "--admin", "127.0.0.1:0", "--nats-config"]).arg(&file).args(flags);
                command
            }
        };
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server can be started");
        let printed = Arc::new(Mutex::new(Vec::new()));
        let streams: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(child.stdout.take().expect("a pipe")), Box::new(child.stderr.take().expect("a pipe"))];
        for stream in streams {
            let printed = Arc::clone(&printed);
            thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    printed.lock().expect("no thread panics with it").push(line);
                }
            });
        }
        let mut feed = Self { child, printed, port, web_port, monitor_port, directory, _kept: kept };
        eventually("the feed listens", || {
            let ended = feed.child.try_wait().expect("waitpid works");
            assert!(ended.is_none(), "the feed ended: {ended:?}\n{}", feed.printed());
            TcpStream::connect(feed.address()).is_ok()
        });
        feed
    }

    /// Replaces the lines of nats.conf and has the feed reload them.
    ///
    /// # Panics
    /// If the feed does not report the reload within [`PATIENCE`].
    pub fn reload(&self, lines: &str) {
        configure(&self.directory, [self.port, self.web_port, self.monitor_port], lines);
        let said = || self.printed().matches("reload: ").count();
        let before = said();
        self.signal(Signal::HUP);
        eventually("the feed has read its configuration again", || said() > before);
    }

    /// Address where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Port that `{WEB}` stands for.
    #[must_use]
    pub fn web_port(&self) -> u16 {
        self.web_port
    }

    /// Port of the monitoring pages.
    #[must_use]
    pub fn monitor_port(&self) -> u16 {
        self.monitor_port
    }

    /// Directory of the feed's files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the output so far.
    #[must_use]
    pub fn printed(&self) -> String {
        self.printed.lock().expect("no thread panics with it").join("\n")
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process(id, signal).expect("the process is ours");
    }

    /// Waits until the feed ends.
    ///
    /// # Panics
    /// If the feed does not end within [`PATIENCE`].
    pub fn wait(&mut self) -> std::process::ExitStatus {
        let mut status = None;
        eventually("the feed ends", || {
            status = self.child.try_wait().expect("waitpid works");
            status.is_some()
        });
        status.expect("it ended")
    }

    /// Fetches a page of the monitoring port, as JSON.
    #[must_use]
    pub fn page(&self, path: &str) -> serde_json::Value {
        let (status, text) = self.ask(path);
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
    }

    /// Fetches a page of the monitoring port. Returns its status and body.
    #[must_use]
    pub fn ask(&self, path: &str) -> (u16, String) {
        use std::io::{Read as _, Write as _};
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.monitor_port)).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\r\n",
            self.monitor_port
        );
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        (status, dechunked(head, body))
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            // The feed's log explains a failed test.
            thread::sleep(Duration::from_millis(50));
            eprintln!("the feed printed:\n{}", self.printed());
        }
    }
}

fn configure(directory: &Path, [port, web_port, monitor_port]: [u16; 3], lines: &str) {
    let text = format!(
        "listen: \"127.0.0.1:{port}\"\nhttp: \"127.0.0.1:{monitor_port}\"\n{}\n",
        lines.replace("{DIR}", &directory.to_string_lossy()).replace("{WEB}", &web_port.to_string())
    );
    fs::write(directory.join("nats.conf"), text).expect("a file");
}

/// Returns the path of the nats-server that replaces ours, so that the tests themselves can be tested.
#[must_use]
pub fn peer() -> Option<PathBuf> {
    std::env::var_os("NIGHTTRAIN_FEED_PEER").map(PathBuf::from)
}

/// Returns a port that is free right now.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .expect("a port")
        .port()
}

fn dechunked(head: &str, body: &str) -> String {
    if !head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        return body.to_owned();
    }
    let (mut text, mut left) = (String::new(), body);
    while let Some((size, rest)) = left.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).expect("a chunk's size");
        if size == 0 {
            break;
        }
        text.push_str(&rest[..size]);
        left = &rest[size + 2..];
    }
    text
}
