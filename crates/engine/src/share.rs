//! A core's share of a limit that applies to all cores together.
//!
//! ```text
//!   total ─┬─ a fixed part for each core, which clients of other cores cannot use up
//!          └─ the common part: for whichever core needs it, taken and given back in steps
//! ```
//! A share is checked at the end of each turn or at each growth. A core checks amounts within its own part,
//! or within the steps that it has taken, in its own memory. The counter that the cores share is accessed
//! once per step.
//!
//! Totals of several kinds (queued messages, incoming mails, connections) may belong to one [`ClientBudget`]:
//! each kind has a fixed part of the budget, and any amount beyond that part is also taken from the budget's
//! common part. The process therefore never holds more than the budget, whichever of its servers is under
//! load.
//!
//! *The last sixteenth* of a common part is for cores that have taken less than an equal part of it. While
//! some of that sixteenth is taken, the limits of cores with more than an equal part are lowered until it is
//! free again.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Maximum bytes that a core takes from or returns to the common part at once. A small total has smaller
/// steps; otherwise the first core would take the whole common part with one step.
const STEP_BYTES_MAX: usize = 4 << 20;
/// Minimum number of steps in a common part: small parts have smaller steps, and the last sixteenth always
/// has at least two.
const STEPS_MIN: usize = 32;
/// Divisor for the reserved last part of a pool, which only cores with less than an equal share of the pool
/// may take.
const RESERVE_PARTS: usize = 16;
/// Eighths of a share that must be in use before the share counts as crowded.
const CROWDED_EIGHTHS: usize = 4;
/// Divisor for the part of a budget that is divided among its kinds of memory.
const KINDS_PART: usize = 4;

/// A common pool of bytes from which several shares take, in steps.
#[derive(Debug, Default)]
struct Pool {
    taken: AtomicUsize,
    /// Number of shares that take from the pool.
    sharers: AtomicUsize,
}

impl Pool {
    /// Takes a step for a share that has already taken `own` bytes. Returns whether the step was available.
    fn take(&self, step: usize, own: usize, max: usize) -> bool {
        let max = if own < self.equal_part(max) { max } else { max - max / RESERVE_PARTS };
        self.taken
            .fetch_update(Relaxed, Relaxed, |taken| (taken + step <= max).then_some(taken + step))
            .is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Relaxed);
    }

    fn equal_part(&self, max: usize) -> usize {
        max / self.sharers.load(Relaxed).max(1)
    }

    /// Returns the bytes, in whole steps, that a share which has already taken `own` bytes may still take.
    fn left(&self, step: usize, own: usize, max: usize) -> usize {
        let taken = self.taken.load(Relaxed);
        let steps = |bytes: usize| bytes / step * step;
        let to_equal_part = self.equal_part(max).saturating_sub(own).next_multiple_of(step);
        let with_reserve = steps(max.saturating_sub(taken)).min(to_equal_part);
        with_reserve.max(steps((max - max / RESERVE_PARTS).saturating_sub(taken)))
    }

    /// Returns how many of its `own` bytes a share may keep. A share with more than an equal part may keep
    /// fewer while other shares want some.
    fn kept(&self, own: usize, max: usize) -> usize {
        let short = self.taken.load(Relaxed).saturating_sub(max - max / RESERVE_PARTS);
        if short == 0 { own } else { own.min((own.saturating_sub(short)).max(self.equal_part(max))) }
    }

    fn is_crowded(&self, max: usize) -> bool {
        self.taken.load(Relaxed) > max / 8 * CROWDED_EIGHTHS
    }
}

/// The memory budget for clients, in bytes, over all kinds of memory.
#[derive(Debug)]
pub struct ClientBudget {
    total: usize,
    kinds: usize,
    common: Pool,
}

impl ClientBudget {
    /// Creates a budget of `total` bytes for `kinds` kinds of memory.
    #[must_use]
    pub fn new(total: usize, kinds: usize) -> Arc<Self> {
        Arc::new(Self { total, kinds: kinds.max(1), common: Pool::default() })
    }

    /// Returns the part that is reserved for each kind of memory, which no other kind can take.
    fn own_of_kind(&self) -> usize {
        self.total / KINDS_PART / self.kinds
    }

    fn common_max(&self) -> usize {
        self.total - self.own_of_kind() * self.kinds
    }
}

// Configurations are compared, and a budget of the same size counts as unchanged.
impl PartialEq for ClientBudget {
    fn eq(&self, other: &Self) -> bool {
        (self.total, self.kinds) == (other.total, other.kinds)
    }
}

impl Eq for ClientBudget {}

/// Common part of the limit on one kind of memory, from which all cores take.
#[derive(Debug, Default)]
pub struct CommonPart {
    pool: Pool,
    budget: Option<Arc<ClientBudget>>,
}

impl CommonPart {
    /// Creates the common part for one kind of memory, either within a budget or independent.
    #[must_use]
    pub fn within(budget: Option<&Arc<ClientBudget>>) -> Arc<Self> {
        Arc::new(Self { pool: Pool::default(), budget: budget.map(Arc::clone) })
    }

    /// Returns the fixed part of a total, which is divided among the cores.
    fn divided(&self, total: usize) -> usize {
        let half = total - total / 2;
        self.budget.as_ref().map_or(half, |budget| half.min(budget.own_of_kind()))
    }

    /// Returns the common part of a total: the amount that cores may take beyond their own parts.
    fn max(&self, total: usize) -> usize {
        let max = total - self.divided(total);
        self.budget.as_ref().map_or(max, |budget| max.min(budget.common_max()))
    }

    fn take(&self, step: usize, own: usize, max: usize) -> bool {
        if !self.pool.take(step, own, max) {
            return false;
        }
        let is_there =
            self.budget.as_ref().is_none_or(|budget| budget.common.take(step, own, budget.common_max()));
        if !is_there {
            self.pool.give_back(step);
        }
        is_there
    }

    fn give_back(&self, bytes: usize) {
        self.pool.give_back(bytes);
        if let Some(budget) = &self.budget {
            budget.common.give_back(bytes);
        }
    }

    fn left(&self, step: usize, own: usize, max: usize) -> usize {
        let left = self.pool.left(step, own, max);
        let of_budget = |budget: &Arc<ClientBudget>| budget.common.left(step, own, budget.common_max());
        self.budget.as_ref().map_or(left, |budget| left.min(of_budget(budget)))
    }

    fn kept(&self, own: usize, max: usize) -> usize {
        let kept = self.pool.kept(own, max);
        self.budget.as_ref().map_or(kept, |budget| kept.min(budget.common.kept(own, budget.common_max())))
    }

    fn is_crowded(&self, max: usize) -> bool {
        self.pool.is_crowded(max)
            || self.budget.as_ref().is_some_and(|budget| budget.common.is_crowded(budget.common_max()))
    }

    fn enter(&self) {
        self.pools().for_each(|pool| _ = pool.sharers.fetch_add(1, Relaxed));
    }

    fn leave(&self) {
        self.pools().for_each(|pool| _ = pool.sharers.fetch_sub(1, Relaxed));
    }

    fn pools(&self) -> impl Iterator<Item = &Pool> {
        [&self.pool].into_iter().chain(self.budget.iter().map(|budget| &budget.common))
    }
}

/// A core's share of a limit on all cores.
#[derive(Debug)]
pub struct Share {
    common: Arc<CommonPart>,
    common_max: usize,
    own: usize,
    step: usize,
    taken: usize,
}

impl Share {
    /// Creates a core's share of `total`, which has not taken any of the common part yet.
    pub fn new(common: Arc<CommonPart>, total: usize, cores: usize) -> Self {
        common.enter();
        let mut share = Self { common, common_max: 0, own: 0, step: 1, taken: 0 };
        share.resize(total, cores);
        share
    }

    /// Changes the total limit and the number of cores.
    pub fn resize(&mut self, total: usize, cores: usize) {
        self.common_max = self.common.max(total);
        self.step = (self.common_max / STEPS_MIN).clamp(1, STEP_BYTES_MAX);
        self.own = self.common.divided(total) / cores.max(1);
    }

    /// Returns whether the core may hold `held` bytes. Takes steps of the common part if it needs them, and
    /// returns steps that it does not need.
    #[inline]
    pub fn allows(&mut self, held: usize) -> bool {
        if held <= self.own && self.taken == 0 {
            return true;
        }
        self.allows_with_common(held)
    }

    #[cold]
    fn allows_with_common(&mut self, held: usize) -> bool {
        let kept = self.common.kept(self.taken, self.common_max);
        // A share keeps one or two steps more than it needs, so that steps are not returned and taken again
        // repeatedly. It keeps fewer while other cores want them.
        let spare = if kept < self.taken { 1 } else { 2 };
        while self.taken > 0 && (held <= self.own || held + spare * self.step < self.own + self.taken) {
            // The current step size may differ from the one at which the bytes were taken, if the total has
            // changed.
            let given = self.step.min(self.taken);
            self.common.give_back(given);
            self.taken -= given;
        }
        if kept < self.taken && held > self.own + kept {
            return false;
        }
        while held > self.own + self.taken {
            if !self.common.take(self.step, self.taken, self.common_max) {
                return false;
            }
            self.taken += self.step;
        }
        true
    }

    /// Returns the fixed part of this core, which no other core can take.
    #[inline]
    pub fn own(&self) -> usize {
        self.own
    }

    /// Returns the maximum that this core may hold while the other cores hold their current amounts.
    pub fn limit(&self) -> usize {
        let kept = self.common.kept(self.taken, self.common_max);
        if kept < self.taken {
            return self.own + kept;
        }
        self.own + self.taken + self.common.left(self.step, self.taken, self.common_max)
    }

    /// Returns whether the share has taken steps of the common part, which other cores may want back.
    #[inline]
    pub fn has_taken(&self) -> bool {
        self.taken > 0
    }

    /// Returns whether the share may soon be used up.
    #[inline]
    pub fn is_crowded(&self, held: usize) -> bool {
        let all = self.own + self.common_max;
        held > self.own / 8 * CROWDED_EIGHTHS && held > all / 8 * CROWDED_EIGHTHS
            || self.taken > 0 && self.common.is_crowded(self.common_max)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.common.give_back(self.taken);
        self.common.leave();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOTAL: usize = 64 << 20;
    const CORES: usize = 4;

    /// Creates the shares of two kinds of memory on all cores; the first kind's total is more than the
    /// budget.
    fn kinds() -> Vec<Share> {
        let budget = ClientBudget::new(TOTAL, 2);
        let commons = [(); 2].map(|()| CommonPart::within(Some(&budget)));
        let shares = commons.iter().zip([2 * TOTAL, TOTAL / 2]);
        shares
            .flat_map(|(common, total)| (0..CORES).map(move |_| Share::new(Arc::clone(common), total, CORES)))
            .collect()
    }

    fn cores() -> Vec<Share> {
        let common = Arc::new(CommonPart::default());
        (0..CORES).map(|_| Share::new(Arc::clone(&common), TOTAL, CORES)).collect()
    }

    /// Lowers `held` to the limit, like a loop that disconnects clients.
    fn cut(share: &mut Share, held: &mut usize) {
        while !share.allows(*held) {
            *held = share.limit().min(*held - 1);
        }
    }

    /// Checks any sequence of requests: the allowed amounts never exceed the total, each core's fixed part is
    /// always available, and everything is returned.
    fn check_sum(mut shares: Vec<Share>, steps: Vec<(usize, usize)>) -> Result<(), TestCaseError> {
        let mut held = vec![0; shares.len()];
        for (at, wanted) in steps {
            let at = at % held.len();
            let share = &mut shares[at];
            let limit = share.limit();
            let is_allowed = share.allows(wanted);
            prop_assert!(is_allowed || wanted > share.own());
            // A core whose request was refused disconnects clients until its amount is allowed.
            prop_assert_eq!(is_allowed, wanted <= limit, "{} of {}", wanted, limit);
            held[at] = wanted;
            cut(&mut shares[at], &mut held[at]);
            prop_assert!(held.iter().sum::<usize>() <= TOTAL, "{held:?}");
        }
        shares.iter_mut().for_each(|share| assert!(share.allows(0) && !share.has_taken()));
        Ok(())
    }

    fn steps() -> impl Strategy<Value = Vec<(usize, usize)>> {
        prop::collection::vec((0..2 * CORES, 0..TOTAL), 1..200)
    }

    proptest! {
        #[test]
        fn the_sum_of_cores_is_bounded(steps in steps()) {
            check_sum(cores(), steps)?;
        }

        #[test]
        fn the_sum_of_kinds_is_bounded(steps in steps()) {
            check_sum(kinds(), steps)?;
        }

        /// Even if one core has taken the whole common part, the others get their equal parts, in whatever
        /// order the cores check their shares.
        #[test]
        fn who_has_more_gives_way(first in 0..2 * CORES, wanting in 0..2 * CORES) {
            for mut shares in [cores(), kinds()] {
                let (first, wanting) = (first % shares.len(), wanting % shares.len());
                prop_assume!(first != wanting);
                let mut held = vec![0; shares.len()];
                held[first] = 4 * TOTAL;
                cut(&mut shares[first], &mut held[first]);
                prop_assert!(held[first] > TOTAL / 4);
                let equal = shares[wanting].common_max / shares.len();
                let wanted = shares[wanting].own() + equal.min(shares[wanting].common_max);
                for _ in 0..100 {
                    if shares[wanting].allows(wanted) {
                        held[wanting] = wanted;
                        break;
                    }
                    held[wanting] = held[wanting].max(shares[wanting].limit().min(wanted));
                    cut(&mut shares[wanting], &mut held[wanting]);
                    cut(&mut shares[first], &mut held[first]);
                }
                prop_assert_eq!(held[wanting], wanted);
                prop_assert!(held.iter().sum::<usize>() <= TOTAL);
            }
        }
    }

    #[test]
    fn a_share_that_ends_gives_back() {
        let budget = ClientBudget::new(TOTAL, 1);
        let mut share = Share::new(CommonPart::within(Some(&budget)), TOTAL, 1);
        assert!(share.allows(TOTAL / 2));
        drop(share);
        assert_eq!((budget.common.taken.load(Relaxed), budget.common.sharers.load(Relaxed)), (0, 0));
    }
}
