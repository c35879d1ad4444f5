//! TLS certificates of the servers under test, made for each run; every server gets the same keys.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::peers::PeerError;

/// Server name (SNI) for which servers present the RSA certificate; any other name gets the ECDSA
/// certificate.
pub const RSA_NAME: &str = "rsa.bench.example";
/// Server name of the ECDSA certificate.
pub const ECDSA_NAME: &str = "ecdsa.bench.example";

/// A certificate and its key, as PEM.
#[derive(Debug)]
pub struct Pair {
    /// The self-signed certificate.
    pub certificate: String,
    /// The certificate's private key.
    pub key: String,
}

/// An ECDSA and an RSA certificate, the two kinds in common use on the web.
#[derive(Debug)]
pub struct Certificates {
    /// ECDSA certificate on P-256.
    pub ecdsa: Pair,
    /// RSA certificate with a 2048-bit key.
    pub rsa: Pair,
}

impl Certificates {
    /// Generates both certificates in `directory` with OpenSSL.
    ///
    /// # Errors
    /// `PeerError` if `openssl` is missing or fails.
    pub fn make(directory: &Path) -> Result<Self, PeerError> {
        let ecdsa = ["ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
        Ok(Self {
            ecdsa: pair(directory, ECDSA_NAME, &ecdsa)?,
            rsa: pair(directory, RSA_NAME, &["rsa:2048"])?,
        })
    }
}

fn pair(directory: &Path, name: &str, kind: &[&str]) -> Result<Pair, PeerError> {
    let (certificate, key) = (directory.join(format!("{name}.crt")), directory.join(format!("{name}.key")));
    let mut command = Command::new("openssl");
    command.args(["req", "-x509", "-nodes", "-days", "30", "-subj"]).arg(format!("/CN={name}"));
    command.arg("-newkey").args(kind);
    command.arg("-addext").arg(format!("subjectAltName=DNS:{name},IP:127.0.0.1"));
    command.arg("-out").arg(&certificate).arg("-keyout").arg(&key);
    let output = command.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(PeerError::failed(format!("openssl makes no certificate: {}", said.trim())));
    }
    Ok(Pair { certificate: fs::read_to_string(certificate)?, key: fs::read_to_string(key)? })
}
