//! Queues that outlive their process: the queues of this crate in a mapped file.
//!
//! | | |
//! |---|---|
//! | [`FileQueue`] | the page queue: few pages are touched for each item |
//! | [`FileTimers`] | the same with handles, which remain valid after the file is opened again |
//! | [`FileHeap`] | any heap: twice the size of its items, and no more |
//!
//! They use a file like memory; the kernel reads pages in and writes them out. After a crash of the process
//! or of the machine, the queue has the state of the last checkpoint that returned (or, if the crash came
//! during one, the state of that one or of the one before it), never a mixture. All later operations are lost
//! together. Dropping a queue makes no checkpoint.
//!
//! ```
//! use bheap::Handle;
//! use bheap::file::FileTimers;
//! # let folder = tempfile::tempdir()?;
//! let path = folder.path().join("timers.queue");
//!
//! let mut timers = FileTimers::<u64>::create(&path, 1_000_000)?;
//! let tea = timers.insert(1_700_000_020)?;
//! let bread = timers.insert(1_700_000_060)?;
//! let kept_elsewhere: [u8; 12] = tea.to_bytes();
//! timers.checkpoint()?;
//! timers.remove(tea)?;     // not yet for ever:
//! drop(timers);
//!
//! let mut timers = FileTimers::<u64>::open(&path)?;
//! timers.remove(Handle::from_bytes(kept_elsewhere))?;
//! assert_eq!(timers.pop(), Some((1_700_000_060, bread)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! *Costs.* A file takes twice the size of its items, reserved as the queue grows. The first change to each 4
//! KiB block after a checkpoint copies that block. A checkpoint writes the changed blocks and a table of 8
//! bytes per block, and waits three times for the disk. Opening reads everything once, to check it.
//!
//! *Limits.* A failing disk, or another program that truncates the file without taking its lock, ends the
//! process with `SIGBUS`: the kernel has no other answer to a load from memory that it cannot fill. On a file
//! system that writes to other blocks than it reserved (btrfs, zfs) a full disk may have the same effect. The
//! file must be on a file system with `fallocate`.
//!
//! The format, byte by byte: `docs/formats/queue.md`; the reasons for it: `docs/decisions/021-queue-file.md`.

#[cfg(test)]
mod crafted;
mod disk;
mod error;
mod header;
mod images;
mod item;
mod mapping;
mod pages;
#[cfg(test)]
mod power_loss;
mod queue;
#[cfg(test)]
mod queue_power_loss;
mod rows;
pub(crate) mod state;
mod timers;

pub use disk::{Disk, MappedFile};
pub use error::{Fault, FileError, PushError};
pub use header::{BLOCK_BYTES, HEADER_BYTES, MAGIC, Shape, VERSION};
pub use item::{ByteArray, Item, Key, StoredItem};
pub use pages::Pages;
pub use queue::FileQueue;
pub use rows::FileRows;
pub use timers::{FileTimers, UpdateError};

use crate::heap::Heap;
use crate::layout::{Binary, Dary, Layout, PageLayout};
use crate::rows::{Full, Rows};
use std::path::Path;

/// A layout that has a number, so that a queue file can record it.
pub trait FileLayout: Layout {
    /// Returns the layout's number in the file's header. Numbers below 65536 are reserved for this crate.
    fn id(&self) -> u32;
    /// Returns the page size that the layout assumes, for items of `item_bytes`.
    fn page_bytes(&self, item_bytes: usize) -> usize;
    /// Returns the number of unused cells before the first item, which keep siblings in one page; they fill
    /// less than 4096 bytes.
    fn lead(&self) -> usize;

    /// Returns the shape of a file for this layout and items `T`.
    fn shape<T: Item>(&self, capacity: usize) -> Shape {
        Shape {
            page_bytes: self.page_bytes(T::Bytes::BYTES) as u64,
            item_bytes: u32::try_from(T::Bytes::BYTES).unwrap_or(u32::MAX),
            layout: self.id(),
            kind: T::KIND,
            lead: self.lead() as u64,
            capacity: capacity as u64,
        }
    }
}

impl FileLayout for Binary {
    fn id(&self) -> u32 {
        1
    }
    fn page_bytes(&self, _item_bytes: usize) -> usize {
        BLOCK_BYTES
    }
    fn lead(&self) -> usize {
        0
    }
}

impl FileLayout for PageLayout {
    fn id(&self) -> u32 {
        2
    }
    fn page_bytes(&self, item_bytes: usize) -> usize {
        self.page_items().saturating_mul(item_bytes)
    }
    fn lead(&self) -> usize {
        Self::INDEX_OF_ROOT
    }
}

/// In this layout `D` siblings begin at a multiple of `D` cells.
impl<const D: usize> FileLayout for Dary<D> {
    fn id(&self) -> u32 {
        0x1000 + u32::try_from(D).unwrap_or(0xEFFF).min(0xEFFF)
    }
    fn page_bytes(&self, _item_bytes: usize) -> usize {
        BLOCK_BYTES
    }
    fn lead(&self) -> usize {
        D - 1
    }
}

/// Creates the file of a queue; removes it again on failure.
fn create_file<Q>(
    path: &Path,
    shape: &Shape,
    make: impl FnOnce(MappedFile) -> Result<Q, FileError>,
) -> Result<Q, FileError> {
    let plan = shape.plan().map_err(|fault| fault.at(path))?;
    let disk = MappedFile::create(path, plan.file_bytes, align(shape))?;
    let made = disk.sync_name().and_then(|()| make(disk));
    if made.is_err() {
        // The file was created by this call, and nothing was ever stored in it.
        let _ = std::fs::remove_file(path);
    }
    made
}

/// Opens a queue's file, mapped with the alignment of a block.
fn open_file<Q>(path: &Path, open: impl FnOnce(MappedFile) -> Result<Q, FileError>) -> Result<Q, FileError> {
    open_mapped(path, BLOCK_BYTES, open)
}

fn open_mapped<Q>(
    path: &Path,
    align: usize,
    open: impl FnOnce(MappedFile) -> Result<Q, FileError>,
) -> Result<Q, FileError> {
    open(MappedFile::open(path, align)?)
}

/// Returns the alignment of the mapping's start, so that pages of the file are pages in memory.
fn align(shape: &Shape) -> usize {
    usize::try_from(shape.page_bytes).unwrap_or(0).max(BLOCK_BYTES)
}

/// A heap in a file: any layout that can be named in a file, over [`FileRows`].
#[derive(Debug)]
pub struct FileHeap<T: Item, L: FileLayout> {
    heap: Heap<StoredItem<T>, L, FileRows<T>>,
}

impl<T: Item, L: FileLayout> FileHeap<T, L> {
    /// Creates an empty queue for at most `capacity` items in a new file at `path`.
    ///
    /// Room on the disk is reserved as the queue grows; only the tables (1/256 of the items' bytes) are
    /// reserved at once.
    ///
    /// # Errors
    /// Returns a [`FileError`] if a file of that name exists (which is left unchanged), the capacity is
    /// impossible, or the disk is full.
    pub fn create(path: impl AsRef<Path>, layout: L, capacity: usize) -> Result<Self, FileError> {
        let shape = layout.shape::<T>(capacity);
        Ok(Self { heap: Heap::with_rows(layout, FileRows::create(path.as_ref(), shape)?) })
    }

    /// Opens the queue at `path` in the state of its last checkpoint, after checking every byte; O(n).
    ///
    /// # Errors
    /// Returns a [`FileError`] if the file is missing, open elsewhere, of another shape, truncated or
    /// damaged. The file is not changed.
    pub fn open(path: impl AsRef<Path>, layout: L) -> Result<Self, FileError> {
        let shape = layout.shape::<T>(1);
        Ok(Self { heap: Heap::with_rows(layout, FileRows::open(path.as_ref(), shape)?) })
    }

    /// Adds an item, in O(log n).
    ///
    /// # Errors
    /// Returns a [`PushError`] with the item and the reason if there is no room; the queue is unchanged.
    pub fn push(&mut self, item: T) -> Result<(), PushError<T>>
    where
        T: core::fmt::Debug,
    {
        if let Err(why) = self.heap.rows_mut().room() {
            return Err(PushError { item, why });
        }
        match self.heap.try_push(StoredItem::new(item)) {
            Ok(()) => Ok(()),
            Err(Full(_)) => unreachable!("room, once reserved, stays"),
        }
    }

    /// Adds all of `items` at once, in O(n), where n is the number of items in the queue afterwards.
    ///
    /// # Errors
    /// Returns a [`PushError`] with the first item for which there is no room; the items before it are in the
    /// queue.
    pub fn load(&mut self, items: impl IntoIterator<Item = T>) -> Result<(), PushError<T>>
    where
        T: core::fmt::Debug,
    {
        let rows = self.heap.rows_mut();
        let loaded = items.into_iter().try_for_each(|item| {
            rows.room().map_err(|why| PushError { item, why })?;
            match rows.push(StoredItem::new(item)) {
                Ok(()) => Ok(()),
                Err(Full(_)) => unreachable!("room, once reserved, stays"),
            }
        });
        self.heap.rebuild();
        loaded
    }

    /// Returns the smallest item.
    #[must_use]
    pub fn peek(&self) -> Option<T> {
        self.heap.peek().map(StoredItem::item)
    }

    /// Removes and returns the smallest item, in O(log n).
    pub fn pop(&mut self) -> Option<T> {
        self.heap.pop().map(|stored| stored.item())
    }

    /// Replaces the smallest item with another and returns the item replaced; needs no additional room.
    ///
    /// # Errors
    /// Returns `item` itself if the queue is empty; nothing is added.
    pub fn pop_push(&mut self, item: T) -> Result<T, T> {
        if self.is_empty() {
            return Err(item);
        }
        Ok(self.heap.replace_at(0, StoredItem::new(item)).item())
    }

    /// Returns the number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Returns the maximum number of items that the file can hold.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.heap.rows().capacity()
    }

    /// Iterates over the items in storage order, which is not sorted.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = T> + '_ {
        (0..self.len()).map(|at| self.heap.rows().item(at).item())
    }

    /// Makes the present state durable; returns the checkpoint's number. See [`FileRows::checkpoint`].
    ///
    /// # Errors
    /// Returns a [`FileError`] if the disk fails. The queue is then empty and refuses items, until the file
    /// is opened again.
    pub fn checkpoint(&mut self) -> Result<u64, FileError> {
        self.heap.rows_mut().checkpoint()
    }

    /// Returns the number of the last checkpoint; 0 for a queue that never had one.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.heap.rows().sequence()
    }

    /// Returns the heap itself, for operations that this interface does not offer.
    pub const fn heap(&self) -> &Heap<StoredItem<T>, L, FileRows<T>> {
        &self.heap
    }

    /// Returns the heap itself, mutably.
    pub const fn heap_mut(&mut self) -> &mut Heap<StoredItem<T>, L, FileRows<T>> {
        &mut self.heap
    }
}
