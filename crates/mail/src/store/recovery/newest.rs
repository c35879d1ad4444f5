//! The newest records of a log, kept within the memory that recovery may use.

use super::Record;
use engine::log::Location;
use std::collections::BinaryHeap;

/// Bytes of memory of a record during recovery, without names of inboxes; and bytes of each of its inboxes beside the
/// name.
pub(super) const RECORD_BYTES: usize = 96;
pub(super) const OF_INBOX_BYTES: usize = 160;
/// Records that are read may take this many times the index's memory. Among them are dead records, and records that
/// their inboxes have no room for.
pub(super) const READ_TIMES_MAX: usize = 2;

/// The newest records with the oldest on top of the heap, and the bytes of memory that they take.
#[derive(Default)]
pub(super) struct NewestRecords {
    pub(super) records: BinaryHeap<ByAge>,
    pub(super) bytes: usize,
    /// Records that were dropped for newer ones: location and payload bytes.
    pub(super) older: Vec<(Location, u32)>,
}

/// Orders records by arrival: the oldest is the greatest.
pub(super) struct ByAge(pub(super) Record);

impl PartialEq for ByAge {
    fn eq(&self, other: &Self) -> bool {
        self.0.arrival() == other.0.arrival()
    }
}

impl Eq for ByAge {}

impl PartialOrd for ByAge {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByAge {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.0.arrival().cmp(&self.0.arrival())
    }
}

impl NewestRecords {
    pub(super) fn take(&mut self, records: impl Iterator<Item = Record>, most: usize) {
        for record in records {
            self.bytes += record.bytes();
            self.records.push(ByAge(record));
            // The parts of a large mail that is dropped here belong to no mail in the end, and are freed with those.
            while self.bytes > most
                && let Some(ByAge(oldest)) = self.records.pop()
            {
                self.bytes -= oldest.bytes();
                self.older.push((oldest.location, oldest.payload_bytes));
            }
        }
    }
}
