//! The table of all settings.

mod acme;
mod cache;
mod cluster;
mod common;
mod crawlers;
mod feed;
mod log;
mod mail;
pub(super) mod origins;
mod peers;
pub(super) mod sites;
mod tls;

use self::{
    acme::ACME_SETTINGS,
    cache::{CACHE_LIMIT_SETTINGS, CACHE_SETTINGS},
    cluster::CLUSTER_SETTINGS,
    common::COMMON_SETTINGS,
    crawlers::CRAWLER_SETTINGS,
    feed::FEED_SETTINGS,
    log::LOG_SETTINGS,
    mail::{MAIL_LIMIT_SETTINGS, MAIL_SETTINGS},
    origins::ORIGIN_SETTINGS,
    peers::PEERS_SETTINGS,
    sites::SITE_SETTINGS,
    tls::TLS_SETTINGS,
};
pub(crate) use self::{cache::LIMITS, common::COMMON, feed::FEED_LIMITS, mail::MAIL_LIMITS};
use crate::settings::{Section, Setting};

/// Tables of the settings, in the order in which `--help` and `config --print` show them.
const TABLES: [&[Setting]; 14] = [
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
];

/// Every setting, in the order of the tables.
pub(crate) const SETTINGS: &[Setting] = &joined();

const COUNT: usize = {
    let (mut count, mut table) = (0, 0);
    while table < TABLES.len() {
        count += TABLES[table].len();
        table += 1;
    }
    count
};

/// Concatenates the tables at compile time.
const fn joined() -> [Setting; COUNT] {
    let mut all = [COMMON_SETTINGS[0]; COUNT];
    let (mut i, mut table) = (0, 0);
    while table < TABLES.len() {
        let mut row = 0;
        while row < TABLES[table].len() {
            all[i] = TABLES[table][row];
            (i, row) = (i + 1, row + 1);
        }
        table += 1;
    }
    all
}

/// Returns the setting with this key in this section, and its position in [`SETTINGS`].
pub(crate) fn in_section(section: Section, key: &str) -> Option<(usize, &'static Setting)> {
    SETTINGS.iter().enumerate().find(|(_, setting)| setting.section == section && setting.key == key)
}

/// Returns the first setting with this key, in any section, and its position in [`SETTINGS`].
pub(crate) fn by_key(key: &str) -> Option<(usize, &'static Setting)> {
    SETTINGS.iter().enumerate().find(|(_, setting)| setting.key == key)
}
