//! What can be set, once: the flag, the key of the file and the environment variable of each come from this table.
//!
//! A setting with the key `default-ttl` in `[cache]` is the flag `--default-ttl`, the environment variable
//! `NIGHTTRAIN_CACHE_DEFAULT_TTL`, and `default-ttl = "10s"` under `[cache]` in the file. All three are text that
//! goes through the same `set`, so that they cannot disagree. [`crate::settings::precedence`] says which one wins.

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
pub(crate) mod rate_settings;
pub(crate) mod site_settings;
pub(crate) mod tls_settings;
pub(crate) mod units;
pub(crate) mod upgrade;

use std::{
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    path::{Path, PathBuf},
    time::Duration,
};

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
        cache_settings::CACHE_SETTINGS,
        cluster_settings::{CLUSTER_SETTINGS, ClusterSettings},
        crawler_settings::CRAWLER_SETTINGS,
        feed_settings::{FEED_SETTINGS, FeedSettings},
        mail_settings::{MAIL_SETTINGS, MailSettings},
        origin_settings::ORIGIN_SETTINGS,
        peers_settings::{PEERS_SETTINGS, PeersSettings},
        rate_settings::RATE_SETTINGS,
        site_settings::{SITE_SETTINGS, SiteSettings},
        tls_settings::{TLS_SETTINGS, TlsSettings},
        units::{duration_text, parse_duration, parse_size, size_text},
    },
};

/// What is in force: every setting with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// Where misses are fetched; none until somebody says.
    pub origin: Option<Origin>,
    /// The accelerator's settings. Its `origin` and sites are blank: [`Settings::accelerator`] fills them.
    pub cache: Config,
    /// The sites of the file.
    pub sites: Vec<SiteSettings>,
    /// The accelerator's TLS, for hosts whose site says nothing else.
    pub tls: TlsSettings,
    /// Certificates that are obtained.
    pub acme: AcmeSettings,
    /// The cluster that accelerators share purges by.
    pub cluster: ClusterSettings,
    /// The accelerators that share keys with this one.
    pub peers: PeersSettings,
    /// The feed's settings.
    pub feed: FeedSettings,
    /// The mail service's settings.
    pub mail: MailSettings,
    /// Files with the networks of crawlers that are welcome.
    pub bots_approved: Vec<PathBuf>,
    /// Where the admin server listens.
    pub admin: SocketAddr,
    /// It is asked by https.
    pub admin_tls: bool,
    /// The name that its certificate is for, as our commands ask for it.
    pub admin_name: Option<String>,
    /// Who vouches for it, to our commands.
    pub admin_ca_file: Option<PathBuf>,
    /// A file with the token that the admin server demands.
    pub admin_token_file: Option<PathBuf>,
    /// A file with the token by which anybody may purge.
    pub purge_token_file: Option<PathBuf>,
    /// Which messages are logged, in tracing-subscriber's words.
    pub log: String,
    /// Where messages are logged, instead of stderr.
    pub log_file: Option<PathBuf>,
    /// Where the process says which one it is.
    pub pid_file: Option<PathBuf>,
    /// How long a stop waits for responses that are under way.
    pub drain_time_max: Duration,
    /// Bytes that clients may make all servers hold; by the servers that run where nobody says.
    pub client_memory_bytes: Option<u64>,
    /// The log of transactions.
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
    /// The accelerator's configuration in front of its sites, and of `origin` for all other hosts; but for TLS, which the process
    /// has for all its servers.
    ///
    /// # Errors
    /// The file with the token for purges cannot be read, or has none; a site has no origin.
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

/// Which part of the file a setting belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Section {
    /// The top of the file, before any `[section]`: what all servers share.
    Common,
    /// `[cache]`.
    Cache,
    /// `[feed]`.
    Feed,
    /// `[mail]`.
    Mail,
}

impl Section {
    /// Those with a name.
    pub(crate) const NAMED: [Self; 3] = [Self::Cache, Self::Feed, Self::Mail];

    /// What stands in brackets; none for the top of the file.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::Common => None,
            Self::Cache => Some("cache"),
            Self::Feed => Some("feed"),
            Self::Mail => Some("mail"),
        }
    }
}

/// How a value is written in the file.
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
    /// A boolean; as a flag it stands alone.
    Flag,
}

/// One thing that can be set.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    /// Its key in the file and its flag without the dashes.
    pub key: &'static str,
    /// Its part of the file.
    pub section: Section,
    /// How its value is written in the file.
    pub shape: ValueShape,
    /// The heading that `--help` lists it under.
    pub heading: &'static str,
    /// What stands for the value in `--help`.
    pub value_name: &'static str,
    /// One line on what it does.
    pub help: &'static str,
    /// How its value is taken and shown.
    pub access: ValueAccess,
}

/// How a value is taken from its text and shown as text.
#[derive(Clone, Copy)]
pub(crate) struct ValueAccess {
    /// Takes a value from its text, or says what would be right.
    pub set: fn(&mut Settings, &str) -> Result<(), String>,
    /// The text of the value in force, which `set` accepts; none if it is not set.
    pub text: fn(&Settings) -> Option<String>,
}

/// ValueAccess to a value that is always there: where it lies in [`Settings`], who reads its text, who writes it.
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

/// ValueAccess to a value that may be absent.
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

/// ValueAccess to a list of networks, which may be empty.
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

/// Networks between commas.
pub(crate) fn parse_networks(text: &str) -> Result<Vec<Network>, String> {
    list(text).map(|network| network.parse().map_err(|error: InvalidNetwork| error.to_string())).collect()
}

/// The same as a text; `None`: there is none.
pub(crate) fn networks_text(networks: &[Network]) -> Option<String> {
    let texts: Vec<_> = networks.iter().map(Network::to_string).collect();
    (!texts.is_empty()).then(|| texts.join(","))
}

impl Setting {
    /// Takes a value from its text.
    ///
    /// # Errors
    /// What would be right.
    pub(crate) fn set(&self, settings: &mut Settings, text: &str) -> Result<(), String> {
        (self.access.set)(settings, text)
    }

    /// The text of the value in force, which [`Setting::set`] accepts; none if it is not set.
    pub(crate) fn text(&self, settings: &Settings) -> Option<String> {
        (self.access.text)(settings)
    }

    /// The environment variable: `NIGHTTRAIN_CACHE_LISTEN`, `NIGHTTRAIN_ADMIN`.
    pub(crate) fn variable(&self) -> String {
        let section =
            self.section.name().map_or_else(String::new, |name| format!("{}_", name.to_ascii_uppercase()));
        format!("NIGHTTRAIN_{section}{}", self.key.to_ascii_uppercase().replace('-', "_"))
    }
}

/// The heading for settings that every server shares.
pub(crate) const COMMON: &str = "Common";

/// Every setting, in the order in which `--help` and `config --print` show them.
pub(crate) const SETTINGS: &[Setting] = &joined::<COUNT, _>([
    COMMON_SETTINGS,
    LOG_SETTINGS,
    CACHE_SETTINGS,
    RATE_SETTINGS,
    CRAWLER_SETTINGS,
    TLS_SETTINGS,
    ACME_SETTINGS,
    CLUSTER_SETTINGS,
    PEERS_SETTINGS,
    ORIGIN_SETTINGS,
    SITE_SETTINGS,
    FEED_SETTINGS,
    MAIL_SETTINGS,
]);

const COUNT: usize = COMMON_SETTINGS.len()
    + CACHE_SETTINGS.len()
    + RATE_SETTINGS.len()
    + CRAWLER_SETTINGS.len()
    + TLS_SETTINGS.len()
    + ACME_SETTINGS.len()
    + CLUSTER_SETTINGS.len()
    + PEERS_SETTINGS.len()
    + ORIGIN_SETTINGS.len()
    + SITE_SETTINGS.len()
    + LOG_SETTINGS.len()
    + FEED_SETTINGS.len()
    + MAIL_SETTINGS.len();

/// The tables of all parts, one behind the other.
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

/// The least memory that clients can be given: with less a part is too small for a mail or a page.
const CLIENT_MEMORY_MIN: u64 = 16 << 20;

fn parse_client_memory(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes if bytes < CLIENT_MEMORY_MIN => Err(format!("at least {}", size_text(CLIENT_MEMORY_MIN))),
        bytes => Ok(bytes),
    }
}

/// What all servers share.
const COMMON_SETTINGS: &[Setting] = &[
    Setting {
        key: "cores",
        section: Section::Common,
        shape: ValueShape::Counts,
        heading: COMMON,
        value_name: "LIST",
        help: "Processors to run one loop on each, such as 0,1 or 0-3; unset: every one that the process may use",
        access: ValueAccess {
            set: |settings, text| {
                settings.cache.cores = engine::cores::parse_list(text)
                    .map_err(|error| format!("{error}; cores are such as 0,1 or 0-3"))?;
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
        help: "Memory that clients can make all servers of the process hold: connections, answers and messages that are not \
               read, mails that come in. Each kind has a part, the rest is for whichever needs it; beyond, who holds most \
               gives way. Unset: what is left of 512MiB beside a store of 256MiB",
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
        help: "Where the admin server listens (/metrics, /healthz, /readyz, /stat) and where stat and purge find it",
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
        help: "File with the token of the admin server; without one it listens on loopback only",
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
        help: "Directory for state; unused while the store is in memory alone",
        access: optional!(cache.state, parse = parse_path, show = path_text),
    },
    Setting {
        key: "log",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "FILTER",
        help: "Which messages go to stderr: error, warn, info, debug, trace, or such as info,cache=debug",
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
        help: "File for the process id, removed at the end",
        access: optional!(pid_file, parse = parse_path, show = path_text),
    },
    Setting {
        key: "drain-time-max",
        section: Section::Common,
        shape: ValueShape::Text,
        heading: COMMON,
        value_name: "TIME",
        help: "How long a stop waits for responses that are under way",
        access: value!(drain_time_max, parse = parse_duration, show = duration_text),
    },
];

fn host_name(text: &str) -> Result<String, String> {
    let name: acme::Name = text.parse().map_err(|wrong: acme::InvalidName| wrong.to_string())?;
    Ok(name.to_string())
}

/// The setting with this key in this section, and its place in [`SETTINGS`].
pub(crate) fn in_section(section: Section, key: &str) -> Option<(usize, &'static Setting)> {
    SETTINGS.iter().enumerate().find(|(_, setting)| setting.section == section && setting.key == key)
}

/// The first setting with this key, in whatever section.
pub(crate) fn by_key(key: &str) -> Option<(usize, &'static Setting)> {
    SETTINGS.iter().enumerate().find(|(_, setting)| setting.key == key)
}

pub(crate) fn parse_address(text: &str, usual_port: u16) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let right = format!("an address is IP:PORT, for instance 127.0.0.1:{usual_port} or [::1]:{usual_port}");
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Err(format!("no port: {right}; perhaps {}", SocketAddr::new(ip, usual_port)));
    }
    if let Some(port) =
        text.strip_prefix(':').unwrap_or(text).parse::<u16>().ok().filter(|_| !text.is_empty())
    {
        return Err(format!("no IP address: {right}; perhaps 127.0.0.1:{port}"));
    }
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => (name, port.parse::<u16>()),
        None => (text, Ok(usual_port)),
    };
    let Ok(port) = port else { return Err(right) };
    match name {
        "*" => Err(format!(
            "* is no address: {right}; for all addresses of this machine 0.0.0.0:{port} or [::]:{port}"
        )),
        "localhost" => {
            Err(format!("a name is not taken, since it may mean several: {right}; perhaps 127.0.0.1:{port}"))
        }
        name if is_host_name(name) => Err(format!(
            "`{name}` is a name, which may mean several addresses, and is not taken: {right}; for all addresses of this \
             machine 0.0.0.0:{port}"
        )),
        _ => Err(right),
    }
}

/// Returns whether a text looks like a host's name.
fn is_host_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
}

/// The address of a host's name. Of several, the first of the older kind counts, as for nats-server (Go listens so).
pub(crate) fn resolve(name: &str) -> Result<IpAddr, String> {
    let found: Vec<SocketAddr> =
        (name, 0).to_socket_addrs().map_err(|why| format!("`{name}` has no address: {why}"))?.collect();
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.map(SocketAddr::ip).ok_or_else(|| format!("`{name}` has no address"))
}

/// [`parse_address`], or a host's name and a port.
pub(crate) fn parse_host_and_port(text: &str, usual_port: u16) -> Result<SocketAddr, String> {
    match text.rsplit_once(':') {
        Some((name, port)) if is_host_name(name) => {
            let port = port.parse().map_err(|_| format!("`{port}` is no port, such as {usual_port}"))?;
            resolve(name).map(|ip| SocketAddr::new(ip, port))
        }
        _ => parse_address(text, usual_port),
    }
}

pub(crate) fn parse_path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("a path is missing".to_owned()) } else { Ok(PathBuf::from(text)) }
}

pub(crate) fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
}

/// The name of a header's field (RFC 9110 §5.6.2).
pub(crate) fn field_name(text: &str) -> Result<Box<str>, String> {
    let is_token = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    if is_token { Ok(text.into()) } else { Err(format!("`{text}` is no field name, such as Surrogate-Key")) }
}

pub(crate) fn any_count(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "a whole number is wanted, for instance 100".to_owned())
}

pub(crate) fn one_or_more(text: &str) -> Result<usize, String> {
    match any_count(text)? {
        0 => Err("at least 1 is wanted".to_owned()),
        count => Ok(count),
    }
}

/// A size that is not zero.
pub(crate) fn some_size(text: &str) -> Result<usize, String> {
    match usize::try_from(parse_size(text)?) {
        Ok(0) | Err(_) => Err("a size above zero is wanted, for instance 1MiB".to_owned()),
        Ok(bytes) => Ok(bytes),
    }
}

pub(crate) fn some_time(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("a time above zero is wanted, for instance 10s".to_owned()),
        time => Ok(time),
    }
}

pub(crate) fn plain(count: usize) -> String {
    count.to_string()
}

pub(crate) fn usize_size_text(bytes: usize) -> String {
    size_text(bytes as u64)
}

pub(crate) fn path_text(path: impl AsRef<Path>) -> String {
    path.as_ref().display().to_string()
}

pub(crate) fn truth(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "true or false is wanted".to_owned())
}

pub(crate) fn truth_text(is_so: bool) -> String {
    is_so.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_kebab() {
        for (i, setting) in SETTINGS.iter().enumerate() {
            assert!(setting.key.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{}", setting.key);
            let twin = |other: &&Setting| {
                other.key == setting.key
                    && (other.section == setting.section || other.section == Section::Common)
            };
            assert!(SETTINGS[..i].iter().find(twin).is_none(), "{} twice", setting.key);
        }
    }

    #[test]
    fn variables_are_named_after_keys() {
        let variable = |key| by_key(key).expect("a setting").1.variable();
        assert_eq!(variable("listen"), "NIGHTTRAIN_CACHE_LISTEN");
        assert_eq!(variable("default-ttl"), "NIGHTTRAIN_CACHE_DEFAULT_TTL");
        assert_eq!(variable("admin"), "NIGHTTRAIN_ADMIN");
    }

    /// What is printed is what would be accepted, for every setting: the defaults, and one other value each.
    #[test]
    fn text_sets_the_same_value() {
        let others = |key: &str| match key {
            "cores" => "0,2,3",
            "admin" | "listen" | "tls-listen" => "[::1]:1",
            "admin-token-file" | "state" | "log-file" | "pid-file" | "listen-unix" | "access-log" => "/a/b",
            "log-ring" => "128KiB",
            "client-memory" => "64MiB",
            "access-log-format" => "json",
            "access-log-rotate" => "daily",
            "access-log-keep" => "3",
            "log-hide-query" => "-",
            "admin-tls" | "tls-shared" | "http-tls" => "true",
            "admin-name" | "acme-profile" => "a.example",
            "admin-ca-file" | "acme-ca-file" => "/a/b",
            "acme-directory" => "https://ca.example/dir",
            "acme-domain" => "a.example,192.0.2.1",
            "acme-contact" => "mailto:a@b.example",
            "acme-challenge" => "tls-alpn-01",
            "log" => "warn,cache=debug",
            "origin" => "http://[::1]:3000, https://a:443 weight=2, unix:/a/b backup",
            "balance" => "hash",
            "bots" => "cached-only",
            "strangers" => "20/s",
            "bot-agents" => "night,Train",
            "bots-approved" => "/a/b,/c",
            "sticky-cookie" | "probe-body" | "origin-tls-name" => "night",
            "probe" => "/healthz",
            "probe-status" => "204",
            "origin-tries" | "eject-after" | "probe-window" | "probe-threshold" => "7",
            "origin-tls-ca" | "origin-tls-cert" | "origin-tls-key" => "/a/b",
            "store" => "/a/store",
            "paging" => "kernel",
            "store-admission" => "second-request",
            "memory-limit" => "5MiB",
            "cookies" => "rfc",
            "client-cache-control" => "obey",
            "grace" => "10s",
            "stale-if-error" => "1h",
            "keep" => "2h",
            "name" => "edge-1",
            "purge-from"
            | "trusted-proxies"
            | "mail-readers"
            | "proxy-protocol-from"
            | "bot-networks"
            | "shared-networks" => "10.0.0.0/8,::1",
            "tags" => "Edge-Tag,xkey",
            "host" => "app.internal:81",
            "ignore-query" | "bypass-cookies" => "utm_*,gclid",
            "methods" => "GET,POST",
            "bypass-headers" => "X-Preview,X-Debug",
            "sort-query" | "https-only" | "remove-set-cookie" => "true",
            "error-page" => concat!(env!("CARGO_MANIFEST_DIR"), "/../cache/src/error_page/page.css"),
            "resolver" => "10.0.0.2:53,10.0.0.3:5353",
            "compress" => "gzip,br",
            "compress-types" => "text/*,*+json",
            "compress-bytes-min" => "5KiB",
            "monitor" | "websocket" => "127.0.0.1:7",
            "tls-cert" | "tls-key" | "tls-ca" | "tls-ocsp" | "nats-config" => "/a/b",
            "smtp" | "http" | "smtps" | "lmtp" => "127.0.0.1:7",
            "banned" | "token-file" | "purge-token-file" => "/a/b",
            "store-size" | "blocks-from" | "index-memory" => "256MiB",
            "durability" => "power",
            "host-name" | "domain" => "mx.example.org",
            "domains" | "http-hosts" => "a.example,b.example",
            "inbox-mails-max" | "recipients-max" | "session-commands-max" => "7",
            key if key.ends_with("-per-minute") => "7",
            "share-bodies" | "unsafe-invalidates" | "cdn-cache-control" | "search-index" => "false",
            "tls-verify" | "proxy-protocol" | "tls-handshake-first" | "websocket-tls" => "true",
            "websocket-origins" => "https://a.example,https://b.example",
            "leaf" => "nats-leaf://a.example:7422,tls://[::1]:9",
            "leaf-credentials" | "leaf-tls-ca" => "/a/b",
            "cluster" => "nats://a.example:4222,tls://[::1]:9",
            "cluster-name" | "cluster-stream" | "cluster-bucket" | "cluster-certificates" => "night-1",
            "cluster-replicas" => "5",
            "cluster-when-cut-off" => "serve",
            key if key.starts_with("cluster-tls") => "/a/b",
            "cluster-credentials" | "cluster-nkey" | "cluster-secret" | "peers-secret" => "/a/b",
            "peers-listen" => "10.0.0.1:6080",
            "peers-address" => "web1.internal:6080",
            "peers-members" => "web1=10.0.0.1:6080,web2=[::1]:9",
            "peers-connections-max" | "peers-requests-max" => "7",
            "server-name" => "night-1",
            "max-connections" | "max-subscriptions" | "ping-max" => "7",
            "max-payload"
            | "max-control-line"
            | "max-subscription-memory"
            | "max-pending"
            | "max-pending-total" => "5KiB",
            "origin-stream-bytes-max" => "20KiB",
            key if key.ends_with("bytes-max") || key == "memory" => "5KiB",
            "origin-queue-max" | "origin-lasting-max" | "origin-streams-max" => "7",
            "request-headers-max" | "requests-per-connection-max" | "handshakes-max" => "7",
            "request-body-rate-min" | "send-rate-min" => "5KiB",
            "tls-client-ca" => "/a/b",
            "tls-client" => "asked",
            "tls-client-header" => "X-Client",
            "origin-protocol" => "http2",
            "client-fin" => "end",
            key if key.contains("-requests-") => "7",
            key if key.contains("connections-") => "7",
            _ => "1500ms",
        };
        for setting in SETTINGS {
            for text in [setting.text(&Settings::default()), Some(others(setting.key).to_owned())] {
                let Some(text) = text else { continue };
                let mut settings = Settings::default();
                setting.set(&mut settings, &text).unwrap_or_else(|e| panic!("{} {text}: {e}", setting.key));
                assert_eq!(setting.text(&settings).as_deref(), Some(text.as_str()), "{}", setting.key);
            }
        }
    }

    #[test]
    fn hosts_have_names() {
        let local = parse_host_and_port("localhost:4222", 1).expect("it is there");
        assert!(local.ip().is_loopback() && local.port() == 4222, "{local}");
        assert_eq!(parse_host_and_port("[::1]:7", 1), Ok(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 7))));
        for (wrong, says) in [
            ("localhost:port", "`port` is no port, such as 4222"),
            ("nowhere.invalid:1", "`nowhere.invalid` has no address"),
            ("4222", "perhaps 127.0.0.1:4222"),
            ("127.0.0.1", "perhaps 127.0.0.1:4222"),
        ] {
            let error = parse_host_and_port(wrong, 4222).expect_err(wrong);
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }

    #[test]
    fn addresses() {
        assert!(parse_address("0.0.0.0:80", 1).is_ok());
        for (wrong, says) in [
            ("127.0.0.1", "perhaps 127.0.0.1:8080"),
            (":8081", "perhaps 127.0.0.1:8081"),
            ("8081", "perhaps 127.0.0.1:8081"),
            ("localhost:8081", "perhaps 127.0.0.1:8081"),
            ("localhost", "perhaps 127.0.0.1:8080"),
            ("*:8081", "0.0.0.0:8081 or [::]:8081"),
            ("www.example.org:8081", "`www.example.org` is a name"),
            ("x", "`x` is a name"),
            ("localhost:http", "an address is"),
            ("", "an address is"),
            ("127.0.0.1:99999", "an address is"),
        ] {
            let error = parse_address(wrong, 8080).expect_err(wrong);
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }
}
