//! Bodies in the file whose head is in another record (`heads.rs`), and how recovery matches the two.
//!
//! *Memory:* the owner's, 40 bytes for each body whose head is elsewhere. *Bounds:* objects in the file;
//! entries whose segments are gone are swept out when the number of entries has doubled.

use std::collections::HashMap;

use super::FileRecord;
use crate::log::{Kind, Location, Reader};

/// Record kind of a head without its body.
pub(super) const HEAD: Kind = Kind(64);
/// Minimum number of bodies for a sweep that removes entries of freed segments.
const SWEEP_AT_MIN: usize = 64;

/// Bodies whose head is in another record, by the hash of the object.
#[derive(Debug)]
pub(super) struct Bodies {
    of: HashMap<u64, Body>,
    sweep_at: usize,
}

/// A body whose head is in another record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Body {
    /// The object's original record, which now serves only as the body.
    pub(super) cold: FileRecord,
    /// Number of the object's latest head. Heads of one object come from different writers, so the order
    /// cannot be derived from their locations.
    pub(super) number: u32,
}

impl Bodies {
    pub(super) fn new() -> Self {
        Self { of: HashMap::new(), sweep_at: SWEEP_AT_MIN }
    }

    pub(super) fn get(&self, hash: u64) -> Option<Body> {
        self.of.get(&hash).copied()
    }

    pub(super) fn find(&self, hash: u64) -> Option<FileRecord> {
        self.of.get(&hash).map(|body| body.cold)
    }

    /// Releases the body record of an object, because no head refers to it any more.
    pub(super) fn release(&mut self, hash: u64, reader: &Reader) {
        if let Some(body) = self.of.remove(&hash) {
            body.cold.died(reader);
        }
    }

    pub(super) fn insert(&mut self, hash: u64, body: Body, is_known: impl Fn(u64) -> bool, reader: &Reader) {
        self.of.insert(hash, body);
        if self.of.len() >= self.sweep_at {
            let gone = self.of.extract_if(|hash, _| !is_known(*hash));
            gone.for_each(|(_, body)| body.cold.died(reader));
            self.sweep_at = (2 * self.of.len()).max(SWEEP_AT_MIN);
        }
    }
}

/// Heads and bodies found by recovery, collected until they can be matched.
#[derive(Debug, Default)]
pub(super) struct FoundHeads {
    /// The latest head by hash: its location, its number, and the location of its body.
    heads: HashMap<u64, (Location, u32, Location)>,
    bodies: HashMap<Location, (u64, FileRecord)>,
}

impl FoundHeads {
    /// Registers a body record that is claimed by a head.
    pub(super) fn body(&mut self, hash: u64, cold: FileRecord) {
        self.bodies.insert(cold.location, (hash, cold));
    }

    /// Returns whether this head is older than the one already found with the same hash. If not, this head
    /// becomes the latest.
    pub(super) fn is_older(&mut self, hash: u64, location: Location, number: u32, body: Location) -> bool {
        let is_older = self.heads.get(&hash).is_some_and(|(_, other, _)| *other > number);
        if !is_older {
            self.heads.insert(hash, (location, number, body));
        }
        is_older
    }

    /// Returns whether the record at a location is the latest head of this hash.
    pub(super) fn is_head(&self, hash: u64, location: Location) -> bool {
        self.heads.get(&hash).is_some_and(|(of, ..)| *of == location)
    }

    /// Matches heads and bodies once the whole file has been read. Heads that are in the directory
    /// (`is_known`) get their bodies; a head without a body is reported to `lost`.
    pub(super) fn matched(
        self,
        is_known: impl Fn(u64, Location) -> bool,
        mut found: impl FnMut(u64, FileRecord),
        mut lost: impl FnMut(u64),
        reader: &Reader,
    ) -> Bodies {
        let Self { heads, mut bodies } = self;
        let mut matched = Bodies::new();
        for (hash, (_, number, body)) in heads.into_iter().filter(|(hash, head)| is_known(*hash, head.0)) {
            match bodies.remove(&body).filter(|(of, _)| *of == hash) {
                Some((_, cold)) => {
                    found(hash, cold);
                    matched.of.insert(hash, Body { cold, number });
                }
                None => lost(hash),
            }
        }
        bodies.into_values().for_each(|(_, cold)| cold.died(reader));
        matched.sweep_at = (2 * matched.of.len()).max(SWEEP_AT_MIN);
        matched
    }
}
