//! The certificates of a process, and the choice of the one that is presented to a client.
//!
//! ```text
//!   the server name that a client sends ─▶ exactly that name ─ else "*." and all but its first label ─ else the first
//!   no name: the client uses an address ─▶ the first for an address                                  ─ else the first
//! ```
//! The names are those in the certificates. Certificates from files come first; the others were obtained from
//! an authority (ACME). All cores of all servers read one table, which a reload replaces as a whole: a
//! handshake takes a reference to the table under a lock that is held only for that moment.

#![expect(
    clippy::disallowed_types,
    reason = "a handshake takes it once, for as long as a count goes up, beside 250 µs of arithmetic"
)]

use std::{
    collections::HashMap,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use x509_parser::{extensions::GeneralName, prelude::FromDer};

use super::pem::{TlsError, certificates as read_chain, wrong};

/// Files of one certificate: its chain, its private key, and optionally an OCSP response.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Pair {
    /// The certificate chain, with the server's own certificate first (PEM).
    pub certificates: PathBuf,
    /// Private key of the first certificate in the chain (PEM).
    pub key: PathBuf,
    /// OCSP response of the authority for stapling (RFC 6960, DER).
    pub ocsp: Option<PathBuf>,
}

/// A server certificate with its chain and its private key.
#[derive(Debug, Clone)]
pub struct Certificate {
    shown: Arc<CertifiedKey>,
    names: Vec<Box<str>>,
    addresses: Vec<IpAddr>,
    /// Start of validity in seconds since the UNIX epoch.
    pub from_s: i64,
    /// End of validity in seconds since the UNIX epoch.
    pub until_s: i64,
}

impl Certificate {
    /// Reads a certificate from a pair of files.
    ///
    /// # Errors
    /// Returns a [`TlsError`] that names the file and the problem.
    pub fn read(pair: &Pair) -> Result<Self, TlsError> {
        let chain = read_chain(&pair.certificates)?;
        let key = PrivateKeyDer::from_pem_file(&pair.key)
            .map_err(|error| wrong(&pair.key, error, "no private key in it (PEM)"))?;
        let ocsp = pair.ocsp.as_deref().map(read_ocsp).transpose()?;
        Self::new(chain, &key, ocsp).map_err(|why| match why {
            CertificateFault::Key(why) => {
                TlsError::Pair { certificates: pair.certificates.clone(), key: pair.key.clone(), why }
            }
            CertificateFault::Certificate(why) => {
                TlsError::Content { file: pair.certificates.clone(), why: why.to_owned() }
            }
        })
    }

    /// Parses a PEM text that contains both the chain and the private key of its first certificate.
    ///
    /// # Errors
    /// Returns a [`CertificateFault`] if chain and key do not match, or are not valid.
    pub fn from_pem(text: &[u8]) -> Result<Self, CertificateFault> {
        let chain = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|_| CertificateFault::Certificate("not in PEM format"))?;
        let key = PrivateKeyDer::from_pem_slice(text);
        let key = key.map_err(|_| CertificateFault::Certificate("no private key in it (PEM)"))?;
        Self::new(chain, &key, None)
    }

    /// Creates a certificate from a chain and the key of its first certificate.
    ///
    /// # Errors
    /// Returns a [`CertificateFault`] if chain and key do not match, or are not valid.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: &PrivateKeyDer<'_>,
        ocsp: Option<Vec<u8>>,
    ) -> Result<Self, CertificateFault> {
        let signing =
            rustls::crypto::aws_lc_rs::sign::any_supported_type(key).map_err(CertificateFault::Key)?;
        let first = chain.first().ok_or(CertificateFault::Certificate("no certificate in it (PEM)"))?;
        let (_, parsed) = x509_parser::certificate::X509Certificate::from_der(first)
            .map_err(|_| CertificateFault::Certificate("invalid first certificate (X.509)"))?;
        let (mut names, mut addresses) = (Vec::new(), Vec::new());
        if let Ok(Some(listed)) = parsed.subject_alternative_name() {
            for name in &listed.value.general_names {
                match name {
                    GeneralName::DNSName(name) => names.push(name.to_ascii_lowercase().into()),
                    GeneralName::IPAddress(bytes) => addresses.extend(address_of(bytes)),
                    _ => {}
                }
            }
        }
        let (from_s, until_s) =
            (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp());
        let shown = CertifiedKey { cert: chain, key: signing, ocsp };
        shown.keys_match().map_err(CertificateFault::Key)?;
        Ok(Self { shown: Arc::new(shown), names, addresses, from_s, until_s })
    }

    /// Returns whether the certificate covers this host, which is a name (case-insensitive) or an IP address.
    #[must_use]
    pub fn covers(&self, host: &str) -> bool {
        if let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
            return self.addresses.contains(&address);
        }
        let is_parent = |name: &str| {
            let parent = name.strip_prefix('*').filter(|parent| parent.starts_with('.'));
            parent.is_some_and(|parent| {
                parent_of(host).is_some_and(|of_host| of_host.eq_ignore_ascii_case(parent))
            })
        };
        self.names.iter().any(|name| name.eq_ignore_ascii_case(host) || is_parent(name))
    }

    /// Returns the host names in the certificate, in lower case.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(AsRef::as_ref)
    }

    /// Returns the IP addresses in the certificate.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().copied()
    }

    /// Returns the server's own certificate (DER), the first of the chain.
    #[must_use]
    pub fn own(&self) -> &CertificateDer<'static> {
        // The chain has a first certificate, because `new` refuses an empty chain.
        &self.shown.cert[0]
    }
}

/// Reasons why a chain and a key cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum CertificateFault {
    /// The key is not valid, or does not match the certificate.
    #[error("{0}")]
    Key(rustls::Error),
    /// The certificate is not valid.
    #[error("{0}")]
    Certificate(&'static str),
}

fn read_ocsp(path: &Path) -> Result<Vec<u8>, TlsError> {
    let file = path.to_owned();
    match std::fs::read(path) {
        // An OCSPResponse is a SEQUENCE (RFC 6960 §4.2.1); a file in PEM format is a common mistake.
        Ok(read) if read.first() == Some(&0x30) => Ok(read),
        Ok(_) => Err(TlsError::Content {
            file,
            why: "not an OCSP response in DER, as `openssl ocsp -respout` writes it".to_owned(),
        }),
        Err(why) => Err(TlsError::Unreadable { file, why }),
    }
}

pub(super) fn address_of(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

/// Returns the part of a host name after the first label, including the dot.
fn parent_of(host: &str) -> Option<&str> {
    host.find('.').filter(|dot| *dot > 0).map(|dot| &host[dot..])
}

/// Table of all certificates of a process.
#[derive(Debug)]
pub struct Certificates {
    table: RwLock<Arc<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    /// Certificates from files, followed by those obtained from an authority (ACME).
    all: Vec<Arc<Certificate>>,
    /// Number of certificates that come from files.
    of_files: usize,
    /// Indices of certificates by host name in lower case; a wildcard is stored under its parent, with the
    /// dot.
    places: HashMap<Box<str>, usize>,
    /// Index of the first certificate that covers an IP address.
    of_address: Option<usize>,
}

impl Table {
    fn new(of_files: &[Arc<Certificate>], obtained: &[Arc<Certificate>]) -> Self {
        let all: Vec<_> = of_files.iter().chain(obtained).cloned().collect();
        let mut places = HashMap::new();
        for (place, certificate) in all.iter().enumerate() {
            for name in &certificate.names {
                let name = name.strip_prefix('*').unwrap_or(name);
                // If several certificates have the same name, the first is served for it.
                places.entry(name.into()).or_insert(place);
            }
        }
        let of_address = all.iter().position(|certificate| !certificate.addresses.is_empty());
        Self { all, of_files: of_files.len(), places, of_address }
    }

    fn of(&self, name: Option<&str>) -> Option<&Arc<Certificate>> {
        let place = match name {
            Some(name) => {
                let name = name.to_ascii_lowercase();
                self.places.get(name.as_str()).or_else(|| self.places.get(parent_of(&name)?)).copied()
            }
            // A client that connects to an IP address sends no server name (RFC 6066 §3).
            None => self.of_address,
        };
        self.all.get(place.unwrap_or(0))
    }
}

impl Certificates {
    /// Creates a table of certificates from files; the first is served to clients that request an unknown
    /// name.
    #[must_use]
    pub fn new(of_files: &[Arc<Certificate>]) -> Self {
        Self { table: RwLock::new(Arc::new(Table::new(of_files, &[]))) }
    }

    /// Replaces the certificates from files. Existing connections continue.
    pub fn replace(&self, of_files: &[Arc<Certificate>]) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        *table = Arc::new(Table::new(of_files, &table.all[table.of_files..]));
    }

    /// Replaces the certificates obtained from an authority (ACME). Existing connections continue.
    pub fn replace_obtained(&self, obtained: &[Arc<Certificate>]) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        *table = Arc::new(Table::new(&table.all[..table.of_files], obtained));
    }

    /// Returns all certificates, those from files first.
    pub fn all(&self) -> Vec<Arc<Certificate>> {
        self.table().all.clone()
    }

    /// Returns the certificates from files.
    pub fn of_files(&self) -> Vec<Arc<Certificate>> {
        let table = self.table();
        table.all[..table.of_files].to_vec()
    }

    /// Returns the certificate for a client that requests this server name.
    pub fn of(&self, name: Option<&str>) -> Option<Arc<Certificate>> {
        self.table().of(name).cloned()
    }

    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Two tables are equal only if they are the same object.
impl PartialEq for Certificates {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Certificates {}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.table().of(hello.server_name()).map(|certificate| Arc::clone(&certificate.shown))
    }
}
