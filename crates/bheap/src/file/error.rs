//! What can be wrong with a queue file: one type that says where, what was found, and what would be right.

use std::path::{Path, PathBuf};
use std::string::String;

/// A queue file cannot be made, opened or brought to a safe point.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct FileError {
    /// Which file.
    pub path: PathBuf,
    /// What is wrong with it.
    #[source]
    pub fault: Fault,
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The operating system refused.
    #[error("cannot {doing}: {error}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The system's word.
        #[source]
        error: std::io::Error,
    },
    /// Another process, or another handle in this one, has the file open.
    #[error("the queue is open elsewhere; a queue file has one user at a time: close the other")]
    Locked,
    /// Not a file of ours.
    #[error("not a queue file: it begins with {found:02x?}, a queue file with \"BHEAPQF\\n\"; left as it is")]
    Foreign {
        /// The first bytes, at most eight.
        found: std::vec::Vec<u8>,
    },
    /// Both headers are empty.
    #[error(
        "the header is empty: making the queue was interrupted, or the head of the file is lost; if nothing was stored in it, delete it"
    )]
    Unfinished,
    /// A format that this version does not know.
    #[error("format version {found}, this program reads version {known}: use the program that wrote it")]
    Version {
        /// The file's.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// The file holds another kind of queue than was asked for.
    #[error("made with {what} {found}, opened with {wanted}: open it with {found}")]
    Shape {
        /// Which property.
        what: &'static str,
        /// The file's.
        found: String,
        /// The caller's.
        wanted: String,
    },
    /// The file is shorter or longer than its header says, or too short for a header.
    #[error("{found} bytes long, expected {wanted}: truncated, or not copied whole; restore it from a copy")]
    Length {
        /// The file's length in bytes.
        found: u64,
        /// What it should be.
        wanted: u64,
    },
    /// Bytes that do not fit their checksum.
    #[error("damaged at byte {at}: {what}; nothing was changed, restore the file from a copy")]
    Damaged {
        /// Where the damaged part begins.
        at: u64,
        /// Which part.
        what: &'static str,
    },
    /// A queue of this size or these items cannot be.
    #[error("no such queue can be: {what}")]
    Impossible {
        /// Which rule is broken.
        what: &'static str,
    },
    /// The queue holds as many items as it was made for.
    #[error("the queue was made for {capacity} items and holds them all")]
    Full {
        /// Its capacity.
        capacity: u64,
    },
    /// A checkpoint failed earlier; what the disk holds is not known until the file is opened again.
    #[error(
        "an earlier checkpoint failed: open the file again, the last checkpoint that is whole comes back"
    )]
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

/// An item that found no room, and why; the queue is as it was.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct PushError<T: core::fmt::Debug> {
    /// The item.
    pub item: T,
    /// Why there is no room: the capacity is reached, the disk is full, a checkpoint failed.
    #[source]
    pub why: FileError,
}
