//! A server as a process tree on its own cores, and the tree's resource usage from `/proc`.
//!
//! CPU time is `utime + stime` of every process in the tree, which the kernel keeps for all of a process's
//! threads, dead ones included, plus `cutime + cstime` for the children that it has reaped (proc(5), `stat`).
//! The kernel counts these in ticks of 10 ms: over a run of two busy seconds that is half a percent.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Time that a server gets to exit after SIGTERM before it is killed.
const STOP_WAIT: Duration = Duration::from_secs(4);
/// Interval at which short waits poll their condition.
const POLL: Duration = Duration::from_millis(10);

/// Non-empty set of processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores(Vec<usize>);

impl Cores {
    /// Creates a set of exactly these processors; `None` for an empty list.
    pub fn new(mut list: Vec<usize>) -> Option<Self> {
        list.sort_unstable();
        list.dedup();
        (!list.is_empty()).then_some(Self(list))
    }

    /// Lists every processor that this process may use.
    ///
    /// # Errors
    /// The kernel's error from sched_getaffinity(2).
    pub fn allowed() -> Result<Vec<usize>, TreeError> {
        Ok(crate::placement::allowed()?)
    }

    /// Returns the processor numbers in ascending order.
    pub fn list(&self) -> &[usize] {
        &self.0
    }

    /// Returns the number of processors.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// Formats the set as taskset(1) and `--cores` take it: `0,1`.
impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, core) in self.0.iter().enumerate() {
            write!(f, "{}{core}", if position == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// Wraps `command` in taskset(1), so that it and all its child processes run on `cores` only. (Setting the
/// affinity in the child would need `pre_exec`, which is unsafe; util-linux is installed everywhere.)
pub fn pinned(cores: &Cores, command: &str) -> Command {
    let mut pinned = Command::new("taskset");
    pinned.arg("-c").arg(cores.to_string()).arg(command);
    pinned
}

/// Error when a process tree cannot be started, or its usage cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The root process has ended, so the tree's usage is lost.
    #[error("process {0} has ended")]
    Ended(u32),
    /// A line of `/proc` does not have the format of proc(5).
    #[error("cannot read {0}")]
    Proc(String),
}

/// Resources that a process tree has used since it started.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// CPU seconds in user mode.
    pub cpu_user_s: f64,
    /// CPU seconds in the kernel.
    pub cpu_system_s: f64,
    /// Voluntary context switches of live threads.
    pub switches_voluntary: u64,
    /// Involuntary context switches of live threads.
    pub switches_involuntary: u64,
    /// Resident bytes, summed over the processes.
    pub rss_bytes: u64,
    /// Number of live processes.
    pub processes: usize,
}

/// A running process and all its descendants. Dropping the tree stops them: first with SIGTERM, then with
/// SIGKILL.
#[derive(Debug)]
pub struct Tree {
    child: Child,
}

impl Tree {
    /// Starts `command`, usually made by [`pinned`].
    ///
    /// # Errors
    /// [`TreeError::Io`] if the command cannot be started.
    pub fn start(mut command: Command) -> Result<Self, TreeError> {
        Ok(Self { child: command.spawn()? })
    }

    /// Returns the process id of the root.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the exit status of the root, if it has ended.
    ///
    /// # Errors
    /// [`TreeError::Io`] if waitpid(2) fails.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, TreeError> {
        Ok(self.child.try_wait()?)
    }

    /// Returns the tree's resource usage so far.
    ///
    /// # Errors
    /// [`TreeError::Ended`] when the root is gone.
    pub fn usage(&self) -> Result<Usage, TreeError> {
        let tick_s = 1.0 / rustix::param::clock_ticks_per_second() as f64;
        let page_bytes = rustix::param::page_size() as u64;
        let mut usage = Usage::default();
        for stat in descendants(self.id())? {
            if stat.id == self.id() && stat.zombie {
                return Err(TreeError::Ended(stat.id));
            }
            usage.processes += 1;
            usage.cpu_user_s += stat.user_ticks as f64 * tick_s;
            usage.cpu_system_s += stat.system_ticks as f64 * tick_s;
            usage.rss_bytes += stat.rss_pages * page_bytes;
            let (voluntary, involuntary) = switches(stat.id);
            usage.switches_voluntary += voluntary;
            usage.switches_involuntary += involuntary;
        }
        if usage.processes == 0 { Err(TreeError::Ended(self.id())) } else { Ok(usage) }
    }

    /// Returns the tree's anonymous memory in bytes (`RssAnon` of proc(5)), which excludes file pages and
    /// kernel memory.
    ///
    /// # Errors
    /// [`TreeError::Ended`] when the root is gone.
    pub fn anonymous_bytes(&self) -> Result<u64, TreeError> {
        let tree = descendants(self.id())?;
        if tree.is_empty() {
            return Err(TreeError::Ended(self.id()));
        }
        Ok(tree.iter().map(|process| anonymous_bytes(process.id)).sum())
    }

    fn stop(&mut self) {
        let known = descendants(self.id()).unwrap_or_default();
        signal(self.id(), Signal::TERM);
        let asked = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && asked.elapsed() < STOP_WAIT {
            sleep(POLL);
        }
        // Survivors are killed. The start time tells a survivor from an unrelated process that reuses its id.
        for process in known {
            if stat(process.id).is_some_and(|now| now.started == process.started && !now.zombie) {
                signal(process.id, Signal::KILL);
            }
        }
        let _ = self.child.wait();
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.stop();
    }
}

fn signal(id: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        // An error means that the process is already gone.
        let _ = kill_process(pid, signal);
    }
}

/// Fields of `/proc/PID/stat` that usage and process tree need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    id: u32,
    parent: u32,
    zombie: bool,
    user_ticks: u64,
    system_ticks: u64,
    started: u64,
    rss_pages: u64,
}

/// Parses `pid (comm) state ppid …` (proc(5)). The name may contain spaces and parentheses, so the other
/// fields are counted from the last closing parenthesis.
fn parse_stat(line: &str) -> Option<Stat> {
    let (id, rest) = line.split_once(" (")?;
    let (_, rest) = rest.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // `fields[0]` is field 3 in the numbering of proc(5).
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        id: id.parse().ok()?,
        parent: u32::try_from(number(4)?).ok()?,
        zombie: matches!(fields.first(), Some(&"Z" | &"X")),
        user_ticks: number(14)? + number(16)?,
        system_ticks: number(15)? + number(17)?,
        started: number(22)?,
        rss_pages: number(24)?,
    })
}

fn stat(id: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

/// Lists `root` and every process below it, the root first; empty when the root is gone.
fn descendants(root: u32) -> Result<Vec<Stat>, TreeError> {
    let mut children: BTreeMap<u32, Vec<Stat>> = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        // A process may end between the listing and the reading; it is skipped.
        if let Some(stat) = name.to_str().and_then(|name| name.parse().ok()).and_then(stat) {
            children.entry(stat.parent).or_default().push(stat);
        }
    }
    let mut tree: Vec<Stat> = stat(root).into_iter().collect();
    let mut next = 0;
    while let Some(parent) = tree.get(next).map(|process| process.id) {
        tree.extend(children.remove(&parent).unwrap_or_default());
        next += 1;
    }
    Ok(tree)
}

/// Sums the voluntary and involuntary context switches of a process's live threads.
fn switches(id: u32) -> (u64, u64) {
    let mut sum = (0, 0);
    let Ok(threads) = fs::read_dir(format!("/proc/{id}/task")) else { return sum };
    for thread in threads.flatten() {
        let Ok(status) = fs::read_to_string(thread.path().join("status")) else { continue };
        for line in status.lines() {
            if let Some((name, value)) = line.split_once(':') {
                let value = || value.trim().parse::<u64>().unwrap_or(0);
                match name {
                    "voluntary_ctxt_switches" => sum.0 += value(),
                    "nonvoluntary_ctxt_switches" => sum.1 += value(),
                    _ => {}
                }
            }
        }
    }
    sum
}

/// Returns the anonymous memory of one process in bytes; 0 if it has just ended.
fn anonymous_bytes(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let kib = status.lines().find_map(|line| {
        line.strip_prefix("RssAnon:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    kib.unwrap_or(0) * 1024
}

/// Returns the seconds that `cores` were busy since boot for any process, including time stolen by the
/// hypervisor.
///
/// # Errors
/// [`TreeError::Proc`] when `/proc/stat` lacks one of the cores.
pub fn busy_s(cores: &Cores) -> Result<f64, TreeError> {
    let text = fs::read_to_string("/proc/stat")?;
    let tick_s = 1.0 / rustix::param::clock_ticks_per_second() as f64;
    cores.0.iter().map(|core| busy_ticks(&text, *core).map(|ticks| ticks as f64 * tick_s)).sum()
}

/// Parses `cpuN user nice system idle iowait irq softirq steal guest guest_nice` (proc(5)); guest time is
/// already part of user time.
fn busy_ticks(text: &str, core: usize) -> Result<u64, TreeError> {
    let name = format!("cpu{core}");
    let line = text.lines().find_map(|line| line.strip_prefix(&name)?.strip_prefix(' '));
    let fields: Vec<u64> =
        line.unwrap_or_default().split_ascii_whitespace().filter_map(|field| field.parse().ok()).collect();
    match fields[..] {
        [user, nice, system, _idle, _iowait, irq, softirq, steal, ..] => {
            Ok(user + nice + system + irq + softirq + steal)
        }
        _ => Err(TreeError::Proc(format!("the line {name} of /proc/stat"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_core() -> Cores {
        Cores::new(vec![Cores::allowed().unwrap()[0]]).unwrap()
    }

    fn shell(script: &str) -> Tree {
        let mut command = pinned(&first_core(), "sh");
        command.arg("-c").arg(script);
        Tree::start(command).unwrap()
    }

    fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !happened() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what} did not happen in a minute");
            sleep(POLL);
        }
    }

    #[test]
    fn odd_process_names_do_not_shift_fields() {
        let line = "42 (a) b (c)) S 7 0 0 0 -1 4194560 1 2 3 4 100 20 3 4 10 -10 13 0 24 51175424 4766 99";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.id, stat.parent, stat.user_ticks, stat.system_ticks), (42, 7, 103, 24));
        assert_eq!((stat.started, stat.rss_pages, stat.zombie), (24, 4766, false));
        assert_eq!(parse_stat("42 (x) S 7"), None);
    }

    #[test]
    fn busy_time_leaves_out_idle_and_waiting() {
        let text = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu1 1 2 4 1000 1000 8 16 32 0 0\ncpu10 5 0 0 0 0 0 0 0 0 0\n";
        assert_eq!(busy_ticks(text, 1).unwrap(), 63);
        assert_eq!(busy_ticks(text, 10).unwrap(), 5);
        assert!(busy_ticks(text, 0).is_err());
    }

    #[test]
    fn usage_counts_grandchildren_reaped_children_and_threads() {
        // One child burns CPU and is reaped; then a grandchild burns CPU and stays alive.
        let tree = shell(
            "sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done'; \
             sh -c 'sh -c \"i=0; while [ \\$i -lt 200000 ]; do i=\\$((i+1)); done; sleep 100\"; :'; :",
        );
        let mut reaped_s = 0.0;
        wait_for("the grandchild's sleep", || {
            let usage = tree.usage().unwrap();
            if usage.processes == 1 {
                reaped_s = usage.cpu_user_s + usage.cpu_system_s;
            }
            usage.processes >= 4
        });
        let usage = tree.usage().unwrap();
        let all_s = usage.cpu_user_s + usage.cpu_system_s;
        assert!(all_s >= 0.02, "two loops of 200,000 steps took {all_s} s");
        assert!(all_s >= reaped_s);
        assert!(usage.rss_bytes > 0 && usage.switches_voluntary > 0);
        assert!(tree.anonymous_bytes().unwrap() > 0);
    }

    #[test]
    fn everything_in_the_tree_is_pinned() {
        let tree = shell("sleep 100 & sleep 100; :");
        wait_for("both sleeps", || tree.usage().unwrap().processes == 3);
        for process in descendants(tree.id()).unwrap() {
            let status = fs::read_to_string(format!("/proc/{}/status", process.id)).unwrap();
            let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
            assert_eq!(allowed.trim(), first_core().to_string());
        }
    }

    #[test]
    fn dropping_stops_even_those_who_do_not_listen() {
        let tree = shell("trap '' TERM; (trap '' TERM; sleep 1000; :) & sleep 1001 & wait; wait");
        wait_for("the family", || tree.usage().unwrap().processes >= 4);
        let family = descendants(tree.id()).unwrap();
        drop(tree);
        wait_for("the end of the family", || {
            family.iter().all(|process| {
                stat(process.id).is_none_or(|now| now.started != process.started || now.zombie)
            })
        });
    }

    #[test]
    fn usage_of_an_ended_server_is_an_error() {
        let mut tree = shell("exit 3");
        wait_for("the end", || tree.ended().unwrap().is_some());
        assert!(matches!(tree.usage(), Err(TreeError::Ended(_))));
    }
}
