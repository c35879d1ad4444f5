//! Objects that are stored in the file in parts: writing the parts, and keeping track of them.
//!
//! ```text
//!  larger than a segment, in memory ── copying.rs, one part per step ─┐
//!                                                                     ├─▶ parts ─▶ list ─▶ directory, parts by object
//!  too large for memory ── begin_large, append_part, as it arrives ───┘
//!                          ─▶ finish_large: its list in memory, as an object
//! ```
//! The parts die with their list: removing the list from the directory releases them.

use std::time::Duration;

use super::{
    FileObject, FileTier, OBJECT, Tally,
    copying::{CopyProgress, CopyTarget, Step},
    file_record::NewObjectRecord,
    image::ImageHeader,
    keep::COPIES_MAX,
    layout::{header_of, lengths_of, object_bytes, put},
    parts::{
        OwnedParts, PART_BODY_BYTES_MAX, PART_HEADER_BYTES, PartsWriter, SWEEP_AT_MIN, list_bytes, mark_of,
        tag,
    },
};
use crate::{
    log::{AppendRefusal, Location, NewRecord, RecordWriter},
    store::{
        BodyLength, Hash, NewObject,
        index::Slot,
        link::FileCopy,
        object::Object,
        record::{Lengths, META_WORDS, UNIT},
        shard::Shard,
    },
};

/// Maximum number of times a clean shutdown waits for the disk to accept large objects that are being copied.
const END_WAITS_MAX: usize = 5000;
/// Duration of each wait for the disk at a clean shutdown.
const END_WAIT: Duration = Duration::from_millis(1);

/// Writer of an object that goes to the file part by part as it arrives, because it is too large for memory.
/// Dropping the writer abandons the object.
#[derive(Debug)]
pub struct LargeObjectWriter {
    hash: Hash,
    key: Box<[u8]>,
    head: Box<[u8]>,
    extra: Box<[u8]>,
    meta: [u64; META_WORDS],
    expires_s: u32,
    now_s: u32,
    body_bytes: u64,
    parts: PartsWriter,
}

impl LargeObjectWriter {
    /// Returns the length of the whole body in bytes.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Returns the length of the next part in bytes; 0 if all parts are written.
    pub fn next_bytes(&self) -> usize {
        self.parts.next_bytes()
    }
}

impl FileTier {
    /// Appends an object's record, replacing the one with the same hash. If refused, the file is unchanged.
    pub(super) fn append_object(
        &mut self,
        tally: &Tally,
        new: NewObjectRecord,
        write: impl FnOnce(&mut RecordWriter),
    ) -> Result<Location, AppendRefusal> {
        let NewObjectRecord { hash, expires_s, mark, payload_bytes: bytes } = new;
        let hash = hash.word();
        let target = self.target(hash);
        let new = NewRecord { kind: OBJECT, hash, tag: tag(expires_s, mark), target };
        let mut filling = self.writers.begin(new, bytes, expires_s)?;
        write(&mut filling);
        debug_assert_eq!(filling.len(), bytes);
        let location = self.writers.finish(filling, expires_s);
        self.enter(tally, FileObject { hash, location, expires_s, payload_bytes: bytes as u32 }, mark);
        Ok(location)
    }

    /// Appends an object from memory, with a list of parts in place of its body.
    fn append_list(
        &mut self,
        tally: &Tally,
        object: &Object<'_>,
        id: u64,
        list: &[u8],
    ) -> Result<Location, AppendRefusal> {
        let header = ImageHeader { body_bytes: list.len() as u64, in_parts: true, ..header_of(object) };
        let new = NewObjectRecord {
            hash: object.slot.hash(),
            expires_s: object.expires_s(),
            mark: mark_of(id),
            payload_bytes: object_bytes(Lengths { rest: list.len(), ..lengths_of(object) }),
        };
        self.append_object(tally, new, |record| {
            record.write(&header.encode());
            put(record, object.key());
            put(record, object.head());
            put(record, object.extra());
            record.write(list);
            put(record, object.tail());
        })
    }

    /// Completes an object whose body has been copied. Returns the copy as the error if there is no room for
    /// the list of parts now.
    pub(super) fn finish_copy(
        &mut self,
        tally: &Tally,
        copying: CopyProgress,
    ) -> Result<(), Box<CopyProgress>> {
        let (hash, expires_s) = (copying.hash(), copying.object().expires_s());
        if let Some(parts) = copying.parts() {
            let appended = self.append_list(tally, &copying.object().object(), parts.id(), &parts.list());
            if appended.is_err() {
                return Err(Box::new(copying));
            }
        }
        match copying.into_to() {
            CopyTarget::Parts(parts) => self.own(tally, hash.word(), parts.into_owned()),
            CopyTarget::Record(filling) => {
                let payload_bytes = filling.len() as u32;
                let location = self.writers.finish(filling, expires_s);
                self.enter(tally, FileObject { hash: hash.word(), location, expires_s, payload_bytes }, 0);
            }
        }
        self.count(tally);
        Ok(())
    }

    /// Completes pending copies at a clean shutdown, for as long as the disk accepts them.
    #[expect(clippy::disallowed_methods, reason = "the loop has ended, and nobody waits for it but the end")]
    pub(super) fn copy_the_rest(&mut self) {
        let mut waits_left = END_WAITS_MAX;
        // A throwaway tally, because the counters are not read any more during shutdown.
        let tally = Tally::default();
        while let Some(mut copying) = self.copies.pop_front() {
            let unfinished = match copying.step(&mut self.writers, usize::MAX) {
                Step::Whole => self.finish_copy(&tally, copying).err().map(|copying| *copying),
                Step::More => {
                    self.copies.push_front(copying);
                    continue;
                }
                Step::Later => Some(copying),
                Step::GivenUp => None,
            };
            if let Some(copying) = unfinished
                && waits_left > 0
            {
                waits_left -= 1;
                self.copies.push_front(copying);
                self.writers.flush();
                std::thread::sleep(END_WAIT);
            }
        }
    }

    /// Records which parts belong to the object that was just entered into the directory.
    pub(super) fn own(&mut self, tally: &Tally, hash: u64, owned: OwnedParts) {
        tally.file_parts.add(owned.len() as u64);
        if let Some(old) = self.large.insert(hash, owned) {
            old.died(&self.reader);
        }
        if self.large.len() >= self.sweep_at {
            self.sweep();
        }
    }

    /// Releases the parts of an object that is no longer in the file.
    pub(super) fn release_parts(&mut self, hash: u64) {
        if let Some(owned) = self.large.remove(&hash) {
            owned.died(&self.reader);
        }
    }

    /// Returns whether a segment with a part of the object has been given up.
    pub(super) fn has_lost_parts(&self, hash: u64) -> bool {
        self.large.get(&hash).is_some_and(|owned| !owned.are_there(&self.reader))
    }

    /// Releases the parts of objects whose list is gone with its segment and that have not been requested
    /// since.
    fn sweep(&mut self) {
        let Self { large, directory, reader, .. } = self;
        let is_gone = |hash: &u64, _: &mut OwnedParts| {
            directory.find(*hash).is_none_or(|kept| reader.segment_of(kept.location).is_none())
        };
        let gone: Vec<(u64, OwnedParts)> = large.extract_if(is_gone).collect();
        gone.into_iter().for_each(|(_, owned)| owned.died(reader));
        self.sweep_at = (2 * self.large.len()).max(SWEEP_AT_MIN);
    }
}

impl Shard {
    /// Plans how a body is split into parts; `None` if the file or memory is too small for the body or its
    /// list.
    pub(super) fn plan_parts(
        &self,
        hash: Hash,
        id: u64,
        names: Lengths,
        body_bytes: u64,
    ) -> Option<PartsWriter> {
        let file = self.file.as_ref()?;
        let payload_bytes_max = file.writers.payload_bytes_max();
        let part_bytes = PART_BODY_BYTES_MAX.min(payload_bytes_max - PART_HEADER_BYTES);
        let rest = list_bytes(body_bytes, part_bytes)?;
        // The list of parts must fit into one record in memory and one in the file.
        let lengths = Lengths { rest, ..names };
        let memory = lengths.units()? as usize * UNIT;
        let fits = body_bytes > 0
            && body_bytes <= file.body_bytes_max
            && memory <= self.local.store.geometry.record_bytes_max
            && object_bytes(lengths) <= payload_bytes_max;
        fits.then(|| PartsWriter::new(hash.word(), id, body_bytes, part_bytes, file.reader.clone()))
    }

    /// Starts copying an object in memory that is longer than a segment. If its parts are already on the
    /// file, only the list is written, with the new expiry.
    pub(super) fn put_in_parts(&mut self, slot: Slot) -> Result<(), AppendRefusal> {
        let object = Object { local: &self.local, slot };
        let (hash, id) = (slot.hash(), object.sequence());
        let parts = self
            .plan_parts(hash, id, lengths_of(&object), object.body_bytes())
            .ok_or(AppendRefusal::TooLarge)?;
        let Self { local, file, .. } = self;
        let Some(file) = file else { return Ok(()) };
        let tally = &local.store.shards[local.core].tally;
        let object = Object { local, slot };
        let is_there =
            file.known(slot.hash).is_some_and(|kept| file.reader.segment_of(kept.location).is_some());
        if is_there
            && let Some(owned) = file.large.get(&slot.hash).filter(|owned| owned.mark == mark_of(id))
            && let Some(list) = owned.list(slot.hash, id, object.body_bytes())
        {
            file.append_list(tally, &object, id, &list)?;
            return Ok(());
        }
        file.copies.retain(|copying| copying.hash() != hash);
        // The copy takes several steps, during which the older object in the file would be outdated.
        file.end(hash);
        if file.copies.len() >= COPIES_MAX {
            return Err(AppendRefusal::Busy);
        }
        let pinned = object.pin().ok_or(AppendRefusal::Busy)?;
        file.copies.push_back(CopyProgress::new(pinned, hash, CopyTarget::Parts(parts)));
        file.settle(slot.hash);
        file.count(tally);
        Ok(())
    }

    /// Begins an object that is too large for memory but may fit in the file. `None` if there is no file, the
    /// file is still being read, or the object is not accepted there (larger than the allowed fraction of the
    /// file, length unknown, not requested before).
    pub fn begin_large(&mut self, object: &NewObject<'_>) -> Option<LargeObjectWriter> {
        let BodyLength::Exact(body_bytes) = object.body else { return None };
        if self.is_warming() || self.file.is_none() {
            return None;
        }
        let id = self.sequence + 1;
        let Some(parts) = self.plan_parts(object.hash, id, object.names(), body_bytes) else {
            self.tally().file_too_large.add(1);
            return None;
        };
        if !self.is_admitted(object.hash) {
            return None;
        }
        self.sequence = id;
        Some(LargeObjectWriter {
            hash: object.hash,
            key: object.key.into(),
            head: object.head.into(),
            extra: object.extra.into(),
            meta: object.meta,
            expires_s: object.expires_s,
            now_s: object.now_s,
            body_bytes,
            parts,
        })
    }

    /// Appends the next part, which must have [`LargeObjectWriter::next_bytes`] bytes.
    ///
    /// # Errors
    /// [`AppendRefusal`] if the log cannot take the part now; the writer is unchanged.
    ///
    /// # Panics
    /// Panics if the part has another length.
    pub fn append_part(&mut self, filling: &mut LargeObjectWriter, body: &[u8]) -> Result<(), AppendRefusal> {
        let Some(file) = &mut self.file else { return Err(AppendRefusal::Full) };
        filling.parts.append(&mut file.writers, filling.expires_s, |part| {
            part.write(body);
        })
    }

    /// Stores the object, replacing an older one, once all parts have been appended.
    ///
    /// # Errors
    /// [`AppendRefusal`] if the log cannot take the list now; the writer is unchanged.
    ///
    /// # Panics
    /// Panics if parts are missing.
    pub fn finish_large(&mut self, filling: &mut Option<LargeObjectWriter>) -> Result<(), AppendRefusal> {
        let Self { local, file, .. } = self;
        let tally = &local.store.shards[local.core].tally;
        let (Some(file), Some(large)) = (file, filling.as_ref()) else { return Err(AppendRefusal::Full) };
        let LargeObjectWriter {
            hash,
            ref key,
            ref head,
            ref extra,
            meta,
            expires_s,
            now_s,
            body_bytes,
            ref parts,
        } = *large;
        assert!(parts.written() == body_bytes, "an object is whole when all its parts are written");
        let (id, list) = (parts.id(), parts.list());
        let header = ImageHeader {
            key_bytes: key.len() as u32,
            head_bytes: head.len() as u32,
            extra_bytes: extra.len() as u32,
            tail_bytes: 0,
            body_bytes: list.len() as u64,
            sequence: id,
            expires_s,
            in_parts: true,
            body_at: None,
            meta,
        };
        let (key_bytes, head_bytes, extra_bytes) = (key.len(), head.len(), extra.len());
        let lengths =
            Lengths { key: key_bytes, head: head_bytes, extra: extra_bytes, rest: list.len(), tail: 0 };
        let payload_bytes = object_bytes(lengths);
        let new = NewObjectRecord { hash, expires_s, mark: mark_of(id), payload_bytes };
        let location = file.append_object(tally, new, |record| {
            for part in [&header.encode()[..], key, head, extra, &list] {
                record.write(part);
            }
        })?;
        file.copies.retain(|copying| copying.hash() != hash);
        if let Some(LargeObjectWriter { key, head, extra, parts, .. }) = filling.take() {
            file.own(tally, hash.word(), parts.into_owned());
            file.count(tally);
            let body = BodyLength::Exact(list.len() as u64);
            let new = NewObject { hash, key: &key, head: &head, extra: &extra, meta, body, expires_s, now_s };
            let restored = FileCopy { sequence: id, location: location.bits(), in_parts: true };
            if self.insert_as(new, &list, &[], Some(restored)).is_err()
                && let Some((slot, at)) = self.index.find(self.shared(), hash)
            {
                // The new object is in the file nevertheless, so the older one must not be found in memory.
                self.unlink_at(slot, at);
            }
        }
        Ok(())
    }

    /// Counts a large object that could not be stored because the disk was behind.
    pub fn refused_large(&self) {
        self.tally().file_refused.add(1);
    }

    /// Drops the object with this sequence number, because one of its parts in the file is missing or
    /// damaged.
    pub fn lost_part(&mut self, hash: Hash, key: &[u8], id: u64) {
        if self.lookup_owned(hash, key).is_some_and(|object| object.is_in_parts() && object.sequence() == id)
        {
            self.unlink(hash, key);
            self.tally().file_damaged.add(1);
        }
    }
}
