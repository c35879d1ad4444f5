//! A shard's segments as their owner sees them: which are open, how many of their bytes are live, and which
//! can be claimed next.
//!
//! ```text
//! free ──▶ open (one for each log) ──▶ nearly full ──▶ sealed, in its log, oldest first ──▶ draining ──▶ free
//! ```
//! A record that does not fit at the end of the open segment begins a new one; shorter records still go to
//! the rest of the previous segment. Without that, unused ends of segments took up a twentieth of the share.
//! *Memory:* plain memory of the owner. The states that other cores see are in [`super::segments`].

use std::collections::VecDeque;

use super::{
    ghost::EvictedFrom,
    record::{Place, UNIT},
    segments::SegmentState,
    shared::Store,
    turns::Epoch,
    usage::Tally,
};

/// Maximum lifetime in seconds of an object in the short class, followed by that of the medium class.
const SHORT_S: u32 = 60;
const MEDIUM_S: u32 = 3600;

/// Log to which a record is appended: one of three probation logs by lifetime, so that segments expire as a
/// whole, or the main log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Log {
    Short = 0,
    Medium = 1,
    Long = 2,
    Main = 3,
}

pub(super) const LOGS: [Log; 4] = [Log::Short, Log::Medium, Log::Long, Log::Main];

impl Log {
    pub(super) fn for_lifetime(lifetime_s: u32) -> Self {
        if lifetime_s <= SHORT_S {
            Self::Short
        } else if lifetime_s <= MEDIUM_S {
            Self::Medium
        } else {
            Self::Long
        }
    }
}

/// Purpose of new space: eviction may take the last free segment, because it frees more than it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    New,
    Move,
}

/// Maximum number of pinned segments that the search for a segment to evict skips. If this many of the oldest
/// segments are pinned, pins hold most of the share, and their holders must be made to release them.
const PASSED_OVER_MAX: usize = 64;
/// Divisors of the share for the size of the probation logs: they begin with a 10th (the main log keeps at
/// least that), and never have less than a 64th.
const PROBATION_FIRST: u64 = 10;
const PROBATION_LEAST: u64 = 64;
/// Multiple of a returning object's size by which the boundary between the probation and main logs moves.
const PROBATION_STEP: u64 = 3;
/// Minimum number of segments in a share for which each log keeps a nearly full segment in addition to the
/// open one.
const NEARLY_FULL_FROM: usize = 64;
/// Minimum free bytes for which a nearly full segment is kept open: about the size of the shortest record.
const REST_MIN: usize = 192;
/// Number of free segments that only eviction may claim.
const FREE_FOR_MOVES: usize = 1;

#[derive(Debug, Clone, Copy)]
struct SegmentUsage {
    /// Bytes that records occupy, from the start of the segment.
    used: usize,
    /// Number of records that belong to linked objects, followed by their bytes.
    live_records: u32,
    live_bytes: usize,
    /// Number of the segment's last claim, which distinguishes the successive uses of the segment, and the
    /// second of the claim.
    claim: u64,
    claimed_s: u32,
    log: Log,
}

/// A segment together with the claim that identifies its current use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClaimedSegment {
    pub(super) segment: usize,
    pub(super) claim: u64,
}

/// Progress of eviction through a segment that is being emptied.
#[derive(Debug, Clone, Copy)]
pub(super) struct EvictionProgress {
    pub(super) claimed: ClaimedSegment,
    /// Bytes of the segment that eviction has examined.
    pub(super) walked: usize,
    /// Bytes of the segment that were copied to the main log.
    pub(super) moved: usize,
}

/// The segments of a shard, as their owner uses them.
#[derive(Debug)]
pub(super) struct Space {
    /// Index of the shard's first segment among all segments of the store.
    first: usize,
    owned: Box<[SegmentUsage]>,
    free: Vec<usize>,
    open: [Option<usize>; LOGS.len()],
    /// The previous open segment of each log: short records still find room at its end.
    nearly_full: [Option<usize>; LOGS.len()],
    /// Sealed segments of each log in the order of sealing; entries of segments that have since been retired
    /// are skipped.
    sealed: [VecDeque<ClaimedSegment>; LOGS.len()],
    sealed_count: [usize; LOGS.len()],
    draining: VecDeque<DrainingSegment>,
    /// Number of draining segments that were emptied in the current second; they may be free soon.
    emptied_now: usize,
    now_s: u32,
    claims: u64,
    segment_bytes: u64,
    /// Target size of the probation logs in bytes.
    probation_bytes: u64,
}

/// A segment without live records, which waits until no epoch or pin holds it.
#[derive(Debug, Clone, Copy)]
struct DrainingSegment {
    segment: usize,
    epoch: Epoch,
    /// Second at which eviction emptied the segment; `None` if its objects were all unlinked without
    /// eviction.
    emptied_s: Option<u32>,
}

impl Space {
    pub(super) fn new(shard: usize, segments: usize, segment_bytes: usize) -> Self {
        let first = shard * segments;
        let none =
            SegmentUsage { used: 0, live_records: 0, live_bytes: 0, claim: 0, claimed_s: 0, log: Log::Main };
        Self {
            first,
            owned: vec![none; segments].into(),
            free: (first..first + segments).rev().collect(),
            open: [None; LOGS.len()],
            nearly_full: [None; LOGS.len()],
            sealed: Default::default(),
            sealed_count: [0; LOGS.len()],
            draining: VecDeque::new(),
            emptied_now: 0,
            now_s: 0,
            claims: 0,
            segment_bytes: segment_bytes as u64,
            probation_bytes: (segments * segment_bytes) as u64 / PROBATION_FIRST,
        }
    }

    fn of(&mut self, segment: usize) -> &mut SegmentUsage {
        &mut self.owned[segment - self.first]
    }

    pub(super) fn log(&self, segment: usize) -> Log {
        self.owned[segment - self.first].log
    }

    /// Returns the segment with its present claim.
    pub(super) fn claimed(&self, segment: usize) -> ClaimedSegment {
        ClaimedSegment { segment, claim: self.owned[segment - self.first].claim }
    }

    /// Returns whether the segment has not been claimed again since, and still has live records.
    pub(super) fn is_current(&self, claimed: ClaimedSegment) -> bool {
        let owned = &self.owned[claimed.segment - self.first];
        owned.claim == claimed.claim && owned.live_records > 0
    }

    /// Returns the seconds since the segment was claimed.
    pub(super) fn age_s(&self, segment: usize) -> u32 {
        self.now_s.saturating_sub(self.owned[segment - self.first].claimed_s)
    }

    /// Returns the current time in seconds, as last told.
    pub(super) fn now_s(&self) -> u32 {
        self.now_s
    }

    pub(super) fn used(&self, segment: usize) -> usize {
        self.owned[segment - self.first].used
    }

    pub(super) fn live_records(&self, segment: usize) -> u32 {
        self.owned[segment - self.first].live_records
    }

    pub(super) fn segments(&self) -> usize {
        self.owned.len()
    }

    pub(super) fn free_count(&self) -> usize {
        self.free.len()
    }

    pub(super) fn draining_count(&self) -> usize {
        self.draining.len()
    }

    /// Returns the number of draining segments that were emptied in the current second.
    pub(super) fn emptied_now(&self) -> usize {
        self.emptied_now
    }

    /// Notes that eviction has emptied the segment, if the segment is draining by now.
    pub(super) fn emptied(&mut self, segment: usize) {
        // The segment that was drained last is at the end of the queue.
        if let Some(one) = self.draining.iter_mut().rev().find(|one| one.segment == segment) {
            one.emptied_s = Some(self.now_s);
            self.emptied_now += 1;
        }
    }

    /// Sets the current time in seconds.
    pub(super) fn tell(&mut self, now_s: u32) {
        if now_s > self.now_s {
            (self.now_s, self.emptied_now) = (now_s, 0);
        }
    }

    pub(super) fn sealed_in_probation(&self) -> usize {
        self.sealed_count[..Log::Main as usize].iter().sum()
    }

    /// Returns space for a record at the end of a log; `None` if the log's segment is full and no other may
    /// be claimed.
    pub(super) fn append(
        &mut self,
        store: &Store,
        tally: &Tally,
        log: Log,
        units: u32,
        purpose: Purpose,
    ) -> Option<Place> {
        let bytes = units as usize * UNIT;
        let segment_bytes = store.geometry.segment_bytes;
        assert!(bytes <= segment_bytes, "a record of {bytes} bytes is longer than a segment");
        let mut open = [self.nearly_full[log as usize], self.open[log as usize]].into_iter().flatten();
        let segment = match open.find(|open| self.used(*open) + bytes <= segment_bytes) {
            Some(open) => open,
            None => {
                if self.free.len() <= if purpose == Purpose::New { FREE_FOR_MOVES } else { 0 } {
                    return None;
                }
                self.set_aside(store, log);
                self.claim(store, log)?
            }
        };
        let owned = self.of(segment);
        let location = store.segment_start(segment) + (owned.used / UNIT) as u64;
        owned.used += bytes;
        tally.stored_bytes.add(bytes as u64);
        Some(Place { location, units })
    }

    fn claim(&mut self, store: &Store, log: Log) -> Option<usize> {
        let segment = self.free.pop()?;
        store.segments.advance(segment, SegmentState::Open);
        self.claims += 1;
        let (claim, claimed_s) = (self.claims, self.now_s);
        *self.of(segment) = SegmentUsage { used: 0, live_records: 0, live_bytes: 0, claim, claimed_s, log };
        self.open[log as usize] = Some(segment);
        Some(segment)
    }

    /// Keeps the open segment of the log as its nearly full one, or seals it, before a new segment is opened.
    fn set_aside(&mut self, store: &Store, log: Log) {
        if let Some(full) = self.nearly_full[log as usize].take() {
            self.seal(store, log, full);
        }
        let Some(open) = self.open[log as usize].take() else { return };
        let rest = store.geometry.segment_bytes - self.used(open);
        if self.owned.len() >= NEARLY_FULL_FROM && rest >= REST_MIN {
            self.nearly_full[log as usize] = Some(open);
        } else {
            self.seal(store, log, open);
        }
    }

    fn seal(&mut self, store: &Store, log: Log, segment: usize) {
        store.segments.advance(segment, SegmentState::Sealed);
        let claimed = self.claimed(segment);
        self.sealed_count[log as usize] += 1;
        let queue = &mut self.sealed[log as usize];
        queue.push_back(claimed);
        // Segments that were retired without eviction leave their entries in the queue, so stale entries are
        // removed once the queue is longer than twice the number of segments.
        if queue.len() > 2 * self.owned.len() {
            let (owned, first) = (&self.owned, self.first);
            queue.retain(|entry| {
                owned[entry.segment - first].claim == entry.claim
                    && store.segments.state(entry.segment) == SegmentState::Sealed
            });
        }
        self.try_retire(store, segment);
    }

    /// Counts a record as live, because a linked object uses it.
    pub(super) fn link(&mut self, store: &Store, tally: &Tally, place: Place) {
        let owned = self.of(store.geometry.segment_of(place.location));
        owned.live_records += 1;
        owned.live_bytes += place.bytes();
        tally.live_bytes.add(place.bytes() as u64);
    }

    /// Counts a record as dead, because no linked object uses it any more. A segment without live records is
    /// retired.
    pub(super) fn unlink(&mut self, store: &Store, tally: &Tally, place: Place) {
        let segment = store.geometry.segment_of(place.location);
        let owned = self.of(segment);
        assert!(owned.live_records > 0, "more records unlinked than linked in segment {segment}");
        owned.live_records -= 1;
        owned.live_bytes -= place.bytes();
        tally.live_bytes.subtract(place.bytes() as u64);
        self.try_retire(store, segment);
    }

    /// Retires a sealed segment if no record in it is live or being filled.
    pub(super) fn try_retire(&mut self, store: &Store, segment: usize) {
        let owned = *self.of(segment);
        if owned.live_records > 0
            || store.segments.state(segment) != SegmentState::Sealed
            || store.segments.is_filling(segment)
        {
            return;
        }
        self.sealed_count[owned.log as usize] -= 1;
        let epoch = store.segments.retire(segment, &store.turns);
        self.draining.push_back(DrainingSegment { segment, epoch, emptied_s: None });
    }

    /// Frees draining segments that no epoch or pin holds; checks up to `limit` segments. Returns how many
    /// were freed.
    pub(super) fn reclaim(&mut self, store: &Store, tally: &Tally, limit: usize) -> usize {
        let mut freed = 0;
        for _ in 0..limit.min(self.draining.len()) {
            let Some(one) = self.draining.pop_front() else { break };
            let DrainingSegment { segment, epoch, emptied_s } = one;
            if store.segments.reclaim(segment, epoch, &store.turns) {
                tally.stored_bytes.subtract(self.used(segment) as u64);
                tally.reclaims.add(1);
                if store.segments.take_lent(segment) {
                    store.renew(segment);
                    tally.renewals.add(1);
                }
                self.free.push(segment);
                self.emptied_now -= usize::from(emptied_s == Some(self.now_s));
                freed += 1;
            } else {
                self.draining.push_back(one);
            }
        }
        freed
    }

    /// Shortens a record's space to `units`. The rest is returned to the segment if no record was appended
    /// since; otherwise the caller writes a dead record over it. Returns whether the rest was returned.
    pub(super) fn cut(&mut self, store: &Store, tally: &Tally, place: Place, units: u32) -> bool {
        assert!(units <= place.units, "a record is not cut to more than it has");
        let segment = store.geometry.segment_of(place.location);
        let start = (place.location - store.segment_start(segment)) as usize * UNIT;
        let is_last = store.segments.state(segment) == SegmentState::Open
            && self.used(segment) == start + place.bytes();
        if is_last {
            self.of(segment).used = start + units as usize * UNIT;
            tally.stored_bytes.subtract((place.bytes() - units as usize * UNIT) as u64);
        }
        is_last
    }

    /// Returns the target size of the probation logs in bytes.
    pub(super) fn probation_bytes(&self) -> u64 {
        self.probation_bytes
    }

    /// Adjusts the target size of the probation logs: an object of about `bytes` bytes was requested soon
    /// after its eviction, and would still be stored if the log from which it was evicted had been larger.
    pub(super) fn came_back(&mut self, from: EvictedFrom, bytes: u64) {
        let share_bytes = self.owned.len() as u64 * self.segment_bytes;
        let bytes = PROBATION_STEP * bytes;
        let wanted = match from {
            EvictedFrom::Probation => self.probation_bytes + bytes,
            EvictedFrom::Main => self.probation_bytes.saturating_sub(bytes),
        };
        self.probation_bytes =
            wanted.clamp(share_bytes / PROBATION_LEAST, share_bytes - share_bytes / PROBATION_FIRST);
    }

    /// Returns the next segment to empty: the oldest of the probation logs while they exceed their target
    /// size, else the oldest of the main log. Pinned segments are skipped as long as they are few, because
    /// emptying them would free nothing.
    pub(super) fn victim(&mut self, store: &Store) -> Option<ClaimedSegment> {
        let probation = self.sealed_in_probation();
        let from_probation = probation as u64 * self.segment_bytes > self.probation_bytes
            || self.sealed_count[Log::Main as usize] == 0;
        let order = if from_probation { [true, false] } else { [false, true] };
        order.into_iter().find_map(|probation| self.oldest(store, probation))
    }

    fn oldest(&mut self, store: &Store, probation: bool) -> Option<ClaimedSegment> {
        let logs = if probation { &LOGS[..Log::Main as usize] } else { &LOGS[Log::Main as usize..] };
        // Each pass removes a stale entry or moves an entry to the back, so the loop is bounded by the number
        // of entries.
        let entries: usize = logs.iter().map(|log| self.sealed[*log as usize].len()).sum();
        let (mut pinned, mut passed_over) = (None, 0);
        for _ in 0..entries {
            let log = *logs
                .iter()
                .filter(|log| !self.sealed[**log as usize].is_empty())
                .min_by_key(|log| self.sealed[**log as usize].front().map(|entry| entry.claim))?;
            let entry = self.sealed[log as usize].pop_front()?;
            if !self.is_sealed(store, entry) {
                continue;
            }
            // The entry is always put back: a segment stays in its log until it is retired.
            self.sealed[log as usize].push_back(entry);
            if store.segments.is_filling(entry.segment) {
                continue;
            }
            if store.segments.pins.is_free(entry.segment) {
                return Some(entry);
            }
            pinned = pinned.or(Some(entry));
            passed_over += 1;
            if passed_over == PASSED_OVER_MAX {
                break;
            }
        }
        pinned
    }

    /// Returns whether the segment is sealed and has not been claimed again since.
    pub(super) fn is_sealed(&self, store: &Store, claimed: ClaimedSegment) -> bool {
        self.owned[claimed.segment - self.first].claim == claimed.claim
            && store.segments.state(claimed.segment) == SegmentState::Sealed
    }

    /// Checks the counters against a walk of all linked records.
    ///
    /// # Panics
    /// Panics if they differ.
    pub(super) fn invariants(
        &self,
        store: &Store,
        tally: &Tally,
        live: &std::collections::HashMap<usize, (u32, usize)>,
    ) {
        let (mut used, mut live_bytes) = (0, 0);
        let mut sealed = [0; LOGS.len()];
        for (number, owned) in self.owned.iter().enumerate() {
            let segment = self.first + number;
            let state = store.segments.state(segment);
            let found = live.get(&segment).copied().unwrap_or((0, 0));
            match state {
                SegmentState::Free => {
                    assert!(self.free.contains(&segment), "free segment {segment} is not in its list")
                }
                SegmentState::Draining => {
                    assert_eq!(self.draining.iter().filter(|one| one.segment == segment).count(), 1);
                    assert_eq!(found, (0, 0), "a linked record in draining segment {segment}");
                }
                SegmentState::Open => {
                    let open = [self.open, self.nearly_full].map(|open| open[owned.log as usize]);
                    assert!(
                        open.contains(&Some(segment)),
                        "open segment {segment} is missing from the open list"
                    );
                }
                SegmentState::Sealed => {
                    sealed[owned.log as usize] += 1;
                    let entry = ClaimedSegment { segment, claim: owned.claim };
                    assert!(
                        self.sealed[owned.log as usize].contains(&entry),
                        "sealed segment {segment} is in no log"
                    );
                    assert!(
                        owned.live_records > 0 || store.segments.is_filling(segment) || found == (0, 0),
                        "segment {segment} should have been retired"
                    );
                }
            }
            if state != SegmentState::Free {
                assert_eq!(
                    (owned.live_records, owned.live_bytes),
                    found,
                    "live records of segment {segment}"
                );
                assert!(owned.used <= store.geometry.segment_bytes);
                used += owned.used as u64;
                live_bytes += owned.live_bytes as u64;
            }
        }
        assert_eq!(sealed, self.sealed_count);
        let emptied = self.draining.iter().filter(|one| one.emptied_s == Some(self.now_s)).count();
        assert_eq!(emptied, self.emptied_now);
        assert_eq!(self.free.len(), self.free.iter().collect::<std::collections::HashSet<_>>().len());
        assert_eq!((used, live_bytes), (tally.stored_bytes.value(), tally.live_bytes.value()));
    }
}
