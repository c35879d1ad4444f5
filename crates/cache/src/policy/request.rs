//! *recv*: the decision on a request before any lookup.

use wire::http1::{
    head::{Headers, RequestHead},
    known::KnownHeader,
};

use super::{directives::RequestDirectives, ruled::RuleResult};
use crate::{config::ClientRule, error_page::Fault};

/// Method of a request, as far as a cache distinguishes it (RFC 9110 §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// Answered from the store; the origin's answer may be stored.
    Get,
    /// Answered from a stored response to GET.
    Head,
    /// Removes objects from the store.
    Purge,
    /// Refused: only a forward proxy opens tunnels.
    Connect,
    /// Refused: the answer would echo credentials.
    Trace,
    /// Any other safe method (RFC 9110 §9.2.1): passed to the origin, and invalidates nothing.
    OtherSafe,
    /// Any other method, unsafe or unknown: passed to the origin.
    OtherUnsafe,
}

impl Method {
    /// Returns the method with this name; case matters (RFC 9110 §9.1).
    pub fn of(name: &str) -> Self {
        match name {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "PURGE" | "PURGEKEYS" | "BAN" => Method::Purge,
            "CONNECT" => Method::Connect,
            "TRACE" => Method::Trace,
            // OPTIONS is safe by definition (RFC 9110 §9.2.1); the others are registered as safe (RFC 4918,
            // RFC 5323, RFC 3253).
            "OPTIONS" | "PROPFIND" | "SEARCH" | "REPORT" => Method::OtherSafe,
            _ => Method::OtherUnsafe,
        }
    }

    /// Returns whether the method is GET or HEAD.
    pub const fn is_get_or_head(self) -> bool {
        matches!(self, Method::Get | Method::Head)
    }
}

/// Properties of a request that the policy needs, read once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestFacts {
    /// Method of the request.
    pub method: Method,
    /// The request has a body.
    pub has_body: bool,
    /// `Authorization` occurs (RFC 9111 §3.5).
    pub authorization: bool,
    /// The client has presented a certificate to the site, and the origin is told about it.
    pub certificate: bool,
    /// `Cookie` occurs.
    pub cookie: bool,
    /// `If-Match` or `If-Unmodified-Since` occurs. They protect against lost updates, which only the origin
    /// can check (RFC 9110 §13.1.1): a cache that answered them could be wrong.
    pub origin_precondition: bool,
    /// Directives of `Cache-Control` and `Pragma` that are in effect.
    pub directives: RequestDirectives,
    /// Result of the site's rules.
    pub ruled: RuleResult,
}

impl RequestFacts {
    /// Reads the properties of a head; `has_body` comes from its framing.
    pub fn of(head: &RequestHead<'_, '_>, has_body: bool, rule: ClientRule) -> Self {
        let headers: &Headers<'_, '_> = &head.headers;
        Self {
            method: Method::of(head.method),
            has_body,
            authorization: headers.has(KnownHeader::Authorization),
            certificate: false,
            cookie: headers.has(KnownHeader::Cookie),
            origin_precondition: headers.has(KnownHeader::IfMatch)
                || headers.has(KnownHeader::IfUnmodifiedSince),
            directives: RequestDirectives::of(headers).by(rule),
            ruled: RuleResult::default(),
        }
    }

    /// Applies the result of the site's rules.
    #[must_use]
    pub fn under(self, ruled: RuleResult) -> Self {
        Self { cookie: self.cookie && !ruled.is_without_cookies, ruled, ..self }
    }
}

/// Decision on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recv {
    /// Look the request up, and fetch on a miss.
    Lookup {
        /// No stored response may be used as it is (RFC 9111 §5.2.1.4): the response is fetched again, and
        /// stored.
        must_fetch: bool,
        /// A miss is answered with [`Fault::OnlyIfCached`] (RFC 9111 §5.2.1.7). Never set together with
        /// `must_fetch`.
        only_if_cached: bool,
    },
    /// Pass the request to the origin, without lookup and without storing the answer.
    Pass(PassReason),
    /// Remove the objects stored under this address, if the client is allowed to purge.
    Purge,
    /// Answer with this error page.
    Synth(Fault),
}

/// Reason why a request bypasses the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PassReason {
    /// The method is neither GET nor HEAD (RFC 9111 §4: the method must allow reuse; RFC 9110 §9.2.3).
    Method,
    /// GET or HEAD with a body, which may have a meaning for the origin (RFC 9110 §9.3.1).
    Body,
    /// `no-store` (RFC 9111 §5.2.1.5).
    NoStore,
    /// `If-Match` or `If-Unmodified-Since` (RFC 9110 §13.1.1, §13.1.4).
    Precondition,
    /// A cookie that the site's rules name, or whose name cannot be determined.
    BypassCookie,
    /// A header field that the site's rules name.
    BypassHeader,
    /// A path that the site's rules name.
    Path,
}

impl PassReason {
    /// All reasons.
    pub const ALL: [PassReason; 7] = [
        PassReason::Method,
        PassReason::Body,
        PassReason::NoStore,
        PassReason::Precondition,
        PassReason::BypassCookie,
        PassReason::BypassHeader,
        PassReason::Path,
    ];

    /// Stable name: a token, for `detail` in `Cache-Status`, for `explain` and counters.
    pub const fn name(self) -> &'static str {
        match self {
            PassReason::Method => "request-method",
            PassReason::Body => "request-body",
            PassReason::NoStore => "request-no-store",
            PassReason::Precondition => "request-precondition",
            PassReason::BypassCookie => "bypass-cookie",
            PassReason::BypassHeader => "bypass-header",
            PassReason::Path => "path-pass",
        }
    }

    /// The reason in plain words, without a full stop.
    pub const fn words(self) -> &'static str {
        match self {
            PassReason::Method => "only GET and HEAD are answered from the store",
            PassReason::Body => "the request has a body, which may mean something to the origin",
            PassReason::NoStore => "the request says that nothing of it may be stored (no-store)",
            PassReason::Precondition => {
                "the request has If-Match or If-Unmodified-Since, which the origin judges"
            }
            PassReason::BypassCookie => {
                "the request carries one of bypass-cookies, or a cookie that cannot be parsed"
            }
            PassReason::BypassHeader => "the request carries one of bypass-headers",
            PassReason::Path => "the path is configured to be passed",
        }
    }

    /// Section of the RFC, or name of the setting, that states the rule.
    pub const fn section(self) -> &'static str {
        match self {
            PassReason::Method => "RFC 9111 §4",
            PassReason::Body => "RFC 9110 §9.3.1",
            PassReason::NoStore => "RFC 9111 §5.2.1.5",
            PassReason::Precondition => "RFC 9110 §13.1",
            PassReason::BypassCookie => "knob bypass-cookies",
            PassReason::BypassHeader => "knob bypass-headers",
            PassReason::Path => "knob path, pass",
        }
    }
}

/// Decides what to do with a request. `Upgrade`, `Range` and validators do not matter here: an upgrade may be
/// ignored (RFC 9110 §7.8), and [`evaluate`](super::conditional::evaluate) handles the rest.
pub fn recv(request: &RequestFacts) -> Recv {
    let ruled = &request.ruled;
    match request.method {
        // PURGE is exempt from the site's rules: a tag may be on pages of several sites.
        Method::Purge => return Recv::Purge,
        Method::Connect => return Recv::Synth(Fault::MethodNotImplemented),
        _ if ruled.is_misdirected => return Recv::Synth(Fault::Misdirected),
        Method::Trace => return Recv::Synth(Fault::MethodNotAllowed),
        Method::Get | Method::Head | Method::OtherSafe | Method::OtherUnsafe => {}
    }
    if let Some(taken) = ruled.taken {
        return Recv::Synth(Fault::MethodNotTaken { taken });
    }
    if matches!(request.method, Method::OtherSafe | Method::OtherUnsafe) {
        return Recv::Pass(PassReason::Method);
    }
    let directives = &request.directives;
    let must_fetch = directives.no_cache || directives.max_age_s == Some(0);
    let pass = if request.has_body {
        Some(PassReason::Body)
    } else if directives.no_store {
        Some(PassReason::NoStore)
    } else if request.origin_precondition {
        Some(PassReason::Precondition)
    } else {
        ruled.pass
    };
    match pass {
        // RFC 9111 §5.2.1.7: the answer is a stored response that meets the other constraints, or 504. A
        // request that bypasses the store can only get 504.
        Some(_) if directives.only_if_cached => Recv::Synth(Fault::OnlyIfCached),
        Some(reason) => Recv::Pass(reason),
        None if directives.only_if_cached && must_fetch => Recv::Synth(Fault::OnlyIfCached),
        None => Recv::Lookup { must_fetch, only_if_cached: directives.only_if_cached },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::test_heads::with_request;

    fn judge(line: &str, headers: &str) -> Recv {
        with_request(line, headers, |head| recv(&RequestFacts::of(head, false, ClientRule::Obey)))
    }

    const LOOKUP: Recv = Recv::Lookup { must_fetch: false, only_if_cached: false };
    const FETCH: Recv = Recv::Lookup { must_fetch: true, only_if_cached: false };

    #[test]
    fn requests_are_sorted() {
        for (line, headers, want) in [
            ("GET /", "", LOOKUP),
            ("HEAD /", "", LOOKUP),
            ("GET /", "Authorization: Basic eDp5\nCookie: a=b\nUpgrade: h2c\nRange: bytes=0-1", LOOKUP),
            ("GET /", "If-None-Match: \"a\"\nIf-Modified-Since: x", LOOKUP),
            ("POST /", "", Recv::Pass(PassReason::Method)),
            ("PUT /", "", Recv::Pass(PassReason::Method)),
            ("OPTIONS *", "", Recv::Pass(PassReason::Method)),
            ("get /", "", Recv::Pass(PassReason::Method)),
            ("POST /", "Cache-Control: only-if-cached", Recv::Pass(PassReason::Method)),
            ("CONNECT a:1", "", Recv::Synth(Fault::MethodNotImplemented)),
            ("TRACE /", "", Recv::Synth(Fault::MethodNotAllowed)),
            ("PURGE /", "", Recv::Purge),
            ("PURGEKEYS /", "", Recv::Purge),
            ("BAN /", "", Recv::Purge),
            ("GET /", "Cache-Control: no-store", Recv::Pass(PassReason::NoStore)),
            ("GET /", "Cache-Control: no-cache", FETCH),
            ("GET /", "Pragma: no-cache", FETCH),
            ("GET /", "Cache-Control: max-age=0", FETCH),
            ("GET /", "Cache-Control: max-age=1", LOOKUP),
            ("GET /", "If-Match: \"a\"", Recv::Pass(PassReason::Precondition)),
            ("GET /", "If-Unmodified-Since: x", Recv::Pass(PassReason::Precondition)),
            (
                "GET /",
                "Cache-Control: only-if-cached",
                Recv::Lookup { must_fetch: false, only_if_cached: true },
            ),
            ("GET /", "Cache-Control: only-if-cached, no-cache", Recv::Synth(Fault::OnlyIfCached)),
            ("GET /", "Cache-Control: only-if-cached, no-store", Recv::Synth(Fault::OnlyIfCached)),
        ] {
            assert_eq!(judge(line, headers), want, "{line} {headers}");
        }
    }

    #[test]
    fn ignored_client_directives_force_no_fetch() {
        for (headers, only_if_cached) in [
            ("Cache-Control: no-cache", false),
            ("Pragma: no-cache", false),
            ("Cache-Control: max-age=0", false),
            ("Cache-Control: no-store, only-if-cached", true),
        ] {
            with_request("GET /", headers, |head| {
                let facts = RequestFacts::of(head, false, ClientRule::Ignore);
                assert_eq!(recv(&facts), Recv::Lookup { must_fetch: false, only_if_cached }, "{headers}");
            });
        }
    }

    #[test]
    fn a_body_makes_a_get_the_origins_business() {
        with_request("GET /", "", |head| {
            let facts = RequestFacts::of(head, true, ClientRule::Obey);
            assert_eq!(recv(&facts), Recv::Pass(PassReason::Body));
        });
    }
}
