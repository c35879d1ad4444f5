//! Bugs that were reported against other caches and proxies, each with its smallest input: what is right here
//! stays right. Each test's comment names the report (repository#number).

use std::{
    io::Write as _,
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use tests::{
    Accelerator, Answer, Gate, Next, Request, Response, ScriptedOrigin, eventually, on_one_core,
    on_one_core_and_on_two,
};

on_one_core! {
    a_304_replaces_repeated_fields_keeps_others,
    a_range_of_stale_content_follows_the_origin,
    a_post_meets_no_dying_connection,
    an_early_hint_brings_its_links_alone,
    trailers_stay_out_of_the_body,
    an_empty_body_is_a_hit,
    a_304_changes_neither_body_nor_coding,
    a_part_of_unknown_length_passes,
    a_tag_that_begins_like_another_is_another,
    a_204_from_the_store_has_no_length,
    the_tag_of_a_coding_is_answered_304,
    a_chunked_hit_ends_once,
    each_event_of_a_stream_comes_at_once,
    a_broken_post_ends_at_the_origin,
}

on_one_core_and_on_two! {
    a_purge_takes_all_variants,
}

/// Sends requests over HTTP/2 without TLS, with a client (curl) that fails on a field which HTTP/2 forbids.
fn over_http2(arguments: &[&str]) -> Output {
    let common =
        ["--disable", "--silent", "--show-error", "--fail", "--http2-prior-knowledge", "--max-time", "60"];
    let curl = Command::new("curl").args(common).args(arguments).output();
    curl.expect("curl is installed: run tests/install-packages.sh")
}

fn start(origin: &ScriptedOrigin, cores: &str) -> Accelerator {
    let setup = Accelerator::before(&origin.url()).flag("--cores", cores);
    setup.flag("--purge-from", "127.0.0.1").start()
}

fn is_hit(answer: &Response) -> bool {
    answer.header("cache-status").is_some_and(|said| said.contains("; hit"))
}

fn all<'a>(answer: &'a Response, name: &'a str) -> Vec<&'a str> {
    answer.head.headers.all(name).collect()
}

/// Together with `Age: 20`, this lifetime makes a page stale on arrival and revalidated each time, so that no
/// test has to wait.
const STALE: &str = "max-age=1";

/// apache/trafficserver#11784: each revalidation lost Content-Type, or added repeated fields once more.
fn a_304_replaces_repeated_fields_keeps_others(cores: &str) {
    const ROUNDS: usize = 1000;
    let origin = ScriptedOrigin::start();
    let rounds = AtomicUsize::new(0);
    origin.on("/a.js", move |_, reply| {
        let fields = |answer: Answer, values: [&str; 2]| {
            let answer = answer.header("Cache-Control", STALE).header("Age", "20");
            let answer = answer.header("Last-Modified", "Mon, 02 Sep 2024 10:00:00 GMT");
            answer.header("X-Reveal-Duplicate", values[0]).header("X-Reveal-Duplicate", values[1])
        };
        reply.answer(&match rounds.fetch_add(1, SeqCst) {
            0 => fields(Answer::new(200, "1+1;"), ["same", "other"])
                .header("Content-Type", "application/javascript"),
            _ => fields(Answer::new(304, ""), ["new", "newer"]),
        })
    });
    let running = start(&origin, cores);
    let mut client = running.connect();
    let first = client.get("/a.js").expect_status(200);
    assert_eq!(all(&first, "x-reveal-duplicate"), ["same", "other"]);
    let mut lines = None;
    for round in 0..ROUNDS {
        let answer = client.get("/a.js").expect_status(200);
        assert_eq!(
            (answer.text().as_str(), answer.header("content-type")),
            ("1+1;", Some("application/javascript"))
        );
        assert_eq!(all(&answer, "x-reveal-duplicate"), ["new", "newer"], "round {round}");
        let count = answer.text_of_head().lines().count();
        assert_eq!(*lines.get_or_insert(count), count, "round {round}: {}", answer.text_of_head());
    }
    assert_eq!(origin.count("/a.js"), ROUNDS + 1, "it is still asked for");
}

/// apache/trafficserver#10772, #3409, PR #13158: a range request for stale content gets the content that the
/// origin has now.
fn a_range_of_stale_content_follows_the_origin(cores: &str) {
    let origin = ScriptedOrigin::start();
    let running = start(&origin, cores);
    let part = |path: &str| running.fetch(&Request::get(path).header("Range", "bytes=0-4"));
    let then = |path: &str, says: &str, second: Answer| {
        let first = Answer::new(200, "0123456789").header("ETag", "\"a\"").header("Age", "20");
        let (first, asked) = (first.header("Cache-Control", says), AtomicUsize::new(0));
        origin.on(path, move |request, reply| {
            assert_eq!(request.header("range"), None, "a range is ours to cut");
            let is_first = asked.fetch_add(1, SeqCst) == 0;
            reply.answer(if is_first { &first } else { &second })
        });
        running.get(path).expect_status(200);
    };
    then("/304", STALE, Answer::new(304, "").header("ETag", "\"a\""));
    let answer = part("/304").expect_status(206);
    assert_eq!((answer.text().as_str(), answer.header("content-range")), ("01234", Some("bytes 0-4/10")));

    then("/404", STALE, Answer::new(404, "not found"));
    let answer = part("/404").expect_status(404);
    assert_eq!((answer.text().as_str(), answer.header("content-range")), ("not found", None));

    let other = Answer::new(200, "abcdefghijklmnopqrst")
        .header("ETag", "\"b\"")
        .header("Cache-Control", "max-age=600");
    then("/200", STALE, other);
    let answer = part("/200").expect_status(206);
    assert_eq!((answer.text().as_str(), answer.header("content-range")), ("abcde", Some("bytes 0-4/20")));
    let whole = running.get("/200").expect_status(200);
    assert!(is_hit(&whole) && whole.body.len() == 20, "{}", whole.text_of_head());

    let unasked = Answer::new(206, "abcde").header("ETag", "\"b\"").header("Content-Range", "bytes 0-4/20");
    then("/206", STALE, unasked);
    let answer = part("/206").expect_status(206);
    assert_eq!(answer.text(), "abcde", "and nothing of the other version");

    then("/500", "max-age=1, stale-if-error=60", Answer::new(500, "an error page"));
    let answer = part("/500").expect_status(206);
    assert_eq!((answer.text().as_str(), answer.header("content-range")), ("01234", Some("bytes 0-4/10")));
    then("/500-said", "max-age=1, must-revalidate", Answer::new(500, "an error page"));
    assert_eq!(part("/500-said").expect_status(500).text(), "an error page");
}

/// supabase/cli#6674, sozu-proxy/sozu#1442: a POST is not sent on an origin connection that is closing.
fn a_post_meets_no_dying_connection(cores: &str) {
    const ROUNDS: usize = 40;
    let origin = ScriptedOrigin::start();
    for (path, bytes, next) in [
        (
            "/fin",
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Control: no-store\r\n\r\n",
            Next::Close,
        ),
        (
            "/rst",
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Control: no-store\r\n\r\n",
            Next::Reset,
        ),
        ("/length", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nCache-Control: no-store\r\n\r\n", Next::Close),
    ] {
        origin.sends(path, bytes, next);
    }
    origin.answers("/b", Answer::new(200, "ok"));
    let running = start(&origin, cores);
    for path in ["/fin", "/rst", "/length"] {
        for round in 0..ROUNDS {
            let before = origin.count("/b");
            let mut client = running.connect();
            let both =
                [Request::new("HEAD", path).bytes(), Request::new("POST", "/b").body(b"hi").bytes()].concat();
            client.send(&both);
            let head = client.response("HEAD");
            assert!(head.status() == 200 || path == "/rst", "{path}: {}", head.text_of_head());
            let post = client.response("POST").expect_status(200);
            assert_eq!(
                (post.text().as_str(), origin.count("/b")),
                ("ok", before + 1),
                "{path}, round {round}"
            );
        }
    }
}

/// nginx/nginx#1604, #884, #807: a 103 answer is passed on with its Link fields only.
fn an_early_hint_brings_its_links_alone(cores: &str) {
    let origin = ScriptedOrigin::start();
    let link = "Link: </a.css>; rel=preload; as=style\r\n";
    let hints: Vec<String> = [
        "Connection: keep-alive\r\nKeep-Alive: timeout=5\r\n",
        "Connection: close\r\n",
        "Connection: X-Secret\r\nX-Secret: 1\r\n",
        "Upgrade: h2c\r\n",
        "Proxy-Connection: keep-alive\r\n",
    ]
    .map(|fields| format!("HTTP/1.1 103 Early Hints\r\n{link}{fields}\r\n"))
    .into();
    let several = format!("HTTP/1.1 103 Early Hints\r\n{link}\r\n").repeat(3);
    let others = format!(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\n{link}\r\n"
    );
    let running = start(&origin, cores);
    for (number, hints) in hints.into_iter().chain([several, others]).enumerate() {
        let (path, gate) = (format!("/{number}"), Gate::new());
        let (in_script, sent) = (gate.clone(), hints.clone());
        origin.on(&path, move |_, reply| {
            reply.send(sent.as_bytes())?;
            in_script.pass();
            reply.answer(&Answer::new(200, "ok").header("Cache-Control", "max-age=600"))
        });
        let mut client = running.connect();
        client.send(&Request::get(&path).bytes());
        // The early hint arrives before the final answer exists.
        let hint = loop {
            let head = client.head("GET");
            if head.status == 103 {
                break head;
            }
            assert!(head.status < 200, "{head:?}");
        };
        let text = String::from_utf8_lossy(&hint.bytes).to_ascii_lowercase();
        let names: Vec<_> =
            text.lines().skip(1).filter_map(|line| line.split_once(':').map(|(name, _)| name)).collect();
        assert_eq!(names, ["link"], "{hints}");
        gate.open();
        assert_eq!(client.response("GET").expect_status(200).text(), "ok");
        let hit = running.get(&path).expect_status(200);
        assert!(
            is_hit(&hit) && hit.header("link").is_none() && hit.interim.is_empty(),
            "{}",
            hit.text_of_head()
        );
        // HTTP/2 forbids the hop-by-hop fields of HTTP/1.1: a strict client would drop the connection.
        let pass = format!("http://{}{path}?h2", running.address());
        gate.open();
        let output = over_http2(&[&pass]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "ok", "{output:?}");
    }
    origin.sends(
        "/101",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
        Next::Close,
    );
    running.get("/101").expect_status(502);
}

/// nginx/nginx#1115: trailers never become part of the body.
fn trailers_stay_out_of_the_body(cores: &str) {
    let origin = ScriptedOrigin::start();
    let bytes = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
                 5\r\nhello\r\n0\r\nX-Sum: 5d41\r\nContent-Length: 0\r\nTransfer-Encoding: x\r\nConnection: close\r\n\r\n";
    let cuts = [0, 1, 3, 7, bytes.len()];
    for cut in cuts {
        origin.on(&format!("/{cut}"), move |_, reply| {
            let pieces = bytes.as_bytes().chunks(cut.max(1));
            pieces.into_iter().try_for_each(|piece| reply.send(piece))?;
            Ok(Next::KeepAlive)
        });
    }
    let running = start(&origin, cores);
    for cut in cuts {
        let path = format!("/{cut}");
        for is_again in [false, true] {
            let asked =
                running.fetch(&Request::get(&path).header("TE", "trailers").header("Connection", "TE"));
            assert_eq!((asked.text().as_str(), is_hit(&asked)), ("hello", is_again), "cut at {cut}");
            for forbidden in ["content-length", "transfer-encoding", "connection"] {
                assert_eq!(asked.trailers.first(forbidden), None, "{forbidden} is no trailer");
            }
            assert_eq!(running.get(&path).expect_status(200).text(), "hello");
        }
        let part = running.fetch(&Request::get(&path).header("Range", "bytes=3-")).expect_status(206);
        assert_eq!(part.text(), "lo");
        assert_eq!(running.fetch(&Request::new("HEAD", &path)).expect_status(200).body, b"");
        let url = format!("http://{}{path}", running.address());
        let output = over_http2(&["--header", "TE: trailers", &url]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "hello", "{output:?}");
    }
}

/// apache/trafficserver#11313, PR #13410: an answer with an empty body is stored.
fn an_empty_body_is_a_hit(cores: &str) {
    let origin = ScriptedOrigin::start();
    let fresh = "Cache-Control: max-age=600\r\n";
    for (path, bytes, next) in [
        (
            "/chunked",
            format!("HTTP/1.1 200 OK\r\n{fresh}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            Next::KeepAlive,
        ),
        (
            "/404",
            format!("HTTP/1.1 404 Not Found\r\n{fresh}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            Next::KeepAlive,
        ),
        ("/length", format!("HTTP/1.1 200 OK\r\n{fresh}Content-Length: 0\r\n\r\n"), Next::KeepAlive),
        ("/close", format!("HTTP/1.0 200 OK\r\n{fresh}\r\n"), Next::Close),
        (
            "/trailer",
            format!("HTTP/1.1 200 OK\r\n{fresh}Transfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 1\r\n\r\n"),
            Next::KeepAlive,
        ),
    ] {
        origin.sends(path, bytes, next);
    }
    let running = start(&origin, cores);
    for path in ["/chunked", "/404", "/length", "/close", "/trailer"] {
        let first = running.get(path);
        eventually("it is stored", || is_hit(&running.get(path)));
        let hit = running.get(path).expect_status(first.status());
        assert!(first.body.is_empty() && hit.body.is_empty(), "{path}");
        let head = running.fetch(&Request::new("HEAD", path)).expect_status(first.status());
        if let Some(length) = hit.header("content-length") {
            assert_eq!(head.header("content-length"), Some(length), "{path}");
        }
        if first.status() == 200 {
            let part = running.fetch(&Request::get(path).header("Range", "bytes=0-3"));
            assert!(part.status() == 416 || part.status() == 200, "{path}: {}", part.text_of_head());
        }
        assert_eq!(origin.count(path), 1);
    }
}

/// squid-cache/squid#2401, #378; varnishcache/varnish-cache#3169: a 304 changes neither the stored length nor
/// the stored content coding.
fn a_304_changes_neither_body_nor_coding(cores: &str) {
    let origin = ScriptedOrigin::start();
    for (path, fields) in [
        ("/length", "Content-Length: 0\r\nETag: \"foo\"\r\n"),
        ("/coding", "Content-Encoding: gzip\r\nETag: W/\"foo\"\r\n"),
    ] {
        let asked = AtomicUsize::new(0);
        let first = Answer::new(200, "identity").header("ETag", "\"foo\"").header("Age", "20");
        let first = first.header("Cache-Control", STALE);
        origin.on(path, move |_, reply| {
            if asked.fetch_add(1, SeqCst) == 0 {
                return reply.answer(&first);
            }
            reply.send(format!("HTTP/1.1 304 Not Modified\r\n{fields}\r\n").as_bytes())?;
            Ok(Next::KeepAlive)
        });
    }
    let running = start(&origin, cores);
    for path in ["/length", "/coding"] {
        for _ in 0..3 {
            let answer = running.get(path).expect_status(200);
            assert_eq!(
                (answer.text().as_str(), answer.header("content-encoding")),
                ("identity", None),
                "{path}"
            );
        }
        assert!(origin.count(path) >= 2, "{path} was validated");
    }
}

/// varnishcache/varnish-cache#4089, #4081: a 206 whose Content-Range has no complete length is passed on
/// unchanged.
fn a_part_of_unknown_length_passes(cores: &str) {
    let origin = ScriptedOrigin::start();
    let bytes = "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 10-19/*\r\nTransfer-Encoding: chunked\r\n\
                 Cache-Control: private\r\n\r\na\r\n0123456789\r\n0\r\n\r\n";
    origin.sends("/", bytes, Next::KeepAlive);
    let setup = Accelerator::before(&origin.url()).flag("--cores", cores);
    let running = setup.flag("--bypass-headers", "X-Pass").start();
    let request = Request::get("/").header("X-Pass", "1").header("Range", "bytes=10-19");
    let part = running.fetch(&request).expect_status(206);
    assert_eq!((part.text().as_str(), part.header("content-range")), ("0123456789", Some("bytes 10-19/*")));
}

/// components-web-app/components-web-app#84: a purge by tag does not match a longer tag with the same prefix.
fn a_tag_that_begins_like_another_is_another(cores: &str) {
    let origin = ScriptedOrigin::start();
    for (path, tag) in [("/one", "/_api/_/routes//2026"), ("/two", "/_api/_/routes//2026/2026-programme")] {
        let answer =
            Answer::new(200, path).header("Cache-Control", "max-age=600").header("Surrogate-Key", tag);
        origin.answers(path, answer);
    }
    let running = start(&origin, cores);
    let purge = |tag: &str| {
        running.fetch(&Request::new("PURGE", "/").header("Surrogate-Key", tag)).expect_status(200)
    };
    let warm = || ["/one", "/two"].map(|path| drop(running.get(path).expect_status(200)));
    warm();
    purge("/_api/_/routes//2026");
    assert!(is_hit(&running.get("/two")) && !is_hit(&running.get("/one")));
    warm();
    purge("/_api/_/routes//2026/2026-programme");
    assert!(is_hit(&running.get("/one")) && !is_hit(&running.get("/two")));
}

/// apache/apisix#13523: a purge drops all variants of an address.
fn a_purge_takes_all_variants(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/", |request, reply| {
        let language = request.header("accept-language").unwrap_or("none").to_owned();
        reply.answer(
            &Answer::new(200, language)
                .header("Cache-Control", "max-age=600")
                .header("Vary", "Accept-Language"),
        )
    });
    let running = start(&origin, cores);
    let get = |language: &str| running.fetch(&Request::get("/").header("Accept-Language", language));
    let languages = ["de", "en", "fr"];
    languages.iter().for_each(|language| drop(get(language)));
    assert!(languages.iter().all(|language| is_hit(&get(language))));
    running.fetch(&Request::new("PURGE", "/")).expect_status(200);
    assert!(languages.iter().all(|language| !is_hit(&get(language))));
}

/// apache/trafficserver#9877: a 204 from the store has no Content-Length.
fn a_204_from_the_store_has_no_length(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.sends("/", "HTTP/1.1 204 No Content\r\nCache-Control: max-age=600\r\n\r\n", Next::KeepAlive);
    let running = start(&origin, cores);
    running.get("/").expect_status(204);
    let hit = running.get("/").expect_status(204);
    assert!(
        is_hit(&hit) && hit.header("content-length").is_none() && hit.header("transfer-encoding").is_none()
    );
}

/// apache/trafficserver#9496: If-None-Match with the ETag of an encoded variant is answered with 304.
fn the_tag_of_a_coding_is_answered_304(cores: &str) {
    let origin = ScriptedOrigin::start();
    let page =
        Answer::new(200, "word ".repeat(1000)).header("Content-Type", "text/plain").header("ETag", "\"v1\"");
    origin.answers("/", page.header("Cache-Control", "max-age=600"));
    let running = start(&origin, cores);
    let coded = || running.fetch(&Request::get("/").header("Accept-Encoding", "br")).expect_status(200);
    eventually("it is compressed", || coded().header("etag") == Some("\"v1-br\""));
    let again = Request::get("/").header("Accept-Encoding", "br").header("If-None-Match", "\"v1-br\"");
    assert_eq!(running.fetch(&again).expect_status(304).header("etag"), Some("\"v1-br\""));
    assert_eq!(origin.count("/"), 1);
}

/// cloudflare/pingora#668: the end of a chunked body was sent twice.
fn a_chunked_hit_ends_once(cores: &str) {
    let origin = ScriptedOrigin::start();
    let trailers = [("X-Sum", "1")];
    let answer = |trailers: &[(&str, &str)]| Answer::chunked(200, &[b"he", b"llo"], trailers);
    origin.answers("/plain", answer(&[]).header("Cache-Control", "max-age=600"));
    origin.answers("/trailers", answer(&trailers).header("Cache-Control", "max-age=600"));
    let running = start(&origin, cores);
    for path in ["/plain", "/trailers"] {
        // An extra byte would be read as the beginning of the next answer.
        let mut client = running.connect();
        for _ in 0..5 {
            let te = Request::get(path).header("TE", "trailers").header("Connection", "TE");
            assert_eq!(client.exchange(&te).expect_status(200).text(), "hello");
            assert_eq!(client.get(path).expect_status(200).text(), "hello");
        }
    }
    // nginx-s3-gateway#579: two percent-encodings of one byte are two pages, as `guide/sites.md` says.
    origin.answers("/a%2bb", Answer::new(200, "lower").header("Cache-Control", "max-age=600"));
    origin.answers("/a%2Bb", Answer::new(200, "upper").header("Cache-Control", "max-age=600"));
    for _ in 0..2 {
        assert_eq!(
            (running.get("/a%2bb").text().as_str(), running.get("/a%2Bb").text().as_str()),
            ("lower", "upper")
        );
    }
}

/// caddyserver/caddy#6293: events were held back in the compressor.
fn each_event_of_a_stream_comes_at_once(cores: &str) {
    let origin = ScriptedOrigin::start();
    let gates = Arc::new([Gate::new(), Gate::new(), Gate::new()]);
    let in_script = Arc::clone(&gates);
    origin.on("/events", move |_, reply| {
        reply
            .send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n\r\n")?;
        for (number, gate) in in_script.iter().enumerate() {
            gate.pass();
            reply.send(format!("data: {number}\n\n").as_bytes())?;
        }
        Ok(Next::Close)
    });
    let running = start(&origin, cores);
    let mut client = running.connect();
    client.send(&Request::get("/events").header("Accept-Encoding", "br, gzip").bytes());
    // The head arrives before the first event is sent, and each event before the next.
    let head = client.head("GET");
    assert_eq!((head.status, head.headers.first("content-encoding")), (200, None));
    for (number, gate) in gates.iter().enumerate() {
        gate.open();
        assert_eq!(client.body_exactly(9), format!("data: {number}\n\n").as_bytes());
    }
}

/// varnishcache/varnish-cache#3556: a POST whose client breaks off is broken off at the origin too.
fn a_broken_post_ends_at_the_origin(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/", Answer::new(200, "ok"));
    let running = start(&origin, cores);
    for _ in 0..5 {
        let mut client = running.connect();
        client.send(b"POST /form HTTP/1.1\r\nHost: site.test\r\nContent-Length: 1000\r\n\r\nhalf of it");
        let _ = client.stream().flush();
        drop(client);
        assert_eq!(running.get("/").expect_status(200).text(), "ok");
    }
    // The origin has not accepted half a form as a whole one.
    assert_eq!(origin.count("/form"), 0);
}
