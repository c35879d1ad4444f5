//! Transaction record (journal entry) for a consumer that was cut off.

use engine::{cores::clock, journal::Scribe};
use wire::transaction::{self as record, Kind, Tag};

use crate::client::connection::{CloseReason, Connection};

/// Writes the transaction record if a reader is attached to the journal.
pub(crate) fn cut_off(scribe: Option<&Scribe>, connection: &Connection, why: CloseReason, subject: &str) {
    let Some(scribe) = scribe.filter(|scribe| scribe.is_read()) else { return };
    let now = clock::now_system().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let mut out = Vec::with_capacity(256);
    let began_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
    record::begin(Kind::Consumer, scribe.next_id(), 0, began_us, &mut out);
    record::address(Tag::Client, connection.address.ip().to_canonical(), &mut out);
    record::number(Tag::Connection, connection.cid, &mut out);
    let name = connection.told.as_ref().map_or("", |told| &told.name);
    for (tag, text) in [(Tag::Name, name), (Tag::Subject, subject), (Tag::Detail, why.reason())] {
        if !text.is_empty() {
            record::text(tag, text.as_bytes(), &mut out);
        }
    }
    record::number(Tag::BytesPending, connection.outbox.bytes() as u64, &mut out);
    record::number(Tag::BytesOut, connection.outbox.written_bytes(), &mut out);
    record::end(&mut out);
    scribe.write(&[&out]);
}
