//! Writing objects from memory to the file: when they are linked, or at the latest when they are evicted.
//!
//! ```text
//! link ─▶ admitted? ─┬ one record: copied at once
//!                    ├ in extents: copied some at a time (`copying.rs`), while it is pinned
//!                    └ longer than a record of the log: split into parts (`large.rs`)
//! ```

use super::{
    OBJECT,
    copying::{CopyProgress, CopyTarget, Step},
    file_record::NewObjectRecord,
    layout::{header_of, put},
    parts::{mark_of, tag},
};
use crate::{
    log::{AppendRefusal, NewRecord},
    store::{hash::Hash, index::Slot, object::Object, shard::Shard},
};

/// Maximum number of large objects that are being copied into the log at once.
pub(super) const COPIES_MAX: usize = 64;
/// Bytes of a record copied in one step, which takes some microseconds; of an object in parts, a step copies one
/// part.
const COPY_BYTES_A_STEP: usize = 32 << 10;

impl Shard {
    /// Writes an object that was just linked to the file, if it is admitted there.
    pub(in crate::store) fn keep(&mut self, slot: Slot) {
        if let Some(warming) = &mut self.warming {
            // Room for this hash was checked when the object was begun.
            warming.touch(slot.hash);
            return;
        }
        if !self.is_admitted(slot.hash()) {
            return;
        }
        if let Err(refused) = self.put(slot) {
            self.not_put(slot.hash(), refused);
        }
    }

    /// Ensures that an object about to be evicted from memory is in the file.
    pub(in crate::store) fn keep_evicted(&mut self, slot: Slot, was_visited: bool) {
        let Some(file) = &self.file else { return };
        let is_kept = file.is_there(slot.hash);
        let is_wanted = (!is_kept && self.is_admitted_late(was_visited)) || file.is_outdated(slot.hash);
        if is_wanted && !slot.is_chained() {
            self.tally().file_written_back.add(1);
            if let Err(refused) = self.put(slot) {
                self.not_put(slot.hash(), refused);
            }
        }
    }

    /// Copies an object to the file, or starts copying it. If refused, the file is unchanged, except that an
    /// older copy of an object in extents is gone.
    pub(super) fn put(&mut self, slot: Slot) -> Result<(), AppendRefusal> {
        let Self { local, file, .. } = self;
        let Some(file) = file else { return Ok(()) };
        let tally = &local.store.shards[local.core].tally;
        let object = Object { local, slot };
        let header = header_of(&object);
        let hash = slot.hash();
        let mut mark = 0;
        if object.is_in_parts() {
            mark = mark_of(object.sequence());
            if file.large.get(&slot.hash).is_none_or(|owned| owned.mark != mark) {
                // A list of parts is useless without its parts.
                return Ok(());
            }
        }
        let Some(bytes) = header.bytes().filter(|bytes| *bytes <= file.writers.payload_bytes_max()) else {
            return self.put_in_parts(slot);
        };
        file.copies.retain(|copying| copying.hash() != hash);
        if slot.is_chained() {
            // The copy takes several steps, during which the older object in the file would be outdated.
            file.end(hash);
        }
        if !slot.is_chained() {
            let new = NewObjectRecord { hash, expires_s: slot.expires_s(), mark, payload_bytes: bytes };
            let location = file.append_object(tally, new, |record| {
                record.write(&header.encode());
                for part in [object.key(), object.head(), object.extra(), object.body(0), object.tail()] {
                    put(record, part);
                }
            })?;
            local.store.record(slot.location()).write_file(location.bits());
            return Ok(());
        }
        let target = file.target(slot.hash);
        let new = NewRecord { kind: OBJECT, hash: slot.hash, tag: tag(slot.expires_s(), 0), target };
        if file.copies.len() >= COPIES_MAX {
            return Err(AppendRefusal::Busy);
        }
        let mut filling = file.writers.begin(new, bytes, slot.expires_s())?;
        filling.write(&header.encode());
        put(&mut filling, object.key());
        put(&mut filling, object.head());
        put(&mut filling, object.extra());
        let pinned = object.pin().ok_or(AppendRefusal::Busy)?;
        file.copies.push_back(CopyProgress::new(pinned, hash, CopyTarget::Record(filling)));
        file.settle(hash.word());
        file.count(tally);
        Ok(())
    }

    pub(super) fn not_put(&mut self, hash: Hash, refused: AppendRefusal) {
        let Self { local, file, .. } = self;
        if let Some(file) = file {
            file.refused(&local.store.shards[local.core].tally, hash, refused);
        }
    }

    /// Admits some of the objects that have been requested again, and copies the next piece of the pending objects
    /// to the file; returns whether more remains.
    pub fn copy_to_file(&mut self) -> bool {
        self.admit_the_visited();
        self.copy_pending()
    }

    /// Copies the next piece of the pending objects to the file; returns whether more remains.
    pub fn copy_pending(&mut self) -> bool {
        if let Some(file) = &mut self.file {
            file.write_ends();
            file.writers.give_up_what_is_over();
        }
        let is_behind = self.catch_up();
        let Self { local, file, .. } = self;
        let Some(file) = file else { return false };
        let tally = &local.store.shards[local.core].tally;
        let Some(mut copying) = file.copies.pop_front() else { return is_behind };
        match copying.step(&mut file.writers, COPY_BYTES_A_STEP) {
            Step::More => {
                file.copies.push_front(copying);
                return true;
            }
            Step::Whole => match file.finish_copy(tally, copying) {
                Ok(()) => {}
                Err(copying) => {
                    file.copies.push_back(*copying);
                    return is_behind;
                }
            },
            Step::Later => {
                file.copies.push_back(copying);
                return is_behind;
            }
            Step::GivenUp => file.refused(tally, copying.hash(), AppendRefusal::Busy),
        }
        is_behind || !file.copies.is_empty()
    }
}
