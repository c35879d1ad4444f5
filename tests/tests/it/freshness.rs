//! Storage of answers: which are stored, for which clients and for how long (RFC 9111), and which are shared
//! despite cookies.

use tests::{
    Accelerator, Answer, Gate, Next, Request, ScriptedOrigin, eventually, message::date, on_one_core,
    on_one_core_and_on_two,
};

on_one_core! {
    an_answer_is_reused_only_if_permitted,
    statuses_are_stored_as_they_may_be,
    cookies_are_shared_only_when_said_so,
    an_authorized_answer_is_shared_only_if_permitted,
    the_rfc_cookie_setting_shares_set_cookie_answers,
    visitors_with_cookies_can_be_kept_apart,
    answers_without_freshness_get_the_default_ttl,
    unforwarded_headers_make_no_variant,
    hosts_and_queries_are_kept_apart,
    age_counts_from_the_origin_on,
    via_and_cache_status_say_what_happened,
    what_is_stale_already_is_not_joined,
    a_paths_ttl_counts_for_visitors_with_cookies,
    fields_of_one_hop_stay_on_it,
    fields_of_one_visitor_stay_with_that_visitor,
    heuristic_answers_are_not_shared_with_cookie_holders,
    post_answers_declaring_location_and_freshness_are_stored,
    a7_variants_are_what_clients_mean,
    a25_cdn_cache_control_counts_unless_disabled,
}

on_one_core_and_on_two! {
    variants_are_separate_and_fetched_once,
    an_expired_answer_is_fetched_or_validated_again,
    pages_that_differ_by_visitor_are_named_once,
    cookies_that_cost_hits_are_named_once,
}

fn start(origin: &ScriptedOrigin, cores: &str) -> Accelerator {
    Accelerator::before(&origin.url()).flag("--cores", cores).start()
}

/// Sends a request twice. Returns whether the second answer needed no fetch, by the origin's count.
fn is_reused(accelerator: &Accelerator, origin: &ScriptedOrigin, request: &Request, path: &str) -> bool {
    let before = origin.count(path);
    let first = accelerator.fetch(request).whole();
    let second = accelerator.fetch(request).whole();
    assert_eq!((first.status(), first.text()), (second.status(), second.text()), "{path}");
    match origin.count(path) - before {
        1 => false_if_wrong(true, &second),
        2 => false_if_wrong(false, &second),
        other => panic!("{path} was fetched {other} times by two requests"),
    }
}

/// Checks that a reused answer has `Age`, which is on every answer from the store (RFC 9111 §5.1). Returns
/// `reused`.
fn false_if_wrong(reused: bool, second: &tests::Response) -> bool {
    if reused {
        assert!(second.header("age").is_some(), "a stored answer without Age:\n{}", second.text_of_head());
    }
    reused
}

fn an_answer_is_reused_only_if_permitted(cores: &str) {
    let origin = ScriptedOrigin::start();
    let accelerator = start(&origin, cores);
    let (tomorrow, yesterday) = (date(86_400), date(-86_400));
    let last_month = date(-30 * 86_400);
    for (number, (fields, reused)) in [
        (&[("Cache-Control", "max-age=600")][..], true),
        (&[("Cache-Control", "MAX-AGE=600")], true),
        (&[("Cache-Control", "max-age=\"600\"")], true),
        (&[("Cache-Control", "public, max-age=600, something=\"new, no-store\"")], true),
        (&[("Cache-Control", "max-age=99999999999999999999")], true),
        (&[("Cache-Control", "s-maxage=600")], true),
        (&[("Cache-Control", "max-age=0, s-maxage=600")], true),
        (&[("Cache-Control", "max-age=600, s-maxage=0")], false),
        (&[("Cache-Control", "max-age=0")], false),
        (&[("Cache-Control", "max-age=600"), ("Cache-Control", "no-store")], false),
        (&[("Cache-Control", "max-age=-1")], false),
        (&[("Cache-Control", "max-age=soon")], false),
        (&[("Cache-Control", "no-store")], false),
        (&[("Cache-Control", "no-store, max-age=600")], false),
        (&[("Cache-Control", "private, max-age=600")], false),
        (&[("Cache-Control", "no-cache, max-age=600")], false),
        (&[("Cache-Control", "must-revalidate, max-age=600")], true),
        (&[("Expires", &*tomorrow)], true),
        (&[("Expires", &yesterday)], false),
        (&[("Expires", "0")], false),
        (&[("Expires", "Thu, 99 Foo 2099 00:00:00 GMT")], false),
        // max-age and s-maxage take precedence over Expires (RFC 9111 §5.3).
        (&[("Cache-Control", "max-age=600"), ("Expires", &yesterday)], true),
        (&[("Cache-Control", "max-age=0"), ("Expires", &tomorrow)], false),
        // Heuristic freshness (RFC 9111 §4.2.2): a page unchanged for a month will not change this minute.
        (&[("Last-Modified", &last_month)], true),
        (&[], false),
        // An answer whose `Age` exceeds its lifetime.
        (&[("Cache-Control", "max-age=60"), ("Age", "100")], false),
        (&[("Cache-Control", "max-age=600"), ("Age", "100")], true),
        (&[("Cache-Control", "max-age=600"), ("Vary", "*")], false),
        (&[("Cache-Control", "max-age=600"), ("Vary", "Accept"), ("Vary", "*")], false),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{number}");
        let answer =
            fields.iter().fold(Answer::new(200, &path), |answer, (name, value)| answer.header(name, value));
        origin.answers(&path, answer);
        let is = is_reused(&accelerator, &origin, &Request::get(&path), &path);
        assert_eq!(is, reused, "reused or not: {fields:?}");
    }
}

fn statuses_are_stored_as_they_may_be(cores: &str) {
    let origin = ScriptedOrigin::start();
    let accelerator = start(&origin, cores);
    let last_month = date(-30 * 86_400);
    for (number, (status, field, reused)) in [
        (200, ("Cache-Control", "max-age=600"), true),
        (203, ("Cache-Control", "max-age=600"), true),
        (301, ("Cache-Control", "max-age=600"), true),
        (302, ("Cache-Control", "max-age=600"), true),
        (307, ("Cache-Control", "max-age=600"), true),
        (404, ("Cache-Control", "max-age=600"), true),
        (410, ("Cache-Control", "max-age=600"), true),
        (500, ("Cache-Control", "max-age=600"), true),
        // Without explicit freshness, only statuses that RFC 9110 §15.1 calls heuristically cacheable are
        // stored.
        (302, ("Last-Modified", &*last_month), false),
        (403, ("Last-Modified", &last_month), false),
        (404, ("X-Nothing", "said"), false),
        (500, ("Last-Modified", &last_month), false),
        (503, ("X-Nothing", "said"), false),
        // A 206 is not stored as if it were the whole answer.
        (206, ("Cache-Control", "max-age=600"), false),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{number}");
        let mut answer = Answer::new(status, &path).header(field.0, field.1);
        if status == 206 {
            answer = answer.header("Content-Range", "bytes 0-2/100");
        }
        origin.answers(&path, answer.header("Location", "/elsewhere"));
        let is = is_reused(&accelerator, &origin, &Request::get(&path), &path);
        assert_eq!(is, reused, "reused or not: {status} with {field:?}");
        assert_eq!(accelerator.get(&path).whole().status(), status);
    }
}

fn cookies_are_shared_only_when_said_so(cores: &str) {
    let origin = ScriptedOrigin::start();
    let accelerator = start(&origin, cores);
    let last_month = date(-30 * 86_400);
    let plain = Request::get;
    let with_cookie = |path: &str| Request::get(path).header("Cookie", "session=ada");
    for (number, (request, fields, reused)) in [
        (
            &plain as &dyn Fn(&str) -> Request,
            &[("Set-Cookie", "s=1"), ("Cache-Control", "max-age=600")][..],
            false,
        ),
        (&plain, &[("Set-Cookie", "s=1"), ("Last-Modified", &*last_month)], false),
        (&plain, &[("Set-Cookie", "s=1"), ("Cache-Control", "public, max-age=600")], false),
        (&plain, &[("Set-Cookie", "s=1"), ("CDN-Cache-Control", "max-age=600")], false),
        (&with_cookie, &[("Cache-Control", "max-age=600")], true),
        (&with_cookie, &[("Expires", &date(600))], true),
        // With heuristic freshness only, the page may be personal to the visitor with the cookie.
        (&with_cookie, &[("Last-Modified", &last_month)], false),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{number}");
        let answer =
            fields.iter().fold(Answer::new(200, &path), |answer, (name, value)| answer.header(name, value));
        origin.answers(&path, answer);
        let is = is_reused(&accelerator, &origin, &request(&path), &path);
        assert_eq!(is, reused, "reused or not: case {number}, {fields:?}");
    }

    // A page made for a session, from an origin that sends no `Cache-Control`: each visitor gets their own.
    origin.on("/mine", move |request, reply| {
        let session = request.header("cookie").unwrap_or("nobody").to_owned();
        reply.answer(&Answer::new(200, format!("for {session}")).header("Last-Modified", &date(-30 * 86_400)))
    });
    for session in ["s=ada", "s=bob", "s=ada"] {
        let response = accelerator.fetch(&Request::get("/mine").header("Cookie", session)).expect_status(200);
        assert_eq!(response.text(), format!("for {session}"));
    }
    assert_eq!(accelerator.get("/mine").expect_status(200).text(), "for nobody");
}

fn an_authorized_answer_is_shared_only_if_permitted(cores: &str) {
    let origin = ScriptedOrigin::start();
    let accelerator = start(&origin, cores);
    for (number, (control, shared)) in [
        ("max-age=600", false),
        // RFC 9111 §3.5: these three directives permit sharing.
        ("public, max-age=600", true),
        ("s-maxage=600", true),
        ("must-revalidate, max-age=600", true),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{number}");
        origin.answers(&path, Answer::new(200, &path).header("Cache-Control", control));
        let request = Request::get(&path).header("Authorization", "Basic YWRhOnNlY3JldA==");
        let is = is_reused(&accelerator, &origin, &request, &path);
        assert_eq!(is, shared, "shared or not: an answer to Authorization with {control}");
        accelerator.get(&path).expect_status(200);
        let fetched = origin.count(&path);
        assert_eq!(fetched, if shared { 1 } else { 3 }, "{control}: somebody without the secret asks again");
    }
}

fn the_rfc_cookie_setting_shares_set_cookie_answers(cores: &str) {
    let origin = ScriptedOrigin::start();
    let accelerator =
        Accelerator::before(&origin.url()).flag("--cores", cores).flag("--cookies", "rfc").start();
    origin.answers(
        "/page",
        Answer::new(200, "x").header("Set-Cookie", "s=1").header("Cache-Control", "max-age=600"),
    );
    assert!(
        is_reused(&accelerator, &origin, &Request::get("/page"), "/page"),
        "RFC 9111 §7.3 lets it be shared"
    );
}

fn visitors_with_cookies_can_be_kept_apart(cores: &str) {
    let origin = ScriptedOrigin::start();
    let accelerator =
        Accelerator::before(&origin.url()).flag("--cores", cores).flag("--cookies", "strict").start();
    for (path, headers, shared) in [
        ("/plain", &[("Cache-Control", "max-age=600")][..], false),
        ("/expires", &[("Expires", &*date(600))], false),
        ("/public", &[("Cache-Control", "public, max-age=600")], true),
        ("/s-maxage", &[("Cache-Control", "s-maxage=600")], true),
        ("/cdn", &[("CDN-Cache-Control", "max-age=600")], true),
        ("/vary", &[("Cache-Control", "max-age=600"), ("Vary", "Cookie")], true),
    ] {
        let answer =
            headers.iter().fold(Answer::new(200, path), |answer, (name, value)| answer.header(name, value));
        origin.answers(path, answer);
        let with_cookie = Request::get(path).header("Cookie", "session=ada");
        assert_eq!(is_reused(&accelerator, &origin, &with_cookie, path), shared, "{path} with a cookie");
        accelerator.get(path).expect_status(200);
        let before = origin.count(path);
        accelerator.get(path).expect_status(200);
        assert_eq!(origin.count(path), before, "{path} without one");
        accelerator.fetch(&with_cookie).expect_status(200);
        assert_eq!(origin.count(path) == before, shared, "{path}: what is stored for those without a cookie");
    }
}

fn answers_without_freshness_get_the_default_ttl(cores: &str) {
    let origin = ScriptedOrigin::start();
    let accelerator =
        Accelerator::before(&origin.url()).flag("--cores", cores).flag("--default-ttl", "10m").start();
    origin.answers("/says-nothing", Answer::new(200, "x"));
    origin.answers("/says-no", Answer::new(200, "x").header("Cache-Control", "no-store"));
    origin.answers("/says-zero", Answer::new(200, "x").header("Cache-Control", "max-age=0"));
    for (path, reused) in [("/says-nothing", true), ("/says-no", false), ("/says-zero", false)] {
        assert_eq!(is_reused(&accelerator, &origin, &Request::get(path), path), reused, "{path}");
    }
    let with_cookie = Request::get("/says-nothing?2").header("Cookie", "s=1");
    assert!(
        !is_reused(&accelerator, &origin, &with_cookie, "/says-nothing"),
        "a ttl of ours is no word of the origin"
    );
}

fn variants_are_separate_and_fetched_once(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/page", |request, reply| {
        let language = request.header("accept-language").unwrap_or("none");
        let coding = request.header("accept-encoding").unwrap_or("none");
        let answer = Answer::new(200, format!("{language}/{coding}")).header("Cache-Control", "max-age=600");
        reply.answer(&answer.header("Vary", "Accept-Language").header("Vary", "accept-encoding"))
    });
    let accelerator = start(&origin, cores);
    let languages = [None, Some("en"), Some("de"), Some("de, en;q=0.5")];
    let codings = [None, Some("gzip"), Some("br")];
    for round in 1..=2 {
        for language in languages {
            for coding in codings {
                let mut request =
                    Request::get("/page").header("User-Agent", &format!("not varied on {round}"));
                if let Some(language) = language {
                    request = request.header("Accept-Language", language);
                }
                if let Some(coding) = coding {
                    request = request.header("Accept-Encoding", coding);
                }
                let response = accelerator.fetch(&request).expect_status(200);
                let wanted = format!("{}/{}", language.unwrap_or("none"), coding.unwrap_or("none"));
                assert_eq!(response.text(), wanted, "round {round}");
            }
        }
        assert_eq!(origin.count("/page"), languages.len() * codings.len(), "round {round}");
    }
}

/// RFC 9110 §7.6.1: a field that `Connection` names is not forwarded. A variant by such a field would hold
/// the answer to a request without it, and be served to clients that really send it.
fn unforwarded_headers_make_no_variant(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/font", |request, reply| {
        let answer =
            Answer::new(200, "x").header("Cache-Control", "max-age=600").header("Vary", "Origin, TE");
        reply.answer(&match request.header("origin") {
            Some(site) => answer.header("Access-Control-Allow-Origin", site),
            None => answer,
        })
    });
    let accelerator = start(&origin, cores);
    let site = "https://site.test";
    let allowed = |request: Request| {
        let response = accelerator.fetch(&request).expect_status(200);
        response.header("access-control-allow-origin").map(str::to_owned)
    };
    let named_away = || Request::get("/font").header("Origin", site).header("Connection", "origin");
    let in_earnest = || Request::get("/font").header("Origin", site);
    for _ in 0..2 {
        assert_eq!(allowed(named_away()), None);
        assert_eq!(allowed(in_earnest()).as_deref(), Some(site));
        // TE is a hop-by-hop field in any case.
        assert_eq!(allowed(Request::get("/font").header("TE", "trailers")), None);
    }
    assert_eq!(origin.count("/font"), 2, "one with Origin, one without");
}

/// RFC 9111 §5.2.2.4, §5.2.2.7: the answer may be shared, but the named fields are only for the client whose
/// request was forwarded.
fn fields_of_one_visitor_stay_with_that_visitor(cores: &str) {
    let origin = ScriptedOrigin::start();
    let gate = Gate::new();
    let in_script = gate.clone();
    origin.on("/page", move |request, reply| {
        let whose = request.header("x-who").unwrap_or("nobody").to_owned();
        let control = "max-age=600, private=\"X-Account\", no-cache=\"set-cookie\"";
        let answer = Answer::new(200, "the page").header("Cache-Control", control);
        let answer = answer.header("X-Account", &whose).header("Set-Cookie", &format!("s={whose}"));
        in_script.pass();
        reply.answer(&answer.header("ETag", "\"1\""))
    });
    // `--cookies rfc`, because the other rules do not store an answer that sets a cookie.
    let accelerator =
        Accelerator::before(&origin.url()).flag("--cores", cores).flag("--cookies", "rfc").start();
    let ask = |who: &str| Request::get("/page").header("X-Who", who);
    let mut first = accelerator.connect();
    first.send(&ask("ada").bytes());
    eventually("the origin is asked", || origin.count("/page") == 1);
    // A second client joins the fetch of the first.
    let mut second = accelerator.connect();
    second.send(&ask("bob").bytes());
    eventually("both are waiting", || accelerator.stat().count("requests.misses_collapsed") == 1);
    gate.open();
    let own = first.response("GET").expect_status(200);
    assert_eq!((own.header("x-account"), own.header("set-cookie")), (Some("ada"), Some("s=ada")));
    let others = [second.response("GET"), accelerator.fetch(&ask("eve")), accelerator.get("/page")];
    for other in others {
        let other = other.expect_status(200);
        assert_eq!(
            (other.header("x-account"), other.header("set-cookie")),
            (None, None),
            "{}",
            other.text_of_head()
        );
        assert_eq!((other.text().as_str(), other.header("etag")), ("the page", Some("\"1\"")));
    }
    assert_eq!(origin.count("/page"), 1);
}

/// An answer stored with heuristic freshness for a visitor without cookies is not served to a visitor with
/// one.
fn heuristic_answers_are_not_shared_with_cookie_holders(cores: &str) {
    let origin = ScriptedOrigin::start();
    let gate = Gate::new();
    for path in ["/basket", "/slow-basket"] {
        let in_script = gate.clone();
        origin.on(path, move |request, reply| {
            let whose = request.header("cookie").unwrap_or("nobody").to_owned();
            if request.path() == "/slow-basket" {
                in_script.pass();
            }
            let answer = Answer::new(200, format!("basket of {whose}"));
            reply.answer(&answer.header("Last-Modified", &date(-30 * 86_400)))
        });
    }
    let accelerator = start(&origin, cores);
    let with_cookie = |path: &str| Request::get(path).header("Cookie", "s=ada");
    for _ in 0..2 {
        assert_eq!(accelerator.get("/basket").expect_status(200).text(), "basket of nobody");
        assert_eq!(accelerator.fetch(&with_cookie("/basket")).expect_status(200).text(), "basket of s=ada");
    }
    assert_eq!(origin.count("/basket"), 3, "nobody's is stored, Ada's is asked for each time");
    // A visitor with a cookie does not join the fetch of one without either.
    let mut nobody = accelerator.connect();
    nobody.send(&Request::get("/slow-basket").bytes());
    eventually("the origin is asked", || origin.count("/slow-basket") == 1);
    let mut ada = accelerator.connect();
    ada.send(&with_cookie("/slow-basket").bytes());
    eventually("both are waiting", || accelerator.stat().count("requests.misses_collapsed") == 1);
    gate.open();
    assert_eq!(nobody.response("GET").expect_status(200).text(), "basket of nobody");
    assert_eq!(ada.response("GET").expect_status(200).text(), "basket of s=ada");
}

fn hosts_and_queries_are_kept_apart(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/page", |request, reply| {
        let text = format!("{} {}", request.header("host").unwrap_or_default(), request.target);
        reply.answer(&Answer::new(200, text).header("Cache-Control", "max-age=600"))
    });
    let accelerator = start(&origin, cores);
    for _ in 0..2 {
        for host in ["one.test", "two.test"] {
            for target in ["/page", "/page?", "/page?a", "/page?a&b", "/page?b&a"] {
                let response =
                    accelerator.fetch(&Request::get(target).header("Host", host)).expect_status(200);
                assert_eq!(response.text(), format!("{host} {target}"));
            }
        }
    }
    assert_eq!(origin.count("/page"), 10);
    // Host names are case-insensitive (RFC 9110 §4.2.3), paths are not.
    assert_eq!(
        accelerator.fetch(&Request::get("/page").header("Host", "ONE.test")).expect_status(200).text(),
        "one.test /page"
    );
    accelerator.fetch(&Request::get("/PAGE").header("Host", "one.test")).expect_status(404);
}

fn age_counts_from_the_origin_on(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/new", Answer::new(200, "x").header("Cache-Control", "max-age=600"));
    origin.answers(
        "/travelled",
        Answer::new(200, "x").header("Cache-Control", "max-age=600").header("Age", "100"),
    );
    origin.answers("/old-date", Answer::new(200, "x").header("Cache-Control", "max-age=600").dated(-200));
    let accelerator = start(&origin, cores);
    let age = |path: &str| -> u64 {
        let response = accelerator.get(path).expect_status(200);
        assert!(response.head.headers.all("age").count() <= 1, "{}", response.text_of_head());
        response.header("age").map_or(0, |age| age.parse().expect("a number of seconds"))
    };
    // An answer that is not stored has the origin's `Age`, once.
    origin.answers(
        "/passing",
        Answer::new(200, "x").header("Cache-Control", "max-age=50").header("Age", "100"),
    );
    assert_eq!(age("/passing"), 100);
    for (path, at_least) in [("/new", 0), ("/travelled", 100), ("/old-date", 200)] {
        age(path);
        let now = age(path);
        assert!(now >= at_least, "{path}: {now}");
        // Age grows with time, and with time only.
        eventually("Age grows", || age(path) > now);
        assert_eq!(origin.count(path), 1);
    }
}

fn an_expired_answer_is_fetched_or_validated_again(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/brief", Answer::new(200, "x").header("Cache-Control", "max-age=1"));
    let accelerator = start(&origin, cores);
    eventually("an answer with a second to live is asked for again", || {
        assert_eq!(accelerator.get("/brief").expect_status(200).text(), "x");
        origin.count("/brief") >= 2
    });

    // With a validator the origin may answer 304; the client's request was unconditional, so it gets the
    // whole answer.
    origin.on("/validated", |request, reply| {
        let known = request.header("if-none-match") == Some("\"v1\"");
        let answer = if known { Answer::new(304, "") } else { Answer::new(200, "validated") };
        reply.answer(&answer.header("ETag", "\"v1\"").header("Cache-Control", "no-cache"))
    });
    for _ in 0..3 {
        assert_eq!(accelerator.get("/validated").expect_status(200).text(), "validated");
    }
    assert_eq!(origin.count("/validated"), 3, "no-cache: the origin is asked each time");
    assert_eq!(accelerator.stat().count("requests.revalidated"), 2);
}

fn via_and_cache_status_say_what_happened(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers(
        "/kept",
        Answer::new(200, "x").header("Cache-Control", "max-age=600").header("Via", "1.1 inner"),
    );
    origin.answers("/passed", Answer::new(200, "x").header("Cache-Control", "no-store"));
    let accelerator = start(&origin, cores);
    let cache_status = |path: &str| {
        let response = accelerator.fetch(&Request::get(path).header("Via", "1.0 outer")).expect_status(200);
        assert!(response.head.headers.joined("via").contains("nighttrain"), "{}", response.text_of_head());
        response.head.headers.joined("cache-status")
    };
    // RFC 9211 §2: one list member per cache, ours with our name and `hit` or `fwd`.
    let miss = cache_status("/kept");
    assert!(miss.starts_with("nighttrain") && miss.contains("fwd=") && !miss.contains("hit"), "{miss}");
    let hit = cache_status("/kept");
    assert!(hit.starts_with("nighttrain") && hit.contains("hit") && !hit.contains("fwd="), "{hit}");
    let passed = cache_status("/passed");
    assert!(passed.starts_with("nighttrain") && passed.contains("fwd="), "{passed}");
    // RFC 9110 §7.6.3: each hop appends itself.
    let towards_origin = origin.seen("/kept")[0].headers.joined("via");
    assert!(
        towards_origin.starts_with("1.0 outer,") && towards_origin.contains("nighttrain"),
        "{towards_origin}"
    );
    let towards_client = accelerator.get("/kept").head.headers.joined("via");
    assert!(
        towards_client.starts_with("1.1 inner,") && towards_client.contains("nighttrain"),
        "{towards_client}"
    );
    // `Via` names the version that the origin speaks, and an upgrade that we do not support is not forwarded.
    let old = &b"HTTP/1.0 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 1\r\n\r\nx"[..];
    origin.sends("/old", old, Next::Close);
    for _ in 0..2 {
        assert_eq!(accelerator.get("/old").expect_status(200).header("via"), Some("1.0 nighttrain"));
    }
    for method in ["GET", "POST"] {
        let request = Request::new(method, "/passed").header("Upgrade", "h2c");
        let upgraded = accelerator.fetch(&request.header("Connection", "upgrade")).expect_status(200);
        let said = upgraded.head.headers.joined("cache-status");
        assert!(said.contains("detail=upgrade-not-forwarded"), "{said}");
        assert_eq!(origin.seen("/passed").pop().expect("it was asked").header("upgrade"), None);
    }
}

/// An answer that is fresh for a second takes longer than that to arrive: a request after that second gets a
/// fetch of its own.
fn what_is_stale_already_is_not_joined(cores: &str) {
    let origin = ScriptedOrigin::start();
    let gate = Gate::new();
    let in_script = gate.clone();
    let asked = std::sync::atomic::AtomicUsize::new(0);
    origin.on("/slow", move |_, reply| {
        let number = asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        reply.send(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=1\r\nContent-Length: 6\r\n\r\nbo")?;
        if number == 0 {
            in_script.pass();
        }
        reply.send(format!("dy {number}").as_bytes())?;
        Ok(Next::KeepAlive)
    });
    let accelerator = start(&origin, cores);
    let mut first = accelerator.connect();
    first.send(&Request::get("/slow").bytes());
    assert_eq!(first.head("GET").status, 200);
    // The answer is no longer fresh, in whole seconds.
    std::thread::sleep(std::time::Duration::from_millis(2_100));
    let second = accelerator.get("/slow").expect_status(200);
    assert_eq!(second.text(), "body 1");
    assert!(!second.head.headers.joined("cache-status").contains("collapsed"));
    gate.open();
    assert_eq!(first.rest_of_body().0, b"body 0");
}

/// A page with max-age is shared although visitors have cookies. If it differs by visitor, the log names the
/// page, once and without its query.
fn pages_that_differ_by_visitor_are_named_once(cores: &str) {
    let origin = ScriptedOrigin::start();
    for (path, is_personal) in [("/me", true), ("/mine", true), ("/style.css", false)] {
        origin.on(path, move |request, reply| {
            let body = if is_personal { request.header("cookie").unwrap_or_default() } else { "the same" };
            reply.answer(&Answer::new(200, body).header("Cache-Control", "max-age=600"))
        });
    }
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--client-cache-control", "obey")
        .start();
    for (visitor, path) in
        (0..4).flat_map(|n| ["/style.css", "/me?token=secret", "/mine"].map(|path| (n, path)))
    {
        let anew = Request::get(path)
            .header("Cookie", &format!("visitor={visitor}"))
            .header("Cache-Control", "no-cache");
        accelerator.fetch(&anew).expect_status(200);
    }
    assert_eq!(
        accelerator.stat().count("requests.shared_pages_differ"),
        4,
        "the third and fourth of two pages"
    );
    let printed = accelerator.printed();
    let said: Vec<&str> =
        printed.lines().filter(|line| line.contains("vary with the visitor's cookie")).collect();
    let [said] = said[..] else { panic!("said once: {printed}") };
    assert!(said.contains("/me") && said.contains("site.test") && !said.contains("secret"), "{said}");
}

/// A static site without explicit freshness, and an analytics script that gives every browser a cookie: the
/// log names the cookie and the setting, once. Fetches for visitors without cookies count in the share.
fn cookies_that_cost_hits_are_named_once(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|_, reply| reply.answer(&Answer::new(200, "the same for all")));
    let accelerator =
        Accelerator::before(&origin.url()).flag("--cores", cores).flag("--default-ttl", "600s").start();
    for n in 0..240 {
        let page = Request::get(&format!("/{}", n % 7));
        let rare = if n % 50 == 40 { "; banner=seen" } else { "" };
        let cookie = format!("_ga=secret-{n}; _gid=secret{rare}");
        accelerator.fetch(&page.header("Cookie", &cookie)).expect_status(200);
        accelerator.get(&format!("/plain-{}", n % 60)).expect_status(200);
    }
    let printed = accelerator.printed();
    let said: Vec<&str> = printed.lines().filter(|line| line.contains("bypass-cookies")).collect();
    let [said] = said[..] else { panic!("said once: {printed}") };
    for words in ["site.test", "_ga, _gid", "%"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("secret") && !said.contains("banner"), "{said}");
    // The setting that the hint names helps.
    let helped = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--default-ttl", "600s")
        .flag("--bypass-cookies", "session")
        .start();
    let asked = origin.all_seen().len();
    for n in 0..240 {
        helped.fetch(&Request::get("/0").header("Cookie", &format!("_ga={n}"))).expect_status(200);
    }
    assert_eq!(origin.all_seen().len(), asked + 1);
    assert!(!helped.printed().contains("bypass-cookies"), "nothing is left to say");
}

/// A path's `ttl` comes from the operator, so visitors with cookies share the pages of that path; but not
/// where the origin may read another path than the rule (web cache deception).
fn a_paths_ttl_counts_for_visitors_with_cookies(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|request, reply| {
        let who = request.header("cookie").unwrap_or("nobody");
        reply.answer(&Answer::new(200, format!("for {who}")))
    });
    let accelerator = Accelerator::configured(&format!(
        "[cache]\norigin = \"{}\"\n[[cache.path]]\npath = \"/assets/*\"\nttl = \"10m\"\n",
        origin.url()
    ))
    .flag("--cores", cores)
    .start();
    let shown = |path: &str, who: &str| {
        let page = Request::get(path).header("Cookie", &format!("session={who}"));
        accelerator.fetch(&page).expect_status(200).text().to_owned()
    };
    assert_eq!(shown("/assets/a.css", "alice"), "for session=alice");
    assert_eq!(shown("/assets/a.css", "bob"), "for session=alice", "shared by the operator's word");
    for path in [
        "/assets/..%2fme",
        "/assets/%2e%2e/me",
        "/assets/../me",
        "/assets/..;/me",
        "/assets/..%5cme",
        "/assets/%252e%252e%252fme",
        "/assets/./a.css",
        "/other",
    ] {
        for who in ["alice", "bob"] {
            assert_eq!(shown(path, who), format!("for session={who}"), "{path}");
        }
    }
}

fn fields_of_one_hop_stay_on_it(cores: &str) {
    let origin = ScriptedOrigin::start();
    let answer =
        Answer::new(200, "x").header("Cache-Control", "max-age=600").header("Connection", "X-Hop-Back");
    let answer = answer.header("X-Hop-Back", "1").header("Keep-Alive", "timeout=5").header("X-End-Back", "1");
    origin.answers("/page", answer.header("Proxy-Connection", "keep-alive"));
    let accelerator = start(&origin, cores);
    for _ in 0..2 {
        let request = Request::get("/page").header("Connection", "X-Hop").header("X-Hop", "1");
        let request = request.header("Keep-Alive", "300").header("X-End", "1").header("Upgrade", "h2c");
        let response = accelerator.fetch(&request.header("Proxy-Connection", "x")).expect_status(200);
        for name in ["x-hop-back", "keep-alive", "proxy-connection"] {
            assert_eq!(response.header(name), None, "{name} is of the hop behind us (RFC 9110 §7.6.1)");
        }
        assert_eq!(response.header("x-end-back"), Some("1"));
    }
    let seen = &origin.seen("/page")[0];
    for name in ["x-hop", "keep-alive", "proxy-connection", "upgrade"] {
        assert_eq!(seen.header(name), None, "{name} is of the hop before us (RFC 9110 §7.6.1)");
    }
    assert_eq!(seen.header("x-end"), Some("1"));
}

/// RFC 9110 §9.3.3: an answer to POST is stored for GET if it has explicit freshness and a Content-Location
/// equal to the request's target.
fn post_answers_declaring_location_and_freshness_are_stored(cores: &str) {
    let origin = ScriptedOrigin::start();
    let accelerator = start(&origin, cores);
    for (number, (fields, is_kept)) in [
        (&[("Content-Location", "SELF"), ("Cache-Control", "max-age=600")][..], true),
        (&[("Content-Location", "http://site.test/SELF"), ("Expires", "TOMORROW")], true),
        (&[("Content-Location", "/other"), ("Cache-Control", "max-age=600")], false),
        (&[("Content-Location", "http://other.test/SELF"), ("Cache-Control", "max-age=600")], false),
        (&[("Cache-Control", "max-age=600")], false),
        (&[("Content-Location", "SELF"), ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")], false),
        (&[("Content-Location", "SELF"), ("Cache-Control", "private, max-age=600")], false),
        (&[("Content-Location", "SELF"), ("Cache-Control", "max-age=600"), ("Vary", "Accept")], false),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/post-{number}");
        let itself = path.clone();
        origin.on(&path, move |request, reply| {
            let mut answer = Answer::new(200, format!("by {}", request.method));
            for (name, value) in fields {
                let value = value.replace("http://site.test/SELF", &format!("http://site.test{itself}"));
                answer =
                    answer.header(name, &value.replace("SELF", &itself).replace("TOMORROW", &date(86_400)));
            }
            reply.answer(&answer)
        });
        accelerator.fetch(&Request::new("POST", &path).body(b"x")).expect_status(200);
        let got = accelerator.get(&path).expect_status(200);
        assert_eq!(got.text() == "by POST", is_kept, "{fields:?}: {}", got.text());
        // An unsafe method invalidates it.
        if is_kept {
            accelerator.fetch(&Request::new("DELETE", &path)).expect_status(200);
            assert_eq!(accelerator.get(&path).expect_status(200).text(), "by GET");
        }
    }
}

/// Variants by Accept-Encoding are no more than there are sets of codings, whatever clients write in the
/// field.
fn a7_variants_are_what_clients_mean(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/page", |request, reply| {
        let text = request.header("accept-encoding").unwrap_or("none").to_owned();
        reply.answer(
            &Answer::new(200, text).header("Cache-Control", "max-age=600").header("Vary", "Accept-Encoding"),
        )
    });
    let accelerator = start(&origin, cores);
    for (number, (accepted, sent)) in [
        ("gzip, deflate, br", "br, gzip"),
        ("br;q=1.0, gzip;q=0.8, *;q=0.1", "br, gzip, zstd"),
        ("GZIP,br , deflate", "br, gzip"),
        ("deflate", "identity"),
        ("compress;q=0.5", "identity"),
    ]
    .into_iter()
    .enumerate()
    {
        let request = Request::get("/page").header("Accept-Encoding", accepted);
        assert_eq!(accelerator.fetch(&request).expect_status(200).text(), sent, "{accepted}");
        assert_eq!(origin.count("/page"), [1, 2, 2, 3, 3][number], "{accepted}");
    }
    assert_eq!(accelerator.get("/page").expect_status(200).text(), "none");
}

fn a25_cdn_cache_control_counts_unless_disabled(cores: &str) {
    let origin = ScriptedOrigin::start();
    let answer =
        Answer::new(200, "x").header("Cache-Control", "no-store").header("CDN-Cache-Control", "max-age=60");
    origin.answers("/page", answer);
    let deaf = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--cdn-cache-control", "false")
        .start();
    for (accelerator, is_kept) in [(start(&origin, cores), true), (deaf, false)] {
        let before = origin.count("/page");
        for _ in 0..2 {
            let response = accelerator.get("/page").expect_status(200);
            assert_eq!(response.header("cdn-cache-control"), Some("max-age=60"), "it is passed on");
        }
        assert_eq!(origin.count("/page") - before, if is_kept { 1 } else { 2 });
    }
}
