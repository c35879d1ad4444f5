//! The settings: one table defines the flag, the key of the file and the environment variable of each.
//!
//! A setting with the key `default-ttl` in `[cache]` is the flag `--default-ttl`, the environment variable
//! `NIGHTTRAIN_CACHE_DEFAULT_TTL`, and `default-ttl = "10s"` under `[cache]` in the file. All three are text
//! that goes through the same `set`, so that they cannot disagree. [`crate::settings::precedence`] defines
//! which one wins.

pub(crate) mod accelerator;
pub(crate) mod acme_settings;
mod approved_crawlers;
pub(crate) mod cluster_settings;
pub(crate) mod effective;
pub(crate) mod feed_settings;
pub(crate) mod file;
pub(crate) mod mail_settings;
pub(crate) mod nats_file;
pub(crate) mod nats_flags;
pub(crate) mod peers_settings;
pub(crate) mod precedence;
mod setting;
pub(crate) mod site_settings;
pub(crate) mod table;
#[cfg(test)]
mod tests;
pub(crate) mod tls_settings;
pub(crate) mod units;
pub(crate) mod upgrade;
mod values;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use cache::config::{Config, HostPattern, Origin, PathRule};

use self::{
    acme_settings::AcmeSettings, cluster_settings::ClusterSettings, feed_settings::FeedSettings,
    mail_settings::MailSettings, peers_settings::PeersSettings, tls_settings::TlsSettings,
};
use crate::log::transactions::LogRules;

pub(crate) use self::{
    setting::{
        Group, Section, Setting, ValueAccess, ValueShape, access, flag, named, optional, optional_path,
        texts, value,
    },
    table::{SETTINGS, by_key, in_section},
    values::{
        any_count, field_name, host_name, list, list_of, list_text, name_of, network, one_or_more,
        parse_address, parse_host_and_port, parse_path, path_text, plain, resolve, some_size, some_time,
        truth, usize_size_text, value_of,
    },
};

/// Active settings, each with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// Origin from which misses are fetched; `None` if it is not configured.
    pub origin: Option<Origin>,
    /// The accelerator's settings. Its `origin` and sites are empty: [`Settings::accelerator`] fills them.
    pub cache: Config,
    /// Sites from the configuration file.
    pub sites: Vec<SiteSettings>,
    /// TLS settings of the accelerator, for hosts whose site has none of its own.
    pub tls: TlsSettings,
    /// Settings of certificates that are obtained by ACME.
    pub acme: AcmeSettings,
    /// Settings of the cluster through which accelerators share purges.
    pub cluster: ClusterSettings,
    /// Settings for the peers with which this accelerator shares cache keys.
    pub peers: PeersSettings,
    /// The feed's settings.
    pub feed: FeedSettings,
    /// The mail service's settings.
    pub mail: MailSettings,
    /// Files with the networks of approved crawlers.
    pub bots_approved: Vec<PathBuf>,
    /// Address on which the admin server listens.
    pub admin: SocketAddr,
    /// True if the admin server uses https.
    pub admin_tls: bool,
    /// Name in the admin server's certificate, which our commands verify.
    pub admin_name: Option<String>,
    /// CA certificates that our commands trust for the admin server.
    pub admin_ca_file: Option<PathBuf>,
    /// File with the token that the admin server demands.
    pub admin_token_file: Option<PathBuf>,
    /// File with the token that lets any client purge.
    pub purge_token_file: Option<PathBuf>,
    /// Log filter, in tracing-subscriber's syntax.
    pub log: String,
    /// File of the log, instead of stderr.
    pub log_file: Option<PathBuf>,
    /// File to which the process writes its process id.
    pub pid_file: Option<PathBuf>,
    /// Maximum time that a stop waits for responses under way.
    pub drain_time_max: Duration,
    /// Memory in bytes that the clients of all servers together may use; if unset, the default depends on
    /// which servers run.
    pub client_memory_bytes: Option<u64>,
    /// Settings of the transaction log.
    pub log_rules: LogRules,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            origin: None,
            cache: Config::new(Origin::http("", 0)),
            sites: Vec::new(),
            tls: TlsSettings::default(),
            acme: AcmeSettings::default(),
            cluster: ClusterSettings::default(),
            peers: PeersSettings::default(),
            feed: FeedSettings::default(),
            mail: MailSettings::default(),
            bots_approved: Vec::new(),
            admin: SocketAddr::from(([127, 0, 0, 1], 9180)),
            admin_tls: false,
            admin_name: None,
            admin_ca_file: None,
            admin_token_file: None,
            purge_token_file: None,
            log: "info".to_owned(),
            log_file: None,
            pid_file: None,
            drain_time_max: Duration::from_secs(30),
            client_memory_bytes: None,
            log_rules: LogRules::default(),
        }
    }
}

/// A site: a `[[cache.site]]` section of the configuration file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SiteSettings {
    /// Hosts of the site.
    pub hosts: Vec<HostPattern>,
    /// Settings that the site overrides: the position in [`SETTINGS`], and the validated text.
    pub own: Vec<(usize, String)>,
    /// Rules for paths; `None` means that the rules of `[cache]` apply.
    pub paths: Option<Vec<PathRule>>,
    /// Location of the section: `FILE:LINE:COLUMN`.
    pub place: String,
}
