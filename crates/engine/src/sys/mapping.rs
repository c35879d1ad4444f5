//! A file seen as words: a shared mapping, for code that wants the kernel to page for it.
//!
//! ```text
//! file ──mmap(MAP_SHARED)──▶ | word 0 | word 1 | … |   seen as &[Word], each an atomic
//! ```
//! Nothing on an event loop uses this (`facts`: a loop that stores into a shared mapping stalls): it is what the
//! instruments measure paging with. Other processes may write to the same file at any time, so that a word is an
//! atomic and not a plain integer: whoever races reads values from another time, never undefined behaviour.

use std::{cmp::Ordering, ffi::c_void, fs::File, io, ops::Deref, ptr::NonNull};

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// Eight bytes of a mapped file, in the machine's byte order, compared by value.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Word(AtomicU64);

impl Word {
    /// A word by itself, in no file.
    #[must_use]
    pub const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// The value now. May fault, and then waits for the disk.
    #[inline]
    pub fn load(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Sets the value. May fault, and then waits for the disk.
    #[inline]
    pub fn store(&self, value: u64) {
        self.0.store(value, Relaxed);
    }
}

impl PartialEq for Word {
    fn eq(&self, other: &Self) -> bool {
        self.load() == other.load()
    }
}

impl Eq for Word {}

impl PartialOrd for Word {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Word {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.load().cmp(&other.load())
    }
}

/// How a mapping will be read, as far as the kernel cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// `MADV_NORMAL`: a fault brings the readahead window.
    Normal,
    /// `MADV_RANDOM`: a fault brings its page only.
    Random,
}

/// The first words of a file, mapped for reading and writing and shared with everybody who maps it.
#[derive(Debug)]
pub struct MappedWords {
    /// Invariant: a live mapping of `bytes` bytes, page-aligned, readable and writable.
    base: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone and is only handed out as a slice of atomics, which any thread
// may use; unmapping (Drop) needs the value itself and works from any thread.
unsafe impl Send for MappedWords {}
// SAFETY: as above: shared access is access to atomics.
unsafe impl Sync for MappedWords {}

impl MappedWords {
    /// Maps the first `len` words of `file`, which is open for reading and writing and at least so long.
    ///
    /// A file that is cut shorter later makes an access beyond its end a `SIGBUS`, as a failing disk does: both
    /// end the process; neither is undefined behaviour.
    ///
    /// # Errors
    /// `InvalidInput` if `len` is zero or the file is shorter; else what `mmap` says (`EACCES` if the file is not
    /// open for both).
    pub fn map(file: &File, len: usize) -> io::Result<Self> {
        let bytes = len
            .checked_mul(size_of::<Word>())
            .filter(|bytes| *bytes > 0 && isize::try_from(*bytes).is_ok())
            .ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidInput, "no words, or more than can be addressed")
            })?;
        if file.metadata()?.len() < bytes as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the file is shorter than its mapping"));
        }
        // SAFETY: a fresh mapping at an address of the kernel's choice replaces nothing of ours.
        let base = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)?
        };
        let base = NonNull::new(base).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { base, bytes })
    }

    /// Tells the kernel how the mapping will be read.
    ///
    /// # Errors
    /// What `madvise` says.
    pub fn expect(&self, pattern: Pattern) -> io::Result<()> {
        let advice = match pattern {
            Pattern::Normal => Advice::Normal,
            Pattern::Random => Advice::Random,
        };
        // SAFETY: the range is our mapping; the advice changes readahead only.
        unsafe { madvise(self.base.as_ptr(), self.bytes, advice)? };
        Ok(())
    }

    /// Takes the pages out of this mapping, not out of the page cache: the next access to each faults. No word is
    /// lost, because the mapping is shared.
    ///
    /// # Errors
    /// What `madvise` says.
    pub fn detach_pages(&self) -> io::Result<()> {
        // SAFETY: the range is our mapping. `MADV_DONTNEED` of a shared file mapping drops page-table entries;
        // what was stored is in the page cache and is read again from there, so no word changes.
        unsafe { madvise(self.base.as_ptr(), self.bytes, Advice::LinuxDontNeed)? };
        Ok(())
    }
}

impl Deref for MappedWords {
    type Target = [Word];

    #[inline]
    fn deref(&self) -> &[Word] {
        // SAFETY: the mapping is `bytes` long, aligned to a page and readable and writable (struct invariant), lives
        // as long as `self`, and any eight bytes are a `Word`, which is an atomic: nobody's store is a data race.
        unsafe {
            std::slice::from_raw_parts(self.base.as_ptr().cast::<Word>(), self.bytes / size_of::<Word>())
        }
    }
}

impl Drop for MappedWords {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped; no slice of it outlives `self`.
        let failed = unsafe { munmap(self.base.as_ptr(), self.bytes) };
        debug_assert!(failed.is_ok(), "munmap of our own mapping: {failed:?}");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    fn file(bytes: u64) -> File {
        let path = std::env::temp_dir().join(format!("nighttrain-mapping-{}-{bytes}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(bytes).unwrap();
        file
    }

    #[test]
    fn what_is_stored_is_in_the_file_and_what_is_written_is_seen() {
        let file = file(64 << 10);
        let words = MappedWords::map(&file, 8192).unwrap();
        words.expect(Pattern::Random).unwrap();
        words[8191].store(7);
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 8191 * 8).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 7);
        file.write_all_at(&9_u64.to_ne_bytes(), 0).unwrap();
        assert_eq!(words[0].load(), 9);
        words.detach_pages().unwrap();
        assert_eq!((words[0].load(), words[8191].load()), (9, 7));
        assert!(words[1] < words[8191] && words[8191] < words[0] && words[1] == words[2]);
    }

    #[test]
    fn a_file_too_short_and_an_empty_mapping_are_errors() {
        let file = file(4096);
        assert!(MappedWords::map(&file, 513).is_err());
        assert!(MappedWords::map(&file, 0).is_err());
        assert!(MappedWords::map(&file, usize::MAX / 4).is_err());
        assert_eq!(MappedWords::map(&file, 512).unwrap().len(), 512);
    }
}
