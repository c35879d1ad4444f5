//! Subscriptions that end after a number of messages (`UNSUB sid max`).

use std::collections::HashMap;

use crate::routing::trie::SubId;

/// End of a subscription with a maximum number of messages.
#[derive(Debug, Clone, Copy)]
struct Ending {
    /// Number of messages after which the subscription ends.
    max: u64,
    /// Index in [`Endings::finished`], once the subscription has received its last message.
    finished_at: Option<u32>,
}

/// Message maximums of a core's subscriptions, and those subscriptions that have reached theirs.
#[derive(Default)]
pub(super) struct Endings {
    endings: HashMap<SubId, Ending>,
    /// Subscriptions that have received their last message and are to be removed.
    finished: Vec<SubId>,
    /// Number of entries in `finished` that removals have examined.
    #[cfg(test)]
    pub(super) finished_looked_at: usize,
}

impl Endings {
    /// Returns the number of messages after which a subscription ends, if it has a maximum.
    #[inline]
    pub(super) fn max(&self, sub: SubId) -> Option<u64> {
        self.endings.get(&sub).map(|ending| ending.max)
    }

    pub(super) fn set(&mut self, sub: SubId, max: u64) {
        let finished_at = self.endings.get(&sub).and_then(|ending| ending.finished_at);
        self.endings.insert(sub, Ending { max, finished_at });
    }

    /// Notes that a subscription has received messages, `delivered` in all, possibly its last. A subscription
    /// gets nothing after its last message, so this function is not called for it again.
    #[cold]
    pub(super) fn note_delivered(&mut self, sub: SubId, delivered: u64) {
        if let Some(ending) = self.endings.get_mut(&sub).filter(|ending| delivered >= ending.max) {
            ending.finished_at = Some(place_of_next(self.finished.len()));
            self.finished.push(sub);
        }
    }

    /// Returns one of the subscriptions that have received their last message.
    #[inline]
    pub(super) fn a_finished(&self) -> Option<SubId> {
        self.finished.last().copied()
    }

    /// Removes the maximum of a subscription. If the subscription has received its last message, the last
    /// entry of the list of such subscriptions takes its index.
    pub(super) fn forget(&mut self, sub: SubId) {
        let ending = self.endings.remove(&sub);
        let Some(place) = ending.and_then(|ending| ending.finished_at) else { return };
        self.finished.swap_remove(place as usize);
        if let Some(moved) = self.finished.get(place as usize)
            && let Some(ending) = self.endings.get_mut(moved)
        {
            ending.finished_at = Some(place);
        }
        #[cfg(test)]
        {
            self.finished_looked_at += 2;
        }
    }

    /// Frees spare capacity in the table.
    pub(super) fn shrink(&mut self) {
        self.endings.shrink_to_fit();
    }
}

/// Index, as 32 bits, of the next entry of a list with `len` entries.
pub(super) fn place_of_next(len: usize) -> u32 {
    u32::try_from(len).unwrap_or_else(|_| panic!("four thousand million subscribers of one subject"))
}
