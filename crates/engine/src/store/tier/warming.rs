//! A shard that works while its file is still being read at the start.
//!
//! ```text
//! start ─▶ warming: nothing is known of the file, every miss is the origin's
//!            │  stored, replaced, dropped ─▶ its hash is touched
//!  file read ▼
//!          catching up, some hashes a step: in memory? ─▶ written, in place of the older record
//!            │                              not there? ─▶ the older record's end is written
//!            ▼
//!          warm: purges that wait are answered
//! ```
//! So the file's older records undo nothing that was stored or dropped meanwhile: until its hash has been looked at, a
//! touched object is not found on the file. *Which core:* the shard's owner. *Bounds:* [`TOUCHED_MAX`] hashes, beyond
//! which nothing new is stored (drops may be as many again); [`PURGES_WAITING_MAX`] purges that wait to be
//! acknowledged.

use std::collections::HashSet;

use tokio::sync::oneshot;

use super::{FileTier, Promise, SEQUENCE_BITS, lifetimes::Tickets};
use crate::{
    log::AppendRefusal,
    store::{Hash, Shard},
};

/// Hashes of what a shard stores while it is warming; with drops, twice as many. 32 bytes each at most.
const TOUCHED_MAX: usize = 1 << 20;
/// Purges of a shard that wait for its file.
const PURGES_WAITING_MAX: usize = 4096;
/// Touched hashes that one step looks at.
const HASHES_A_STEP: usize = 256;

/// What a purge made while warming waits for, or nothing if the disk did not take it.
pub(super) type PurgeTickets = Result<Tickets, ()>;

/// What happened to a shard while nobody knew what its file holds.
#[derive(Debug)]
pub(in crate::store) struct WarmupChanges {
    /// Each hash once, but for those that were looked at out of turn; `set` says which are left.
    order: Vec<u64>,
    set: HashSet<u64>,
    waiting: Vec<oneshot::Sender<PurgeTickets>>,
    /// Something was dropped and could not be noted: no purge is promised to hold any more.
    is_overrun: bool,
}

impl WarmupChanges {
    fn new() -> Self {
        // Room from the start, so that no insert waits for a table to grow; pages of it that are not used are not
        // there.
        Self {
            order: Vec::new(),
            set: HashSet::with_capacity(TOUCHED_MAX),
            waiting: Vec::new(),
            is_overrun: false,
        }
    }

    /// Notes that an object was stored or dropped; `false` if there is no room for that.
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

    /// Whether the object's record on the file, if there is one, is outdated.
    pub(super) fn is_touched(&self, hash: u64) -> bool {
        self.set.contains(&hash)
    }

    /// The object's record on the file has been seen to.
    pub(super) fn settle(&mut self, hash: u64) {
        self.set.remove(&hash);
    }

    /// Whether nothing has happened that must be seen to.
    pub(super) fn is_idle(&self) -> bool {
        self.set.is_empty() && self.waiting.is_empty()
    }

    /// What has not been seen to.
    pub(super) fn left(self) -> impl Iterator<Item = u64> {
        self.set.into_iter()
    }

    /// Whether there is no room for one more object to be stored.
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
    /// Lets it work though it is not yet known what its file holds. What is stored has numbers from `epoch` on.
    pub(super) fn warm_up(&mut self, epoch: u64) {
        self.warming = Some(Box::new(WarmupChanges::new()));
        self.sequence = epoch << SEQUENCE_BITS;
        self.tally().file_warming.set(1);
    }

    /// Whether the file is still being read, or what was stored and dropped meanwhile is not yet written to it.
    pub fn is_warming(&self) -> bool {
        self.warming.is_some() || self.file.as_ref().is_some_and(|file| file.catching_up.is_some())
    }

    /// The file could not be read: the shard goes on in memory alone, and no purge so far is promised to hold.
    pub fn go_without_file(&mut self) {
        // Purges that wait find their channels closed.
        self.warming = None;
        self.tally().file_warming.set(0);
        self.tally().file_lost.set(1);
    }

    /// Whether so much has been stored while warming that no more can be remembered.
    pub(in crate::store) fn has_no_room_while_warming(&self, hash: Hash) -> bool {
        self.warming.as_ref().is_some_and(|warming| warming.is_full(hash.word()))
    }

    /// Sees to some of what happened while the file was read; whether there is more to do now.
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
                    // The disk has to catch up first.
                    Err(AppendRefusal::Busy | AppendRefusal::Full) => {
                        if let Some(warming) = self.file.as_mut().and_then(|file| file.catching_up.as_mut()) {
                            // Its older copy may be gone already; the object itself is not written yet, so it stays in
                            // the set.
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

    /// Nothing on the file is replaced by this object, and it is not written to the file.
    fn settle_while_catching_up(&mut self, hash: Hash) {
        if let Some(file) = &mut self.file {
            file.settle(hash.word());
        }
    }

    /// Everything stored and dropped while warming is in the log: the purges that wait now wait for the disk.
    fn caught_up(&mut self) {
        let Some(file) = &mut self.file else { return };
        let Some(warming) = file.catching_up.take() else { return };
        for waiting in warming.waiting {
            // The client that purges may be gone.
            let _ = waiting.send(file.written());
        }
        self.tally().file_warming.set(0);
    }
}

impl FileTier {
    /// What to wait for until every end so far is written; asks for it.
    pub(super) fn written(&self) -> PurgeTickets {
        if !self.ends.is_empty() {
            return Err(());
        }
        Ok(self.writers.tickets())
    }
}
