//! TLS from the client's side, for load generators and other clients.

use std::sync::Arc;

use rustls::{
    CipherSuite, ClientConfig, DigitallySignedStruct, NamedGroup, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
};

/// Certificates that a client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Certificates that chain to one of the system's roots.
    Roots,
    /// Any certificate.
    Anyone,
}

/// Returns a crypto provider with only the cipher suite and the key-exchange group that all benchmarked
/// programs support.
#[must_use]
pub fn pinned() -> Arc<CryptoProvider> {
    let mut pinned = CryptoProvider::clone(&engine::tls::provider());
    pinned.cipher_suites.retain(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
    pinned.kx_groups.retain(|group| group.name() == NamedGroup::X25519);
    Arc::new(pinned)
}

/// Builds the configuration of a TLS client that offers these protocols by ALPN, and the TLS versions of the
/// provider's cipher suites.
///
/// # Errors
/// Returns `rustls::Error` if no TLS version fits.
pub fn client(
    provider: Arc<CryptoProvider>,
    trust: Trust,
    protocols: &[&str],
) -> Result<ClientConfig, rustls::Error> {
    let versions: Vec<_> = rustls::ALL_VERSIONS
        .iter()
        .copied()
        .filter(|version| provider.cipher_suites.iter().any(|suite| suite.version() == *version))
        .collect();
    let builder =
        ClientConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&versions)?;
    let mut config = match trust {
        Trust::Roots => {
            let mut roots = rustls::RootCertStore::empty();
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        Trust::Anyone => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(NoVerification(provider)))
            .with_no_client_auth(),
    };
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Ok(config)
}

/// Verifier that accepts any certificate: benchmarks measure time, and test servers have self-signed
/// certificates.
#[derive(Debug)]
struct NoVerification(Arc<CryptoProvider>);

impl ServerCertVerifier for NoVerification {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
