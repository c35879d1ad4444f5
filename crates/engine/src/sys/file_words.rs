//! Reading a file into shared words, and mapping a file as shared words without page faults that stall.
//!
//! ```text
//!   file ──pread──▶ Span                        a helper thread: it may wait for the disk
//!   file ──mmap(MAP_PRIVATE, MADV_RANDOM)──▶ ReadMapping
//!            │ check_resident: mincore             a loop may call it; it never waits
//!            │ span:        the bytes           a loop may read pages that were resident a moment ago
//!            └ populate:    MADV_POPULATE_READ  a helper: it may wait for the disk
//! ```
//! The mapping is private, so no write reaches the file through it. It is mapped writable although it is
//! never written, because a [`Span`] is safe to write to: a write by mistake would only change a copy of the
//! page. `mincore` is reliable only in a process that owns the file or may write to it (`mincore(2)`); for
//! other processes it reports all pages as resident, so the file is opened for writing too.

use std::{
    ffi::c_void,
    fs::File,
    io,
    ops::Range,
    os::fd::{AsRawFd, BorrowedFd},
    ptr::NonNull,
};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

use super::{atomics::AtomicU64, mapping::Pattern, span::Span};

/// Size of a page in bytes, as `mincore` counts them. On a system with larger pages, mapping fails with an
/// error.
pub const PAGE_BYTES: usize = 4096;
/// Maximum number of pages per call of `mincore`, whose result is on the stack.
const PAGES_ASKED: usize = 256;

/// Reads from byte `at` of the file into the span until it is full or the file ends, and returns the number
/// of bytes read. For a file opened with `O_DIRECT`, the caller aligns `at`, the span and its length to the
/// blocks of the disk. Waits for the disk.
///
/// # Errors
/// Returns the error of `pread(2)`: `EIO` if the disk fails, `EINVAL` if an alignment is wrong.
pub fn read_at(file: BorrowedFd<'_>, at: u64, into: Span<'_>) -> io::Result<usize> {
    let mut done = 0;
    while done < into.len() {
        let rest = into.slice(done..into.len()).iovec();
        let offset = i64::try_from(at.saturating_add(done as u64))
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "an offset beyond 2^63"))?;
        // SAFETY: the vector covers shared words that live as long as `into`. They are atomics, which may be
        // written at any time; the callers of this module decide which threads read them meanwhile.
        let read = unsafe { libc::pread(file.as_raw_fd(), rest.iov_base, rest.iov_len, offset) };
        match usize::try_from(read) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
    Ok(done)
}

/// A file, mapped for reading: its pages are those of the page cache.
#[derive(Debug)]
pub struct ReadMapping {
    /// Invariant: a valid private mapping of `bytes` bytes, page-aligned, readable and writable.
    base: NonNull<c_void>,
    /// Length in bytes, a multiple of [`PAGE_BYTES`].
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone and is only handed out as atomics, which any thread may load;
// unmapping (Drop) needs the value itself and works from any thread.
unsafe impl Send for ReadMapping {}
// SAFETY: as for `Send`: all shared access is loads of atomics.
unsafe impl Sync for ReadMapping {}

impl ReadMapping {
    /// Maps the first `bytes` bytes of `file`, with `MADV_RANDOM`: a fault loads only its page and no
    /// readahead window (which could be 7 MiB for one object, depending on the disk's configuration).
    ///
    /// If the file is truncated later, an access beyond its end raises `SIGBUS`, as a failing disk does: both
    /// end the process; neither is undefined behaviour.
    ///
    /// # Errors
    /// `InvalidInput` if `bytes` is zero, not a multiple of [`PAGE_BYTES`] or more than the file has, or if
    /// this system's pages are larger; else the error of `mmap` or `madvise`.
    pub fn map(file: &File, bytes: u64) -> io::Result<Self> {
        let invalid = |words| io::Error::new(io::ErrorKind::InvalidInput, words);
        if rustix::param::page_size() > PAGE_BYTES {
            return Err(invalid("this system's pages are larger than 4096 bytes"));
        }
        let length = usize::try_from(bytes)
            .ok()
            .filter(|bytes| *bytes > 0 && bytes.is_multiple_of(PAGE_BYTES) && isize::try_from(*bytes).is_ok())
            .ok_or_else(|| invalid("a mapping needs whole pages, at least one"))?;
        if file.metadata()?.len() < bytes {
            return Err(invalid("the file is shorter than its mapping"));
        }
        // SAFETY: a new mapping at an address that the kernel chooses replaces no existing memory. NORESERVE:
        // a private writable mapping would count in full as memory that may be needed, although it never is.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
                file,
                0,
            )?
        };
        let base = NonNull::new(base).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let mapping = Self { base, bytes: length };
        mapping.expect(Pattern::Random)?;
        Ok(mapping)
    }

    /// Tells the kernel how the mapping will be read.
    ///
    /// # Errors
    /// Returns the error of `madvise`.
    pub fn expect(&self, pattern: Pattern) -> io::Result<()> {
        let advice = match pattern {
            Pattern::Normal => Advice::Normal,
            Pattern::Random => Advice::Random,
        };
        // SAFETY: the range is this mapping; the advice changes readahead only.
        unsafe { madvise(self.base.as_ptr(), self.bytes, advice)? };
        Ok(())
    }

    /// Returns the length of the mapping in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes of a range of the file. Reading pages that are not resident waits for the disk: call
    /// [`Self::check_resident`] before each read. The call cannot be skipped on the basis of elapsed time or
    /// of the volume read (`docs/measurements/009-reading-the-disk.md`).
    ///
    /// # Panics
    /// Panics if the range is not within the mapping.
    #[must_use]
    pub fn span(&self, range: Range<usize>) -> Span<'_> {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?} beyond the mapping");
        let words = self.bytes / size_of::<u64>();
        // SAFETY: the mapping is `bytes` long, aligned to a page, readable and writable (struct invariant)
        // and exists as long as `self`; any eight bytes are a valid atomic integer. A write to the file
        // appears as another process's relaxed store.
        let words = unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast::<AtomicU64>(), words) };
        Span::new(words, range)
    }

    /// Returns whether all pages of a range are in the page cache at this moment. Never waits for the disk;
    /// takes about 0.7 µs.
    ///
    /// # Errors
    /// Returns the error of `mincore(2)`: `EAGAIN` if the kernel is out of resources.
    ///
    /// # Panics
    /// Panics if the range is not within the mapping.
    pub fn check_resident(&self, range: Range<usize>) -> io::Result<bool> {
        let mut all = true;
        self.ask(range, |page| {
            all &= page;
            all
        })?;
        Ok(all)
    }

    /// Counts the pages of a range that are in the page cache: for the residency map, on a thread that may
    /// block.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::check_resident`].
    ///
    /// # Panics
    /// Panics if the range is not within the mapping.
    pub fn resident_pages(&self, range: Range<usize>) -> io::Result<usize> {
        let mut count = 0;
        self.ask(range, |page| {
            count += usize::from(page);
            true
        })?;
        Ok(count)
    }

    /// Calls `seen` with each page's residency, in order, until it returns false.
    fn ask(&self, range: Range<usize>, mut seen: impl FnMut(bool) -> bool) -> io::Result<()> {
        let (mut at, end) = self.pages(range);
        while at < end {
            let len = (end - at).min(PAGES_ASKED * PAGE_BYTES);
            let mut answer = [0_u8; PAGES_ASKED];
            let start = self.base.as_ptr().cast::<u8>().wrapping_add(at);
            // SAFETY: the range is within this mapping and starts at a page (`pages`); `answer` has a byte
            // for each of its pages.
            if unsafe { libc::mincore(start.cast(), len, answer.as_mut_ptr()) } != 0 {
                return Err(io::Error::last_os_error());
            }
            if !answer[..len / PAGE_BYTES].iter().all(|page| seen(page & 1 == 1)) {
                return Ok(());
            }
            at += len;
        }
        Ok(())
    }

    /// Loads a range into the page cache and maps its pages, so that a loop's read of the range does not even
    /// cause a minor fault. Waits for the disk.
    ///
    /// # Errors
    /// Returns the error of `madvise(2)`: `EFAULT` if the disk failed or the file was truncated, `EINVAL` if
    /// the kernel is older than 5.14 and has no `MADV_POPULATE_READ`.
    ///
    /// # Panics
    /// Panics if the range is not within the mapping.
    pub fn populate(&self, range: Range<usize>) -> io::Result<()> {
        let (start, end) = self.pages(range);
        let from = self.base.as_ptr().cast::<u8>().wrapping_add(start);
        // SAFETY: the range is within this mapping and starts at a page (`pages`); loading pages changes no
        // byte.
        unsafe { madvise(from.cast(), end - start, Advice::LinuxPopulateRead)? };
        Ok(())
    }

    /// Returns the pages that a range touches, as byte offsets in the mapping.
    fn pages(&self, range: Range<usize>) -> (usize, usize) {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?} beyond the mapping");
        let start = range.start / PAGE_BYTES * PAGE_BYTES;
        if range.is_empty() {
            return (start, start);
        }
        // The mapping consists of whole pages, so the rounded end is still within it.
        (start, range.end.next_multiple_of(PAGE_BYTES))
    }
}

impl Drop for ReadMapping {
    fn drop(&mut self) {
        // SAFETY: this is exactly the range that `map` mapped; no slice of it outlives `self`.
        let failed = unsafe { munmap(self.base.as_ptr(), self.bytes) };
        debug_assert!(failed.is_ok(), "munmap failed: {failed:?}");
    }
}
