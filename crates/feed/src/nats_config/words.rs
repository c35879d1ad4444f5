//! Options that nats-server knows at the top level of a file and in its blocks, and how those that are not
//! supported are treated.
//!
//! An option that nats-server does not know is an error, in both servers: `authorizaton { … }` would leave a
//! server open. An option that only nats-server supports is ignored and reported, if ignoring it gives nobody
//! additional access and causes nothing to be sent unencrypted that the file protects; otherwise the file is
//! refused. (The list is from nats-server 2.15.2, `processConfigFileLine`.)

use super::{
    text::{Entry, Fault},
    values::Outcome,
};

/// Supported options at the top level of a file.
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

/// Further supported options at the top level: blocks, and flags that belong to them.
const HONOURED_TOO: &[&str] = &["tls", "allow_non_tls", "websocket", "ws", "leafnodes", "leaf"];

/// Options at the top level that are ignored, because ignoring them gives nobody access and leaves nothing
/// unprotected: listeners that the feed does not have (cluster, gateway, MQTT), storage, logs, bounds,
/// announcements to other servers, additions to JWTs.
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

/// Options for JWTs. They are refused, because ignoring them would allow access that they restrict.
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

/// Options for monitoring over TLS. They are refused, because the pages would be served unencrypted.
const OF_HTTPS: &[&str] = &["https", "https_port"];

/// Ignored options of `leafnodes`: the feed does not accept leaf nodes, and the remaining options only change
/// how fast a hub is reached.
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
/// Ignored options of the listener in `leafnodes`, in addition to [`OF_LEAFNODES`].
pub(super) const OF_LEAF_LISTENER: &[&str] = &["write_deadline", "write_timeout"];

/// Ignored options of a remote in `leafnodes`; they change how bytes are sent, but not which bytes.
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
/// Supported options of a remote in `leafnodes`.
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

/// Edit distance at which a known option is no longer suggested for a misspelt one.
const EDITS_MAX: usize = 3;

/// Handles an unsupported option at the top level: the option is ignored, or refused with an error that says
/// why.
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

/// Accepts an option that is in `passed_over`. Any other option is an error, which suggests the most similar
/// name in `all`.
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
