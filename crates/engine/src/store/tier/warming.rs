//! A shard that works while its file is still being read at startup.
//!
//! ```text
//! start ─▶ warming: the contents of the file are unknown, every miss goes to the origin
//!            │  object stored, replaced, dropped ─▶ its hash is noted as touched
//!  file read ▼
//!          catching up, some hashes per step: object in memory? ─▶ written, in place of the older record
//!            │                                object gone?      ─▶ deletion of the older record is written
//!            ▼
//!          warm: waiting purges are answered
//! ```
//! The file's older records therefore do not undo any change made meanwhile: until its hash has been
//! processed, a touched object is not found in the file. *Core:* the shard's owner. *Bounds:* [`TOUCHED_MAX`]
//! hashes, beyond which no new object is stored (drops may take as many again); [`PURGES_WAITING_MAX`] purges
//! that wait to be acknowledged.

use std::collections::HashSet;

use tokio::sync::oneshot;

use super::{FileTier, Promise, SEQUENCE_BITS, lifetimes::Tickets};
use crate::{
    log::AppendRefusal,
    store::{Hash, Shard},
};

/// Maximum number of hashes noted for objects that are stored while the file is being read; including dropped
/// objects, twice as many. At most 32 bytes each.
const TOUCHED_MAX: usize = 1 << 20;
/// Maximum number of a shard's purges that wait for its file to be read.
const PURGES_WAITING_MAX: usize = 4096;
/// Number of hashes of changed objects that one step processes.
const HASHES_A_STEP: usize = 256;

/// Tickets that a purge waits for if it was made before the file was read; an error if the log refused the
/// deletion.
pub(super) type PurgeTickets = Result<Tickets, ()>;

/// Changes in a shard while the contents of its file are unknown.
#[derive(Debug)]
pub(in crate::store) struct WarmupChanges {
    /// Hashes of changed objects, in order. Hashes that were processed out of order are still here; `set`
    /// tells which remain.
    order: Vec<u64>,
    set: HashSet<u64>,
    waiting: Vec<oneshot::Sender<PurgeTickets>>,
    /// True once a dropped object could not be noted for lack of room: from then on, no purge is promised to
    /// be durable.
    is_overrun: bool,
}

impl WarmupChanges {
    fn new() -> Self {
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
    fn is_full(&self, hash: u64) -> bool {
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

impl Shard {
    /// Lets the shard work before the contents of its file are known. The sequence numbers of stored objects
    /// start from `epoch`.
    pub(super) fn warm_up(&mut self, epoch: u64) {
        self.warming = Some(Box::new(WarmupChanges::new()));
        self.sequence = epoch << SEQUENCE_BITS;
        self.tally().file_warming.set(1);
    }

    /// Returns whether the file is still being read, or changes made during that time have not all been
    /// written to it yet.
    pub fn is_warming(&self) -> bool {
        self.warming.is_some() || self.file.as_ref().is_some_and(|file| file.catching_up.is_some())
    }

    /// Continues in memory alone, because the file could not be read. The purges made so far are not promised
    /// to be durable.
    pub fn go_without_file(&mut self) {
        // Dropping the changes closes the channels of waiting purges, which thereby fail.
        self.warming = None;
        self.tally().file_warming.set(0);
        self.tally().file_lost.set(1);
    }

    /// Returns whether no more stored objects can be noted while the file is being read.
    pub(in crate::store) fn has_no_room_while_warming(&self, hash: Hash) -> bool {
        self.warming.as_ref().is_some_and(|warming| warming.is_full(hash.word()))
    }

    /// Processes some of the changes made while the file was read; returns whether more can be processed now.
    pub(super) fn catch_up(&mut self) -> bool {
        for _ in 0..HASHES_A_STEP {
            let Some(file) = &mut self.file else { return false };
            let Some(warming) = &mut file.catching_up else { return false };
            if !file.ends.is_empty() {
                return false;
            }
            let Some(hash) = warming.order.pop() else {
                self.caught_up();
                return false;
            };
            if !warming.set.contains(&hash) {
                continue;
            }
            let hash = Hash::from_word(hash);
            match self.index.find(self.shared(), hash) {
                Some(_) if !self.is_admitted(hash) => self.settle_while_catching_up(hash),
                Some((slot, _)) => match self.put(slot) {
                    Ok(()) => {}
                    // The disk must catch up first.
                    Err(AppendRefusal::Busy | AppendRefusal::Full) => {
                        if let Some(warming) = self.file.as_mut().and_then(|file| file.catching_up.as_mut()) {
                            // The object's older copy may be gone already; the object itself is not written
                            // yet, so its hash stays in the set.
                            warming.set.insert(hash.word());
                            warming.order.push(hash.word());
                        }
                        return false;
                    }
                    Err(AppendRefusal::TooLarge) => self.not_put(hash, AppendRefusal::TooLarge),
                },
                None => {
                    self.end_on_file(hash);
                }
            }
        }
        true
    }

    /// Marks as processed an object that is not written to the file and replaces no record there.
    fn settle_while_catching_up(&mut self, hash: Hash) {
        if let Some(file) = &mut self.file {
            file.settle(hash.word());
        }
    }

    /// Ends the catching-up phase: all changes made while the file was read are in the log, and the waiting
    /// purges now wait for the disk.
    fn caught_up(&mut self) {
        let Some(file) = &mut self.file else { return };
        let Some(warming) = file.catching_up.take() else { return };
        for waiting in warming.waiting {
            // The client that requested the purge may be gone.
            let _ = waiting.send(file.written());
        }
        self.tally().file_warming.set(0);
    }
}

impl FileTier {
    /// Requests that every deletion so far is written, and returns the tickets to wait for.
    pub(super) fn written(&self) -> PurgeTickets {
        if !self.ends.is_empty() {
            return Err(());
        }
        Ok(self.writers.tickets())
    }
}
