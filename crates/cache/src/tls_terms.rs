//! What is agreed upon with clients under TLS: certificates, protocols, tickets.

use std::sync::Arc;

use engine::tls::{
    self, ClientHello, ServerConfig, TlsError,
    certificates::{Certificate, Certificates},
    session::Terms,
};

use crate::config::Tls;

/// Protocols by ALPN, the one that we prefer first.
const PROTOCOLS: &[&[u8]] = &[b"h2", b"http/1.1"];

/// The terms of all connections under TLS; all cores share them.
pub(crate) struct TlsTerms {
    certificates: Arc<Certificates>,
    config: Arc<ServerConfig>,
}

impl TlsTerms {
    /// Reads the files.
    pub(crate) fn new(tls: &Tls) -> Result<Self, TlsError> {
        let read = tls.certificates.iter().map(|pair| Certificate::read(pair).map(Arc::new));
        let certificates = Arc::new(Certificates::new(read.collect::<Result<_, _>>()?));
        let config = tls::config(Arc::clone(&certificates), PROTOCOLS, None, tls::ticketer()?)?;
        Ok(Self { certificates, config: Arc::new(config) })
    }
}

impl Terms for TlsTerms {
    fn config(&self, _: &ClientHello<'_>) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}
