//! TLS server configuration from PEM files. Each error message names the file and the problem.
//!
//! There is one cryptography provider (docs/decisions/002-dependencies.md), and TLS 1.2 and 1.3 with rustls'
//! defaults.
//!
//! - [`certificates`]: the certificates that are presented to clients, by name.
//! - [`challenges`]: the challenges of a certificate authority (ACME).
//! - [`client`]: the connecting side.
//! - [`authorities`], [`identity`]: the authorities that sign clients' certificates, and a client's
//!   identity from its certificate.
//! - [`session`]: one connection, as functions from bytes to bytes.
//! - [`config`]: the rustls configuration of a server; [`acceptor`] does the same for tokio's streams, with
//!   certificates from files or from a table.

pub mod authorities;
pub mod certificates;
pub mod challenges;
pub mod client;
pub mod identity;
mod pem;
pub mod session;

use std::{
    path::Path,
    sync::{Arc, LazyLock},
};

use rustls::{
    crypto::CryptoProvider,
    server::{NoServerSessionStorage, ProducesTickets},
};

use self::{
    authorities::Authorities,
    certificates::{Certificate, Certificates, Pair},
    challenges::Challenges,
};

pub use self::pem::TlsError;
pub use rustls::{ServerConfig, server::ClientHello};
pub use tokio_rustls::{Accept, TlsAcceptor, server::TlsStream as ServerStream};

/// Returns the cryptography provider for TLS servers and clients (docs/decisions/040-tls-and-streams.md):
/// AWS-LC, because it has X25519MLKEM768, the key exchange that browsers offer first.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::aws_lc_rs::default_provider()));
    Arc::clone(&PROVIDER)
}

/// Source of the certificates that a server presents to TLS clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateSource {
    /// A certificate from these files, read at startup.
    Pair(Pair),
    /// The certificates of a table, as they are at the time of each handshake.
    Table(Arc<Certificates>),
}

/// Terms on which clients are asked for a certificate.
#[derive(Clone, Copy)]
pub struct ClientCertificates<'a> {
    /// Authorities that sign the certificates.
    pub authorities: &'a Authorities,
    /// True if clients without a certificate are refused.
    pub is_required: bool,
}

/// Creates a TLS acceptor for tokio's streams, which selects one of `protocols` by ALPN if any are given.
/// With `clients`, each client must present a certificate signed by an authority in that file.
///
/// # Errors
/// Returns a [`TlsError`] if a file cannot be read or used, or rustls refuses the configuration.
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
    let clients = clients.as_ref().map(|authorities| ClientCertificates { authorities, is_required: true });
    let config = config(certificates, protocols, clients, ticketer()?)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Creates the producer of session tickets: one for all connections, so that each core accepts the tickets of
/// the others. Its keys are used for six hours, and accepted for six more.
///
/// # Errors
/// Returns a [`TlsError`] if the system provides no random numbers.
pub fn ticketer() -> Result<Arc<dyn ProducesTickets>, TlsError> {
    Ok(rustls::crypto::aws_lc_rs::Ticketer::new()?)
}

/// Builds the rustls configuration of a server. ALPN selects the first of `protocols` that the client also
/// supports. Sessions are resumed only by tickets, which use no server memory. Early data is not accepted,
/// because a replayed request would be answered twice (RFC 8470). Clients are asked for a certificate if
/// `clients` is given.
///
/// # Errors
/// Returns a [`TlsError`] if the authorities cannot be used.
pub fn config(
    certificates: Arc<Certificates>,
    protocols: &[&[u8]],
    clients: Option<ClientCertificates<'_>>,
    ticketer: Arc<dyn ProducesTickets>,
) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(ClientCertificates { authorities, is_required }) => {
            builder.with_client_cert_verifier(authorities.verifier(is_required, provider())?)
        }
    };
    let mut config = builder.with_cert_resolver(certificates);
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = ticketer;
    Ok(config)
}

/// Builds the rustls configuration for a certificate authority that connects to validate a name (RFC 8737).
///
/// # Errors
/// Returns a [`TlsError`] if the library supports no version of TLS.
pub fn config_for_challenges(challenges: Arc<Challenges>) -> Result<ServerConfig, TlsError> {
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(challenges);
    config.alpn_protocols = vec![challenges::PROTOCOL.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

#[cfg(test)]
mod tests;
