//! Clients that send nonsense, too much, too slowly or too cunningly. Each gets one clear answer or a closed
//! connection, a counter moves, the origin gets no request, and other clients are served as before. Ambiguous
//! or broken heads and bodies are in `tests/corpus/`.

use std::{thread, time::Duration};

use tests::{
    Accelerator, Answer, Client, End, Next, Request, ScriptedOrigin, connections::connect_from,
    content::content, eventually, on_one_core, on_one_core_and_on_two,
};

on_one_core! {
    an_incomplete_request_gets_408_and_is_closed,
    a_request_that_drips_is_told_and_closed,
    a_connection_that_says_nothing_is_closed,
    too_long_a_request_line_is_told,
    too_long_a_head_is_told,
    what_is_no_http_is_refused,
    too_long_a_body_is_told,
    methods_that_are_not_ours_are_told,
    ten_thousand_pipelined_requests_are_answered_in_order,
    a_client_that_never_reads_costs_bounded_memory,
}

on_one_core_and_on_two! {
    connections_beyond_the_limit_are_told,
    connections_beyond_a_clients_share_are_closed,
    connections_beyond_the_limit_do_not_pile_up,
    clients_that_leave_at_any_moment_harm_nobody,
}

const WELL: &str = "/well";

fn origin() -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    origin.answers(WELL, Answer::new(200, "well").header("Cache-Control", "max-age=600"));
    origin.on("/upload", |request, reply| reply.answer(&Answer::new(200, request.body.len().to_string())));
    origin
}

fn start(origin: &ScriptedOrigin, cores: &str) -> Accelerator {
    Accelerator::before(&origin.url()).flag("--cores", cores).start()
}

#[track_caller]
fn expect_well(accelerator: &Accelerator) {
    assert_eq!(accelerator.get(WELL).expect_status(200).text(), "well");
}

fn an_incomplete_request_gets_408_and_is_closed(cores: &str) {
    let origin = origin();
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .limit("request_head_time_max", "300ms")
        .start();
    for half in
        ["G", "GET /well HTTP/1.1\r\nHost: site.test\r\n", "GET /well HTTP/1.1\r\nHost: site.test\r\n\r"]
    {
        let counted = accelerator.stat().count("limits.request_head_time");
        let mut client = accelerator.connect();
        client.send(half.as_bytes());
        client.response("GET").expect_refusal(408);
        assert_eq!(client.until_closed().0, End::Closed);
        assert!(accelerator.stat().count("limits.request_head_time") > counted, "{half:?}");
    }
    // The second request of a connection has the same time limit as the first.
    let mut client = accelerator.connect();
    client.get(WELL).expect_status(200);
    client.send(b"GET /well HT");
    client.response("GET").expect_refusal(408);
    assert_eq!(client.until_closed().0, End::Closed);
    // Half a request followed by FIN needs no answer.
    let mut client = accelerator.connect();
    client.send(b"GET /well HT");
    client.finish_sending();
    client.until_closed();
    expect_well(&accelerator);
}

fn a_request_that_drips_is_told_and_closed(cores: &str) {
    let origin = origin();
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .limit("request_head_time_max", "300ms")
        .start();
    // Ten clients at once, a byte every 20 ms: never silent, never complete.
    let mut clients: Vec<Client> = (0..10).map(|_| accelerator.connect()).collect();
    let mut taken: Vec<bool> = vec![true; clients.len()];
    clients.iter_mut().for_each(|client| client.send(b"GET /well HTTP/1.1\r\nX-Drip: "));
    eventually("every dripping client is shut out", || {
        for (client, taken) in clients.iter_mut().zip(&mut taken) {
            *taken = *taken && client.silent_for(Duration::from_millis(2)) && client.try_send(b"a").is_ok();
        }
        !taken.contains(&true)
    });
    for client in &mut clients {
        // The answer may be lost to a reset, if a byte is sent after the close; the connection is closed in
        // any case.
        let (_, said) = client.until_closed();
        assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 408 "), "{}", said.escape_ascii());
    }
    assert!(accelerator.stat().count("limits.request_head_time") >= 10);
    expect_well(&accelerator);
}

fn a_connection_that_says_nothing_is_closed(cores: &str) {
    let origin = origin();
    let accelerator =
        Accelerator::before(&origin.url()).flag("--cores", cores).limit("idle_time_max", "300ms").start();
    let mut silent = accelerator.connect();
    let mut kept = accelerator.connect();
    kept.get(WELL).expect_status(200);
    for client in [&mut silent, &mut kept] {
        // There was no request, so there is no answer.
        assert_eq!(client.until_closed(), (End::Closed, Vec::new()));
    }
    expect_well(&accelerator);
}

fn too_long_a_request_line_is_told(cores: &str) {
    let origin = origin();
    let accelerator = start(&origin, cores);
    for length in [64 << 10, 1 << 20] {
        let counted = accelerator.stat().count("limits.request_head_bytes");
        let mut client = accelerator.connect();
        let line = format!("GET /{} HTTP/1.1\r\nHost: site.test\r\n\r\n", "a".repeat(length));
        // The request may be refused before all of it is sent.
        let _ = client.try_send(line.as_bytes());
        client.response("GET").expect_refusal(414);
        client.until_closed();
        assert!(accelerator.stat().count("limits.request_head_bytes") > counted);
    }
    expect_well(&accelerator);
    assert_eq!(origin.all_seen().len(), 1, "the origin heard of the good one only");
}

fn too_long_a_head_is_told(cores: &str) {
    let origin = origin();
    let accelerator = start(&origin, cores);
    let many: String = (0..20_000).map(|number| format!("X-{number}: x\r\n")).collect();
    let one = format!("X-Long: {}\r\n", "a".repeat(64 << 10));
    let hundred = format!("Cookie: {}\r\n", "a".repeat(64 << 10)).repeat(100);
    for fields in [many, one, hundred] {
        let counted = accelerator.stat().count("limits.request_head_bytes");
        let mut client = accelerator.connect();
        let _ = client.try_send(format!("GET {WELL} HTTP/1.1\r\nHost: site.test\r\n{fields}\r\n").as_bytes());
        client.response("GET").expect_refusal(431);
        client.until_closed();
        assert!(accelerator.stat().count("limits.request_head_bytes") > counted);
    }
    assert!(origin.all_seen().is_empty());
    // A large head within 32 KiB is accepted, on a miss and on a hit.
    for _ in 0..2 {
        accelerator.fetch(&Request::get(WELL).header("Cookie", &"a".repeat(30 << 10))).expect_status(200);
    }
}

fn what_is_no_http_is_refused(cores: &str) {
    let origin = origin();
    let accelerator = start(&origin, cores);
    let hello: Vec<u8> =
        [&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03][..], &content(1, 0, 500)]
            .concat();
    for (name, bytes) in [
        ("TLS", hello),
        ("HTTP/2 of another kind", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n".to_vec()),
        ("SSH", b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
        ("SMTP", b"EHLO example.com\r\n\r\n".to_vec()),
        ("zeros", vec![0; 1000]),
        ("noise", content(2, 0, 1000)),
        ("the PROXY protocol", b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\nGET / HTTP/1.1\r\n\r\n".to_vec()),
    ] {
        let counted = accelerator.stat().count("errors.bad_requests");
        let mut client = accelerator.connect();
        client.send(&bytes);
        client.finish_sending();
        let (_, said) = client.until_closed();
        let refused = said.starts_with(b"HTTP/1.1 400 ") || said.starts_with(b"HTTP/1.1 505 ");
        assert!(refused, "{name}: {}", said.escape_ascii());
        assert!(accelerator.stat().count("errors.bad_requests") > counted, "not counted: {name}");
    }
    expect_well(&accelerator);
    assert_eq!(origin.all_seen().len(), 1);
}

fn too_long_a_body_is_told(cores: &str) {
    let origin = origin();
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .limit("request_body_bytes_max", "1MiB")
        .start();
    let counted = || accelerator.stat().count("limits.request_body_bytes");
    let mut client = accelerator.connect();
    // A body whose declared length is too large is refused at once, whether or not the client waits for 100
    // Continue.
    for (number, expect) in ["", "Expect: 100-continue\r\n"].into_iter().enumerate() {
        let mut client = accelerator.connect();
        let head =
            format!("POST /upload HTTP/1.1\r\nHost: site.test\r\nContent-Length: 1048577\r\n{expect}\r\n");
        client.send(head.as_bytes());
        let response = client.response("POST").expect_refusal(413);
        assert!(response.interim.is_empty(), "not told to go on, and then refused");
        assert!(counted() > number as u64);
    }
    // A chunked body shows its size only as it arrives.
    let piece = content(1, 0, 64 << 10);
    let pieces: Vec<&[u8]> = vec![&piece; 17];
    let mut chunking = accelerator.connect();
    let _ = chunking.try_send(&Request::new("POST", "/upload").chunked(&pieces).bytes());
    chunking.response("POST").expect_refusal(413);
    assert!(counted() >= 3);
    assert_eq!(origin.count("/upload"), 0, "the origin got none of them whole");
    // A body just within the limit passes, with a declared length or in chunks.
    let whole = content(1, 0, 1 << 20);
    for request in
        [Request::new("POST", "/upload").body(&whole), Request::new("POST", "/upload").chunked(&pieces[..16])]
    {
        assert_eq!(client.exchange(&request).expect_status(200).text(), "1048576");
    }
}

fn methods_that_are_not_ours_are_told(cores: &str) {
    let origin = origin();
    let accelerator = start(&origin, cores);
    let mut client = accelerator.connect();
    client.send(b"CONNECT site.test:443 HTTP/1.1\r\nHost: site.test:443\r\nAccept: application/json\r\n\r\n");
    client.response("CONNECT").expect_fault(501, "client", "method-not-implemented");
    let trace = Request::new("TRACE", WELL).accepting_json();
    let told = accelerator.fetch(&trace).expect_fault(405, "client", "method-not-allowed");
    assert!(told.header("allow").is_some(), "RFC 9110 §15.5.6");
    assert!(origin.all_seen().is_empty());
    // Unknown methods are passed to the origin.
    origin.on("/thing", |request, reply| reply.answer(&Answer::new(200, &request.method)));
    for method in ["BREW", "PROPFIND", "M-SEARCH", "get"] {
        let response = accelerator.fetch(&Request::new(method, "/thing")).expect_status(200);
        assert_eq!(response.text(), method);
    }
}

fn ten_thousand_pipelined_requests_are_answered_in_order(cores: &str) {
    const REQUESTS: usize = 10_000;
    let origin = origin();
    for number in 0..100 {
        let path = format!("/page/{number}");
        origin.answers(&path, Answer::new(200, &path).header("Cache-Control", "max-age=600"));
    }
    let accelerator = start(&origin, cores);
    // The first hundred requests are misses, the others hits. 37 and 100 have no common factor, so the order
    // is thoroughly mixed.
    let path = |request: usize| format!("/page/{}", request * 37 % 100);
    let mut client = accelerator.connect();
    let mut sender = client.stream().try_clone().expect("a socket can be shared");
    thread::scope(|scope| {
        scope.spawn(move || {
            use std::io::Write;
            let all: Vec<u8> =
                (0..REQUESTS).flat_map(|request| Request::get(&path(request)).bytes()).collect();
            sender.write_all(&all).expect("the server goes on reading");
        });
        for request in 0..REQUESTS {
            assert_eq!(client.response("GET").expect_status(200).text(), path(request), "request {request}");
        }
    });
    assert_eq!(origin.all_seen().len(), 100);
    assert!(accelerator.stat().count("requests.hits") >= (REQUESTS - 100) as u64);
}

fn a_client_that_never_reads_costs_bounded_memory(cores: &str) {
    let origin = origin();
    let large = content(1, 0, 1 << 20);
    origin.answers("/large", Answer::new(200, &large).header("Cache-Control", "max-age=600"));
    let accelerator = start(&origin, cores);
    accelerator.get("/large").expect_status(200);
    let before = resident_bytes(&accelerator);
    // Twenty clients request a gibibyte each and read none of it.
    let request = Request::get("/large").bytes();
    let mut greedy: Vec<Client> = (0..20).map(|_| accelerator.connect()).collect();
    for client in &mut greedy {
        client.stream().set_write_timeout(Some(Duration::from_millis(100))).expect("a positive timeout");
        // The server may stop reading before all requests are sent; it must not read and keep them all.
        let _ = client.try_send(&request.repeat(1000));
    }
    for _ in 0..10 {
        expect_well(&accelerator);
    }
    let growth = resident_bytes(&accelerator).saturating_sub(before);
    assert!(growth < 32 << 20, "{growth} bytes for clients that do not read");
    // The bytes that they read in the end are correct.
    let answer = greedy[0].response("GET").expect_status(200);
    assert!(answer.body == large);
}

/// Returns the process's resident memory, from `/proc/PID/status`.
fn resident_bytes(accelerator: &Accelerator) -> u64 {
    let path = format!("/proc/{}/status", accelerator.pid().as_raw_nonzero());
    let status = std::fs::read_to_string(path).expect("the process is running");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a process has a resident size");
    let kib: u64 =
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number of KiB");
    kib << 10
}

fn connections_beyond_the_limit_are_told(cores: &str) {
    let origin = origin();
    let most = 4 * cores.split(',').count();
    let accelerator =
        Accelerator::before(&origin.url()).flag("--cores", cores).limit("connections_max", "4").start();
    let mut kept = Vec::new();
    // Connections are spread over the cores, so one core may be full before another.
    let mut refused = 0;
    while refused < 5 {
        let mut client = accelerator.connect();
        // A refused connection is refused before its request arrives.
        client.send(&Request::get(WELL).bytes());
        match client.try_response("GET") {
            Some(response) if response.status() == 200 => kept.push(client),
            Some(response) => {
                response.expect_refusal(503);
                client.until_closed();
                refused += 1;
            }
            // The refusal was lost to a reset, but the connection was refused all the same.
            None => refused += 1,
        }
        assert!(kept.len() <= most, "{} connections, {most} are allowed", kept.len());
    }
    assert!(accelerator.stat().count("limits.connections") >= 5);
    // Accepted clients are served, and when they leave, new ones are accepted.
    for client in &mut kept {
        client.get(WELL).expect_status(200);
    }
    drop(kept);
    eventually("there is room again", || {
        let mut client = accelerator.connect();
        client.send(&Request::get(WELL).bytes());
        client.try_response("GET").is_some_and(|response| response.status() == 200)
    });
}

fn connections_beyond_a_clients_share_are_closed(cores: &str) {
    let origin = origin();
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .limit("connections_per_client_max", "3")
        .start();
    let mut kept: Vec<Client> = (0..3).map(|_| accelerator.connect()).collect();
    for client in &mut kept {
        client.get(WELL).expect_status(200);
    }
    for refused in 1..=3 {
        let mut client = accelerator.connect();
        let _ = client.try_send(&Request::get(WELL).bytes());
        let (_, said) = client.until_closed();
        assert!(!said.starts_with(b"HTTP/1.1 200 "), "{}", said.escape_ascii());
        assert!(accelerator.stat().count("limits.connections_per_client") >= refused);
    }
    // Another client has a share of its own.
    let other = connect_from([127, 0, 0, 2], accelerator.address()).expect("the server listens");
    Client::over(other).expect("a socket").get(WELL).expect_status(200);
    drop(kept);
    eventually("there is room again", || {
        let mut client = accelerator.connect();
        client.send(&Request::get(WELL).bytes());
        client.try_response("GET").is_some_and(|response| response.status() == 200)
    });
}

/// Connections beyond the limit may be answered with a refusal, but each takes a socket until it is closed:
/// they must not fill the process's descriptor table.
fn connections_beyond_the_limit_do_not_pile_up(cores: &str) {
    const CROWD: usize = 800;
    let origin = origin();
    let accelerator =
        Accelerator::before(&origin.url()).flag("--cores", cores).limit("connections_max", "1").start();
    let loops = cores.split(',').count();
    let idle = open_files(&accelerator);
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        crowd.push(accelerator.connect());
    }
    let at_most = CROWD - 2 * loops;
    eventually("all are counted", || accelerator.stat().count("limits.connections") >= at_most as u64);
    let open = open_files(&accelerator) - idle;
    assert!(open <= 300 * loops, "{open} sockets for {CROWD} connections where {loops} are allowed");
    // The refused clients neither send nor leave, and their connections are closed all the same.
    eventually("nobody is left but who is served", || open_files(&accelerator) <= idle + loops + 1);
}

fn open_files(accelerator: &Accelerator) -> usize {
    let path = format!("/proc/{}/fd", accelerator.pid().as_raw_nonzero());
    std::fs::read_dir(path).expect("the process is running").count()
}

fn clients_that_leave_at_any_moment_harm_nobody(cores: &str) {
    let origin = origin();
    let body = content(1, 0, 4 << 20);
    origin.answers("/large", Answer::new(200, &body).header("Cache-Control", "max-age=600"));
    origin.sends(
        "/passed",
        Answer::new(200, &body).header("Cache-Control", "no-store").bytes("GET"),
        Next::KeepAlive,
    );
    let accelerator = start(&origin, cores);
    let post = Request::new("POST", "/upload").body(&content(1, 0, 1 << 20)).bytes();
    for reset in [false, true] {
        let leave = |client: Client| {
            if reset {
                let socket = socket2::SockRef::from(client.stream());
                socket.set_linger(Some(Duration::ZERO)).expect("a socket may be reset");
            }
        };
        for path in ["/large", "/passed"] {
            for read in [0, 1, 1000, 100_000, 1 << 20, 3 << 20] {
                let mut client = accelerator.connect();
                client.send(&Request::get(path).bytes());
                if read > 0 {
                    client.head("GET");
                    client.body_exactly(read);
                }
                leave(client);
            }
        }
        for sent in [1, 20, 100, 1000, 500_000, post.len() - 1, post.len()] {
            let mut client = accelerator.connect();
            client.send(&post[..sent]);
            leave(client);
        }
        expect_well(&accelerator);
    }
    let response = accelerator.get("/large").expect_status(200);
    assert!(response.body == body);
    // All store memory that was pinned for the clients is released.
    eventually("nothing is pinned", || accelerator.stat().count("store.pinned_bytes") == 0);
    eventually("nobody is connected", || accelerator.stat().count("requests.connections") == 0);
}
