//! What accepts TLS, from files in PEM; and for each mistake in them the words that say what is wrong with which file.
//!
//! One provider of cryptography (docs/decisions/002-dependencies.md), TLS 1.2 and 1.3 as rustls has them by default.
//!
//! - [`certificates`]: those that there are, by name.
//! - [`challenges`]: what an authority asks for before it gives a certificate.
//! - [`client`]: the other side, which connects.
//! - [`authorities`], [`identity`]: who signs clients' certificates, and who a client is by its own.
//! - [`session`]: one connection, as functions from bytes to bytes.
//! - [`config`]: what rustls is to do with a connection; [`acceptor`] is the same for tokio's streams, of files or of the table.

pub mod authorities;
pub mod certificates;
pub mod challenges;
pub mod client;
pub mod identity;
pub mod session;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, LazyLock},
};

pub use rustls::{ServerConfig, server::ClientHello};
use rustls::{
    crypto::CryptoProvider,
    pki_types::{CertificateDer, pem, pem::PemObject},
    server::{NoServerSessionStorage, ProducesTickets},
};
pub use tokio_rustls::{Accept, TlsAcceptor, server::TlsStream as ServerStream};

use self::{
    authorities::Authorities,
    certificates::{Certificate, Certificates, Pair},
    challenges::Challenges,
};

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
    /// Servers are to be verified, and nothing says by whom.
    #[error(
        "the system names nobody who vouches for servers (Debian: ca-certificates); say who does in a file"
    )]
    NobodyTrusted,
}

/// The cryptography of all TLS here, with clients and as one (docs/decisions/040-tls-and-streams.md): AWS-LC, because it
/// has X25519MLKEM768, the key exchange that browsers offer first.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    Arc::clone(&PROVIDER)
}

/// What a server shows to who comes by TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateSource {
    /// The certificate of these files, as they are at the start.
    Pair(Pair),
    /// Those of a table, whatever is in it when somebody comes.
    Table(Arc<Certificates>),
}

/// What accepts TLS on tokio's streams: by ALPN one of `protocols`, if any are said. With `clients`, each must show a
/// certificate that one of that file's has signed.
///
/// # Errors
/// [`TlsError`]
pub fn acceptor(
    shown: &CertificateSource,
    protocols: &[&[u8]],
    clients: Option<&Path>,
) -> Result<TlsAcceptor, TlsError> {
    let certificates = match shown {
        CertificateSource::Pair(pair) => Arc::new(Certificates::new(&[Arc::new(Certificate::read(pair)?)])),
        CertificateSource::Table(table) => Arc::clone(table),
    };
    let clients = clients.map(Authorities::read).transpose()?;
    let clients = clients.as_ref().map(|authorities| (authorities, true));
    let config = config(certificates, protocols, clients, ticketer()?)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// What makes session tickets: one for all connections, so that each core takes what another gave. Its keys last six
/// hours, and are accepted for as long again.
///
/// # Errors
/// There are no random numbers.
pub fn ticketer() -> Result<Arc<dyn ProducesTickets>, TlsError> {
    Ok(rustls::crypto::aws_lc_rs::Ticketer::new()?)
}

/// What rustls is to do with connections: by ALPN one of `protocols`, the first that the client has too. Sessions are
/// resumed by tickets alone, which hold no memory of ours; early data is not accepted, because whoever repeats it would
/// be answered twice (RFC 8470). `clients`: who signs their certificates, and whether whoever shows none is refused.
///
/// # Errors
/// The authorities cannot be used.
pub fn config(
    certificates: Arc<Certificates>,
    protocols: &[&[u8]],
    clients: Option<(&Authorities, bool)>,
    ticketer: Arc<dyn ProducesTickets>,
) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some((authorities, is_required)) => {
            builder.with_client_cert_verifier(authorities.verifier(is_required)?)
        }
    };
    let mut config = builder.with_cert_resolver(certificates);
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = ticketer;
    Ok(config)
}

/// What rustls is to do with an authority that connects to see whether a name is ours (RFC 8737).
///
/// # Errors
/// The library has no version of TLS.
pub fn config_for_challenges(challenges: Arc<Challenges>) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(challenges);
    config.alpn_protocols = vec![challenges::PROTOCOL.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
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
mod tests;
