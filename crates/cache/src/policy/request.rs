//! *recv*: what to do with a request before anything is looked up.

use wire::http1::{
    head::{Headers, RequestHead},
    known::KnownHeader,
};

use super::{directives::RequestDirectives, ruled::RuleResult};
use crate::{config::ClientRule, error_page::Fault};

/// A request's method, as far as a cache treats it differently (RFC 9110 §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// Answered from the store, and stores.
    Get,
    /// Answered from what GET stored.
    Head,
    /// Removes from the store.
    Purge,
    /// Refused: a tunnel is a forward proxy's business.
    Connect,
    /// Refused: it sends credentials back.
    Trace,
    /// Any other, passed to the origin. Safe (RFC 9110 §9.2.1): it invalidates nothing.
    OtherSafe,
    /// Any other, passed to the origin. Unsafe, or its safety is not known.
    OtherUnsafe,
}

impl Method {
    /// By name; case matters (RFC 9110 §9.1).
    pub fn of(name: &str) -> Self {
        match name {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "PURGE" | "PURGEKEYS" | "BAN" => Method::Purge,
            "CONNECT" => Method::Connect,
            "TRACE" => Method::Trace,
            // OPTIONS by RFC 9110 §9.2.1; the others are registered as safe (RFC 4918, RFC 5323, RFC 3253).
            "OPTIONS" | "PROPFIND" | "SEARCH" | "REPORT" => Method::OtherSafe,
            _ => Method::OtherUnsafe,
        }
    }

    /// GET or HEAD.
    pub const fn is_get_or_head(self) -> bool {
        matches!(self, Method::Get | Method::Head)
    }
}

/// What policy needs to know of a request, read once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestFacts {
    /// The method.
    pub method: Method,
    /// A body follows.
    pub has_body: bool,
    /// `Authorization` occurs (RFC 9111 §3.5).
    pub authorization: bool,
    /// The client has shown the site a certificate, and the origin is told of it.
    pub certificate: bool,
    /// `Cookie` occurs.
    pub cookie: bool,
    /// `If-Match` or `If-Unmodified-Since` occurs. They protect against lost updates, at the origin and nowhere else
    /// (RFC 9110 §13.1.1): a cache that answered them could be wrong.
    pub origin_precondition: bool,
    /// What `Cache-Control` and `Pragma` ask for, as far as that counts.
    pub directives: RequestDirectives,
    /// What the rules of its site make of it.
    pub ruled: RuleResult,
}

impl RequestFacts {
    /// Reads them from a head; `has_body` comes from its framing.
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

    /// The same under the rules of its site.
    #[must_use]
    pub fn under(self, ruled: RuleResult) -> Self {
        Self { cookie: self.cookie && !ruled.is_without_cookies, ruled, ..self }
    }
}

/// What to do with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recv {
    /// Look it up, and fetch on a miss.
    Lookup {
        /// Nothing stored may be used as it is (RFC 9111 §5.2.1.4): fetch anew, and store what comes.
        must_fetch: bool,
        /// On a miss answer [`Fault::OnlyIfCached`] (RFC 9111 §5.2.1.7). Never together with `must_fetch`.
        only_if_cached: bool,
    },
    /// Send it to the origin and its answer to the client; look nothing up and store nothing.
    Pass(PassReason),
    /// Remove what is stored under this address, if the client may.
    Purge,
    /// Answer with this page.
    Synth(Fault),
}

/// Why a request goes past the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PassReason {
    /// Neither GET nor HEAD (RFC 9111 §4: the method must allow reuse; RFC 9110 §9.2.3).
    Method,
    /// A GET or HEAD with a body, which may mean something to the origin (RFC 9110 §9.3.1).
    Body,
    /// `no-store` (RFC 9111 §5.2.1.5).
    NoStore,
    /// `If-Match` or `If-Unmodified-Since` (RFC 9110 §13.1.1, §13.1.4).
    Precondition,
    /// A cookie that the site's rules name, or one that cannot be told to have another name.
    BypassCookie,
    /// A field that the site's rules name.
    BypassHeader,
    /// A path that the site's rules name.
    Path,
}

impl PassReason {
    /// Every reason.
    pub const ALL: [PassReason; 7] = [
        PassReason::Method,
        PassReason::Body,
        PassReason::NoStore,
        PassReason::Precondition,
        PassReason::BypassCookie,
        PassReason::BypassHeader,
        PassReason::Path,
    ];

    /// A stable name: a token, for `detail` in `Cache-Status`, for `explain` and counters.
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
                "it carries a cookie of a visitor who is known, or one that cannot be read"
            }
            PassReason::BypassHeader => "it carries a field of those that go past the store",
            PassReason::Path => "its path is one of those that go past the store",
        }
    }

    /// Where the rule is written.
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
/// ignored (RFC 9110 §7.8), the others are for [`evaluate`](super::conditional::evaluate).
pub fn recv(request: &RequestFacts) -> Recv {
    let ruled = &request.ruled;
    match request.method {
        // What is purged is no site's business: a tag may be on pages of several.
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
        // RFC 9111 §5.2.1.7: a stored answer that fits the other constraints, or 504. Here none can fit.
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
    fn a_client_that_is_ignored_turns_no_hit_into_a_fetch() {
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
