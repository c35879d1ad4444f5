//! Pins: what outlives a turn keeps its segments (I3).
//!
//! One counter for each core and segment; a row is written by its core, except that a pin may be dropped on another.
//! A pin is taken within a turn (or by the owner) from an index slot, so the owner, who waits for such turns before
//! it looks at the counters, cannot miss one.

use crate::sys::atomics::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// The pin counters of all cores and segments.
#[derive(Debug)]
pub struct Pins {
    /// One allocation a core, so that no two share a cache line but at its ends.
    rows: Box<[Box<[AtomicU32]>]>,
}

impl Pins {
    /// Nothing pinned.
    pub fn new(cores: usize, segments: usize) -> Self {
        Self { rows: (0..cores).map(|_| (0..segments).map(|_| AtomicU32::new(0)).collect()).collect() }
    }

    /// Takes a pin for `core`, in whose turn this is (or which owns the segment).
    #[inline]
    pub fn take(&self, core: usize, segment: usize) {
        // Relaxed: the end of the turn (Release) shows it to the owner.
        self.rows[core][segment].fetch_add(1, Relaxed);
    }

    /// Drops a pin that was taken for `core`, from whichever core.
    #[inline]
    pub fn release(&self, core: usize, segment: usize) {
        let before = self.rows[core][segment].fetch_sub(1, Release);
        assert!(before > 0, "a pin of segment {segment} was dropped twice");
    }

    /// Whether nobody pins the segment.
    pub fn is_free(&self, segment: usize) -> bool {
        self.rows.iter().all(|row| row[segment].load(Acquire) == 0)
    }
}
