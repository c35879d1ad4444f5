//! What an operator says of a site: for which hosts it is, where it is fetched, and by which rules.
//!
//! A rule is a value that is read from its text here and shown as that text again. Lists are bounded, because a request
//! is compared with each of their members: [`LIST_MAX`], [`PATHS_MAX`], [`SITES_MAX`].

use std::{fmt, str::FromStr, sync::Arc, time::Duration};

use wire::http1::{fields::is_token, url::Authority};

use super::{ClientCertificates, Origin, OriginRules, page::OwnPage};

/// Sites.
pub const SITES_MAX: usize = 1000;
/// Path rules of one site.
pub const PATHS_MAX: usize = 64;
/// Members of one list of patterns, names or hosts.
pub const LIST_MAX: usize = 64;

/// Why a text is no rule. It displays as what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRule {
    /// A pattern.
    #[error("`{0}` is no pattern: a name, with at most one * and that at its end, such as utm_*")]
    Pattern(String),
    /// A pattern for paths.
    #[error(
        "`{0}` is no pattern of paths: it begins with / and has at most one *, at its end, such as /admin/*"
    )]
    Path(String),
    /// A method.
    #[error(
        "`{0}` is no method that is known here: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, and those of WebDAV"
    )]
    Method(String),
    /// No method at all.
    #[error("at least one method is wanted, such as GET")]
    NoMethod,
    /// A host.
    #[error("`{0}` is no host: a name without scheme and port, such as www.example.org, or *.example.org")]
    Host(String),
    /// A host that the origin is sent.
    #[error(
        "`{0}` is no host that an origin could be sent: keep, or a name such as app.internal, with a port or without"
    )]
    SentHost(String),
    /// The name of a field.
    #[error("`{0}` is no field name, such as X-Preview")]
    Field(String),
    /// A list.
    #[error("at most 64 are taken")]
    TooMany,
}

/// A text that is to be met as it is, or, with `*` at its end, as a beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    is_beginning: bool,
}

impl Pattern {
    /// Whether a text is met.
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

/// Methods that a rule can name: those of RFC 9110, RFC 5789, RFC 4918, RFC 5323 and RFC 3253 that a request can have
/// here.
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

/// A set of methods; a bit for each of those that a rule can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Methods(u16);

impl Methods {
    /// GET and HEAD.
    pub const GET_AND_HEAD: Self = Self(0b11);

    /// Of these names.
    ///
    /// # Errors
    /// One is not known, or there is none.
    pub fn of<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<Self, InvalidRule> {
        let mut methods = Self(0);
        for name in names {
            let at = METHODS.iter().position(|method| *method == name);
            methods.0 |= 1 << at.ok_or_else(|| InvalidRule::Method(name.to_owned()))?;
        }
        if methods.0 == 0 { Err(InvalidRule::NoMethod) } else { Ok(methods) }
    }

    /// Whether a method is among them; case matters.
    pub fn has(self, name: &str) -> bool {
        self.names().any(|method| method == name)
    }

    /// Their names.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        METHODS.into_iter().enumerate().filter(move |(at, _)| self.0 >> at & 1 == 1).map(|(_, name)| name)
    }
}

/// Which hosts a site is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostPattern {
    /// This one, in lower case.
    Exactly(Box<str>),
    /// Those below a name, however far: `.example.org` for `*.example.org`.
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

/// The host that an origin is sent in the place of the client's.
///
/// # Errors
/// It is none.
pub fn sent_host(text: &str) -> Result<Box<str>, InvalidRule> {
    let authority = Authority::parse(text.as_bytes()).filter(|authority| !authority.host.is_empty());
    authority.map(|_| text.to_ascii_lowercase().into()).ok_or_else(|| InvalidRule::SentHost(text.to_owned()))
}

/// The name of a field of requests.
///
/// # Errors
/// It is none.
pub fn field(text: &str) -> Result<Box<str>, InvalidRule> {
    if is_token(text.as_bytes()) { Ok(text.into()) } else { Err(InvalidRule::Field(text.to_owned())) }
}

/// What holds for some paths of a site. The first rule whose path is met counts, alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathRule {
    /// Which: compared with the path as it is sent, byte by byte, without the query.
    pub path: Pattern,
    /// They go to the origin past the store.
    pub pass: bool,
    /// For how long their good answers are fresh, whatever the origin says of that.
    pub ttl: Option<Duration>,
    /// Which methods are taken there, in the place of the site's.
    pub methods: Option<Methods>,
    /// Who asks while somebody else's fetch is under way waits for that.
    pub join: bool,
}

impl PathRule {
    /// One that says nothing of a path yet.
    ///
    /// # Errors
    /// It is no pattern of paths.
    pub fn of(path: &str) -> Result<Self, InvalidRule> {
        let wrong = || InvalidRule::Path(path.to_owned());
        let pattern = path.parse().ok().filter(|_| path.starts_with('/') && !path.contains('?'));
        Ok(Self { path: pattern.ok_or_else(wrong)?, pass: false, ttl: None, methods: None, join: true })
    }
}

/// How the requests to a site are treated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteRules {
    /// The host that the origin is sent; `None`: the one that the client asks for.
    pub host: Option<Box<str>>,
    /// Parameters of the query that count for nothing: they are neither keyed nor sent with a fetch for the store.
    pub ignore_query: Vec<Pattern>,
    /// The parameters that are left are sorted by their names.
    pub sort_query: bool,
    /// Which methods are taken; others are answered 405.
    pub methods: Option<Methods>,
    /// Who has a cookie of such a name goes past the store; and no cookies of the others count, nor are they sent with a
    /// fetch for the store. `None`: cookies are judged by what answers say ([`CookieRule`](super::CookieRule)).
    pub bypass_cookies: Option<Vec<Pattern>>,
    /// Who sends such a field goes past the store.
    pub bypass_headers: Vec<Box<str>>,
    /// `Set-Cookie` is removed from answers, which are then stored. Otherwise an answer with `Set-Cookie` is not
    /// stored, except with [`CookieRule::Rfc`](super::CookieRule::Rfc).
    pub removes_set_cookie: bool,
    /// A successful unsafe request (`POST`, `PUT`, `DELETE` …) drops the stored answers of its address, and of the
    /// addresses that its answer names (RFC 9111 §4.4).
    pub invalidates_unsafe: bool,
    /// Freshness for a cacheable answer that states none and allows no heuristic. 0: such answers are not reused.
    pub default_ttl: Duration,
    /// For how long an answer that does not say so itself (RFC 5861 §3) may be shown stale while it is fetched anew.
    pub grace: Duration,
    /// For how long an answer that does not say so itself (RFC 5861 §4) may be shown stale if the origin fails.
    pub stale_if_error: Duration,
    /// What is sent in HTML where no answer can be; `None`: our own page.
    pub error_page: Option<Arc<OwnPage>>,
    /// Who comes by http is sent to https.
    pub https_only: bool,
    /// For how long browsers that came by https come by nothing else (RFC 6797); `None`: they are not told to.
    pub hsts: Option<Duration>,
    /// Which certificates clients are asked for; `None`: none.
    pub client_certificates: Option<ClientCertificates>,
    /// Bytes of one request's body; more is answered 413. `None`: as many as the limit for all allows.
    pub body_bytes_max: Option<u64>,
    /// Every exchange ends at its client's FIN; otherwise only event streams, waits and upgrades do.
    pub ends_at_fin: bool,
    /// At most [`PATHS_MAX`].
    pub paths: Vec<PathRule>,
    /// How its origin is treated.
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
    /// Whether they make something of a query.
    #[inline]
    pub fn change_queries(&self) -> bool {
        self.sort_query || !self.ignore_query.is_empty()
    }

    /// Returns whether these rules decide nothing: [`RuleResult`](crate::policy::RuleResult) is the same for all requests.
    pub fn decide_nothing(&self) -> bool {
        self.methods.is_none()
            && self.bypass_cookies.is_none()
            && self.bypass_headers.is_empty()
            && self.origin.sticky.is_none()
            && self.paths.is_empty()
    }
}

/// A site: hosts, where what they have is fetched, and its rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// At least one, at most [`LIST_MAX`].
    pub hosts: Vec<HostPattern>,
    /// Where misses are fetched.
    pub origin: Origin,
    /// How it is treated.
    pub rules: SiteRules,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_met_as_a_whole_or_as_a_beginning() {
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
