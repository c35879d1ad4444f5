//! The other side: what connects by TLS, and whom it trusts.

use std::{path::Path, sync::Arc};

pub use rustls::pki_types::ServerName;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
pub use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{TlsError, certificates, provider, wrong};

/// What a client shows, and whom it trusts.
#[derive(Debug, Clone, Copy, Default)]
pub struct TlsClientOptions<'a> {
    /// Who vouches for servers (PEM); `None`: whom the system trusts.
    pub authorities: Option<&'a Path>,
    /// Its certificate (PEM) with the certificate's key (PEM), for servers that ask for one.
    pub pair: Option<(&'a Path, &'a Path)>,
    /// What may be spoken above TLS (ALPN), the best first; none: nothing is said of it.
    pub protocols: &'a [&'a [u8]],
}

/// The certificates (DER) of those whom a client trusts: of a file (PEM), each of which must be usable, else whom the system
/// trusts.
///
/// # Errors
/// [`TlsError`]; nobody is trusted where the system names no authorities.
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

/// What connects by TLS 1.2 and 1.3 and verifies each server: its certificate, and that this is for the name that was asked for.
/// Sessions are resumed.
///
/// # Errors
/// [`TlsError`]; nobody is trusted where the system names no authorities.
pub fn connector(shown: TlsClientOptions<'_>) -> Result<TlsConnector, TlsError> {
    let mut roots = RootCertStore::empty();
    // Some of a system's may be such as rustls does not take.
    roots.add_parsable_certificates(trusted(shown.authorities)?);
    let builder = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = builder.with_root_certificates(roots);
    let mut config = match shown.pair {
        None => builder.with_no_client_auth(),
        Some((file, key_file)) => {
            let chain = certificates(file)?;
            let key = PrivateKeyDer::from_pem_file(key_file)
                .map_err(|error| wrong(key_file, error, "there is no private key in it (PEM)"))?;
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
