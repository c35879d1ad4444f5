//! What can be set of the accelerator.

use std::net::{IpAddr, SocketAddr};

use cache::config::{Admission, ClientRule, CookieRule, ReadMode};

use crate::settings::{
    Section, Setting, ValueAccess, ValueShape, any_count, field_name, list, networks, one_or_more, optional,
    origin_settings::parse_origin,
    parse_address, parse_path, path_text, plain, some_size, some_time, truth, truth_text,
    units::{duration_text, parse_duration, parse_size, size_text},
    usize_size_text, value,
};

mod bounded;
mod compression;

use bounded::{NEVER, head_size, headers_count, parse_blocks_from, parse_memory, parse_name};
use compression::{codings_text, compressed_size, parse_codings, parse_type};

const CACHE: &str = "Cache";
/// The heading for limits; `-h` leaves them to `--help`.
pub(crate) const LIMITS: &str = "Limits on clients and origin";

/// Every setting of the accelerator, in the order in which `--help` and `config --print` show them.
pub(crate) const CACHE_SETTINGS: &[Setting] = &[
    Setting {
        key: "origin",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "URL",
        help: "The web server that misses are fetched from, such as http://127.0.0.1:3000, https://app.internal or \
               unix:/run/app.sock; or several, with commas between them, each with weight=2 or backup after a space",
        access: optional!(origin, parse = parse_origin, show = ToString::to_string),
    },
    Setting {
        key: "listen",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "ADDRESS",
        help: "Where clients connect; port 0 takes a free one",
        access: value!(
            cache.listen,
            parse = |text| parse_address(text, 8080),
            show = |address: SocketAddr| address.to_string()
        ),
    },
    Setting {
        key: "listen-unix",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "FILE",
        help: "A Unix socket where clients connect, too; its owner and its group may. Who does comes from 127.0.0.1",
        access: optional!(cache.listen_unix, parse = parse_path, show = path_text),
    },
    Setting {
        key: "memory",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "SIZE",
        help: "Memory for stored objects; what is known about each comes on top, at most 64 bytes an object",
        access: value!(cache.memory_bytes, parse = parse_memory, show = size_text),
    },
    Setting {
        key: "memory-limit",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "SIZE",
        help: "What the process may use of memory in all, for a store in a file: a start that would come to need more is \
               refused; unset: what its cgroup says",
        access: optional!(
            cache.memory_limit_bytes,
            parse = parse_memory,
            show = |bytes: &u64| size_text(*bytes)
        ),
    },
    Setting {
        key: "store",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "WHERE",
        help: "Where objects are stored: anon, memory alone; or a file, in which they survive a restart",
        access: ValueAccess {
            set: |settings, text| {
                settings.cache.store = match text {
                    "" => return Err("a file is wanted, or anon".to_owned()),
                    "anon" => None,
                    path => Some(path.into()),
                };
                Ok(())
            },
            text: |settings| {
                let path = settings.cache.store.as_ref();
                Some(path.map_or_else(|| "anon".to_owned(), |path| path.display().to_string()))
            },
        },
    },
    Setting {
        key: "store-size",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "SIZE",
        help: "Length of the store's file, reserved at once; it may be many times larger than the memory",
        access: value!(cache.store_bytes, parse = parse_memory, show = size_text),
    },
    Setting {
        key: "paging",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "HOW",
        help: "How the store's file is read: direct (into our memory only) or kernel (through the page cache)",
        access: ValueAccess {
            set: |settings, text| {
                settings.cache.paging = match text {
                    "direct" => ReadMode::Direct,
                    "kernel" => ReadMode::Kernel,
                    _ => return Err("the ways are direct and kernel".to_owned()),
                };
                Ok(())
            },
            text: |settings| {
                Some(match settings.cache.paging {
                    ReadMode::Direct => "direct".to_owned(),
                    ReadMode::Kernel => "kernel".to_owned(),
                })
            },
        },
    },
    Setting {
        key: "store-admission",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "WHEN",
        help: "When an object goes to the store's file: always (when it is stored), or second-request (when it is asked for again)",
        access: ValueAccess {
            set: |settings, text| {
                settings.cache.admission = match text {
                    "always" => Admission::Always,
                    "second-request" => Admission::SecondRequest,
                    _ => return Err("an object goes there always or on its second-request".to_owned()),
                };
                Ok(())
            },
            text: |settings| {
                Some(match settings.cache.admission {
                    Admission::Always => "always".to_owned(),
                    Admission::SecondRequest => "second-request".to_owned(),
                })
            },
        },
    },
    Setting {
        key: "default-ttl",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "TIME",
        help: "How long an answer that states no freshness and allows no heuristic is reused; 0s: not at all",
        access: value!(cache.rules.default_ttl, parse = parse_duration, show = duration_text),
    },
    Setting {
        key: "cookies",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "RULE",
        help: "Which answers may be shared although cookies are in play: safe (to a request with a cookie, only those that \
               say how long they are fresh), strict (only those that say public, s-maxage, CDN-Cache-Control or Vary: \
               Cookie), or rfc (the letter of RFC 9111, which lets a stored Set-Cookie be sent to everybody). With safe and \
               strict an answer with Set-Cookie is never stored nor shared, whatever it says",
        access: ValueAccess {
            set: |settings, text| {
                settings.cache.cookies = match text {
                    "safe" => CookieRule::Safe,
                    "strict" => CookieRule::Strict,
                    "rfc" => CookieRule::Rfc,
                    _ => return Err("the rules are safe, strict and rfc".to_owned()),
                };
                Ok(())
            },
            text: |settings| {
                Some(match settings.cache.cookies {
                    CookieRule::Safe => "safe".to_owned(),
                    CookieRule::Strict => "strict".to_owned(),
                    CookieRule::Rfc => "rfc".to_owned(),
                })
            },
        },
    },
    Setting {
        key: "cdn-cache-control",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "true|false",
        help: "Whether CDN-Cache-Control counts, in the place of Cache-Control and Expires (RFC 9213): as it should in front of \
               a site of one's own",
        access: value!(cache.cdn_cache_control, parse = truth, show = truth_text),
    },
    Setting {
        key: "client-cache-control",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "RULE",
        help: "Whether clients' Cache-Control and Pragma decide what they get: ignore (but for only-if-cached; nobody can \
               turn hits into fetches) or obey",
        access: ValueAccess {
            set: |settings, text| {
                settings.cache.client_cache_control = match text {
                    "ignore" => ClientRule::Ignore,
                    "obey" => ClientRule::Obey,
                    _ => return Err("the rules are ignore and obey".to_owned()),
                };
                Ok(())
            },
            text: |settings| {
                Some(match settings.cache.client_cache_control {
                    ClientRule::Ignore => "ignore".to_owned(),
                    ClientRule::Obey => "obey".to_owned(),
                })
            },
        },
    },
    Setting {
        key: "grace",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "TIME",
        help: "How long a stale answer is shown while one request fetches it anew, where it does not say so itself \
               (stale-while-revalidate); 0s: not at all",
        access: value!(cache.rules.grace, parse = parse_duration, show = duration_text),
    },
    Setting {
        key: "stale-if-error",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "TIME",
        help: "How long a stale answer is shown if the origin cannot be reached, or says 500, 502, 503 or 504, where it \
               does not say so itself; 0s: not at all",
        access: value!(cache.rules.stale_if_error, parse = parse_duration, show = duration_text),
    },
    Setting {
        key: "keep",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "TIME",
        help: "How long a stale answer with ETag or Last-Modified is kept, so that its origin can be asked whether it is \
               still the same",
        access: value!(cache.keep, parse = parse_duration, show = duration_text),
    },
    Setting {
        key: "name",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "NAME",
        help: "This server's name in Via and Cache-Status",
        access: ValueAccess {
            set: |settings, text| {
                settings.cache.name = parse_name(text)?;
                Ok(())
            },
            text: |settings| Some(settings.cache.name.clone()),
        },
    },
    Setting {
        key: "resolver",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: CACHE,
        value_name: "LIST",
        help: "Servers of DNS (10.0.0.2, 10.0.0.3:5353) that origins' names are looked up with, after the hosts file; unset: as the \
               system does",
        access: ValueAccess {
            set: |settings, text| {
                settings.cache.resolver = list(text).map(name_server).collect::<Result<_, _>>()?;
                Ok(())
            },
            text: |settings| {
                let servers: Vec<_> = settings.cache.resolver.iter().map(SocketAddr::to_string).collect();
                (!servers.is_empty()).then(|| servers.join(","))
            },
        },
    },
    Setting {
        key: "trusted-proxies",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: CACHE,
        value_name: "LIST",
        help: "Networks of your proxies (10.0.0.0/8,::1), which are believed when they say who asks and over which scheme \
               (X-Forwarded-For, X-Forwarded-Proto, else Forwarded); unset: nobody",
        access: networks!(cache.trusted_proxies),
    },
    Setting {
        key: "shared-networks",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: CACHE,
        value_name: "LIST",
        help: "Networks in which each connection counts as a client of its own where memory, streams and exchanges with \
               origins are shared among clients: a large NAT, a proxy that names nobody; unset: this machine alone",
        access: networks!(cache.shared_networks),
    },
    Setting {
        key: "proxy-protocol-from",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: CACHE,
        value_name: "LIST",
        help: "Networks whose connections begin with a header of the PROXY protocol (version 1 or 2); unset: nobody's",
        access: networks!(cache.proxy_protocol_from),
    },
    Setting {
        key: "purge-from",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: CACHE,
        value_name: "LIST",
        help: "Networks that may send PURGE and BAN requests (10.0.0.0/8,::1); unset: nobody, and `nighttrain purge` does it",
        access: networks!(cache.purge_from),
    },
    Setting {
        key: "purge-token-file",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "FILE",
        help: "A file with a token; who sends it (Authorization: Bearer, or X-Purge-Token) may purge and ban from anywhere",
        access: optional!(purge_token_file, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tags",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: CACHE,
        value_name: "LIST",
        help: "Fields of the origin's answers that carry tags, by which answers are purged together; clients do not get them",
        access: ValueAccess {
            set: |settings, text| {
                list(text).map(field_name).collect::<Result<_, _>>().map(|tags| settings.cache.tags = tags)
            },
            text: |settings| Some(settings.cache.tags.join(",")),
        },
    },
    Setting {
        key: "compress",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: CACHE,
        value_name: "LIST",
        help: "Codings that stored answers are compressed in for clients that accept them, the one that is preferred first: br, \
               zstd, gzip; none: nothing is compressed here",
        access: ValueAccess {
            set: |settings, text| {
                settings.cache.compress.codings = parse_codings(text)?;
                Ok(())
            },
            text: |settings| Some(codings_text(&settings.cache.compress.codings)),
        },
    },
    Setting {
        key: "compress-types",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: CACHE,
        value_name: "LIST",
        help: "Media types that are compressed; a * stands for anything, at the beginning or at the end",
        access: ValueAccess {
            set: |settings, text| {
                let types = list(text).map(parse_type).collect::<Result<_, _>>();
                types.map(|types| settings.cache.compress.types = types)
            },
            text: |settings| Some(settings.cache.compress.types.join(",")),
        },
    },
    Setting {
        key: "compress-bytes-min",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "SIZE",
        help: "Length of the shortest answer that is compressed",
        access: value!(cache.compress.bytes_min, parse = parse_size, show = size_text),
    },
    Setting {
        key: "compress-bytes-max",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "SIZE",
        help: "Length of the longest answer that is compressed, or decoded for who does not accept its coding, at most 64MiB",
        access: value!(cache.compress.bytes_max, parse = compressed_size, show = size_text),
    },
    Setting {
        key: "blocks-from",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "SIZE",
        help: "Length from which on an answer is fetched and stored in blocks, on demand, where it has a strong ETag and its \
               origin says Accept-Ranges: bytes; never: always whole",
        access: ValueAccess {
            set: |settings, text| {
                settings.cache.blocks_from = parse_blocks_from(text)?;
                Ok(())
            },
            text: |settings| Some(settings.cache.blocks_from.map_or_else(|| NEVER.to_owned(), size_text)),
        },
    },
    Setting {
        key: "connections-max",
        section: Section::Cache,
        shape: ValueShape::Count,
        heading: LIMITS,
        value_name: "N",
        help: "Connections of clients per core; more are answered 503",
        access: value!(cache.limits.connections_max, parse = one_or_more, show = plain),
    },
    Setting {
        key: "connections-per-client-max",
        section: Section::Cache,
        shape: ValueShape::Count,
        heading: LIMITS,
        value_name: "N",
        help: "Connections of one client address over all cores; more are closed; 0: no limit",
        access: value!(cache.limits.connections_per_client_max, parse = any_count, show = plain),
    },
    Setting {
        key: "request-head-bytes-max",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "SIZE",
        help: "Size of one request's line and headers; more is answered 431",
        access: value!(cache.limits.request_head_bytes_max, parse = head_size, show = usize_size_text),
    },
    Setting {
        key: "request-body-bytes-max",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "SIZE",
        help: "Size of one request's body; more is answered 413",
        access: value!(cache.limits.request_body_bytes_max, parse = parse_size, show = size_text),
    },
    Setting {
        key: "request-head-time-max",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "TIME",
        help: "Time for a request's head to arrive once its first byte has; more is answered 408",
        access: value!(cache.limits.request_head_time_max, parse = some_time, show = duration_text),
    },
    Setting {
        key: "idle-time-max",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "TIME",
        help: "Time that a kept-alive connection may idle between requests",
        access: value!(cache.limits.idle_time_max, parse = some_time, show = duration_text),
    },
    Setting {
        key: "send-stall-max",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "TIME",
        help: "Time that a response may make no progress before it is cut",
        access: value!(cache.limits.send_stall_max, parse = some_time, show = duration_text),
    },
    Setting {
        key: "pin-grace",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "TIME",
        help: "Time that a slow reader may keep memory that the store wants back, before it is cut",
        access: value!(cache.limits.pin_grace, parse = parse_duration, show = duration_text),
    },
    Setting {
        key: "response-head-bytes-max",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "SIZE",
        help: "Size of the head of the origin's response; more is answered 502",
        access: value!(cache.limits.response_head_bytes_max, parse = head_size, show = usize_size_text),
    },
    Setting {
        key: "origin-connect-time-max",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "TIME",
        help: "Time to connect to the origin",
        access: value!(cache.limits.origin_connect_time_max, parse = some_time, show = duration_text),
    },
    Setting {
        key: "origin-first-byte-time-max",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "TIME",
        help: "Time from the request to the origin to the first byte of its answer",
        access: value!(cache.limits.origin_first_byte_time_max, parse = some_time, show = duration_text),
    },
    Setting {
        key: "origin-between-bytes-time-max",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "TIME",
        help: "Time between two reads of the origin's body",
        access: value!(cache.limits.origin_between_bytes_time_max, parse = some_time, show = duration_text),
    },
    Setting {
        key: "origin-request-time-max",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "TIME",
        help: "Time from when an answer of the origin is asked for to its last byte; 0s: no limit",
        access: value!(cache.limits.origin_request_time_max, parse = parse_duration, show = duration_text),
    },
    Setting {
        key: "origin-stream-bytes-max",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "SIZE",
        help: "Of an answer over HTTP/2, what the origin may send before it is read; more makes a distant origin faster",
        access: value!(cache.limits.origin_stream_bytes_max, parse = window_size, show = usize_size_text),
    },
    Setting {
        key: "origin-streams-max",
        section: Section::Cache,
        shape: ValueShape::Count,
        heading: LIMITS,
        value_name: "N",
        help: "Exchanges at once on one connection of HTTP/2 to the origin, which may allow fewer",
        access: value!(cache.limits.origin_streams_max, parse = streams, show = plain),
    },
    Setting {
        key: "origin-streams-bytes-max",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "SIZE",
        help: "Bytes per core for what came over HTTP/2 and was not read, of all exchanges with origins; more wait",
        access: value!(cache.limits.origin_streams_bytes_max, parse = some_size, show = usize_size_text),
    },
    Setting {
        key: "origin-idle-time-max",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "TIME",
        help: "Time that a connection to the origin may idle before it is closed",
        access: value!(cache.limits.origin_idle_time_max, parse = some_time, show = duration_text),
    },
    Setting {
        key: "request-body-time-grace",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "TIME",
        help: "Time that a request's body may take before request-body-rate-min counts",
        access: value!(cache.limits.request_body_time_grace, parse = some_time, show = duration_text),
    },
    Setting {
        key: "origin-idle-connections-max",
        section: Section::Cache,
        shape: ValueShape::Count,
        heading: LIMITS,
        value_name: "N",
        help: "Idle connections to the origin kept per core",
        access: value!(cache.limits.origin_idle_connections_max, parse = any_count, show = plain),
    },
    Setting {
        key: "origin-connections-max",
        section: Section::Cache,
        shape: ValueShape::Count,
        heading: LIMITS,
        value_name: "N",
        help: "Exchanges with the origin per core, a quarter of them for what will be stored; more wait in a queue",
        access: value!(cache.limits.origin_connections_max, parse = one_or_more, show = plain),
    },
    Setting {
        key: "origin-queue-max",
        section: Section::Cache,
        shape: ValueShape::Count,
        heading: LIMITS,
        value_name: "N",
        help: "Requests per core that wait for an exchange with the origin; more are answered 503",
        access: value!(cache.limits.origin_queue_max, parse = any_count, show = plain),
    },
    Setting {
        key: "origin-lasting-max",
        section: Section::Cache,
        shape: ValueShape::Count,
        heading: LIMITS,
        value_name: "N",
        help: "Passed answers per core that last (events, slow downloads), beside those exchanges",
        access: value!(cache.limits.origin_lasting_max, parse = any_count, show = plain),
    },
    Setting {
        key: "pipe-idle-time-max",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "TIME",
        help: "Time that nothing may move on a WebSocket before it is ended",
        access: value!(cache.limits.pipe_idle_time_max, parse = some_time, show = duration_text),
    },
    Setting {
        key: "client-bytes-max",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "SIZE",
        help: "Bytes that slow clients may make it hold outside of the store; who needs more is cut",
        access: value!(cache.limits.client_bytes_max, parse = some_size, show = usize_size_text),
    },
    Setting {
        key: "request-line-bytes-max",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "SIZE",
        help: "Size of one request's line, which has the URL; more is answered 414",
        access: value!(cache.limits.request_line_bytes_max, parse = head_size, show = usize_size_text),
    },
    Setting {
        key: "request-headers-max",
        section: Section::Cache,
        shape: ValueShape::Count,
        heading: LIMITS,
        value_name: "N",
        help: "Header fields of one request, at most 128; more are answered 431",
        access: value!(cache.limits.request_headers_max, parse = headers_count, show = plain),
    },
    Setting {
        key: "requests-per-connection-max",
        section: Section::Cache,
        shape: ValueShape::Count,
        heading: LIMITS,
        value_name: "N",
        help: "Requests that one connection may bring before it is closed in order; 0: no limit",
        access: value!(cache.limits.requests_per_connection_max, parse = any_count, show = plain),
    },
    Setting {
        key: "handshake-time-max",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "TIME",
        help: "Time that a handshake of TLS may take; who takes longer is closed",
        access: value!(cache.limits.handshake_time_max, parse = some_time, show = duration_text),
    },
    Setting {
        key: "handshakes-max",
        section: Section::Cache,
        shape: ValueShape::Count,
        heading: LIMITS,
        value_name: "N",
        help: "Handshakes of TLS per core that are under way; more are closed",
        access: value!(cache.limits.handshakes_max, parse = one_or_more, show = plain),
    },
    Setting {
        key: "request-body-rate-min",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "SIZE",
        help: "Bytes a second that a request's body must come with, after request-body-time-grace; a slower one is answered 408",
        access: value!(cache.limits.request_body_rate_min, parse = parse_size, show = size_text),
    },
    Setting {
        key: "send-rate-min",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "SIZE",
        help: "Bytes a second that a client must take of what waits for it; a slower one is cut; 0: no limit",
        access: value!(cache.limits.send_rate_min, parse = parse_size, show = size_text),
    },
    Setting {
        key: "send-rate-grace",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "TIME",
        help: "Time that a client may be waited for beyond send-rate-min",
        access: value!(cache.limits.send_rate_grace, parse = some_time, show = duration_text),
    },
    Setting {
        key: "connection-bytes-max",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: LIMITS,
        value_name: "SIZE",
        help: "Memory per core that all connections may take; near that the ones that idle longest are closed, beyond it new \
               ones are refused",
        access: value!(cache.limits.connection_bytes_max, parse = some_size, show = usize_size_text),
    },
];

/// An address, with the port of DNS where it says none.
fn name_server(text: &str) -> Result<SocketAddr, String> {
    let is_one = text.parse().or_else(|_| text.parse::<IpAddr>().map(|address| (address, 53).into()));
    is_one
        .map_err(|_| format!("`{text}` is no address of a server of DNS, such as 10.0.0.2 or 127.0.0.1:5353"))
}

/// RFC 9113 §6.9.1 has windows of 31 bits; one that is smaller than a frame makes two of each.
fn window_size(text: &str) -> Result<usize, String> {
    match some_size(text)? {
        bytes @ 0x4000..=0x400_0000 => Ok(bytes),
        _ => Err("a window of HTTP/2 is from 16KiB to 64MiB here".to_owned()),
    }
}

fn streams(text: &str) -> Result<usize, String> {
    match one_or_more(text)? {
        streams @ 1..=1000 => Ok(streams),
        _ => Err("a connection of HTTP/2 has from 1 to 1000 exchanges at once here".to_owned()),
    }
}

#[cfg(test)]
mod tests;
