//! The owner's side of an [`ObjectWriter`]: filling an object whose body arrives piece by piece.
//!
//! ```text
//! begin ─▶ ObjectWriter ─extend, written─▶ ... ─▶ finish ─┬ one record: header, names, tail
//!                                       └ abandon     └ extents: cut to their bytes, then the record with the table
//! ```

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    filling::{BodyLength, Extent, FillingPart, HEAP_BYTES, InsertRefusal, NewObject, ObjectWriter},
    index::Slot,
    link::FileCopy,
    record::{EXTENT_HEADER_BYTES, Header, Kind, Lengths, Place, extent_units, table_bytes},
    shard::Shard,
    space::Log,
};

impl ObjectWriter {
    /// Returns the next contiguous space for body bytes, after all space that was returned before. The caller
    /// may request more before it has filled this one, but must fill the spaces in order, without gaps.
    ///
    /// # Errors
    /// [`InsertRefusal::NoRoom`] if no space can be freed; [`InsertRefusal::TooLarge`] if the body exceeds
    /// its announced length or the maximum.
    pub fn extend(&mut self, shard: &mut Shard) -> Result<Arc<Extent>, InsertRefusal> {
        if self.handed == self.parts.len() {
            shard.extend_filling(self)?;
        }
        let part = &self.parts[self.handed];
        self.handed += 1;
        Ok(Arc::clone(&part.extent))
    }
}

impl Shard {
    /// Begins an object whose body arrives later.
    ///
    /// # Errors
    /// [`InsertRefusal::TooLarge`] if the object exceeds the store's bounds; [`InsertRefusal::NoRoom`] if no
    /// space can be freed.
    pub fn begin(&mut self, object: NewObject<'_>) -> Result<ObjectWriter, InsertRefusal> {
        self.assert_owned(object.hash);
        let exact = match object.body {
            BodyLength::Exact(bytes) => bytes,
            BodyLength::Unknown => 0,
        };
        self.check_size(&object, exact)?;
        let rest = usize::try_from(exact).map_err(|_| InsertRefusal::TooLarge)?;
        let lengths = Lengths { rest, ..object.names() };
        let units = match object.body {
            BodyLength::Exact(_) => self.units_of_record(lengths),
            BodyLength::Unknown => None,
        };
        let mut filling = ObjectWriter {
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
            // A writer that is dropped before it has space must not count as abandoned; this is reset once it
            // has space.
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

    /// Adds a part for body bytes to a writer whose parts have all been handed to the caller.
    pub(super) fn extend_filling(&mut self, filling: &mut ObjectWriter) -> Result<(), InsertRefusal> {
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
            return Err(self.refuse(InsertRefusal::TooLarge));
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

    fn arena_part(&mut self, log: Log, first: u64, len: usize) -> Result<FillingPart, InsertRefusal> {
        let place = self.room(log, extent_units(len))?;
        self.local.store.record(place.location).write_dead(place.units);
        Ok(FillingPart::in_arena(&self.local, place, EXTENT_HEADER_BYTES, len, first))
    }

    /// Links the object, replacing an older one with the same key.
    ///
    /// # Errors
    /// [`InsertRefusal::Short`] if fewer bytes were written than announced; [`InsertRefusal::NoRoom`] or
    /// [`InsertRefusal::TooLarge`] if the tail does not fit. The new object is then dropped, and an older one
    /// stays.
    pub fn finish(&mut self, filling: ObjectWriter, tail: &[u8]) -> Result<(), InsertRefusal> {
        self.finish_as(filling, tail, None)
    }

    pub(super) fn finish_as(
        &mut self,
        mut filling: ObjectWriter,
        tail: &[u8],
        restored: Option<FileCopy>,
    ) -> Result<(), InsertRefusal> {
        assert!(
            Arc::ptr_eq(&self.local.store, &filling.local.store) && self.local.core == filling.local.core
        );
        let finished = self.make_whole(&mut filling, tail).and_then(|slot| self.link(slot, restored));
        filling.linked = finished.is_ok();
        self.let_go(filling);
        finished
    }

    /// Abandons an unfinished object. Its space stays dead until its segment is freed.
    pub fn abandon(&mut self, filling: ObjectWriter) {
        self.let_go(filling);
    }

    /// Drops a writer and retires the segments that have no live records after that.
    fn let_go(&mut self, filling: ObjectWriter) {
        let store = &self.local.store;
        let segments: SmallVec<[usize; 8]> =
            filling.records().map(|place| store.geometry.segment_of(place.location)).collect();
        drop(filling);
        for segment in segments {
            self.space.try_retire(store, segment);
        }
    }

    /// Completes the records of an object; returns the slot to link.
    fn make_whole(&mut self, filling: &mut ObjectWriter, tail: &[u8]) -> Result<Slot, InsertRefusal> {
        if matches!(filling.length, BodyLength::Exact(bytes) if bytes != filling.written) {
            return Err(self.refuse(InsertRefusal::Short));
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

    /// Completes an object whose key, head and body are already in its record; a tail may require another
    /// record.
    fn make_whole_record(&mut self, filling: &ObjectWriter, tail: &[u8]) -> Result<Slot, InsertRefusal> {
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
        let Some(units) = self.units_of_record(lengths) else {
            return Err(self.refuse(InsertRefusal::TooLarge));
        };
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

    /// Writes the headers of the extents, returns their unused space, and writes the record with the table of
    /// extents.
    fn make_chained(&mut self, filling: &mut ObjectWriter, tail: &[u8]) -> Result<Slot, InsertRefusal> {
        let ObjectWriter { hash, written, log, .. } = *filling;
        // The loop runs from the last extent backwards, because only the last record of a segment can be cut.
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
        let Some(units) = self.units_of_record(lengths) else {
            return Err(self.refuse(InsertRefusal::TooLarge));
        };
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
}
