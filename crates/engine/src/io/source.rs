//! Where helpers read from: a file past the page cache, a file through it, or (in tests) a disk that fails.

use std::{fs::File, io, os::fd::AsFd, path::Path};

use rustix::fs::{FileType, OFlags};

use crate::sys::{
    file_words::{PAGE_BYTES, ReadMapping, read_at},
    span::Span,
};

/// Something that helpers read. All methods are called on a helper thread and may wait for the disk.
pub trait Source: Send + Sync + 'static {
    /// What offsets and lengths of its reads are multiples of: a power of two, at most a page.
    fn block_bytes(&self) -> usize;

    /// Reads from byte `at` until the span is full or the source ends, and says how many bytes came. Offset and
    /// length are multiples of [`Self::block_bytes`]; the span lies at a page.
    ///
    /// # Errors
    /// What the disk says.
    fn read(&self, at: u64, into: Span<'_>) -> io::Result<usize>;

    /// Looks at exactly the bytes that were asked for, before anybody gets them: checksums belong here, off the loop.
    ///
    /// # Errors
    /// [`Damage`], and nobody gets the bytes.
    fn verify(&self, at: u64, bytes: Span<'_>) -> Result<(), Damage> {
        let _ = (at, bytes);
        Ok(())
    }
}

/// What was read is not what was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{rule} at byte {at}")]
pub struct Damage {
    /// Where in the source.
    pub at: u64,
    /// Which rule it breaks, for people.
    pub rule: &'static str,
}

/// `--paging direct`: a file that is read with `O_DIRECT`, into our memory only. Nothing of it is in the page cache,
/// so nothing there is pushed out by what is cold.
#[derive(Debug)]
pub struct DirectFile {
    file: File,
}

impl DirectFile {
    /// Opens `path` for reading past the page cache.
    ///
    /// # Errors
    /// What `open(2)` says: `EINVAL` where the file system has no `O_DIRECT` (a tmpfs before Linux 6.6).
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT;
        Ok(Self { file: File::from(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?) })
    }
}

impl Source for DirectFile {
    fn block_bytes(&self) -> usize {
        // Disks of 512 bytes a block would do with less; the page is right for all.
        PAGE_BYTES
    }

    fn read(&self, at: u64, into: Span<'_>) -> io::Result<usize> {
        read_at(self.file.as_fd(), at, into)
    }
}

/// `--paging kernel`: a file that is read through the page cache and seen through a mapping of it. What a helper has
/// read is resident, mapped, and served from the mapping from then on, for as long as the kernel keeps it.
#[derive(Debug)]
pub struct CachedFile {
    file: File,
    mapping: ReadMapping,
}

impl CachedFile {
    /// Opens `path` and maps its whole pages.
    ///
    /// # Errors
    /// What `open(2)` says (writing must be permitted too, or `mincore` does not tell the truth), or
    /// [`ReadMapping::map`].
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let bytes = stat.st_size.unsigned_abs() / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        // As on the mapping: a read brings what was asked for and no window around it.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
        let mapping = ReadMapping::map(&file, bytes)?;
        Ok(Self { file, mapping })
    }

    /// What a loop may look at, after it has asked whether it is resident.
    #[must_use]
    pub fn mapping(&self) -> &ReadMapping {
        &self.mapping
    }

    /// For `sendfile`.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Source for CachedFile {
    fn block_bytes(&self) -> usize {
        PAGE_BYTES
    }

    fn read(&self, at: u64, into: Span<'_>) -> io::Result<usize> {
        // The read comes first: it says what fails as an error, and leaves the pages in the cache, so that populating
        // only maps them. Populating alone would do for the mapping, but the waiting task is answered from the buffer,
        // which no reclaim can take away in between.
        let read = read_at(self.file.as_fd(), at, into)?;
        let (start, end) = (at, at + read as u64);
        if let (Ok(start), Ok(end)) = (usize::try_from(start), usize::try_from(end))
            && end <= self.mapping.len()
        {
            // What fails here costs a light fault later, if anything: the bytes are read.
            let _ = self.mapping.populate(start..end);
        }
        Ok(read)
    }
}
