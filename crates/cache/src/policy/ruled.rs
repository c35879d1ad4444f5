//! Evaluation of a site's rules for one request, before any lookup.

use wire::http1::{
    fields::is_token,
    head::{Headers, RequestHead},
    known::KnownHeader,
};

use super::request::PassReason;
use crate::config::{Methods, Pattern, SiteRules};

/// Result of a site's rules for a request. The default is the result of no rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuleResult {
    /// The request's host belongs to no site, and there is no default site.
    pub is_misdirected: bool,
    /// The allowed methods, if the request's method is not among them.
    pub taken: Option<Methods>,
    /// Reason why the request bypasses the store, if it does.
    pub pass: Option<PassReason>,
    /// Freshness lifetime of a successful answer.
    pub ttl_s: Option<u32>,
    /// The lifetime counts as if the answer had stated it, so that visitors with cookies share the answer.
    /// Requires a plain path ([`is_plain`]), so that the origin sees the path that the rule was written for.
    pub is_ttl_for_cookies: bool,
    /// The request does not wait for the fetch of another request.
    pub is_alone: bool,
    /// The request counts as one without cookies, and a fetch for the store sends none.
    pub is_without_cookies: bool,
    /// Index of the matching path rule among the site's.
    pub path: Option<usize>,
}

impl RuleResult {
    /// Evaluates the rules of a site for a path (with its query, as in the key).
    pub fn by(rules: &SiteRules, head: &RequestHead<'_, '_>, path_and_query: &[u8]) -> Self {
        let path = &path_and_query[..memchr::memchr(b'?', path_and_query).unwrap_or(path_and_query.len())];
        let of_path = rules.paths.iter().enumerate().find(|(_, rule)| rule.path.is_met_by(path));
        let (at, of_path) = of_path.unzip();
        let methods = of_path.and_then(|rule| rule.methods).or(rules.methods);
        let has_field = |name: &str| head.headers.header(name).is_some();
        let pass = if rules.bypass_headers.iter().any(|name| has_field(name)) {
            Some(PassReason::BypassHeader)
        } else if rules.bypass_cookies.as_deref().is_some_and(|rules| has_cookie(&head.headers, rules)) {
            Some(PassReason::BypassCookie)
        } else {
            of_path.filter(|rule| rule.pass).map(|_| PassReason::Path)
        };
        Self {
            is_misdirected: false,
            taken: methods.filter(|methods| !methods.has(head.method)),
            pass,
            ttl_s: of_path
                .and_then(|rule| rule.ttl)
                .map(|ttl| u32::try_from(ttl.as_secs()).unwrap_or(u32::MAX)),
            is_ttl_for_cookies: of_path.is_some_and(|rule| rule.ttl.is_some()) && is_plain(path),
            is_alone: of_path.is_some_and(|rule| !rule.join),
            is_without_cookies: is_without_cookies(rules, &head.headers),
            path: at,
        }
    }
}

/// Returns whether all servers read a path the same way. `/assets/../me`, `/assets/..%2fme` and
/// `/assets/..%3b/me` match a rule for `/assets/*`, but some origins, or servers in front of them, answer
/// them with `/me`, which is private to its visitor (web cache deception). So a path is not plain if it has
/// - a dot segment, with or without percent-encoded dots, or a segment that begins like one and continues
///   percent-encoded;
/// - a backslash, or one of these percent-encoded: slash, backslash, percent sign (which may be decoded
///   twice), semicolon,
///   question mark, hash, control characters;
/// - bytes beyond ASCII other than letters and digits in UTF-8, or full-width ones: some servers fold those into ASCII.
pub fn is_plain(path: &[u8]) -> bool {
    if memchr::memchr2(b'%', b'\\', path).is_none()
        && memchr::memmem::find(path, b"/.").is_none()
        && path.is_ascii()
    {
        return true;
    }
    has_plain_characters(path) && !path.split(|&b| b == b'/').any(is_like_dot_segment)
}

/// Returns whether every character of a path, percent-encoded or not, is read the same way by all servers.
fn has_plain_characters(path: &[u8]) -> bool {
    let mut rest = path;
    while let Some((byte, is_coded, after)) = next_byte(rest) {
        rest = after;
        let is_plain = match byte {
            b'\\' => false,
            0x80.. => {
                let Some(after) = after_letter(byte, after) else { return false };
                rest = after;
                true
            }
            _ if is_coded => !byte.is_ascii_control() && !b"/%;?#".contains(&byte),
            _ => byte != b'%',
        };
        if !is_plain {
            return false;
        }
    }
    true
}

/// Returns the first byte of a path, whether it is percent-encoded, and the rest; `None` at the end. A
/// percent sign without two hex digits is returned unchanged.
fn next_byte(path: &[u8]) -> Option<(u8, bool, &[u8])> {
    let digit = |of: u8| char::from(of).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    match path {
        [b'%', high, low, rest @ ..] => match (digit(*high), digit(*low)) {
            (Some(high), Some(low)) => Some((high << 4 | low, true, rest)),
            _ => Some((b'%', false, &path[1..])),
        },
        [byte, rest @ ..] => Some((*byte, false, rest)),
        [] => None,
    }
}

/// Returns the rest of a path after a letter or digit beyond ASCII whose first byte is `first`; `None` if
/// there is no such character.
fn after_letter(first: u8, rest: &[u8]) -> Option<&[u8]> {
    let mut bytes = [first, 0, 0, 0];
    let len = match first {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return None,
    };
    let mut rest = rest;
    for place in &mut bytes[1..len] {
        (*place, _, rest) = next_byte(rest)?;
    }
    let letter = std::str::from_utf8(&bytes[..len]).ok()?.chars().next()?;
    let is_full_width = ('\u{ff00}'..='\u{ffef}').contains(&letter);
    (letter.is_alphanumeric() && !is_full_width).then_some(rest)
}

/// Returns whether a segment is `.` or `..`, with percent-encoded dots or not, followed only by parameters
/// (`;`) or percent-encoded bytes: some servers cut those off, before or after they decode the segment.
fn is_like_dot_segment(segment: &[u8]) -> bool {
    let mut rest = segment;
    let mut dots = 0;
    while let Some((b'.', _, after)) = next_byte(rest) {
        rest = after;
        dots += 1;
    }
    matches!(dots, 1 | 2) && matches!(next_byte(rest), None | Some((b';', ..) | (_, true, _)))
}

/// Returns whether a request counts as one without cookies; a fetch for the store then sends the origin none.
/// This is so if the site says which cookies identify visitors, or if the only cookie is the sticky one that
/// binds the visitor to a server.
pub fn is_without_cookies(rules: &SiteRules, headers: &Headers<'_, '_>) -> bool {
    rules.bypass_cookies.is_some()
        || rules.origin.sticky.as_deref().is_some_and(|name| has_only(headers, name))
}

/// Appends the cookies of a `Cookie` line, except those with this name. No key includes a site's sticky
/// cookie, so no fetch for the store sends it. Returns `false` if there is no other cookie.
pub fn append_other_cookies(value: &[u8], name: &str, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    for pair in value.split(|&b| b == b';').map(<[u8]>::trim_ascii).filter(|pair| !is_named(pair, name)) {
        if out.len() > start {
            out.extend_from_slice(b"; ");
        }
        out.extend_from_slice(pair);
    }
    out.len() > start
}

/// Returns whether a pair is the cookie with this name, with or without a value.
fn is_named(pair: &[u8], name: &str) -> bool {
    let pair_name = &pair[..memchr::memchr(b'=', pair).unwrap_or(pair.len())];
    pair_name.trim_ascii() == name.as_bytes()
}

/// Returns whether a cookie's name matches a rule, or cannot be determined (RFC 6265 §4.2.1).
fn has_cookie(headers: &Headers<'_, '_>, rules: &[Pattern]) -> bool {
    let pairs = headers.known_all(KnownHeader::Cookie).flat_map(|value| value.split(|&b| b == b';'));
    pairs.map(<[u8]>::trim_ascii).any(|pair| match memchr::memchr(b'=', pair) {
        Some(at) if is_token(&pair[..at]) => rules.iter().any(|rule| rule.is_met_by(&pair[..at])),
        Some(_) | None => true,
    })
}

/// Returns whether every cookie has this name: the name of the sticky cookie, which carries no other
/// information.
fn has_only(headers: &Headers<'_, '_>, name: &str) -> bool {
    let mut pairs = headers.known_all(KnownHeader::Cookie).flat_map(|value| value.split(|&b| b == b';'));
    pairs.all(|pair| is_named(pair.trim_ascii(), name))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{config::PathRule, policy::test_heads::with_request};

    fn ruled(rules: &SiteRules, line: &str, headers: &str, path: &str) -> RuleResult {
        with_request(line, headers, |head| RuleResult::by(rules, head, path.as_bytes()))
    }

    #[test]
    fn a_bypass_cookie_makes_the_request_pass() {
        let bypass_cookies =
            Some(vec!["session".parse().expect("a pattern"), "wp_*".parse().expect("a pattern")]);
        let rules = SiteRules { bypass_cookies, ..SiteRules::default() };
        for (cookie, is_known) in [
            ("", false),
            ("Cookie: a=b; theme=session", false),
            ("Cookie: a=b;session=", true),
            ("Cookie: a=b\nCookie: wp_logged=1", true),
            ("Cookie: Session=1", false),
            ("Cookie: a=b=session", false),
            // A cookie without a clear name may be any cookie.
            ("Cookie: session", true),
            ("Cookie: a=b;", true),
            ("Cookie: =b", true),
            ("Cookie: a b=c", true),
            ("Cookie:", true),
        ] {
            let ruled = ruled(&rules, "GET /", cookie, "/");
            let pass = is_known.then_some(PassReason::BypassCookie);
            assert_eq!(
                ruled,
                RuleResult { pass, is_without_cookies: true, ..RuleResult::default() },
                "{cookie}"
            );
        }
    }

    #[test]
    fn a_plain_path_is_the_same_to_all() {
        for path in [
            "/",
            "/a",
            "/a.b/.c/..d/...",
            "/a%20b",
            "/%41",
            "/.well-known/x",
            "/a;b/c",
            "/a/.;",
            "//a",
            "/pages/%5Bslug%5D-1.js",
            "/a%2ejs",
            "/b%C3%BCcher/\u{fc}",
            "/%E6%97%A5%e6%9c%ac",
        ] {
            assert_eq!(is_plain(path.as_bytes()), path != "/a/.;", "{path}");
        }
        for path in [
            "/a/.",
            "/a/..",
            "/a/./b",
            "/a/../b",
            "/a/%2e%2e/b",
            "/a/.%2E/b",
            "/a/..;/b",
            "/a/..;x=1/b",
            "/a/%2e;/b",
            "/a%2fb",
            "/a%2Fb",
            "/a/..%2fb",
            "/a%5cb",
            "/a\\b",
            "/a\\..\\b",
            "/a%252fb",
            "/a/%252e%252e/b",
            "/a/..%3b/b",
            "/a/%2e%2e%3b/b",
            "/a/..%00/b",
            "/a/..%09/b",
            "/a/..%20/b",
            "/a/..%ef%bc%8f",
            "/a/%c0%ae%c0%ae/b",
            "/a/%ef%bc%8e%ef%bc%8e/b",
            "/a/\u{ff0e}\u{ff0e}/b",
            "/me%3fx.css",
            "/me%23x.css",
            "/me%3bx.css",
            "/me%0ax.css",
            "/a%e2%88%95b",
            "/a%C3",
            "/100%",
            "/a%u002f",
        ] {
            assert!(!is_plain(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn other_cookies_stay_as_they_came() {
        for (value, others) in [
            ("night=1", ""),
            ("night=1; a=b", "a=b"),
            ("a=b;night=1;  c=\"d e\"", "a=b; c=\"d e\""),
            ("a=b; night=1; night=2", "a=b"),
            ("nights=1; Night=2; a=night=3", "nights=1; Night=2; a=night=3"),
            ("a=b; night; night =1", "a=b"),
        ] {
            let mut out = b"Cookie: ".to_vec();
            assert_eq!(
                append_other_cookies(value.as_bytes(), "night", &mut out),
                !others.is_empty(),
                "{value}"
            );
            assert_eq!(String::from_utf8_lossy(&out), format!("Cookie: {others}"), "{value}");
        }
    }

    #[test]
    fn the_first_rule_for_a_path_counts_alone() {
        let rule = |path| PathRule::of(path).expect("a path");
        let methods = Methods::of(["GET"]).ok();
        let rules = SiteRules {
            methods: Methods::of(["GET", "POST"]).ok(),
            bypass_headers: vec!["X-Preview".into()],
            paths: vec![
                PathRule { pass: true, ..rule("/admin/*") },
                PathRule { methods, ttl: Some(Duration::from_secs(60)), join: false, ..rule("/a*") },
            ],
            ..SiteRules::default()
        };
        let nothing = RuleResult::default();
        let of_a = RuleResult {
            ttl_s: Some(60),
            is_ttl_for_cookies: true,
            is_alone: true,
            path: Some(1),
            ..nothing
        };
        let passed = |reason| RuleResult { pass: Some(reason), ..nothing };
        for (line, headers, path, want) in [
            ("GET /", "", "/", nothing),
            ("POST /", "", "/", nothing),
            ("PUT /", "", "/", RuleResult { taken: rules.methods, ..nothing }),
            ("GET /", "x-preview: 1", "/", passed(PassReason::BypassHeader)),
            ("GET /", "", "/admin/x?/a", RuleResult { path: Some(0), ..passed(PassReason::Path) }),
            ("GET /", "", "/admin?/admin/", of_a),
            ("POST /", "", "/a", RuleResult { taken: methods, ..of_a }),
            ("GET /", "", "/a/..%2fb", RuleResult { is_ttl_for_cookies: false, ..of_a }),
        ] {
            assert_eq!(ruled(&rules, line, headers, path), want, "{line} {headers} {path}");
        }
    }
}
