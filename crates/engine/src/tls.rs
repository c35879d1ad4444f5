//! What accepts TLS, from files in PEM; and for each mistake in them the words that say what is wrong with which file.
//!
//! One provider of cryptography (docs/decisions/002-dependencies.md), TLS 1.2 and 1.3 as rustls has them by default.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    server::WebPkiClientVerifier,
};
pub use tokio_rustls::TlsAcceptor;

/// Why certificates or keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: cannot be read: {why}", file.display())]
    Unreadable {
        /// Which.
        file: PathBuf,
        /// What the system says.
        why: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {why}", file.display())]
    Content {
        /// Which.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The certificate and its key do not fit together, or cannot be served.
    #[error("{} with {}: {why}", certificates.display(), key.display())]
    Pair {
        /// The certificate's file.
        certificates: PathBuf,
        /// The key's.
        key: PathBuf,
        /// What rustls says.
        why: rustls::Error,
    },
    /// The library cannot do what is asked of it.
    #[error("{0}")]
    Rustls(#[from] rustls::Error),
    /// Clients are to be verified, and nothing says by whom.
    #[error("to verify clients, the certificates of those who sign the clients' are needed")]
    NoAuthority,
}

/// Which files.
#[derive(Debug, Clone, Copy)]
pub struct Files<'a> {
    /// The chain, the server's own certificate first.
    pub certificates: &'a Path,
    /// The key of the first.
    pub key: &'a Path,
    /// With it, clients must show a certificate that one of these has signed.
    pub clients: Option<&'a Path>,
}

/// What accepts TLS with these files.
///
/// # Errors
/// [`TlsError`]
pub fn acceptor(files: Files<'_>) -> Result<TlsAcceptor, TlsError> {
    let chain = certificates(files.certificates)?;
    let key = PrivateKeyDer::from_pem_file(files.key)
        .map_err(|error| wrong(files.key, error, "there is no private key in it (PEM)"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match files.clients {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let content = |why: String| TlsError::Content { file: path.to_owned(), why };
            let mut roots = RootCertStore::empty();
            for certificate in certificates(path)? {
                roots.add(certificate).map_err(|error| content(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|error| content(error.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder.with_single_cert(chain, key).map_err(|why| TlsError::Pair {
        certificates: files.certificates.to_owned(),
        key: files.key.to_owned(),
        why,
    })?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let none = "there is no certificate in it (PEM)";
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if certificates.is_empty() => {
            Err(TlsError::Content { file: path.to_owned(), why: none.to_owned() })
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(wrong(path, error, none)),
    }
}

fn wrong(path: &Path, error: pem::Error, none: &str) -> TlsError {
    let file = path.to_owned();
    match error {
        pem::Error::Io(why) => TlsError::Unreadable { file, why },
        pem::Error::NoItemsFound => TlsError::Content { file, why: none.to_owned() },
        other => TlsError::Content { file, why: format!("not in PEM: {other}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Written(tempfile::TempDir);

    impl Written {
        fn file(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.path().join(name);
            std::fs::write(&path, text).expect("written");
            path
        }
    }

    fn said(certificates: &Path, key: &Path, clients: Option<&Path>) -> String {
        match acceptor(Files { certificates, key, clients }) {
            Ok(_) => "right".to_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn each_mistake_has_its_words_and_its_file() {
        let directory = Written(tempfile::tempdir().expect("a directory"));
        let made = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let (one, other) = (made(), made());
        let certificate = directory.file("cert.pem", &one.cert.pem());
        let key = directory.file("key.pem", &one.signing_key.serialize_pem());
        let foreign = directory.file("foreign.pem", &other.signing_key.serialize_pem());
        let empty = directory.file("empty.pem", "");
        let torn = directory.file("torn.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
        let nowhere = directory.0.path().join("nowhere.pem");

        assert_eq!(said(&certificate, &key, None), "right");
        assert_eq!(said(&certificate, &key, Some(&certificate)), "right");
        for (certificates, key, clients, file, says) in [
            (&nowhere, &key, None, "nowhere.pem", "cannot be read: No such file"),
            (&empty, &key, None, "empty.pem", "there is no certificate in it (PEM)"),
            (&key, &key, None, "key.pem", "there is no certificate in it (PEM)"),
            (&torn, &key, None, "torn.pem", "not in PEM"),
            (&certificate, &nowhere, None, "nowhere.pem", "cannot be read: No such file"),
            (&certificate, &empty, None, "empty.pem", "there is no private key in it (PEM)"),
            (&certificate, &certificate, None, "cert.pem", "there is no private key in it (PEM)"),
            (&certificate, &foreign, None, "cert.pem with ", "foreign.pem: "),
            (&certificate, &key, Some(&nowhere), "nowhere.pem", "cannot be read: No such file"),
            (&certificate, &key, Some(&empty), "empty.pem", "there is no certificate in it (PEM)"),
        ] {
            let said = said(certificates, key, clients.map(PathBuf::as_path));
            assert!(said.contains(file) && said.contains(says), "{file}, {says}: {said}");
        }
    }
}
