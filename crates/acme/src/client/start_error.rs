//! Reasons why automatic certificates cannot start.

use crate::{ADDRESSES_MAX, NAMES_MAX, Name, files::FilesError, share::ShareError};
use engine::tls::TlsError;

/// Why nothing can be obtained.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The state directory cannot be used.
    #[error("{0}")]
    Files(#[from] FilesError),
    /// Nobody vouches for the CA's server.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// More than [`NAMES_MAX`] names, or [`ADDRESSES_MAX`] addresses.
    #[error(
        "certificates for {names} names, {addresses} of which are addresses: at most {NAMES_MAX} and {ADDRESSES_MAX} are obtained"
    )]
    TooMany {
        /// How many names.
        names: usize,
        /// How many of them are addresses.
        addresses: usize,
    },
    /// What other instances have cannot be followed.
    #[error("{0}")]
    NotShared(#[from] ShareError),
    /// There is no thread to be had.
    #[error("no thread can be started: {0}")]
    Thread(std::io::Error),
}

pub(super) fn bounded(names: &[Name]) -> Result<(), StartError> {
    let addresses = names.iter().filter(|name| matches!(name, Name::Address(_))).count();
    if names.len() > NAMES_MAX || addresses > ADDRESSES_MAX {
        return Err(StartError::TooMany { names: names.len(), addresses });
    }
    Ok(())
}
