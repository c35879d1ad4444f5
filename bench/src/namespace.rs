//! A separate network, process and mount namespace for the bench.
//!
//! The namespace has three benefits. The default congestion control, for which peers have no setting, can be
//! pinned for every contender without affecting the host's other connections. Ports and shared memory are
//! free. And whatever happens, the kernel ends every process and frees every page of `/dev/shm` when the
//! bench ends.

use std::env;
use std::fs::{self, File};
use std::io;
use std::process::{Command, ExitCode, Stdio};

/// Congestion control of every contender. Loopback receives with BBR cost more and vary more
/// (`docs/decisions/004-lab-instruments.md`); cubic is the default of most machines.
const CONGESTION_CONTROL: &str = "cubic";
const MARK: &str = "NIGHTTRAIN_BENCH_APART";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
const UNSHARE: [&str; 6] = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];

/// Outcome of the attempt to run in a namespace.
pub(crate) enum Namespace {
    /// The bench ran as a child process in a namespace and ended with this exit code.
    Child(ExitCode),
    /// The bench continues in this process.
    Here {
        /// Remarks for the record.
        remarks: Vec<String>,
    },
}

/// Restarts this program in new namespaces if that is possible; otherwise returns the reason as a remark.
///
/// # Errors
/// An I/O error if the kernel or util-linux refuses it.
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
    // If this process is killed, the others end with it: setpriv ends unshare, unshare ends its child, which
    // is the first process of the namespace, and the kernel ends the rest.
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

/// Host-wide list of the *allowed* congestion controls, among which a new network namespace must choose. The
/// bench's algorithm is added for the run, and the last of the concurrently running benches restores the
/// list. No connection of the host changes its algorithm.
struct AllowedAlgorithms {
    before: Option<String>,
    /// Lock file that each running bench holds with a shared lock.
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
        // While another bench runs, its algorithm must stay allowed. If that bench found it allowed at its
        // start, it does not remove it at its end either.
        let is_last = self.running.unlock().is_ok() && self.running.try_lock().is_ok();
        if let Some(before) = self.before.as_ref().filter(|_| is_last) {
            // An error means that the list is read-only by now; a list that is too long does no harm.
            let _ = fs::write(ALLOWED, before);
        }
    }
}
