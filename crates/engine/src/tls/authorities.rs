//! Certificate authorities that sign clients' certificates.

use std::{path::Path, sync::Arc};

use rustls::{
    RootCertStore,
    crypto::CryptoProvider,
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use sha2::{Digest, Sha256};

use super::pem::{TlsError, certificates as read_certificates};

/// Identifier of a set of authorities: equal for the same certificates in the same order, whichever file they
/// are in. It is part of a SHA-256, so that other certificates with the same identifier cannot be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AuthoritiesId([u8; 16]);

impl AuthoritiesId {
    /// Creates an identifier that belongs to no file, for tests.
    #[must_use]
    pub fn of_test(number: u8) -> Self {
        Self([number; 16])
    }
}

/// A set of certificate authorities, given by their certificates.
#[derive(Debug, Clone)]
pub struct Authorities {
    roots: Arc<RootCertStore>,
    id: AuthoritiesId,
}

impl Authorities {
    /// Reads the certificates of the authorities from a file (PEM).
    ///
    /// # Errors
    /// Returns a [`TlsError`] that describes the problem with the file.
    pub fn read(file: &Path) -> Result<Self, TlsError> {
        let (mut roots, mut digest) = (RootCertStore::empty(), Sha256::new());
        for certificate in read_certificates(file)? {
            digest.update(certificate.len().to_be_bytes());
            digest.update(&certificate);
            roots.add(certificate).map_err(|error| TlsError::Content {
                file: file.to_owned(),
                why: format!("a certificate cannot sign clients' certificates: {error}"),
            })?;
        }
        let mut id = [0; 16];
        id.copy_from_slice(&digest.finalize()[..16]);
        Ok(Self { roots: Arc::new(roots), id: AuthoritiesId(id) })
    }

    /// Returns the identifier of this set of authorities.
    #[must_use]
    pub fn id(&self) -> AuthoritiesId {
        self.id
    }

    /// Creates the verifier of clients' certificates. Clients without a certificate are accepted unless a
    /// certificate is `required`.
    pub(super) fn verifier(
        &self,
        required: bool,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.roots), provider);
        let builder = if required { builder } else { builder.allow_unauthenticated() };
        // This fails only without any authority, and a file without one has already been refused.
        builder.build().map_err(|_| TlsError::NoAuthority)
    }
}
