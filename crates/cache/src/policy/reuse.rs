//! Rules on whether a stored response may answer a request without validation (RFC 9111 §4, §4.2, §5.2.1).

use super::directives::RequestDirectives;
use crate::config::CookieRule;

/// Properties of a stored response that decide its reuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredResponse {
    /// Freshness lifetime, from age 0.
    pub lifetime_s: u32,
    /// Current age (`current_age`, RFC 9111 §4.2.3).
    pub age_s: u64,
    /// The response may not be served stale (`must-revalidate`, `proxy-revalidate`, `s-maxage`; RFC 9111
    /// §4.2.4).
    pub must_revalidate: bool,
    /// Time for which the stale response may be served while it is refreshed (RFC 5861 §3).
    pub stale_while_revalidate_s: u32,
    /// Time for which the stale response may be served if the origin fails (RFC 5861 §4).
    pub stale_if_error_s: u32,
}

/// Decision on the reuse of a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// The response is fresh.
    Fresh {
        /// Seconds of freshness that are left; at least 1.
        ttl_s: u32,
    },
    /// The response is stale, and the client accepts that (`max-stale`).
    StaleAccepted {
        /// Seconds for which the response has been stale.
        stale_s: u64,
    },
    /// The response is stale, and may be served while it is refreshed (RFC 5861 §3).
    StaleWhileRevalidate {
        /// Seconds for which the response has been stale.
        stale_s: u64,
    },
    /// The response may be served only if the origin fails (RFC 5861 §4).
    StaleIfError {
        /// Seconds for which the response has been stale.
        stale_s: u64,
    },
    /// The response may not be used.
    No(NotReused),
}

/// Reason why a stored response is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NotReused {
    /// The response is stale (RFC 9111 §4.2).
    Stale,
    /// The request says `no-cache` (RFC 9111 §5.2.1.4).
    RequestNoCache,
    /// The response is older than the request's `max-age` (RFC 9111 §5.2.1.1).
    RequestMaxAge,
    /// The response does not stay fresh for the request's `min-fresh` (RFC 9111 §5.2.1.3).
    RequestMinFresh,
}

impl NotReused {
    /// All reasons.
    pub const ALL: [NotReused; 4] =
        [NotReused::Stale, NotReused::RequestNoCache, NotReused::RequestMaxAge, NotReused::RequestMinFresh];

    /// Stable name: a token, for `detail` in `Cache-Status` and for `explain`.
    pub const fn name(self) -> &'static str {
        match self {
            NotReused::Stale => "stale",
            NotReused::RequestNoCache => "request-no-cache",
            NotReused::RequestMaxAge => "request-max-age",
            NotReused::RequestMinFresh => "request-min-fresh",
        }
    }

    /// The reason in plain words, without a full stop.
    pub const fn words(self) -> &'static str {
        match self {
            NotReused::Stale => "stale, and may not be served stale",
            NotReused::RequestNoCache => "the request says no-cache",
            NotReused::RequestMaxAge => "older than the request's max-age",
            NotReused::RequestMinFresh => "not fresh for the request's min-fresh",
        }
    }

    /// Section of the RFC that states the rule.
    pub const fn section(self) -> &'static str {
        match self {
            NotReused::Stale => "RFC 9111 §4.2",
            NotReused::RequestNoCache => "RFC 9111 §5.2.1.4",
            NotReused::RequestMaxAge => "RFC 9111 §5.2.1.1",
            NotReused::RequestMinFresh => "RFC 9111 §5.2.1.3",
        }
    }
}

/// Visitors that may share a stored response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// All visitors.
    Everyone,
    /// Visitors without cookies.
    WithoutCookies,
}

impl Audience {
    /// Returns the audience of a response that may, or may not, answer visitors with cookies.
    #[inline]
    pub const fn of(for_cookies: bool) -> Self {
        if for_cookies { Self::Everyone } else { Self::WithoutCookies }
    }
}

/// Returns whether a stored response may answer a request with cookies.
///
/// This is the counterpart of the rule in [`storable`](super::storable()). If only a heuristic or one of our
/// settings allows storing a page, visitors with a cookie may be meant to get another page than visitors
/// without. So a response stored for visitors without a cookie is not served to visitors with one.
pub const fn may_share(audience: Audience, has_cookie: bool, rule: CookieRule) -> bool {
    matches!(audience, Audience::Everyone) || !has_cookie || matches!(rule, CookieRule::Rfc)
}

/// Decides whether a stored response, selected by address and `Vary`, may be used for a request.
pub fn judge_reuse(stored: StoredResponse, request: &RequestDirectives) -> Reuse {
    if request.no_cache {
        return Reuse::No(NotReused::RequestNoCache);
    }
    // `max-age=0` forces a fetch even within the second in which the response arrived.
    if request.max_age_s.is_some_and(|max_age_s| max_age_s == 0 || stored.age_s > u64::from(max_age_s)) {
        return Reuse::No(NotReused::RequestMaxAge);
    }
    let lifetime_s = u64::from(stored.lifetime_s);
    // §4.2: a response is fresh while its lifetime is greater than its age.
    if lifetime_s > stored.age_s {
        let ttl_s = lifetime_s - stored.age_s;
        if request.min_fresh_s.is_some_and(|min_fresh_s| u64::from(min_fresh_s) > ttl_s) {
            return Reuse::No(NotReused::RequestMinFresh);
        }
        return Reuse::Fresh { ttl_s: ttl_s as u32 };
    }
    if request.min_fresh_s.is_some() {
        return Reuse::No(NotReused::RequestMinFresh);
    }
    let stale_s = stored.age_s - lifetime_s;
    match request.max_stale_s {
        Some(max_stale_s) if !stored.must_revalidate && stale_s <= u64::from(max_stale_s) => {
            Reuse::StaleAccepted { stale_s }
        }
        _ if stale_s < u64::from(stored.stale_while_revalidate_s) => Reuse::StaleWhileRevalidate { stale_s },
        _ if stale_s < u64::from(stored.stale_if_error_s) => Reuse::StaleIfError { stale_s },
        _ => Reuse::No(NotReused::Stale),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKS_NOTHING: RequestDirectives = RequestDirectives {
        no_store: false,
        no_cache: false,
        only_if_cached: false,
        max_age_s: None,
        min_fresh_s: None,
        max_stale_s: None,
    };

    #[test]
    fn heuristic_freshness_is_shared_without_cookies_only() {
        for (audience, cookie, rule, want) in [
            (Audience::Everyone, true, CookieRule::Safe, true),
            (Audience::WithoutCookies, false, CookieRule::Safe, true),
            (Audience::WithoutCookies, true, CookieRule::Safe, false),
            (Audience::WithoutCookies, true, CookieRule::Rfc, true),
        ] {
            assert_eq!(may_share(audience, cookie, rule), want, "{audience:?} {cookie} {rule:?}");
        }
    }

    #[test]
    fn freshness_and_the_clients_wishes() {
        let stored = |lifetime_s, age_s| StoredResponse {
            lifetime_s,
            age_s,
            must_revalidate: false,
            stale_while_revalidate_s: 0,
            stale_if_error_s: 0,
        };
        let lenient =
            |age_s| StoredResponse { stale_while_revalidate_s: 5, stale_if_error_s: 9, ..stored(60, age_s) };
        let plain = ASKS_NOTHING;
        let max_age = |s| RequestDirectives { max_age_s: Some(s), ..plain };
        let min_fresh = |s| RequestDirectives { min_fresh_s: Some(s), ..plain };
        let max_stale = |s| RequestDirectives { max_stale_s: Some(s), ..plain };
        for (stored, request, want) in [
            (stored(60, 0), plain, Reuse::Fresh { ttl_s: 60 }),
            (stored(60, 59), plain, Reuse::Fresh { ttl_s: 1 }),
            (stored(60, 60), plain, Reuse::No(NotReused::Stale)),
            (stored(0, 0), plain, Reuse::No(NotReused::Stale)),
            (stored(60, u64::MAX), plain, Reuse::No(NotReused::Stale)),
            (stored(60, 0), max_age(0), Reuse::No(NotReused::RequestMaxAge)),
            (stored(60, 10), max_age(10), Reuse::Fresh { ttl_s: 50 }),
            (stored(60, 11), max_age(10), Reuse::No(NotReused::RequestMaxAge)),
            (stored(60, 10), min_fresh(50), Reuse::Fresh { ttl_s: 50 }),
            (stored(60, 10), min_fresh(51), Reuse::No(NotReused::RequestMinFresh)),
            (stored(60, 70), min_fresh(0), Reuse::No(NotReused::RequestMinFresh)),
            (stored(60, 70), max_stale(10), Reuse::StaleAccepted { stale_s: 10 }),
            (stored(60, 71), max_stale(10), Reuse::No(NotReused::Stale)),
            (lenient(59), plain, Reuse::Fresh { ttl_s: 1 }),
            (lenient(64), plain, Reuse::StaleWhileRevalidate { stale_s: 4 }),
            (lenient(65), plain, Reuse::StaleIfError { stale_s: 5 }),
            (lenient(68), plain, Reuse::StaleIfError { stale_s: 8 }),
            (lenient(69), plain, Reuse::No(NotReused::Stale)),
            (lenient(65), max_age(64), Reuse::No(NotReused::RequestMaxAge)),
            (lenient(65), max_stale(5), Reuse::StaleAccepted { stale_s: 5 }),
            (
                StoredResponse { must_revalidate: true, ..stored(60, 61) },
                max_stale(10),
                Reuse::No(NotReused::Stale),
            ),
            (
                stored(60, 0),
                RequestDirectives { no_cache: true, ..plain },
                Reuse::No(NotReused::RequestNoCache),
            ),
            (
                stored(60, 70),
                RequestDirectives { max_age_s: Some(65), max_stale_s: Some(99), ..plain },
                Reuse::No(NotReused::RequestMaxAge),
            ),
        ] {
            assert_eq!(judge_reuse(stored, &request), want, "{stored:?} {request:?}");
        }
    }
}
