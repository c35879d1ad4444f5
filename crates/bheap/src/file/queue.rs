//! A page queue in a file.

use super::disk::{Disk, MappedFile};
use super::error::{FileError, PushError};
use super::header::{BLOCK_BYTES, Shape};
use super::item::{ByteArray, Item, StoredItem};
use super::pages::Pages;
use super::{Fault, create_file, open_file};
use crate::page_queue::PageQueue;
use crate::rows::Full;
use std::path::Path;
use std::vec::Vec;

/// Layout number of a page queue.
pub(super) const PAGE_QUEUE: u32 = 3;
/// Layout number of a page queue with handles.
pub(super) const TIMERS: u32 = 4;

/// Number of parts into which a level is divided: suitable for 64 pages of memory and more.
pub(super) const FAN_OUT: usize = 16;

/// Returns the shape of a page queue's file for `capacity` items `T`.
pub(super) fn shape<T: Item>(layout: u32, capacity: usize) -> Result<Shape, Fault> {
    let too_large = Fault::Impossible { what: "the capacity needs a file of more than 64 TiB" };
    if capacity == 0 {
        return Err(Fault::Impossible { what: "a queue for zero items" });
    }
    if BLOCK_BYTES / T::Bytes::BYTES < 4 {
        return Err(Fault::Impossible { what: "an item of a page queue must be at most 1024 bytes" });
    }
    Ok(Shape {
        page_bytes: BLOCK_BYTES as u64,
        item_bytes: u32::try_from(T::Bytes::BYTES).unwrap_or(u32::MAX),
        layout,
        kind: T::KIND,
        lead: 0,
        capacity: Pages::<T, MappedFile>::cells(capacity).ok_or(too_large)? as u64,
    })
}

/// A [`PageQueue`] in a file: few pages are touched for each item, and a checkpoint makes changes durable.
///
/// The operations are those of [`crate::PriorityQueue`], but may return disk errors. `pop_push` is missing:
/// it would be a `pop` and then a `push`, and the `push` may be refused.
#[derive(Debug)]
pub struct FileQueue<T: Item, D: Disk = MappedFile> {
    queue: PageQueue<StoredItem<T>, Pages<T, D>>,
}

impl<T: Item> FileQueue<T> {
    /// Creates an empty queue with room for at least `capacity` items in a new file at `path`.
    ///
    /// Room on the disk is reserved as the queue grows.
    ///
    /// # Errors
    /// Returns a [`FileError`] if a file of that name exists (which is left unchanged), the capacity is
    /// impossible, or the disk is full.
    pub fn create(path: impl AsRef<Path>, capacity: usize) -> Result<Self, FileError> {
        let path = path.as_ref();
        let shape = shape::<T>(PAGE_QUEUE, capacity).map_err(|fault| fault.at(path))?;
        create_file(path, &shape, |disk| Self::create_on(disk, capacity))
    }

    /// Opens the queue at `path` in the state of its last checkpoint, after checking every byte; O(n).
    ///
    /// # Errors
    /// Returns a [`FileError`] if the file is missing, open elsewhere, of another shape, truncated or
    /// damaged. The file is not changed.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, FileError> {
        open_file(path.as_ref(), Self::open_on)
    }
}

impl<T: Item, D: Disk> FileQueue<T, D> {
    /// Creates an empty queue on a zeroed disk with the length that [`FileQueue::disk_bytes`] returns.
    ///
    /// # Errors
    /// Returns a [`FileError`] if the capacity is impossible or does not fit the disk, or the disk fails.
    pub fn create_on(disk: D, capacity: usize) -> Result<Self, FileError> {
        let shape = match shape::<T>(PAGE_QUEUE, capacity) {
            Ok(shape) => shape,
            Err(fault) => return Err(fault.at(disk.path())),
        };
        Ok(Self { queue: PageQueue::with_store(Pages::create(disk, shape)?, FAN_OUT) })
    }

    /// Returns the length of a disk for `capacity` items, in bytes.
    ///
    /// # Errors
    /// [`Fault::Impossible`] if the capacity is impossible.
    pub fn disk_bytes(capacity: usize) -> Result<usize, Fault> {
        Ok(shape::<T>(PAGE_QUEUE, capacity)?.plan()?.file_bytes)
    }

    /// Opens the last checkpoint on `disk`.
    ///
    /// # Errors
    /// Returns the errors of [`FileQueue::open`].
    pub fn open_on(disk: D) -> Result<Self, FileError> {
        let shape = match shape::<T>(PAGE_QUEUE, 1) {
            Ok(shape) => shape,
            Err(fault) => return Err(fault.at(disk.path())),
        };
        let (pages, state) = Pages::open(disk, &shape)?;
        if state.is_empty() {
            return Ok(Self { queue: PageQueue::with_store(pages, FAN_OUT) });
        }
        let input = &mut state.as_slice();
        let queue = PageQueue::restore(pages, FAN_OUT, input)?;
        if !input.is_empty() {
            return Err(queue.store().damaged("the state is longer than it says"));
        }
        Ok(Self { queue })
    }

    /// Adds an item.
    ///
    /// # Errors
    /// Returns a [`PushError`] with the item and the reason if there is no room; the queue is unchanged.
    pub fn push(&mut self, item: T) -> Result<(), PushError<T>>
    where
        T: core::fmt::Debug,
    {
        if let Err(why) = self.alive() {
            return Err(PushError { item, why });
        }
        match self.queue.try_push(StoredItem::new(item)) {
            Ok(()) => Ok(()),
            Err(Full(_)) => Err(PushError { item, why: self.queue.store_mut().full() }),
        }
    }

    /// Adds all of `items` at once, in O(n).
    ///
    /// # Errors
    /// Returns a [`PushError`] with all items if there is no room for all of them; none has been added.
    pub fn load(&mut self, items: Vec<T>) -> Result<(), PushError<Vec<T>>>
    where
        T: core::fmt::Debug,
    {
        if let Err(why) = self.alive() {
            return Err(PushError { item: items, why });
        }
        let stored: Vec<StoredItem<T>> = items.iter().map(|item| StoredItem::new(*item)).collect();
        match self.queue.try_extend(&stored) {
            Ok(()) => Ok(()),
            Err(Full(_)) => Err(PushError { item: items, why: self.queue.store_mut().full() }),
        }
    }

    /// Returns the smallest item.
    #[must_use]
    pub fn peek(&self) -> Option<T> {
        self.alive().ok()?;
        self.queue.peek().map(StoredItem::item)
    }

    /// Removes and returns the smallest item.
    pub fn pop(&mut self) -> Option<T> {
        self.alive().ok()?;
        self.queue.pop().map(|stored| stored.item())
    }

    /// Removes every item, smallest first. Dropping the iterator early leaves the rest in the queue.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        core::iter::from_fn(|| self.pop())
    }

    /// Returns the number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        if self.alive().is_ok() { self.queue.len() } else { 0 }
    }

    /// Returns whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls `look` with each item, in no particular order.
    pub fn for_each(&self, mut look: impl FnMut(T)) {
        if self.alive().is_ok() {
            self.queue.for_each(|stored| look(stored.item()));
        }
    }

    /// Makes the present state durable; returns the checkpoint's number, counted from 1. The [module](super)
    /// describes the guarantees.
    ///
    /// # Errors
    /// Returns a [`FileError`]. If there is no room for the queue's state, the queue remains usable. If the
    /// disk fails, the queue is empty and refuses items until the file is opened again.
    pub fn checkpoint(&mut self) -> Result<u64, FileError> {
        let mut state = Vec::new();
        self.queue.save(&mut state);
        self.queue.store_mut().checkpoint(&state)
    }

    /// Returns the number of the last checkpoint; 0 for a queue that never had one.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.queue.store().images().header().sequence
    }

    /// Checks every invariant, in O(n); for tests.
    ///
    /// # Panics
    /// Panics with the invariant's name if one is broken.
    pub fn assert_invariants(&self) {
        self.queue.assert_invariants();
    }

    /// Returns the disk with all stored bytes; changes since the last checkpoint cannot be recovered.
    pub fn into_disk(self) -> D {
        self.queue.into_store().into_disk()
    }

    #[cfg(test)]
    pub(super) const fn disk_mut(&mut self) -> &mut D {
        self.queue.store_mut().disk_mut()
    }

    fn alive(&self) -> Result<(), FileError> {
        self.queue.store().images().alive()
    }
}
