//! Objects that the expiry queue does not hold, because eviction will most likely reach them before they
//! expire.
//!
//! ```text
//! link ─▶ lifetime beyond what objects stay in this log? ─ no ──▶ expiry queue
//!                     │ yes                                          ▲
//!                     ▼                                              │ objects that are not due yet
//!          segment: earliest expiry ── due before eviction comes ──▶ walk over the segment's records
//! ```
//! In a full store most objects are evicted long before they expire, and each entry of the queue costs random
//! reads when it is sifted out. So a segment only notes the earliest expiry of its objects without an entry.
//! If the store slows down and that second comes, a bounded walk over the segment's records unlinks the
//! objects that are due and enters the others.

use super::space::{ClaimedSegment, LOGS, Log, Space};

/// Earliest expiry among the objects of a segment that have no entry in the expiry queue.
#[derive(Debug, Clone, Copy)]
struct EarliestExpiry {
    expires_s: u32,
    /// Claim of the segment for which this was noted: a segment that is used again has no such objects.
    claim: u64,
}

/// A walk over the records of a segment.
#[derive(Debug, Clone, Copy)]
pub(super) struct SegmentWalk {
    pub(super) claimed: ClaimedSegment,
    /// Bytes of the segment that were walked.
    pub(super) walked: usize,
}

/// The objects of a shard that have no entry in the expiry queue, by segment.
#[derive(Debug)]
pub(super) struct UnqueuedObjects {
    /// Index of the shard's first segment among all segments of the store.
    first: usize,
    segments: Box<[EarliestExpiry]>,
    /// No later than the earliest second in `segments`.
    next_s: u32,
    /// Seconds between the opening and the eviction of the segment of each log that was evicted last;
    /// `u32::MAX`: none was.
    stays_s: [u32; LOGS.len()],
    pub(super) walk: Option<SegmentWalk>,
}

impl UnqueuedObjects {
    pub(super) fn new(shard: usize, segments: usize) -> Self {
        Self {
            first: shard * segments,
            segments: vec![EarliestExpiry { expires_s: u32::MAX, claim: 0 }; segments].into(),
            next_s: u32::MAX,
            stays_s: [u32::MAX; LOGS.len()],
            walk: None,
        }
    }

    /// Notes how long the objects of a segment stayed in its log, when eviction reaches the segment.
    pub(super) fn note_stay(&mut self, log: Log, stayed_s: u32) {
        self.stays_s[log as usize] = stayed_s;
    }

    /// Returns whether an object of this lifetime will most likely be evicted before it expires: its lifetime
    /// is longer by half than the time that objects stay in the log. `open_s` is the age of the log's open
    /// segment: a log that has become slow shows in it first.
    pub(super) fn outlives_stay(&self, log: Log, open_s: u32, lifetime_s: u32) -> bool {
        let stays_s = self.stays_s[log as usize].max(open_s);
        lifetime_s > stays_s.saturating_add(stays_s / 2).saturating_add(1)
    }

    /// Notes an object without an entry that expires at `expires_s`.
    pub(super) fn note(&mut self, claimed: ClaimedSegment, expires_s: u32) {
        let noted = &mut self.segments[claimed.segment - self.first];
        if noted.claim != claimed.claim {
            *noted = EarliestExpiry { expires_s, claim: claimed.claim };
        }
        noted.expires_s = noted.expires_s.min(expires_s);
        self.next_s = self.next_s.min(expires_s);
    }

    /// Returns a second before which no object without an entry expires, or 0 while a walk is under way.
    pub(super) fn next_s(&self) -> u32 {
        if self.walk.is_some() { 0 } else { self.next_s }
    }

    /// Returns the walk under way, or begins that of a segment that has an object without an entry that is due
    /// at `now_s`.
    pub(super) fn walk_due(&mut self, space: &Space, now_s: u32) -> Option<SegmentWalk> {
        if self.walk.is_some() || self.next_s > now_s {
            return self.walk;
        }
        self.next_s = u32::MAX;
        for (at, noted) in self.segments.iter_mut().enumerate() {
            let claimed = ClaimedSegment { segment: self.first + at, claim: noted.claim };
            if noted.expires_s == u32::MAX || !space.is_current(claimed) {
                noted.expires_s = u32::MAX;
            } else if noted.expires_s <= now_s && self.walk.is_none() {
                noted.expires_s = u32::MAX;
                self.walk = Some(SegmentWalk { claimed, walked: 0 });
            } else {
                self.next_s = self.next_s.min(noted.expires_s);
            }
        }
        self.walk
    }

    /// Returns whether an object without an entry will be found when it is due, for invariant checks.
    pub(super) fn covers(&self, claimed: ClaimedSegment, offset: usize, expires_s: u32) -> bool {
        let noted = self.segments[claimed.segment - self.first];
        let is_noted =
            noted.claim == claimed.claim && noted.expires_s <= expires_s && self.next_s <= expires_s;
        is_noted || self.walk.is_some_and(|walk| walk.claimed == claimed && walk.walked <= offset)
    }
}
