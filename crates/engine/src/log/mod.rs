//! A log of records in one file: appended by loops, written by helpers, read by location, recovered after any
//! crash.
//!
//! ```text
//!  loop 0: Writer ─┐  stores into buffers (anonymous memory)    ┌─ helper 0, 1: writes dirty blocks, O_DIRECT
//!  loop 1: Writer ─┤────────────────────────────────────────────┼─ syncer: fdatasync, one for all waiting tasks
//!                  │  segments' states: atomics                 └─ reaper: frees segments without live records
//!  any thread: read(location) ◀── the segment's buffer, if it has one, else the file
//! ```
//! *Memory:* a fixed number of buffers, 40 bytes per segment. *Writer:* a segment has one writer. *Waiting:*
//! helpers wait for the disk; loops never wait. *Bounds:* bytes that wait to be written
//! ([`Options::unwritten_bytes_max`]; beyond it [`AppendRefusal::Busy`]), the file ([`AppendRefusal::Full`]).
//!
//! The log does not interpret its records. A record has a *kind*, a *hash* and a *tag* that its owner
//! defines, and may name another record that it *ends* (replaces, deletes). Only this decides whether a
//! record is dead after a crash: it is dead if an intact record in the file ends it. The ending record must
//! therefore stay in the file as long as the record that it ends. Before the reaper frees a segment, it
//! rewrites those of its deletions whose targets are still in the file (`reap.rs`).
//!
//! The format is in `docs/formats/store.md`, the reasons in `docs/decisions/006-mapped-store.md`.

mod buffers;
pub mod check;
pub mod file;
pub mod format;
mod helpers;
mod lives;
mod location;
mod open;
mod progress;
mod read;
mod reap;
mod recover;
pub mod simulated;
mod table;
mod usage;
mod writer;

use std::sync::{Arc, atomic::Ordering::SeqCst};

use tokio::sync::Notify;

pub use file::{Disk, FileDisk, FileOptions, OpenError};
pub use format::{Header, Kind, Location, record_bytes};
pub use open::{LogRecovery, Options};
pub use progress::{DurabilityError, Progress, Ticket};
pub use read::{Pin, ReadError, Record, is_record, verify};
pub use recover::{FoundRecord, RecoveryReport};
pub use table::SegmentState;
pub use usage::LogUsage;
pub use writer::{AppendRefusal, AppendedRecord, NewRecord, RecordWriter, Writer};

/// Returns the header that a file created with these options would have: its segments and their size.
///
/// # Errors
/// Returns an [`OpenError`] if the sizes are invalid.
pub fn header_of(options: &FileOptions) -> Result<Header, OpenError> {
    file::new_header(options)
}

use buffers::Buffers;
use helpers::{Bell, Helpers};
use table::Table;
use usage::Count;

/// Writer class of the segments in which the reaper stores deletions.
const REAPER_CLASS: u8 = 255;

/// State of a log that all threads share.
#[derive(Debug)]
struct LogState {
    disk: Arc<dyn Disk>,
    /// Seed of every checksum in the log's file.
    seed: u32,
    table: Table,
    buffers: Buffers,
    /// Progress of each writer; the last entry is the reaper's.
    progress: Box<[Arc<Progress>]>,
    count: Count,
    bells: Box<[Bell]>,
    sync_bell: Bell,
    reap_bell: Bell,
    /// Notified when a buffer or a segment becomes free, for callers whose append was refused.
    room: Notify,
    must_sync: bool,
    punch: bool,
    /// Minimum number of free segments; below it the oldest segment is given up, with its live records.
    keep_free: usize,
}

impl LogState {
    fn ask_to_write(&self, writer: usize) {
        if let Some(bell) = self.bells.get(writer % self.bells.len().max(1)) {
            bell.ring();
        }
    }

    /// Ensures that a writer's appends are written to the file within the interval.
    fn appended(&self, writer: usize) {
        // The reaper writes out its own appends, so it needs no helper.
        if writer < self.reaper()
            && let Some(bell) = self.bells.get(writer % self.bells.len().max(1))
        {
            bell.begin_interval();
        }
    }

    fn reaper(&self) -> usize {
        self.progress.len() - 1
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

impl Log {
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
        Reader { shared: Arc::clone(&self.shared) }
    }

    /// Returns a number that is greater than at any earlier start, by at least a thousand.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns current amounts and counters. Reads counters only; may be called on any thread.
    pub fn usage(&self) -> LogUsage {
        LogUsage::of(&self.shared)
    }
}

/// Reader of records by their location. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Reader {
    shared: Arc<LogState>,
}

impl Reader {
    /// Reports that the record at `location`, with `payload_bytes` of payload, is dead. The owner reports
    /// this once: after it has appended the record that ends it ([`NewRecord::target`], [`Writer::delete`]),
    /// or if it does not matter that the record comes back after a crash.
    pub fn died(&self, location: Location, payload_bytes: usize) {
        if self.shared.table.died(location, record_bytes(payload_bytes)) {
            self.shared.reap_bell.ring();
        }
    }

    /// Returns the completely written segments, from the oldest life to the newest, with their live bytes, so
    /// that an owner that needs room can choose a segment to give up.
    pub fn sealed(&self) -> Vec<SealedSegment> {
        let table = &self.shared.table;
        let mut sealed: Vec<SealedSegment> = (0..table.len())
            .filter(|segment| table.segment(*segment).state() == SegmentState::Sealed)
            .filter_map(|segment| {
                let of = table.segment(segment);
                let class = of.class.load(SeqCst) as u8;
                (class != REAPER_CLASS).then(|| SealedSegment {
                    segment,
                    class,
                    life: of.life.load(SeqCst),
                    live_bytes: of.live_bytes(),
                })
            })
            .collect();
        sealed.sort_unstable_by_key(|sealed| sealed.life);
        sealed
    }

    /// Returns the segment of a record, unless that segment has been freed.
    pub fn segment_of(&self, location: Location) -> Option<u32> {
        self.shared.table.living(location)
    }

    /// Waits until a buffer or a segment becomes free, counted from this call. A caller that can wait calls
    /// this before it tries to write, awaits the future if the write is refused ([`AppendRefusal::Busy`],
    /// [`AppendRefusal::Full`]), and then retries; another caller may still take the space first.
    pub fn room(&self) -> impl Future<Output = ()> + '_ {
        self.shared.room.notified()
    }

    /// Returns the number of free segments.
    pub fn free_segments(&self) -> usize {
        self.shared.table.free_count()
    }

    /// Returns the size of a segment in bytes.
    pub fn segment_bytes(&self) -> usize {
        self.shared.table.segment_bytes
    }

    /// Returns current amounts and counters, like [`Log::usage`].
    pub fn usage(&self) -> LogUsage {
        LogUsage::of(&self.shared)
    }
}

/// A segment that is completely written to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedSegment {
    /// Number of the segment.
    pub segment: u32,
    /// Class of the segment's writer.
    pub class: u8,
    /// Life: the number of this use of the segment; later uses have larger numbers.
    pub life: u64,
    /// Bytes of live records.
    pub live_bytes: u64,
}
