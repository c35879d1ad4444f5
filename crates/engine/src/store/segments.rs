//! The states of all segments, as every core may see them.
//!
//! ```text
//! Free ──claim──▶ Open ──seal──▶ Sealed ──retire──▶ Draining ──reclaim──▶ Free
//! ```
//! The owner of the shard writes the states, and its safety does not depend on them. Readers check them to
//! avoid new pins on a draining segment, pin holders check whether they should release their segment, and the
//! metrics are computed from them.

use super::{
    pins::Pins,
    turns::{Epoch, Epochs},
};
use crate::sys::atomics::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// State of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum SegmentState {
    /// The segment is empty, and no reader sees it.
    Free = 0,
    /// The segment is open: records are being appended.
    Open = 1,
    /// The segment is full; its records are found through the index.
    Sealed = 2,
    /// No slot of the index points into the segment, but epochs or pins may still hold it.
    Draining = 3,
}

impl SegmentState {
    fn of(word: u32) -> Self {
        match word {
            0 => Self::Free,
            1 => Self::Open,
            2 => Self::Sealed,
            3 => Self::Draining,
            _ => unreachable!("only the four states are ever stored"),
        }
    }
}

/// State, number of unfinished objects and pins of every segment of a store.
#[derive(Debug)]
pub struct Segments {
    states: Box<[AtomicU32]>,
    /// Number of unfinished objects that have space in each segment; eviction skips segments with such
    /// objects.
    fillings: Box<[AtomicU32]>,
    /// Not zero if pages of the segment have been lent to sockets since it was last freed.
    lent: Box<[AtomicU32]>,
    /// Pins on the segments, by core.
    pub pins: Pins,
}

impl Segments {
    /// Creates the states with all segments free.
    pub fn new(cores: usize, segments: usize) -> Self {
        Self {
            states: (0..segments).map(|_| AtomicU32::new(0)).collect(),
            fillings: (0..segments).map(|_| AtomicU32::new(0)).collect(),
            lent: (0..segments).map(|_| AtomicU32::new(0)).collect(),
            pins: Pins::new(cores, segments),
        }
    }

    /// Returns the current state of a segment. Only the owner can rely on it, because only the owner changes
    /// it.
    pub fn state(&self, segment: usize) -> SegmentState {
        SegmentState::of(self.states[segment].load(Relaxed))
    }

    /// Advances a segment to its next state; for the owner only.
    ///
    /// # Panics
    /// Panics if the segment is not in the state that precedes `to`.
    pub fn advance(&self, segment: usize, to: SegmentState) {
        let from = self.state(segment);
        let allowed = match to {
            SegmentState::Open => from == SegmentState::Free,
            SegmentState::Sealed => from == SegmentState::Open,
            SegmentState::Draining => from == SegmentState::Sealed,
            SegmentState::Free => from == SegmentState::Draining,
        };
        assert!(allowed, "segment {segment} cannot go from {from:?} to {to:?}");
        self.states[segment].store(to as u32, Relaxed);
    }

    /// Retires a segment to which no index slot points any more.
    pub fn retire(&self, segment: usize, turns: &Epochs) -> Epoch {
        self.advance(segment, SegmentState::Draining);
        turns.retire()
    }

    /// Frees a retired segment if no epoch and no pin holds it (I2); returns whether it was freed.
    pub fn reclaim(&self, segment: usize, epoch: Epoch, turns: &Epochs) -> bool {
        // Epochs are checked before pins: the pins taken in an epoch are counted by the time that epoch is
        // over.
        let reclaimed = turns.is_over(epoch) && self.pins.is_free(segment);
        if reclaimed {
            self.advance(segment, SegmentState::Free);
        }
        reclaimed
    }

    /// Records that pages of the segment are lent to a socket. The core that holds the pin calls this before
    /// it lends the pages.
    #[inline]
    pub fn lend(&self, segment: usize) {
        // Relaxed is enough: dropping the pin (Release) makes the flag visible to the owner, which checks it
        // once the segment has no pins. The flag is read first, because all cores may lend from a segment and
        // one store is enough.
        let lent = &self.lent[segment];
        if lent.load(Relaxed) == 0 {
            lent.store(1, Relaxed);
        }
    }

    /// Returns and clears the flag that pages of a freed segment were lent; for the owner only.
    pub fn take_lent(&self, segment: usize) -> bool {
        let lent = &self.lent[segment];
        let was_lent = lent.load(Relaxed) != 0;
        if was_lent {
            lent.store(0, Relaxed);
        }
        was_lent
    }

    /// Counts an unfinished object that takes space in the segment; for the owner only.
    pub fn filling_begins(&self, segment: usize) {
        self.fillings[segment].fetch_add(1, Relaxed);
    }

    /// Removes an unfinished object (now linked or abandoned) from the count; may be called on any core.
    pub fn filling_ends(&self, segment: usize) {
        let before = self.fillings[segment].fetch_sub(1, Release);
        assert!(before > 0, "filling in segment {segment} ended twice");
    }

    /// Returns whether an unfinished object has space in the segment.
    pub fn is_filling(&self, segment: usize) -> bool {
        self.fillings[segment].load(Acquire) > 0
    }
}
