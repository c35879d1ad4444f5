//! Authorities that sign clients' certificates.

use std::{path::Path, sync::Arc};

use rustls::{
    RootCertStore,
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use sha2::{Digest, Sha256};

use super::{TlsError, certificates as read_certificates, provider};

/// Identifier of a set of authorities: equal for the same certificates in the same order, in whatever file.
/// It is part of a SHA-256, so that other certificates with the same identifier cannot be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AuthoritiesId([u8; 16]);

impl AuthoritiesId {
    /// Creates an identifier that no file has, for tests.
    #[must_use]
    pub fn of_test(number: u8) -> Self {
        Self([number; 16])
    }
}

/// A set of authorities, given by their certificates.
#[derive(Debug, Clone)]
pub struct Authorities {
    roots: Arc<RootCertStore>,
    id: AuthoritiesId,
}

impl Authorities {
    /// Reads a file with their certificates (PEM).
    ///
    /// # Errors
    /// Returns a [`TlsError`] with the problem of the file.
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

    /// Returns the identifier of this set.
    #[must_use]
    pub fn id(&self) -> AuthoritiesId {
        self.id
    }

    /// Creates the verifier of clients' certificates. Clients without a certificate are accepted unless it is
    /// `required`.
    pub(super) fn verifier(&self, required: bool) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let provider = provider();
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.roots), provider);
        let builder = if required { builder } else { builder.allow_unauthenticated() };
        // This fails only without an authority, and a file without one has been refused.
        builder.build().map_err(|_| TlsError::NoAuthority)
    }
}
