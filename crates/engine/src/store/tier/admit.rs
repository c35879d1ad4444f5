//! Admission of a shard's objects to the file: when they are stored, visited, or evicted.

use crate::{
    log::AppendRefusal,
    store::{hash::Hash, shard::Shard},
};

/// Number of waiting objects that one call examines.
const LOOKED_AT_A_CALL: usize = 512;

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
    pub fn admit_the_visited(&mut self) {
        let waiting =
            self.file.as_ref().and_then(|file| file.door.as_ref()).map_or(0, |door| door.waiting.len());
        for _ in 0..LOOKED_AT_A_CALL.min(waiting) {
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
