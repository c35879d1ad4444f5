//! A page queue with handles in a file.

use super::disk::{Disk, MappedFile};
use super::error::{Fault, FileError, PushError};
use super::item::Key;
use super::pages::Pages;
use super::queue::{FAN_OUT, TIMERS, shape};
use super::{create_file, open_file};
use crate::indexed::Entry;
use crate::lazy::{FileLazyQueue, SlotPages};
use crate::queue::{Handle, StaleHandle};
use core::hash::{BuildHasher, Hasher};
use std::hash::RandomState;
use std::path::Path;
use std::vec::Vec;

/// Bit of a queue number that is set only for queues in files.
const IN_FILE: u32 = 1 << 31;

/// Returns a random number that identifies a file; two files of a process have the same number with a
/// probability of 1 in 2³¹.
fn file_number() -> u32 {
    RandomState::new().build_hasher().finish() as u32 | IN_FILE
}

/// Error from an update; the item keeps its old key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// The handle's item has left the queue, or the handle belongs to another queue.
    #[error(transparent)]
    Stale(#[from] StaleHandle),
    /// There is no room for the new key in addition to the old one.
    #[error(transparent)]
    NoRoom(FileError),
}

/// A [`crate::LazyQueue`] queue in a file: waiting keys can be changed and removed, and their handles
/// ([`Handle::to_bytes`]) remain valid after the file is opened again.
///
/// A crash loses all changes since the last checkpoint, and all handles given out since: such a handle is
/// stale, and never refers to a later item.
#[derive(Debug)]
pub struct FileTimers<K: Key, D: Disk = MappedFile> {
    lazy: FileLazyQueue<K, D>,
    slot_pages: SlotPages,
}

impl<K: Key> FileTimers<K> {
    /// Creates an empty queue with room for at least `capacity` keys in a new file at `path`.
    ///
    /// Room on the disk is reserved as the queue grows.
    ///
    /// # Errors
    /// Returns a [`FileError`] if a file of that name exists (which is left unchanged), the capacity is
    /// impossible, or the disk is full.
    pub fn create(path: impl AsRef<Path>, capacity: usize) -> Result<Self, FileError> {
        let path = path.as_ref();
        let shape = shape::<Entry<K>>(TIMERS, capacity).map_err(|fault| fault.at(path))?;
        create_file(path, &shape, |disk| Self::create_on(disk, capacity))
    }

    /// Opens the queue at `path` in the state of its last checkpoint, after checking every byte; O(n). Makes
    /// a checkpoint itself, so that new handles differ from those lost in a crash.
    ///
    /// # Errors
    /// Returns a [`FileError`] if the file is missing, open elsewhere, of another shape, truncated or damaged
    /// (the file is then not changed), or if the disk fails.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FileError> {
        open_file(path.as_ref(), Self::open_on)
    }
}

impl<K: Key, D: Disk> FileTimers<K, D> {
    /// Creates an empty queue on a zeroed disk with the length that [`FileTimers::disk_bytes`] returns.
    ///
    /// # Errors
    /// Returns a [`FileError`] if the capacity is impossible or does not fit the disk, or the disk fails.
    pub fn create_on(disk: D, capacity: usize) -> Result<Self, FileError> {
        let shape = match shape::<Entry<K>>(TIMERS, capacity) {
            Ok(shape) => shape,
            Err(fault) => return Err(fault.at(disk.path())),
        };
        Self::begin(Pages::create(disk, shape)?)
    }

    /// Returns the length of a disk for `capacity` keys, in bytes.
    ///
    /// # Errors
    /// [`Fault::Impossible`] if the capacity is impossible.
    pub fn disk_bytes(capacity: usize) -> Result<usize, Fault> {
        Ok(shape::<Entry<K>>(TIMERS, capacity)?.plan()?.file_bytes)
    }

    /// Opens the last checkpoint on `disk`.
    ///
    /// # Errors
    /// Returns the errors of [`FileTimers::open`].
    pub fn open_on(disk: D) -> Result<Self, FileError> {
        let shape = match shape::<Entry<K>>(TIMERS, 1) {
            Ok(shape) => shape,
            Err(fault) => return Err(fault.at(disk.path())),
        };
        let (pages, state) = Pages::open(disk, &shape)?;
        if state.is_empty() {
            return Self::begin(pages);
        }
        let input = &mut state.as_slice();
        let (lazy, slot_pages) = FileLazyQueue::restore(pages, FAN_OUT, input)?;
        if !input.is_empty() {
            return Err(lazy.queue().store().damaged("the state is longer than it says"));
        }
        let mut timers = Self { lazy, slot_pages };
        timers.checkpoint()?;
        Ok(timers)
    }

    /// Creates an empty queue, and makes its number durable.
    fn begin(pages: Pages<Entry<K>, D>) -> Result<Self, FileError> {
        let lazy = FileLazyQueue::create(pages, FAN_OUT, file_number());
        let mut timers = Self { lazy, slot_pages: SlotPages::default() };
        timers.checkpoint()?;
        Ok(timers)
    }

    /// Adds a key.
    ///
    /// # Errors
    /// Returns a [`PushError`] with the key and the reason if there is no room; the queue is unchanged.
    pub fn insert(&mut self, key: K) -> Result<Handle, PushError<K>>
    where
        K: core::fmt::Debug,
    {
        let room = self.room();
        let inserted = room.and_then(|()| self.lazy.insert(key).map_err(|_| self.full()));
        inserted.map_err(|why| PushError { item: key, why })
    }

    /// Returns the smallest key and its handle.
    #[must_use]
    pub fn peek(&self) -> Option<(K, Handle)> {
        self.alive().ok()?;
        self.lazy.first()
    }

    /// Removes and returns the smallest key; its handle is stale from now on.
    pub fn pop(&mut self) -> Option<(K, Handle)> {
        self.alive().ok()?;
        self.lazy.pop()
    }

    /// Removes every key, smallest first. Dropping the iterator early leaves the rest in the queue.
    pub fn drain(&mut self) -> impl Iterator<Item = (K, Handle)> + '_ {
        core::iter::from_fn(|| self.pop())
    }

    /// Removes a key.
    ///
    /// # Errors
    /// [`StaleHandle`] if the key has left already, was lost in a crash, or was never in this queue.
    pub fn remove(&mut self, handle: Handle) -> Result<(), StaleHandle> {
        self.alive().map_err(|_| StaleHandle)?;
        self.lazy.remove(handle)
    }

    /// Changes an item's key. The old handle becomes stale; the new one is returned.
    ///
    /// # Errors
    /// [`UpdateError::Stale`] if the handle is stale, [`UpdateError::NoRoom`] if there is no room for the new
    /// key in addition to the old one. The item then keeps its key and its handle.
    pub fn update(&mut self, handle: Handle, key: K) -> Result<Handle, UpdateError> {
        if !self.contains(handle) {
            return Err(UpdateError::Stale(StaleHandle));
        }
        self.room().map_err(UpdateError::NoRoom)?;
        self.lazy.update(handle, key).map_err(|refusal| match refusal {
            crate::Refusal::Stale => UpdateError::Stale(StaleHandle),
            crate::Refusal::Full => UpdateError::NoRoom(self.full()),
        })
    }

    /// Returns whether the handle refers to a queued item.
    #[must_use]
    pub fn contains(&self, handle: Handle) -> bool {
        self.alive().is_ok() && self.lazy.contains(handle)
    }

    /// Calls `look` with each key and its handle, in no particular order.
    pub fn for_each(&self, mut look: impl FnMut(K, Handle)) {
        if self.alive().is_ok() {
            self.lazy.for_each(|key, handle| look(*key, handle));
        }
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        if self.alive().is_ok() { self.lazy.len() } else { 0 }
    }

    /// Returns whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the present state durable; returns the checkpoint's number. The [module](super) describes the
    /// guarantees.
    ///
    /// # Errors
    /// Returns a [`FileError`]. If there is no room for the queue's state, the queue remains usable. If the
    /// disk fails, the queue is empty and refuses keys until the file is opened again.
    pub fn checkpoint(&mut self) -> Result<u64, FileError> {
        let mut state = Vec::new();
        self.lazy.save(&self.slot_pages, &mut state);
        let sequence = self.lazy.queue_mut().store_mut().checkpoint(&state)?;
        self.lazy.saved();
        Ok(sequence)
    }

    /// Returns the number of the last checkpoint, including those made when opening.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.lazy.queue().store().images().header().sequence
    }

    /// Checks every invariant, in O(n); for tests.
    ///
    /// # Panics
    /// Panics with the invariant's name if one is broken.
    pub fn assert_invariants(&self) {
        self.lazy.assert_invariants();
    }

    /// Returns the disk with all stored bytes; changes since the last checkpoint cannot be recovered.
    pub fn into_disk(self) -> D {
        self.lazy.into_queue().into_store().into_disk()
    }

    fn room(&mut self) -> Result<(), FileError> {
        self.alive()?;
        if self.lazy.has_slot_room(&mut self.slot_pages) { Ok(()) } else { Err(self.full()) }
    }

    fn full(&mut self) -> FileError {
        self.lazy.queue_mut().store_mut().full()
    }

    #[cfg(test)]
    pub(super) const fn disk_mut(&mut self) -> &mut D {
        self.lazy.queue_mut().store_mut().disk_mut()
    }

    fn alive(&self) -> Result<(), FileError> {
        self.lazy.queue().store().images().alive()
    }
}
