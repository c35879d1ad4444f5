//! `--scenario start`: ten million objects on a file, reopened after a clean stop and after kill -9.
//!
//! ```text
//!   child: open, put all, end          ─▶ out of the page cache ─▶ child: open, timed ─▶ its memory
//!   child: open, put all, say so, wait ─▶ killed ─▶ out of the page cache ─▶ child: open, timed
//! ```
//! The objects are small, because the time of a start depends on their number.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use engine::store::tier::ReadMode;
use lab::experiments::again::{ChildCommand, ask, do_task_and_exit};
use lab::experiments::scratch::drop_from_cache;
use lab::peers::PeerError;
use serde::{Deserialize, Serialize};

use crate::pressure::stores::ours::{Ours, Sizes};
use crate::pressure::stores::resident_bytes;

const TASK: &str = "NIGHTTRAIN_BENCH_PRESSURE_START";
const FILL: &str = "NIGHTTRAIN_BENCH_PRESSURE_FILL";
const OBJECTS: u64 = 10_000_000;
const OBJECTS_QUICK: u64 = 20_000;
const BODY_BYTES: usize = 200;
/// Maximum overhead of an object: the headers of its record and object, its key and padding, and its table
/// entry.
const BESIDE_BYTES: u64 = 288;
const MEMORY_BYTES: u64 = 64 << 20;
const FILE_BYTES_MIN: u64 = 256 << 20;
/// Number of objects stored before the filling waits for the disk.
const SETTLE_EVERY: u64 = 16_000;
/// Time limit for the filling, and the polling interval.
const FILL_WAIT: Duration = Duration::from_secs(600);
const FILL_POLL: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Task {
    store: PathBuf,
    objects: u64,
    /// File that the child writes when all objects are on the disk, before it waits to be killed; `None` for
    /// a clean stop.
    said: Option<PathBuf>,
}

/// Results of a start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) after: String,
    pub(crate) objects: u64,
    pub(crate) found: u64,
    pub(crate) seconds: f64,
    /// Growth of the process's resident memory per object, in bytes.
    pub(crate) metadata_bytes: f64,
    /// Size of the store's directory per object in bytes, as the store reports it.
    pub(crate) directory_bytes: f64,
}

/// Entry point of a child process: performs its task and exits, or returns if this process is not a child.
pub(crate) fn do_task() {
    do_task_and_exit(FILL, fill);
    do_task_and_exit(TASK, opened);
}

/// Fills a store, ends the process and opens the store again: once after a clean stop and once after kill -9.
pub(crate) fn run(directory: &Path, objects: Option<u64>, quick: bool) -> Result<Vec<Start>, PeerError> {
    let objects = objects.unwrap_or(if quick { OBJECTS_QUICK } else { OBJECTS });
    let again = ChildCommand { arguments: vec![] };
    let mut found = Vec::new();
    for is_killed in [false, true] {
        let after = if is_killed { "kill -9" } else { "a clean stop" };
        println!("start with {objects} objects after {after} …");
        let own = directory.join("start");
        std::fs::create_dir_all(&own)?;
        let mut task = Task { store: own.join("store"), objects, said: None };
        if is_killed {
            task.said = Some(own.join("said"));
            killed_when_filled(&task)?;
            task.said = None;
        } else {
            ask::<_, ()>(FILL, &task, &own, &again)?;
        }
        drop_from_cache(&File::open(&task.store)?)?;
        let started: Start = ask(TASK, &task, &own, &again)?;
        found.push(Start { after: after.into(), ..started });
        std::fs::remove_dir_all(&own)?;
    }
    Ok(found)
}

/// Starts a process that fills a store, and kills it as soon as it reports that everything is written.
fn killed_when_filled(task: &Task) -> io::Result<()> {
    // The guard kills the child on every return path.
    struct FillChild(Child);
    impl Drop for FillChild {
        fn drop(&mut self) {
            // An error means that the child has already ended.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
    let said = task.said.clone().ok_or_else(|| io::Error::other("nothing would be said"))?;
    let errand = serde_json::json!({ "task": task, "answer": said.with_extension("answer") });
    let mut filling = FillChild(
        Command::new(std::env::current_exe()?)
            .env(FILL, errand.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()?,
    );
    let begun = Instant::now();
    while !said.exists() {
        if let Some(status) = filling.0.try_wait()? {
            return Err(io::Error::other(format!("the filling process ended with {status}")));
        }
        if begun.elapsed() > FILL_WAIT {
            return Err(io::Error::other("the filling process does not come to an end"));
        }
        sleep(FILL_POLL);
    }
    Ok(())
}

fn open(task: &Task) -> io::Result<(Ours, Option<engine::io::Completions>)> {
    let bytes = (task.objects * (BODY_BYTES as u64 + BESIDE_BYTES) * 9 / 8).max(FILE_BYTES_MIN);
    Ours::open(&Sizes { memory_bytes: MEMORY_BYTES, file: Some((&task.store, bytes, ReadMode::Direct)) })
}

fn fill(task: &Task) -> io::Result<()> {
    let (ours, completions) = open(task)?;
    let body = [b'x'; BODY_BYTES];
    ours.run(completions, async {
        for id in 0..task.objects {
            ours.put(id, &body)?;
            if id % SETTLE_EVERY == 0 {
                ours.settle().await?;
            }
        }
        ours.settle().await
    })??;
    if let Some(said) = &task.said {
        std::fs::write(said, b"filled")?;
        // The parent kills this process during the sleep.
        sleep(FILL_WAIT);
    }
    Ok(())
}

fn opened(task: &Task) -> io::Result<Start> {
    let before = resident_bytes();
    let begun = Instant::now();
    let (ours, _completions) = open(task)?;
    let seconds = begun.elapsed().as_secs_f64();
    let usage = ours.usage();
    let grown = resident_bytes().saturating_sub(before);
    let found = usage.file_objects;
    Ok(Start {
        after: String::new(),
        objects: task.objects,
        found,
        seconds,
        metadata_bytes: grown as f64 / found.max(1) as f64,
        directory_bytes: usage.file_directory_bytes as f64 / found.max(1) as f64,
    })
}
