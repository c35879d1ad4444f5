//! What is agreed upon with clients under TLS: certificates, protocols, tickets, and whether they are asked for
//! certificates of their own.
//!
//! ```text
//!  the name that a client asks for ─▶ its site ─▶ Kind: who signs its clients' certificates, if it asks for any
//! ```
//! Sites that ask for the same have one kind. A kind has its own key for tickets: a session that began without a
//! certificate, or with one of other authorities, is not resumed where the site's are wanted. *Bounds:* as many kinds as
//! sites.

#![expect(clippy::disallowed_types, reason = "a handshake takes it once, beside 250 µs of arithmetic")]

use std::sync::{Arc, PoisonError, RwLock};

use engine::tls::{
    self, ClientHello, ServerConfig, TlsError,
    authorities::{Authorities, AuthoritiesId},
    certificates::Certificates,
    challenges::{self, Challenges},
    session::{Offer, Terms},
};

use crate::{
    config::{Config, Tls},
    site::SiteTable,
};

/// Protocols by ALPN, the one that we prefer first.
const PROTOCOLS: &[&[u8]] = &[b"h2", b"http/1.1"];

/// The terms of all connections under TLS; all cores share them.
pub(crate) struct TlsTerms {
    certificates: Arc<Certificates>,
    /// What is offered to new connections.
    kinds: RwLock<Arc<Kinds>>,
    /// For an authority that looks whether a name is ours, while it may.
    looked_at: Option<(Arc<Challenges>, Arc<ServerConfig>)>,
    port: u16,
}

/// What connections for each site are offered.
pub(crate) struct Kinds {
    sites: Arc<SiteTable>,
    of_sites: Box<[Arc<Kind>]>,
}

/// A way to shake hands.
struct Kind {
    /// Who signs the clients' certificates, and whether each client has to have one.
    asks: Option<(AuthoritiesId, bool)>,
    config: Arc<ServerConfig>,
}

impl TlsTerms {
    /// Reads the files; clients connect to `port`.
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

    /// Whose certificates each site asks for.
    pub(crate) fn authorities(&self) -> Box<[Option<AuthoritiesId>]> {
        self.kinds().authorities()
    }

    /// What would be offered by another configuration; reads its files.
    pub(crate) fn prepare(&self, config: &Config, sites: &Arc<SiteTable>) -> Result<Kinds, TlsError> {
        Kinds::new(config, sites, &self.certificates, Some(&self.kinds()))
    }

    /// From now on this is offered.
    pub(crate) fn take(&self, kinds: Kinds) {
        *self.kinds.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(kinds);
    }

    fn kinds(&self) -> Arc<Kinds> {
        Arc::clone(&self.kinds.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Kinds {
    /// Whose certificates each site asks for.
    pub(crate) fn authorities(&self) -> Box<[Option<AuthoritiesId>]> {
        self.of_sites.iter().map(|kind| kind.asks.map(|(id, _)| id)).collect()
    }

    /// Those of a configuration. What is as it was `before` is the same, so that its tickets are good.
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
                    let clients = read.as_ref().map(|(authorities, is_required)| (authorities, *is_required));
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
        // Nobody else speaks that protocol: who asks for nothing but it is refused.
        let kinds = self.kinds();
        let host = hello.server_name().unwrap_or_default().to_ascii_lowercase();
        let kind = &kinds.of_sites[kinds.sites.of_host(host.as_bytes()).index()];
        Offer { config: Arc::clone(&kind.config), authorities: kind.asks.map(|(id, _)| id) }
    }
}
