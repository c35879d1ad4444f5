//! What can be set of the accelerator's TLS: where it listens, and the certificates, of which each site may have its own.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use cache::Pair;
use engine::tls::{Shown, certificates::Certificates};

use crate::{
    failure::Fault,
    settings::{Section, Setting, Settings, Shape, optional, parse_address, parse_path, path_text},
};

const TLS: &str = "TLS for clients (each site may have its own certificate)";

/// Where the port is when only a certificate is given.
const LISTEN: ([u8; 4], u16) = ([127, 0, 0, 1], 8443);

/// What was said of TLS.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TlsSaid {
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) cert: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
    pub(crate) ocsp: Option<PathBuf>,
}

/// The settings of TLS.
pub(crate) const TLS_SETTINGS: &[Setting] = &[
    Setting {
        key: "tls-listen",
        section: Section::Cache,
        shape: Shape::Text,
        heading: TLS,
        value_name: "ADDRESS",
        help: "Where clients connect by https; 127.0.0.1:8443 where only a certificate is given, or one is obtained",
        access: optional!(tls.listen, parse = |text| parse_address(text, 8443), show = SocketAddr::to_string),
    },
    Setting {
        key: "tls-cert",
        section: Section::Cache,
        shape: Shape::Text,
        heading: TLS,
        value_name: "FILE",
        help: "Certificates (PEM), the server's own first; that of [cache] is shown for names that no certificate has. It is \
               read again at SIGHUP, and when it changes",
        access: optional!(tls.cert, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tls-key",
        section: Section::Cache,
        shape: Shape::Text,
        heading: TLS,
        value_name: "FILE",
        help: "The private key of the first of them (PEM)",
        access: optional!(tls.key, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tls-ocsp",
        section: Section::Cache,
        shape: Shape::Text,
        heading: TLS,
        value_name: "FILE",
        help: "What its authority says of it (an OCSP response in DER), to be stapled",
        access: optional!(tls.ocsp, parse = parse_path, show = path_text),
    },
];

impl TlsSaid {
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

/// What a server shows that may show the certificates of the process.
///
/// # Errors
/// It is to, and there are none; or it has its own.
pub(crate) fn shared_or(
    is_shared: bool,
    of_files: Option<Shown>,
    shared: Option<&Arc<Certificates>>,
) -> Result<Option<Shown>, Fault> {
    let fault = |message: &str| Err(Fault { place: "tls-shared".to_owned(), message: message.to_owned() });
    match (is_shared, of_files, shared) {
        (false, of_files, _) => Ok(of_files),
        (true, Some(_), _) => fault("and tls-cert: which of the two is to be shown?"),
        (true, None, Some(table)) => Ok(Some(Shown::Table(Arc::clone(table)))),
        (true, None, None) => fault(
            "there are no certificates to be shared: `serve` has them, with tls-cert or acme-directory in [cache]",
        ),
    }
}

/// Where clients come by TLS, and the files of certificates.
pub(crate) struct TlsFound {
    pub(crate) listen: SocketAddr,
    pub(crate) pairs: Vec<Pair>,
}

/// The accelerator's TLS: the certificate of `[cache]` first, then those of the sites. There may be none where certificates are
/// obtained.
pub(crate) fn tls(settings: &Settings) -> Result<Option<TlsFound>, Fault> {
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
        (true, None) => Ok(None),
        (true, Some(_)) => {
            let message = "is missing; without a certificate there is no TLS at tls-listen (acme-directory and acme-domain \
                           have one obtained)"
                .to_owned();
            Err(Fault { place: "tls-cert".to_owned(), message })
        }
        (false, listen) => {
            Ok(Some(TlsFound { listen: listen.unwrap_or_else(|| SocketAddr::from(LISTEN)), pairs }))
        }
    }
}
