//! What can be set of the mail service.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use mail::{
    Lists,
    config::{Config, Durability, STORE_BYTES_MIN, Store, Tls},
    web,
};

use crate::{
    failure::Fault,
    settings::{
        Section, Setting, Settings, Shape, any_count, list, one_or_more, parse_address, parse_path, plain,
        some_time,
    },
    units::{duration_text, parse_duration, parse_size, size_text},
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
    store: Option<Store>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    banned: Option<PathBuf>,
    token_file: Option<PathBuf>,
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
            banned: None,
            token_file: None,
            abuse_contact: None,
            warning: web::Config::default().warning,
        }
    }
}

fn fault(place: &str, message: String) -> Fault {
    Fault { place: place.to_owned(), message }
}

impl MailSettings {
    /// The service's configuration. Makes the directory of state where it is wanted and missing.
    ///
    /// # Errors
    /// What does not go together, or cannot be read.
    pub(crate) fn config(&self, state: Option<&PathBuf>) -> Result<Config, Fault> {
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Some(Tls { certificates: cert.clone(), key: key.clone() }),
            (None, None) => None,
            (Some(_), None) => {
                return Err(fault("tls-key", "is missing; tls-cert goes with tls-key".to_owned()));
            }
            (None, Some(_)) => {
                return Err(fault("tls-cert", "is missing; tls-key goes with tls-cert".to_owned()));
            }
        };
        if self.config.smtps.is_some() && tls.is_none() {
            return Err(fault("tls-cert", "is missing; without it there is no TLS for smtps".to_owned()));
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

    /// Whether lists of more than one inbox are for who has a token.
    pub(crate) fn asks_for_token(&self) -> bool {
        self.token_file.is_some()
    }

    /// What pages and APIs are to say and allow.
    ///
    /// # Errors
    /// The token cannot be read, or is too short.
    pub(crate) fn web(&self, smtp: SocketAddr) -> Result<web::Config, Fault> {
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
            warning: self.warning.clone(),
            abuse: self.abuse_contact.clone(),
            ..web::Config::default()
        })
    }
}

/// `$XDG_STATE_HOME/nighttrain`, by the XDG Base Directory Specification; for root, which a service is, /var/lib/nighttrain.
fn state_directory() -> Option<PathBuf> {
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

/// A setting of the mail service.
macro_rules! mail {
    ($key:literal, $shape:ident, $heading:ident, $value_name:literal, $help:expr, $set:expr, $text:expr) => {
        Setting {
            key: $key,
            section: Section::Mail,
            shape: Shape::$shape,
            heading: $heading,
            value_name: $value_name,
            help: $help,
            set: |settings: &mut Settings, text: &str| {
                let set: fn(&mut MailSettings, &str) -> Result<(), String> = $set;
                set(&mut settings.mail, text)
            },
            text: |settings: &Settings| {
                let text: fn(&MailSettings) -> Option<String> = $text;
                text(&settings.mail)
            },
        }
    };
}

/// A value that is always there: where it is, how it is read and shown.
macro_rules! value {
    ($key:literal, $shape:ident, $heading:ident, $value_name:literal, $parse:expr, $show:expr, $help:expr, $($field:ident).+) => {
        mail!(
            $key,
            $shape,
            $heading,
            $value_name,
            $help,
            |mail, text| {
                mail.$($field).+ = $parse(text)?;
                Ok(())
            },
            |mail| Some($show(mail.$($field).+.clone()))
        )
    };
}

/// A path that may be absent.
macro_rules! path {
    ($key:literal, $field:ident, $help:literal) => {
        mail!(
            $key,
            Text,
            MAIL,
            "FILE",
            $help,
            |mail, text| {
                mail.$field = Some(parse_path(text)?);
                Ok(())
            },
            |mail| mail.$field.as_ref().map(|path| path.display().to_string())
        )
    };
}

/// An address that may be absent.
macro_rules! address {
    ($key:literal, $field:ident, $port:literal, $help:literal) => {
        mail!(
            $key,
            Text,
            MAIL,
            "ADDRESS",
            $help,
            |mail, text| {
                mail.config.$field = Some(parse_address(text, $port)?);
                Ok(())
            },
            |mail| mail.config.$field.as_ref().map(SocketAddr::to_string)
        )
    };
}

/// Every setting of the mail service, in the order in which `--help` and `config --print` show them.
pub(crate) const MAIL_SETTINGS: &[Setting] = &[
    value!(
        "smtp",
        Text,
        MAIL,
        "ADDRESS",
        |text| parse_address(text, 1025),
        |address: SocketAddr| address.to_string(),
        "Where mail is taken; port 0 takes a free one",
        config.smtp
    ),
    value!(
        "http",
        Text,
        MAIL,
        "ADDRESS",
        |text| parse_address(text, 8025),
        |address: SocketAddr| address.to_string(),
        "Where inboxes are shown, and the APIs are",
        http
    ),
    address!("smtps", smtps, 1465, "Where mail is taken under TLS from the first byte; unset: nowhere"),
    address!("lmtp", lmtp, 1024, "Where mail is taken by LMTP; unset: nowhere"),
    path!("tls-cert", tls_cert, "The certificate chain, in PEM, for STARTTLS and smtps"),
    path!("tls-key", tls_key, "The certificate's key, in PEM"),
    mail!(
        "share-bodies",
        Flag,
        MAIL,
        "true|false",
        "Whether a body that many mails have in common is stored once a segment",
        |mail, text| {
            mail.config.share_bodies = text.parse().map_err(|_| "true or false is wanted".to_owned())?;
            Ok(())
        },
        |mail| Some(mail.config.share_bodies.to_string())
    ),
    mail!(
        "proxy-protocol",
        Flag,
        MAIL,
        "true|false",
        "Whether connections to smtp and lmtp begin with a PROXY header, version 1 or 2",
        |mail, text| {
            mail.config.proxy_protocol = text.parse().map_err(|_| "true or false is wanted".to_owned())?;
            Ok(())
        },
        |mail| Some(mail.config.proxy_protocol.to_string())
    ),
    mail!(
        "store",
        Text,
        MAIL,
        "FILE|anon",
        "The file in which mails are kept, or anon: in memory alone; unset: mail.store in the directory of state",
        |mail, text| {
            mail.store = Some(match text {
                "anon" => Store::Anonymous,
                path => Store::File(parse_path(path)?),
            });
            Ok(())
        },
        |mail| mail.store.as_ref().map(|store| match store {
            Store::Anonymous => "anon".to_owned(),
            Store::File(path) => path.display().to_string(),
        })
    ),
    value!(
        "store-size",
        Text,
        MAIL,
        "SIZE",
        store_size,
        size_text,
        "Size of the store; beyond, the oldest mails go",
        config.store_bytes
    ),
    value!(
        "durability",
        Text,
        MAIL,
        "WHAT",
        durability,
        |durability| match durability {
            Durability::Process => "process".to_owned(),
            Durability::Power => "power".to_owned(),
        },
        "What a mail has survived when its 250 is said: process (whatever ends the process), or power (a loss of power)",
        config.durability
    ),
    value!(
        "age-max",
        Text,
        MAIL,
        "TIME",
        some_time,
        duration_text,
        "How long a mail is kept",
        config.retention.age
    ),
    value!(
        "inbox-mails-max",
        Count,
        MAIL,
        "N",
        |text| one_or_more(text).and_then(narrow),
        |count: u32| count.to_string(),
        "Mails in one inbox; one more drops the oldest there",
        config.retention.per_inbox_max
    ),
    value!(
        "host-name",
        Text,
        MAIL,
        "NAME",
        host_name,
        |name: String| name,
        "This server's name in its greeting and in Received",
        config.name
    ),
    value!(
        "domain",
        Text,
        MAIL,
        "DOMAIN",
        domain,
        |name: String| name,
        "The domain of inboxes that are named without one",
        config.default_domain
    ),
    mail!(
        "domains",
        Texts,
        MAIL,
        "LIST",
        "Domains whose mail is taken; unset: all",
        |mail, text| {
            mail.config.domains = list(text).map(domain).collect::<Result<_, _>>()?;
            Ok(())
        },
        |mail| (!mail.config.domains.is_empty()).then(|| mail.config.domains.join(","))
    ),
    path!("banned", banned, "A file of addresses, senders and words that are banned; SIGHUP reads it again"),
    path!(
        "token-file",
        token_file,
        "A file with the token that lists of more than one inbox demand; without one they are for this machine alone"
    ),
    mail!(
        "abuse-contact",
        Text,
        MAIL,
        "ADDRESS",
        "Whom to write to about abuse, on every page",
        |mail, text| {
            mail.abuse_contact = Some(text.to_owned());
            Ok(())
        },
        |mail| mail.abuse_contact.clone()
    ),
    value!(
        "warning",
        Text,
        MAIL,
        "TEXT",
        |text: &str| Ok::<_, String>(text.to_owned()),
        |text: String| text,
        "What every page that shows mail says first",
        warning
    ),
    value!(
        "mail-bytes-max",
        Text,
        MAIL_LIMITS,
        "SIZE",
        parse_size,
        size_text,
        "Size of one mail, up to 15MiB; more is answered 552",
        config.limits.mail_bytes_max
    ),
    value!(
        "recipients-max",
        Count,
        MAIL_LIMITS,
        "N",
        one_or_more,
        plain,
        "Recipients of one mail; more are answered 452",
        config.limits.recipients_max
    ),
    value!(
        "connections-max",
        Count,
        MAIL_LIMITS,
        "N",
        one_or_more,
        plain,
        "Connections per core; more are answered 421",
        config.limits.connections_max
    ),
    value!(
        "connections-per-address-max",
        Count,
        MAIL_LIMITS,
        "N",
        any_count,
        plain,
        "Connections of one address; more are answered 421; 0: no limit",
        config.limits.connections_per_address_max
    ),
    value!(
        "command-time-max",
        Text,
        MAIL_LIMITS,
        "TIME",
        some_time,
        duration_text,
        "How long a sender may be silent between commands",
        config.limits.command_time_max
    ),
    value!(
        "data-time-max",
        Text,
        MAIL_LIMITS,
        "TIME",
        some_time,
        duration_text,
        "How long a sender may be silent within a mail",
        config.limits.data_time_max
    ),
    value!(
        "connections-per-minute",
        Count,
        MAIL_LIMITS,
        "N",
        |text| any_count(text).and_then(narrow),
        |count: u32| count.to_string(),
        "New connections of one address a minute, half of them at once; more are answered 421; 0: no limit",
        config.rates.connections_per_minute
    ),
    value!(
        "mails-per-minute",
        Count,
        MAIL_LIMITS,
        "N",
        |text| any_count(text).and_then(narrow),
        |count: u32| count.to_string(),
        "Mails of one address a minute; more are answered 450; 0: no limit",
        config.rates.mails_per_minute
    ),
    value!(
        "inbox-mails-per-minute",
        Count,
        MAIL_LIMITS,
        "N",
        |text| any_count(text).and_then(narrow),
        |count: u32| count.to_string(),
        "Mails to one inbox a minute; more are answered 450; 0: no limit",
        config.rates.inbox_mails_per_minute
    ),
    value!(
        "subject-mails-per-minute",
        Count,
        MAIL_LIMITS,
        "N",
        |text| any_count(text).and_then(narrow),
        |count: u32| count.to_string(),
        "Mails with one subject a minute; more are answered 450; 0: no limit",
        config.rates.subject_mails_per_minute
    ),
    value!(
        "campaign-mails-per-minute",
        Count,
        MAIL_LIMITS,
        "N",
        |text| any_count(text).and_then(narrow),
        |count: u32| count.to_string(),
        "Mails with nearly one text a minute; more are answered 450; 0: no limit",
        config.rates.campaign_mails_per_minute
    ),
    value!(
        "tarpit",
        Text,
        MAIL_LIMITS,
        "TIME",
        parse_duration,
        duration_text,
        "How long replies to a sender are held back that comes near one of these rates",
        config.rates.tarpit
    ),
];

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

fn domain(text: &str) -> Result<String, String> {
    mail::address::fold_domain(text)
        .map(String::from)
        .map_err(|_| "a domain is wanted, such as example.org".to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_does_not_go_together_is_told() {
        let of = |changes: fn(&mut MailSettings)| {
            let mut settings = MailSettings { store: Some(Store::Anonymous), ..MailSettings::default() };
            changes(&mut settings);
            settings.config(None)
        };
        assert!(of(|_| ()).is_ok());
        let place = |result: Result<Config, Fault>| result.expect_err("a fault").place;
        assert_eq!(place(of(|mail| mail.tls_cert = Some("/a".into()))), "tls-key");
        assert_eq!(place(of(|mail| mail.tls_key = Some("/a".into()))), "tls-cert");
        assert_eq!(place(of(|mail| mail.config.smtps = Some(mail.http))), "tls-cert");
        assert_eq!(place(of(|mail| mail.banned = Some("/no/such/list".into()))), "/no/such/list");
    }

    #[test]
    fn the_store_is_in_the_directory_of_state_unless_somebody_says_otherwise() {
        let directory = tempfile::tempdir().expect("a directory");
        let state = directory.path().join("made");
        let config = MailSettings::default().config(Some(&state)).expect("right");
        assert_eq!(config.store, Store::File(state.join("mail.store")));
        assert!(state.is_dir());
    }

    #[test]
    fn a_wrong_list_names_its_line() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "word a\nfoo bar\n").expect("written");
        let settings = MailSettings { banned: Some(file.path().to_owned()), ..MailSettings::default() };
        let fault = settings.lists().expect_err("wrong");
        assert!(fault.message.starts_with("line 2: \"foo\""), "{fault}");
    }

    #[test]
    fn a_store_has_a_least_size() {
        assert!(store_size("1MiB").expect_err("too small").contains("128MiB"));
    }

    #[test]
    fn a_name_is_a_name() {
        for wrong in ["", "a b", "a\r\nb"] {
            assert!(host_name(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(domain("Example.ORG").as_deref(), Ok("example.org"));
        assert!(duration_text(Duration::from_secs(86400)).ends_with('d'));
    }
}
