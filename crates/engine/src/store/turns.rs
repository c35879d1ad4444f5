//! Epochs: track which core may still see unlinked records (`docs/decisions/003-store-concurrency.md`, I2 and
//! I7).
//!
//! ```text
//! core c:   local[c] = global; FENCE; look into index and arena ...; local[c] = IDLE
//! owner:    unlink; epoch = global++;  ...  FENCE; every local[c] > epoch?  then reuse
//! ```
//! If the reader's fence comes first, the owner sees its `local` (or a later value). If the owner's comes
//! first, the reader sees the unlinking. There is no third case.

use crate::sys::atomics::{
    AtomicU64, CacheLinePair,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    fence,
};

/// Value of a core that is in no epoch: greater than every epoch, so that "idle or later" is one comparison.
const IDLE: u64 = u64::MAX;

/// The epochs of all cores. Each `local` is written only by its core, and has a cache line of its own.
#[derive(Debug)]
pub struct Epochs {
    global: CacheLinePair<AtomicU64>,
    local: Box<[CacheLinePair<AtomicU64>]>,
}

/// Epoch in which a page or segment was retired, for [`Epochs::is_over`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(u64);

impl Epochs {
    /// Creates the epochs for `cores` cores, none of which is in an epoch.
    pub fn new(cores: usize) -> Self {
        Self {
            global: CacheLinePair(AtomicU64::new(0)),
            local: (0..cores).map(|_| CacheLinePair(AtomicU64::new(IDLE))).collect(),
        }
    }

    /// Begins an epoch of `core`. Must be called on that core's thread.
    ///
    /// # Panics
    /// Panics if that core is already in an epoch: the end of the inner one would end the outer.
    #[inline]
    pub fn begin(&self, core: usize) {
        let local = &self.local[core].0;
        assert!(local.load(Relaxed) == IDLE, "turns of core {core} do not nest");
        // Release: an owner that reads this value, not the IDLE before it, also sees all effects of the
        // previous epoch.
        local.store(self.global.0.load(Relaxed), Release);
        fence(SeqCst);
    }

    /// Ends the epoch of `core`.
    #[inline]
    pub fn end(&self, core: usize) {
        self.local[core].0.store(IDLE, Release);
    }

    /// Records that a page or segment was unlinked; readers that begin after this call do not see it.
    ///
    /// The epoch must be the value that the addition returns, and not one read earlier: several owners retire
    /// at once, and a reader may have begun after another owner's addition and before this one.
    pub fn retire(&self) -> Epoch {
        // No fence is needed here: the fence in `is_over` also comes after the unlinking, and the addition
        // releases the unlinking to later readers.
        Epoch(self.global.0.fetch_add(1, AcqRel))
    }

    /// Returns whether every reader has finished that could see a page or segment retired at `epoch`.
    pub fn is_over(&self, epoch: Epoch) -> bool {
        fence(SeqCst);
        self.local.iter().all(|local| local.0.load(Acquire) > epoch.0)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_delays_only_memory_it_can_see() {
        let turns = Epochs::new(2);
        turns.begin(1);
        let during = turns.retire();
        assert!(!turns.is_over(during));
        turns.end(1);
        assert!(turns.is_over(during));
        turns.begin(1);
        assert!(turns.is_over(during), "a later turn does not hold back what it cannot see");
        assert!(!turns.is_over(turns.retire()));
    }

    #[test]
    #[should_panic(expected = "do not nest")]
    fn a_nested_turn_is_refused() {
        let turns = Epochs::new(1);
        turns.begin(0);
        turns.begin(0);
    }
}
