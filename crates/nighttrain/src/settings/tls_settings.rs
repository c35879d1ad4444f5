//! What can be set of the accelerator's TLS: where it listens, and the certificates, of which each site may have its own.

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

/// Where the port is when only a certificate is given.
const LISTEN: ([u8; 4], u16) = ([127, 0, 0, 1], 8443);

/// What was said of TLS.
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

/// Whether clients are asked for a certificate.
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

/// The settings of TLS.
pub(crate) const TLS_SETTINGS: &[Setting] = &[
    Setting {
        key: "tls-listen",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: TLS,
        value_name: "ADDRESS",
        help: "Where clients connect by https; 127.0.0.1:8443 where only a certificate is given, or one is obtained",
        access: optional!(tls.listen, parse = |text| parse_address(text, 8443), show = SocketAddr::to_string),
    },
    Setting {
        key: "tls-cert",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: TLS,
        value_name: "FILE",
        help: "Certificates (PEM), the server's own first; that of [cache] is shown for names that no certificate has. It is \
               read again at SIGHUP, and when it changes",
        access: optional!(tls.cert, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tls-key",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: TLS,
        value_name: "FILE",
        help: "The private key of the first of them (PEM)",
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
        help: "Who signs the certificates of clients (PEM): with it, clients are asked for one. It is read again at SIGHUP",
        access: optional!(tls.client_ca, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tls-client",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: TLS,
        value_name: "WHAT",
        help: "What clients show where there is a tls-client-ca: required (who has no certificate is refused), asked (who has \
               one shows it), or none; unset: required",
        access: ValueAccess {
            set: |settings, text| {
                let named = ClientCertPolicy::NAMES.into_iter().find(|(_, name)| *name == text);
                let (what, _) = named.ok_or("clients' certificates are required, asked, or none")?;
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
        help: "The field in which origins are told the subject of a client's certificate, and, with -Names and -Fingerprint \
               behind it, what else it says; no client can send these. Unset: X-Client-Cert",
        access: optional!(
            tls.client_header,
            parse = |text: &str| client_field(text).map_err(|error| error.to_string()),
            show = ToString::to_string
        ),
    },
];

impl TlsSettings {
    /// The files of the certificate that was named, if one was.
    pub(crate) fn pair(&self) -> Result<Option<Pair>, Fault> {
        let fault = |key: &str, message: &str| Fault { place: key.to_owned(), message: message.to_owned() };
        match (&self.cert, &self.key) {
            (Some(certificates), Some(key)) => Ok(Some(Pair {
                certificates: certificates.clone(),
                key: key.clone(),
                ocsp: self.ocsp.clone(),
            })),
            (Some(_), None) => Err(fault("tls-key", "is missing; tls-cert goes with tls-key")),
            (None, Some(_)) => Err(fault("tls-cert", "is missing; tls-key goes with tls-cert")),
            (None, None) if self.ocsp.is_some() => {
                Err(fault("tls-cert", "is missing; tls-ocsp says something of it"))
            }
            (None, None) => Ok(None),
        }
    }
}

impl TlsSettings {
    /// Which certificates clients are asked for.
    pub(crate) fn client_certificates(&self) -> Result<Option<ClientCertificates>, Fault> {
        let is_required = match (self.client, &self.client_ca) {
            (Some(ClientCertPolicy::Nothing), _) | (None, None) => return Ok(None),
            (Some(what), Some(_)) => what == ClientCertPolicy::ACertificate,
            (None, Some(_)) => true,
            (Some(_), None) => {
                let message =
                    "is missing; tls-client asks for certificates, and it says who signs them".to_owned();
                return Err(Fault { place: "tls-client-ca".to_owned(), message });
            }
        };
        let Some(authorities) = self.client_ca.clone() else { return Ok(None) };
        let usual = ClientCertificates::required(authorities);
        let field = self.client_header.clone().unwrap_or_else(|| usual.field.clone());
        Ok(Some(ClientCertificates { is_required, field, ..usual }))
    }
}

/// What a server shows that may show the certificates of the process.
///
/// # Errors
/// It is to, and there are none; or it has its own.
pub(crate) fn shared_or(
    is_shared: bool,
    of_files: Option<CertificateSource>,
    shared: Option<&Arc<Certificates>>,
) -> Result<Option<CertificateSource>, Fault> {
    let fault = |message: &str| Err(Fault { place: "tls-shared".to_owned(), message: message.to_owned() });
    match (is_shared, of_files, shared) {
        (false, of_files, _) => Ok(of_files),
        (true, Some(_), _) => fault("and tls-cert: which of the two is to be shown?"),
        (true, None, Some(table)) => Ok(Some(CertificateSource::Table(Arc::clone(table)))),
        (true, None, None) => fault(
            "there are no certificates to be shared: `serve` has them, with tls-cert or acme-directory in [cache]",
        ),
    }
}

/// Where clients come by TLS, and the files of certificates.
pub(crate) struct TlsListener {
    pub(crate) listen: SocketAddr,
    pub(crate) pairs: Vec<Pair>,
}

/// The accelerator's TLS: the certificate of `[cache]` first, then those of the sites. There may be none where certificates are
/// obtained.
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
            let message = "is missing; clients show certificates under TLS alone".to_owned();
            Err(Fault { place: "tls-cert".to_owned(), message })
        }
        (true, None) => Ok(None),
        (true, Some(_)) => {
            let message = "is missing; without a certificate there is no TLS at tls-listen (acme-directory and acme-domain \
                           have one obtained)"
                .to_owned();
            Err(Fault { place: "tls-cert".to_owned(), message })
        }
        (false, listen) => {
            Ok(Some(TlsListener { listen: listen.unwrap_or_else(|| SocketAddr::from(LISTEN)), pairs }))
        }
    }
}

/// Whether a site asks its clients for certificates.
fn asks_clients(settings: &Settings) -> Result<bool, Fault> {
    let of_sites = settings.sites.iter().map(|site| site.own(settings).map(|own| own.tls));
    let all = [Ok(settings.tls.clone())].into_iter().chain(of_sites);
    all.map(|said| said?.client_certificates()).try_fold(false, |any, asked| Ok(any || asked?.is_some()))
}
