//! Opens the store: in memory only, or in memory backed by a file.
//!
//! ```text
//! start ─▶ file locked, a thread starts reading ─▶ done within a second? ─ yes ─▶ the loops start with the objects
//!                                                    │ no
//!                                                    ▼
//!               the loops start without the objects ◀── each gets its objects when the file has been read
//! ```

use std::{
    cell::{Cell, OnceCell, RefCell},
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use engine::{
    cores::clock,
    io::{Completions, ReadPool, ReadPoolConfig},
    log::{self, Log, RecoveryReport},
    meter::{Family, Registry, Source},
    store::{
        Shard, Store, StoreConfig, open_anon,
        tier::{
            FileConfig, FileRecovery, PART_BODY_BYTES_MAX, StoreContents, Tier, UnreadStore, begin_on_file,
            write_buffer_bytes_max,
        },
    },
};
use tokio::sync::oneshot;

use crate::{
    config::Config,
    core::{
        FileReads,
        memory_need::{MemoryNeed, TooLittleMemory, cgroup_limit},
        store_s, with_core,
    },
    encoding::codec_pool,
    purging::{bans::BANS_BYTES_MAX, invalidations::TABLE_BYTES_MAX},
    server::StartError,
};

/// Number of threads that read the file: of 8, 16 and 32 threads, 16 were the best choice at little cost
/// (`docs/decisions/009`).
const READ_HELPERS: usize = 16;
/// Maximum memory for parts of large objects that are being sent, over all cores; at most an eighth of the
/// store's memory.
const PARTS_BYTES_MAX: usize = 32 << 20;
/// Number of parts that a core may always hold: two clients, each with the current and the next part.
const PARTS_MIN: usize = 4;
/// Maximum time that a start waits for the file to be read before the event loops begin without its objects.
const START_WAIT_MAX: Duration = Duration::from_secs(1);

/// An open store.
pub(crate) struct OpenStore {
    pub(crate) store: Arc<Store>,
    pub(crate) shards: Vec<Shard>,
    pub(crate) file: Option<OpenFile>,
    /// Access to the file for each core.
    pub(crate) reads: Vec<Option<OfCore>>,
}

/// A core's part of the file.
pub(crate) struct OfCore {
    pub(crate) reads: FileReads,
    pub(crate) completions: Completions,
    /// Channel that delivers the file's objects, if the event loop began before the file was read.
    pub(crate) coming: Option<oneshot::Receiver<WarmingShard>>,
}

/// A core's objects in the file, and the reader of the file.
pub(crate) type WarmingShard = (Tier, log::Reader);

/// Parts of the store that outlive the event loops. The read helpers end first, then the log, which still
/// writes what the loops have appended.
pub(crate) struct OpenFile {
    reads: ReadPool,
    _log: OpenLog,
    found: Arc<StartFindings>,
}

/// Results of reading the file at the start, set once it has been read.
#[derive(Debug, Default)]
struct StartFindings {
    log: OnceLock<log::Reader>,
    recovered: OnceLock<RecoveryReport>,
}

impl StartFindings {
    fn set(&self, known: &StoreContents) {
        // Each start sets these once.
        let _ = self.log.set(known.log.reader());
        let _ = self.recovered.set(known.recovered);
    }
}

/// Metrics of the log; available once the log is open.
impl Source for StartFindings {
    fn collect(&self, families: &mut Vec<Family>) {
        if let Some(log) = self.log.get() {
            log.collect(families);
        }
    }
}

/// The log, or the thread that is still opening it at the start.
enum OpenLog {
    Open(#[expect(dead_code, reason = "held open")] Box<Log>),
    Starting { stop: Arc<AtomicBool>, thread: Option<JoinHandle<Option<Log>>> },
}

impl Drop for OpenLog {
    fn drop(&mut self) {
        let Self::Starting { stop, thread } = self else { return };
        stop.store(true, Ordering::Relaxed);
        // If the log was opened in the meantime, it is closed like any other: it writes what the event loops
        // have left.
        drop(thread.take().map(JoinHandle::join));
    }
}

impl OpenFile {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(self.reads.counters());
        for latencies in self.reads.latencies() {
            registry.register(latencies);
        }
        registry.register(Arc::clone(&self.found) as _);
    }

    /// Returns the recovery report of the start, once the file has been read.
    pub(crate) fn recovered(&self) -> Option<RecoveryReport> {
        self.found.recovered.get().copied()
    }
}

/// Opens the configured store.
pub(crate) fn open_store(config: &Config, memory: &StoreConfig) -> Result<OpenStore, StartError> {
    let Some(path) = &config.store else {
        let (store, shards) = open_anon(memory)?;
        let reads = shards.iter().map(|_| None).collect();
        return Ok(OpenStore { store, shards, file: None, reads });
    };
    let mut file = FileConfig {
        path: path.clone(),
        bytes: config.store_bytes,
        flush: config.flush,
        paging: config.paging,
        admission: config.admission,
        objects_max: u64::MAX,
    };
    let limit_bytes = config.memory_limit_bytes.or_else(cgroup_limit);
    let objects_bytes = config.memory_bytes;
    let pool = ReadPoolConfig { cores: memory.cores, helpers: READ_HELPERS, ..ReadPoolConfig::default() };
    // The read buffers use memory in addition to the store's; the pool enforces a minimum size.
    let of_memory = usize::try_from(config.memory_bytes / 8).unwrap_or(usize::MAX);
    let pool = ReadPoolConfig { buffer_bytes: pool.buffer_bytes.min(of_memory), ..pool };
    // Each core and the writer of the purge log keep a table of the purges by tag and of the bans.
    let purges_bytes = (TABLE_BYTES_MAX + BANS_BYTES_MAX as u64) * (memory.cores as u64 + 1);
    let coding_bytes = codec_pool::bytes_max(&config.compress);
    let buffer_bytes =
        write_buffer_bytes_max(memory, &file)? + pool.buffer_bytes as u64 + purges_bytes + coding_bytes;
    let need = move |objects_on_file| MemoryNeed { objects_bytes, objects_on_file, buffer_bytes };
    let fits = move |objects| limit_bytes.map_or(Ok(()), |limit_bytes| need(objects).within(limit_bytes));
    fits(0)?;
    if let Some(limit_bytes) = limit_bytes {
        file.objects_max = need(0).objects_max(limit_bytes);
    }
    let UnreadStore { store, mut shards, source, start, may_go_ahead } = begin_on_file(memory, &file)?;
    let begun = begin_reading(start, may_go_ahead, &mut shards, fits)?;
    let parts_max = (of_memory.min(PARTS_BYTES_MAX) / shards.len() / PART_BODY_BYTES_MAX).max(PARTS_MIN);
    let (reads, by_core) = ReadPool::start(&pool, vec![source])?;
    let mut coming = begun.coming.into_iter();
    let of_core = |(reads, completions)| {
        let log = begun.reader.clone().map_or_else(OnceCell::new, OnceCell::from);
        let reads = FileReads {
            reads,
            log,
            large: Cell::new(0),
            storing: Cell::new(0),
            parts: RefCell::default(),
            parts_max,
            parts_freed: Arc::default(),
        };
        Some(OfCore { reads, completions, coming: coming.next() })
    };
    let by_core = by_core.into_iter().map(of_core).collect();
    let file = OpenFile { reads, _log: begun.log, found: begun.found };
    Ok(OpenStore { store, shards, file: Some(file), reads: by_core })
}

/// A file that has been read, or is being read.
struct FileReader {
    log: OpenLog,
    found: Arc<StartFindings>,
    /// Reader for the cores, if the file has been read.
    reader: Option<log::Reader>,
    /// Channels to the cores, if the file is still being read.
    coming: Vec<oneshot::Receiver<WarmingShard>>,
}

/// Starts reading the file, and waits for a while until it is read. `fits` checks whether the number of
/// objects fits into memory.
fn begin_reading(
    start: FileRecovery,
    may_go_ahead: bool,
    shards: &mut [Shard],
    fits: impl FnOnce(u64) -> Result<(), TooLittleMemory> + Send + 'static,
) -> Result<FileReader, StartError> {
    let found = Arc::new(StartFindings::default());
    let stop = start.stopper();
    let path = start.path().to_owned();
    let (sender, reading) = mpsc::sync_channel(1);
    spawn("store-start", move || {
        let read = start.read(store_s(clock::unix_s())).map_err(StartError::File);
        // The receiver may be gone.
        let _ = sender.send(read.and_then(|known| {
            fits(known.objects)?;
            Ok(known)
        }));
    })?;
    let first = if may_go_ahead {
        reading.recv_timeout(START_WAIT_MAX)
    } else {
        reading.recv().map_err(|mpsc::RecvError| mpsc::RecvTimeoutError::Disconnected)
    };
    match first {
        Ok(known) => {
            let known = known?;
            found.set(&known);
            for (shard, tier) in shards.iter_mut().zip(known.tiers) {
                shard.put_on_file(tier);
            }
            let reader = Some(known.log.reader());
            Ok(FileReader { log: OpenLog::Open(Box::new(known.log)), found, reader, coming: Vec::new() })
        }
        Err(mpsc::RecvTimeoutError::Timeout) => {
            tracing::info!(
                store = %path.display(),
                "reading the store file: until it is read, its objects are fetched from the origin"
            );
            let (senders, coming) = shards.iter().map(|_| oneshot::channel::<WarmingShard>()).unzip();
            let handed = Arc::clone(&found);
            let thread = spawn("store-wait", move || hand_over(&reading, senders, &handed))?;
            Ok(FileReader {
                log: OpenLog::Starting { stop, thread: Some(thread) },
                found,
                reader: None,
                coming,
            })
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            Err(StartError::Prepare(io::Error::other("reading the store's file failed")))
        }
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, StartError> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map_err(StartError::Prepare)
}

/// Waits for the file to be read and gives each core its part.
fn hand_over(
    reading: &mpsc::Receiver<Result<StoreContents, StartError>>,
    cores: Vec<oneshot::Sender<WarmingShard>>,
    found: &StartFindings,
) -> Option<Log> {
    let known = match reading.recv() {
        Ok(Ok(known)) => known,
        Ok(Err(error)) => {
            tracing::error!(%error, "store file unusable: continuing in memory alone");
            return None;
        }
        // The thread ended without a result: a bug, which it has logged itself.
        Err(mpsc::RecvError) => return None,
    };
    found.set(&known);
    let objects = known.objects;
    for (core, tier) in cores.into_iter().zip(known.tiers) {
        // A core that has ended no longer needs its part.
        let _ = core.send((tier, known.log.reader()));
    }
    tracing::info!(objects, "store file read");
    Some(known.log)
}

/// Adds the file's objects when they arrive. Runs on the core.
pub(crate) async fn take_over(coming: oneshot::Receiver<WarmingShard>) {
    let coming = coming.await;
    with_core(|core| {
        let mut shard = core.shard_mut();
        match (coming, &core.storage.file) {
            (Ok((tier, log)), Some(file)) => {
                // The log is set only here if the event loop began before the file was read.
                let _ = file.log.set(log);
                shard.put_on_file(tier);
            }
            _ => shard.go_without_file(),
        }
    });
}

#[cfg(test)]
mod tests {
    use engine::store::{BodyLength, NewObject};

    use super::*;
    use crate::config::Origin;

    const NOW_S: u32 = 1000;
    /// Number of objects; more than the minimum for which a file must have room.
    const OBJECTS: u32 = 150_000;
    /// Number of objects after which the test waits for the disk.
    const BATCH: u32 = 2_000;

    #[tokio::test(flavor = "local")]
    async fn a_full_store_fits_its_memory_limit() {
        let directory = tempfile::tempdir().expect("a directory");
        let memory = StoreConfig { capacity_bytes: 8 << 20, ..StoreConfig::default() };
        let mut config = Config {
            store: Some(directory.path().join("store")),
            store_bytes: 256 << 20,
            memory_bytes: memory.capacity_bytes,
            memory_limit_bytes: Some(1),
            ..Config::new(Origin::http("127.0.0.1", 9))
        };
        // The smallest limit that suffices.
        let refused = open_store(&config, &memory).err().expect("a byte is too little").to_string();
        let needed =
            refused.split("raise the limit to at least ").nth(1).and_then(|rest| rest.split(',').next());
        let needed = needed.expect("it says what would do");
        let digits = needed.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        let unit = match &needed[digits.len()..] {
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            unit => panic!("{unit:?} in {refused}"),
        };
        config.memory_limit_bytes = digits.parse().ok().map(|count: u64| count * unit);
        let OpenStore { store, mut shards, file, .. } =
            open_store(&config, &memory).unwrap_or_else(|error| panic!("{error}"));
        for number in 0..OBJECTS {
            let key = number.to_le_bytes();
            let new = NewObject {
                expires_s: u32::MAX - 1,
                now_s: NOW_S,
                ..NewObject::bare(store.hash(&key), &key, BodyLength::Exact(1))
            };
            shards[0].insert(new, b"x", b"").expect("room");
            if number % BATCH == 0 {
                shards[0].promise().kept().await.expect("a disk");
                while shards[0].copy_to_file() {}
            }
        }
        let usage = store.usage();
        assert_eq!(usage.file_refused, 0, "the disk keeps up");
        assert_eq!(usage.file_objects + usage.file_crowded_out, usage.file_kept, "{usage:?}");
        assert!(usage.file_crowded_out > 0, "there is memory to know of fewer than all of them");
        drop(shards);
        drop(file);
        let again = open_store(&config, &memory).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again.store.usage().file_objects, usage.file_objects);
    }
}
