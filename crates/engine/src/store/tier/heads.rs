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
//! *Memory:* the owner's, 40 bytes for each body whose head is elsewhere. *Bounds:* objects in the file;
//! entries whose segments are gone are swept out when the number of entries has doubled.

use std::collections::HashMap;

use super::{
    FileObject, FileRecord, FileTier, Shard,
    image::ImageHeader,
    keep::{header_of, lengths_of, object_bytes, put},
    parts::tag,
};
use crate::{
    log::{Kind, Location, NewRecord, Reader},
    store::{index::Slot, object::Object, record::Lengths},
};

/// Record kind of a head without its body.
pub(super) const HEAD: Kind = Kind(64);
/// Minimum bytes of a body that is not rewritten for a new head. For smaller bodies, the header of a separate
/// record and the second read would cost more.
const BODY_BYTES_MIN: u64 = 16 << 10;
/// Minimum number of bodies for a sweep that removes entries of freed segments.
const SWEEP_AT_MIN: usize = 64;

/// Bodies whose head is in another record, by the hash of the object.
#[derive(Debug)]
pub(super) struct Bodies {
    of: HashMap<u64, Body>,
    sweep_at: usize,
}

#[derive(Debug, Clone, Copy)]
struct Body {
    /// The object's original record, which now serves only as the body.
    cold: FileRecord,
    /// Number of the object's latest head. Heads of one object come from different writers, so the order
    /// cannot be derived from their locations.
    number: u32,
}

impl Bodies {
    pub(super) fn new() -> Self {
        Self { of: HashMap::new(), sweep_at: SWEEP_AT_MIN }
    }

    pub(super) fn find(&self, hash: u64) -> Option<FileRecord> {
        self.of.get(&hash).map(|body| body.cold)
    }

    /// Releases the body record of an object, because no head refers to it any more.
    pub(super) fn release(&mut self, hash: u64, reader: &Reader) {
        if let Some(body) = self.of.remove(&hash) {
            body.cold.died(reader);
        }
    }

    fn insert(&mut self, hash: u64, body: Body, is_known: impl Fn(u64) -> bool, reader: &Reader) {
        self.of.insert(hash, body);
        if self.of.len() >= self.sweep_at {
            let gone = self.of.extract_if(|hash, _| !is_known(*hash));
            gone.for_each(|(_, body)| body.cold.died(reader));
            self.sweep_at = (2 * self.of.len()).max(SWEEP_AT_MIN);
        }
    }
}

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
    pub fn cold_head(&self, hash: crate::store::Hash) -> Option<FileRecord> {
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
        let Body { cold: body, number } = file.bodies.of.get(&slot.hash).copied().unwrap_or(own);
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

/// Heads and bodies found by recovery, collected until they can be matched.
#[derive(Debug, Default)]
pub(super) struct FoundHeads {
    /// The latest head by hash: its location, its number, and the location of its body.
    heads: HashMap<u64, (Location, u32, Location)>,
    bodies: HashMap<Location, (u64, FileRecord)>,
}

impl FoundHeads {
    /// Registers a body record that is claimed by a head.
    pub(super) fn body(&mut self, hash: u64, cold: FileRecord) {
        self.bodies.insert(cold.location, (hash, cold));
    }

    /// Returns whether this head is older than the one already found with the same hash. If not, this head
    /// becomes the latest.
    pub(super) fn is_older(&mut self, hash: u64, location: Location, number: u32, body: Location) -> bool {
        let is_older = self.heads.get(&hash).is_some_and(|(_, other, _)| *other > number);
        if !is_older {
            self.heads.insert(hash, (location, number, body));
        }
        is_older
    }

    /// Returns whether the record at a location is the latest head of this hash.
    pub(super) fn is_head(&self, hash: u64, location: Location) -> bool {
        self.heads.get(&hash).is_some_and(|(of, ..)| *of == location)
    }

    /// Matches heads and bodies once the whole file has been read. Heads that are in the directory
    /// (`is_known`) get their bodies; a head without a body is reported to `lost`.
    pub(super) fn matched(
        self,
        is_known: impl Fn(u64, Location) -> bool,
        mut found: impl FnMut(u64, FileRecord),
        mut lost: impl FnMut(u64),
        reader: &Reader,
    ) -> Bodies {
        let Self { heads, mut bodies } = self;
        let mut matched = Bodies::new();
        for (hash, (_, number, body)) in heads.into_iter().filter(|(hash, head)| is_known(*hash, head.0)) {
            match bodies.remove(&body).filter(|(of, _)| *of == hash) {
                Some((_, cold)) => {
                    found(hash, cold);
                    matched.of.insert(hash, Body { cold, number });
                }
                None => lost(hash),
            }
        }
        bodies.into_values().for_each(|(_, cold)| cold.died(reader));
        matched.sweep_at = (2 * matched.of.len()).max(SWEEP_AT_MIN);
        matched
    }
}
