//! Doubly linked chains through the entries, newest first.

use super::{Entry, slab::Slab};

/// Slot number that links to no entry.
pub(super) const NONE: u32 = u32::MAX;

/// Neighbours of an entry in one chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) newer: u32,
    pub(super) older: u32,
}

impl Default for Link {
    fn default() -> Self {
        Self { newer: NONE, older: NONE }
    }
}

/// Ends and length of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) newest: u32,
    pub(super) oldest: u32,
    pub(super) count: u32,
}

impl Default for Chain {
    fn default() -> Self {
        Self { newest: NONE, oldest: NONE, count: 0 }
    }
}

impl Chain {
    /// Inserts a slot in order of arrival, nearly always at the newest end. An entry from another core may be
    /// a little older than the newest.
    pub(super) fn push(&mut self, entries: &mut Slab<Entry>, which: usize, slot: u32) {
        let key = |entry: &Entry| (entry.arrived_ms, entry.id);
        let mut newer = NONE;
        let mut older = self.newest;
        while older != NONE && key(&entries[older]) > key(&entries[slot]) {
            newer = older;
            older = entries[older].links[which].older;
        }
        entries[slot].links[which] = Link { newer, older };
        match newer {
            NONE => self.newest = slot,
            newer => entries[newer].links[which].older = slot,
        }
        match older {
            NONE => self.oldest = slot,
            older => entries[older].links[which].newer = slot,
        }
        self.count += 1;
    }

    /// Removes a slot from the chain.
    pub(super) fn unlink(&mut self, entries: &mut Slab<Entry>, which: usize, slot: u32) {
        let Link { newer, older } = entries[slot].links[which];
        match newer {
            NONE => self.newest = older,
            newer => entries[newer].links[which].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => entries[older].links[which].newer = newer,
        }
        self.count -= 1;
    }
}
