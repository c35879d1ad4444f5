//! When numbers of subscriptions and nodes may be given to others.
//!
//! A message that needs several turns has a list of numbers, and other clients subscribe and leave meanwhile. What is
//! taken out in that time keeps its number, empty, until no message is under way any more that had begun before:
//!
//! ```text
//!   begin 1 ──────────────────── end 1          a number that is taken out in between is free again here
//!             begin 2 ─────────────────── end 2
//! ```
//! *What is bounded:* a message comes to its end in a bounded number of turns, whatever its consumers do, and each
//! number costs whoever takes it out an operation.

use std::collections::{BTreeSet, VecDeque};

/// A message that needs several turns.
pub(crate) type Mark = u64;

/// Which messages are under way.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    last: Mark,
    under_way: BTreeSet<Mark>,
}

impl Marks {
    /// A message is put off; it ends by [`Self::end`].
    pub(crate) fn begin(&mut self) -> Mark {
        self.last += 1;
        self.under_way.insert(self.last);
        self.last
    }

    pub(crate) fn end(&mut self, mark: Mark) {
        assert!(self.under_way.remove(&mark), "a message that ends had begun");
    }

    /// Whether no message has a list.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }
}

/// Numbers that wait, in the order in which they were taken out.
#[derive(Debug, Default)]
pub(crate) struct RetiredNumbers(VecDeque<(Mark, u32)>);

impl RetiredNumbers {
    /// Takes a number out of use; messages that have begun by now may name it.
    pub(crate) fn add(&mut self, marks: &Marks, number: u32) {
        self.0.push_back((marks.last, number));
    }

    /// The next that no message names.
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
    fn a_number_is_free_when_those_that_may_name_it_have_ended() {
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
