//! Tests of exchanges whose client leaves, and of exchanges in which request and answer overlap. The sockets
//! are real. The loop is the test's own, and the tests count its turns where something must happen at once.

use std::{
    net::SocketAddr,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use bytes::Bytes;
use engine::cores::{mesh::Receiver, watch::Watch};
use http::Request;
use socket2::SockRef;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{
    client::{http1, http2, transport::Transport},
    config::{Config, Origin},
    core::{Message, test_core, with_core},
    deliver::downstream::WithoutBody,
    fetch::{self, in_flight::FetchTerms},
    request::{client_ip::Peer, test_requests},
};

/// Turns of the loop that still count as "at once": many, because a busy kernel may deliver a FIN late.
const TURNS_AT_ONCE: usize = 20_000;
/// Turns of the loop after which a test concludes that something does not happen.
const TURNS_NEVER: usize = 500;

/// An accelerator on this thread, and its origin.
struct Scene {
    origin: TcpListener,
    clients: TcpListener,
    _inbox: Vec<Receiver<Message>>,
}

impl Scene {
    async fn new() -> Self {
        Self::with(|_| ()).await
    }

    async fn with(set: impl FnOnce(&mut Config)) -> Self {
        let origin = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let clients = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = origin.local_addr().expect("bound").port();
        let mut config = Config::new(Origin::http("127.0.0.1", port));
        set(&mut config);
        let _inbox = test_core::install_with(config, 1, 16);
        Self { origin, clients, _inbox }
    }

    /// Connects a client and starts to serve it.
    async fn client(&self) -> TcpStream {
        let address: SocketAddr = self.clients.local_addr().expect("bound");
        let client = TcpStream::connect(address).await.expect("connected");
        let (served, from) = self.clients.accept().await.expect("accepted");
        tokio::task::spawn_local(async move {
            let member = with_core(|core| core.clients.turns.join(from.ip()));
            let peer = Peer::new(from, false, &[]);
            let transport = Transport::plain(served);
            let watch = Watch::new();
            let serving = http1::serve(transport, Rc::clone(&watch), peer, Vec::new(), &member);
            if let Some((transport, early)) = Box::pin(serving).await {
                Box::pin(http2::serve(transport, watch, peer, early, &member)).await;
            }
        });
        client
    }

    /// Accepts the next request at the origin. Returns its connection, and the request up to the end of its
    /// head.
    async fn asked(&self) -> (TcpStream, String) {
        let (mut stream, _) = self.origin.accept().await.expect("asked");
        let head = until(&mut stream, "\r\n\r\n").await;
        (stream, head)
    }
}

/// Runs a test on a loop of its own.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(Default::default())
        .expect("a runtime");
    runtime.block_on(async {
        tokio::time::timeout(Duration::from_secs(60), test).await.expect("it comes to its end");
    });
}

/// Counts the turns of the loop until `is_so` holds; `None` if it does not hold within `most` turns.
async fn turns_until(most: usize, mut is_so: impl FnMut() -> bool) -> Option<usize> {
    for turn in 0..most {
        if is_so() {
            return Some(turn);
        }
        // The loop polls the sockets before the test continues.
        tokio::task::yield_now().await;
    }
    None
}

/// Returns whether the other side has ended the connection.
fn has_ended(stream: &TcpStream) -> bool {
    match stream.try_read(&mut [0; 64]) {
        Ok(bytes) => bytes == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

#[track_caller]
fn assert_at_once(turns: Option<usize>, what: &str) {
    assert!(turns.is_some(), "not within {TURNS_AT_ONCE} turns of the loop: {what}");
}

/// Reads until the text ends with `end`, and returns it.
async fn until(stream: &mut TcpStream, end: &str) -> String {
    let mut came = Vec::new();
    while !came.ends_with(end.as_bytes()) {
        let byte = stream.read_u8().await;
        match byte {
            Ok(byte) => came.push(byte),
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&came)),
        }
    }
    String::from_utf8(came).expect("text")
}

async fn send(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).await.expect("it is taken");
}

/// Sends the client's FIN.
async fn half_close(stream: &mut TcpStream) {
    stream.shutdown().await.expect("open");
}

fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("set");
    drop(stream);
}

fn get(path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n{more}\r\n")
}

fn post(path: &str, more: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: a.test\r\n{more}\r\n")
}

const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n";

/// The origin's connection ends as soon as the client has gone, although the origin sends nothing: for misses
/// and passes, for chunked answers and answers that end with the connection, with and without `no-store`.
#[test]
fn event_streams_end_at_their_clients_fin() {
    run(async {
        let scene = Scene::new().await;
        for (request, more, event) in [
            (get("/events", ""), "Cache-Control: no-store\r\n\r\n", "data: 1\n\n"),
            (get("/events", ""), "Transfer-Encoding: chunked\r\n\r\n", "9\r\ndata: 1\n\n\r\n"),
            (post("/events", "Content-Length: 0\r\n"), "Cache-Control: no-store\r\n\r\n", "data: 1\n\n"),
            (get("/events", "Authorization: Basic eDp5\r\n"), "\r\n", "data: 1\n\n"),
        ] {
            let mut client = scene.client().await;
            send(&mut client, &request).await;
            let (mut origin, _) = scene.asked().await;
            send(&mut origin, &format!("{EVENTS}{more}{event}")).await;
            until(&mut client, "data: 1\n\n").await;
            half_close(&mut client).await;
            let turns = turns_until(TURNS_AT_ONCE, || has_ended(&origin)).await;
            assert_at_once(turns, &format!("{request}{more}"));
        }
        // Only the head has been sent when the client resets or closes its connection.
        for is_reset in [true, false] {
            let mut client = scene.client().await;
            send(&mut client, &get("/silent", "")).await;
            let (mut origin, _) = scene.asked().await;
            send(&mut origin, &format!("{EVENTS}Cache-Control: no-store\r\n\r\n")).await;
            until(&mut client, "\r\n\r\n").await;
            if is_reset {
                reset(client)
            } else {
                drop(client)
            }
            assert_at_once(turns_until(TURNS_AT_ONCE, || has_ended(&origin)).await, "silent");
        }
    });
}

#[test]
fn waits_end_at_their_clients_fin() {
    run(async {
        let scene = Scene::new().await;
        let websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        for request in [
            get("/api/inboxes/ann/wait?timeout=60s", ""),
            get("/events", "Accept: text/event-stream\r\n"),
            get("/events", "Accept: text/html, Text/Event-Stream;q=0.5\r\nCookie: a=b\r\n"),
            get("/changes", "Prefer: respond-async, wait=60\r\n"),
            post("/api/inboxes/ann/wait", "Content-Length: 0\r\n"),
            get("/chat", websocket),
        ] {
            let mut client = scene.client().await;
            send(&mut client, &request).await;
            let (origin, _) = scene.asked().await;
            assert_eq!(turns_until(TURNS_NEVER, || has_ended(&origin)).await, None, "{request}");
            half_close(&mut client).await;
            let turns = turns_until(TURNS_AT_ONCE, || has_ended(&origin)).await;
            assert_at_once(turns, &request);
        }
    });
}

#[test]
fn half_closing_clients_get_their_answers() {
    run(async {
        let scene = Scene::new().await;
        for request in [
            get("/slow", ""),
            get("/slow", "Authorization: Basic eDp5\r\n"),
            post("/slow", "Content-Length: 2\r\n") + "hi",
            post("/slow", "Transfer-Encoding: chunked\r\n") + "2\r\nhi\r\n0\r\n\r\n",
        ] {
            let mut client = scene.client().await;
            send(&mut client, &request).await;
            half_close(&mut client).await;
            let (mut origin, _) = scene.asked().await;
            if request.starts_with("POST") {
                let end = if request.contains("chunked") { "0\r\n\r\n" } else { "hi" };
                until(&mut origin, end).await;
            }
            let turns = turns_until(TURNS_NEVER, || has_ended(&origin)).await;
            assert_eq!(turns, None, "{request}");
            send(&mut origin, "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\n\r\nsome, ").await;
            until(&mut client, "some, ").await;
            assert_eq!(turns_until(TURNS_NEVER, || has_ended(&origin)).await, None, "{request}");
            send(&mut origin, "and all").await;
            drop(origin);
            let mut rest = String::new();
            client.read_to_string(&mut rest).await.expect("whole");
            assert!(rest.contains("and all"), "{rest}");
        }
    });
}

#[test]
fn passed_exchanges_end_at_a_reset() {
    run(async {
        let scene = Scene::new().await;
        for is_answering in [false, true] {
            let mut client = scene.client().await;
            send(&mut client, &(post("/slow", "Content-Length: 2\r\n") + "hi")).await;
            let (mut origin, _) = scene.asked().await;
            until(&mut origin, "hi").await;
            if is_answering {
                send(&mut origin, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nsome").await;
                until(&mut client, "some").await;
            }
            reset(client);
            assert_at_once(turns_until(TURNS_AT_ONCE, || has_ended(&origin)).await, "reset");
        }
        // The client's FIN came long before its reset.
        let mut client = scene.client().await;
        send(&mut client, &(post("/slow", "Content-Length: 2\r\n") + "hi")).await;
        half_close(&mut client).await;
        let (origin, _) = scene.asked().await;
        turns_until(TURNS_NEVER, || false).await;
        reset(client);
        assert_at_once(turns_until(TURNS_AT_ONCE, || has_ended(&origin)).await, "FIN, then a reset");
    });
}

#[test]
fn stored_fetches_go_on_without_their_clients() {
    run(async {
        let scene = Scene::new().await;
        for (path, is_answering) in [("/a", false), ("/b", true)] {
            let mut client = scene.client().await;
            send(&mut client, &get(path, "")).await;
            let (mut origin, _) = scene.asked().await;
            let answer = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 9\r\n\r\nsome";
            if is_answering {
                send(&mut origin, answer).await;
                until(&mut client, "some").await;
            }
            reset(client);
            assert_eq!(turns_until(TURNS_NEVER, || has_ended(&origin)).await, None, "{path}");
            if !is_answering {
                send(&mut origin, answer).await;
            }
            send(&mut origin, "more.").await;
            let mut other = scene.client().await;
            send(&mut other, &get(path, "")).await;
            assert!(until(&mut other, "more.").await.starts_with("HTTP/1.1 200 OK"));
        }
    });
}

/// A fetch continues after the client that began it has gone, if a second client waits for the answer and the
/// answer turns out to be shareable.
#[test]
fn shared_fetches_go_on_for_who_waits() {
    run(async {
        let scene = Scene::new().await;
        let request = get("/maybe", "Accept: text/event-stream\r\n");
        let (mut first, mut second) = (scene.client().await, scene.client().await);
        send(&mut first, &request).await;
        let (mut origin, _) = scene.asked().await;
        send(&mut second, &request).await;
        turns_until(TURNS_NEVER, || false).await;
        half_close(&mut first).await;
        assert_eq!(turns_until(TURNS_NEVER, || has_ended(&origin)).await, None);
        send(&mut origin, "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 4\r\n\r\nboth")
            .await;
        until(&mut second, "both").await;
    });
}

/// A peer that reads none of its interim answers is not polled meanwhile; a visitor that joined its fetch is
/// answered all the same.
#[test]
fn a_peer_that_stops_reading_delays_nobody() {
    run(async {
        let scene = Scene::new().await;
        let text = get("/shared", "");
        let mut request = with_core(|core| {
            test_requests::request(&text, |key| core.storage.store.hash(key), &core.in_force)
        });
        request.is_of_peer = true;
        let request = Arc::new(request);
        let mut peer = WithoutBody(|_: &[u8]| ());
        let asking = pin!(fetch::ask(&request, FetchTerms::default(), &mut peer));
        assert!(asking.poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let (mut origin, _) = scene.asked().await;
        let mut visitor = scene.client().await;
        send(&mut visitor, &text).await;
        turns_until(TURNS_NEVER, || false).await;
        send(&mut origin, "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 4\r\n\r\nboth")
            .await;
        until(&mut visitor, "both").await;
    });
}

#[test]
fn sites_may_end_all_exchanges_at_a_fin() {
    run(async {
        let scene = Scene::with(|config| config.rules.ends_at_fin = true).await;
        let mut client = scene.client().await;
        send(&mut client, &(post("/slow", "Content-Length: 2\r\n") + "hi")).await;
        let (mut origin, _) = scene.asked().await;
        until(&mut origin, "hi").await;
        half_close(&mut client).await;
        assert_at_once(turns_until(TURNS_AT_ONCE, || has_ended(&origin)).await, "a site says so");
    });
}

/// Bytes that a client sends after a request that is still under way are read as its next requests.
#[test]
fn requests_behind_a_slow_one_are_answered() {
    run(async {
        let scene = Scene::new().await;
        let mut client = scene.client().await;
        send(&mut client, &get("/events", "")).await;
        let (mut origin, _) = scene.asked().await;
        send(&mut client, &get("/second", "")).await;
        turns_until(TURNS_NEVER, || false).await;
        send(&mut client, &get("/third", "Connection: close\r\n")).await;
        turns_until(TURNS_NEVER, || false).await;
        send(&mut origin, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst").await;
        until(&mut client, "first").await;
        let head = until(&mut origin, "\r\n\r\n").await;
        assert!(head.starts_with("GET /second"), "{head}");
        send(&mut origin, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecond").await;
        until(&mut client, "second").await;
        let head = until(&mut origin, "\r\n\r\n").await;
        assert!(head.starts_with("GET /third"), "{head}");
    });
}

/// Many requests that arrive together with the end of a chunked body do not lose the answer. At most the
/// bytes of one read are buffered.
#[test]
fn much_behind_a_chunked_body_is_not_lost() {
    run(async {
        let scene = Scene::new().await;
        let mut client = scene.client().await;
        let first = post("/a", "Transfer-Encoding: chunked\r\n") + "ea60\r\n" + &"x".repeat(59_000);
        send(&mut client, &first).await;
        let (mut origin, _) = scene.asked().await;
        turns_until(TURNS_NEVER, || false).await;
        let behind = get("/gone", "").repeat(4000);
        let mut all = "x".repeat(1000) + "\r\n0\r\n\r\n";
        all.push_str(&behind);
        let (mut reader, mut writer) = client.into_split();
        tokio::spawn(async move { writer.write_all(all.as_bytes()).await });
        let reading = tokio::spawn(async move {
            let mut came = Vec::new();
            while !came.windows(4).any(|bytes| bytes == b"done") {
                let mut piece = [0; 1024];
                let bytes = reader.read(&mut piece).await.expect("open");
                assert!(bytes > 0, "cut: {}", String::from_utf8_lossy(&came));
                came.extend_from_slice(&piece[..bytes]);
            }
        });
        until(&mut origin, "0\r\n\r\n").await;
        send(&mut origin, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await;
        reading.await.expect("answered");
    });
}

/// Client and origin alternate: each sends a piece once the other's piece has arrived. The request's body is
/// chunked, or has a declared length.
#[test]
fn both_ways_at_once_over_http1() {
    run(async {
        let scene = Scene::new().await;
        for is_chunked in [true, false] {
            let framing = if is_chunked { "Transfer-Encoding: chunked" } else { "Content-Length: 12" };
            let piece = |text: &str| if is_chunked { format!("4\r\n{text}\r\n") } else { text.to_owned() };
            let mut client = scene.client().await;
            send(&mut client, &post("/both", &format!("{framing}\r\n"))).await;
            let (mut origin, _) = scene.asked().await;
            send(&mut origin, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
            until(&mut client, "\r\n\r\n").await;
            for text in ["one.", "two.", "tri."] {
                send(&mut client, &piece(text)).await;
                until(&mut origin, &piece(text)).await;
                send(&mut origin, &format!("4\r\n{text}\r\n")).await;
                until(&mut client, &format!("{text}\r\n")).await;
            }
            if is_chunked {
                send(&mut client, "0\r\n\r\n").await;
                until(&mut origin, "0\r\n\r\n").await;
            }
            send(&mut origin, "0\r\n\r\n").await;
            until(&mut client, "0\r\n\r\n").await;
        }
    });
}

/// A body larger than the sockets' buffers is uploaded and downloaded at the same time: neither side blocks
/// the other.
#[test]
fn large_bodies_go_both_ways_at_once() {
    const BYTES: usize = 32 << 20;
    run(async {
        let scene = Scene::new().await;
        let client = scene.client().await;
        let (mut answers, mut requests) = client.into_split();
        let head = post("/echo", &format!("Content-Length: {BYTES}\r\n"));
        tokio::spawn(async move {
            requests.write_all(head.as_bytes()).await.expect("taken");
            let piece: Vec<u8> = (0..1 << 16).map(|at: u32| (at / 3) as u8).collect();
            for _ in 0..BYTES / piece.len() {
                requests.write_all(&piece).await.expect("taken");
            }
        });
        let (origin, _) = scene.asked().await;
        tokio::spawn(async move {
            let (mut reader, mut writer) = origin.into_split();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n");
            writer.write_all(head.as_bytes()).await.expect("taken");
            tokio::io::copy(&mut reader, &mut writer).await.expect("taken");
        });
        let mut all = Vec::new();
        answers.read_to_end(&mut all).await.expect("whole");
        let body = all.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
        assert_eq!(all.len() - body, BYTES);
        let is_right = |(at, byte): (usize, &u8)| *byte == ((at % (1 << 16)) / 3) as u8;
        assert!(all[body..].iter().enumerate().all(is_right));
    });
}

#[test]
fn both_ways_at_once_over_http2() {
    run(async {
        let scene = Scene::new().await;
        let client = scene.client().await;
        let (sender, connection) = h2::client::handshake(client).await.expect("a connection");
        tokio::task::spawn_local(connection);
        let mut sender = sender.ready().await.expect("ready");
        let request = Request::post("http://a.test/both").header("te", "trailers").body(()).expect("valid");
        let (answer, mut content) = sender.send_request(request, false).expect("sent");
        let (mut origin, head) = scene.asked().await;
        assert!(head.contains("Transfer-Encoding: chunked"), "{head}");
        send(&mut origin, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        let mut body = answer.await.expect("answered").into_body();
        for text in ["one.", "two.", "tri."] {
            content.send_data(Bytes::from_static(text.as_bytes()), false).expect("open");
            until(&mut origin, &format!("4\r\n{text}\r\n")).await;
            send(&mut origin, &format!("4\r\n{text}\r\n")).await;
            let came = body.data().await.expect("content").expect("whole");
            assert_eq!(came, text.as_bytes());
            let _ = body.flow_control().release_capacity(came.len());
        }
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-sum", http::HeaderValue::from_static("12"));
        content.send_trailers(trailers).expect("open");
        assert!(until(&mut origin, "\r\n\r\n").await.starts_with("0\r\n"));
        send(&mut origin, "0\r\nX-Sum: 21\r\n\r\n").await;
        assert!(body.data().await.is_none());
        let trailers = body.trailers().await.expect("whole").expect("trailers");
        assert_eq!(trailers["x-sum"], "21");
    });
}

/// An origin that has answered and reads no more does not delay the answer. A client that leaves ends both
/// directions.
#[test]
fn an_early_answer_ends_the_request_body() {
    run(async {
        let scene = Scene::new().await;
        let mut client = scene.client().await;
        send(&mut client, &post("/early", "Content-Length: 1000000\r\n")).await;
        let (mut origin, _) = scene.asked().await;
        send(&mut origin, "HTTP/1.1 413 Content Too Large\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        until(&mut client, "\r\n\r\n").await;
        send(&mut client, &"x".repeat(1000)).await;
        send(&mut origin, "3\r\nno.\r\n0\r\n\r\n").await;
        drop(origin);
        assert!(until(&mut client, "0\r\n\r\n").await.contains("no."));
        let mut client = scene.client().await;
        send(&mut client, &post("/leaves", "Content-Length: 1000000\r\n")).await;
        let (mut origin, _) = scene.asked().await;
        send(&mut origin, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        until(&mut client, "\r\n\r\n").await;
        drop(client);
        assert_at_once(turns_until(TURNS_AT_ONCE, || has_ended(&origin)).await, "the client left");
    });
}

/// Opens `count` requests on an HTTP/2 connection, and returns the futures of their answers.
async fn slow_streams(client: TcpStream, count: usize, head: &str) -> Vec<h2::client::ResponseFuture> {
    let (sender, connection) = h2::client::handshake(client).await.expect("a connection");
    tokio::task::spawn_local(connection);
    let mut sender = sender.ready().await.expect("ready");
    let mut asked = Vec::new();
    for number in 0..count {
        let request = Request::post(format!("http://a.test/slow/{number}")).header("x-long", head);
        sender = sender.ready().await.expect("ready");
        asked.push(sender.send_request(request.body(()).expect("valid"), true).expect("sent").0);
    }
    asked
}

/// A hundred slow streams of one client leave room for the next client.
#[test]
fn slow_streams_of_one_client_leave_room() {
    one_client_leaves_room(64, 64 << 20, 10);
}

/// One client's streams with long heads leave room for the next client, too.
#[test]
fn long_heads_of_one_client_leave_room() {
    one_client_leaves_room(10_000, 256 << 10, 8000);
}

fn one_client_leaves_room(tasks: usize, bytes: usize, head: usize) {
    run(async {
        {
            let scene = Scene::with(|config| {
                config.limits.connections_max = tasks;
                config.limits.client_bytes_max = bytes;
                config.limits.origin_connections_max = 1000;
            })
            .await;
            let asked = slow_streams(scene.client().await, 100, &"x".repeat(head)).await;
            let mut origins = Vec::new();
            turns_until(TURNS_NEVER, || false).await;
            while let Ok(Ok((stream, _))) =
                tokio::time::timeout(Duration::from_millis(50), scene.origin.accept()).await
            {
                origins.push(stream);
            }
            assert!((8..100).contains(&origins.len()), "{} are answered by tasks", origins.len());
            // The other client sends a request over HTTP/1, then over HTTP/2.
            let mut other = scene.client().await;
            send(&mut other, &post("/mine", "Content-Length: 0\r\n")).await;
            let (mut origin, head) = scene.asked().await;
            assert!(head.starts_with("POST /mine"), "{head}");
            send(&mut origin, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine").await;
            until(&mut other, "mine").await;
            let mine = slow_streams(scene.client().await, 1, "x").await;
            let (mut origin, _) = scene.asked().await;
            send(&mut origin, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine").await;
            for answer in mine {
                assert_eq!(answer.await.expect("answered").status(), 200);
            }
            drop((asked, origins));
        }
    });
}
