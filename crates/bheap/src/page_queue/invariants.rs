//! The queue's invariants, checked item by item.

use crate::blocks::Blocks;
use crate::page_queue::PageQueue;
use crate::page_queue::list::List;

impl<T: Ord + Copy + core::fmt::Debug, B: Blocks<T>> PageQueue<T, B> {
    /// Checks every invariant, in O(n); for tests, and after a suspect file.
    ///
    /// # Panics
    /// If one does not hold, with its name.
    pub fn assert_invariants(&self) {
        assert_eq!(self.levels.len(), self.bounds.len(), "a bound for each level");
        assert!(self.bounds.is_sorted_by(|upper, lower| upper >= lower), "bounds fall");
        if let Some(limit) = self.bounds.last() {
            assert!(!self.near.front.is_empty(), "while there are levels, the front is not empty");
            assert!(self.near.front.iter().all(|item| item <= limit), "the front lies below the levels");
        }
        let mut len = self.near.len();
        for (at, level) in self.levels.iter().enumerate() {
            let upper = at.checked_sub(1).map(|above| self.bounds[above]);
            self.assert_within(&level.log, self.bounds[at], upper, "a log");
            self.assert_within(&level.source, self.bounds[at], upper, "a source");
            let mut upper = upper;
            for child in &level.children {
                self.assert_within(&child.list, child.lo, upper, "a child");
                upper = Some(child.lo);
            }
            if let Some(first) = level.children.last() {
                assert!(
                    first.lo.cmp(&self.bounds[at]).is_eq(),
                    "the first child begins where its level begins"
                );
            }
            len += level.len();
        }
        assert_eq!(len, self.len, "every item is counted once");
    }

    fn assert_within(&self, list: &List<T>, lo: T, upper: Option<T>, what: &str) {
        let mut len = 0;
        list.for_each(&self.store, |items| {
            len += items.len();
            for item in items {
                assert!(*item >= lo, "{what} holds {item:?}, below its bound {lo:?}");
                assert!(upper.is_none_or(|upper| *item <= upper), "{what} holds {item:?}, above {upper:?}");
                assert!(!list.uniform || item.cmp(&items[0]).is_eq(), "{what} is uniform");
            }
        });
        assert_eq!(len, list.len(), "{what} counts its items");
    }
}
