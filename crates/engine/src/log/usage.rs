//! Counters of a log.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{LogState, SegmentState};
use crate::meter::{
    Figure,
    Unit::{Bytes, None},
    counter, gauge,
};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Debug, Default)]
        pub(super) struct Count {
            $(pub(super) $name: AtomicU64,)*
        }

        /// A log's current amounts, and its counters since it was opened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct LogUsage {
            $($(#[$doc])* pub $name: u64,)*
            /// Total size of all segments in bytes.
            pub capacity_bytes: u64,
            /// Bytes of live records.
            pub live_bytes: u64,
            /// Segments that may be claimed.
            pub segments_free: u64,
            /// Segments being filled or written.
            pub segments_open: u64,
            /// Segments that are completely written to the file.
            pub segments_sealed: u64,
            /// Segments about to be freed.
            pub segments_dying: u64,
            /// Segments not used because their start is damaged.
            pub segments_damaged: u64,
            /// Segments that readers have pinned.
            pub segments_pinned: u64,
            /// Total size of pinned segments in bytes.
            pub pinned_bytes: u64,
            /// Bytes of changed blocks that are not in the file yet.
            pub dirty_bytes: u64,
            /// Buffers in use: being filled or written.
            pub buffers_taken: u64,
            /// Total number of buffers.
            pub buffers: u64,
            /// Records that are appended and not written yet.
            pub records_waiting: u64,
        }

        impl LogUsage {
            fn counted(count: &Count) -> Self {
                Self { $($name: count.$name.load(Relaxed),)* ..Self::default() }
            }
        }
    };
}

counts! {
    /// Appends refused because all buffers waited to be written.
    refused_busy,
    /// Appends refused because no segment was free in the file.
    refused_full,
    /// Appends refused because the record would not fit into a segment.
    refused_too_large,
    /// Bytes written to the file, including blocks that were written again.
    written_bytes,
    /// Writes by helpers.
    writes,
    /// Writes that failed with a disk error.
    write_errors,
    /// Number of times that the file was synced.
    syncs,
    /// Syncs that failed with a disk error.
    sync_errors,
    /// Reads that failed with a disk error.
    read_errors,
    /// Records that were damaged when read.
    damaged_records,
    /// Number of times that a segment was freed.
    frees,
    /// Segments given up with their live records, because they were the oldest.
    given_up,
    /// Segments given up because all their records had expired.
    given_up_over,
    /// Deletions rewritten because the record that they delete was still in the file.
    ends_carried,
}

impl LogUsage {
    pub(super) fn of(shared: &LogState) -> Self {
        let mut usage = Self::counted(&shared.count);
        let table = &shared.table;
        for segment in (0..table.len()).map(|segment| table.segment(segment)) {
            match segment.state() {
                SegmentState::Free => usage.segments_free += 1,
                SegmentState::Open | SegmentState::Claimed => usage.segments_open += 1,
                SegmentState::Sealed => usage.segments_sealed += 1,
                SegmentState::Dying => usage.segments_dying += 1,
                SegmentState::Damaged => usage.segments_damaged += 1,
            }
            usage.live_bytes += segment.live_bytes();
            usage.segments_pinned += u64::from(segment.pins.load(Relaxed) > 0);
        }
        usage.pinned_bytes = usage.segments_pinned * table.segment_bytes as u64;
        usage.dirty_bytes = shared.buffers.dirty_bytes();
        usage.capacity_bytes = u64::from(table.len()) * table.segment_bytes as u64;
        usage.buffers = shared.buffers.len() as u64;
        usage.buffers_taken = shared.buffers.taken() as u64;
        usage.records_waiting = shared.progress.iter().map(|progress| progress.waiting()).sum();
        usage
    }
}

pub(super) const SAID: &[Figure<LogUsage>] = &[
    gauge("store_log_capacity_bytes", "Size of the store's file: bytes of all segments.", Bytes, |usage| {
        usage.capacity_bytes
    }),
    gauge("store_log_live_bytes", "Bytes of live records on the file.", Bytes, |usage| usage.live_bytes),
    gauge("store_log_segments_free", "Free segments of the file.", None, |usage| usage.segments_free),
    gauge("store_log_segments_open", "Segments of the file being filled or written.", None, |usage| {
        usage.segments_open
    }),
    gauge("store_log_segments_sealed", "Complete segments of the file.", None, |usage| usage.segments_sealed),
    gauge("store_log_segments_dying", "Segments of the file about to be freed.", None, |usage| {
        usage.segments_dying
    }),
    gauge(
        "store_log_segments_damaged",
        "Segments of the file taken out of use because they are damaged or unreadable.",
        None,
        |usage| usage.segments_damaged,
    ),
    gauge("store_log_segments_pinned", "Segments of the file that are being sent from.", None, |usage| {
        usage.segments_pinned
    }),
    gauge(
        "store_log_pinned_bytes",
        "Bytes of segments of the file that are being sent from.",
        Bytes,
        |usage| usage.pinned_bytes,
    ),
    gauge("store_log_dirty_bytes", "Bytes of changed blocks not yet written to the file.", Bytes, |usage| {
        usage.dirty_bytes
    }),
    gauge("store_log_buffers", "Buffers for records not yet written.", None, |usage| usage.buffers),
    gauge("store_log_buffers_taken", "Buffers in use for records not yet written.", None, |usage| {
        usage.buffers_taken
    }),
    gauge("store_log_records_waiting", "Records waiting to be written.", None, |usage| usage.records_waiting),
    counter(
        "store_log_refused_busy",
        "Records refused because all buffers were waiting to be written.",
        None,
        |usage| usage.refused_busy,
    ),
    counter("store_log_refused_full", "Records refused because no segment was free.", None, |usage| {
        usage.refused_full
    }),
    counter("store_log_written_bytes", "Bytes written to the file.", Bytes, |usage| usage.written_bytes),
    counter("store_log_writes", "Writes to the file by helpers.", None, |usage| usage.writes),
    counter("store_log_write_errors", "Failed writes to the file.", None, |usage| usage.write_errors),
    counter("store_log_syncs", "Syncs of the file.", None, |usage| usage.syncs),
    counter("store_log_sync_errors", "Failed syncs of the file.", None, |usage| usage.sync_errors),
    counter("store_log_frees", "Segments freed.", None, |usage| usage.frees),
    counter("store_log_given_up", "Oldest segments freed together with their live records.", None, |usage| {
        usage.given_up
    }),
    counter(
        "store_log_given_up_over",
        "Segments freed because all of their records had expired.",
        None,
        |usage| usage.given_up_over,
    ),
    counter(
        "store_log_ends_carried",
        "Ends of records written again because the record was still on the file.",
        None,
        |usage| usage.ends_carried,
    ),
];
