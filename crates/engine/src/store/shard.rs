//! The owner's handle of a shard; other files of this module implement the changes that it makes.
//!
//! ```text
//! begin ─▶ ObjectWriter ─extend, written─▶ ... ─▶ finish (fill.rs) ─┐
//! insert (insert.rs) ───────────────────────────────────────────────┴▶ link (link.rs) ─▶ index, expiry queue
//! unlink, expire (expire.rs), evict (evict.rs) ─▶ index slot cleared ─▶ segment's live count ─▶ retired at zero
//! ```
//! *Core:* the shard's own. *Waiting:* never. *Bounds:* each step handles a bounded number of records.

use std::{collections::HashMap, sync::Arc};

use super::{
    directory::IndexOwner,
    expiry::ExpiryQueue,
    filling::InsertRefusal,
    ghost::Ghosts,
    hash::Hash,
    index::{Index, Slot, SlotAddress},
    object::Object,
    reader::Reader,
    record::{Kind, UNIT},
    shared::{Local, Store},
    space::{EvictionProgress, Space},
    unqueued::UnqueuedObjects,
    usage::Tally,
};

/// A core's part of the store; only the core that owns it holds this handle.
#[derive(Debug)]
pub struct Shard {
    pub(super) local: Arc<Local>,
    pub(super) index: IndexOwner,
    pub(super) space: Space,
    pub(super) ghosts: Ghosts,
    pub(super) expiry: ExpiryQueue,
    pub(super) unqueued: UnqueuedObjects,
    pub(super) sequence: u64,
    /// File tier of this shard, if the store has a file.
    #[cfg(not(feature = "loom"))]
    pub(super) file: Option<Box<super::tier::FileTier>>,
    /// Changes since startup, recorded while the file is still being read.
    #[cfg(not(feature = "loom"))]
    pub(super) warming: Option<Box<super::tier::WarmupChanges>>,
    pub(super) emptying: Option<EvictionProgress>,
}

impl Shard {
    pub(super) fn new(local: Arc<Local>) -> Self {
        let core = local.core;
        let geometry = local.store.geometry;
        let shared = &local.store.shards[core];
        let index = IndexOwner::new(&shared.index, core, geometry.cores);
        let ghosts = Ghosts::new(geometry.segments_per_core * geometry.segment_bytes);
        let space = Space::new(core, geometry.segments_per_core, geometry.segment_bytes);
        shared.tally.probation_bytes.set(space.probation_bytes());
        shared.tally.ghost_bytes.set(ghosts.bytes());
        shared.tally.index_bytes.set(index.bytes(&shared.index));
        Self {
            index,
            space,
            ghosts,
            expiry: ExpiryQueue::new(),
            unqueued: UnqueuedObjects::new(core, geometry.segments_per_core),
            sequence: 0,
            #[cfg(not(feature = "loom"))]
            file: None,
            #[cfg(not(feature = "loom"))]
            warming: None,
            emptying: None,
            local,
        }
    }

    /// Returns the store to which this shard belongs.
    pub fn store(&self) -> &Arc<Store> {
        &self.local.store
    }

    /// Returns the core that owns this shard.
    pub fn core(&self) -> usize {
        self.local.core
    }

    /// Returns a reader for the owner's core.
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.local))
    }

    pub(super) fn shared(&self) -> &Index {
        &self.local.store.shards[self.local.core].index
    }

    pub(super) fn tally(&self) -> &Tally {
        &self.local.store.shards[self.local.core].tally
    }

    /// Looks up a key and counts the visit. The owner's answer is definite, never contended.
    pub fn lookup_owned(&self, hash: Hash, key: &[u8]) -> Option<Object<'_>> {
        let (slot, at) = self.find(hash, key)?;
        self.shared().visit(self.local.core, at);
        Some(Object { local: &self.local, slot })
    }

    /// Looks up a key like [`lookup_owned`](Self::lookup_owned), without counting a visit.
    pub fn peek(&self, hash: Hash, key: &[u8]) -> Option<Object<'_>> {
        let (slot, _) = self.find(hash, key)?;
        Some(Object { local: &self.local, slot })
    }

    pub(super) fn find(&self, hash: Hash, key: &[u8]) -> Option<(Slot, SlotAddress)> {
        self.assert_owned(hash);
        let found = self.index.find(self.shared(), hash)?;
        self.local.store.record(found.0.location()).key().eq(key).then_some(found)
    }

    pub(super) fn assert_owned(&self, hash: Hash) {
        let owner = self.local.store.owner(hash);
        assert!(
            owner == self.local.core,
            "core {} received a request for core {owner}'s key",
            self.local.core
        );
    }

    /// Unlinks an object; returns whether it was found.
    pub fn unlink(&mut self, hash: Hash, key: &[u8]) -> bool {
        // The object's copy in the file is found by its hash alone, because comparing its key would require a
        // disk read; only one object per hash is kept anyway.
        #[cfg(not(feature = "loom"))]
        let was_on_file = self.end_on_file(hash);
        #[cfg(feature = "loom")]
        let was_on_file = false;
        let Some((slot, at)) = self.find(hash, key) else { return was_on_file };
        self.unlink_at(slot, at);
        self.tally().unlinks.add(1);
        true
    }

    /// Changes the expiry of an object; returns whether the object was found.
    pub fn refresh(&mut self, hash: Hash, key: &[u8], expires_s: u32) -> bool {
        let Some((slot, at)) = self.find(hash, key) else { return false };
        if slot.expires_s() != expires_s {
            let refreshed = self.marked(slot.with_expires_s(expires_s));
            let shared = &self.local.store.shards[self.local.core].index;
            self.index.update(shared, at, refreshed);
            self.enter(&refreshed);
            self.sift();
            #[cfg(not(feature = "loom"))]
            self.keep(refreshed);
        }
        true
    }

    pub(super) fn refuse(&self, refused: InsertRefusal) -> InsertRefusal {
        let tally = self.tally();
        match refused {
            InsertRefusal::NoRoom => tally.refused_no_room.add(1),
            InsertRefusal::TooLarge => tally.refused_too_large.add(1),
            InsertRefusal::Short => tally.refused_short.add(1),
        }
        refused
    }

    /// Checks all invariants of the shard. Slow; for tests.
    ///
    /// # Panics
    /// Panics with a description of the first invariant that does not hold.
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
            for place in object.records() {
                let counts = live.entry(store.geometry.segment_of(place.location)).or_default();
                counts.0 += 1;
                counts.1 += place.bytes();
            }
            let is_found_when_due = if slot.is_unqueued() {
                let segment = store.geometry.segment_of(slot.location());
                let offset = (slot.location() - store.segment_start(segment)) as usize * UNIT;
                self.unqueued.covers(self.space.claimed(segment), offset, slot.expires_s())
            } else {
                slot.expires_s() == u32::MAX || entries.contains(&(slot.expires_s(), slot.hash().prefix()))
            };
            assert!(is_found_when_due, "an object that nothing will expire");
        }
        self.space.invariants(store, tally, &live);
    }
}
