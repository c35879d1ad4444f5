//! Settings of the accelerator.

mod bounded;
mod compression;
mod limits;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};

use cache::config::{Admission, ClientRule, CookieRule, ReadMode};

pub(crate) use self::limits::{CACHE_LIMIT_SETTINGS, LIMITS};
use self::{
    bounded::{NEVER, parse_blocks_from, parse_memory, parse_name},
    compression::{codings_text, compressed_size, parse_codings, parse_type},
};
use super::origins::parse_origin;
use crate::settings::{
    Section, Setting, ValueAccess, ValueShape, field_name, list, networks, optional, parse_address,
    parse_path, path_text, truth, truth_text,
    units::{duration_text, parse_duration, parse_size, size_text},
    value,
};

const CACHE: &str = "Cache";

/// Every setting of the accelerator, in the order in which `--help` and `config --print` show them.
pub(crate) const CACHE_SETTINGS: &[Setting] = &[
    Setting {
        key: "origin",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "URL",
        help: "Web server that misses are fetched from, such as http://127.0.0.1:3000, https://app.internal or \
               unix:/run/app.sock; or several, separated by commas, each with weight=2 or backup after a space",
        access: optional!(origin, parse = parse_origin, show = ToString::to_string),
    },
    Setting {
        key: "listen",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "ADDRESS",
        help: "Address for client connections; port 0 picks a free one",
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
        help: "Unix socket for client connections, in addition; its owner and its group may connect. Its clients count \
               as 127.0.0.1",
        access: optional!(cache.listen_unix, parse = parse_path, show = path_text),
    },
    Setting {
        key: "memory",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "SIZE",
        help: "Memory for stored objects; metadata of at most 64 bytes per object comes on top",
        access: value!(cache.memory_bytes, parse = parse_memory, show = size_text),
    },
    Setting {
        key: "memory-limit",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "SIZE",
        help: "Memory that the process may use, checked when the store is in a file: a start that would need more is \
               refused; unset: the cgroup's limit",
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
        help: "Where objects are stored: anon (memory only) or a file, in which they survive a restart",
        access: ValueAccess {
            set: |settings, text| {
                settings.cache.store = match text {
                    "" => return Err("expected a file, or anon".to_owned()),
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
        help: "Size of the store's file, reserved at once; may be many times the memory",
        access: value!(cache.store_bytes, parse = parse_memory, show = size_text),
    },
    Setting {
        key: "paging",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "HOW",
        help: "How the store's file is read: direct (bypassing the page cache) or kernel (through it)",
        access: ValueAccess {
            set: |settings, text| {
                settings.cache.paging = match text {
                    "direct" => ReadMode::Direct,
                    "kernel" => ReadMode::Kernel,
                    _ => return Err("expected direct or kernel".to_owned()),
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
        help: "When an object is written to the store's file: always (when it is stored) or second-request (when it is \
               requested again)",
        access: ValueAccess {
            set: |settings, text| {
                settings.cache.admission = match text {
                    "always" => Admission::Always,
                    "second-request" => Admission::SecondRequest,
                    _ => return Err("expected always or second-request".to_owned()),
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
        help: "Freshness lifetime of an answer that states none and allows no heuristic; 0s: none",
        access: value!(cache.rules.default_ttl, parse = parse_duration, show = duration_text),
    },
    Setting {
        key: "cookies",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "RULE",
        help: "Which answers may be shared when cookies are involved: safe (a request with a cookie gets only those \
               that state a freshness lifetime), strict (only those that say public, s-maxage, CDN-Cache-Control or \
               Vary: Cookie), or rfc (RFC 9111 to the letter, which lets a stored Set-Cookie be sent to everybody). \
               With safe and strict an answer with Set-Cookie is never stored or shared, whatever it says",
        access: ValueAccess {
            set: |settings, text| {
                settings.cache.cookies = match text {
                    "safe" => CookieRule::Safe,
                    "strict" => CookieRule::Strict,
                    "rfc" => CookieRule::Rfc,
                    _ => return Err("expected safe, strict or rfc".to_owned()),
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
        help: "Honours CDN-Cache-Control in place of Cache-Control and Expires (RFC 9213), as a cache in front of its \
               own site should",
        access: value!(cache.cdn_cache_control, parse = truth, show = truth_text),
    },
    Setting {
        key: "client-cache-control",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "RULE",
        help: "Whether clients' Cache-Control and Pragma count: ignore (except only-if-cached; no client can turn hits \
               into fetches) or obey",
        access: ValueAccess {
            set: |settings, text| {
                settings.cache.client_cache_control = match text {
                    "ignore" => ClientRule::Ignore,
                    "obey" => ClientRule::Obey,
                    _ => return Err("expected ignore or obey".to_owned()),
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
        help: "How long a stale answer is served while it is refreshed in the background, unless the answer says so \
               itself (stale-while-revalidate); 0s: never",
        access: value!(cache.rules.grace, parse = parse_duration, show = duration_text),
    },
    Setting {
        key: "stale-if-error",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "TIME",
        help: "How long a stale answer is served when the origin is unreachable or answers 500, 502, 503 or 504, \
               unless the answer says so itself (stale-if-error); 0s: never",
        access: value!(cache.rules.stale_if_error, parse = parse_duration, show = duration_text),
    },
    Setting {
        key: "keep",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "TIME",
        help: "How long a stale answer with ETag or Last-Modified is kept for revalidation with the origin",
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
        help: "DNS servers (10.0.0.2, 10.0.0.3:5353) to resolve origins' names with, after the hosts file; unset: the \
               system's",
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
        help: "Networks of trusted proxies (10.0.0.0/8,::1), whose X-Forwarded-For and X-Forwarded-Proto, or else \
               Forwarded, name the client and the scheme; unset: none",
        access: networks!(cache.trusted_proxies),
    },
    Setting {
        key: "shared-networks",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: CACHE,
        value_name: "LIST",
        help: "Networks in which each connection, not each address, counts as a client when memory, streams and origin \
               exchanges are shared out, such as a large NAT or a proxy that does not name its clients; unset: this \
               machine only",
        access: networks!(cache.shared_networks),
    },
    Setting {
        key: "proxy-protocol-from",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: CACHE,
        value_name: "LIST",
        help: "Networks whose connections begin with a PROXY protocol header (version 1 or 2); unset: none",
        access: networks!(cache.proxy_protocol_from),
    },
    Setting {
        key: "purge-from",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: CACHE,
        value_name: "LIST",
        help: "Networks that may send PURGE and BAN requests (10.0.0.0/8,::1); unset: none, use `nighttrain purge`",
        access: networks!(cache.purge_from),
    },
    Setting {
        key: "purge-token-file",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "FILE",
        help: "File with a token that permits PURGE and BAN from any address (Authorization: Bearer, or X-Purge-Token)",
        access: optional!(purge_token_file, parse = parse_path, show = path_text),
    },
    Setting {
        key: "tags",
        section: Section::Cache,
        shape: ValueShape::Texts,
        heading: CACHE,
        value_name: "LIST",
        help: "Response header fields of the origin that carry tags to purge by; clients do not receive them",
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
        help: "Codings to compress stored answers with, in order of preference, for clients that accept them: br, \
               zstd, gzip; none: no compression",
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
        help: "Media types to compress; * matches anything, at the beginning or at the end",
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
        help: "Size of the shortest answer that is compressed",
        access: value!(cache.compress.bytes_min, parse = parse_size, show = size_text),
    },
    Setting {
        key: "compress-bytes-max",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "SIZE",
        help: "Size of the longest answer that is compressed, or decoded for clients that do not accept its coding; at \
               most 64MiB",
        access: value!(cache.compress.bytes_max, parse = compressed_size, show = size_text),
    },
    Setting {
        key: "blocks-from",
        section: Section::Cache,
        shape: ValueShape::Text,
        heading: CACHE,
        value_name: "SIZE",
        help: "Size from which an answer is fetched and stored in slices, on demand, if it has a strong ETag and its \
               origin sends Accept-Ranges: bytes; never: always whole",
        access: ValueAccess {
            set: |settings, text| {
                settings.cache.blocks_from = parse_blocks_from(text)?;
                Ok(())
            },
            text: |settings| Some(settings.cache.blocks_from.map_or_else(|| NEVER.to_owned(), size_text)),
        },
    },
];

/// Parses a name server's address; the default port is 53.
fn name_server(text: &str) -> Result<SocketAddr, String> {
    let is_one = text.parse().or_else(|_| text.parse::<IpAddr>().map(|address| (address, 53).into()));
    is_one.map_err(|_| format!("invalid DNS server address `{text}`; expected 10.0.0.2 or 127.0.0.1:5353"))
}
