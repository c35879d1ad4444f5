//! What a log counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{SegmentState, Shared};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[derive(Debug, Default)]
        pub(super) struct Count {
            $(pub(super) $name: AtomicU64,)*
        }

        /// A log's gauges as of now and its counters since it was opened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct LogUsage {
            $($(#[$doc])* pub $name: u64,)*
            /// Bytes of all segments.
            pub capacity_bytes: u64,
            /// Bytes of records that are live.
            pub live_bytes: u64,
            /// Segments that may be claimed.
            pub segments_free: u64,
            /// Segments being filled or written.
            pub segments_open: u64,
            /// Segments whole on the file.
            pub segments_sealed: u64,
            /// Segments about to be freed.
            pub segments_dying: u64,
            /// Segments set aside because their start is damaged.
            pub segments_damaged: u64,
            /// Segments that somebody pins.
            pub segments_pinned: u64,
            /// Buffers that are being filled or written.
            pub buffers_taken: u64,
            /// All buffers.
            pub buffers: u64,
            /// Records appended and not yet written.
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
    /// Appends refused because no segment was free.
    refused_full,
    /// Appends refused because they were longer than a segment.
    refused_too_large,
    /// Bytes written to the file, blocks that were written again included.
    written_bytes,
    /// Times that a helper wrote something.
    writes,
    /// Writes that the disk refused.
    write_errors,
    /// Times that the file was synced.
    syncs,
    /// Syncs that the disk failed.
    sync_errors,
    /// Reads that the disk failed.
    read_errors,
    /// Records that were found damaged when read.
    damaged_records,
    /// Segments freed.
    frees,
    /// Segments given up with what lived in them, because they were the oldest.
    given_up,
    /// Ends of records written anew because the record was still on the file.
    ends_carried,
}

impl LogUsage {
    pub(super) fn of(shared: &Shared) -> Self {
        let mut usage = Self::counted(&shared.count);
        let table = &shared.table;
        for segment in (0..table.len()).map(|segment| table.segment(segment)) {
            match segment.state() {
                SegmentState::Free => usage.segments_free += 1,
                SegmentState::Open => usage.segments_open += 1,
                SegmentState::Sealed => usage.segments_sealed += 1,
                SegmentState::Dying => usage.segments_dying += 1,
                SegmentState::Damaged => usage.segments_damaged += 1,
            }
            usage.live_bytes += segment.live_bytes();
            usage.segments_pinned += u64::from(segment.pins.load(Relaxed) > 0);
        }
        usage.capacity_bytes = u64::from(table.len()) * table.segment_bytes as u64;
        usage.buffers = shared.buffers.len() as u64;
        usage.buffers_taken = shared.buffers.taken() as u64;
        usage.records_waiting = shared.progress.iter().map(|progress| progress.waiting()).sum();
        usage
    }
}
