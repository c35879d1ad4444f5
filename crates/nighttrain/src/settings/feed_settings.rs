//! Settings of the feed under NATS's own names; a file in NATS's own format is merged in
//! ([`crate::settings::nats_file`]).
//!
//! ```text
//! default ──▶ --nats-config ──▶ [feed] ──▶ environment ──▶ flags       the later one wins
//! ```
//! Users, permissions and accounts are only in the NATS file: operators know its syntax, and a password on a
//! command line is readable by every user of the machine.

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use engine::tls::certificates::Certificates;
use feed::{
    CertificateSource, Pair,
    config::{Config, HandshakeFirst, Tls, WebSocket},
    leaf::{ADDRESSES_MAX, Address, InvalidAddress, Login, Remote},
};

use crate::{
    failure::Fault,
    settings::{list, tls_settings::shared_or},
};

/// Default address of the admin server when the feed runs alone.
pub(crate) const FEED_ADMIN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9181);

/// The feed's settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FeedSettings {
    /// Settings that are passed to the feed unchanged. Its `tls` and `websocket` are empty:
    /// [`FeedSettings::config`] fills them.
    pub config: Config,
    /// Address of the monitoring pages.
    pub monitor: SocketAddr,
    /// A file in NATS's own format.
    pub nats_config: Option<PathBuf>,
    pub(super) tls_cert: Option<PathBuf>,
    pub(super) tls_key: Option<PathBuf>,
    pub(super) tls_ca: Option<PathBuf>,
    pub(super) tls_verify: bool,
    pub(super) tls_shared: bool,
    pub(super) tls_handshake_first: bool,
    pub(super) websocket: Option<SocketAddr>,
    pub(super) websocket_tls: bool,
    pub(super) websocket_origins: Vec<String>,
    pub(super) leaf: Vec<Address>,
    pub(super) leaf_credentials: Option<PathBuf>,
    pub(super) leaf_tls_ca: Option<PathBuf>,
    /// Hubs from the configuration file, in addition to the hub of the setting `leaf`.
    pub leaf_remotes: Vec<Remote>,
}

impl Default for FeedSettings {
    fn default() -> Self {
        Self {
            config: Config::default(),
            monitor: SocketAddr::from(([127, 0, 0, 1], 8222)),
            nats_config: None,
            tls_cert: None,
            tls_key: None,
            tls_ca: None,
            tls_verify: false,
            tls_shared: false,
            tls_handshake_first: false,
            websocket: None,
            websocket_tls: false,
            websocket_origins: Vec::new(),
            leaf: Vec::new(),
            leaf_credentials: None,
            leaf_tls_ca: None,
            leaf_remotes: Vec::new(),
        }
    }
}

impl FeedSettings {
    /// Builds the feed's configuration. `shared` holds the certificates of the process, if there are any.
    ///
    /// # Errors
    /// Returns a `Fault` for settings that contradict each other.
    pub(crate) fn config(&self, shared: Option<&Arc<Certificates>>) -> Result<Config, Fault> {
        let fault =
            |place: &str, message: &str| Fault { place: place.to_owned(), message: message.to_owned() };
        let mut config = self.config.clone();
        let of_files = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Some(CertificateSource::Pair(Pair {
                certificates: cert.clone(),
                key: key.clone(),
                ocsp: None,
            })),
            (None, None) => None,
            (Some(_), None) => return Err(fault("tls-key", "is missing; tls-cert needs tls-key")),
            (None, Some(_)) => return Err(fault("tls-cert", "is missing; tls-key needs tls-cert")),
        };
        if let Some(shown) = shared_or(self.tls_shared, of_files, shared)? {
            config.tls = Some(Tls {
                shown,
                ca_file: self.tls_ca.clone(),
                verify: self.tls_verify,
                map: false,
                handshake_first: if self.tls_handshake_first {
                    HandshakeFirst::Yes
                } else {
                    HandshakeFirst::No
                },
                timeout: None,
                optional: false,
            });
        }
        if self.tls_verify
            && self.tls_ca.is_none()
            && config.tls.as_ref().is_some_and(|tls| tls.ca_file.is_none())
        {
            return Err(fault(
                "tls-verify",
                "needs tls-ca, the CA certificates that sign clients' certificates",
            ));
        }
        if (self.tls_verify || self.tls_handshake_first) && config.tls.is_none() {
            return Err(fault("tls-cert", "is missing; client certificates and handshake-first need TLS"));
        }
        if let Some(listen) = self.websocket {
            let tls = match (self.websocket_tls, &config.tls) {
                (true, None) => {
                    return Err(fault("websocket-tls", "needs tls-cert and tls-key, or tls-shared"));
                }
                (true, Some(tls)) => Some(tls.clone()),
                (false, _) => None,
            };
            config.websocket = Some(WebSocket {
                listen,
                tls,
                allowed_origins: self.websocket_origins.clone(),
                same_origin: false,
            });
        }
        config.hubs = self.hubs()?;
        Ok(config)
    }

    /// Returns the hubs to join: the hub of the setting `leaf`, for the global account, and the hubs from the
    /// configuration file.
    fn hubs(&self) -> Result<Vec<Remote>, Fault> {
        let mut hubs = Vec::new();
        if !self.leaf.is_empty() {
            hubs.push(Remote {
                addresses: self.leaf.clone(),
                login: self.leaf_credentials.clone().map_or(Login::None, Login::Credentials),
                tls_ca: self.leaf_tls_ca.clone(),
                ..Remote::default()
            });
        } else if self.leaf_credentials.is_some() || self.leaf_tls_ca.is_some() {
            let message = "is missing; leaf-credentials and leaf-tls-ca need the hub's address";
            return Err(Fault { place: "leaf".to_owned(), message: message.to_owned() });
        }
        hubs.extend(self.leaf_remotes.iter().cloned());
        Ok(hubs)
    }
}

/// Parses the addresses of one hub, separated by commas.
pub(crate) fn addresses(text: &str) -> Result<Vec<Address>, String> {
    let addresses: Vec<Address> = list(text)
        .filter(|address| !address.is_empty())
        .map(|address| address.parse().map_err(|error: InvalidAddress| error.to_string()))
        .collect::<Result<_, _>>()?;
    if addresses.is_empty() || addresses.len() > ADDRESSES_MAX {
        return Err(format!("expected 1 to {ADDRESSES_MAX} addresses"));
    }
    if addresses.iter().any(|address| address.is_web() != addresses[0].is_web()) {
        return Err("the addresses of a hub must all be WebSocket addresses, or none".to_owned());
    }
    Ok(addresses)
}

/// Formats the addresses, with asterisks in place of passwords and tokens.
pub(crate) fn addresses_text(addresses: &[Address]) -> String {
    let text = |address: &Address| {
        let shown = address.to_string();
        let Some((scheme, place)) = shown.split_once("://") else { return shown };
        match &address.user {
            None => shown,
            Some((user, Some(_))) => format!("{scheme}://{user}:***@{place}"),
            Some((_, None)) => format!("{scheme}://***@{place}"),
        }
    };
    addresses.iter().map(text).collect::<Vec<_>>().join(",")
}
