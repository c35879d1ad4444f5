//! Which objects go to the file: all, or those that somebody has asked for again.
//!
//! ```text
//! first request ─▶ in memory; its hash at the door ─┬─▶ a hit while in memory ─▶ written
//!                                                   └─▶ evicted, and fetched again ─▶ written at once
//! ```
//! Of what a site's visitors ask for, much is asked for once; with [`Admission::SecondRequest`] the disk is not worn by
//! it, and the file has room for the rest. The price: what was asked for once is lost with the memory.
//!
//! *Which memory:* the owner's. *Bounds:* [`DOOR_HASHES`] remembered (the newest), [`WAITING_MAX`] in memory that are
//! looked at again and again for a visit. Beyond them an object needs one request more.

use std::collections::VecDeque;

use super::Shard;
use crate::{
    log::AppendRefusal,
    store::{
        ghost::{EvictedFrom, Ghosts},
        hash::Hash,
    },
};

/// Hashes of objects that were asked for once, for each core: 4.5 bytes each.
const DOOR_HASHES: usize = 1 << 18;
/// Objects in memory that wait for a second request, for each core.
const WAITING_MAX: usize = 1 << 16;
/// Of these, how many one step looks at.
const LOOKED_AT_A_STEP: usize = 1024;
/// What the list of hashes takes for a bound: bytes of a share for each hash.
const BYTES_A_HASH: usize = 1024;

/// When an object goes to the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Admission {
    /// When it is stored.
    #[default]
    Always,
    /// When it is asked for again.
    SecondRequest,
}

/// The objects that were asked for once.
#[derive(Debug)]
pub(super) struct AdmissionFilter {
    seen: Ghosts,
    /// Hashes of objects in memory.
    waiting: VecDeque<u64>,
}

impl AdmissionFilter {
    pub(super) fn of(admission: Admission) -> Option<Self> {
        let fresh = || Self { seen: Ghosts::new(DOOR_HASHES * BYTES_A_HASH), waiting: VecDeque::new() };
        (admission == Admission::SecondRequest).then(fresh)
    }

    /// Whether it was stored before, not too long ago. If not, it is remembered.
    fn knows(&mut self, hash: Hash) -> bool {
        if self.seen.recall(hash).is_some() {
            return true;
        }
        // However long ago: there is no memory that it must have fitted.
        self.seen.remember(hash, EvictedFrom::Probation, usize::MAX);
        if self.waiting.len() >= WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(hash.word());
        false
    }
}

impl Shard {
    /// Whether an object that was stored just now may go to the file. What replaces an object there may.
    pub(super) fn is_admitted(&mut self, hash: Hash) -> bool {
        let Some(file) = &mut self.file else { return false };
        let is_admitted = match &mut file.door {
            None => true,
            Some(_) if file.directory.find(hash.word()).is_some() => true,
            // On its way: what replaces it must stop that.
            Some(_) if file.copies.iter().any(|copying| copying.hash() == hash) => true,
            Some(door) => door.knows(hash),
        };
        if !is_admitted {
            self.tally().file_not_admitted.add(1);
        }
        is_admitted
    }

    /// Whether an object that is about to be evicted, and is not on the file, may go there.
    pub(super) fn is_admitted_late(&self, was_visited: bool) -> bool {
        was_visited || self.file.as_ref().is_none_or(|file| file.door.is_none())
    }

    /// Writes some of those in memory that have been asked for again.
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
