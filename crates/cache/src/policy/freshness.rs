//! Freshness lifetime of a response, and its age on arrival (RFC 9111 §4.2).

use wire::http1::{
    fields::{DELTA_SECONDS_MAX, delta_seconds, list},
    head::Headers,
    known::KnownHeader,
};

use super::{
    directives::{ResponseDirectives, Seconds},
    http_date_s,
};

/// Divisor of the heuristic freshness: a response without explicit freshness is fresh for a tenth of the time
/// since its last change (RFC 9111 §4.2.2 names 10% as typical).
const HEURISTIC_PART: u64 = 10;

/// Longest heuristic freshness: a day. (RFC 7234 §5.5.4 asked for a warning beyond that; a page that was last
/// changed ten years ago should not be kept for a year unless its origin says so.)
pub const HEURISTIC_LIFETIME_S_MAX: u32 = 24 * 60 * 60;

/// Times of the exchange with the origin, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Time at which the request was sent.
    pub request_s: u64,
    /// Time at which the response's head had arrived.
    pub response_s: u64,
}

/// Source of a response's freshness, the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// `s-maxage` (RFC 9111 §5.2.2.10), taken from `CDN-Cache-Control` if that occurs.
    SMaxAge,
    /// `max-age` (RFC 9111 §5.2.2.1), taken from `CDN-Cache-Control` if that occurs.
    MaxAge,
    /// `Expires` minus `Date` (RFC 9111 §5.3).
    Expires,
    /// A tenth of the time since `Last-Modified` (RFC 9111 §4.2.2).
    Heuristic,
    /// The setting `default-ttl`, because the response states no freshness.
    DefaultTtl,
    /// A rule of the site for the path, which overrides the response.
    Path,
    /// `no-cache` (RFC 9111 §5.2.2.4): no freshness, whatever else the response says.
    NoCache,
}

impl Source {
    /// Returns whether the origin stated the freshness.
    pub const fn is_explicit(self) -> bool {
        matches!(self, Source::SMaxAge | Source::MaxAge | Source::Expires | Source::NoCache)
    }

    /// Returns whether the operator stated the lifetime, which then counts from the arrival of the response.
    pub const fn is_operators(self) -> bool {
        matches!(self, Source::DefaultTtl | Source::Path)
    }

    /// Stable name, for `explain`.
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

    /// Section of the RFC, or name of the setting, that states the rule.
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

/// Freshness of a response that may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freshness {
    /// Freshness lifetime, counted from age 0; at most 2³¹ s. With 0 the response is validated before each
    /// use.
    pub lifetime_s: u32,
    /// Age on arrival (`corrected_initial_age`, RFC 9111 §4.2.3).
    pub initial_age_s: u32,
    /// Source of the lifetime.
    pub source: Source,
    /// The response may never be served stale (RFC 9111 §4.2.4), not even to a client that accepts it.
    pub must_revalidate: bool,
    /// Time for which the stale response may be served while it is refreshed (RFC 5861 §3).
    pub stale_while_revalidate_s: u32,
    /// Time for which the stale response may be served if the origin fails (RFC 5861 §4).
    pub stale_if_error_s: u32,
    /// The response has a validator for revalidation.
    pub has_validator: bool,
    /// The response has fields that may not be stored (`private="…"`, `no-cache="…"`). The client whose
    /// request was forwarded gets them; later clients do not.
    pub omits_fields: bool,
    /// The response may answer visitors with cookies, according to the rule in effect when it was judged.
    pub for_cookies: bool,
    /// The response itself says that visitors with cookies may share it, or by which cookies it differs.
    pub said_for_all: bool,
    /// The response says `public` or `s-maxage`, so it may also be shared by clients whose identity the
    /// origin learns.
    pub for_all: bool,
}

impl Freshness {
    /// Returns the freshness that is left on arrival.
    pub const fn ttl_s(&self) -> u32 {
        self.lifetime_s.saturating_sub(self.initial_age_s)
    }

    /// Returns the time at which the age was 0, from which [`current_age_s`] counts.
    pub const fn born_s(&self, response_s: u64) -> u64 {
        response_s.saturating_sub(self.initial_age_s as u64)
    }

    /// Returns the first second in which the response is stale.
    pub const fn stale_at_s(&self, response_s: u64) -> u64 {
        self.born_s(response_s).saturating_add(self.lifetime_s as u64)
    }

    /// Returns the first second in which the response is useless. A response with a validator is kept for
    /// `keep_s` after it has become stale.
    pub fn kept_until_s(&self, response_s: u64, keep_s: u32) -> u64 {
        let keep_s = if self.has_validator { keep_s } else { 0 };
        let longest_s = keep_s.max(self.stale_while_revalidate_s).max(self.stale_if_error_s);
        self.stale_at_s(response_s).max(response_s).saturating_add(u64::from(longest_s))
    }
}

/// Returns `current_age` (RFC 9111 §4.2.3). After the clock was set back, the age is at least 0.
#[inline]
pub const fn current_age_s(born_s: u64, now_s: u64) -> u64 {
    now_s.saturating_sub(born_s)
}

/// Times stated by a response, parsed once. Malformed dates other than `Expires` count as absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dates {
    /// `Date` (RFC 9110 §6.6.1).
    pub date_s: Option<u64>,
    /// `Last-Modified` (RFC 9110 §8.8.2).
    pub last_modified_s: Option<u64>,
    /// `Expires` (RFC 9111 §5.3); `Some(0)` if it is malformed or contradictory, which means *already
    /// expired*.
    pub expires_s: Option<u64>,
    /// `Age` (RFC 9111 §5.1): the first value of several; 0 if it is malformed.
    pub age_s: u32,
}

impl Dates {
    /// Parses the times in a response's headers.
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

/// Sources of a lifetime that apply to a response without `s-maxage` and `max-age`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FallbackSources {
    /// `Expires` counts: no targeted field replaces it (RFC 9213 §2.2).
    pub expires: bool,
    /// The status, or `public`, allows a heuristic (RFC 9111 §4.2.2).
    pub heuristic: bool,
}

/// Returns `freshness_lifetime` for a shared cache and its source (RFC 9111 §4.2.1); `None` if there is none.
pub fn lifetime(
    directives: &ResponseDirectives,
    dates: &Dates,
    fallback: FallbackSources,
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
    if let Some(expires_s) = dates.expires_s.filter(|_| fallback.expires) {
        return Some((capped(expires_s.saturating_sub(date_s), DELTA_SECONDS_MAX), Source::Expires));
    }
    if !fallback.heuristic {
        return None;
    }
    // A Last-Modified after Date comes from a wrong clock and is ignored.
    let unchanged_s = dates.last_modified_s.and_then(|last_modified_s| date_s.checked_sub(last_modified_s));
    // A response that is generated for each request, or has just changed, gives no basis for a heuristic.
    if let Some(lifetime_s) = unchanged_s.map(|s| s / HEURISTIC_PART).filter(|&s| s > 0) {
        return Some((capped(lifetime_s, HEURISTIC_LIFETIME_S_MAX), Source::Heuristic));
    }
    (default_ttl_s > 0).then_some((default_ttl_s.min(DELTA_SECONDS_MAX), Source::DefaultTtl))
}

/// Returns `corrected_initial_age` (RFC 9111 §4.2.3).
pub fn initial_age_s(dates: &Dates, times: Times) -> u64 {
    let apparent_age = dates.date_s.map_or(0, |date_s| times.response_s.saturating_sub(date_s));
    let response_delay = times.response_s.saturating_sub(times.request_s);
    let corrected_age_value = u64::from(dates.age_s) + response_delay;
    apparent_age.max(corrected_age_value)
}

/// Returns whether a response with this status may be stored without explicit freshness (RFC 9110 §15.1).
/// Excludes 206, which is not stored here.
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
    const ALL: FallbackSources = FallbackSources { expires: true, heuristic: true };

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
        // RFC 9111 §4.2: case is ignored. The weekday adds nothing to the date.
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
        // RFC 9111 §5.1: the first member of a list counts; anything but a number is ignored.
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
        let of = |d: &ResponseDirectives, dates: &Dates| lifetime(d, dates, ALL, 5, NOW);
        assert_eq!(of(&directives(Seconds::Of(9), Seconds::Of(8)), &dates), Some((9, Source::SMaxAge)));
        assert_eq!(of(&directives(Seconds::Absent, Seconds::Of(8)), &dates), Some((8, Source::MaxAge)));
        assert_eq!(of(&directives(Seconds::Absent, Seconds::Of(0)), &dates), Some((0, Source::MaxAge)));
        assert_eq!(of(&directives(Seconds::Invalid, Seconds::Of(8)), &dates), Some((0, Source::SMaxAge)));
        assert_eq!(of(&none, &dates), Some((70, Source::Expires)));
        assert_eq!(of(&none, &Dates { expires_s: Some(NOW - 1), ..dates }), Some((0, Source::Expires)));
        assert_eq!(of(&none, &Dates { expires_s: Some(0), ..dates }), Some((0, Source::Expires)));
        assert_eq!(of(&none, &lm_only), Some((100, Source::Heuristic)));
        assert_eq!(
            lifetime(&none, &dates, FallbackSources { expires: false, ..ALL }, 5, NOW),
            Some((100, Source::Heuristic))
        );
        assert_eq!(lifetime(&none, &lm_only, FallbackSources { heuristic: false, ..ALL }, 5, NOW), None);
        let changed_later = Dates { last_modified_s: Some(NOW + 1), ..lm_only };
        assert_eq!(of(&none, &changed_later), Some((5, Source::DefaultTtl)));
        assert_eq!(lifetime(&none, &changed_later, ALL, 0, NOW), None);
        let just_now = Dates { last_modified_s: Some(NOW - 9), ..lm_only };
        assert_eq!(of(&none, &just_now), Some((5, Source::DefaultTtl)));
        assert_eq!(lifetime(&none, &just_now, ALL, 0, NOW), None);
        let ancient = Dates { last_modified_s: Some(0), ..lm_only };
        assert_eq!(of(&none, &ancient), Some((HEURISTIC_LIFETIME_S_MAX, Source::Heuristic)));
    }

    #[test]
    fn without_date_the_time_of_arrival_counts() {
        let none = ResponseDirectives::default();
        let dates = Dates { expires_s: Some(NOW + 30), ..Default::default() };
        assert_eq!(lifetime(&none, &dates, ALL, 0, NOW), Some((30, Source::Expires)));
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
