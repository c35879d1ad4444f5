//! The file tier of a shard: attached once the file has been read, then kept up to date with the shard's clock
//! and its deletions.

use super::{Promise, SEQUENCE_BITS, Tier};
use crate::store::{hash::Hash, index::Slot, shard::Shard};

impl Shard {
    /// Attaches the file tier: from now on stored objects are also written to the file, and the objects on
    /// the file are found.
    pub fn put_on_file(&mut self, tier: Tier) {
        let Tier { mut tier, epoch } = tier;
        tier.count(self.tally());
        tier.catching_up = self.warming.take().filter(|warming| !warming.is_idle());
        self.tally().file_warming.set(tier.catching_up.is_some().into());
        self.file = Some(tier);
        // Sequence numbers are part of the keys of variants, so none may be used twice. During warm-up they
        // began at the epoch known at that time, which is not higher than this one.
        self.sequence = self.sequence.max(epoch << SEQUENCE_BITS);
    }

    /// Sets the current time of the file tier.
    pub(in crate::store) fn tell_file(&mut self, now_s: u32) {
        if let Some(file) = &mut self.file {
            file.writers.tell(now_s);
        }
    }

    /// Removes an expired object from the file.
    pub(in crate::store) fn forget_expired(&mut self, slot: &Slot) {
        if let Some(file) = &mut self.file
            && file.known(slot.hash).is_some_and(|kept| kept.expires_s <= slot.expires_s())
        {
            file.forget(slot.hash());
        }
    }

    /// Deletes an object on request; returns whether it was in the file.
    pub(in crate::store) fn end_on_file(&mut self, hash: Hash) -> bool {
        if let Some(warming) = &mut self.warming
            && !warming.touch(hash.word())
        {
            self.tally().file_refused.add(1);
        }
        let Self { local, file, .. } = self;
        let Some(file) = file else { return false };
        file.copies.retain(|copying| copying.hash() != hash);
        let was_there = file.end(hash);
        file.count(&local.store.shards[local.core].tally);
        was_there
    }

    /// Returns the promise to await before a removal is acknowledged, and requests that the deletion is
    /// written now. While the file is being read at startup, the promise first waits for the end of reading.
    pub fn promise(&mut self) -> Promise {
        let warming = match &mut self.file {
            None => &mut self.warming,
            Some(file) => &mut file.catching_up,
        };
        if let Some(warming) = warming {
            return warming.promise();
        }
        Promise::of_file(self.file.as_ref().map(|file| file.written()))
    }
}
