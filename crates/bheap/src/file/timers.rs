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

/// Handles of queues in files have this bit in their queue's number, those of others have not.
const IN_FILE: u32 = 1 << 31;

/// A number that tells the files apart, by chance: two files of a process have the same with odds of one to two
/// thousand million.
fn file_number() -> u32 {
    RandomState::new().build_hasher().finish() as u32 | IN_FILE
}

/// Why an item keeps its key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateError {
    /// The handle is of an item that has left, or of another queue.
    #[error(transparent)]
    Stale(#[from] StaleHandle),
    /// There is no room for the new key beside the old one.
    #[error(transparent)]
    NoRoom(FileError),
}

/// A [`crate::Lazy`] queue in a file: keys can be changed and taken out while they wait, and their handles
/// ([`Handle::to_bytes`]) are good after the file is opened again.
///
/// What happened after the last checkpoint is lost in a crash, and so is a handle that was given out then: it is
/// stale, and means no item that comes later.
#[derive(Debug)]
pub struct FileTimers<K: Key, D: Disk = MappedFile> {
    lazy: FileLazyQueue<K, D>,
    slot_pages: SlotPages,
}

impl<K: Key> FileTimers<K> {
    /// Makes an empty queue with room for `capacity` keys (or some more) in a new file at `path`.
    ///
    /// Room on the disk is reserved as the queue grows.
    ///
    /// # Errors
    /// If a file of that name exists (it is left alone), the capacity is impossible, or the disk is full.
    pub fn create(path: impl AsRef<Path>, capacity: usize) -> Result<Self, FileError> {
        let path = path.as_ref();
        let shape = shape::<Entry<K>>(TIMERS, capacity).map_err(|fault| fault.at(path))?;
        create_file(path, &shape, |disk| Self::create_on(disk, capacity))
    }

    /// Opens the queue at `path` in the state of its last checkpoint, every byte checked; O(n). Makes a
    /// checkpoint itself, so that handles given out from now on are told from those that a crash has lost.
    ///
    /// # Errors
    /// If there is none, it is open elsewhere, of another shape, truncated or damaged: the file then stays as it
    /// is. If the disk fails.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FileError> {
        open_file(path.as_ref(), Self::open_on)
    }
}

impl<K: Key, D: Disk> FileTimers<K, D> {
    /// Makes an empty queue on a disk of zeros, as long as [`FileTimers::disk_bytes`] says.
    ///
    /// # Errors
    /// If the capacity is impossible or does not fit the disk, or the disk fails.
    pub fn create_on(disk: D, capacity: usize) -> Result<Self, FileError> {
        let shape = match shape::<Entry<K>>(TIMERS, capacity) {
            Ok(shape) => shape,
            Err(fault) => return Err(fault.at(disk.path())),
        };
        Self::begin(Pages::create(disk, shape)?)
    }

    /// The bytes of a disk for `capacity` keys.
    ///
    /// # Errors
    /// If the capacity is impossible.
    pub fn disk_bytes(capacity: usize) -> Result<usize, Fault> {
        Ok(shape::<Entry<K>>(TIMERS, capacity)?.plan()?.file_bytes)
    }

    /// The last checkpoint on `disk`.
    ///
    /// # Errors
    /// As [`FileTimers::open`].
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

    /// An empty queue whose number lasts from now on.
    fn begin(pages: Pages<Entry<K>, D>) -> Result<Self, FileError> {
        let lazy = FileLazyQueue::create(pages, FAN_OUT, file_number());
        let mut timers = Self { lazy, slot_pages: SlotPages::default() };
        timers.checkpoint()?;
        Ok(timers)
    }

    /// Queues a key.
    ///
    /// # Errors
    /// If there is no room: the key comes back with the reason, and the queue is as it was.
    pub fn insert(&mut self, key: K) -> Result<Handle, PushError<K>>
    where
        K: core::fmt::Debug,
    {
        let room = self.room();
        let inserted = room.and_then(|()| self.lazy.insert(key).map_err(|_| self.full()));
        inserted.map_err(|why| PushError { item: key, why })
    }

    /// The smallest key.
    #[must_use]
    pub fn peek(&self) -> Option<(K, Handle)> {
        self.alive().ok()?;
        self.lazy.first()
    }

    /// Takes the smallest key; its handle is void from now on.
    pub fn pop(&mut self) -> Option<(K, Handle)> {
        self.alive().ok()?;
        self.lazy.pop()
    }

    /// Takes every key, smallest first. Dropping the iterator early leaves the rest in the queue.
    pub fn drain(&mut self) -> impl Iterator<Item = (K, Handle)> + '_ {
        core::iter::from_fn(|| self.pop())
    }

    /// Takes a key out.
    ///
    /// # Errors
    /// [`StaleHandle`] if it has left already, was lost in a crash, or was never here.
    pub fn remove(&mut self, handle: Handle) -> Result<(), StaleHandle> {
        self.alive().map_err(|_| StaleHandle)?;
        self.lazy.remove(handle)
    }

    /// Gives an item another key. The old handle is void; the new one is returned.
    ///
    /// # Errors
    /// If the handle is stale, or there is no room for the new key beside the old one. The item then keeps its
    /// key and its handle.
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

    /// Whether the handle is of an item that is queued.
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

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        if self.alive().is_ok() { self.lazy.len() } else { 0 }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the present state the one that comes back; returns its number. See the [module](super) for what that
    /// is worth.
    ///
    /// # Errors
    /// If there is no room for the queue's state, the queue goes on. If the disk fails it is empty and refuses
    /// keys, until the file is opened again.
    pub fn checkpoint(&mut self) -> Result<u64, FileError> {
        let mut state = Vec::new();
        self.lazy.save(&self.slot_pages, &mut state);
        let sequence = self.lazy.queue_mut().store_mut().checkpoint(&state)?;
        self.lazy.saved();
        Ok(sequence)
    }

    /// The number of the last checkpoint, those of openings included.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.lazy.queue().store().images().header().sequence
    }

    /// Checks every invariant, in O(n); for tests.
    ///
    /// # Panics
    /// If one does not hold, with its name.
    pub fn assert_invariants(&self) {
        self.lazy.assert_invariants();
    }

    /// The disk, with all that was stored on it; what was not in a checkpoint is of no use.
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
