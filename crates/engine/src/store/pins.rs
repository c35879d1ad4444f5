//! Pins, which keep segments alive beyond an epoch (I3).
//!
//! Each core has a counter for each segment. A core writes only its own row, except that a pin may be dropped
//! on another core. A pin is taken within an epoch (or by the owner) from an index slot. The owner waits for
//! earlier epochs to end before it reads the counters, so it cannot miss a pin.

use crate::sys::atomics::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// The pin counters of all cores and segments.
#[derive(Debug)]
pub struct Pins {
    /// One row of counters per core, in separate allocations, so that rows of two cores share cache lines
    /// only at their ends, if at all.
    rows: Box<[Box<[AtomicU32]>]>,
}

impl Pins {
    /// Creates the counters with no segment pinned.
    pub fn new(cores: usize, segments: usize) -> Self {
        Self { rows: (0..cores).map(|_| (0..segments).map(|_| AtomicU32::new(0)).collect()).collect() }
    }

    /// Takes a pin for `core`, which must be within an epoch or own the segment.
    #[inline]
    pub fn take(&self, core: usize, segment: usize) {
        // Relaxed is enough: the end of the epoch (Release) makes the count visible to the owner.
        self.rows[core][segment].fetch_add(1, Relaxed);
    }

    /// Drops a pin that was taken for `core`; may be called on any core.
    #[inline]
    pub fn release(&self, core: usize, segment: usize) {
        let before = self.rows[core][segment].fetch_sub(1, Release);
        assert!(before > 0, "pin of segment {segment} dropped twice");
    }

    /// Returns whether no core pins the segment.
    pub fn is_free(&self, segment: usize) -> bool {
        self.rows.iter().all(|row| row[segment].load(Acquire) == 0)
    }
}
