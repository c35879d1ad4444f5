//! Reuse of the numbers of subscriptions and nodes.
//!
//! A delivery that takes several turns holds a list of numbers, while other clients subscribe and leave. A
//! number that is retired in that time is not reused until all deliveries that began earlier have ended:
//!
//! ```text
//!   begin 1 ──────────────────── end 1          a number that is retired in between is free again here
//!             begin 2 ─────────────────── end 2
//! ```
//! *What is bounded:* a delivery ends within a bounded number of turns, whatever its consumers do, and each
//! retired number costs a client an operation.

use std::collections::{BTreeSet, VecDeque};

/// Number that identifies a delivery over several turns.
pub(crate) type Mark = u64;

/// Numbers of the suspended deliveries.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    last: Mark,
    under_way: BTreeSet<Mark>,
}

impl Marks {
    /// Registers a suspended delivery; [`Self::end`] ends it.
    pub(crate) fn begin(&mut self) -> Mark {
        self.last += 1;
        self.under_way.insert(self.last);
        self.last
    }

    pub(crate) fn end(&mut self, mark: Mark) {
        assert!(self.under_way.remove(&mark), "a message that ends had begun");
    }

    /// Returns whether no delivery is suspended.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }
}

/// Retired numbers of subscriptions or nodes, in the order of their retirement.
#[derive(Debug, Default)]
pub(crate) struct RetiredNumbers(VecDeque<(Mark, u32)>);

impl RetiredNumbers {
    /// Retires a number. Suspended deliveries that began earlier may still refer to it.
    pub(crate) fn add(&mut self, marks: &Marks, number: u32) {
        self.0.push_back((marks.last, number));
    }

    /// Returns the next retired number that no suspended delivery can refer to.
    pub(crate) fn take_free(&mut self, marks: &Marks) -> Option<u32> {
        let (since, _) = self.0.front()?;
        if marks.under_way.first().is_some_and(|oldest| oldest <= since) {
            return None;
        }
        let (_, number) = self.0.pop_front()?;
        if self.0.is_empty() {
            self.0 = VecDeque::new();
        }
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_reused_after_its_readers_end() {
        let (mut marks, mut retired) = (Marks::default(), RetiredNumbers::default());
        let one = marks.begin();
        retired.add(&marks, 7);
        let two = marks.begin();
        retired.add(&marks, 8);
        assert_eq!(retired.take_free(&marks), None);
        marks.end(one);
        assert_eq!(retired.take_free(&marks), Some(7));
        assert_eq!(retired.take_free(&marks), None, "the second may name it");
        marks.end(two);
        assert!(marks.is_idle());
        assert_eq!((retired.take_free(&marks), retired.take_free(&marks)), (Some(8), None));
    }
}
