//! Sources that helpers read from: a file read with `O_DIRECT`, a file read through the page cache, or (in
//! tests) a disk that fails.

use std::{fs::File, io, os::fd::AsFd, path::Path};

use rustix::fs::{FileType, OFlags};

use crate::sys::{
    file_words::{PAGE_BYTES, ReadMapping, read_at},
    span::Span,
};

/// A source from which helpers read. All methods are called on a helper thread and may wait for the disk.
pub trait Source: Send + Sync + 'static {
    /// Returns the block size: offsets and lengths of reads are multiples of it. A power of two, at most a
    /// page.
    fn block_bytes(&self) -> usize;

    /// Reads from byte `at` until the span is full or the source ends, and returns the number of bytes read.
    /// Offset and length are multiples of [`Self::block_bytes`]; the span begins at a page boundary.
    ///
    /// # Errors
    /// Returns the disk's error.
    fn read(&self, at: u64, into: Span<'_>) -> io::Result<usize>;

    /// Verifies exactly the requested bytes before any task gets them; checksums are computed here, off the
    /// loop.
    ///
    /// # Errors
    /// Returns the [`Damage`] if the bytes must not be used.
    fn verify(&self, at: u64, bytes: Span<'_>) -> Result<(), Damage> {
        let _ = (at, bytes);
        Ok(())
    }
}

/// Error: the bytes read differ from those that were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{rule} at byte {at}")]
pub struct Damage {
    /// Offset of the damage in the source.
    pub at: u64,
    /// Description of the violated rule.
    pub rule: &'static str,
}

/// A file that is read with `O_DIRECT` (`--paging direct`), into the process's memory only. The data does not
/// enter the page cache and so evicts nothing from it.
#[derive(Debug)]
pub struct DirectFile {
    file: File,
}

impl DirectFile {
    /// Opens `path` for reading that bypasses the page cache.
    ///
    /// # Errors
    /// Returns the error of `open(2)`: `EINVAL` if the file system has no `O_DIRECT` (a tmpfs before Linux
    /// 6.6).
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT;
        Ok(Self { file: File::from(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?) })
    }
}

impl Source for DirectFile {
    fn block_bytes(&self) -> usize {
        // A disk with blocks of 512 bytes would accept smaller alignment; a page is correct for all disks.
        PAGE_BYTES
    }

    fn read(&self, at: u64, into: Span<'_>) -> io::Result<usize> {
        read_at(self.file.as_fd(), at, into)
    }
}

/// A file that is read through the page cache and mapped (`--paging kernel`). Data that a helper has read is
/// resident, mapped, and served from the mapping for as long as the kernel keeps it.
#[derive(Debug)]
pub struct CachedFile {
    file: File,
    mapping: ReadMapping,
}

impl CachedFile {
    /// Opens `path` and maps its whole pages.
    ///
    /// # Errors
    /// Returns the error of `open(2)` (write permission is required too, or `mincore` is not reliable), or
    /// that of [`ReadMapping::map`].
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let bytes = stat.st_size.unsigned_abs() / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        // Like the mapping, a read fetches the requested range without read-ahead.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random)?;
        let mapping = ReadMapping::map(&file, bytes)?;
        Ok(Self { file, mapping })
    }

    /// Returns the mapping, which a loop may read once it has checked that the pages are resident.
    #[must_use]
    pub fn mapping(&self) -> &ReadMapping {
        &self.mapping
    }

    /// Returns the file, for `sendfile`.
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
        // The read comes first: it reports failures as errors, and leaves the pages in the cache, so that
        // populating only maps them. Populating alone would be enough for the mapping, but the waiting task
        // is answered from the buffer, which the kernel cannot reclaim in the meantime.
        let read = read_at(self.file.as_fd(), at, into)?;
        let (start, end) = (at, at + read as u64);
        if let (Ok(start), Ok(end)) = (usize::try_from(start), usize::try_from(end))
            && end <= self.mapping.len()
        {
            // A failure here costs at most a minor fault later, because the bytes have already been read.
            let _ = self.mapping.populate(start..end);
        }
        Ok(read)
    }
}
