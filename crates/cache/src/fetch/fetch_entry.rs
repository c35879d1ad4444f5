//! Entry of a fetch in its core's in-flight table, held by the task that fetches.

use crate::{
    core::{Core, with_core},
    fetch::in_flight::{FetchOutcome, Number, SharedAnswer, answer},
};

/// Entry of a fetch in the in-flight table. Dropping it removes the fetch from the table.
pub(crate) struct Entry {
    number: Number,
    /// Number of the latest purge that was known when the fetch began.
    bans: u64,
}

impl Entry {
    pub(crate) fn new(core: &Core, number: Number) -> Self {
        Self { number, bans: core.purges.invalidations.fetch_begins() }
    }

    /// Returns the number of the latest purge that was known when the fetch began: the answer is newer than
    /// that purge.
    pub(crate) fn bans(&self) -> u64 {
        self.bans
    }

    /// Records whether a peer is currently asked for the object.
    pub(crate) fn asks_peer(&self, is_asking: bool) {
        with_core(|core| core.fetches.in_flight.borrow_mut().asks_peer(self.number, is_asking));
    }

    /// Makes the answer available to all requests that wait, and to later ones.
    pub(crate) fn announce(&self, shared: &SharedAnswer) {
        with_core(|core| core.fetches.in_flight.borrow_mut().announce(self.number, shared));
    }

    /// Returns whether requests wait for the answer to this fetch.
    pub(crate) fn is_waited_for(&self, core: &Core) -> bool {
        core.fetches.in_flight.borrow().is_waited_for(self.number)
    }

    /// Reserves the body for the client for which the fetch began, and tells the waiting requests to ask the
    /// origin themselves. Returns whether any request was waiting.
    pub(crate) fn go_alone(&self) -> bool {
        let waited = with_core(|core| core.fetches.in_flight.borrow_mut().go_alone(self.number));
        let has_waited = !waited.is_empty();
        for other in waited {
            answer(other, FetchOutcome::Alone);
        }
        has_waited
    }

    /// Returns whether the object was purged or invalidated since the fetch began, or the fetch is so old
    /// that bans already dropped might match it.
    pub(crate) fn is_forgotten(&self, core: &Core) -> bool {
        core.fetches.in_flight.borrow().is_forgotten(self.number)
            || core.purges.invalidations.has_walked_past(self.bans)
    }

    /// Removes the fetch from the table, and replies to the requests that waited for it.
    pub(crate) fn end(&self, tell: impl Fn() -> FetchOutcome) {
        for other in with_core(|core| core.fetches.in_flight.borrow_mut().end(self.number)) {
            answer(other, tell());
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // Requests that still wait ask the origin themselves.
        self.end(|| FetchOutcome::Alone);
        with_core(|core| core.purges.invalidations.fetch_ends(self.bans));
    }
}
