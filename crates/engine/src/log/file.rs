//! The file below a log: opening or creating it, locking it, and checking which owner it belongs to.
//!
//! ```text
//! make   FILE.new: lock ─▶ reserve all of its room ─▶ both headers ─▶ sync ─▶ named FILE (never over another)
//! open   FILE: lock ─▶ either intact header ─▶ right purpose? whole length? ─▶ the other header repaired
//! ```
//! The name therefore never refers to an incomplete file. A file that is not a store of this owner is
//! reported and left unchanged.

use std::{
    fmt,
    fs::File,
    io,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use rustix::fs::{Mode, OFlags, RenameFlags};

use super::format::{
    BLOCK_BYTES, HEADER_BYTES, Header, HeaderFault, SEGMENT_BYTES_GIVEN, SEGMENTS_AT, VERSION, VERSION_MIN,
};
use crate::{random, size::Size, sys::direct};

/// Minimum number of segments in a file.
pub const SEGMENTS_MIN: u64 = 4;
/// Target number of segments when the segment size is chosen automatically.
const SEGMENTS_AIM: u64 = 64;
/// Maximum segment size that is chosen automatically.
const SEGMENT_BYTES_AUTO_MAX: u64 = 4 << 20;
/// Unit of `st_blocks`, whatever the file system's block size (`stat(2)`).
const STAT_BLOCK_BYTES: u64 = 512;
/// Maximum file size: a location has 40 bits for the offset, in units of 16 bytes.
const FILE_BYTES_MAX: u64 = 16 << 40;

/// Input and output of a log. Two implementations: a file, and a disk in memory that simulates loss of power.
///
/// All calls may block: they are for helper threads.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Fills `out` from byte `offset`.
    ///
    /// # Errors
    /// Returns the disk's error; `UnexpectedEof` beyond its end.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Writes `words` at byte `offset`; offset and length are multiples of [`BLOCK_BYTES`]. Once this
    /// returns, the bytes survive the end of the process.
    ///
    /// # Errors
    /// Returns the disk's error; any part of the bytes may have been written.
    fn write(&self, offset: u64, words: &[AtomicU64]) -> io::Result<()>;

    /// Writes like [`Disk::write`], but through the page cache: for a caller that must not wait for the disk
    /// but may wait for memory.
    ///
    /// # Errors
    /// Returns the same errors as [`Disk::write`].
    fn write_cached(&self, offset: u64, words: &[AtomicU64]) -> io::Result<()> {
        self.write(offset, words)
    }

    /// Makes all written bytes survive a loss of power.
    ///
    /// # Errors
    /// Returns the disk's error; the state of all writes since the last successful sync is then unknown.
    fn sync(&self) -> io::Result<()>;

    /// Returns the space of a range to the file system; afterwards the range reads as zeros.
    ///
    /// # Errors
    /// Returns the disk's error.
    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()>;
}

/// Options for opening or creating a file.
#[derive(Debug, Clone)]
pub struct FileOptions {
    /// Purpose of the file: at most eight bytes, compared when it is opened.
    pub purpose: &'static str,
    /// Length of the file, rounded down to whole segments. A longer file is refused, a shorter one grows.
    pub bytes: u64,
    /// Segment size for a new file, a power of two; `None`: chosen automatically. An existing file keeps its
    /// own.
    pub segment_bytes: Option<u32>,
    /// Oldest version of the format that the owner accepts: [`VERSION_MIN`] or later. The owner must be able
    /// to restore the contents of older files from elsewhere.
    pub version_min: u32,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { purpose: "", bytes: 1 << 30, segment_bytes: None, version_min: VERSION_MIN }
    }
}

/// Reasons why a file could not be opened or created.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "fields are named in the messages")]
pub enum OpenError {
    #[error(
        "the store {} is in use by another process; stop it, or give this one a file of its own",
        path.display()
    )]
    InUse { path: PathBuf },
    #[error(
        "{} is not a Nighttrain store; nothing was changed: give another path, or remove the file",
        path.display()
    )]
    Foreign { path: PathBuf },
    #[error(
        "the store {} has format version {found}, and this program reads versions {VERSION_MIN} to {VERSION}; nothing \
         was changed: use the program that wrote it, or remove the file to start afresh",
        path.display()
    )]
    Version { path: PathBuf, found: u32 },
    #[error(
        "the store {} has format version {found}, and a {purpose} needs version {needed}; nothing was changed: it \
         fills again by itself, so remove the file, or give another path with --store",
        path.display()
    )]
    Outgrown { path: PathBuf, found: u32, needed: u32, purpose: &'static str },
    #[error(
        "the store {} was written by a newer program (unknown features {unknown:#x} in its header); nothing was \
         changed: use that program, or give another path",
        path.display()
    )]
    Newer { path: PathBuf, unknown: u32 },
    #[error(
        "both headers of the store {} are damaged; nothing was changed: restore it from a copy, or remove the file to \
         start afresh",
        path.display()
    )]
    Damaged { path: PathBuf },
    #[error(
        "the store {} belongs to {found:?}, not to {wanted:?}; nothing was changed: give each service a file of its own",
        path.display()
    )]
    Purpose { path: PathBuf, found: String, wanted: &'static str },
    #[error(
        "the store {} is truncated: it has {} and was created with {}; nothing was changed: restore it from a copy, or \
         remove the file to start afresh",
        path.display(),
        Size(*found),
        Size(*needed)
    )]
    Truncated { path: PathBuf, found: u64, needed: u64 },
    #[error(
        "the store {} was created with {}, and {} were requested: a store can grow but not shrink; set at least {}, or \
         remove the file to start afresh",
        path.display(),
        Size(*found),
        Size(*wanted),
        Size(*found)
    )]
    Shrinks { path: PathBuf, found: u64, wanted: u64 },
    #[error(
        "a store of {} is too small: with segments of {} it needs at least {}",
        Size(*bytes),
        Size(*segment_bytes),
        Size(*needed)
    )]
    TooSmall { bytes: u64, segment_bytes: u64, needed: u64 },
    #[error("a store of {} is too large: at most {} can be addressed", Size(*bytes), Size(FILE_BYTES_MAX))]
    TooLarge { bytes: u64 },
    #[error("invalid segment size of {given} bytes: a power of two from {min} to {max} is needed")]
    SegmentBytes { given: u32, min: u32, max: u32 },
    #[error(
        "not enough disk space for the store {}: it needs {} and {} are free; free some, or make the store smaller",
        path.display(),
        Size(*needed),
        Size(*free)
    )]
    DiskFull { path: PathBuf, needed: u64, free: u64 },
    #[error("cannot {what} the store {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

/// A log's file, locked while this value exists.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    /// Second handle of the file, for direct writes; `None` if they are not used.
    direct: Option<File>,
    /// Set once the file system has refused direct writes of this block size.
    direct_refused: AtomicBool,
    path: PathBuf,
}

impl FileDisk {
    /// Opens the file at `path`, or creates it. The returned flag is true if the file is new.
    ///
    /// # Errors
    /// Returns an [`OpenError`]; a refused file is left unchanged.
    pub fn open(path: &Path, options: &FileOptions) -> Result<(Self, Header, bool), OpenError> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => {
                let disk = Self::locked(File::from(fd), path)?;
                let header = disk.adopt(options)?;
                Ok((disk, header, false))
            }
            Err(rustix::io::Errno::NOENT) => {
                let (disk, header) = Self::make(path, options)?;
                Ok((disk, header, true))
            }
            Err(error) => Err(OpenError::Io { what: "open", path: path.into(), source: error.into() }),
        }
    }

    /// Opens the file at `path` read-only.
    ///
    /// # Errors
    /// Returns the same errors as [`FileDisk::open`]; a file in use is also refused, because it would change
    /// while it is read.
    pub fn open_to_look(path: &Path) -> Result<(Self, Header), OpenError> {
        let file =
            File::open(path).map_err(|source| OpenError::Io { what: "open", path: path.into(), source })?;
        let disk = Self::locked_without_direct(file, path)?;
        let (header, _) = disk.headers()?;
        disk.check_length(&header)?;
        Ok((disk, header))
    }

    /// Creates a store in memory, without a file name; the kernel may page it out, and it ends with the
    /// process.
    ///
    /// # Errors
    /// Returns the same errors as [`FileDisk::open`].
    pub fn anonymous(options: &FileOptions) -> Result<(Self, Header), OpenError> {
        let path = PathBuf::from("(in memory)");
        let header = new_header(options)?;
        let fd = rustix::fs::memfd_create("nighttrain-store", rustix::fs::MemfdFlags::CLOEXEC)
            .map_err(|error| OpenError::Io { what: "make", path: path.clone(), source: error.into() })?;
        let disk = Self { file: File::from(fd), direct: None, direct_refused: AtomicBool::new(false), path };
        disk.file.set_len(header.file_bytes()).map_err(|source| disk.failed("size", source))?;
        disk.write_headers(&header)?;
        Ok((disk, header))
    }

    /// Returns the file, for reading or sending from it. No other code may write to it.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the path with which the file was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether writes bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some() && !self.direct_refused.load(Relaxed)
    }

    fn locked(file: File, path: &Path) -> Result<Self, OpenError> {
        let mut disk = Self::locked_without_direct(file, path)?;
        disk.direct = direct::open_direct(&disk.file);
        Ok(disk)
    }

    fn locked_without_direct(file: File, path: &Path) -> Result<Self, OpenError> {
        let disk = Self { file, direct: None, direct_refused: AtomicBool::new(false), path: path.into() };
        let kind = disk.file.metadata().map_err(|source| disk.failed("look at", source))?;
        if !kind.is_file() {
            return Err(OpenError::Foreign { path: path.into() });
        }
        match direct::lock(&disk.file) {
            Ok(true) => Ok(disk),
            Ok(false) => Err(OpenError::InUse { path: path.into() }),
            Err(source) => Err(disk.failed("lock", source)),
        }
    }

    fn failed(&self, what: &'static str, source: io::Error) -> OpenError {
        OpenError::Io { what, path: self.path.clone(), source }
    }

    fn make(path: &Path, options: &FileOptions) -> Result<(Self, Header), OpenError> {
        let header = new_header(options)?;
        let mut unnamed = path.as_os_str().to_owned();
        unnamed.push(".new");
        let unnamed = PathBuf::from(unnamed);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::open(&unnamed, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| OpenError::Io { what: "make", path: unnamed.clone(), source: error.into() })?;
        let mut disk = Self::locked(File::from(fd), &unnamed)?;
        disk.path = path.into();
        let made = disk.lay_out(&header).and_then(|()| {
            rustix::fs::renameat_with(
                rustix::fs::CWD,
                &unnamed,
                rustix::fs::CWD,
                path,
                RenameFlags::NOREPLACE,
            )
            .map_err(|error| disk.failed("name", error.into()))
        });
        if let Err(error) = made {
            // The reserved space must be freed; if even that fails, the first error is more useful.
            let _ = std::fs::remove_file(&unnamed);
            return Err(error);
        }
        // The sync of the directory makes the file's name survive a loss of power.
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(parent)
            .and_then(|parent| parent.sync_all())
            .map_err(|source| disk.failed("sync", source))?;
        Ok((disk, header))
    }

    fn lay_out(&self, header: &Header) -> Result<(), OpenError> {
        self.file.set_len(0).map_err(|source| self.failed("empty", source))?;
        self.reserve(header.file_bytes())?;
        self.write_header(header, 0)?;
        self.write_header(header, 1)?;
        // A single sync for both headers is enough: until it has its final name, the file is not recognized
        // as a store.
        self.sync_header()
    }

    /// Allocates the file's space. The free space is checked first, because `fallocate` would fill the disk
    /// to the last block before it fails, and other writers on the disk would have no space.
    fn reserve(&self, bytes: u64) -> Result<(), OpenError> {
        let full = |free| OpenError::DiskFull { path: self.path.clone(), needed: bytes, free };
        let free = rustix::fs::fstatvfs(&self.file)
            .ok()
            // Some file systems do not report their size.
            .filter(|room| room.f_blocks > 0)
            .map(|room| room.f_bavail.saturating_mul(room.f_frsize));
        let has = self.file.metadata().map_or(0, |of| of.blocks().saturating_mul(STAT_BLOCK_BYTES));
        if let Some(free) = free.filter(|free| bytes > free.saturating_add(has)) {
            return Err(full(free));
        }
        direct::preallocate(&self.file, bytes).map_err(|source| {
            if source.kind() == io::ErrorKind::StorageFull {
                full(free.unwrap_or(0))
            } else {
                self.failed("reserve room for", source)
            }
        })
    }

    /// Writes both headers, one after the other, so that one of them is intact at any time.
    fn write_headers(&self, header: &Header) -> Result<(), OpenError> {
        for block in 0..2 {
            self.write_header(header, block)?;
            self.sync_header()?;
        }
        Ok(())
    }

    fn write_header(&self, header: &Header, block: u64) -> Result<(), OpenError> {
        self.file
            .write_all_at(&header.encode(), block * BLOCK_BYTES as u64)
            .map_err(|source| self.failed("write the header of", source))
    }

    fn sync_header(&self) -> Result<(), OpenError> {
        self.file.sync_all().map_err(|source| self.failed("write the header of", source))
    }

    /// Returns the header, and whether both of its copies are intact and equal.
    fn headers(&self) -> Result<(Header, bool), OpenError> {
        let read = |block: u64| {
            let mut bytes = [0; HEADER_BYTES];
            match self.file.read_exact_at(&mut bytes, block * BLOCK_BYTES as u64) {
                Ok(()) => Ok(Header::decode(&bytes)),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Err(HeaderFault::Foreign)),
                Err(source) => Err(self.failed("read the header of", source)),
            }
        };
        let path = || self.path.clone();
        match (read(0)?, read(1)?) {
            // The copies are written one after the other: if either of them requires unknown features, the
            // file uses these features.
            (Err(HeaderFault::Features(unknown)), _) | (_, Err(HeaderFault::Features(unknown))) => {
                Err(OpenError::Newer { path: path(), unknown })
            }
            (Ok(first), Ok(second)) => Ok((first, first == second)),
            (Ok(header), Err(_)) | (Err(_), Ok(header)) => Ok((header, false)),
            (Err(HeaderFault::Version(found)), _) | (_, Err(HeaderFault::Version(found))) => {
                Err(OpenError::Version { path: path(), found })
            }
            (Err(HeaderFault::Checksum), _) | (_, Err(HeaderFault::Checksum)) => {
                Err(OpenError::Damaged { path: path() })
            }
            (Err(_), Err(_)) => Err(OpenError::Foreign { path: path() }),
        }
    }

    fn check_length(&self, header: &Header) -> Result<(), OpenError> {
        let found = self.file.metadata().map_err(|source| self.failed("look at", source))?.len();
        let needed = header.file_bytes();
        if found < needed {
            return Err(OpenError::Truncated { path: self.path.clone(), found, needed });
        }
        Ok(())
    }

    /// Checks the headers of an existing file, and grows the file to the configured length.
    fn adopt(&self, options: &FileOptions) -> Result<Header, OpenError> {
        let (mut header, are_alike) = self.headers()?;
        if header.purpose != purpose_bytes(options.purpose) {
            return Err(OpenError::Purpose {
                path: self.path.clone(),
                found: String::from_utf8_lossy(&header.purpose).trim_end_matches('\0').into(),
                wanted: options.purpose,
            });
        }
        if header.version < options.version_min {
            return Err(OpenError::Outgrown {
                path: self.path.clone(),
                found: header.version,
                needed: options.version_min,
                purpose: options.purpose,
            });
        }
        self.check_length(&header)?;
        let wanted = segments_of(options.bytes, u64::from(header.segment_bytes))?;
        if wanted < header.segments {
            return Err(OpenError::Shrinks {
                path: self.path.clone(),
                found: header.file_bytes(),
                wanted: options.bytes,
            });
        }
        if wanted > header.segments {
            header.segments = wanted;
            self.reserve(header.file_bytes())?;
        } else if are_alike {
            return Ok(header);
        } else {
            tracing::warn!(store = %self.path.display(), "one of two file headers was damaged: rewritten");
        }
        self.write_headers(&header)?;
        Ok(header)
    }
}

impl Disk for FileDisk {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }

    fn write(&self, offset: u64, words: &[AtomicU64]) -> io::Result<()> {
        if let Some(direct) = &self.direct
            && !self.direct_refused.load(Relaxed)
        {
            match direct::write_words(direct, words, offset) {
                // The file system has larger blocks, or does not support direct writes at all.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    self.direct_refused.store(true, Relaxed);
                }
                done => return done,
            }
        }
        direct::write_words(&self.file, words, offset)?;
        // Starts write-back at once, so that dirty pages do not accumulate and stall later writers. Only a
        // hint.
        let _ = direct::begin_write_back(&self.file, offset, size_of_val(words) as u64);
        Ok(())
    }

    fn write_cached(&self, offset: u64, words: &[AtomicU64]) -> io::Result<()> {
        direct::write_words(&self.file, words, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        direct::punch(&self.file, offset, bytes)
    }
}

fn purpose_bytes(purpose: &str) -> [u8; 8] {
    assert!(purpose.len() <= 8, "{purpose:?} is more than eight bytes");
    let mut bytes = [0; 8];
    bytes[..purpose.len()].copy_from_slice(purpose.as_bytes());
    bytes
}

fn segments_of(bytes: u64, segment_bytes: u64) -> Result<u32, OpenError> {
    if bytes > FILE_BYTES_MAX {
        return Err(OpenError::TooLarge { bytes });
    }
    let segments = bytes.saturating_sub(SEGMENTS_AT) / segment_bytes;
    if segments < SEGMENTS_MIN {
        let needed = SEGMENTS_AT + SEGMENTS_MIN * segment_bytes;
        return Err(OpenError::TooSmall { bytes, segment_bytes, needed });
    }
    u32::try_from(segments).map_err(|_| OpenError::TooLarge { bytes })
}

/// Builds the header of a new file.
///
/// # Errors
/// Returns an [`OpenError`] if the sizes are invalid.
pub(super) fn new_header(options: &FileOptions) -> Result<Header, OpenError> {
    let (min, max) = SEGMENT_BYTES_GIVEN;
    let segment_bytes = match options.segment_bytes {
        Some(given) if given.is_power_of_two() && (min..=max).contains(&given) => given,
        Some(given) => return Err(OpenError::SegmentBytes { given, min, max }),
        None => {
            let aim = (options.bytes / SEGMENTS_AIM).max(1);
            (1u64 << aim.ilog2()).clamp(u64::from(min), SEGMENT_BYTES_AUTO_MAX) as u32
        }
    };
    let segments = segments_of(options.bytes, u64::from(segment_bytes))?;
    let unnamed = |source| OpenError::Io { what: "name", path: PathBuf::new(), source };
    Ok(Header {
        version: VERSION,
        uuid: random::bytes().map_err(unnamed)?,
        purpose: purpose_bytes(options.purpose),
        segment_bytes,
        segments,
        hash_seed: random::number().map_err(unnamed)?,
        must_know: 0,
        may_ignore: 0,
    })
}
