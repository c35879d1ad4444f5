//! Settings of the accelerator.

mod bounded;
mod compression;
mod limits;
#[cfg(test)]
mod tests;

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use cache::config::{Admission, ClientRule, Coding, CookieRule, ReadMode};

pub(crate) use self::limits::{CACHE_LIMIT_SETTINGS, LIMITS};
use self::{
    bounded::{blocks_from_text, parse_blocks_from, parse_memory, parse_name},
    compression::{codings_text, compressed_size, parse_codings, parse_type},
};
use super::origins::parse_origin;
use crate::settings::{
    Group, Section, Setting, field_name, flag, list_of, named, network, optional, optional_path,
    parse_address, path_text, plain, texts,
    units::{duration_text, parse_duration, parse_size, size_text},
    value,
};

const CACHE: Group = Group { section: Section::Cache, heading: "Cache" };

/// Every setting of the accelerator, in the order in which `--help` and `config --print` show them.
pub(crate) const CACHE_SETTINGS: &[Setting] = &[
    CACHE.text(
        "origin",
        "URL",
        "Web server that misses are fetched from, such as http://127.0.0.1:3000, https://app.internal or \
         unix:/run/app.sock; or several, separated by commas, each with weight=2 or backup after a space",
        optional!(origin, parse = parse_origin, show = ToString::to_string),
    ),
    CACHE.text(
        "listen",
        "ADDRESS",
        "Address for client connections; port 0 picks a free one",
        value!(cache.listen, parse = |text| parse_address(text, 8080), show = plain),
    ),
    CACHE.text(
        "listen-unix",
        "FILE",
        "Unix socket for client connections, in addition; its owner and its group may connect. Its clients \
         count as 127.0.0.1",
        optional_path!(cache.listen_unix),
    ),
    CACHE.text(
        "memory",
        "SIZE",
        "Memory for stored objects; metadata of at most 64 bytes per object comes on top",
        value!(cache.memory_bytes, parse = parse_memory, show = size_text),
    ),
    CACHE.text(
        "memory-limit",
        "SIZE",
        "Memory that the process may use, checked when the store is in a file: a start that would need more \
         is refused; unset: the cgroup's limit",
        optional!(cache.memory_limit_bytes, parse = parse_memory, show = |bytes: &u64| size_text(*bytes)),
    ),
    CACHE.text(
        "store",
        "WHERE",
        "Where objects are stored: anon (memory only) or a file, in which they survive a restart",
        value!(cache.store, parse = store, show = store_text),
    ),
    CACHE.text(
        "store-size",
        "SIZE",
        "Size of the store's file, reserved at once; may be many times the memory",
        value!(cache.store_bytes, parse = parse_memory, show = size_text),
    ),
    CACHE.text(
        "paging",
        "HOW",
        "How the store's file is read: direct (bypassing the page cache) or kernel (through it)",
        named!(cache.paging, [("direct", ReadMode::Direct), ("kernel", ReadMode::Kernel)]),
    ),
    CACHE.text(
        "store-admission",
        "WHEN",
        "When an object is written to the store's file: always (when it is stored) or second-request (when \
         it is requested again)",
        named!(
            cache.admission,
            [("always", Admission::Always), ("second-request", Admission::SecondRequest)]
        ),
    ),
    CACHE.text(
        "default-ttl",
        "TIME",
        "Freshness lifetime of an answer that states none and allows no heuristic; 0s: none",
        value!(cache.rules.default_ttl, parse = parse_duration, show = duration_text),
    ),
    CACHE.text(
        "cookies",
        "RULE",
        "Which answers may be shared when cookies are involved: safe (a request with a cookie gets only \
         those that state a freshness lifetime), strict (only those that say public, s-maxage, \
         CDN-Cache-Control or Vary: Cookie), or rfc (RFC 9111 to the letter, which lets a stored Set-Cookie \
         be sent to everybody). With safe and strict an answer with Set-Cookie is never stored or shared, \
         whatever it says",
        named!(
            cache.cookies,
            [("safe", CookieRule::Safe), ("strict", CookieRule::Strict), ("rfc", CookieRule::Rfc)]
        ),
    ),
    CACHE.text(
        "cdn-cache-control",
        "true|false",
        "Honours CDN-Cache-Control in place of Cache-Control and Expires (RFC 9213), as a cache in front of \
         its own site should",
        flag!(cache.cdn_cache_control),
    ),
    CACHE.text(
        "client-cache-control",
        "RULE",
        "Whether clients' Cache-Control and Pragma count: ignore (except only-if-cached; no client can turn \
         hits into fetches) or obey",
        named!(cache.client_cache_control, [("ignore", ClientRule::Ignore), ("obey", ClientRule::Obey)]),
    ),
    CACHE.text(
        "grace",
        "TIME",
        "How long a stale answer is served while it is refreshed in the background, unless the answer says \
         so itself (stale-while-revalidate); 0s: never",
        value!(cache.rules.grace, parse = parse_duration, show = duration_text),
    ),
    CACHE.text(
        "stale-if-error",
        "TIME",
        "How long a stale answer is served when the origin is unreachable or answers 500, 502, 503 or 504, \
         unless the answer says so itself (stale-if-error); 0s: never",
        value!(cache.rules.stale_if_error, parse = parse_duration, show = duration_text),
    ),
    CACHE.text(
        "keep",
        "TIME",
        "How long a stale answer with ETag or Last-Modified is kept for revalidation with the origin",
        value!(cache.keep, parse = parse_duration, show = duration_text),
    ),
    CACHE.text(
        "name",
        "NAME",
        "This server's name in Via and Cache-Status",
        value!(cache.name, parse = parse_name, show = plain),
    ),
    CACHE.texts(
        "resolver",
        "LIST",
        "DNS servers (10.0.0.2, 10.0.0.3:5353) to resolve origins' names with, after the hosts file; unset: \
         the system's",
        texts!(cache.resolver, each = name_server),
    ),
    CACHE.texts(
        "trusted-proxies",
        "LIST",
        "Networks of trusted proxies (10.0.0.0/8,::1), whose X-Forwarded-For and X-Forwarded-Proto, or else \
         Forwarded, name the client and the scheme; unset: none",
        texts!(cache.trusted_proxies, each = network),
    ),
    CACHE.texts(
        "shared-networks",
        "LIST",
        "Networks in which each connection, not each address, counts as a client when memory, streams and \
         origin exchanges are shared out, such as a large NAT or a proxy that does not name its clients; \
         unset: this machine only",
        texts!(cache.shared_networks, each = network),
    ),
    CACHE.texts(
        "proxy-protocol-from",
        "LIST",
        "Networks whose connections begin with a PROXY protocol header (version 1 or 2); unset: none",
        texts!(cache.proxy_protocol_from, each = network),
    ),
    CACHE.texts(
        "purge-from",
        "LIST",
        "Networks that may send PURGE and BAN requests (10.0.0.0/8,::1); unset: none, use `nighttrain purge`",
        texts!(cache.purge_from, each = network),
    ),
    CACHE.text(
        "purge-token-file",
        "FILE",
        "File with a token that permits PURGE and BAN from any address (Authorization: Bearer, or \
         X-Purge-Token)",
        optional_path!(purge_token_file),
    ),
    CACHE.texts(
        "tags",
        "LIST",
        "Response header fields of the origin that carry tags to purge by; clients do not receive them",
        value!(
            cache.tags,
            parse = |text| list_of(text, field_name),
            show = |tags: Vec<Box<str>>| tags.join(",")
        ),
    ),
    CACHE.texts(
        "compress",
        "LIST",
        "Codings to compress stored answers with, in order of preference, for clients that accept them: br, \
         zstd, gzip; none: no compression",
        value!(
            cache.compress.codings,
            parse = parse_codings,
            show = |codings: Vec<Coding>| codings_text(&codings)
        ),
    ),
    CACHE.texts(
        "compress-types",
        "LIST",
        "Media types to compress; * matches anything, at the beginning or at the end",
        value!(
            cache.compress.types,
            parse = |text| list_of(text, parse_type),
            show = |types: Vec<Box<str>>| types.join(",")
        ),
    ),
    CACHE.text(
        "compress-bytes-min",
        "SIZE",
        "Size of the shortest answer that is compressed",
        value!(cache.compress.bytes_min, parse = parse_size, show = size_text),
    ),
    CACHE.text(
        "compress-bytes-max",
        "SIZE",
        "Size of the longest answer that is compressed, or decoded for clients that do not accept its \
         coding; at most 64MiB",
        value!(cache.compress.bytes_max, parse = compressed_size, show = size_text),
    ),
    CACHE.text(
        "blocks-from",
        "SIZE",
        "Size from which an answer is fetched and stored in slices, on demand, if it has a strong ETag and \
         its origin sends Accept-Ranges: bytes; never: always whole",
        value!(cache.blocks_from, parse = parse_blocks_from, show = blocks_from_text),
    ),
];

/// Parses a name server's address; the default port is 53.
fn name_server(text: &str) -> Result<SocketAddr, String> {
    let is_one = text.parse().or_else(|_| text.parse::<IpAddr>().map(|address| (address, 53).into()));
    is_one.map_err(|_| format!("invalid DNS server address `{text}`; expected 10.0.0.2 or 127.0.0.1:5353"))
}

/// Parses the place of the store; `None` stands for memory.
fn store(text: &str) -> Result<Option<PathBuf>, String> {
    match text {
        "" => Err("expected a file, or anon".to_owned()),
        "anon" => Ok(None),
        path => Ok(Some(path.into())),
    }
}

fn store_text(path: Option<PathBuf>) -> String {
    path.map_or_else(|| "anon".to_owned(), path_text)
}
