//! Row A34 of the features: several sites behind one accelerator, each with its rules; row A35: cookies under
//! these rules.

use std::io::Write as _;

use serde_json::Value;
use tests::{
    Accelerator, Answer, Gate, Request, Response, ScriptedOrigin, eventually, on_one_core,
    on_one_core_and_on_two, origin::NobodyThere,
};

on_one_core! {
    a34_hosts_have_origins_and_others_get_421,
    a34_unlisted_hosts_use_the_default_origin,
    a34_a_failed_origin_affects_no_other_site,
    a34_ignored_parameters_are_neither_keyed_nor_sent,
    a34_known_visitors_pass_and_stored_fetches_lack_cookies,
    a34_irrelevant_cookies_make_no_variant,
    a34_post_answers_made_with_cookies_are_not_stored,
    a34_refused_methods_get_405_and_invalidate_nothing,
    a34_paths_set_pass_ttl_and_join,
    a34_a_path_ttl_shares_answers_between_visitors,
    a34_an_origin_receives_its_configured_host,
    a34_set_cookie_answers_are_private_under_bypass_cookies,
    a31_a_site_has_its_own_error_page,
}

on_one_core_and_on_two! {
    a34_purges_and_invalidations_know_the_rules_for_queries,
}

fn start(text: &str, cores: &str) -> Accelerator {
    Accelerator::configured(text).flag("--cores", cores).flag("--purge-from", "127.0.0.1").start()
}

/// An origin whose answers show its name and the request, fresh for ten minutes.
fn named(name: &'static str) -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    origin.otherwise(move |request, reply| {
        let body = format!("{name}: {} {}", request.header("host").unwrap_or_default(), request.target);
        reply.answer(&Answer::new(200, body).header("Cache-Control", "max-age=600"))
    });
    origin
}

/// Requests a path of a host.
#[track_caller]
fn get(running: &Accelerator, host: &str, target: &str) -> Response {
    running.fetch(&Request::get(target).header("Host", host))
}

/// Output of `nighttrain explain --json` for a URL.
#[track_caller]
fn explain(running: &Accelerator, url: &str, arguments: &[&str]) -> Value {
    let output = running.ask(&[&["explain", "--json", url], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The first step with this state and decision.
#[track_caller]
fn step<'s>(said: &'s Value, state: &str, decision: &str) -> &'s Value {
    let steps = said["steps"].as_array().expect("steps");
    let is_it = |step: &&Value| step["state"] == state && step["decision"] == decision;
    steps.iter().find(is_it).unwrap_or_else(|| panic!("no {state} {decision}: {said:#}"))
}

fn status_of(response: &Response) -> String {
    response.header("cache-status").unwrap_or_default().to_owned()
}

#[track_caller]
fn is_hit(response: &Response) -> bool {
    status_of(response).contains("; hit")
}

fn a34_hosts_have_origins_and_others_get_421(cores: &str) {
    let (one, two) = (named("one"), named("two"));
    let running = start(
        &format!(
            "[[cache.site]]\nhosts = [\"a.test\", \"www.a.test\"]\norigin = \"{}\"\n\
             [[cache.site]]\nhosts = [\"*.b.test\"]\norigin = \"{}\"\n",
            one.url(),
            two.url()
        ),
        cores,
    );
    assert!(running.printed().contains("in front of 2 sites, with"), "{}", running.printed());
    for (host, body) in [
        ("a.test", "one: a.test /"),
        ("www.A.test", "one: www.a.test /"),
        ("a.test:8080", "one: a.test:8080 /"),
        ("x.b.test", "two: x.b.test /"),
        ("y.x.b.test.", "two: y.x.b.test. /"),
    ] {
        assert_eq!(get(&running, host, "/").expect_status(200).text(), body);
        assert!(is_hit(&get(&running, host, "/")), "{host}");
    }
    assert_eq!((one.count("/"), two.count("/")), (3, 2));
    for host in ["b.test", "c.test", "", "127.0.0.1", "a.test.evil"] {
        let page = running.fetch(&Request::get("/").header("Host", host).header("Accept", "text/html"));
        let text = page.expect_status(421).text();
        assert!(text.contains("No website of this name is served here"), "{text}");
    }
    assert_eq!(running.fetch(&Request::new("POST", "/").header("Host", "c.test").body(b"x")).status(), 421);
    // A tag may be on pages of several sites, so a purge by tag is accepted for any host.
    let purge = Request::new("PURGE", "/").header("Host", "c.test").header("Surrogate-Key", "x");
    running.fetch(&purge).expect_status(200);
    assert_eq!(
        (running.stat().count("requests.passes"), running.stat().count("requests.misdirected")),
        (0, 6)
    );

    let said = explain(&running, "http://x.b.test/", &[]);
    assert_eq!(
        (&said["outcome"], &step(&said, "site", "named")["hosts"]),
        (&"hit".into(), &"*.b.test".into())
    );
    assert!(
        step(&said, "key", "primary")["words"].as_str().expect("words").contains(&two.address().to_string())
    );
    let said = explain(&running, "http://c.test/", &[]);
    assert_eq!((&said["outcome"], &step(&said, "now", "synth")["status"]), (&"synth".into(), &421.into()));
    assert!(running.ask(&["purge", "http://x.b.test/"]).status.success());
    assert!(!is_hit(&get(&running, "x.b.test", "/")) && is_hit(&get(&running, "a.test", "/")));
}

fn a34_unlisted_hosts_use_the_default_origin(cores: &str) {
    let (one, rest) = (named("one"), named("rest"));
    let text = format!(
        "[cache]\norigin = \"{}\"\nsort-query = true\n[[cache.site]]\nhosts = [\"a.test\"]\norigin = \"{}\"\n\
         [[cache.site]]\nhosts = [\"b.test\"]\nsort-query = false\n",
        rest.url(),
        one.url()
    );
    let running = start(&text, cores);
    // Rules of `[cache]` also hold for sites that set no rule of their own.
    assert_eq!(get(&running, "a.test", "/?b&a").text(), "one: a.test /?a&b");
    assert_eq!(get(&running, "b.test", "/?b&a").text(), "rest: b.test /?b&a");
    assert_eq!(get(&running, "other.test", "/?b&a").text(), "rest: other.test /?a&b");
    step(&explain(&running, "http://other.test/", &[]), "site", "default");
    // A flag replaces the value of `[cache]`, and so the default of each site.
    let running = Accelerator::configured(&text).flag("--origin", &one.url()).flag("--cores", cores).start();
    assert_eq!(get(&running, "b.test", "/").text(), "one: b.test /");
}

fn a34_a_failed_origin_affects_no_other_site(cores: &str) {
    let (well, gone) = (named("well"), NobodyThere::new());
    let running = start(
        &format!(
            "[[cache.site]]\nhosts = [\"gone.test\"]\norigin = \"http://{}\"\n[[cache.site]]\nhosts = [\"well.test\"]\n\
             origin = \"{}\"\n[[cache.site]]\nhosts = [\"short.test\"]\norigin = \"{}\"\nstale-if-error = \"0s\"\n",
            gone.address(),
            well.url(),
            well.url()
        ),
        cores,
    );
    let stale = || {
        Answer::new(200, "old")
            .header("Cache-Control", "max-age=1")
            .header("Age", "5")
            .header("ETag", "\"x\"")
    };
    well.on("/stale", move |request, reply| match request.header("if-none-match") {
        None => reply.answer(&stale()),
        Some(_) => reply.answer(&Answer::new(500, "broken")),
    });
    assert_eq!(get(&running, "gone.test", "/").status(), 502);
    // A stale page is revalidated: an origin that counts as failing would not be asked for a second.
    for host in ["well.test", "short.test"] {
        assert_eq!(get(&running, host, "/stale").expect_status(200).text(), "old");
    }
    let asked = well.count("/stale");
    assert_eq!(get(&running, "gone.test", "/").status(), 502);
    assert_eq!(get(&running, "well.test", "/stale").expect_status(200).text(), "old");
    assert!(well.count("/stale") > asked, "the site whose origin is well was asked");
    // One site's `stale-if-error` does not apply to the other.
    assert_eq!(get(&running, "short.test", "/stale").status(), 500);
}

fn a34_ignored_parameters_are_neither_keyed_nor_sent(cores: &str) {
    let origin = named("one");
    let running = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--ignore-query", "utm_*,fbclid")
        .limit("sort_query", "true")
        .start();
    for target in
        ["/p?b=2&a=1", "/p?utm_source=x&a=1&b=2", "/p?a=1&fbclid&b=2&utm_z=", "http://site.test/p?a=1&b=2"]
    {
        assert_eq!(running.get(target).expect_status(200).text(), "one: site.test /p?a=1&b=2");
    }
    assert_eq!(origin.count("/p"), 1);
    assert_eq!(running.get("/q?utm_source=x").text(), "one: site.test /q");
    assert!(is_hit(&running.get("/q")) && !is_hit(&running.get("/q?")));
    // A passed request keeps the target that its client wrote.
    running.fetch(&Request::new("POST", "/p?b=2&utm_source=x&a=1").body(b"x")).expect_status(200);
    let posted: Vec<_> = origin.all_seen().into_iter().filter(|seen| seen.method == "POST").collect();
    assert_eq!(posted[0].target, "/p?b=2&utm_source=x&a=1");
    let said = explain(&running, "http://site.test/q?utm_a=1", &[]);
    assert_eq!((&said["outcome"], &step(&said, "key", "primary")["path"]), (&"hit".into(), &"/q".into()));
    step(&said, "key", "query");
}

fn a34_purges_and_invalidations_know_the_rules_for_queries(cores: &str) {
    let origin = named("one");
    let changed = |reply: &mut tests::origin::Reply<'_>| {
        let answer = Answer::new(303, "").header("Location", "/list?utm_campaign=mail&page=2&kind=a");
        reply.answer(&answer.header("Content-Location", "/item?utm_x"))
    };
    origin.on("/change", move |_, reply| changed(reply));
    let text =
        format!("[cache]\norigin = \"{}\"\nignore-query = [\"utm_*\"]\nsort-query = true\n", origin.url());
    let running = start(&text, cores);
    let is_stored = |target: &str| is_hit(&running.get(target));
    let store = || ["/list?kind=a&page=2", "/item"].map(|target| running.get(target).expect_status(200));
    let url = "http://site.test/list?page=2&utm_id=7&kind=a";

    store();
    assert!(is_stored("/list?utm_a&page=2&kind=a") && is_stored("/item?utm_b"));
    running.fetch(&Request::new("PURGE", "/list?page=2&utm_source=x&kind=a")).expect_status(200);
    assert!(!is_stored("/list?kind=a&page=2"));
    let said = running.ask(&["purge", url]).stdout;
    assert_eq!(String::from_utf8_lossy(&said), "Dropped http://site.test/list?kind=a&page=2\n");
    assert!(!is_stored("/list?kind=a&page=2") && is_stored("/item"));
    assert!(running.ask(&["purge", "--soft", url]).status.success());
    assert!(!is_stored("/list?kind=a&page=2"));
    store();
    running.fetch(&Request::new("POST", "/change").body(b"x")).expect_status(303);
    assert!(!is_stored("/list?kind=a&page=2") && !is_stored("/item"));
    store();
    running.fetch(&Request::new("DELETE", "/item?utm_source=x")).expect_status(200);
    assert!(!is_stored("/item") && is_stored("/list?kind=a&page=2"));
}

/// An origin that knows its visitors by a cookie, and says little to caches.
fn with_sessions() -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    origin.otherwise(|request, reply| {
        let cookies = request.headers.joined("cookie");
        let visitor = cookies.split("; ").find_map(|pair| pair.strip_prefix("session="));
        let body = format!("{} for {}", request.target, visitor.unwrap_or("anybody"));
        reply.answer(&Answer::new(200, body).header("Cache-Control", "max-age=600"))
    });
    origin
}

fn a34_known_visitors_pass_and_stored_fetches_lack_cookies(cores: &str) {
    let origin = with_sessions();
    let running = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--bypass-cookies", "session,wp_*")
        .flag("--bypass-headers", "X-Preview")
        .start();
    let with =
        |cookie: &str| running.fetch(&Request::get("/page").header("Cookie", cookie)).expect_status(200);
    assert_eq!(with("_ga=1; theme=dark").text(), "/page for anybody");
    for cookie in ["_ga=2", "a=b; c=d", "Session=x"] {
        assert!(is_hit(&with(cookie)), "{cookie}");
    }
    assert_eq!(origin.seen("/page")[0].header("cookie"), None);
    for (cookie, body) in [("session=anna", "/page for anna"), ("x=y; session=ben", "/page for ben")] {
        for _ in 0..2 {
            let page = with(cookie);
            assert_eq!(page.text(), body);
            assert!(status_of(&page).contains("detail=bypass-cookie"), "{}", status_of(&page));
        }
    }
    // A malformed Cookie field cannot be judged, so the request passes.
    assert!(!is_hit(&with("session")) && !is_hit(&with("a=b;;")) && is_hit(&with("a=b")));
    let preview = running.fetch(&Request::get("/page").header("x-preview", "1"));
    assert!(status_of(&preview).contains("detail=bypass-header"), "{}", status_of(&preview));
    assert_eq!(running.get("/page").text(), "/page for anybody");

    let known = explain(&running, "http://site.test/page", &["-H", "Cookie: session=anna"]);
    assert_eq!(
        (&known["outcome"], &step(&known, "recv", "pass")["section"]),
        (&"pass".into(), &"knob bypass-cookies".into())
    );
    let unknown = explain(&running, "http://site.test/page", &["-H", "Cookie: _ga=1"]);
    step(&unknown, "recv", "cookies-ignored");
    assert_eq!(unknown["outcome"], "hit");
}

fn a34_irrelevant_cookies_make_no_variant(cores: &str) {
    let origin = with_sessions();
    origin
        .answers("/v", Answer::new(200, "x").header("Cache-Control", "max-age=600").header("Vary", "Cookie"));
    let running =
        Accelerator::before(&origin.url()).flag("--cores", cores).flag("--bypass-cookies", "session").start();
    for cookie in ["_ga=1", "_ga=2", "_ga=3"] {
        running.fetch(&Request::get("/v").header("Cookie", cookie)).expect_status(200);
    }
    running.get("/v").expect_status(200);
    assert_eq!(origin.count("/v"), 1);
    assert_eq!(explain(&running, "http://site.test/v", &["-H", "Cookie: _ga=4"])["outcome"], "hit");
}

fn a34_post_answers_made_with_cookies_are_not_stored(cores: &str) {
    let origin = with_sessions();
    origin.on("/form", |request, reply| {
        let body = format!("{} saw {}", request.method, request.headers.joined("cookie"));
        let answer = Answer::new(200, body).header("Content-Location", "/form?utm_y");
        // The origin makes the answer fresh, and says nothing about cookies.
        reply.answer(&answer.header("Cache-Control", "max-age=600"))
    });
    let text = format!(
        "[cache]\norigin = \"{}\"\nbypass-cookies = [\"session\"]\nignore-query = [\"utm_*\"]\ncookies = \"strict\"\n",
        origin.url()
    );
    let running = start(&text, cores);
    let post = |cookie: &str| {
        running.fetch(&Request::new("POST", "/form").header("Cookie", cookie).body(b"x")).expect_status(200)
    };
    for cookie in ["session=anna", "theme=dark"] {
        assert_eq!(post(cookie).text(), format!("POST saw {cookie}"));
        assert_eq!(running.get("/form").text(), "GET saw ");
    }
    running.fetch(&Request::new("POST", "/form?utm_x").body(b"x")).expect_status(200);
    let stored = running.get("/form");
    assert!(is_hit(&stored) && stored.text() == "POST saw ", "{}", stored.text());
}

fn a34_refused_methods_get_405_and_invalidate_nothing(cores: &str) {
    let origin = named("one");
    let running = start(
        &format!(
            "[cache]\norigin = \"{}\"\nmethods = [\"HEAD\", \"GET\"]\n[[cache.path]]\npath = \"/api/*\"\n\
             methods = [\"GET\", \"PUT\"]\n",
            origin.url()
        ),
        cores,
    );
    running.get("/page").expect_status(200);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "get", "LINK"] {
        let refused = running.fetch(&Request::new(method, "/page").body(b"x")).expect_status(405);
        assert_eq!(refused.header("allow"), Some("GET, HEAD"), "{method}");
    }
    assert!(is_hit(&running.get("/page")) && is_hit(&running.fetch(&Request::new("HEAD", "/page"))));
    let refused = running.fetch(&Request::new("HEAD", "/api/x"));
    assert_eq!((refused.status(), refused.header("allow")), (405, Some("GET, PUT")));
    running.get("/api/x").expect_status(200);
    running.fetch(&Request::new("PUT", "/api/x").body(b"x")).expect_status(200);
    assert!(!is_hit(&running.get("/api/x")));
    assert!(origin.all_seen().iter().all(|seen| matches!(seen.method.as_str(), "GET" | "PUT")));
    assert_eq!(running.stat().count("requests.methods_refused"), 7);
    // PURGE and BAN are exempt from `methods`.
    running.fetch(&Request::new("PURGE", "/page")).expect_status(200);
    running.fetch(&Request::new("BAN", "/").header("X-Ban", "req.url ~ ^/api")).expect_status(200);
    let said = explain(&running, "http://site.test/api/x", &["-X", "POST"]);
    assert_eq!((&said["outcome"], &step(&said, "now", "synth")["status"]), (&"synth".into(), &405.into()));
    assert_eq!(step(&said, "site", "path")["rule"], 1);
}

fn a34_paths_set_pass_ttl_and_join(cores: &str) {
    let origin = named("one");
    let running = start(
        &format!(
            "[cache]\norigin = \"{}\"\n[[cache.path]]\npath = \"/admin/*\"\npass = true\n[[cache.path]]\n\
             path = \"/news/*\"\nttl = \"1h\"\n[[cache.path]]\npath = \"/slow\"\njoin = false\n",
            origin.url()
        ),
        cores,
    );
    for _ in 0..2 {
        let passed = running.get("/admin/x?y").expect_status(200);
        assert!(status_of(&passed).contains("detail=path-pass"), "{}", status_of(&passed));
    }
    assert!(!is_hit(&running.get("/adm")) && is_hit(&running.get("/adm")), "another path");

    let news = |answer: Answer, path: &str| {
        origin.answers(path, answer);
        running.get(path).expect_status(200);
        is_hit(&running.get(path))
    };
    assert!(news(Answer::new(200, "x"), "/news/plain"));
    assert!(news(Answer::new(200, "x").header("Cache-Control", "max-age=0"), "/news/at-once"));
    let said = explain(&running, "http://site.test/news/at-once", &[]);
    let fresh = step(&said, "freshness", "fresh");
    assert_eq!(
        (&fresh["lifetime_s"], &fresh["section"]),
        (&3600.into(), &"knob path, ttl".into()),
        "{said:#}"
    );
    for (field, value) in [
        ("Cache-Control", "no-store"),
        ("Cache-Control", "private"),
        ("Cache-Control", "no-cache"),
        ("Set-Cookie", "a=b"),
    ] {
        assert!(
            !news(Answer::new(200, "x").header(field, value), &format!("/news/{field}/{value}")),
            "{value}"
        );
    }
    origin.answers("/news/gone", Answer::new(404, "x"));
    running.get("/news/gone").expect_status(404);
    assert!(!is_hit(&running.get("/news/gone")), "an error is not kept for as long");

    // Two requests at once: neither waits for the other.
    let gate = Gate::new();
    let held = gate.clone();
    origin.on("/slow", move |_, reply| {
        held.pass();
        reply.answer(&Answer::new(200, "slow").header("Cache-Control", "max-age=600"))
    });
    let mut clients = [running.connect(), running.connect()];
    for client in &mut clients {
        client.send(&Request::get("/slow").bytes());
    }
    eventually("both are asked for", || origin.count("/slow") == 2);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response("GET").expect_status(200).text(), "slow");
    }
    assert_eq!(running.stat().count("requests.misses_collapsed"), 0);
    assert!(is_hit(&running.get("/slow")));
}

fn a34_a_path_ttl_shares_answers_between_visitors(cores: &str) {
    let origin = with_sessions();
    origin.on("/unsaid", |request, reply| {
        reply.answer(&Answer::new(200, format!("for {}", request.headers.joined("cookie"))))
    });
    origin.on("/at-once", |request, reply| {
        let answer = Answer::new(200, format!("for {}", request.headers.joined("cookie")));
        reply.answer(&answer.header("Cache-Control", "max-age=0"))
    });
    let running = start(
        &format!("[cache]\norigin = \"{}\"\n[[cache.path]]\npath = \"/*\"\nttl = \"1h\"\n", origin.url()),
        cores,
    );
    // The operator's `ttl` for this path overrides the answer's headers, so visitors with cookies share the
    // answer.
    for path in ["/unsaid", "/at-once"] {
        assert_eq!(running.fetch(&Request::get(path).header("Cookie", "a=1")).text(), "for a=1");
        for visitor in ["a=2", "a=3"] {
            let page = running.fetch(&Request::get(path).header("Cookie", visitor));
            assert!(is_hit(&page) && page.text() == "for a=1", "{path}: {}", page.text());
        }
        assert!(is_hit(&running.get(path)));
    }
    // An answer that is marked as private to one visitor stays private.
    for (path, says) in [("/private", "private"), ("/no-store", "no-store"), ("/no-cache", "no-cache")] {
        origin.on(path, move |request, reply| {
            let answer = Answer::new(200, format!("for {}", request.headers.joined("cookie")));
            reply.answer(&answer.header("Cache-Control", says).header("ETag", "\"same\""))
        });
        for visitor in ["a=1", "a=2", "a=1"] {
            let page = running.fetch(&Request::get(path).header("Cookie", visitor));
            assert_eq!(page.text(), format!("for {visitor}"), "{path}");
        }
    }
}

fn a34_an_origin_receives_its_configured_host(cores: &str) {
    let origin = named("one");
    let running = start(
        &format!(
            "[cache]\norigin = \"{}\"\nhost = \"app.internal:81\"\n[[cache.site]]\nhosts = [\"kept.test\"]\nhost = \"keep\"\n",
            origin.url()
        ),
        cores,
    );
    for host in ["a.test", "b.test"] {
        for method in ["GET", "POST"] {
            let request = Request::new(method, "/").header("Host", host).header("X-Forwarded-Host", "evil");
            assert_eq!(running.fetch(&request).expect_status(200).text(), "one: app.internal:81 /");
            let seen = origin.all_seen().pop().expect("it was asked");
            let hosts: Vec<_> = seen.headers.all("x-forwarded-host").collect();
            assert_eq!((seen.method.as_str(), hosts), (method, vec![host]));
        }
    }
    step(&explain(&running, "http://a.test/", &[]), "key", "host");
    assert_eq!(get(&running, "kept.test", "/").text(), "one: kept.test /");
    let kept = origin.all_seen().pop().expect("it was asked");
    assert_eq!(kept.header("x-forwarded-host"), Some("kept.test"));
    assert_eq!(origin.all_seen().len(), 5, "each host has answers of its own");
}

fn a34_set_cookie_answers_are_private_under_bypass_cookies(cores: &str) {
    let origin = ScriptedOrigin::start();
    let page = Answer::new(200, "x")
        .header("Cache-Control", "public, max-age=600")
        .header("Set-Cookie", "session=anna");
    origin.answers("/", page);
    let running =
        Accelerator::before(&origin.url()).flag("--cores", cores).flag("--bypass-cookies", "session").start();
    for _ in 0..2 {
        let page = running.get("/").expect_status(200);
        assert!(status_of(&page).contains("detail=set-cookie"), "{}", status_of(&page));
    }
    assert_eq!(origin.count("/"), 2);
}

fn a31_a_site_has_its_own_error_page(cores: &str) {
    let gone = NobodyThere::new();
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(b"<title>Ours: {{status}} {{reason}}</title><p>{{message}}</p><i>{{request-id}}</i>")
        .expect("written");
    let path = file.path().to_str().expect("a path in UTF-8");
    let origin = format!("http://{}", gone.address());
    let running = start(
        &format!(
            "[cache]\norigin = \"{origin}\"\n[[cache.site]]\nhosts = [\"own.test\"]\nerror-page = \"{path}\"\nmethods = [\"GET\"]\n"
        ),
        cores,
    );
    let ask = |host: &str, method: &str, accept: &str| {
        running.fetch(&Request::new(method, "/x").header("Host", host).header("Accept", accept))
    };
    let page = ask("own.test", "GET", "text/html").expect_status(502);
    let number = page.header("x-request-id").expect("a number");
    let text = page.text();
    assert!(
        text.starts_with("<title>Ours: 502 Bad Gateway</title><p>")
            && text.ends_with(&format!("</p><i>{number}</i>")),
        "{text}"
    );
    assert_eq!(
        (page.header("cache-control"), page.header("content-security-policy")),
        (Some("no-store"), None)
    );
    assert!(
        ask("own.test", "POST", "text/html")
            .expect_status(405)
            .text()
            .contains("Ours: 405 Method Not Allowed")
    );
    for (host, accept) in [("own.test", "application/json"), ("own.test", "*/*"), ("other.test", "text/html")]
    {
        let theirs = ask(host, "GET", accept).expect_status(502);
        assert!(
            !theirs.text().contains("Ours") && theirs.text().contains("not accepting connections"),
            "{host} {accept}"
        );
    }
}

#[test]
fn a31_an_error_page_mistake_names_its_position() {
    let mut page = tempfile::NamedTempFile::new().expect("a file");
    page.write_all(b"<p>\n {{titel}}").expect("written");
    let path = page.path().display().to_string();
    let site = |path: &str| format!("[[cache.site]]\nhosts = [\"a\"]\nerror-page = \"{path}\"\n");
    let (code, said) = check(&site(&path));
    assert_eq!(code, Some(3));
    let want = format!(
        "FILE:3:14: error-page: {path}: line 2, column 2: unknown placeholder {{{{titel}}}}; expected {{{{status}}}}"
    );
    assert!(said.contains(&want), "{said}");
    let (code, said) = check("[cache]\nerror-page = \"/nowhere/page.html\"\n");
    assert!(
        code == Some(3) && said.contains("FILE:2:14: error-page: /nowhere/page.html: No such file"),
        "{said}"
    );
}

/// Exit code and output of `nighttrain check` for a configuration.
fn check(text: &str) -> (Option<i32>, String) {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    let output =
        tests::program::command().arg("check").arg("--config").arg(file.path()).output().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).replace(&file.path().display().to_string(), "FILE"))
}

#[test]
fn a34_a_rule_mistake_names_its_position() {
    let (code, said) = check(
        "[[cache.site]]\nhosts = [\"a.test\"]\norigin = \"http://127.0.0.1:1\"\nbypas-cookies = [\"x\"]\n",
    );
    assert_eq!(code, Some(3));
    assert_eq!(said, "nighttrain: FILE:4:1: unknown key `bypas-cookies`; perhaps `bypass-cookies`\n");
    assert_eq!(
        check("[[cache.site]]\nhosts = [\"a.test\"]\n").0,
        Some(0),
        "[cache] may have an origin by a flag"
    );
    let run = Accelerator::configured("[[cache.site]]\nhosts = [\"a.test\"]\n").run_to_its_end();
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(3), "{said}");
    assert!(said.contains(":1:1: origin: set neither for this site nor in [cache]"), "{said}");
}
