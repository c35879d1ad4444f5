//! The states of the segments, as every core may see them.
//!
//! ```text
//! Free ──claim──▶ Open ──seal──▶ Sealed ──retire──▶ Draining ──reclaim──▶ Free
//! ```
//! Written by the owner of the shard. For safety the owner needs none of it; readers look to be polite (no new pin
//! on what drains), pin holders to know that their segment is wanted back, and the counters are summed from it.

use super::{
    pins::Pins,
    turns::{Epoch, Epochs},
};
use crate::sys::atomics::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// Where a segment is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum SegmentState {
    /// Nothing in it, nobody sees it.
    Free = 0,
    /// Records are appended.
    Open = 1,
    /// Full; its records are found through the index.
    Sealed = 2,
    /// No slot of the index points into it; turns and pins may still.
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

/// State, number of unfinished fillings and pins of every segment of a store.
#[derive(Debug)]
pub struct Segments {
    states: Box<[AtomicU32]>,
    /// Objects being filled that have space here: these keep a segment from being emptied by eviction.
    fillings: Box<[AtomicU32]>,
    /// Not zero: pages of the segment were lent to sockets in this life of it.
    lent: Box<[AtomicU32]>,
    /// Which cores hold which segments beyond a turn.
    pub pins: Pins,
}

impl Segments {
    /// All free.
    pub fn new(cores: usize, segments: usize) -> Self {
        Self {
            states: (0..segments).map(|_| AtomicU32::new(0)).collect(),
            fillings: (0..segments).map(|_| AtomicU32::new(0)).collect(),
            lent: (0..segments).map(|_| AtomicU32::new(0)).collect(),
            pins: Pins::new(cores, segments),
        }
    }

    /// The state now; only the owner can rely on it staying so.
    pub fn state(&self, segment: usize) -> SegmentState {
        SegmentState::of(self.states[segment].load(Relaxed))
    }

    /// Moves a segment on; owner only.
    ///
    /// # Panics
    /// If it was not in the state before.
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

    /// Retires a segment into which no slot points any more.
    pub fn retire(&self, segment: usize, turns: &Epochs) -> Epoch {
        self.advance(segment, SegmentState::Draining);
        turns.retire()
    }

    /// Frees a retired segment if no turn and no pin can reach it (I2); says whether it did.
    pub fn reclaim(&self, segment: usize, epoch: Epoch, turns: &Epochs) -> bool {
        // Epochs first, then pins: the pins that a turn took are counted by the time the turn is over.
        let reclaimed = turns.is_over(epoch) && self.pins.is_free(segment);
        if reclaimed {
            self.advance(segment, SegmentState::Free);
        }
        reclaimed
    }

    /// Notes that pages of the segment are lent to a socket. The core that holds the pin calls it, before it lends
    /// them.
    #[inline]
    pub fn lend(&self, segment: usize) {
        // Relaxed: dropping the pin (Release) shows it to the owner, who looks once nobody pins the segment. Read
        // first, because all cores may lend from a segment and one store is enough.
        let lent = &self.lent[segment];
        if lent.load(Relaxed) == 0 {
            lent.store(1, Relaxed);
        }
    }

    /// Whether pages of a segment that has been freed were lent since the last time; owner only.
    pub fn take_lent(&self, segment: usize) -> bool {
        let lent = &self.lent[segment];
        let was_lent = lent.load(Relaxed) != 0;
        if was_lent {
            lent.store(0, Relaxed);
        }
        was_lent
    }

    /// A filling has space in the segment; owner only.
    pub fn filling_begins(&self, segment: usize) {
        self.fillings[segment].fetch_add(1, Relaxed);
    }

    /// A filling ended (linked or abandoned), on whichever core.
    pub fn filling_ends(&self, segment: usize) {
        let before = self.fillings[segment].fetch_sub(1, Release);
        assert!(before > 0, "a filling in segment {segment} ended twice");
    }

    /// Whether an unfinished filling has space in the segment.
    pub fn is_filling(&self, segment: usize) -> bool {
        self.fillings[segment].load(Acquire) > 0
    }
}
