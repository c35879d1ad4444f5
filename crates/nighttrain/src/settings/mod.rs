//! The settings: one table defines the flag, the key of the file and the environment variable of each.
//!
//! A setting with the key `default-ttl` in `[cache]` is the flag `--default-ttl`, the environment variable
//! `NIGHTTRAIN_CACHE_DEFAULT_TTL`, and `default-ttl = "10s"` under `[cache]` in the file. All three are text
//! that goes through the same `set`, so that they cannot disagree. [`crate::settings::precedence`] defines
//! which one wins.

pub(crate) mod acme_settings;
pub(crate) mod cache_settings;
pub(crate) mod cluster_settings;
pub(crate) mod crawler_settings;
pub(crate) mod effective;
pub(crate) mod feed_settings;
pub(crate) mod file;
pub(crate) mod mail_settings;
pub(crate) mod nats_file;
pub(crate) mod nats_flags;
pub(crate) mod origin_settings;
pub(crate) mod peers_settings;
pub(crate) mod precedence;
pub(crate) mod site_settings;
#[cfg(test)]
mod tests;
pub(crate) mod tls_settings;
pub(crate) mod units;
pub(crate) mod upgrade;
mod values;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use cache::{
    InvalidNetwork, Network, SiteRules,
    config::{Config, CrawlerRules, Origin},
};

use crate::{
    admin::read_token,
    failure::{Failure, Fault},
    log::transactions::{LOG_SETTINGS, LogRules},
    settings::{
        acme_settings::{ACME_SETTINGS, AcmeSettings},
        cache_settings::{CACHE_LIMIT_SETTINGS, CACHE_SETTINGS},
        cluster_settings::{CLUSTER_SETTINGS, ClusterSettings},
        crawler_settings::CRAWLER_SETTINGS,
        feed_settings::{FEED_SETTINGS, FeedSettings},
        mail_settings::{MAIL_LIMIT_SETTINGS, MAIL_SETTINGS, MailSettings},
        origin_settings::ORIGIN_SETTINGS,
        peers_settings::{PEERS_SETTINGS, PeersSettings},
        site_settings::{SITE_SETTINGS, SiteSettings},
        tls_settings::{TLS_SETTINGS, TlsSettings},
        units::{duration_text, parse_duration, parse_size, size_text},
    },
};

use values::host_name;
pub(crate) use values::{
    any_count, field_name, list, one_or_more, parse_address, parse_host_and_port, parse_path, path_text,
    plain, resolve, some_size, some_time, truth, truth_text, usize_size_text,
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
        let token = token
            .map_err(|message| Failure::Configuration(vec![Fault { place: KEY.to_owned(), message }]))?;
        let sites = self.sites.iter().map(|said| said.site(self, origin.as_ref()));
        let sites = sites.collect::<Result<_, _>>().map_err(|fault| Failure::Configuration(vec![fault]))?;
        let asked = self.tls.client_certificates().map_err(|fault| Failure::Configuration(vec![fault]))?;
        let rules = SiteRules { client_certificates: asked, ..self.cache.rules.clone() };
        let approved =
            crawler_settings::approved(self).map_err(|fault| Failure::Configuration(vec![fault]))?;
        let crawlers = CrawlerRules { approved, ..self.cache.crawlers.clone() };
        let peers = self.cluster.config(self).and_then(|cluster| self.peers.rules(cluster.as_ref()));
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

/// Section of the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    /// The top of the file, before any `[section]`: settings that all servers share.
    Common,
    /// `[cache]`.
    Cache,
    /// `[feed]`.
    Feed,
    /// `[mail]`.
    Mail,
}

impl Section {
    /// Sections that have a name.
    pub(crate) const NAMED: [Self; 3] = [Self::Cache, Self::Feed, Self::Mail];

    /// Returns the name in brackets; `None` for the top of the file.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::Common => None,
            Self::Cache => Some("cache"),
            Self::Feed => Some("feed"),
            Self::Mail => Some("mail"),
        }
    }
}

/// TOML type of a value in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueShape {
    /// A string.
    Text,
    /// An integer.
    Count,
    /// An array of integers.
    Counts,
    /// An array of strings.
    Texts,
    /// A boolean; as a command line flag it takes no value.
    Flag,
}

/// A setting.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    /// Key in the file, and flag without the dashes.
    pub key: &'static str,
    /// Section of the file.
    pub section: Section,
    /// TOML type in the file.
    pub shape: ValueShape,
    /// Heading in `--help`.
    pub heading: &'static str,
    /// Placeholder of the value in `--help`.
    pub value_name: &'static str,
    /// Help text.
    pub help: &'static str,
    /// Functions that parse and format the value.
    pub access: ValueAccess,
}

/// Functions that parse and format a value.
#[derive(Clone, Copy)]
pub(crate) struct ValueAccess {
    /// Parses a value and stores it, or returns a message with a correct example.
    pub set: fn(&mut Settings, &str) -> Result<(), String>,
    /// Formats the active value so that `set` accepts it; `None` if it is not set.
    pub text: fn(&Settings) -> Option<String>,
}

/// Builds the `ValueAccess` of a setting that always has a value, from its field in [`Settings`], its parser
/// and its formatter.
macro_rules! value {
    ($($place:ident).+, parse = $parse:expr, show = $show:expr) => {
        $crate::settings::ValueAccess {
            set: |settings, text| {
                settings.$($place).+ = $parse(text)?;
                Ok(())
            },
            text: |settings| Some($show(settings.$($place).+.clone())),
        }
    };
}

/// Builds the `ValueAccess` of a setting that may have no value.
macro_rules! optional {
    ($($place:ident).+, parse = $parse:expr, show = $show:expr) => {
        $crate::settings::ValueAccess {
            set: |settings, text| {
                settings.$($place).+ = Some($parse(text)?);
                Ok(())
            },
            text: |settings| settings.$($place).+.as_ref().map($show),
        }
    };
}

/// Builds the `ValueAccess` of a setting that is a list of networks, which may be empty.
macro_rules! networks {
    ($($place:ident).+) => {
        $crate::settings::ValueAccess {
            set: |settings, text| {
                settings.$($place).+ = $crate::settings::parse_networks(text)?;
                Ok(())
            },
            text: |settings| $crate::settings::networks_text(&settings.$($place).+),
        }
    };
}
pub(crate) use {networks, optional, value};

/// Parses networks separated by commas.
pub(crate) fn parse_networks(text: &str) -> Result<Vec<Network>, String> {
    list(text).map(|network| network.parse().map_err(|error: InvalidNetwork| error.to_string())).collect()
}

/// Formats networks separated by commas; `None` for an empty list.
pub(crate) fn networks_text(networks: &[Network]) -> Option<String> {
    let texts: Vec<_> = networks.iter().map(Network::to_string).collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

impl Setting {
    /// Parses a value and stores it.
    ///
    /// # Errors
    /// Returns a message with a correct example.
    pub(crate) fn set(&self, settings: &mut Settings, text: &str) -> Result<(), String> {
        (self.access.set)(settings, text)
    }

    /// Formats the active value so that [`Setting::set`] accepts it; `None` if it is not set.
    pub(crate) fn text(&self, settings: &Settings) -> Option<String> {
        (self.access.text)(settings)
    }

    /// Returns the environment variable, such as `NIGHTTRAIN_CACHE_LISTEN` or `NIGHTTRAIN_ADMIN`.
    pub(crate) fn variable(&self) -> String {
        let section =
            self.section.name().map_or_else(String::new, |name| format!("{}_", name.to_ascii_uppercase()));
        format!("NIGHTTRAIN_{section}{}", self.key.to_ascii_uppercase().replace('-', "_"))
    }
}

/// Heading of settings that every server shares.
pub(crate) const COMMON: &str = "Common";

/// Every setting, in the order in which `--help` and `config --print` show them.
pub(crate) const SETTINGS: &[Setting] = &joined::<COUNT, _>([
    COMMON_SETTINGS,
    LOG_SETTINGS,
    CACHE_SETTINGS,
    CACHE_LIMIT_SETTINGS,
    CRAWLER_SETTINGS,
    TLS_SETTINGS,
    ACME_SETTINGS,
    CLUSTER_SETTINGS,
    PEERS_SETTINGS,
    ORIGIN_SETTINGS,
    SITE_SETTINGS,
    FEED_SETTINGS,
    MAIL_SETTINGS,
    MAIL_LIMIT_SETTINGS,
]);

const COUNT: usize = COMMON_SETTINGS.len()
    + CACHE_SETTINGS.len()
    + CACHE_LIMIT_SETTINGS.len()
    + CRAWLER_SETTINGS.len()
    + TLS_SETTINGS.len()
    + ACME_SETTINGS.len()
    + CLUSTER_SETTINGS.len()
    + PEERS_SETTINGS.len()
    + ORIGIN_SETTINGS.len()
    + SITE_SETTINGS.len()
    + LOG_SETTINGS.len()
    + FEED_SETTINGS.len()
    + MAIL_SETTINGS.len()
    + MAIL_LIMIT_SETTINGS.len();

/// Concatenates tables of settings at compile time.
const fn joined<const N: usize, const TABLES: usize>(tables: [&[Setting]; TABLES]) -> [Setting; N] {
    let mut all = [COMMON_SETTINGS[0]; N];
    let (mut i, mut table, mut row) = (0, 0, 0);
    while i < N {
        if row == tables[table].len() {
            (table, row) = (table + 1, 0);
            continue;
        }
        all[i] = tables[table][row];
        (i, row) = (i + 1, row + 1);
    }
    all
}

/// Minimum memory for clients; with less, a server's share would be too small for a mail or a page.
const CLIENT_MEMORY_MIN: u64 = 16 << 20;

fn parse_client_memory(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes < CLIENT_MEMORY_MIN => Err(format!("at least {}", size_text(CLIENT_MEMORY_MIN))),
        bytes => Ok(bytes),
    }
}

/// Settings that all servers share.
const COMMON_SETTINGS: &[Setting] = &[
    Setting {
        key: "cores",
        section: Section::Common,
        shape: ValueShape::Counts,
        heading: COMMON,
        value_name: "LIST",
        help: "Processors to run one loop on each, such as 0,1 or 0-3; unset: all that the process may use",
        access: ValueAccess {
            set: |settings, text| {
                settings.cache.cores = engine::cores::parse_list(text)
                    .map_err(|error| format!("{error}; expected cores such as 0,1 or 0-3"))?;
                settings.feed.config.cores.clone_from(&settings.cache.cores);
                settings.mail.config.cores.clone_from(&settings.cache.cores);
                Ok(())
            },
            text: |settings| {
                let cores: Vec<_> = settings.cache.cores.iter().map(usize::to_string).collect();
                (!cores.is_empty()).then(|| cores.join(","))
            },
        },
    },
    Setting {
        key: "client-memory",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "SIZE",
        help: "Memory that clients of all servers may hold: connections, unread answers and messages, mails being \
               received. Each kind has a part of its own and shares the rest; when all is used, the client that holds \
               the most is disconnected. Unset: what a store of 256MiB leaves of 512MiB",
        access: optional!(
            client_memory_bytes,
            parse = parse_client_memory,
            show = |bytes: &u64| size_text(*bytes)
        ),
    },
    Setting {
        key: "admin",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "ADDRESS",
        help: "Address of the admin server (/metrics, /healthz, /readyz, /stat), which stat and purge connect to",
        access: value!(
            admin,
            parse = |text| parse_address(text, 9180),
            show = |address: SocketAddr| address.to_string()
        ),
    },
    Setting {
        key: "admin-token-file",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "FILE",
        help: "File with the token of the admin server; unset: it listens on loopback only",
        access: optional!(admin_token_file, parse = parse_path, show = path_text),
    },
    Setting {
        key: "admin-tls",
        section: Section::Common,
        shape: ValueShape::Flag,
        heading: COMMON,
        value_name: "true|false",
        help: "Serves the admin port by https with the accelerator's certificates; stat, purge and others then use https",
        access: value!(admin_tls, parse = truth, show = truth_text),
    },
    Setting {
        key: "admin-name",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "NAME",
        help: "Name in the admin server's certificate, which stat, purge and others check; unset: its address",
        access: optional!(admin_name, parse = host_name, show = Clone::clone),
    },
    Setting {
        key: "admin-ca-file",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "FILE",
        help: "CA certificates with which stat, purge and others check the admin server (PEM); unset: the system's",
        access: optional!(admin_ca_file, parse = parse_path, show = path_text),
    },
    Setting {
        key: "state",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "DIR",
        help: "Directory for state; not used while the store is in memory only",
        access: optional!(cache.state, parse = parse_path, show = path_text),
    },
    Setting {
        key: "log",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "FILTER",
        help: "Log level: error, warn, info, debug, trace, or by part such as info,cache=debug",
        access: ValueAccess {
            set: |settings, text| {
                crate::log::parse_filter(text)?;
                text.clone_into(&mut settings.log);
                Ok(())
            },
            text: |settings| Some(settings.log.clone()),
        },
    },
    Setting {
        key: "log-file",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "FILE",
        help: "Log file in place of stderr; SIGUSR1 reopens it",
        access: optional!(log_file, parse = parse_path, show = path_text),
    },
    Setting {
        key: "pid-file",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "FILE",
        help: "File for the process id, removed at exit",
        access: optional!(pid_file, parse = parse_path, show = path_text),
    },
    Setting {
        key: "drain-time-max",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "TIME",
        help: "Time that a stop waits for responses under way",
        access: value!(drain_time_max, parse = parse_duration, show = duration_text),
    },
];

/// Returns the setting with this key in this section, and its position in [`SETTINGS`].
pub(crate) fn in_section(section: Section, key: &str) -> Option<(usize, &'static Setting)> {
    SETTINGS.iter().enumerate().find(|(_, setting)| setting.section == section && setting.key == key)
}

/// Returns the first setting with this key, in any section, and its position in [`SETTINGS`].
pub(crate) fn by_key(key: &str) -> Option<(usize, &'static Setting)> {
    SETTINGS.iter().enumerate().find(|(_, setting)| setting.key == key)
}
