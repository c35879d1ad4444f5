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
    port: u16,
}

impl TlsTerms {
    /// Reads the files; clients connect to `port`.
    pub(crate) fn new(tls: &Tls, port: u16) -> Result<Self, TlsError> {
        let read = tls.certificates.iter().map(|pair| Certificate::read(pair).map(Arc::new));
        let certificates = Arc::new(Certificates::new(read.collect::<Result<_, _>>()?));
        let config = tls::config(Arc::clone(&certificates), PROTOCOLS, None, tls::ticketer()?)?;
        Ok(Self { certificates, config: Arc::new(config), port })
    }
}

impl TlsTerms {
    /// Where clients connect.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// From now on clients are shown these certificates. Connections that there are go on.
    pub(crate) fn show(&self, certificates: Vec<Certificate>) {
        self.certificates.replace(certificates.into_iter().map(Arc::new).collect());
    }

    /// Whether a request for a host may come over a connection that was made for `server_name`: for another host only if
    /// the certificate that was shown is that host's, too (RFC 9110 §7.4). Who asked for no name has seen the first
    /// certificate, and asks for what it likes.
    pub(crate) fn may_ask_for(&self, host: &str, server_name: Option<&str>) -> bool {
        server_name.is_none_or(|name| name.eq_ignore_ascii_case(host))
            || self.certificates.of(server_name).is_none_or(|shown| shown.covers(host))
    }
}

impl Terms for TlsTerms {
    fn config(&self, _: &ClientHello<'_>) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}
