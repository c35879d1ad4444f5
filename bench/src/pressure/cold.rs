//! `--scenario cold`: the store's rate of hits from the disk, as a share of the disk's own rate, in one
//! process.
//!
//! ```text
//!   memory cgroup: fill a store of 19 memories ─▶ rounds of ┌ raw: 16 threads, whole objects' sizes, O_DIRECT
//!                                                           └ cold: one loop, 64 who ask, 16 helpers, restored in memory
//! ```
//! The scenario has no server and no sockets: those cost more CPU time than the reads, and would make this
//! machine's cores the limit. Only objects that came from the disk count as cold hits.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use engine::cores::Causes;
use engine::store::tier::ReadMode;
use lab::experiments::again::{ChildCommand, ask, do_task_and_exit};
use lab::experiments::bheap_paging::group::Group;
use lab::paired::spread::Draws;
use lab::peers::PeerError;
use lab::pressure::objects;
use serde::{Deserialize, Serialize};

use crate::pressure::raw;
use crate::pressure::stores::ours::{HELPERS, Ours, Sizes};
use crate::pressure::stores::{Location, cpu_s};

const TASK: &str = "NIGHTTRAIN_BENCH_PRESSURE_COLD";
/// Number of concurrent requests: enough that every helper always has a read to do.
const WORKERS: u64 = 64;
/// Bytes that are stored before the filling waits for the disk.
const SETTLE_BYTES: u64 = 4 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Task {
    group: Group,
    is_kernel: bool,
    memory_bytes: u64,
    store_bytes: u64,
    objects: u64,
    rounds: usize,
    seconds: f64,
    directory: PathBuf,
    /// A file of the store's size for raw reads. Every byte is written, because the kernel answers reads of
    /// merely reserved space without the disk.
    raw: PathBuf,
}

/// Result of one paging mode.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Cold {
    pub(crate) paging: String,
    /// Rates per second for each round: raw reads of the disk, and cold hits of the store.
    pub(crate) raw_per_s: Vec<f64>,
    pub(crate) cold_per_s: Vec<f64>,
    /// CPU time of the whole process in microseconds, per raw read and per cold hit.
    pub(crate) raw_cpu_us: f64,
    pub(crate) cold_cpu_us: f64,
    /// Reads by helpers per cold hit; `None` if there was no hit.
    pub(crate) reads_an_object: Option<f64>,
    /// Major page faults of the loop's thread during the cold hits.
    pub(crate) loop_major_faults: u64,
    pub(crate) fill_mib_per_s: f64,
}

/// Entry point of a child process: performs its task and exits, or returns if this process is not a child.
pub(crate) fn do_task() {
    do_task_and_exit(TASK, |task: &Task| {
        task.group.enter()?;
        measured(task)
    });
}

/// Measures both paging modes, each in its own process and memory cgroup.
pub(crate) fn run(
    directory: &Path,
    memory_bytes: u64,
    store_bytes: u64,
    objects: u64,
    rounds: usize,
    seconds: f64,
) -> Result<Vec<Cold>, PeerError> {
    let raw = directory.join("raw");
    write_noise(&raw, store_bytes)?;
    let mut found = Vec::new();
    for is_kernel in [false, true] {
        println!("cold hits, {} …", if is_kernel { "kernel" } else { "direct" });
        let group = Group::create().map_err(|error| PeerError::failed(error.to_string()))?;
        group.limit(memory_bytes)?;
        let own = directory.join("cold");
        std::fs::create_dir_all(&own)?;
        let task = Task {
            group,
            is_kernel,
            memory_bytes,
            store_bytes,
            objects,
            rounds,
            seconds,
            directory: own.clone(),
            raw: raw.clone(),
        };
        let cold: io::Result<Cold> = ask(TASK, &task, directory, &ChildCommand { arguments: vec![] });
        std::fs::remove_dir_all(&own)?;
        found.push(cold.map_err(|error| PeerError::failed(format!("cold hits: {error}")))?);
    }
    std::fs::remove_file(&raw)?;
    Ok(found)
}

/// Fills a file with random bytes, which no disk can compress or skip.
fn write_noise(path: &Path, bytes: u64) -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(1 << 20, File::create_new(path)?);
    let mut draws = Draws::new(1);
    for _ in 0..bytes / 8 {
        out.write_all(&draws.bits().to_ne_bytes())?;
    }
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

fn measured(task: &Task) -> io::Result<Cold> {
    let path = task.directory.join("store");
    let paging = if task.is_kernel { ReadMode::Kernel } else { ReadMode::Direct };
    // Objects get a third of the memory; the rest is for pending writes, current reads and the directory.
    let file = Some((path.as_path(), task.store_bytes, paging));
    let (ours, completions) = Ours::open(&Sizes { memory_bytes: task.memory_bytes / 3, file })?;
    let ours = Rc::new(ours);
    let mut cold = Cold {
        paging: if task.is_kernel { "kernel" } else { "direct" }.into(),
        raw_per_s: Vec::new(),
        cold_per_s: Vec::new(),
        raw_cpu_us: 0.0,
        cold_cpu_us: 0.0,
        reads_an_object: None,
        loop_major_faults: 0,
        fill_mib_per_s: 0.0,
    };
    ours.run(completions, async {
        let begun = Instant::now();
        let bytes = fill(&ours, task.objects).await?;
        cold.fill_mib_per_s = bytes as f64 / begun.elapsed().as_secs_f64() / f64::from(1 << 20);
        let (mut hits, mut reads, mut cpu) = (0, 0, 0.0);
        for round in 0..task.rounds {
            // The read blocks the loop, which has nothing else to do.
            let raw = raw::read(&task.raw, task.objects, HELPERS, task.seconds)?;
            cold.raw_per_s.push(raw.reads_per_second);
            cold.raw_cpu_us += raw.cpu_us / task.rounds as f64;
            let (reads_before, faults, cpu_before) = (ours.reads(), major_faults(), cpu_s());
            let (found, seconds) = asked(&ours, task, round as u64).await?;
            cold.cold_per_s.push(found as f64 / seconds);
            cold.loop_major_faults += major_faults() - faults;
            hits += found;
            reads += ours.reads() - reads_before;
            cpu += cpu_s() - cpu_before;
        }
        cold.cold_cpu_us = cpu * 1e6 / hits.max(1) as f64;
        cold.reads_an_object = (hits > 0).then(|| reads as f64 / hits as f64);
        Ok::<_, io::Error>(())
    })??;
    Ok(cold)
}

async fn fill(ours: &Ours, objects: u64) -> io::Result<u64> {
    let (mut body, mut all, mut unsettled) = (Vec::new(), 0, 0);
    for id in 0..objects {
        body.clear();
        body.resize(objects::bytes(id) as usize, 0);
        objects::fill(id, &mut body);
        ours.put(id, &body)?;
        all += body.len() as u64;
        unsettled += body.len() as u64;
        if unsettled >= SETTLE_BYTES {
            unsettled = 0;
            ours.settle().await?;
        }
    }
    ours.settle().await?;
    Ok(all)
}

/// Requests objects from the whole store for `task.seconds`; returns the number of hits from the disk, and
/// the elapsed seconds.
async fn asked(ours: &Rc<Ours>, task: &Task, round: u64) -> io::Result<(u64, f64)> {
    let (begun, found) = (Instant::now(), Rc::new(Cell::new(0)));
    let end = begun + Duration::from_secs_f64(task.seconds);
    let objects = task.objects;
    let workers: Vec<_> = (0..WORKERS)
        .map(|number| {
            let (ours, found) = (Rc::clone(ours), Rc::clone(&found));
            tokio::task::spawn_local(async move {
                let mut draws = Draws::new(round << 32 | number << 8 | 1);
                while Instant::now() < end {
                    if ours.look(draws.bits() % objects).await? == Location::OnDisk {
                        found.set(found.get() + 1);
                    }
                    // A hit in memory never waits, so the task yields to let other requests run.
                    tokio::task::yield_now().await;
                }
                Ok::<_, io::Error>(())
            })
        })
        .collect();
    for worker in workers {
        worker.await.map_err(io::Error::other)??;
    }
    Ok((found.get(), begun.elapsed().as_secs_f64()))
}

fn major_faults() -> u64 {
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    Causes::of_thread(own).map_or(0, |causes| causes.major_faults)
}
