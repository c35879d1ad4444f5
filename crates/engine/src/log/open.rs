//! Opening a log: the file is taken, but nobody may write before what it holds is known.

use std::{
    io,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use tokio::sync::Notify;

use super::{
    Log, LogState, REAPER_CLASS,
    buffers::Buffers,
    file::{Disk, FileDisk, FileOptions, OpenError, new_header},
    format::{Header, SEGMENTS_AT},
    helpers::{Bell, Helpers},
    lives,
    progress::Progress,
    reap::Reaper,
    recover::{FoundRecord, RecoveryReport, recover},
    table::Table,
    usage::Count,
    writer::Writer,
};

/// How a log is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// The file.
    pub file: FileOptions,
    /// Writers that there will be: one a thread and lifetime class.
    pub writers: usize,
    /// Most bytes that are appended and not yet written; at least two segments and one for each writer, whatever this
    /// says.
    pub unwritten_bytes_max: u64,
    /// What is appended is written after this time at the latest.
    pub flush: Duration,
    /// Threads that write.
    pub helpers: usize,
    /// Whether the log keeps its promises over a loss of power too, at the price of some syncs for each segment: that a
    /// table comes after its records, and that a segment is free before it is used again. Without it, what was deleted
    /// or replaced may come back after a loss of power, or what replaced it may be lost with it.
    pub must_sync: bool,
    /// Whether a segment's room is given back to the file system before it is used again, so that a core that is still
    /// sending from it (`sendfile`) sends the old bytes. A disk that others fill may then refuse to write.
    pub punch: bool,
    /// Segments that are kept free by giving up the oldest, with everything that lives in it: for a cache. 0: nothing
    /// is ever given up, and a full log refuses.
    pub keep_free: usize,
}

impl Options {
    /// Most bytes of buffers that a log with segments of `segment_bytes` takes of memory.
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

/// A log whose file is locked and whose records are not yet known.
#[derive(Debug)]
pub struct LogRecovery {
    disk: Arc<dyn Disk>,
    header: Header,
    options: Options,
    is_new: bool,
    stop: Arc<AtomicBool>,
}

impl LogRecovery {
    /// Opens or makes the file at `path`.
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn file(path: &Path, options: Options) -> Result<Self, OpenError> {
        let (disk, header, is_new) = FileDisk::open(path, &options.file)?;
        Ok(Self::new(Arc::new(disk), header, options, is_new))
    }

    /// Makes a log in memory, which goes with the process.
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn anonymous(options: Options) -> Result<Self, OpenError> {
        let (disk, header) = FileDisk::anonymous(&options.file)?;
        Ok(Self::new(Arc::new(disk), header, options, true))
    }

    /// On any disk that has a header, or is to get one (`None`): for tests and instruments.
    ///
    /// # Errors
    /// Sizes that cannot be.
    pub fn on(disk: Arc<dyn Disk>, header: Option<Header>, options: Options) -> Result<Self, OpenError> {
        let is_new = header.is_none();
        let header = header.map_or_else(|| new_header(&options.file), Ok)?;
        Ok(Self::new(disk, header, options, is_new))
    }

    fn new(disk: Arc<dyn Disk>, header: Header, options: Options, is_new: bool) -> Self {
        Self { disk, header, options, is_new, stop: Arc::default() }
    }

    /// What [`Log::epoch`] will be at least, greater than at any start before; `None` if only reading the whole file
    /// can tell, because both marks of the lives are damaged.
    pub fn epoch_ahead(&self) -> Option<u64> {
        if self.is_new { Some(1) } else { lives::marked(&*self.disk, self.header.seed()) }
    }

    /// Set, it makes [`LogRecovery::recover`] end soon, with [`io::ErrorKind::Interrupted`], if it is still reading.
    pub fn stopper(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// The file's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The file below the log, for readers that do not go through the log.
    pub fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.disk)
    }

    /// Reads what is on the file by `threads` threads, and starts the helpers.
    ///
    /// `found` is called, on this thread, for each record that is whole and that no other ends, in no order; it says
    /// whether the record is live. What it calls dead may come back after the next start, unless its owner ends it.
    ///
    /// # Errors
    /// If the system refuses memory or threads, or the disk refuses to be written to. What is damaged is no error: it
    /// is in [`RecoveryReport`].
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

    /// As [`LogRecovery::recover`] without helpers: [`Log::turn`] does their work, when a test says so.
    ///
    /// # Errors
    /// As [`LogRecovery::recover`].
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
            // What the last process wrote and did not sync may still be lost, from under the tables that come next.
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
    /// Makes a log of a file: [`LogRecovery::file`], then [`LogRecovery::recover`].
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn open(path: &Path, options: Options) -> Result<LogRecovery, OpenError> {
        LogRecovery::file(path, options)
    }

    /// Does what helpers would do, once; only after [`LogRecovery::recover_stepped`].
    pub fn turn(&mut self) {
        self.helpers.turn();
    }

    /// Ends at once and writes nothing more, as a crash would.
    pub fn crash(mut self) {
        self.helpers.abandon();
    }
}
