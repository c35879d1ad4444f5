//! Rows A3, A4 and A6 of the features: a stale answer is served while it is fetched again, or if the origin
//! fails (RFC 5861), and is revalidated if it has a validator (RFC 9111 §4.3).
//!
//! An answer with `max-age=10` and `Age: 20` is stale on arrival, so that no test has to wait.

use std::{
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use tests::{
    Accelerator, Answer, Gate, Next, Request, ScriptedOrigin, eventually, on_one_core, on_one_core_and_on_two,
};

on_one_core! {
    a3_a_knob_gives_what_says_nothing_a_grace,
    a4_a_stale_object_is_served_on_origin_errors,
    a4_what_must_be_revalidated_is_not_shown,
    a4_what_breaks_one_page_shows_no_other_stale,
    a4_a_304_to_no_condition_is_a_failure,
    a6_a_304_refreshes_headers_and_keeps_the_body,
    a6_a_no_cache_answer_is_stored_and_revalidated,
    a6_variants_are_validated_each_by_itself,
    a6_a_304_that_changes_the_answer_is_unused,
    a6_personal_requests_leave_stored_answers_fresh,
    a6_unusual_requests_leave_recent_answers_fresh,
    clients_wishes_count_if_they_are_obeyed,
}

on_one_core_and_on_two! {
    a4_an_origin_that_fails_is_left_alone,
    a3_a_stale_object_is_served_while_refreshed,
    a_stored_error_never_stands_in_for_another,
    a6_clients_that_wait_for_a_validation_share_it,
    a6_an_answer_that_differs_from_head_is_stale,
}

const STALE_FOR_10_S: &str = "max-age=10, stale-while-revalidate=600";

fn start(origin: &ScriptedOrigin, cores: &str) -> Accelerator {
    Accelerator::before(&origin.url()).flag("--cores", cores).start()
}

fn cache_status(response: &tests::Response) -> String {
    response.head.headers.joined("cache-status")
}

fn a3_a_stale_object_is_served_while_refreshed(cores: &str) {
    let origin = ScriptedOrigin::start();
    let (gate, asked) = (Gate::new(), AtomicUsize::new(0));
    let in_script = gate.clone();
    origin.on("/page", move |_, reply| {
        let number = asked.fetch_add(1, Relaxed);
        let answer = Answer::new(200, format!("version {number}")).header("Cache-Control", STALE_FOR_10_S);
        if number > 0 {
            in_script.pass();
            return reply.answer(&answer);
        }
        reply.answer(&answer.header("Age", "20"))
    });
    let accelerator = start(&origin, cores);
    assert_eq!(accelerator.get("/page").expect_status(200).text(), "version 0");
    let mut pipeline = accelerator.connect();
    pipeline.send(&Request::get("/page").bytes().repeat(30));
    for _ in 0..30 {
        assert_eq!(pipeline.response("GET").expect_status(200).text(), "version 0");
    }
    for _ in 0..20 {
        let stale = accelerator.get("/page").expect_status(200);
        assert_eq!(stale.text(), "version 0", "nobody waits for the origin");
        let said = cache_status(&stale);
        assert!(said.contains("hit; ttl=-1") && said.contains("detail=stale-while-revalidate"), "{said}");
    }
    eventually("it is fetched anew", || origin.count("/page") == 2);
    gate.open();
    eventually("the new answer is shown", || accelerator.get("/page").text() == "version 1");
    let fresh = accelerator.get("/page");
    assert!(
        fresh.header("age").is_some() && cache_status(&fresh).contains("hit; ttl="),
        "{}",
        cache_status(&fresh)
    );
    assert!(!cache_status(&fresh).contains("stale"));
    assert_eq!(origin.count("/page"), 2, "by one request for all");
    // Each core asks the core that owns the object once a second; the owner knows about its fetch.
    assert!((1..=2).contains(&accelerator.stat().count("requests.refreshes")));
}

fn a3_a_knob_gives_what_says_nothing_a_grace(cores: &str) {
    let origin = ScriptedOrigin::start();
    for (path, said) in [("/plain", "max-age=10"), ("/strict", "max-age=10, must-revalidate")] {
        origin.answers(path, Answer::new(200, "x").header("Cache-Control", said).header("Age", "9"));
    }
    let accelerator =
        Accelerator::before(&origin.url()).flag("--cores", cores).flag("--grace", "600s").start();
    for path in ["/plain", "/strict"] {
        accelerator.get(path).expect_status(200);
    }
    let status_of = |path: &str| cache_status(&accelerator.get(path).expect_status(200));
    eventually("it is stale", || status_of("/plain").contains("stale-while-revalidate"));
    eventually("what must be revalidated is fetched", || {
        assert!(!status_of("/strict").contains("stale-while-revalidate"));
        origin.count("/strict") >= 2
    });
}

/// An origin that answers once, and from then on fails in the given way.
fn failing(origin: &ScriptedOrigin, path: &str, cache_control: &str, way: Way) {
    let was_asked = AtomicBool::new(false);
    let first = Answer::new(200, "good").header("Cache-Control", cache_control).header("Age", "20");
    origin.on(path, move |_, reply| {
        if !was_asked.swap(true, Relaxed) {
            return reply.answer(&first);
        }
        match way {
            Way::Closes => Ok(Next::Close),
            Way::Says(status) => reply.answer(&Answer::new(status, "bad")),
        }
    });
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Closes,
    Says(u16),
}

fn a4_a_stale_object_is_served_on_origin_errors(cores: &str) {
    let origin = ScriptedOrigin::start();
    let accelerator = start(&origin, cores);
    for (path, way, status) in [
        ("/closes", Way::Closes, 200),
        ("/500", Way::Says(500), 200),
        ("/503", Way::Says(503), 200),
        ("/504", Way::Says(504), 200),
        ("/404", Way::Says(404), 404),
        ("/501", Way::Says(501), 501),
    ] {
        failing(&origin, path, "max-age=10, stale-if-error=600", way);
        accelerator.get(path).expect_status(200);
        let second = accelerator.get(path).expect_status(status);
        let shows = second.text() == "good";
        assert_eq!(shows, status == 200, "{path}: {}", second.text());
        assert_eq!(cache_status(&second).contains("detail=stale-if-error"), shows, "{path}");
    }
    assert!(accelerator.stat().count("requests.hits_stale") >= 4);
}

fn a4_what_must_be_revalidated_is_not_shown(cores: &str) {
    let origin = ScriptedOrigin::start();
    let accelerator = start(&origin, cores);
    for (path, said) in [
        ("/must", "max-age=10, must-revalidate, stale-if-error=600"),
        ("/proxy", "max-age=10, proxy-revalidate, stale-if-error=600"),
        ("/shared", "s-maxage=10"),
        ("/never", "max-age=10, stale-if-error=0"),
    ] {
        failing(&origin, path, said, Way::Closes);
        accelerator.get(path).expect_status(200);
        let second = accelerator.get(path);
        assert!(second.status() >= 500 && second.text() != "good", "{path}: {}", second.status());
    }
}

fn a4_an_origin_that_fails_is_left_alone(cores: &str) {
    let origin = ScriptedOrigin::start();
    let accelerator = start(&origin, cores);
    let paths: Vec<String> = (0..20).map(|number| format!("/{number}")).collect();
    for path in &paths {
        failing(&origin, path, "max-age=10, stale-if-error=600", Way::Closes);
        accelerator.get(path).expect_status(200);
    }
    let begun = Instant::now();
    for _ in 0..20 {
        for path in &paths {
            assert_eq!(accelerator.get(path).expect_status(200).text(), "good");
        }
    }
    let attempts = origin.all_seen().len() - paths.len();
    let most = 2 + begun.elapsed().as_secs() as usize;
    // An attempt over a kept connection that the origin closed may be repeated over a new one.
    assert!((1..=2 * most).contains(&attempts), "{attempts} attempts in {:?}", begun.elapsed());
}

/// One address that the origin answers badly must not make all other pages stale: any client could request
/// it.
fn a4_what_breaks_one_page_shows_no_other_stale(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.sends("/broken", b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", Next::Close);
    origin.sends("/crash", b"", Next::Close);
    origin.answers(
        "/good",
        Answer::new(200, "x").header("Cache-Control", "max-age=10, stale-if-error=600").header("Age", "20"),
    );
    let accelerator = start(&origin, cores);
    accelerator.get("/good").expect_status(200);
    for asked in 2..10 {
        accelerator.get(["/broken", "/crash"][asked % 2]).expect_status(502);
        let said = cache_status(&accelerator.get("/good").expect_status(200));
        assert!(!said.contains("stale-if-error"), "{said}");
        assert_eq!(origin.count("/good"), asked);
    }
}

/// An unconditional request that gets a 304 has failed: the stored answer stays as stale as it was.
fn a4_a_304_to_no_condition_is_a_failure(cores: &str) {
    let origin = ScriptedOrigin::start();
    failing(&origin, "/page", "max-age=10, stale-if-error=600", Way::Says(304));
    let accelerator = start(&origin, cores);
    for _ in 0..3 {
        assert_eq!(accelerator.get("/page").expect_status(200).text(), "good");
    }
    assert_eq!(origin.seen("/page")[1].header("if-none-match"), None);
    assert!(cache_status(&accelerator.get("/page")).contains("detail=stale-if-error"));
    assert_eq!(accelerator.stat().count("requests.revalidated"), 0);
}

/// A 5xx with a lifetime is stored, and replaced by the next answer when the lifetime is over:
/// `--stale-if-error` (ten minutes) is for pages, not for errors.
fn a_stored_error_never_stands_in_for_another(cores: &str) {
    let origin = ScriptedOrigin::start();
    for (path, status, says) in [
        ("/502", 502, "public, max-age=1"),
        ("/503", 503, "public, max-age=1, stale-if-error=600"),
        ("/500", 500, "public, max-age=1, stale-while-revalidate=0"),
    ] {
        let number = AtomicUsize::new(0);
        origin.on(path, move |_, reply| {
            let number = number.fetch_add(1, Relaxed);
            reply.answer(&Answer::new(status, format!("error {number}")).header("Cache-Control", says))
        });
        let running = start(&origin, cores);
        assert_eq!(running.get(path).expect_status(status).text(), "error 0");
        eventually("the newer error is shown", || {
            running.get(path).expect_status(status).text() != "error 0"
        });
        // The newer error is stored too, and is replaced again.
        let newer = running.get(path).text();
        eventually("and the next one", || running.get(path).expect_status(status).text() != newer);
    }
    // An error that is stale on arrival is never served again.
    let number = AtomicUsize::new(0);
    origin.on("/stale", move |_, reply| {
        let answer = Answer::new(502, number.fetch_add(1, Relaxed).to_string()).header("Age", "20");
        reply.answer(&answer.header("Cache-Control", "max-age=10, stale-if-error=600"))
    });
    let running = start(&origin, cores);
    let shown: Vec<_> = (0..3).map(|_| running.get("/stale").expect_status(502).text()).collect();
    assert_eq!(shown, ["0", "1", "2"]);
}

fn a6_a_304_refreshes_headers_and_keeps_the_body(cores: &str) {
    let origin = ScriptedOrigin::start();
    let accelerator = start(&origin, cores);
    let large = "0123456789".repeat(40_000);
    for (path, body) in [("/small", "small"), ("/empty", ""), ("/large", large.as_str())] {
        let body = body.to_owned();
        let whole = Answer::new(200, &body)
            .header("Cache-Control", "max-age=10")
            .header("ETag", "\"v1\"")
            .header("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT")
            .header("X-Version", "1")
            .header("X-Kept", "yes")
            .header("Set-Cookie2", "a=1")
            .header("Age", "20");
        origin.on(path, move |request, reply| {
            if request.header("if-none-match") != Some("\"v1\"") {
                return reply.answer(&whole);
            }
            assert_eq!(request.header("if-modified-since"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
            let same = Answer::new(304, "").header("Cache-Control", "max-age=600").header("ETag", "\"v1\"");
            reply.answer(&same.header("X-Version", "2").header("Content-Length", "3"))
        });
        accelerator.get(path).expect_status(200);
        let validated = accelerator.get(path).expect_status(200);
        assert_eq!(validated.text(), body, "{path}");
        assert!(cache_status(&validated).contains("; fwd-status=304"), "{}", cache_status(&validated));
        for response in [validated, accelerator.get(path).expect_status(200)] {
            assert_eq!(response.text(), body, "{path}");
            assert_eq!(response.head.headers.joined("x-version"), "2", "{path}");
            assert_eq!(response.header("x-kept"), Some("yes"), "{path}");
            assert_eq!(response.header("cache-control"), Some("max-age=600"));
            assert!(response.header("age").and_then(|age| age.parse().ok()).is_some_and(|age: u64| age < 10));
        }
        assert_eq!(origin.count(path), 2, "{path} is fresh again");
        // The client's own condition is evaluated for the client's answer only.
        let request = Request::get(path).header("If-None-Match", "\"v1\"");
        accelerator.fetch(&request).expect_status(304);
        let range = accelerator.fetch(&Request::get(path).header("Range", "bytes=1-2"));
        assert_eq!(range.status(), if body.is_empty() { 416 } else { 206 }, "{path}");
    }
    assert_eq!(accelerator.stat().count("requests.revalidated"), 3);
}

fn a6_a_no_cache_answer_is_stored_and_revalidated(cores: &str) {
    let origin = ScriptedOrigin::start();
    let current = Arc::new(AtomicUsize::new(1));
    let in_script = Arc::clone(&current);
    origin.on("/page", move |request, reply| {
        let tag = format!("\"{}\"", in_script.load(Relaxed));
        let is_known = request.header("if-none-match") == Some(&tag);
        let answer = if is_known { Answer::new(304, "") } else { Answer::new(200, format!("body {tag}")) };
        reply.answer(&answer.header("Cache-Control", "no-cache").header("ETag", &tag))
    });
    let accelerator = start(&origin, cores);
    for (number, version) in [1, 1, 1, 2, 2, 1].into_iter().enumerate() {
        current.store(version, Relaxed);
        let response = accelerator.get("/page").expect_status(200);
        assert_eq!(response.text(), format!("body \"{version}\""), "request {number}");
        assert_eq!(origin.count("/page"), number + 1);
    }
    assert_eq!(accelerator.stat().count("requests.revalidated"), 3);
}

fn a6_clients_that_wait_for_a_validation_share_it(cores: &str) {
    const CLIENTS: usize = 20;
    let origin = ScriptedOrigin::start();
    let gate = Gate::new();
    let in_script = gate.clone();
    origin.on("/page", move |request, reply| {
        let answer = Answer::new(200, "page").header("Cache-Control", "max-age=10").header("ETag", "\"v\"");
        if request.header("if-none-match").is_none() {
            return reply.answer(&answer.header("Age", "20"));
        }
        in_script.pass();
        reply.answer(&Answer::new(304, "").header("Cache-Control", "max-age=10").header("ETag", "\"v\""))
    });
    let accelerator = start(&origin, cores);
    accelerator.get("/page").expect_status(200);
    let all = Barrier::new(CLIENTS + 1);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = accelerator.connect();
                    client.send(&Request::get("/page").bytes());
                    all.wait();
                    let head = client.head("GET");
                    assert_eq!(head.status, 200);
                    client.rest_of_body().0
                })
            })
            .collect();
        all.wait();
        eventually("all wait", || accelerator.stat().count("requests.received") > CLIENTS as u64);
        gate.open();
        for client in clients {
            assert_eq!(client.join().expect("no panic"), b"page");
        }
    });
    assert_eq!(origin.count("/page"), 2);
}

fn a6_variants_are_validated_each_by_itself(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/page", |request, reply| {
        let language = request.header("accept-language").unwrap_or("none").to_owned();
        let tag = format!("\"{language}\"");
        let is_known = request.header("if-none-match") == Some(&tag);
        let (status, body, age) = if is_known { (304, "", "0") } else { (200, language.as_str(), "20") };
        let answer = Answer::new(status, body).header("ETag", &tag).header("Vary", "Accept-Language");
        reply.answer(&answer.header("Cache-Control", "max-age=10").header("Age", age))
    });
    let accelerator = start(&origin, cores);
    for round in 0..3 {
        for language in ["de", "en"] {
            let request = Request::get("/page").header("Accept-Language", language);
            assert_eq!(accelerator.fetch(&request).expect_status(200).text(), language, "round {round}");
        }
    }
    assert_eq!(origin.count("/page"), 4, "each was fetched once and validated once");
}

/// A 304 that adds Vary, or forbids storing, is not used: the page is fetched whole.
fn a6_a_304_that_changes_the_answer_is_unused(cores: &str) {
    let origin = ScriptedOrigin::start();
    for (path, name, value) in [("/varies", "Vary", "Accept"), ("/secret", "Cache-Control", "no-store")] {
        origin.on(path, move |request, reply| {
            if request.header("if-none-match").is_none() {
                let answer = Answer::new(200, "whole").header("ETag", "\"v\"");
                return reply.answer(&answer.header("Cache-Control", "max-age=10").header("Age", "20"));
            }
            reply.answer(&Answer::new(304, "").header("ETag", "\"v\"").header(name, value))
        });
    }
    let accelerator = start(&origin, cores);
    for path in ["/varies", "/secret"] {
        for _ in 0..2 {
            assert_eq!(accelerator.get(path).expect_status(200).text(), "whole", "{path}");
        }
        assert_eq!(origin.count(path), 3, "{path}");
    }
}

fn clients_wishes_count_if_they_are_obeyed(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/page", Answer::new(200, "x").header("Cache-Control", "max-age=600"));
    let obeying = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--client-cache-control", "obey")
        .start();
    for (accelerator, is_obeyed) in [(start(&origin, cores), false), (obeying, true)] {
        accelerator.get("/page").expect_status(200);
        for (name, value) in [
            ("Cache-Control", "no-cache"),
            ("Cache-Control", "max-age=0"),
            ("Pragma", "no-cache"),
            ("Cache-Control", "no-store"),
        ] {
            let before = origin.count("/page");
            accelerator.fetch(&Request::get("/page").header(name, value)).expect_status(200);
            assert_eq!(origin.count("/page") > before, is_obeyed, "{name}: {value}");
        }
        let only = Request::get("/absent").header("Cache-Control", "only-if-cached");
        accelerator.fetch(&only).expect_status(504);
    }
}

/// Adds a page with versions, each with its own entity tag and length.
fn versioned(origin: &ScriptedOrigin, path: &str, vary: Option<&'static str>) -> Arc<AtomicUsize> {
    let version = Arc::new(AtomicUsize::new(0));
    let of_origin = Arc::clone(&version);
    origin.on(path, move |request, reply| {
        let version = of_origin.load(Relaxed);
        let tag = format!("\"v{version}\"");
        let is_known = request.header("if-none-match") == Some(&*tag);
        let body = "x".repeat(version + 1);
        let mut answer = if is_known { Answer::new(304, "") } else { Answer::new(200, &body) };
        if let Some(names) = vary {
            answer = answer.header("Vary", names);
        }
        reply.answer(
            &answer
                .header("ETag", &tag)
                .header("Cache-Control", "max-age=600")
                .header("Age", "20")
                .header("X-Of", &tag),
        )
    });
    version
}

/// HEAD with a condition that only the origin can evaluate (RFC 9110 §13.1.1).
fn judged(path: &str) -> Request {
    Request::new("HEAD", path).header("If-Match", "*")
}

fn a6_an_answer_that_differs_from_head_is_stale(cores: &str) {
    let origin = ScriptedOrigin::start();
    for (path, vary) in [("/page", None), ("/varies", Some("Accept-Language"))] {
        let version = versioned(&origin, path, vary);
        let accelerator = start(&origin, cores);
        let get = |language| accelerator.fetch(&Request::get(path).header("Accept-Language", language));
        assert_eq!(get("de").expect_status(200).text(), "x");
        assert_eq!(get("fr").expect_status(200).text(), "x");
        let before = origin.count(path);
        // The origin's answer to HEAD matches, so the stored answer stays fresh.
        accelerator.fetch(&judged(path).header("Accept-Language", "de")).expect_status(200);
        for language in ["de", "fr"] {
            assert!(cache_status(&get(language)).contains("; hit"));
        }
        assert_eq!(origin.count(path), before + 1);
        version.store(4, Relaxed);
        assert_eq!(get("de").text(), "x", "nobody knows yet");
        accelerator.fetch(&judged(path).header("Accept-Language", "de")).expect_status(200);
        eventually("it is stale", || get("de").text() == "xxxxx");
        assert_eq!(accelerator.stat().count("requests.heard_stale"), 1);
        // The HEAD answer was not about the other variant, so that stays fresh; without Vary there is one
        // stored answer.
        assert_eq!(get("fr").text(), if vary.is_some() { "x" } else { "xxxxx" });
        assert!(cache_status(&get("de")).contains("; hit"));
        let asked = origin.seen(path).pop().expect("it was asked");
        assert_eq!(asked.header("if-none-match"), Some("\"v0\""), "it is asked about, and not dropped");
    }
}

fn a6_unusual_requests_leave_recent_answers_fresh(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/page", |request, reply| {
        let body = request.header("x-original-host").unwrap_or("x").to_owned();
        reply.answer(&Answer::new(200, &body).header("Cache-Control", "max-age=600"))
    });
    let accelerator = start(&origin, cores);
    assert_eq!(accelerator.get("/page").text(), "x");
    for host in ["some", "other", "evil"] {
        accelerator.fetch(&judged("/page").header("X-Original-Host", host)).expect_status(200);
        assert!(cache_status(&accelerator.get("/page")).contains("; hit"));
    }
    assert_eq!(accelerator.stat().count("requests.heard_stale"), 0);
}

fn a6_personal_requests_leave_stored_answers_fresh(cores: &str) {
    let origin = ScriptedOrigin::start();
    let version = versioned(&origin, "/page", None);
    let setup = Accelerator::before(&origin.url()).flag("--cores", cores);
    let accelerator = setup.flag("--bypass-cookies", "session").start();
    assert_eq!(accelerator.get("/page").text(), "x");
    version.store(1, Relaxed);
    for request in [
        // A visitor with a cookie or credentials may have a page of his own.
        Request::new("HEAD", "/page").header("Cookie", "session=1"),
        judged("/page").header("Cookie", "session=1"),
        judged("/page").header("Authorization", "Basic eDp5"),
        // This HEAD is answered from the store.
        Request::new("HEAD", "/page"),
    ] {
        accelerator.fetch(&request).expect_status(200);
        let answer = accelerator.get("/page");
        assert!(answer.text() == "x" && cache_status(&answer).contains("; hit"));
    }
    assert_eq!(accelerator.stat().count("requests.heard_stale"), 0);
}
