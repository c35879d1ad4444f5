//! Whether a shared cache may store a response (RFC 9111 §3), and for how long it is then fresh.
//!
//! In this step nothing is revalidated, so what could only be used after validation (`no-cache`, no freshness left) is
//! not stored.

use wire::http1::{head::ResponseHead, known::KnownHeader};

use super::{
    directives::ResponseDirectives,
    freshness::{Dates, Freshness, Times, initial_age_s, is_heuristically_cacheable, lifetime},
    request::{Method, RequestFacts},
    vary::{Vary, VaryFault},
};
use crate::config::CookieRule;

/// What policy needs to know of a response, read once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseFacts {
    /// The status.
    pub status: u16,
    /// The directives that count: those of `CDN-Cache-Control` where it is valid, else those of `Cache-Control`.
    pub directives: ResponseDirectives,
    /// They come from `CDN-Cache-Control`; then `Expires` does not count (RFC 9213 §2.2).
    pub targeted: bool,
    /// Dates and age.
    pub dates: Dates,
    /// `Set-Cookie` occurs, and would be kept with the stored response.
    pub sets_cookie: bool,
    /// A field named by `private="…"` or `no-cache="…"` occurs.
    pub omits_fields: bool,
    /// `Vary`.
    pub vary: Result<Vary, VaryFault>,
}

impl ResponseFacts {
    /// Reads them from a head.
    pub fn of(head: &ResponseHead<'_, '_>) -> Self {
        let headers = &head.headers;
        let targeted = ResponseDirectives::of_cdn_cache_control(headers);
        let is_targeted = targeted.is_some();
        let directives = targeted.unwrap_or_else(|| ResponseDirectives::of_cache_control(headers));
        let omitted = |name: &str| directives.omit.iter().any(|omit| omit.eq_ignore_ascii_case(name));
        Self {
            status: head.status,
            targeted: is_targeted,
            dates: Dates::of(headers),
            sets_cookie: headers.has(KnownHeader::SetCookie) && !omitted("set-cookie"),
            omits_fields: !directives.omit.is_empty() && headers.iter().any(|(name, _)| omitted(name)),
            vary: Vary::of(headers),
            directives,
        }
    }
}

/// The knobs that decide beside the response itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreRules {
    /// Which responses may be shared although cookies are in play.
    pub cookies: CookieRule,
    /// Freshness for what states none and allows no heuristic; 0: none.
    pub default_ttl_s: u32,
}

/// Whether a response may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storable {
    /// It may, and is fresh for so long.
    Yes(Freshness),
    /// It may not.
    No(Why),
}

macro_rules! whys {
    ($($variant:ident $name:literal $section:literal $text:literal,)*) => {
        /// Why a response is not stored.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Why {
            $(#[doc = concat!($text, " (", $section, ").")] $variant,)*
        }

        impl Why {
            /// Every reason.
            pub const ALL: &[Why] = &[$(Why::$variant,)*];

            /// A stable name: a token, for `detail` in `Cache-Status`, for `explain` and counters.
            pub const fn name(self) -> &'static str {
                match self { $(Why::$variant => $name,)* }
            }

            /// Where the rule is written: an RFC's section or a knob.
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
    RequestNoStore "request-no-store" "RFC 9111 §5.2.1.5" "The request says that nothing of it may be stored",
    Status "status" "RFC 9111 §3" "The status is interim, or answers a condition and is no representation",
    Partial "partial" "RFC 9111 §3.3" "The response is a part (206), and parts are not stored",
    MustUnderstand "must-understand" "RFC 9111 §5.2.2.3"
        "The response may be stored only by who understands its status, and we do not",
    NoStore "no-store" "RFC 9111 §5.2.2.5" "The response says that it must not be stored",
    Private "private" "RFC 9111 §5.2.2.7" "The response says that it is for one visitor only",
    NoCache "no-cache" "RFC 9111 §5.2.2.4" "The response says that it must be validated before each use",
    VaryAny "vary-any" "RFC 9111 §4.1" "The response depends on something that no cache can see (Vary: *)",
    VaryTooLarge "vary-too-large" "bound" "The response depends on more headers than we keep track of",
    VaryMalformed "vary-malformed" "RFC 9110 §12.5.5" "Vary names something that cannot be a header",
    Authorization "authorization" "RFC 9111 §3.5"
        "The request carried credentials, and the response does not say that it may be shared all the same",
    SetCookie "set-cookie" "knob cookies=safe"
        "The response sets a cookie and says neither public nor CDN-Cache-Control",
    NoFreshness "no-freshness" "RFC 9111 §3, §4.2.2"
        "The response does not say how long it is fresh, and nothing allows a guess",
    Cookie "cookie" "knob cookies"
        "The request carried a cookie, and the response does not say that others may see it",
    Expired "expired" "RFC 9111 §4.2" "The response was stale when it arrived",
}

/// Decides whether the response to a request may be stored. If several rules forbid it, the one that tells most is
/// named: a directive of the sender before what follows from it.
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

    // §3: a method that the cache understands. What answers HEAD has no body, so there is nothing to keep.
    refuse_if(request.method != Method::Get, Why::Method)?;
    refuse_if(request.directives.no_store, Why::RequestNoStore)?;
    // §3: the status is final; 206 and 304 need understanding, and here they never complete what is stored.
    refuse_if(response.status < 200 || response.status == 304, Why::Status)?;
    refuse_if(response.status == 206, Why::Partial)?;
    // §5.2.2.3: with must-understand, no-store does not count for those who understand the status.
    if directives.must_understand {
        refuse_if(!is_understood(response.status), Why::MustUnderstand)?;
    } else {
        refuse_if(directives.no_store, Why::NoStore)?;
    }
    refuse_if(directives.private, Why::Private)?;
    refuse_if(directives.no_cache, Why::NoCache)?;
    match &response.vary {
        Ok(_) => {}
        Err(VaryFault::Any) => return Err(Why::VaryAny),
        Err(VaryFault::TooLarge) => return Err(Why::VaryTooLarge),
        Err(VaryFault::Malformed) => return Err(Why::VaryMalformed),
    }
    // §3.5
    let s_maxage = directives.s_maxage != super::directives::Seconds::Absent;
    let shared_with_credentials = directives.public || directives.must_revalidate || s_maxage;
    refuse_if(request.authorization && !shared_with_credentials, Why::Authorization)?;
    let safe = rules.cookies != CookieRule::Rfc;
    let shared_with_cookie = directives.public || response.targeted;
    refuse_if(safe && response.sets_cookie && !shared_with_cookie, Why::SetCookie)?;

    // §4.2.2: by status, or where `public` marks it as cacheable.
    let heuristic_allowed = is_heuristically_cacheable(response.status) || directives.public;
    let lifetime = lifetime(
        directives,
        &response.dates,
        !response.targeted,
        heuristic_allowed,
        rules.default_ttl_s,
        times.response_s,
    );
    let (lifetime_s, source) = lifetime.ok_or(Why::NoFreshness)?;
    let said_for_all =
        shared_with_cookie || s_maxage || response.vary.as_ref().is_ok_and(|vary| vary.names("cookie"));
    let for_cookies = match rules.cookies {
        CookieRule::Strict => said_for_all,
        CookieRule::Safe | CookieRule::Rfc => source.is_explicit(),
    };
    refuse_if(safe && request.cookie && !for_cookies, Why::Cookie)?;
    let initial_age_s = initial_age_s(&response.dates, times);
    refuse_if(u64::from(lifetime_s) <= initial_age_s, Why::Expired)?;
    Ok(Freshness {
        lifetime_s,
        // Below lifetime_s, so it fits.
        initial_age_s: initial_age_s as u32,
        source,
        // §4.2.4, §5.2.2.10: s-maxage implies proxy-revalidate.
        must_revalidate: directives.must_revalidate || directives.proxy_revalidate || s_maxage,
        omits_fields: response.omits_fields,
        for_cookies,
        said_for_all,
    })
}

/// Statuses whose meaning for caching is known here: those of RFC 9110 §15 that are final, but for 206 and 304, and
/// those of RFC 6585.
const fn is_understood(status: u16) -> bool {
    matches!(status, 200..=205 | 300..=303 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 428 | 429 | 431 | 500..=505 | 511)
}

#[cfg(test)]
mod tests;
