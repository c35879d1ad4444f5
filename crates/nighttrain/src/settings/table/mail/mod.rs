//! Settings of the mail service.

mod limits;
mod values;

use std::net::SocketAddr;

use mail::config::{Durability, Store};

pub(crate) use self::limits::{MAIL_LIMIT_SETTINGS, MAIL_LIMITS};
use self::values::{domain, durability, host_name, http_host, narrow, store_size};
use crate::settings::{
    Section, Setting, ValueAccess, ValueShape, list, networks, one_or_more, optional, parse_address,
    parse_path, path_text, some_time, truth, truth_text,
    units::{duration_text, parse_size, size_text},
    value,
};

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
