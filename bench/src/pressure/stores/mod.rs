//! `--scenario stores`: the store as a library, compared with similar libraries at equal bytes.
//!
//! ```text
//!   trace ─ id ─▶ look ─▶ in memory · on disk          counted, its bytes looked at
//!                      └▶ nowhere ─▶ put               a miss; the body is made and stored
//! ```
//! Each store replays each trace in a separate process, one request after the other. The comparison is about
//! what a store decides to keep, and about the CPU time of the whole process (including helper threads and
//! the kernel). The first half of a trace warms up, the second half counts. The replay waits for background
//! writes every few megabytes, so that no store drops objects that it would have had time to write with a
//! slower origin.
//!
//! Memory and file have the size that each store is configured with. Memory beyond that (index, buffers) is
//! reported separately, as resident memory.

#[cfg(feature = "libraries")]
mod foyer;
pub(crate) mod ours;
#[cfg(feature = "libraries")]
mod segcache;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use engine::store::tier::ReadMode;
use lab::experiments::again::{ChildCommand, ask, do_task_and_exit};
use lab::peers::PeerError;
use lab::pressure::objects;
use serde::{Deserialize, Serialize};

use crate::pressure::traces::Trace;

/// Environment variable with a child's task (see [`lab::experiments::again`]).
const TASK: &str = "NIGHTTRAIN_BENCH_PRESSURE_STORES";
const SEED: u64 = 42;
/// Bytes that are stored before the replay waits for the disk.
const SETTLE_BYTES: u64 = 4 << 20;
/// Average size of an object, for computing the number of objects that fills a store.
const OBJECT_BYTES: u64 = 4_700;
/// Size of a file as a multiple of the memory; and total size of the objects with a popularity, as a multiple
/// of the file.
const FILE_TIMES_MEMORY: u64 = crate::pressure::run::STORE_TIMES_MEMORY;
const OBJECTS_TIMES_FILE: u64 = 2;
/// Size of the looping trace's loop, as a multiple of the memory.
const LOOP_TIMES_MEMORY: u64 = 3;
/// Default memory of each store, and number of requests: a minute or two for all stores.
const MEMORY_MIB: u64 = 16;
const REQUESTS: usize = 400_000;
/// Memory and requests of a quick run, small enough that the disk is needed.
const MEMORY_MIB_QUICK: u64 = 4;
const REQUESTS_QUICK: usize = 4_000;
/// Time limit of a replay, and the number of requests between two checks of it.
const REPLAY_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: u64 = 64;
/// Number of bytes that are checked at each end of a body.
pub(crate) const END_BYTES: usize = 8;

/// Place where an object was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Location {
    InMemory,
    OnDisk,
    Nowhere,
}

/// A store that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Contender {
    /// Nighttrain's store in memory only.
    Ours,
    /// Nighttrain's store on a file, read past the page cache.
    OursOnFile,
    SegcacheMerge,
    SegcacheS3Fifo,
    FoyerLru,
    FoyerLfu,
    FoyerS3Fifo,
    /// foyer's hybrid cache: memory and disk.
    FoyerLruOnDisk,
    FoyerS3FifoOnDisk,
}

impl Contender {
    const ALL: [Self; 9] = [
        Self::Ours,
        Self::SegcacheMerge,
        Self::SegcacheS3Fifo,
        Self::FoyerLru,
        Self::FoyerLfu,
        Self::FoyerS3Fifo,
        Self::OursOnFile,
        Self::FoyerLruOnDisk,
        Self::FoyerS3FifoOnDisk,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::OursOnFile => "ours, file",
            Self::SegcacheMerge => "segcache, merge",
            Self::SegcacheS3Fifo => "segcache, S3-FIFO",
            Self::FoyerLru => "foyer, LRU",
            Self::FoyerLfu => "foyer, LFU",
            Self::FoyerS3Fifo => "foyer, S3-FIFO",
            Self::FoyerLruOnDisk => "foyer hybrid, LRU",
            Self::FoyerS3FifoOnDisk => "foyer hybrid, S3-FIFO",
        }
    }

    const fn is_ours(self) -> bool {
        matches!(self, Self::Ours | Self::OursOnFile)
    }

    const fn has_file(self) -> bool {
        matches!(self, Self::OursOnFile | Self::FoyerLruOnDisk | Self::FoyerS3FifoOnDisk)
    }
}

/// Task of a child process.
#[derive(Debug, Serialize, Deserialize)]
struct Task {
    contender: Contender,
    /// Index in [`Trace::ALL`].
    trace: usize,
    memory_bytes: u64,
    requests: usize,
    /// The child's own directory.
    directory: PathBuf,
}

impl Task {
    fn file_bytes(&self) -> u64 {
        self.memory_bytes * FILE_TIMES_MEMORY
    }

    fn ids(&self) -> Box<dyn Iterator<Item = u64>> {
        // There are more objects than a file holds; a store in memory gets the same objects.
        let objects = self.file_bytes() / OBJECT_BYTES * OBJECTS_TIMES_FILE;
        let looped = self.memory_bytes / OBJECT_BYTES * LOOP_TIMES_MEMORY;
        Box::new(Trace::ALL[self.trace].ids(objects, looped, SEED).take(self.requests))
    }
}

/// Results of one store with one trace.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Replay {
    pub(crate) store: String,
    pub(crate) trace: String,
    pub(crate) ours: bool,
    pub(crate) on_disk: bool,
    pub(crate) requests: u64,
    pub(crate) memory_hits: u64,
    pub(crate) disk_hits: u64,
    /// CPU time of the whole process per request, in microseconds.
    pub(crate) cpu_us: f64,
    pub(crate) seconds: f64,
    /// Growth of the process's resident memory since before the store was opened.
    pub(crate) resident_mib: f64,
    /// Remark, if the store refused objects.
    pub(crate) remark: Option<String>,
}

impl Replay {
    pub(crate) fn hit_percent(&self) -> f64 {
        (self.memory_hits + self.disk_hits) as f64 * 100.0 / self.requests.max(1) as f64
    }
}

/// Entry point of a child process: performs its task and exits, or returns if this process is not a child.
pub(crate) fn do_task() {
    do_task_and_exit(TASK, |task: &Task| match task.contender {
        Contender::Ours | Contender::OursOnFile => ours_replayed(task),
        #[cfg(feature = "libraries")]
        Contender::SegcacheMerge | Contender::SegcacheS3Fifo => segcache::replayed(task),
        #[cfg(feature = "libraries")]
        _ => foyer::replayed(task),
        #[cfg(not(feature = "libraries"))]
        _ => Err(io::Error::other("this program was built without the feature `libraries`")),
    });
}

/// Replays all traces with all stores, one after the other.
pub(crate) fn run(
    directory: &Path,
    memory_mib: Option<u64>,
    is_quick: bool,
    remarks: &mut Vec<String>,
) -> Result<Vec<Replay>, PeerError> {
    let memory_bytes = memory_mib.unwrap_or(if is_quick { MEMORY_MIB_QUICK } else { MEMORY_MIB }) << 20;
    let mut found = Vec::new();
    for (trace, said) in Trace::ALL.iter().enumerate() {
        println!("stores, {} …", said.name());
        for contender in Contender::ALL {
            if !contender.is_ours() && !cfg!(feature = "libraries") {
                continue;
            }
            let own = directory.join("stores");
            std::fs::create_dir_all(&own)?;
            let requests = if is_quick { REQUESTS_QUICK } else { REQUESTS };
            let task = Task { contender, trace, memory_bytes, requests, directory: own.clone() };
            let replayed: io::Result<Replay> =
                ask(TASK, &task, directory, &ChildCommand { arguments: vec![] });
            std::fs::remove_dir_all(&own)?;
            match replayed {
                Ok(replayed) => found.push(replayed),
                // A failed store becomes a remark; the other stores are still compared.
                Err(error) => remarks.push(format!("{}, {}: {error}", contender.name(), said.name())),
            }
        }
    }
    Ok(found)
}

/// Counter of a store's answers to a trace.
struct ReplayCounter {
    task_requests: u64,
    seen: u64,
    memory_hits: u64,
    disk_hits: u64,
    resident_before: u64,
    cpu_s: f64,
    begun: Instant,
    opened: Instant,
    unsettled: u64,
}

impl ReplayCounter {
    fn new(task: &Task) -> Self {
        Self {
            task_requests: task.requests as u64,
            seen: 0,
            memory_hits: 0,
            disk_hits: 0,
            resident_before: resident_bytes(),
            cpu_s: cpu_s(),
            begun: Instant::now(),
            opened: Instant::now(),
            unsettled: 0,
        }
    }

    /// Returns whether the first half is over, so that answers count.
    fn counts(&self) -> bool {
        self.seen * 2 >= self.task_requests
    }

    /// Counts the answer to a request.
    ///
    /// # Errors
    /// An error if the replay takes longer than [`REPLAY_MAX`]: then the disk is too busy for a comparison.
    fn answered(&mut self, found: Location) -> io::Result<()> {
        if !self.counts() {
            (self.cpu_s, self.begun) = (cpu_s(), Instant::now());
        }
        let count = u64::from(self.counts());
        match found {
            Location::InMemory => self.memory_hits += count,
            Location::OnDisk => self.disk_hits += count,
            Location::Nowhere => {}
        }
        self.seen += 1;
        if self.seen.is_multiple_of(LOOK_EVERY) && self.opened.elapsed() > REPLAY_MAX {
            return Err(io::Error::other(format!(
                "only {} of {} requests in {} s: the disk is too slow now",
                self.seen,
                self.task_requests,
                REPLAY_MAX.as_secs()
            )));
        }
        Ok(())
    }

    /// Counts `bytes` of stored data and returns whether to wait for the disk now.
    fn is_settling(&mut self, bytes: usize) -> bool {
        self.unsettled += bytes as u64;
        let is_time = self.unsettled >= SETTLE_BYTES;
        if is_time {
            self.unsettled = 0;
        }
        is_time
    }

    fn end(self, task: &Task, remark: Option<String>) -> Replay {
        let requests = self.task_requests - self.task_requests / 2;
        Replay {
            store: task.contender.name().into(),
            trace: Trace::ALL[task.trace].name().into(),
            ours: task.contender.is_ours(),
            on_disk: task.contender.has_file(),
            requests,
            memory_hits: self.memory_hits,
            disk_hits: self.disk_hits,
            cpu_us: (cpu_s() - self.cpu_s) * 1e6 / requests.max(1) as f64,
            seconds: self.begun.elapsed().as_secs_f64(),
            resident_mib: resident_bytes().saturating_sub(self.resident_before) as f64 / f64::from(1 << 20),
            remark,
        }
    }
}

fn ours_replayed(task: &Task) -> io::Result<Replay> {
    let mut counting = ReplayCounter::new(task);
    let path = task.directory.join("store");
    let file = (task.contender == Contender::OursOnFile).then_some((
        path.as_path(),
        task.file_bytes(),
        ReadMode::Direct,
    ));
    let (ours, completions) = ours::Ours::open(&ours::Sizes { memory_bytes: task.memory_bytes, file })?;
    let mut body = Vec::new();
    ours.run(completions, async {
        for id in task.ids() {
            let found = ours.look(id).await?;
            if found == Location::Nowhere {
                make(id, &mut body);
                ours.put(id, &body)?;
                if counting.is_settling(body.len()) && file.is_some() {
                    ours.settle().await?;
                }
            }
            counting.answered(found)?;
        }
        Ok::<_, io::Error>(())
    })??;
    let usage = ours.usage();
    let refused = usage.refused_no_room + usage.file_refused + usage.file_too_large + usage.file_damaged;
    let remark = (refused > 0).then(|| format!("{refused} objects refused or lost: {usage:?}"));
    Ok(counting.end(task, remark))
}

/// Returns the key of object `id`, which is the same in all stores.
pub(crate) fn key(id: u64) -> [u8; 19] {
    let mut key = *b"/o/0000000000000000";
    for (digit, place) in key[3..].iter_mut().rev().enumerate() {
        *place = b"0123456789abcdef"[(id >> (4 * digit)) as usize & 15];
    }
    key
}

fn make(id: u64, body: &mut Vec<u8>) {
    body.clear();
    body.resize(objects::bytes(id) as usize, 0);
    objects::fill(id, body);
}

/// Compares the length and the first and last bytes of a body with the expected ones.
pub(crate) fn checked_ends(id: u64, bytes: u64, ends: &[u8; 2 * END_BYTES]) -> io::Result<()> {
    let expected = u64::from(objects::bytes(id));
    let (first, last) = ends.split_at(END_BYTES);
    // The last bytes are in two words of the body, unless its length is a multiple of eight.
    let (number, shift) = ((expected - 8) / 8, (expected - 8) % 8 * 8);
    let (low, high) = (objects::word(id, number), objects::word(id, number + 1));
    let word = if shift == 0 { low } else { low >> shift | high << (64 - shift) };
    if bytes == expected && first == objects::word(id, 0).to_le_bytes() && last == word.to_le_bytes() {
        return Ok(());
    }
    Err(io::Error::other(format!("object {id} came back with other bytes")))
}

#[cfg(feature = "libraries")]
fn checked_body(id: u64, body: &[u8]) -> io::Result<()> {
    let mut ends = [0; 2 * END_BYTES];
    if let (Some(first), Some(last)) = (body.first_chunk::<END_BYTES>(), body.last_chunk::<END_BYTES>()) {
        ends[..END_BYTES].copy_from_slice(first);
        ends[END_BYTES..].copy_from_slice(last);
    }
    checked_ends(id, body.len() as u64, &ends)
}

pub(crate) fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the resident bytes of this process.
pub(crate) fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<u64> = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_every_body_are_known() {
        for id in 0..200 {
            let mut body = Vec::new();
            make(id, &mut body);
            let mut ends = [0; 16];
            ends[..8].copy_from_slice(&body[..8]);
            ends[8..].copy_from_slice(&body[body.len() - 8..]);
            checked_ends(id, body.len() as u64, &ends).unwrap();
            assert!(checked_ends(id, body.len() as u64 + 1, &ends).is_err());
            ends[15] ^= 1;
            assert!(checked_ends(id, body.len() as u64, &ends).is_err());
        }
        assert_eq!(&key(0xab), b"/o/00000000000000ab");
    }

    #[test]
    fn ours_answers_with_and_without_a_file() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        for contender in [Contender::Ours, Contender::OursOnFile] {
            let task = Task {
                contender,
                trace: 0,
                memory_bytes: 8 << 20,
                requests: 6_000,
                directory: directory.path().into(),
            };
            let found = ours_replayed(&task).unwrap();
            assert!(found.memory_hits > 500 && found.requests == 3_000, "{found:?}");
            assert_eq!(found.disk_hits > 0, contender == Contender::OursOnFile, "{found:?}");
            assert_eq!(found.remark, None);
        }
    }
}
