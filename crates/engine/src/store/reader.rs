//! Lookups: a core's reader, its epochs, and the possible results.

use std::{cell::Cell, marker::PhantomData, sync::Arc};

use super::{
    hash::Hash,
    index::SlotLookup,
    object::Object,
    shared::{Local, Store},
};
use crate::sys::atomics::Ordering::Relaxed;

/// A core's read access to the store. It may move to another thread but cannot be shared between threads.
#[derive(Debug)]
pub struct Reader {
    local: Arc<Local>,
    /// Epochs are counted per core, so two threads must not use one reader.
    not_sync: PhantomData<Cell<()>>,
}

impl Store {
    /// Returns the reader of a core, to be used on that core's thread. A core can be in only one epoch at a
    /// time, whatever the number of its readers.
    ///
    /// # Panics
    /// Panics if there is no such core.
    pub fn reader(self: &Arc<Self>, core: usize) -> Reader {
        assert!(core < self.geometry.cores, "core {core} of {}", self.geometry.cores);
        Reader::new(Arc::new(Local { store: Arc::clone(self), core }))
    }
}

impl Reader {
    pub(super) fn new(local: Arc<Local>) -> Self {
        Self { local, not_sync: PhantomData }
    }

    /// Returns the store from which this reader reads.
    pub fn store(&self) -> &Arc<Store> {
        &self.local.store
    }

    /// Returns the core to which this reader belongs.
    pub fn core(&self) -> usize {
        self.local.core
    }

    /// Begins an epoch: objects that are looked up through the guard stay readable until it is dropped. Costs
    /// one memory fence. Use one guard for a batch of requests, and never hold it while waiting or storing,
    /// because segments cannot be freed in the meantime.
    ///
    /// # Panics
    /// Panics if this core is already in an epoch.
    #[inline]
    pub fn turn(&self) -> EpochGuard<'_> {
        self.local.store.turns.begin(self.local.core);
        EpochGuard { local: &self.local, not_send: PhantomData }
    }
}

/// Guard of an epoch. Not `Send`, so that a task which may move between threads cannot hold it across an
/// `.await`.
#[derive(Debug)]
pub struct EpochGuard<'r> {
    local: &'r Arc<Local>,
    not_send: PhantomData<*const ()>,
}

/// Result of a lookup.
#[derive(Debug, Clone, Copy)]
pub enum Lookup<'t> {
    /// The complete object is stored. The caller checks whether it is still fresh.
    Hit(Object<'t>),
    /// The object is not stored.
    Miss,
    /// The owner was writing the bucket at each attempt, so only the owner knows the answer. The owner treats
    /// this as a miss.
    Contended,
}

impl EpochGuard<'_> {
    /// Hashes a key like [`Store::hash`].
    #[inline]
    pub fn hash(&self, key: &[u8]) -> Hash {
        self.local.store.hash(key)
    }

    /// Looks up a key whose hash is known, and counts the visit. Allocates no memory, takes no lock and never
    /// waits.
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

    /// Prefetches the bucket of a `hash` that will be looked up soon. Useful for a batch: call this for all
    /// hashes, then [`EpochGuard::prefetch_record`] for all, then look them up.
    #[inline]
    pub fn prefetch(&self, hash: Hash) {
        let store = &self.local.store;
        store.shards[store.owner(hash)].index.prefetch(hash.prefix());
    }

    /// Reads the bucket (which should be in the cache after [`EpochGuard::prefetch`]) and prefetches the
    /// record.
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
