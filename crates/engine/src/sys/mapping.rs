//! A file as words: a shared mapping that the kernel pages.
//!
//! ```text
//! file ──mmap(MAP_SHARED)──▶ | word 0 | word 1 | … |   seen as &[AtomicU64]
//! ```
//! No event loop stores into a mapped file on a disk, because such a store can stall; benchmarks use these
//! mappings to measure paging. The loops' journal (`journal`) is in memory without a disk behind it
//! (`memfd_create`). Other processes may write to the same file at any time, so a word is an atomic and not a
//! plain integer: a race reads old or new values, never undefined behaviour.

use std::{
    ffi::c_void,
    fs::File,
    io,
    ops::{Deref, DerefMut},
    path::Path,
    ptr::NonNull,
};

use std::sync::atomic::AtomicU64;

use super::file_words::{PAGE_BYTES, ReadMapping};

use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// Expected access pattern of a mapping, as advice to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// `MADV_NORMAL`: a page fault loads the whole readahead window.
    Normal,
    /// `MADV_RANDOM`: a page fault loads only its own page.
    Random,
}

/// The first words of a file, mapped for reading and writing and shared with all processes that map it.
#[derive(Debug)]
pub struct MappedWords {
    /// Invariant: a valid mapping of `bytes` bytes, page-aligned, readable and writable.
    base: NonNull<c_void>,
    bytes: usize,
}

// SAFETY: the mapping belongs to this value alone and is only handed out as a slice of atomics, which any thread
// may use; unmapping (Drop) needs the value itself and works from any thread.
unsafe impl Send for MappedWords {}
// SAFETY: as for `Send`: all shared access is through atomics.
unsafe impl Sync for MappedWords {}

impl MappedWords {
    /// Maps the first `len` words of `file`, which must be open for reading and writing and at least that
    /// long.
    ///
    /// If the file is truncated later, an access beyond its end raises `SIGBUS`, as a failing disk does: both
    /// end the process; neither is undefined behaviour.
    ///
    /// # Errors
    /// `InvalidInput` if `len` is zero or the file is shorter; else the error of `mmap` (`EACCES` if the file
    /// is not open for both).
    pub fn map(file: &File, len: usize) -> io::Result<Self> {
        Self::mapped(file, len, MapFlags::SHARED)
    }

    /// Maps the first `len` words of a file that is open for reading, to read the values that other processes
    /// store there. A store through this mapping would only change a copy of the page, so the words can be
    /// used like those of [`MappedWords::map`].
    ///
    /// # Errors
    /// Returns the same errors as [`MappedWords::map`].
    pub fn map_seen(file: &File, len: usize) -> io::Result<Self> {
        Self::mapped(file, len, MapFlags::PRIVATE)
    }

    fn mapped(file: &File, len: usize, shared: MapFlags) -> io::Result<Self> {
        let bytes = len
            .checked_mul(size_of::<AtomicU64>())
            .filter(|bytes| *bytes > 0 && isize::try_from(*bytes).is_ok())
            .ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidInput, "no words, or more than can be addressed")
            })?;
        if file.metadata()?.len() < bytes as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the file is shorter than its mapping"));
        }
        // SAFETY: a new mapping at an address that the kernel chooses replaces no existing memory.
        let base = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, shared, file, 0)?
        };
        let base = NonNull::new(base).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Self { base, bytes })
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

    /// Removes the pages from this mapping, but not from the page cache: the next access to each page causes
    /// a fault. No word is lost, because the mapping is shared.
    ///
    /// # Errors
    /// Returns the error of `madvise`.
    pub fn detach_pages(&self) -> io::Result<()> {
        // SAFETY: the range is this mapping. `MADV_DONTNEED` of a shared file mapping drops page-table
        // entries; stored data is in the page cache and is read again from there, so no word changes.
        unsafe { madvise(self.base.as_ptr(), self.bytes, Advice::LinuxDontNeed)? };
        Ok(())
    }
}

impl Deref for MappedWords {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is `bytes` long, aligned to a page and readable and writable (struct
        // invariant), exists as long as `self`, and any eight bytes are a valid atomic integer: no store is a
        // data race.
        unsafe {
            std::slice::from_raw_parts(
                self.base.as_ptr().cast::<AtomicU64>(),
                self.bytes / size_of::<AtomicU64>(),
            )
        }
    }
}

impl Drop for MappedWords {
    fn drop(&mut self) {
        // SAFETY: this is exactly the range that `map` mapped; no slice of it outlives `self`.
        let failed = unsafe { munmap(self.base.as_ptr(), self.bytes) };
        debug_assert!(failed.is_ok(), "munmap failed: {failed:?}");
    }
}

/// Memory that is paged to the disk: words in an unnamed file, which no other process can open.
///
/// Unlike the words of a named file ([`MappedWords`]), which another process may write at any time, these
/// words are plain integers.
#[derive(Debug)]
pub struct PagedMemory {
    /// Invariant: maps the whole of an unnamed file, which is written only through this mapping. Its only
    /// descriptors are `file` and those in [`WriteOut`]s.
    words: MappedWords,
    file: File,
}

impl PagedMemory {
    /// Creates `len` zero words, with their space on the disk reserved, in a file below `directory` that is
    /// removed when this value is dropped or the process ends.
    ///
    /// # Errors
    /// Returns an error if the disk is full or the file system has no unnamed files (`O_TMPFILE`) or no
    /// `fallocate`; else the errors of [`MappedWords::map`].
    pub fn create(directory: &Path, len: usize) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::EXCL;
        let file = File::from(rustix::fs::open(directory, flags, Mode::RUSR | Mode::WUSR)?);
        // A length that is too large for any disk is refused like a full disk.
        let bytes = (len as u64).saturating_mul(size_of::<AtomicU64>() as u64);
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
        Ok(Self { words: MappedWords::map(&file, len)?, file })
    }

    /// Tells the kernel how the memory will be read.
    ///
    /// # Errors
    /// Returns the error of `madvise`.
    pub fn expect(&self, pattern: Pattern) -> io::Result<()> {
        self.words.expect(pattern)
    }

    /// Returns a handle that writes changes to the disk, for code that does not hold the memory itself.
    ///
    /// # Errors
    /// Returns the system's error if there are too many open files.
    pub fn write_out(&self) -> io::Result<WriteOut> {
        Ok(WriteOut(self.file.try_clone()?))
    }
}

/// Handle that can only write the changes in a [`PagedMemory`] to the disk.
#[derive(Debug)]
pub struct WriteOut(File);

impl WriteOut {
    /// Waits until all stored words are on the disk: pages are then clean, and the kernel may reclaim them at
    /// no cost.
    ///
    /// # Errors
    /// Returns the disk's error.
    pub fn now(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    /// Returns a handle for counting how many of the memory's whole pages are in the page cache.
    ///
    /// # Errors
    /// Returns the errors of [`ReadMapping::map`], in particular if the memory is smaller than one page.
    pub fn residency(&self) -> io::Result<Residency> {
        let bytes = self.0.metadata()?.len();
        Ok(Residency(ReadMapping::map(&self.0, bytes - bytes % PAGE_BYTES as u64)?))
    }
}

/// Counter of the pages of a [`PagedMemory`] that are in the page cache. It cannot read their contents.
#[derive(Debug)]
pub struct Residency(ReadMapping);

impl Residency {
    /// Returns the number of pages in the page cache now, mapped or not; takes about 3 µs per thousand.
    ///
    /// # Errors
    /// Returns the error of `mincore`.
    pub fn pages(&self) -> io::Result<usize> {
        self.0.resident_pages(0..self.0.len())
    }
}

impl Deref for PagedMemory {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        // SAFETY: the mapping is valid, aligned and exists as long as `self` (invariant of `MappedWords`);
        // any eight bytes are an integer. The file has no name (`O_TMPFILE | O_EXCL`: it cannot get one), its
        // descriptor is only used to sync it and to query residency (`WriteOut`, `Residency`: neither reads
        // or writes the bytes), and the mapping is not handed out otherwise: the words are only stored to
        // through `deref_mut`, which needs the exclusive borrow.
        unsafe { std::slice::from_raw_parts(self.words.base.as_ptr().cast::<u64>(), self.words.len()) }
    }
}

impl DerefMut for PagedMemory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `deref`; the exclusive borrow of `self` makes this the only reference to the words.
        unsafe { std::slice::from_raw_parts_mut(self.words.base.as_ptr().cast::<u64>(), self.words.len()) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    fn file(bytes: u64) -> File {
        let path = std::env::temp_dir().join(format!("nighttrain-mapping-{}-{bytes}", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(bytes).unwrap();
        file
    }

    #[test]
    fn a_mapping_and_its_file_agree() {
        let file = file(64 << 10);
        let words = MappedWords::map(&file, 8192).unwrap();
        words.expect(Pattern::Random).unwrap();
        words[8191].store(7, Relaxed);
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 8191 * 8).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 7);
        file.write_all_at(&9_u64.to_ne_bytes(), 0).unwrap();
        assert_eq!(words[0].load(Relaxed), 9);
        words.detach_pages().unwrap();
        assert_eq!((words[0].load(Relaxed), words[8191].load(Relaxed)), (9, 7));
    }

    #[test]
    fn short_files_and_empty_mappings_are_refused() {
        let file = file(4096);
        assert!(MappedWords::map(&file, 513).is_err());
        assert!(MappedWords::map(&file, 0).is_err());
        assert!(MappedWords::map(&file, usize::MAX / 4).is_err());
        assert_eq!(MappedWords::map(&file, 512).unwrap().len(), 512);
    }

    #[test]
    fn residency_counts_written_pages_of_large_memory() {
        let directory = std::env::temp_dir();
        let mut memory = PagedMemory::create(&directory, 100 * 512 + 5).unwrap();
        let residency = memory.write_out().unwrap().residency().unwrap();
        let before = residency.pages().unwrap();
        (0..60).for_each(|page| memory[page * 512] = 1);
        let after = residency.pages().unwrap();
        assert!(before <= 40 && (60..=100).contains(&after), "{before}, {after}");
        let small = PagedMemory::create(&directory, 100).unwrap();
        assert!(small.write_out().unwrap().residency().is_err());
    }

    #[test]
    fn paged_memory_keeps_values_and_leaves_no_file() {
        let directory = std::env::temp_dir().join(format!("nighttrain-paged-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let mut memory = PagedMemory::create(&directory, 100_000).unwrap();
        memory.expect(Pattern::Random).unwrap();
        assert!(memory.len() == 100_000 && memory.iter().all(|word| *word == 0));
        for (at, word) in memory.iter_mut().enumerate() {
            *word = at as u64 * 3;
        }
        memory.write_out().unwrap().now().unwrap();
        memory.words.detach_pages().unwrap();
        assert!(memory.iter().enumerate().all(|(at, word)| *word == at as u64 * 3));
        drop(memory);
        assert!(PagedMemory::create(&directory, 0).is_err());
        // The removal succeeds only if the directory is empty, which shows that no file was left in it.
        std::fs::remove_dir(&directory).unwrap();
        assert!(PagedMemory::create(&directory, 8).is_err());
    }
}
