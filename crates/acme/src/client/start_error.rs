//! Reasons why the renewal of certificates cannot start.

use engine::tls::TlsError;

use crate::{ADDRESSES_MAX, NAMES_MAX, Name, files::FilesError, share::ShareError};

/// Error that prevents the client from starting.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The state directory cannot be used.
    #[error("{0}")]
    Files(#[from] FilesError),
    /// The certificates to trust for the CA's server cannot be used.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// The configuration has more than [`NAMES_MAX`] names, or [`ADDRESSES_MAX`] addresses.
    #[error(
        "too many names for certificates: {names} names, {addresses} of them addresses; at most {NAMES_MAX} and \
         {ADDRESSES_MAX} are supported"
    )]
    TooMany {
        /// Number of names.
        names: usize,
        /// Number of names that are addresses.
        addresses: usize,
    },
    /// The cluster's shared files cannot be watched.
    #[error("{0}")]
    NotShared(#[from] ShareError),
    /// The thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

pub(super) fn bounded(names: &[Name]) -> Result<(), StartError> {
    let addresses = names.iter().filter(|name| matches!(name, Name::Address(_))).count();
    if names.len() > NAMES_MAX || addresses > ADDRESSES_MAX {
        return Err(StartError::TooMany { names: names.len(), addresses });
    }
    Ok(())
}
