//! Opening a log: the file is locked, but nothing may be written before its contents are known.

use std::{
    io,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use tokio::sync::Notify;

use super::{
    LogState, REAPER_CLASS,
    bell::Bell,
    buffers::Buffers,
    contents::FoundRecord,
    file::{Disk, FileDisk, FileOptions, OpenError, new_header},
    format::{Header, SEGMENTS_AT},
    helpers::Helpers,
    lives,
    progress::Progress,
    read::Reader,
    reap::Reaper,
    recover::{RecoveryReport, recover},
    table::Table,
    usage::{Count, LogUsage},
    writer::Writer,
};

/// Options for opening a log.
#[derive(Debug, Clone)]
pub struct Options {
    /// Options of the file.
    pub file: FileOptions,
    /// Number of writers: one for each thread and lifetime class.
    pub writers: usize,
    /// Maximum bytes that are appended and not yet written; the effective bound is at least two segments plus
    /// one for each writer.
    pub unwritten_bytes_max: u64,
    /// Maximum time until an appended record is written.
    pub flush: Duration,
    /// Number of writing threads.
    pub helpers: usize,
    /// True if the log must keep its promises after a loss of power too, at the cost of some syncs for each
    /// segment: a table is written after its records, and a segment is freed in the file before it is used
    /// again. Otherwise, deleted or replaced records may come back after a loss of power, or a replacement
    /// may be lost together with the old record.
    pub must_sync: bool,
    /// True if a segment's space is returned to the file system before it is used again, so that a core that
    /// is still sending from it (`sendfile`) sends the old bytes. If other programs fill the disk, the disk
    /// may then refuse writes.
    pub punch: bool,
    /// Number of segments that are kept free by giving up the oldest ones with their live records, as a cache
    /// needs. 0: no segment is ever given up, and a full log refuses appends.
    pub keep_free: usize,
}

impl Options {
    /// Returns the maximum bytes of buffers of a log with segments of `segment_bytes`.
    pub fn buffer_bytes_max(&self, segment_bytes: u32) -> u64 {
        self.buffers(segment_bytes) as u64 * u64::from(segment_bytes)
    }

    fn buffers(&self, segment_bytes: u32) -> usize {
        let unwritten = self.unwritten_bytes_max / u64::from(segment_bytes);
        unwritten.max(self.writers as u64 + 2) as usize + 1
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            file: FileOptions::default(),
            writers: 1,
            unwritten_bytes_max: 64 << 20,
            flush: Duration::from_secs(1),
            helpers: 2,
            must_sync: false,
            punch: false,
            keep_free: 0,
        }
    }
}

/// An open log. Dropping it writes out all appended records, makes them durable and closes the file. The
/// writers should be dropped first, because later appends are lost.
#[derive(Debug)]
pub struct Log {
    shared: Arc<LogState>,
    helpers: Helpers,
    epoch: u64,
}

/// A log that is being opened: its file is locked, but its records are not known yet.
#[derive(Debug)]
pub struct LogRecovery {
    disk: Arc<dyn Disk>,
    header: Header,
    options: Options,
    is_new: bool,
    stop: Arc<AtomicBool>,
}

impl LogRecovery {
    /// Opens or creates the file at `path`.
    ///
    /// # Errors
    /// Returns an [`OpenError`] if the file cannot be opened or created, or is refused.
    pub fn file(path: &Path, options: Options) -> Result<Self, OpenError> {
        let (disk, header, is_new) = FileDisk::open(path, &options.file)?;
        Ok(Self::new(Arc::new(disk), header, options, is_new))
    }

    /// Creates a log in memory, which disappears when the process ends.
    ///
    /// # Errors
    /// Returns an [`OpenError`] if the memory cannot be created or the sizes are invalid.
    pub fn anonymous(options: Options) -> Result<Self, OpenError> {
        let (disk, header) = FileDisk::anonymous(&options.file)?;
        Ok(Self::new(Arc::new(disk), header, options, true))
    }

    /// Opens a log on any disk, with its existing header or a new one (`None`): for tests and benchmarks.
    ///
    /// # Errors
    /// Returns an [`OpenError`] if the sizes are invalid.
    pub fn on(disk: Arc<dyn Disk>, header: Option<Header>, options: Options) -> Result<Self, OpenError> {
        let is_new = header.is_none();
        let header = header.map_or_else(|| new_header(&options.file), Ok)?;
        Ok(Self::new(disk, header, options, is_new))
    }

    fn new(disk: Arc<dyn Disk>, header: Header, options: Options, is_new: bool) -> Self {
        Self { disk, header, options, is_new, stop: Arc::default() }
    }

    /// Returns a lower bound of [`Log::epoch`] that is greater than at any earlier start; `None` if finding
    /// one requires reading the whole file, because both markers of the life numbers are damaged.
    pub fn epoch_ahead(&self) -> Option<u64> {
        if self.is_new { Some(1) } else { lives::marked(&*self.disk, self.header.seed()) }
    }

    /// Returns a flag that stops a running [`LogRecovery::recover`]: once it is set, recovery ends soon with
    /// [`io::ErrorKind::Interrupted`], if it is still reading.
    pub fn stopper(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Returns the file's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the disk below the log, for readers that do not go through the log.
    pub fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.disk)
    }

    /// Reads the file with `threads` threads, and starts the helpers.
    ///
    /// `found` is called, on this thread and in no particular order, for each intact record that no other
    /// record ends; it returns whether the record is live. A record for which it returns false may be found
    /// again at the next start, unless the owner ends it.
    ///
    /// # Errors
    /// Returns the system's error if it refuses memory or threads, or the disk's if it refuses writes. Damage
    /// is not an error: it is in the [`RecoveryReport`].
    pub fn recover(
        self,
        threads: usize,
        found: impl FnMut(&FoundRecord) -> bool,
    ) -> io::Result<(Log, RecoveryReport)> {
        let interval = self.options.flush;
        let (shared, reaper, recovered) = self.prepare(threads, found)?;
        let helpers = Helpers::start(Arc::clone(&shared), reaper, interval)?;
        let epoch = shared.table.next_life();
        Ok((Log { shared, helpers, epoch }, recovered))
    }

    /// Recovers like [`LogRecovery::recover`], but starts no helpers: a test runs their steps with
    /// [`Log::turn`].
    ///
    /// # Errors
    /// Returns the same errors as [`LogRecovery::recover`].
    pub fn recover_stepped(
        self,
        found: impl FnMut(&FoundRecord) -> bool,
    ) -> io::Result<(Log, RecoveryReport)> {
        let (shared, reaper, recovered) = self.prepare(1, found)?;
        let epoch = shared.table.next_life();
        Ok((Log { helpers: Helpers::none(Arc::clone(&shared), reaper), shared, epoch }, recovered))
    }

    fn prepare(
        self,
        threads: usize,
        found: impl FnMut(&FoundRecord) -> bool,
    ) -> io::Result<(Arc<LogState>, Reaper, RecoveryReport)> {
        let Self { disk, header, options, is_new, stop } = self;
        let segment_bytes = header.segment_bytes as usize;
        let shared = Arc::new(LogState {
            disk,
            seed: header.seed(),
            table: Table::new(header.segments, segment_bytes, SEGMENTS_AT),
            buffers: Buffers::reserve(options.buffers(header.segment_bytes), segment_bytes)?,
            progress: (0..=options.writers).map(|_| Arc::new(Progress::new())).collect(),
            count: Count::default(),
            bells: (0..options.helpers.clamp(1, options.writers.max(1))).map(|_| Bell::default()).collect(),
            sync_bell: Bell::default(),
            reap_bell: Bell::default(),
            room: Notify::new(),
            must_sync: options.must_sync,
            punch: options.punch,
            keep_free: options.keep_free,
        });
        let mut reaper = Reaper::new(
            Arc::clone(&shared),
            Writer::new(Arc::clone(&shared), options.writers, REAPER_CLASS, 0),
        )?;
        if shared.must_sync && !is_new {
            // Writes that the last process did not sync could still be lost, although the tables written next
            // refer to them.
            shared.disk.sync()?;
        }
        let recovered = if is_new {
            RecoveryReport::default()
        } else {
            recover(&shared, threads, &stop, &mut reaper, found)?
        };
        lives::begin(&shared, is_new)?;
        shared.reap_bell.ring();
        Ok((shared, reaper, recovered))
    }
}

impl Log {
    /// Opens a log in a file. Equivalent to [`LogRecovery::file`]; call [`LogRecovery::recover`] next.
    ///
    /// # Errors
    /// Returns an [`OpenError`] if the file cannot be opened or created, or is refused.
    pub fn open(path: &Path, options: Options) -> Result<LogRecovery, OpenError> {
        LogRecovery::file(path, options)
    }

    /// Returns a writer for one thread. There are [`Options::writers`] of them, and each may be taken once.
    ///
    /// # Panics
    /// Panics if there is no writer with that number.
    pub fn writer(&self, number: usize, class: u8) -> Writer {
        assert!(number < self.shared.reaper(), "writer {number} of {}", self.shared.reaper());
        assert!(class != REAPER_CLASS, "class {class} is the log's own");
        Writer::for_owner(Arc::clone(&self.shared), number, class)
    }

    /// Returns a handle for reading and for reporting dead records; usable on any thread.
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.shared))
    }

    /// Returns a number that is greater than at any earlier start, by at least a thousand.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns current amounts and counters. Reads counters only; may be called on any thread.
    pub fn usage(&self) -> LogUsage {
        LogUsage::of(&self.shared)
    }

    /// Runs one step of the helpers; only after [`LogRecovery::recover_stepped`].
    pub fn turn(&mut self) {
        self.helpers.turn();
    }

    /// Ends at once without writing anything more, as in a crash.
    pub fn crash(mut self) {
        self.helpers.abandon();
    }
}
