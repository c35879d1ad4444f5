//! The servers under comparison: how each is started, with a simple and fair configuration, and what loads
//! it.
//!
//! The experiments with whole servers and the benches (`bench/`) share this module, so that a figure of an
//! experiment and a verdict of a bench come from the same settings and the same load. A missing server is
//! reported with the command that installs it. Servers are separate programs: nothing here links against one.

pub mod cache;
pub mod feed;
pub mod mail;

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
};

use crate::paired::tree::TreeError;

/// User and group id of "nobody" and "nogroup" on every Linux, used for peers that refuse to run as root.
pub const UNPRIVILEGED: u32 = 65_534;

/// Number of output lines that an error quotes when a server did not start.
const LAST_WORDS: usize = 5;

/// Error that ends a run.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A server has ended, or its usage cannot be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// Any other failure, with its complete message.
    #[error("{0}")]
    Failed(String),
}

impl PeerError {
    /// Creates [`PeerError::Failed`] with a message.
    pub fn failed(what: impl Into<String>) -> Self {
        Self::Failed(what.into())
    }
}

/// Returns the last lines of a server's output file, joined into one line.
#[must_use]
pub fn last_words(output: &Path) -> String {
    let said = fs::read_to_string(output).unwrap_or_default();
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(LAST_WORDS)..].join(" | ")
}

/// Gives a directory and its contents to the user [`UNPRIVILEGED`].
///
/// # Errors
/// The error of chown(2), which needs root, or of reading the directory.
pub fn hand_over(path: &Path) -> io::Result<()> {
    chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED))?;
    if path.is_dir() {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
        for entry in fs::read_dir(path)? {
            hand_over(&entry?.path())?;
        }
    }
    Ok(())
}
