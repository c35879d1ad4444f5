//! Linking and unlinking of objects. Lookups find an object after it is linked and until it is unlinked.
//!
//! ```text
//! link ─▶ index (in place of the older one) ─▶ expiry queue ─▶ file
//! unlink ─▶ index slot cleared ─▶ segment's live count ─▶ retired at zero
//! ```

use super::{
    expiry::Due,
    filling::InsertRefusal,
    index::{Slot, SlotAddress},
    object::Object,
    shard::Shard,
    shared::Store,
    space::Space,
    usage::Tally,
};

/// Properties of an object that is already in the file: its sequence number, its location there, and whether
/// the record is a list of parts.
#[derive(Debug, Clone, Copy)]
pub(super) struct FileCopy {
    pub(super) sequence: u64,
    pub(super) location: u64,
    pub(super) in_parts: bool,
}

impl Shard {
    /// Enters a complete object into the index, and writes it to the file unless it was restored from there.
    pub(super) fn link(&mut self, slot: Slot, restored: Option<FileCopy>) -> Result<(), InsertRefusal> {
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

    pub(super) fn link_in_memory(&mut self, slot: Slot) -> Result<(), InsertRefusal> {
        let slot = self.marked(slot);
        let Self { local, index, space, .. } = self;
        let store = &*local.store;
        let shared = &store.shards[local.core].index;
        let tally = &store.shards[local.core].tally;
        let object = Object { local, slot };
        let mut expires_anew = true;
        match index.find(shared, slot.hash()) {
            Some((old, at)) => {
                // The entry of the older object serves the new one, too.
                expires_anew = old.is_unqueued() || old.expires_s() != slot.expires_s();
                let linked = if expires_anew { slot } else { slot.marked_like(&old) };
                index.update(shared, at, linked);
                index.set_visits(shared, at, 0);
                link_records(space, store, tally, &object);
                unlink_records(space, store, tally, &Object { local, slot: old });
                tally.replacements.add(1);
            }
            None => {
                if index.insert(shared, &store.turns, slot).is_err() {
                    tally.refused_crowded.add(1);
                    return Err(self.refuse(InsertRefusal::NoRoom));
                }
                link_records(space, store, tally, &object);
                tally.objects.add(1);
                tally.inserts.add(1);
                tally.index_bytes.set(index.bytes(shared));
            }
        }
        if expires_anew {
            self.enter(&slot);
        }
        self.sift();
        Ok(())
    }

    /// Returns the slot, marked as one that [`enter`](Self::enter) is to enter now: in the expiry queue or in
    /// the notes of its segment.
    pub(super) fn marked(&self, slot: Slot) -> Slot {
        let segment = self.local.store.geometry.segment_of(slot.location());
        let (log, open_s) = (self.space.log(segment), self.space.age_s(segment));
        let lifetime_s = slot.expires_s().saturating_sub(self.space.now_s());
        let unqueued = slot.expires_s() != u32::MAX && self.unqueued.outlives_stay(log, open_s, lifetime_s);
        slot.with_unqueued(unqueued).with_sifting(self.expiry.sifting())
    }

    /// Makes sure that an object whose slot is marked is found when it expires.
    pub(super) fn enter(&mut self, slot: &Slot) {
        let expires_s = slot.expires_s();
        if slot.is_unqueued() {
            let segment = self.local.store.geometry.segment_of(slot.location());
            self.unqueued.note(self.space.claimed(segment), expires_s);
        } else if expires_s != u32::MAX {
            self.expiry.push(Due { expires_s, prefix: slot.hash().prefix() });
        }
    }

    pub(super) fn unlink_at(&mut self, slot: Slot, at: SlotAddress) {
        let Self { local, index, space, .. } = self;
        let store = &*local.store;
        let tally = &store.shards[local.core].tally;
        index.remove(&store.shards[local.core].index, at);
        unlink_records(space, store, tally, &Object { local, slot });
        tally.objects.subtract(1);
    }
}

fn link_records(space: &mut Space, store: &Store, tally: &Tally, object: &Object<'_>) {
    object.records().for_each(|place| space.link(store, tally, place));
}

fn unlink_records(space: &mut Space, store: &Store, tally: &Tally, object: &Object<'_>) {
    // The record with the table of extents is unlinked last, because the table is read until then.
    object.records().for_each(|place| space.unlink(store, tally, place));
}
