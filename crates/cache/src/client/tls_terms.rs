//! TLS terms for clients: certificates, protocols, tickets, and requests for client certificates.
//!
//! ```text
//!  server name (SNI) ─▶ site ─▶ Kind: the authorities of client certificates, if the site asks for certificates
//! ```
//! Sites with the same terms share a kind. A kind has its own ticket key: a session that began without a
//! certificate, or with a certificate of other authorities, cannot be resumed for a site that demands
//! certificates. *Bounds:* as many kinds as sites.

#![expect(clippy::disallowed_types, reason = "a handshake takes it once, beside 250 µs of arithmetic")]

use std::sync::{Arc, PoisonError, RwLock};

use engine::tls::{
    self, ClientCertificates, ClientHello, ServerConfig, TlsError,
    authorities::{Authorities, AuthoritiesId},
    certificates::Certificates,
    challenges::{self, Challenges},
    session::{Offer, Terms},
};

use crate::{
    config::{Config, Tls},
    site::SiteTable,
};

/// ALPN protocols, the preferred one first.
const PROTOCOLS: &[&[u8]] = &[b"h2", b"http/1.1"];

/// TLS terms of all connections, shared by all cores.
pub(crate) struct TlsTerms {
    certificates: Arc<Certificates>,
    /// Terms for new connections.
    kinds: RwLock<Arc<Kinds>>,
    /// Challenges, and the TLS configuration for an ACME server that validates a name while a challenge is
    /// open.
    looked_at: Option<(Arc<Challenges>, Arc<ServerConfig>)>,
    port: u16,
}

/// Terms for the connections to each site.
pub(crate) struct Kinds {
    sites: Arc<SiteTable>,
    of_sites: Box<[Arc<Kind>]>,
}

/// TLS terms of one or several sites.
struct Kind {
    /// Authorities that sign the clients' certificates, and whether a certificate is required; `None` if no
    /// certificate is requested.
    asks: Option<(AuthoritiesId, bool)>,
    config: Arc<ServerConfig>,
}

impl TlsTerms {
    /// Reads the certificate files; clients connect to `port`.
    pub(crate) fn new(
        tls: &Tls,
        config: &Config,
        sites: &Arc<SiteTable>,
        port: u16,
    ) -> Result<Self, TlsError> {
        let certificates = Arc::clone(&tls.certificates);
        let kinds = Kinds::new(config, sites, &certificates, None)?;
        let looked_at = config.challenges.clone().map(|challenges| {
            let config = tls::config_for_challenges(Arc::clone(&challenges))?;
            Ok::<_, TlsError>((challenges, Arc::new(config)))
        });
        let kinds = RwLock::new(Arc::new(kinds));
        Ok(Self { certificates, kinds, looked_at: looked_at.transpose()?, port })
    }

    /// Returns the port to which clients connect.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns whether a connection made for `server_name` may carry a request for `host`: a different host
    /// is allowed only if the certificate that was sent also covers it (RFC 9110 §7.4). A client that sent no
    /// server name was sent the first certificate and may request any host.
    pub(crate) fn may_ask_for(&self, host: &str, server_name: Option<&str>) -> bool {
        server_name.is_none_or(|name| name.eq_ignore_ascii_case(host))
            || self.certificates.of(server_name).is_none_or(|shown| shown.covers(host))
    }

    /// Returns the authorities of the client certificates that each site asks for.
    pub(crate) fn authorities(&self) -> Box<[Option<AuthoritiesId>]> {
        self.kinds().authorities()
    }

    /// Builds the terms for a new configuration from its certificate files.
    pub(crate) fn prepare(&self, config: &Config, sites: &Arc<SiteTable>) -> Result<Kinds, TlsError> {
        Kinds::new(config, sites, &self.certificates, Some(&self.kinds()))
    }

    /// Activates these terms for new connections.
    pub(crate) fn take(&self, kinds: Kinds) {
        *self.kinds.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(kinds);
    }

    fn kinds(&self) -> Arc<Kinds> {
        Arc::clone(&self.kinds.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Kinds {
    /// Returns the authorities of the client certificates that each site asks for.
    pub(crate) fn authorities(&self) -> Box<[Option<AuthoritiesId>]> {
        self.of_sites.iter().map(|kind| kind.asks.map(|(id, _)| id)).collect()
    }

    /// Builds the terms of a configuration. Kinds that are unchanged since `before` are kept, so that their
    /// tickets stay valid.
    fn new(
        config: &Config,
        sites: &Arc<SiteTable>,
        certificates: &Arc<Certificates>,
        before: Option<&Self>,
    ) -> Result<Self, TlsError> {
        let mut kinds: Vec<Arc<Kind>> =
            before.iter().flat_map(|before| before.of_sites.iter().cloned()).collect();
        let mut of_sites = Vec::new();
        let rules = [&config.rules].into_iter().chain(config.sites.iter().map(|site| &site.rules));
        for asked in rules.map(|rules| rules.client_certificates.as_ref()) {
            let read = asked
                .map(|asked| Ok::<_, TlsError>((Authorities::read(&asked.authorities)?, asked.is_required)));
            let read = read.transpose()?;
            let asks = read.as_ref().map(|(authorities, is_required)| (authorities.id(), *is_required));
            let kind = match kinds.iter().find(|kind| kind.asks == asks) {
                Some(kind) => Arc::clone(kind),
                None => {
                    let clients = read.as_ref().map(|&(ref authorities, is_required)| ClientCertificates {
                        authorities,
                        is_required,
                    });
                    let config = tls::config(Arc::clone(certificates), PROTOCOLS, clients, tls::ticketer()?)?;
                    let kind = Arc::new(Kind { asks, config: Arc::new(config) });
                    kinds.push(Arc::clone(&kind));
                    kind
                }
            };
            of_sites.push(kind);
        }
        Ok(Self { sites: Arc::clone(sites), of_sites: of_sites.into() })
    }
}

impl Terms for TlsTerms {
    fn offer(&self, hello: &ClientHello<'_>) -> Offer {
        if let Some((challenges, config)) = &self.looked_at
            && challenges.is_any_open()
            && challenges::is_asked_by(hello)
        {
            return Offer { config: Arc::clone(config), authorities: None };
        }
        // The sites' configurations do not offer the challenge protocol, so a client that offers no other
        // protocol is refused here.
        let kinds = self.kinds();
        let host = hello.server_name().unwrap_or_default().to_ascii_lowercase();
        let kind = &kinds.of_sites[kinds.sites.of_host(host.as_bytes()).index()];
        Offer { config: Arc::clone(&kind.config), authorities: kind.asks.map(|(id, _)| id) }
    }
}
