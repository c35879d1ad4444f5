//! Delivery of bodies: as they arrive, complete, framed as HTTP requires, and to every client that waits for
//! the same answer.

use std::{sync::Barrier, thread};

use tests::{
    Accelerator, Answer, Client, End, Gate, Next, Request, ScriptedOrigin,
    content::{content, differs},
    on_one_core, on_one_core_and_on_two,
};

on_one_core! {
    a_body_of_unknown_length_streams_on_arrival,
    bodies_of_every_framing_are_whole_and_stored,
    bodies_around_buffer_sizes_are_delivered_whole,
    a_body_too_large_to_store_is_streamed,
    trailers_pass_in_both_directions,
    forbidden_trailers_are_dropped_in_both_directions,
    bodiless_answers_keep_the_connection_in_step,
    conditional_requests_are_answered_from_the_store,
    a_partial_answer_is_never_stored_as_whole,
    interim_answers_are_passed_on_and_not_stored,
    a25_early_hints_come_before_the_answer,
}

on_one_core_and_on_two! {
    concurrent_misses_share_one_streamed_fetch,
    a_shared_fetch_outlives_a_departed_client,
    head_is_answered_from_what_get_stored,
    a_range_comes_from_the_stored_body,
}

fn start(origin: &ScriptedOrigin, cores: &str) -> Accelerator {
    Accelerator::before(&origin.url()).flag("--cores", cores).start()
}

fn concurrent_misses_share_one_streamed_fetch(cores: &str) {
    let length = 300_000;
    let head = Answer::new(200, content(7, 0, length)).header("Cache-Control", "max-age=600").head_bytes();
    stream_to_many(cores, &head, |piece| piece.to_vec(), b"", length);
}

fn a_body_of_unknown_length_streams_on_arrival(cores: &str) {
    let head = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = |piece: &[u8]| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
    stream_to_many(cores, head, chunk, b"0\r\n\r\n", 300_000);
}

/// The origin sends the first half and holds the second back until every client has read the first half: only
/// a server that passes bytes on as they arrive, and to all clients at once, passes this test.
fn stream_to_many(cores: &str, head: &[u8], frame: fn(&[u8]) -> Vec<u8>, end: &'static [u8], length: usize) {
    const CLIENTS: usize = 8;
    let origin = ScriptedOrigin::start();
    let second_half = Gate::new();
    {
        let (head, gate) = (head.to_vec(), second_half.clone());
        origin.on("/film", move |_, reply| {
            reply.send(&head)?;
            reply.send(&frame(&content(7, 0, length / 2)))?;
            gate.pass();
            reply.send(&frame(&content(7, (length / 2) as u64, length - length / 2)))?;
            reply.send(end)?;
            Ok(Next::KeepAlive)
        });
    }
    let accelerator = start(&origin, cores);
    let all_have_the_first_half = Barrier::new(CLIENTS);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = accelerator.connect();
                client.send(&Request::get("/film").bytes());
                assert_eq!(client.head("GET").status, 200);
                let first = client.body_exactly(length / 2);
                assert_eq!(differs(7, 0, &first), None);
                if all_have_the_first_half.wait().is_leader() {
                    second_half.open();
                }
                let (rest, _, end) = client.rest_of_body();
                assert_eq!((rest.len(), end), (length - length / 2, End::Complete));
                assert_eq!(differs(7, (length / 2) as u64, &rest), None);
            });
        }
    });
    assert_eq!(origin.count("/film"), 1, "one fetch for all");
    let hit = accelerator.get("/film").expect_status(200);
    assert_eq!((hit.body.len(), differs(7, 0, &hit.body)), (length, None));
    assert_eq!(origin.count("/film"), 1, "what arrived while others read it is stored");
}

fn a_shared_fetch_outlives_a_departed_client(cores: &str) {
    let origin = ScriptedOrigin::start();
    let length = 200_000;
    let gate = Gate::new();
    let in_script = gate.clone();
    origin.on("/film", move |_, reply| {
        reply.send(
            &Answer::new(200, content(1, 0, length)).header("Cache-Control", "max-age=600").head_bytes(),
        )?;
        reply.send(&content(1, 0, length / 2))?;
        in_script.pass();
        reply.send(&content(1, (length / 2) as u64, length / 2))?;
        Ok(Next::KeepAlive)
    });
    let accelerator = start(&origin, cores);
    let begin = || {
        let mut client = accelerator.connect();
        client.send(&Request::get("/film").bytes());
        client.head("GET");
        assert_eq!(client.body_exactly(1000).len(), 1000);
        client
    };
    // The first client caused the fetch. When it leaves, the second one must not notice.
    let first = begin();
    let mut second = begin();
    drop(first);
    gate.open();
    let (rest, _, end) = second.rest_of_body();
    assert_eq!((rest.len(), end, differs(1, 1000, &rest)), (length - 1000, End::Complete, None));
    assert_eq!(origin.count("/film"), 1);
}

fn bodies_of_every_framing_are_whole_and_stored(cores: &str) {
    let origin = ScriptedOrigin::start();
    let whole = content(3, 0, 150_000);
    let pieces: Vec<&[u8]> = whole.chunks(7_001).collect();
    let bytes: Vec<&[u8]> = whole[..500].chunks(1).collect();
    let kept = |answer: Answer| answer.header("Cache-Control", "max-age=600");
    origin.answers("/length", kept(Answer::new(200, &whole)));
    origin.answers("/chunked", kept(Answer::chunked(200, &pieces, &[])));
    origin.answers("/byte-by-byte", kept(Answer::chunked(200, &bytes, &[])));
    origin.answers("/empty", kept(Answer::new(200, "")));
    origin.answers("/empty-chunked", kept(Answer::chunked(200, &[], &[])));
    origin.sends("/until-close", kept(Answer::until_close(200, &whole)).bytes("GET"), Next::Close);
    // Chunk extensions, leading zeros and capital digits are all within RFC 9112 §7.1.
    let odd = b"HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nTransfer-Encoding: Chunked\r\n\r\n\
        00000A;name=value;other=\"a;b\"\r\n0123456789\r\n0a\r\nabcdefghij\r\n000;last\r\n\r\n";
    origin.sends("/odd-chunks", odd.as_slice(), Next::KeepAlive);
    let accelerator = start(&origin, cores);
    for (path, body) in [
        ("/length", &whole[..]),
        ("/chunked", &whole),
        ("/byte-by-byte", &whole[..500]),
        ("/empty", b""),
        ("/empty-chunked", b""),
        ("/until-close", &whole),
        ("/odd-chunks", b"0123456789abcdefghij"),
    ] {
        for round in 1..=3 {
            let response = accelerator.get(path).expect_status(200);
            assert!(
                response.body == body,
                "{path}, round {round}: {} bytes of {}",
                response.body.len(),
                body.len()
            );
            assert_eq!(origin.count(path), 1, "{path}, round {round}");
        }
    }
}

fn bodies_around_buffer_sizes_are_delivered_whole(cores: &str) {
    let origin = ScriptedOrigin::start();
    // Sizes around a page, a socket buffer's usual steps, and a segment of 4 MiB, where bodies are cut and
    // joined.
    let borders = [1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22];
    let sizes: Vec<usize> = borders.iter().flat_map(|&border| [border - 1, border, border + 1]).collect();
    for &size in &sizes {
        origin.on(&format!("/{size}"), move |_, reply| {
            reply.answer(
                &Answer::new(200, content(size as u64, 0, size)).header("Cache-Control", "max-age=600"),
            )
        });
    }
    let accelerator =
        Accelerator::before(&origin.url()).flag("--cores", cores).flag("--memory", "128MiB").start();
    let mut client = accelerator.connect();
    for round in 1..=2 {
        for &size in &sizes {
            let response = client.get(&format!("/{size}")).expect_status(200);
            assert_eq!(
                (response.body.len(), differs(size as u64, 0, &response.body)),
                (size, None),
                "round {round}"
            );
            assert_eq!(origin.count(&format!("/{size}")), 1, "round {round}: a body of {size} bytes");
        }
    }
}

fn a_body_too_large_to_store_is_streamed(cores: &str) {
    const LENGTH: u64 = 64 << 20;
    let origin = ScriptedOrigin::start();
    let send = |reply: &mut tests::origin::Reply<'_>, head: &str, frame: fn(&[u8]) -> Vec<u8>| {
        reply.send(head.as_bytes())?;
        for start in (0..LENGTH).step_by(1 << 16) {
            reply.send(&frame(&content(9, start, 1 << 16)))?;
        }
        std::io::Result::Ok(())
    };
    origin.on("/known", move |_, reply| {
        let head =
            format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: {LENGTH}\r\n\r\n");
        send(reply, &head, |piece| piece.to_vec())?;
        Ok(Next::KeepAlive)
    });
    origin.on("/unknown", move |_, reply| {
        let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nTransfer-Encoding: chunked\r\n\r\n";
        send(reply, head, |piece| [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat())?;
        reply.send(b"0\r\n\r\n")?;
        Ok(Next::KeepAlive)
    });
    origin.answers("/small", Answer::new(200, "small").header("Cache-Control", "max-age=600"));
    let accelerator = start(&origin, cores);
    for path in ["/known", "/unknown"] {
        for round in 1..=2 {
            let mut client = accelerator.connect();
            client.send(&Request::get(path).bytes());
            assert_eq!(client.head("GET").status, 200);
            let mut at = 0;
            let end = loop {
                match client.body_piece(1 << 20) {
                    Ok(piece) => {
                        assert_eq!(differs(9, at, &piece), None, "{path}, round {round}");
                        at += piece.len() as u64;
                    }
                    Err((end, _)) => break end,
                }
            };
            assert_eq!((at, end), (LENGTH, End::Complete), "{path}, round {round}");
            assert_eq!(origin.count(path), round, "{path} cannot be in a store of its own size");
        }
    }
    accelerator.get("/small").expect_status(200);
    accelerator.get("/small").expect_status(200);
    assert_eq!(origin.count("/small"), 1, "and the store works as before");
}

fn trailers_pass_in_both_directions(cores: &str) {
    let origin = ScriptedOrigin::start();
    let trailers = [("X-Checksum", "abc123"), ("X-Rows", "2")];
    let answer =
        Answer::chunked(200, &[b"first ", b"second"], &trailers).header("Trailer", "X-Checksum, X-Rows");
    origin.answers("/kept", answer.clone().header("Cache-Control", "max-age=600"));
    origin.answers("/passed", answer.header("Cache-Control", "no-store"));
    origin.answers("/upload", Answer::new(200, "thanks"));
    let accelerator = start(&origin, cores);
    for path in ["/kept", "/kept", "/passed"] {
        // RFC 9110 §6.5.1: trailers are sent to a client that says `TE: trailers`.
        let request = Request::get(path).header("TE", "trailers").header("Connection", "TE");
        let response = accelerator.fetch(&request).expect_status(200);
        assert_eq!(response.text(), "first second", "{path}");
        assert_eq!(
            response.trailers.first("x-checksum"),
            Some("abc123"),
            "{path}: {}",
            response.text_of_head()
        );
        assert_eq!(response.trailers.first("x-rows"), Some("2"), "{path}");
    }
    let mut client = accelerator.connect();
    client.send(
        b"POST /upload HTTP/1.1\r\nHost: site.test\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
          5\r\nhello\r\n0\r\nX-Sum: 5\r\n\r\n",
    );
    client.response("POST").expect_status(200);
    let seen = &origin.seen("/upload")[0];
    assert_eq!((seen.body.as_slice(), seen.trailers.first("x-sum")), (&b"hello"[..], Some("5")));
}

/// RFC 9110 §6.5.1: fields for framing, routing, authentication, request modifiers, answer control and
/// content format must be known before the content, so they may not be trailers. Fields that `Connection`
/// names are for one hop (§7.6.1). None of them is passed on or stored.
fn forbidden_trailers_are_dropped_in_both_directions(cores: &str) {
    const FORBIDDEN: [&str; 24] = [
        "Set-Cookie",
        "Cookie",
        "Host",
        "Authorization",
        "WWW-Authenticate",
        "Proxy-Authorization",
        "content-length",
        "Transfer-Encoding",
        "Content-Encoding",
        "Content-Type",
        "Content-Range",
        "Content-Security-Policy",
        "Trailer",
        "TE",
        "Connection",
        "Cache-Control",
        "Expires",
        "Vary",
        "Location",
        "Range",
        "If-Match",
        "X-Forwarded-For",
        "Forwarded",
        "X-Hop",
    ];
    let origin = ScriptedOrigin::start();
    let mut trailers: Vec<(&str, &str)> = FORBIDDEN.iter().map(|&name| (name, "1")).collect();
    trailers.insert(0, ("X-Sum", "first"));
    trailers.push(("Server-Timing", "db;dur=53"));
    let answer = Answer::chunked(200, &[b"first ", b"second"], &trailers).header("Connection", "x-hop");
    origin.answers("/kept", answer.clone().header("Cache-Control", "max-age=600"));
    origin.answers("/passed", answer.header("Cache-Control", "no-store"));
    // All trailers of this answer are dropped, so its body needs no chunks.
    let only =
        Answer::chunked(200, &[b"body"], &[("Set-Cookie", "a=b")]).header("Cache-Control", "max-age=600");
    origin.answers("/only", only);
    origin.answers("/upload", Answer::new(200, "thanks"));
    let accelerator = start(&origin, cores);
    let names = |headers: &tests::Headers| -> Vec<String> {
        headers.0.iter().map(|(name, _)| name.to_ascii_lowercase()).collect()
    };
    for path in ["/kept", "/kept", "/passed"] {
        let response = accelerator.get(path).expect_status(200);
        assert_eq!(names(&response.trailers), ["x-sum", "server-timing"], "{path}: {:?}", response.trailers);
        assert_eq!(response.text(), "first second");
        assert_eq!(response.header("set-cookie"), None, "{}", response.text_of_head());
    }
    assert_eq!(origin.count("/kept"), 1);
    for _ in 0..2 {
        assert_eq!(names(&accelerator.get("/only").expect_status(200).trailers), [""; 0]);
    }
    assert_eq!(accelerator.get("/only").header("content-length"), Some("4"));

    let mut upload = b"POST /upload HTTP/1.1\r\nHost: site.test\r\nConnection: x-hop\r\nTransfer-Encoding: chunked\r\n\r\n\
        5\r\nhello\r\n0\r\n"
        .to_vec();
    for (name, value) in &trailers {
        upload.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    upload.extend_from_slice(b"\r\n");
    let mut client = accelerator.connect();
    client.send(&upload);
    client.response("POST").expect_status(200);
    let seen = &origin.seen("/upload")[0];
    assert_eq!(
        (seen.body.as_slice(), names(&seen.trailers)),
        (
            &b"hello"[..],
            names(&tests::Headers(vec![
                ("x-sum".into(), String::new()),
                ("server-timing".into(), String::new()),
            ]))
        )
    );
    // Dropped once from the stored answer, once from the passed one, once from the upload; and one for the
    // answer with only a forbidden trailer.
    assert_eq!(accelerator.stat().count("errors.trailers_dropped"), 3 * FORBIDDEN.len() as u64 + 1);
}

fn head_is_answered_from_what_get_stored(cores: &str) {
    let origin = ScriptedOrigin::start();
    let answer = Answer::new(200, "a page").header("Cache-Control", "max-age=600").header("ETag", "\"1\"");
    origin.answers("/page", answer.header("Content-Type", "text/plain").header("X-Of-The-Origin", "kept"));
    let accelerator = start(&origin, cores);
    let get = accelerator.get("/page").expect_status(200);
    let mut client = accelerator.connect();
    let head = client.exchange(&Request::new("HEAD", "/page")).expect_status(200);
    assert!(head.body.is_empty());
    for name in ["content-length", "content-type", "etag", "x-of-the-origin", "cache-control", "date"] {
        assert_eq!(head.header(name), get.header(name), "{name}");
    }
    assert_eq!(origin.count("/page"), 1, "HEAD needs no fetch when GET's answer is stored");
    assert_eq!(
        client.get("/page").expect_status(200).text(),
        "a page",
        "no byte of a body followed the HEAD"
    );

    // The reverse: a HEAD that comes first must not store an answer without a body for the GET.
    origin.answers("/other", Answer::new(200, "another page").header("Cache-Control", "max-age=600"));
    let head = client.exchange(&Request::new("HEAD", "/other")).expect_status(200);
    assert_eq!((head.header("content-length"), head.body.len()), (Some("12"), 0));
    assert_eq!(client.get("/other").expect_status(200).text(), "another page");
}

fn bodiless_answers_keep_the_connection_in_step(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/204", Answer::new(204, "").header("Cache-Control", "max-age=600"));
    origin.on("/not-modified", |request, reply| {
        let known = request.header("if-none-match") == Some("\"x\"");
        let answer = if known { Answer::new(304, "") } else { Answer::new(200, "a long body") };
        reply.answer(&answer.header("ETag", "\"x\"").header("Cache-Control", "no-cache"))
    });
    origin.answers("/page", Answer::new(200, "in step").header("Cache-Control", "no-store"));
    let accelerator = start(&origin, cores);
    let mut client = accelerator.connect();
    for _ in 0..2 {
        let nothing = client.get("/204").expect_status(204);
        assert_eq!(nothing.header("content-length"), None, "RFC 9110 §8.6: never with 204");
        assert_eq!(client.get("/page").expect_status(200).text(), "in step");
        client.exchange(&Request::get("/not-modified").header("If-None-Match", "\"x\"")).expect_status(304);
        assert_eq!(client.get("/page").expect_status(200).text(), "in step");
        client.exchange(&Request::new("HEAD", "/page")).expect_status(200);
        assert_eq!(client.get("/page").expect_status(200).text(), "in step");
    }
}

fn conditional_requests_are_answered_from_the_store(cores: &str) {
    let origin = ScriptedOrigin::start();
    let modified = "Sun, 06 Nov 1994 08:49:37 GMT";
    let answer = Answer::new(200, "a page").header("Cache-Control", "max-age=600");
    let answer = answer.header("ETag", "\"v1\"").header("Last-Modified", modified).header("Vary", "Accept");
    origin.answers("/page", answer.header("Content-Location", "/page.html"));
    let accelerator = start(&origin, cores);
    accelerator.get("/page").expect_status(200);
    let mut client = accelerator.connect();
    let earlier = "Sun, 06 Nov 1994 08:49:36 GMT";
    let later = "Mon, 07 Nov 1994 08:49:37 GMT";
    for (fields, status) in [
        (&[("If-None-Match", "\"v1\"")][..], 304),
        // Weak comparison (RFC 9110 §13.1.2).
        (&[("If-None-Match", "W/\"v1\"")], 304),
        (&[("If-None-Match", "\"a,comma\", \"v0\", \"v1\"")], 304),
        (&[("If-None-Match", "\"v0\""), ("If-None-Match", "\"v1\"")], 304),
        (&[("If-None-Match", "*")], 304),
        (&[("If-None-Match", "\"v2\"")], 200),
        (&[("If-None-Match", "\"v\"")], 200),
        (&[("If-Modified-Since", modified)], 304),
        (&[("If-Modified-Since", later)], 304),
        (&[("If-Modified-Since", earlier)], 200),
        (&[("If-Modified-Since", "not a date")], 200),
        // If-None-Match takes precedence when both fields are there (RFC 9110 §13.1.3).
        (&[("If-None-Match", "\"v2\""), ("If-Modified-Since", later)], 200),
        (&[("If-None-Match", "\"v1\""), ("If-Modified-Since", earlier)], 304),
        // The other two obsolete forms of a date (RFC 9110 §5.6.7).
        (&[("If-Modified-Since", "Sunday, 06-Nov-94 08:49:37 GMT")], 304),
        (&[("If-Modified-Since", "Sun Nov  6 08:49:37 1994")], 304),
    ] {
        for method in ["GET", "HEAD"] {
            let request =
                fields.iter().fold(Request::new(method, "/page"), |r, (name, value)| r.header(name, value));
            let response = client.exchange(&request).whole();
            assert_eq!(response.status(), status, "{method} {fields:?}");
            if status == 304 {
                // RFC 9110 §15.4.5: a 304 carries the fields of the 200 that a client's cache needs.
                assert!(response.body.is_empty());
                for (name, value) in [
                    ("etag", "\"v1\""),
                    ("vary", "Accept"),
                    ("cache-control", "max-age=600"),
                    ("content-location", "/page.html"),
                ] {
                    assert_eq!(response.header(name), Some(value), "{name} in the 304 to {fields:?}");
                }
                assert!(response.header("date").is_some());
            } else if method == "GET" {
                assert_eq!(response.text(), "a page", "{fields:?}");
            }
        }
    }
    assert_eq!(origin.count("/page"), 1, "all of them from the store");
}

fn a_range_comes_from_the_stored_body(cores: &str) {
    let origin = ScriptedOrigin::start();
    let body = content(5, 0, 10_000);
    let answer = Answer::new(200, &body).header("Cache-Control", "max-age=600").header("ETag", "\"v1\"");
    origin.answers("/file", answer);
    let accelerator = start(&origin, cores);
    accelerator.get("/file").expect_status(200);
    for (range, first, last) in [
        ("bytes=0-99", 0, 99),
        ("bytes=9000-", 9000, 9999),
        ("bytes=-1", 9999, 9999),
        ("bytes=5-20000", 5, 9999),
    ] {
        let response = accelerator.fetch(&Request::get("/file").header("Range", range)).whole();
        // RFC 9110 §14.2: a server may ignore Range, but may not answer with anything else.
        match response.status() {
            206 => {
                assert_eq!(
                    response.header("content-range"),
                    Some(&*format!("bytes {first}-{last}/10000")),
                    "{range}"
                );
                assert!(response.body == body[first..=last], "{range}: {} bytes", response.body.len());
            }
            200 => assert!(response.body == body, "{range}: {} bytes", response.body.len()),
            other => panic!("{range} gives {other}: {}", response.text_of_head()),
        }
    }
    assert_eq!(origin.count("/file"), 1);
    // A range beyond the end: the client learns the length (RFC 9110 §15.5.17), from the store and on a miss
    // alike.
    origin.answers("/missed", Answer::new(200, "0123456789").header("Cache-Control", "max-age=600"));
    for (path, complete) in [("/file", "bytes */10000"), ("/missed", "bytes */10"), ("/missed", "bytes */10")]
    {
        let request = Request::get(path).header("Range", "bytes=10000-").accepting_json();
        let response = accelerator.fetch(&request).expect_fault(416, "client", "range-not-satisfiable");
        assert_eq!(response.header("content-range"), Some(complete), "{path}");
    }
    assert_eq!(accelerator.get("/missed").expect_status(200).text(), "0123456789");
    assert_eq!(origin.count("/missed"), 1);
}

fn a_partial_answer_is_never_stored_as_whole(cores: &str) {
    let origin = ScriptedOrigin::start();
    let body = content(6, 0, 10_000);
    let whole = body.clone();
    // An origin that supports ranges, as nginx does.
    origin.on("/file", move |request, reply| {
        let answer = match request.header("range") {
            Some("bytes=100-199") => {
                Answer::new(206, &whole[100..200]).header("Content-Range", "bytes 100-199/10000")
            }
            _ => Answer::new(200, &whole),
        };
        reply.answer(&answer.header("Cache-Control", "max-age=600").header("ETag", "\"v1\""))
    });
    let accelerator = start(&origin, cores);
    let part = accelerator.fetch(&Request::get("/file").header("Range", "bytes=100-199")).whole();
    match part.status() {
        206 => {
            assert_eq!(part.header("content-range"), Some("bytes 100-199/10000"));
            assert!(part.body == body[100..200]);
        }
        200 => assert!(part.body == body),
        other => panic!("{other}: {}", part.text_of_head()),
    }
    for _ in 0..2 {
        assert!(accelerator.get("/file").expect_status(200).body == body);
    }
}

fn interim_answers_are_passed_on_and_not_stored(cores: &str) {
    let origin = ScriptedOrigin::start();
    let last = Answer::new(200, "final").header("Cache-Control", "max-age=600");
    let interim = b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n";
    let bytes = [&interim[..], b"HTTP/1.1 102 Processing\r\n\r\n", interim, &last.bytes("GET")].concat();
    origin.sends("/page", bytes, Next::KeepAlive);
    let accelerator = start(&origin, cores);
    for told in [&[103, 102, 103][..], &[]] {
        let response = accelerator.get("/page").expect_status(200);
        assert_eq!(response.text(), "final");
        assert_eq!(response.header("link"), None, "an interim answer's fields are not the final one's");
        let interim: Vec<u16> = response.interim.iter().map(|interim| interim.status).collect();
        assert_eq!(interim, told, "they are passed on, and not stored");
    }
    assert_eq!(origin.count("/page"), 1);
    // Interim answers must not be sent to an HTTP/1.0 client (RFC 9110 §15.2).
    let mut old = Client::connect(accelerator.address());
    origin.sends("/again", [&interim[..], &last.bytes("GET")].concat(), Next::KeepAlive);
    old.send(b"GET /again HTTP/1.0\r\nHost: site.test\r\n\r\n");
    let response = old.response("GET").expect_status(200);
    assert!(response.interim.is_empty());
}

/// Early hints reach the client before the origin has answered (RFC 8297), whether the answer is stored or
/// passed. Hop-by-hop fields are removed, and the total is bounded.
fn a25_early_hints_come_before_the_answer(cores: &str) {
    let origin = ScriptedOrigin::start();
    let accelerator = start(&origin, cores);
    for (path, method, cache_control) in
        [("/stored", "GET", "max-age=600"), ("/passed", "GET", "no-store"), ("/posted", "POST", "no-store")]
    {
        let gate = Gate::new();
        let in_script = gate.clone();
        origin.on(path, move |_, reply| {
            reply.send(
                b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n",
            )?;
            in_script.pass();
            reply.answer(&Answer::new(200, "page").header("Cache-Control", cache_control))
        });
        let mut client = accelerator.connect();
        client.send(&Request::new(method, path).body(if method == "POST" { b"x" } else { b"" }).bytes());
        let hints = client.head(method);
        assert_eq!((hints.status, hints.headers.joined("link").as_str()), (103, "</style.css>; rel=preload"));
        assert_eq!(hints.headers.0.len(), 1, "{:?}", hints.headers);
        gate.open();
        let page = client.response(method).expect_status(200);
        assert!(page.interim.is_empty() && page.text() == "page" && page.header("link").is_none());
        assert!(client.get(path).interim.is_empty() == (path == "/stored"));
    }
    // An origin that sends hints without an end.
    let hint = format!("HTTP/1.1 103 Early Hints\r\nX: {}\r\n\r\n", "x".repeat(4000));
    let last = String::from_utf8(Answer::new(200, "at last").bytes("GET")).expect("text");
    origin.sends("/endless", [hint.repeat(40), last].concat(), Next::KeepAlive);
    let response = accelerator.get("/endless").expect_status(200);
    assert!((1..=4).contains(&response.interim.len()), "{}", response.interim.len());
}
