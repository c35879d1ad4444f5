//! Variants are keyed by the fields that the origin is sent, not by a client's claims (A2). An entity tag
//! that we have suffixed goes back to the origin in the form that the origin gave out (A10).

use std::net::Ipv4Addr;

use tests::{
    Accelerator, Answer, Client, Request, Response, ScriptedOrigin, connections::connect_from, on_one_core,
};

on_one_core! {
    a_variant_is_keyed_as_sent,
    what_a_stranger_claims_selects_no_variant,
    what_a_listed_proxy_says_selects_the_variant,
    both_forms_of_a_tag_reach_the_origin,
    parts_of_our_codings_reach_no_origin,
    a_sticky_cookie_alone_reaches_no_fetch,
    a_sticky_cookie_beside_others_reaches_no_fetch,
}

/// Sends a request from another address of this machine.
fn from(address: [u8; 4], running: &Accelerator, request: &Request) -> Response {
    let stream = connect_from(address, running.address()).expect("it listens");
    let mut client = Client::over(stream).expect("a client");
    client.exchange(request)
}

/// Adds pages that vary by a field and show its value.
fn mirrors(origin: &ScriptedOrigin, fields: &[&'static str]) {
    for &field in fields {
        origin.on(&format!("/{field}"), move |request, reply| {
            let said = request.headers.joined(field);
            let answer = Answer::new(200, format!("[{said}]")).header("Cache-Control", "public, max-age=600");
            reply.answer(&answer.header("Vary", field))
        });
    }
}

const OF_VISITOR: [&str; 3] = ["X-Forwarded-For", "Forwarded", "X-Real-IP"];

fn a_variant_is_keyed_as_sent(cores: &str) {
    let origin = ScriptedOrigin::start();
    mirrors(&origin, &OF_VISITOR[..2]);
    let running = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    for field in &OF_VISITOR[..2] {
        let request = Request::get(&format!("/{field}"));
        for address in [[127, 0, 0, 1], [127, 0, 0, 2], [127, 0, 0, 1], [127, 0, 0, 2]] {
            let page = from(address, &running, &request).expect_status(200);
            let own = Ipv4Addr::from(address).to_string();
            assert!(page.text().contains(&own), "{field}: {own} was shown {}", page.text());
        }
        assert_eq!(origin.count(&format!("/{field}")), 2, "{field}: one page an address");
    }
}

/// A field that is not sent to the origin, or is the same for all clients, makes no variants: no client can
/// fill the store with it, nor get another client's page.
fn what_a_stranger_claims_selects_no_variant(cores: &str) {
    let fields = [
        "X-Forwarded-For",
        "Forwarded",
        "X-Real-IP",
        "X-Forwarded-Proto",
        "X-Forwarded-Host",
        "X-Forwarded-Port",
        "X-Original-URL",
        "X_Forwarded_For",
        "X-Purge-Token",
        "If-None-Match",
    ];
    let origin = ScriptedOrigin::start();
    mirrors(&origin, &fields);
    let running = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    for field in fields {
        let path = format!("/{field}");
        let first = running.get(&path).expect_status(200);
        for claim in ["127.0.0.1", "192.0.2.7", "https"] {
            let page = running.fetch(&Request::get(&path).header(field, claim)).expect_status(200);
            assert_eq!(page.text(), first.text(), "{field}: {claim}");
        }
        assert_eq!(origin.count(&path), 1, "{field}");
    }
    // The client's Via is sent on with our entry after it, and Host is sent as it is keyed.
    mirrors(&origin, &["Via", "Host"]);
    let via = |said: &str| running.fetch(&Request::get("/Via").header("Via", said)).expect_status(200).text();
    let (one, other) = (via("1.1 one"), via("1.1 other"));
    assert!(one.starts_with("[1.1 one, 1.1 ") && other.starts_with("[1.1 other, 1.1 "), "{one} {other}");
    assert_ne!(running.get("/Via").text(), one);
    assert_eq!((via("1.1 one"), origin.count("/Via")), (one, 3));
    for host in ["Site.test", "site.TEST:80", "site.test"] {
        let page = running.fetch(&Request::get("/Host").header("Host", host)).expect_status(200);
        assert_eq!((page.text().as_str(), origin.count("/Host")), ("[site.test]", 1));
    }
}

fn what_a_listed_proxy_says_selects_the_variant(cores: &str) {
    let origin = ScriptedOrigin::start();
    mirrors(&origin, &OF_VISITOR);
    let setup = Accelerator::before(&origin.url()).flag("--cores", cores);
    let running = setup.flag("--trusted-proxies", "127.0.0.1").start();
    for field in OF_VISITOR {
        let path = format!("/{field}");
        for (visitor, fetches) in [("192.0.2.7", 1), ("192.0.2.8", 2), ("192.0.2.7", 2)] {
            let said = if field == "Forwarded" { format!("for={visitor}") } else { visitor.to_owned() };
            let page = running.fetch(&Request::get(&path).header(field, &said)).expect_status(200);
            assert!(page.text().contains(visitor), "{field}: {visitor} was shown {}", page.text());
            assert_eq!(origin.count(&path), fetches, "{field}");
        }
        // A client at another address is not trusted, whatever it claims.
        let claim = Request::get(&path).header(field, "192.0.2.7");
        let page = from([127, 0, 0, 2], &running, &claim).expect_status(200);
        assert!(!page.text().contains("192.0.2.7"), "{field}: a stranger was shown {}", page.text());
    }
}

fn both_forms_of_a_tag_reach_the_origin(cores: &str) {
    let origin = ScriptedOrigin::start();
    let page = || {
        Answer::new(200, "word ".repeat(1000)).header("Content-Type", "text/plain").header("ETag", "\"v1\"")
    };
    origin.on("/", move |request, reply| {
        // The origin is an API with optimistic locking.
        let is_current =
            request.header("if-match").is_none_or(|tags| tags.split(", ").any(|tag| tag == "\"v1\""));
        // If-None-Match is compared weakly (RFC 9110 §13.1.2).
        let is_had = request
            .header("if-none-match")
            .is_some_and(|tags| tags.split(", ").any(|tag| tag.trim_start_matches("W/") == "\"v1\""));
        reply.answer(&match (is_current, is_had) {
            (false, _) => Answer::new(412, ""),
            (true, true) => Answer::new(304, "").header("ETag", "\"v1\""),
            (true, false) => page().header("Cache-Control", "max-age=600"),
        })
    });
    let running = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    let coded = || running.fetch(&Request::get("/").header("Accept-Encoding", "br")).expect_status(200);
    tests::eventually("it is compressed", || coded().header("etag") == Some("\"v1-br\""));
    let changed = Request::new("PUT", "/").header("If-Match", "\"v1-br\"").body(b"new");
    running.fetch(&changed).expect_status(200);
    let same = Request::new("POST", "/").header("If-None-Match", "\"x\", W/\"v1-gz\"").body(b"new");
    running.fetch(&same).expect_status(304);
    let last = origin.all_seen().pop().expect("it was asked");
    assert_eq!(last.header("if-none-match"), Some("\"x\", W/\"v1-gz\", W/\"v1\""));
    // A tag with a suffix like ours may be the origin's own, so both forms are sent.
    for (said, sent) in [
        ("\"user-id\"", "\"user-id\", \"user\""),
        ("\"v1\"", "\"v1\""),
        ("*", "*"),
        ("\"a-zst\", \"b\", \"c-br\"", "\"a-zst\", \"b\", \"c-br\", \"a\", \"c\""),
    ] {
        for field in ["If-Match", "If-None-Match"] {
            running.fetch(&Request::new("DELETE", "/").header(field, said));
            let last = origin.all_seen().pop().expect("it was asked");
            assert_eq!(last.header(field), Some(sent), "{field}");
        }
    }
}

fn parts_of_our_codings_reach_no_origin(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/mine", Answer::new(200, "0123456789").header("Cache-Control", "private"));
    let own =
        Answer::new(200, "0123456789").header("Cache-Control", "max-age=600").header("ETag", "\"user-id\"");
    origin.answers("/own", own);
    let running =
        Accelerator::before(&origin.url()).flag("--cores", cores).flag("--bypass-headers", "X-Pass").start();
    running.get("/own").expect_status(200);
    for (path, tag, goes_on) in [
        ("/mine", "\"v1\"", true),
        ("/mine", "\"v1-br\"", false),
        ("/mine", "\"v1-id\"", false),
        // The stored object has this tag, so it is the origin's own.
        ("/own", "\"user-id\"", true),
        ("/own", "\"other-id\"", false),
    ] {
        let request =
            Request::get(path).header("X-Pass", "1").header("Range", "bytes=2-4").header("If-Range", tag);
        running.fetch(&request);
        let last = origin.all_seen().pop().expect("it was asked");
        let want = goes_on.then_some(("bytes=2-4", tag));
        assert_eq!(last.header("range").zip(last.header("if-range")), want, "{path}: {tag}");
        assert_eq!(last.header("if-range").is_some(), last.header("range").is_some());
    }
    // Fields that Connection names are hop-by-hop.
    let hop = Request::get("/mine")
        .header("X-Pass", "1")
        .header("Range", "bytes=2-4")
        .header("If-None-Match", "\"a\"");
    running.fetch(&hop.header("Connection", "Range, If-None-Match"));
    let last = origin.all_seen().pop().expect("it was asked");
    assert_eq!((last.header("range"), last.header("if-none-match")), (None, None));
}

/// The sticky cookie is in no key, so no fetch whose answer is stored carries it.
fn a_sticky_cookie_alone_reaches_no_fetch(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/", |request, reply| {
        let said = request.header("cookie").unwrap_or("none").to_owned();
        reply.answer(&Answer::new(200, said).header("Cache-Control", "max-age=600"))
    });
    let setup = Accelerator::before(&origin.url()).flag("--cores", cores).flag("--sticky-cookie", "night");
    let running = setup.start();
    let page = running.fetch(&Request::get("/").header("Cookie", "night=0123")).expect_status(200);
    assert_eq!(page.text(), "none");
    assert_eq!(running.get("/").expect_status(200).text(), "none");
    assert_eq!(origin.count("/"), 1);
}

/// Other cookies are sent without the sticky cookie, if the origin says that its answer is for all, or names
/// Cookie in Vary.
fn a_sticky_cookie_beside_others_reaches_no_fetch(cores: &str) {
    let origin = ScriptedOrigin::start();
    fn said(request: &tests::origin::Seen) -> String {
        request.header("cookie").unwrap_or("none").to_owned()
    }
    origin.on("/public", move |request, reply| {
        reply.answer(&Answer::new(200, said(request)).header("Cache-Control", "public, max-age=600"))
    });
    origin.on("/vary", move |request, reply| {
        let answer = Answer::new(200, said(request)).header("Cache-Control", "max-age=600");
        reply.answer(&answer.header("Vary", "Cookie"))
    });
    origin.on("/form", move |request, reply| reply.answer(&Answer::new(200, said(request))));
    let setup = Accelerator::before(&origin.url()).flag("--cores", cores).flag("--sticky-cookie", "night");
    let running = setup.start();
    let with = |path: &str, cookie: &str| running.fetch(&Request::get(path).header("Cookie", cookie));
    assert_eq!(with("/public", "night=0123; theme=dark").expect_status(200).text(), "theme=dark");
    assert_eq!(with("/public", "night=4567; theme=dark").expect_status(200).text(), "theme=dark");
    // The sent cookies select the variant: visitors of two servers share a variant, those of two themes do
    // not.
    assert_eq!(with("/vary", "theme=dark; night=0123; a=b").expect_status(200).text(), "theme=dark; a=b");
    assert_eq!(with("/vary", "theme=dark; a=b; night=4567").expect_status(200).text(), "theme=dark; a=b");
    assert_eq!(with("/vary", "night=0123; theme=light").expect_status(200).text(), "theme=light");
    assert_eq!((origin.count("/public"), origin.count("/vary")), (1, 2));
    // A passed request carries the sticky cookie, so that its visitor stays with one server.
    let form = running.fetch(&Request::new("POST", "/form").header("Cookie", "night=0123; theme=dark"));
    assert_eq!(form.expect_status(200).text(), "night=0123; theme=dark");
}
