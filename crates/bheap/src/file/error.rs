//! Error type for queue files, with the position, the value found and the value expected.

use std::path::{Path, PathBuf};
use std::string::String;

/// Error when a queue file is created, opened or checkpointed.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct FileError {
    /// Path of the file.
    pub path: PathBuf,
    /// Reason for the error.
    #[source]
    pub fault: Fault,
}

/// Fault in a queue file, or in an operation on it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// An operation of the operating system failed.
    #[error("cannot {doing}: {error}")]
    Io {
        /// Description of the operation.
        doing: &'static str,
        /// The operating system's error.
        #[source]
        error: std::io::Error,
    },
    /// Another process, or another handle in this one, has the file open.
    #[error("the queue file is already open; close the other user first")]
    Locked,
    /// The file is not a queue file.
    #[error(
        "not a queue file: it begins with {found:02x?}, a queue file with \"BHEAPQF\\n\"; nothing was changed"
    )]
    Foreign {
        /// The first bytes, at most eight.
        found: std::vec::Vec<u8>,
    },
    /// Both headers are empty.
    #[error(
        "the header is empty: creating the queue was interrupted, or the head of the file is lost; if nothing was \
         stored in it, delete it"
    )]
    Unfinished,
    /// The file has an unknown format version.
    #[error("format version {found}, this program reads version {known}: use the program that wrote it")]
    Version {
        /// Version of the file.
        found: u32,
        /// Version of this program.
        known: u32,
    },
    /// The file holds another kind of queue than the caller expects.
    #[error("created with {what} {found}, opened with {wanted}: open it with {found}")]
    Shape {
        /// Name of the property that differs.
        what: &'static str,
        /// Value in the file.
        found: String,
        /// Value that the caller expects.
        wanted: String,
    },
    /// The file is shorter or longer than its header says, or too short for a header.
    #[error("{found} bytes long, expected {wanted}: truncated, or not copied whole; restore it from a copy")]
    Length {
        /// The file's length in bytes.
        found: u64,
        /// Expected length in bytes.
        wanted: u64,
    },
    /// Bytes do not match their checksum.
    #[error("damaged at byte {at}: {what}; nothing was changed, restore the file from a copy")]
    Damaged {
        /// Offset of the damaged part.
        at: u64,
        /// Description of the damaged part.
        what: &'static str,
    },
    /// A queue of this size, or of these items, is impossible.
    #[error("invalid queue: {what}")]
    Impossible {
        /// The rule that is broken.
        what: &'static str,
    },
    /// The queue is full.
    #[error("the queue is full: it was created for {capacity} items")]
    Full {
        /// Capacity of the queue.
        capacity: u64,
    },
    /// A checkpoint failed earlier; the state on disk is unknown until the file is opened again.
    #[error("an earlier checkpoint failed: open the file again to return to the last complete checkpoint")]
    Failed,
}

impl Fault {
    pub(super) fn at(self, path: &Path) -> FileError {
        FileError { path: path.into(), fault: self }
    }
    pub(super) fn io(doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Io { doing, error }
    }
}

/// An item for which there was no room, and the reason; the queue is unchanged.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct PushError<T: core::fmt::Debug> {
    /// The item.
    pub item: T,
    /// Reason: the capacity is reached, the disk is full, or a checkpoint failed.
    #[source]
    pub why: FileError,
}
