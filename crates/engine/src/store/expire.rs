//! Expiry of a shard's objects, and the sifting of its expiry queue.

use super::shard::Shard;

/// Number of entries that each insert sifts while the queue is too long.
const SIFT_A_STEP: usize = 4;

impl Shard {
    /// Unlinks the objects that are due at `now_s`, examining at most `limit` entries of the queue, and
    /// returns how many objects were unlinked. If [`Shard::next_expiry_s`] is later than `now_s` afterwards,
    /// all due entries were processed.
    pub fn expire(&mut self, now_s: u32, limit: usize) -> usize {
        self.space.tell(now_s);
        #[cfg(not(feature = "loom"))]
        self.tell_file(now_s);
        let mut expired = 0;
        for _ in 0..limit {
            let Some(due) = self.expiry.pop_due(now_s) else { break };
            for (slot, at) in self.index.find_due(self.shared(), due.prefix, due.expires_s) {
                #[cfg(not(feature = "loom"))]
                self.forget_expired(&slot);
                self.unlink_at(slot, at);
                expired += 1;
            }
        }
        self.tally().expiries.add(expired as u64);
        self.tally().expiry_entries.set(self.expiry.len() as u64);
        expired
    }

    /// Returns the second at which the next entry of the expiry queue is due.
    pub fn next_expiry_s(&self) -> Option<u32> {
        self.expiry.next_s()
    }

    /// Sifts some entries of the expiry queue, if it is too long.
    pub(super) fn sift(&mut self) {
        let Self { local, index, expiry, .. } = self;
        let shared = &local.store.shards[local.core].index;
        let tally = &local.store.shards[local.core].tally;
        for _ in 0..SIFT_A_STEP {
            let Some(due) = expiry.take_unsifted(tally.objects.value() as usize) else { break };
            let mut is_entered = true;
            for (slot, at) in index.find_due(shared, due.prefix, due.expires_s) {
                if slot.sifting() != expiry.sifting() {
                    index.update(shared, at, slot.with_sifting(expiry.sifting()));
                    is_entered = false;
                }
            }
            if !is_entered {
                expiry.push(due);
            }
        }
        expiry.sifted_soon(SIFT_A_STEP).for_each(|prefix| shared.prefetch(prefix));
        tally.expiry_entries.set(expiry.len() as u64);
    }
}
