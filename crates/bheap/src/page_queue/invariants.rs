//! Invariants of the page queue, checked item by item.

use crate::blocks::Blocks;
use crate::page_queue::PageQueue;
use crate::page_queue::levels::CHILDREN_MAX;
use crate::page_queue::list::List;

impl<T: Ord + Copy, B: Blocks<T>> PageQueue<T, B> {
    /// Checks every invariant, in O(n); for tests.
    ///
    /// # Panics
    /// Panics with the invariant's name if one is broken.
    pub fn assert_invariants(&self) {
        assert_eq!(self.broken_invariant(), None);
    }

    /// Returns the name of a broken invariant, if there is one.
    pub(crate) fn broken_invariant(&self) -> Option<&'static str> {
        if self.levels.len() != self.bounds.len() {
            return Some("there is a bound for each level");
        }
        if !self.bounds.is_sorted_by(|upper, lower| upper >= lower) {
            return Some("bounds fall");
        }
        if let Some(limit) = self.bounds.last() {
            if self.near.front.is_empty() {
                return Some("while there are levels, the front is not empty");
            }
            if self.near.front.iter().any(|item| item > limit) {
                return Some("the front lies below the levels");
            }
        }
        let mut len = self.near.len();
        for (at, level) in self.levels.iter().enumerate() {
            let upper = at.checked_sub(1).map(|above| self.bounds[above]);
            if !self.lies_within(&level.log, self.bounds[at], upper) {
                return Some("a log lies within its level's bounds");
            }
            if !self.lies_within(&level.source, self.bounds[at], upper) {
                return Some("a source lies within its level's bounds");
            }
            let mut upper = upper;
            for child in &level.children {
                if !self.lies_within(&child.list, child.lo, upper) {
                    return Some("a child lies within its bounds");
                }
                upper = Some(child.lo);
            }
            if level.children.last().is_some_and(|first| first.lo.cmp(&self.bounds[at]).is_ne()) {
                return Some("the first child begins where its level begins");
            }
            if level.children.is_empty() && !level.source.is_empty() || level.children.len() > CHILDREN_MAX {
                return Some("what is distributed has somewhere to go");
            }
            if level.around.is_some() && level.children.len() != 3 {
                return Some("what is divided around a key is divided in three");
            }
            len += level.len();
        }
        (len != self.len).then_some("every item is counted once")
    }

    fn lies_within(&self, list: &List<T>, lo: T, upper: Option<T>) -> bool {
        let (mut len, mut holds) = (0, true);
        let mut first = None;
        list.for_each(&self.store, |items| {
            len += items.len();
            for item in items {
                let first = *first.get_or_insert(*item);
                holds &= *item >= lo
                    && upper.is_none_or(|upper| *item <= upper)
                    && (!list.uniform || item.cmp(&first).is_eq());
            }
        });
        holds && len == list.len()
    }
}
