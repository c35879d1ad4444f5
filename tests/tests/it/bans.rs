//! Bans: as expressions, and as the requests that shops and frameworks send.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tests::{
    Accelerator, Answer, Request, ScriptedOrigin, eventually, on_one_core, on_one_core_and_on_two,
    purging::{self, start},
};

on_one_core! {
    a9_the_operator_bans,
    a9_a_mistake_is_told_with_its_place,
    a9_who_knows_the_token_purges,
    a37_fos_http_cache_bans,
    a37_wordpress_bans,
    a37_drupal_bans,
}

on_one_core_and_on_two! {
    a9_a_ban_is_about_what_it_holds_of,
    a9_a_ban_is_about_all_variants,
    a9_a_soft_ban_makes_stale,
    a9_a_ban_on_requests_is_evaluated_each_time,
    a9_unrequested_objects_are_dropped_by_the_lurker,
    a9_a_ban_covers_fetches_under_way,
    a9_too_many_bans_purge_all_older_objects,
    a9_a_ban_outlives_a_kill,
}

/// Paths, with the status and the media type of their answers.
const SITE: [(&str, u16, &str); 5] = [
    ("/", 200, "text/html"),
    ("/news/1", 200, "text/html"),
    ("/news/2.png", 200, "image/png"),
    ("/news", 404, "text/html"),
    ("/a.b/x", 200, "text/plain"),
];

fn site() -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    for (path, status, kind) in SITE {
        let answer = Answer::new(status, path).header("Cache-Control", "max-age=600");
        origin.answers(path, answer.header("Content-Type", kind));
    }
    origin
}

fn fetched(accelerator: &Accelerator, origin: &ScriptedOrigin) -> Vec<&'static str> {
    purging::fetched(accelerator, origin, SITE.map(|(path, status, _)| (path, status)))
}

fn all() -> Vec<&'static str> {
    SITE.iter().map(|(path, ..)| *path).collect()
}

fn ban(expression: &str) -> Request {
    Request::new("BAN", "/").header("X-Ban", expression)
}

fn a9_a_ban_is_about_what_it_holds_of(cores: &str) {
    let origin = site();
    let accelerator = start(&origin, cores);
    assert_eq!(fetched(&accelerator, &origin), all());
    for (expression, want) in [
        ("req.url ~ ^/news", &["/news/1", "/news/2.png", "/news"][..]),
        ("obj.status == 404", &["/news"]),
        (
            "req.http.Host == site.test && (obj.http.Content-Type ~ ^image/ or req.url == /)",
            &["/", "/news/2.png"],
        ),
        ("obj.age > 1h", &[]),
        ("obj.ttl < 1h and not req.url ~ (?i)NEWS", &["/", "/a.b/x"]),
        ("req.http.host != site.test", &[]),
        ("obj.http.x-none != a", &all()),
    ] {
        accelerator.fetch(&ban(expression)).expect_status(200);
        assert_eq!(fetched(&accelerator, &origin), want, "{expression}");
        assert_eq!(fetched(&accelerator, &origin), [""; 0], "what came after it is not banned");
    }
    assert_eq!(accelerator.stat().count("requests.purges"), 7);
    eventually("each is looked for everywhere and done", || accelerator.stat().count("requests.bans") == 0);
    assert_eq!(fetched(&accelerator, &origin), [""; 0]);
    assert!(origin.all_seen().iter().all(|request| request.method == "GET"), "a ban is ours");
}

fn a9_a_ban_is_about_all_variants(cores: &str) {
    let origin = ScriptedOrigin::start();
    let answer =
        Answer::new(200, "x").header("Cache-Control", "max-age=600").header("Vary", "Accept-Language");
    origin.answers("/page", answer);
    let accelerator = start(&origin, cores);
    let ask = || {
        for language in ["en", "de", "en", "de"] {
            let request = Request::get("/page").header("Accept-Language", language);
            accelerator.fetch(&request).expect_status(200);
        }
    };
    ask();
    assert_eq!(origin.count("/page"), 2);
    accelerator.fetch(&ban("req.url == /page")).expect_status(200);
    ask();
    assert_eq!(origin.count("/page"), 4);
    eventually("it is done", || accelerator.stat().count("requests.bans") == 0);
    ask();
    assert_eq!(origin.count("/page"), 4);
}

/// Scripts a page that has a new version for each request.
fn versions(origin: &ScriptedOrigin, path: &str, cache_control: &'static str) {
    let asked = AtomicUsize::new(0);
    origin.on(path, move |_, reply| {
        let number = asked.fetch_add(1, Relaxed);
        let answer = Answer::new(200, format!("version {number}")).header("Cache-Control", cache_control);
        reply.answer(&answer)
    });
}

fn a9_a_soft_ban_makes_stale(cores: &str) {
    let origin = ScriptedOrigin::start();
    versions(&origin, "/page", "max-age=600, stale-while-revalidate=600");
    let accelerator = start(&origin, cores);
    accelerator.get("/page").expect_status(200);
    let soft = ban("req.url == /page").header("Fastly-Soft-Purge", "1");
    accelerator.fetch(&soft).expect_status(200);
    let stale = accelerator.get("/page").expect_status(200);
    assert_eq!(stale.text(), "version 0", "nobody waits");
    let said = stale.head.headers.joined("cache-status");
    assert!(said.contains("detail=stale-while-revalidate"), "{said}");
    eventually("the new one is shown", || accelerator.get("/page").text() == "version 1");
    assert_eq!(accelerator.stat().count("requests.bans_dropped"), 0);
    accelerator.fetch(&ban("req.url == /page")).expect_status(200);
    assert_eq!(accelerator.get("/page").text(), "version 2");
}

/// A hit's cached ban check does not depend on the client, so a ban on request fields is evaluated for each
/// request.
fn a9_a_ban_on_requests_is_evaluated_each_time(cores: &str) {
    let origin = ScriptedOrigin::start();
    versions(&origin, "/page", "max-age=600");
    let accelerator = start(&origin, cores);
    accelerator.get("/page").expect_status(200);
    accelerator.fetch(&ban("req.http.x-group == staff")).expect_status(200);
    for _ in 0..4 {
        assert_eq!(accelerator.get("/page").text(), "version 0");
    }
    let staff = Request::get("/page").header("X-Group", "staff");
    for _ in 0..4 {
        assert_eq!(
            accelerator.fetch(&staff).text(),
            "version 1",
            "once: what comes after the ban is not banned"
        );
    }
    assert_eq!(accelerator.get("/page").text(), "version 1");
    assert_eq!(
        accelerator.stat().count("requests.bans"),
        cores.split(',').count() as u64,
        "nobody can lurk for it"
    );
}

fn a9_the_operator_bans(cores: &str) {
    let origin = site();
    let accelerator = start(&origin, cores);
    fetched(&accelerator, &origin);
    let list = || String::from_utf8(accelerator.ask(&["purge", "--list"]).stdout).expect("text");
    assert_eq!(list(), "No bans\n");
    assert!(accelerator.ask(&["purge", "--ban", "req.url ~ ^/news/"]).status.success());
    assert_eq!(fetched(&accelerator, &origin), ["/news/1", "/news/2.png"]);
    assert!(accelerator.ask(&["purge", "--soft", "--ban", "req.url==\"/\""]).status.success());
    let said = list();
    assert!(said.contains("  soft  stays  req.url == \"/\"\n"), "{said}");
    assert_eq!(fetched(&accelerator, &origin), ["/"]);
    let refused = accelerator.ask(&["purge", "--ban", "req.url ~ (a"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("req.url ~ (a\n          ^ found a mistake"),
        "{said}"
    );
    assert!(!accelerator.ask(&["purge", "--ban", "req.url ~ a", "--all"]).status.success());
}

fn a9_a_mistake_is_told_with_its_place(cores: &str) {
    let origin = site();
    let accelerator = start(&origin, cores);
    fetched(&accelerator, &origin);
    for (expression, why) in [
        ("req.url = /a", "byte 8: found `=`, expected `==`, `!=`, `~` or `!~`"),
        ("req.urk ~ a", "byte 0: found `req.urk`, expected one of the fields req.url, req.http.host, "),
        ("req.url ~ a &&", "byte 14: found the end, expected a field, `!` or `(`"),
        ("obj.http.xkey ~ a", "`obj.http.xkey`, of which only hashes are stored"),
        ("obj.age > soon", "byte 10: found `soon`, expected a duration such as"),
    ] {
        let refused = accelerator.fetch(&ban(expression)).expect_status(400);
        let said = refused.text();
        assert!(said.contains(why) && said.contains("Nothing was banned"), "{said}");
    }
    assert_eq!(fetched(&accelerator, &origin), [""; 0]);
    assert_eq!(accelerator.stat().count("requests.purges_not_understood"), 5);
    assert_eq!(accelerator.stat().count("requests.bans"), 0);
}

fn a9_unrequested_objects_are_dropped_by_the_lurker(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/page", |request, reply| {
        reply.answer(&Answer::new(200, &request.target).header("Cache-Control", "max-age=600"))
    });
    let accelerator = start(&origin, cores);
    for number in 0..1000 {
        accelerator.get(&format!("/page?{number}")).expect_status(200);
    }
    let before = accelerator.stat().count("store.objects");
    accelerator.fetch(&ban(r"req.url ~ \?[0-9]*7$")).expect_status(200);
    eventually("it is done", || accelerator.stat().count("requests.bans") == 0);
    let stat = accelerator.stat();
    assert_eq!(stat.count("requests.bans_dropped"), 100);
    assert_eq!(stat.count("store.objects"), before - 100);
    for (target, is_stored) in [("/page?7", false), ("/page?8", true), ("/page?997", false)] {
        let asked = origin.count("/page");
        accelerator.get(target).expect_status(200);
        assert_eq!(origin.count("/page") == asked, is_stored, "{target}");
    }
}

fn a9_a_ban_covers_fetches_under_way(cores: &str) {
    let bans = |accelerator: &Accelerator| accelerator.stat().count("requests.bans");
    purging::what_is_on_its_way_is_older(
        cores,
        ("X-Type", "page"),
        &ban("obj.http.x-type == page"),
        |accelerator| assert!(bans(accelerator) > 0, "it waits for the fetch"),
        |accelerator| eventually("it is done", || bans(accelerator) == 0),
    );
}

fn a9_too_many_bans_purge_all_older_objects(cores: &str) {
    const BANS: usize = 256;
    let origin = site();
    let accelerator = start(&origin, cores);
    fetched(&accelerator, &origin);
    // Bans on request fields, so that they stay.
    for number in 0..BANS {
        accelerator.fetch(&ban(&format!("req.http.x-group == {number}"))).expect_status(200);
    }
    // A repeated ban takes no room.
    accelerator.fetch(&ban("req.http.x-group == 7")).expect_status(200);
    assert_eq!(fetched(&accelerator, &origin), [""; 0]);
    assert_eq!(accelerator.stat().count("limits.bans"), 0);
    accelerator.fetch(&ban("req.http.x-group == more")).expect_status(200);
    assert_eq!(fetched(&accelerator, &origin), all());
    let cores = cores.split(',').count() as u64;
    let stat = accelerator.stat();
    assert_eq!((stat.count("limits.bans"), stat.count("requests.bans")), (cores, cores * BANS as u64));
    assert_eq!(fetched(&accelerator, &origin), [""; 0]);
}

/// Objects that are only on the file are not walked through, so their bans stay; they hold after a kill, too.
fn a9_a_ban_outlives_a_kill(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let steps = [
        (ban("req.url ~ ^/news/"), &["/news/1", "/news/2.png"][..]),
        (ban("obj.status == 404"), &["/news"]),
        (ban("obj.age > 1h"), &[]),
        (ban(r"req.url ~ ^/a\.b"), &["/a.b/x"]),
    ];
    let pages = SITE.map(|(path, status, _)| (path, status));
    let running = purging::outlives_kills(&site(), (&directory.path().join("store"), cores), &pages, &steps);
    assert_eq!(running.stat().count("requests.bans"), 4 * cores.split(',').count() as u64);
}

fn a9_who_knows_the_token_purges(cores: &str) {
    const TOKEN: &str = "an/honest+token.of24characters";
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).expect("written");
    let file = file.to_str().expect("a path in UTF-8");
    let origin = site();
    origin.answers("/passed", Answer::new(200, "x").header("Cache-Control", "no-store"));
    // First the test's address is in none of the networks, then in one.
    for (from, is_listed) in [("192.0.2.1", false), ("127.0.0.1", true)] {
        let accelerator = Accelerator::before(&origin.url())
            .flag("--cores", cores)
            .flag("--purge-from", from)
            .flag("--purge-token-file", file)
            .start();
        fetched(&accelerator, &origin);
        let bearer = format!("bearer {TOKEN}");
        let long = format!("{TOKEN}x");
        let mut forbidden = 0;
        for (fields, is_right) in [
            (&[("Authorization", &*bearer)][..], true),
            (&[("X-Purge-Token", TOKEN)], true),
            (&[("X-Purge-Token", "an/honest+token.of24characterz")], false),
            (&[("X-Purge-Token", &long)], false),
            (&[("X-Purge-Token", "")], false),
            (&[("Authorization", "Bearer x"), ("X-Purge-Token", TOKEN)], false),
            // An `Authorization` of another scheme is not ours to check.
            (&[("Authorization", "Basic eDp5")], is_listed),
            (&[], is_listed),
        ] {
            for request in [ban("req.url ~ ^/news"), Request::new("PURGE", "/news")] {
                let request =
                    fields.iter().fold(request, |request, (name, value)| request.header(name, value));
                if is_right {
                    accelerator.fetch(&request).expect_status(200);
                    assert!(fetched(&accelerator, &origin).contains(&"/news"), "{fields:?}");
                } else {
                    accelerator.fetch(&request.accepting_json()).expect_fault(
                        403,
                        "client",
                        "purge-forbidden",
                    );
                    assert_eq!(fetched(&accelerator, &origin), [""; 0], "{fields:?}");
                    forbidden += 1;
                }
            }
        }
        assert_eq!(accelerator.stat().count("requests.purges_forbidden"), forbidden);
        for target in ["/passed", "/news?new"] {
            accelerator.fetch(&Request::get(target).header("X-Purge-Token", TOKEN));
        }
        assert!(!accelerator.printed().contains("honest"));
    }
    let told = format!("{:?}", origin.all_seen());
    assert!(!told.contains("honest"), "the origin is told no token");
    std::fs::write(directory.path().join("short"), "short").expect("written");
    let short = directory.path().join("short");
    let refused = Accelerator::before(&origin.url())
        .flag("--purge-token-file", short.to_str().expect("a path in UTF-8"))
        .run_to_its_end();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("a token has 16 to 1024 characters"), "{said}");
}

/// Requests of FOSHttpCache's `ProxyClient\Varnish`: `banPath` with a type and hosts (`createHostsRegex`),
/// `ban`, `purge`. Fields that are not restricted match everything.
fn a37_fos_http_cache_bans(cores: &str) {
    let origin = site();
    let accelerator = start(&origin, cores);
    fetched(&accelerator, &origin);
    let of = |host: &str, url: &str, kind: &str| {
        let request = Request::new("BAN", "/").header("X-Host", host).header("X-Url", url);
        request.header("X-Content-Type", kind)
    };
    for (request, want) in [
        (of(".*", "^/news/", ".*"), &["/news/1", "/news/2.png"][..]),
        (of("^(site\\.test|other\\.test)$", "^/", "image/png"), &["/news/2.png"]),
        (of("^(other\\.test)$", ".*", ".*"), &[]),
        (of(".*", ".*", "text/html"), &["/", "/news/1", "/news"]),
        (of(".*", ".*", ".*"), &all()),
        (Request::new("PURGE", "/news/1"), &["/news/1"]),
    ] {
        accelerator.fetch(&request).expect_status(200);
        assert_eq!(fetched(&accelerator, &origin), want, "{request:?}");
    }
    // Tags restricted to some hosts are refused: tags are compared as a whole, and a ban has no tags.
    let narrowed = of("^(site\\.test)$", ".*", ".*").header("X-Cache-Tags", "(^|,)(a)(,|$)");
    accelerator.fetch(&narrowed).expect_status(400);
}

/// Requests of WordPress plug-ins: Proxy Cache Purge (`VarnishPurger::purge_url`), WP Rocket
/// (`Addon\Varnish::purge`), W3 Total Cache (`Varnish_Flush::_request`, `do_flush`).
fn a37_wordpress_bans(cores: &str) {
    let origin = site();
    let accelerator = start(&origin, cores);
    fetched(&accelerator, &origin);
    let by = |target: &str, method: &str| Request::new("PURGE", target).header("X-Purge-Method", method);
    for (request, want) in [
        // Proxy Cache Purge and WP Rocket, for one address, a directory, and everything.
        (by("/news/1", "default"), &["/news/1"][..]),
        (by("/news/.*", "regex"), &["/news/1", "/news/2.png"]),
        (by("/.*", "regex"), &all()),
        // Proxy Cache Purge with `vhp-ban-regex`.
        (by("/", "ban-regex").header("X-Ban-Regex", "^/news"), &["/news/1", "/news/2.png", "/news"]),
        // W3 Total Cache.
        (Request::new("PURGE", "/.*").header("Connection", "close"), &all()),
        (Request::new("PURGE", "/news").header("Connection", "close"), &["/news"]),
    ] {
        accelerator.fetch(&request).expect_status(200);
        assert_eq!(fetched(&accelerator, &origin), want, "{request:?}");
    }
    let other = by("/.*", "regex").header("Host", "other.test");
    accelerator.fetch(&other).expect_status(200);
    assert_eq!(fetched(&accelerator, &origin), [""; 0], "another site of theirs");
}

/// Requests of Drupal's varnish_purger (`ZeroConfigPurger::invalidateWildcardUrls`, `invalidateUrls`), and
/// wildcards of a host as in the VCL of varnish_purge.
fn a37_drupal_bans(cores: &str) {
    let origin = site();
    let accelerator = start(&origin, cores);
    fetched(&accelerator, &origin);
    let gzip = |method: &str, target: &str| Request::new(method, target).header("Accept-Encoding", "gzip");
    for (request, want) in [
        (gzip("PURGE", "/news/*"), &["/news/1", "/news/2.png"][..]),
        (gzip("PURGE", "/a.b/*"), &["/a.b/x"]),
        (gzip("PURGE", "/news"), &["/news"]),
        (gzip("BAN", "/.*2.*").header("Host", "127.0.0.1"), &["/news/2.png"]),
        (gzip("BAN", "/.*").header("Host", "127.0.0.1"), &all()),
    ] {
        accelerator.fetch(&request).expect_status(200);
        assert_eq!(fetched(&accelerator, &origin), want, "{request:?}");
    }
}
