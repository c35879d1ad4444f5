//! Resources that one client cannot take from the others through the accelerator: the origin's connections,
//! loop turns, memory.

use std::time::{Duration, Instant};

use tests::{
    Accelerator, Answer, Client, Gate, Next, Request, ScriptedOrigin, content::content, eventually,
    on_one_core, on_one_core_and_on_two,
};

on_one_core! {
    readers_of_passed_answers_do_not_block_others,
    a_body_that_trickles_is_ended,
    passed_answers_to_stalled_readers_are_not_prefetched,
    a_request_that_comes_back_is_told_so,
    an_accelerator_before_another_is_no_circle,
    unsafe_requests_avoid_possibly_closed_connections,
    idle_origin_connections_are_closed,
    a_silent_upload_holds_no_exchange,
    long_waits_for_an_origin_are_told,
    a_far_range_is_not_read_up_to,
}

on_one_core_and_on_two! {
    slow_uploads_do_not_block_others,
    the_queue_for_the_origin_has_an_end,
    unread_answers_are_bounded_in_total,
    one_address_leaves_exchanges_to_others,
    connections_of_a_shared_network_have_shares_each,
}

fn slow_uploads_do_not_block_others(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/page", Answer::new(200, "page").header("Cache-Control", "max-age=600"));
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .limit("origin_connections_max", "4")
        .limit("origin_first_byte_time_max", "30s")
        .start();
    let uploads = 4 * cores.split(',').count() * 2;
    let _slow: Vec<Client> = (0..uploads)
        .map(|number| {
            let mut client = accelerator.connect();
            let head =
                format!("POST /up{number} HTTP/1.1\r\nHost: site.test\r\nContent-Length: 1000\r\n\r\nx");
            client.send(head.as_bytes());
            client
        })
        .collect();
    eventually("uploads have taken what they can", || origin.connections() >= 3);
    for number in 0..8 {
        let path = format!("/page?{number}");
        origin.answers("/page", Answer::new(200, "page").header("Cache-Control", "max-age=600"));
        assert_eq!(accelerator.get(&path).expect_status(200).text(), "page", "{path}");
    }
}

fn readers_of_passed_answers_do_not_block_others(cores: &str) {
    let origin = ScriptedOrigin::start();
    for number in 0..8 {
        origin.on(&format!("/events{number}"), |_, reply| {
            reply.send(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n\r\n",
            )?;
            reply.send(b"data: first\n\n")?;
            Ok(reply.stall())
        });
    }
    origin.answers("/private", Answer::new(200, "yours").header("Cache-Control", "no-store"));
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .limit("origin_connections_max", "2")
        .start();
    let mut readers = Vec::new();
    for number in 0..8 {
        let mut client = accelerator.connect();
        // A request with a body is passed at once; one without is fetched, and passed once the answer's head
        // says so.
        let path = format!("/events{number}");
        let (method, request) = match number % 2 {
            0 => ("POST", Request::new("POST", &path).body(b"q")),
            _ => ("GET", Request::get(&path)),
        };
        client.send(&request.bytes());
        assert_eq!(client.head(method).status, 200, "{number}");
        assert!(!client.body_piece(100).expect("the first event").is_empty());
        readers.push(client);
    }
    assert_eq!(
        accelerator.fetch(&Request::new("POST", "/private").body(b"q")).expect_status(200).text(),
        "yours"
    );
}

fn the_queue_for_the_origin_has_an_end(cores: &str) {
    let origin = ScriptedOrigin::start();
    let gate = Gate::new();
    for number in 0..40 {
        let in_script = gate.clone();
        origin.on(&format!("/{number}"), move |_, reply| {
            in_script.pass();
            reply.answer(&Answer::new(200, "done").header("Cache-Control", "no-store"))
        });
    }
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .limit("origin_connections_max", "1")
        .limit("origin_queue_max", "4")
        .start();
    let mut clients: Vec<Client> = (0..40)
        .map(|number| {
            let mut client = accelerator.connect();
            client.send(&Request::get(&format!("/{number}")).accepting_json().bytes());
            client
        })
        .collect();
    let places = 5 * cores.split(',').count() as u64;
    eventually("the others are refused", || {
        accelerator.stat().count("limits.origin_connections") >= 40 - places
    });
    gate.open();
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.response("GET").status()).collect();
    let served = statuses.iter().filter(|status| **status == 200).count() as u64;
    assert!(served >= 5 && served <= places, "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 200 | 503)), "{statuses:?}");
}

fn a_body_that_trickles_is_ended(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/up", Answer::new(200, "all of it"));
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .limit("request_body_time_grace", "1s")
        .start();
    let mut client = accelerator.connect();
    client.send(
        b"POST /up HTTP/1.1\r\nHost: site.test\r\nContent-Length: 100000\r\nAccept: application/json\r\n\r\n",
    );
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(20) {
        if client.try_send(b"x").is_err() || accelerator.stat().count("limits.request_body_time") > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(client.response("POST").status(), 408);
    assert_eq!(accelerator.stat().count("limits.request_body_time"), 1);
}

/// A passed answer waits for its reader in a window; while the windows are full in total, each reader has two
/// chunks.
fn passed_answers_to_stalled_readers_are_not_prefetched(cores: &str) {
    let origin = ScriptedOrigin::start();
    let body = content(1, 0, 20 << 20);
    origin.answers("/mine", Answer::new(200, &body).header("Cache-Control", "no-store"));
    let accelerator =
        Accelerator::before(&origin.url()).flag("--cores", cores).limit("client_bytes_max", "1MiB").start();
    let mut readers: Vec<Client> = (0..12)
        .map(|_| {
            let mut client = accelerator.connect();
            client.send(&Request::get("/mine").header("Cache-Control", "no-store").bytes());
            assert_eq!(client.head("GET").status, 200);
            client
        })
        .collect();
    // The readers read one after the other: a reader with two chunks can continue at any time.
    for (number, reader) in readers.iter_mut().enumerate() {
        assert!(reader.rest_of_body().0 == body, "{number}");
    }
    assert!(accelerator.stat().count("limits.passes_narrowed") > 0);
}

fn unread_answers_are_bounded_in_total(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/page", Answer::new(200, content(1, 0, 8_000)).header("Cache-Control", "max-age=600"));
    let accelerator =
        Accelerator::before(&origin.url()).flag("--cores", cores).limit("client_bytes_max", "1MiB").start();
    accelerator.get("/page").expect_status(200);
    let request = Request::get("/page").bytes().repeat(400);
    let _deaf: Vec<Client> = (0..60)
        .map(|_| {
            let mut client = accelerator.connect();
            let _ = socket2::SockRef::from(client.stream()).set_recv_buffer_size(4096);
            // The accelerator stops reading at some point; the rest is then not sent.
            let _ = client.stream().set_write_timeout(Some(Duration::from_millis(100)));
            for _ in 0..8 {
                if client.try_send(&request).is_err() {
                    break;
                }
            }
            client
        })
        .collect();
    eventually("some are cut", || accelerator.stat().count("limits.client_bytes") > 0);
    accelerator.get("/page").expect_status(200);
}

fn a_request_that_comes_back_is_told_so(cores: &str) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = port.local_addr().expect("bound");
    drop(port);
    let accelerator = Accelerator::before(&format!("http://{address}"))
        .flag("--cores", cores)
        .flag("--listen", &address.to_string())
        .start();
    let since = Instant::now();
    accelerator.fetch(&Request::get("/x").accepting_json()).expect_status(508);
    accelerator.fetch(&Request::new("POST", "/x").body(b"y").accepting_json()).expect_status(508);
    assert!(since.elapsed() < Duration::from_secs(10), "at once, and not after a timeout");
}

fn an_accelerator_before_another_is_no_circle(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/x", Answer::new(200, "through both").header("Cache-Control", "max-age=600"));
    let inner = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    let outer = Accelerator::before(&format!("http://{}", inner.address())).flag("--cores", cores).start();
    assert_eq!(outer.get("/x").expect_status(200).text(), "through both");
    let seen = origin.seen("/x");
    let via: Vec<&str> = seen[0].headers.all("via").collect();
    assert!(matches!(&via[..], [first, second] if first != second), "{via:?}");
}

fn unsafe_requests_avoid_possibly_closed_connections(cores: &str) {
    let origin = ScriptedOrigin::start();
    for path in ["/one", "/two", "/three"] {
        // The answer promises to keep the connection, but the origin closes it.
        let answer = Answer::new(200, path).header("Cache-Control", "no-store");
        let bytes = answer.bytes("GET");
        origin.sends(path, bytes, Next::Close);
    }
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    for _ in 0..20 {
        accelerator.get("/one").expect_status(200);
        accelerator.fetch(&Request::new("POST", "/two")).expect_status(200);
        accelerator.fetch(&Request::new("DELETE", "/three")).expect_status(200);
    }
}

fn idle_origin_connections_are_closed(cores: &str) {
    let origin = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let accelerator = Accelerator::before(&format!("http://{}", origin.local_addr().expect("bound")))
        .flag("--cores", cores)
        .limit("origin_idle_time_max", "300ms")
        .start();
    let asked = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = origin.accept().expect("a connection");
        let mut buffer = [0; 4096];
        assert!(stream.read(&mut buffer).expect("a request") > 0);
        let answer = Answer::new(200, "x").header("Cache-Control", "no-store").bytes("GET");
        stream.write_all(&answer).expect("an answer");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream.read(&mut buffer).map_err(|error| error.kind())
    });
    accelerator.get("/x").expect_status(200);
    assert_eq!(asked.join().expect("the origin"), Ok(0), "closed, although nobody asks");
}

/// One client requests more slow URLs than there are exchanges. Clients of other addresses do not wait for
/// it.
fn one_address_leaves_exchanges_to_others(cores: &str) {
    const EXCHANGES: usize = 16;
    let (origin, gate) = (ScriptedOrigin::start(), Gate::new());
    let in_script = gate.clone();
    origin.on("/slow", move |_, reply| {
        in_script.pass();
        reply.answer(&Answer::new(200, "slow").header("Cache-Control", "no-store"))
    });
    origin.answers("/page", Answer::new(200, "page").header("Cache-Control", "max-age=600"));
    origin.answers("/mine", Answer::new(200, "mine").header("Cache-Control", "no-store"));
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--trusted-proxies", "127.0.0.1")
        .limit("origin_connections_max", &EXCHANGES.to_string())
        .limit("origin_first_byte_time_max", "120s")
        .start();
    let loops = cores.split(',').count();
    let from = |address: &str, target: &str| Request::get(target).header("X-Forwarded-For", address);
    let mut slow: Vec<Client> = (0..6 * EXCHANGES * loops)
        .map(|number| {
            let mut client = accelerator.connect();
            client.send(&from("192.0.2.1", &format!("/slow?{number}")).bytes());
            client
        })
        .collect();
    eventually("it has half of the exchanges", || origin.count("/slow") == EXCHANGES * loops / 2);
    for number in 0..40 {
        let page = accelerator.fetch(&from("192.0.2.2", &format!("/page?{number}"))).expect_status(200);
        assert_eq!(page.text(), "page");
        let mine = from("198.51.100.7", "/mine").header("Cookie", "s=1");
        assert_eq!(accelerator.fetch(&mine).expect_status(200).text(), "mine");
    }
    assert_eq!(origin.count("/slow"), EXCHANGES * loops / 2, "and has no more while others want some");
    gate.open();
    let answered = slow.iter_mut().map(|client| client.response("GET").status());
    assert!(answered.into_iter().all(|status| status == 200), "all of them in the end");
}

/// Many visitors behind one NAT request slow URLs. Together they get more exchanges than one client's share.
fn connections_of_a_shared_network_have_shares_each(cores: &str) {
    const EXCHANGES: usize = 16;
    let (origin, gate) = (ScriptedOrigin::start(), Gate::new());
    let in_script = gate.clone();
    origin.on("/slow", move |_, reply| {
        in_script.pass();
        reply.answer(&Answer::new(200, "slow").header("Cache-Control", "no-store"))
    });
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .flag("--trusted-proxies", "127.0.0.1")
        .flag("--shared-networks", "192.0.2.0/24")
        .limit("origin_connections_max", &EXCHANGES.to_string())
        .limit("origin_first_byte_time_max", "120s")
        .start();
    let loops = cores.split(',').count();
    let mut visitors: Vec<Client> = (0..6 * EXCHANGES * loops)
        .map(|number| {
            let mut client = accelerator.connect();
            let request = Request::get(&format!("/slow?{number}")).header("X-Forwarded-For", "192.0.2.1");
            client.send(&request.bytes());
            client
        })
        .collect();
    eventually("they have more than half of the exchanges", || origin.count("/slow") > EXCHANGES * loops / 2);
    gate.open();
    let answered = visitors.iter_mut().map(|client| client.response("GET").status());
    assert!(answered.into_iter().all(|status| status == 200));
}

fn a_silent_upload_holds_no_exchange(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/up", Answer::new(200, "taken"));
    origin.answers("/mine", Answer::new(200, "mine").header("Cache-Control", "no-store"));
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .limit("origin_connections_max", "1")
        .limit("origin_first_byte_time_max", "120s")
        .start();
    let mut uploads: Vec<Client> = (0..8)
        .map(|_| {
            let mut client = accelerator.connect();
            client.send(b"POST /up HTTP/1.1\r\nHost: site.test\r\nContent-Length: 10\r\n\r\nhello");
            client
        })
        .collect();
    eventually("each has a connection", || origin.connections() >= 8);
    for _ in 0..4 {
        let mine = Request::new("POST", "/mine").body(b"q");
        assert_eq!(accelerator.fetch(&mine).expect_status(200).text(), "mine");
    }
    for upload in &mut uploads {
        upload.send(b"world");
        assert_eq!(upload.response("POST").expect_status(200).text(), "taken");
    }
    assert!(origin.seen("/up").iter().all(|seen| seen.body == b"helloworld"));
}

fn long_waits_for_an_origin_are_told(_: &str) {
    let (origin, gate) = (ScriptedOrigin::start(), Gate::new());
    let in_script = gate.clone();
    origin.on("/slow", move |_, reply| {
        in_script.pass();
        reply.answer(&Answer::new(200, "slow").header("Cache-Control", "no-store"))
    });
    origin.answers("/mine", Answer::new(200, "mine").header("Cache-Control", "no-store"));
    let accelerator = Accelerator::before(&origin.url()).limit("origin_connections_max", "1").start();
    let mut slow = accelerator.connect();
    slow.send(&Request::get("/slow").bytes());
    eventually("it is asked", || origin.count("/slow") == 1);
    let mut waiting = accelerator.connect();
    waiting.send(&Request::new("POST", "/mine").body(b"q").bytes());
    std::thread::sleep(Duration::from_millis(1_200));
    gate.open();
    slow.response("GET").expect_status(200);
    waiting.response("POST").expect_status(200);
    assert_eq!(accelerator.stat().count("limits.origin_long_waits"), 1);
    eventually("the log says so", || accelerator.printed().contains("origin busy"));
}

/// The first request for a page is for a far range, and the page turns out not to be storable.
fn a_far_range_is_not_read_up_to(cores: &str) {
    const BYTES: u64 = 256 << 20;
    let origin = ScriptedOrigin::start();
    let sent = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let in_script = std::sync::Arc::clone(&sent);
    origin.on("/big", move |asked, reply| {
        let with = |answer: Answer| answer.header("Cache-Control", "no-store");
        if asked.header("range").is_some() {
            let said = format!("bytes {}-{}/{BYTES}", BYTES - 10, BYTES - 1);
            return reply.answer(&with(Answer::new(206, "0123456789")).header("Content-Range", &said));
        }
        let head = with(Answer::until_close(200, "")).header("Content-Length", &BYTES.to_string());
        reply.send(&head.head_bytes())?;
        let piece = vec![0; 64 << 10];
        for _ in 0..BYTES / piece.len() as u64 {
            reply.send(&piece)?;
            in_script.fetch_add(piece.len() as u64, std::sync::atomic::Ordering::SeqCst);
        }
        Ok(Next::Close)
    });
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    let far = Request::get("/big").header("Range", &format!("bytes={}-", BYTES - 10));
    let got = accelerator.fetch(&far).expect_status(206).whole();
    assert_eq!(got.text(), "0123456789");
    let read = sent.load(std::sync::atomic::Ordering::SeqCst);
    assert!(read < BYTES / 8, "{read} bytes were read for ten");
    assert_eq!(accelerator.stat().count("requests.wide_ranges"), 1);
}
