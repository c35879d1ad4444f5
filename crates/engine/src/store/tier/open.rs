//! Opening a file-backed store.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use super::{Admission, Tier, found::RecoveryIndex, lifetimes::WRITERS_PER_CORE};
use crate::{
    io::{CachedFile, Damage, DirectFile, Source},
    log::{
        self, FileOptions, FoundRecord, Log, LogRecovery, OpenError, Options, RecoveryReport,
        format::SEGMENTS_AT,
    },
    size::Size,
    store::{Shard, Store, StoreConfig, StoreError, config::Geometry, open::open_with},
    sys::span::Span,
};

/// Method by which objects are read from the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadMode {
    /// Direct I/O: reads bypass the page cache and go only into the store's memory.
    #[default]
    Direct,
    /// Reads through the page cache, which is then a tier between the store's memory and the disk.
    Kernel,
}

/// Configuration of a store's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileConfig {
    /// Path of the file.
    pub path: PathBuf,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Maximum time until a stored object is written to the file.
    pub flush: Duration,
    /// Method of reading the file.
    pub paging: ReadMode,
    /// Condition under which objects are written to the file.
    pub admission: Admission,
    /// Approximate maximum number of objects for which the directory has memory. A file with more objects can
    /// still be read.
    pub objects_max: u64,
}

/// Reasons why a file-backed store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenOnFileError {
    /// The store in memory could not be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file could not be opened.
    #[error(transparent)]
    File(#[from] OpenError),
    /// The file has too few segments for the cores.
    #[error(
        "a store of {} is too small for {cores} cores: with segments of {} it needs at least {}",
        Size(*bytes),
        Size(*segment_bytes),
        Size(*needed)
    )]
    TooSmall {
        /// Configured length of the file.
        bytes: u64,
        /// Number of cores.
        cores: usize,
        /// Segment size.
        segment_bytes: u64,
        /// Minimum length of the file for this number of cores and this segment size.
        needed: u64,
    },
    /// The file cannot be read, or its helper threads cannot be started.
    #[error("cannot start the store {}: {source}", path.display())]
    Start {
        /// Path of the file.
        path: PathBuf,
        /// Error returned by the system.
        source: io::Error,
    },
}

/// A store whose file is locked by this process but has not been read yet.
pub struct UnreadStore {
    /// The part of the store that all cores share.
    pub store: Arc<Store>,
    /// Shards, one for each core. They may be used at once if [`UnreadStore::may_go_ahead`].
    pub shards: Vec<Shard>,
    /// Source from which helpers read; it verifies the checksums of each record.
    pub source: Arc<dyn Source>,
    /// Recovery of the file, for a thread that may wait for the disk.
    pub start: FileRecovery,
    /// True if the shards can work before the file is read, as if it were empty. False if the sequence
    /// numbers that were used before can only be found by reading the file.
    pub may_go_ahead: bool,
}

/// Recovery of a store's file at startup.
#[derive(Debug)]
pub struct FileRecovery {
    opening: LogRecovery,
    cores: usize,
    path: PathBuf,
    admission: Admission,
    objects_max: u64,
}

/// Contents of a file after recovery.
#[derive(Debug)]
pub struct StoreContents {
    /// The file's log. It must be dropped last, because dropping it writes out what the shards have appended.
    pub log: Log,
    /// File tiers, one for each core, to be passed to [`Shard::put_on_file`].
    pub tiers: Vec<Tier>,
    /// Report on the recovery.
    pub recovered: RecoveryReport,
    /// Number of objects in the file that recovery found, over all cores.
    pub objects: u64,
}

/// An open file-backed store.
pub struct FileStore {
    /// The part of the store that all cores share.
    pub store: Arc<Store>,
    /// Shards, one for each core.
    pub shards: Vec<Shard>,
    /// The file's log. It must be dropped last, because dropping it writes out what the shards have appended.
    pub log: Log,
    /// Source from which helpers read; it verifies the checksums of each record.
    pub source: Arc<dyn Source>,
    /// Report on the recovery.
    pub recovered: RecoveryReport,
}

impl fmt::Debug for UnreadStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, start, may_go_ahead, .. } = self;
        f.debug_struct("UnreadStore")
            .field("store", store)
            .field("start", start)
            .field("may_go_ahead", may_go_ahead)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for FileStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, log, recovered, .. } = self;
        f.debug_struct("OnFile")
            .field("store", store)
            .field("log", log)
            .field("recovered", recovered)
            .finish_non_exhaustive()
    }
}

/// Minimum number of segments per core: one open for each class of lifetimes, one being written, two to
/// choose from.
const SEGMENTS_PER_CORE: u64 = WRITERS_PER_CORE as u64 + 3;
/// Oldest format version that a cache can continue with; objects of older files can be fetched again.
const VERSION_MIN: u32 = 2;
/// Minimum number of segments in addition to those of the cores: the reaper's own segments, and the segment
/// that it is freeing.
const SEGMENTS_BESIDES: u64 = 4;
/// Maximum bytes that are appended and wait to be written to the file.
const UNWRITTEN_BYTES_MAX: u64 = 64 << 20;
/// Number of threads that read the file at startup.
const START_THREADS: usize = 4;

/// Opens a file-backed store, and recovers the objects in the file that are valid at `now_s`.
///
/// # Errors
/// Returns an [`OpenOnFileError`] that states the configured numbers and the numbers that would be accepted.
pub fn open_on_file(
    config: &StoreConfig,
    file: &FileConfig,
    now_s: u32,
) -> Result<FileStore, OpenOnFileError> {
    let UnreadStore { store, mut shards, source, start, .. } = begin_on_file(config, file)?;
    let StoreContents { log, tiers, recovered, .. } = start.read(now_s)?;
    for (shard, tier) in shards.iter_mut().zip(tiers) {
        shard.put_on_file(tier);
        while shard.is_warming() {
            shard.copy_to_file();
        }
    }
    Ok(FileStore { store, shards, log, source, recovered })
}

/// Opens a store whose log may be on any disk, with [`Log::turn`] in place of helper threads: for tests and
/// benchmarks in simulated time.
///
/// # Errors
/// [`OpenOnFileError::Store`] if the store in memory cannot be opened; [`OpenOnFileError::Start`] without a
/// path for an error of the disk.
pub fn open_stepped(
    config: &StoreConfig,
    opening: LogRecovery,
    now_s: u32,
) -> Result<(Arc<Store>, Vec<Shard>, Log), OpenOnFileError> {
    let header = *opening.header();
    let (store, mut shards) = open_with(config, header.hash_seed)?;
    let ours = StartOptions { cores: shards.len(), admission: Admission::Always, objects_max: u64::MAX };
    let known = read(&ours, now_s, &header, |found| opening.recover_stepped(found));
    let StoreContents { log, tiers, .. } =
        known.map_err(|source| OpenOnFileError::Start { path: PathBuf::new(), source })?;
    shards.iter_mut().zip(tiers).for_each(|(shard, tier)| shard.put_on_file(tier));
    Ok((store, shards, log))
}

/// Returns the maximum memory, in addition to the store's, for data that waits to be written to the file.
///
/// # Errors
/// Returns an [`OpenOnFileError`] that states the configured numbers and the numbers that would be accepted.
pub fn write_buffer_bytes_max(config: &StoreConfig, file: &FileConfig) -> Result<u64, OpenOnFileError> {
    let options = log_options(config, file)?;
    Ok(options.buffer_bytes_max(log::header_of(&options.file)?.segment_bytes))
}

fn log_options(config: &StoreConfig, file: &FileConfig) -> Result<Options, OpenOnFileError> {
    let cores = config.cores;
    let mut options = Options {
        file: FileOptions {
            purpose: "cache",
            bytes: file.bytes,
            segment_bytes: None,
            version_min: VERSION_MIN,
        },
        writers: cores * WRITERS_PER_CORE,
        unwritten_bytes_max: UNWRITTEN_BYTES_MAX.min(file.bytes / 8),
        flush: file.flush,
        ..Options::default()
    };
    let header = log::header_of(&options.file)?;
    let segment_bytes = u64::from(header.segment_bytes);
    // Data that waits to be written takes memory in addition to the store's, so its bound depends on the
    // store's size, too.
    let of_memory = (config.capacity_bytes / 4).max(4 * segment_bytes);
    options.unwritten_bytes_max = options.unwritten_bytes_max.min(of_memory);
    let needed = cores as u64 * SEGMENTS_PER_CORE + SEGMENTS_BESIDES;
    if u64::from(header.segments) < needed {
        let needed = SEGMENTS_AT + needed * segment_bytes;
        return Err(OpenOnFileError::TooSmall { bytes: file.bytes, cores, segment_bytes, needed });
    }
    options.keep_free = (header.segments as usize / 64).min(64).max(cores + 2);
    Ok(options)
}

/// Opens a file-backed store without reading the file; [`FileRecovery::read`] does that.
///
/// # Errors
/// Returns an [`OpenOnFileError`] that states the configured numbers and the numbers that would be accepted.
pub fn begin_on_file(config: &StoreConfig, file: &FileConfig) -> Result<UnreadStore, OpenOnFileError> {
    let options = log_options(config, file)?;
    // The configuration is checked before the file is created, so that an invalid one leaves no file.
    Geometry::of(config)?;
    let failed = |source| OpenOnFileError::Start { path: file.path.clone(), source };
    let opening = LogRecovery::file(&file.path, options)?;
    let (store, mut shards) = open_with(config, opening.header().hash_seed)?;
    let cores = shards.len();
    let source = TierSource::open(&file.path, file.paging, opening.header()).map_err(failed)?;
    let epoch = opening.epoch_ahead();
    if let Some(epoch) = epoch {
        shards.iter_mut().for_each(|shard| shard.warm_up(epoch));
    }
    let FileConfig { admission, objects_max, .. } = *file;
    let start = FileRecovery { opening, cores, path: file.path.clone(), admission, objects_max };
    Ok(UnreadStore { store, shards, source: Arc::new(source), start, may_go_ahead: epoch.is_some() })
}

impl FileRecovery {
    /// Returns the file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a flag that stops a running [`FileRecovery::read`]: once it is set, reading ends soon, with an
    /// error.
    pub fn stopper(&self) -> Arc<AtomicBool> {
        self.opening.stopper()
    }

    /// Reads the file and finds the objects that are valid at `now_s`. Waits for the disk.
    ///
    /// # Errors
    /// [`OpenOnFileError::Start`] if the file cannot be read or the helper threads cannot be started.
    pub fn read(self, now_s: u32) -> Result<StoreContents, OpenOnFileError> {
        let Self { opening, cores, path, admission, objects_max } = self;
        let header = *opening.header();
        let ours = StartOptions { cores, admission, objects_max };
        read(&ours, now_s, &header, |found| opening.recover(START_THREADS, found))
            .map_err(|source| OpenOnFileError::Start { path, source })
    }
}

/// Startup parameters that are not stored in the file.
struct StartOptions {
    cores: usize,
    admission: Admission,
    objects_max: u64,
}

fn read(
    ours: &StartOptions,
    now_s: u32,
    header: &log::Header,
    recover: impl FnOnce(&mut dyn FnMut(&FoundRecord) -> bool) -> io::Result<(Log, RecoveryReport)>,
) -> io::Result<StoreContents> {
    let mut on_the_file = RecoveryIndex::new(header, ours.cores, ours.objects_max, now_s);
    let (log, recovered) = recover(&mut |found| on_the_file.note(found))?;
    let tiers = on_the_file.tiers(&log, ours.admission);
    let objects = tiers.iter().map(|tier| tier.tier.directory.len() as u64).sum();
    Ok(StoreContents { log, tiers, recovered, objects })
}

/// The store's file as helpers read it, one whole record at a time.
#[derive(Debug)]
struct TierSource {
    file: PagedFile,
    seed: u32,
    segment_bytes: u64,
}

#[derive(Debug)]
enum PagedFile {
    Direct(DirectFile),
    Kernel(CachedFile),
}

impl TierSource {
    fn open(path: &Path, paging: ReadMode, header: &log::Header) -> io::Result<Self> {
        let file = match paging {
            ReadMode::Direct => match DirectFile::open(path) {
                // The file system does not support direct I/O.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    PagedFile::Kernel(CachedFile::open(path)?)
                }
                direct => PagedFile::Direct(direct?),
            },
            ReadMode::Kernel => PagedFile::Kernel(CachedFile::open(path)?),
        };
        Ok(Self { file, seed: header.seed(), segment_bytes: u64::from(header.segment_bytes) })
    }
}

impl Source for TierSource {
    fn block_bytes(&self) -> usize {
        match &self.file {
            PagedFile::Direct(file) => file.block_bytes(),
            PagedFile::Kernel(file) => file.block_bytes(),
        }
    }

    fn read(&self, at: u64, into: Span<'_>) -> io::Result<usize> {
        match &self.file {
            PagedFile::Direct(file) => file.read(at, into),
            PagedFile::Kernel(file) => file.read(at, into),
        }
    }

    fn verify(&self, at: u64, bytes: Span<'_>) -> Result<(), Damage> {
        let mut record = Vec::new();
        bytes.copy_to(&mut record);
        let offset = at.saturating_sub(SEGMENTS_AT) % self.segment_bytes;
        if log::is_record(&record, self.seed, offset as usize) {
            Ok(())
        } else {
            Err(Damage { at, rule: "the record's checksum does not match" })
        }
    }
}
