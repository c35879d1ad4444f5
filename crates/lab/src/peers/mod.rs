//! The servers that are compared: how each is started, plainly and fairly, and what loads it.
//!
//! The benches (`bench-cache`, `bench-feed`, `bench-mail`) and the experiments about whole servers share this, so that a
//! figure of one and a verdict of the other come from the same settings and the same load. Whoever is not installed is
//! named, with the command that installs it. Servers are programs: nothing here links one.

pub mod cache;
pub mod feed;
pub mod mail;

use std::io;

use crate::paired::tree::TreeError;

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
