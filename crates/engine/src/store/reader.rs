//! Looking things up: a core's reader, its turns, what a lookup answers.

use std::{cell::Cell, marker::PhantomData, sync::Arc};

use super::{
    hash::Hash,
    index::SlotLookup,
    object::Object,
    shared::{Local, Store},
};
use crate::sys::atomics::Ordering::Relaxed;

/// A core's way into the store. Moves with its thread, is not shared.
#[derive(Debug)]
pub struct Reader {
    local: Arc<Local>,
    /// Turns are counted by core: two threads must not use one reader.
    not_sync: PhantomData<Cell<()>>,
}

impl Reader {
    pub(super) fn new(local: Arc<Local>) -> Self {
        Self { local, not_sync: PhantomData }
    }

    /// The store.
    pub fn store(&self) -> &Arc<Store> {
        &self.local.store
    }

    /// The core whose reader this is.
    pub fn core(&self) -> usize {
        self.local.core
    }

    /// Begins a turn: what is looked up in it stays readable until it is dropped. One memory fence; take one turn
    /// for a batch of requests, and never hold it while waiting or storing: segments are not freed meanwhile.
    ///
    /// # Panics
    /// If this core is in a turn already.
    #[inline]
    pub fn turn(&self) -> EpochGuard<'_> {
        self.local.store.turns.begin(self.local.core);
        EpochGuard { local: &self.local, not_send: PhantomData }
    }
}

/// A turn. Not `Send`, so that it cannot be held across an `.await` of a task that moves.
#[derive(Debug)]
pub struct EpochGuard<'r> {
    local: &'r Arc<Local>,
    not_send: PhantomData<*const ()>,
}

/// What a lookup answers.
#[derive(Debug, Clone, Copy)]
pub enum Lookup<'t> {
    /// It is there, whole. Whether it is still fresh is the caller's business.
    Hit(Object<'t>),
    /// It is not there.
    Miss,
    /// The owner was writing just there each time; it knows for certain. To be treated as a miss at the owner.
    Contended,
}

impl EpochGuard<'_> {
    /// As [`Store::hash`].
    #[inline]
    pub fn hash(&self, key: &[u8]) -> Hash {
        self.local.store.hash(key)
    }

    /// Looks up a key whose hash is known, and notes the visit. Allocates nothing, takes no lock, waits for nobody.
    #[inline]
    pub fn lookup(&self, hash: Hash, key: &[u8]) -> Lookup<'_> {
        let store = &self.local.store;
        let index = &store.shards[store.owner(hash)].index;
        match index.lookup(hash) {
            SlotLookup::Slot(slot, at) => {
                index.prefetch_visited(self.local.core, at);
                Object::prefetch(self.local, &slot);
                let record = store.record(slot.location());
                if !record.key().eq(key) || record.hash() != hash {
                    return Lookup::Miss;
                }
                index.visit(self.local.core, at);
                Lookup::Hit(Object { local: self.local, slot })
            }
            SlotLookup::Absent => Lookup::Miss,
            SlotLookup::Contended => {
                let count = &store.contended[self.local.core].0;
                count.store(count.load(Relaxed) + 1, Relaxed);
                Lookup::Contended
            }
        }
    }

    /// A hint that `hash` will be looked up soon: brings its bucket near. Worth it for a batch: hint all, then
    /// [`EpochGuard::prefetch_record`] for all, then look them up.
    #[inline]
    pub fn prefetch(&self, hash: Hash) {
        let store = &self.local.store;
        store.shards[store.owner(hash)].index.prefetch(hash.prefix());
    }

    /// The second hint: reads the bucket (which should be near by now) and brings the record near.
    #[inline]
    pub fn prefetch_record(&self, hash: Hash) {
        let store = &self.local.store;
        let index = &store.shards[store.owner(hash)].index;
        if let SlotLookup::Slot(slot, at) = index.lookup(hash) {
            index.prefetch_visited(self.local.core, at);
            Object::prefetch(self.local, &slot);
        }
    }
}

impl Drop for EpochGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.local.store.turns.end(self.local.core);
    }
}
