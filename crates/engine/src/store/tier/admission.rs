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

use super::Shard;
use crate::{
    log::AppendRefusal,
    store::{
        ghost::{EvictedFrom, Ghosts},
        hash::Hash,
    },
};

/// Number of hashes remembered for objects that were requested once, for each core: 4.5 bytes each.
const DOOR_HASHES: usize = 1 << 18;
/// Maximum number of objects in memory that wait for a second request, for each core.
const WAITING_MAX: usize = 1 << 16;
/// Number of waiting objects that one step examines.
const LOOKED_AT_A_STEP: usize = 1024;
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
    waiting: VecDeque<u64>,
}

impl AdmissionFilter {
    pub(super) fn of(admission: Admission) -> Option<Self> {
        let fresh = || Self { seen: Ghosts::new(DOOR_HASHES * BYTES_A_HASH), waiting: VecDeque::new() };
        (admission == Admission::SecondRequest).then(fresh)
    }

    /// Returns whether the object was already stored recently. If not, it is remembered.
    fn knows(&mut self, hash: Hash) -> bool {
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

impl Shard {
    /// Returns whether an object that was just stored may be written to the file. An object that replaces an
    /// older one in the file is always admitted.
    pub(super) fn is_admitted(&mut self, hash: Hash) -> bool {
        let Some(file) = &mut self.file else { return false };
        let is_admitted = match &mut file.door {
            None => true,
            Some(_) if file.directory.find(hash.word()).is_some() => true,
            // An older version is being copied; the new object must be admitted so that the copy stops.
            Some(_) if file.copies.iter().any(|copying| copying.hash() == hash) => true,
            Some(door) => door.knows(hash),
        };
        if !is_admitted {
            self.tally().file_not_admitted.add(1);
        }
        is_admitted
    }

    /// Returns whether an object that is about to be evicted, and is not in the file, may be written there.
    pub(super) fn is_admitted_late(&self, was_visited: bool) -> bool {
        was_visited || self.file.as_ref().is_none_or(|file| file.door.is_none())
    }

    /// Writes to the file some of the waiting objects that have been requested again.
    pub(super) fn admit_the_visited(&mut self) {
        for _ in 0..LOOKED_AT_A_STEP {
            let Some(file) = &mut self.file else { return };
            let Some(door) = &mut file.door else { return };
            let Some(word) = door.waiting.pop_front() else { return };
            let hash = Hash::from_word(word);
            if file.directory.find(word).is_some() {
                continue;
            }
            let Some((slot, at)) = self.index.find(self.shared(), hash) else { continue };
            let goes_on_waiting = if self.index.visits(self.shared(), at) > 0 {
                match self.put(slot) {
                    Ok(()) => false,
                    Err(AppendRefusal::Busy | AppendRefusal::Full) => true,
                    Err(AppendRefusal::TooLarge) => {
                        self.not_put(hash, AppendRefusal::TooLarge);
                        false
                    }
                }
            } else {
                true
            };
            if goes_on_waiting && let Some(door) = self.file.as_mut().and_then(|file| file.door.as_mut()) {
                door.waiting.push_back(word);
            }
        }
    }
}
