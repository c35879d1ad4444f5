//! Settings of the mail service.

#[cfg(test)]
mod tests;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use engine::{network::Network, tls::certificates::Certificates};
use mail::{
    CertificateSource, Lists, Pair,
    config::{Config, Store},
    web::{self, IndexLocation},
};

use crate::{failure::Fault, settings::tls_settings::shared_or};

/// Default address of the admin server when mail runs alone.
pub(crate) const MAIL_ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9182);
/// Name of the store's file in the state directory.
const STORE_FILE: &str = "mail.store";
/// Maximum size of the ban list; a larger file is refused, because it is probably not the right file.
const LISTS_BYTES_MAX: u64 = 16 << 20;

/// The mail service's settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MailSettings {
    /// Settings that are passed to the service unchanged; [`MailSettings::config`] fills its `store`, `tls`
    /// and `lists`.
    pub config: Config,
    /// Address of the pages and APIs.
    pub http: SocketAddr,
    /// Configured store; `None` selects a file in the state directory.
    pub(crate) store: Option<Store>,
    pub(super) tls_cert: Option<PathBuf>,
    pub(super) tls_key: Option<PathBuf>,
    pub(super) tls_shared: bool,
    pub(super) http_tls: bool,
    pub(super) banned: Option<PathBuf>,
    pub(super) token_file: Option<PathBuf>,
    pub(super) http_hosts: Vec<String>,
    pub(super) mail_readers: Vec<Network>,
    pub(super) http_bytes_max: u64,
    pub search_index: bool,
    pub(super) trusted_proxies: Vec<Network>,
    pub(super) shared_networks: Vec<Network>,
    pub(super) abuse_contact: Option<String>,
    pub(super) warning: String,
}

impl Default for MailSettings {
    fn default() -> Self {
        Self {
            config: Config::default(),
            http: SocketAddr::from(([127, 0, 0, 1], 8025)),
            store: None,
            tls_cert: None,
            tls_key: None,
            tls_shared: false,
            http_tls: false,
            banned: None,
            token_file: None,
            http_hosts: web::Config::default().http_hosts,
            mail_readers: Vec::new(),
            http_bytes_max: web::Config::default().http_bytes_max,
            search_index: true,
            trusted_proxies: Vec::new(),
            shared_networks: Vec::new(),
            abuse_contact: None,
            warning: web::Config::default().warning,
        }
    }
}

fn fault(place: &str, message: String) -> Fault {
    Fault { place: place.to_owned(), message }
}

impl MailSettings {
    /// Builds the service's configuration. `shared` holds the certificates of the process, if there are any.
    /// Creates the state directory if it is needed and missing.
    ///
    /// # Errors
    /// Returns a `Fault` for settings that contradict each other, or for a file that cannot be read.
    pub(crate) fn config(
        &self,
        state: Option<&PathBuf>,
        shared: Option<&Arc<Certificates>>,
    ) -> Result<Config, Fault> {
        let of_files = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Some(CertificateSource::Pair(Pair {
                certificates: cert.clone(),
                key: key.clone(),
                ocsp: None,
            })),
            (None, None) => None,
            (Some(_), None) => {
                return Err(fault("tls-key", "is missing; tls-cert needs tls-key".to_owned()));
            }
            (None, Some(_)) => {
                return Err(fault("tls-cert", "is missing; tls-key needs tls-cert".to_owned()));
            }
        };
        let tls = shared_or(self.tls_shared, of_files, shared)?;
        if self.config.smtps.is_some() && tls.is_none() {
            let message = "is missing; smtps needs it, or tls-shared";
            return Err(fault("tls-cert", message.to_owned()));
        }
        let store = match &self.store {
            Some(store) => store.clone(),
            None => {
                let state = state.cloned().or_else(state_directory).ok_or_else(|| {
                    let message =
                        "no directory for mails is known: set --state DIR, --store FILE, or --store anon";
                    fault("state", message.to_owned())
                })?;
                std::fs::create_dir_all(&state)
                    .map_err(|error| fault("state", format!("cannot create {}: {error}", state.display())))?;
                Store::File(state.join(STORE_FILE))
            }
        };
        Ok(Config { tls, store, lists: self.lists()?, ..self.config.clone() })
    }

    /// Reads the current ban list from its file.
    ///
    /// # Errors
    /// Returns a `Fault` if the file cannot be read, or for its first wrong line.
    pub(crate) fn lists(&self) -> Result<Lists, Fault> {
        let Some(path) = &self.banned else { return Ok(Lists::default()) };
        let place = path.display().to_string();
        let unreadable = |error: std::io::Error| fault(&place, format!("cannot be read: {error}"));
        if std::fs::metadata(path).map_err(unreadable)?.len() > LISTS_BYTES_MAX {
            return Err(fault(&place, "larger than 16 MiB: is it the right file?".to_owned()));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Lists::parse(&text).map_err(|error| fault(&place, error.to_string()))
    }

    /// Returns whether the pages are served over HTTPS.
    pub(crate) fn has_pages_under_tls(&self) -> bool {
        self.http_tls
    }

    /// Returns whether lists of more than one inbox require a token.
    pub(crate) fn asks_for_token(&self) -> bool {
        self.token_file.is_some()
    }

    /// Describes who may see the mail of all inboxes, for the startup announcement.
    pub(crate) fn all_mail(&self) -> &'static str {
        match (self.asks_for_token(), self.mail_readers.is_empty()) {
            (true, true) => "all mail is visible with the token",
            (true, false) => "all mail is visible with the token, and to mail-readers",
            (false, true) => {
                "all mail is visible to this machine; behind a proxy set token-file, or mail-readers with trusted-proxies"
            }
            (false, false) => {
                "all mail is visible to this machine and mail-readers; behind a proxy set token-file, or trusted-proxies"
            }
        }
    }

    /// Builds the configuration of pages and APIs. `shown` is the certificate for clients that connect over
    /// TLS.
    ///
    /// # Errors
    /// Returns a `Fault` if the token cannot be read or is too short, or if the pages need https and there is
    /// no certificate.
    pub(crate) fn web(
        &self,
        smtp: SocketAddr,
        shown: Option<CertificateSource>,
        index: Option<IndexLocation>,
    ) -> Result<web::Config, Fault> {
        if self.http_tls && shown.is_none() {
            return Err(fault("http-tls", "needs tls-cert and tls-key, or tls-shared".to_owned()));
        }
        let token = match &self.token_file {
            None => None,
            Some(path) => {
                let place = path.display().to_string();
                let text = std::fs::read_to_string(path)
                    .map_err(|error| fault(&place, format!("cannot be read: {error}")))?;
                let token = web::Token::new(text.trim()).map_err(|error| fault(&place, error.to_string()))?;
                Some(token)
            }
        };
        Ok(web::Config {
            domain: self.config.default_domain.clone(),
            smtp: Some(smtp.to_string()),
            kept: self.config.retention.age,
            token,
            http_hosts: self.http_hosts.clone(),
            readers: self.mail_readers.clone(),
            http_bytes_max: self.http_bytes_max,
            client_budget: self.config.client_budget.clone(),
            index: index.filter(|_| self.search_index),
            warning: self.warning.clone(),
            abuse: self.abuse_contact.clone(),
            proxies: self.trusted_proxies.clone(),
            shared_networks: self.shared_networks.clone(),
            tls: shown.filter(|_| self.http_tls),
            ..web::Config::default()
        })
    }
}

/// Returns the state directory: `/var/lib/nighttrain` for root, as for a system service; otherwise
/// `$XDG_STATE_HOME/nighttrain` or its default under `$HOME`, as in the XDG Base Directory Specification.
pub(crate) fn state_directory() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/nighttrain"));
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("nighttrain"))
}
