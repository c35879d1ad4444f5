//! The accelerator's configuration and its TLS listener, from the settings of `[cache]` and of the sites.

use std::net::SocketAddr;

use cache::{
    Pair, SiteRules,
    config::{Config, CrawlerRules, Origin},
};

use crate::{
    admin::read_token,
    failure::{Failure, Fault, fault},
    settings::{Settings, approved_crawlers::approved},
};

/// Default listening address if only a certificate is configured.
const LISTEN: ([u8; 4], u16) = ([127, 0, 0, 1], 8443);

impl Settings {
    /// Builds the accelerator's configuration with its sites, and with `origin` for all other hosts. TLS is
    /// not included, because the process has one TLS configuration for all servers.
    ///
    /// # Errors
    /// Returns `Failure::Configuration` if the purge token cannot be read or is missing from its file, or if
    /// a site has no origin.
    pub(crate) fn accelerator(&self, origin: Option<Origin>) -> Result<Config, Failure> {
        const KEY: &str = "purge-token-file";
        let token = self.purge_token_file.as_deref().map(|path| read_token(KEY, path)).transpose();
        let token = token.map_err(|message| fault(KEY, message))?;
        let sites = self.sites.iter().map(|said| said.site(self, origin.as_ref()));
        let sites = sites.collect::<Result<_, _>>().map_err(|fault| Failure::Configuration(vec![fault]))?;
        let asked = self.tls.client_certificates().map_err(|fault| Failure::Configuration(vec![fault]))?;
        let rules = SiteRules { client_certificates: asked, ..self.cache.rules.clone() };
        let approved = approved(&self.bots_approved).map_err(|fault| Failure::Configuration(vec![fault]))?;
        let crawlers = CrawlerRules { approved, ..self.cache.crawlers.clone() };
        let cluster = self.cluster.config(self.cache.store.as_ref(), self.peers.told_address());
        let peers = cluster.and_then(|cluster| self.peers.rules(cluster.as_ref()));
        let peers = peers.map_err(|fault| Failure::Configuration(vec![fault]))?;
        Ok(Config {
            origin,
            rules,
            sites,
            crawlers,
            peers,
            purge_token: token.map(|token| token.to_purge()),
            ..self.cache.clone()
        })
    }
}

/// TLS listening address, and the certificate files.
pub(crate) struct TlsListener {
    pub(crate) listen: SocketAddr,
    pub(crate) pairs: Vec<Pair>,
}

/// Returns the accelerator's TLS listener: the certificate of `[cache]` first, then those of the sites. The
/// list may be empty if certificates are obtained by ACME.
pub(crate) fn tls(settings: &Settings) -> Result<Option<TlsListener>, Fault> {
    let mut pairs = Vec::from_iter(settings.tls.pair()?);
    for site in &settings.sites {
        let pair = site.own(settings)?.tls.pair().map_err(|fault| Fault {
            place: site.place.clone(),
            message: format!("{}: {}", fault.place, fault.message),
        })?;
        pairs.extend(pair.filter(|pair| !pairs.contains(pair)));
    }
    let is_obtained = settings.acme.directory.is_some() || !settings.acme.domains.is_empty();
    match (pairs.is_empty() && !is_obtained, settings.tls.listen) {
        (true, None) if asks_clients(settings)? => {
            let message = "is missing; client certificates need TLS".to_owned();
            Err(Fault { place: "tls-cert".to_owned(), message })
        }
        (true, None) => Ok(None),
        (true, Some(_)) => {
            let message =
                "is missing; TLS at tls-listen needs a certificate (acme-directory and acme-domain obtain \
                           one)"
                    .to_owned();
            Err(Fault { place: "tls-cert".to_owned(), message })
        }
        (false, listen) => {
            Ok(Some(TlsListener { listen: listen.unwrap_or_else(|| SocketAddr::from(LISTEN)), pairs }))
        }
    }
}

/// Returns whether any site requests client certificates.
fn asks_clients(settings: &Settings) -> Result<bool, Fault> {
    let of_sites = settings.sites.iter().map(|site| site.own(settings).map(|own| own.tls));
    let all = [Ok(settings.tls.clone())].into_iter().chain(of_sites);
    all.map(|said| said?.client_certificates()).try_fold(false, |any, asked| Ok(any || asked?.is_some()))
}
