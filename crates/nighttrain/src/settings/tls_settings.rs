//! Settings of the accelerator's TLS: the listening address, and the certificates, which each site may
//! override.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use cache::{
    Pair,
    config::{ClientCertificates, client_field},
};
use engine::tls::{CertificateSource, certificates::Certificates};

use crate::{
    failure::Fault,
    settings::{
        Section, Setting, Settings, ValueAccess, ValueShape, optional, parse_address, parse_path, path_text,
    },
};

const TLS: &str = "TLS for clients (each site may have its own certificate)";

/// Default listening address if only a certificate is configured.
const LISTEN: ([u8; 4], u16) = ([127, 0, 0, 1], 8443);

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
    const NAMES: [(Self, &str); 3] =
        [(Self::Nothing, "none"), (Self::WhatTheyHave, "asked"), (Self::ACertificate, "required")];
}

/// Settings table of TLS.
pub(crate) const TLS_SETTINGS: &[Setting] = &[
    Setting {
        key: "tls-listen",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: TLS,
        value_name: "ADDRESS",
        help: "Address for https connections; unset: 127.0.0.1:8443 if a certificate is given or obtained by ACME",
        access: optional!(tls.listen, parse = |text| parse_address(text, 8443), show = SocketAddr::to_string),
    },
    Setting {
        key: "tls-cert",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: TLS,
        value_name: "FILE",
        help: "Certificate chain (PEM), the server's own first; that of [cache] is used for names without a \
               certificate. Reloaded at SIGHUP and when the file changes",
        access: optional!(tls.cert, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tls-key",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: TLS,
        value_name: "FILE",
        help: "Private key of tls-cert (PEM)",
        access: optional!(tls.key, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tls-ocsp",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: TLS,
        value_name: "FILE",
        help: "OCSP response to staple (DER)",
        access: optional!(tls.ocsp, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tls-client-ca",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: TLS,
        value_name: "FILE",
        help: "CA certificates that sign clients' certificates (PEM); if set, clients are asked for a certificate. \
               Reloaded at SIGHUP",
        access: optional!(tls.client_ca, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tls-client",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: TLS,
        value_name: "WHAT",
        help: "Client certificates, with tls-client-ca: required (clients without one are refused), asked (optional), \
               or none; unset: required",
        access: ValueAccess {
            set: |settings, text| {
                let named = ClientCertPolicy::NAMES.into_iter().find(|(_, name)| *name == text);
                let (what, _) = named.ok_or("expected required, asked or none")?;
                settings.tls.client = Some(what);
                Ok(())
            },
            text: |settings| {
                let said = settings.tls.client?;
                ClientCertPolicy::NAMES
                    .into_iter()
                    .find(|(what, _)| *what == said)
                    .map(|(_, name)| name.to_owned())
            },
        },
    },
    Setting {
        key: "tls-client-header",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: TLS,
        value_name: "NAME",
        help: "Request header field that tells origins the subject of the client's certificate; with -Names and \
               -Fingerprint appended, its other contents. Clients cannot send these. Unset: X-Client-Cert",
        access: optional!(
            tls.client_header,
            parse = |text: &str| client_field(text).map_err(|error| error.to_string()),
            show = ToString::to_string
        ),
    },
];

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

/// TLS listening address, and the certificate files.
pub(crate) struct TlsListener {
    pub(crate) listen: SocketAddr,
    pub(crate) pairs: Vec<Pair>,
}

/// Returns the accelerator's TLS listener: the certificate of `[cache]` first, then those of the sites. The
/// list may be empty if certificates are obtained by ACME.
pub(crate) fn tls(settings: &Settings) -> Result<Option<TlsListener>, Fault> {
    let mut pairs = Vec::from_iter(settings.tls.pair()?);
    for site in &settings.sites {
        let pair = site.own(settings)?.tls.pair().map_err(|fault| Fault {
            place: site.place.clone(),
            message: format!("{}: {}", fault.place, fault.message),
        })?;
        pairs.extend(pair.filter(|pair| !pairs.contains(pair)));
    }
    let is_obtained = settings.acme.directory.is_some() || !settings.acme.domains.is_empty();
    match (pairs.is_empty() && !is_obtained, settings.tls.listen) {
        (true, None) if asks_clients(settings)? => {
            let message = "is missing; client certificates need TLS".to_owned();
            Err(Fault { place: "tls-cert".to_owned(), message })
        }
        (true, None) => Ok(None),
        (true, Some(_)) => {
            let message =
                "is missing; TLS at tls-listen needs a certificate (acme-directory and acme-domain obtain \
                           one)"
                    .to_owned();
            Err(Fault { place: "tls-cert".to_owned(), message })
        }
        (false, listen) => {
            Ok(Some(TlsListener { listen: listen.unwrap_or_else(|| SocketAddr::from(LISTEN)), pairs }))
        }
    }
}

/// Returns whether any site requests client certificates.
fn asks_clients(settings: &Settings) -> Result<bool, Fault> {
    let of_sites = settings.sites.iter().map(|site| site.own(settings).map(|own| own.tls));
    let all = [Ok(settings.tls.clone())].into_iter().chain(of_sites);
    all.map(|said| said?.client_certificates()).try_fold(false, |any, asked| Ok(any || asked?.is_some()))
}
