//! Settings of the feed under NATS's own names.

use std::net::SocketAddr;

use crate::settings::{
    Section, Setting, ValueAccess, ValueShape, any_count,
    feed_settings::{addresses, addresses_text},
    list, networks, one_or_more, optional, parse_host_and_port, parse_path, path_text, plain, some_size,
    some_time, truth, truth_text,
    units::duration_text,
    usize_size_text, value,
};

const FEED: &str = "Feed";
/// Heading of limits in `--help`; `-h` omits them.
pub(crate) const FEED_LIMITS: &str = "Limits on clients";

/// Every setting of the feed, in the order in which `--help` and `config --print` show them.
pub(crate) const FEED_SETTINGS: &[Setting] = &[
    Setting {
        key: "listen",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED,
        value_name: "ADDRESS",
        help: "Address for client connections; port 0 picks a free one",
        access: value!(
            feed.config.listen,
            parse = |text| parse_host_and_port(text, 4222),
            show = |address: SocketAddr| address.to_string()
        ),
    },
    Setting {
        key: "monitor",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED,
        value_name: "ADDRESS",
        help: "Address of the monitoring pages (/varz, /connz, /subsz …)",
        access: value!(
            feed.monitor,
            parse = |text| parse_host_and_port(text, 8222),
            show = |address: SocketAddr| address.to_string()
        ),
    },
    Setting {
        key: "nats-config",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED,
        value_name: "FILE",
        help: "nats-server configuration file: users, permissions, accounts and other settings of the feed",
        access: optional!(feed.nats_config, parse = parse_path, show = path_text),
    },
    Setting {
        key: "server-name",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED,
        value_name: "NAME",
        help: "Name of this server in INFO",
        access: ValueAccess {
            set: |settings, text| {
                if text.is_empty() || text.contains(char::is_whitespace) {
                    return Err("expected a name without blanks".to_owned());
                }
                text.clone_into(&mut settings.feed.config.server_name);
                Ok(())
            },
            text: |settings| Some(settings.feed.config.server_name.clone()),
        },
    },
    Setting {
        key: "tls-cert",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED,
        value_name: "FILE",
        help: "Certificate chain of the server (PEM); if set, every client must use TLS",
        access: optional!(feed.tls_cert, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tls-key",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED,
        value_name: "FILE",
        help: "Private key of the certificate (PEM)",
        access: optional!(feed.tls_key, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tls-shared",
        section: Section::Feed,
        shape: ValueShape::Flag,
        heading: FEED,
        value_name: "true|false",
        help: "In `serve`, uses the accelerator's certificates for TLS: those from files and those obtained by ACME, \
               in their current state",
        access: value!(feed.tls_shared, parse = truth, show = truth_text),
    },
    Setting {
        key: "tls-ca",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED,
        value_name: "FILE",
        help: "CA certificates that sign clients' certificates (PEM)",
        access: optional!(feed.tls_ca, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tls-verify",
        section: Section::Feed,
        shape: ValueShape::Flag,
        heading: FEED,
        value_name: "true|false",
        help: "Requires a client certificate",
        access: value!(feed.tls_verify, parse = truth, show = truth_text),
    },
    Setting {
        key: "tls-handshake-first",
        section: Section::Feed,
        shape: ValueShape::Flag,
        heading: FEED,
        value_name: "true|false",
        help: "TLS handshake before INFO",
        access: value!(feed.tls_handshake_first, parse = truth, show = truth_text),
    },
    Setting {
        key: "websocket",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED,
        value_name: "ADDRESS",
        help: "Address for WebSocket clients; unset: none",
        access: optional!(
            feed.websocket,
            parse = |text| parse_host_and_port(text, 8080),
            show = SocketAddr::to_string
        ),
    },
    Setting {
        key: "websocket-tls",
        section: Section::Feed,
        shape: ValueShape::Flag,
        heading: FEED,
        value_name: "true|false",
        help: "WebSocket under TLS (wss://) with the same certificate",
        access: value!(feed.websocket_tls, parse = truth, show = truth_text),
    },
    Setting {
        key: "websocket-origins",
        section: Section::Feed,
        shape: ValueShape::Texts,
        heading: FEED,
        value_name: "LIST",
        help: "Web origins that may connect, such as https://www.example.org; *: all; unset: this address only",
        access: ValueAccess {
            set: |settings, text| {
                settings.feed.websocket_origins = list(text).map(str::to_owned).collect();
                Ok(())
            },
            text: |settings| {
                (!settings.feed.websocket_origins.is_empty())
                    .then(|| settings.feed.websocket_origins.join(","))
            },
        },
    },
    Setting {
        key: "leaf",
        section: Section::Feed,
        shape: ValueShape::Texts,
        heading: FEED,
        value_name: "URL,…",
        help: "Servers of a NATS cluster to join as a leaf node, such as nats-leaf://hub.example:7422 (also tls://, \
               ws://, wss://), tried in turn; messages flow both ways; [[feed.leaf-remote]] for more",
        access: ValueAccess {
            set: |settings, text| {
                settings.feed.leaf = addresses(text)?;
                Ok(())
            },
            text: |settings| (!settings.feed.leaf.is_empty()).then(|| addresses_text(&settings.feed.leaf)),
        },
    },
    Setting {
        key: "leaf-credentials",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED,
        value_name: "FILE",
        help: "Credentials file for the hub (.creds: a user's JWT and seed), read at each connection",
        access: optional!(feed.leaf_credentials, parse = parse_path, show = path_text),
    },
    Setting {
        key: "leaf-tls-ca",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED,
        value_name: "FILE",
        help: "CA certificates to trust for the hub (PEM); unset: the system's",
        access: optional!(feed.leaf_tls_ca, parse = parse_path, show = path_text),
    },
    Setting {
        key: "proxy-protocol",
        section: Section::Feed,
        shape: ValueShape::Flag,
        heading: FEED,
        value_name: "true|false",
        help: "Connections begin with a PROXY protocol header, version 1 or 2",
        access: value!(feed.config.proxy_protocol, parse = truth, show = truth_text),
    },
    Setting {
        key: "shared-networks",
        section: Section::Feed,
        shape: ValueShape::Texts,
        heading: FEED,
        value_name: "LIST",
        help: "Networks in which each connection, not each address, counts as a client when memory is shared out, such \
               as a large NAT or a proxy that does not name its clients; unset: this machine only",
        access: networks!(feed.config.shared_networks),
    },
    Setting {
        key: "lame-duck-duration",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED,
        value_name: "TIME",
        help: "Time over which a stopping server closes the remaining clients",
        access: value!(feed.config.lame_duck_duration, parse = some_time, show = duration_text),
    },
    Setting {
        key: "lame-duck-grace-period",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED,
        value_name: "TIME",
        help: "Time that a stopping server waits for clients to leave",
        access: value!(feed.config.lame_duck_grace_period, parse = some_time, show = duration_text),
    },
    Setting {
        key: "max-connections",
        section: Section::Feed,
        shape: ValueShape::Count,
        heading: FEED_LIMITS,
        value_name: "N",
        help: "Connections over all cores; further ones get an error and are closed",
        access: value!(feed.config.limits.max_connections, parse = one_or_more, show = plain),
    },
    Setting {
        key: "max-subscriptions",
        section: Section::Feed,
        shape: ValueShape::Count,
        heading: FEED_LIMITS,
        value_name: "N",
        help: "Subscriptions per connection; further ones are refused; 0: no limit",
        access: value!(feed.config.limits.max_subscriptions, parse = any_count, show = plain),
    },
    Setting {
        key: "max-payload",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED_LIMITS,
        value_name: "SIZE",
        help: "Size of a message, headers included; a larger one closes the connection",
        access: value!(feed.config.limits.max_payload, parse = some_size, show = usize_size_text),
    },
    Setting {
        key: "max-subscription-memory",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED_LIMITS,
        value_name: "SIZE",
        help: "Memory for all clients' subscriptions; one connection may use half of it, and when it is used up the \
               client that uses the most is disconnected in favour of another",
        access: value!(feed.config.limits.max_subscription_memory, parse = some_size, show = usize_size_text),
    },
    Setting {
        key: "max-control-line",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED_LIMITS,
        value_name: "SIZE",
        help: "Size of a protocol line's arguments; a longer one closes the connection",
        access: value!(feed.config.limits.max_control_line, parse = some_size, show = usize_size_text),
    },
    Setting {
        key: "max-pending",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED_LIMITS,
        value_name: "SIZE",
        help: "Backlog per consumer; from three quarters on producers are slowed in proportion, beyond it the consumer \
               is disconnected",
        access: value!(feed.config.limits.max_pending, parse = some_size, show = usize_size_text),
    },
    Setting {
        key: "max-pending-total",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED_LIMITS,
        value_name: "SIZE",
        help: "Memory for all backlogs and incomplete messages; from half of it on producers are slowed earlier, \
               beyond it a client that makes no progress is disconnected",
        access: value!(feed.config.limits.max_pending_total, parse = some_size, show = usize_size_text),
    },
    Setting {
        key: "producer-hold-max",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED_LIMITS,
        value_name: "TIME",
        help: "Time that a slow consumer may hold back producers before it is disconnected",
        access: value!(feed.config.limits.producer_hold_max, parse = some_time, show = duration_text),
    },
    Setting {
        key: "write-deadline",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED_LIMITS,
        value_name: "TIME",
        help: "Time for a consumer to read its backlog, or a sixteenth of --max-pending, before it is disconnected",
        access: value!(feed.config.limits.write_deadline, parse = some_time, show = duration_text),
    },
    Setting {
        key: "ping-interval",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED_LIMITS,
        value_name: "TIME",
        help: "Idle time after which a client is sent a PING",
        access: value!(feed.config.limits.ping_interval, parse = some_time, show = duration_text),
    },
    Setting {
        key: "ping-max",
        section: Section::Feed,
        shape: ValueShape::Count,
        heading: FEED_LIMITS,
        value_name: "N",
        help: "Unanswered PINGs after which a connection is closed",
        access: value!(feed.config.limits.ping_max, parse = some_pings, show = |n: u32| n.to_string()),
    },
    Setting {
        key: "auth-timeout",
        section: Section::Feed,
        shape: ValueShape::Text,
        heading: FEED_LIMITS,
        value_name: "TIME",
        help: "Time for a client to authenticate, and for TLS and WebSocket handshakes",
        access: value!(feed.config.limits.auth_timeout, parse = some_time, show = duration_text),
    },
];

fn some_pings(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "expected a whole number, for instance 2".to_owned())
}
