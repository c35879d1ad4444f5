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
//! processed, a touched object is not found in the file. *Core:* the shard's owner. *Bounds:* those of
//! `warmup_changes.rs`.

use super::{FileTier, SEQUENCE_BITS, WarmupChanges, promise::PurgeTickets};
use crate::{
    log::AppendRefusal,
    store::{Hash, Shard},
};

/// Number of hashes of changed objects that one step processes.
const HASHES_A_STEP: usize = 32;

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
