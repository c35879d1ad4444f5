//! A machine within the machine: a network, process and mount namespace of the bench's own.
//!
//! Three things come of it. The default congestion control can be pinned for every contender alike, which peers
//! offer no setting for, without touching the host's other connections. Ports and shared memory are free. And
//! whatever happens, the kernel ends every process and frees every page of `/dev/shm` when the bench ends.

use std::env;
use std::fs::{self, File};
use std::io;
use std::process::{Command, ExitCode, Stdio};

/// Loopback receives with BBR cost more and vary more (`docs/decisions/004-lab-instruments.md`); cubic is what
/// most machines have.
const CONGESTION_CONTROL: &str = "cubic";
const MARK: &str = "NIGHTTRAIN_BENCH_APART";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
const UNSHARE: [&str; 6] = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// How a bench goes on.
pub(crate) enum Namespace {
    /// The bench ran in a namespace, as a child, and ended so.
    Child(ExitCode),
    /// The bench is to run in this process.
    Here {
        /// Remarks for the record.
        remarks: Vec<String>,
    },
}

/// Starts this program again in namespaces of its own if that is possible, else says why not.
///
/// # Errors
/// The kernel or util-linux refuses it.
pub(crate) fn enter() -> io::Result<Namespace> {
    if env::var_os(MARK).is_some() {
        fs::write(DEFAULT, CONGESTION_CONTROL)
            .map_err(|error| io::Error::other(format!("cannot pin {CONGESTION_CONTROL}: {error}")))?;
        return Ok(Namespace::Here { remarks: Vec::new() });
    }
    if let Some(why) = why_not() {
        let current = fs::read_to_string(DEFAULT).unwrap_or_default();
        let remark =
            format!("not in a namespace of its own ({why}): TCP runs on the host's {}", current.trim());
        return Ok(Namespace::Here { remarks: vec![remark] });
    }
    let _restored = AllowedAlgorithms::with(CONGESTION_CONTROL)?;
    // If this process is killed, all of it goes: setpriv ends unshare, unshare ends its child, the first process
    // of its namespace, and the kernel ends the rest.
    let status = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--", "unshare"])
        .args(UNSHARE)
        .args(["--", "sh", "-ec", "ip link set lo up; mount -t tmpfs tmpfs /dev/shm; exec \"$0\" \"$@\""])
        .arg(env::current_exe()?)
        .args(env::args_os().skip(1))
        .env(MARK, "1")
        .status()?;
    Ok(Namespace::Child(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

fn why_not() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root".into());
    }
    if !fs::read_to_string(AVAILABLE)
        .unwrap_or_default()
        .split_whitespace()
        .any(|name| name == CONGESTION_CONTROL)
    {
        return Some(format!("this kernel has no {CONGESTION_CONTROL}"));
    }
    let probe = Command::new("unshare")
        .args(UNSHARE)
        .args(["--", "sh", "-ec", "ip link set lo up; mount -t tmpfs tmpfs /dev/shm"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output();
    match probe {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(format!("unshare: {error}")),
    }
}

/// A new network namespace may only choose among the *allowed* algorithms, a list of the whole host: ours is
/// added for the run and the list put back afterwards, by the last of the benches that run at once. Nobody's choice changes
/// by it.
struct AllowedAlgorithms {
    before: Option<String>,
    /// Held by each bench while it runs, not by it alone.
    running: File,
}

impl AllowedAlgorithms {
    fn with(name: &str) -> io::Result<Self> {
        let path = env::temp_dir().join("nighttrain-bench.lock");
        let running = File::options().create(true).append(true).open(path)?;
        running.lock_shared()?;
        let before = fs::read_to_string(ALLOWED)?;
        if before.split_whitespace().any(|allowed| allowed == name) {
            return Ok(Self { before: None, running });
        }
        fs::write(ALLOWED, format!("{} {name}", before.trim()))?;
        Ok(Self { before: Some(before), running })
    }
}

impl Drop for AllowedAlgorithms {
    fn drop(&mut self) {
        // Where another runs, what it may choose stays allowed: also after it, if it found it so.
        let is_last = self.running.unlock().is_ok() && self.running.try_lock().is_ok();
        if let Some(before) = self.before.as_ref().filter(|_| is_last) {
            // Read-only by now? Then nothing can be done about it, and nothing depends on it.
            let _ = fs::write(ALLOWED, before);
        }
    }
}
