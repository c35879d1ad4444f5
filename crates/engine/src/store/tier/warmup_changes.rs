//! Changes that a shard notes while its file is still being read (`warming.rs`).
//!
//! *Bounds:* [`TOUCHED_MAX`] hashes, beyond which no new object is stored (drops may take as many again);
//! [`PURGES_WAITING_MAX`] purges that wait to be acknowledged.

use std::collections::HashSet;

use tokio::sync::oneshot;

use super::promise::{Promise, PurgeTickets};

/// Maximum number of hashes noted for objects that are stored while the file is being read; including dropped
/// objects, twice as many. At most 32 bytes each.
const TOUCHED_MAX: usize = 1 << 20;
/// Maximum number of a shard's purges that wait for its file to be read.
const PURGES_WAITING_MAX: usize = 4096;

/// Changes in a shard while the contents of its file are unknown.
#[derive(Debug)]
pub(in crate::store) struct WarmupChanges {
    /// Hashes of changed objects, in order. Hashes that were processed out of order are still here; `set`
    /// tells which remain.
    pub(super) order: Vec<u64>,
    pub(super) set: HashSet<u64>,
    pub(super) waiting: Vec<oneshot::Sender<PurgeTickets>>,
    /// True once a dropped object could not be noted for lack of room: from then on, no purge is promised to
    /// be durable.
    is_overrun: bool,
}

impl WarmupChanges {
    pub(super) fn new() -> Self {
        // The capacity is reserved from the start, so that no insert waits for a table to grow; unused pages
        // of it are not resident.
        Self {
            order: Vec::new(),
            set: HashSet::with_capacity(TOUCHED_MAX),
            waiting: Vec::new(),
            is_overrun: false,
        }
    }

    /// Notes that an object was stored or dropped; `false` if there is no room for another hash.
    pub(super) fn touch(&mut self, hash: u64) -> bool {
        if self.set.contains(&hash) {
            return true;
        }
        if self.set.len() >= 2 * TOUCHED_MAX {
            self.is_overrun = true;
            return false;
        }
        self.set.insert(hash);
        self.order.push(hash);
        true
    }

    /// Returns whether the object was changed while the file was read, so that its record in the file is
    /// outdated.
    pub(super) fn is_touched(&self, hash: u64) -> bool {
        self.set.contains(&hash)
    }

    /// Removes the hash of an object whose outdated record in the file has been replaced or deleted.
    pub(super) fn settle(&mut self, hash: u64) {
        self.set.remove(&hash);
    }

    /// Returns whether no change remains to be written and no purge is waiting.
    pub(super) fn is_idle(&self) -> bool {
        self.set.is_empty() && self.waiting.is_empty()
    }

    /// Returns the hashes of changed objects that have not been processed.
    pub(super) fn left(self) -> impl Iterator<Item = u64> {
        self.set.into_iter()
    }

    /// Returns whether there is no room to note another stored object.
    pub(super) fn is_full(&self, hash: u64) -> bool {
        self.set.len() >= TOUCHED_MAX && !self.set.contains(&hash)
    }

    pub(super) fn promise(&mut self) -> Promise {
        if self.is_overrun || self.waiting.len() >= PURGES_WAITING_MAX {
            return Promise::refused();
        }
        let (sender, receiver) = oneshot::channel();
        self.waiting.push(sender);
        Promise::after(receiver)
    }
}
