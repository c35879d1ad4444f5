//! Storing an object whose body is complete: the size checks before it gets space, and the choice of the log
//! to which it is appended.
//!
//! ```text
//! insert ─▶ sizes ─▶ log ─▶ room (evicts in proportion) ─▶ record ─▶ link
//!             └ longer than a record: stored in extents, like a body that arrives in pieces (`fill.rs`)
//! ```

use super::{
    filling::{BodyLength, InsertRefusal, NewObject},
    hash::Hash,
    index::Slot,
    link::FileCopy,
    record::{Header, Kind, Lengths, META_WORDS, UNIT},
    shard::Shard,
    space::Log,
};

impl Shard {
    /// Stores an object whose body is complete; `object.body` is ignored.
    ///
    /// # Errors
    /// [`InsertRefusal::TooLarge`] if the object exceeds the store's bounds; [`InsertRefusal::NoRoom`] if no
    /// space can be freed.
    pub fn insert(&mut self, object: NewObject<'_>, body: &[u8], tail: &[u8]) -> Result<(), InsertRefusal> {
        self.insert_as(object, body, tail, None)
    }

    pub(super) fn insert_as(
        &mut self,
        object: NewObject<'_>,
        body: &[u8],
        tail: &[u8],
        restored: Option<FileCopy>,
    ) -> Result<(), InsertRefusal> {
        self.assert_owned(object.hash);
        let lengths = Lengths { rest: body.len(), tail: tail.len(), ..object.names() };
        let in_parts = restored.is_some_and(|restored| restored.in_parts);
        let Some(units) = self.units_of_record(lengths) else {
            if in_parts {
                // A process with more memory wrote this list of parts. If it were split into extents, it
                // could no longer be read as a list.
                return Err(self.refuse(InsertRefusal::TooLarge));
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
        self.index.prefetch(self.shared(), object.hash.prefix());
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

    pub(super) fn check_size(
        &mut self,
        object: &NewObject<'_>,
        body_bytes: u64,
    ) -> Result<(), InsertRefusal> {
        #[cfg(not(feature = "loom"))]
        if self.has_no_room_while_warming(object.hash) {
            return Err(self.refuse(InsertRefusal::NoRoom));
        }
        if body_bytes > self.local.store.geometry.object_bytes_max {
            return Err(self.refuse(InsertRefusal::TooLarge));
        }
        self.check_names(object.names())
    }

    /// Checks that key, head and extra take at most half a record, so that the table of extents fits into the
    /// other half.
    pub(super) fn check_names(&self, lengths: Lengths) -> Result<(), InsertRefusal> {
        let names = Lengths { rest: 0, tail: 0, ..lengths };
        let most = self.local.store.geometry.record_bytes_max;
        let fit = names.units().is_some_and(|units| units as usize * 32 <= most);
        if fit { Ok(()) } else { Err(self.refuse(InsertRefusal::TooLarge)) }
    }

    pub(super) fn units_of_record(&self, lengths: Lengths) -> Option<u32> {
        let most = self.local.store.geometry.record_bytes_max;
        lengths.units().filter(|units| *units as usize * UNIT <= most)
    }

    /// Chooses the log for an object: the main log if the object was evicted recently or replaces an object
    /// there, else the probation log for its lifetime.
    pub(super) fn log_for(&mut self, object: &NewObject<'_>) -> Log {
        self.space.tell(object.now_s);
        let probation = Log::for_lifetime(object.expires_s.saturating_sub(object.now_s));
        if let Some((slot, _)) = self.index.find(self.shared(), object.hash) {
            return match self.space.log(self.local.store.geometry.segment_of(slot.location())) {
                Log::Main => Log::Main,
                _ => probation,
            };
        }
        let Some(from) = self.ghosts.recall(object.hash) else { return probation };
        let Self { local, space, .. } = self;
        let tally = &local.store.shards[local.core].tally;
        // The mean object size is used, because the length of this object may not be known yet.
        space.came_back(from, tally.object_bytes());
        tally.ghost_hits.add(1);
        tally.probation_bytes.set(space.probation_bytes());
        Log::Main
    }

    pub(super) fn header(
        &mut self,
        hash: Hash,
        lengths: Lengths,
        body_bytes: u64,
        meta: [u64; META_WORDS],
    ) -> Header {
        self.sequence += 1;
        Header { hash, sequence: self.sequence, lengths, body_bytes, extents: 0, in_parts: false, meta }
    }
}
