//! Settings of the accelerator's TLS as they are configured, and the choice of a server's certificates.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use cache::{Pair, config::ClientCertificates};
use engine::tls::{CertificateSource, certificates::Certificates};

use crate::failure::Fault;

/// Configured settings of TLS.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TlsSettings {
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) ocsp: Option<PathBuf>,
    pub(crate) client_ca: Option<PathBuf>,
    pub(crate) client: Option<ClientCertPolicy>,
    pub(crate) client_header: Option<Box<str>>,
}

/// Policy of client certificates: not requested, requested, or required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientCertPolicy {
    Nothing,
    WhatTheyHave,
    ACertificate,
}

impl ClientCertPolicy {
    /// Policies, each with its name.
    pub(super) const NAMES: [(&'static str, Self); 3] =
        [("required", Self::ACertificate), ("asked", Self::WhatTheyHave), ("none", Self::Nothing)];
}

impl TlsSettings {
    /// Returns the files of the configured certificate, if there is one.
    pub(crate) fn pair(&self) -> Result<Option<Pair>, Fault> {
        let fault = |key: &str, message: &str| Fault { place: key.to_owned(), message: message.to_owned() };
        match (&self.cert, &self.key) {
            (Some(certificates), Some(key)) => Ok(Some(Pair {
                certificates: certificates.clone(),
                key: key.clone(),
                ocsp: self.ocsp.clone(),
            })),
            (Some(_), None) => Err(fault("tls-key", "is missing; tls-cert needs tls-key")),
            (None, Some(_)) => Err(fault("tls-cert", "is missing; tls-key needs tls-cert")),
            (None, None) if self.ocsp.is_some() => Err(fault("tls-cert", "is missing; tls-ocsp needs it")),
            (None, None) => Ok(None),
        }
    }
}

impl TlsSettings {
    /// Returns the rules for client certificates; `None` if none are requested.
    pub(crate) fn client_certificates(&self) -> Result<Option<ClientCertificates>, Fault> {
        let is_required = match (self.client, &self.client_ca) {
            (Some(ClientCertPolicy::Nothing), _) | (None, None) => return Ok(None),
            (Some(what), Some(_)) => what == ClientCertPolicy::ACertificate,
            (None, Some(_)) => true,
            (Some(_), None) => {
                let message =
                    "is missing; tls-client needs it, the CA certificates that sign clients' certificates"
                        .to_owned();
                return Err(Fault { place: "tls-client-ca".to_owned(), message });
            }
        };
        let Some(authorities) = self.client_ca.clone() else { return Ok(None) };
        let usual = ClientCertificates::required(authorities);
        let field = self.client_header.clone().unwrap_or_else(|| usual.field.clone());
        Ok(Some(ClientCertificates { is_required, field, ..usual }))
    }
}

/// Returns the certificate source of a server that may use the certificates of the process.
///
/// # Errors
/// Returns a `Fault` if the server is to use the shared certificates and there are none, or if it has its own
/// as well.
pub(crate) fn shared_or(
    is_shared: bool,
    of_files: Option<CertificateSource>,
    shared: Option<&Arc<Certificates>>,
) -> Result<Option<CertificateSource>, Fault> {
    let fault = |message: &str| Err(Fault { place: "tls-shared".to_owned(), message: message.to_owned() });
    match (is_shared, of_files, shared) {
        (false, of_files, _) => Ok(of_files),
        (true, Some(_), _) => fault("must not be set together with tls-cert: choose one"),
        (true, None, Some(table)) => Ok(Some(CertificateSource::Table(Arc::clone(table)))),
        (true, None, None) => {
            fault("no certificates to share: `serve` has them, with tls-cert or acme-directory in [cache]")
        }
    }
}
