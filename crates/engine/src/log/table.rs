//! State of each segment while the log is open.
//!
//! ```text
//! Free ──claim──▶ Open ──written, with its table──▶ Sealed ──nothing live──▶ Dying ──deletions kept, erased──▶ Free
//!                                                                           (cannot be undone)   Damaged: not used
//! ```
//! *Memory:* 40 bytes per segment, atomics. *Writers:* a writer claims a segment; its helper seals it; the
//! thread that reports its last record dead makes it dying; the reaper frees it. *Waiting:* never.

use std::sync::atomic::{
    AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};

use super::format::Location;

/// State of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum SegmentState {
    /// Free: a writer may claim it.
    Free = 0,
    /// Being filled, or filled and not yet written out.
    Open = 1,
    /// Completely written to the file, with its table of contents.
    Sealed = 2,
    /// Without live records, and about to be freed.
    Dying = 3,
    /// Damaged at its start: neither read nor used.
    Damaged = 4,
    /// Claimed by a writer that is about to set the new life number: no location of an earlier life is valid
    /// in it.
    Claimed = 5,
}

const STATES: [SegmentState; 6] = [
    SegmentState::Free,
    SegmentState::Open,
    SegmentState::Sealed,
    SegmentState::Dying,
    SegmentState::Damaged,
    SegmentState::Claimed,
];

/// Number of life numbers held back until their bound is raised, because that many threads may check the
/// bound at once.
const LIVES_KEPT: u64 = 64;

/// Number of bits that count a segment's live bytes; the bits above them are the low bits of its life number.
const LIVE_BITS: u32 = 32;
const LIVE_MASK: u64 = (1 << LIVE_BITS) - 1;

/// Sentinel for a segment without a buffer.
pub(super) const NO_BUFFER: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Segment {
    state: AtomicU32,
    pub(super) class: AtomicU32,
    pub(super) life: AtomicU64,
    /// Low half of the life number, and the bytes that are live in that life: an update for an earlier life
    /// has no effect.
    live: AtomicU64,
    pub(super) pins: AtomicU32,
    /// Index of the buffer that holds the segment's bytes, until all of them are in the file.
    pub(super) buffer: AtomicU32,
}

impl Segment {
    pub(super) fn live_bytes(&self) -> u64 {
        self.live.load(SeqCst) & LIVE_MASK
    }

    pub(super) fn state(&self) -> SegmentState {
        STATES[self.state.load(SeqCst) as usize]
    }

    /// Moves the segment from one state to another; returns false if it was not in the first state.
    pub(super) fn advance(&self, from: SegmentState, to: SegmentState) -> bool {
        self.state.compare_exchange(from as u32, to as u32, SeqCst, SeqCst).is_ok()
    }
}

/// All segments of a log.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) segment_bytes: usize,
    pub(super) first_at: u64,
    segments: Box<[Segment]>,
    free: AtomicUsize,
    next_life: AtomicU64,
    /// Upper bound of the life numbers that may be used at present.
    pub(super) lives_bound: AtomicU64,
    hint: AtomicUsize,
}

impl Table {
    pub(super) fn new(segments: u32, segment_bytes: usize, first_at: u64) -> Self {
        let fresh = || Segment {
            state: AtomicU32::new(SegmentState::Free as u32),
            class: AtomicU32::new(0),
            life: AtomicU64::new(0),
            live: AtomicU64::new(0),
            pins: AtomicU32::new(0),
            buffer: AtomicU32::new(NO_BUFFER),
        };
        Self {
            segment_bytes,
            first_at,
            segments: (0..segments).map(|_| fresh()).collect(),
            free: AtomicUsize::new(segments as usize),
            next_life: AtomicU64::new(1),
            lives_bound: AtomicU64::new(0),
            hint: AtomicUsize::new(0),
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.segments.len() as u32
    }

    pub(super) fn free_count(&self) -> usize {
        self.free.load(Relaxed)
    }

    pub(super) fn segment(&self, segment: u32) -> &Segment {
        &self.segments[segment as usize]
    }

    /// Returns the file offset at which a segment begins.
    pub(super) fn start(&self, segment: u32) -> u64 {
        self.first_at + u64::from(segment) * self.segment_bytes as u64
    }

    /// Returns the segment of a location and the offset in it, if there is such a segment.
    pub(super) fn place(&self, location: Location) -> Option<(u32, usize)> {
        let from_first = location.offset().checked_sub(self.first_at)?;
        let segment = u32::try_from(from_first / self.segment_bytes as u64).ok()?;
        (segment < self.len()).then_some((segment, from_first as usize % self.segment_bytes))
    }

    /// Returns the segment of a location, if the segment still has the same life and has not been freed.
    pub(super) fn living(&self, location: Location) -> Option<u32> {
        let (segment, _) = self.place(location)?;
        let of = self.segment(segment);
        let is_living = location.is_of(of.life.load(Acquire))
            && matches!(of.state(), SegmentState::Open | SegmentState::Sealed | SegmentState::Dying);
        is_living.then_some(segment)
    }

    /// Claims a free segment unless only `keep` of them are left, and assigns a new life number to it.
    pub(super) fn claim(&self, keep: usize, class: u8, buffer: u32) -> Option<(u32, u64)> {
        if self.lives_left() <= LIVES_KEPT {
            return None;
        }
        self.free.try_update(AcqRel, Relaxed, |free| (free > keep).then(|| free - 1)).ok()?;
        // A free segment exists for this thread: every thread that searches has already subtracted its own
        // from the count of free ones.
        let count = self.segments.len();
        let first = self.hint.load(Relaxed);
        loop {
            for step in 0..count {
                let number = (first + step) % count;
                let segment = &self.segments[number];
                if segment.state() == SegmentState::Free
                    && segment.advance(SegmentState::Free, SegmentState::Claimed)
                {
                    self.hint.store(number + 1, Relaxed);
                    return Some((number as u32, self.open(segment, class, buffer)));
                }
            }
        }
    }

    /// Assigns a new life number to a claimed segment. The segment becomes open only after that: otherwise a
    /// location of its earlier life would be found in the open segment while the old life is still set.
    fn open(&self, segment: &Segment, class: u8, buffer: u32) -> u64 {
        let life = self.next_life.fetch_add(1, Relaxed);
        segment.class.store(u32::from(class), Relaxed);
        segment.live.store(life << LIVE_BITS, SeqCst);
        segment.buffer.store(buffer, Release);
        segment.life.store(life, Release);
        let was_claimed = segment.advance(SegmentState::Claimed, SegmentState::Open);
        assert!(was_claimed, "segment opened without being claimed");
        life
    }

    /// Frees a dying segment after its life was marked as over in the file.
    pub(super) fn free(&self, segment: u32) {
        let was_dying = self.segment(segment).advance(SegmentState::Dying, SegmentState::Free);
        assert!(was_dying, "segment {segment} freed without being marked as dying");
        self.free.fetch_add(1, Release);
    }

    /// Sets the state of a segment that recovery found in the file.
    pub(super) fn restore(&self, segment: u32, state: SegmentState, life: u64, class: u8) {
        let of = self.segment(segment);
        of.life.store(life, Relaxed);
        of.live.store(life << LIVE_BITS, SeqCst);
        of.class.store(u32::from(class), Relaxed);
        of.state.store(state as u32, SeqCst);
        if state != SegmentState::Free {
            self.free.fetch_sub(1, Relaxed);
        }
        self.next_life.fetch_max(life + 1, Relaxed);
    }

    /// Returns how many life numbers may still be used (a few more may be in use concurrently:
    /// [`LIVES_KEPT`]).
    pub(super) fn lives_left(&self) -> u64 {
        self.lives_bound.load(Relaxed).saturating_sub(self.next_life())
    }

    pub(super) fn next_life(&self) -> u64 {
        self.next_life.load(Relaxed)
    }

    /// Continues the life numbers from this one, because earlier processes may have used all below it.
    pub(super) fn start_lives_at(&self, life: u64) {
        self.next_life.fetch_max(life, Relaxed);
    }

    /// Skips `lives` life numbers, because they may have been used.
    pub(super) fn skip_lives(&self, lives: u64) {
        self.next_life.fetch_add(lives, Relaxed);
    }

    /// Adds a live record to a segment. The segment cannot be freed meanwhile: it is open, or not published
    /// yet.
    pub(super) fn born(&self, segment: u32, bytes: usize) {
        self.segment(segment).live.fetch_add(bytes as u64, SeqCst);
    }

    /// Subtracts the dead record at `location` from its segment; returns whether the segment is dying as a
    /// result.
    pub(super) fn died(&self, location: Location, bytes: usize) -> bool {
        let Some(segment) = self.living(location) else { return false };
        let of = self.segment(segment);
        let died = of.live.fetch_update(SeqCst, SeqCst, |live| {
            // The segment was freed and claimed again in between, so the record no longer counts.
            if !location.is_of(live >> LIVE_BITS) {
                return None;
            }
            let left = (live & LIVE_MASK).checked_sub(bytes as u64);
            assert!(left.is_some(), "more records died in segment {segment} than were live");
            Some(live - bytes as u64)
        });
        died.is_ok_and(|before| before & LIVE_MASK == bytes as u64)
            && of.advance(SegmentState::Sealed, SegmentState::Dying)
    }

    /// Seals a segment that is completely written to the file; returns whether it has no live records left.
    ///
    /// The state is set before the live bytes are checked; `died` does the reverse, so that one of the two
    /// sees the other.
    pub(super) fn seal(&self, segment: u32) -> bool {
        let of = self.segment(segment);
        assert!(of.advance(SegmentState::Open, SegmentState::Sealed), "segment {segment} sealed twice");
        of.live_bytes() == 0 && of.advance(SegmentState::Sealed, SegmentState::Dying)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claimed_segment_is_open_with_its_life() {
        let table = Table::new(1, 4096, 4096);
        table.start_lives_at(7);
        table.lives_bound.store(1000, Relaxed);
        let (segment, before) = table.claim(0, 0, NO_BUFFER).expect("it is free");
        let location = Location::new(table.start(segment) + 64, before);
        assert_eq!(table.living(location), Some(segment));
        table.seal(segment);
        assert_eq!(table.segment(segment).state(), SegmentState::Dying, "nothing is live in it");
        table.free(segment);
        assert_eq!(table.living(location), None);
        // Between the two steps of a claim, the segment still has its old life number.
        let of = table.segment(segment);
        assert!(of.advance(SegmentState::Free, SegmentState::Claimed));
        assert_eq!((of.life.load(Acquire), table.living(location)), (before, None));
        let life = table.open(of, 0, NO_BUFFER);
        assert!(life > before && table.living(location).is_none());
    }
}
