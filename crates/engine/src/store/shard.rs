//! The owner's handle: everything that changes a shard.
//!
//! ```text
//! begin ─▶ Filling ─extend, written─▶ ... ─▶ finish ─┐
//! insert ────────────────────────────────────────────┴▶ link ─▶ index, expiry queue
//! unlink, expire, evict ─▶ index slot cleared ─▶ segment's live count ─▶ retired at zero ─▶ reclaimed
//! ```
//! *Which core:* the shard's own. *Who waits:* nobody. *Bounds:* each step does a bounded number of records.

use std::{collections::HashMap, sync::Arc};

use smallvec::SmallVec;

use super::{
    directory::IndexOwner,
    expiry::{Due, ExpiryQueue},
    filling::{BodyLength, Filling, FillingPart, HEAP_BYTES, NewObject, Refused},
    ghost::Ghosts,
    hash::Hash,
    index::{Index, Slot, SlotAddress},
    object::Object,
    reader::Reader,
    record::{EXTENT_HEADER_BYTES, Header, Kind, Lengths, META_WORDS, Place, extent_units, table_bytes},
    shared::{Local, Store},
    space::{Log, Purpose, Space},
    usage::Tally,
};

/// Expiry entries that each insert sifts while there are too many (see [`ExpiryQueue`]).
const SIFT_A_STEP: usize = 3;

/// What an object has that is on the file already: its number, where it is there, and whether it is a list of parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Restored {
    pub(super) sequence: u64,
    pub(super) location: u64,
    pub(super) in_parts: bool,
}

/// A core's share of the store, in the hands of its owner.
#[derive(Debug)]
pub struct Shard {
    pub(super) local: Arc<Local>,
    pub(super) index: IndexOwner,
    pub(super) space: Space,
    pub(super) ghosts: Ghosts,
    expiry: ExpiryQueue,
    pub(super) sequence: u64,
    /// What of it is on a file, if there is one.
    #[cfg(not(feature = "loom"))]
    pub(super) file: Option<Box<super::tier::FileTier>>,
    /// What happened since the start, while the file is still being read.
    #[cfg(not(feature = "loom"))]
    pub(super) warming: Option<Box<super::tier::Warming>>,
    pub(super) emptying: Option<super::evict::Emptying>,
}

impl Shard {
    pub(super) fn new(local: Arc<Local>) -> Self {
        let core = local.core;
        let geometry = local.store.geometry;
        let shared = &local.store.shards[core];
        let index = IndexOwner::new(&shared.index, core, geometry.cores);
        let ghosts = Ghosts::new(geometry.segments_per_core * geometry.segment_bytes);
        shared.tally.ghost_bytes.set(ghosts.bytes());
        shared.tally.index_bytes.set(index.bytes(&shared.index));
        Self {
            index,
            space: Space::new(core, geometry.segments_per_core),
            ghosts,
            expiry: ExpiryQueue::new(),
            sequence: 0,
            #[cfg(not(feature = "loom"))]
            file: None,
            #[cfg(not(feature = "loom"))]
            warming: None,
            emptying: None,
            local,
        }
    }

    /// The store that this is a share of.
    pub fn store(&self) -> &Arc<Store> {
        &self.local.store
    }

    /// The core that owns it.
    pub fn core(&self) -> usize {
        self.local.core
    }

    /// A reader for the owner's core.
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.local))
    }

    pub(super) fn shared(&self) -> &Index {
        &self.local.store.shards[self.local.core].index
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.local.store.shards[self.local.core].tally
    }

    /// Looks a key up for certain, and notes the visit.
    pub fn lookup_owned(&self, hash: Hash, key: &[u8]) -> Option<Object<'_>> {
        let (slot, at) = self.find(hash, key)?;
        self.shared().visit(self.local.core, at);
        Some(Object { local: &self.local, slot })
    }

    pub(super) fn find(&self, hash: Hash, key: &[u8]) -> Option<(Slot, SlotAddress)> {
        self.assert_owned(hash);
        let found = self.index.find(self.shared(), hash)?;
        self.local.store.record(found.0.location()).key().eq(key).then_some(found)
    }

    fn assert_owned(&self, hash: Hash) {
        let owner = self.local.store.owner(hash);
        assert!(owner == self.local.core, "core {} was asked for what core {owner} owns", self.local.core);
    }

    /// Stores an object whose body is at hand; `object.body` is not looked at.
    ///
    /// # Errors
    /// [`Refused::TooLarge`], [`Refused::NoRoom`].
    pub fn insert(&mut self, object: NewObject<'_>, body: &[u8], tail: &[u8]) -> Result<(), Refused> {
        self.insert_as(object, body, tail, None)
    }

    pub(super) fn insert_as(
        &mut self,
        object: NewObject<'_>,
        body: &[u8],
        tail: &[u8],
        restored: Option<Restored>,
    ) -> Result<(), Refused> {
        self.assert_owned(object.hash);
        let lengths = Lengths { rest: body.len(), tail: tail.len(), ..object.names() };
        let in_parts = restored.is_some_and(|restored| restored.in_parts);
        let Some(units) = self.units_of_record(lengths) else {
            if in_parts {
                // It was written by a process with more memory. Cut into extents it would not be a list any more.
                return Err(self.refuse(Refused::TooLarge));
            }
            let mut filling =
                self.begin(NewObject { body: BodyLength::Exact(body.len() as u64), ..object })?;
            let mut rest = body;
            while !rest.is_empty() {
                let extent = filling.extend(self)?;
                let (now, later) = rest.split_at(extent.len().min(rest.len()));
                extent.span().slice(0..now.len()).write_from(now);
                filling.written(now.len() as u64);
                rest = later;
            }
            return self.finish_as(filling, tail, restored);
        };
        self.check_size(&object, body.len() as u64)?;
        self.shared().prefetch(object.hash.prefix());
        self.ghosts.prefetch(object.hash);
        let log = self.log_for(&object);
        let place = self.room(log, units)?;
        let header = Header { in_parts, ..self.header(object.hash, lengths, body.len() as u64, object.meta) };
        let record = self.local.store.record(place.location);
        record.write_header(Kind::Whole, units, &header);
        record.write_names(object.key, object.head, object.extra);
        record.body().write_from(body);
        record.tail().write_from(tail);
        self.link(Slot::new(object.hash, place.location, units, object.expires_s, false), restored)
    }

    /// Begins an object whose body is yet to come.
    ///
    /// # Errors
    /// [`Refused::TooLarge`], [`Refused::NoRoom`].
    pub fn begin(&mut self, object: NewObject<'_>) -> Result<Filling, Refused> {
        self.assert_owned(object.hash);
        let exact = match object.body {
            BodyLength::Exact(bytes) => bytes,
            BodyLength::Unknown => 0,
        };
        self.check_size(&object, exact)?;
        let rest = usize::try_from(exact).map_err(|_| Refused::TooLarge)?;
        let lengths = Lengths { rest, ..object.names() };
        let units = match object.body {
            BodyLength::Exact(_) => self.units_of_record(lengths),
            BodyLength::Unknown => None,
        };
        let mut filling = Filling {
            local: Arc::clone(&self.local),
            hash: object.hash,
            key: Box::default(),
            head: Box::default(),
            extra: Box::default(),
            meta: object.meta,
            length: object.body,
            expires_s: object.expires_s,
            log: self.log_for(&object),
            is_whole: units.is_some(),
            parts: SmallVec::new(),
            handed: 0,
            room: exact,
            written: 0,
            // Not yet anybody's loss: set when the space is there.
            linked: true,
        };
        if let Some(units) = units {
            let place = self.room(filling.log, units)?;
            let header = self.header(object.hash, lengths, exact, object.meta);
            let record = self.local.store.record(place.location);
            record.write_header(Kind::Dead, units, &header);
            record.write_names(object.key, object.head, object.extra);
            let offset = record.rest_start();
            filling.parts.push(FillingPart::in_arena(&self.local, place, offset, lengths.rest, 0));
        } else {
            filling.room = 0;
            filling.key = object.key.into();
            filling.head = object.head.into();
            filling.extra = object.extra.into();
        }
        filling.linked = false;
        Ok(filling)
    }

    /// Appends a part to a filling whose parts have all been handed out.
    pub(super) fn extend_filling(&mut self, filling: &mut Filling) -> Result<(), Refused> {
        assert!(
            Arc::ptr_eq(&self.local.store, &filling.local.store) && self.local.core == filling.local.core
        );
        let geometry = self.local.store.geometry;
        let bound = match filling.length {
            BodyLength::Exact(bytes) => bytes,
            BodyLength::Unknown => geometry.object_bytes_max,
        };
        let rest = bound - filling.room;
        if filling.is_whole || rest == 0 {
            return Err(self.refuse(Refused::TooLarge));
        }
        let wish = match filling.length {
            BodyLength::Exact(_) => geometry.extent_bytes_max,
            BodyLength::Unknown if filling.parts.is_empty() => HEAP_BYTES.min(geometry.extent_bytes_max),
            BodyLength::Unknown => (filling.room as usize).min(geometry.extent_bytes_max),
        };
        let len = usize::try_from(rest).map_or(wish, |rest| rest.min(wish));
        let part = if filling.length == BodyLength::Unknown && filling.parts.is_empty() {
            FillingPart::on_heap(0, len)
        } else {
            self.arena_part(filling.log, filling.room, len)?
        };
        filling.parts.push(part);
        filling.room += len as u64;
        Ok(())
    }

    fn arena_part(&mut self, log: Log, first: u64, len: usize) -> Result<FillingPart, Refused> {
        let place = self.room(log, extent_units(len))?;
        self.local.store.record(place.location).write_dead(place.units);
        Ok(FillingPart::in_arena(&self.local, place, EXTENT_HEADER_BYTES, len, first))
    }

    /// Links the object, in place of an older one with the same key.
    ///
    /// # Errors
    /// [`Refused::Short`] if fewer bytes were written than were said; [`Refused::NoRoom`], [`Refused::TooLarge`]
    /// (the tail does not fit). The object is given up then, and an older one stays.
    pub fn finish(&mut self, filling: Filling, tail: &[u8]) -> Result<(), Refused> {
        self.finish_as(filling, tail, None)
    }

    fn finish_as(
        &mut self,
        mut filling: Filling,
        tail: &[u8],
        restored: Option<Restored>,
    ) -> Result<(), Refused> {
        assert!(
            Arc::ptr_eq(&self.local.store, &filling.local.store) && self.local.core == filling.local.core
        );
        let finished = self.make_whole(&mut filling, tail).and_then(|slot| self.link(slot, restored));
        filling.linked = finished.is_ok();
        self.let_go(filling);
        finished
    }

    /// Gives an object up. Its space is dead until its segment is freed.
    pub fn abandon(&mut self, filling: Filling) {
        self.let_go(filling);
    }

    /// Drops a filling and looks whether that empties a segment.
    fn let_go(&mut self, filling: Filling) {
        let store = &self.local.store;
        let segments: SmallVec<[usize; 8]> =
            filling.records().map(|place| store.geometry.segment_of(place.location)).collect();
        drop(filling);
        for segment in segments {
            self.space.try_retire(store, segment);
        }
    }

    /// Completes the records of a filling; returns the slot to link.
    fn make_whole(&mut self, filling: &mut Filling, tail: &[u8]) -> Result<Slot, Refused> {
        if matches!(filling.length, BodyLength::Exact(bytes) if bytes != filling.written) {
            return Err(self.refuse(Refused::Short));
        }
        if filling.whole_record().is_some() {
            return self.make_whole_record(filling, tail);
        }
        let on_heap = filling.parts.iter().all(|part| part.record.is_none());
        let body = filling.written as usize;
        let (key, head, extra) = (filling.key.len(), filling.head.len(), filling.extra.len());
        let lengths = Lengths { key, head, extra, rest: body, tail: tail.len() };
        if on_heap && let Some(units) = self.units_of_record(lengths) {
            let place = self.room(filling.log, units)?;
            let header = self.header(filling.hash, lengths, filling.written, filling.meta);
            let record = self.local.store.record(place.location);
            record.write_header(Kind::Whole, units, &header);
            record.write_names(&filling.key, &filling.head, &filling.extra);
            if let Some(part) = filling.parts.first() {
                record.body().write_from_span(part.extent.span().slice(0..body));
            }
            record.tail().write_from(tail);
            return Ok(Slot::new(filling.hash, place.location, units, filling.expires_s, false));
        }
        self.make_chained(filling, tail)
    }

    /// Names key, head and body, which are in place, a whole object; a tail may need another place.
    fn make_whole_record(&mut self, filling: &Filling, tail: &[u8]) -> Result<Slot, Refused> {
        let Some((place, record)) = filling.whole_record() else {
            unreachable!("asked for whole records only")
        };
        let lengths = Lengths {
            key: record.key().len(),
            head: record.head().len(),
            extra: record.extra().len(),
            rest: filling.written as usize,
            tail: tail.len(),
        };
        let Some(units) = self.units_of_record(lengths) else { return Err(self.refuse(Refused::TooLarge)) };
        let header = self.header(filling.hash, lengths, filling.written, filling.meta);
        let (location, target) = if units == place.units {
            record.write_header(Kind::Whole, units, &header);
            (place.location, record)
        } else {
            let fresh = self.room(filling.log, units)?;
            let target = self.local.store.record(fresh.location);
            target.write_header(Kind::Whole, units, &header);
            target.key().write_from_span(record.key());
            target.head().write_from_span(record.head());
            target.extra().write_from_span(record.extra());
            target.body().write_from_span(record.body());
            (fresh.location, target)
        };
        target.tail().write_from(tail);
        Ok(Slot::new(filling.hash, location, units, filling.expires_s, false))
    }

    /// Names the extents, gives back what they have too much, and writes the record with the table.
    fn make_chained(&mut self, filling: &mut Filling, tail: &[u8]) -> Result<Slot, Refused> {
        let Filling { hash, written, log, .. } = *filling;
        // From the end, because only the last record of a segment can be cut.
        while let Some(part) = filling.parts.pop() {
            let first = part.extent.first();
            let Some((place, hold)) = part.record else {
                filling.parts.push(part);
                break;
            };
            let len = written.saturating_sub(first).min(part.extent.len() as u64) as usize;
            let units = if len == 0 { 0 } else { extent_units(len) };
            if units < place.units
                && !self.space.cut(
                    &self.local.store,
                    &self.local.store.shards[self.local.core].tally,
                    place,
                    units,
                )
            {
                self.local.store.record(place.location + u64::from(units)).write_dead(place.units - units);
            }
            if len > 0 {
                let kept = Place { units, ..place };
                filling.parts.push(FillingPart { extent: part.extent, record: Some((kept, hold)) });
                break;
            }
        }
        for number in 0..filling.parts.len() {
            let part = &filling.parts[number];
            let first = part.extent.first();
            let len = (written - first).min(part.extent.len() as u64) as usize;
            if part.record.is_none() {
                let moved = self.arena_part(log, first, len)?;
                moved.extent.span().write_from_span(filling.parts[number].extent.span().slice(0..len));
                filling.parts[number] = moved;
            }
            if let Some((place, _)) = &filling.parts[number].record {
                self.local.store.record(place.location).write_extent(place.units, hash, number, len as u64);
            }
        }
        let extents = filling.parts.len();
        let lengths = Lengths {
            key: filling.key.len(),
            head: filling.head.len(),
            extra: filling.extra.len(),
            rest: table_bytes(extents),
            tail: tail.len(),
        };
        let Some(units) = self.units_of_record(lengths) else { return Err(self.refuse(Refused::TooLarge)) };
        let place = self.room(log, units)?;
        let header = Header { extents: extents as u32, ..self.header(hash, lengths, written, filling.meta) };
        let record = self.local.store.record(place.location);
        record.write_header(Kind::Chained, units, &header);
        record.write_names(&filling.key, &filling.head, &filling.extra);
        for (number, extent) in filling.records().enumerate() {
            let part = &filling.parts[number].extent;
            record.write_table(number, extent, (part.first() + part.len() as u64).min(written));
        }
        record.tail().write_from(tail);
        Ok(Slot::new(hash, place.location, units, filling.expires_s, true))
    }

    /// Points the index to a whole object, and keeps it on the file unless it came from there.
    fn link(&mut self, slot: Slot, restored: Option<Restored>) -> Result<(), Refused> {
        if let Some(restored) = restored {
            let record = self.local.store.record(slot.location());
            record.write_sequence(restored.sequence);
            if !slot.is_chained() {
                record.write_file(restored.location);
            }
        }
        self.link_in_memory(slot)?;
        #[cfg(not(feature = "loom"))]
        if restored.is_none() {
            self.keep(slot);
        }
        Ok(())
    }

    pub(super) fn link_in_memory(&mut self, slot: Slot) -> Result<(), Refused> {
        let Self { local, index, space, expiry, .. } = self;
        let store = &*local.store;
        let shared = &store.shards[local.core].index;
        let tally = &store.shards[local.core].tally;
        let object = Object { local, slot };
        let mut expires_anew = true;
        match index.find(shared, slot.hash()) {
            Some((old, at)) => {
                expires_anew = old.expires_s() != slot.expires_s();
                let sifting = if expires_anew { expiry.sifting() } else { old.sifting() };
                index.update(shared, at, slot.with_sifting(sifting));
                index.forget_visits(shared, at);
                link_records(space, store, tally, &object);
                unlink_records(space, store, tally, &Object { local, slot: old });
                tally.replacements.add(1);
            }
            None => {
                if index.insert(shared, &store.turns, slot.with_sifting(expiry.sifting())).is_err() {
                    tally.refused_crowded.add(1);
                    return Err(self.refuse(Refused::NoRoom));
                }
                link_records(space, store, tally, &object);
                tally.objects.add(1);
                tally.inserts.add(1);
                tally.index_bytes.set(index.bytes(shared));
            }
        }
        if expires_anew && slot.expires_s() != u32::MAX {
            expiry.push(Due { expires_s: slot.expires_s(), prefix: slot.hash().prefix() });
        }
        self.sift();
        Ok(())
    }

    /// Unlinks an object; says whether it was there.
    pub fn unlink(&mut self, hash: Hash, key: &[u8]) -> bool {
        // On the file by its hash alone, because its key is there: of two with one hash there is only one anyway.
        #[cfg(not(feature = "loom"))]
        let was_on_file = self.end_on_file(hash);
        #[cfg(feature = "loom")]
        let was_on_file = false;
        let Some((slot, at)) = self.find(hash, key) else { return was_on_file };
        self.unlink_at(slot, at);
        self.tally().unlinks.add(1);
        true
    }

    /// Gives an object another expiry; says whether it was there.
    pub fn refresh(&mut self, hash: Hash, key: &[u8], expires_s: u32) -> bool {
        let Some((slot, at)) = self.find(hash, key) else { return false };
        if slot.expires_s() != expires_s {
            let shared = &self.local.store.shards[self.local.core].index;
            let refreshed = slot.with_expires_s(expires_s).with_sifting(self.expiry.sifting());
            self.index.update(shared, at, refreshed);
            if expires_s != u32::MAX {
                self.expiry.push(Due { expires_s, prefix: hash.prefix() });
            }
            self.sift();
            #[cfg(not(feature = "loom"))]
            self.keep(refreshed);
        }
        true
    }

    /// Unlinks what is due at `now_s`, looking at no more than `limit` entries of the queue; says how many objects
    /// went. Fewer entries than `limit` were due if [`Shard::next_expiry_s`] is later than `now_s` afterwards.
    pub fn expire(&mut self, now_s: u32, limit: usize) -> usize {
        #[cfg(not(feature = "loom"))]
        self.tell_file(now_s);
        let mut expired = 0;
        for _ in 0..limit {
            let Some(due) = self.expiry.pop_due(now_s) else { break };
            for (slot, at) in self.index.find_due(self.shared(), due.prefix, due.expires_s) {
                #[cfg(not(feature = "loom"))]
                self.forget_expired(&slot);
                self.unlink_at(slot, at);
                expired += 1;
            }
        }
        self.tally().expiries.add(expired as u64);
        self.tally().expiry_entries.set(self.expiry.len() as u64);
        expired
    }

    /// When the next entry of the expiry queue is due.
    pub fn next_expiry_s(&self) -> Option<u32> {
        self.expiry.next_s()
    }

    /// Sifts some entries of the expiry queue, if it has too many.
    fn sift(&mut self) {
        let Self { local, index, expiry, .. } = self;
        let shared = &local.store.shards[local.core].index;
        let tally = &local.store.shards[local.core].tally;
        for _ in 0..SIFT_A_STEP {
            let Some(due) = expiry.take_unsifted(tally.objects.value() as usize) else { break };
            let mut is_entered = true;
            for (slot, at) in index.find_due(shared, due.prefix, due.expires_s) {
                if slot.sifting() != expiry.sifting() {
                    index.update(shared, at, slot.with_sifting(expiry.sifting()));
                    is_entered = false;
                }
            }
            if !is_entered {
                expiry.push(due);
            }
        }
        expiry.sifted_soon(SIFT_A_STEP).for_each(|prefix| shared.prefetch(prefix));
        tally.expiry_entries.set(expiry.len() as u64);
    }

    pub(super) fn unlink_at(&mut self, slot: Slot, at: SlotAddress) {
        let Self { local, index, space, .. } = self;
        let store = &*local.store;
        let tally = &store.shards[local.core].tally;
        index.remove(&store.shards[local.core].index, at);
        unlink_records(space, store, tally, &Object { local, slot });
        tally.objects.subtract(1);
    }

    fn check_size(&mut self, object: &NewObject<'_>, body_bytes: u64) -> Result<(), Refused> {
        #[cfg(not(feature = "loom"))]
        if self.has_no_room_while_warming(object.hash) {
            return Err(self.refuse(Refused::NoRoom));
        }
        if body_bytes > self.local.store.geometry.object_bytes_max {
            return Err(self.refuse(Refused::TooLarge));
        }
        self.check_names(object.names())
    }

    /// Whether key, head and extra take half a record at most, so that the other half can have the table of extents.
    pub(super) fn check_names(&self, lengths: Lengths) -> Result<(), Refused> {
        let names = Lengths { rest: 0, tail: 0, ..lengths };
        let most = self.local.store.geometry.record_bytes_max;
        let fit = names.units().is_some_and(|units| units as usize * 32 <= most);
        if fit { Ok(()) } else { Err(self.refuse(Refused::TooLarge)) }
    }

    pub(super) fn units_of_record(&self, lengths: Lengths) -> Option<u32> {
        let most = self.local.store.geometry.record_bytes_max;
        lengths.units().filter(|units| *units as usize * super::record::UNIT <= most)
    }

    /// Main for what was evicted not long ago or replaces what is there, else probation by lifetime.
    fn log_for(&mut self, object: &NewObject<'_>) -> Log {
        let probation = Log::for_lifetime(object.expires_s.saturating_sub(object.now_s));
        if let Some((slot, _)) = self.index.find(self.shared(), object.hash) {
            return match self.space.log(self.local.store.geometry.segment_of(slot.location())) {
                Log::Main => Log::Main,
                _ => probation,
            };
        }
        if self.ghosts.recall(object.hash) {
            self.tally().ghost_hits.add(1);
            return Log::Main;
        }
        probation
    }

    fn header(&mut self, hash: Hash, lengths: Lengths, body_bytes: u64, meta: [u64; META_WORDS]) -> Header {
        self.sequence += 1;
        Header { hash, sequence: self.sequence, lengths, body_bytes, extents: 0, in_parts: false, meta }
    }

    /// Space for a new record, after paying for it by evicting.
    pub(super) fn room(&mut self, log: Log, units: u32) -> Result<Place, Refused> {
        self.pay(units);
        loop {
            let Self { local, space, .. } = self;
            let tally = &local.store.shards[local.core].tally;
            if let Some(place) = space.append(&local.store, tally, log, units, Purpose::New) {
                return Ok(place);
            }
            if !self.make_room() {
                return Err(self.refuse(Refused::NoRoom));
            }
        }
    }

    pub(super) fn refuse(&self, refused: Refused) -> Refused {
        let tally = self.tally();
        match refused {
            Refused::NoRoom => tally.refused_no_room.add(1),
            Refused::TooLarge => tally.refused_too_large.add(1),
            Refused::Short => tally.refused_short.add(1),
        }
        refused
    }

    /// Checks the shard as a whole; for tests, and slow.
    ///
    /// # Panics
    /// If an invariant does not hold, with its words.
    pub fn invariants(&self) {
        let store = &*self.local.store;
        let objects = self.index.invariants(self.shared());
        let tally = self.tally();
        assert_eq!(objects as u64, tally.objects.value(), "objects counted and objects linked");
        let entries = self.expiry.entries();
        let mut live: HashMap<usize, (u32, usize)> = HashMap::new();
        for (slot, _) in self.index.all(self.shared()) {
            let object = Object { local: &self.local, slot };
            let record = store.record(slot.location());
            assert_eq!(record.hash().word(), slot.hash, "the index points to another object's record");
            assert_eq!(record.units(), slot.units(), "record length in the index");
            let kind = if slot.is_chained() { Kind::Chained } else { Kind::Whole };
            assert_eq!(record.kind(), kind, "the index points to a record of another kind");
            let mut body_bytes = 0;
            for (number, (place, end)) in object.extents().enumerate() {
                let extent = store.record(place.location);
                assert_eq!(
                    (extent.kind(), extent.hash(), extent.extent_number()),
                    (Kind::Extent, slot.hash(), number)
                );
                assert_eq!(extent.body_bytes(), end - body_bytes, "bytes of extent {number}");
                body_bytes = end;
            }
            assert!(!slot.is_chained() || body_bytes == record.body_bytes(), "extents make up the body");
            for place in records(&object) {
                let counts = live.entry(store.geometry.segment_of(place.location)).or_default();
                counts.0 += 1;
                counts.1 += place.bytes();
            }
            assert!(
                slot.expires_s() == u32::MAX || entries.contains(&(slot.expires_s(), slot.hash().prefix())),
                "an object that nothing will expire"
            );
        }
        self.space.invariants(store, tally, &live);
    }
}

/// Places of all records of an object.
pub(super) fn records(object: &Object<'_>) -> impl Iterator<Item = Place> {
    let own = Place { location: object.slot.location(), units: object.slot.units() };
    object.extents().map(|(place, _)| place).chain(std::iter::once(own))
}

fn link_records(space: &mut Space, store: &Store, tally: &Tally, object: &Object<'_>) {
    records(object).for_each(|place| space.link(store, tally, place));
}

fn unlink_records(space: &mut Space, store: &Store, tally: &Tally, object: &Object<'_>) {
    // The table is read while its own segment is still live: its record comes last.
    records(object).for_each(|place| space.unlink(store, tally, place));
}
