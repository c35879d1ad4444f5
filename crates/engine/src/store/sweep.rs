//! A walk through all objects in a shard's memory, in bounded steps, that drops the objects matching a
//! condition.
//!
//! ```text
//!  the space of hashes, as pages divide it     0 ├─page─┼──page──┼page┼page┼──── … ────┤ end
//!                                                                ▲ position of the walk
//! ```
//! A step examines whole pages, and pages split but are never joined. So a boundary between two pages always
//! remains one, and an object that stays stored during the whole walk is visited exactly once, however much
//! the index grows between two steps.

use std::sync::atomic::Ordering::Relaxed;

use smallvec::SmallVec;

use super::{
    directory::IndexOwner,
    index::{BUCKETS, Index, SLOTS, Slot, SlotAddress, read_slot},
    object::Object,
    shard::Shard,
};

/// End of the hash space that is divided among the index pages.
const END: u64 = 1 << 32;

/// Position of a walk through the objects of a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sweep(u64);

/// Result of one step of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SweepStep {
    /// Number of objects that were examined.
    pub seen: usize,
    /// Number of objects that were dropped.
    pub dropped: usize,
    /// Position at which the walk continues; `None` once it is complete.
    pub next: Option<Sweep>,
}

impl IndexOwner {
    /// Returns the slots of the index page at a walk's position, and the position at which the next page
    /// begins.
    fn page_at(index: &Index, at: u64) -> (SmallVec<[(Slot, SlotAddress); 64]>, u64) {
        let depth = index.depth.load(Relaxed) as u32;
        let place = (at >> (32 - depth)) as usize;
        let entry = index.directories[(1_usize << depth) + place].load(Relaxed);
        let (page, page_depth) = (entry as u32, (entry >> 32) as u32);
        let page_len = 1 << (32 - page_depth);
        let mut slots = SmallVec::new();
        for bucket in 0..BUCKETS {
            for number in 0..SLOTS {
                let slot = read_slot(index.bucket(page, bucket), number);
                if slot.hash != 0 {
                    slots.push((slot, SlotAddress { page, bucket: bucket as u8, slot: number as u8 }));
                }
            }
        }
        (slots, (at & !(page_len - 1)) + page_len)
    }
}

impl Shard {
    /// Continues a walk through the objects in memory, and drops those for which `is_to_go` returns true,
    /// from memory and from the file. Stops at the end of the index page (at most 160 objects) in which the
    /// number of examined objects reaches `objects`.
    pub fn sweep(
        &mut self,
        from: Sweep,
        objects: usize,
        mut is_to_go: impl FnMut(&Object<'_>) -> bool,
    ) -> SweepStep {
        let (mut at, mut seen, mut dropped) = (from.0, 0, 0);
        while at < END && seen < objects {
            let (slots, end) = IndexOwner::page_at(self.shared(), at);
            for (slot, address) in slots {
                seen += 1;
                if is_to_go(&Object { local: &self.local, slot }) {
                    #[cfg(not(feature = "loom"))]
                    self.end_on_file(slot.hash());
                    self.unlink_at(slot, address);
                    self.tally().unlinks.add(1);
                    dropped += 1;
                }
            }
            at = end;
        }
        SweepStep { seen, dropped, next: (at < END).then_some(Sweep(at)) }
    }
}
