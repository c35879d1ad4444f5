//! A session cookie reaches only the visitor for whom the origin set it: not from the store, not with a fetch
//! that other requests wait for, not by a 304 (A1).

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use rustix::process::Signal;
use tests::{
    Accelerator, Answer, Client, Gate, Request, Response, ScriptedOrigin, eventually, message::date,
    on_one_core, on_one_core_and_on_two,
};

on_one_core! {
    an_answer_with_a_cookie_is_never_replayed,
    a_304s_cookie_goes_to_its_asker,
    a_304s_cookie_comes_with_parts_too,
    a_later_answer_without_a_cookie_is_stored,
    a_site_may_have_the_field_removed,
    what_rfc_stored_is_not_shown_by_safe,
}

on_one_core_and_on_two! {
    waiters_never_share_an_answer_with_a_cookie,
    pages_with_a_cookie_pass_side_by_side,
}

const RULES: [&str; 2] = ["safe", "strict"];

fn start(origin: &ScriptedOrigin, cores: &str, rule: &str) -> Accelerator {
    Accelerator::before(&origin.url()).flag("--cores", cores).flag("--cookies", rule).start()
}

/// Lets the origin begin a session for each request, and answer with that session's page: "you are 7".
fn sessions(origin: &ScriptedOrigin, path: &str, fields: &[(&str, String)]) {
    let fields: Vec<_> = fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let begun = AtomicUsize::new(0);
    origin.on(path, move |_, reply| {
        let number = begun.fetch_add(1, SeqCst);
        let answer = Answer::new(200, format!("you are {number}"));
        let answer = answer.header("Set-Cookie", &format!("connect.sid={number}; Path=/; HttpOnly"));
        let answer = fields.iter().fold(answer, |answer, (name, value)| answer.header(name, value));
        reply.answer(&answer)
    });
}

fn cookie(answer: &Response) -> Option<&str> {
    answer.header("set-cookie")
}

/// Asserts that each answer has a page and a cookie that no other has.
#[track_caller]
fn each_has_its_own(answers: &[Response]) {
    let cookies: HashSet<_> = answers.iter().filter_map(cookie).collect();
    assert_eq!(cookies.len(), answers.len(), "a cookie was shared or lost: {answers:?}");
    let pages: HashSet<_> = answers.iter().map(|answer| answer.text()).collect();
    assert_eq!(pages.len(), answers.len(), "a page was shared: {answers:?}");
}

fn an_answer_with_a_cookie_is_never_replayed(cores: &str) {
    let (later, last_month) = (date(3600), date(-30 * 86_400));
    let says: &[&[(&str, &str)]] = &[
        &[("Cache-Control", "max-age=600")],
        &[("Cache-Control", "public, max-age=600")],
        // Express: a session, then `express.static(…, {maxAge: "1d"})`.
        &[("Cache-Control", "public, max-age=86400"), ("ETag", "W/\"1-2\""), ("Last-Modified", &last_month)],
        // PHP: `session_cache_limiter("public")`.
        &[("Cache-Control", "public, max-age=10800"), ("Expires", &later), ("Last-Modified", &last_month)],
        &[("Cache-Control", "public, s-maxage=600")],
        &[("Cache-Control", "s-maxage=600")],
        &[("Cache-Control", "public, max-age=600, immutable")],
        &[("Cache-Control", "public, max-age=600, must-revalidate")],
        &[("Cache-Control", "public, max-age=0"), ("ETag", "\"v1\"")],
        &[("Cache-Control", "public, no-cache"), ("ETag", "\"v1\"")],
        &[("Cache-Control", "max-age=600, no-cache=\"set-cookie\"")],
        &[("Cache-Control", "max-age=600, private=\"Set-Cookie\"")],
        &[("CDN-Cache-Control", "max-age=600")],
        &[("CDN-Cache-Control", "public, max-age=600"), ("Cache-Control", "no-store")],
        &[("Expires", &later)],
        &[("Vary", "Cookie"), ("Cache-Control", "public, max-age=600")],
    ];
    for rule in RULES {
        let origin = ScriptedOrigin::start();
        let running = start(&origin, cores, rule);
        for (number, fields) in says.iter().enumerate() {
            let path = format!("/{number}");
            let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
            sessions(&origin, &path, &fields);
            let mut answers: Vec<_> = (0..3).map(|_| running.get(&path).expect_status(200)).collect();
            answers.push(running.fetch(&Request::get(&path).header("Cookie", "a=b")).expect_status(200));
            each_has_its_own(&answers);
            assert_eq!(origin.count(&path), answers.len(), "--cookies {rule}, {fields:?}");
        }
    }
}

/// Three clients send a request at once: the fetch is under way when the second and third arrive.
fn waiters_never_share_an_answer_with_a_cookie(cores: &str) {
    for rule in RULES {
        let origin = ScriptedOrigin::start();
        let (gate, begun) = (Gate::new(), AtomicUsize::new(0));
        let in_script = gate.clone();
        origin.on("/", move |_, reply| {
            let number = begun.fetch_add(1, SeqCst);
            in_script.pass();
            let answer =
                Answer::new(200, format!("you are {number}")).header("Cache-Control", "public, max-age=60");
            reply.answer(&answer.header("Set-Cookie", &format!("s={number}")))
        });
        let running = start(&origin, cores, rule);
        let mut clients = at_once(&running, &origin, &Request::get("/"), 3);
        gate.open();
        let answers: Vec<_> =
            clients.iter_mut().map(|client| client.response("GET").expect_status(200)).collect();
        each_has_its_own(&answers);
    }
}

/// Sends one request from `count` clients: the first starts a fetch, and the others wait for it.
fn at_once(running: &Accelerator, origin: &ScriptedOrigin, request: &Request, count: usize) -> Vec<Client> {
    let (before, asked) = (running.stat().count("requests.misses_collapsed"), origin.all_seen().len());
    let mut clients: Vec<_> = (0..count).map(|_| running.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&request.bytes());
        eventually("the origin is asked", || origin.all_seen().len() > asked);
        eventually("it waits for that", || {
            running.stat().count("requests.misses_collapsed") == before + number as u64
        });
    }
    clients
}

fn pages_with_a_cookie_pass_side_by_side(cores: &str) {
    const CLIENTS: usize = 6;
    let origin = ScriptedOrigin::start();
    for (path, status) in [("/page", 200), ("/missing", 404)] {
        let there = Arc::new(AtomicUsize::new(CLIENTS));
        let in_script = Arc::clone(&there);
        origin.on(path, move |_, reply| {
            // The origin holds requests until those of all clients have arrived; only the first client comes
            // alone.
            in_script.fetch_add(1, SeqCst);
            while in_script.load(SeqCst) < CLIENTS && !reply.stopped() {
                std::thread::yield_now();
            }
            let answer = Answer::new(status, "x").header("Cache-Control", "public, max-age=60");
            reply.answer(&answer.header("Set-Cookie", "s=1"))
        });
        let running = start(&origin, cores, "safe");
        let first = running.get(path).expect_status(status);
        assert!(
            first.header("cache-status").is_some_and(|said| said.contains("detail=set-cookie")),
            "{first:?}"
        );
        there.store(0, SeqCst);
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| running.connect()).collect();
        clients.iter_mut().for_each(|client| client.send(&Request::get(path).bytes()));
        clients.iter_mut().for_each(|client| drop(client.response("GET").expect_status(status)));
    }
}

/// Adds a page that is revalidated each time; with each 304 the origin begins a session.
fn validated(origin: &ScriptedOrigin, path: &str, body: Vec<u8>, gate: Gate) {
    let begun = AtomicUsize::new(0);
    let is_first = AtomicUsize::new(0);
    origin.on(path, move |request, reply| {
        let answer = |status, body: &[u8]| {
            let answer = Answer::new(status, body).header("ETag", "\"v1\"");
            answer.header("Cache-Control", "public, max-age=0").header("Content-Type", "text/plain")
        };
        if is_first.fetch_add(1, SeqCst) == 0 {
            return reply.answer(&answer(200, &body));
        }
        let number = begun.fetch_add(1, SeqCst);
        gate.pass();
        let answer = match request.header("if-none-match") {
            Some(_) => answer(304, b""),
            None => answer(200, &body),
        };
        reply.answer(&answer.header("Set-Cookie", &format!("s={number}")).header("Set-Cookie", "b=2"))
    });
}

fn a_304s_cookie_goes_to_its_asker(cores: &str) {
    for rule in RULES {
        let (origin, gate) = (ScriptedOrigin::start(), Gate::new());
        validated(&origin, "/", b"the page".to_vec(), gate.clone());
        let running = start(&origin, cores, rule);
        assert_eq!(cookie(&running.get("/").expect_status(200)), None, "this one is stored");
        let mut clients = at_once(&running, &origin, &Request::get("/"), 3);
        gate.open();
        let answers: Vec<_> =
            clients.iter_mut().map(|client| client.response("GET").expect_status(200)).collect();
        let cookies: HashSet<_> = answers.iter().filter_map(cookie).collect();
        assert_eq!(cookies.len(), 3, "three visitors, three sessions: {answers:?}");
        assert!(
            answers
                .iter()
                .all(|answer| answer.text() == "the page"
                    && answer.head.headers.all("set-cookie").count() == 2)
        );
        // A browser that has the page gets its own cookie with its 304.
        let has = Request::get("/").header("If-None-Match", "\"v1\"");
        let (one, other) = (running.fetch(&has).expect_status(304), running.fetch(&has).expect_status(304));
        assert!(cookie(&one).is_some() && cookie(&other).is_some() && cookie(&one) != cookie(&other));
    }
}

/// A 304's cookie is also sent with a range, and with content that has to be decoded first.
fn a_304s_cookie_comes_with_parts_too(cores: &str) {
    let (origin, gate) = (ScriptedOrigin::start(), Gate::new());
    gate.open();
    validated(&origin, "/", vec![b'x'; 100_000], gate);
    let running = start(&origin, cores, "safe");
    running.get("/").expect_status(200);
    for (field, value, status) in [
        ("Range", "bytes=10-19", 206),
        ("Accept-Encoding", "gzip", 200),
        ("Accept-Encoding", "identity", 200),
    ] {
        let ask = Request::get("/").header(field, value);
        let (one, other) =
            (running.fetch(&ask).expect_status(status), running.fetch(&ask).expect_status(status));
        assert!(cookie(&one).is_some() && cookie(&other).is_some(), "{field}: {one:?}");
        assert_ne!(cookie(&one), cookie(&other), "{field}: {value}");
    }
}

fn a_later_answer_without_a_cookie_is_stored(cores: &str) {
    for rule in RULES {
        let origin = ScriptedOrigin::start();
        origin.on("/", |request, reply| {
            let answer = Answer::new(200, "the page").header("Cache-Control", "public, max-age=600");
            reply.answer(&match request.header("cookie") {
                Some(_) => answer,
                None => answer.header("Set-Cookie", "s=1"),
            })
        });
        let running = start(&origin, cores, rule);
        assert!(cookie(&running.get("/").expect_status(200)).is_some());
        let back = Request::get("/").header("Cookie", "s=1");
        assert_eq!(cookie(&running.fetch(&back).expect_status(200)), None);
        for request in [&back, &Request::get("/")] {
            let hit = running.fetch(request).expect_status(200);
            assert!(hit.header("cache-status").is_some_and(|said| said.contains("; hit")), "{hit:?}");
            assert_eq!(cookie(&hit), None);
        }
        assert_eq!(origin.count("/"), 2, "--cookies {rule}");
    }
}

fn a_site_may_have_the_field_removed(cores: &str) {
    for rule in ["safe", "strict", "rfc"] {
        let origin = ScriptedOrigin::start();
        let public = [("Cache-Control", "public, max-age=600".to_owned()), ("ETag", "\"v1\"".to_owned())];
        sessions(&origin, "/", &public);
        sessions(&origin, "/private", &[("Cache-Control", "private".to_owned())]);
        sessions(&origin, "/login", &[("Cache-Control", "no-store".to_owned())]);
        let setup = Accelerator::before(&origin.url()).flag("--cores", cores).flag("--cookies", rule);
        let running = setup.limit("remove_set_cookie", "true").start();
        for _ in 0..3 {
            let page = running.get("/").expect_status(200);
            assert_eq!((page.text().as_str(), cookie(&page)), ("you are 0", None), "--cookies {rule}");
        }
        assert_eq!(origin.count("/"), 1);
        // An answer that is not stored keeps its cookie; otherwise nobody could log in.
        each_has_its_own(&[running.get("/private"), running.get("/private")]);
        let login = Request::new("POST", "/login").body(b"name=ann");
        each_has_its_own(&[running.fetch(&login), running.fetch(&login)]);
    }
}

/// A store on a file outlives the `--cookies` rule under which it was filled.
fn what_rfc_stored_is_not_shown_by_safe(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    let origin = ScriptedOrigin::start();
    sessions(
        &origin,
        "/",
        &[("Cache-Control", "public, max-age=600".to_owned()), ("ETag", "\"v1\"".to_owned())],
    );
    origin.answers("/plain", Answer::new(200, "plain").header("Cache-Control", "max-age=600"));
    let setup = |rule| {
        let setup = Accelerator::before(&origin.url()).flag("--cores", cores).flag("--memory", "64MiB");
        setup.flag("--cookies", rule).store_in(&store, "128MiB").start().warm()
    };
    let mut running = setup("rfc");
    for _ in 0..2 {
        assert_eq!(running.get("/").expect_status(200).text(), "you are 0");
        running.get("/plain").expect_status(200);
    }
    eventually("both are on the file", || {
        let stat = running.stat();
        stat.number("store.file_objects") >= 2.0 && stat.number("store.log_records_waiting") == 0.0
    });
    running.signal(Signal::TERM);
    running.wait();
    drop(running);
    let running = setup("safe");
    assert_eq!(running.get("/plain").expect_status(200).text(), "plain");
    assert_eq!(origin.count("/plain"), 1, "it is still stored");
    each_has_its_own(&[running.get("/"), running.get("/"), running.get("/")]);
}
