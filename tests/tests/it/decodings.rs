//! Decompression: a client that does not accept the coding of an origin's answer gets the content decoded,
//! once for all such clients. Content that cannot be decoded is sent as it is.

use std::{
    io::{Read, Write},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustix::process::Signal;
use serde_json::Value;
use tests::{
    Accelerator, Answer, Request, Response, ScriptedOrigin, content::content, eventually, on_one_core,
    on_one_core_and_on_two,
};

on_one_core! {
    a17_clients_that_refuse_a_coding_get_decoded_content,
    a17_a_miss_is_decoded_for_its_client,
    a17_clients_that_accept_the_origins_coding_get_it,
    a17_an_origins_variants_are_decoded_as_needed,
    a17_oversized_content_is_sent_undecoded,
    a17_what_is_damaged_is_sent_as_it_is,
    a17_decoded_content_has_its_own_entity_tag,
    a17_ranges_of_decoded_content_are_right,
    a17_what_is_not_to_be_decoded_is_not,
    a17_explain_says_who_gets_what_decoded,
}

on_one_core_and_on_two! {
    a17_what_waits_to_be_decoded_is_bounded,
    a17_a_hundred_who_wait_have_it_decoded_once,
    a17_what_is_purged_is_gone_decoded_too,
    a17_what_is_validated_is_decoded_once,
    a17_what_is_decoded_outlives_a_restart,
}

const CODINGS: [&str; 3] = ["gzip", "br", "zstd"];

/// Returns compressible text, different for each seed.
fn text(seed: u64, bytes: usize) -> Vec<u8> {
    let words =
        ["night", "train", "of", "the", "rails ", "<p>", "</p>\n", "signal", "tunnel", "a", "bridge "];
    let picked =
        content(seed, 0, bytes).into_iter().flat_map(|byte| words[usize::from(byte) % words.len()].bytes());
    picked.take(bytes).collect()
}

fn coded(coding: &str, body: &[u8]) -> Vec<u8> {
    match coding {
        "gzip" => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(body).and_then(|()| encoder.finish()).expect("gzip")
        }
        "br" => {
            let mut coded = Vec::new();
            brotli::CompressorReader::new(body, 4096, 4, 20).read_to_end(&mut coded).expect("brotli");
            coded
        }
        "zstd" => zstd::bulk::compress(body, 3).expect("zstd"),
        other => panic!("no coding of this test: {other}"),
    }
}

/// Returns the answer of an origin that ignores `Accept-Encoding`.
fn page(coding: &str, coded: &[u8]) -> Answer {
    Answer::new(200, coded)
        .header("Cache-Control", "max-age=600")
        .header("Content-Encoding", coding)
        .header("Content-Type", "text/html; charset=utf-8")
        .header("ETag", "\"v1\"")
}

fn start(origin: &ScriptedOrigin, cores: &str) -> Accelerator {
    Accelerator::before(&origin.url()).flag("--cores", cores).flag("--purge-from", "127.0.0.1").start()
}

fn accepting(path: &str, codings: &str) -> Request {
    Request::get(path).header("Accept-Encoding", codings)
}

fn count(accelerator: &Accelerator, name: &str) -> u64 {
    accelerator.stat().count(name)
}

#[track_caller]
fn is_decoded(answer: &Response, body: &[u8]) {
    assert_eq!(
        (answer.status(), answer.header("content-encoding")),
        (200, None),
        "{}",
        answer.text_of_head()
    );
    assert_eq!(answer.header("content-length"), Some(&*body.len().to_string()));
    assert_eq!(answer.header("vary"), Some("Accept-Encoding"));
    assert!(answer.header("etag").is_none_or(|etag| etag == "\"v1-id\""), "{}", answer.text_of_head());
    assert!(answer.body == body, "it is what was coded");
}

#[track_caller]
fn is_as_sent(answer: &Response, coding: &str, coded: &[u8]) {
    assert_eq!(
        (answer.status(), answer.header("content-encoding")),
        (200, Some(coding)),
        "{}",
        answer.text_of_head()
    );
    assert!(answer.header("etag").is_none_or(|etag| etag == "\"v1\""), "{}", answer.text_of_head());
    assert!(answer.body == coded, "it is what the origin sent");
}

fn a17_clients_that_refuse_a_coding_get_decoded_content(cores: &str) {
    let origin = ScriptedOrigin::start();
    // Bodies that are copied into the answer, sent from the store, and sent in several pieces.
    let bodies = [text(1, 5_000), text(2, 200_000), text(3, 2_000_000)];
    let accelerator = start(&origin, cores);
    for coding in CODINGS {
        for (number, body) in bodies.iter().enumerate() {
            let path = format!("/{coding}/{number}");
            let sent = coded(coding, body);
            origin.answers(&path, page(coding, &sent));
            let missed = accelerator.fetch(&accepting(&path, coding));
            is_as_sent(&missed, coding, &sent);
            assert_eq!(missed.header("vary"), Some("Accept-Encoding"), "others get another");
            for round in 0..3 {
                let plain = accelerator.get(&path);
                is_decoded(&plain, body);
                assert!(plain.header("cache-status").expect("it is said").contains("; hit"), "{round}");
                let head = accelerator.fetch(&Request::new("HEAD", &path)).expect_status(200);
                for name in ["content-length", "content-encoding", "etag", "vary", "content-type", "date"] {
                    assert_eq!(head.header(name), plain.header(name), "{path} {name}");
                }
                let theirs = accelerator.fetch(&accepting(&path, coding));
                is_as_sent(&theirs, coding, &sent);
                assert_eq!(theirs.header("vary"), Some("Accept-Encoding"));
            }
            assert_eq!(origin.count(&path), 1);
        }
    }
    assert_eq!(count(&accelerator, "requests.decoded_made"), 9, "each once");
    assert_eq!(count(&accelerator, "requests.hits_decoded"), 54);
    assert_eq!(count(&accelerator, "requests.codings_made"), 0);
    let listed = String::from_utf8(accelerator.ask(&["objects"]).stdout).expect("text");
    assert!(listed.contains("9 of 9 inspected"), "what is decoded is none of them: {listed}");
}

fn a17_a_miss_is_decoded_for_its_client(cores: &str) {
    let origin = ScriptedOrigin::start();
    let accelerator = start(&origin, cores);
    let body = text(1, 300_000);
    for coding in CODINGS {
        let sent = coded(coding, &body);
        let chunks = [&sent[..1000], &sent[1000..]];
        let chunked = Answer::chunked(200, &chunks, &[])
            .header("Cache-Control", "max-age=600")
            .header("Content-Encoding", coding)
            .header("Content-Type", "text/html");
        for (path, answer) in [("length", page(coding, &sent)), ("chunks", chunked)] {
            let path = format!("/{coding}/{path}");
            origin.answers(&path, answer);
            // HEAD gets the fields that GET would get.
            let head = accelerator.fetch(&Request::new("HEAD", &path)).expect_status(200);
            assert_eq!(head.header("content-length"), Some("300000"), "{path}");
            let missed = head.header("cache-status").expect("it is said");
            assert!(missed.contains("; fwd=uri-miss") && missed.contains("; stored"), "{missed}");
            is_decoded(&accelerator.get(&path), &body);
            is_as_sent(&accelerator.fetch(&accepting(&path, coding)), coding, &sent);
            assert_eq!(origin.count(&path), 1);
        }
    }
    // An answer of heuristic freshness is not shared with a visitor who has cookies: the visitor gets it as
    // the origin sent it, with one fetch.
    let guessed = Answer::new(200, coded("gzip", &body))
        .header("Content-Encoding", "gzip")
        .header("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT");
    origin.answers("/guessed", guessed);
    let with_cookie = accelerator.fetch(&Request::get("/guessed").header("Cookie", "a=b"));
    is_as_sent(&with_cookie, "gzip", &coded("gzip", &body));
    assert_eq!(origin.count("/guessed"), 1);
    // An answer that is not stored is passed to its one visitor as it is.
    let private = page("gzip", &coded("gzip", &body)).header("Cache-Control", "private");
    origin.answers("/private", private);
    for _ in 0..2 {
        is_as_sent(&accelerator.get("/private"), "gzip", &coded("gzip", &body));
    }
    assert_eq!(count(&accelerator, "requests.decoded_made"), 6);
    assert_eq!(count(&accelerator, "requests.misses"), 8);
}

fn a17_clients_that_accept_the_origins_coding_get_it(cores: &str) {
    let origin = ScriptedOrigin::start();
    let body = text(1, 5_000);
    let sent = coded("gzip", &body);
    origin.answers("/", page("x-gzip", &sent));
    // With and without compression at the accelerator.
    let setup = Accelerator::before(&origin.url()).flag("--cores", cores);
    for accelerator in [start(&origin, cores), setup.flag("--compress", "none").start()] {
        for (accept, gets_it) in [
            ("gzip", true),
            ("x-GZIP;q=0.1, br", true),
            ("*", true),
            ("br;q=0, *;q=0.2", true),
            ("identity;q=0", true),
            ("br, identity;q=0", true),
            ("*;q=0", true),
            ("gzip;q=0, *", false),
            ("br, zstd", false),
            ("deflate", false),
            ("identity", false),
            ("gzip;q=x", false),
            ("", false),
        ] {
            let answer = accelerator.fetch(&accepting("/", accept));
            if gets_it {
                is_as_sent(&answer, "x-gzip", &sent);
            } else {
                is_decoded(&answer, &body);
            }
        }
        // `no-transform` from the client (RFC 9111 §5.2.1.6).
        let as_it_is = Request::get("/").header("Cache-Control", "no-transform");
        is_as_sent(&accelerator.fetch(&as_it_is), "x-gzip", &sent);
        assert_eq!(count(&accelerator, "requests.decoded_made"), 1);
    }
}

fn a17_an_origins_variants_are_decoded_as_needed(cores: &str) {
    let origin = ScriptedOrigin::start();
    let sent = |accepted: &str| {
        let body = text(accepted.len() as u64, 5_000);
        let coding = if accepted == "zstd" { "zstd" } else { "gzip" };
        (coding, coded(coding, &body), body)
    };
    origin.on("/", move |request, reply| {
        let (coding, coded, _) = sent(request.header("accept-encoding").unwrap_or_default());
        reply.answer(&page(coding, &coded).header("Vary", "Accept-Encoding"))
    });
    let accelerator = start(&origin, cores);
    for _ in 0..2 {
        for (accept, gets_it) in
            [("gzip", true), ("zstd", true), ("br, gzip", true), ("br", false), ("identity", false)]
        {
            let (coding, coded, body) = sent(accept);
            let answer = accelerator.fetch(&accepting("/", accept));
            if gets_it { is_as_sent(&answer, coding, &coded) } else { is_decoded(&answer, &body) }
        }
        is_decoded(&accelerator.get("/"), &sent("").2);
    }
    assert_eq!((origin.count("/"), count(&accelerator, "requests.decoded_made")), (6, 3));
}

fn a17_a_hundred_who_wait_have_it_decoded_once(cores: &str) {
    const CLIENTS: usize = 100;
    let origin = ScriptedOrigin::start();
    let body = text(1, 3_000_000);
    let sent = coded("br", &body);
    for path in ["/stored", "/missed"] {
        origin.answers(path, page("br", &sent));
    }
    let accelerator = start(&origin, cores);
    is_as_sent(&accelerator.fetch(&accepting("/stored", "br")), "br", &sent);
    for path in ["/stored", "/missed"] {
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| is_decoded(&accelerator.get(path), &body));
            }
        });
        assert_eq!(origin.count(path), 1);
    }
    assert_eq!(count(&accelerator, "requests.decoded_made"), 2, "each once");
    assert_eq!(count(&accelerator, "limits.decodings"), 0);
}

/// Returns this many megabytes of zeros, compressed.
fn bomb(megabytes: usize) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let zeros = vec![0; 1 << 20];
    (0..megabytes).try_for_each(|_| encoder.write_all(&zeros)).expect("gzip");
    encoder.finish().expect("gzip")
}

fn a17_oversized_content_is_sent_undecoded(cores: &str) {
    let origin = ScriptedOrigin::start();
    let setup = Accelerator::before(&origin.url()).flag("--cores", cores).flag("--memory", "64MiB");
    let accelerator = setup.flag("--compress-bytes-max", "3MiB").start();
    // Content that grows a thousandfold; content within the limit that grows too much for its size; and
    // content that is one byte too long.
    let long = text(1, (3 << 20) + 1);
    let bodies = [("/1000", bomb(1000)), ("/2", bomb(2)), ("/long", coded("gzip", &long))];
    for (path, sent) in &bodies {
        origin.answers(path, page("gzip", sent));
        for _ in 0..3 {
            is_as_sent(&accelerator.get(path), "gzip", sent);
        }
        assert_eq!(origin.count(path), 1);
    }
    assert_eq!(count(&accelerator, "requests.decoded_not_possible"), 3, "each is tried once");
    let fits = text(1, 3 << 20);
    origin.answers("/fits", page("gzip", &coded("gzip", &fits)));
    is_decoded(&accelerator.get("/fits"), &fits);
    assert_eq!(count(&accelerator, "requests.decoded_made"), 1);
}

fn a17_what_is_damaged_is_sent_as_it_is(cores: &str) {
    let origin = ScriptedOrigin::start();
    let accelerator = start(&origin, cores);
    let mut tried = 0;
    for coding in CODINGS {
        let whole = coded(coding, &text(1, 50_000));
        let cut = whole[..whole.len() / 2].to_vec();
        for (kind, sent) in [("cut", cut), ("none", text(2, 3_000)), ("empty", Vec::new())] {
            let path = format!("/{coding}/{kind}");
            origin.answers(&path, page(coding, &sent));
            for _ in 0..3 {
                is_as_sent(&accelerator.get(&path), coding, &sent);
            }
            tried += 1;
        }
    }
    assert_eq!(count(&accelerator, "requests.decoded_not_possible"), tried, "each is tried once");
    assert_eq!(count(&accelerator, "requests.decoded_made"), 0);
}

fn a17_what_waits_to_be_decoded_is_bounded(cores: &str) {
    const PAGES: u64 = 12;
    let origin = ScriptedOrigin::start();
    let pages: Vec<_> = (0..PAGES)
        .map(|number| {
            let body = text(number, 6 << 20);
            let sent = coded("zstd", &body);
            origin.answers(&format!("/{number}"), page("zstd", &sent));
            (sent, body)
        })
        .collect();
    let setup = Accelerator::before(&origin.url()).flag("--cores", cores);
    let accelerator = setup.flag("--memory", "512MiB").start();
    let as_sent = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (number, (sent, body)) in pages.iter().enumerate() {
            let (accelerator, as_sent) = (&accelerator, &as_sent);
            scope.spawn(move || {
                accelerator.fetch(&accepting(&format!("/{number}"), "zstd")).expect_status(200);
                let answer = accelerator.get(&format!("/{number}"));
                if answer.header("content-encoding").is_some() {
                    as_sent.fetch_add(1, Ordering::SeqCst);
                    is_as_sent(&answer, "zstd", sent);
                } else {
                    is_decoded(&answer, body);
                }
            });
        }
    });
    let refused = as_sent.load(Ordering::SeqCst) as u64;
    assert_eq!(count(&accelerator, "limits.decodings"), refused, "who had to take it as it is, is counted");
    assert_eq!(count(&accelerator, "requests.decoded_made"), PAGES - refused);
    // A later request gets the decoded content.
    for (number, (_, body)) in pages.iter().enumerate() {
        is_decoded(&accelerator.get(&format!("/{number}")), body);
    }
    assert_eq!(count(&accelerator, "requests.decoded_made"), PAGES);
}

fn a17_decoded_content_has_its_own_entity_tag(cores: &str) {
    let origin = ScriptedOrigin::start();
    let body = text(1, 5_000);
    let sent = coded("gzip", &body);
    let modified = "Sun, 06 Nov 1994 08:49:37 GMT";
    let other_order = Answer::new(200, &sent)
        .header("Cache-Control", "max-age=600")
        .header("ETag", "\"v1\"")
        .header("Content-Encoding", "gzip");
    for (path, answer) in [("/", page("gzip", &sent)), ("/order", other_order)] {
        origin.answers(path, answer.header("Last-Modified", modified));
        let accelerator = start(&origin, cores);
        // The fetch was caused by a client that has the decoded content.
        let had = Request::get(path).header("If-None-Match", "\"v1-id\"");
        assert_eq!(accelerator.fetch(&had).expect_status(304).header("etag"), Some("\"v1-id\""));
        for _ in 0..2 {
            for (accept, tags, want) in [
                ("", "\"v1-id\"", Some("\"v1-id\"")),
                ("br", "W/\"v1-id\"", Some("\"v1-id\"")),
                ("gzip", "\"v1\"", Some("\"v1\"")),
                // The client has the decoded content from before, and still accepts it.
                ("gzip", "\"v1-id\"", Some("\"v1-id\"")),
                // A cache in between may have both representations: a 304 must not name one that its client
                // does not accept.
                ("", "\"v1\"", None),
                ("", "\"v0\", \"v1\"", None),
                ("gzip;q=0", "\"v1\", \"v1-id\"", Some("\"v1-id\"")),
                ("identity;q=0", "\"v1-id\"", None),
                ("", "\"v1-gz\"", None),
                ("", "*", Some("\"v1-id\"")),
                ("gzip", "*", Some("\"v1\"")),
            ] {
                let answer = accelerator.fetch(&accepting(path, accept).header("If-None-Match", tags));
                let said = (answer.status(), answer.header("etag"));
                match want {
                    Some(etag) => assert_eq!(said, (304, Some(etag)), "{accept}: {tags}"),
                    None if accept.contains("identity") => is_as_sent(&answer, "gzip", &sent),
                    None => is_decoded(&answer, &body),
                }
                if answer.status() == 304 {
                    assert_eq!(answer.header("content-encoding"), None, "there is no content");
                    assert_eq!(answer.header("vary"), Some("Accept-Encoding"));
                }
            }
            let since = Request::get(path).header("If-Modified-Since", modified);
            assert_eq!(accelerator.fetch(&since).expect_status(304).header("etag"), Some("\"v1-id\""));
        }
    }
    // A 304 for the decoded content needs no decoding.
    let accelerator = start(&origin, cores);
    for _ in 0..2 {
        accelerator.fetch(&Request::get("/").header("If-None-Match", "\"v1-id\"")).expect_status(304);
    }
    assert!(count(&accelerator, "requests.decoded_made") <= 1);
    assert_eq!(count(&accelerator, "requests.hits_not_modified"), 1);
}

fn a17_ranges_of_decoded_content_are_right(cores: &str) {
    let origin = ScriptedOrigin::start();
    let body = text(1, 50_000);
    let sent = coded("gzip", &body);
    origin.answers("/", page("gzip", &sent));
    let accelerator = start(&origin, cores);
    let range = |accept: &str, if_range: Option<&str>| {
        let request = accepting("/", accept).header("Range", "bytes=100-199");
        accelerator.fetch(&if_range.iter().fold(request, |request, tag| request.header("If-Range", tag)))
    };
    let of_decoded = |part: &Response| {
        assert_eq!((part.status(), part.header("content-encoding")), (206, None), "{}", part.text_of_head());
        assert_eq!(part.header("etag"), Some("\"v1-id\""));
        assert_eq!(part.header("content-range"), Some("bytes 100-199/50000"));
        assert!(part.body == body[100..200]);
    };
    let of_sent = |part: &Response| {
        assert_eq!((part.status(), part.header("content-encoding")), (206, Some("gzip")));
        assert_eq!(part.header("etag"), Some("\"v1\""));
        assert_eq!(part.header("content-range"), Some(&*format!("bytes 100-199/{}", sent.len())));
        assert!(part.body == sent[100..200]);
    };
    of_sent(&range("gzip", None));
    // A client that accepts both and asks for a range of the decoded content, which is not made yet, gets the
    // whole compressed answer.
    is_as_sent(&range("gzip", Some("\"v1-id\"")), "gzip", &sent);
    assert_eq!(count(&accelerator, "requests.decoded_made"), 0);
    // The decoded content is not made yet, and is needed.
    for _ in 0..2 {
        of_decoded(&range("", None));
        of_decoded(&range("br", Some("\"v1-id\"")));
        of_decoded(&range("gzip", Some("\"v1-id\"")));
        of_sent(&range("gzip", Some("\"v1\"")));
        is_as_sent(&range("gzip", Some("\"v0\"")), "gzip", &sent);
        // Tags of another representation, weak ones, or old ones: the client gets the whole content.
        for tag in ["\"v1\"", "W/\"v1-id\"", "\"v0-id\""] {
            is_decoded(&range("", Some(tag)), &body);
        }
    }
    let beyond = accelerator.fetch(&Request::get("/").header("Range", "bytes=50000-")).expect_status(416);
    assert_eq!(beyond.header("content-range"), Some("bytes */50000"));
    assert_eq!((origin.count("/"), count(&accelerator, "requests.decoded_made")), (1, 1));
}

fn a17_what_is_purged_is_gone_decoded_too(cores: &str) {
    let origin = ScriptedOrigin::start();
    let version = Arc::new(AtomicUsize::new(0));
    let of_origin = Arc::clone(&version);
    origin.on("/", move |_, reply| {
        let version = of_origin.load(Ordering::SeqCst) as u64;
        // The entity tag stays the same, so a revalidation would keep the old content.
        reply.answer(&page("br", &coded("br", &text(version, 5_000))).header("Surrogate-Key", "all"))
    });
    let accelerator = start(&origin, cores);
    let purges: [&[&str]; 5] = [
        &["purge", "http://site.test/"],
        &["purge", "--tag", "all"],
        &["purge", "--ban", "req.url == /"],
        &["purge", "--all"],
        &["purge", "--soft", "http://site.test/"],
    ];
    for purge in purges {
        let version_now = || version.load(Ordering::SeqCst) as u64;
        for _ in 0..2 {
            is_decoded(&accelerator.get("/"), &text(version_now(), 5_000));
        }
        version.fetch_add(1, Ordering::SeqCst);
        assert!(accelerator.ask(purge).status.success(), "{purge:?}");
        for _ in 0..2 {
            is_decoded(&accelerator.get("/"), &text(version_now(), 5_000));
            let theirs = accelerator.fetch(&accepting("/", "br"));
            is_as_sent(&theirs, "br", &coded("br", &text(version_now(), 5_000)));
        }
    }
}

fn a17_what_is_validated_is_decoded_once(cores: &str) {
    let origin = ScriptedOrigin::start();
    let body = text(1, 5_000);
    let sent = coded("zstd", &body);
    for (path, freshness) in [
        ("/each-time", "max-age=0"),
        ("/no-cache", "no-cache"),
        ("/meanwhile", "max-age=0, stale-while-revalidate=600"),
    ] {
        let of_origin = sent.clone();
        origin.on(path, move |request, reply| {
            // The origin knows only its own entity tag.
            let is_known = request.header("if-none-match") == Some("\"v1\"");
            let answer = if is_known { Answer::new(304, "") } else { Answer::new(200, &of_origin) };
            let answer = if is_known { answer } else { answer.header("Content-Encoding", "zstd") };
            let age = if is_known { "young" } else { "old" };
            reply.answer(
                &answer.header("ETag", "\"v1\"").header("Cache-Control", freshness).header("X-Age", age),
            )
        });
    }
    let accelerator = start(&origin, cores);
    for path in ["/each-time", "/no-cache"] {
        let first = accelerator.get(path);
        is_decoded(&first, &body);
        assert!(first.header("cache-status").expect("it is said").contains("fwd=uri-miss"));
        for _ in 0..2 {
            let answer = accelerator.get(path);
            is_decoded(&answer, &body);
            let said = answer.header("cache-status").expect("it is said");
            assert!(said.contains("fwd=stale") && said.contains("fwd-status=304"), "{said}");
            assert_eq!(answer.header("x-age"), Some("young"), "a younger head is its head, too");
        }
        assert_eq!(origin.count(path), 3);
    }
    assert_eq!(count(&accelerator, "requests.decoded_made"), 2, "its content is the same");
    // A stale answer under stale-while-revalidate is served, too, although it must be decoded first.
    is_as_sent(&accelerator.fetch(&accepting("/meanwhile", "zstd")), "zstd", &sent);
    let stale = accelerator.get("/meanwhile");
    is_decoded(&stale, &body);
    assert!(stale.header("cache-status").expect("it is said").contains("stale-while-revalidate"));
    eventually("it was fetched anew", || origin.count("/meanwhile") >= 2);
    assert_eq!(count(&accelerator, "requests.hits_stale"), 1, "it is one request");
}

fn on_file(origin: &ScriptedOrigin, store: &Path, cores: &str) -> Accelerator {
    Accelerator::before(&origin.url()).flag("--cores", cores).store_in(store, "128MiB").start().warm()
}

fn a17_what_is_decoded_outlives_a_restart(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    let origin = ScriptedOrigin::start();
    let bodies = [text(1, 5_000), text(2, 300_000)];
    for (number, body) in bodies.iter().enumerate() {
        origin.answers(&format!("/{number}"), page("gzip", &coded("gzip", body)));
    }
    origin.answers("/damaged", page("gzip", b"none"));
    let mut running = on_file(&origin, &store, cores);
    let all_is_right = |running: &Accelerator| {
        for (number, body) in bodies.iter().enumerate() {
            is_decoded(&running.get(&format!("/{number}")), body);
            let theirs = running.fetch(&accepting(&format!("/{number}"), "gzip"));
            is_as_sent(&theirs, "gzip", &coded("gzip", body));
        }
        is_as_sent(&running.get("/damaged"), "gzip", b"none");
    };
    all_is_right(&running);
    for signal in [Signal::TERM, Signal::KILL] {
        eventually("all that was stored is on the file", || {
            let stat = running.stat();
            stat.number("store.file_objects") >= 6.0 && stat.number("store.log_records_waiting") == 0.0
        });
        running.signal(signal);
        running.wait();
        drop(running);
        running = on_file(&origin, &store, cores);
        all_is_right(&running);
        let tried =
            ["requests.decoded_made", "requests.decoded_not_possible"].map(|name| count(&running, name));
        assert_eq!(tried, [0, 0], "it was read, and not decoded anew");
    }
    assert_eq!((origin.count("/0"), origin.count("/1"), origin.count("/damaged")), (1, 1, 1));
}

fn a17_what_is_not_to_be_decoded_is_not(cores: &str) {
    let origin = ScriptedOrigin::start();
    let body = text(1, 5_000);
    let sent = coded("gzip", &body);
    let plain = |status: u16| Answer::new(status, &sent).header("Content-Type", "text/html");
    let fresh = |status: u16| plain(status).header("Cache-Control", "max-age=600");
    let answers = [
        ("/no-transform", "gzip", plain(200).header("Cache-Control", "max-age=600, no-transform")),
        ("/repr-digest", "gzip", fresh(200).header("Repr-Digest", "sha-256=:AAAA:")),
        ("/md5", "gzip", fresh(200).header("Content-MD5", "AAAA")),
        ("/no-tag", "gzip", fresh(200).header("ETag", "v1")),
        ("/status", "gzip", fresh(404)),
        ("/deflate", "deflate", fresh(200)),
        ("/twice", "gzip, gzip", fresh(200)),
        (
            "/file",
            "gzip",
            Answer::new(200, &sent)
                .header("Content-Type", "application/x-gzip")
                .header("Cache-Control", "max-age=600"),
        ),
        (
            "/trailers",
            "gzip",
            Answer::chunked(200, &[&sent], &[("X-Sum", "1")]).header("Cache-Control", "max-age=600"),
        ),
    ];
    for (path, coding, answer) in &answers {
        origin.answers(path, answer.clone().header("Content-Encoding", coding));
    }
    let accelerator = start(&origin, cores);
    for (path, coding, _) in &answers {
        for round in 0..3 {
            let answer = accelerator.get(path).whole();
            assert_eq!(answer.header("content-encoding"), Some(*coding), "{path}");
            assert!(answer.body == sent, "{path}");
            let is_hit = answer.header("cache-status").expect("it is said").contains("; hit");
            assert_eq!(is_hit, round > 0, "{path}");
        }
    }
    let tried =
        ["requests.decoded_made", "requests.decoded_not_possible"].map(|name| count(&accelerator, name));
    assert_eq!(tried, [0, 0]);
}

fn a17_explain_says_who_gets_what_decoded(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/", page("gzip", &coded("gzip", &text(1, 5_000))));
    origin.answers("/damaged", page("br", b"none"));
    origin.answers("/deflate", page("deflate", b"none"));
    let accelerator = start(&origin, cores);
    let coding = |path: &str, accept: &str| -> (String, String) {
        let url = format!("http://site.test{path}");
        let header = format!("Accept-Encoding: {accept}");
        let output = accelerator.ask(&["explain", "--json", &url, "-H", &header]);
        assert!(output.status.success(), "{output:?}");
        let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let steps = said["steps"].as_array().expect("steps");
        let step = steps.iter().find(|step| step["state"] == "coding").expect("a step");
        let text = |name: &str| step[name].as_str().expect("text").to_owned();
        (text("decision"), text("words"))
    };
    for (path, accept) in [("/", "gzip"), ("/damaged", "br"), ("/deflate", "")] {
        accelerator.fetch(&accepting(path, accept)).expect_status(200);
    }
    assert_eq!(coding("/", "gzip, br").0, "as-sent");
    assert_eq!(coding("/", "identity;q=0").0, "as-sent");
    let (decision, words) = coding("/", "br");
    assert!(decision == "to-be-decoded" && words.contains("gzip"), "{decision}: {words}");
    assert_eq!(count(&accelerator, "requests.decoded_made"), 0, "it only looks");
    accelerator.get("/");
    let (decision, words) = coding("/", "");
    assert!(decision == "decoded" && words.contains("5000 bytes"), "{decision}: {words}");
    assert_eq!(coding("/damaged", "").0, "to-be-decoded");
    accelerator.get("/damaged");
    assert_eq!(coding("/damaged", "").0, "not-to-be-decoded");
    assert_eq!(coding("/deflate", "").0, "coded-by-origin");
}
