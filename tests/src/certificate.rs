//! Certificates made for a test.

use std::{cell::Cell, fs, path::PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, date_time_ymd,
};

/// A self-signed certificate and its key, as files.
#[derive(Debug)]
pub struct Certificate {
    directory: tempfile::TempDir,
}

impl Certificate {
    /// Makes a certificate for these names.
    ///
    /// # Panics
    /// When the certificate cannot be made or written.
    #[must_use]
    pub fn of(names: &[&str]) -> Self {
        let made = Self { directory: tempfile::tempdir().expect("a temporary directory") };
        made.renew(names);
        made
    }

    /// Replaces the certificate and the key in the same files.
    ///
    /// # Panics
    /// When the certificate cannot be made or written.
    pub fn renew(&self, names: &[&str]) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        fs::write(self.key(), made.signing_key.serialize_pem()).expect("written");
        fs::write(self.file(), made.cert.pem()).expect("written");
    }

    /// Path of the certificate.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("cert.pem")
    }

    /// Path of the key.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.directory.path().join("key.pem")
    }
}

/// A certificate authority that signs client certificates.
pub struct Authority {
    directory: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
    count: Cell<usize>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("file", &self.file()).finish_non_exhaustive()
    }
}

impl Authority {
    /// Makes an authority of this name.
    ///
    /// # Panics
    /// When its certificate cannot be made or written.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let made = params.self_signed(&key).expect("a certificate");
        fs::write(directory.path().join("ca.pem"), made.pem()).expect("written");
        Self { directory, issuer: Issuer::new(params, key), count: Cell::new(0) }
    }

    /// Path of the authority's certificate.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Makes a client certificate with its key, in one PEM file, for a name, valid until the end of a year.
    ///
    /// # Panics
    /// When the certificate cannot be made or written.
    #[must_use]
    pub fn signs(&self, name: &str, until_year: i32) -> PathBuf {
        let mut params = CertificateParams::new(vec![format!("{name}.example")]).expect("a name");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_after = date_time_ymd(until_year, 12, 31);
        let key = KeyPair::generate().expect("a key");
        let made = params.signed_by(&key, &self.issuer).expect("a certificate");
        let number = self.count.replace(self.count.get() + 1);
        let path = self.directory.path().join(format!("client-{number}.pem"));
        fs::write(&path, made.pem() + &key.serialize_pem()).expect("written");
        path
    }
}
