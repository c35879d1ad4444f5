//! Reasons why the accelerator cannot start.

use std::io;

use engine::{
    cores::{self},
    store::{StoreError, tier::OpenOnFileError},
    tls::TlsError,
};

use crate::{
    core::memory_need::TooLittleMemory, head::response_head::InvalidName, origin::SetUpError,
    purging::purge_log::PurgesError, site::SitesError,
};

/// Error of a failed start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be listened on; the error names it.
    #[error("{0}")]
    Listen(io::Error),
    /// The certificates or keys are unusable.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// The name is not valid in Via and Cache-Status.
    #[error("invalid server name: {0}")]
    Name(#[from] InvalidName),
    /// The sites' definitions conflict with each other.
    #[error("invalid sites: {0}")]
    Sites(#[from] SitesError),
    /// The client side for an origin cannot be set up.
    #[error("{0}")]
    Origin(#[from] SetUpError),
    /// The store cannot be set up.
    #[error("cannot set up the store: {0}")]
    Store(#[from] StoreError),
    /// The store's file cannot be opened.
    #[error("cannot set up the store: {0}")]
    File(#[from] OpenOnFileError),
    /// The purge log next to the store's file cannot be used.
    #[error("{0}")]
    Purges(#[from] PurgesError),
    /// The store needs more memory than the process may use.
    #[error("cannot set up the store: {0}")]
    Memory(#[from] TooLittleMemory),
    /// The helper threads that read the store's file cannot be started.
    #[error("cannot set up the store: {0}")]
    Reads(#[from] engine::io::StartError),
    /// The processors, or the wake-up handles of the loops, are not available.
    #[error("cannot prepare the event loops: {0}")]
    Prepare(io::Error),
    /// The loops cannot be started.
    #[error("cannot start the event loops: {0}")]
    Cores(#[from] cores::run::StartError),
}
