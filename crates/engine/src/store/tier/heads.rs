//! Newer heads of objects whose bodies stay where they are in the file.
//!
//! ```text
//!   | object: head, body |  ◀─claims─  | head alone, number 1 |  ◀─ended by─ | marker |
//!            ▲                                                      ▲ written after number 2
//!            └──────claims──────────  | head alone, number 2 |  ◀───┘         the directory leads here
//! ```
//! In the log, a head record ends the object's record and claims it. A program that does not know head
//! records, or recovery that finds the head missing, therefore finds no object, and never one with an
//! outdated head. Small bodies are rewritten together with their head, so that one read restores them.

use super::{
    FileObject, FileRecord, FileTier,
    bodies::{Body, HEAD},
    image::ImageHeader,
    layout::{header_of, lengths_of, object_bytes, put},
    parts::tag,
};
use crate::{
    log::NewRecord,
    store::{Hash, index::Slot, object::Object, record::Lengths, shard::Shard},
};

/// Minimum bytes of a body that is not rewritten for a new head. For smaller bodies, the header of a separate
/// record and the second read would cost more.
const BODY_BYTES_MIN: u64 = 16 << 10;
impl FileTier {
    /// Returns whether all records of an object are still in the file.
    pub(super) fn is_there(&self, hash: u64) -> bool {
        let lives = |location| self.reader.segment_of(location).is_some();
        self.known(hash).is_some_and(|kept| lives(kept.location))
            && self.bodies.find(hash).is_none_or(|body| lives(body.location))
    }
}

impl Shard {
    /// Returns the location of an object's head if the head is in a different record than the body
    /// ([`Shard::find_on_file`]); both records must then be read.
    pub fn cold_head(&self, hash: Hash) -> Option<FileRecord> {
        let file = self.file.as_ref()?;
        file.bodies.find(hash.word())?;
        let FileObject { location, payload_bytes, .. } = file.known(hash.word())?;
        Some(FileRecord { location, payload_bytes })
    }

    /// Writes an object's new head to the file, and also its body if that is short or not in the file.
    pub(in crate::store) fn keep_head(&mut self, slot: Slot) {
        if !self.put_head(slot) {
            self.keep(slot);
        }
    }

    /// Appends a head without its body; returns `false` if the whole object must be written instead.
    fn put_head(&mut self, slot: Slot) -> bool {
        if self.warming.is_some() {
            return false;
        }
        let Self { local, file, .. } = self;
        let Some(file) = file else { return false };
        let object = Object { local, slot };
        let Some(kept) = file.known(slot.hash).filter(|_| file.is_there(slot.hash)) else { return false };
        let is_small = object.is_in_parts() || object.body_bytes() < BODY_BYTES_MIN;
        let is_elsewhere = file.large.contains_key(&slot.hash)
            || file.is_outdated(slot.hash)
            || file.copies.iter().any(|copying| copying.hash() == slot.hash());
        if is_small || is_elsewhere {
            return false;
        }
        let own = Body {
            cold: FileRecord { location: kept.location, payload_bytes: kept.payload_bytes },
            number: 0,
        };
        let Body { cold: body, number } = file.bodies.get(slot.hash).unwrap_or(own);
        let Some(number) = number.checked_add(1) else { return false };
        let header =
            ImageHeader { tail_bytes: 0, body_bytes: 0, body_at: Some(body.location), ..header_of(&object) };
        let bytes = object_bytes(Lengths { rest: 0, tail: 0, ..lengths_of(&object) });
        let expires_s = slot.expires_s();
        let (hash, target) = (slot.hash, Some(body.location));
        let new = NewRecord { kind: HEAD, hash, tag: tag(expires_s, number), target };
        let Ok(mut record) = file.writers.begin(new, bytes, expires_s) else { return false };
        record.write(&header.encode());
        for part in [object.key(), object.head(), object.extra()] {
            put(&mut record, part);
        }
        let location = file.writers.finish(record, expires_s);
        file.writers.note(body.location, expires_s);
        if number > 1 {
            file.end_at(hash, kept.location);
            file.reader.died(kept.location, kept.payload_bytes as usize);
        }
        let FileTier { directory, reader, bodies, .. } = &mut **file;
        let lives = |location| reader.segment_of(location).is_some();
        directory.insert(FileObject { hash, location, expires_s, payload_bytes: bytes as u32 }, lives);
        let is_known = |hash| directory.find(hash).is_some_and(|kept| lives(kept.location));
        bodies.insert(hash, Body { cold: body, number }, is_known, reader);
        let tally = &local.store.shards[local.core].tally;
        tally.file_heads.add(1);
        file.count(tally);
        true
    }
}
