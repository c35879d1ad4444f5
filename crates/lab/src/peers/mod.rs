//! The servers that are compared: how each is started, plainly and fairly, and what loads it.
//!
//! The experiments about whole servers and the benches (`bench/`) share this, so that
//! a figure of one and a verdict of the other come from the same settings and the same load. Whoever is not installed
//! is named, with the command that installs it. Servers are programs: nothing here links one.

pub mod cache;
pub mod feed;
pub mod mail;

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
};

use crate::paired::tree::TreeError;

/// Who "nobody" and "nogroup" are, on every Linux: peers that would not run as root run as them.
pub const UNPRIVILEGED: u32 = 65_534;

/// Lines of a server's output that tell why it did not start.
const LAST_WORDS: usize = 5;

/// What ends a run.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The system refuses something.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A server has ended, or cannot be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// Said in full already.
    #[error("{0}")]
    Failed(String),
}

impl PeerError {
    /// In a sentence.
    pub fn failed(what: impl Into<String>) -> Self {
        Self::Failed(what.into())
    }
}

/// The last lines that a server has written to its output, in one.
#[must_use]
pub fn last_words(output: &Path) -> String {
    let said = fs::read_to_string(output).unwrap_or_default();
    let lines: Vec<&str> = said.lines().collect();
    lines[lines.len().saturating_sub(LAST_WORDS)..].join(" | ")
}

/// Makes a directory with all that is in it that of [`UNPRIVILEGED`].
///
/// # Errors
/// What the system says; only root may do that.
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
