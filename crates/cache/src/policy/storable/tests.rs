use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::config::ClientRule;
use crate::policy::{
    Source,
    test_heads::{date, with_request, with_response},
};

const NOW: u64 = 1_800_000_000;
const TIMES: Times = Times { request_s: NOW, response_s: NOW };
const SAFE: StoreRules = StoreRules {
    cookies: CookieRule::Safe,
    removes_set_cookie: false,
    default_ttl_s: 0,
    grace_s: 0,
    stale_if_error_s: 0,
};
const RFC: StoreRules = StoreRules { cookies: CookieRule::Rfc, ..SAFE };
const STRICT: StoreRules = StoreRules { cookies: CookieRule::Strict, ..SAFE };

/// Under the strict rule, an answer to a visitor with a cookie is stored only if it says that it is for all;
/// an answer to another visitor is stored with a flag that says whether visitors with cookies may get it.
#[test]
fn the_strict_rule_asks_for_a_word() {
    for (response, is_for_cookies) in [
        ("Cache-Control: max-age=9", false),
        ("Cache-Control: max-age=9, must-revalidate", false),
        ("Cache-Control: max-age=9\nVary: Accept, Cookies", false),
        ("Cache-Control: max-age=9, public", true),
        ("Cache-Control: s-maxage=9", true),
        ("CDN-Cache-Control: max-age=9", true),
        ("Cache-Control: max-age=9\nVary: Accept, COOKIE", true),
    ] {
        let with_cookie = ask("GET /", "Cookie: a=1", "200 OK", response, STRICT);
        let without = ask("GET /", "", "200 OK", response, STRICT);
        assert_eq!(matches!(with_cookie, Storable::Yes(_)), is_for_cookies, "{response}");
        assert!(matches!(without, Storable::Yes(fresh) if fresh.for_cookies == is_for_cookies), "{response}");
    }
    let sets = ask("GET /", "", "200 OK", "Cache-Control: s-maxage=9\nSet-Cookie: a=1", STRICT);
    assert_eq!(sets, Storable::No(Why::SetCookie));
}

fn ask(line: &str, request: &str, status: &str, response: &str, rules: StoreRules) -> Storable {
    with_request(line, request, |request| {
        with_response(status, response, |response| {
            let (request, response) =
                (RequestFacts::of(request, false, ClientRule::Obey), ResponseFacts::of(response, true));
            storable(&request, &response, &rules, TIMES)
        })
    })
}

/// Judges the response to a client whose certificate the origin is told about.
fn ask_known(response: &str) -> Storable {
    with_request("GET /", "", |request| {
        with_response("200 OK", response, |response| {
            let request = RequestFacts::of(request, false, ClientRule::Obey);
            let request = RequestFacts { certificate: true, ..request };
            storable(&request, &ResponseFacts::of(response, true), &SAFE, TIMES)
        })
    })
}

/// An answer to a client with a certificate is stored only if its origin says that it is for all.
#[test]
fn a12_certificate_answers_need_permission_to_be_stored() {
    for (response, is_for_all) in [
        ("Cache-Control: max-age=9", false),
        ("Cache-Control: max-age=9, must-revalidate", false),
        ("CDN-Cache-Control: max-age=9", false),
        ("Cache-Control: max-age=9, public", true),
        ("Cache-Control: s-maxage=9", true),
    ] {
        let is_stored = matches!(ask_known(response), Storable::Yes(fresh) if fresh.for_all);
        assert_eq!(is_stored, is_for_all, "{response}");
    }
}

/// Returns the result for the response to a plain GET: the source and length of its freshness, or the reason
/// why it is not stored.
fn outcome(status: &str, response: &str) -> Result<(Source, u32), Why> {
    match ask("GET /", "", status, response, SAFE) {
        Storable::Yes(freshness) => Ok((freshness.source, freshness.ttl_s())),
        Storable::No(why) => Err(why),
    }
}

/// Every reason occurs in a table of exchanges, at least once.
#[test]
fn every_reason_is_reached() {
    let mut reached = HashSet::new();
    for (line, request, status, response, rules, why) in [
        ("HEAD /", "", "200 OK", "Cache-Control: max-age=9", SAFE, Why::Method),
        ("POST /", "", "200 OK", "Cache-Control: max-age=9", SAFE, Why::Method),
        ("GET /", "Cache-Control: no-store", "200 OK", "Cache-Control: max-age=9", SAFE, Why::RequestNoStore),
        ("GET /", "", "304 Not Modified", "Cache-Control: max-age=9", SAFE, Why::Status),
        ("GET /", "", "103 Early Hints", "Cache-Control: max-age=9", SAFE, Why::Status),
        ("GET /", "", "206 Partial Content", "Cache-Control: max-age=9", SAFE, Why::Partial),
        ("GET /", "", "299 Odd", "Cache-Control: max-age=9, must-understand", SAFE, Why::MustUnderstand),
        ("GET /", "", "200 OK", "Cache-Control: max-age=9, no-store", SAFE, Why::NoStore),
        ("GET /", "", "200 OK", "Cache-Control: max-age=9\nCDN-Cache-Control: no-store", SAFE, Why::NoStore),
        ("GET /", "", "200 OK", "Cache-Control: private, max-age=9", SAFE, Why::Private),
        ("GET /", "", "200 OK", "Cache-Control: max-age=9\nCDN-Cache-Control: private", SAFE, Why::Private),
        ("GET /", "", "200 OK", "Cache-Control: no-cache, max-age=9", SAFE, Why::NoCache),
        ("GET /", "", "200 OK", "Cache-Control: max-age=9\nVary: *", SAFE, Why::VaryAny),
        ("GET /", "", "200 OK", "Cache-Control: max-age=9\nVary: a b", SAFE, Why::VaryMalformed),
        (
            "GET /",
            "",
            "200 OK",
            "Cache-Control: max-age=9\nVary: a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q",
            SAFE,
            Why::VaryTooLarge,
        ),
        (
            "GET /",
            "Authorization: Basic eDp5",
            "200 OK",
            "Cache-Control: max-age=9",
            SAFE,
            Why::Authorization,
        ),
        ("GET /", "Authorization: Basic eDp5", "200 OK", "Cache-Control: max-age=9", RFC, Why::Authorization),
        ("GET /", "", "200 OK", "Cache-Control: max-age=9\nSet-Cookie: a=b", SAFE, Why::SetCookie),
        ("GET /", "", "500 Oops", "", SAFE, Why::NoFreshness),
        ("GET /", "", "302 Found", "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT", SAFE, Why::NoFreshness),
        ("GET /", "", "200 OK", "", SAFE, Why::NoFreshness),
        ("GET /", "", "200 OK", "CDN-Cache-Control: foo\nCache-Control: max-age=9", SAFE, Why::NoFreshness),
        ("GET /", "Cookie: a=b", "200 OK", "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT", SAFE, Why::Cookie),
        ("GET /", "", "200 OK", "Cache-Control: max-age=0", SAFE, Why::Expired),
        ("GET /", "", "200 OK", "Cache-Control: max-age=9\nAge: 9", SAFE, Why::Expired),
        (
            "GET /",
            "Cookie: a=b",
            "200 OK",
            "Expires: 0\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT",
            SAFE,
            Why::Cookie,
        ),
        (
            "GET /",
            "",
            "404 Not Found",
            "Expires: 0\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT",
            SAFE,
            Why::Expired,
        ),
        ("GET /", "", "200 OK", "Cache-Control: max-age=9, s-maxage=oops", SAFE, Why::Expired),
    ] {
        assert_eq!(ask(line, request, status, response, rules), Storable::No(why), "{request} / {response}");
        reached.insert(why);
    }
    assert_eq!(ask_known("Cache-Control: max-age=9, must-revalidate"), Storable::No(Why::Certificate));
    reached.insert(Why::Certificate);
    // Other modules report these reasons: tags are parsed where they are hashed, variants and queries are
    // counted where they are stored, and the sites know which fields carry a client's certificate.
    reached.extend([Why::TooManyTags, Why::TooManyVariants, Why::TooManyQueries, Why::VaryCertificate]);
    for &why in Why::ALL {
        assert!(reached.contains(&why), "{why:?} is not reached");
    }
}

#[test]
fn reasons_have_stable_names_that_are_tokens() {
    let mut names = HashSet::new();
    for &why in Why::ALL {
        assert!(names.insert(why.name()));
        assert!(why.name().bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{}", why.name());
        assert!(!why.words().ends_with('.') && !why.section().is_empty());
    }
}

#[test]
fn explicit_freshness_makes_any_final_status_storable() {
    for status in [200, 203, 204, 299, 301, 302, 303, 307, 308, 400, 404, 410, 499, 500, 502, 503, 504, 599] {
        let said = outcome(&format!("{status} X"), "Cache-Control: max-age=3600");
        assert_eq!(said, Ok((Source::MaxAge, 3600)), "{status}");
    }
}

/// Cases `heuristic-*` of the public test suite for RFC 9111.
#[test]
fn a_guess_needs_the_status_or_public() {
    let yesterday = format!("Last-Modified: {}\nDate: {}", date(NOW - 86_400), date(NOW));
    for (status, guessed) in [
        (200, true),
        (201, false),
        (202, false),
        (203, true),
        (204, true),
        (300, true),
        (301, true),
        (302, false),
        (308, true),
        (403, false),
        (404, true),
        (405, true),
        (410, true),
        (414, true),
        (501, true),
        (502, false),
        (503, false),
        (504, false),
        (599, false),
    ] {
        let want = if guessed { Ok((Source::Heuristic, 8640)) } else { Err(Why::NoFreshness) };
        assert_eq!(outcome(&format!("{status} X"), &yesterday), want, "{status}");
        let public = format!("{yesterday}\nCache-Control: public");
        assert_eq!(
            outcome(&format!("{status} X"), &public),
            Ok((Source::Heuristic, 8640)),
            "{status} public"
        );
    }
}

#[test]
fn must_understand_outweighs_no_store() {
    let said = outcome("200 OK", "Cache-Control: max-age=9, must-understand, no-store");
    assert_eq!(said, Ok((Source::MaxAge, 9)));
}

#[test]
fn targeted_directives_take_the_place_of_all_others() {
    for (headers, want) in [
        ("Cache-Control: no-store\nCDN-Cache-Control: max-age=60", Ok((Source::MaxAge, 60))),
        ("Cache-Control: max-age=1\nCDN-Cache-Control: max-age=60", Ok((Source::MaxAge, 60))),
        ("Cache-Control: max-age=60\nCDN-Cache-Control: max-age=1", Ok((Source::MaxAge, 1))),
        ("Expires: 0\nCDN-Cache-Control: max-age=60", Ok((Source::MaxAge, 60))),
        ("Cache-Control: no-store\nCDN-Cache-Control: max-age=\"60\"", Err(Why::NoStore)),
        ("Cache-Control: no-store\nCDN-Cache-Control: max-age=60, &&&&&", Err(Why::NoStore)),
        ("Set-Cookie: a=b\nCDN-Cache-Control: max-age=60", Err(Why::SetCookie)),
        ("Set-Cookie: a=b\nCDN-Cache-Control: max-age=\"60\"\nCache-Control: max-age=5", Err(Why::SetCookie)),
    ] {
        assert_eq!(outcome("200 OK", headers), want, "{headers}");
    }
    let future = format!("Expires: {}\nCDN-Cache-Control: max-age=0", date(NOW + 99));
    assert_eq!(outcome("200 OK", &future), Err(Why::Expired));
}

/// A response to a request with credentials is stored only if it allows that (RFC 9111 §3.5).
#[test]
fn credentials_need_leave() {
    for (directive, stored) in [
        ("max-age=60, public", true),
        ("max-age=60, must-revalidate", true),
        ("s-maxage=60", true),
        ("max-age=60", false),
        ("max-age=60, proxy-revalidate", false),
    ] {
        let said =
            ask("GET /", "Authorization: Bearer x", "200 OK", &format!("Cache-Control: {directive}"), SAFE);
        assert_eq!(matches!(said, Storable::Yes(_)), stored, "{directive}");
    }
}

/// Results of the `safe` and `rfc` rules for each combination of cookies.
#[test]
fn cookie_answers_follow_the_safe_or_rfc_rule() {
    let heuristic = format!("Last-Modified: {}\nDate: {}", date(NOW - 1000), date(NOW));
    let expires = format!("Expires: {}", date(NOW + 60));
    for (request, response, safe, rfc) in [
        ("", "Set-Cookie: s=1\nCache-Control: max-age=60", false, true),
        ("", "Set-Cookie: s=1\nCache-Control: s-maxage=60", false, true),
        ("", "Set-Cookie: s=1\nCache-Control: public, max-age=60", false, true),
        ("", "Set-Cookie: s=1\nCDN-Cache-Control: public, max-age=60", false, true),
        ("", "Set-Cookie: s=1\nCache-Control: no-cache=\"set-cookie\", max-age=60", false, true),
        ("", "Set-Cookie: s=1\nCache-Control: private=\"Set-Cookie\", max-age=60", false, true),
        ("", "Set-Cookie: s=1\nCache-Control: private=\"other\", max-age=60", false, true),
        ("Cookie: s=1", "Cache-Control: max-age=60", true, true),
        ("Cookie: s=1", &expires, true, true),
        ("Cookie: s=1", &heuristic, false, true),
        ("Cookie: s=1", &format!("{heuristic}\nCache-Control: public"), false, true),
        ("Cookie: s=1", "Set-Cookie: s=2\nCache-Control: max-age=60", false, true),
    ] {
        for (rules, stored) in [(SAFE, safe), (RFC, rfc)] {
            let said = ask("GET /", request, "200 OK", response, rules);
            assert_eq!(matches!(said, Storable::Yes(_)), stored, "{rules:?} {request} / {response}");
        }
    }
    for rules in [SAFE, STRICT] {
        let removed = StoreRules { removes_set_cookie: true, ..rules };
        let public = "Set-Cookie: s=1\nCache-Control: public, max-age=60";
        assert!(matches!(ask("GET /", "", "200 OK", public, removed), Storable::Yes(_)));
        let private = "Set-Cookie: s=1\nCache-Control: private";
        assert_eq!(ask("GET /", "", "200 OK", private, removed), Storable::No(Why::Private));
    }
    let default_ttl = StoreRules { default_ttl_s: 60, ..SAFE };
    assert_eq!(ask("GET /", "Cookie: s=1", "200 OK", "", default_ttl), Storable::No(Why::Cookie));
    assert!(matches!(ask("GET /", "", "200 OK", "", default_ttl), Storable::Yes(_)));
    assert_eq!(ask("GET /", "", "500 Oops", "", default_ttl), Storable::No(Why::NoFreshness));
}

#[test]
fn flags_of_freshness() {
    let freshness = |response: &str| match ask("GET /", "", "200 OK", response, SAFE) {
        Storable::Yes(freshness) => freshness,
        Storable::No(why) => panic!("{response}: {why:?}"),
    };
    assert!(!freshness("Cache-Control: max-age=9").must_revalidate);
    for strict in ["max-age=9, must-revalidate", "max-age=9, proxy-revalidate", "s-maxage=9"] {
        assert!(freshness(&format!("Cache-Control: {strict}")).must_revalidate, "{strict}");
    }
    assert!(freshness("Cache-Control: max-age=9, no-cache=\"a\"\nA: 1").omits_fields);
    assert!(!freshness("Cache-Control: max-age=9, no-cache=\"a\"\nB: 1").omits_fields);
    let aged = freshness("Cache-Control: max-age=9\nAge: 4");
    assert_eq!((aged.lifetime_s, aged.initial_age_s, aged.ttl_s()), (9, 4, 5));
    assert_eq!((aged.born_s(NOW), aged.stale_at_s(NOW)), (NOW - 4, NOW + 5));
}

/// Stale responses that are kept, and for how long (RFC 9111 §4.3, RFC 5861).
#[test]
fn responses_usable_when_stale_are_stored() {
    let modified = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT";
    for (response, lifetime_s, windows, must_revalidate, kept_s) in [
        ("Cache-Control: max-age=9", 9, (0, 0), false, 9),
        ("Cache-Control: max-age=9\nETag: \"x\"", 9, (0, 0), false, 109),
        ("Cache-Control: no-cache, max-age=9\nETag: \"x\"", 0, (0, 0), true, 100),
        (&format!("Cache-Control: no-cache\n{modified}"), 0, (0, 0), true, 100),
        ("Cache-Control: max-age=0\nETag: W/\"x\"", 0, (0, 0), false, 100),
        ("Cache-Control: max-age=9, stale-while-revalidate=20", 9, (20, 0), false, 29),
        ("Cache-Control: max-age=9, stale-if-error=300, stale-while-revalidate=20", 9, (20, 300), false, 309),
        ("Cache-Control: s-maxage=9, stale-if-error=30", 9, (0, 30), true, 39),
        ("Cache-Control: max-age=9, must-revalidate, stale-if-error=30", 9, (0, 0), true, 9),
        ("Cache-Control: max-age=9, stale-if-error=x", 9, (0, 0), false, 9),
        ("CDN-Cache-Control: max-age=9, stale-while-revalidate=7", 9, (7, 0), false, 16),
    ] {
        let Storable::Yes(got) = ask("GET /", "", "200 OK", response, SAFE) else { panic!("{response}") };
        assert_eq!(got.lifetime_s, lifetime_s, "{response}");
        assert_eq!((got.stale_while_revalidate_s, got.stale_if_error_s), windows, "{response}");
        assert_eq!(got.must_revalidate, must_revalidate, "{response}");
        assert_eq!(got.kept_until_s(NOW, 100), NOW + kept_s, "{response}");
    }
    let lenient = StoreRules { grace_s: 5, stale_if_error_s: 6, ..SAFE };
    for (response, windows) in [
        ("Cache-Control: max-age=9", (5, 6)),
        ("Cache-Control: max-age=9, stale-if-error=0", (5, 0)),
        ("Cache-Control: s-maxage=9", (0, 0)),
        ("Cache-Control: max-age=9, proxy-revalidate", (0, 0)),
    ] {
        let Storable::Yes(got) = ask("GET /", "", "200 OK", response, lenient) else { panic!("{response}") };
        assert_eq!((got.stale_while_revalidate_s, got.stale_if_error_s), windows, "{response}");
    }
    // A response that must be validated each time is shared with cookies only if it says so.
    let with_cookie = ask("GET /", "Cookie: a=b", "200 OK", "Cache-Control: no-cache\nETag: \"x\"", SAFE);
    assert_eq!(with_cookie, Storable::No(Why::Cookie));
    let said = ask("GET /", "Cookie: a=b", "200 OK", "Cache-Control: no-cache, public\nETag: \"x\"", SAFE);
    assert!(matches!(said, Storable::Yes(fresh) if fresh.for_cookies));
}

proptest! {
    /// Freshness equals that of the slow twin, which computes RFC 9111 §4.2 from the values themselves, in
    /// unbounded signed numbers, instead of from the bytes on the wire.
    #[test]
    fn freshness_is_that_of_the_twin(
        s_maxage in proptest::option::of(0i64..200),
        max_age in proptest::option::of(0i64..200),
        expires in proptest::option::of(-100i64..200),
        date_at in proptest::option::of(-100i64..50),
        modified in proptest::option::of(-3000i64..50),
        age in proptest::option::of(0i64..100),
        delay in 0i64..5,
        default_ttl in 0i64..3,
    ) {
        let now = NOW as i64;
        let mut headers = String::new();
        let mut line = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                headers += &format!("{name}: {value}\n");
            }
        };
        let on = |offset: i64| date((now + offset) as u64);
        line("Cache-Control", max_age.map(|s| format!("max-age={s}")));
        line("Cache-Control", s_maxage.map(|s| format!("s-maxage={s}")));
        line("Expires", expires.map(on));
        line("Date", date_at.map(on));
        line("Last-Modified", modified.map(on));
        line("Age", age.map(|s| s.to_string()));

        let date_value = date_at.unwrap_or(0);
        let apparent_age = (0 - date_value).max(0);
        let initial_age = apparent_age.max(age.unwrap_or(0) + delay);
        let lifetime = if let Some(s) = s_maxage.or(max_age) {
            Some(s)
        } else if let Some(at) = expires {
            Some((at - date_value).max(0))
        } else if let Some(at) = modified.filter(|&at| at <= date_value - 10) {
            Some((date_value - at) / 10)
        } else {
            // An operator's lifetime counts from the arrival.
            Some(default_ttl).filter(|&s| s > 0).map(|s| s + initial_age)
        };
        let want = match lifetime {
            None => Err(Why::NoFreshness),
            // A stated modification time allows revalidation, unless the lifetime was a heuristic.
            Some(s) if s <= initial_age && (modified.is_none() || s_maxage.or(max_age).or(expires).is_none()) => {
                Err(Why::Expired)
            }
            Some(s) => Ok((s, initial_age)),
        };

        let rules = StoreRules { default_ttl_s: default_ttl as u32, ..SAFE };
        let times = Times { request_s: NOW - delay as u64, response_s: NOW };
        let said = with_request("GET /", "", |request| {
            with_response("200 OK", &headers, |response| {
                let asked = RequestFacts::of(request, false, ClientRule::Obey);
                storable(&asked, &ResponseFacts::of(response, true), &rules, times)
            })
        });
        let got = match said {
            Storable::Yes(f) => Ok((i64::from(f.lifetime_s), i64::from(f.initial_age_s))),
            Storable::No(why) => Err(why),
        };
        prop_assert_eq!(got, want, "{}", headers);
    }
}
