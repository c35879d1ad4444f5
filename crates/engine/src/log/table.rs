//! What is known of each segment while the log is open.
//!
//! ```text
//! Free ──claim──▶ Open ──written, with its table──▶ Sealed ──nothing live──▶ Dying ──ends recorded, erased──▶ Free
//!                                                                           (never taken back)   Damaged: set aside
//! ```
//! *Which memory:* 40 bytes a segment, atomics. *Who writes:* a writer claims; its helper seals; the last death of a
//! record, on whichever thread, makes it dying; the reaper frees. *Who waits:* nobody.

use std::sync::atomic::{
    AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};

use super::format::Location;

/// What a segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum SegmentState {
    /// May be claimed.
    Free = 0,
    /// Being filled, or filled and not yet written out.
    Open = 1,
    /// Whole on the file, with its table.
    Sealed = 2,
    /// Nothing in it is live; it is about to be freed.
    Dying = 3,
    /// Its start is damaged: neither read nor used.
    Damaged = 4,
    /// A writer has taken it and is giving it its life: what an earlier life had there is not found in it.
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

/// Lives that are not given out before the bound is moved on: as many threads may look at it at once.
const LIVES_KEPT: u64 = 64;

/// Bits of a segment's live bytes; above them the low bits of its life.
const LIVE_BITS: u32 = 32;
const LIVE_MASK: u64 = (1 << LIVE_BITS) - 1;

/// No buffer holds the segment.
pub(super) const NO_BUFFER: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Segment {
    state: AtomicU32,
    pub(super) class: AtomicU32,
    pub(super) life: AtomicU64,
    /// The low half of the life, and the bytes that are live in it: a change for an earlier life changes nothing.
    live: AtomicU64,
    pub(super) pins: AtomicU32,
    /// The buffer that has its bytes, while they are not all on the file.
    pub(super) buffer: AtomicU32,
}

impl Segment {
    pub(super) fn live_bytes(&self) -> u64 {
        self.live.load(SeqCst) & LIVE_MASK
    }

    pub(super) fn state(&self) -> SegmentState {
        STATES[self.state.load(SeqCst) as usize]
    }

    /// Moves it from one state to another; says whether it was in the first.
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
    /// Lives below it may be given out.
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

    /// Byte of the file at which a segment begins.
    pub(super) fn start(&self, segment: u32) -> u64 {
        self.first_at + u64::from(segment) * self.segment_bytes as u64
    }

    /// The segment and the byte in it that a location names, if there is such a segment.
    pub(super) fn place(&self, location: Location) -> Option<(u32, usize)> {
        let from_first = location.offset().checked_sub(self.first_at)?;
        let segment = u32::try_from(from_first / self.segment_bytes as u64).ok()?;
        (segment < self.len()).then_some((segment, from_first as usize % self.segment_bytes))
    }

    /// The segment of a location, if it still is in that life and has not been freed.
    pub(super) fn living(&self, location: Location) -> Option<u32> {
        let (segment, _) = self.place(location)?;
        let of = self.segment(segment);
        let is_living = location.is_of(of.life.load(Acquire))
            && matches!(of.state(), SegmentState::Open | SegmentState::Sealed | SegmentState::Dying);
        is_living.then_some(segment)
    }

    /// Takes a free segment unless only `keep` of them are left, and gives it a life.
    pub(super) fn claim(&self, keep: usize, class: u8, buffer: u32) -> Option<(u32, u64)> {
        if self.lives_left() <= LIVES_KEPT {
            return None;
        }
        self.free.try_update(AcqRel, Relaxed, |free| (free > keep).then(|| free - 1)).ok()?;
        // One of them is ours: every other thread that looks has counted one for itself too.
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

    /// Gives a claimed segment a life. It is open only when it has that: a location of its life before would be found in an
    /// open segment whose life is still the old one.
    fn open(&self, segment: &Segment, class: u8, buffer: u32) -> u64 {
        let life = self.next_life.fetch_add(1, Relaxed);
        segment.class.store(u32::from(class), Relaxed);
        segment.live.store(life << LIVE_BITS, SeqCst);
        segment.buffer.store(buffer, Release);
        segment.life.store(life, Release);
        let was_claimed = segment.advance(SegmentState::Claimed, SegmentState::Open);
        assert!(was_claimed, "a segment was opened that was not claimed");
        life
    }

    /// Gives a dying segment back, whose end is on the file.
    pub(super) fn free(&self, segment: u32) {
        let was_dying = self.segment(segment).advance(SegmentState::Dying, SegmentState::Free);
        assert!(was_dying, "segment {segment} was freed and was not dying");
        self.free.fetch_add(1, Release);
    }

    /// What a start found on the file.
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

    /// Lives that may still be given out (a few more may be under way: [`LIVES_KEPT`]).
    pub(super) fn lives_left(&self) -> u64 {
        self.lives_bound.load(Relaxed).saturating_sub(self.next_life())
    }

    pub(super) fn next_life(&self) -> u64 {
        self.next_life.load(Relaxed)
    }

    /// All lives below may have been given out by earlier processes.
    pub(super) fn start_lives_at(&self, life: u64) {
        self.next_life.fetch_max(life, Relaxed);
    }

    /// Leaves lives out.
    pub(super) fn skip_lives(&self, lives: u64) {
        self.next_life.fetch_add(lives, Relaxed);
    }

    /// A record became live, in a segment that cannot be freed meanwhile: it is open, or nobody knows of it yet.
    pub(super) fn born(&self, segment: u32, bytes: usize) {
        self.segment(segment).live.fetch_add(bytes as u64, SeqCst);
    }

    /// A record at `location` is live no more; says whether that made its segment dying.
    pub(super) fn died(&self, location: Location, bytes: usize) -> bool {
        let Some(segment) = self.living(location) else { return false };
        let of = self.segment(segment);
        let died = of.live.fetch_update(SeqCst, SeqCst, |live| {
            // Freed and taken again in between: not ours any more.
            if !location.is_of(live >> LIVE_BITS) {
                return None;
            }
            let left = (live & LIVE_MASK).checked_sub(bytes as u64);
            assert!(left.is_some(), "more died in segment {segment} than lived there");
            Some(live - bytes as u64)
        });
        died.is_ok_and(|before| before & LIVE_MASK == bytes as u64)
            && of.advance(SegmentState::Sealed, SegmentState::Dying)
    }

    /// A segment is whole on the file; says whether nothing in it is live any more.
    ///
    /// First the state, then the look at the bytes; in `died` the other way round: one of the two sees the other.
    pub(super) fn seal(&self, segment: u32) -> bool {
        let of = self.segment(segment);
        assert!(of.advance(SegmentState::Open, SegmentState::Sealed), "segment {segment} was sealed twice");
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
        // Between the two steps of a claim the old life is still the segment's.
        let of = table.segment(segment);
        assert!(of.advance(SegmentState::Free, SegmentState::Claimed));
        assert_eq!((of.life.load(Acquire), table.living(location)), (before, None));
        let life = table.open(of, 0, NO_BUFFER);
        assert!(life > before && table.living(location).is_none());
    }
}
