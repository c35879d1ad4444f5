//! A file's bytes as memory: the only unsafe code of the queue file.
//!
//! **A contract that this code alone cannot enforce:** nobody else changes the file while it is mapped. All
//! users of this crate are kept out by a lock ([`super::MappedFile`]). A program that ignores the lock and
//! writes into the file changes the bytes that loads see (any bytes are valid content, and the next opening
//! finds the checksums wrong); one that truncates it ends this process with `SIGBUS`, as does a disk that
//! cannot be read. That is the price of letting the kernel do the paging.

#![allow(unsafe_code)]

use super::item::{ByteArray, Item, StoredItem};
use core::ffi::c_void;
use core::ptr::NonNull;
use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, mmap_anonymous, msync, munmap};
use std::fs::File;
use std::io;

/// A whole file, mapped for reading and writing; byte 0 is at a page boundary of the caller's page size.
#[derive(Debug)]
pub(super) struct Mapping {
    /// Address of byte 0. Invariant: `bytes` bytes from here are mapped, shared with the file, until this is
    /// dropped.
    base: NonNull<u8>,
    bytes: usize,
    /// Start of the address space reserved around the mapping. Invariant: it contains the mapping.
    reserved: *mut c_void,
    reserved_bytes: usize,
}

// SAFETY: the mapping is owned: the addresses mean the same on every thread, and bytes change only through `&mut`.
unsafe impl Send for Mapping {}
// SAFETY: through `&Mapping` bytes can only be read.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `bytes` bytes of `file`, which must be at least as long; `align` is a power of two.
    pub(super) fn new(file: &File, bytes: usize, align: usize) -> io::Result<Self> {
        let short = || io::Error::from(io::ErrorKind::InvalidInput);
        if bytes == 0 || !align.is_power_of_two() || file.metadata()?.len() < bytes as u64 {
            return Err(short());
        }
        let reserved_bytes = bytes.checked_add(align).ok_or_else(short)?;
        // SAFETY: a fresh range chosen by the kernel replaces nothing; a mapping without access rights and
        // without memory only reserves the addresses.
        let reserved = unsafe {
            mmap_anonymous(
                core::ptr::null_mut(),
                reserved_bytes,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let start = reserved.map_addr(|address| address.next_multiple_of(align));
        // SAFETY: `start..start + bytes` lies in the range reserved above, which nothing else uses: at most
        // `align - 1` bytes are skipped, and `align` more than `bytes` were reserved. So FIXED replaces only
        // our own empty range.
        let mapped = unsafe {
            mmap(
                start,
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::FIXED,
                file,
                0,
            )
        };
        let base = mapped.ok().and_then(|at| NonNull::new(at.cast::<u8>()));
        let Some(base) = base else {
            // SAFETY: the range reserved above; nothing refers to it.
            let _ = unsafe { munmap(reserved, reserved_bytes) };
            return Err(mapped.err().map_or_else(short, io::Error::from));
        };
        assert!(base.addr().get().is_multiple_of(align), "the file is mapped where a page begins");
        Ok(Self { base, bytes, reserved, reserved_bytes })
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: `bytes` bytes from `base` are mapped readable while `self` lives, and the file was as long when
        // it was mapped; any content is valid for `u8`; through this process they change only by `bytes_mut`,
        // which the borrow excludes. A file cut short by others would raise SIGBUS (see the module's head).
        unsafe { core::slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }

    #[inline]
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; the bytes are mapped writable too, and the exclusive borrow makes this the
        // only path to them.
        unsafe { core::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }

    /// Tells the kernel not to read ahead.
    pub(super) fn expect_random(&self) -> io::Result<()> {
        // SAFETY: the range is mapped, and this advice changes none of its bytes.
        unsafe { madvise(self.base.as_ptr().cast(), self.bytes, Advice::Random) }?;
        Ok(())
    }

    /// Waits until all stored bytes have reached the disk.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        // SAFETY: the range is mapped; writing it out changes no memory.
        unsafe { msync(self.base.as_ptr().cast(), self.bytes, MsyncFlags::SYNC) }?;
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was reserved by `new` and contains the mapping; the borrows of the bytes have ended,
        // because they borrow `self`.
        let _ = unsafe { munmap(self.reserved, self.reserved_bytes) };
    }
}

/// Views bytes as the stored item that they encode.
#[inline]
pub(super) fn stored<T: Item>(bytes: &T::Bytes) -> &StoredItem<T> {
    // SAFETY: `StoredItem<T>` is `repr(transparent)` over `T::Bytes`, so both have the same size, alignment
    // and set of valid values; the lifetime is kept by the signature.
    unsafe { &*core::ptr::from_ref(bytes).cast::<StoredItem<T>>() }
}

/// Views bytes as stored items; an incomplete item at the end is left out.
#[inline]
pub(super) fn stored_items<T: Item>(bytes: &[u8]) -> &[StoredItem<T>] {
    const { assert!(align_of::<T::Bytes>() == 1, "an array of bytes begins anywhere") };
    // SAFETY: `StoredItem<T>` is `repr(transparent)` over `T::Bytes`, which is an array of `BYTES` bytes (the trait is
    // sealed): alignment 1, every content valid. `len / BYTES` of them lie in `bytes`; the lifetime is kept by the
    // signature. Counting with another size would reach beyond the slice.
    unsafe { core::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / T::Bytes::BYTES) }
}

/// Returns the bytes of stored items.
#[inline]
pub(super) fn bytes_of<T: Item>(items: &[StoredItem<T>]) -> &[u8] {
    // SAFETY: `StoredItem<T>` is `repr(transparent)` over an array of bytes, so the items lie without gaps,
    // and all `size_of_val(items)` bytes are initialised; the lifetime is kept by the signature.
    unsafe { core::slice::from_raw_parts(items.as_ptr().cast(), size_of_val(items)) }
}
