//! Invalidation by an unsafe request (RFC 9111 §4.4): of its own target, and of the URLs on the same site
//! that `Location` and `Content-Location` name.

use wire::http1::{
    head::Headers,
    known::KnownHeader,
    url::{Authority, Scheme},
};

use super::request::Method;

/// Returns whether the answer to a request invalidates stored responses: the method is unsafe (or unknown),
/// and the status is not an error (2xx or 3xx).
pub const fn invalidates(method: Method, status: u16) -> bool {
    matches!(method, Method::OtherUnsafe) && matches!(status, 200..=399)
}

/// The target of a request, against which references are resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Base<'a> {
    /// Scheme of the client's connection.
    pub scheme: Scheme,
    /// Site that the request names.
    pub authority: Authority<'a>,
    /// Path and query as sent, beginning with `/`.
    pub path_and_query: &'a str,
}

/// Returns the references in a response to further URLs to invalidate, which [`same_origin_path`] resolves.
pub fn references<'b>(headers: &Headers<'b, '_>) -> impl Iterator<Item = &'b [u8]> {
    headers.known(KnownHeader::Location).into_iter().chain(headers.header("content-location"))
}

/// Resolves a reference (RFC 3986 §5.2). If it has the same origin as `base` (scheme, host and port; RFC 9110
/// §4.3.1), its path and query are appended to `out`, and the function returns true. RFC 9111 §4.4 forbids
/// invalidation across origins, because one site could then empty the store of another.
pub fn same_origin_path(base: &Base<'_>, reference: &[u8], out: &mut Vec<u8>) -> bool {
    // A fragment is not sent, so it is not part of any key.
    let reference = reference.split(|&b| b == b'#').next().unwrap_or_default();
    if reference.iter().any(|&b| b <= b' ' || b >= 0x7f) {
        return false;
    }
    let (scheme, rest) = split_scheme(reference);
    if let Some(scheme) = scheme {
        let same = match base.scheme {
            Scheme::Http => b"http".as_slice(),
            Scheme::Https => b"https".as_slice(),
        };
        // `http:path` without `//` has no host, so it is not an http URI (RFC 9110 §4.2.1).
        if !scheme.eq_ignore_ascii_case(same) || !rest.starts_with(b"//") {
            return false;
        }
    }
    let path_and_query = match rest.strip_prefix(b"//") {
        None => rest,
        Some(after) => {
            let len = after.iter().position(|b| b"/?".contains(b)).unwrap_or(after.len());
            let Some(authority) = Authority::parse(&after[..len]) else { return false };
            if !is_same_site(base, &authority) {
                return false;
            }
            match &after[len..] {
                // An empty path means `/` (RFC 9110 §4.2.3), not the path of the base.
                [] => b"/",
                [b'?', ..] => {
                    out.push(b'/');
                    out.extend_from_slice(&after[len..]);
                    return true;
                }
                path => path,
            }
        }
    };
    let base_path = base.path_and_query.as_bytes();
    let base_path_len = path_len(base_path);
    match path_and_query {
        // §5.2.2: an empty reference is the base itself; a query replaces the base's query.
        [] => out.extend_from_slice(base_path),
        [b'?', ..] => {
            out.extend_from_slice(&base_path[..base_path_len]);
            out.extend_from_slice(path_and_query);
        }
        _ => {
            let (path, query) = path_and_query.split_at(path_len(path_and_query));
            let start = out.len();
            if path[0] == b'/' {
                append_without_dots(out, start, path);
            } else {
                // §5.2.3: the path is inserted after the last slash of the base.
                let slash = base_path[..base_path_len].iter().rposition(|&b| b == b'/');
                let directory = slash.map_or(b"/".as_slice(), |at| &base_path[..=at]);
                append_without_dots(out, start, &[directory, path].concat());
            }
            out.extend_from_slice(query);
        }
    }
    true
}

/// Splits off a scheme (RFC 3986 §3.1); `None` for a relative reference.
fn split_scheme(reference: &[u8]) -> (Option<&[u8]>, &[u8]) {
    match reference.iter().position(|b| b":/?".contains(b)) {
        Some(at) if reference[at] == b':' => (Some(&reference[..at]), &reference[at + 1..]),
        _ => (None, reference),
    }
}

fn path_len(path_and_query: &[u8]) -> usize {
    path_and_query.iter().position(|&b| b == b'?').unwrap_or(path_and_query.len())
}

fn is_same_site(base: &Base<'_>, other: &Authority<'_>) -> bool {
    let default_port = match base.scheme {
        Scheme::Http => 80,
        Scheme::Https => 443,
    };
    base.authority.host.eq_ignore_ascii_case(other.host)
        && base.authority.port.unwrap_or(default_port) == other.port.unwrap_or(default_port)
}

/// Appends a path that begins with `/` without its dot segments (`remove_dot_segments`, RFC 3986 §5.2.4). A
/// `..` removes segments of `out` back to `start` at most.
fn append_without_dots(out: &mut Vec<u8>, start: usize, path: &[u8]) {
    let mut segments = path.split(|&b| b == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            b"." if is_last => out.push(b'/'),
            b"." => {}
            b".." => {
                let kept = out[start..].iter().rposition(|&b| b == b'/').unwrap_or(0);
                out.truncate(start + kept);
                if is_last {
                    out.push(b'/');
                }
            }
            segment => {
                out.push(b'/');
                out.extend_from_slice(segment);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::test_heads::with_response;

    fn resolve(base: &str, reference: &str) -> Option<String> {
        let rest = base.strip_prefix("http://").unwrap();
        let (authority, path) = rest.split_at(rest.find('/').unwrap());
        let base = Base {
            scheme: Scheme::Http,
            authority: Authority::parse(authority.as_bytes()).unwrap(),
            path_and_query: path,
        };
        let mut out = b"kept".to_vec();
        let same = same_origin_path(&base, reference.as_bytes(), &mut out);
        let appended = std::str::from_utf8(out.strip_prefix(b"kept").unwrap()).unwrap();
        assert!(same || appended.is_empty(), "{reference}: appended {appended} and refused");
        same.then(|| appended.to_owned())
    }

    #[test]
    fn unsafe_successes_invalidate() {
        for (method, status, want) in [
            ("POST", 200, true),
            ("PUT", 204, true),
            ("DELETE", 303, true),
            ("M-SEARCH", 200, true),
            ("PATCH", 199, false),
            ("POST", 400, false),
            ("POST", 500, false),
            ("GET", 200, false),
            ("HEAD", 200, false),
            ("OPTIONS", 200, false),
            ("PROPFIND", 207, false),
        ] {
            assert_eq!(invalidates(Method::of(method), status), want, "{method} {status}");
        }
    }

    /// Examples of RFC 3986 §5.4 that stay on the site, without their fragments.
    #[test]
    fn references_resolve_as_in_rfc_3986() {
        for (reference, want) in [
            ("g", "/b/c/g"),
            ("./g", "/b/c/g"),
            ("g/", "/b/c/g/"),
            ("/g", "/g"),
            ("?y", "/b/c/d;p?y"),
            ("g?y", "/b/c/g?y"),
            ("#s", "/b/c/d;p?q"),
            ("g#s", "/b/c/g"),
            ("g?y#s", "/b/c/g?y"),
            (";x", "/b/c/;x"),
            ("g;x?y#s", "/b/c/g;x?y"),
            ("", "/b/c/d;p?q"),
            (".", "/b/c/"),
            ("./", "/b/c/"),
            ("..", "/b/"),
            ("../", "/b/"),
            ("../g", "/b/g"),
            ("../..", "/"),
            ("../../g", "/g"),
            ("../../../g", "/g"),
            ("../../../../g", "/g"),
            ("/./g", "/g"),
            ("/../g", "/g"),
            ("g.", "/b/c/g."),
            (".g", "/b/c/.g"),
            ("g..", "/b/c/g.."),
            ("./../g", "/b/g"),
            ("./g/.", "/b/c/g/"),
            ("g/./h", "/b/c/g/h"),
            ("g/../h", "/b/c/h"),
            ("g;x=1/../y", "/b/c/y"),
            ("g?y/./x", "/b/c/g?y/./x"),
            ("g?y/../x", "/b/c/g?y/../x"),
        ] {
            assert_eq!(resolve("http://a/b/c/d;p?q", reference).as_deref(), Some(want), "{reference}");
        }
    }

    #[test]
    fn only_the_same_origin_is_named() {
        let base = "http://A.example:80/x/y?z";
        for (reference, want) in [
            ("http://a.example/p", Some("/p")),
            ("HTTP://a.EXAMPLE:80/p?q", Some("/p?q")),
            ("http://a.example", Some("/")),
            ("http://a.example?q", Some("/?q")),
            ("http://a.example/a/../b", Some("/b")),
            ("http://a.example//a", Some("//a")),
            ("//a.example/p", Some("/p")),
            ("//a.example:/p", Some("/p")),
            ("http://b.example/p", None),
            ("//b.example/p", None),
            ("http://a.example:8080/p", None),
            ("https://a.example/p", None),
            ("http://user@a.example/p", None),
            ("http:/p", None),
            ("http:p", None),
            ("mailto:a@a.example", None),
            ("/a b", None),
            ("/\u{e9}", None),
        ] {
            assert_eq!(resolve(base, reference).as_deref(), want, "{reference}");
        }
    }

    #[test]
    fn both_headers_are_looked_at() {
        with_response("201 Created", "Content-Location: /c\nLocation: /l", |head| {
            assert_eq!(references(&head.headers).collect::<Vec<_>>(), [b"/l", b"/c"]);
        });
    }
}
