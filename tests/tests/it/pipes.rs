//! Row A16 of the features: WebSockets over HTTP/1.1 and over HTTP/2 streams, with a third-party client and
//! server; event streams and long polls, unbuffered.

use std::{
    future::Future,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    thread,
    time::Duration,
};

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use h2::{
    RecvStream, SendStream,
    client::{self, SendRequest},
    ext::Protocol,
};
use http::Request;
use rustix::process::Signal;
use tests::{
    Accelerator, Answer, Client, End, Gate, Next, PATIENCE, ScriptedOrigin, content::content, eventually,
    on_one_core, on_one_core_and_on_two,
};
use tokio::{net::TcpStream, runtime::Builder, time::timeout};
use tokio_tungstenite::{
    accept_async, client_async,
    tungstenite::{Message, handshake::derive_accept_key},
};

on_one_core! {
    a16_a_websocket_is_spoken_through,
    a16_a_websocket_is_spoken_through_a_stream,
    a16_nothing_goes_on_before_the_origin_has_switched,
    a16_an_origin_may_refuse_the_upgrade,
    a16_only_a_websocket_is_switched_to,
    a16_who_does_not_read_holds_the_other_back,
    a16_a_pipe_ends_when_idle_or_closed,
    a16_events_come_one_by_one,
    a_quiet_event_stream_outlives_a_stalled_body,
}

on_one_core_and_on_two! {
    a16_pipes_are_limited_and_pages_still_served,
    a16_a_drain_ends_them,
}

/// Runs a future on the test's own thread, for [`PATIENCE`] at most.
fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { timeout(PATIENCE, future).await.expect("it comes to its end") })
}

/// Starts a WebSocket server that echoes each message; the server runs as long as the test.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    listener.set_nonblocking(true).expect("set");
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let Ok(mut socket) = accept_async(stream).await else { return };
                    while let Some(Ok(message)) = socket.next().await {
                        if message.is_text() || message.is_binary() {
                            let _ = socket.send(message).await;
                        }
                    }
                });
            }
        });
    });
    address
}

fn before(origin: SocketAddr, cores: &str) -> Accelerator {
    Accelerator::before(&format!("http://{origin}")).flag("--cores", cores).start()
}

fn a16_a_websocket_is_spoken_through(cores: &str) {
    let accelerator = before(echo(), cores);
    run(async {
        for round in 0..3 {
            let stream = TcpStream::connect(accelerator.address()).await.expect("connected");
            let (mut socket, answer) = client_async("ws://site.test/chat", stream).await.expect("switched");
            assert_eq!(answer.status(), 101);
            for bytes in [0, 1, 125, 70_000, 1_000_000] {
                let sent = Message::binary(content(round, 0, bytes));
                socket.send(sent.clone()).await.expect("it reads");
                assert_eq!(socket.next().await.expect("it answers").expect("a message"), sent);
            }
            socket.send(Message::Ping(Bytes::from_static(b"there?"))).await.expect("it reads");
            let pong = socket.next().await.expect("it answers").expect("a message");
            assert_eq!(pong, Message::Pong(Bytes::from_static(b"there?")));
            socket.close(None).await.expect("it reads");
            while let Some(Ok(_)) = socket.next().await {}
        }
    });
    assert_eq!(accelerator.stat().count("requests.pipes"), 3);
    eventually("all are closed", || accelerator.stat().count("requests.pipes_open") == 0);
    let explained = accelerator.ask(&[
        "explain",
        "-H",
        "Connection: Upgrade",
        "-H",
        "Upgrade: websocket",
        "http://site.test/chat",
    ]);
    assert!(String::from_utf8_lossy(&explained.stdout).contains("WebSocket"), "{explained:?}");
}

async fn http2(accelerator: &Accelerator) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(accelerator.address()).await.expect("connected");
    let (sender, connection) = client::handshake(stream).await.expect("a connection");
    tokio::spawn(connection);
    let sender = sender.ready().await.expect("ready");
    eventually_offered(&sender).await;
    sender
}

/// Waits until the client has read our SETTINGS.
async fn eventually_offered(sender: &SendRequest<Bytes>) {
    while !sender.is_extended_connect_protocol_enabled() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Sends an extended CONNECT for another protocol on a stream (RFC 8441).
async fn connect(
    sender: &SendRequest<Bytes>,
    path: &str,
    protocol: &'static str,
) -> (u16, RecvStream, SendStream<Bytes>) {
    let mut request = Request::connect(format!("http://site.test{path}"));
    request.extensions_mut().expect("a request").insert(Protocol::from_static(protocol));
    let request = request.header("sec-websocket-version", "13").body(()).expect("a request");
    let mut sender = sender.clone().ready().await.expect("room");
    let (answer, sending) = sender.send_request(request, false).expect("sent");
    let answer = answer.await.expect("an answer");
    assert_eq!(answer.headers().get("sec-websocket-accept"), None);
    let status = answer.status().as_u16();
    (status, answer.into_body(), sending)
}

/// Text frame from a client, with a masking key of zeros (RFC 6455 §5.2).
fn masked(text: &[u8]) -> Vec<u8> {
    [&[0x81, 0x80 | u8::try_from(text.len()).expect("short"), 0, 0, 0, 0][..], text].concat()
}

/// Text frame from a server.
fn unmasked(text: &[u8]) -> Vec<u8> {
    [&[0x81, u8::try_from(text.len()).expect("short")][..], text].concat()
}

/// Reads `bytes` bytes of a stream.
async fn take(receiving: &mut RecvStream, bytes: usize) -> Vec<u8> {
    let mut taken = Vec::new();
    while taken.len() < bytes {
        let piece = receiving.data().await.expect("there is more").expect("content");
        receiving.flow_control().release_capacity(piece.len()).expect("released");
        taken.extend_from_slice(&piece);
    }
    taken
}

fn a16_a_websocket_is_spoken_through_a_stream(cores: &str) {
    let accelerator = before(echo(), cores);
    run(async {
        let sender = http2(&accelerator).await;
        let mut open = Vec::new();
        for number in 0..5 {
            let (status, receiving, sending) = connect(&sender, &format!("/{number}"), "websocket").await;
            assert_eq!(status, 200);
            open.push((receiving, sending));
        }
        for (number, (receiving, sending)) in open.iter_mut().enumerate().rev() {
            for said in [format!("hello from {number}"), "again".to_owned()] {
                sending.send_data(masked(said.as_bytes()).into(), false).expect("sent");
                let answer = unmasked(said.as_bytes());
                assert_eq!(take(receiving, answer.len()).await, answer);
            }
        }
        // A WebSocket close frame: the server answers it, and then closes.
        let (receiving, sending) = &mut open[0];
        sending.send_data(Bytes::from_static(&[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8]), false).expect("sent");
        assert_eq!(take(receiving, 4).await, [0x88, 2, 0x03, 0xe8]);
        let last = receiving.data().await.map(|piece| piece.expect("content"));
        assert!(last.is_none_or(|piece| piece.is_empty()) && receiving.is_end_stream());
        // The client resets a stream.
        open[1].1.send_reset(h2::Reason::CANCEL);
        drop(open);
        // The connection's task must run meanwhile, so that the resets are sent.
        while accelerator.stat().count("requests.pipes_open") > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert_eq!(accelerator.stat().count("requests.pipes"), 5);
}

/// The 101 answer to a request with this key.
fn switched(key: &str) -> Vec<u8> {
    let accept = derive_accept_key(key.as_bytes());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\nX-Hop: 1\r\n\r\n"
    )
    .into_bytes()
}

const UPGRADE: &str = "Host: site.test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fn asking(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\n{UPGRADE}").into_bytes()
}

/// Starts an origin that switches protocols and echoes all bytes.
fn switching() -> ScriptedOrigin {
    let origin = ScriptedOrigin::start();
    origin.on("/echo", |request, reply| {
        reply.send(&switched(request.header("sec-websocket-key").unwrap_or_default()))?;
        let mut room = [0; 4096];
        loop {
            match reply.receive(&mut room)? {
                0 => return Ok(Next::Close),
                came => reply.send(&room[..came])?,
            }
        }
    });
    origin
}

fn a16_nothing_goes_on_before_the_origin_has_switched(cores: &str) {
    let origin = ScriptedOrigin::start();
    let (asked, answer) = (Gate::new(), Gate::new());
    let gates = (asked.clone(), answer.clone());
    origin.on("/", move |request, reply| {
        gates.0.open();
        gates.1.pass();
        reply.send(&switched(request.header("sec-websocket-key").unwrap_or_default()))?;
        // Bytes that are not HTTP follow at once.
        reply.send(b"first")?;
        let mut room = [0; 4096];
        let came = reply.receive(&mut room)?;
        reply.send(&room[..came])?;
        Ok(Next::Close)
    });
    let accelerator = before(origin.address(), cores);
    let mut client = accelerator.connect();
    client.send(&[&asking("/")[..], b"GET /smuggled HTTP/1.1\r\nHost: site.test\r\n\r\n"].concat());
    asked.pass();
    assert!(client.silent_for(Duration::from_millis(100)));
    assert_eq!(origin.all_seen().len(), 1);
    answer.open();
    let head = client.head("GET");
    assert_eq!(head.status, 101);
    let said: Vec<_> = ["connection", "upgrade", "x-hop"].map(|name| head.headers.joined(name)).into();
    assert_eq!(said, ["Upgrade", "websocket", "1"]);
    let (_, rest) = client.until_closed();
    assert_eq!(rest, b"firstGET /smuggled HTTP/1.1\r\nHost: site.test\r\n\r\n", "as bytes, after the 101");
    let seen = origin.all_seen();
    assert_eq!((seen.len(), seen[0].header("upgrade")), (1, Some("websocket")));
    assert_eq!(seen[0].header("connection"), Some("Upgrade"));
}

fn a16_an_origin_may_refuse_the_upgrade(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.answers("/refused", Answer::new(403, "no"));
    origin.answers("/plain", Answer::new(200, "a page").header("Cache-Control", "no-store"));
    origin.sends(
        "/other",
        "HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
        Next::Close,
    );
    origin.on("/forged", |_, reply| {
        reply.send(&switched("AAAAAAAAAAAAAAAAAAAAAA=="))?;
        Ok(reply.stall())
    });
    let accelerator = before(origin.address(), cores);
    let mut client = accelerator.connect();
    for (path, status, text) in [("/refused", 403, "no"), ("/plain", 200, "a page")] {
        client.send(&asking(path));
        assert_eq!(client.response("GET").expect_status(status).text(), text);
    }
    client.send(&asking("/other"));
    client.response("GET").expect_status(502);
    run(async {
        let sender = http2(&accelerator).await;
        // A 2xx status would say that the stream now speaks the protocol.
        for (path, status) in [("/refused", 403), ("/plain", 502), ("/other", 502), ("/forged", 502)] {
            assert_eq!(connect(&sender, path, "websocket").await.0, status, "{path}");
        }
    });
    assert_eq!(accelerator.stat().count("requests.pipes"), 0);
}

fn a16_only_a_websocket_is_switched_to(cores: &str) {
    let origin = switching();
    origin.answers("/page", Answer::new(200, "a page").header("Cache-Control", "max-age=600"));
    let accelerator = before(origin.address(), cores);
    for upgrade in ["Upgrade: h2c", "Upgrade: websocket, h2c", "Upgrade: websocket\r\nUpgrade: h2c"] {
        let mut client = accelerator.connect();
        let head =
            format!("GET /page HTTP/1.1\r\nHost: site.test\r\nConnection: Upgrade\r\n{upgrade}\r\n\r\n");
        client.send(head.as_bytes());
        client.response("GET").expect_status(200);
    }
    // A request with a body, or without `Connection: Upgrade`, is an ordinary request.
    for head in [
        "GET /echo HTTP/1.1\r\nHost: site.test\r\nUpgrade: websocket\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: site.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n\r\nx",
    ] {
        let mut client = accelerator.connect();
        client.send(head.as_bytes());
        client.response("GET").expect_status(502);
        assert_eq!(origin.seen("/echo").pop().expect("it was asked").header("upgrade"), None);
    }
    run(async {
        let sender = http2(&accelerator).await;
        for protocol in ["h2c", "connect-udp"] {
            assert_eq!(connect(&sender, "/page", protocol).await.0, 501, "{protocol}");
        }
    });
    let mut client = accelerator.connect();
    client.send(b"CONNECT site.test:80 HTTP/1.1\r\nHost: site.test:80\r\n\r\n");
    client.response("GET").expect_status(501);
    assert_eq!(accelerator.stat().count("requests.pipes"), 0);
}

fn opened(accelerator: &Accelerator, path: &str) -> Client {
    let mut client = accelerator.connect();
    client.send(&asking(path));
    assert_eq!(client.head("GET").status, 101);
    client
}

fn a16_who_does_not_read_holds_the_other_back(cores: &str) {
    const ALL: usize = 64 << 20;
    let origin = ScriptedOrigin::start();
    let go = Gate::new();
    let gate = go.clone();
    origin.on("/slow", move |request, reply| {
        reply.send(&switched(request.header("sec-websocket-key").unwrap_or_default()))?;
        gate.pass();
        let (mut room, mut all) = (vec![0; 1 << 16], Vec::new());
        while all.len() < ALL {
            match reply.receive(&mut room)? {
                0 => break,
                came => all.extend_from_slice(&room[..came]),
            }
        }
        let is_whole = all == content(1, 0, ALL);
        reply.send(if is_whole { b"whole" } else { b"wrong" })?;
        Ok(Next::Close)
    });
    let accelerator = before(origin.address(), cores);
    let client = opened(&accelerator, "/slow");
    let mut stream = client.stream().try_clone().expect("a second handle");
    let all = content(1, 0, ALL);
    stream.set_write_timeout(Some(Duration::from_millis(300))).expect("a time");
    let mut sent = 0;
    while let Ok(bytes) = stream.write(&all[sent..]) {
        sent += bytes;
    }
    assert!(sent < ALL / 2, "{sent} bytes were taken although nobody reads them");
    go.open();
    stream.set_write_timeout(None).expect("no time");
    stream.write_all(&all[sent..]).expect("all is taken now");
    let mut said = String::new();
    stream.read_to_string(&mut said).expect("it says what it has");
    assert_eq!(said, "whole");
}

fn a16_a_pipe_ends_when_idle_or_closed(cores: &str) {
    let origin = switching();
    origin.on("/ends", |request, reply| {
        reply.send(&switched(request.header("sec-websocket-key").unwrap_or_default()))?;
        reply.send(b"bye")?;
        Ok(Next::Close)
    });
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .limit("pipe_idle_time_max", "1500ms")
        .start();
    let mut client = opened(&accelerator, "/ends");
    assert_eq!(client.until_closed().1, b"bye");
    let mut client = opened(&accelerator, "/echo");
    for _ in 0..4 {
        client.send(b"busy");
        assert_eq!(client.exactly(4), b"busy");
        thread::sleep(Duration::from_millis(600));
    }
    assert_eq!(accelerator.stat().count("limits.pipe_idle_time"), 0);
    let (_, rest) = client.until_closed();
    assert!(rest.is_empty());
    assert_eq!(accelerator.stat().count("limits.pipe_idle_time"), 1);
    eventually("none is open", || accelerator.stat().count("requests.pipes_open") == 0);
}

fn a16_pipes_are_limited_and_pages_still_served(cores: &str) {
    let origin = switching();
    origin.answers("/page", Answer::new(200, "a page").header("Cache-Control", "no-store"));
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .limit("origin_lasting_max", "2")
        .limit("origin_connections_max", "4")
        .start();
    let most = 2 * cores.split(',').count();
    let mut open = Vec::new();
    let mut refused = 0;
    for _ in 0..3 * most {
        let mut client = accelerator.connect();
        client.send(&asking("/echo"));
        match client.head("GET").status {
            101 => open.push(client),
            503 => refused += 1,
            other => panic!("{other}"),
        }
    }
    assert!(open.len() <= most && refused >= 2 * most, "{} are open", open.len());
    assert_eq!(accelerator.stat().count("limits.pipes"), refused as u64);
    for _ in 0..20 {
        accelerator.get("/page").expect_status(200);
    }
    drop(open);
    eventually("there is room again", || {
        let mut client = accelerator.connect();
        client.send(&asking("/echo"));
        client.head("GET").status == 101
    });
}

fn a16_a_drain_ends_them(cores: &str) {
    let origin = switching();
    let mut accelerator = before(origin.address(), cores);
    let mut client = opened(&accelerator, "/echo");
    client.send(b"there");
    assert_eq!(client.exactly(5), b"there");
    accelerator.signal(Signal::TERM);
    assert!(client.until_closed().1.is_empty());
    assert!(accelerator.wait().success());
}

/// An event stream that is silent for longer than a body may pause stays open: it began before the stalled
/// body, which is cut.
fn a_quiet_event_stream_outlives_a_stalled_body(cores: &str) {
    let origin = ScriptedOrigin::start();
    let gate = Gate::new();
    let held = gate.clone();
    origin.on("/events", move |_, reply| {
        reply
            .send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\r\n")?;
        held.pass();
        reply.send(b"data: late\n\n")?;
        Ok(Next::Close)
    });
    origin.on("/stalled", |_, reply| {
        reply.send(b"HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 100\r\n\r\nbegun")?;
        reply.stall();
        Ok(Next::Close)
    });
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .limit("origin_between_bytes_time_max", "200ms")
        .start();
    let mut events = accelerator.connect();
    events.send(b"GET /events HTTP/1.1\r\nHost: site.test\r\nAccept: text/event-stream\r\n\r\n");
    assert_eq!(events.head("GET").status, 200);
    for _ in 0..2 {
        assert_ne!(accelerator.get("/stalled").end, End::Complete);
    }
    gate.open();
    assert_eq!(events.body_exactly(12), b"data: late\n\n");
}

fn a16_events_come_one_by_one(cores: &str) {
    let origin = ScriptedOrigin::start();
    let gates = [Gate::new(), Gate::new(), Gate::new()];
    let held = gates.clone();
    origin.on("/events", move |_, reply| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\
                    Connection: close\r\n\r\n";
        reply.send(head.as_bytes())?;
        for (number, gate) in held.iter().enumerate() {
            gate.pass();
            reply.send(format!("data: {number}\n\n").as_bytes())?;
        }
        Ok(Next::Close)
    });
    let accelerator = before(origin.address(), cores);
    let mut client = accelerator.connect();
    client.send(b"GET /events HTTP/1.1\r\nHost: site.test\r\nAccept: text/event-stream\r\n\r\n");
    assert_eq!(client.head("GET").status, 200, "before the first event");
    for (number, gate) in gates.iter().enumerate() {
        gate.open();
        let event = format!("data: {number}\n\n");
        assert_eq!(client.body_exactly(event.len()), event.as_bytes());
    }
}
