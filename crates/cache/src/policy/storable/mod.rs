//! Rules on whether a shared cache may store a response (RFC 9111 §3), and for how long it is then fresh.
//!
//! A response that can be used only after validation (`no-cache`, or no freshness left) is stored if it has a
//! validator; without one it would be useless.

use wire::http1::{fields::DELTA_SECONDS_MAX, head::ResponseHead, known::KnownHeader};

use super::{
    directives::{ResponseDirectives, Seconds},
    freshness::{
        Dates, FallbackSources, Freshness, Source, Times, initial_age_s, is_heuristically_cacheable, lifetime,
    },
    request::{Method, RequestFacts},
    vary::{Vary, VaryFault},
};
use crate::config::CookieRule;

/// Properties of a response that the policy needs, read once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseFacts {
    /// Status code.
    pub status: u16,
    /// Directives in effect: those of `CDN-Cache-Control` if it is valid, else those of `Cache-Control`.
    pub directives: ResponseDirectives,
    /// The directives come from `CDN-Cache-Control`, so `Expires` does not count (RFC 9213 §2.2).
    pub targeted: bool,
    /// Dates and age stated by the response.
    pub dates: Dates,
    /// `Set-Cookie` occurs.
    pub sets_cookie: bool,
    /// `Set-Cookie` occurs, and neither `private="…"` nor `no-cache="…"` keeps it out of the stored response.
    pub stores_cookie: bool,
    /// A field named by `private="…"` or `no-cache="…"` occurs.
    pub omits_fields: bool,
    /// The response can be revalidated, by its entity tag or its modification time. Errors and redirects are
    /// never revalidated.
    pub has_validator: bool,
    /// Parsed `Vary`.
    pub vary: Result<Vary, VaryFault>,
}

impl ResponseFacts {
    /// Reads the properties of a head. If `for_us` is set, fields that target caches such as this one count
    /// (RFC 9213).
    pub fn of(head: &ResponseHead<'_, '_>, for_us: bool) -> Self {
        let headers = &head.headers;
        let targeted = if for_us { ResponseDirectives::of_cdn_cache_control(headers) } else { None };
        let is_targeted = targeted.is_some();
        let directives = targeted.unwrap_or_else(|| ResponseDirectives::of_cache_control(headers));
        let dates = Dates::of(headers);
        let omitted = |name: &str| directives.omit.iter().any(|omit| omit.eq_ignore_ascii_case(name));
        Self {
            status: head.status,
            targeted: is_targeted,
            has_validator: head.status < 300
                && (headers.has(KnownHeader::Etag)
                    && !headers.is_repeated(KnownHeader::Etag)
                    && !omitted("etag")
                    || dates.last_modified_s.is_some() && !omitted("last-modified")),
            dates,
            sets_cookie: headers.has(KnownHeader::SetCookie),
            stores_cookie: headers.has(KnownHeader::SetCookie) && !omitted("set-cookie"),
            omits_fields: !directives.omit.is_empty() && headers.iter().any(|(name, _)| omitted(name)),
            vary: Vary::of(headers),
            directives,
        }
    }

    /// Returns the response's [`freshness_lifetime`](lifetime) and its source.
    pub fn lifetime(&self, default_ttl_s: u32, response_s: u64) -> Option<(u32, Source)> {
        let fallback = FallbackSources {
            expires: !self.targeted,
            heuristic: is_heuristically_cacheable(self.status) || self.directives.public,
        };
        lifetime(&self.directives, &self.dates, fallback, default_ttl_s, response_s)
    }
}

/// Settings that, together with the response, decide whether it may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreRules {
    /// Rule on sharing responses when cookies are involved.
    pub cookies: CookieRule,
    /// `Set-Cookie` is removed before a response is stored, so it forbids nothing.
    pub removes_set_cookie: bool,
    /// Freshness of responses that state none and allow no heuristic; 0 for none.
    pub default_ttl_s: u32,
    /// Default time for which a stale response may be served while it is refreshed.
    pub grace_s: u32,
    /// Default time for which a stale response may be served if the origin fails.
    pub stale_if_error_s: u32,
}

/// Decision on storing a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storable {
    /// The response may be stored, with this freshness.
    Yes(Freshness),
    /// The response may not be stored.
    No(Why),
}

macro_rules! whys {
    ($($variant:ident $name:literal $section:literal $text:literal,)*) => {
        /// Reason why a response is not stored.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Why {
            $(#[doc = concat!($text, " (", $section, ").")] $variant,)*
        }

        impl Why {
            /// All reasons.
            pub const ALL: &[Why] = &[$(Why::$variant,)*];

            /// Stable name: a token, for `detail` in `Cache-Status`, for `explain` and counters.
            pub const fn name(self) -> &'static str {
                match self { $(Why::$variant => $name,)* }
            }

            /// Section of the RFC, or name of the setting, that states the rule.
            pub const fn section(self) -> &'static str {
                match self { $(Why::$variant => $section,)* }
            }

            /// The reason in plain words, without a full stop.
            pub const fn words(self) -> &'static str {
                match self { $(Why::$variant => $text,)* }
            }
        }
    };
}

whys! {
    Method "method" "RFC 9111 §3" "The request was not a GET",
    RequestNoStore "request-no-store" "RFC 9111 §5.2.1.5" "The request says no-store",
    Status "status" "RFC 9111 §3" "The status is interim, or answers a condition and is no representation",
    Partial "partial" "RFC 9111 §3.3" "The response is a part (206), and parts are not stored",
    MustUnderstand "must-understand" "RFC 9111 §5.2.2.3"
        "The response says must-understand, and its status is unknown here",
    NoStore "no-store" "RFC 9111 §5.2.2.5" "The response says no-store",
    Private "private" "RFC 9111 §5.2.2.7" "The response says private",
    NoCache "no-cache" "RFC 9111 §5.2.2.4" "The response must be validated before each use, and has no validator",
    VaryAny "vary-any" "RFC 9111 §4.1" "The response varies by something outside of the request (Vary: *)",
    VaryTooLarge "vary-too-large" "bound" "The response varies by more headers than a key may have",
    VaryMalformed "vary-malformed" "RFC 9110 §12.5.5" "Vary names something that cannot be a header",
    Authorization "authorization" "RFC 9111 §3.5"
        "The request carried credentials, and the response does not allow sharing it",
    Certificate "certificate" "knob tls-client"
        "The origin was told of the client's certificate, and the response says neither public nor s-maxage",
    VaryCertificate "vary-certificate" "knob tls-client-header"
        "The response depends on the client's certificate (Vary), which is no part of the key",
    SetCookie "set-cookie" "knob cookies"
        "The response sets a cookie, so it is for one visitor, whatever its Cache-Control says",
    NoFreshness "no-freshness" "RFC 9111 §3, §4.2.2"
        "The response states no freshness lifetime, and allows no heuristic one",
    Cookie "cookie" "knob cookies"
        "The request carried a cookie, and the response does not allow sharing it",
    TooManyTags "too-many-tags" "bound" "The response has more tags than an object may have",
    TooManyVariants "too-many-variants" "bound"
        "The key has many variants: a further one is stored only when it is requested again",
    TooManyQueries "too-many-queries" "bound"
        "Other queries of this path have used their share of the store: a further one is stored only when it is \
         requested again",
    Expired "expired-on-arrival" "RFC 9111 §4.2"
        "The response had expired on arrival, since the origin's time counts, and has no validator",
}

/// Decides whether the response to a request may be stored. If several rules forbid it, the reason is the
/// most informative one: a directive in the request or response rather than a consequence of it.
pub fn storable(
    request: &RequestFacts,
    response: &ResponseFacts,
    rules: &StoreRules,
    times: Times,
) -> Storable {
    match judge(request, response, rules, times) {
        Ok(freshness) => Storable::Yes(freshness),
        Err(why) => Storable::No(why),
    }
}

fn judge(
    request: &RequestFacts,
    response: &ResponseFacts,
    rules: &StoreRules,
    times: Times,
) -> Result<Freshness, Why> {
    let directives = &response.directives;
    let refuse_if = |refused: bool, why: Why| if refused { Err(why) } else { Ok(()) };

    // §3: the cache must understand the method. An answer to HEAD has no body, so there is nothing to store.
    refuse_if(request.method != Method::Get, Why::Method)?;
    refuse_if(request.directives.no_store, Why::RequestNoStore)?;
    // §3: the status must be final. Storing 206 and 304 needs support that we lack: here they never complete
    // a stored response.
    refuse_if(response.status < 200 || response.status == 304, Why::Status)?;
    refuse_if(response.status == 206, Why::Partial)?;
    // §5.2.2.3: with must-understand, a cache that understands the status ignores no-store.
    if directives.must_understand {
        refuse_if(!is_understood(response.status), Why::MustUnderstand)?;
    } else {
        refuse_if(directives.no_store, Why::NoStore)?;
    }
    refuse_if(directives.private, Why::Private)?;
    refuse_if(directives.no_cache && !response.has_validator, Why::NoCache)?;
    match &response.vary {
        Ok(_) => {}
        Err(VaryFault::Any) => return Err(Why::VaryAny),
        Err(VaryFault::TooLarge) => return Err(Why::VaryTooLarge),
        Err(VaryFault::Malformed) => return Err(Why::VaryMalformed),
    }
    // §3.5: the response to a request with credentials must explicitly allow sharing.
    let s_maxage = directives.s_maxage != Seconds::Absent;
    let shared_with_credentials = directives.public || directives.must_revalidate || s_maxage;
    refuse_if(request.authorization && !shared_with_credentials, Why::Authorization)?;
    // The origin was told the client's identity, as it is by credentials. `must-revalidate` does not make the
    // response shared.
    let for_all = directives.public || s_maxage;
    refuse_if(request.certificate && !for_all, Why::Certificate)?;
    let safe = rules.cookies != CookieRule::Rfc;
    let shared_with_cookie = directives.public || response.targeted;
    refuse_if(sets_cookie(request, response, rules), Why::SetCookie)?;

    let lifetime = response.lifetime(rules.default_ttl_s, times.response_s);
    let said = if directives.no_cache { Some((0, Source::NoCache)) } else { lifetime };
    let (lifetime_s, source) = by_path(request, response, rules).or(said).ok_or(Why::NoFreshness)?;
    let (stale_while_revalidate_s, stale_if_error_s) = stale_windows(response, rules);
    let initial_age_s = u32::try_from(initial_age_s(&response.dates, times)).unwrap_or(u32::MAX);
    // An operator's lifetime counts from the arrival: a page that takes longer than that to arrive is still
    // stored.
    let before_s = if source.is_operators() { initial_age_s } else { 0 };
    let lifetime_s = lifetime_s.saturating_add(before_s).min(DELTA_SECONDS_MAX);
    let is_fresh = initial_age_s < lifetime_s;
    // Visitors with cookies share a response if its origin states that it is fresh, or if a path rule of the
    // operator does, but not if it is fresh only by a setting for the whole site.
    let is_said_fresh = said.is_some_and(|(s, source)| source.is_explicit() && initial_age_s < s)
        || source == Source::Path && request.ruled.is_ttl_for_cookies;
    // A response that only the setting `stale-if-error` would ever serve is not worth storing.
    let can_be_used_stale = response.has_validator
        || stale_while_revalidate_s > 0
        || stale_if_error_s > 0 && directives.stale_if_error != Seconds::Absent;
    refuse_if(!(is_fresh || source.is_explicit() && can_be_used_stale), Why::Expired)?;
    let said_for_all =
        shared_with_cookie || s_maxage || response.vary.as_ref().is_ok_and(|vary| vary.names("cookie"));
    // A response that must be validated each time is usually a page, and may be private to its visitor: an
    // origin that compares only dates would confirm it for the next visitor.
    let for_cookies = match rules.cookies {
        CookieRule::Safe | CookieRule::Rfc if is_fresh => is_said_fresh,
        CookieRule::Safe | CookieRule::Strict | CookieRule::Rfc => said_for_all,
    };
    refuse_if(safe && request.cookie && !for_cookies, Why::Cookie)?;
    Ok(Freshness {
        lifetime_s,
        initial_age_s,
        source,
        must_revalidate: must_revalidate(directives),
        stale_while_revalidate_s,
        stale_if_error_s,
        has_validator: response.has_validator,
        omits_fields: response.omits_fields,
        for_cookies,
        for_all,
        said_for_all,
    })
}

/// Returns whether `Set-Cookie` forbids storing a response. It does not on a site that removes the field.
/// With `safe` and `strict` it does, whatever Cache-Control says, because frameworks send `public` with a
/// session's cookie. With `rfc` the letter of RFC 9111 §7.3 holds, unless the operator says which cookies
/// identify visitors.
fn sets_cookie(request: &RequestFacts, response: &ResponseFacts, rules: &StoreRules) -> bool {
    if rules.removes_set_cookie {
        return false;
    }
    match rules.cookies {
        CookieRule::Safe | CookieRule::Strict => response.sets_cookie,
        CookieRule::Rfc => response.stores_cookie && request.ruled.is_without_cookies,
    }
}

/// Returns the freshness that a path rule gives to a successful answer. An answer that must be validated each
/// time, or sets a cookie, gets none from the rule; and errors are not kept as long as successful answers.
fn by_path(request: &RequestFacts, response: &ResponseFacts, rules: &StoreRules) -> Option<(u32, Source)> {
    let is_good = is_heuristically_cacheable(response.status) && response.status < 400;
    let is_for_one = response.directives.no_cache || response.stores_cookie && !rules.removes_set_cookie;
    request.ruled.ttl_s.filter(|_| is_good && !is_for_one).map(|s| (s.min(DELTA_SECONDS_MAX), Source::Path))
}

/// Returns whether the response must be revalidated once stale. `s-maxage` implies `proxy-revalidate`
/// (§4.2.4, §5.2.2.10).
fn must_revalidate(directives: &ResponseDirectives) -> bool {
    directives.must_revalidate
        || directives.proxy_revalidate
        || directives.no_cache
        || directives.s_maxage != Seconds::Absent
}

/// Returns the times for which a response may be served stale while it is refreshed, and if the origin fails:
/// those of the response (RFC 5861), else those of the settings. The response's own times count even with
/// `s-maxage`, although that implies `proxy-revalidate`: otherwise the response would not state them. An
/// origin's error is never served stale in place of its next error.
fn stale_windows(response: &ResponseFacts, rules: &StoreRules) -> (u32, u32) {
    let directives = &response.directives;
    if directives.must_revalidate || directives.proxy_revalidate || directives.no_cache {
        return (0, 0);
    }
    let by_knob = |s| if must_revalidate(directives) { 0 } else { s };
    let said = |seconds: Seconds, knob_s| seconds.said().unwrap_or(by_knob(knob_s));
    let if_error_s =
        if response.status >= 500 { 0 } else { said(directives.stale_if_error, rules.stale_if_error_s) };
    (said(directives.stale_while_revalidate, rules.grace_s), if_error_s)
}

/// Returns whether the meaning of a status for caching is known: the final statuses of RFC 9110 §15, except
/// 206 and 304, and those of RFC 6585.
const fn is_understood(status: u16) -> bool {
    matches!(status, 200..=205 | 300..=303 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 428 | 429 | 431 | 500..=505 | 511)
}

#[cfg(test)]
mod tests;
