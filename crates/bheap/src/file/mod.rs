//! Queues that outlive their process: the queues of this crate in a mapped file.
//!
//! | | |
//! |---|---|
//! | [`FileQueue`] | the page queue: few pages are touched for each item |
//! | [`FileTimers`] | the same with handles, which are good after the file is opened again |
//! | [`FileHeap`] | any heap: no more room than its items, twice |
//!
//! They work on a file as if it were memory; the kernel brings pages in and writes them out. What comes back
//! after a crash, of the process or of the machine, is the state of the last checkpoint that returned (or, if the
//! crash came during one, that one or the one before it): never a mixture. Operations after it are lost as a
//! whole. Dropping a queue makes no checkpoint.
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
//! *Costs.* Twice the room on the disk, reserved as the queue grows; the first change to each 4 KiB block after a
//! checkpoint copies that block; a checkpoint writes what changed and a table of 8 bytes a block, and waits three
//! times for the disk. Opening reads everything once, to check it.
//!
//! *Limits.* A failing disk, or another program that cuts the file short without asking for its lock, ends the
//! process with `SIGBUS`: the kernel has no other answer to a load from memory that it cannot fill. On a
//! file system that writes elsewhere than it reserved (btrfs, zfs) a full disk may show itself so, too. The file
//! must lie on a file system with `fallocate`.
//!
//! Format, byte by byte: `docs/formats/queue.md`; why it is so: `docs/decisions/021-queue-file.md`.

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

/// A layout that a file can name.
pub trait FileLayout: Layout {
    /// Its number in the file's header. Those below 65536 are this crate's.
    fn id(&self) -> u32;
    /// The bytes of the pages that it counts on, with items of `item_bytes`.
    fn page_bytes(&self, item_bytes: usize) -> usize;
    /// Unused cells before the first item, so that siblings lie in one page; fewer than fill 4096 bytes.
    fn lead(&self) -> usize;

    /// What a file for this layout and items `T` is made for.
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

/// `D` siblings begin at a multiple of `D` cells.
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

/// Makes the file of a queue; removes it again if that fails.
fn create_file<Q>(
    path: &Path,
    shape: &Shape,
    make: impl FnOnce(MappedFile) -> Result<Q, FileError>,
) -> Result<Q, FileError> {
    let plan = shape.plan().map_err(|fault| fault.at(path))?;
    let disk = MappedFile::create(path, plan.file_bytes, align(shape))?;
    let made = disk.sync_name().and_then(|()| make(disk));
    if made.is_err() {
        // Nothing was ever stored in it, and this call made it.
        let _ = std::fs::remove_file(path);
    }
    made
}

/// Opens a queue in a file whose pages are blocks.
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

/// Bytes that the mapping's start must be a multiple of, so that pages in the file are pages in memory.
fn align(shape: &Shape) -> usize {
    usize::try_from(shape.page_bytes).unwrap_or(0).max(BLOCK_BYTES)
}

/// A heap in a file: any layout that a file can name, over [`FileRows`].
#[derive(Debug)]
pub struct FileHeap<T: Item, L: FileLayout> {
    heap: Heap<StoredItem<T>, L, FileRows<T>>,
}

impl<T: Item, L: FileLayout> FileHeap<T, L> {
    /// Makes an empty queue for at most `capacity` items in a new file at `path`.
    ///
    /// Room on the disk is reserved as the queue grows; only the tables (1/256 of the items' bytes) at once.
    ///
    /// # Errors
    /// If a file of that name exists (it is left alone), the capacity is impossible, or the disk is full.
    pub fn create(path: impl AsRef<Path>, layout: L, capacity: usize) -> Result<Self, FileError> {
        let shape = layout.shape::<T>(capacity);
        Ok(Self { heap: Heap::with_rows(layout, FileRows::create(path.as_ref(), shape)?) })
    }

    /// Opens the queue at `path` in the state of its last checkpoint, every byte checked; O(n).
    ///
    /// # Errors
    /// If there is none, it is open elsewhere, of another shape, truncated or damaged. The file stays as it is.
    pub fn open(path: impl AsRef<Path>, layout: L) -> Result<Self, FileError> {
        let shape = layout.shape::<T>(1);
        Ok(Self { heap: Heap::with_rows(layout, FileRows::open(path.as_ref(), shape)?) })
    }

    /// Adds an item, in O(log n).
    ///
    /// # Errors
    /// If there is no room: the item comes back with the reason, and the queue is as it was.
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

    /// Adds all of `items` at once, in O(n) of all that are then in the queue.
    ///
    /// # Errors
    /// If there is no room: the first item without room comes back; those before it are in the queue.
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

    /// The smallest item.
    #[must_use]
    pub fn peek(&self) -> Option<T> {
        self.heap.peek().map(StoredItem::item)
    }

    /// Takes the smallest item, in O(log n).
    pub fn pop(&mut self) -> Option<T> {
        self.heap.pop().map(|stored| stored.item())
    }

    /// Takes the smallest item and adds another; needs no more room. On an empty queue nothing is added and the
    /// item comes back.
    ///
    /// # Errors
    /// If the queue is empty.
    pub fn pop_push(&mut self, item: T) -> Result<T, T> {
        if self.is_empty() {
            return Err(item);
        }
        Ok(self.heap.replace_at(0, StoredItem::new(item)).item())
    }

    /// How many items there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// The most items that the file was made for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.heap.rows().capacity()
    }

    /// The items in the heap's own order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = T> + '_ {
        (0..self.len()).map(|at| self.heap.rows().item(at).item())
    }

    /// Makes the present state the one that comes back; returns its number. See [`FileRows::checkpoint`].
    ///
    /// # Errors
    /// If the disk fails. The queue is then empty and refuses items, until the file is opened again.
    pub fn checkpoint(&mut self) -> Result<u64, FileError> {
        self.heap.rows_mut().checkpoint()
    }

    /// The number of the last checkpoint; 0 in a queue that never had one.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.heap.rows().sequence()
    }

    /// The heap itself, for what this interface does not offer.
    pub const fn heap(&self) -> &Heap<StoredItem<T>, L, FileRows<T>> {
        &self.heap
    }

    /// The heap itself, to change.
    pub const fn heap_mut(&mut self) -> &mut Heap<StoredItem<T>, L, FileRows<T>> {
        &mut self.heap
    }
}
