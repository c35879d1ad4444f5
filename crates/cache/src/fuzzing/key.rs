//! Fuzz checks of the keys of addresses, and of the addresses that references in an answer name (`key`,
//! `policy::invalidate`).

use std::collections::BTreeSet;

use wire::http1::{head::RequestHead, url::Scheme};

use super::with_request;
use crate::{
    config::{Config, Origin, SiteRules},
    policy::invalidate::{Base, same_origin_path},
    request::{dependent::Dependent, key},
    site::SiteTable,
};

/// Checks the keys of an address. The input is a URL, an LF, and a reference in the answer to a request for
/// that URL. The URL's key equals the twin's, in whatever form the URL is requested; the URL can be recovered
/// from the key; and the reference resolves as RFC 3986 says, or not at all.
pub fn cache_key(bytes: &[u8]) {
    let (url, reference) = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(lf) => (&bytes[..lf], &bytes[lf + 1..]),
        None => (bytes, &b""[..]),
    };
    // A URL on a request line is printable ASCII; a URL typed by an operator may hold any bytes but blanks.
    let Some(url) = std::str::from_utf8(url).ok().filter(|url| url.bytes().all(|b| b.is_ascii_graphic()))
    else {
        return;
    };
    let mut found = Vec::new();
    let sites = SiteTable::default();
    let is_url = key::of_url(url, &sites, &mut found);
    assert_eq!(is_url.then_some(&found), twin(url).as_ref(), "{url}");
    if !is_url {
        assert!(found.is_empty());
        return;
    }
    let (scheme, authority, path) = (key::scheme(&found), key::authority(&found), key::path(&found));
    let [authority, path] = [authority, path].map(|part| std::str::from_utf8(part).expect("ASCII"));
    assert_eq!(key::host_of(&found).len() + path.len(), found.len());
    let name = if scheme == Scheme::Https { "https" } else { "http" };
    let mut again = Vec::new();
    assert!(key::of_url(&format!("{name}://{authority}{path}"), &sites, &mut again));
    assert_eq!(again, found, "the normal form of the normal form is itself");

    for request in [
        format!("GET {url} HTTP/1.1\r\nHost: {authority}\r\n\r\n"),
        format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\n\r\n"),
    ] {
        with_request(request.as_bytes(), |head, _| {
            let head = &RequestHead { scheme: Some(scheme), ..*head };
            key::of_request(head, &sites, &mut again);
            assert_eq!(again, found, "{request}");
            check_variants(head, &found);
            check_reference(key::base_of(head), reference);
        });
    }
    check_rules(url, path, &found);
    let asked = format!("OPTIONS {url} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    with_request(asked.as_bytes(), |head, _| {
        key::of_request(head, &sites, &mut again);
        assert!(again.starts_with(key::host_of(&found)), "another host by another method");
    });
}

/// Checks keys under a site's rules: all forms of an address have the same key, the key is its own normal
/// form, and only the query differs.
fn check_rules(url: &str, path: &str, plain: &[u8]) {
    let origin = Origin::http("127.0.0.1", 9);
    let rules = SiteRules {
        ignore_query: ["utm_*", "a", "&"].iter().map(|rule| rule.parse().expect("a pattern")).collect(),
        sort_query: true,
        ..SiteRules::default()
    };
    let sites = SiteTable::of(&Config { rules, ..Config::new(origin) }).expect("one site");
    let (mut ruled, mut again) = (Vec::new(), Vec::new());
    assert!(key::of_url(url, &sites, &mut ruled));
    assert_eq!(key::host_of(&ruled), key::host_of(plain));
    let own = std::str::from_utf8(key::path(&ruled)).expect("ASCII");
    assert!(own.len() <= path.len() && own.split('?').next() == path.split('?').next(), "{path} {own}");
    let parameters = |path: &str| -> BTreeSet<String> {
        path.split_once('?')
            .map(|(_, query)| query.split('&').map(str::to_owned).collect())
            .unwrap_or_default()
    };
    assert!(parameters(own).is_subset(&parameters(path)), "{path} {own}");
    let name = if key::scheme(&ruled) == Scheme::Https { "https" } else { "http" };
    let authority = std::str::from_utf8(key::authority(&ruled)).expect("ASCII");
    for url in [url.to_owned(), format!("{name}://{authority}{own}")] {
        let request = format!("GET {url} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
        with_request(request.as_bytes(), |head, _| {
            key::of_request(head, &sites, &mut again);
            assert_eq!(again, ruled, "{request}");
        });
    }
}

/// Checks that the variants of one address have distinct keys that begin with the address's key, and that
/// none is an address's key.
fn check_variants(head: &wire::http1::head::RequestHead<'_, '_>, primary: &[u8]) {
    let mut variants = Vec::new();
    for (generation, spec) in [(0, &b"host"[..]), (1, b"host"), (1, b"accept,host")] {
        let mut key = primary.to_vec();
        Dependent::Variant { generation, names: spec, fields: &head.headers }.extend(&mut key);
        assert!(key.starts_with(primary) && key[primary.len()] == 0);
        assert!(!variants.contains(&key));
        variants.push(key);
    }
}

/// Slow twin: computes the key of a URL with `split` and `to_lowercase`.
fn twin(url: &str) -> Option<Vec<u8>> {
    let (scheme, rest) = url.split_once("://")?;
    let (mark, default_port) = match scheme.to_lowercase().as_str() {
        "http" => ("", "80"),
        "https" => ("S", "443"),
        _ => return None,
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let authority = twin_authority(&authority.to_lowercase(), default_port)?;
    let slash = if path.starts_with('/') { "" } else { "/" };
    Some(format!("{mark}{authority}\0{slash}{path}").into_bytes())
}

fn twin_authority(authority: &str, default_port: &str) -> Option<String> {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => (authority, ""),
    };
    let is_address = |inside: &str| {
        !inside.is_empty() && inside.chars().all(|c| c.is_ascii_hexdigit() || c == ':' || c == '.')
    };
    let is_host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(is_address),
        None => host.chars().all(|c| c.is_ascii_alphanumeric() || "-._~".contains(c)),
    };
    if !is_host || host.is_empty() || !port.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    if port.is_empty() {
        return Some(host.to_owned());
    }
    let significant = port.trim_start_matches('0');
    let port: u16 = if significant.is_empty() { 0 } else { significant.parse().ok()? };
    let port = port.to_string();
    Some(if port == default_port { host.to_owned() } else { format!("{host}:{port}") })
}

fn check_reference(base: Option<Base<'_>>, reference: &[u8]) {
    let Some(base) = base else { return };
    let mut out = b"kept".to_vec();
    let named = same_origin_path(&base, reference, &mut out);
    let path = out.strip_prefix(b"kept").expect("what was there stays");
    assert!(named || path.is_empty());
    // A fragment may contain any bytes.
    let without = reference.split(|byte| *byte == b'#').next().unwrap_or_default();
    let want = std::str::from_utf8(without).ok().and_then(|reference| resolve(&base, reference));
    let got = named.then(|| std::str::from_utf8(path).expect("ASCII").to_owned());
    assert_eq!(got, want, "{:?} at {base:?}", reference.escape_ascii().to_string());
}

/// Resolves references to the base's own origin step by step, as RFC 3986 §5.2 says.
fn resolve(base: &Base<'_>, reference: &str) -> Option<String> {
    if !reference.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let (name, default_port) = if base.scheme == Scheme::Http { ("http", "80") } else { ("https", "443") };
    let mut rest = reference;
    // A colon before any slash or question mark ends a scheme.
    let first = reference.find([':', '/', '?']);
    let has_scheme = first.is_some_and(|at| reference[at..].starts_with(':'));
    if has_scheme {
        let (scheme, after) = reference.split_once(':')?;
        if !scheme.eq_ignore_ascii_case(name) || !after.starts_with("//") {
            return None;
        }
        rest = after;
    }
    let (mut base_path, mut base_query) = split_query(base.path_and_query);
    if let Some(after) = rest.strip_prefix("//") {
        let end = after.find(['/', '?']).unwrap_or(after.len());
        let own = match base.authority.port {
            Some(port) => format!("{}:{port}", base.authority.host),
            None => base.authority.host.to_owned(),
        };
        let theirs = twin_authority(&after[..end].to_lowercase(), default_port)?;
        if twin_authority(&own.to_lowercase(), default_port)? != theirs {
            return None;
        }
        rest = &after[end..];
        (base_path, base_query) = ("/", "");
        if rest.is_empty() {
            return Some("/".to_owned());
        }
    }
    let (path, query) = split_query(rest);
    if path.is_empty() {
        let query = if query.is_empty() { base_query } else { query };
        return Some(format!("{base_path}{query}"));
    }
    let merged = match path.strip_prefix('/') {
        Some(_) => path.to_owned(),
        None => format!("{}{path}", &base_path[..=base_path.rfind('/')?]),
    };
    Some(format!("{}{query}", without_dots(&merged)))
}

/// Splits off the query with its question mark.
fn split_query(text: &str) -> (&str, &str) {
    text.split_at(text.find('?').unwrap_or(text.len()))
}

/// Removes dot segments as in RFC 3986 §5.2.4, with an input and an output buffer.
fn without_dots(path: &str) -> String {
    let (mut input, mut output) = (path.to_owned(), String::new());
    while !input.is_empty() {
        if input.starts_with("/./") {
            input.replace_range(..2, "");
        } else if input == "/." {
            "/".clone_into(&mut input);
        } else if input.starts_with("/../") || input == "/.." {
            let rest = input.strip_prefix("/../").unwrap_or_default();
            input = format!("/{rest}");
            output.truncate(output.rfind('/').unwrap_or(0));
        } else {
            let end = input[1..].find('/').map_or(input.len(), |at| at + 1);
            output.push_str(&input[..end]);
            input.replace_range(..end, "");
        }
    }
    output
}
