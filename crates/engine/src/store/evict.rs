//! Eviction: segments are emptied oldest first, as in S3-FIFO.
//!
//! ```text
//! new ─▶ probation ──oldest──┬ visited ─▶ main ──oldest──┬ visited ─▶ head of main, with fewer visits
//!  ▲                         └ not visited: evicted      └ not visited: evicted        (leaves a ghost)
//!  └ an object with a ghost goes to main at once: a ghost of probation enlarges probation, a ghost of main shrinks it
//! ```
//! An object without visits is dropped unread (only its header is read, to find its slot). Steps are bounded
//! in records and bytes: while free segments are below the reserve, each insert evicts in proportion to the
//! space it uses, and a timer may do more ([`Shard::maintain`]).

use super::{
    filling::InsertRefusal,
    ghost::EvictedFrom,
    index::{Slot, SlotAddress},
    record::{Kind, Place, UNIT},
    shard::Shard,
    space::{EvictionProgress, Log, Purpose},
};

/// Number of records that an insert examines for eviction while too few segments are free, in addition to
/// those in proportion to its bytes.
const RECORDS_A_STEP: usize = 4;
/// Bytes examined by eviction for each byte appended: enough even if three quarters of a segment survive.
const PAY: usize = 4;
/// Number of records whose index buckets are prefetched at once.
const LOOK_AHEAD: usize = 8;
/// Maximum bytes of the next records that are prefetched as a whole.
const AHEAD_BYTES_MAX: usize = 4 << 10;
/// Number of draining segments that one eviction step checks.
const RECLAIM_A_STEP: usize = 8;
/// Number of draining segments that one call of [`Shard::maintain`] checks.
const RECLAIM_A_CALL: usize = 64;
/// Bytes that [`Shard::maintain`] may examine for each record.
const BYTES_A_RECORD: usize = 4 << 10;
/// Multiple of the mean object size above which an object is large.
const LARGE: u64 = 2;
/// Number of segments that may be emptied within one second even if none of them becomes free.
const EMPTIED_AT_LEAST: usize = 4;
/// Maximum attempts of an insert to find room; every second attempt empties a segment. Each emptied segment
/// yields at least a quarter of its bytes.
const ROUNDS_AN_INSERT: usize = 16;

/// Remaining budget of an eviction step.
struct Budget {
    records: usize,
    bytes: usize,
}

impl Shard {
    /// Runs a bounded step of eviction and reclaiming that examines at most `limit_records` records, and 4 KiB for
    /// each of them. Returns whether more remains to be done now.
    pub fn maintain(&mut self, limit_records: usize) -> bool {
        self.reclaim(RECLAIM_A_CALL);
        if !self.is_short() {
            return false;
        }
        let bytes = self.local.store.geometry.segment_bytes.min(limit_records.saturating_mul(BYTES_A_RECORD));
        let done = self.evict(Budget { records: limit_records, bytes });
        self.reclaim(RECLAIM_A_STEP);
        done && self.is_short()
    }

    /// Returns the number of free segments that eviction maintains: those that a burst of inserts may use
    /// before it must wait for epochs to end.
    fn reserve(&self) -> usize {
        (self.space.segments() / 64).clamp(4, 32)
    }

    /// Returns how many bytes of a segment may survive eviction. A segment whose objects all survive frees
    /// nothing, so when free segments run low, visited objects beyond three quarters are evicted too.
    fn survivors_max(&self) -> usize {
        let segment_bytes = self.local.store.geometry.segment_bytes;
        if self.space.free_count() > self.reserve() / 4 { segment_bytes } else { segment_bytes / 4 * 3 }
    }

    fn is_short(&self) -> bool {
        self.space.free_count() < self.reserve()
    }

    /// Returns whether more than an eighth of the share's segments are draining. If so, pins on segments
    /// should be released.
    fn drains_much(&self) -> bool {
        self.space.draining_count() > (self.space.segments() / 8).max(1)
    }

    /// Returns whether emptying more segments would not help, because readers or pins hold them: a sixteenth
    /// of the share was emptied within this second and is still draining, or half of the share is draining.
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

    /// Evicts for a record that is about to be appended, if few segments are free.
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

    /// Returns space for a new record, and evicts in proportion to its size. If eviction did not keep up, or
    /// epochs and pins hold the emptied segments, checks all draining segments and empties a few more; after
    /// that the record is refused.
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

    /// Examines the records of the oldest segments within the budget; returns false if there is no segment to
    /// empty.
    fn evict(&mut self, mut budget: Budget) -> bool {
        let mut progressed = false;
        while budget.records > 0 && budget.bytes > 0 {
            let Some(emptying) = self.next_to_empty() else { break };
            progressed = true;
            self.emptying = Some(emptying);
            self.walk(emptying, &mut budget);
        }
        progressed
    }

    /// Returns the segment that is being emptied, or else the next one; `None` if there is none, or too many
    /// are draining.
    fn next_to_empty(&mut self) -> Option<EvictionProgress> {
        let store = &self.local.store;
        let current = self.emptying.filter(|emptying| self.space.is_sealed(store, emptying.claimed));
        if current.is_some() || self.drains_too_much() {
            return current;
        }
        let claimed = self.space.victim(store)?;
        let log = self.space.log(claimed.segment);
        self.unqueued.note_stay(log, self.space.age_s(claimed.segment));
        Some(EvictionProgress { claimed, walked: 0, moved: 0 })
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
                self.look_ahead(location, budget.bytes, used - emptying.walked);
            }
            looked_ahead -= 1;
            let bytes = self.local.store.record(location).units() as usize * UNIT;
            assert!(
                bytes > 0 && emptying.walked + bytes <= used,
                "records of segment {segment} do not end at its end"
            );
            emptying.walked += bytes;
            budget.records -= 1;
            budget.bytes = budget.bytes.saturating_sub(bytes);
            emptying.moved += self.decide(location, &emptying);
            if !self.space.is_sealed(&self.local.store, emptying.claimed) {
                // The segment's last object is gone, and the segment is draining.
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
                "records of segment {segment} are live but not in the index"
            );
            // All records were dead before eviction reached them, or were abandoned on another core.
            self.space.try_retire(&self.local.store, segment);
            self.space.emptied(segment);
        }
    }

    /// Prefetches the index buckets, visits and ghost rings of the next records, so that their cache misses
    /// overlap.
    /// `bytes` are to be examined now, and the segment has `rest` bytes from here on.
    fn look_ahead(&self, location: u64, bytes: usize, rest: usize) {
        let mut passed = 0;
        for _ in 0..LOOK_AHEAD {
            if passed >= bytes.min(rest) {
                break;
            }
            let record = self.local.store.record(location + (passed / UNIT) as u64);
            if record.kind() != Kind::Dead {
                let hash = record.hash();
                self.index.prefetch(self.shared(), hash.prefix());
                self.ghosts.prefetch(hash);
            }
            passed += record.units() as usize * UNIT;
        }
        // Each header says where the next one is, so their cache misses cannot overlap. The lines of the next
        // short records are therefore read in advance, wherever in them the headers are.
        if passed <= AHEAD_BYTES_MAX {
            let next = location as usize * UNIT + passed;
            self.local.store.prefetch_bytes(next..next + passed.min(rest.saturating_sub(passed)));
        }
    }

    /// Moves or evicts the object that a record belongs to, if it is still linked; returns the bytes moved.
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
        // An object in extents is charged its visits only with its last extent.
        let is_last = kind != Kind::Extent || number + 1 == head.extents();
        let visits = self.index.visits(self.shared(), at);
        let is_main = self.space.log(emptying.claimed.segment) == Log::Main;
        // Visited objects move into the main log; each further round within the main log costs them visits.
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

    /// Returns the number of visits that keeping an object costs it: one, or two for a large object, which
    /// displaces several smaller ones.
    fn price(&self, slot: &Slot, body_bytes: u64) -> u64 {
        let mean = self.tally().object_bytes();
        let bytes = if slot.is_chained() { body_bytes } else { u64::from(slot.units()) * UNIT as u64 };
        1 + u64::from(bytes > LARGE * mean)
    }

    /// Copies an object's record to the head of the main log and reduces its visits to `kept`.
    fn move_record(&mut self, slot: Slot, at: SlotAddress, kept: u64) -> Option<usize> {
        let old = Place { location: slot.location(), units: slot.units() };
        let new = self.copy(old)?;
        self.relink(slot.with_place(new.location, new.units), at, kept);
        let Self { local, space, .. } = self;
        let shared = &local.store.shards[local.core];
        space.unlink(&local.store, &shared.tally, old);
        Some(new.bytes())
    }

    /// Copies an extent to the head of the main log, together with the record that has the table of extents:
    /// a pin may hold the old table, which must still lead to the old extent. The object's visits are reduced
    /// to `kept`.
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
        let head = self.local.store.record(new_head.location);
        let end = head.extent(number).1;
        head.write_table(number, new, end);
        self.relink(slot.with_place(new_head.location, new_head.units), at, kept);
        let Self { local, space, .. } = self;
        let shared = &local.store.shards[local.core];
        space.unlink(&local.store, &shared.tally, old);
        space.unlink(&local.store, &shared.tally, old_head);
        Some(new.bytes() + new_head.bytes())
    }

    /// Points an object's index slot to its copy, and reduces its visits to `kept`.
    fn relink(&mut self, moved: Slot, at: SlotAddress, kept: u64) {
        let Self { local, index, space, unqueued, .. } = self;
        let shared = &local.store.shards[local.core].index;
        index.update(shared, at, moved);
        index.set_visits(shared, at, kept);
        if moved.is_unqueued() {
            let segment = local.store.geometry.segment_of(moved.location());
            unqueued.note(space.claimed(segment), moved.expires_s());
        }
    }

    /// Copies a record to the head of the main log and counts it as live at once, because the next copy may
    /// seal its segment.
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
