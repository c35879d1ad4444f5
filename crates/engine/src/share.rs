//! How much of what all cores together may hold is one core's.
//!
//! ```text
//!   total ─┬─ half: a fixed part for each core, so that none is without because of another's clients
//!          └─ half: for whichever core needs it, taken and given back in steps
//! ```
//! Asked at the end of each turn or at each growth: what is within its part, or within the steps that it has taken, a
//! core finds in its own memory. The count that cores share is touched once in a step.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// What a core takes or gives back at once, at most; of a small total less, or the first to come would have the whole half.
const STEP_BYTES_MAX: usize = 4 << 20;
/// Steps of the common half, if they are smaller than that.
const STEPS_MIN: usize = 16;
/// From this share of what it has on, a core is crowded.
const CROWDED_EIGHTHS: usize = 4;

/// The half that is for whichever core needs it: how much of it is taken.
#[derive(Debug, Default)]
pub struct Common(AtomicUsize);

/// A core's part.
#[derive(Debug)]
pub struct Share {
    common: Arc<Common>,
    common_max: usize,
    own: usize,
    step: usize,
    taken: usize,
}

impl Share {
    /// Nothing of the common half yet.
    pub fn new(common: Arc<Common>, total: usize, cores: usize) -> Self {
        let mut share = Self { common, common_max: 0, own: 0, step: 1, taken: 0 };
        share.resize(total, cores);
        share
    }

    /// The total is another.
    pub fn resize(&mut self, total: usize, cores: usize) {
        self.common_max = total / 2;
        self.step = (self.common_max / STEPS_MIN).clamp(1, STEP_BYTES_MAX);
        self.own = (total - total / 2) / cores.max(1);
    }

    /// Whether so much may be held; takes of the common half what is needed and there, and gives back what is not.
    #[inline]
    pub fn allows(&mut self, held: usize) -> bool {
        if held <= self.own && self.taken == 0 {
            return true;
        }
        self.allows_with_common(held)
    }

    #[cold]
    fn allows_with_common(&mut self, held: usize) -> bool {
        let (max, step) = (self.common_max, self.step);
        while self.taken > 0 && (held <= self.own || held + 2 * step < self.own + self.taken) {
            // Of another size, where the total has changed since.
            let given = step.min(self.taken);
            self.common.0.fetch_sub(given, Relaxed);
            self.taken -= given;
        }
        while held > self.own + self.taken {
            let one_more = |taken: usize| (taken + step <= max).then_some(taken + step);
            if self.common.0.fetch_update(Relaxed, Relaxed, one_more).is_err() {
                return false;
            }
            self.taken += step;
        }
        true
    }

    /// The part that no other core can take.
    #[inline]
    pub fn own(&self) -> usize {
        self.own
    }

    /// What is allowed at most while the other cores hold what they do.
    pub fn limit(&self) -> usize {
        let left = self.common_max.saturating_sub(self.common.0.load(Relaxed));
        self.own + self.taken + left / self.step * self.step
    }

    /// Whether so much of it is held that there may soon be none.
    #[inline]
    pub fn is_crowded(&self, held: usize) -> bool {
        let all = self.own + self.common_max;
        held > self.own / 8 * CROWDED_EIGHTHS && held > all / 8 * CROWDED_EIGHTHS
            || self.taken > 0 && self.common.0.load(Relaxed) > self.common_max / 8 * CROWDED_EIGHTHS
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOTAL: usize = 64 << 20;
    const CORES: usize = 4;

    proptest! {
        /// Whatever the cores need in whatever order: what they are allowed is never more than the total, a fixed part
        /// is always there, and all is given back.
        #[test]
        fn the_sum_is_bounded(steps in prop::collection::vec((0..CORES, 0_usize..TOTAL), 1..200)) {
            let common = Arc::new(Common::default());
            let mut shares: Vec<Share> =
                (0..CORES).map(|_| Share::new(Arc::clone(&common), TOTAL, CORES)).collect();
            let mut held = [0; CORES];
            for (core, wanted) in steps {
                let limit = shares[core].limit();
                let is_allowed = shares[core].allows(wanted);
                prop_assert!(is_allowed || wanted > TOTAL / 2 / CORES);
                // Who is not allowed cuts clients off until it is.
                prop_assert_eq!(is_allowed, wanted <= limit);
                held[core] = if is_allowed { wanted } else { TOTAL / 2 / CORES };
                prop_assert!(shares[core].allows(held[core]));
                prop_assert!(held.iter().sum::<usize>() <= TOTAL, "{held:?}");
            }
            shares.iter_mut().for_each(|share| assert!(share.allows(0)));
            prop_assert_eq!(common.0.load(Relaxed), 0);
        }
    }
}
