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

mod bell;
mod buffers;
pub mod check;
mod contents;
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

use std::sync::Arc;

use tokio::sync::Notify;

pub use contents::FoundRecord;
pub use file::{Disk, FileDisk, FileOptions, OpenError};
pub use format::{Header, Kind, Location, record_bytes};
pub use open::{Log, LogRecovery, Options};
pub use progress::{DurabilityError, Progress, Ticket};
pub use read::{Pin, ReadError, Reader, Record, SealedSegment, is_record, verify};
pub use recover::RecoveryReport;
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

use bell::Bell;
use buffers::Buffers;
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
