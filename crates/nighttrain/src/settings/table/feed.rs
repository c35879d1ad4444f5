//! Settings of the feed under NATS's own names.

use std::net::SocketAddr;

use feed::leaf::Address;

use crate::settings::{
    Group, Section, Setting, access, any_count,
    feed_settings::{addresses, addresses_text},
    flag, network, one_or_more, optional, optional_path, parse_host_and_port, plain, some_size, some_time,
    texts,
    units::duration_text,
    usize_size_text, value,
};

const FEED: Group = Group { section: Section::Feed, heading: "Feed" };
/// Group of limits, which `-h` omits.
pub(crate) const FEED_LIMITS: Group = Group { section: Section::Feed, heading: "Limits on clients" };

/// Every setting of the feed, in the order in which `--help` and `config --print` show them.
pub(crate) const FEED_SETTINGS: &[Setting] = &[
    FEED.text(
        "listen",
        "ADDRESS",
        "Address for client connections; port 0 picks a free one",
        value!(feed.config.listen, parse = |text| parse_host_and_port(text, 4222), show = plain),
    ),
    FEED.text(
        "monitor",
        "ADDRESS",
        "Address of the monitoring pages (/varz, /connz, /subsz …)",
        value!(feed.monitor, parse = |text| parse_host_and_port(text, 8222), show = plain),
    ),
    FEED.text(
        "nats-config",
        "FILE",
        "nats-server configuration file: users, permissions, accounts and other settings of the feed",
        optional_path!(feed.nats_config),
    ),
    FEED.text(
        "server-name",
        "NAME",
        "Name of this server in INFO",
        value!(feed.config.server_name, parse = server_name, show = plain),
    ),
    FEED.text(
        "tls-cert",
        "FILE",
        "Certificate chain of the server (PEM); if set, every client must use TLS",
        optional_path!(feed.tls_cert),
    ),
    FEED.text("tls-key", "FILE", "Private key of the certificate (PEM)", optional_path!(feed.tls_key)),
    FEED.flag(
        "tls-shared",
        "In `serve`, uses the accelerator's certificates for TLS: those from files and those obtained by \
         ACME, in their current state",
        flag!(feed.tls_shared),
    ),
    FEED.text(
        "tls-ca",
        "FILE",
        "CA certificates that sign clients' certificates (PEM)",
        optional_path!(feed.tls_ca),
    ),
    FEED.flag("tls-verify", "Requires a client certificate", flag!(feed.tls_verify)),
    FEED.flag("tls-handshake-first", "TLS handshake before INFO", flag!(feed.tls_handshake_first)),
    FEED.text(
        "websocket",
        "ADDRESS",
        "Address for WebSocket clients; unset: none",
        optional!(
            feed.websocket,
            parse = |text| parse_host_and_port(text, 8080),
            show = SocketAddr::to_string
        ),
    ),
    FEED.flag(
        "websocket-tls",
        "WebSocket under TLS (wss://) with the same certificate",
        flag!(feed.websocket_tls),
    ),
    FEED.texts(
        "websocket-origins",
        "LIST",
        "Web origins that may connect, such as https://www.example.org; *: all; unset: this address only",
        texts!(feed.websocket_origins, each = |origin| Ok(origin.to_owned())),
    ),
    FEED.texts(
        "leaf",
        "URL,…",
        "Servers of a NATS cluster to join as a leaf node, such as nats-leaf://hub.example:7422 (also \
         tls://, ws://, wss://), tried in turn; messages flow both ways; [[feed.leaf-remote]] for more",
        access!(feed.leaf, parse = addresses, show = leaf_text),
    ),
    FEED.text(
        "leaf-credentials",
        "FILE",
        "Credentials file for the hub (.creds: a user's JWT and seed), read at each connection",
        optional_path!(feed.leaf_credentials),
    ),
    FEED.text(
        "leaf-tls-ca",
        "FILE",
        "CA certificates to trust for the hub (PEM); unset: the system's",
        optional_path!(feed.leaf_tls_ca),
    ),
    FEED.flag(
        "proxy-protocol",
        "Connections begin with a PROXY protocol header, version 1 or 2",
        flag!(feed.config.proxy_protocol),
    ),
    FEED.texts(
        "shared-networks",
        "LIST",
        "Networks in which each connection, not each address, counts as a client when memory is shared out, \
         such as a large NAT or a proxy that does not name its clients; unset: this machine only",
        texts!(feed.config.shared_networks, each = network),
    ),
    FEED.text(
        "lame-duck-duration",
        "TIME",
        "Time over which a stopping server closes the remaining clients",
        value!(feed.config.lame_duck_duration, parse = some_time, show = duration_text),
    ),
    FEED.text(
        "lame-duck-grace-period",
        "TIME",
        "Time that a stopping server waits for clients to leave",
        value!(feed.config.lame_duck_grace_period, parse = some_time, show = duration_text),
    ),
    FEED_LIMITS.count(
        "max-connections",
        "N",
        "Connections over all cores; further ones get an error and are closed",
        value!(feed.config.limits.max_connections, parse = one_or_more, show = plain),
    ),
    FEED_LIMITS.count(
        "max-subscriptions",
        "N",
        "Subscriptions per connection; further ones are refused; 0: no limit",
        value!(feed.config.limits.max_subscriptions, parse = any_count, show = plain),
    ),
    FEED_LIMITS.text(
        "max-payload",
        "SIZE",
        "Size of a message, headers included; a larger one closes the connection",
        value!(feed.config.limits.max_payload, parse = some_size, show = usize_size_text),
    ),
    FEED_LIMITS.text(
        "max-subscription-memory",
        "SIZE",
        "Memory for all clients' subscriptions; one connection may use half of it, and when it is used up \
         the client that uses the most is disconnected in favour of another",
        value!(feed.config.limits.max_subscription_memory, parse = some_size, show = usize_size_text),
    ),
    FEED_LIMITS.text(
        "max-control-line",
        "SIZE",
        "Size of a protocol line's arguments; a longer one closes the connection",
        value!(feed.config.limits.max_control_line, parse = some_size, show = usize_size_text),
    ),
    FEED_LIMITS.text(
        "max-pending",
        "SIZE",
        "Backlog per consumer; from three quarters on producers are slowed in proportion, beyond it the \
         consumer is disconnected",
        value!(feed.config.limits.max_pending, parse = some_size, show = usize_size_text),
    ),
    FEED_LIMITS.text(
        "max-pending-total",
        "SIZE",
        "Memory for all backlogs and incomplete messages; from half of it on producers are slowed earlier, \
         beyond it a client that makes no progress is disconnected",
        value!(feed.config.limits.max_pending_total, parse = some_size, show = usize_size_text),
    ),
    FEED_LIMITS.text(
        "producer-hold-max",
        "TIME",
        "Time that a slow consumer may hold back producers before it is disconnected",
        value!(feed.config.limits.producer_hold_max, parse = some_time, show = duration_text),
    ),
    FEED_LIMITS.text(
        "write-deadline",
        "TIME",
        "Time for a consumer to read its backlog, or a sixteenth of --max-pending, before it is disconnected",
        value!(feed.config.limits.write_deadline, parse = some_time, show = duration_text),
    ),
    FEED_LIMITS.text(
        "ping-interval",
        "TIME",
        "Idle time after which a client is sent a PING",
        value!(feed.config.limits.ping_interval, parse = some_time, show = duration_text),
    ),
    FEED_LIMITS.count(
        "ping-max",
        "N",
        "Unanswered PINGs after which a connection is closed",
        value!(feed.config.limits.ping_max, parse = some_pings, show = plain),
    ),
    FEED_LIMITS.text(
        "auth-timeout",
        "TIME",
        "Time for a client to authenticate, and for TLS and WebSocket handshakes",
        value!(feed.config.limits.auth_timeout, parse = some_time, show = duration_text),
    ),
];

fn server_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(char::is_whitespace) {
        return Err("expected a name without blanks".to_owned());
    }
    Ok(text.to_owned())
}

fn leaf_text(hub: &[Address]) -> Option<String> {
    (!hub.is_empty()).then(|| addresses_text(hub))
}

fn some_pings(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "expected a whole number, for instance 2".to_owned())
}
