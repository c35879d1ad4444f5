//! The newest records of a log, kept within the memory that recovery may use.

use std::collections::BinaryHeap;
use std::sync::Arc;

use engine::log::Location;

use crate::{
    mailbox::mailboxes::{Inbox, MailId},
    store::{
        index::NewEntry,
        record::{self, Part},
    },
};

/// A record with its entries, one for each of its inboxes.
pub(crate) struct Record {
    pub(crate) location: Location,
    pub(crate) payload_bytes: u32,
    /// Size of the body, if it is in another record.
    pub(crate) body_bytes: u32,
    /// Parts of a large mail.
    pub(crate) parts: Arc<[Part]>,
    pub(super) entries: Vec<(NewEntry, Inbox)>,
}

impl Record {
    pub(super) fn of(stored: &record::StoredMeta<'_>, location: Location, payload_bytes: u32) -> Self {
        let parts: Arc<[Part]> = stored.parts.as_slice().into();
        let body_bytes = stored.body.map_or(0, |body| body.bytes);
        let entries = entries(stored, location, payload_bytes, &parts);
        Self { location, payload_bytes, body_bytes, parts, entries }
    }

    /// Sort key of mails: time of arrival, then ID.
    pub(crate) fn arrival(&self) -> (u64, MailId) {
        self.entries.first().map_or((0, MailId(0)), |(entry, _)| (entry.arrived_ms, entry.id))
    }

    /// Bytes of memory of the record during recovery.
    pub(super) fn bytes(&self) -> usize {
        let names = |(_, inbox): &(NewEntry, Inbox)| OF_INBOX_BYTES + inbox.local.len() + inbox.domain.len();
        RECORD_BYTES + self.parts.len() * size_of::<Part>() + self.entries.iter().map(names).sum::<usize>()
    }

    /// Sets a new location, with a payload that now includes the body.
    pub(crate) fn moved_to(&mut self, location: Location, payload_bytes: u32) {
        (self.location, self.payload_bytes, self.body_bytes) = (location, payload_bytes, 0);
        for (entry, _) in &mut self.entries {
            (entry.location, entry.record_bytes) = (location.bits(), payload_bytes);
        }
    }
}

/// Memory of a record during recovery without its inboxes, and memory of each of its inboxes without the
/// name.
pub(super) const RECORD_BYTES: usize = 96;
pub(super) const OF_INBOX_BYTES: usize = 160;
/// Memory limit of the records kept while reading, as a multiple of the index's memory limit. Some of these
/// records are dropped later: dead ones, and those for which an inbox has no room.
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
            // The parts of a large mail that is dropped here are freed later, together with all other parts
            // that belong to no mail.
            while self.bytes > most
                && let Some(ByAge(oldest)) = self.records.pop()
            {
                self.bytes -= oldest.bytes();
                self.older.push((oldest.location, oldest.payload_bytes));
            }
        }
    }
}

fn entries(
    stored: &record::StoredMeta<'_>,
    location: Location,
    payload_bytes: u32,
    parts: &Arc<[Part]>,
) -> Vec<(NewEntry, Inbox)> {
    let named: Vec<_> = stored.recipients.iter().filter(|recipient| recipient.0.0 != 0).collect();
    let letter = named.first().map_or(MailId(0), |first| first.0);
    let entry = |&&(id, local, domain, _): &&(MailId, &str, &str, &str)| {
        let inbox = Inbox { local: local.into(), domain: domain.into() };
        let entry = NewEntry {
            id,
            letter,
            inboxes: u16::try_from(named.len()).unwrap_or(u16::MAX),
            location: location.bits(),
            record_bytes: payload_bytes,
            mail_bytes: payload_bytes - u32::try_from(stored.meta_bytes).unwrap_or(0)
                + stored.elsewhere_bytes(),
            arrived_ms: stored.arrived_ms,
            parts: (!parts.is_empty()).then(|| Arc::clone(parts)),
        };
        (entry, inbox)
    };
    named.iter().map(entry).collect()
}
