//! The words that nats-server knows at the top of a file and in its blocks, and what becomes of each that is not honoured.
//!
//! A word that nats-server does not know is a mistake, there and here: `authorizaton { … }` would leave a server open. A
//! word that it knows and the feed does not is passed over, and named, if without it nobody is let in and nothing goes in
//! clear that the file protects; else the file is refused. (The list is nats-server 2.15.2's, `processConfigFileLine`.)

use super::{
    text::{Entry, Fault},
    values::Outcome,
};

/// Words at the top that mean something here.
const HONOURED: &[&str] = &[
    "listen",
    "host",
    "net",
    "port",
    "http",
    "http_port",
    "monitor_port",
    "server_name",
    "max_connections",
    "max_conn",
    "max_subscriptions",
    "max_subs",
    "max_payload",
    "max_control_line",
    "max_pending",
    "write_deadline",
    "ping_interval",
    "ping_max",
    "lame_duck_duration",
    "lame_duck_grace_period",
    "server_tags",
    "log_file",
    "logfile",
    "pid_file",
    "pidfile",
    "debug",
    "trace",
    "trace_verbose",
    "no_header_support",
    "proxy_protocol",
    "authorization",
    "accounts",
    "mappings",
    "maps",
    "system_account",
    "system",
    "no_auth_user",
];

/// Blocks and flags at the top that mean something here, and are named by [`HONOURED`]'s neighbours.
const HONOURED_TOO: &[&str] = &["tls", "allow_non_tls", "websocket", "ws", "leafnodes", "leaf"];

/// Words at the top that are passed over. Each lets in nobody by being left out, and protects nothing: listeners that are
/// not there (cluster, gateway, MQTT), storage, logs, bounds, what others are told, what JWTs need besides.
const PASSED_OVER: &[&str] = &[
    "client_advertise",
    "cluster",
    "connect_error_reports",
    "default_js_domain",
    "default_sentinel",
    "disable_sublist_cache",
    "feature_flags",
    "gateway",
    "http_base_path",
    "jetstream",
    "log_max_num",
    "log_size_limit",
    "logfile_max_num",
    "logfile_size_limit",
    "logtime",
    "logtime_utc",
    "max_closed_clients",
    "max_sub_tokens",
    "max_subscription_tokens",
    "max_traced_msg_len",
    "mqtt",
    "no_fast_producer_stall",
    "no_sublist_cache",
    "no_sys_acc",
    "no_system",
    "no_system_account",
    "ocsp",
    "ocsp_cache",
    "ports_file_dir",
    "prof_block_rate",
    "prof_port",
    "proxies",
    "reconnect_error_reports",
    "remote_syslog",
    "server_metadata",
    "store_dir",
    "storedir",
    "syslog",
    "trace_headers",
    "write_timeout",
];

/// Without these words, what they guard would stand open.
const OF_JWTS: &[&str] = &[
    "operator",
    "operators",
    "roots",
    "root",
    "root_operators",
    "root_operator",
    "trusted_keys",
    "trusted",
    "resolver",
    "account_resolver",
    "accounts_resolver",
    "resolver_tls",
    "resolver_preload",
    "resolver_pinned_accounts",
];

/// Monitoring under TLS: without it the pages would be served in clear.
const OF_HTTPS: &[&str] = &["https", "https_port"];

/// Words of `leafnodes` that are passed over: leaf nodes are not listened for, and what is left concerns how fast a hub
/// is reached.
pub(super) const OF_LEAFNODES: &[&str] = &[
    "advertise",
    "authorization",
    "compression",
    "dial_timeout",
    "host",
    "isolate",
    "isolate_leafnode_interest",
    "leafnode_advertise",
    "listen",
    "min_version",
    "minimum_version",
    "net",
    "no_advertise",
    "port",
    "reconnect",
    "reconnect_delay",
    "reconnect_interval",
    "tls",
];
/// The same, two more of a listener.
pub(super) const OF_LEAF_LISTENER: &[&str] = &["write_deadline", "write_timeout"];

/// Words of a remote that are passed over: how bytes come, and not which.
pub(super) const OF_REMOTE: &[&str] = &[
    "compression",
    "dial_timeout",
    "first_info_timeout",
    "hub",
    "ignore_discovered_servers",
    "jetstream_cluster_migrate",
    "js_cluster_migrate",
    "request_isolation",
    "websocket_compress",
    "websocket_compression",
    "websocket_no_masking",
    "ws_compress",
    "ws_compression",
    "ws_no_masking",
];
/// Words of a remote that mean something here.
pub(super) const OF_REMOTE_HONOURED: &[&str] = &[
    "account",
    "credentials",
    "creds",
    "deny_export",
    "deny_exports",
    "deny_import",
    "deny_imports",
    "disabled",
    "local",
    "nkey",
    "remotes",
    "seed",
    "tls",
    "url",
    "urls",
];

/// A word is nearer than this, or it was not meant.
const EDITS_MAX: usize = 3;

/// What becomes of a word at the top that does not mean anything here: it may be passed over, or why not.
pub(super) fn of_top(entry: &Entry, key: &str) -> Outcome {
    if OF_JWTS.contains(&key) {
        return Err(Fault::new(
            entry.line,
            format!(
                "`{key}`: JWT accounts are not supported; name users under `authorization` or `accounts`"
            ),
        ));
    }
    if OF_HTTPS.contains(&key) {
        return Err(Fault::new(
            entry.line,
            format!(
                "`{key}`: the monitoring pages are not served under TLS; `http: 127.0.0.1:8222` keeps them to this machine"
            ),
        ));
    }
    let all = HONOURED.iter().chain(HONOURED_TOO).chain(PASSED_OVER).chain(OF_JWTS).chain(OF_HTTPS);
    known(entry, key, "at the top of a file", PASSED_OVER, all.copied())
}

/// Whether a word may be passed over: it is one of `passed_over`. Else it is a mistake, and the nearest of `all` is named.
pub(super) fn known<'a>(
    entry: &Entry,
    key: &str,
    place: &str,
    passed_over: &[&str],
    all: impl Iterator<Item = &'a str>,
) -> Outcome {
    if passed_over.contains(&key) {
        return Ok(());
    }
    let near = nearest(key, all).map_or_else(String::new, |near| format!("; perhaps `{near}`"));
    Err(Fault::new(entry.line, format!("`{}` is no word {place}{near}", entry.key)))
}

fn nearest<'a>(key: &str, all: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let edits = all.map(|word| (strsim::damerau_levenshtein(key, word), word));
    let near = edits.filter(|(edits, word)| *edits <= EDITS_MAX && *edits * 3 <= word.len());
    near.min_by_key(|(edits, _)| *edits).map(|(_, word)| word)
}
