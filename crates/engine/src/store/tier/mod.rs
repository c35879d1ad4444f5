//! The file tier below a shard's memory: stored objects are also written to the file and restored from there.
//!
//! ```text
//!           link ─▶ copied into the log's buffer ─▶ helpers write it within `flush`
//! memory ◀─────────────────────────────────────────────┐
//! (index, arena)  a miss that the directory knows ─▶ a helper reads ─▶ restored, in probation ─┘
//!           evict ─▶ no write: the object is in the file (written again if its segment has been given up)
//!           unlink, replace ─▶ the deletion is in the log before the change is acknowledged
//! ```
//! *Core:* the shard's owner. *Memory:* the directory, plain memory of the owner. *Bounds:* deletions that
//! the log has not written yet (at most as many as there are objects in the file) and large objects that are
//! being copied (`keep.rs`; beyond the bound an object is not written to the file, which is counted). Expired
//! segments are given up by `lifetimes.rs`, and the oldest by the log itself; the directory notices at the
//! next lookup.

mod admission;
mod admit;
mod attach;
mod bodies;
mod cold;
mod copying;
mod directory;
mod file_record;
mod found;
mod heads;
pub mod image;
mod keep;
mod large;
mod layout;
mod lifetimes;
mod open;
mod parts;
mod promise;
mod warming;
mod warmup_changes;

use std::collections::{HashMap, VecDeque};

use super::{hash::Hash, usage::Tally};
use crate::log::{AppendRefusal, Kind, Location, Reader};

use admission::AdmissionFilter;
use bodies::Bodies;
use copying::CopyProgress;
use directory::Directory;
pub(crate) use directory::FileObject;
use lifetimes::{LifetimeWriters, UnwrittenEnds};
use parts::OwnedParts;

pub use admission::Admission;
pub use file_record::{FileRecord, FileRun};
pub use large::LargeObjectWriter;
pub use lifetimes::WRITERS_PER_CORE;
pub use open::{
    FileConfig, FileRecovery, FileStore, OpenOnFileError, ReadMode, StoreContents, UnreadStore,
    begin_on_file, open_on_file, open_stepped, write_buffer_bytes_max,
};
pub use parts::{PART_BODY_BYTES_MAX, Part, PartsList};
pub use promise::Promise;
pub(super) use warmup_changes::WarmupChanges;

/// Record kind of an object.
const OBJECT: Kind = Kind(1);
/// Number of low bits of a sequence number; the epoch above them grows by at least a thousand with each
/// start.
const SEQUENCE_BITS: u32 = 20;

/// A shard's objects in the file, with the state needed to write and find them.
#[derive(Debug)]
pub(super) struct FileTier {
    writers: LifetimeWriters,
    reader: Reader,
    directory: Directory,
    /// Deletions that the log has refused and that must be retried. While this is not empty, no purge is
    /// acknowledged.
    ends: VecDeque<Location>,
    /// Deletions that may not be in the file yet.
    ending: UnwrittenEnds,
    copies: VecDeque<CopyProgress>,
    /// Parts of the large objects that are stored in parts, by hash.
    large: HashMap<u64, OwnedParts>,
    /// Body records of the objects whose newer head is in another record.
    bodies: Bodies,
    /// Number of objects in parts at which the next sweep for lost lists begins.
    sweep_at: usize,
    /// Maximum body bytes of an object in the file.
    body_bytes_max: u64,
    /// Filter of objects requested once, if objects are written to the file only at the second request.
    door: Option<AdmissionFilter>,
    /// Changes made while the file was being read that are not written to it yet.
    catching_up: Option<Box<WarmupChanges>>,
}

/// One core's part of the objects in the file.
#[derive(Debug)]
pub struct Tier {
    tier: Box<FileTier>,
    epoch: u64,
}

impl FileTier {
    fn new(writers: LifetimeWriters, reader: Reader, admission: Admission, directory: Directory) -> Self {
        let (ends, ending, copies) = (VecDeque::new(), UnwrittenEnds::default(), VecDeque::new());
        let door = AdmissionFilter::of(admission);
        let (large, sweep_at) = (HashMap::new(), parts::SWEEP_AT_MIN);
        let bodies = Bodies::new();
        let body_bytes_max = parts::body_bytes_max(&reader);
        Self {
            writers,
            reader,
            directory,
            ends,
            ending,
            copies,
            large,
            bodies,
            sweep_at,
            body_bytes_max,
            door,
            catching_up: None,
        }
    }

    pub(super) fn known(&self, hash: u64) -> Option<FileObject> {
        self.directory.find(hash)
    }

    fn find(&mut self, hash: Hash, now_s: u32) -> Option<FileObject> {
        self.writers.tell(now_s);
        if self.is_outdated(hash.word()) {
            return None;
        }
        let kept = self.directory.find(hash.word())?;
        if self.reader.segment_of(kept.location).is_none() {
            self.directory.remove(hash.word());
            self.release_pieces(hash.word());
            return None;
        }
        if !self.is_there(hash.word()) {
            // A head whose body is gone cannot be restored.
            self.forget(hash);
            return None;
        }
        if kept.expires_s <= now_s {
            self.forget(hash);
            return None;
        }
        Some(kept)
    }

    /// Returns whether the object with this hash in the file was written before this process started and has
    /// changed in memory since.
    fn is_outdated(&self, hash: u64) -> bool {
        self.catching_up.as_ref().is_some_and(|warming| warming.is_touched(hash))
    }

    fn settle(&mut self, hash: u64) {
        if let Some(warming) = &mut self.catching_up {
            warming.settle(hash);
        }
    }

    /// Removes an expired object from the directory. After a crash the tag in its record shows that it has
    /// expired.
    fn forget(&mut self, hash: Hash) {
        self.release_pieces(hash.word());
        if let Some(kept) = self.directory.remove(hash.word()) {
            self.reader.died(kept.location, kept.payload_bytes as usize);
        }
    }

    /// Deletes an object for good; returns whether it was in the file.
    fn end(&mut self, hash: Hash) -> bool {
        self.settle(hash.word());
        self.release_pieces(hash.word());
        let Some(kept) = self.directory.remove(hash.word()) else { return false };
        if self.reader.segment_of(kept.location).is_none() {
            return false;
        }
        self.end_at(kept.hash, kept.location);
        self.reader.died(kept.location, kept.payload_bytes as usize);
        true
    }

    /// Releases all records of an object except the one in the directory.
    fn release_pieces(&mut self, hash: u64) {
        self.release_parts(hash);
        self.bodies.release(hash, &self.reader);
    }

    fn end_at(&mut self, hash: u64, location: Location) {
        self.ending.begins(hash, location);
        if !self.ends.is_empty() || self.writers.delete(location).is_err() {
            self.ends.push_back(location);
        }
    }

    /// Retries the deletions that the log has refused.
    fn write_ends(&mut self) {
        while let Some(location) = self.ends.front() {
            if self.reader.segment_of(*location).is_some() && self.writers.delete(*location).is_err() {
                return;
            }
            self.ends.pop_front();
        }
        self.ending.look(&self.writers);
    }

    /// Returns the record that a new one with this hash must end: the one in the directory, or one whose
    /// deletion may not be in the file yet. Recovery, if it found both records, could not tell from their
    /// locations which is newer, because they may come from different writers.
    fn target(&self, hash: u64) -> Option<Location> {
        self.known(hash).map(|kept| kept.location).or_else(|| self.ending.of(hash))
    }

    /// Enters an appended record into the directory and releases the record that it replaces; `mark`
    /// identifies its parts.
    fn enter(&mut self, tally: &Tally, kept: FileObject, mark: u32) {
        self.make_way(tally, kept.hash);
        let reader = &self.reader;
        let old = self.directory.insert(kept, |location| reader.segment_of(location).is_some());
        if let Some(old) = old {
            self.reader.died(old.location, old.payload_bytes as usize);
        }
        self.bodies.release(kept.hash, reader);
        if self.large.get(&kept.hash).is_some_and(|owned| owned.mark != mark) {
            self.release_parts(kept.hash);
        }
        self.settle(kept.hash);
        tally.file_kept.add(1);
        self.count(tally);
    }

    /// Makes room for a new object if the directory has no memory for more entries: an object written long
    /// ago is dropped. Its deletion is written to the file; otherwise a later start would find the object
    /// again.
    fn make_way(&mut self, tally: &Tally, hash: u64) {
        let reader = &self.reader;
        let is_living = |location| reader.segment_of(location).is_some();
        if let Some(kept) = self.directory.choose_victim(hash, is_living) {
            tally.file_crowded_out.add(1);
            self.end(Hash::from_word(kept.hash));
        }
    }

    fn count(&self, tally: &Tally) {
        tally.file_objects.set(self.directory.len() as u64);
        tally.file_directory_bytes.set(self.directory.bytes() as u64);
        tally.file_copying.set(self.copies.len() as u64);
    }

    /// Counts an object that the log refused, and deletes the outdated object with the same hash from the
    /// file.
    fn refused(&mut self, tally: &Tally, hash: Hash, refused: AppendRefusal) {
        match refused {
            AppendRefusal::TooLarge => tally.file_too_large.add(1),
            AppendRefusal::Busy | AppendRefusal::Full => tally.file_refused.add(1),
        }
        self.end(hash);
        self.count(tally);
    }
}

impl Drop for FileTier {
    fn drop(&mut self) {
        // A clean shutdown: pending copies are completed, and refused deletions get a last attempt.
        self.copy_the_rest();
        // The newer versions of these objects are lost when the process ends; the outdated ones in the file
        // must not come back.
        for hash in self.catching_up.take().into_iter().flat_map(|warming| warming.left()) {
            self.end(Hash::from_word(hash));
        }
        self.write_ends();
    }
}
