//! Settings of the mail service.

mod limits;
mod values;

use std::net::SocketAddr;

use mail::config::Durability;

pub(crate) use self::limits::{MAIL_LIMIT_SETTINGS, MAIL_LIMITS};
use self::values::{any_text, domain, host_name, http_host, narrow, store, store_size, store_text};
use crate::settings::{
    Group, Section, Setting, flag, named, network, one_or_more, optional, optional_path, parse_address,
    plain, some_time, texts,
    units::{duration_text, parse_size, size_text},
    value,
};

const MAIL: Group = Group { section: Section::Mail, heading: "Mail" };

/// Every setting of the mail service, in the order in which `--help` and `config --print` show them.
pub(crate) const MAIL_SETTINGS: &[Setting] = &[
    MAIL.text(
        "smtp",
        "ADDRESS",
        "Address for SMTP; port 0 picks a free one",
        value!(mail.config.smtp, parse = |text| parse_address(text, 1025), show = plain),
    ),
    MAIL.text(
        "http",
        "ADDRESS",
        "Address of the web pages and the APIs",
        value!(mail.http, parse = |text| parse_address(text, 8025), show = plain),
    ),
    MAIL.text(
        "smtps",
        "ADDRESS",
        "Address for SMTP under TLS from the first byte; unset: none",
        optional!(mail.config.smtps, parse = |text| parse_address(text, 1465), show = SocketAddr::to_string),
    ),
    MAIL.text(
        "lmtp",
        "ADDRESS",
        "Address for LMTP; unset: none",
        optional!(mail.config.lmtp, parse = |text| parse_address(text, 1024), show = SocketAddr::to_string),
    ),
    MAIL.text(
        "tls-cert",
        "FILE",
        "Certificate chain for STARTTLS and smtps (PEM)",
        optional_path!(mail.tls_cert),
    ),
    MAIL.text("tls-key", "FILE", "Private key of the certificate (PEM)", optional_path!(mail.tls_key)),
    MAIL.flag(
        "tls-shared",
        "In `serve`, uses the accelerator's certificates for TLS: those from files and those obtained by \
         ACME, in their current state",
        flag!(mail.tls_shared),
    ),
    MAIL.flag(
        "http-tls",
        "Serves pages and APIs by https, with the certificate of tls-cert or those of tls-shared",
        flag!(mail.http_tls),
    ),
    MAIL.flag(
        "share-bodies",
        "Stores a body that many mails share once per segment",
        flag!(mail.config.share_bodies),
    ),
    MAIL.flag(
        "proxy-protocol",
        "SMTP and LMTP connections begin with a PROXY protocol header, version 1 or 2",
        flag!(mail.config.proxy_protocol),
    ),
    MAIL.text(
        "store",
        "FILE|anon",
        "File to keep mails in, or anon: memory only; unset: mail.store in the state directory",
        optional!(mail.store, parse = store, show = store_text),
    ),
    MAIL.text(
        "store-size",
        "SIZE",
        "Size of the store; when it is full the oldest mails are dropped",
        value!(mail.config.store_bytes, parse = store_size, show = size_text),
    ),
    MAIL.text(
        "index-memory",
        "SIZE",
        "Memory for the index of mails and inboxes; when it is full the oldest mails are dropped. 0: a 22nd \
         of the store, 16MiB to 256MiB",
        value!(mail.config.index_bytes_max, parse = parse_size, show = size_text),
    ),
    MAIL.text(
        "durability",
        "WHAT",
        "What a mail survives once it is answered 250: process (any end of the process) or power (a power \
         loss)",
        named!(mail.config.durability, [("process", Durability::Process), ("power", Durability::Power)]),
    ),
    MAIL.text(
        "age-max",
        "TIME",
        "Time that a mail is kept",
        value!(mail.config.retention.age, parse = some_time, show = duration_text),
    ),
    MAIL.count(
        "inbox-mails-max",
        "N",
        "Mails per inbox; a further one drops the oldest there",
        value!(
            mail.config.retention.per_inbox_max,
            parse = |text| one_or_more(text).and_then(narrow),
            show = plain
        ),
    ),
    MAIL.text(
        "host-name",
        "NAME",
        "This server's name in its greeting and in Received",
        value!(mail.config.name, parse = host_name, show = plain),
    ),
    MAIL.text(
        "domain",
        "DOMAIN",
        "Domain of inboxes that are named without one",
        value!(mail.config.default_domain, parse = domain, show = plain),
    ),
    MAIL.texts(
        "domains",
        "LIST",
        "Domains that mail is accepted for; unset: all",
        texts!(mail.config.domains, each = domain),
    ),
    MAIL.text(
        "banned",
        "FILE",
        "File of banned addresses, senders and words; SIGHUP reloads it",
        optional_path!(mail.banned),
    ),
    MAIL.text(
        "token-file",
        "FILE",
        "File with the token that lists of more than one inbox require; unset: such lists are shown to this \
         machine only",
        optional_path!(mail.token_file),
    ),
    MAIL.texts(
        "trusted-proxies",
        "LIST",
        "Networks of trusted proxies, whose X-Forwarded-For, or else Forwarded, names the client of pages \
         and API; unset: none, except serve's own accelerator",
        texts!(mail.trusted_proxies, each = network),
    ),
    MAIL.texts(
        "shared-networks",
        "LIST",
        "Networks in which each live page, not each address, counts as a client, such as a large NAT or a \
         proxy that does not name its clients; unset: this machine only",
        texts!(mail.shared_networks, each = network),
    ),
    MAIL.texts(
        "http-hosts",
        "LIST",
        "Host names that pages and APIs answer to, besides addresses and localhost (mail.example.org); *: \
         any",
        texts!(mail.http_hosts, each = http_host),
    ),
    MAIL.texts(
        "mail-readers",
        "LIST",
        "Networks that may see all mail, as this machine may (172.16.0.0/12, of a compose file); unset: this \
         machine only, or clients with the token",
        texts!(mail.mail_readers, each = network),
    ),
    MAIL.text(
        "http-bytes-max",
        "SIZE",
        "Memory for requests and answers of pages and APIs, half of it per address; further requests are \
         answered 503",
        value!(mail.http_bytes_max, parse = parse_size, show = size_text),
    ),
    MAIL.flag(
        "search-index",
        "Keeps a search index beside the store's file; false: searches read the mails themselves",
        flag!(mail.search_index),
    ),
    MAIL.text(
        "abuse-contact",
        "ADDRESS",
        "Abuse contact shown on every page",
        optional!(mail.abuse_contact, parse = any_text, show = Clone::clone),
    ),
    MAIL.text(
        "warning",
        "TEXT",
        "Notice at the top of every page that shows mail",
        value!(mail.warning, parse = any_text, show = plain),
    ),
];
