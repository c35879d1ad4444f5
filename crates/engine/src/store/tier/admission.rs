//! Selection of the objects that are written to the file: all, or only those that are requested a second
//! time.
//!
//! ```text
//! first request ─▶ in memory; its hash in the filter ─┬─▶ a hit while in memory ─▶ written
//!                                                     └─▶ evicted, and fetched again ─▶ written at once
//! ```
//! Many objects of a site are requested only once. With [`Admission::SecondRequest`] they do not wear the
//! disk, and the file has room for other objects. The price: objects requested only once are lost when the
//! process ends.
//!
//! *Memory:* the owner's. *Bounds:* [`DOOR_HASHES`] remembered hashes (the newest), and [`WAITING_MAX`]
//! objects in memory that are checked repeatedly for a visit. Beyond these bounds an object needs one more
//! request.

use std::collections::VecDeque;

use crate::store::{
    ghost::{EvictedFrom, Ghosts},
    hash::Hash,
};

/// Number of hashes remembered for objects that were requested once, for each core: 4.5 bytes each.
const DOOR_HASHES: usize = 1 << 18;
/// Maximum number of objects in memory that wait for a second request, for each core.
const WAITING_MAX: usize = 1 << 16;
/// Bytes of shard capacity per remembered hash: the ratio that the ghost list uses to choose its size.
const BYTES_A_HASH: usize = 1024;

/// Condition under which an object is written to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Admission {
    /// The object is written as soon as it is stored.
    #[default]
    Always,
    /// The object is written once it is requested again.
    SecondRequest,
}

/// Filter of objects that were requested once.
#[derive(Debug)]
pub(super) struct AdmissionFilter {
    seen: Ghosts,
    /// Hashes of objects in memory that wait for a second request.
    pub(super) waiting: VecDeque<u64>,
}

impl AdmissionFilter {
    pub(super) fn of(admission: Admission) -> Option<Self> {
        let fresh = || Self { seen: Ghosts::new(DOOR_HASHES * BYTES_A_HASH), waiting: VecDeque::new() };
        (admission == Admission::SecondRequest).then(fresh)
    }

    /// Returns whether the object was already stored recently. If not, it is remembered.
    #[inline]
    pub(super) fn knows(&mut self, hash: Hash) -> bool {
        if self.seen.recall(hash).is_some() {
            return true;
        }
        // `usize::MAX` objects mean that entries do not age, because the filter is independent of the size of
        // memory.
        self.seen.remember(hash, EvictedFrom::Probation, usize::MAX);
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(hash.word());
        false
    }
}
