//! Memory that is reserved once and used as atomic words.
//!
//! ```text
//! Words ──▶ | anonymous mapping, 2 MiB aligned, zero, resident only where touched |
//!             seen as &[AtomicU64]: a race reads wrong values, never undefined behaviour
//! ```
//! All users of this memory (arena of segments, index pages, directories, visit counters) are safe code over
//! such a slice.

use std::{
    io,
    ops::{Deref, Range},
};

use super::atomics::AtomicU64;

/// Size in bytes of a huge page on x86-64 and on AArch64 with 4 KiB pages; mappings are aligned to it.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A fixed slice of words, initially zero. Untouched parts cost only address space.
#[derive(Debug)]
pub struct Words {
    memory: memory::Memory,
}

impl Words {
    /// Reserves `len` words. `huge` requests huge pages (`MADV_HUGEPAGE`; a kernel without them is not an
    /// error, because only speed depends on it).
    ///
    /// # Errors
    /// Returns the error of `mmap`: `ENOMEM` if the address space, its limit or the overcommit policy is
    /// exceeded.
    pub fn reserve(len: usize, huge: bool) -> io::Result<Self> {
        Ok(Self { memory: memory::Memory::reserve(len, huge)? })
    }

    /// Replaces the memory of the words in `range`: afterwards they are zero, and resident only once they are
    /// touched again. Data that the kernel is still sending from the old pages ([`lend`](super::lend)) is
    /// unchanged.
    ///
    /// # Errors
    /// Returns the error of `madvise(2)`: `EINVAL` if the range is not whole pages, or is locked.
    ///
    /// # Panics
    /// Panics if the range is not within the words.
    pub fn renew(&self, range: Range<usize>) -> io::Result<()> {
        self.memory.renew(&self[range])
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        self.memory.words()
    }
}

/// Size of a cache line in bytes.
pub const CACHE_LINE_BYTES: usize = 64;

/// Prefetches the (first) cache line of `word`. Only a hint: it does not change the program's results.
#[inline]
pub fn prefetch<T>(word: &T) {
    #[cfg(all(target_arch = "x86_64", not(feature = "loom")))]
    // SAFETY: prefetch has no precondition (it never faults); SSE is part of every x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast::<i8>());
    }
    #[cfg(not(all(target_arch = "x86_64", not(feature = "loom"))))]
    let _ = word;
}

#[cfg(not(feature = "loom"))]
mod memory {
    use std::{ffi::c_void, io, ptr::NonNull};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::{AtomicU64, HUGE_PAGE_BYTES};

    #[derive(Debug)]
    pub(super) struct Memory {
        mapping: NonNull<c_void>,
        mapping_bytes: usize,
        first: NonNull<AtomicU64>,
        len: usize,
    }

    // SAFETY: the mapping belongs to this value alone and is only handed out as a slice of atomics, which any
    // thread may use; unmapping (Drop) needs the value itself and works from any thread.
    unsafe impl Send for Memory {}
    // SAFETY: as for `Send`: all shared access is through atomics.
    unsafe impl Sync for Memory {}

    impl Memory {
        pub(super) fn reserve(len: usize, huge: bool) -> io::Result<Self> {
            let bytes = len
                .checked_mul(size_of::<AtomicU64>())
                .and_then(|bytes| bytes.checked_add(HUGE_PAGE_BYTES))
                .filter(|bytes| isize::try_from(*bytes).is_ok())
                .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
            // SAFETY: a new anonymous mapping at an address that the kernel chooses does not affect existing
            // memory.
            let mapping = unsafe {
                mmap_anonymous(
                    std::ptr::null_mut(),
                    bytes,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE | MapFlags::NORESERVE,
                )?
            };
            let mapping = NonNull::new(mapping).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
            let skip = mapping.cast::<u8>().align_offset(HUGE_PAGE_BYTES);
            // SAFETY: the mapping is longer than `len` words by a huge page, and `skip` is less than one.
            let first = unsafe { mapping.byte_add(skip) };
            if huge {
                // SAFETY: the range lies in this mapping; the advice only changes the size of its pages.
                let refused = unsafe { madvise(first.as_ptr(), bytes - skip, Advice::LinuxHugepage) };
                // A kernel built without huge pages returns EINVAL; normal pages are slower but correct.
                let _ = refused;
            }
            Ok(Self { mapping, mapping_bytes: bytes, first: first.cast(), len })
        }

        #[inline]
        pub(super) fn words(&self) -> &[AtomicU64] {
            // SAFETY: `first` is aligned, `len` words from it lie in the mapping (`reserve`), anonymous
            // memory is zero and so initialised, and it stays mapped as long as `self` exists, which the
            // borrow guarantees. No plain reference to it is ever created, so all access is atomic or the
            // kernel's.
            unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) }
        }
    }

    impl Memory {
        pub(super) fn renew(&self, words: &[AtomicU64]) -> io::Result<()> {
            debug_assert!(self.words().as_ptr_range().contains(&words.as_ptr()) || words.is_empty());
            // SAFETY: the range lies in this mapping, which is private and anonymous: it reads zero
            // afterwards, as if each word had been stored to. The words are atomics, so a concurrent reader
            // sees the old or the new value.
            unsafe { madvise(words.as_ptr().cast_mut().cast(), size_of_val(words), Advice::LinuxDontNeed)? };
            Ok(())
        }
    }

    impl Drop for Memory {
        fn drop(&mut self) {
            // SAFETY: this is exactly the range that `reserve` mapped; no slice of it outlives `self`.
            let failed = unsafe { munmap(self.mapping.as_ptr(), self.mapping_bytes) };
            debug_assert!(failed.is_ok(), "munmap failed: {failed:?}");
        }
    }
}

#[cfg(feature = "loom")]
mod memory {
    use std::io;

    use super::AtomicU64;

    #[derive(Debug)]
    pub(super) struct Memory(Box<[AtomicU64]>);

    impl Memory {
        pub(super) fn reserve(len: usize, _huge: bool) -> io::Result<Self> {
            Ok(Self((0..len).map(|_| AtomicU64::new(0)).collect()))
        }

        pub(super) fn words(&self) -> &[AtomicU64] {
            &self.0
        }

        /// Only zeroes the words, because no pages are lent in a loom model.
        pub(super) fn renew(&self, words: &[AtomicU64]) -> io::Result<()> {
            words.iter().for_each(|word| word.store(0, super::super::atomics::Ordering::Relaxed));
            Ok(())
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn reserved_words_are_zero_aligned_and_writable() {
        let words = Words::reserve(HUGE_PAGE_BYTES / 8 + 3, true).unwrap();
        assert_eq!(words.len(), HUGE_PAGE_BYTES / 8 + 3);
        assert_eq!(words.as_ptr().addr() % HUGE_PAGE_BYTES, 0);
        let last = words.last().unwrap();
        assert_eq!(last.load(Relaxed), 0);
        last.store(7, Relaxed);
        assert_eq!(last.load(Relaxed), 7);
        prefetch(last);
    }

    #[test]
    fn a_reservation_beyond_address_space_fails() {
        assert!(Words::reserve(usize::MAX / 8, false).is_err());
        assert!(Words::reserve(1 << 50, false).is_err());
    }
}
