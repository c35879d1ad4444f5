//! Description of the machine and the software of a run, stored in its record.

use std::fs;
use std::process::Command;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// The machine that a run was recorded on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// `model name` of the first processor.
    pub cpu: String,
    /// Number of processors that this process may use.
    pub cores: usize,
    /// Total memory in MiB.
    pub memory_mib: u64,
    /// Kernel release and version.
    pub kernel: String,
    /// True on a virtual machine, where other guests add noise to the measurement.
    pub virtualised: bool,
    /// Default TCP congestion control of new sockets.
    pub congestion_control: String,
    /// Load averages over 1, 5 and 15 minutes when the run began.
    pub load_before: String,
    /// Version of the compiler that built this program.
    pub rustc: String,
}

impl Machine {
    /// Reads the description from `/proc`; an unknown text field is "unknown".
    pub fn here() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        let memory_kib = read("/proc/meminfo").lines().find_map(|line| {
            line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
        });
        Self {
            cpu: field("model name").unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: memory_kib.unwrap_or(0) / 1024,
            kernel: format!(
                "{} {}",
                read("/proc/sys/kernel/osrelease").trim(),
                read("/proc/sys/kernel/version").trim()
            ),
            virtualised: field("flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            congestion_control: read("/proc/sys/net/ipv4/tcp_congestion_control").trim().to_owned(),
            load_before: read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" "),
            rustc: first_line(Command::new("rustc").arg("--version")).unwrap_or_else(unknown),
        }
    }
}

fn unknown() -> String {
    "unknown".into()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the first non-empty line that `command` prints, on stdout or else on stderr (where `nginx -v`
/// prints), or `None` if the command does not run.
pub fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    let text = String::from_utf8_lossy(&text);
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

/// Returns the checked-out commit, followed by `+` when tracked files are modified.
pub fn commit() -> String {
    let head = first_line(Command::new("git").args(["rev-parse", "--short=12", "HEAD"]));
    let changed = first_line(Command::new("git").args(["status", "--porcelain", "--untracked-files=no"]));
    match head {
        Some(head) if changed.is_some() => format!("{head}+"),
        Some(head) => head,
        None => unknown(),
    }
}

/// Returns the current UTC time as `2026-11-21T01:58:14Z`.
pub fn date() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let machine = Machine::here();
        assert!(machine.cores >= 1 && machine.memory_mib > 0, "{machine:?}");
        assert!(!machine.kernel.trim().is_empty() && !machine.congestion_control.is_empty(), "{machine:?}");
    }

    #[test]
    fn the_first_line_of_either_stream_is_returned() {
        assert_eq!(
            first_line(Command::new("sh").args(["-c", "echo; echo one; echo two"])),
            Some("one".into())
        );
        assert_eq!(first_line(Command::new("sh").args(["-c", "echo err >&2"])), Some("err".into()));
        assert_eq!(first_line(&mut Command::new("/nonexistent/program")), None);
    }
}
