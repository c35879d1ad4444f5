//! What can be set, once: the flag, the key of the file and the environment variable of each come from this table.
//!
//! A setting with the key `default-ttl` in `[cache]` is the flag `--default-ttl`, the environment variable
//! `NIGHTTRAIN_CACHE_DEFAULT_TTL`, and `default-ttl = "10s"` under `[cache]` in the file. All three are text that
//! goes through the same `set`, so that they cannot disagree. [`crate::precedence`] says which one wins.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use cache::{
    InvalidNetwork, Network,
    config::{Admission, Config, CookieRule, Origin, Paging},
};

use crate::{
    feed_settings::{FEED_SETTINGS, FeedSettings},
    mail_settings::{MAIL_SETTINGS, MailSettings},
    units::{duration_text, parse_duration, parse_size, size_text},
};

/// What is in force: every setting with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// Where misses are fetched; none until somebody says.
    pub origin: Option<Origin>,
    /// The accelerator's settings. Its `origin` is blank: [`Settings::accelerator`] fills it.
    pub cache: Config,
    /// The feed's settings.
    pub feed: FeedSettings,
    /// The mail service's settings.
    pub mail: MailSettings,
    /// Where the admin server listens.
    pub admin: SocketAddr,
    /// A file with the token that the admin server demands.
    pub admin_token_file: Option<PathBuf>,
    /// Which messages are logged, in tracing-subscriber's words.
    pub log: String,
    /// How long a stop waits for responses that are under way.
    pub drain_time_max: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            origin: None,
            cache: Config::new(Origin { host: String::new(), port: 0 }),
            feed: FeedSettings::default(),
            mail: MailSettings::default(),
            admin: SocketAddr::from(([127, 0, 0, 1], 9180)),
            admin_token_file: None,
            log: "info".to_owned(),
            drain_time_max: Duration::from_secs(30),
        }
    }
}

impl Settings {
    /// The accelerator's configuration in front of `origin`.
    pub(crate) fn accelerator(&self, origin: Origin) -> Config {
        Config { origin, ..self.cache.clone() }
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
pub(crate) enum Shape {
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
    pub shape: Shape,
    /// The heading that `--help` lists it under.
    pub heading: &'static str,
    /// What stands for the value in `--help`.
    pub value_name: &'static str,
    /// One line on what it does.
    pub help: &'static str,
    /// Takes a value from its text, or says what would be right.
    pub set: fn(&mut Settings, &str) -> Result<(), String>,
    /// The text of the value in force, which `set` accepts; none if it is not set.
    pub text: fn(&Settings) -> Option<String>,
}

impl Setting {
    /// The environment variable: `NIGHTTRAIN_CACHE_LISTEN`, `NIGHTTRAIN_ADMIN`.
    pub(crate) fn variable(&self) -> String {
        let section =
            self.section.name().map_or_else(String::new, |name| format!("{}_", name.to_ascii_uppercase()));
        format!("NIGHTTRAIN_{section}{}", self.key.to_ascii_uppercase().replace('-', "_"))
    }
}

/// The heading for settings that every server shares.
pub(crate) const COMMON: &str = "Common";
const CACHE: &str = "Cache";
/// The heading for limits; `-h` leaves them to `--help`.
pub(crate) const LIMITS: &str = "Limits on clients and origin";

/// A limit: its field is of a type whose text is read by `$parse` and written by `$text`.
macro_rules! limit {
    ($key:literal, $field:ident, $shape:ident, $value_name:literal, $parse:expr, $text:expr, $help:literal) => {
        Setting {
            key: $key,
            section: Section::Cache,
            shape: Shape::$shape,
            heading: LIMITS,
            value_name: $value_name,
            help: $help,
            set: |settings, text| {
                settings.cache.limits.$field = $parse(text)?;
                Ok(())
            },
            text: |settings| Some($text(settings.cache.limits.$field)),
        }
    };
}

/// Every setting, in the order in which `--help` and `config --print` show them.
pub(crate) const SETTINGS: &[Setting] =
    &joined::<{ COMMON_AND_CACHE.len() + FEED_SETTINGS.len() + MAIL_SETTINGS.len() }>();

/// The tables of all parts, one behind the other.
const fn joined<const N: usize>() -> [Setting; N] {
    let mut all = [COMMON_AND_CACHE[0]; N];
    let mut i = 0;
    while i < N {
        let feed = COMMON_AND_CACHE.len();
        let mail = feed + FEED_SETTINGS.len();
        all[i] = if i < feed {
            COMMON_AND_CACHE[i]
        } else if i < mail {
            FEED_SETTINGS[i - feed]
        } else {
            MAIL_SETTINGS[i - mail]
        };
        i += 1;
    }
    all
}

const COMMON_AND_CACHE: &[Setting] = &[
    Setting {
        key: "cores",
        section: Section::Common,
        shape: Shape::Counts,
        heading: COMMON,
        value_name: "LIST",
        help: "Processors to run one loop on each, such as 0,1 or 0-3; unset: every one that the process may use",
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
    Setting {
        key: "admin",
        section: Section::Common,
        shape: Shape::Text,
        heading: COMMON,
        value_name: "ADDRESS",
        help: "Where the admin server listens (/metrics, /healthz, /readyz, /stat) and where stat and purge find it",
        set: |settings, text| {
            settings.admin = parse_address(text, 9180)?;
            Ok(())
        },
        text: |settings| Some(settings.admin.to_string()),
    },
    Setting {
        key: "admin-token-file",
        section: Section::Common,
        shape: Shape::Text,
        heading: COMMON,
        value_name: "FILE",
        help: "A file with the token that the admin server demands; without one it listens on loopback only",
        set: |settings, text| {
            settings.admin_token_file = Some(parse_path(text)?);
            Ok(())
        },
        text: |settings| settings.admin_token_file.as_ref().map(|path| path.display().to_string()),
    },
    Setting {
        key: "state",
        section: Section::Common,
        shape: Shape::Text,
        heading: COMMON,
        value_name: "DIR",
        help: "A directory for files of state; unused while the store is in memory alone",
        set: |settings, text| {
            settings.cache.state = Some(parse_path(text)?);
            Ok(())
        },
        text: |settings| settings.cache.state.as_ref().map(|path| path.display().to_string()),
    },
    Setting {
        key: "log",
        section: Section::Common,
        shape: Shape::Text,
        heading: COMMON,
        value_name: "FILTER",
        help: "Which messages go to stderr: error, warn, info, debug, trace, or such as info,cache=debug",
        set: |settings, text| {
            crate::log::parse_filter(text)?;
            text.clone_into(&mut settings.log);
            Ok(())
        },
        text: |settings| Some(settings.log.clone()),
    },
    Setting {
        key: "drain-time-max",
        section: Section::Common,
        shape: Shape::Text,
        heading: COMMON,
        value_name: "TIME",
        help: "How long a stop waits for responses that are under way",
        set: |settings, text| {
            settings.drain_time_max = parse_duration(text)?;
            Ok(())
        },
        text: |settings| Some(duration_text(settings.drain_time_max)),
    },
    Setting {
        key: "origin",
        section: Section::Cache,
        shape: Shape::Text,
        heading: CACHE,
        value_name: "URL",
        help: "The web server that misses are fetched from, such as http://127.0.0.1:3000",
        set: |settings, text| {
            settings.origin = Some(parse_origin(text)?);
            Ok(())
        },
        text: |settings| settings.origin.as_ref().map(origin_text),
    },
    Setting {
        key: "listen",
        section: Section::Cache,
        shape: Shape::Text,
        heading: CACHE,
        value_name: "ADDRESS",
        help: "Where clients connect; port 0 takes a free one",
        set: |settings, text| {
            settings.cache.listen = parse_address(text, 8080)?;
            Ok(())
        },
        text: |settings| Some(settings.cache.listen.to_string()),
    },
    Setting {
        key: "memory",
        section: Section::Cache,
        shape: Shape::Text,
        heading: CACHE,
        value_name: "SIZE",
        help: "Memory for stored objects; what is known about each comes on top, at most 64 bytes an object",
        set: |settings, text| {
            settings.cache.memory_bytes = parse_memory(text)?;
            Ok(())
        },
        text: |settings| Some(size_text(settings.cache.memory_bytes)),
    },
    Setting {
        key: "memory-limit",
        section: Section::Cache,
        shape: Shape::Text,
        heading: CACHE,
        value_name: "SIZE",
        help: "What the process may use of memory in all, for a store in a file: a start that would come to need more is \
               refused; unset: what its cgroup says",
        set: |settings, text| {
            settings.cache.memory_limit_bytes = Some(parse_memory(text)?);
            Ok(())
        },
        text: |settings| settings.cache.memory_limit_bytes.map(size_text),
    },
    Setting {
        key: "store",
        section: Section::Cache,
        shape: Shape::Text,
        heading: CACHE,
        value_name: "WHERE",
        help: "Where objects are stored: anon, memory alone; or a file, in which they survive a restart",
        set: |settings, text| {
            settings.cache.store = match text {
                "" => return Err("a file is wanted, or anon".to_owned()),
                "anon" => None,
                path => Some(path.into()),
            };
            Ok(())
        },
        text: |settings| {
            let path = settings.cache.store.as_ref();
            Some(path.map_or_else(|| "anon".to_owned(), |path| path.display().to_string()))
        },
    },
    Setting {
        key: "store-size",
        section: Section::Cache,
        shape: Shape::Text,
        heading: CACHE,
        value_name: "SIZE",
        help: "Length of the store's file, reserved at once; it may be many times larger than the memory",
        set: |settings, text| {
            settings.cache.store_bytes = parse_memory(text)?;
            Ok(())
        },
        text: |settings| Some(size_text(settings.cache.store_bytes)),
    },
    Setting {
        key: "paging",
        section: Section::Cache,
        shape: Shape::Text,
        heading: CACHE,
        value_name: "HOW",
        help: "How the store's file is read: direct (into our memory only) or kernel (through the page cache)",
        set: |settings, text| {
            settings.cache.paging = match text {
                "direct" => Paging::Direct,
                "kernel" => Paging::Kernel,
                _ => return Err("the ways are direct and kernel".to_owned()),
            };
            Ok(())
        },
        text: |settings| {
            Some(match settings.cache.paging {
                Paging::Direct => "direct".to_owned(),
                Paging::Kernel => "kernel".to_owned(),
            })
        },
    },
    Setting {
        key: "store-admission",
        section: Section::Cache,
        shape: Shape::Text,
        heading: CACHE,
        value_name: "WHEN",
        help: "When an object goes to the store's file: always (when it is stored), or second-request (when it is asked for again)",
        set: |settings, text| {
            settings.cache.admission = match text {
                "always" => Admission::Always,
                "second-request" => Admission::SecondRequest,
                _ => return Err("an object goes there always or on its second-request".to_owned()),
            };
            Ok(())
        },
        text: |settings| {
            Some(match settings.cache.admission {
                Admission::Always => "always".to_owned(),
                Admission::SecondRequest => "second-request".to_owned(),
            })
        },
    },
    Setting {
        key: "default-ttl",
        section: Section::Cache,
        shape: Shape::Text,
        heading: CACHE,
        value_name: "TIME",
        help: "How long an answer that states no freshness and allows no heuristic is reused; 0s: not at all",
        set: |settings, text| {
            settings.cache.default_ttl = parse_duration(text)?;
            Ok(())
        },
        text: |settings| Some(duration_text(settings.cache.default_ttl)),
    },
    Setting {
        key: "cookies",
        section: Section::Cache,
        shape: Shape::Text,
        heading: CACHE,
        value_name: "RULE",
        help: "Which answers may be shared although cookies are in play: safe (only those that say so), \
               or rfc (the letter of RFC 9111)",
        set: |settings, text| {
            settings.cache.cookies = match text {
                "safe" => CookieRule::Safe,
                "rfc" => CookieRule::Rfc,
                _ => return Err("the rules are safe and rfc".to_owned()),
            };
            Ok(())
        },
        text: |settings| {
            Some(match settings.cache.cookies {
                CookieRule::Safe => "safe".to_owned(),
                CookieRule::Rfc => "rfc".to_owned(),
            })
        },
    },
    Setting {
        key: "name",
        section: Section::Cache,
        shape: Shape::Text,
        heading: CACHE,
        value_name: "NAME",
        help: "This server's name in Via and Cache-Status",
        set: |settings, text| {
            settings.cache.name = parse_name(text)?;
            Ok(())
        },
        text: |settings| Some(settings.cache.name.clone()),
    },
    Setting {
        key: "purge-from",
        section: Section::Cache,
        shape: Shape::Texts,
        heading: CACHE,
        value_name: "LIST",
        help: "Networks that may send PURGE requests (10.0.0.0/8,::1); unset: nobody, and `nighttrain purge` does it",
        set: |settings, text| {
            let networks =
                list(text).map(|network| network.parse().map_err(|error: InvalidNetwork| error.to_string()));
            settings.cache.purge_from = networks.collect::<Result<_, _>>()?;
            Ok(())
        },
        text: |settings| {
            let from: Vec<_> = settings.cache.purge_from.iter().map(Network::to_string).collect();
            (!from.is_empty()).then(|| from.join(","))
        },
    },
    limit!(
        "connections-max",
        connections_max,
        Count,
        "N",
        one_or_more,
        plain,
        "Connections of clients per core; more are answered 503"
    ),
    limit!(
        "connections-per-client-max",
        connections_per_client_max,
        Count,
        "N",
        any_count,
        plain,
        "Connections of one client address over all cores; more are closed; 0: no limit"
    ),
    limit!(
        "request-head-bytes-max",
        request_head_bytes_max,
        Text,
        "SIZE",
        head_size,
        usize_size_text,
        "Size of one request's line and headers; more is answered 431 (414 for the line alone)"
    ),
    limit!(
        "request-body-bytes-max",
        request_body_bytes_max,
        Text,
        "SIZE",
        parse_size,
        size_text,
        "Size of one request's body; more is answered 413"
    ),
    limit!(
        "request-head-time-max",
        request_head_time_max,
        Text,
        "TIME",
        some_time,
        duration_text,
        "Time for a request's head to arrive once its first byte has; more is answered 408"
    ),
    limit!(
        "idle-time-max",
        idle_time_max,
        Text,
        "TIME",
        some_time,
        duration_text,
        "Time that a kept-alive connection may idle between requests"
    ),
    limit!(
        "send-stall-max",
        send_stall_max,
        Text,
        "TIME",
        some_time,
        duration_text,
        "Time that a response may make no progress before it is cut"
    ),
    limit!(
        "pin-grace",
        pin_grace,
        Text,
        "TIME",
        parse_duration,
        duration_text,
        "Time that a slow reader may keep memory that the store wants back, before it is cut"
    ),
    limit!(
        "response-head-bytes-max",
        response_head_bytes_max,
        Text,
        "SIZE",
        head_size,
        usize_size_text,
        "Size of the head of the origin's response; more is answered 502"
    ),
    limit!(
        "origin-connect-time-max",
        origin_connect_time_max,
        Text,
        "TIME",
        some_time,
        duration_text,
        "Time to connect to the origin"
    ),
    limit!(
        "origin-first-byte-time-max",
        origin_first_byte_time_max,
        Text,
        "TIME",
        some_time,
        duration_text,
        "Time from the request to the origin to the first byte of its answer"
    ),
    limit!(
        "origin-between-bytes-time-max",
        origin_between_bytes_time_max,
        Text,
        "TIME",
        some_time,
        duration_text,
        "Time between two reads of the origin's body"
    ),
    limit!(
        "origin-idle-connections-max",
        origin_idle_connections_max,
        Count,
        "N",
        any_count,
        plain,
        "Idle connections to the origin kept per core"
    ),
    limit!(
        "origin-connections-max",
        origin_connections_max,
        Count,
        "N",
        one_or_more,
        plain,
        "Connections to the origin per core; more requests wait in a queue"
    ),
];

/// The setting with this key in this section, and its place in [`SETTINGS`].
pub(crate) fn in_section(section: Section, key: &str) -> Option<(usize, &'static Setting)> {
    SETTINGS.iter().enumerate().find(|(_, setting)| setting.section == section && setting.key == key)
}

/// The first setting with this key, in whatever section.
pub(crate) fn by_key(key: &str) -> Option<(usize, &'static Setting)> {
    SETTINGS.iter().enumerate().find(|(_, setting)| setting.key == key)
}

/// `http://host:port` of an origin.
pub(crate) fn origin_text(origin: &Origin) -> String {
    if origin.host.contains(':') {
        format!("http://[{}]:{}", origin.host, origin.port)
    } else {
        format!("http://{}:{}", origin.host, origin.port)
    }
}

fn parse_origin(text: &str) -> Result<Origin, String> {
    const RIGHT: &str = "an origin is http://HOST or http://HOST:PORT, for instance http://127.0.0.1:3000";
    let uri: axum::http::Uri = text.parse().map_err(|error| format!("not a URL ({error}): {RIGHT}"))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => return Err(format!("this version does not speak TLS to origins: {RIGHT}")),
        Some(other) => return Err(format!("unknown scheme `{other}`: {RIGHT}")),
        None => return Err(format!("no scheme: {RIGHT}; perhaps http://{text}")),
    }
    let Some(authority) = uri.authority() else {
        return Err(format!("no host: {RIGHT}"));
    };
    if authority.as_str().contains('@') {
        return Err(format!("a user name in it is not used: {RIGHT}"));
    }
    if uri.path() != "/" || uri.query().is_some() {
        return Err(format!("leave the path off: {RIGHT}"));
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() {
        return Err(format!("no host: {RIGHT}"));
    }
    let after_host = &authority.as_str()[authority.host().len()..];
    let port = match (after_host, authority.port_u16()) {
        ("", _) => 80,
        (_, Some(port)) if port > 0 => port,
        _ => return Err(format!("`{}` is not a port: {RIGHT}", after_host.trim_start_matches(':'))),
    };
    Ok(Origin { host: host.to_owned(), port })
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
    if let Some(port) = text.strip_prefix("localhost:") {
        return Err(format!(
            "a name is not taken, since it may mean several: {right}; perhaps 127.0.0.1:{port}"
        ));
    }
    Err(right)
}

pub(crate) fn parse_path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("a path is missing".to_owned()) } else { Ok(PathBuf::from(text)) }
}

/// RFC 9110 §5.6.2: `Via` and `Cache-Status` take a token as the name.
fn parse_name(text: &str) -> Result<String, String> {
    let is_token = !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    if is_token && text.as_bytes()[0].is_ascii_alphabetic() {
        Ok(text.to_owned())
    } else {
        Err("a name starts with a letter and has letters, digits and !#$%&'*+-.^_`|~ only".to_owned())
    }
}

fn parse_memory(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("the store needs some memory, for instance 256MiB".to_owned()),
        bytes => Ok(bytes),
    }
}

pub(crate) fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
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

/// A head in which nothing fits would refuse every message; one of a gigabyte is no limit.
fn head_size(text: &str) -> Result<usize, String> {
    match usize::try_from(parse_size(text)?) {
        Ok(bytes) if (1024..=16 << 20).contains(&bytes) => Ok(bytes),
        _ => Err("a limit on a head is from 1KiB to 16MiB".to_owned()),
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
            "admin" | "listen" => "[::1]:1",
            "admin-token-file" | "state" => "/a/b",
            "log" => "warn,cache=debug",
            "origin" => "http://[::1]:3000",
            "store" => "/a/store",
            "paging" => "kernel",
            "store-admission" => "second-request",
            "memory-limit" => "5MiB",
            "cookies" => "rfc",
            "name" => "edge-1",
            "purge-from" => "10.0.0.0/8,::1",
            "monitor" | "websocket" => "127.0.0.1:7",
            "tls-cert" | "tls-key" | "tls-ca" | "nats-config" => "/a/b",
            "smtp" | "http" | "smtps" | "lmtp" => "127.0.0.1:7",
            "banned" | "token-file" => "/a/b",
            "store-size" => "256MiB",
            "durability" => "power",
            "host-name" | "domain" => "mx.example.org",
            "domains" => "a.example,b.example",
            "inbox-mails-max" | "recipients-max" => "7",
            key if key.ends_with("-per-minute") => "7",
            "share-bodies" => "false",
            "tls-verify" | "proxy-protocol" | "tls-handshake-first" | "websocket-tls" => "true",
            "websocket-origins" => "https://a.example,https://b.example",
            "server-name" => "night-1",
            "max-connections" | "max-subscriptions" | "ping-max" => "7",
            "max-payload" | "max-control-line" | "max-pending" => "5KiB",
            key if key.ends_with("bytes-max") || key == "memory" => "5KiB",
            key if key.contains("connections-") => "7",
            _ => "1500ms",
        };
        for setting in SETTINGS {
            for text in [(setting.text)(&Settings::default()), Some(others(setting.key).to_owned())] {
                let Some(text) = text else { continue };
                let mut settings = Settings::default();
                (setting.set)(&mut settings, &text).unwrap_or_else(|e| panic!("{} {text}: {e}", setting.key));
                assert_eq!((setting.text)(&settings).as_deref(), Some(text.as_str()), "{}", setting.key);
            }
        }
    }

    /// A limit that is added to the accelerator and not here stops this from compiling.
    #[test]
    fn every_limit_can_be_set() {
        let cache::Limits {
            connections_max: _,
            connections_per_client_max: _,
            request_head_bytes_max: _,
            request_body_bytes_max: _,
            request_head_time_max: _,
            idle_time_max: _,
            send_stall_max: _,
            pin_grace: _,
            response_head_bytes_max: _,
            origin_connect_time_max: _,
            origin_first_byte_time_max: _,
            origin_between_bytes_time_max: _,
            origin_idle_connections_max: _,
            origin_connections_max: _,
        } = cache::Limits::default();
        assert_eq!(SETTINGS.iter().filter(|setting| setting.heading == LIMITS).count(), 14);
    }

    #[test]
    fn origins() {
        let origin = |host: &str, port| Ok(Origin { host: host.to_owned(), port });
        assert_eq!(parse_origin("http://127.0.0.1:3000"), origin("127.0.0.1", 3000));
        assert_eq!(parse_origin("http://example.org/"), origin("example.org", 80));
        assert_eq!(parse_origin("http://[::1]:81"), origin("::1", 81));
        for (wrong, says) in [
            ("", "not a URL"),
            ("127.0.0.1:3000", "no scheme"),
            ("localhost", "no scheme"),
            ("https://example.org", "does not speak TLS"),
            ("ftp://example.org", "unknown scheme"),
            ("http://example.org/a", "leave the path off"),
            ("http://example.org?x", "leave the path off"),
            ("http://me@example.org", "user name"),
            ("http://example.org:0", "is not a port"),
            ("http://example.org:99999", "not a"),
            ("http://", "not a URL"),
        ] {
            let error = parse_origin(wrong).expect_err(wrong);
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
            ("x", "an address is"),
            ("", "an address is"),
            ("127.0.0.1:99999", "an address is"),
        ] {
            let error = parse_address(wrong, 8080).expect_err(wrong);
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }

    #[test]
    fn names() {
        assert!(parse_name("edge-1").is_ok());
        for wrong in ["", "two words", "a\r\nb", "é", "1st"] {
            assert!(parse_name(wrong).is_err(), "{wrong}");
        }
    }
}
