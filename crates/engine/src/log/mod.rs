//! A log of records on one file: appended by loops, written by helpers, read by location, recovered after anything.
//!
//! ```text
//!  loop 0: Writer ─┐  stores into buffers (ours, anonymous)     ┌─ helper 0, 1: writes dirty blocks, O_DIRECT
//!  loop 1: Writer ─┤────────────────────────────────────────────┼─ syncer: fdatasync, one for all who wait
//!                  │  segments' states: atomics                 └─ reaper: frees segments in which nothing lives
//!  any thread: read(location) ◀── the buffer while it is held, else the file
//! ```
//! *Which memory:* a fixed number of buffers, 40 bytes a segment. *Who writes:* a segment has one writer. *Who waits:*
//! helpers, for the disk; loops never. *Bounds:* bytes that wait to be written ([`Options::unwritten_bytes_max`];
//! beyond it [`AppendRefusal::Busy`]), the file ([`AppendRefusal::Full`]).
//!
//! The log knows nothing of what its records mean. A record has a *kind*, a *hash* and a *tag* of its owner's, and may
//! name another record that it *ends* (replaces, deletes). Whether a record is dead after a crash follows from that
//! alone: some whole record on the file ends it. So the end of a record must be on the file for as long as the record
//! is: the reaper, before it frees a segment, writes the ends in it anew whose records are still on the file
//! (`reap.rs`).
//!
//! The bytes are in `docs/formats/store.md`, the reasons in `docs/decisions/006-mapped-store.md`.

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

/// The header that a file made with these options would have: its segments and their size.
///
/// # Errors
/// Sizes that cannot be.
pub fn header_of(options: &FileOptions) -> Result<Header, OpenError> {
    file::new_header(options)
}

use buffers::Buffers;
use helpers::{Bell, Helpers};
use table::Table;
use usage::Count;

/// The class of the reaper's own segments.
const REAPER_CLASS: u8 = 255;

/// What all threads share.
#[derive(Debug)]
struct LogState {
    disk: Arc<dyn Disk>,
    /// What each checksum of this file begins with.
    seed: u32,
    table: Table,
    buffers: Buffers,
    /// One for each writer; the last is the reaper's.
    progress: Box<[Arc<Progress>]>,
    count: Count,
    bells: Box<[Bell]>,
    sync_bell: Bell,
    reap_bell: Bell,
    /// Rings when a buffer or a segment has become free, for callers that were refused one.
    room: Notify,
    must_sync: bool,
    punch: bool,
    /// Free segments below which the oldest one is given up, whatever lives in it.
    keep_free: usize,
}

impl LogState {
    fn ask_to_write(&self, writer: usize) {
        if let Some(bell) = self.bells.get(writer % self.bells.len().max(1)) {
            bell.ring();
        }
    }

    /// A writer has appended: within the interval it is written.
    fn appended(&self, writer: usize) {
        // What the reaper appends it writes itself.
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

/// A log that is open. Dropped, it writes out what its writers have appended, makes it durable and lets the file go;
/// the writers should be gone by then, because what they append later is lost.
#[derive(Debug)]
pub struct Log {
    shared: Arc<LogState>,
    helpers: Helpers,
    epoch: u64,
}

impl Log {
    /// The way into the log for one thread. There are as many as [`Options::writers`] says, and each is taken once.
    ///
    /// # Panics
    /// If there is no writer of that number.
    pub fn writer(&self, number: usize, class: u8) -> Writer {
        assert!(number < self.shared.reaper(), "writer {number} of {}", self.shared.reaper());
        assert!(class != REAPER_CLASS, "class {class} is the log's own");
        Writer::for_owner(Arc::clone(&self.shared), number, class)
    }

    /// A handle to read with, and to say what died: for any thread.
    pub fn reader(&self) -> Reader {
        Reader { shared: Arc::clone(&self.shared) }
    }

    /// A number that is greater than at any start before, by a thousand at least.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// What is in the log and what was done. Reads counters; for any thread.
    pub fn usage(&self) -> LogUsage {
        LogUsage::of(&self.shared)
    }
}

/// Reads records by their location. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Reader {
    shared: Arc<LogState>,
}

impl Reader {
    /// The record at `location`, with a payload of so many bytes, is live no more. Its owner says so once, and after
    /// what ends it was appended ([`NewRecord::target`], [`Writer::delete`]) or where it need not stay dead over a crash.
    pub fn died(&self, location: Location, payload_bytes: usize) {
        if self.shared.table.died(location, record_bytes(payload_bytes)) {
            self.shared.reap_bell.ring();
        }
    }

    /// Segments in which everything is written, from the oldest life to the youngest, with their live bytes: what an
    /// owner that needs room chooses from.
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

    /// The segment in which a record lies, while it does.
    pub fn segment_of(&self, location: Location) -> Option<u32> {
        self.shared.table.living(location)
    }

    /// Waits until a buffer or a segment becomes free, from this call on. A caller that can wait calls this before it
    /// tries to write, and tries again when this returns ([`AppendRefusal::Busy`], [`AppendRefusal::Full`]); another caller may
    /// have been faster.
    pub fn room(&self) -> impl Future<Output = ()> + '_ {
        self.shared.room.notified()
    }

    /// Segments that are free.
    pub fn free_segments(&self) -> usize {
        self.shared.table.free_count()
    }

    /// Bytes of a segment.
    pub fn segment_bytes(&self) -> usize {
        self.shared.table.segment_bytes
    }

    /// See [`Log::usage`].
    pub fn usage(&self) -> LogUsage {
        LogUsage::of(&self.shared)
    }
}

/// A segment that is whole on the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedSegment {
    /// Its number.
    pub segment: u32,
    /// The class of its writer.
    pub class: u8,
    /// Which use of the segment this is; lives grow.
    pub life: u64,
    /// Bytes of records that are live.
    pub live_bytes: u64,
}
