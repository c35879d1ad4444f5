//! What an operator's rules for a site make of one request, before anything is looked up.

use wire::http1::{
    fields::is_token,
    head::{Headers, RequestHead},
    known::KnownHeader,
};

use super::request::PassReason;
use crate::config::{Methods, Pattern, SiteRules};

/// What rules say of a request. The default: nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ruled {
    /// It is for a host that no site names, and there is none for such hosts.
    pub is_misdirected: bool,
    /// The methods that are taken, if the request's is not among them.
    pub taken: Option<Methods>,
    /// It goes past the store.
    pub pass: Option<PassReason>,
    /// For how long a good answer is fresh.
    pub ttl_s: Option<u32>,
    /// It waits for nobody else's fetch.
    pub is_alone: bool,
    /// It counts as one without cookies, and none are sent with a fetch for the store.
    pub is_without_cookies: bool,
    /// The place of the rule for its path among the site's.
    pub path: Option<usize>,
}

impl Ruled {
    /// By the rules of its site, for a path (with its query, as it is keyed).
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
            is_alone: of_path.is_some_and(|rule| !rule.join),
            is_without_cookies: is_without_cookies(rules, &head.headers),
            path: at,
        }
    }
}

/// Returns whether a request counts as one without cookies: a fetch for the store then sends the origin none. A request
/// counts so if the site says which cookies identify visitors, or if the only cookie is the one by which the visitor
/// stays with a server.
pub fn is_without_cookies(rules: &SiteRules, headers: &Headers<'_, '_>) -> bool {
    rules.bypass_cookies.is_some()
        || rules.origin.sticky.as_deref().is_some_and(|name| has_only(headers, name))
}

/// Whether there is a cookie of such a name; or one that cannot be told to have another (RFC 6265 §4.2.1).
fn has_cookie(headers: &Headers<'_, '_>, rules: &[Pattern]) -> bool {
    let pairs = headers.known_all(KnownHeader::Cookie).flat_map(|value| value.split(|&b| b == b';'));
    pairs.map(<[u8]>::trim_ascii).any(|pair| match memchr::memchr(b'=', pair) {
        Some(at) if is_token(&pair[..at]) => rules.iter().any(|rule| rule.is_met_by(&pair[..at])),
        Some(_) | None => true,
    })
}

/// Whether all cookies are of that name, by which a visitor stays with a server and which says nothing else.
fn has_only(headers: &Headers<'_, '_>, name: &str) -> bool {
    let mut pairs = headers.known_all(KnownHeader::Cookie).flat_map(|value| value.split(|&b| b == b';'));
    pairs.all(|pair| {
        let rest = pair.trim_ascii().strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.starts_with(b"="))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{config::PathRule, policy::test_heads::with_request};

    fn ruled(rules: &SiteRules, line: &str, headers: &str, path: &str) -> Ruled {
        with_request(line, headers, |head| Ruled::by(rules, head, path.as_bytes()))
    }

    #[test]
    fn a_cookie_of_a_visitor_who_is_known_passes() {
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
            // What cannot be told apart may be anything.
            ("Cookie: session", true),
            ("Cookie: a=b;", true),
            ("Cookie: =b", true),
            ("Cookie: a b=c", true),
            ("Cookie:", true),
        ] {
            let ruled = ruled(&rules, "GET /", cookie, "/");
            let pass = is_known.then_some(PassReason::BypassCookie);
            assert_eq!(ruled, Ruled { pass, is_without_cookies: true, ..Ruled::default() }, "{cookie}");
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
        let nothing = Ruled::default();
        let of_a = Ruled { ttl_s: Some(60), is_alone: true, path: Some(1), ..nothing };
        let passed = |reason| Ruled { pass: Some(reason), ..nothing };
        for (line, headers, path, want) in [
            ("GET /", "", "/", nothing),
            ("POST /", "", "/", nothing),
            ("PUT /", "", "/", Ruled { taken: rules.methods, ..nothing }),
            ("GET /", "x-preview: 1", "/", passed(PassReason::BypassHeader)),
            ("GET /", "", "/admin/x?/a", Ruled { path: Some(0), ..passed(PassReason::Path) }),
            ("GET /", "", "/admin?/admin/", of_a),
            ("POST /", "", "/a", Ruled { taken: methods, ..of_a }),
        ] {
            assert_eq!(ruled(&rules, line, headers, path), want, "{line} {headers} {path}");
        }
    }
}
