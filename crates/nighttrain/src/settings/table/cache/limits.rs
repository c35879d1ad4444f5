//! Settings of the accelerator: limits on clients and on the origin.

use super::bounded::{head_size, headers_count, streams, window_size};
use crate::settings::{
    Section, Setting, ValueAccess, ValueShape, any_count, one_or_more, plain, some_size, some_time,
    units::{duration_text, parse_duration, parse_size, size_text},
    usize_size_text, value,
};

/// Heading of limits in `--help`; `-h` omits them.
pub(crate) const LIMITS: &str = "Limits on clients and origin";

/// Returns the row of a limit that is a number.
const fn row(key: &'static str, help: &'static str, access: ValueAccess) -> Setting {
    Setting { shape: ValueShape::Count, ..text_row(key, "N", help, access) }
}

/// Returns the row of a limit that is written with a unit, such as a size or a time.
const fn text_row(
    key: &'static str,
    value_name: &'static str,
    help: &'static str,
    access: ValueAccess,
) -> Setting {
    Setting {
        key,
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name,
        help,
        access,
    }
}

/// Settings that limit clients and the origin.
pub(crate) const CACHE_LIMIT_SETTINGS: &[Setting] = &[
    row(
        "connections-max",
        "Client connections per core; further ones are answered 503",
        value!(cache.limits.connections_max, parse = one_or_more, show = plain),
    ),
    row(
        "connections-per-client-max",
        "Connections per client address over all cores; further ones are closed; 0: no limit",
        value!(cache.limits.connections_per_client_max, parse = any_count, show = plain),
    ),
    text_row(
        "request-head-bytes-max",
        "SIZE",
        "Size of a request's line and headers together; larger ones are answered 431",
        value!(cache.limits.request_head_bytes_max, parse = head_size, show = usize_size_text),
    ),
    text_row(
        "request-body-bytes-max",
        "SIZE",
        "Size of a request's body; larger ones are answered 413",
        value!(cache.limits.request_body_bytes_max, parse = parse_size, show = size_text),
    ),
    text_row(
        "request-head-time-max",
        "TIME",
        "Time for a request's head to arrive after its first byte; slower ones are answered 408",
        value!(cache.limits.request_head_time_max, parse = some_time, show = duration_text),
    ),
    text_row(
        "idle-time-max",
        "TIME",
        "Idle time of a keep-alive connection between requests",
        value!(cache.limits.idle_time_max, parse = some_time, show = duration_text),
    ),
    text_row(
        "send-stall-max",
        "TIME",
        "Time that a response may make no progress before the client is disconnected",
        value!(cache.limits.send_stall_max, parse = some_time, show = duration_text),
    ),
    text_row(
        "pin-grace",
        "TIME",
        "Time that a slow reader may keep memory that the store wants back, before it is disconnected",
        value!(cache.limits.pin_grace, parse = parse_duration, show = duration_text),
    ),
    text_row(
        "response-head-bytes-max",
        "SIZE",
        "Size of the origin's response head; larger ones are answered 502",
        value!(cache.limits.response_head_bytes_max, parse = head_size, show = usize_size_text),
    ),
    text_row(
        "origin-connect-time-max",
        "TIME",
        "Time to connect to the origin",
        value!(cache.limits.origin_connect_time_max, parse = some_time, show = duration_text),
    ),
    text_row(
        "origin-first-byte-time-max",
        "TIME",
        "Time from the request to the origin to the first byte of its answer",
        value!(cache.limits.origin_first_byte_time_max, parse = some_time, show = duration_text),
    ),
    text_row(
        "origin-between-bytes-time-max",
        "TIME",
        "Time between two reads of the origin's response body",
        value!(cache.limits.origin_between_bytes_time_max, parse = some_time, show = duration_text),
    ),
    text_row(
        "origin-request-time-max",
        "TIME",
        "Time from the request to the origin to the last byte of its response; 0s: no limit",
        value!(cache.limits.origin_request_time_max, parse = parse_duration, show = duration_text),
    ),
    text_row(
        "origin-stream-bytes-max",
        "SIZE",
        "HTTP/2 window per stream: what the origin may send before it is read; more makes a distant origin faster",
        value!(cache.limits.origin_stream_bytes_max, parse = window_size, show = usize_size_text),
    ),
    row(
        "origin-streams-max",
        "Concurrent streams per HTTP/2 connection to the origin, which may allow fewer",
        value!(cache.limits.origin_streams_max, parse = streams, show = plain),
    ),
    text_row(
        "origin-streams-bytes-max",
        "SIZE",
        "Memory per core for HTTP/2 responses of origins that are not read yet; further requests wait",
        value!(cache.limits.origin_streams_bytes_max, parse = some_size, show = usize_size_text),
    ),
    text_row(
        "origin-idle-time-max",
        "TIME",
        "Idle time of a connection to the origin before it is closed",
        value!(cache.limits.origin_idle_time_max, parse = some_time, show = duration_text),
    ),
    text_row(
        "request-body-time-grace",
        "TIME",
        "Time that a request's body may take before request-body-rate-min applies",
        value!(cache.limits.request_body_time_grace, parse = some_time, show = duration_text),
    ),
    row(
        "origin-idle-connections-max",
        "Idle connections to the origin kept per core",
        value!(cache.limits.origin_idle_connections_max, parse = any_count, show = plain),
    ),
    row(
        "origin-connections-max",
        "Concurrent exchanges with the origin per core, a quarter of them for answers to be stored; further \
               requests queue",
        value!(cache.limits.origin_connections_max, parse = one_or_more, show = plain),
    ),
    row(
        "origin-queue-max",
        "Requests per core that queue for an exchange with the origin; further ones are answered 503",
        value!(cache.limits.origin_queue_max, parse = any_count, show = plain),
    ),
    row(
        "origin-lasting-max",
        "Long-lasting passed answers per core (event streams, slow downloads), in addition to \
               origin-connections-max",
        value!(cache.limits.origin_lasting_max, parse = any_count, show = plain),
    ),
    text_row(
        "pipe-idle-time-max",
        "TIME",
        "Idle time of a WebSocket before it is closed",
        value!(cache.limits.pipe_idle_time_max, parse = some_time, show = duration_text),
    ),
    text_row(
        "client-bytes-max",
        "SIZE",
        "Memory outside of the store that slow clients may hold; beyond it clients are disconnected",
        value!(cache.limits.client_bytes_max, parse = some_size, show = usize_size_text),
    ),
    text_row(
        "request-line-bytes-max",
        "SIZE",
        "Size of a request's line, which has the URL; longer ones are answered 414",
        value!(cache.limits.request_line_bytes_max, parse = head_size, show = usize_size_text),
    ),
    row(
        "request-headers-max",
        "Header fields of a request, at most 128; more are answered 431",
        value!(cache.limits.request_headers_max, parse = headers_count, show = plain),
    ),
    row(
        "requests-per-connection-max",
        "Requests per connection before it is closed in order; 0: no limit",
        value!(cache.limits.requests_per_connection_max, parse = any_count, show = plain),
    ),
    text_row(
        "handshake-time-max",
        "TIME",
        "Time for a TLS handshake; slower connections are closed",
        value!(cache.limits.handshake_time_max, parse = some_time, show = duration_text),
    ),
    row(
        "handshakes-max",
        "Concurrent TLS handshakes per core; further connections are closed",
        value!(cache.limits.handshakes_max, parse = one_or_more, show = plain),
    ),
    text_row(
        "request-body-rate-min",
        "SIZE",
        "Bytes per second at which a request's body must arrive, after request-body-time-grace; slower ones are \
               answered 408",
        value!(cache.limits.request_body_rate_min, parse = parse_size, show = size_text),
    ),
    text_row(
        "send-rate-min",
        "SIZE",
        "Bytes per second that a client must read of its response; slower ones are disconnected; 0: no limit",
        value!(cache.limits.send_rate_min, parse = parse_size, show = size_text),
    ),
    text_row(
        "send-rate-grace",
        "TIME",
        "Time that a client may fall behind send-rate-min",
        value!(cache.limits.send_rate_grace, parse = some_time, show = duration_text),
    ),
    text_row(
        "connection-bytes-max",
        "SIZE",
        "Memory per core for connections; near the limit the longest idle ones are closed, beyond it new ones \
               are refused",
        value!(cache.limits.connection_bytes_max, parse = some_size, show = usize_size_text),
    ),
    row(
        "connections-per-network-max",
        "Connections per client network (24 bits of IPv4, 64 of IPv6) over all cores; further ones are closed; 0: no \
         limit",
        value!(cache.limits.connections_per_network_max, parse = any_count, show = plain),
    ),
    row(
        "client-requests-per-second-max",
        "Requests per second and client address; further ones are answered 429; 0: no limit",
        value!(cache.limits.client_requests_per_second_max, parse = any_count, show = plain),
    ),
    row(
        "client-requests-burst",
        "Burst of requests per client address before the rate applies",
        value!(cache.limits.client_requests_burst, parse = one_or_more, show = plain),
    ),
    row(
        "network-requests-per-second-max",
        "Requests per second and client network; further ones are answered 429; 0: no limit",
        value!(cache.limits.network_requests_per_second_max, parse = any_count, show = plain),
    ),
    row(
        "network-requests-burst",
        "Burst of requests per client network before the rate applies",
        value!(cache.limits.network_requests_burst, parse = one_or_more, show = plain),
    ),
];
