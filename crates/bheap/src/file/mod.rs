//! A page queue in a mapped file: larger than memory, and there again after a restart.
//!
//! The format is written down byte by byte in `docs/formats/queue.md`. In short:
//!
//! ```text
//!   page 0, page 1   two superblocks, written in turn
//!   page 2 …         blocks of items, and the catalogue of the last commit
//! ```
//! A block that the last commit refers to is never written again before the next: who wants to change it gets
//! a copy. So at any moment the file holds the state of the last [`FileQueue::commit`], whole, beside what has
//! happened since; a crash of the process or of the machine returns to it. That is the named point: between
//! commits nothing is promised, and after one everything is.
//!
//! Items are written as the bytes that they are in memory (`bytemuck::Pod`): a file is for machines of the same
//! byte order, which it says.

mod blocks;
mod rows;

pub use blocks::FileBlocks;
pub use rows::MappedRows;

use crate::page_queue::PageQueue;
use crate::rows::Full;
use bytemuck::Pod;
use std::path::Path;
use std::string::String;

/// Why a queue file cannot be used.
#[derive(Debug)]
pub enum FileError {
    /// The operating system refused.
    Io(std::io::Error),
    /// The file is no queue, or its beginning has been overwritten.
    NotAQueue,
    /// The file is a queue of another version of the format.
    OtherVersion(u32),
    /// The file holds items of another size, pages of another size, or has another tag: what differs.
    OtherKind(String),
    /// A part does not have the checksum that it had when it was written.
    Damaged(String),
    /// Another process has the file open.
    InUse,
    /// The page size is none.
    PageSize(crate::layout::PageSizeError),
    /// The disk or the file's own limit is full.
    Full,
}

impl core::fmt::Display for FileError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the queue's file: {error}"),
            Self::NotAQueue => f.write_str("the file is not a queue, or its beginning was overwritten"),
            Self::OtherVersion(version) => {
                write!(f, "the file is a queue of format version {version}, not 1")
            }
            Self::OtherKind(what) => write!(f, "the file is a queue of another kind: {what}"),
            Self::Damaged(what) => write!(f, "the file is damaged: {what}"),
            Self::InUse => f.write_str("another process has the queue's file open"),
            Self::PageSize(error) => error.fmt(f),
            Self::Full => f.write_str("there is no room for the queue's file to grow"),
        }
    }
}

impl core::error::Error for FileError {}

impl From<std::io::Error> for FileError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<rustix::io::Errno> for FileError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Io(error.into())
    }
}

/// What a queue file is made for.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Bytes of a block: a power of two, at least the machine's page (4,096).
    pub page_bytes: usize,
    /// The file never grows beyond this; the address space is reserved at once.
    pub bytes_max: usize,
    /// Pages of memory that the queue may expect; see [`PageQueue::with_memory`].
    pub memory_pages: usize,
    /// A number of your own, checked on opening: which kind of items these are.
    pub tag: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Self { page_bytes: 4096, bytes_max: 1 << 34, memory_pages: 64, tag: 0 }
    }
}

/// A priority queue in a file.
#[derive(Debug)]
pub struct FileQueue<T: Pod + Ord> {
    queue: PageQueue<T, FileBlocks<T>>,
}

impl<T: Pod + Ord> FileQueue<T> {
    /// Makes a new, empty queue at `path`, and commits it.
    ///
    /// # Errors
    /// If there is a file already, the shape is odd, or the disk refuses.
    pub fn create(path: &Path, shape: Shape) -> Result<Self, FileError> {
        let blocks = FileBlocks::create(path, shape)?;
        let mut queue = Self { queue: PageQueue::with_store(blocks, fan_out(shape)) };
        queue.commit()?;
        Ok(queue)
    }

    /// Opens the queue at `path` as its last commit left it. Every block's checksum is compared.
    ///
    /// # Errors
    /// If the file is no queue of this shape, damaged, or in use. The file is not changed.
    pub fn open(path: &Path, shape: Shape) -> Result<Self, FileError> {
        let (blocks, state) = FileBlocks::open(path, shape)?;
        Ok(Self {
            queue: PageQueue::restore(blocks, &state, fan_out(shape))
                .ok_or_else(|| FileError::Damaged("the queue's lists".into()))?,
        })
    }

    /// Makes everything so far durable: whatever happens from now on, the file can be opened as it is now.
    ///
    /// # Errors
    /// If the disk refuses; the last commit then still holds, and this one may be tried again.
    pub fn commit(&mut self) -> Result<(), FileError> {
        let state = self.queue.save();
        self.queue.store_mut().commit(&state)
    }

    /// Adds an item, or gives it back if the file cannot grow. A commit may make room.
    ///
    /// # Errors
    /// [`Full`] with the item.
    pub fn try_push(&mut self, item: T) -> Result<(), Full<T>> {
        // More than `pop` asks for: what has gone in can come out.
        if !self.queue.store_mut().has_room(2) {
            return Err(Full(item));
        }
        self.queue.try_push(item)
    }

    /// Takes the smallest item.
    ///
    /// # Errors
    /// [`FileError::Full`] if there is no room to move items about: what the last commit refers to is not
    /// overwritten, so that removing too needs room until the next commit, which frees it.
    pub fn pop(&mut self) -> Result<Option<T>, FileError> {
        if !self.queue.is_empty() && !self.queue.store_mut().has_room(1) {
            return Err(FileError::Full);
        }
        Ok(self.queue.pop())
    }

    /// The smallest item.
    #[must_use]
    pub fn peek(&self) -> Option<&T> {
        self.queue.peek()
    }

    /// How many items there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Calls `look` with each item, in no particular order.
    pub fn for_each(&self, look: impl FnMut(&T)) {
        self.queue.for_each(look);
    }
}

fn fan_out(shape: Shape) -> usize {
    (shape.memory_pages / 4).clamp(4, 16)
}
