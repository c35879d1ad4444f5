//! PEM files, and the errors of those that cannot be used.

use std::path::{Path, PathBuf};

use rustls::pki_types::{CertificateDer, pem, pem::PemObject};

/// Reasons why certificates or keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}: {why}", file.display())]
    Unreadable {
        /// Path of the file.
        file: PathBuf,
        /// Error returned by the system.
        why: std::io::Error,
    },
    /// A file has unexpected content.
    #[error("{}: {why}", file.display())]
    Content {
        /// Path of the file.
        file: PathBuf,
        /// Description of the problem.
        why: String,
    },
    /// The certificate and its key do not match, or cannot be served.
    #[error("{} with {}: {why}", certificates.display(), key.display())]
    Pair {
        /// File of the certificate.
        certificates: PathBuf,
        /// File of the key.
        key: PathBuf,
        /// Error that rustls reported for the pair.
        why: rustls::Error,
    },
    /// The TLS library refuses the configuration.
    #[error("{0}")]
    Rustls(#[from] rustls::Error),
    /// Clients must be verified, but no authority is configured.
    #[error("client verification needs the CA certificates that sign clients' certificates")]
    NoAuthority,
    /// Servers must be verified, but the system has no trusted authorities.
    #[error("the system has no CA certificates (Debian: ca-certificates); name a file with some")]
    NobodyTrusted,
}

pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let none = "no certificate in it (PEM)";
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if certificates.is_empty() => {
            Err(TlsError::Content { file: path.to_owned(), why: none.to_owned() })
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(wrong(path, error, none)),
    }
}

pub(super) fn wrong(path: &Path, error: pem::Error, none: &str) -> TlsError {
    let file = path.to_owned();
    match error {
        pem::Error::Io(why) => TlsError::Unreadable { file, why },
        pem::Error::NoItemsFound => TlsError::Content { file, why: none.to_owned() },
        other => TlsError::Content { file, why: format!("not in PEM: {other}") },
    }
}
