//! Expiry of a shard's objects, and the sifting of its expiry queue.

use super::{
    index::{Slot, SlotAddress},
    record::{Kind, UNIT},
    shard::Shard,
    unqueued::SegmentWalk,
};

/// Number of entries that each insert sifts while the queue is too long.
const SIFT_A_STEP: usize = 4;

impl Shard {
    /// Unlinks the objects that are due at `now_s`, examining at most `limit` entries of the queue and as many
    /// records without an entry, and returns how many objects were unlinked. If [`Shard::next_expiry_s`] is
    /// later than `now_s` afterwards, all due objects were unlinked.
    pub fn expire(&mut self, now_s: u32, limit: usize) -> usize {
        self.space.tell(now_s);
        #[cfg(not(feature = "loom"))]
        self.tell_file(now_s);
        let mut expired = 0;
        for _ in 0..limit {
            let walk = self.unqueued.walk_due(&self.space, now_s);
            if let Some(walk) = walk {
                expired += usize::from(self.walk_on(walk, now_s));
            }
            let Some(due) = self.expiry.pop_due(now_s) else {
                if walk.is_some() {
                    continue;
                }
                break;
            };
            for (slot, at) in self.index.find_due(self.shared(), due.prefix, due.expires_s) {
                self.expire_at(slot, at);
                expired += 1;
            }
        }
        self.tally().expiries.add(expired as u64);
        self.tally().expiry_entries.set(self.expiry.len() as u64);
        expired
    }

    fn expire_at(&mut self, slot: Slot, at: SlotAddress) {
        #[cfg(not(feature = "loom"))]
        self.forget_expired(&slot);
        self.unlink_at(slot, at);
    }

    /// Examines the next record of a segment: if its object has no entry in the expiry queue, unlinks it if it
    /// is due, and otherwise enters it. Returns whether an object was unlinked.
    fn walk_on(&mut self, walk: SegmentWalk, now_s: u32) -> bool {
        let SegmentWalk { claimed, walked } = walk;
        let used = self.space.used(claimed.segment);
        if !self.space.is_current(claimed) || walked >= used {
            self.unqueued.walk = None;
            return false;
        }
        let location = self.local.store.segment_start(claimed.segment) + (walked / UNIT) as u64;
        let record = self.local.store.record(location);
        let (kind, hash) = (record.kind(), record.hash());
        let walked = walked + record.units() as usize * UNIT;
        assert!(walked <= used, "records of segment {} do not end at its end", claimed.segment);
        self.unqueued.walk = (walked < used).then_some(SegmentWalk { claimed, walked });
        if !matches!(kind, Kind::Whole | Kind::Chained) {
            return false;
        }
        let Some((slot, at)) = self.index.find(self.shared(), hash) else { return false };
        if slot.location() != location || !slot.is_unqueued() {
            return false;
        }
        if slot.expires_s() <= now_s {
            self.expire_at(slot, at);
            return true;
        }
        let entered = slot.with_unqueued(false).with_sifting(self.expiry.sifting());
        let shared = &self.local.store.shards[self.local.core].index;
        self.index.update(shared, at, entered);
        self.enter(&entered);
        false
    }

    /// Returns a second before which no object expires.
    pub fn next_expiry_s(&self) -> Option<u32> {
        let unqueued_s = Some(self.unqueued.next_s()).filter(|next_s| *next_s != u32::MAX);
        [self.expiry.next_s(), unqueued_s].into_iter().flatten().min()
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
