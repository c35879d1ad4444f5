//! `bheap-paging`: the same for real (C8): a mapped file, and a memory cgroup that holds a part of it.
//!
//! The measured program is a child of ours: it fills a queue in a mapped file, says so, waits until its memory has
//! been limited, and then removes and inserts. Faults and bytes are what the kernel counts for that process.
//! Version 1 of the memory controller is used where it is mounted, else version 2; without either, or without
//! the right to make a group, the outcome says what is missing.

use super::bheap_sim::{Which, random_keys};
use super::outcome::{Holds, Outcome, Table, Verdict};
use bheap::file::{FileQueue, MappedRows, Shape};
use bheap::heap::Heap;
use bheap::layout::{Binary, Paged};
use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// What a child measured.
#[derive(Debug, Clone, Copy, serde::Serialize, serde::Deserialize)]
pub struct Measured {
    /// Pairs of a removal and an insertion.
    pub pairs: u64,
    /// Major faults.
    pub faults: u64,
    /// Bytes read from the disk.
    pub read_bytes: u64,
    /// Bytes caused to be written to the disk.
    pub written_bytes: u64,
    /// Wall time.
    pub seconds: f64,
    /// The longest single pair, in microseconds.
    pub worst_us: f64,
}

fn field(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0)
}

fn counters() -> std::io::Result<(u64, u64, u64)> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // After the name, which may hold anything: state, …; majflt is the tenth field from there.
    let faults =
        stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(9)).and_then(|n| n.parse().ok());
    let io = fs::read_to_string("/proc/self/io")?;
    Ok((faults.unwrap_or(0), field(&io, "read_bytes:"), field(&io, "write_bytes:")))
}

/// The child's part: fills the queue, prints `filled`, waits for a line, measures, prints JSON.
///
/// # Errors
/// If the file cannot be used.
pub fn child(which: Which, items: usize, pairs: u64, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut keys = random_keys(42);
    let bytes_max = items * 8 * 2 + (64 << 20);
    let path = folder.join("queue");
    let heap_file = || fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    match which {
        Which::Binary => {
            let mut heap = Heap::with_rows(Binary, MappedRows::new(heap_file()?, bytes_max, 1)?);
            (0..items).for_each(|_| heap.push(keys(0)));
            let report = run(
                pairs,
                |key| {
                    let out = heap.pop();
                    heap.push(key);
                    out.is_some()
                },
                &mut keys,
            )?;
            print(&report)
        }
        Which::BHeap => {
            let layout = Paged::for_page_bytes::<u64>(4096)?;
            let mut heap =
                Heap::with_rows(layout, MappedRows::new(heap_file()?, bytes_max, Paged::INDEX_OF_ROOT)?);
            (0..items).for_each(|_| heap.push(keys(0)));
            let report = run(
                pairs,
                |key| {
                    let out = heap.pop();
                    heap.push(key);
                    out.is_some()
                },
                &mut keys,
            )?;
            print(&report)
        }
        Which::Beyond(memory_pages) => {
            let mut queue = FileQueue::create(&path, Shape { bytes_max, memory_pages, ..Shape::default() })?;
            for _ in 0..items {
                queue.try_push(keys(0))?;
            }
            let report = run(
                pairs,
                |key| queue.pop().is_ok_and(|out| out.is_some()) && queue.try_push(key).is_ok(),
                &mut keys,
            )?;
            print(&report)
        }
    }
}

fn run(
    pairs: u64,
    mut pair: impl FnMut(u64) -> bool,
    keys: &mut impl FnMut(u64) -> u64,
) -> Result<Measured, Box<dyn Error>> {
    println_line("filled")?;
    std::io::stdin().lock().read_line(&mut String::new())?;
    let (faults, read_bytes, written_bytes) = counters()?;
    let start = Instant::now();
    let mut worst_us = 0.0_f64;
    let mut before = start;
    for _ in 0..pairs {
        if !pair(keys(0)) {
            return Err("the queue lost an item or had no room".into());
        }
        let now = Instant::now();
        worst_us = worst_us.max((now - before).as_secs_f64() * 1e6);
        before = now;
    }
    let seconds = start.elapsed().as_secs_f64();
    let after = counters()?;
    Ok(Measured {
        pairs,
        faults: after.0 - faults,
        read_bytes: after.1 - read_bytes,
        written_bytes: after.2 - written_bytes,
        seconds,
        worst_us,
    })
}

fn println_line(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

fn print(report: &Measured) -> Result<(), Box<dyn Error>> {
    Ok(println_line(&serde_json::to_string(report)?)?)
}

/// A memory cgroup of our own, removed when dropped.
#[derive(Debug)]
struct Group {
    path: PathBuf,
    limit: &'static str,
}

impl Group {
    fn new() -> Result<Self, String> {
        let name = format!("nighttrain-lab-{}", std::process::id());
        let mounts = [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        let mut missing = String::from("no memory cgroup is mounted");
        for (root, limit) in mounts {
            let version_2 = limit == "memory.max";
            let has_memory = || {
                fs::read_to_string("/sys/fs/cgroup/cgroup.controllers")
                    .is_ok_and(|all| all.contains("memory"))
            };
            if !Path::new(root).is_dir() || (version_2 && !has_memory()) {
                continue;
            }
            let path = Path::new(root).join(&name);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path, limit }),
                Err(error) => missing = format!("{}: {error}", path.display()),
            }
        }
        Err(missing)
    }

    fn admit(&self, pid: u32) -> std::io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), pid.to_string())
    }

    fn limit(&self, bytes: u64) -> std::io::Result<()> {
        // Reclaim takes a few attempts: the kernel answers "busy" while pages are being written.
        let mut last = Ok(());
        for _ in 0..50 {
            last = fs::write(self.path.join(self.limit), bytes.to_string());
            if last.is_ok() {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        last
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

fn run_limited(
    which: Which,
    items: usize,
    pairs: u64,
    bytes: u64,
    command: &dyn Fn(Which, usize, u64, &Path) -> Command,
) -> Result<Measured, Box<dyn Error>> {
    let group = Group::new()?;
    let folder = tempfile::tempdir_in(
        std::env::var_os("NIGHTTRAIN_LAB_DIR").map_or_else(std::env::temp_dir, PathBuf::from),
    )?;
    let mut child =
        command(which, items, pairs, folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let measured = (|| -> Result<Measured, Box<dyn Error>> {
        group.admit(child.id())?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let filled = lines.next().ok_or("the child ended early")??;
        if filled != "filled" {
            return Err(format!("the child said {filled}").into());
        }
        group.limit(bytes)?;
        writeln!(child.stdin.take().ok_or("no input")?)?;
        let report = lines.next().ok_or("the child ended early")??;
        Ok(serde_json::from_str(&report)?)
    })();
    if measured.is_err() {
        child.kill()?;
    }
    child.wait()?;
    measured
}

/// The whole experiment. `command` makes the command that calls [`child`] with its arguments.
///
/// # Errors
/// If a child fails.
pub fn experiment(
    items: usize,
    pairs: u64,
    command: &dyn Fn(Which, usize, u64, &Path) -> Command,
) -> Result<Outcome, Box<dyn Error>> {
    let mut outcome = Outcome {
        name: "bheap-paging".into(),
        title: "Major faults an operation under a memory limit".into(),
        notes: vec![format!(
            "{items} items of 8 bytes in a mapped file (advice: random); the queue is filled first, then its memory limited to a share of the items' bytes plus 4 MiB for the program, then items are removed and inserted. The page queue runs twenty times as many pairs, so that the work that it puts off is in the figure."
        )],
        tables: Vec::new(),
        verdicts: Vec::new(),
        drawings: Vec::new(),
    };
    if let Err(missing) = Group::new() {
        outcome.verdicts.push(Verdict {
            claim: "faults under a memory limit".into(),
            measured: missing,
            holds: Holds::CannotBeTested,
        });
        return Ok(outcome);
    }
    let mut table = Table::new(
        "A removal and an insertion",
        &["resident", "queue", "pairs", "major faults", "bytes read", "bytes written", "µs", "worst µs"],
    );
    for share in [25, 10] {
        let bytes = (items as u64 * 8) * share / 100 + (4 << 20);
        let mut faults = Vec::new();
        for (name, which, pairs) in [
            ("binary heap", Which::Binary, pairs),
            ("B-heap", Which::BHeap, pairs),
            ("page queue", Which::Beyond(64), pairs * 20),
        ] {
            let seen = run_limited(which, items, pairs, bytes, command)?;
            let per = |count: u64| count as f64 / seen.pairs as f64;
            faults.push(per(seen.faults));
            table.rows.push(vec![
                format!("{share} %"),
                name.into(),
                seen.pairs.to_string(),
                format!("{:.5}", per(seen.faults)),
                format!("{:.0}", per(seen.read_bytes)),
                format!("{:.0}", per(seen.written_bytes)),
                format!("{:.2}", seen.seconds * 1e6 / seen.pairs as f64),
                format!("{:.0}", seen.worst_us),
            ]);
        }
        outcome.verdicts.push(Verdict::at_most(
            &format!("page queue's share of the B-heap's major faults, {share}% resident"),
            faults[2] / faults[1],
            0.05,
            "",
        ));
    }
    outcome.tables.push(table);
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_this_process_are_read() {
        let before = counters().unwrap();
        let after = counters().unwrap();
        assert!(after.0 >= before.0 && after.1 >= before.1 && after.2 >= before.2);
        assert_eq!(field("rchar: 5\nread_bytes: 4096\n", "read_bytes:"), 4096);
    }
}
