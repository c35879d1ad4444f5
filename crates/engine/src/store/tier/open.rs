//! UnreadStore a store whose objects are on a file.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use super::{Admission, FileTier, found::RecoveryIndex, lifetimes::WRITERS_PER_CORE};
use crate::{
    io::{CachedFile, Damage, DirectFile, Source},
    log::{
        self, FileOptions, FoundRecord, Log, LogRecovery, OpenError, Options, RecoveryReport,
        format::SEGMENTS_AT,
    },
    size::Size,
    store::{
        Shard, Store, StoreConfig, StoreError,
        config::{Geometry, open_with},
    },
    sys::span::Span,
};

/// How what memory does not have is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReadMode {
    /// Past the page cache, into our memory only.
    #[default]
    Direct,
    /// Through the page cache, which is a tier between our memory and the disk then.
    Kernel,
}

/// The file of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileConfig {
    /// Where it is.
    pub path: PathBuf,
    /// How long it is.
    pub bytes: u64,
    /// What is stored is on the file after this time at the latest.
    pub flush: Duration,
    /// How it is read.
    pub paging: ReadMode,
    /// Which objects go there.
    pub admission: Admission,
    /// Objects on the file of which there is memory to know, at most. About: a file that holds more is read all the same.
    pub objects_max: u64,
}

/// Why a store on a file could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenOnFileError {
    /// The memory.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file.
    #[error(transparent)]
    File(#[from] OpenError),
    /// Too few segments for the cores.
    #[error(
        "{} are too small a store for {cores} cores: with segments of {} it needs at least {}",
        Size(*bytes),
        Size(*segment_bytes),
        Size(*needed)
    )]
    TooSmall {
        /// What was given.
        bytes: u64,
        /// For so many cores.
        cores: usize,
        /// With such segments.
        segment_bytes: u64,
        /// What would do.
        needed: u64,
    },
    /// What is on it cannot be read, or its helpers cannot be started.
    #[error("cannot start the store {}: {source}", path.display())]
    Start {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A store whose file is ours, and not yet read.
pub struct UnreadStore {
    /// What all cores share.
    pub store: Arc<Store>,
    /// One for each core. They may be used at once if [`UnreadStore::may_go_ahead`].
    pub shards: Vec<Shard>,
    /// What helpers read from: each record is compared with its checksums there.
    pub source: Arc<dyn Source>,
    /// The reading, for a thread that may wait for the disk.
    pub start: FileRecovery,
    /// Whether the shards can do without the file meanwhile, as if it were empty. Not if only reading it can tell which
    /// numbers objects had before.
    pub may_go_ahead: bool,
}

/// The reading of a file at the start.
#[derive(Debug)]
pub struct FileRecovery {
    opening: LogRecovery,
    cores: usize,
    path: PathBuf,
    admission: Admission,
    objects_max: u64,
}

/// What a file holds.
#[derive(Debug)]
pub struct StoreContents {
    /// The file's log. To be dropped last: it writes out what the shards have appended.
    pub log: Log,
    /// For each core, what [`Shard::put_on_file`] wants.
    pub tiers: Vec<Tier>,
    /// What the start found.
    pub recovered: RecoveryReport,
    /// Objects that the cores know to be on the file.
    pub objects: u64,
}

/// A core's part of the file.
#[derive(Debug)]
pub struct Tier {
    pub(super) tier: Box<FileTier>,
    pub(super) epoch: u64,
}

/// A store that is open on a file.
pub struct FileStore {
    /// What all cores share.
    pub store: Arc<Store>,
    /// One for each core.
    pub shards: Vec<Shard>,
    /// The file's log. To be dropped last: it writes out what the shards have appended.
    pub log: Log,
    /// What helpers read from: each record is compared with its checksums there.
    pub source: Arc<dyn Source>,
    /// What the start found.
    pub recovered: RecoveryReport,
}

impl fmt::Debug for UnreadStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { store, start, may_go_ahead, .. } = self;
        f.debug_struct("Opening")
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

/// Segments that each core needs: one open for each class of lifetimes, one being written, two to choose from.
const SEGMENTS_PER_CORE: u64 = WRITERS_PER_CORE as u64 + 3;
/// The oldest version of the file that a cache goes on with: what it holds can be fetched again.
const VERSION_MIN: u32 = 2;
/// Segments besides: the reaper's, and what it is freeing.
const SEGMENTS_BESIDES: u64 = 4;
/// Most bytes that wait to be written.
const UNWRITTEN_BYTES_MAX: u64 = 64 << 20;
/// Threads that read at a start.
const START_THREADS: usize = 4;

/// Opens a store whose objects are on a file, and finds again what the file holds and is still good at `now_s`.
///
/// # Errors
/// [`OpenOnFileError`], with the numbers and what would be right.
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

/// Opens a store above a log on any disk, with [`Log::turn`] in the place of helpers: for tests and instruments, in
/// simulated time.
///
/// # Errors
/// [`OpenOnFileError::Store`]; the disk's, as [`OpenOnFileError::Start`] without a path.
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

/// Most bytes of memory that wait to be written to the file, beside those of the store.
///
/// # Errors
/// [`OpenOnFileError`], with the numbers and what would be right.
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
    // What waits to be written is memory too, beside that of the store.
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

/// Opens a store whose objects are on a file, and leaves the file to be read by [`FileRecovery::read`].
///
/// # Errors
/// [`OpenOnFileError`], with the numbers and what would be right.
pub fn begin_on_file(config: &StoreConfig, file: &FileConfig) -> Result<UnreadStore, OpenOnFileError> {
    let options = log_options(config, file)?;
    // Before there is a file: what cannot be is said first.
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
    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Set, it makes [`FileRecovery::read`] end soon, with an error.
    pub fn stopper(&self) -> Arc<AtomicBool> {
        self.opening.stopper()
    }

    /// Finds out what the file holds that is still good at `now_s`. Waits for the disk.
    ///
    /// # Errors
    /// [`OpenOnFileError::Start`]
    pub fn read(self, now_s: u32) -> Result<StoreContents, OpenOnFileError> {
        let Self { opening, cores, path, admission, objects_max } = self;
        let header = *opening.header();
        let ours = StartOptions { cores, admission, objects_max };
        read(&ours, now_s, &header, |found| opening.recover(START_THREADS, found))
            .map_err(|source| OpenOnFileError::Start { path, source })
    }
}

/// What is not on the file.
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

/// The store's file as helpers read it: what they hand out is a whole record.
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
                // A file system that knows no other way than through its cache.
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
            Err(Damage { at, rule: "a record's checksum does not match" })
        }
    }
}
