//! Settings of the mail service.

mod limits;
#[cfg(test)]
mod tests;
mod values;

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
};

use engine::{network::Network, tls::certificates::Certificates};
use mail::{
    CertificateSource, Lists, Pair,
    config::{Config, Durability, Store},
    web::{self, IndexLocation},
};

use crate::{
    failure::Fault,
    settings::{
        Section, Setting, ValueAccess, ValueShape, list, networks, one_or_more, optional, parse_address,
        parse_path, path_text, some_time,
        tls_settings::shared_or,
        truth, truth_text,
        units::{duration_text, parse_size, size_text},
        value,
    },
};

pub(crate) use limits::{MAIL_LIMIT_SETTINGS, MAIL_LIMITS};
use values::{domain, durability, host_name, http_host, narrow, store_size};

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

const MAIL: &str = "Mail";

/// Every setting of the mail service, in the order in which `--help` and `config --print` show them.
pub(crate) const MAIL_SETTINGS: &[Setting] = &[
    Setting {
        key: "smtp",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "ADDRESS",
        help: "Address for SMTP; port 0 picks a free one",
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
        help: "Address of the web pages and the APIs",
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
        help: "Address for SMTP under TLS from the first byte; unset: none",
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
        help: "Address for LMTP; unset: none",
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
        help: "Certificate chain for STARTTLS and smtps (PEM)",
        access: optional!(mail.tls_cert, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tls-key",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "FILE",
        help: "Private key of the certificate (PEM)",
        access: optional!(mail.tls_key, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tls-shared",
        section: Section::Mail,
        shape: ValueShape::Flag,
        heading: MAIL,
        value_name: "true|false",
        help: "In `serve`, uses the accelerator's certificates for TLS: those from files and those obtained by ACME, \
               in their current state",
        access: value!(mail.tls_shared, parse = truth, show = truth_text),
    },
    Setting {
        key: "http-tls",
        section: Section::Mail,
        shape: ValueShape::Flag,
        heading: MAIL,
        value_name: "true|false",
        help: "Serves pages and APIs by https, with the certificate of tls-cert or those of tls-shared",
        access: value!(mail.http_tls, parse = truth, show = truth_text),
    },
    Setting {
        key: "share-bodies",
        section: Section::Mail,
        shape: ValueShape::Flag,
        heading: MAIL,
        value_name: "true|false",
        help: "Stores a body that many mails share once per segment",
        access: value!(mail.config.share_bodies, parse = truth, show = truth_text),
    },
    Setting {
        key: "proxy-protocol",
        section: Section::Mail,
        shape: ValueShape::Flag,
        heading: MAIL,
        value_name: "true|false",
        help: "SMTP and LMTP connections begin with a PROXY protocol header, version 1 or 2",
        access: value!(mail.config.proxy_protocol, parse = truth, show = truth_text),
    },
    Setting {
        key: "store",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "FILE|anon",
        help: "File to keep mails in, or anon: memory only; unset: mail.store in the state directory",
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
        help: "Size of the store; when it is full the oldest mails are dropped",
        access: value!(mail.config.store_bytes, parse = store_size, show = size_text),
    },
    Setting {
        key: "index-memory",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "SIZE",
        help: "Memory for the index of mails and inboxes; when it is full the oldest mails are dropped. 0: a 22nd of \
               the store, 16MiB to 256MiB",
        access: value!(mail.config.index_bytes_max, parse = parse_size, show = size_text),
    },
    Setting {
        key: "durability",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "WHAT",
        help: "What a mail survives once it is answered 250: process (any end of the process) or power (a power loss)",
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
        help: "Time that a mail is kept",
        access: value!(mail.config.retention.age, parse = some_time, show = duration_text),
    },
    Setting {
        key: "inbox-mails-max",
        section: Section::Mail,
        shape: ValueShape::Count,
        heading: MAIL,
        value_name: "N",
        help: "Mails per inbox; a further one drops the oldest there",
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
        help: "Domain of inboxes that are named without one",
        access: value!(mail.config.default_domain, parse = domain, show = |name: String| name),
    },
    Setting {
        key: "domains",
        section: Section::Mail,
        shape: ValueShape::Texts,
        heading: MAIL,
        value_name: "LIST",
        help: "Domains that mail is accepted for; unset: all",
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
        help: "File of banned addresses, senders and words; SIGHUP reloads it",
        access: optional!(mail.banned, parse = parse_path, show = path_text),
    },
    Setting {
        key: "token-file",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "FILE",
        help: "File with the token that lists of more than one inbox require; unset: such lists are shown to this \
               machine only",
        access: optional!(mail.token_file, parse = parse_path, show = path_text),
    },
    Setting {
        key: "trusted-proxies",
        section: Section::Mail,
        shape: ValueShape::Texts,
        heading: MAIL,
        value_name: "LIST",
        help: "Networks of trusted proxies, whose X-Forwarded-For, or else Forwarded, names the client of pages and \
               API; unset: none, except serve's own accelerator",
        access: networks!(mail.trusted_proxies),
    },
    Setting {
        key: "shared-networks",
        section: Section::Mail,
        shape: ValueShape::Texts,
        heading: MAIL,
        value_name: "LIST",
        help: "Networks in which each live page, not each address, counts as a client, such as a large NAT or a proxy \
               that does not name its clients; unset: this machine only",
        access: networks!(mail.shared_networks),
    },
    Setting {
        key: "http-hosts",
        section: Section::Mail,
        shape: ValueShape::Texts,
        heading: MAIL,
        value_name: "LIST",
        help: "Host names that pages and APIs answer to, besides addresses and localhost (mail.example.org); *: any",
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
        help: "Networks that may see all mail, as this machine may (172.16.0.0/12, of a compose file); unset: this \
               machine only, or clients with the token",
        access: networks!(mail.mail_readers),
    },
    Setting {
        key: "http-bytes-max",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "SIZE",
        help: "Memory for requests and answers of pages and APIs, half of it per address; further requests are \
               answered 503",
        access: value!(mail.http_bytes_max, parse = parse_size, show = size_text),
    },
    Setting {
        key: "search-index",
        section: Section::Mail,
        shape: ValueShape::Flag,
        heading: MAIL,
        value_name: "true|false",
        help: "Keeps a search index beside the store's file; false: searches read the mails themselves",
        access: value!(mail.search_index, parse = truth, show = truth_text),
    },
    Setting {
        key: "abuse-contact",
        section: Section::Mail,
        shape: ValueShape::Text,
        heading: MAIL,
        value_name: "ADDRESS",
        help: "Abuse contact shown on every page",
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
        help: "Notice at the top of every page that shows mail",
        access: ValueAccess {
            set: |settings, text| {
                text.clone_into(&mut settings.mail.warning);
                Ok(())
            },
            text: |settings| Some(settings.mail.warning.clone()),
        },
    },
];
