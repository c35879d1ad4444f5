//! A fetch's place in the table of its core, held by the task that fetches.

use crate::{
    core::{Core, with_core},
    fetch::in_flight::{FetchOutcome, Number, SharedAnswer, answer},
};

/// A fetch's place in the table; it is taken out however the fetch ends.
pub(crate) struct Entry {
    number: Number,
    /// The youngest purge that was known when it began.
    bans: u64,
}

impl Entry {
    pub(crate) fn new(core: &Core, number: Number) -> Self {
        Self { number, bans: core.invalidations.fetch_begins() }
    }

    /// The number of the youngest purge that was known when the fetch began: whatever it brings is from after that.
    pub(crate) fn bans(&self) -> u64 {
        self.bans
    }

    /// Another accelerator is asked for it; or is not any more.
    pub(crate) fn asks_peer(&self, is_asking: bool) {
        with_core(|core| core.in_flight.borrow_mut().asks_peer(self.number, is_asking));
    }

    /// Leaves the answer for all who wait and for those to come.
    pub(crate) fn announce(&self, shared: &SharedAnswer) {
        with_core(|core| core.in_flight.borrow_mut().announce(self.number, shared));
    }

    /// Returns whether requests wait for the answer to this fetch.
    pub(crate) fn is_waited_for(&self, core: &Core) -> bool {
        core.in_flight.borrow().is_waited_for(self.number)
    }

    /// Keeps the body for the client that the fetch was begun for: the requests that waited ask the origin alone.
    /// Returns whether there were any.
    pub(crate) fn go_alone(&self) -> bool {
        let waited = with_core(|core| core.in_flight.borrow_mut().go_alone(self.number));
        let has_waited = !waited.is_empty();
        for other in waited {
            answer(other, FetchOutcome::Alone);
        }
        has_waited
    }

    /// Whether it was purged or became invalid meanwhile, or is so old that bans which are not kept any more may be about
    /// it.
    pub(crate) fn is_forgotten(&self, core: &Core) -> bool {
        core.in_flight.borrow().is_forgotten(self.number) || core.invalidations.has_walked_past(self.bans)
    }

    /// Takes the fetch out of the table, and tells those who waited for it.
    pub(crate) fn end(&self, tell: impl Fn() -> FetchOutcome) {
        for other in with_core(|core| core.in_flight.borrow_mut().end(self.number)) {
            answer(other, tell());
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // Who still waits asks the origin alone.
        self.end(|| FetchOutcome::Alone);
        with_core(|core| core.invalidations.fetch_ends(self.bans));
    }
}
