//! A fetch's place in the table of its core, held by the task that fetches.

use crate::{
    core::{Core, with_core},
    in_flight::{Number, Shared, Start, answer},
};

/// A fetch's place in the table; it is taken out however the fetch ends.
pub(crate) struct Entry(Number);

impl Entry {
    pub(crate) fn new(number: Number) -> Self {
        Self(number)
    }

    /// Leaves the answer for all who wait and for those to come.
    pub(crate) fn announce(&self, shared: &Shared) {
        with_core(|core| core.in_flight.borrow_mut().announce(self.0, shared));
    }

    /// Nobody else is to have the body: who waited asks alone.
    pub(crate) fn go_alone(&self) {
        for other in with_core(|core| core.in_flight.borrow_mut().go_alone(self.0)) {
            answer(other, Start::Alone);
        }
    }

    /// Whether it was purged or became invalid meanwhile.
    pub(crate) fn is_forgotten(&self, core: &Core) -> bool {
        core.in_flight.borrow().is_forgotten(self.0)
    }

    /// Takes the fetch out of the table, and tells those who waited for it.
    pub(crate) fn end(&self, tell: impl Fn() -> Start) {
        for other in with_core(|core| core.in_flight.borrow_mut().end(self.0)) {
            answer(other, tell());
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // Who still waits asks the origin alone.
        self.end(|| Start::Alone);
    }
}
