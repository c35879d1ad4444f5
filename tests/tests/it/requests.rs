//! Requests of every kind, and their connections.

use tests::{
    Accelerator, Answer, End, Gate, Next, Request, ScriptedOrigin, content::content, on_one_core,
    on_one_core_and_on_two,
};

on_one_core! {
    bodies_of_requests_reach_the_origin_whole,
    an_origin_may_answer_before_reading_the_body,
    an_interim_answer_does_not_end_an_upload,
    a_client_that_expects_100_continue_gets_it,
    purge_is_for_listed_networks_and_nobody_else,
    an_unread_body_is_not_the_next_request,
    clients_of_http_1_0_are_served,
    the_client_decides_whether_a_connection_is_kept,
    pipelined_requests_are_answered_in_their_order,
    absolute_targets_name_the_host,
    what_only_the_store_may_answer,
    options_go_as_far_as_they_may,
}

on_one_core_and_on_two! {
    an_unsafe_request_invalidates_the_stored_answer,
    purge_forgets_one_address_and_no_other,
    a_purge_covers_fetches_under_way,
}

fn start(origin: &ScriptedOrigin, cores: &str) -> Accelerator {
    Accelerator::before(&origin.url()).flag("--cores", cores).flag("--purge-from", "127.0.0.1").start()
}

fn bodies_of_requests_reach_the_origin_whole(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/form", |request, reply| {
        let text = format!("{} {}", request.method, request.body.len());
        reply.answer(&Answer::new(200, text).header("Cache-Control", "max-age=600"))
    });
    let accelerator = start(&origin, cores);
    let mut client = accelerator.connect();
    let mut sent = 0;
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        for size in [0, 1, 100, 16_384, 1_000_000] {
            let body = content(size as u64, 0, size);
            let pieces: Vec<&[u8]> = body.chunks(10_007).collect();
            for request in
                [Request::new(method, "/form").body(&body), Request::new(method, "/form").chunked(&pieces)]
            {
                let response = client.exchange(&request).expect_status(200);
                assert_eq!(response.text(), format!("{method} {size}"));
                let seen = origin.seen("/form").pop().expect("it was asked");
                assert!(seen.body == body, "{method} of {size} bytes");
                sent += 1;
                assert_eq!(origin.count("/form"), sent, "every {method} goes to the origin");
            }
        }
    }
    // An answer to POST is not an answer to GET.
    assert_eq!(accelerator.get("/form").expect_status(200).text(), "GET 0");
}

fn an_origin_may_answer_before_reading_the_body(cores: &str) {
    // The scripted origin reads bodies before its scripts run, so this origin is written by hand.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let hasty = Accelerator::before(&format!("http://{}", listener.local_addr().expect("bound")))
        .flag("--cores", cores)
        .start();
    let origin_thread = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut head = Vec::new();
        while !head.windows(4).any(|window| window == b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a head");
            head.extend_from_slice(&byte);
        }
        let answer = Answer::new(403, "not from you").header("Connection", "close").bytes("POST");
        stream.write_all(&answer).expect("an answer");
        // Reads the rest, as a server with an orderly close does: a reset would destroy the answer.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    let mut client = hasty.connect();
    client.send(b"POST /upload HTTP/1.1\r\nHost: site.test\r\nContent-Length: 50000000\r\n\r\n");
    client.send(&content(1, 0, 10_000));
    let response = client.response("POST").expect_status(403);
    assert_eq!(response.text(), "not from you");
    // The start of the next request is unknown, so the connection closes (RFC 9112 §9.3).
    assert_eq!(response.header("connection"), Some("close"));
    // Bytes that the client goes on sending must not destroy the answer, which it has not read yet.
    client.send(&content(1, 10_000, 100_000));
    drop(client);
    drop(hasty);
    origin_thread.join().expect("the origin saw an end");
}

fn an_interim_answer_does_not_end_an_upload(cores: &str) {
    let length = 5_000_000;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let patient = Accelerator::before(&format!("http://{}", listener.local_addr().expect("bound")))
        .flag("--cores", cores)
        .start();
    let origin_thread = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut received = Vec::new();
        let mut said = 0;
        let head_length = |received: &[u8]| received.windows(4).position(|window| window == b"\r\n\r\n");
        let mut buffer = vec![0; 1 << 20];
        while head_length(&received[..received.len().min(4096)])
            .is_none_or(|at| received.len() < at + 4 + length)
        {
            let read = stream.read(&mut buffer).expect("more of it");
            assert!(read > 0, "the upload ended after {} bytes", received.len());
            received.extend_from_slice(&buffer[..read]);
            // Interim answers during the upload, each in two pieces, so that half of one arrives alone.
            if said < 3 {
                stream.write_all(b"HTTP/1.1 102 Proc").expect("half an interim answer");
                stream.write_all(b"essing\r\n\r\n").expect("the other half");
                said += 1;
            }
        }
        stream.write_all(&Answer::new(200, "all of it").bytes("POST")).expect("an answer");
    });
    let body = content(1, 0, length);
    let response = patient.fetch(&Request::new("POST", "/upload").body(&body)).expect_status(200);
    assert_eq!(response.text(), "all of it");
    origin_thread.join().expect("the origin got all of it");
}

fn a_client_that_expects_100_continue_gets_it(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/upload", |request, reply| reply.answer(&Answer::new(200, &request.body)));
    let accelerator = start(&origin, cores);
    let mut client = accelerator.connect();
    for (framing, body) in
        [("Content-Length: 5", "hello"), ("Transfer-Encoding: chunked", "5\r\nhello\r\n0\r\n\r\n")]
    {
        // A client that waits: no byte of the body is sent before 100 has arrived.
        let head =
            format!("POST /upload HTTP/1.1\r\nHost: site.test\r\nExpect: 100-continue\r\n{framing}\r\n\r\n");
        client.send(head.as_bytes());
        let interim = client.head("POST");
        assert_eq!(interim.status, 100);
        client.send(body.as_bytes());
        assert_eq!(client.response("POST").expect_status(200).text(), "hello");
        // A client that does not wait.
        client.send(&[head.as_bytes(), body.as_bytes()].concat());
        assert_eq!(client.response("POST").expect_status(200).text(), "hello");
    }
    // An unknown expectation (RFC 9110 §10.1.1).
    client
        .send(b"POST /upload HTTP/1.1\r\nHost: site.test\r\nExpect: a-miracle\r\nContent-Length: 0\r\n\r\n");
    let status = client.response("POST").whole().status();
    assert!(status == 417 || status == 200, "{status}");
}

fn an_unsafe_request_invalidates_the_stored_answer(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/thing", |request, reply| {
        let status = if request.header("x-fail").is_some() { 500 } else { 200 };
        reply.answer(&Answer::new(status, "x").header("Cache-Control", "max-age=600"))
    });
    let accelerator = start(&origin, cores);
    let gets = || origin.seen("/thing").iter().filter(|request| request.method == "GET").count();
    accelerator.get("/thing").expect_status(200);
    let mut fetched = 1;
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        accelerator.get("/thing").expect_status(200);
        assert_eq!(gets(), fetched, "stored before {method}");
        // RFC 9111 §4.4: a stored answer is invalidated only if the request succeeded.
        accelerator
            .fetch(&Request::new(method, "/thing").header("X-Fail", "1").body(b"x"))
            .expect_status(500);
        accelerator.get("/thing").expect_status(200);
        assert_eq!(gets(), fetched, "a {method} that failed changes nothing");
        accelerator.fetch(&Request::new(method, "/thing").body(b"x")).expect_status(200);
        accelerator.get("/thing").expect_status(200);
        fetched += 1;
        assert_eq!(gets(), fetched, "{method} makes what was stored invalid");
    }
    accelerator.fetch(&Request::new("OPTIONS", "/thing")).expect_status(200);
    accelerator.get("/thing").expect_status(200);
    assert_eq!(gets(), fetched, "a safe method makes nothing invalid");
}

fn purge_forgets_one_address_and_no_other(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/page", |request, reply| {
        let answer = Answer::new(200, &request.target).header("Cache-Control", "max-age=600");
        reply.answer(&answer.header("Vary", "Accept-Language"))
    });
    let accelerator = start(&origin, cores);
    let fetches =
        |target: &str| origin.seen("/page").iter().filter(|request| request.target == target).count();
    let get_all = || {
        for language in ["en", "de"] {
            for target in ["/page", "/page?other"] {
                accelerator
                    .fetch(&Request::get(target).header("Accept-Language", language))
                    .expect_status(200);
            }
        }
    };
    get_all();
    get_all();
    assert_eq!((fetches("/page"), fetches("/page?other")), (2, 2));

    accelerator.fetch(&Request::new("PURGE", "/page")).expect_status(200);
    get_all();
    assert_eq!((fetches("/page"), fetches("/page?other")), (4, 2), "every variant of it, and nothing else");

    let output = accelerator.ask(&["purge", "http://site.test/page"]);
    assert!(output.status.success(), "{output:?}");
    get_all();
    assert_eq!((fetches("/page"), fetches("/page?other")), (6, 2));
    assert_eq!(accelerator.stat().count("requests.purges"), 2, "by whichever door they came");

    // A purge for another host, or for an address never seen, drops nothing.
    let response = accelerator.fetch(&Request::new("PURGE", "/page").header("Host", "other.test")).whole();
    assert!(response.status() < 500, "{}", response.text_of_head());
    get_all();
    assert_eq!((fetches("/page"), fetches("/page?other")), (6, 2));
    assert!(
        origin.all_seen().iter().all(|request| request.method != "PURGE"),
        "a purge is ours, not the origin's"
    );
}

fn purge_is_for_listed_networks_and_nobody_else(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/page", Answer::new(200, "x").header("Cache-Control", "max-age=600"));
    // Behind a proxy on this machine every client comes from loopback, so by default loopback may not purge
    // either.
    for (listed, may) in [
        (None, false),
        (Some("192.0.2.1"), false),
        (Some("192.0.2.0/24,2001:db8::/32"), false),
        (Some("192.0.2.1,127.0.0.1"), true),
        (Some("127.0.0.0/8"), true),
    ] {
        let setup = Accelerator::before(&origin.url()).flag("--cores", cores);
        let setup = if let Some(listed) = listed { setup.flag("--purge-from", listed) } else { setup };
        let accelerator = setup.start();
        let asked = origin.count("/page");
        accelerator.get("/page").expect_status(200);
        let purge = Request::new("PURGE", "/page").accepting_json();
        if may {
            accelerator.fetch(&purge).expect_status(200);
        } else {
            accelerator.fetch(&purge).expect_fault(403, "client", "purge-forbidden");
        }
        accelerator.get("/page").expect_status(200);
        assert_eq!(origin.count("/page"), asked + 1 + usize::from(may), "{listed:?}");
        // The admin interface may purge, whatever `purge-from` lists.
        assert!(accelerator.ask(&["purge", "http://site.test/page"]).status.success());
        accelerator.get("/page").expect_status(200);
        assert_eq!(origin.count("/page"), asked + 2 + usize::from(may), "{listed:?}");
    }
}

/// The body of a request is never taken for another request, whichever part of the accelerator answers.
fn an_unread_body_is_not_the_next_request(cores: &str) {
    let origin = ScriptedOrigin::start();
    let page = Answer::new(200, content(1, 0, 100_000))
        .header("Cache-Control", "max-age=600")
        .header("ETag", "\"1\"");
    origin.answers("/page", page);
    origin.answers("/private", Answer::new(200, "mine").header("Cache-Control", "no-store"));
    origin.sends("/broken", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", Next::Close);
    let accelerators = [
        Accelerator::before(&origin.url()).flag("--cores", cores).start(),
        Accelerator::before(&origin.url()).flag("--cores", cores).flag("--purge-from", "127.0.0.1").start(),
    ];
    let smuggled = b"GET /smuggled HTTP/1.1\r\nHost: site.test\r\n\r\n";
    for accelerator in &accelerators {
        accelerator.get("/page").expect_status(200);
        for request in [
            Request::new("PURGE", "/page"),
            Request::new("PURGE", "/nothing"),
            Request::get("/page"),
            Request::new("HEAD", "/page"),
            Request::get("/page").header("If-None-Match", "\"1\""),
            Request::get("/page").header("Range", "bytes=0-9"),
            Request::get("/page").header("Range", "bytes=100000-"),
            Request::get("/page").header("Cache-Control", "only-if-cached"),
            Request::get("/missed"),
            Request::get("/private"),
            Request::get("/broken"),
            Request::new("TRACE", "/page"),
            Request::new("POST", "/private"),
            Request::new("POST", "/broken"),
            Request::new("OPTIONS", "*"),
        ] {
            let chunked = request.clone().chunked(&[smuggled]);
            for request in [request.body(smuggled), chunked] {
                let mut client = accelerator.connect();
                client.send(&request.bytes());
                client.finish_sending();
                client.response(request.method()).whole();
                assert_eq!(client.try_response("GET").map(|second| second.status()), None, "{request:?}");
                assert_eq!(origin.count("/smuggled"), 0, "{request:?}");
            }
        }
    }
}

/// An answer that is being fetched when its address is purged is older than the purge: it is not stored, with
/// or without variants, no later request gets it, and requests that waited for it are fetched again.
fn a_purge_covers_fetches_under_way(cores: &str) {
    let origin = ScriptedOrigin::start();
    let gates: Vec<Gate> = (0..6).map(|_| Gate::new()).collect();
    for (path, vary, first) in [("/plain", "", 0), ("/varies", "Accept-Language", 2), ("/head-sent", "", 4)] {
        let (before_head, before_body) = (gates[first].clone(), gates[first + 1].clone());
        let asked = std::sync::atomic::AtomicUsize::new(0);
        origin.on(path, move |_, reply| {
            let number = asked.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
            let mut answer =
                Answer::new(200, format!("version {number}")).header("Cache-Control", "max-age=600");
            if !vary.is_empty() {
                answer = answer.header("Vary", vary);
            }
            // The first answers wait; answers to requests after the purge are sent at once.
            if number == 0 {
                before_head.pass();
            }
            reply.send(&answer.head_bytes())?;
            if number == 0 {
                before_body.pass();
            }
            reply.send(format!("version {number}").as_bytes())?;
            Ok(Next::KeepAlive)
        });
    }
    let accelerator = start(&origin, cores);
    for (path, first, head_first) in [("/plain", 0, false), ("/varies", 2, false), ("/head-sent", 4, true)] {
        let request = Request::get(path).header("Accept-Language", "en");
        let mut early = accelerator.connect();
        early.send(&request.bytes());
        tests::eventually("the origin is asked", || origin.count(path) == 1);
        if head_first {
            gates[first].open();
            assert_eq!(early.head("GET").status, 200);
        }
        let joined = accelerator.stat().count("requests.misses_collapsed");
        let mut waiting = accelerator.connect();
        waiting.send(&request.bytes());
        tests::eventually("another waits for it", || {
            accelerator.stat().count("requests.misses_collapsed") > joined
        });
        accelerator.fetch(&Request::new("PURGE", path)).expect_status(200);
        // The old fetch is still under way, and no new request joins it.
        assert_eq!(accelerator.fetch(&request).expect_status(200).text(), "version 1", "{path}");
        gates[first].open();
        gates[first + 1].open();
        if head_first {
            assert_eq!(early.rest_of_body().0, b"version 0");
            assert_eq!(
                waiting.response("GET").expect_status(200).text(),
                "version 0",
                "it had joined before"
            );
        } else {
            assert_eq!(early.response("GET").expect_status(200).text(), "version 0", "it had asked before");
            assert_eq!(waiting.response("GET").expect_status(200).text(), "version 1", "{path}");
        }
        // The old fetch's answer is not stored, whichever way it ended.
        for _ in 0..3 {
            assert_eq!(accelerator.fetch(&request).expect_status(200).text(), "version 1", "{path}");
        }
        assert_eq!(origin.count(path), 2, "{path}");
    }
}

fn clients_of_http_1_0_are_served(cores: &str) {
    let origin = ScriptedOrigin::start();
    let body = content(1, 0, 100_000);
    let pieces: Vec<&[u8]> = body.chunks(9_999).collect();
    origin.answers("/length", Answer::new(200, &body).header("Cache-Control", "max-age=600"));
    origin.answers("/chunked", Answer::chunked(200, &pieces, &[]).header("Cache-Control", "max-age=600"));
    origin.answers("/passed", Answer::chunked(200, &pieces, &[]).header("Cache-Control", "no-store"));
    let accelerator = start(&origin, cores);
    for path in ["/length", "/length", "/chunked", "/chunked", "/passed"] {
        // HTTP/1.0 clients may send no Host.
        for host in ["", "Host: site.test\r\n"] {
            let mut client = accelerator.connect();
            client.send(format!("GET {path} HTTP/1.0\r\n{host}\r\n").as_bytes());
            let response = client.response("GET").expect_status(200);
            assert!(response.body == body, "{path}: {} bytes", response.body.len());
            assert_eq!(response.header("transfer-encoding"), None, "unknown to HTTP/1.0 (RFC 9112 §6.1)");
            assert_eq!(client.until_closed(), (End::Closed, Vec::new()), "{path}");
        }
    }
    let mut client = accelerator.connect();
    for _ in 0..3 {
        client.send(b"GET /length HTTP/1.0\r\nHost: site.test\r\nConnection: keep-alive\r\n\r\n");
        let response = client.response("GET").expect_status(200);
        assert!(response.body == body);
        let kept =
            response.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("keep-alive"));
        if !kept {
            // A server need not keep the connection; but it must not say `keep-alive` and then close, nor the
            // reverse.
            assert_eq!(client.until_closed(), (End::Closed, Vec::new()));
            return;
        }
    }
}

fn the_client_decides_whether_a_connection_is_kept(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/kept", Answer::new(200, "kept").header("Cache-Control", "max-age=600"));
    origin.answers("/passed", Answer::new(200, "passed").header("Cache-Control", "no-store"));
    origin.sends(
        "/closing",
        Answer::new(200, "closing").header("Connection", "close").bytes("GET"),
        Next::Close,
    );
    let accelerator = start(&origin, cores);
    let mut client = accelerator.connect();
    for _ in 0..100 {
        assert_eq!(client.get("/kept").expect_status(200).text(), "kept");
        assert_eq!(client.get("/passed").expect_status(200).text(), "passed");
        assert_eq!(
            client.get("/closing").expect_status(200).text(),
            "closing",
            "the origin's close is not ours"
        );
    }
    for path in ["/kept", "/passed", "/closing"] {
        let mut client = accelerator.connect();
        let response = client.exchange(&Request::get(path).header("Connection", "close")).expect_status(200);
        assert_eq!(response.header("connection"), Some("close"), "{path}");
        assert_eq!(client.until_closed(), (End::Closed, Vec::new()), "{path}");
    }
    // A client that has closed its sending side (FIN) still gets its answer.
    for path in ["/kept", "/passed"] {
        let mut client = accelerator.connect();
        client.send(&Request::get(path).bytes());
        client.finish_sending();
        assert_eq!(client.response("GET").expect_status(200).text(), path[1..]);
        assert_eq!(client.until_closed(), (End::Closed, Vec::new()));
    }
    // Old clients send empty lines before a request (RFC 9112 §2.2).
    let mut client = accelerator.connect();
    for _ in 0..2 {
        client.send(b"\r\n");
        assert_eq!(client.get("/kept").expect_status(200).text(), "kept");
    }
    assert_eq!(accelerator.stat().count("requests.origin_connects"), origin.connections());
    assert!(origin.connections() < 150, "connections to the origin are kept too: {}", origin.connections());
}

fn pipelined_requests_are_answered_in_their_order(cores: &str) {
    let origin = ScriptedOrigin::start();
    let gate = Gate::new();
    let in_script = gate.clone();
    origin.on("/slow", move |_, reply| {
        in_script.pass();
        reply.answer(&Answer::new(200, "/slow").header("Cache-Control", "no-store"))
    });
    for path in ["/a", "/b", "/c"] {
        origin.answers(path, Answer::new(200, path).header("Cache-Control", "max-age=600"));
    }
    origin.on("/post", |request, reply| reply.answer(&Answer::new(200, &request.body)));
    let accelerator = start(&origin, cores);
    accelerator.get("/a").expect_status(200);
    let mut client = accelerator.connect();
    let post =
        Request::new("POST", "/post").body(b"GET /b HTTP/1.1\r\nHost: a body is not a request\r\n\r\n");
    let head = Request::new("HEAD", "/a");
    let mut bytes = Vec::new();
    for path in ["/a", "/slow", "/b", "/a"] {
        bytes.extend(Request::get(path).bytes());
    }
    bytes.extend(post.bytes());
    bytes.extend(head.bytes());
    bytes.extend(Request::get("/c").bytes());
    // Pieces are cut at arbitrary bytes, and sent without a pause.
    for piece in bytes.chunks(37) {
        client.send(piece);
    }
    assert_eq!(
        client.response("GET").expect_status(200).text(),
        "/a",
        "what comes before the slow one need not wait"
    );
    gate.open();
    for path in ["/slow", "/b", "/a"] {
        assert_eq!(client.response("GET").expect_status(200).text(), path);
    }
    assert!(client.response("POST").expect_status(200).text().starts_with("GET /b"));
    assert!(client.response("HEAD").expect_status(200).body.is_empty());
    assert_eq!(client.response("GET").expect_status(200).text(), "/c");
    assert_eq!((origin.count("/a"), origin.count("/b"), origin.count("/slow")), (1, 1, 1));
}

fn absolute_targets_name_the_host(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/page", |request, reply| {
        let text = format!("{} {}", request.header("host").unwrap_or_default(), request.path());
        reply.answer(&Answer::new(200, text).header("Cache-Control", "max-age=600"))
    });
    let accelerator = start(&origin, cores);
    let mut client = accelerator.connect();
    client.send(b"GET http://right.test/page HTTP/1.1\r\nHost: Right.test:80\r\n\r\n");
    assert_eq!(client.response("GET").expect_status(200).text(), "right.test /page");
    let response = accelerator.fetch(&Request::get("/page").header("Host", "right.test")).expect_status(200);
    assert_eq!(response.text(), "right.test /page");
    assert_eq!(origin.count("/page"), 1, "both are one address");
    // RFC 9112 §3.2, §3.2.2: a request with two different hosts gets 400, even if the page is stored.
    for head in [
        "GET http://right.test/page HTTP/1.1\r\nHost: wrong.test\r\n\r\n",
        "GET http://right.test/page HTTP/1.1\r\nHost: right.test:81\r\n\r\n",
        "GET /page HTTP/1.1\r\nHost: right.test\r\nHost: right.test\r\n\r\n",
        "PURGE http://right.test/page HTTP/1.1\r\nHost: wrong.test\r\n\r\n",
    ] {
        let mut client = accelerator.connect();
        client.send(head.as_bytes());
        client.response("GET").expect_status(400);
        assert!(client.until_closed().1.is_empty(), "{head}");
    }
    assert_eq!(origin.all_seen().len(), 1, "the origin hears of none of them");
}

fn what_only_the_store_may_answer(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/page", Answer::new(200, "x").header("Cache-Control", "max-age=600"));
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--client-cache-control", "obey")
        .start();
    let only = Request::get("/page").header("Cache-Control", "only-if-cached");
    // RFC 9111 §5.2.1.7: `only-if-cached` gets 504 if no answer is stored.
    accelerator.fetch(&only).expect_status(504);
    assert_eq!(origin.count("/page"), 0);
    accelerator.get("/page").expect_status(200);
    accelerator.fetch(&only).expect_status(200);
    assert_eq!(origin.count("/page"), 1);
    // RFC 9111 §5.2.1.5: the answer to a `no-store` request is not stored.
    origin.answers("/secret", Answer::new(200, "x").header("Cache-Control", "max-age=600"));
    accelerator.fetch(&Request::get("/secret").header("Cache-Control", "no-store")).expect_status(200);
    accelerator.get("/secret").expect_status(200);
    assert_eq!(origin.count("/secret"), 2);
}

/// RFC 9110 §7.6.2: `Max-Forwards` is decremented at each hop, and at 0 the accelerator answers itself.
fn options_go_as_far_as_they_may(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/", Answer::new(200, "options of the origin"));
    let accelerator = start(&origin, cores);
    let options = |forwards: &str| Request::new("OPTIONS", "/").header("Max-Forwards", forwards);
    let answer = accelerator.fetch(&options("2")).expect_status(200);
    assert_eq!(answer.text(), "options of the origin");
    assert_eq!(origin.seen("/")[0].header("max-forwards"), Some("1"));
    let answer = accelerator.fetch(&options("0")).expect_status(200);
    assert!(answer.body.is_empty() && answer.header("allow").is_some(), "{}", answer.text_of_head());
    assert_eq!(origin.count("/"), 1);
}
