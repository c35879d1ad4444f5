//! Making room: segments are emptied oldest first, as S3-FIFO would have it.
//!
//! ```text
//! new ─▶ probation ──oldest──┬ visited ─▶ main ──oldest──┬ visited ─▶ head of main, with a visit less
//!  ▲                         └ not: out, a ghost         └ not: out, a ghost
//!  └ ghosts go to main at once: one of probation's makes probation larger, one of main's smaller
//! ```
//! What is not visited is dropped without being read (its header is, to find its slot). Steps are bounded in
//! records and bytes: inserts pay for what they use while free segments are below the reserve, a timer may do more
//! ([`Shard::maintain`]).

use super::{
    filling::InsertRefusal,
    ghost::EvictedFrom,
    index::{Slot, SlotAddress},
    record::{Kind, Place, UNIT},
    shard::Shard,
    space::{ClaimedSegment, Log, Purpose},
};

/// Records that an insert looks at besides what its bytes pay for, while there is too little free.
const RECORDS_A_STEP: usize = 4;
/// Bytes walked for each byte appended: a victim of which three quarters survive still pays for itself.
const PAY: usize = 4;
/// Records whose buckets are brought near at once.
const LOOK_AHEAD: usize = 8;
/// Draining segments that a step looks at.
const RECLAIM_A_STEP: usize = 8;
/// … and that housekeeping does.
const RECLAIM_A_ROUND: usize = 64;
/// Objects of more than so many times the mean are large.
const LARGE: u64 = 2;
/// Segments that may be emptied in a second although none of them comes free.
const EMPTIED_AT_LEAST: usize = 4;
/// How often an insert tries again for want of room: a segment emptied each other time. Of each that is emptied a quarter
/// at least is gained.
const ROUNDS_AN_INSERT: usize = 16;

/// A segment that is being emptied.
#[derive(Debug, Clone, Copy)]
pub(super) struct EvictionProgress {
    claimed: ClaimedSegment,
    /// Bytes of it that have been walked.
    walked: usize,
    /// Bytes of it that were copied to main.
    moved: usize,
}

/// What a step may still do.
struct Budget {
    records: usize,
    bytes: usize,
}

impl Shard {
    /// A bounded step of eviction and reclaiming; looks at no more than `limit_records` records. Says whether there
    /// is more to do now.
    pub fn maintain(&mut self, limit_records: usize) -> bool {
        self.reclaim(RECLAIM_A_ROUND);
        if !self.is_short() {
            return false;
        }
        let bytes = self.local.store.geometry.segment_bytes;
        let done = self.evict(Budget { records: limit_records, bytes });
        self.reclaim(RECLAIM_A_STEP);
        done && self.is_short()
    }

    /// Free segments that eviction keeps: what a burst of inserts may use before it must wait for turns to end.
    fn reserve(&self) -> usize {
        (self.space.segments() / 64).clamp(4, 32)
    }

    /// Bytes of a victim that may survive. A segment of which all survives frees nothing, so when it gets tight,
    /// past three quarters the visited go too.
    fn survivors_max(&self) -> usize {
        let segment_bytes = self.local.store.geometry.segment_bytes;
        if self.space.free_count() > self.reserve() / 4 { segment_bytes } else { segment_bytes / 4 * 3 }
    }

    fn is_short(&self) -> bool {
        self.space.free_count() < self.reserve()
    }

    /// Whether more than an eighth of the share drains: pins on it are wanted back.
    fn drains_much(&self) -> bool {
        self.space.draining_count() > (self.space.segments() / 8).max(1)
    }

    /// Whether emptying more would only empty the store, because somebody holds it: a sixteenth of the share was emptied
    /// within this second and drains, or half of it drains.
    fn drains_too_much(&self) -> bool {
        let segments = self.space.segments();
        let emptied_max = (segments / 16).max(EMPTIED_AT_LEAST);
        self.space.emptied_now() >= emptied_max || self.space.draining_count() > segments / 2
    }

    fn reclaim(&mut self, limit: usize) -> usize {
        let Self { local, space, .. } = self;
        let store = &*local.store;
        let freed = space.reclaim(store, &store.shards[local.core].tally, limit);
        let starved = self.drains_much() || self.is_short() && self.space.draining_count() > 0;
        self.local.store.set_starved(self.local.core, starved);
        freed
    }

    /// Evicts for a record that is about to be appended, if little is free.
    #[inline]
    pub(super) fn pay(&mut self, units: u32) {
        if !self.is_short() {
            return;
        }
        self.reclaim(RECLAIM_A_STEP);
        if self.is_short() {
            let bytes = PAY * units as usize * UNIT;
            self.evict(Budget { records: RECORDS_A_STEP + bytes / 256, bytes: bytes + RECORDS_A_STEP * 256 });
        }
    }

    /// Space for a new record, after paying for it by evicting. Where that did not keep up, or turns and pins hold what
    /// was emptied, all that drains is looked at and a few segments more are emptied; then it is refused.
    pub(super) fn room(&mut self, log: Log, units: u32) -> Result<Place, InsertRefusal> {
        self.pay(units);
        for _ in 0..ROUNDS_AN_INSERT {
            let Self { local, space, .. } = self;
            let tally = &local.store.shards[local.core].tally;
            if let Some(place) = space.append(&local.store, tally, log, units, Purpose::New) {
                return Ok(place);
            }
            if self.reclaim(usize::MAX) > 0 {
                continue;
            }
            let bytes = self.local.store.geometry.segment_bytes;
            if !self.evict(Budget { records: usize::MAX, bytes }) {
                break;
            }
        }
        Err(self.refuse(InsertRefusal::NoRoom))
    }

    /// Walks victims within the budget; false if there is none to walk.
    fn evict(&mut self, mut budget: Budget) -> bool {
        let mut progressed = false;
        while budget.records > 0 && budget.bytes > 0 {
            let store = &self.local.store;
            let current = self.emptying.filter(|emptying| self.space.is_sealed(store, emptying.claimed));
            let emptying = match current {
                Some(emptying) => emptying,
                None => {
                    if self.drains_too_much() {
                        break;
                    }
                    match self.space.victim(store) {
                        Some(claimed) => EvictionProgress { claimed, walked: 0, moved: 0 },
                        None => break,
                    }
                }
            };
            progressed = true;
            self.emptying = Some(emptying);
            self.walk(emptying, &mut budget);
        }
        progressed
    }

    fn walk(&mut self, mut emptying: EvictionProgress, budget: &mut Budget) {
        let segment = emptying.claimed.segment;
        let used = self.space.used(segment);
        let start = self.local.store.segment_start(segment);
        let mut looked_ahead = 0;
        while emptying.walked < used && budget.records > 0 && budget.bytes > 0 {
            let location = start + (emptying.walked / UNIT) as u64;
            if looked_ahead == 0 {
                looked_ahead = LOOK_AHEAD;
                self.look_ahead(location, budget.bytes.min(used - emptying.walked));
            }
            looked_ahead -= 1;
            let bytes = self.local.store.record(location).units() as usize * UNIT;
            assert!(
                bytes > 0 && emptying.walked + bytes <= used,
                "segment {segment} is not framed to its end"
            );
            emptying.walked += bytes;
            budget.records -= 1;
            budget.bytes = budget.bytes.saturating_sub(bytes);
            emptying.moved += self.decide(location, &emptying);
            if !self.space.is_sealed(&self.local.store, emptying.claimed) {
                // Its last object is gone, and it is on its way.
                self.emptying = None;
                self.space.emptied(segment);
                return;
            }
        }
        self.emptying = Some(emptying);
        if emptying.walked == used {
            self.emptying = None;
            assert!(
                self.space.live_records(segment) == 0,
                "records of segment {segment} are live and in no index"
            );
            // All was dead before it was walked, or given up on another core.
            self.space.try_retire(&self.local.store, segment);
            self.space.emptied(segment);
        }
    }

    /// Brings near the index's buckets of the next records, so that their misses overlap.
    fn look_ahead(&self, location: u64, bytes: usize) {
        let mut passed = 0;
        for _ in 0..LOOK_AHEAD {
            if passed >= bytes {
                break;
            }
            let record = self.local.store.record(location + (passed / UNIT) as u64);
            if record.kind() != Kind::Dead {
                self.shared().prefetch(record.hash().prefix());
            }
            passed += record.units() as usize * UNIT;
        }
    }

    /// Moves or evicts what a record belongs to, if anything; returns the bytes moved.
    fn decide(&mut self, location: u64, emptying: &EvictionProgress) -> usize {
        let record = self.local.store.record(location);
        let kind = record.kind();
        if kind == Kind::Dead {
            return 0;
        }
        let Some((slot, at)) = self.index.find(self.shared(), record.hash()) else { return 0 };
        let place = Place { location, units: record.units() };
        let number = record.extent_number();
        let head = self.local.store.record(slot.location());
        let is_part = match kind {
            Kind::Extent => slot.is_chained() && number < head.extents() && head.extent(number).0 == place,
            _ => slot.location() == location,
        };
        if !is_part {
            return 0;
        }
        let price = self.price(&slot, head.body_bytes());
        // An object in extents pays with the last of them.
        let is_last = kind != Kind::Extent || number + 1 == head.extents();
        let visits = self.index.visits(self.shared(), at);
        let is_main = self.space.log(emptying.claimed.segment) == Log::Main;
        // Into main goes what was asked for; there, a round costs visits.
        if visits >= if is_main { 1 } else { price } {
            let kept = if is_main && is_last { visits.saturating_sub(price) } else { visits };
            let moved = match kind {
                _ if emptying.moved + place.bytes() > self.survivors_max() => None,
                Kind::Extent => self.move_extent(slot, at, place, number, kept),
                _ => self.move_record(slot, at, kept),
            };
            if let Some(bytes) = moved {
                self.tally().promotions.add(1);
                self.tally().promoted_bytes.add(bytes as u64);
                return bytes;
            }
            self.tally().evictions_of_visited.add(1);
        }
        let from = if is_main { EvictedFrom::Main } else { EvictedFrom::Probation };
        self.ghosts.remember(slot.hash(), from, self.tally().objects.value() as usize);
        #[cfg(not(feature = "loom"))]
        self.keep_evicted(slot, visits > 0);
        self.unlink_at(slot, at);
        self.tally().evictions.add(1);
        0
    }

    /// Visits that an object pays for its place: what takes the place of several others must be asked for twice.
    fn price(&self, slot: &Slot, body_bytes: u64) -> u64 {
        let mean = self.tally().object_bytes();
        let bytes = if slot.is_chained() { body_bytes } else { u64::from(slot.units()) * UNIT as u64 };
        1 + u64::from(bytes > LARGE * mean)
    }

    /// Copies an object's record to the head of main, and leaves it `kept` of its visits.
    fn move_record(&mut self, slot: Slot, at: SlotAddress, kept: u64) -> Option<usize> {
        let old = Place { location: slot.location(), units: slot.units() };
        let new = self.copy(old)?;
        let Self { local, index, space, .. } = self;
        let shared = &local.store.shards[local.core];
        let moved = slot.with_place(new.location, new.units);
        index.update(&shared.index, at, moved);
        index.forgive_visits(&shared.index, at, kept);
        space.unlink(&local.store, &shared.tally, old);
        Some(new.bytes())
    }

    /// Copies an extent to the head of main, and the record with the table too: a pin may hold the old table, which
    /// must go on leading to the old extent. `kept` of its visits are left to the object.
    fn move_extent(
        &mut self,
        slot: Slot,
        at: SlotAddress,
        old: Place,
        number: usize,
        kept: u64,
    ) -> Option<usize> {
        let old_head = Place { location: slot.location(), units: slot.units() };
        let new = self.copy(old)?;
        let new_head = match self.copy(old_head) {
            Some(new_head) => new_head,
            None => {
                let Self { local, space, .. } = self;
                space.unlink(&local.store, &local.store.shards[local.core].tally, new);
                return None;
            }
        };
        let Self { local, index, space, .. } = self;
        let shared = &local.store.shards[local.core];
        let head = local.store.record(new_head.location);
        let end = head.extent(number).1;
        head.write_table(number, new, end);
        let moved = slot.with_place(new_head.location, new_head.units);
        index.update(&shared.index, at, moved);
        index.forgive_visits(&shared.index, at, kept);
        space.unlink(&local.store, &shared.tally, old);
        space.unlink(&local.store, &shared.tally, old_head);
        Some(new.bytes() + new_head.bytes())
    }

    /// Copies a record to the head of main, where it counts as live at once: its segment may be sealed by the next.
    fn copy(&mut self, old: Place) -> Option<Place> {
        let Self { local, space, .. } = self;
        let store = &*local.store;
        let tally = &store.shards[local.core].tally;
        let new = space.append(store, tally, Log::Main, old.units, Purpose::Move)?;
        space.link(store, tally, new);
        store.record(new.location).whole_at(new.units).write_from_span(store.record(old.location).whole());
        Some(new)
    }
}
