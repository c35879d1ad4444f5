//! The newest records of a log, kept within the memory that recovery may use.

use super::Record;
use engine::log::Location;
use std::collections::BinaryHeap;

/// Memory of a record during recovery without its inboxes, and of each of its inboxes without the name.
pub(super) const RECORD_BYTES: usize = 96;
pub(super) const OF_INBOX_BYTES: usize = 160;
/// Bound of the records kept while reading, as a multiple of the index's memory limit. They include records
/// that are dropped later: dead ones, and those for which an inbox has no room.
pub(super) const READ_TIMES_MAX: usize = 2;

/// The newest records with the oldest on top of the heap, and the bytes of memory that they take.
#[derive(Default)]
pub(super) struct NewestRecords {
    pub(super) records: BinaryHeap<ByAge>,
    pub(super) bytes: usize,
    /// Location and payload size of records that were dropped for newer ones.
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
            // The parts of a large mail that is dropped here stay without a mail, and are freed with all such
            // parts.
            while self.bytes > most
                && let Some(ByAge(oldest)) = self.records.pop()
            {
                self.bytes -= oldest.bytes();
                self.older.push((oldest.location, oldest.payload_bytes));
            }
        }
    }
}
