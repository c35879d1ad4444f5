//! An origin on its bad days. Whatever it does, the visitor gets one clear error, or a visibly cut connection
//! if half an answer is already sent; a counter moves, nothing is stored, and other clients are served as
//! before.

use std::{thread, time::Duration};

use tests::{
    Accelerator, Answer, Client, End, Gate, Next, Request, ScriptedOrigin,
    client::Head,
    content::content,
    eventually, on_one_core, on_one_core_and_on_two,
    origin::{NobodyThere, Reply},
};

on_one_core! {
    one_that_refuses_is_a_clear_error,
    an_origin_closing_before_its_head_is_reported,
    an_origin_stalling_before_its_head_is_reported,
    an_oversized_head_of_an_origin_is_reported,
    an_origin_without_http_is_reported,
    an_invalid_framing_by_the_origin_is_reported,
    http_1_0_clients_detect_a_cut_body,
    bytes_beyond_the_stated_length_reach_nobody,
    bytes_that_nobody_asked_for_reach_nobody,
    an_endless_body_ends_when_nobody_reads_it,
}

on_one_core_and_on_two! {
    truncated_bodies_are_cut_and_never_stored,
    more_misses_than_connections_wait_their_turn,
    an_origin_that_recovers_is_used_again,
}

const WELL: &str = "/well";

/// Starts an origin with one path that always works, and an accelerator with short timeouts in front of it.
fn start(cores: &str) -> (ScriptedOrigin, Accelerator) {
    let origin = ScriptedOrigin::start();
    origin.answers(WELL, Answer::new(200, "well").header("Cache-Control", "no-store"));
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .limit("origin_first_byte_time_max", "400ms")
        .limit("origin_between_bytes_time_max", "400ms")
        .start();
    (origin, accelerator)
}

/// Requests a path twice. Each time the answer is this error, the origin gets a request and the counter
/// moves; the path that always works still does.
#[track_caller]
fn expect_fault_each_time(
    origin: &ScriptedOrigin,
    accelerator: &Accelerator,
    path: &str,
    (status, code): (u16, &str),
    counter: &str,
) {
    for _ in 0..2 {
        let (asked, counted) = (origin.count(path), accelerator.stat().count(counter));
        accelerator.fetch(&Request::get(path).accepting_json()).expect_fault(status, "origin", code);
        assert!(origin.count(path) > asked, "{path}: an error was stored");
        assert!(accelerator.stat().count(counter) > counted, "{path}: {counter} did not count it");
        assert_eq!(accelerator.get(WELL).expect_status(200).text(), "well", "after {path}");
    }
}

fn one_that_refuses_is_a_clear_error(cores: &str) {
    let nobody = NobodyThere::new();
    let accelerator =
        Accelerator::before(&format!("http://{}", nobody.address())).flag("--cores", cores).start();
    let mut client = accelerator.connect();
    for round in 1..=2 {
        let response = client.exchange(&Request::get("/page").accepting_json());
        let page = response.expect_fault(502, "origin", "origin-refused").text();
        assert!(accelerator.stat().count("errors.origin_refused") >= round);
        // Each error page has an id of its own, by which the site's operators find it.
        let number = |page: &str| {
            page.split("\"request_id\":\"").nth(1).map(|rest| rest.split('"').next().map(str::to_owned))
        };
        let again = client.exchange(&Request::get("/page").accepting_json()).text();
        assert_ne!(number(&page), number(&again), "two requests, one number");
    }
    // The error in the formats for people.
    for (accept, kind) in [("text/html,*/*;q=0.8", "text/html"), ("*/*", "text/plain")] {
        let page = client.exchange(&Request::get("/page").header("Accept", accept)).expect_refusal(502);
        assert!(
            page.header("content-type").is_some_and(|value| value.starts_with(kind)),
            "{}",
            page.text_of_head()
        );
        assert!(!page.text().contains("Guru Meditation"));
    }
    let head = client.exchange(&Request::new("HEAD", "/page")).whole();
    assert_eq!((head.status(), head.body.len()), (502, 0));
    // The body of a failed request must not be taken for the next request.
    let post =
        Request::new("POST", "/page").body(b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n").accepting_json();
    accelerator.fetch(&post).expect_fault(502, "origin", "origin-refused");
    // A client that is still sending when it is refused sees the reason.
    let large = Request::new("POST", "/page").body(&content(1, 0, 800_000)).accepting_json();
    for _ in 0..10 {
        accelerator.fetch(&large).expect_fault(502, "origin", "origin-refused");
    }
}

fn an_origin_closing_before_its_head_is_reported(cores: &str) {
    let (origin, accelerator) = start(cores);
    let half = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nCache-Con".as_slice();
    for (path, sent, next, code) in [
        ("/closes", &b""[..], Next::Close, "origin-closed-early"),
        ("/closes-in-head", half, Next::Close, "origin-closed-early"),
        ("/resets", b"", Next::Reset, "origin-reset"),
        ("/interim-only", b"HTTP/1.1 103 Early Hints\r\n\r\n", Next::Close, "origin-closed-early"),
    ] {
        origin.sends(path, sent, next);
        expect_fault_each_time(&origin, &accelerator, path, (502, code), "errors.origin_closed");
    }
}

fn an_origin_stalling_before_its_head_is_reported(cores: &str) {
    let (origin, accelerator) = start(cores);
    origin.answers("/kept", Answer::new(200, "kept").header("Cache-Control", "max-age=600"));
    accelerator.get("/kept").expect_status(200);
    origin.on("/silent", |_, reply| Ok(reply.stall()));
    origin.on("/half-a-head", |_, reply| {
        reply.send(b"HTTP/1.1 200 OK\r\nContent-Le")?;
        Ok(reply.stall())
    });
    // Never silent and never complete: the time limit covers the whole head.
    origin.on("/drips", |_, reply| {
        reply.send(b"HTTP/1.1 200 OK\r\nX-Drip: ")?;
        while !reply.stopped() {
            reply.send(b"a")?;
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Next::Close)
    });
    for path in ["/silent", "/half-a-head", "/drips"] {
        expect_fault_each_time(&origin, &accelerator, path, (504, "origin-stalled"), "limits.origin_time");
    }
    // A hundred clients wait in vain; a client with another request does not wait for them.
    let mut waiting: Vec<Client> = (0..100).map(|_| accelerator.connect()).collect();
    for (number, client) in waiting.iter_mut().enumerate() {
        client.send(&Request::get(&format!("/silent?{number}")).accepting_json().bytes());
    }
    assert_eq!(accelerator.get("/kept").expect_status(200).text(), "kept");
    assert_eq!(accelerator.get(WELL).expect_status(200).text(), "well");
    for client in &mut waiting {
        client.response("GET").expect_fault(504, "origin", "origin-stalled");
    }
}

fn an_oversized_head_of_an_origin_is_reported(cores: &str) {
    let (origin, accelerator) = start(cores);
    let field = |number: usize, length: usize| format!("X-Field-{number}: {}\r\n", "a".repeat(length));
    let hundred: String = (0..100).map(|number| field(number, 64 * 1024)).collect();
    let answer = |fields: &str| {
        format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\n{fields}Content-Length: 0\r\n\r\n")
    };
    origin.sends("/hundred-of-64-KiB", answer(&hundred), Next::KeepAlive);
    origin.sends("/one-of-65-KiB", answer(&field(0, 65 * 1024)), Next::KeepAlive);
    origin.on("/endless-head", |_, reply| {
        reply.send(b"HTTP/1.1 200 OK\r\n")?;
        send_forever(reply, b"X-Again: and again\r\n")
    });
    origin.on("/endless-line", |_, reply| {
        reply.send(b"HTTP/1.1 200 OK\r\nX-Endless: ")?;
        send_forever(reply, b"and on ")
    });
    for path in ["/hundred-of-64-KiB", "/one-of-65-KiB", "/endless-head", "/endless-line"] {
        let fault = (502, "origin-head-too-large");
        expect_fault_each_time(&origin, &accelerator, path, fault, "limits.response_head_bytes");
    }
    // A head that is large, but within the limit, passes.
    origin.sends("/one-of-60-KiB", answer(&field(0, 60 * 1024)), Next::KeepAlive);
    for _ in 0..2 {
        let response = accelerator.get("/one-of-60-KiB").expect_status(200);
        assert_eq!(response.header("x-field-0").map(str::len), Some(60 * 1024));
    }
    assert_eq!(origin.count("/one-of-60-KiB"), 1);
}

fn send_forever(reply: &mut Reply<'_>, bytes: &[u8]) -> std::io::Result<Next> {
    let many = bytes.repeat(1000);
    while !reply.stopped() {
        reply.send(&many)?;
    }
    Ok(Next::Close)
}

fn an_origin_without_http_is_reported(cores: &str) {
    let (origin, accelerator) = start(cores);
    let whole = "Content-Length: 2\r\nCache-Control: max-age=600\r\n\r\nno";
    for (number, sent) in [
        b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n".to_vec(),
        b"220 mail.example.com ESMTP\r\n\r\n".to_vec(),
        // A TLS alert, as from an origin whose port expects TLS.
        vec![0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x46],
        content(1, 0, 10_000),
        vec![0; 10_000],
        format!("HTTP/1.1 2x0 OK\r\n{whole}").into_bytes(),
        format!("HTTP/1.1 99 Low\r\n{whole}").into_bytes(),
        format!("HTTP/1.1\r\n{whole}").into_bytes(),
        format!("HTTP/1.1 200 OK\r\nNo colon\r\n{whole}").into_bytes(),
        format!("HTTP/1.1 200 OK\r\nSpace : before colon\r\n{whole}").into_bytes(),
        format!("HTTP/1.1 200 OK\r\n: no name\r\n{whole}").into_bytes(),
        format!("HTTP/1.1 200 OK\r\nX-Nul: a\0b\r\n{whole}").into_bytes(),
        format!("HTTP/1.1 200 OK\r\nX-Cr: a\rb\r\n{whole}").into_bytes(),
        format!("HTTP/9.1 200 OK\r\n{whole}").into_bytes(),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{number}");
        let shown = sent.escape_ascii().to_string();
        eprintln!("{path}: {}", &shown[..shown.len().min(80)]);
        origin.sends(&path, sent, Next::Close);
        expect_fault_each_time(
            &origin,
            &accelerator,
            &path,
            (502, "origin-invalid"),
            "errors.origin_invalid",
        );
    }
}

fn an_invalid_framing_by_the_origin_is_reported(cores: &str) {
    let (origin, accelerator) = start(cores);
    for (number, fields) in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: -5\r\n",
        "Content-Length: 5 6\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: five\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{number}");
        eprintln!("{path}: {fields:?}");
        let sent =
            format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\n{fields}\r\n5\r\nhello\r\n0\r\n\r\n");
        origin.sends(&path, sent, Next::Close);
        expect_fault_each_time(
            &origin,
            &accelerator,
            &path,
            (502, "origin-invalid"),
            "errors.origin_invalid",
        );
    }
}

/// Every way in which a body can break off. Three clients read it at once, and all three see that it is
/// incomplete. Once the origin works again, its new answer is served, not the stored beginning of the broken
/// one.
fn truncated_bodies_are_cut_and_never_stored(cores: &str) {
    let (origin, accelerator) = start(cores);
    let half = content(1, 0, 50_000);
    let length = Answer::new(200, content(1, 0, 100_000)).header("Cache-Control", "max-age=600").head_bytes();
    let chunked =
        b"HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    let chunk = [format!("{:x}\r\n", half.len()).as_bytes(), &half, b"\r\n"].concat();
    let mid_chunk = [format!("{:x}\r\n", half.len() + 1).as_bytes(), &half].concat();
    let after = |end: &[u8]| [&chunk[..], end].concat();
    enum Then {
        Close,
        Reset,
        Stall,
    }
    for (path, head, body, then, counter) in [
        ("/short-close", &length, half.clone(), Then::Close, "errors.origin_body_short"),
        ("/short-reset", &length, half.clone(), Then::Reset, "errors.origin_body_short"),
        ("/short-stall", &length, half.clone(), Then::Stall, "limits.origin_time"),
        ("/nothing-close", &length, Vec::new(), Then::Close, "errors.origin_body_short"),
        ("/mid-chunk-close", &chunked, mid_chunk.clone(), Then::Close, "errors.origin_body_short"),
        ("/mid-chunk-stall", &chunked, mid_chunk, Then::Stall, "limits.origin_time"),
        ("/no-last-chunk", &chunked, chunk.clone(), Then::Close, "errors.origin_body_short"),
        (
            "/no-end-of-trailers",
            &chunked,
            after(b"0\r\nX-Trailer: x\r\n"),
            Then::Close,
            "errors.origin_body_short",
        ),
        ("/half-a-size", &chunked, after(b"1f"), Then::Close, "errors.origin_body_short"),
        ("/no-size", &chunked, after(b"\r\n"), Then::Stall, "errors.origin_invalid"),
        ("/size-of-words", &chunked, after(b"many\r\n"), Then::Stall, "errors.origin_invalid"),
        (
            "/size-beyond-64-bits",
            &chunked,
            after(b"10000000000000005\r\nhello\r\n"),
            Then::Stall,
            "errors.origin_invalid",
        ),
        ("/negative-size", &chunked, after(b"-5\r\nhello\r\n"), Then::Stall, "errors.origin_invalid"),
        ("/bare-lf", &chunked, after(b"5\nhello\n"), Then::Stall, "errors.origin_invalid"),
        (
            "/too-much-in-a-chunk",
            &chunked,
            after(b"5\r\nhello you\r\n"),
            Then::Stall,
            "errors.origin_invalid",
        ),
        ("/bad-trailer", &chunked, after(b"0\r\nno colon\r\n\r\n"), Then::Stall, "errors.origin_invalid"),
    ] {
        let gate = Gate::new();
        let (head, in_script) = (head.clone(), gate.clone());
        origin.on(path, move |_, reply| {
            reply.send(&head)?;
            in_script.pass();
            reply.send(&body)?;
            Ok(match then {
                Then::Close => Next::Close,
                Then::Reset => {
                    // The bytes sent before must have arrived: a reset destroys what the peer has not read.
                    thread::sleep(Duration::from_millis(50));
                    Next::Reset
                }
                Then::Stall => reply.stall(),
            })
        });
        let counted = accelerator.stat().count(counter);
        let mut readers: Vec<Client> = (0..3).map(|_| accelerator.connect()).collect();
        readers.iter_mut().for_each(|reader| reader.send(&Request::get(path).bytes()));
        eventually("the origin is asked", || origin.count(path) >= 1);
        gate.open();
        for reader in &mut readers {
            let Some(response) = reader.try_response("GET") else { continue };
            // Either nothing was passed on yet and the answer is an error, or the client sees that the answer
            // is incomplete.
            let told = matches!(response.status(), 502..=504) || response.end != End::Complete;
            assert!(
                told,
                "{path}: {} bytes passed for the whole:\n{}",
                response.body.len(),
                response.text_of_head()
            );
        }
        assert!(accelerator.stat().count(counter) > counted, "{path}: {counter} did not count it");
        let broken = origin.count(path);
        origin.answers(path, Answer::new(200, "whole again").header("Cache-Control", "max-age=600"));
        assert_eq!(
            accelerator.get(path).expect_status(200).text(),
            "whole again",
            "{path}: a broken body was stored"
        );
        assert_eq!(origin.count(path), broken + 1);
        assert_eq!(accelerator.get(WELL).expect_status(200).text(), "well", "after {path}");
    }
    assert!(accelerator.stat().count("errors.bodies_cut") >= 1);
}

/// HTTP/1.0 has no chunks: a body without a length ends with the connection, so only a reset shows that it is
/// incomplete.
fn http_1_0_clients_detect_a_cut_body(cores: &str) {
    let (origin, accelerator) = start(cores);
    let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nTransfer-Encoding: chunked\r\n\r\n";
    origin.sends("/page", format!("{head}5\r\nhello\r\n5\r\nwor"), Next::Close);
    for _ in 0..2 {
        let mut client = accelerator.connect();
        client.send(b"GET /page HTTP/1.0\r\nHost: site.test\r\n\r\n");
        let response = client.response("GET");
        assert!(response.status() == 502 || response.end == End::Reset, "{response:?}");
    }
    assert_eq!(origin.count("/page"), 2);
}

/// A second answer behind the first, from an origin or an attacker who controls its answers, reaches no
/// client.
fn bytes_beyond_the_stated_length_reach_nobody(cores: &str) {
    let (origin, accelerator) = start(cores);
    let poison =
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nCache-Control: max-age=600\r\n\r\npoison".as_slice();
    let plain = |status: u16, body: &str| Answer::new(status, body).header("Cache-Control", "no-store");
    let behind = |answer: Vec<u8>| [&answer[..], poison].concat();
    origin.sends("/length", behind(plain(200, "right").bytes("GET")), Next::KeepAlive);
    origin.sends("/chunked", behind(Answer::chunked(200, &[b"right"], &[]).bytes("GET")), Next::KeepAlive);
    origin.sends("/204", behind(plain(204, "").bytes("GET")), Next::KeepAlive);
    origin.sends("/304", behind(plain(304, "").header("ETag", "\"1\"").bytes("GET")), Next::KeepAlive);
    origin.sends("/head", behind(plain(200, "right").bytes("HEAD")), Next::KeepAlive);
    let victims: Vec<String> = (0..20).map(|number| format!("/victim/{number}")).collect();
    for path in &victims {
        origin.answers(path, plain(200, path));
    }
    let mut victim = victims.iter();
    for (request, status) in [
        (Request::get("/length"), 200),
        (Request::get("/chunked"), 200),
        (Request::get("/204"), 204),
        // The request to the origin was unconditional, so a 304 is no valid answer.
        (Request::get("/304").header("If-None-Match", "\"1\""), 502),
        (Request::new("HEAD", "/head"), 200),
    ] {
        let mut client = accelerator.connect();
        let response = client.exchange(&request).whole();
        assert_eq!(response.status(), status, "{request:?}");
        assert!(!response.text().contains("poison"), "{request:?}");
        for _ in 0..4 {
            let path = victim.next().expect("twenty are enough");
            assert_eq!(client.get(path).expect_status(200).text(), *path, "after {request:?}");
        }
    }
}

fn bytes_that_nobody_asked_for_reach_nobody(cores: &str) {
    let (origin, accelerator) = start(cores);
    let (gate, sent) = (Gate::new(), Gate::new());
    let (in_script, done) = (gate.clone(), sent.clone());
    origin.on("/page", move |_, reply| {
        reply.send(&Answer::new(200, "right").header("Cache-Control", "no-store").bytes("GET"))?;
        in_script.pass();
        reply.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")?;
        done.open();
        Ok(Next::KeepAlive)
    });
    let mut client = accelerator.connect();
    assert_eq!(client.get("/page").expect_status(200).text(), "right");
    gate.open();
    sent.pass();
    // On loopback the bytes sent have arrived by now; they wait on an idle connection to the origin.
    for _ in 0..10 {
        assert_eq!(client.get(WELL).expect_status(200).text(), "well");
    }
}

fn an_endless_body_ends_when_nobody_reads_it(cores: &str) {
    let (origin, accelerator) = start(cores);
    let ended = Gate::new();
    let in_script = ended.clone();
    origin.on("/endless", move |_, reply| {
        reply.send(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nConnection: close\r\n\r\n")?;
        let result = send_forever(reply, b"still going on\n");
        in_script.open();
        result
    });
    let mut client = accelerator.connect();
    client.send(&Request::get("/endless").bytes());
    let Head { status, .. } = client.head("GET");
    assert_eq!(status, 200);
    // More bytes than the store holds have passed through.
    let mut read = 0;
    while read < 80 << 20 {
        read += client.body_piece(1 << 20).expect("it does not end").len();
    }
    assert_eq!(accelerator.get(WELL).expect_status(200).text(), "well");
    drop(client);
    // With no reader and no room to store it, the connection to the origin is closed.
    ended.pass();
    assert_eq!(accelerator.get(WELL).expect_status(200).text(), "well");
}

fn more_misses_than_connections_wait_their_turn(cores: &str) {
    const WAITING: usize = 40;
    let origin = ScriptedOrigin::start();
    let gate = Gate::new();
    for number in 0..WAITING {
        let in_script = gate.clone();
        origin.on(&format!("/{number}"), move |request, reply| {
            in_script.pass();
            reply.answer(&Answer::new(200, request.path()).header("Cache-Control", "no-store"))
        });
    }
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .limit("origin_connections_max", "3")
        .start();
    let most = 3 * cores.split(',').count() as u64;
    let mut clients: Vec<Client> = (0..WAITING).map(|_| accelerator.connect()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&Request::get(&format!("/{number}")).bytes());
    }
    eventually("the origin is busy", || origin.connections() >= 1);
    gate.open();
    for (number, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.response("GET").expect_status(200).text(), format!("/{number}"));
    }
    assert!(
        origin.connections() <= most,
        "{} connections to the origin, {most} are allowed",
        origin.connections()
    );
}

fn an_origin_that_recovers_is_used_again(cores: &str) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket has an address");
    drop(listener);
    let accelerator = Accelerator::before(&format!("http://{address}")).flag("--cores", cores).start();
    accelerator.fetch(&Request::get("/page").accepting_json()).expect_fault(502, "origin", "origin-refused");
    let origin = ScriptedOrigin::start_at(address);
    origin.answers("/page", Answer::new(200, "back").header("Cache-Control", "max-age=600"));
    assert_eq!(accelerator.get("/page").expect_status(200).text(), "back");
    // After a restart of the origin, kept connections are dead; the next request must not fail because of
    // that.
    for path in ["/one", "/two", "/three"] {
        origin.answers(path, Answer::new(200, path).header("Cache-Control", "no-store"));
    }
    for path in ["/one", "/two"] {
        origin.sends(
            path,
            Answer::new(200, path).header("Cache-Control", "no-store").bytes("GET"),
            Next::Close,
        );
        assert_eq!(accelerator.get(path).expect_status(200).text(), path);
        thread::sleep(Duration::from_millis(20));
        assert_eq!(accelerator.get("/three").expect_status(200).text(), "/three");
    }
}
