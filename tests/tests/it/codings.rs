//! Compression: a stored answer is compressed for clients that accept the coding, once, and its fields always
//! describe its content.

use std::{
    io::Read,
    path::Path,
    process::Command,
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
    a17_quality_decides_and_the_server_breaks_ties,
    a17_each_encoded_variant_has_its_own_entity_tag,
    a17_a_part_is_of_what_the_client_has,
    a17_each_variant_of_the_origin_is_encoded_separately,
    a17_what_says_so_is_left_alone,
    a17_what_does_not_shrink_is_tried_once,
    a17_explain_says_what_a_client_gets,
}

on_one_core_and_on_two! {
    a17_encoded_variants_are_made_on_first_demand,
    a17_what_is_purged_is_gone_in_every_coding,
    a17_a_younger_head_is_that_of_every_coding,
    a17_what_waits_to_be_coded_is_bounded,
    a17_codings_outlive_a_restart,
    a17_concurrent_requests_encode_each_variant_once,
    a17_mixed_requests_get_accepted_codings_and_matching_tags,
}

const CODINGS: [(&str, &str); 3] = [("br", "-br"), ("zstd", "-zst"), ("gzip", "-gz")];

/// Returns compressible text, different for each seed.
fn text(seed: u64, bytes: usize) -> Vec<u8> {
    let words =
        ["night", "train", "of", "the", "rails ", "<p>", "</p>\n", "signal", "tunnel", "a", "bridge "];
    let picked =
        content(seed, 0, bytes).into_iter().flat_map(|byte| words[usize::from(byte) % words.len()].bytes());
    picked.take(bytes).collect()
}

/// Returns incompressible bytes.
fn noise(bytes: usize) -> Vec<u8> {
    let mut roll = dice();
    std::iter::repeat_with(|| roll(256) as u8).take(bytes).collect()
}

fn page(body: &[u8]) -> Answer {
    Answer::new(200, body)
        .header("Cache-Control", "max-age=600")
        .header("Content-Type", "text/html; charset=utf-8")
        .header("ETag", "\"v1\"")
}

fn start(origin: &ScriptedOrigin, cores: &str) -> Accelerator {
    Accelerator::before(&origin.url()).flag("--cores", cores).flag("--purge-from", "127.0.0.1").start()
}

fn accepting(path: &str, codings: &str) -> Request {
    Request::get(path).header("Accept-Encoding", codings)
}

/// Returns the content of an answer, decoded by its `Content-Encoding`.
#[track_caller]
fn decoded(answer: &Response) -> Vec<u8> {
    let mut out = Vec::new();
    match answer.header("content-encoding") {
        None => out.clone_from(&answer.body),
        Some("gzip") => {
            flate2::read::GzDecoder::new(&answer.body[..]).read_to_end(&mut out).expect("gzip");
        }
        Some("br") => {
            brotli::Decompressor::new(&answer.body[..], 4096).read_to_end(&mut out).expect("brotli");
        }
        Some("zstd") => out = zstd::stream::decode_all(&answer.body[..]).expect("zstd"),
        Some(other) => panic!("a coding that nobody made: {other}"),
    }
    out
}

/// Repeats a request until the answer has this coding.
#[track_caller]
fn coded(accelerator: &Accelerator, request: &Request, coding: &str) -> Response {
    let mut last = None;
    eventually("the content has been coded", || {
        let answer = accelerator.fetch(request).expect_status(200);
        let is_there = answer.header("content-encoding") == Some(coding);
        last = Some(answer);
        is_there
    });
    last.expect("it was asked for")
}

fn count(accelerator: &Accelerator, name: &str) -> u64 {
    accelerator.stat().count(name)
}

fn a17_encoded_variants_are_made_on_first_demand(cores: &str) {
    let origin = ScriptedOrigin::start();
    // Bodies that are copied into the answer, sent from the store, and sent in several pieces.
    let bodies = [text(1, 5_000), text(2, 200_000), text(3, 2_000_000)];
    for (number, body) in bodies.iter().enumerate() {
        origin.answers(&format!("/{number}"), page(body).header("Vary", "Cookie2"));
    }
    let chunked = Answer::chunked(200, &[&bodies[0], &bodies[1]], &[]);
    let chunked = chunked.header("Cache-Control", "max-age=600").header("Content-Type", "image/svg+xml");
    origin.answers("/chunked", chunked);
    let accelerator = start(&origin, cores);
    let whole = [&bodies[0][..], &bodies[1]].concat();
    let paths = [("/0", &bodies[0]), ("/1", &bodies[1]), ("/2", &bodies[2]), ("/chunked", &whole)];
    for (path, body) in paths {
        let missed = accelerator.fetch(&accepting(path, "br, gzip, zstd")).expect_status(200);
        assert!(missed.body == *body && missed.header("content-encoding").is_none());
        assert!(missed.head.headers.joined("vary").contains("Accept-Encoding"), "others get another");
        for (coding, suffix) in CODINGS {
            let request = accepting(path, coding);
            let answer = coded(&accelerator, &request, coding);
            assert!(answer.body.len() < body.len() / 2 && decoded(&answer) == *body, "{path} {coding}");
            let etag = (path != "/chunked").then(|| format!("\"v1{suffix}\""));
            assert_eq!(answer.header("etag"), etag.as_deref());
            assert!(answer.head.headers.joined("vary").contains("Accept-Encoding"));
            assert!(answer.header("cache-status").expect("it is said").contains("; hit"));
            let head = Request::new("HEAD", path).header("Accept-Encoding", coding);
            let head = accelerator.fetch(&head).expect_status(200);
            for name in ["content-length", "content-encoding", "etag", "vary", "content-type"] {
                assert_eq!(head.header(name), answer.header(name), "{path} {coding} {name}");
            }
            let curl = Command::new("curl")
                .args([
                    "--disable",
                    "--noproxy",
                    "*",
                    "--silent",
                    "--fail",
                    "--max-time",
                    "60",
                    "--compressed",
                ])
                .args(["--header", "Host: site.test", "--header", &format!("Accept-Encoding: {coding}")])
                .arg(format!("http://{}{path}", accelerator.address()))
                .output()
                .expect("curl is installed: run tests/install-packages.sh");
            assert!(curl.status.success() && curl.stdout == *body, "curl {path} {coding}");
        }
        let plain = accelerator.get(path).expect_status(200);
        assert!(plain.body == *body && plain.header("content-encoding").is_none());
        assert_eq!(origin.count(path), 1);
    }
    assert_eq!(count(&accelerator, "requests.codings_made"), 12, "each once");
    let listed = String::from_utf8(accelerator.ask(&["objects"]).stdout).expect("text");
    assert!(listed.ends_with("4 of 4 inspected, all in memory\n"), "codings are none of them: {listed}");
    assert!(count(&accelerator, "requests.hits_coded") >= 36);
    assert!(count(&accelerator, "bytes.saved_by_codings") > 5_000_000);
}

fn a17_quality_decides_and_the_server_breaks_ties(cores: &str) {
    let origin = ScriptedOrigin::start();
    let body = text(1, 5_000);
    origin.answers("/", page(&body));
    let setup = Accelerator::before(&origin.url()).flag("--cores", cores);
    let accelerator = setup.flag("--compress", "gzip,br").start();
    accelerator.get("/");
    for coding in ["gzip", "br"] {
        coded(&accelerator, &accepting("/", coding), coding);
    }
    for (accept, want) in [
        ("br, gzip", Some("gzip")),
        ("br;q=1.0, gzip;q=0.9", Some("br")),
        ("gzip;q=0, *", Some("br")),
        ("gzip;q=0.5, identity", None),
        ("zstd", None),
        ("identity", None),
        ("gzip;q=x", None),
        ("", None),
    ] {
        let answer = accelerator.fetch(&accepting("/", accept)).expect_status(200);
        assert_eq!(answer.header("content-encoding"), want, "{accept}");
        assert!(decoded(&answer) == body);
    }
    assert_eq!(count(&accelerator, "requests.codings_made"), 2, "zstd is not made");
    let setup = Accelerator::before(&origin.url()).flag("--cores", cores);
    let off = setup.flag("--compress", "none").start();
    for _ in 0..3 {
        let answer = off.fetch(&accepting("/", "gzip, br")).expect_status(200);
        assert_eq!((answer.header("content-encoding"), answer.header("vary")), (None, None));
    }
}

fn a17_each_encoded_variant_has_its_own_entity_tag(cores: &str) {
    let origin = ScriptedOrigin::start();
    let body = text(1, 5_000);
    origin.answers("/", page(&body).header("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT"));
    origin.answers("/weak", page(&body).header("X", "1"));
    let weak = Answer::new(200, &body).header("Cache-Control", "max-age=600").header("ETag", "W/\"w\"");
    origin.answers("/weak", weak.header("Content-Type", "text/plain"));
    let accelerator = start(&origin, cores);
    accelerator.get("/");
    accelerator.get("/weak");
    let gzip = coded(&accelerator, &accepting("/weak", "gzip"), "gzip");
    assert_eq!(gzip.header("etag"), Some("W/\"w-gz\""));
    coded(&accelerator, &accepting("/", "br"), "br");
    for (accept, tags, want) in [
        ("br", "\"v1-br\"", Some("\"v1-br\"")),
        ("br", "W/\"v1-br\"", Some("\"v1-br\"")),
        ("br", "\"v1\"", Some("\"v1\"")),
        // The client has a variant from before it changed its accepted codings, and still accepts it; it was
        // never made here.
        ("br, gzip", "\"v1-gz\"", Some("\"v1-gz\"")),
        ("br, gzip", "\"v0-br\", \"v1-gz\", \"v1\"", Some("\"v1-gz\"")),
        // A cache in between may have both variants: a 304 must not name one that its client does not accept.
        ("gzip", "\"v1-br\"", None),
        ("", "\"v1-br\"", None),
        ("", "\"v1\"", Some("\"v1\"")),
        ("identity;q=0, br", "\"v1\"", None),
        ("br", "\"v0\"", None),
        ("br", "\"v1-b\"", None),
        ("br", "*", Some("\"v1-br\"")),
        ("gzip;q=0", "*", Some("\"v1\"")),
    ] {
        let request = accepting("/", accept).header("If-None-Match", tags);
        let answer = accelerator.fetch(&request);
        let said = (answer.status(), answer.header("etag"));
        match want {
            Some(etag) => assert_eq!(said, (304, Some(etag)), "{accept}: {tags}"),
            None => assert!(said.0 == 200 && decoded(&answer) == body, "{accept}: {tags}: {said:?}"),
        }
        if answer.status() == 304 {
            assert_eq!(answer.header("content-encoding"), None, "there is no content");
            assert_eq!(answer.header("vary"), Some("Accept-Encoding"));
        }
    }
    let since = accepting("/", "br").header("If-Modified-Since", "Sun, 06 Nov 1994 08:49:37 GMT");
    let answer = accelerator.fetch(&since).expect_status(304);
    assert_eq!(answer.header("etag"), Some("\"v1-br\""));
    // An answer that is fetched at that moment is compared in the same way.
    accelerator.fetch(&Request::new("PURGE", "/")).expect_status(200);
    let missed =
        accelerator.fetch(&accepting("/", "br").header("If-None-Match", "\"v1-br\"")).expect_status(304);
    assert_eq!((missed.header("etag"), origin.count("/")), (Some("\"v1-br\""), 2));
}

fn a17_a_part_is_of_what_the_client_has(cores: &str) {
    let origin = ScriptedOrigin::start();
    let body = text(1, 50_000);
    origin.answers("/", page(&body));
    let accelerator = start(&origin, cores);
    accelerator.get("/");
    let whole = coded(&accelerator, &accepting("/", "br"), "br").body;
    let range = |accept: &str, if_range: Option<&str>| {
        let request = accepting("/", accept).header("Range", "bytes=100-199");
        accelerator.fetch(&if_range.iter().fold(request, |request, tag| request.header("If-Range", tag)))
    };
    for (accept, if_range) in [("br", None), ("br", Some("\"v1\"")), ("", Some("\"v1\""))] {
        let part = range(accept, if_range).expect_status(206);
        assert_eq!((part.header("content-encoding"), part.header("etag")), (None, Some("\"v1\"")));
        assert_eq!(part.header("content-range"), Some("bytes 100-199/50000"));
        assert!(part.body == body[100..200], "{accept} {if_range:?}");
    }
    let part = range("br", Some("\"v1-br\"")).expect_status(206);
    assert_eq!((part.header("content-encoding"), part.header("etag")), (Some("br"), Some("\"v1-br\"")));
    assert_eq!(part.header("content-range"), Some(&*format!("bytes 100-199/{}", whole.len())));
    assert!(part.body == whole[100..200]);
    // Tags of a variant that does not exist, is not accepted, is weak, or is old: the client gets the whole
    // answer.
    for (accept, if_range) in
        [("gzip", "\"v1-gz\""), ("gzip", "\"v1-br\""), ("br", "W/\"v1-br\""), ("br", "\"v0-br\"")]
    {
        let answer = range(accept, Some(if_range)).expect_status(200);
        assert_eq!((answer.header("content-encoding"), answer.header("etag")), (None, Some("\"v1\"")));
        assert!(answer.body == body, "{accept} {if_range}");
    }
    assert_eq!(count(&accelerator, "requests.codings_made"), 1, "a part makes none");
}

fn a17_what_is_purged_is_gone_in_every_coding(cores: &str) {
    let origin = ScriptedOrigin::start();
    let version = Arc::new(AtomicUsize::new(0));
    let of_origin = Arc::clone(&version);
    origin.on("/", move |_, reply| {
        let version = of_origin.load(Ordering::SeqCst);
        // The entity tag stays the same, so a revalidation would keep the old content.
        reply.answer(&page(&text(version as u64, 5_000)).header("Surrogate-Key", "all"))
    });
    let accelerator = start(&origin, cores);
    let purges: [&[&str]; 4] = [
        &["purge", "http://site.test/"],
        &["purge", "--tag", "all"],
        &["purge", "--ban", "req.url == /"],
        &["purge", "--all"],
    ];
    for purge in purges {
        let body = text(version.load(Ordering::SeqCst) as u64, 5_000);
        accelerator.get("/");
        for (coding, _) in CODINGS {
            assert!(decoded(&coded(&accelerator, &accepting("/", coding), coding)) == body);
        }
        let now = version.fetch_add(1, Ordering::SeqCst) as u64 + 1;
        assert!(accelerator.ask(purge).status.success(), "{purge:?}");
        for (coding, _) in CODINGS.iter().chain(&CODINGS) {
            let answer = accelerator.fetch(&accepting("/", coding)).expect_status(200);
            assert!(decoded(&answer) == text(now, 5_000), "{purge:?}: {coding} is of before");
        }
    }
}

fn a17_a_younger_head_is_that_of_every_coding(cores: &str) {
    let origin = ScriptedOrigin::start();
    let body = text(1, 5_000);
    let of_origin = body.clone();
    origin.on("/", move |request, reply| {
        let is_known = request.header("if-none-match") == Some("\"v1\"");
        let answer = if is_known { Answer::new(304, "") } else { page(&of_origin).header("X-Age", "old") };
        let answer = if is_known { answer.header("X-Age", "young") } else { answer };
        reply.answer(&answer.header("Cache-Control", "max-age=600"))
    });
    let accelerator = start(&origin, cores);
    accelerator.get("/");
    let old = coded(&accelerator, &accepting("/", "br"), "br");
    assert_eq!(old.header("x-age"), Some("old"));
    assert!(accelerator.ask(&["purge", "--soft", "http://site.test/"]).status.success());
    let asked = accelerator.fetch(&accepting("/", "br")).expect_status(200);
    let next = accelerator.fetch(&accepting("/", "br")).expect_status(200);
    for answer in [asked, next] {
        assert_eq!((answer.header("x-age"), answer.header("content-encoding")), (Some("young"), Some("br")));
        assert_eq!(answer.header("etag"), Some("\"v1-br\""));
        assert!(decoded(&answer) == body);
    }
    assert_eq!(origin.count("/"), 2);
    assert_eq!(count(&accelerator, "requests.codings_made"), 1, "its content is the same");
}

fn a17_each_variant_of_the_origin_is_encoded_separately(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/", |request, reply| {
        let accepted = request.header("accept-encoding").unwrap_or_default();
        let body = text(accepted.len() as u64, 5_000);
        if accepted == "gzip" {
            // Compressed by the origin itself; such an answer stays as it is.
            let mut encoder = flate2::read::GzEncoder::new(&body[..], flate2::Compression::fast());
            let mut coded = Vec::new();
            encoder.read_to_end(&mut coded)?;
            let answer = page(&coded).header("Content-Encoding", "gzip").header("ETag2", "x");
            return reply.answer(&answer.header("Vary", "accept-encoding"));
        }
        reply.answer(&page(&body).header("Vary", "accept-encoding"))
    });
    let accelerator = start(&origin, cores);
    for accept in ["gzip", "br", "zstd, br"] {
        accelerator.fetch(&accepting("/", accept)).expect_status(200);
    }
    for accept in ["br", "zstd, br"] {
        let answer = coded(&accelerator, &accepting("/", accept), "br");
        // The `Accept-Encoding` that the origin receives.
        let meant = if accept == "br" { accept } else { "br, zstd" };
        assert!(decoded(&answer) == text(meant.len() as u64, 5_000), "{accept}");
        assert_eq!(answer.head.headers.joined("vary"), "accept-encoding", "it is said once");
    }
    let theirs = accelerator.fetch(&accepting("/", "gzip")).expect_status(200);
    assert_eq!((theirs.header("content-encoding"), theirs.header("etag")), (Some("gzip"), Some("\"v1\"")));
    assert!(decoded(&theirs) == text(4, 5_000));
    assert_eq!(count(&accelerator, "requests.codings_made"), 2);
    assert_eq!(origin.count("/"), 3);
}

fn a17_what_says_so_is_left_alone(cores: &str) {
    let origin = ScriptedOrigin::start();
    let body = text(1, 5_000);
    let plain = || Answer::new(200, &body).header("Content-Type", "text/html").header("ETag", "\"v1\"");
    let fresh = || plain().header("Cache-Control", "max-age=600");
    let answers = [
        ("/no-transform", plain().header("Cache-Control", "max-age=600, no-transform")),
        ("/repr-digest", fresh().header("Repr-Digest", "sha-256=:AAAA:")),
        ("/content-digest", fresh().header("Content-Digest", "sha-256=:AAAA:")),
        ("/md5", fresh().header("Content-MD5", "AAAA")),
        ("/coded", fresh().header("Content-Encoding", "deflate")),
        (
            "/no-tag",
            Answer::new(200, &body)
                .header("Content-Type", "text/html")
                .header("ETag", "v1")
                .header("Cache-Control", "max-age=600"),
        ),
        (
            "/type",
            Answer::new(200, &body)
                .header("Content-Type", "image/png")
                .header("Cache-Control", "max-age=600"),
        ),
        ("/untyped", Answer::new(200, &body).header("Cache-Control", "max-age=600")),
        (
            "/short",
            Answer::new(200, text(1, 1_023))
                .header("Content-Type", "text/html")
                .header("Cache-Control", "max-age=600"),
        ),
        (
            "/status",
            Answer::new(404, &body)
                .header("Content-Type", "text/html")
                .header("Cache-Control", "max-age=600"),
        ),
        (
            "/trailers",
            Answer::chunked(200, &[&body], &[("X-Sum", "1")])
                .header("Content-Type", "text/html")
                .header("Cache-Control", "max-age=600"),
        ),
    ];
    for (path, answer) in &answers {
        origin.answers(path, answer.clone());
    }
    origin.answers("/fine", fresh());
    let accelerator = start(&origin, cores);
    for (path, _) in &answers {
        let first = accelerator.fetch(&accepting(path, "br, gzip"));
        for _ in 0..3 {
            let answer = accelerator.fetch(&accepting(path, "br, gzip")).whole();
            assert_eq!(answer.status(), first.status());
            assert!(answer.body == first.body, "{path}");
            assert_eq!(answer.header("content-encoding"), first.header("content-encoding"), "{path}");
            assert!(answer.header("cache-status").expect("it is said").contains("; hit"), "{path}");
        }
    }
    // Once this job is done, all jobs that were ordered before it are.
    accelerator.get("/fine");
    coded(&accelerator, &accepting("/fine", "br"), "br");
    // A client may forbid transformation, too (RFC 9111 §5.2.1.6).
    let as_it_is = accepting("/fine", "br").header("Cache-Control", "no-transform");
    let answer = accelerator.fetch(&as_it_is).expect_status(200);
    assert!(answer.header("content-encoding").is_none() && answer.body == body);
    assert_eq!(count(&accelerator, "requests.codings_made"), 1);
}

fn a17_what_does_not_shrink_is_tried_once(cores: &str) {
    let origin = ScriptedOrigin::start();
    let noise = noise(100_000);
    origin.answers("/noise", page(&noise));
    let accelerator = start(&origin, cores);
    accelerator.get("/noise");
    eventually("it was tried", || {
        let answer = accelerator.fetch(&accepting("/noise", "br")).expect_status(200);
        assert!(answer.body == noise && answer.header("content-encoding").is_none());
        count(&accelerator, "requests.codings_not_shrunk") == 1
    });
    // Longer than a core waits before it orders the same job again.
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    for _ in 0..10 {
        let answer = accelerator.fetch(&accepting("/noise", "br")).expect_status(200);
        assert!(answer.body == noise && answer.header("etag") == Some("\"v1\""));
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_eq!(count(&accelerator, "requests.codings_not_shrunk"), 1);
    assert_eq!(count(&accelerator, "requests.codings_made"), 0);
}

fn a17_what_waits_to_be_coded_is_bounded(cores: &str) {
    const PAGES: usize = 12;
    let origin = ScriptedOrigin::start();
    let body = text(1, 8 << 20);
    for number in 0..PAGES {
        origin.answers(&format!("/{number}"), page(&body));
    }
    let accelerator =
        Accelerator::before(&origin.url()).flag("--cores", cores).flag("--memory", "512MiB").start();
    for number in 0..PAGES {
        accelerator.get(&format!("/{number}")).expect_status(200);
    }
    // 96 MiB at once, of which 64 may wait.
    let mut client = accelerator.connect();
    for number in 0..PAGES {
        let head = Request::new("HEAD", &format!("/{number}")).header("Accept-Encoding", "br");
        client.exchange(&head).expect_status(200);
    }
    eventually("what has no room is refused", || count(&accelerator, "limits.codings") > 0);
    // A later request gets its variant made.
    for number in 0..PAGES {
        let answer = coded(&accelerator, &accepting(&format!("/{number}"), "br"), "br");
        assert!(number > 0 || decoded(&answer) == body);
    }
    assert_eq!(count(&accelerator, "requests.codings_made"), PAGES as u64);
}

fn on_file(origin: &ScriptedOrigin, store: &Path, cores: &str) -> Accelerator {
    Accelerator::before(&origin.url()).flag("--cores", cores).store_in(store, "128MiB").start().warm()
}

fn a17_codings_outlive_a_restart(cores: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = directory.path().join("store");
    let origin = ScriptedOrigin::start();
    let bodies = [text(1, 5_000), text(2, 300_000)];
    for (number, body) in bodies.iter().enumerate() {
        origin.answers(&format!("/{number}"), page(body));
    }
    let mut running = on_file(&origin, &store, cores);
    for number in 0..bodies.len() {
        running.get(&format!("/{number}"));
        for (coding, _) in CODINGS {
            coded(&running, &accepting(&format!("/{number}"), coding), coding);
        }
    }
    for signal in [Signal::TERM, Signal::KILL] {
        eventually("all that was stored is on the file", || {
            let stat = running.stat();
            stat.number("store.file_objects") >= 8.0 && stat.number("store.log_records_waiting") == 0.0
        });
        running.signal(signal);
        running.wait();
        drop(running);
        running = on_file(&origin, &store, cores);
        for (number, body) in bodies.iter().enumerate() {
            for (coding, suffix) in CODINGS {
                let answer = coded(&running, &accepting(&format!("/{number}"), coding), coding);
                assert!(decoded(&answer) == *body, "{number} {coding}");
                assert_eq!(answer.header("etag"), Some(&*format!("\"v1{suffix}\"")));
            }
        }
        assert_eq!(count(&running, "requests.codings_made"), 0, "they were read, and not made anew");
    }
    assert_eq!((origin.count("/0"), origin.count("/1")), (1, 1));
}

fn a17_concurrent_requests_encode_each_variant_once(cores: &str) {
    let origin = ScriptedOrigin::start();
    let body = text(1, 2_000_000);
    origin.answers("/", page(&body));
    let accelerator = start(&origin, cores);
    accelerator.get("/");
    std::thread::scope(|scope| {
        for client in 0..12 {
            let (accelerator, body) = (&accelerator, &body);
            scope.spawn(move || {
                let (coding, _) = CODINGS[client % CODINGS.len()];
                let answer = coded(accelerator, &accepting("/", coding), coding);
                assert!(decoded(&answer) == *body, "{coding}");
            });
        }
    });
    assert_eq!(count(&accelerator, "requests.codings_made"), 3);
}

/// Returns pseudo-random numbers, the same in each run.
fn dice() -> impl FnMut(usize) -> usize {
    let mut state = 17_u64;
    move |sides| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % sides
    }
}

fn a17_mixed_requests_get_accepted_codings_and_matching_tags(cores: &str) {
    const PAGES: usize = 6;
    let origin = ScriptedOrigin::start();
    let bodies: Vec<_> = (0..PAGES).map(|page| text(page as u64, 900 + page * page * 4_000)).collect();
    for (number, body) in bodies.iter().enumerate() {
        origin.answers(&format!("/{number}"), page(body));
    }
    let accelerator = start(&origin, cores);
    let accepts =
        ["br", "gzip", "zstd", "gzip, br, zstd", "", "identity", "gzip;q=0.5, br;q=0.1", "*;q=0.3, br;q=0"];
    let tags = ["\"v1\"", "\"v1-br\"", "\"v1-gz\"", "\"v1-zst\"", "\"v0\""];
    for number in 0..PAGES {
        accelerator.get(&format!("/{number}"));
        for (coding, _) in CODINGS.iter().filter(|_| number > 0) {
            coded(&accelerator, &accepting(&format!("/{number}"), coding), coding);
        }
    }
    let mut roll = dice();
    let mut client = accelerator.connect();
    for number in 0..1_000 {
        let (path, accept) = (roll(PAGES), accepts[roll(accepts.len())]);
        let mut request = accepting(&format!("/{path}"), accept);
        if roll(4) == 0 {
            request = request.header("If-None-Match", tags[roll(tags.len())]);
        }
        let is_range = roll(4) == 0;
        if is_range {
            request = request.header("Range", "bytes=10-99");
            if roll(2) == 0 {
                request = request.header("If-Range", tags[roll(tags.len())]);
            }
        }
        if number > 500 && roll(20) == 0 {
            accelerator.fetch(&Request::new("PURGE", &format!("/{path}")));
        }
        let answer = client.exchange(&request).whole();
        let what =
            format!("{number}: {} -> {}", String::from_utf8_lossy(&request.bytes()), answer.text_of_head());
        let coding = answer.header("content-encoding");
        assert!(coding.is_none_or(|coding| accept.contains(coding) || accept.contains('*')), "{what}");
        let suffix = CODINGS.iter().find(|(name, _)| Some(*name) == coding).map_or("", |(_, suffix)| suffix);
        let tag = answer.header("etag").expect("it has one");
        match answer.status() {
            200 => {
                assert!(decoded(&answer) == bodies[path], "{what}");
                assert_eq!(tag, format!("\"v1{suffix}\""), "{what}");
            }
            206 if coding.is_none() => {
                assert!(answer.body == bodies[path][10..100] && tag == "\"v1\"", "{what}");
            }
            206 => assert_eq!(tag, format!("\"v1{suffix}\""), "{what}"),
            304 => assert!(String::from_utf8_lossy(&request.bytes()).contains(tag), "{what}"),
            _ => panic!("{what}"),
        }
    }
    assert!(count(&accelerator, "requests.hits_coded") > 50, "otherwise this said nothing");
}

fn a17_explain_says_what_a_client_gets(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/", page(&text(1, 5_000)));
    origin.answers("/noise", page(&noise(5_000)));
    origin.answers("/short", page(&text(1, 500)));
    let accelerator = start(&origin, cores);
    let coding = |path: &str, accept: &str| -> (String, String) {
        let url = format!("http://site.test{path}");
        let header = format!("Accept-Encoding: {accept}");
        let output = accelerator.ask(&["explain", "--json", &url, "-H", &header]);
        assert!(output.status.success(), "{output:?}");
        let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let steps = said["steps"].as_array().expect("steps");
        let step = steps.iter().find(|step| step["state"] == "coding").expect("a step");
        (
            step["decision"].as_str().expect("text").to_owned(),
            step["words"].as_str().expect("text").to_owned(),
        )
    };
    for path in ["/", "/noise", "/short"] {
        accelerator.get(path);
    }
    assert_eq!(coding("/", "br").0, "to-be-made");
    assert_eq!(count(&accelerator, "requests.codings_made"), 0, "it only looks");
    coded(&accelerator, &accepting("/", "br"), "br");
    let (decision, words) = coding("/", "gzip;q=0.5, br");
    assert!(decision == "coded" && words.contains("br"), "{decision}: {words}");
    assert_eq!(coding("/", "gzip").0, "to-be-made");
    assert_eq!(coding("/", "identity").0, "not-accepted");
    assert_eq!(coding("/short", "br").0, "length");
    eventually("it was tried", || {
        accelerator.fetch(&accepting("/noise", "br"));
        coding("/noise", "br").0 == "does-not-shrink"
    });
}
