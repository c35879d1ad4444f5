//! File-backed `Rows`, the storage interface of every heap in this crate.

use super::disk::{Disk, MappedFile};
use super::error::{Fault, FileError};
use super::header::{BLOCK_BYTES, Shape};
use super::images::Images;
use super::item::{ByteArray, Item, StoredItem};
use super::mapping::stored;
use super::{align, create_file, open_mapped};
use crate::rows::{Full, Rows};
use core::marker::PhantomData;
use std::path::Path;

/// An array of items in a file; the [module](super) describes which changes are durable when.
///
/// After a failed checkpoint the array is empty and refuses items: the state on disk is known only when the
/// file is opened again.
#[derive(Debug)]
pub struct FileRows<T: Item, D: Disk = MappedFile> {
    images: Images<D>,
    len: usize,
    capacity: usize,
    lead: usize,
    item: PhantomData<T>,
}

impl<T: Item> FileRows<T> {
    /// Creates a file for a queue of `shape`. No file of that name may exist.
    ///
    /// # Errors
    /// Returns a [`FileError`] if a file exists, the shape is impossible, or the disk is full.
    pub fn create(path: &Path, shape: Shape) -> Result<Self, FileError> {
        Self::fits(&shape).map_err(|fault| fault.at(path))?;
        create_file(path, &shape, |disk| Self::create_on(disk, shape))
    }

    /// Opens the file of a queue of `shape` (whose capacity is taken from the file instead) and checks every
    /// byte of the last checkpoint: the time and the reads grow with the number of items.
    ///
    /// # Errors
    /// Returns a [`FileError`] if the file is missing, open elsewhere, of another shape, or damaged. The file
    /// is not changed.
    pub fn open(path: &Path, shape: Shape) -> Result<Self, FileError> {
        Self::fits(&shape).and_then(|()| shape.plan()).map_err(|fault| fault.at(path))?;
        open_mapped(path, align(&shape), |disk| Self::open_on(disk, shape))
    }
}

impl<T: Item, D: Disk> FileRows<T, D> {
    fn fits(shape: &Shape) -> Result<(), Fault> {
        if T::Bytes::BYTES != shape.item_bytes as usize || T::KIND != shape.kind {
            return Err(Fault::Impossible { what: "the shape does not fit the item type" });
        }
        Ok(())
    }

    /// Creates an empty queue on a disk of zeros.
    ///
    /// # Errors
    /// Returns a [`FileError`] if the shape is impossible or does not fit the disk, or the disk fails.
    pub fn create_on(disk: D, shape: Shape) -> Result<Self, FileError> {
        Self::fits(&shape).map_err(|fault| fault.at(disk.path()))?;
        Ok(Self::over(Images::create(disk, shape)?))
    }

    /// Opens the last checkpoint on `disk`.
    ///
    /// # Errors
    /// Returns the errors of [`FileRows::open`].
    pub fn open_on(disk: D, shape: Shape) -> Result<Self, FileError> {
        Self::fits(&shape).map_err(|fault| fault.at(disk.path()))?;
        Ok(Self::over(Images::open(disk, &shape)?))
    }

    fn over(images: Images<D>) -> Self {
        let header = images.header();
        // All three are bounded by the file's length, which fits in memory.
        let (len, capacity, lead) =
            (header.len as usize, header.shape.capacity as usize, header.shape.lead as usize);
        Self { images, len, capacity, lead, item: PhantomData }
    }

    /// Makes the present items durable; returns the number of this checkpoint, counted from 1. The previous
    /// state is dropped only when the new one is completely on the disk.
    ///
    /// # Errors
    /// Returns a [`FileError`] if the disk fails: when the file is opened again it has the previous
    /// checkpoint or this one, and until then the rows are empty and refuse items.
    pub fn checkpoint(&mut self) -> Result<u64, FileError> {
        self.images.checkpoint(self.len as u64)
    }

    /// Returns the number of checkpoints made since the file was created.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.images.header().sequence
    }

    /// Returns the maximum number of items that the file can hold.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the file's shape.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.images.header().shape
    }

    /// Returns whether a checkpoint failed, so that the file must be opened again.
    #[must_use]
    pub const fn failed(&self) -> bool {
        self.images.failed()
    }

    /// Returns the queue's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.images.disk().path()
    }

    /// Returns the page, counted from the first of its image, that holds the item at `at`: computed from the
    /// item's real address.
    ///
    /// # Panics
    /// Panics if there is no such item.
    #[must_use]
    pub fn page_of(&self, at: usize) -> usize {
        let address = core::ptr::from_ref(self.item(at)).addr();
        let byte = self.byte(at);
        let page_bytes = align(self.shape());
        let image = address - byte;
        assert!(image.is_multiple_of(page_bytes), "an image begins where a page begins");
        address / self.shape().page_bytes as usize - image / self.shape().page_bytes as usize
    }

    /// Makes sure that there is room for another item.
    ///
    /// # Errors
    /// [`Fault::Full`] if the capacity is reached, [`Fault::Io`] if the disk is full, [`Fault::Failed`] after
    /// a failed checkpoint.
    pub fn room(&mut self) -> Result<(), FileError> {
        if self.failed() {
            return Err(Fault::Failed.at(self.path()));
        }
        if self.len >= self.capacity {
            return Err(Fault::Full { capacity: self.capacity as u64 }.at(self.path()));
        }
        self.images.reserve(self.byte(self.len) / BLOCK_BYTES)
    }

    /// Returns the disk with all stored bytes; changes since the last checkpoint cannot be recovered.
    pub fn into_disk(self) -> D {
        self.images.into_disk()
    }

    /// Returns the offset of item `at` in the bytes of the items.
    #[inline]
    const fn byte(&self, at: usize) -> usize {
        (self.lead + at) * T::Bytes::BYTES
    }

    #[inline]
    fn array(&self, at: usize) -> &T::Bytes {
        assert!(at < self.len(), "no item at this position");
        match T::Bytes::view(self.images.read(self.byte(at), T::Bytes::BYTES)) {
            Some(array) => array,
            None => unreachable!("as many bytes were read as an item has"),
        }
    }

    #[inline]
    fn write(&mut self, at: usize, item: StoredItem<T>) {
        assert!(at < self.len(), "no item at this position");
        self.images.write(self.byte(at), item.bytes());
    }

    #[cfg(test)]
    pub(super) const fn disk_mut(&mut self) -> &mut D {
        self.images.disk_mut()
    }
}

impl<T: Item, D: Disk> Rows<StoredItem<T>> for FileRows<T, D> {
    #[inline]
    fn len(&self) -> usize {
        if self.failed() { 0 } else { self.len }
    }
    #[inline]
    fn item(&self, at: usize) -> &StoredItem<T> {
        stored(self.array(at))
    }
    #[inline]
    fn swap(&mut self, a: usize, b: usize) {
        let (one, other) = (*self.array(a), *self.array(b));
        self.write(a, StoredItem::from_array(other));
        self.write(b, StoredItem::from_array(one));
    }
    #[inline]
    fn replace(&mut self, at: usize, item: StoredItem<T>) -> StoredItem<T> {
        let old = StoredItem::from_array(*self.array(at));
        self.write(at, item);
        old
    }
    #[inline]
    fn push(&mut self, item: StoredItem<T>) -> Result<(), Full<StoredItem<T>>> {
        if self.room().is_err() {
            return Err(Full(item));
        }
        self.len += 1;
        self.write(self.len - 1, item);
        Ok(())
    }
    #[inline]
    fn pop(&mut self) -> Option<StoredItem<T>> {
        let last = self.len().checked_sub(1)?;
        let item = StoredItem::from_array(*self.array(last));
        self.len = last;
        Some(item)
    }
}
