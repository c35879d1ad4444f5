//! What is agreed upon with clients under TLS: certificates, protocols, tickets.

use std::sync::Arc;

use engine::tls::{
    self, ClientHello, ServerConfig, TlsError,
    certificates::Certificates,
    challenges::{self, Challenges},
    session::Terms,
};

use crate::config::Tls;

/// Protocols by ALPN, the one that we prefer first.
const PROTOCOLS: &[&[u8]] = &[b"h2", b"http/1.1"];

/// The terms of all connections under TLS; all cores share them.
pub(crate) struct TlsTerms {
    certificates: Arc<Certificates>,
    config: Arc<ServerConfig>,
    /// For an authority that looks whether a name is ours, while it may.
    looked_at: Option<(Arc<Challenges>, Arc<ServerConfig>)>,
    port: u16,
}

impl TlsTerms {
    /// Clients connect to `port`.
    pub(crate) fn new(tls: &Tls, challenges: Option<Arc<Challenges>>, port: u16) -> Result<Self, TlsError> {
        let certificates = Arc::clone(&tls.certificates);
        let config = tls::config(Arc::clone(&certificates), PROTOCOLS, None, tls::ticketer()?)?;
        let looked_at = challenges.map(|challenges| {
            let config = tls::config_for_challenges(Arc::clone(&challenges))?;
            Ok::<_, TlsError>((challenges, Arc::new(config)))
        });
        Ok(Self { certificates, config: Arc::new(config), looked_at: looked_at.transpose()?, port })
    }
}

impl TlsTerms {
    /// Where clients connect.
    pub(crate) fn port(&self) -> u16 {
        self.port
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
    fn config(&self, hello: &ClientHello<'_>) -> Arc<ServerConfig> {
        match &self.looked_at {
            Some((challenges, config)) if challenges.is_any_open() && challenges::is_asked_by(hello) => {
                Arc::clone(config)
            }
            // Nobody else speaks that protocol: who asks for nothing but it is refused.
            _ => Arc::clone(&self.config),
        }
    }
}
