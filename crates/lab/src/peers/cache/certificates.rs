//! The certificates that all servers at the edge show: the same keys for everybody, made for this run.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::peers::PeerError;

/// Who asks for this name is shown the certificate whose key is RSA; everybody else the one of ECDSA.
pub const RSA_NAME: &str = "rsa.bench.example";
/// The name of the other.
pub const ECDSA_NAME: &str = "ecdsa.bench.example";

/// A certificate and its key, as PEM.
#[derive(Debug)]
pub struct Pair {
    /// The certificate, signed by itself.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// One of each kind that the web uses.
#[derive(Debug)]
pub struct Certificates {
    /// P-256.
    pub ecdsa: Pair,
    /// 2048 bits.
    pub rsa: Pair,
}

impl Certificates {
    /// Has OpenSSL make them in `directory`.
    ///
    /// # Errors
    /// It is not there, or refuses.
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
