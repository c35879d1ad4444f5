//! For how long a response is fresh, and how old it is when it arrives (RFC 9111 §4.2).

use wire::http1::{
    fields::{DELTA_SECONDS_MAX, delta_seconds, list},
    head::Headers,
    known::KnownHeader,
};

use super::{
    directives::{ResponseDirectives, Seconds},
    http_date_s,
};

/// The part of the time since the last change for which a response without explicit freshness counts as fresh:
/// a tenth (RFC 9111 §4.2.2 names 10% as typical).
const HEURISTIC_PART: u64 = 10;

/// The longest freshness that the heuristic gives: a day. (RFC 7234 §5.5.4 asked for a warning beyond that; a page
/// that was last changed ten years ago should not be kept for one unasked.)
pub const HEURISTIC_LIFETIME_S_MAX: u32 = 24 * 60 * 60;

/// When the exchange with the origin took place, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// When the request was sent.
    pub request_s: u64,
    /// When the head of the response had arrived.
    pub response_s: u64,
}

/// What the freshness of a response comes from, the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// `s-maxage` (RFC 9111 §5.2.2.10), of `CDN-Cache-Control` where that occurs.
    SMaxAge,
    /// `max-age` (RFC 9111 §5.2.2.1), of `CDN-Cache-Control` where that occurs.
    MaxAge,
    /// `Expires` less `Date` (RFC 9111 §5.3).
    Expires,
    /// A tenth of the time since `Last-Modified` (RFC 9111 §4.2.2).
    Heuristic,
    /// The knob `default-ttl`: the response says nothing.
    DefaultTtl,
    /// The rule of the site for its path: whatever the response says.
    Path,
    /// `no-cache` (RFC 9111 §5.2.2.4): none, whatever else it says.
    NoCache,
}

impl Source {
    /// Whether the origin stated it.
    pub const fn is_explicit(self) -> bool {
        matches!(self, Source::SMaxAge | Source::MaxAge | Source::Expires | Source::NoCache)
    }

    /// Returns whether the operator stated the lifetime, which then counts from the arrival of the response.
    pub const fn is_operators(self) -> bool {
        matches!(self, Source::DefaultTtl | Source::Path)
    }

    /// A stable name, for `explain`.
    pub const fn name(self) -> &'static str {
        match self {
            Source::SMaxAge => "s-maxage",
            Source::MaxAge => "max-age",
            Source::Expires => "expires",
            Source::Heuristic => "heuristic",
            Source::DefaultTtl => "default-ttl",
            Source::Path => "path-ttl",
            Source::NoCache => "no-cache",
        }
    }

    /// Where the rule is written: an RFC's section or a knob.
    pub const fn section(self) -> &'static str {
        match self {
            Source::SMaxAge => "RFC 9111 §5.2.2.10",
            Source::MaxAge => "RFC 9111 §5.2.2.1",
            Source::Expires => "RFC 9111 §5.3",
            Source::Heuristic => "RFC 9111 §4.2.2",
            Source::DefaultTtl => "knob default-ttl",
            Source::Path => "knob path, ttl",
            Source::NoCache => "RFC 9111 §5.2.2.4",
        }
    }
}

/// The freshness of a response that may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freshness {
    /// For how long it is fresh, counted from age 0; at most 2³¹ s. 0: it is to be validated before each use.
    pub lifetime_s: u32,
    /// How old it was when it arrived (`corrected_initial_age`, RFC 9111 §4.2.3).
    pub initial_age_s: u32,
    /// Where the lifetime comes from.
    pub source: Source,
    /// It may never be served stale (RFC 9111 §4.2.4), not at a client's wish either.
    pub must_revalidate: bool,
    /// For how long it may be shown stale while it is fetched anew (RFC 5861 §3).
    pub stale_while_revalidate_s: u32,
    /// For how long it may be shown stale if the origin fails (RFC 5861 §4).
    pub stale_if_error_s: u32,
    /// The origin can be asked whether it is still the same.
    pub has_validator: bool,
    /// The response has fields that may not be kept with it (`private="…"`, `no-cache="…"`): the client that asked
    /// gets them, everyone after it does not.
    pub omits_fields: bool,
    /// It may also answer visitors with cookies, by the rule that was set when it was judged.
    pub for_cookies: bool,
    /// It says itself that visitors with cookies may share it, or by which cookies it differs.
    pub said_for_all: bool,
    /// It says so by `public` or `s-maxage`: those may have it, too, of whom its origin is told who they are.
    pub for_all: bool,
}

impl Freshness {
    /// For how long it is still fresh on arrival.
    pub const fn ttl_s(&self) -> u32 {
        self.lifetime_s.saturating_sub(self.initial_age_s)
    }

    /// The moment at which its age was 0, from which [`current_age_s`] counts.
    pub const fn born_s(&self, response_s: u64) -> u64 {
        response_s.saturating_sub(self.initial_age_s as u64)
    }

    /// The first moment at which it is stale.
    pub const fn stale_at_s(&self, response_s: u64) -> u64 {
        self.born_s(response_s).saturating_add(self.lifetime_s as u64)
    }

    /// The first moment at which it is of no use any more: one that can be validated is kept for `keep_s` after it has
    /// become stale.
    pub fn kept_until_s(&self, response_s: u64, keep_s: u32) -> u64 {
        let keep_s = if self.has_validator { keep_s } else { 0 };
        let longest_s = keep_s.max(self.stale_while_revalidate_s).max(self.stale_if_error_s);
        self.stale_at_s(response_s).max(response_s).saturating_add(u64::from(longest_s))
    }
}

/// `current_age` (RFC 9111 §4.2.3). A clock that was set back makes nothing younger than 0.
#[inline]
pub const fn current_age_s(born_s: u64, now_s: u64) -> u64 {
    now_s.saturating_sub(born_s)
}

/// What a response says about its times, read once. Malformed dates other than `Expires` count as absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dates {
    /// `Date` (RFC 9110 §6.6.1).
    pub date_s: Option<u64>,
    /// `Last-Modified` (RFC 9110 §8.8.2).
    pub last_modified_s: Option<u64>,
    /// `Expires` (RFC 9111 §5.3); `Some(0)` where it is malformed or contradicts itself, for that means *already
    /// expired*.
    pub expires_s: Option<u64>,
    /// `Age` (RFC 9111 §5.1): of several the first; 0 where it is malformed.
    pub age_s: u32,
}

impl Dates {
    /// Reads them from a response's headers.
    pub fn of(headers: &Headers<'_, '_>) -> Self {
        let once = |known| headers.known(known).filter(|_| !headers.is_repeated(known)).and_then(http_date_s);
        let mut expires =
            headers.known_all(KnownHeader::Expires).map(|value| http_date_s(value).unwrap_or(0));
        let expires_s = expires.next().map(|first| if expires.all(|s| s == first) { first } else { 0 });
        let age = headers.known(KnownHeader::Age).and_then(|value| list(value).next());
        Self {
            date_s: once(KnownHeader::Date),
            last_modified_s: once(KnownHeader::LastModified),
            expires_s,
            age_s: age.and_then(delta_seconds).unwrap_or(0),
        }
    }
}

/// `freshness_lifetime` for a shared cache and where it comes from (RFC 9111 §4.2.1); `None` if nothing gives one.
/// `heuristic_allowed`: the status, or `public`, allows it (§4.2.2). `expires_counts`: no targeted field took its
/// place (RFC 9213 §2.2).
pub fn lifetime(
    directives: &ResponseDirectives,
    dates: &Dates,
    expires_counts: bool,
    heuristic_allowed: bool,
    default_ttl_s: u32,
    response_s: u64,
) -> Option<(u32, Source)> {
    for (seconds, source) in [(directives.s_maxage, Source::SMaxAge), (directives.max_age, Source::MaxAge)] {
        match seconds {
            Seconds::Absent => {}
            Seconds::Invalid => return Some((0, source)),
            Seconds::Of(s) => return Some((s.min(DELTA_SECONDS_MAX), source)),
        }
    }
    let date_s = dates.date_s.unwrap_or(response_s);
    if let Some(expires_s) = dates.expires_s.filter(|_| expires_counts) {
        return Some((capped(expires_s.saturating_sub(date_s), DELTA_SECONDS_MAX), Source::Expires));
    }
    if !heuristic_allowed {
        return None;
    }
    // A change after Date is a clock's mistake: nothing can be learnt from it.
    let unchanged_s = dates.last_modified_s.and_then(|last_modified_s| date_s.checked_sub(last_modified_s));
    // What is made anew each time, or has just changed, allows no guess.
    if let Some(lifetime_s) = unchanged_s.map(|s| s / HEURISTIC_PART).filter(|&s| s > 0) {
        return Some((capped(lifetime_s, HEURISTIC_LIFETIME_S_MAX), Source::Heuristic));
    }
    (default_ttl_s > 0).then_some((default_ttl_s.min(DELTA_SECONDS_MAX), Source::DefaultTtl))
}

/// `corrected_initial_age` (RFC 9111 §4.2.3).
pub fn initial_age_s(dates: &Dates, times: Times) -> u64 {
    let apparent_age = dates.date_s.map_or(0, |date_s| times.response_s.saturating_sub(date_s));
    let response_delay = times.response_s.saturating_sub(times.request_s);
    let corrected_age_value = u64::from(dates.age_s) + response_delay;
    apparent_age.max(corrected_age_value)
}

/// Statuses that a cache may keep without explicit freshness (RFC 9110 §15.1), but for 206, which is not stored here.
pub const fn is_heuristically_cacheable(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

fn capped(s: u64, max: u32) -> u32 {
    s.min(u64::from(max)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::test_heads::{date, with_response};

    const NOW: u64 = 1_800_000_000;

    fn dates_of(headers: &str) -> Dates {
        with_response("200 OK", headers, |head| Dates::of(&head.headers))
    }

    #[test]
    fn dates_in_all_three_formats() {
        for value in
            ["Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"]
        {
            assert_eq!(dates_of(&format!("Date: {value}")).date_s, Some(784_111_777), "{value}");
        }
        // RFC 9111 §4.2: in any case of letters. The weekday says nothing that the date does not.
        for value in [
            "SUN, 06 NOV 1994 08:49:37 gMT",
            "sun, 06 nov 1994 08:49:37 GMT",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "SATURDAY, 06-NOV-94 08:49:37 gmt",
            "tue NOV  6 08:49:37 1994",
        ] {
            assert_eq!(dates_of(&format!("Date: {value}")).date_s, Some(784_111_777), "{value}");
        }
        for value in
            ["Xun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06 Nov 1994 08:49:37 GMT", "Sun", "sun, ß Nov"]
        {
            assert_eq!(dates_of(&format!("Date: {value}")).date_s, None, "{value}");
        }
        for value in ["", "0", "-1", "Sun, 06 Nov 1994 08:49:37", "Sun, 06 Nov 1994 08:49:37 UTC", "x\u{e9}"]
        {
            assert_eq!(dates_of(&format!("Date: {value}")).date_s, None, "{value}");
            assert_eq!(dates_of(&format!("Expires: {value}")).expires_s, Some(0), "{value}: already expired");
        }
    }

    #[test]
    fn repeated_fields() {
        let (a, b) = (date(NOW), date(NOW + 5));
        assert_eq!(dates_of(&format!("Expires: {a}\nExpires: {a}")).expires_s, Some(NOW));
        assert_eq!(dates_of(&format!("Expires: {a}\nExpires: {b}")).expires_s, Some(0));
        assert_eq!(dates_of(&format!("Date: {a}\nDate: {b}")).date_s, None);
        // RFC 9111 §5.1: of a list the first member; what is no number is ignored.
        for (age, want) in [
            ("7", 7),
            ("7, 9", 7),
            ("7\nAge: 9", 7),
            ("abc", 0),
            ("-7", 0),
            ("7.0", 0),
            ("99999999999", 1 << 31),
        ] {
            assert_eq!(dates_of(&format!("Age: {age}")).age_s, want, "{age}");
        }
    }

    #[test]
    fn the_strongest_source_counts() {
        let directives = |s_maxage, max_age| ResponseDirectives { s_maxage, max_age, ..Default::default() };
        let none = directives(Seconds::Absent, Seconds::Absent);
        let dates = Dates {
            date_s: Some(NOW),
            last_modified_s: Some(NOW - 1000),
            expires_s: Some(NOW + 70),
            age_s: 0,
        };
        let lm_only = Dates { expires_s: None, ..dates };
        let of = |d: &ResponseDirectives, dates: &Dates| lifetime(d, dates, true, true, 5, NOW);
        assert_eq!(of(&directives(Seconds::Of(9), Seconds::Of(8)), &dates), Some((9, Source::SMaxAge)));
        assert_eq!(of(&directives(Seconds::Absent, Seconds::Of(8)), &dates), Some((8, Source::MaxAge)));
        assert_eq!(of(&directives(Seconds::Absent, Seconds::Of(0)), &dates), Some((0, Source::MaxAge)));
        assert_eq!(of(&directives(Seconds::Invalid, Seconds::Of(8)), &dates), Some((0, Source::SMaxAge)));
        assert_eq!(of(&none, &dates), Some((70, Source::Expires)));
        assert_eq!(of(&none, &Dates { expires_s: Some(NOW - 1), ..dates }), Some((0, Source::Expires)));
        assert_eq!(of(&none, &Dates { expires_s: Some(0), ..dates }), Some((0, Source::Expires)));
        assert_eq!(of(&none, &lm_only), Some((100, Source::Heuristic)));
        assert_eq!(lifetime(&none, &dates, false, true, 5, NOW), Some((100, Source::Heuristic)));
        assert_eq!(lifetime(&none, &lm_only, true, false, 5, NOW), None);
        let changed_later = Dates { last_modified_s: Some(NOW + 1), ..lm_only };
        assert_eq!(of(&none, &changed_later), Some((5, Source::DefaultTtl)));
        assert_eq!(lifetime(&none, &changed_later, true, true, 0, NOW), None);
        let just_now = Dates { last_modified_s: Some(NOW - 9), ..lm_only };
        assert_eq!(of(&none, &just_now), Some((5, Source::DefaultTtl)));
        assert_eq!(lifetime(&none, &just_now, true, true, 0, NOW), None);
        let ancient = Dates { last_modified_s: Some(0), ..lm_only };
        assert_eq!(of(&none, &ancient), Some((HEURISTIC_LIFETIME_S_MAX, Source::Heuristic)));
    }

    #[test]
    fn without_date_the_time_of_arrival_counts() {
        let none = ResponseDirectives::default();
        let dates = Dates { expires_s: Some(NOW + 30), ..Default::default() };
        assert_eq!(lifetime(&none, &dates, true, true, 0, NOW), Some((30, Source::Expires)));
        assert_eq!(initial_age_s(&dates, Times { request_s: NOW - 2, response_s: NOW }), 2);
    }

    #[test]
    fn age_on_arrival() {
        let times = Times { request_s: NOW - 3, response_s: NOW };
        let of = |date_s, age_s| {
            initial_age_s(&Dates { date_s: Some(date_s), age_s, ..Default::default() }, times)
        };
        assert_eq!(of(NOW, 0), 3, "the delay counts in full");
        assert_eq!(of(NOW, 10), 13);
        assert_eq!(of(NOW - 50, 10), 50, "an old Date counts");
        assert_eq!(of(NOW + 50, 10), 13, "a Date in the future does not");
        assert_eq!(current_age_s(NOW - 13, NOW + 7), 20);
        assert_eq!(current_age_s(NOW, NOW - 1), 0);
    }
}
