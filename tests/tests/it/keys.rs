//! Cache keys: a client cannot change, by anything that it sends, which answer another client gets. The key
//! decides which stored answer is served, and the origin receives only what the key covers.

use tests::{Accelerator, Answer, ScriptedOrigin, on_one_core, on_one_core_and_on_two};

on_one_core! {
    a_spelling_of_the_host_decides_nothing,
    each_scheme_has_its_own_answers,
    unkeyed_fields_reach_no_stored_answer,
    headers_named_by_connection_are_dropped_and_unkeyed,
}

on_one_core_and_on_two! {
    a7_variants_are_limited_and_stored_ones_found,
}

fn start(origin: &ScriptedOrigin, cores: &str) -> Accelerator {
    Accelerator::before(&origin.url()).flag("--cores", cores).start()
}

/// Sends exactly this head.
fn ask(accelerator: &Accelerator, head: &str) -> tests::Response {
    let mut client = accelerator.connect();
    client.send(format!("{}\r\n\r\n", head.replace('\n', "\r\n")).as_bytes());
    client.response("GET")
}

fn a_spelling_of_the_host_decides_nothing(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/", |request, reply| {
        let link = format!("http://{}/next", request.header("host").unwrap_or_default());
        reply.answer(&Answer::new(200, link).header("Cache-Control", "max-age=600"))
    });
    let accelerator = start(&origin, cores);
    for head in [
        "GET / HTTP/1.1\nHost: SITE.test:80",
        "GET / HTTP/1.1\nHost: site.test",
        "GET http://Site.Test:080/ HTTP/1.1\nHost: site.TEST",
        "GET / HTTP/1.1\nHost: site.test:",
    ] {
        assert_eq!(ask(&accelerator, head).expect_status(200).text(), "http://site.test/next", "{head}");
    }
    assert_eq!(origin.count("/"), 1, "one answer for all spellings");
}

fn each_scheme_has_its_own_answers(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/", |request, reply| {
        // Answers as most frameworks do behind a proxy that terminates TLS.
        let answer = match request.header("x-forwarded-proto") {
            Some("https") => Answer::new(200, "safe"),
            _ => Answer::new(301, "").header("Location", "https://site.test/"),
        };
        reply.answer(&answer.header("Cache-Control", "max-age=600"))
    });
    let setup = Accelerator::before(&origin.url()).flag("--cores", cores);
    let accelerator = setup.flag("--trusted-proxies", "127.0.0.1").start();
    for _ in 0..2 {
        ask(&accelerator, "GET / HTTP/1.1\nHost: site.test").expect_status(301);
        let safe = ask(&accelerator, "GET / HTTP/1.1\nHost: site.test\nX-Forwarded-Proto: https");
        assert_eq!(safe.expect_status(200).text(), "safe");
        // Any scheme other than https counts as http.
        ask(&accelerator, "GET / HTTP/1.1\nHost: site.test\nX-Forwarded-Proto: gopher").expect_status(301);
    }
    assert_eq!(origin.count("/"), 2, "one answer a scheme");
}

fn unkeyed_fields_reach_no_stored_answer(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/", |request, reply| {
        let seen: Vec<_> = ["x-original-url", "x-forwarded-port", "x_forwarded_host", "x-other"]
            .iter()
            .filter_map(|name| request.header(name))
            .collect();
        assert_eq!(request.header("x-forwarded-host"), Some("site.test"));
        reply.answer(&Answer::new(200, seen.join(" ")).header("Cache-Control", "max-age=600"))
    });
    let accelerator = start(&origin, cores);
    let head = "GET / HTTP/1.1\nHost: site.test\nX-Forwarded-Host: evil\nX-Original-URL: /evil\n\
                Forwarded: host=evil\nX_Forwarded_Host: evil\nX-Other: fine";
    assert_eq!(ask(&accelerator, head).expect_status(200).text(), "fine");
    assert_eq!(ask(&accelerator, "GET / HTTP/1.1\nHost: site.test").expect_status(200).text(), "fine");
}

fn a7_variants_are_limited_and_stored_ones_found(cores: &str) {
    const MOST: u64 = 256;
    let origin = ScriptedOrigin::start();
    for path in ["/", "/other"] {
        origin.on(path, |request, reply| {
            let shown = request.header("x-any").unwrap_or_default().to_owned();
            reply.answer(
                &Answer::new(200, shown).header("Vary", "X-Any").header("Cache-Control", "max-age=600"),
            )
        });
    }
    let accelerator = start(&origin, cores);
    let show = |path: &str, number: u64| {
        let request = format!("GET {path} HTTP/1.1\nHost: site.test\nX-Any: {number}");
        let response = ask(&accelerator, &request).expect_status(200);
        assert_eq!(response.text(), number.to_string());
        response
    };
    (0..MOST + 10).for_each(|number| drop(show("/", number)));
    let asked = origin.count("/");
    (0..MOST).for_each(|number| drop(show("/", number)));
    assert_eq!(origin.count("/"), asked, "what was stored before is found");
    let beyond = show("/", MOST + 20);
    assert!(beyond.header("cache-status").is_some_and(|said| said.contains("detail=too-many-variants")));
    assert_eq!(origin.count("/"), asked + 1);
    // Made-up variants do not keep out a variant that is requested again.
    (0..3).for_each(|_| drop(show("/", MOST + 20)));
    assert_eq!(origin.count("/"), asked + 2, "it was stored when it was asked for again");
    (0..2).for_each(|_| drop(show("/other", 1)));
    assert_eq!(origin.count("/other"), 1, "an address has its own");
    assert!(accelerator.stat().count("limits.variants_of_an_address") >= 10);
}

fn headers_named_by_connection_are_dropped_and_unkeyed(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/", |request, reply| {
        let answer = match request.header("origin") {
            Some(from) => Answer::new(200, "shared").header("Access-Control-Allow-Origin", from),
            None => Answer::new(200, "private"),
        };
        reply.answer(&answer.header("Vary", "Origin").header("Cache-Control", "max-age=600"))
    });
    let accelerator = start(&origin, cores);
    let named = "GET / HTTP/1.1\nHost: site.test\nOrigin: https://app.test\nConnection: origin";
    assert_eq!(ask(&accelerator, named).expect_status(200).text(), "private");
    let whole = "GET / HTTP/1.1\nHost: site.test\nOrigin: https://app.test";
    let response = ask(&accelerator, whole).expect_status(200);
    assert_eq!(response.header("access-control-allow-origin"), Some("https://app.test"));
    assert_eq!(ask(&accelerator, "GET / HTTP/1.1\nHost: site.test").expect_status(200).text(), "private");
    assert_eq!(origin.count("/"), 2, "without Origin is without Origin, for whatever reason");
}
