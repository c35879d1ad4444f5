//! Settings of the accelerator: limits on clients and on the origin.

use super::bounded::{head_size, headers_count, streams, window_size};
use crate::settings::{
    Group, Section, Setting, any_count, one_or_more, plain, some_size, some_time,
    units::{duration_text, parse_duration, parse_size, size_text},
    usize_size_text, value,
};

/// Group of limits, which `-h` omits.
pub(crate) const LIMITS: Group = Group { section: Section::Cache, heading: "Limits on clients and origin" };

/// Settings that limit clients and the origin.
pub(crate) const CACHE_LIMIT_SETTINGS: &[Setting] = &[
    LIMITS.count(
        "connections-max",
        "N",
        "Client connections per core; further ones are answered 503",
        value!(cache.limits.connections_max, parse = one_or_more, show = plain),
    ),
    LIMITS.count(
        "connections-per-client-max",
        "N",
        "Connections per client address over all cores; further ones are closed; 0: no limit",
        value!(cache.limits.connections_per_client_max, parse = any_count, show = plain),
    ),
    LIMITS.text(
        "request-head-bytes-max",
        "SIZE",
        "Size of a request's line and headers together; larger ones are answered 431",
        value!(cache.limits.request_head_bytes_max, parse = head_size, show = usize_size_text),
    ),
    LIMITS.text(
        "request-body-bytes-max",
        "SIZE",
        "Size of a request's body; larger ones are answered 413",
        value!(cache.limits.request_body_bytes_max, parse = parse_size, show = size_text),
    ),
    LIMITS.text(
        "request-head-time-max",
        "TIME",
        "Time for a request's head to arrive after its first byte; slower ones are answered 408",
        value!(cache.limits.request_head_time_max, parse = some_time, show = duration_text),
    ),
    LIMITS.text(
        "idle-time-max",
        "TIME",
        "Idle time of a keep-alive connection between requests",
        value!(cache.limits.idle_time_max, parse = some_time, show = duration_text),
    ),
    LIMITS.text(
        "send-stall-max",
        "TIME",
        "Time that a response may make no progress before the client is disconnected",
        value!(cache.limits.send_stall_max, parse = some_time, show = duration_text),
    ),
    LIMITS.text(
        "pin-grace",
        "TIME",
        "Time that a slow reader may keep memory that the store wants back, before it is disconnected",
        value!(cache.limits.pin_grace, parse = parse_duration, show = duration_text),
    ),
    LIMITS.text(
        "response-head-bytes-max",
        "SIZE",
        "Size of the origin's response head; larger ones are answered 502",
        value!(cache.limits.response_head_bytes_max, parse = head_size, show = usize_size_text),
    ),
    LIMITS.text(
        "origin-connect-time-max",
        "TIME",
        "Time to connect to the origin",
        value!(cache.limits.origin_connect_time_max, parse = some_time, show = duration_text),
    ),
    LIMITS.text(
        "origin-first-byte-time-max",
        "TIME",
        "Time from the request to the origin to the first byte of its answer",
        value!(cache.limits.origin_first_byte_time_max, parse = some_time, show = duration_text),
    ),
    LIMITS.text(
        "origin-between-bytes-time-max",
        "TIME",
        "Time between two reads of the origin's response body",
        value!(cache.limits.origin_between_bytes_time_max, parse = some_time, show = duration_text),
    ),
    LIMITS.text(
        "origin-request-time-max",
        "TIME",
        "Time from the request to the origin to the last byte of its response; 0s: no limit",
        value!(cache.limits.origin_request_time_max, parse = parse_duration, show = duration_text),
    ),
    LIMITS.text(
        "origin-stream-bytes-max",
        "SIZE",
        "HTTP/2 window per stream: what the origin may send before it is read; more makes a distant origin \
         faster",
        value!(cache.limits.origin_stream_bytes_max, parse = window_size, show = usize_size_text),
    ),
    LIMITS.count(
        "origin-streams-max",
        "N",
        "Concurrent streams per HTTP/2 connection to the origin, which may allow fewer",
        value!(cache.limits.origin_streams_max, parse = streams, show = plain),
    ),
    LIMITS.text(
        "origin-streams-bytes-max",
        "SIZE",
        "Memory per core for HTTP/2 responses of origins that are not read yet; further requests wait",
        value!(cache.limits.origin_streams_bytes_max, parse = some_size, show = usize_size_text),
    ),
    LIMITS.text(
        "origin-idle-time-max",
        "TIME",
        "Idle time of a connection to the origin before it is closed",
        value!(cache.limits.origin_idle_time_max, parse = some_time, show = duration_text),
    ),
    LIMITS.text(
        "request-body-time-grace",
        "TIME",
        "Time that a request's body may take before request-body-rate-min applies",
        value!(cache.limits.request_body_time_grace, parse = some_time, show = duration_text),
    ),
    LIMITS.count(
        "origin-idle-connections-max",
        "N",
        "Idle connections to the origin kept per core",
        value!(cache.limits.origin_idle_connections_max, parse = any_count, show = plain),
    ),
    LIMITS.count(
        "origin-connections-max",
        "N",
        "Concurrent exchanges with the origin per core, a quarter of them for answers to be stored; further \
         requests queue",
        value!(cache.limits.origin_connections_max, parse = one_or_more, show = plain),
    ),
    LIMITS.count(
        "origin-queue-max",
        "N",
        "Requests per core that queue for an exchange with the origin; further ones are answered 503",
        value!(cache.limits.origin_queue_max, parse = any_count, show = plain),
    ),
    LIMITS.count(
        "origin-lasting-max",
        "N",
        "Long-lasting passed answers per core (event streams, slow downloads), in addition to \
         origin-connections-max",
        value!(cache.limits.origin_lasting_max, parse = any_count, show = plain),
    ),
    LIMITS.text(
        "pipe-idle-time-max",
        "TIME",
        "Idle time of a WebSocket before it is closed",
        value!(cache.limits.pipe_idle_time_max, parse = some_time, show = duration_text),
    ),
    LIMITS.text(
        "client-bytes-max",
        "SIZE",
        "Memory outside of the store that slow clients may hold; beyond it clients are disconnected",
        value!(cache.limits.client_bytes_max, parse = some_size, show = usize_size_text),
    ),
    LIMITS.text(
        "request-line-bytes-max",
        "SIZE",
        "Size of a request's line, which has the URL; longer ones are answered 414",
        value!(cache.limits.request_line_bytes_max, parse = head_size, show = usize_size_text),
    ),
    LIMITS.count(
        "request-headers-max",
        "N",
        "Header fields of a request, at most 128; more are answered 431",
        value!(cache.limits.request_headers_max, parse = headers_count, show = plain),
    ),
    LIMITS.count(
        "requests-per-connection-max",
        "N",
        "Requests per connection before it is closed in order; 0: no limit",
        value!(cache.limits.requests_per_connection_max, parse = any_count, show = plain),
    ),
    LIMITS.text(
        "handshake-time-max",
        "TIME",
        "Time for a TLS handshake; slower connections are closed",
        value!(cache.limits.handshake_time_max, parse = some_time, show = duration_text),
    ),
    LIMITS.count(
        "handshakes-max",
        "N",
        "Concurrent TLS handshakes per core; further connections are closed",
        value!(cache.limits.handshakes_max, parse = one_or_more, show = plain),
    ),
    LIMITS.text(
        "request-body-rate-min",
        "SIZE",
        "Bytes per second at which a request's body must arrive, after request-body-time-grace; slower ones \
         are answered 408",
        value!(cache.limits.request_body_rate_min, parse = parse_size, show = size_text),
    ),
    LIMITS.text(
        "send-rate-min",
        "SIZE",
        "Bytes per second that a client must read of its response; slower ones are disconnected; 0: no limit",
        value!(cache.limits.send_rate_min, parse = parse_size, show = size_text),
    ),
    LIMITS.text(
        "send-rate-grace",
        "TIME",
        "Time that a client may fall behind send-rate-min",
        value!(cache.limits.send_rate_grace, parse = some_time, show = duration_text),
    ),
    LIMITS.text(
        "connection-bytes-max",
        "SIZE",
        "Memory per core for connections; near the limit the longest idle ones are closed, beyond it new \
         ones are refused",
        value!(cache.limits.connection_bytes_max, parse = some_size, show = usize_size_text),
    ),
    LIMITS.count(
        "connections-per-network-max",
        "N",
        "Connections per client network (24 bits of IPv4, 64 of IPv6) over all cores; further ones are \
         closed; 0: no limit",
        value!(cache.limits.connections_per_network_max, parse = any_count, show = plain),
    ),
    LIMITS.count(
        "client-requests-per-second-max",
        "N",
        "Requests per second and client address; further ones are answered 429; 0: no limit",
        value!(cache.limits.client_requests_per_second_max, parse = any_count, show = plain),
    ),
    LIMITS.count(
        "client-requests-burst",
        "N",
        "Burst of requests per client address before the rate applies",
        value!(cache.limits.client_requests_burst, parse = one_or_more, show = plain),
    ),
    LIMITS.count(
        "network-requests-per-second-max",
        "N",
        "Requests per second and client network; further ones are answered 429; 0: no limit",
        value!(cache.limits.network_requests_per_second_max, parse = any_count, show = plain),
    ),
    LIMITS.count(
        "network-requests-burst",
        "N",
        "Burst of requests per client network before the rate applies",
        value!(cache.limits.network_requests_burst, parse = one_or_more, show = plain),
    ),
];
