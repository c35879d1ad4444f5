//! The TLS client: connecting to servers, and verifying their certificates.

use std::{path::Path, sync::Arc};

pub use rustls::pki_types::ServerName;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
pub use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{
    pem::{TlsError, certificates, wrong},
    provider,
};

/// Options of a TLS client: its certificate, and the authorities that it trusts.
#[derive(Debug, Clone, Copy, Default)]
pub struct TlsClientOptions<'a> {
    /// File with the authorities that may sign servers' certificates (PEM); `None`: those that the system
    /// trusts.
    pub authorities: Option<&'a Path>,
    /// Files of the client certificate (PEM) and its key (PEM), for servers that request a certificate.
    pub pair: Option<(&'a Path, &'a Path)>,
    /// Protocols to offer by ALPN, the preferred one first; if empty, ALPN is not sent.
    pub protocols: &'a [&'a [u8]],
}

/// Returns the certificates (DER) of the authorities that a client trusts: those in a file (PEM), all of
/// which must be usable, or else those that the system trusts.
///
/// # Errors
/// Returns a [`TlsError`] if the file cannot be used; [`TlsError::NobodyTrusted`] if the system has no
/// authorities.
pub fn trusted(authorities: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let Some(file) = authorities else {
        let of_system = rustls_native_certs::load_native_certs().certs;
        return if of_system.is_empty() { Err(TlsError::NobodyTrusted) } else { Ok(of_system) };
    };
    let read = certificates(file)?;
    let mut roots = RootCertStore::empty();
    for certificate in &read {
        let content =
            |error: rustls::Error| TlsError::Content { file: file.to_owned(), why: error.to_string() };
        roots.add(certificate.clone()).map_err(content)?;
    }
    Ok(read)
}

/// Creates a connector for TLS 1.2 and 1.3. For each server it verifies the certificate, and that the
/// certificate covers the requested name. Sessions are resumed.
///
/// # Errors
/// Returns a [`TlsError`] if a file cannot be used; [`TlsError::NobodyTrusted`] if the system has no
/// authorities.
pub fn connector(shown: TlsClientOptions<'_>) -> Result<TlsConnector, TlsError> {
    let mut roots = RootCertStore::empty();
    // Certificates that rustls does not accept are skipped; some systems have such certificates.
    roots.add_parsable_certificates(trusted(shown.authorities)?);
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = builder.with_root_certificates(roots);
    let mut config = match shown.pair {
        None => builder.with_no_client_auth(),
        Some((file, key_file)) => {
            let chain = certificates(file)?;
            let key = PrivateKeyDer::from_pem_file(key_file)
                .map_err(|error| wrong(key_file, error, "no private key in it (PEM)"))?;
            builder.with_client_auth_cert(chain, key).map_err(|why| TlsError::Pair {
                certificates: file.to_owned(),
                key: key_file.to_owned(),
                why,
            })?
        }
    };
    config.alpn_protocols = shown.protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(TlsConnector::from(Arc::new(config)))
}
