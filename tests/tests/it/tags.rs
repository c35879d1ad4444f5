//! Rows A9 and A37 of the features: purges by tags, soft purges, and purges of everything, as shops and
//! frameworks send them.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rustix::process::Signal;
use tests::{
    Accelerator, Answer, Gate, Request, ScriptedOrigin,
    content::content,
    eventually, on_one_core, on_one_core_and_on_two,
    purging::{self, is_all_on_file, on_file, start},
};

on_one_core! {
    a9_clients_see_no_tags,
    a9_the_fields_of_tags_are_a_setting,
    a9_what_has_too_many_tags_is_not_stored,
    a9_only_who_may_purges,
    a9_the_operator_purges_by_tags,
    a9_a_damaged_file_of_purges_is_told,
    a37_magento_is_understood,
    a37_drupal_is_understood,
    a37_fos_http_cache_is_understood,
    a37_an_unsupported_tag_pattern_purges_all_tagged_objects,
    a37_what_is_not_understood_is_refused,
}

on_one_core_and_on_two! {
    a37_who_purges_need_not_wait,
    a9_a_tag_purges_only_objects_with_it,
    a9_a_soft_purge_makes_stale,
    a9_a_304_revives_a_softly_purged_object,
    a9_a_url_is_purged_softly_with_all_variants,
    a9_everything_is_purged_in_one_go,
    a9_a_tag_purge_covers_fetches_under_way,
    a9_what_is_on_the_file_is_purged,
    a9_a_purge_outlives_a_kill,
}

/// An origin with these pages and their tags.
fn tagged(pages: &[(&str, &str, &str)]) -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    for (path, field, tags) in pages {
        let answer = Answer::new(200, *path).header("Cache-Control", "max-age=600");
        origin.answers(path, if field.is_empty() { answer } else { answer.header(field, tags) });
    }
    origin
}

fn fetched<'p>(
    accelerator: &Accelerator,
    origin: &ScriptedOrigin,
    pages: &[(&'p str, &str, &str)],
) -> Vec<&'p str> {
    purging::fetched(accelerator, origin, pages.iter().map(|(path, ..)| (*path, 200)))
}

fn all<'p>(pages: &[(&'p str, &str, &str)]) -> Vec<&'p str> {
    pages.iter().map(|(path, ..)| *path).collect()
}

fn cache_status(response: &tests::Response) -> String {
    response.head.headers.joined("cache-status")
}

const SHOP: [(&str, &str, &str); 6] = [
    ("/1", "Surrogate-Key", "product-1 list"),
    ("/2", "xkey", "product-2 list"),
    ("/3", "Cache-Tag", "product-1,other"),
    ("/4", "X-Cache-Tags", "product-11"),
    ("/5", "Cache-Tags", "PRODUCT-1"),
    ("/plain", "", ""),
];

fn a9_a_tag_purges_only_objects_with_it(cores: &str) {
    let origin = tagged(&SHOP);
    let accelerator = start(&origin, cores);
    assert_eq!(fetched(&accelerator, &origin, &SHOP), all(&SHOP));
    for (field, tags, want) in [
        ("Surrogate-Key", "product-1", &["/1", "/3"][..]),
        ("xkey-purge", "list nothing", &["/1", "/2"]),
        ("Cache-Tag", "product-2,PRODUCT-1", &["/2", "/5"]),
        ("xkey", "product", &[]),
    ] {
        accelerator.fetch(&Request::new("PURGE", "/").header(field, tags)).expect_status(200);
        assert_eq!(fetched(&accelerator, &origin, &SHOP), want, "{field}: {tags}");
        assert_eq!(fetched(&accelerator, &origin, &SHOP), [""; 0], "what came after it is not purged");
    }
    let stat = accelerator.stat();
    assert_eq!(stat.count("requests.purges"), 4);
    assert_eq!(stat.count("requests.invalidated_dropped"), 6, "what is purged gives its room back");
    assert!(origin.all_seen().iter().all(|request| request.method == "GET"), "a purge is ours");
}

fn a9_clients_see_no_tags(cores: &str) {
    let origin = tagged(&SHOP);
    let passed = Answer::new(200, "x").header("Cache-Control", "no-store").header("xkey", "a");
    origin.answers("/passed", passed);
    let accelerator = start(&origin, cores);
    for (path, ..) in SHOP.iter().chain(&[("/passed", "", "")]) {
        for method in ["GET", "GET", "HEAD", "POST"] {
            let answer = accelerator.fetch(&Request::new(method, path)).expect_status(200);
            let head = answer.text_of_head().to_ascii_lowercase();
            assert!(!head.contains("product") && !head.contains("key") && !head.contains("tag"), "{head}");
        }
    }
}

fn a9_the_fields_of_tags_are_a_setting(cores: &str) {
    const PAGES: [(&str, &str, &str); 2] = [("/1", "Edge-Tag", "a"), ("/2", "xkey", "a")];
    let origin = tagged(&PAGES);
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--purge-from", "127.0.0.1")
        .flag("--tags", "Edge-Tag")
        .start();
    assert_eq!(fetched(&accelerator, &origin, &PAGES), all(&PAGES));
    assert_eq!(accelerator.get("/1").header("edge-tag"), None);
    assert_eq!(accelerator.get("/2").header("xkey"), Some("a"));
    accelerator.fetch(&Request::new("PURGE", "/").header("edge-tag", "a")).expect_status(200);
    assert_eq!(fetched(&accelerator, &origin, &PAGES), ["/1"]);
}

fn a9_what_has_too_many_tags_is_not_stored(cores: &str) {
    let list = |count: usize| (0..count).map(|tag| format!("t{tag}")).collect::<Vec<_>>().join(" ");
    let origin = ScriptedOrigin::start();
    for (path, tags) in [("/enough", list(1024)), ("/many", list(1025)), ("/long", "x".repeat(33_000))] {
        let answer = Answer::new(200, "x").header("Cache-Control", "max-age=600");
        let half = tags.len() / 2 + tags[tags.len() / 2..].find(' ').unwrap_or(0);
        origin.answers(path, answer.header("xkey", &tags[..half]).header("Cache-Tag", &tags[half..]));
    }
    let accelerator = start(&origin, cores);
    for (path, stored) in [("/enough", true), ("/many", false), ("/long", false)] {
        let first = cache_status(&accelerator.get(path).expect_status(200));
        assert_eq!(first.contains("detail=too-many-tags"), !stored, "{path}: {first}");
        accelerator.get(path).expect_status(200);
        assert_eq!(origin.count(path), if stored { 1 } else { 2 }, "{path}");
    }
    assert_eq!(accelerator.stat().count("limits.tags_of_an_answer"), 2);
    accelerator.fetch(&Request::new("PURGE", "/").header("xkey", "t1023")).expect_status(200);
    accelerator.get("/enough").expect_status(200);
    assert_eq!(origin.count("/enough"), 2);
}

/// Adds a page in versions, each with the tag `t`; the second version waits for the gate.
fn versions(origin: &ScriptedOrigin, path: &str, cache_control: &'static str) -> Gate {
    let (gate, asked) = (Gate::new(), AtomicUsize::new(0));
    let second = gate.clone();
    origin.on(path, move |_, reply| {
        let number = asked.fetch_add(1, Relaxed);
        if number == 1 {
            second.pass();
        }
        let answer = Answer::new(200, format!("version {number}")).header("Cache-Control", cache_control);
        reply.answer(&answer.header("xkey", "t"))
    });
    gate
}

fn a9_a_soft_purge_makes_stale(cores: &str) {
    let origin = ScriptedOrigin::start();
    let gate = versions(&origin, "/page", "max-age=600, stale-while-revalidate=600");
    let accelerator = start(&origin, cores);
    accelerator.get("/page").expect_status(200);
    let purge = Request::new("PURGE", "/").header("xkey", "t").header("Fastly-Soft-Purge", "1");
    accelerator.fetch(&purge).expect_status(200);
    for _ in 0..10 {
        let stale = accelerator.get("/page").expect_status(200);
        assert_eq!(stale.text(), "version 0", "nobody waits");
        let said = cache_status(&stale);
        assert!(said.contains("detail=stale-while-revalidate"), "{said}");
    }
    eventually("it is fetched anew", || origin.count("/page") == 2);
    gate.open();
    eventually("the new one is shown", || accelerator.get("/page").text() == "version 1");
    for _ in 0..4 {
        let said = cache_status(&accelerator.get("/page"));
        assert!(said.contains("; hit") && !said.contains("stale"), "{said}");
    }
    assert_eq!(origin.count("/page"), 2);
    // A hard and then a soft purge: the dropped answer is not served as stale.
    accelerator.fetch(&Request::new("PURGE", "/").header("xkey", "t")).expect_status(200);
    accelerator.fetch(&purge).expect_status(200);
    assert_eq!(accelerator.get("/page").text(), "version 2");
}

fn a9_a_304_revives_a_softly_purged_object(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/page", |request, reply| {
        let tag = |answer: Answer| answer.header("ETag", "\"v\"").header("Cache-Control", "max-age=600");
        if request.header("if-none-match").is_some() {
            // The 304 changes the page's tag.
            return reply.answer(&tag(Answer::new(304, "")).header("xkey", "later"));
        }
        reply.answer(&tag(Answer::new(200, "whole")).header("xkey", "first"))
    });
    let accelerator = start(&origin, cores);
    accelerator.get("/page").expect_status(200);
    let purge = |field: &str, tag: &str| {
        accelerator.fetch(&Request::new("PURGE", "/").header(field, tag)).expect_status(200);
        for _ in 0..3 {
            let answer = accelerator.get("/page").expect_status(200);
            assert_eq!(answer.text(), "whole");
            assert_eq!(answer.header("xkey"), None);
        }
    };
    purge("xkey-softpurge", "first");
    assert_eq!(origin.count("/page"), 2);
    assert_eq!(accelerator.stat().count("requests.revalidated"), 1);
    purge("xkey-purge", "first");
    assert_eq!(origin.count("/page"), 2, "it is not its tag any more");
    purge("xkey-purge", "later");
    assert_eq!(origin.count("/page"), 3);
    assert_eq!(accelerator.stat().count("requests.revalidated"), 1, "it was not there to be asked about");
}

fn a9_a_url_is_purged_softly_with_all_variants(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/page", |request, reply| {
        let answer = Answer::new(200, &request.target).header("Cache-Control", "max-age=600");
        reply.answer(&answer.header("Vary", "Accept-Language").header("ETag", "\"v\""))
    });
    let accelerator = start(&origin, cores);
    let ask = || {
        for language in ["en", "de"] {
            for target in ["/page", "/page?other"] {
                let request = Request::get(target).header("Accept-Language", language);
                accelerator.fetch(&request).expect_status(200);
            }
        }
    };
    let asked = |target: &str| origin.seen("/page").iter().filter(|request| request.target == target).count();
    ask();
    ask();
    assert_eq!((asked("/page"), asked("/page?other")), (2, 2));
    let purge = Request::new("PURGE", "/page").header("Fastly-Soft-Purge", "1");
    accelerator.fetch(&purge).expect_status(200);
    ask();
    ask();
    assert_eq!((asked("/page"), asked("/page?other")), (4, 2), "both are asked about, once each");
    assert!(accelerator.ask(&["purge", "--soft", "http://site.test/page?other"]).status.success());
    ask();
    ask();
    assert_eq!((asked("/page"), asked("/page?other")), (4, 4));
    let conditional =
        origin.seen("/page").iter().filter(|seen| seen.header("if-none-match").is_some()).count();
    assert_eq!(conditional, 4, "what is stale is validated");
}

fn a9_everything_is_purged_in_one_go(cores: &str) {
    let origin = tagged(&SHOP);
    origin.answers("/private", Answer::new(200, "x").header("Cache-Control", "no-store"));
    let accelerator = start(&origin, cores);
    fetched(&accelerator, &origin, &SHOP);
    for arguments in [&["purge", "--all"][..], &["purge", "--all", "--soft"]] {
        accelerator.get("/private").expect_status(200);
        eventually("it is known that it is not stored", || {
            cache_status(&accelerator.get("/private")).contains("fwd=bypass")
                || accelerator.stat().count("requests.notes_used") > 0
        });
        assert!(accelerator.ask(arguments).status.success());
        assert_eq!(fetched(&accelerator, &origin, &SHOP), all(&SHOP), "{arguments:?}");
        assert_eq!(fetched(&accelerator, &origin, &SHOP), [""; 0]);
    }
    let magento = Request::new("PURGE", "/").header("X-Magento-Tags-Pattern", ".*");
    accelerator.fetch(&magento).expect_status(200);
    assert_eq!(fetched(&accelerator, &origin, &SHOP), all(&SHOP));
}

fn a9_a_tag_purge_covers_fetches_under_way(cores: &str) {
    let purge = Request::new("PURGE", "/").header("xkey", "t");
    purging::what_is_on_its_way_is_older(cores, ("xkey", "t"), &purge, |_| {}, |_| {});
}

fn a9_only_who_may_purges(cores: &str) {
    let origin = tagged(&SHOP);
    let accelerator =
        Accelerator::before(&origin.url()).flag("--cores", cores).flag("--purge-from", "192.0.2.1").start();
    fetched(&accelerator, &origin, &SHOP);
    for (method, field, value) in [
        ("PURGE", "xkey", "list"),
        ("PURGE", "Fastly-Soft-Purge", "1"),
        ("PURGE", "X-Magento-Tags-Pattern", ".*"),
        ("PURGEKEYS", "xkey-softpurge", "list"),
        ("BAN", "Cache-Tags", "list"),
        ("BAN", "X", "x"),
    ] {
        let purge = Request::new(method, "/1").header(field, value).accepting_json();
        accelerator.fetch(&purge).expect_fault(403, "client", "purge-forbidden");
    }
    assert_eq!(fetched(&accelerator, &origin, &SHOP), [""; 0]);
    assert_eq!(accelerator.stat().count("requests.purges_forbidden"), 6);
    assert_eq!(accelerator.stat().count("requests.purges"), 0);
    assert!(origin.all_seen().iter().all(|request| request.method == "GET"));
}

fn a9_the_operator_purges_by_tags(cores: &str) {
    let origin = tagged(&SHOP);
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    fetched(&accelerator, &origin, &SHOP);
    let done = accelerator.ask(&["purge", "--tag", "product-2", "--tag", "product-11"]);
    assert!(done.status.success(), "{done:?}");
    assert_eq!(
        String::from_utf8_lossy(&done.stdout),
        "Purged all objects with the tag product-2 or product-11\n"
    );
    assert_eq!(fetched(&accelerator, &origin, &SHOP), ["/2", "/4"]);
    let softly = accelerator.ask(&["purge", "--tag", "list", "--soft"]);
    assert_eq!(String::from_utf8_lossy(&softly.stdout), "Made stale: all objects with the tag list\n");
    assert_eq!(fetched(&accelerator, &origin, &SHOP), ["/1", "/2"]);
    for wrong in [&["purge"][..], &["purge", "--tag", "a", "--all"], &["purge", "http://a/", "--all"]] {
        assert!(!accelerator.ask(wrong).status.success(), "{wrong:?}");
    }
    assert_eq!(accelerator.stat().count("requests.purges"), 2, "by whichever door they came");
}

/// A stored object's tags are on the file with it, in one piece or in parts.
fn a9_what_is_on_the_file_is_purged(cores: &str) {
    const LARGE_BYTES: usize = 20 << 20;
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    let origin = tagged(&SHOP);
    let large = Answer::new(200, content(1, 0, LARGE_BYTES)).header("Cache-Control", "max-age=600");
    origin.answers("/large", large.header("xkey", "large"));
    let mut pages = SHOP.to_vec();
    pages.push(("/large", "", ""));
    let mut running = on_file(&origin, &store, cores);
    assert_eq!(fetched(&running, &origin, &SHOP), all(&SHOP));
    running.get("/large").expect_status(200);
    is_all_on_file(&running, pages.len());
    running.signal(Signal::TERM);
    running.wait();
    drop(running);
    let running = on_file(&origin, &store, cores);
    running.fetch(&Request::new("PURGE", "/").header("xkey", "product-1 large")).expect_status(200);
    assert_eq!(fetched(&running, &origin, &pages), ["/1", "/3", "/large"]);
    assert_eq!(fetched(&running, &origin, &pages), [""; 0]);
}

/// After a kill, pages purged by tags or softly do not come back, and pages stored since the purge stay.
fn a9_a_purge_outlives_a_kill(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let steps = [
        (Request::new("PURGE", "/").header("xkey", "list"), &["/1", "/2"][..]),
        (Request::new("PURGE", "/plain").header("Fastly-Soft-Purge", "1"), &["/plain"]),
        (Request::new("PURGE", "/").header("xkey-softpurge", "product-11"), &["/4"]),
        (Request::new("PURGE", "/").header("X-Magento-Tags-Pattern", ".*"), &all(&SHOP)),
    ];
    let pages = SHOP.map(|(path, ..)| (path, 200));
    purging::outlives_kills(&tagged(&SHOP), (&directory.path().join("store"), cores), &pages, &steps);
}

fn a9_a_damaged_file_of_purges_is_told(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    let origin = tagged(&SHOP);
    let purges = directory.path().join("store.purges");
    let mut running = on_file(&origin, &store, cores);
    for tag in ["a", "b"] {
        running.fetch(&Request::new("PURGE", "/").header("xkey", tag)).expect_status(200);
    }
    running.signal(Signal::TERM);
    running.wait();
    drop(running);
    let mut bytes = std::fs::read(&purges).expect("it is there");
    bytes[50] ^= 1;
    std::fs::write(&purges, &bytes).expect("written");
    let refused = Accelerator::before(&origin.url()).store_in(&store, "128MiB").run_to_its_end();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("store.purges is damaged at byte 32"), "{said}");
    assert!(!said.contains("panicked") && said.contains("nighttrain purge --all"), "{said}");
    // The remedy from the error message works.
    std::fs::remove_file(&purges).expect("removed");
    let running = on_file(&origin, &store, cores);
    assert!(running.ask(&["purge", "--all"]).status.success());
}

const CATALOGUE: [(&str, &str, &str); 4] = [
    ("/product", "X-Magento-Tags", "cat_p_1,store,FPC"),
    ("/other", "X-Magento-Tags", "cat_p_11,cat_c_3,FPC"),
    ("/category", "X-Magento-Tags", "cat_c_3,cat_c_p_3,FPC"),
    ("/page", "X-Magento-Tags", "cms_p_2,FPC"),
];

/// Purges as Magento 2 sends them: `InvalidateVarnishObserver` and `FlushAllCacheObserver` of its module
/// CacheInvalidate, by `PurgeCache::sendPurgeRequest` (app/code/Magento/CacheInvalidate in magento/magento2).
fn a37_magento_is_understood(cores: &str) {
    let origin = tagged(&CATALOGUE);
    let accelerator = start(&origin, cores);
    fetched(&accelerator, &origin, &CATALOGUE);
    for (pattern, want) in [
        ("((^|,)cat_p_1(,|$))", &["/product"][..]),
        ("((^|,)cat_p_1(,|$))|((^|,)cat_c_3(,|$))", &["/product", "/other", "/category"]),
        ("((^|,)cat_p(,|$))|((^|,)cms_p_2(,|$))", &["/page"]),
        (".*", &["/product", "/other", "/category", "/page"]),
    ] {
        let purge = Request::new("PURGE", "/").header("X-Magento-Tags-Pattern", pattern);
        accelerator.fetch(&purge).expect_status(200);
        assert_eq!(fetched(&accelerator, &origin, &CATALOGUE), want, "{pattern}");
    }
}

/// A client may disconnect right after its purge request: Magento 2's `PurgeCache::sendPurgeRequest` of 2015
/// does so.
fn a37_who_purges_need_not_wait(cores: &str) {
    let origin = tagged(&CATALOGUE);
    let accelerator = start(&origin, cores);
    fetched(&accelerator, &origin, &CATALOGUE);
    for round in 0..5 {
        let mut client = accelerator.connect();
        let purge = Request::new("PURGE", "/").header("X-Magento-Tags-Pattern", "((^|,)cat_p_1(,|$))");
        client.send(&purge.bytes());
        drop(client);
        eventually("it is purged", || {
            accelerator.get("/product").expect_status(200);
            origin.count("/product") == round + 2
        });
    }
}

/// Purges as Drupal's module varnish_purger sends them: the purger without configuration (`ZeroConfigPurger`:
/// up to 15 tags, with spaces, to `/tags`), and the bundled one with `[invalidations:separated_pipe]`, as
/// Lagoon's guide sets it.
fn a37_drupal_is_understood(cores: &str) {
    const SITE: [(&str, &str, &str); 3] = [
        ("/", "Cache-Tags", "config:system.site node:1 node_list rendered"),
        ("/node/1", "Cache-Tags", "node:1 rendered"),
        ("/node/10", "Cache-Tags", "node:10 rendered"),
    ];
    let origin = tagged(&SITE);
    let accelerator = start(&origin, cores);
    fetched(&accelerator, &origin, &SITE);
    for (target, tags, want) in [
        ("/tags", "node:1 node_list", &["/", "/node/1"][..]),
        ("/", "node:10|node_list", &["/", "/node/10"]),
        ("/", "config:system.site", &["/"]),
    ] {
        let ban = Request::new("BAN", target).header("Cache-Tags", tags).header("Accept-Encoding", "gzip");
        accelerator.fetch(&ban).expect_status(200);
        assert_eq!(fetched(&accelerator, &origin, &SITE), want, "{tags}");
    }
}

/// Purges as FOSHttpCache sends them (`ProxyClient\Varnish`): by `BAN`, with fields for host, address and
/// type that match all, and tags quoted by `preg_quote`; or, with `tag_mode` `purgekeys`, for vmod_xkey.
fn a37_fos_http_cache_is_understood(cores: &str) {
    const SITE: [(&str, &str, &str); 3] = [
        ("/1", "X-Cache-Tags", "article-1,list"),
        ("/2", "X-Cache-Tags", "article-2,list"),
        ("/3", "xkey", "article-3 list"),
    ];
    let origin = tagged(&SITE);
    let accelerator = start(&origin, cores);
    fetched(&accelerator, &origin, &SITE);
    let ban = |tags: &str| {
        let all = Request::new("BAN", "/").header("X-Host", ".*").header("X-Url", ".*");
        all.header("X-Content-Type", ".*").header("X-Cache-Tags", tags)
    };
    let keys = |field: &str, tags: &str| Request::new("PURGEKEYS", "/").header(field, tags);
    for (request, want) in [
        (ban("(^|,)(article\\-1)(,|$)"), &["/1"][..]),
        (ban("(^|,)(article\\-2|article\\-3)(,|$)"), &["/2", "/3"]),
        (keys("xkey-softpurge", "article-1 article-3"), &["/1", "/3"]),
        (keys("xkey-purge", "list"), &["/1", "/2", "/3"]),
        (Request::new("PURGE", "/2"), &["/2"]),
    ] {
        accelerator.fetch(&request).expect_status(200);
        assert_eq!(fetched(&accelerator, &origin, &SITE), want, "{request:?}");
    }
}

fn a37_what_is_not_understood_is_refused(cores: &str) {
    let origin = tagged(&CATALOGUE);
    let accelerator = start(&origin, cores);
    fetched(&accelerator, &origin, &CATALOGUE);
    for (method, field, value, why) in [
        ("PURGE", "X-Magento-Tags-Pattern", "((^|,)cat_p_[0-9+(,|$))", "Nothing was purged"),
        ("BAN", "Accept", "*/*", "no tags are given"),
        ("PURGEKEYS", "xkey-purge", "", "no tags are given"),
    ] {
        let refused = accelerator.fetch(&Request::new(method, "/").header(field, value)).expect_status(400);
        assert!(refused.text().contains(why), "{}", refused.text());
    }
    assert_eq!(fetched(&accelerator, &origin, &CATALOGUE), [""; 0]);
    assert_eq!(accelerator.stat().count("requests.purges_not_understood"), 3);
    assert!(origin.all_seen().iter().all(|request| request.method == "GET"));
}

fn a37_an_unsupported_tag_pattern_purges_all_tagged_objects(cores: &str) {
    let origin = tagged(&CATALOGUE);
    origin.answers("/plain", Answer::new(200, "plain").header("Cache-Control", "max-age=600"));
    let accelerator = start(&origin, cores);
    fetched(&accelerator, &origin, &CATALOGUE);
    accelerator.get("/plain").expect_status(200);
    let purge = Request::new("PURGE", "/").header("X-Magento-Tags-Pattern", "((^|,)cat_p_[0-9]+(,|$))");
    accelerator.fetch(&purge).expect_status(200);
    let all: Vec<_> = CATALOGUE.iter().map(|(path, ..)| *path).collect();
    assert_eq!(fetched(&accelerator, &origin, &CATALOGUE), all);
    accelerator.get("/plain").expect_status(200);
    assert_eq!(origin.count("/plain"), 1, "what has no tags stays");
}
