//! What can be set of the mail service.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use engine::{network::Network, tls::certificates::Certificates};
use mail::{
    CertificateSource, Lists, Pair,
    config::{Config, Durability, STORE_BYTES_MIN, Store},
    web::{self, IndexLocation},
};

use crate::{
    failure::Fault,
    settings::{
        Section, Setting, ValueAccess, ValueShape, any_count, list, networks, one_or_more, optional,
        parse_address, parse_path, path_text, plain, some_size, some_time,
        tls_settings::shared_or,
        truth, truth_text,
        units::{duration_text, parse_duration, parse_size, size_text},
        usize_size_text, value,
    },
};

/// Where the admin server of mail alone listens by default.
pub(crate) const MAIL_ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9182);
/// The store's file in the directory of state.
const STORE_FILE: &str = "mail.store";
/// A list above this is not somebody's list.
const LISTS_BYTES_MAX: u64 = 16 << 20;

/// The mail service's settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MailSettings {
    /// What goes to the service as it is; its `store`, `tls` and `lists` are filled by [`MailSettings::config`].
    pub config: Config,
    /// Where pages and APIs are.
    pub http: SocketAddr,
    /// None until somebody says: then it is a file in the directory of state.
    pub(crate) store: Option<Store>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    tls_shared: bool,
    http_tls: bool,
    banned: Option<PathBuf>,
    token_file: Option<PathBuf>,
    http_hosts: Vec<String>,
    mail_readers: Vec<Network>,
    http_bytes_max: u64,
    pub search_index: bool,
    trusted_proxies: Vec<Network>,
    shared_networks: Vec<Network>,
    abuse_contact: Option<String>,
    warning: String,
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
    /// The service's configuration; `shared`: the certificates of the process, if there are any. Makes the directory of state where it is wanted and missing.
    ///
    /// # Errors
    /// What does not go together, or cannot be read.
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
                return Err(fault("tls-key", "is missing; tls-cert goes with tls-key".to_owned()));
            }
            (None, Some(_)) => {
                return Err(fault("tls-cert", "is missing; tls-key goes with tls-cert".to_owned()));
            }
        };
        let tls = shared_or(self.tls_shared, of_files, shared)?;
        if self.config.smtps.is_some() && tls.is_none() {
            let message = "is missing; without it (or tls-shared) there is no TLS for smtps";
            return Err(fault("tls-cert", message.to_owned()));
        }
        let store = match &self.store {
            Some(store) => store.clone(),
            None => {
                let state = state.cloned().or_else(state_directory).ok_or_else(|| {
                    let message = "where mails are kept cannot be found out: say --state DIR, --store FILE, or --store anon";
                    fault("state", message.to_owned())
                })?;
                std::fs::create_dir_all(&state).map_err(|error| {
                    fault("state", format!("{} cannot be made: {error}", state.display()))
                })?;
                Store::File(state.join(STORE_FILE))
            }
        };
        Ok(Config { tls, store, lists: self.lists()?, ..self.config.clone() })
    }

    /// What is banned, as the file says now.
    ///
    /// # Errors
    /// It cannot be read, or its first wrong line.
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

    /// Whether pages are by https.
    pub(crate) fn has_pages_under_tls(&self) -> bool {
        self.http_tls
    }

    /// Whether lists of more than one inbox are for who has a token.
    pub(crate) fn asks_for_token(&self) -> bool {
        self.token_file.is_some()
    }

    /// Describes who sees all mail together, in the words of the start's lines.
    pub(crate) fn all_mail(&self) -> &'static str {
        match (self.asks_for_token(), self.mail_readers.is_empty()) {
            (true, true) => "all mail together is for who has the token",
            (true, false) => "all mail together is for who has the token, and for mail-readers",
            (false, true) => {
                "all mail together is for this machine; behind a proxy set token-file, or mail-readers with trusted-proxies"
            }
            (false, false) => {
                "all mail together is for this machine and mail-readers; behind a proxy set token-file, or trusted-proxies"
            }
        }
    }

    /// What pages and APIs are to say and allow; `shown`: what the service shows to who comes by TLS.
    ///
    /// # Errors
    /// The token cannot be read, or is too short; pages are to be by https, and there is nothing to be shown.
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

/// `$XDG_STATE_HOME/nighttrain`, by the XDG Base Directory Specification; for root, which a service is,
/// /var/lib/nighttrain.
pub(crate) fn state_directory() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/nighttrain"));
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("nighttrain"))
}

const MAIL: &str = "Mail";
/// The heading for limits; `-h` leaves them to `--help`.
pub(crate) const MAIL_LIMITS: &str = "Limits on senders";

/// Every setting of the mail service, in the order in which `--help` and `config --print` show them.
pub(crate) const MAIL_SETTINGS: &[Setting] = &[
    Setting {
        key: "smtp",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "ADDRESS",
        help: "Where mail is taken; port 0 takes a free one",
        access: value!(
            mail.config.smtp,
            parse = |text| parse_address(text, 1025),
            show = |address: SocketAddr| address.to_string()
        ),
    },
    Setting {
        key: "http",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "ADDRESS",
        help: "Where inboxes are shown, and the APIs are",
        access: value!(
            mail.http,
            parse = |text| parse_address(text, 8025),
            show = |address: SocketAddr| address.to_string()
        ),
    },
    Setting {
        key: "smtps",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "ADDRESS",
        help: "Where mail is taken under TLS from the first byte; unset: nowhere",
        access: optional!(
            mail.config.smtps,
            parse = |text| parse_address(text, 1465),
            show = SocketAddr::to_string
        ),
    },
    Setting {
        key: "lmtp",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "ADDRESS",
        help: "Where mail is taken by LMTP; unset: nowhere",
        access: optional!(
            mail.config.lmtp,
            parse = |text| parse_address(text, 1024),
            show = SocketAddr::to_string
        ),
    },
    Setting {
        key: "tls-cert",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "FILE",
        help: "The certificate chain, in PEM, for STARTTLS and smtps",
        access: optional!(mail.tls_cert, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tls-key",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "FILE",
        help: "The certificate's key, in PEM",
        access: optional!(mail.tls_key, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tls-shared",
        section: Section::Mail,
        shape: ValueShape::Flag,
        heading: MAIL,
        value_name: "true|false",
        help: "TLS with the certificates of the accelerator, in `serve`: those of files and those that are obtained, as they are \
               when somebody comes",
        access: value!(mail.tls_shared, parse = truth, show = truth_text),
    },
    Setting {
        key: "http-tls",
        section: Section::Mail,
        shape: ValueShape::Flag,
        heading: MAIL,
        value_name: "true|false",
        help: "Pages and APIs are by https, with the certificate of tls-cert or those of tls-shared",
        access: value!(mail.http_tls, parse = truth, show = truth_text),
    },
    Setting {
        key: "share-bodies",
        section: Section::Mail,
        shape: ValueShape::Flag,
        heading: MAIL,
        value_name: "true|false",
        help: "Whether a body that many mails have in common is stored once a segment",
        access: value!(mail.config.share_bodies, parse = truth, show = truth_text),
    },
    Setting {
        key: "proxy-protocol",
        section: Section::Mail,
        shape: ValueShape::Flag,
        heading: MAIL,
        value_name: "true|false",
        help: "Whether connections to smtp and lmtp begin with a PROXY header, version 1 or 2",
        access: value!(mail.config.proxy_protocol, parse = truth, show = truth_text),
    },
    Setting {
        key: "store",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "FILE|anon",
        help: "The file in which mails are kept, or anon: in memory alone; unset: mail.store in the directory of state",
        access: ValueAccess {
            set: |settings, text| {
                settings.mail.store = Some(match text {
                    "anon" => Store::Anonymous,
                    path => Store::File(parse_path(path)?),
                });
                Ok(())
            },
            text: |settings| {
                settings.mail.store.as_ref().map(|store| match store {
                    Store::Anonymous => "anon".to_owned(),
                    Store::File(path) => path.display().to_string(),
                })
            },
        },
    },
    Setting {
        key: "store-size",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "SIZE",
        help: "Size of the store; beyond, the oldest mails go",
        access: value!(mail.config.store_bytes, parse = store_size, show = size_text),
    },
    Setting {
        key: "index-memory",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "SIZE",
        help: "Memory for the index of mails and inboxes; beyond, the oldest mails go. 0: a 22nd of the store, 16MiB to 256MiB",
        access: value!(mail.config.index_bytes_max, parse = parse_size, show = size_text),
    },
    Setting {
        key: "durability",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "WHAT",
        help: "What a mail has survived when its 250 is said: process (whatever ends the process), or power (a loss of power)",
        access: value!(
            mail.config.durability,
            parse = durability,
            show = |durability| match durability {
                Durability::Process => "process".to_owned(),
                Durability::Power => "power".to_owned(),
            }
        ),
    },
    Setting {
        key: "age-max",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "TIME",
        help: "How long a mail is kept",
        access: value!(mail.config.retention.age, parse = some_time, show = duration_text),
    },
    Setting {
        key: "inbox-mails-max",
        section: Section::Mail,
        shape: ValueShape::Count,
        heading: MAIL,
        value_name: "N",
        help: "Mails in one inbox; one more drops the oldest there",
        access: value!(
            mail.config.retention.per_inbox_max,
            parse = |text| one_or_more(text).and_then(narrow),
            show = |count: u32| count.to_string()
        ),
    },
    Setting {
        key: "host-name",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "NAME",
        help: "This server's name in its greeting and in Received",
        access: value!(mail.config.name, parse = host_name, show = |name: String| name),
    },
    Setting {
        key: "domain",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "DOMAIN",
        help: "The domain of inboxes that are named without one",
        access: value!(mail.config.default_domain, parse = domain, show = |name: String| name),
    },
    Setting {
        key: "domains",
        section: Section::Mail,
        shape: ValueShape::Texts,
        heading: MAIL,
        value_name: "LIST",
        help: "Domains whose mail is taken; unset: all",
        access: ValueAccess {
            set: |settings, text| {
                settings.mail.config.domains = list(text).map(domain).collect::<Result<_, _>>()?;
                Ok(())
            },
            text: |settings| {
                (!settings.mail.config.domains.is_empty()).then(|| settings.mail.config.domains.join(","))
            },
        },
    },
    Setting {
        key: "banned",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "FILE",
        help: "A file of addresses, senders and words that are banned; SIGHUP reads it again",
        access: optional!(mail.banned, parse = parse_path, show = path_text),
    },
    Setting {
        key: "token-file",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "FILE",
        help: "A file with the token that lists of more than one inbox demand; without one they are for this machine alone",
        access: optional!(mail.token_file, parse = parse_path, show = path_text),
    },
    Setting {
        key: "trusted-proxies",
        section: Section::Mail,
        shape: ValueShape::Texts,
        heading: MAIL,
        value_name: "LIST",
        help: "Networks of proxies that are believed when they say who asks pages and API (X-Forwarded-For, else Forwarded); unset: nobody, but serve's own accelerator",
        access: networks!(mail.trusted_proxies),
    },
    Setting {
        key: "shared-networks",
        section: Section::Mail,
        shape: ValueShape::Texts,
        heading: MAIL,
        value_name: "LIST",
        help: "Networks in which each live page counts as a client of its own, not each address: a large NAT, a proxy that \
               names nobody; unset: this machine alone",
        access: networks!(mail.shared_networks),
    },
    Setting {
        key: "http-hosts",
        section: Section::Mail,
        shape: ValueShape::Texts,
        heading: MAIL,
        value_name: "LIST",
        help: "Names by which pages and APIs may be asked for, besides addresses and localhost (mail.example.org); *: any",
        access: ValueAccess {
            set: |settings, text| {
                settings.mail.http_hosts = list(text).map(http_host).collect::<Result<_, _>>()?;
                Ok(())
            },
            text: |settings| {
                (!settings.mail.http_hosts.is_empty()).then(|| settings.mail.http_hosts.join(","))
            },
        },
    },
    Setting {
        key: "mail-readers",
        section: Section::Mail,
        shape: ValueShape::Texts,
        heading: MAIL,
        value_name: "LIST",
        help: "Networks whose programs and browsers may see all mail, as this machine may (172.16.0.0/12, of a compose file); unset: this machine alone, or who has the token",
        access: networks!(mail.mail_readers),
    },
    Setting {
        key: "http-bytes-max",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "SIZE",
        help: "Memory for requests and answers of pages and APIs in all, half of it for one address; more are answered 503",
        access: value!(mail.http_bytes_max, parse = parse_size, show = size_text),
    },
    Setting {
        key: "search-index",
        section: Section::Mail,
        shape: ValueShape::Flag,
        heading: MAIL,
        value_name: "true|false",
        help: "An index for searches, beside the store's file; false: searches look into the mails themselves",
        access: value!(mail.search_index, parse = truth, show = truth_text),
    },
    Setting {
        key: "abuse-contact",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "ADDRESS",
        help: "Whom to write to about abuse, on every page",
        access: ValueAccess {
            set: |settings, text| {
                settings.mail.abuse_contact = Some(text.to_owned());
                Ok(())
            },
            text: |settings| settings.mail.abuse_contact.clone(),
        },
    },
    Setting {
        key: "warning",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "TEXT",
        help: "What every page that shows mail says first",
        access: ValueAccess {
            set: |settings, text| {
                text.clone_into(&mut settings.mail.warning);
                Ok(())
            },
            text: |settings| Some(settings.mail.warning.clone()),
        },
    },
    Setting {
        key: "mail-bytes-max",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL_LIMITS,
        value_name: "SIZE",
        help: "Size of one mail, up to 256MiB and a quarter of the store; more is answered 552",
        access: value!(mail.config.limits.mail_bytes_max, parse = parse_size, show = size_text),
    },
    Setting {
        key: "recipients-max",
        section: Section::Mail,
        shape: ValueShape::Count,
        heading: MAIL_LIMITS,
        value_name: "N",
        help: "Recipients of one mail, up to 10000; more are answered 452",
        access: value!(mail.config.limits.recipients_max, parse = recipients, show = plain),
    },
    Setting {
        key: "connections-max",
        section: Section::Mail,
        shape: ValueShape::Count,
        heading: MAIL_LIMITS,
        value_name: "N",
        help: "Connections per core; more are answered 421",
        access: value!(mail.config.limits.connections_max, parse = one_or_more, show = plain),
    },
    Setting {
        key: "connections-per-address-max",
        section: Section::Mail,
        shape: ValueShape::Count,
        heading: MAIL_LIMITS,
        value_name: "N",
        help: "Connections of one address; more are answered 421; 0: no limit; unset: a sixteenth of connections-max",
        access: optional!(
            mail.config.limits.connections_per_address_max,
            parse = any_count,
            show = usize::to_string
        ),
    },
    Setting {
        key: "command-time-max",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL_LIMITS,
        value_name: "TIME",
        help: "How long a sender may take from a reply to the end of its next command",
        access: value!(mail.config.limits.command_time_max, parse = some_time, show = duration_text),
    },
    Setting {
        key: "data-time-max",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL_LIMITS,
        value_name: "TIME",
        help: "How long a sender may be silent within a mail",
        access: value!(mail.config.limits.data_time_max, parse = some_time, show = duration_text),
    },
    Setting {
        key: "receiving-bytes-max",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL_LIMITS,
        value_name: "SIZE",
        help: "Memory for mails that are being received, half of it for one address; a mail beyond is answered 452",
        access: value!(mail.config.limits.receiving_bytes_max, parse = some_size, show = usize_size_text),
    },
    Setting {
        key: "mail-time-max",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL_LIMITS,
        value_name: "TIME",
        help: "How long a sender may take over a whole mail",
        access: value!(mail.config.limits.mail_time_max, parse = some_time, show = duration_text),
    },
    Setting {
        key: "session-time-max",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL_LIMITS,
        value_name: "TIME",
        help: "How long a session may last in all",
        access: value!(mail.config.limits.session_time_max, parse = some_time, show = duration_text),
    },
    Setting {
        key: "session-commands-max",
        section: Section::Mail,
        shape: ValueShape::Count,
        heading: MAIL_LIMITS,
        value_name: "N",
        help: "Commands of a session in all",
        access: value!(
            mail.config.limits.session_commands_max,
            parse = one_or_more,
            show = |count: usize| count.to_string()
        ),
    },
    Setting {
        key: "session-bytes-max",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL_LIMITS,
        value_name: "SIZE",
        help: "What a session may bring in all",
        access: value!(mail.config.limits.session_bytes_max, parse = some_size, show = usize_size_text),
    },
    Setting {
        key: "connections-per-minute",
        section: Section::Mail,
        shape: ValueShape::Count,
        heading: MAIL_LIMITS,
        value_name: "N",
        help: "New connections of one address a minute, half of them at once; more are answered 421; 0: no limit",
        access: value!(mail.config.rates.connections_per_minute, parse = rate, show = rate_text),
    },
    Setting {
        key: "mails-per-minute",
        section: Section::Mail,
        shape: ValueShape::Count,
        heading: MAIL_LIMITS,
        value_name: "N",
        help: "Mails of one address a minute; more are answered 450; 0: no limit",
        access: value!(mail.config.rates.mails_per_minute, parse = rate, show = rate_text),
    },
    Setting {
        key: "inbox-mails-per-minute",
        section: Section::Mail,
        shape: ValueShape::Count,
        heading: MAIL_LIMITS,
        value_name: "N",
        help: "Mails to one inbox a minute; more are answered 450; 0: no limit",
        access: value!(mail.config.rates.inbox_mails_per_minute, parse = rate, show = rate_text),
    },
    Setting {
        key: "subject-mails-per-minute",
        section: Section::Mail,
        shape: ValueShape::Count,
        heading: MAIL_LIMITS,
        value_name: "N",
        help: "Mails with one subject a minute; more are answered 450; 0: no limit",
        access: value!(mail.config.rates.subject_mails_per_minute, parse = rate, show = rate_text),
    },
    Setting {
        key: "campaign-mails-per-minute",
        section: Section::Mail,
        shape: ValueShape::Count,
        heading: MAIL_LIMITS,
        value_name: "N",
        help: "Mails with nearly one text a minute; more are answered 450; 0: no limit",
        access: value!(mail.config.rates.campaign_mails_per_minute, parse = rate, show = rate_text),
    },
    Setting {
        key: "tarpit",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL_LIMITS,
        value_name: "TIME",
        help: "How long replies to a sender are held back that comes near one of these rates",
        access: value!(mail.config.rates.tarpit, parse = parse_duration, show = duration_text),
    },
];

/// So many a minute.
fn rate(text: &str) -> Result<u32, String> {
    any_count(text).and_then(narrow)
}

fn rate_text(rate: u32) -> String {
    rate.to_string()
}

fn narrow(count: usize) -> Result<u32, String> {
    u32::try_from(count).map_err(|_| "at most 4294967295".to_owned())
}

fn store_size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes < STORE_BYTES_MIN {
        return Err(format!("a store has at least {}", size_text(STORE_BYTES_MIN)));
    }
    Ok(bytes)
}

fn durability(text: &str) -> Result<Durability, String> {
    match text {
        "process" => Ok(Durability::Process),
        "power" => Ok(Durability::Power),
        _ => Err("it is process or power".to_owned()),
    }
}

fn host_name(text: &str) -> Result<String, String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    if text.is_empty() || text.len() > 255 || !text.bytes().all(is_name) {
        return Err("a host name is wanted, such as mx.example.org".to_owned());
    }
    Ok(text.to_owned())
}

/// A name as a browser says it in `Host`, or all of them.
fn http_host(text: &str) -> Result<String, String> {
    if text == "*" { Ok(text.to_owned()) } else { host_name(text).map(|name| name.to_ascii_lowercase()) }
}

fn domain(text: &str) -> Result<String, String> {
    mail::address::fold_domain(text)
        .map(String::from)
        .map_err(|_| "a domain is wanted, such as example.org".to_owned())
}

/// How many recipients a mail may have: all of them stand before it in its record.
fn recipients(text: &str) -> Result<usize, String> {
    match one_or_more(text)? {
        count if count > RECIPIENTS_MAX => Err(format!("at most {RECIPIENTS_MAX} can be")),
        count => Ok(count),
    }
}

/// See [`recipients`].
const RECIPIENTS_MAX: usize = 10_000;

#[cfg(test)]
mod tests;
