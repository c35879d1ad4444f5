//! An array in a mapped file: for heaps larger than memory. It is gone when it is closed; what must survive is a
//! [`super::FileQueue`].

use super::FileError;
use crate::memory::Mapping;
use crate::rows::{Full, Rows};
use bytemuck::Pod;
use core::marker::PhantomData;
use std::fs::File;

/// Items in a mapped file, `lead` unused cells before the first, so that cell 0 begins a page.
#[derive(Debug)]
pub struct MappedRows<T> {
    file: File,
    mapping: Mapping,
    lead: usize,
    len: usize,
    item: PhantomData<T>,
}

const GROWTH_BYTES: usize = 4 << 20;

impl<T: Pod> MappedRows<T> {
    /// An empty array in `file`, whose contents are overwritten, of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// If the file is in use or cannot be mapped, or `T` has no size.
    pub fn new(file: File, bytes_max: usize, lead: usize) -> Result<Self, FileError> {
        if size_of::<T>() == 0 {
            return Err(FileError::PageSize(crate::layout::PageSizeError::ZeroSized));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(FileError::InUse),
            Err(std::fs::TryLockError::Error(error)) => return Err(error.into()),
        }
        let mapping = Mapping::new(&file, bytes_max.next_multiple_of(GROWTH_BYTES))?;
        mapping.advise_random()?;
        Ok(Self { file, mapping, lead, len: 0, item: PhantomData })
    }

    const fn start(&self, at: usize) -> usize {
        (self.lead + at) * size_of::<T>()
    }

    fn set(&mut self, at: usize, item: T) {
        let start = self.start(at);
        self.mapping.write(start, bytemuck::bytes_of(&item));
    }

    fn grow(&mut self) -> bool {
        let present = self.mapping.present();
        if present + GROWTH_BYTES > self.mapping.reserved() {
            return false;
        }
        let flags = rustix::fs::FallocateFlags::empty();
        let grown = rustix::fs::fallocate(&self.file, flags, present as u64, GROWTH_BYTES as u64).is_ok();
        if grown {
            self.mapping.grow_to(present + GROWTH_BYTES);
        }
        grown
    }
}

impl<T: Pod> Rows<T> for MappedRows<T> {
    fn len(&self) -> usize {
        self.len
    }
    fn item(&self, at: usize) -> &T {
        assert!(at < self.len, "position {at} of {}", self.len);
        bytemuck::from_bytes(self.mapping.bytes(self.start(at), size_of::<T>()))
    }
    fn swap(&mut self, a: usize, b: usize) {
        let (old_a, old_b) = (*self.item(a), *self.item(b));
        self.set(a, old_b);
        self.set(b, old_a);
    }
    fn replace(&mut self, at: usize, item: T) -> T {
        let old = *self.item(at);
        self.set(at, item);
        old
    }
    fn push(&mut self, item: T) -> Result<(), Full<T>> {
        if self.start(self.len + 1) > self.mapping.present() && !self.grow() {
            return Err(Full(item));
        }
        self.len += 1;
        self.set(self.len - 1, item);
        Ok(())
    }
    fn pop(&mut self) -> Option<T> {
        let last = *self.item(self.len.checked_sub(1)?);
        self.len -= 1;
        Some(last)
    }
}
