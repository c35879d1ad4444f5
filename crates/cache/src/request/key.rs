//! Key under which an answer is stored: scheme, host, port, path and query, and the variant.
//!
//! `[S] host [:port] NUL path ?query`, with the host in lower case and without the scheme's default port (RFC
//! 9110 §4.2.3). `S` marks https; no host in lower case begins with it. None of the parts can hold a NUL, so
//! no two requests share a key by accident. Records that belong to another record, such as variants, have that
//! record's key with a second NUL and more ([`dependent`](crate::request::dependent)).
//!
//! A site's rules for queries are applied here ([`query`]), wherever an address becomes a key. A fetch for
//! the store sends the origin what is in the key (`request`): the authority in its normal form, not as the
//! client wrote it. Otherwise one client's spelling would decide what all clients get.

use engine::store::Hash;
use wire::http1::{
    head::{RequestHead, TargetForm},
    url::{Authority, Scheme, Target},
};

use crate::{
    config::SiteRules,
    policy::invalidate::Base,
    request::query,
    site::{SiteId, SiteTable},
};

/// First byte of keys of https.
const HTTPS: u8 = b'S';

/// Returns the scheme of the client's connection ([`Peer`](crate::request::client_ip::Peer)), else the one in
/// the target.
#[inline]
pub(crate) fn scheme_of(head: &RequestHead<'_, '_>) -> Scheme {
    head.scheme.or_else(|| said_by_target(head)).unwrap_or(Scheme::Http)
}

/// Returns the scheme that a target in absolute form names (RFC 9112 §3.2.2).
#[inline]
pub(crate) fn said_by_target(head: &RequestHead<'_, '_>) -> Option<Scheme> {
    if head.form != TargetForm::Absolute {
        return None;
    }
    Target::parse(head.method, head.target)?.1.scheme
}

/// Writes the key of a request into `key`, and returns the site.
#[inline]
pub(crate) fn of_request(head: &RequestHead<'_, '_>, sites: &SiteTable, key: &mut Vec<u8>) -> SiteId {
    let scheme = scheme_of(head);
    begin(scheme, key);
    let site = match head.authority() {
        Some(authority) => append_authority(&authority, scheme, sites, key),
        None => SiteId::DEFAULT,
    };
    key.push(0);
    append_target(head, sites.rules(site), key);
    site
}

/// Appends the authority of a request in its normal form; nothing if the request has none.
pub(crate) fn append_authority_of(head: &RequestHead<'_, '_>, out: &mut Vec<u8>) {
    if let Some(authority) = head.authority() {
        authority.normalise_into(scheme_of(head).default_port(), out);
    }
}

/// Appends an authority in its normal form, and returns its site, which does not depend on the port.
#[inline]
fn append_authority(
    authority: &Authority<'_>,
    scheme: Scheme,
    sites: &SiteTable,
    key: &mut Vec<u8>,
) -> SiteId {
    let from = key.len();
    authority.normalise_into(scheme.default_port(), key);
    sites.of_host(&key[from..from + authority.host.len()])
}

/// Appends the path and query of a request, as the rules of its site say.
#[inline]
pub(crate) fn append_target(head: &RequestHead<'_, '_>, rules: &SiteRules, key: &mut Vec<u8>) {
    match Target::parse(head.method, head.target) {
        // RFC 9112 §3.2.4: OPTIONS with a host and no path is about the server as a whole.
        Some((TargetForm::Absolute, target))
            if head.method == "OPTIONS" && target.path_and_query.is_empty() =>
        {
            key.push(b'*');
        }
        Some((TargetForm::Origin | TargetForm::Absolute, target)) => {
            append_path(target.path_and_query, rules, key);
        }
        Some(_) | None => key.extend_from_slice(head.target.as_bytes()),
    }
}

/// Writes the key of a URL (`http://host/path`) into `key`. Returns false if the URL is invalid.
pub(crate) fn of_url(url: &str, sites: &SiteTable, key: &mut Vec<u8>) -> bool {
    let Some((_, Target { scheme: Some(scheme), authority: Some(authority), path_and_query })) =
        Target::parse("GET", url)
    else {
        key.clear();
        return false;
    };
    begin(scheme, key);
    let site = append_authority(&authority, scheme, sites, key);
    key.push(0);
    append_path(path_and_query, sites.rules(site), key);
    true
}

fn begin(scheme: Scheme, key: &mut Vec<u8>) {
    key.clear();
    if scheme == Scheme::Https {
        key.push(HTTPS);
    }
}

/// Returns the scheme of a key.
pub(crate) fn scheme(key: &[u8]) -> Scheme {
    if key.first() == Some(&HTTPS) { Scheme::Https } else { Scheme::Http }
}

/// Returns the URL of a primary key.
pub(crate) fn as_url(primary: &[u8]) -> String {
    let scheme = match scheme(primary) {
        Scheme::Http => "http",
        Scheme::Https => "https",
    };
    let [authority, url] = [authority(primary), url(primary)].map(String::from_utf8_lossy);
    format!("{scheme}://{authority}{url}")
}

/// Returns the authority in a key, in its normal form.
pub(crate) fn authority(key: &[u8]) -> &[u8] {
    let from = usize::from(scheme(key) == Scheme::Https);
    &key[from..memchr::memchr(0, key).unwrap_or(key.len())]
}

/// Returns the path and query of a primary key.
pub(crate) fn path(key: &[u8]) -> &[u8] {
    &key[host_of(key).len()..]
}

/// Returns the path and query of any key. In the key of a variant or a hit-for-miss note, a NUL ends them.
pub(crate) fn url(key: &[u8]) -> &[u8] {
    let rest = path(key);
    &rest[..memchr::memchr(0, rest).unwrap_or(rest.len())]
}

/// Returns the part of any key that all variants share.
pub(crate) fn primary(key: &[u8]) -> &[u8] {
    &key[..host_of(key).len() + url(key).len()]
}

/// Seed of [`place`]: a fixed constant, unlike the stores' seeds.
const PLACE_SEED: u64 = 0x706c_6163_6573;

/// Returns the hash of the host and path of any key, without scheme and port. A purge identifies a page by
/// this hash, whatever scheme and port the page is stored under. The hash is compared only with hashes of
/// addresses and tags.
pub(crate) fn place(key: &[u8]) -> Hash {
    Hash::seeded(url(key), Hash::seeded(host_and_port(key).0, PLACE_SEED).word())
}

/// Returns the host in a key, and the port in its authority, if any.
pub(crate) fn host_and_port(key: &[u8]) -> (&[u8], Option<u16>) {
    let authority = authority(key);
    match memchr::memrchr(b':', authority) {
        // The last colon of an IPv6 address is inside its brackets.
        Some(at) if !authority[at..].contains(&b']') => {
            let port = std::str::from_utf8(&authority[at + 1..]).ok().and_then(|port| port.parse().ok());
            (&authority[..at], port)
        }
        _ => (authority, None),
    }
}

/// Returns the keys of a page under both schemes: with the port in `primary`, with each of `ports`, and
/// without a port. `primary` comes first.
pub(crate) fn forms(primary: &[u8], ports: &[u16]) -> Vec<Vec<u8>> {
    let (host, port) = host_and_port(primary);
    let mut forms = vec![primary.to_vec()];
    for port in [None, port].into_iter().chain(ports.iter().copied().map(Some)) {
        for scheme in [Scheme::Http, Scheme::Https] {
            let mut key = Vec::new();
            begin(scheme, &mut key);
            key.extend_from_slice(host);
            if let Some(port) = port.filter(|port| *port != scheme.default_port()) {
                key.push(b':');
                key.extend_from_slice(itoa::Buffer::new().format(port).as_bytes());
            }
            key.push(0);
            key.extend_from_slice(url(primary));
            if !forms.contains(&key) {
                forms.push(key);
            }
        }
    }
    forms
}

/// Returns the URLs of a page under both schemes, `url` first, for accelerators that purge exactly the URL
/// that they are sent. Empty if `url` is invalid.
pub fn urls_of_page(url: &str) -> Vec<String> {
    let mut key = Vec::new();
    let is_url = of_url(url, &SiteTable::default(), &mut key);
    let mut urls: Vec<_> =
        if is_url { forms(&key, &[]).iter().map(|form| as_url(form)).collect() } else { Vec::new() };
    // The first URL stays as written, because the sites' rules apply to its query later.
    if let Some(first) = urls.first_mut() {
        url.clone_into(first);
    }
    urls
}

/// Returns the part of a key that names scheme and host, with the NUL that ends it.
pub(crate) fn host_of(key: &[u8]) -> &[u8] {
    &key[..memchr::memchr(0, key).map_or(0, |at| at + 1)]
}

/// Returns the base of references in a request's answer; `None` if the request names no host or no path.
pub(crate) fn base_of<'a>(head: &RequestHead<'a, '_>) -> Option<Base<'a>> {
    let (_, target) = Target::parse(head.method, head.target)?;
    let path_and_query = target.path_and_query;
    path_and_query.starts_with('/').then_some(())?;
    Some(Base { scheme: scheme_of(head), authority: head.authority()?, path_and_query })
}

fn append_path(path_and_query: &str, rules: &SiteRules, key: &mut Vec<u8>) {
    // RFC 9110 §4.2.3: an empty path means `/`.
    if !path_and_query.starts_with('/') {
        key.push(b'/');
    }
    query::append(path_and_query.as_bytes(), rules, key);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        of_url(text, &SiteTable::default(), &mut key).then_some(key)
    }

    #[test]
    fn equivalent_urls_have_one_key() {
        assert_eq!(url("http://Example.org"), url("http://example.org:80/"));
        assert_ne!(url("http://example.org/a"), url("http://example.org/A"));
        assert_ne!(url("http://example.org:8080/"), url("http://example.org/"));
        assert_eq!(url("https://example.org:443/"), url("https://Example.org"));
        assert_ne!(url("https://example.org/"), url("http://example.org/"));
        assert_ne!(url("https://example.org:80/"), url("http://example.org:80/"));
        assert_eq!(url("example.org/"), None);
        assert_eq!(url("/path"), None);
    }

    #[test]
    fn a_key_comes_apart_again() {
        for (text, scheme_, authority_, path_) in [
            ("http://A.example", Scheme::Http, "a.example", "/"),
            ("https://a.example:8443/x?y", Scheme::Https, "a.example:8443", "/x?y"),
            ("http://[::1]:80/%41", Scheme::Http, "[::1]", "/%41"),
        ] {
            let key = url(text).expect("a URL");
            assert_eq!(scheme(&key), scheme_);
            assert_eq!(authority(&key), authority_.as_bytes());
            assert_eq!(path(&key), path_.as_bytes());
            assert_eq!(super::url(&[&key[..], b"\0more\0"].concat()), path_.as_bytes());
            assert_eq!(primary(&[&key[..], b"\0more\0"].concat()), key);
            assert_eq!(primary(&key), key);
        }
    }

    #[test]
    fn a_url_has_keys_per_scheme_and_port() {
        let key = |text: &str| url(text).expect("a URL");
        let shown = |text, ports: &[u16]| {
            let forms = forms(&key(text), ports);
            assert!(forms.iter().all(|form| place(form) == place(&key(text))), "{text}");
            forms.iter().map(|form| as_url(form)).collect::<Vec<_>>()
        };
        assert_eq!(shown("http://a/x?y", &[]), ["http://a/x?y", "https://a/x?y"]);
        assert_eq!(shown("https://a/", &[80]), ["https://a/", "http://a/", "https://a:80/"]);
        assert_eq!(
            shown("http://[::1]:81/", &[443]),
            ["http://[::1]:81/", "http://[::1]/", "https://[::1]/", "https://[::1]:81/", "http://[::1]:443/"]
        );
        for other in ["http://a/y", "http://b/x?y", "http://a/x", "http://a.x/"] {
            assert_ne!(place(&key("http://a/x?y")), place(&key(other)), "{other}");
        }
        let variant = [&key("https://a:8443/x?y")[..], b"\0more\0"].concat();
        assert_eq!(place(&variant), place(&key("http://a/x?y")));
        assert_eq!(urls_of_page("http://A/x?b&a"), ["http://A/x?b&a", "https://a/x?b&a"]);
        assert!(urls_of_page("nothing").is_empty());
    }
}
