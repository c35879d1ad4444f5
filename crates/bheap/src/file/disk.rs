//! Storage of a queue file: bytes that can be read and written directly, and made durable on demand.

use super::error::{Fault, FileError};
use super::header::{BLOCK_BYTES, MAGIC, SLOTS};
use super::mapping::Mapping;
use rustix::fs::FallocateFlags;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A fixed number of bytes, some of which have reached a disk.
///
/// Bytes stored through [`Disk::bytes_mut`] may reach the disk at any time and in any order; after
/// [`Disk::sync`] all of them have. The simulated disk in the tests may lose everything else.
pub trait Disk {
    /// Returns the path, for messages.
    fn path(&self) -> &Path;
    /// Returns all bytes.
    fn bytes(&self) -> &[u8];
    /// Returns all bytes, mutably.
    fn bytes_mut(&mut self) -> &mut [u8];
    /// Makes sure that the disk has room for `bytes` bytes at `from`, so that storing them cannot fail later.
    /// Existing bytes are unchanged.
    ///
    /// # Errors
    /// Returns an [`io::Error`] if the disk is full or cannot reserve room.
    fn reserve(&mut self, from: usize, bytes: usize) -> io::Result<()>;
    /// Waits until all bytes stored before have reached the disk.
    ///
    /// # Errors
    /// Returns an [`io::Error`] if some did not; it is then unknown which.
    fn sync(&mut self) -> io::Result<()>;
    /// Announces random access: read-ahead would only displace other pages.
    ///
    /// # Errors
    /// Returns an [`io::Error`] if the advice is refused.
    fn expect_random(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A mapped file, locked against other users of this crate.
#[derive(Debug)]
pub struct MappedFile {
    path: PathBuf,
    /// The file, which holds the lock.
    file: File,
    mapping: Mapping,
}

impl MappedFile {
    /// Creates a file of `bytes` bytes, all zero and not allocated. Never replaces a file.
    pub(super) fn create(path: &Path, bytes: usize, align: usize) -> Result<Self, FileError> {
        let made = OpenOptions::new().read(true).write(true).create_new(true).open(path);
        let file = made.map_err(|error| Fault::io("create the file")(error).at(path))?;
        let filled = Self::lock(&file)
            .and_then(|()| file.set_len(bytes as u64).map_err(Fault::io("set the file's length")))
            .and_then(|()| Mapping::new(&file, bytes, align).map_err(Fault::io("map the file")));
        match filled {
            Ok(mapping) => Ok(Self { path: path.into(), file, mapping }),
            Err(fault) => {
                let _ = std::fs::remove_file(path);
                Err(fault.at(path))
            }
        }
    }

    /// Opens a file that begins like a queue file.
    pub(super) fn open(path: &Path, align: usize) -> Result<Self, FileError> {
        let open = OpenOptions::new().read(true).write(true).open(path);
        let file = open.map_err(|error| Fault::io("open the file")(error).at(path))?;
        Self::map(&file, align).map_err(|fault| fault.at(path)).map(|mapping| Self {
            path: path.into(),
            file,
            mapping,
        })
    }

    fn map(file: &File, align: usize) -> Result<Mapping, Fault> {
        Self::lock(file)?;
        let bytes = file.metadata().map_err(Fault::io("read the file's length"))?.len();
        let least = (SLOTS.len() * BLOCK_BYTES) as u64;
        if bytes < least {
            let mut head = [0; 8];
            let known = head.len().min(bytes as usize);
            file.read_exact_at(&mut head[..known], 0).map_err(Fault::io("read the file's head"))?;
            if head[..known] == MAGIC[..known] {
                return Err(Fault::Length { found: bytes, wanted: least });
            }
            return Err(Fault::Foreign { found: head[..known].into() });
        }
        let bytes =
            usize::try_from(bytes).map_err(|_| Fault::Impossible { what: "longer than memory can map" })?;
        Mapping::new(file, bytes, align).map_err(Fault::io("map the file"))
    }

    fn lock(file: &File) -> Result<(), Fault> {
        file.try_lock().map_err(|refused| match refused {
            TryLockError::WouldBlock => Fault::Locked,
            TryLockError::Error(error) => Fault::io("lock the file")(error),
        })
    }

    /// Makes the file's name durable: otherwise a crash may leave a file without a name.
    pub(super) fn sync_name(&self) -> Result<(), FileError> {
        let parent = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let synced = self.file.sync_all().and_then(|()| File::open(parent)?.sync_all());
        synced.map_err(|error| Fault::io("sync the directory")(error).at(&self.path))
    }
}

impl Disk for MappedFile {
    fn path(&self) -> &Path {
        &self.path
    }
    #[inline]
    fn bytes(&self) -> &[u8] {
        self.mapping.bytes()
    }
    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.mapping.bytes_mut()
    }
    fn reserve(&mut self, from: usize, bytes: usize) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let room = || rustix::fs::fallocate(&self.file, FallocateFlags::empty(), from as u64, bytes as u64);
        Ok(rustix::io::retry_on_intr(room)?)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.mapping.sync()
    }
    fn expect_random(&self) -> io::Result<()> {
        self.mapping.expect_random()
    }
}
