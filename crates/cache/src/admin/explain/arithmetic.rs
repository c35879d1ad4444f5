//! The freshness calculation in words, for example `lifetime 600 s (max-age) - age 42 s (32 s since its Date
//! + 10 s initial age) = fresh for another 558 s`.

use std::time::{Duration, UNIX_EPOCH};

use crate::{
    head::response_head::{Flags, StoredMeta},
    policy::{ResponseFacts, Source, directives::Seconds},
};

/// Finds the rule that gave a stored answer its lifetime, from its stored head. `None` if the lifetime came
/// from a configuration or a head that has changed since.
pub(super) fn source(
    facts: &ResponseFacts,
    meta: &StoredMeta,
    default_ttl_s: u32,
    path_ttl_s: Option<u32>,
) -> Option<Source> {
    if facts.directives.no_cache {
        return (meta.lifetime_s == 0).then_some(Source::NoCache);
    }
    // A lifetime set by the operator counts from the answer's arrival.
    let is_of = |ttl_s: u32| ttl_s.saturating_add(u32::from(meta.arrived_age_s)) == meta.lifetime_s;
    if path_ttl_s.is_some_and(is_of) {
        return Some(Source::Path);
    }
    let found = facts.lifetime(default_ttl_s, meta.date_s).filter(|(lifetime_s, source)| {
        if source.is_operators() { is_of(*lifetime_s) } else { *lifetime_s == meta.lifetime_s }
    });
    found.map(|(_, source)| source)
}

/// Formats the freshness calculation as text. `meta` is as stored; `lifetime_s` is the lifetime after purges
/// were applied.
pub(super) fn sum(meta: &StoredMeta, source: Option<Source>, lifetime_s: u32, now_s: u64) -> String {
    let by = match source {
        None => "decided when it was stored".to_owned(),
        Some(source) if source.is_operators() && meta.arrived_age_s > 0 => {
            let ttl_s = meta.lifetime_s - u32::from(meta.arrived_age_s).min(meta.lifetime_s);
            format!("{}, {ttl_s} s from its arrival", source.name())
        }
        Some(source) => source.name().to_owned(),
    };
    let ended = match lifetime_s == meta.lifetime_s {
        true => String::new(),
        false => format!(", ended by a purge after {lifetime_s} s"),
    };
    let age_s = meta.age_s(now_s);
    // The answer's age was 0 at `born_s`, which is before its `Date` if a cache in front of the origin had
    // stored the answer, or the origin was slow.
    let of_it = match (meta.date_s.checked_sub(meta.born_s), now_s.checked_sub(meta.date_s)) {
        (Some(before_s), Some(since_s)) if before_s > 0 => {
            format!(" ({since_s} s since its Date + {before_s} s initial age)")
        }
        _ => String::new(),
    };
    let left = match u64::from(lifetime_s).checked_sub(age_s).filter(|left_s| *left_s > 0) {
        Some(left_s) => format!("fresh for another {left_s} s"),
        None => format!("stale for {} s", age_s - u64::from(lifetime_s)),
    };
    let left = if meta.was_late() { format!("{left}; expired on arrival") } else { left };
    format!("lifetime {} s ({by}){ended} - age {age_s} s{of_it} = {left}", meta.lifetime_s)
}

/// Returns the time until which the object may be served stale, and the directive or option that allows it.
pub(super) fn stale_deadline(
    facts: Option<&ResponseFacts>,
    meta: &StoredMeta,
) -> (&'static str, String, &'static str) {
    let window = |s: u32, said: Option<Seconds>, directive: &str, knob: &str| {
        let by = if said.and_then(Seconds::said) == Some(s) { directive } else { knob };
        let until = date(meta.fresh_until_s() + u64::from(s));
        (s > 0).then(|| format!("until {until} ({by}, {s} s)"))
    };
    let directives = facts.map(|facts| &facts.directives);
    let while_fetched = window(
        meta.stale_while_revalidate_s,
        directives.map(|said| said.stale_while_revalidate),
        "stale-while-revalidate",
        "knob grace",
    );
    let if_error = window(
        meta.stale_if_error_s,
        directives.map(|said| said.stale_if_error),
        "stale-if-error",
        "knob stale-if-error",
    );
    match (while_fetched, if_error) {
        (None, None) if meta.flags.has(Flags::MUST_REVALIDATE) => {
            ("never", "never served stale".to_owned(), "RFC 9111 §4.2.4")
        }
        (None, None) => {
            ("never", "no directive allows it to be served stale".to_owned(), "knobs grace, stale-if-error")
        }
        (Some(while_fetched), None) => {
            ("allowed", format!("served while it is refreshed, {while_fetched}"), "RFC 5861 §3")
        }
        (None, Some(if_error)) => {
            ("allowed", format!("served if the origin fails, {if_error}"), "RFC 5861 §4")
        }
        (Some(while_fetched), Some(if_error)) => (
            "allowed",
            format!("served while it is refreshed, {while_fetched}, and if the origin fails, {if_error}"),
            "RFC 5861 §3, §4",
        ),
    }
}

/// Formats a time as an HTTP date.
pub(super) fn date(s: u64) -> String {
    // The year of an HTTP date has four digits.
    const YEAR_9999_END_S: u64 = 253_402_300_799;
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(s.min(YEAR_9999_END_S)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{head::response_head::BLANK, policy::test_heads::with_response};

    const BORN_S: u64 = 1_800_000_000;

    #[test]
    fn the_sum_is_written_out() {
        let stored = StoredMeta { born_s: BORN_S, date_s: BORN_S, lifetime_s: 600, status: 200, ..BLANK };
        let aged = StoredMeta { date_s: BORN_S + 10, ..stored };
        let ahead = StoredMeta { date_s: BORN_S + 99, ..stored };
        for (meta, source, lifetime_s, age_s, want) in [
            (
                stored,
                Some(Source::MaxAge),
                600,
                42,
                "lifetime 600 s (max-age) - age 42 s = fresh for another 558 s",
            ),
            (
                aged,
                Some(Source::Expires),
                600,
                42,
                "lifetime 600 s (expires) - age 42 s (32 s since its Date + 10 s initial age) \
                 = fresh for another 558 s",
            ),
            (
                ahead,
                Some(Source::MaxAge),
                600,
                42,
                "lifetime 600 s (max-age) - age 42 s = fresh for another 558 s",
            ),
            (
                stored,
                None,
                600,
                599,
                "lifetime 600 s (decided when it was stored) - age 599 s = fresh for another 1 s",
            ),
            (stored, Some(Source::MaxAge), 600, 600, "lifetime 600 s (max-age) - age 600 s = stale for 0 s"),
            (
                stored,
                Some(Source::MaxAge),
                20,
                42,
                "lifetime 600 s (max-age), ended by a purge after 20 s - age 42 s = stale for 22 s",
            ),
        ] {
            assert_eq!(sum(&meta, source, lifetime_s, BORN_S + age_s), want);
        }
    }

    #[test]
    fn the_lifetime_source_is_found_in_the_head() {
        let meta = StoredMeta { date_s: BORN_S, lifetime_s: 60, status: 200, ..BLANK };
        let date = date(BORN_S);
        for (lines, default_ttl_s, want) in [
            ("Cache-Control: max-age=60", 0, Some(Source::MaxAge)),
            ("Cache-Control: max-age=5, s-maxage=60", 0, Some(Source::SMaxAge)),
            ("CDN-Cache-Control: max-age=60\nCache-Control: no-store", 0, Some(Source::MaxAge)),
            ("", 60, Some(Source::DefaultTtl)),
            // The default lifetime had another value when the answer was stored.
            ("", 10, None),
            ("Cache-Control: max-age=61", 0, None),
            ("Cache-Control: no-cache", 0, None),
        ] {
            let found = with_response("200 OK", &format!("Date: {date}\n{lines}"), |head| {
                source(&ResponseFacts::of(head, true), &meta, default_ttl_s, None)
            });
            assert_eq!(found, want, "{lines}");
        }
    }

    #[test]
    fn until_when_it_may_be_stale_and_why() {
        let meta = StoredMeta { born_s: BORN_S, lifetime_s: 60, status: 200, ..BLANK };
        let said = |meta: StoredMeta| {
            with_response("200 OK", "Cache-Control: max-age=60, stale-while-revalidate=30", |head| {
                stale_deadline(Some(&ResponseFacts::of(head, true)), &meta)
            })
        };
        assert_eq!(said(meta).0, "never");
        let (_, words, section) = said(StoredMeta { flags: Flags::MUST_REVALIDATE, ..meta });
        assert_eq!((&*words, section), ("never served stale", "RFC 9111 §4.2.4"));
        let (_, words, _) = said(StoredMeta { stale_while_revalidate_s: 30, stale_if_error_s: 600, ..meta });
        let (first, second) = (date(BORN_S + 90), date(BORN_S + 660));
        assert_eq!(
            words,
            format!(
                "served while it is refreshed, until {first} (stale-while-revalidate, 30 s), and if the origin \
                 fails, until {second} (knob stale-if-error, 600 s)"
            )
        );
    }
}
