//! A large object on its way into the log, some of it at each step.

use crate::{
    log::Filling,
    store::{Hash, PinnedObject},
};

/// An object of several extents, pinned, and the record that it is copied into.
#[derive(Debug)]
pub(super) struct Copying {
    object: PinnedObject,
    hash: Hash,
    filling: Filling,
    copied: u64,
}

impl Copying {
    /// The record's header, key and head have been written.
    pub(super) fn new(object: PinnedObject, hash: Hash, filling: Filling) -> Self {
        Self { object, hash, filling, copied: 0 }
    }

    /// Copies about so many bytes; whether it is whole now.
    pub(super) fn step(&mut self, bytes: usize) -> bool {
        let mut left = bytes;
        while left > 0 && self.copied < self.object.body_bytes() {
            let run = self.object.body(self.copied);
            let run = run.slice(0..run.len().min(left));
            super::put(&mut self.filling, run);
            self.copied += run.len() as u64;
            left -= run.len();
        }
        if self.copied < self.object.body_bytes() {
            // What is behind is not needed any more.
            self.object.release_before(self.copied);
            return false;
        }
        super::put(&mut self.filling, self.object.tail());
        true
    }

    pub(super) fn hash(&self) -> Hash {
        self.hash
    }

    pub(super) fn expires_s(&self) -> u32 {
        self.object.expires_s()
    }

    pub(super) fn into_filling(self) -> Filling {
        self.filling
    }
}
