//! The server under siege, with its counters and memory.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use super::{
    Target,
    origin::{HOST, Origin},
};
use crate::{connections::connect_from, program};

/// A running `nighttrain serve` with default limits, in front of its own pages and a site's origin; killed on
/// drop.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Addresses of the server's parts.
    pub target: Target,
    /// Largest amount of memory that the server promises to take.
    pub promised_bytes: u64,
    _state: tempfile::TempDir,
}

impl Server {
    /// Starts the server on free ports.
    ///
    /// # Panics
    /// If the server does not start.
    #[must_use]
    pub fn start(origin: &Origin) -> Self {
        let state = tempfile::tempdir().expect("a directory");
        let file = state.path().join("siege.toml");
        let site = format!("[[cache.site]]\nhosts = [\"{HOST}\"]\norigin = \"http://{}\"\n", origin.address);
        fs::write(&file, site).expect("a file");
        let promised_bytes = promised_bytes(&file);
        let mut command = program::command();
        command.args(["serve", "--admin", "127.0.0.1:0", "--state"]).arg(state.path());
        command.arg("--config").arg(&file);
        for listener in
            ["CACHE_LISTEN", "FEED_LISTEN", "FEED_WEBSOCKET", "FEED_MONITOR", "MAIL_SMTP", "MAIL_HTTP"]
        {
            command.env(format!("NIGHTTRAIN_{listener}"), "127.0.0.1:0");
        }
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it can be started");
        let mut target = Target::default();
        for line in BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok) {
            let address = line.rsplit("//").next().and_then(|text| text.parse().ok());
            let starts = [
                ("cache: listening on http:", &mut target.cache),
                ("feed: listening on nats:", &mut target.feed),
                ("feed: listening on ws:", &mut target.web),
                ("monitor: listening on http:", &mut target.monitor),
                ("mail: listening on smtp:", &mut target.smtp),
                ("mail: inboxes on http:", &mut target.pages),
                ("admin: listening on http:", &mut target.admin),
            ];
            for (start, place) in starts {
                if line.starts_with(start) {
                    *place = address;
                }
            }
            if target.admin.is_some() {
                break;
            }
        }
        assert!(target.admin.is_some(), "it did not start");
        Self { child, target, promised_bytes, _state: state }
    }

    /// Returns whether the server still runs.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|ended| ended.is_none())
    }

    /// Returns the bytes of memory that belong to the process alone, without its program file and a store on
    /// disk.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        memory_bytes(self.child.id())
    }

    /// Returns the names of the server's threads that are busy for more than half of `look`. Once all clients
    /// have left, no thread may work for them.
    #[must_use]
    pub fn busy_threads(&self, look: Duration) -> Vec<String> {
        let before = threads_cpu_ms(self.child.id());
        thread::sleep(look);
        let most = look.as_millis() as u64 / 2;
        let after = threads_cpu_ms(self.child.id());
        let busy = after.into_iter().filter(|(thread, ms)| ms - before.get(thread).unwrap_or(ms) > most);
        busy.map(|((_, name), ms)| format!("{name} ({ms} ms in all)")).collect()
    }

    /// Returns all counters by name.
    ///
    /// # Errors
    /// A sentence, when the admin server does not answer.
    pub fn counters(&self) -> Result<BTreeMap<String, f64>, String> {
        let address = self.target.admin.ok_or("not a Nighttrain admin server")?;
        let text =
            get(address, "/metrics").map_err(|error| format!("the admin server at {address}: {error}"))?;
        Ok(text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| {
                let (name, number) = line.rsplit_once(' ')?;
                Some((name.to_owned(), number.parse().ok()?))
            })
            .collect())
    }
}

/// Returns the sum of all memory bounds, as `nighttrain check` prints it for a configuration.
fn promised_bytes(file: &Path) -> u64 {
    let said = program::command().arg("check").arg("--config").arg(file).output().expect("check runs");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let sum = said.split_once("memory at most: ").and_then(|(_, rest)| rest.split_whitespace().next());
    let bytes = sum.and_then(|sum| {
        let number = sum.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        let unit = match &sum[number.len()..] {
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return None,
        };
        Some(unit * number.parse::<f64>().ok()? as u64)
    });
    bytes.unwrap_or_else(|| panic!("no sum of memory: {said}"))
}

/// Returns the processor time of each thread of a process, in milliseconds.
fn threads_cpu_ms(process: u32) -> BTreeMap<(String, String), u64> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).ok()?;
            let (before, fields) = stat.rsplit_once(") ")?;
            let ticks = |at: usize| fields.split(' ').nth(at)?.parse::<u64>().ok();
            let name = before.split_once('(')?.1.to_owned();
            // utime and stime of proc(5), in hundredths of a second.
            Some(((task.file_name().to_string_lossy().into_owned(), name), 10 * (ticks(11)? + ticks(12)?)))
        })
        .collect()
}

/// Returns the bytes of memory of a process that are not backed by a file; 0 if the process has ended.
#[must_use]
pub fn memory_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let kib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
    };
    (kib("RssAnon:") + kib("RssShmem:")) << 10
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already; the code that uses it has noticed that.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Fetches a page, from an address of this machine that no attacker uses.
///
/// # Errors
/// The kernel's error, or a timeout after ten seconds.
pub fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = connect_as_guest(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map(|_| text)
}

/// Connects from 127.0.0.2, the address of the honest clients.
///
/// # Errors
/// The kernel's error.
pub fn connect_as_guest(address: SocketAddr) -> std::io::Result<TcpStream> {
    connect_from([127, 0, 0, 2], address)
}
