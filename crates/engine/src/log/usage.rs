//! What a log counts.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Reader, SegmentState, Shared};
use crate::meter::{Family, Labels, Point, Source, Unit, Value};

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
            /// Bytes of these segments.
            pub pinned_bytes: u64,
            /// Bytes of blocks that have changed and are not yet on the file.
            pub dirty_bytes: u64,
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
    /// Segments given up because nothing in them was good any more.
    given_up_over,
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
        usage.pinned_bytes = usage.segments_pinned * table.segment_bytes as u64;
        usage.dirty_bytes = shared.buffers.dirty_bytes();
        usage.capacity_bytes = u64::from(table.len()) * table.segment_bytes as u64;
        usage.buffers = shared.buffers.len() as u64;
        usage.buffers_taken = shared.buffers.taken() as u64;
        usage.records_waiting = shared.progress.iter().map(|progress| progress.waiting()).sum();
        usage
    }
}

impl Source for Reader {
    fn collect(&self, families: &mut Vec<Family>) {
        use Unit::{Bytes, None};
        let usage = self.usage();
        let gauge = |value: u64| Value::Gauge(value as f64);
        let said = [
            (
                "store_log_capacity_bytes",
                "Bytes of all segments of the file.",
                Bytes,
                gauge(usage.capacity_bytes),
            ),
            (
                "store_log_live_bytes",
                "Bytes of records on the file that are live.",
                Bytes,
                gauge(usage.live_bytes),
            ),
            (
                "store_log_segments_free",
                "Segments of the file that are free.",
                None,
                gauge(usage.segments_free),
            ),
            (
                "store_log_segments_open",
                "Segments being filled or written.",
                None,
                gauge(usage.segments_open),
            ),
            ("store_log_segments_sealed", "Segments whole on the file.", None, gauge(usage.segments_sealed)),
            ("store_log_segments_dying", "Segments about to be freed.", None, gauge(usage.segments_dying)),
            (
                "store_log_segments_damaged",
                "Segments set aside because their start is damaged.",
                None,
                gauge(usage.segments_damaged),
            ),
            (
                "store_log_segments_pinned",
                "Segments that are being sent from.",
                None,
                gauge(usage.segments_pinned),
            ),
            (
                "store_log_pinned_bytes",
                "Bytes of segments of the file that are being sent from.",
                Bytes,
                gauge(usage.pinned_bytes),
            ),
            (
                "store_log_dirty_bytes",
                "Bytes of blocks that have changed and are not yet on the file.",
                Bytes,
                gauge(usage.dirty_bytes),
            ),
            ("store_log_buffers", "Buffers for what is not yet written.", None, gauge(usage.buffers)),
            ("store_log_buffers_taken", "Of these, in use.", None, gauge(usage.buffers_taken)),
            (
                "store_log_records_waiting",
                "Records that wait to be written.",
                None,
                gauge(usage.records_waiting),
            ),
            (
                "store_log_refused_busy",
                "Records refused because all buffers waited to be written.",
                None,
                Value::Counter(usage.refused_busy),
            ),
            (
                "store_log_refused_full",
                "Records refused because no segment was free.",
                None,
                Value::Counter(usage.refused_full),
            ),
            (
                "store_log_written_bytes",
                "Bytes written to the file.",
                Bytes,
                Value::Counter(usage.written_bytes),
            ),
            ("store_log_writes", "Times that a helper wrote.", None, Value::Counter(usage.writes)),
            (
                "store_log_write_errors",
                "Writes that the disk refused.",
                None,
                Value::Counter(usage.write_errors),
            ),
            ("store_log_syncs", "Times that the file was synced.", None, Value::Counter(usage.syncs)),
            ("store_log_sync_errors", "Syncs that the disk failed.", None, Value::Counter(usage.sync_errors)),
            ("store_log_frees", "Segments freed.", None, Value::Counter(usage.frees)),
            (
                "store_log_given_up",
                "Segments given up with what lived in them, because they were the oldest.",
                None,
                Value::Counter(usage.given_up),
            ),
            (
                "store_log_given_up_over",
                "Segments given up because the time of everything in them was over.",
                None,
                Value::Counter(usage.given_up_over),
            ),
            (
                "store_log_ends_carried",
                "Ends of records written anew because the record was still on the file.",
                None,
                Value::Counter(usage.ends_carried),
            ),
        ];
        families.extend(said.into_iter().map(|(name, help, unit, value)| Family {
            name,
            help,
            unit,
            points: vec![Point { labels: Labels::default(), value }],
        }));
    }
}
