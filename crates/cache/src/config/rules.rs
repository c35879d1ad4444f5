//! Rules of a site: its hosts, its origin, and how its requests are handled.
//!
//! Each rule is a value that is parsed from text and displayed as the same text. Lists are bounded, because
//! each request is compared with all entries: [`LIST_MAX`], [`PATHS_MAX`], [`SITES_MAX`].

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use wire::http1::{fields::is_token, url::Authority};

use super::{ClientCertificates, Origin, OriginRules, page::OwnPage};

/// Maximum number of sites.
pub const SITES_MAX: usize = 1000;
/// Maximum number of path rules of one site.
pub const PATHS_MAX: usize = 64;
/// Maximum number of entries in one list of patterns, names or hosts.
pub const LIST_MAX: usize = 64;

/// Reason why a text is not a rule. The message shows a correct example.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRule {
    /// The text is not a pattern.
    #[error("invalid pattern `{0}`: expected a name, optionally with one * at its end, such as utm_*")]
    Pattern(String),
    /// The text is not a pattern of paths.
    #[error("invalid path pattern `{0}`: it begins with / and may have one *, at its end, such as /admin/*")]
    Path(String),
    /// The method is unknown.
    #[error("unknown method `{0}`: expected GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, or one of WebDAV")]
    Method(String),
    /// The list of methods is empty.
    #[error("at least one method is needed, such as GET")]
    NoMethod,
    /// The text is not a host.
    #[error(
        "invalid host `{0}`: expected a name without scheme and port, such as www.example.org, or *.example.org"
    )]
    Host(String),
    /// The text is not a host that can be sent to an origin.
    #[error(
        "invalid host `{0}` for the origin: expected keep, or a name such as app.internal, with or without a port"
    )]
    SentHost(String),
    /// The text is not a field name.
    #[error("invalid field name `{0}`; expected a name such as X-Preview")]
    Field(String),
    /// The list has too many entries.
    #[error("too many: at most 64 are allowed")]
    TooMany,
}

/// A text that must match exactly, or, with `*` at its end, as a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    is_beginning: bool,
}

impl Pattern {
    /// Returns whether a text matches.
    #[inline]
    pub fn is_met_by(&self, text: &[u8]) -> bool {
        let own = self.text.as_bytes();
        if self.is_beginning { text.starts_with(own) } else { text == own }
    }
}

impl FromStr for Pattern {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let own = text.strip_suffix('*').unwrap_or(text);
        let is_right = !text.is_empty() && own.bytes().all(|b| b.is_ascii_graphic() && b != b'*');
        if !is_right {
            return Err(InvalidRule::Pattern(text.to_owned()));
        }
        Ok(Self { text: own.into(), is_beginning: own.len() < text.len() })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.text, if self.is_beginning { "*" } else { "" })
    }
}

/// Methods that a rule can name: the methods of RFC 9110, RFC 5789, RFC 4918, RFC 5323 and RFC 3253 that are
/// accepted here.
const METHODS: [&str; 16] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "OPTIONS",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "SEARCH",
    "REPORT",
];

/// A set of methods; one bit for each method that a rule can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Methods(u16);

impl Methods {
    /// GET and HEAD.
    pub const GET_AND_HEAD: Self = Self(0b11);

    /// Creates the set of the named methods.
    ///
    /// # Errors
    /// [`InvalidRule::Method`] if a name is unknown, [`InvalidRule::NoMethod`] if there is none.
    pub fn of<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Self, InvalidRule> {
        let mut methods = Self(0);
        for name in names {
            let at = METHODS.iter().position(|method| *method == name);
            methods.0 |= 1 << at.ok_or_else(|| InvalidRule::Method(name.to_owned()))?;
        }
        if methods.0 == 0 { Err(InvalidRule::NoMethod) } else { Ok(methods) }
    }

    /// Returns whether a method is in the set; case matters.
    pub fn has(self, name: &str) -> bool {
        self.names().any(|method| method == name)
    }

    /// Returns the names of the methods.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        METHODS.into_iter().enumerate().filter(move |(at, _)| self.0 >> at & 1 == 1).map(|(_, name)| name)
    }
}

/// Pattern for hosts of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    /// Exactly this host, in lower case.
    Exactly(Box<str>),
    /// All hosts below a name, at any depth: `.example.org` for `*.example.org`.
    Below(Box<str>),
}

impl FromStr for HostPattern {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let wrong = || InvalidRule::Host(text.to_owned());
        let is_host = |host: &str| {
            let authority = Authority::parse(host.as_bytes());
            authority.is_some_and(|authority| authority.port.is_none() && authority.host == host)
                && !host.is_empty()
                && !host.starts_with('.')
                && !host.ends_with('.')
        };
        match text.strip_prefix('*') {
            None if is_host(text) => Ok(Self::Exactly(text.to_ascii_lowercase().into())),
            Some(below) if below.strip_prefix('.').is_some_and(is_host) => {
                Ok(Self::Below(below.to_ascii_lowercase().into()))
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(name) => f.write_str(name),
            Self::Below(end) => write!(f, "*{end}"),
        }
    }
}

/// Parses the host that is sent to the origin instead of the client's.
///
/// # Errors
/// [`InvalidRule::SentHost`] if the text is not a host.
pub fn sent_host(text: &str) -> Result<Box<str>, InvalidRule> {
    let authority = Authority::parse(text.as_bytes()).filter(|authority| !authority.host.is_empty());
    authority.map(|_| text.to_ascii_lowercase().into()).ok_or_else(|| InvalidRule::SentHost(text.to_owned()))
}

/// Parses the name of a request field.
///
/// # Errors
/// [`InvalidRule::Field`] if the text is not a field name.
pub fn field(text: &str) -> Result<Box<str>, InvalidRule> {
    if is_token(text.as_bytes()) { Ok(text.into()) } else { Err(InvalidRule::Field(text.to_owned())) }
}

/// Rule for some paths of a site. Only the first rule whose path matches is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRule {
    /// Pattern of the paths: compared with the path as sent, byte by byte, without the query.
    pub path: Pattern,
    /// True if the requests bypass the store.
    pub pass: bool,
    /// Freshness lifetime of successful answers, instead of the origin's.
    pub ttl: Option<Duration>,
    /// Accepted methods, instead of the site's.
    pub methods: Option<Methods>,
    /// True if a request waits for another client's fetch of the same object (collapse).
    pub join: bool,
}

impl PathRule {
    /// Creates a path rule that has no effect yet.
    ///
    /// # Errors
    /// [`InvalidRule::Path`] if the text is not a pattern of paths.
    pub fn of(path: &str) -> Result<Self, InvalidRule> {
        let wrong = || InvalidRule::Path(path.to_owned());
        let pattern = path.parse().ok().filter(|_| path.starts_with('/') && !path.contains('?'));
        Ok(Self { path: pattern.ok_or_else(wrong)?, pass: false, ttl: None, methods: None, join: true })
    }
}

/// Rules for the requests to a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteRules {
    /// Host that is sent to the origin; `None`: the host of the request.
    pub host: Option<Box<str>>,
    /// Query parameters that are ignored: they are neither part of the key nor sent with a fetch for the
    /// store.
    pub ignore_query: Vec<Pattern>,
    /// True if the remaining query parameters are sorted by name.
    pub sort_query: bool,
    /// Accepted methods; other methods are answered with 405.
    pub methods: Option<Methods>,
    /// Cookies whose presence makes a request bypass the store. Other cookies are ignored and not sent with a
    /// fetch for the store. `None`: the answers' directives decide about requests with cookies
    /// ([`CookieRule`](super::CookieRule)).
    pub bypass_cookies: Option<Vec<Pattern>>,
    /// Fields whose presence makes a request bypass the store.
    pub bypass_headers: Vec<Box<str>>,
    /// True if `Set-Cookie` is removed from answers, which are then stored. Otherwise an answer with
    /// `Set-Cookie` is not stored, except with [`CookieRule::Rfc`](super::CookieRule::Rfc).
    pub removes_set_cookie: bool,
    /// True if a successful unsafe request (`POST`, `PUT`, `DELETE` …) drops the stored answers of its
    /// address, and of the addresses that its answer names (RFC 9111 §4.4).
    pub invalidates_unsafe: bool,
    /// Freshness lifetime of a cacheable answer that has no explicit lifetime and allows no heuristic. 0:
    /// these answers are not reused.
    pub default_ttl: Duration,
    /// Time for which a stale answer may be served while it is refreshed, unless the answer states its own
    /// (RFC 5861 §3).
    pub grace: Duration,
    /// Time for which a stale answer may be served if the origin fails, unless the answer states its own (RFC
    /// 5861 §4).
    pub stale_if_error: Duration,
    /// HTML page for errors; `None`: the built-in page.
    pub error_page: Option<Arc<OwnPage>>,
    /// True if http requests are redirected to https.
    pub https_only: bool,
    /// Time for which browsers that connected by https must use https only (`Strict-Transport-Security`, RFC
    /// 6797); `None`: the field is not sent.
    pub hsts: Option<Duration>,
    /// Client certificates that are requested; `None`: none.
    pub client_certificates: Option<ClientCertificates>,
    /// Maximum length of a request's body in bytes; a longer body is answered with 413. `None`: the limit for
    /// all sites applies.
    pub body_bytes_max: Option<u64>,
    /// True if every exchange ends at its client's FIN; otherwise only event streams, long polls and upgrades
    /// do.
    pub ends_at_fin: bool,
    /// Path rules, at most [`PATHS_MAX`].
    pub paths: Vec<PathRule>,
    /// Rules for the site's origin.
    pub origin: OriginRules,
}

impl Default for SiteRules {
    fn default() -> Self {
        Self {
            host: None,
            ignore_query: Vec::new(),
            sort_query: false,
            methods: None,
            bypass_cookies: None,
            bypass_headers: Vec::new(),
            removes_set_cookie: false,
            invalidates_unsafe: true,
            default_ttl: Duration::ZERO,
            grace: Duration::ZERO,
            stale_if_error: Duration::from_secs(10 * 60),
            error_page: None,
            https_only: false,
            hsts: None,
            client_certificates: None,
            body_bytes_max: None,
            ends_at_fin: false,
            paths: Vec::new(),
            origin: OriginRules::default(),
        }
    }
}

impl SiteRules {
    /// Returns whether the rules change queries.
    #[inline]
    pub fn change_queries(&self) -> bool {
        self.sort_query || !self.ignore_query.is_empty()
    }

    /// Returns whether these rules give the same [`RuleResult`](crate::policy::RuleResult) for all requests.
    pub fn decide_nothing(&self) -> bool {
        self.methods.is_none()
            && self.bypass_cookies.is_none()
            && self.bypass_headers.is_empty()
            && self.origin.sticky.is_none()
            && self.paths.is_empty()
    }
}

/// A site: its hosts, its origin, and its rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Hosts: at least one, at most [`LIST_MAX`].
    pub hosts: Vec<HostPattern>,
    /// Origin from which misses are fetched.
    pub origin: Origin,
    /// Rules for the site's requests.
    pub rules: SiteRules,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_exactly_or_by_prefix() {
        for (pattern, met, not_met) in [
            ("utm_*", &["utm_", "utm_source"][..], &["utm", "UTM_source", "xutm_"][..]),
            ("gclid", &["gclid"], &["gclid2", "Gclid", ""]),
            ("*", &["", "a"], &[]),
        ] {
            let pattern: Pattern = pattern.parse().expect(pattern);
            assert!(met.iter().all(|text| pattern.is_met_by(text.as_bytes())), "{pattern}");
            assert!(!not_met.iter().any(|text| pattern.is_met_by(text.as_bytes())), "{pattern}");
        }
        for wrong in ["", "a*b", "**", "*a", "a b", "\u{e9}"] {
            assert_eq!(wrong.parse::<Pattern>(), Err(InvalidRule::Pattern(wrong.to_owned())));
        }
        for wrong in ["", "admin", "*", "/a*b", "/a?b", "/a b"] {
            assert_eq!(PathRule::of(wrong), Err(InvalidRule::Path(wrong.to_owned())));
        }
    }

    #[test]
    fn what_is_read_is_shown_again() {
        for text in ["www.example.org", "*.example.org", "127.0.0.1", "[::1]"] {
            assert_eq!(text.parse::<HostPattern>().expect(text).to_string(), text);
        }
        for wrong in
            ["", "*", "*.", "*example.org", "a.*.b", "a:80", "http://a", "a/b", ".a", "a.", "a b", "*.*.a"]
        {
            assert_eq!(wrong.parse::<HostPattern>(), Err(InvalidRule::Host(wrong.to_owned())), "{wrong}");
        }
        let methods = Methods::of(["POST", "GET"]).expect("methods");
        assert_eq!(methods.names().collect::<Vec<_>>(), ["GET", "POST"]);
        assert!(methods.has("GET") && !methods.has("get") && !methods.has("HEAD") && !methods.has("PURGE"));
        assert_eq!(Methods::of(["get"]), Err(InvalidRule::Method("get".to_owned())));
        assert_eq!(Methods::of([]), Err(InvalidRule::NoMethod));
        assert_eq!(sent_host("App.internal:81").as_deref(), Ok("app.internal:81"));
        assert!(["", "a b", "a/b", ":80"].iter().all(|wrong| sent_host(wrong).is_err()));
    }
}
