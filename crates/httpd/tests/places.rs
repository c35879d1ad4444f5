//! Connection slots held by abusive clients: a new legitimate request is still answered, and no response is
//! cut off.
#![allow(clippy::expect_used, reason = "a test may fail")]

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use axum::{
    Extension, Router,
    body::{Body, Bytes},
    extract::ConnectInfo,
    response::Response,
    routing::{get, post},
};
use engine::bounded::{Counters, Listener};
use httpd::{Client, Peer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{Notify, mpsc},
};

struct Site {
    address: SocketAddr,
    counters: Counters,
    release: Arc<Notify>,
    lines: mpsc::Sender<Result<Bytes, Infallible>>,
}

/// A response stream whose lines the test supplies.
struct Lines(mpsc::Receiver<Result<Bytes, Infallible>>);

impl http_body::Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|line| line.map(|line| line.map(http_body::Frame::data)))
    }
}

fn start(places_max: usize) -> Site {
    start_behind(&[], httpd::bounds(places_max, 1))
}

fn start_behind(proxies: &[&str], bounds: engine::bounded::Bounds) -> Site {
    let proxies = proxies.iter().map(|text| text.parse().expect("a network")).collect();
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let listener = Listener::new("test", socket, bounds).expect("a listener");
    let (address, counters) = (listener.local_addr().expect("an address"), listener.counters());
    let release = Arc::new(Notify::new());
    let (lines, said) = mpsc::channel(1);
    let said = Arc::new(tokio::sync::Mutex::new(Some(said)));
    let held = Arc::clone(&release);
    let pages = Router::new()
        .route("/", get(|ConnectInfo(peer): ConnectInfo<Peer>| async move { peer.0.ip().to_string() }))
        .route("/who", get(|Extension(Client(who)): Extension<Client>| async move { who.to_string() }))
        .route("/echo", post(|body: Bytes| async move { body }))
        .route(
            "/held",
            get(move || {
                let held = Arc::clone(&held);
                async move {
                    held.notified().await;
                    "at last"
                }
            }),
        )
        .route(
            "/lines",
            get(move || {
                let said = Arc::clone(&said);
                async move { Response::new(Body::new(Lines(said.lock().await.take().expect("one asks")))) }
            }),
        );
    tokio::spawn(httpd::serve_behind(proxies, listener, None, pages, std::future::pending()));
    Site { address, counters, release, lines }
}

async fn connected(address: SocketAddr, said: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(said.as_bytes()).await.expect("it listens");
    stream
}

async fn asked(address: SocketAddr, request: &str) -> String {
    let mut stream = connected(address, request).await;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    answer
}

const HONEST: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

/// RFC 9112 §3.2, §3.2.2: a request that names two hosts is refused, as a proxy may have used the other one.
#[tokio::test]
async fn a_request_that_names_two_hosts_is_refused() {
    let site = start(4);
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://b/nothing HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST http://b/echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let answer = asked(site.address, request).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{request}{answer}");
        assert!(answer.ends_with("\r\n\r\nthe request names more than one host\n"), "{answer}");
    }
    for request in [
        HONEST,
        "GET http://A:80/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET https://a:443/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
    ] {
        let answer = asked(site.address, request).await;
        assert!(answer.contains(" 200 OK\r\n") && answer.ends_with("127.0.0.1"), "{request}{answer}");
    }
}

/// Raises the soft limit on open files, which is often 1,024; both ends are in this process.
fn many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("up to the hard limit");
}

#[tokio::test]
async fn incomplete_requests_do_not_block_other_clients() {
    many_files();
    for said in [
        "",
        "G",
        "GET / HTTP/1.1\r\nHost: a\r\nX: ",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx",
    ] {
        let site = start(64);
        let mut strangers = Vec::new();
        for count in [64, 1000] {
            while strangers.len() < count {
                strangers.push(connected(site.address, said).await);
            }
            let answer = asked(site.address, HONEST).await;
            assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("127.0.0.1"), "{said}: {answer}");
        }
        let now = site.counters.now();
        // The count includes evicted connections that have not noticed their eviction yet.
        assert!(now.open <= 70, "{now:?}");
        assert!(now.idle_evicted + now.heads_evicted + now.bodies_evicted > 900, "{now:?}");
    }
}

#[tokio::test]
async fn kept_alive_connections_that_idle_give_way() {
    let site = start(64);
    let mut idle = Vec::new();
    for _ in 0..64 {
        let mut stream = connected(site.address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let mut answer = vec![0; 1024];
        let n = stream.read(&mut answer).await.expect("an answer");
        assert!(answer[..n].starts_with(b"HTTP/1.1 200 "));
        idle.push(stream);
    }
    assert!(asked(site.address, HONEST).await.starts_with("HTTP/1.1 200 "));
    // The first connection was closed, the last is still served.
    let mut end = [0];
    assert_eq!(idle[0].read(&mut end).await.unwrap_or(0), 0);
    idle[63].write_all(HONEST.as_bytes()).await.expect("it is there");
    let mut answer = String::new();
    idle[63].read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(site.counters.now().idle_evicted, 1);
}

#[tokio::test]
async fn a_response_in_progress_is_never_evicted() {
    let site = start(4);
    let mut stream = connected(site.address, "GET /lines HTTP/1.1\r\nHost: a\r\n\r\n").await;
    site.lines.send(Ok(Bytes::from_static(b"one"))).await.expect("somebody reads");
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(
            connected(site.address, "GET /held HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await,
        );
    }
    let newcomer = tokio::spawn(asked(site.address, HONEST));
    while site.counters.now().waited == 0 {
        tokio::task::yield_now().await;
    }
    site.release.notify_one();
    assert!(newcomer.await.expect("an answer").starts_with("HTTP/1.1 200 "));
    site.release.notify_waiters();
    for mut held in held {
        let mut answer = String::new();
        held.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.ends_with("at last"), "{answer}");
    }
    site.lines.send(Ok(Bytes::from_static(b"two"))).await.expect("somebody reads");
    let mut seen = String::new();
    while !seen.contains("two") {
        let mut part = vec![0; 1024];
        let n = stream.read(&mut part).await.expect("it goes on");
        assert!(n > 0, "the stream was cut: {seen}");
        seen.push_str(&String::from_utf8_lossy(&part[..n]));
    }
    assert!(seen.contains("one"), "{seen}");
}

#[tokio::test]
async fn a_body_reaches_its_handler_whole() {
    let site = start(4);
    let body = "x".repeat(1 << 20);
    let request = format!(
        "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = asked(site.address, &request).await;
    assert!(answer.contains("content-length: 1048576") && answer.ends_with(&body));
}

#[tokio::test]
async fn limits_apply_to_the_forwarded_client_address() {
    let ask = |path: &str, who: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Forwarded-For: {who}\r\n\r\n")
    };
    let site = start_behind(&["127.0.0.1"], httpd::bounds(64, 2));
    let answer = asked(site.address, &ask("/who", "8.8.8.8, 192.0.2.7")).await;
    assert!(answer.ends_with("\r\n\r\n192.0.2.7"), "{answer}");
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(connected(site.address, &ask("/held", "192.0.2.7")).await);
    }
    // The held requests may still be incomplete; the next one is then one of the two allowed.
    let refused = loop {
        let answer = asked(site.address, &ask("/who", "192.0.2.7")).await;
        if !answer.starts_with("HTTP/1.1 200 ") {
            break answer;
        }
    };
    assert!(refused.starts_with("HTTP/1.1 429 "), "{refused}");
    assert!(site.counters.now().refused > 0);
    for other in ["192.0.2.8", "127.0.0.1"] {
        let answer = asked(site.address, &ask("/who", other)).await;
        assert!(answer.ends_with(other), "{answer}");
    }
    while site.counters.now().open > 0 {
        site.release.notify_waiters();
        tokio::task::yield_now().await;
        held.retain_mut(|held| held.try_read(&mut [0; 1024]).is_err());
    }
    let answer = asked(site.address, &ask("/who", "192.0.2.7")).await;
    assert!(answer.ends_with("192.0.2.7"), "its places are free again: {answer}");
    // A peer that is not listed as a proxy cannot name a client.
    let site = start_behind(&["10.0.0.0/8"], httpd::bounds(64, 2));
    let answer = asked(site.address, &ask("/who", "192.0.2.7")).await;
    assert!(answer.ends_with("127.0.0.1"), "{answer}");
}

/// A long head gets 431 and its memory is bounded; hyper would buffer 400 KiB of each.
#[tokio::test]
async fn a_long_head_gets_431() {
    let site = start(4);
    let ask = async |bytes: usize| {
        let mut stream = TcpStream::connect(site.address).await.expect("it listens");
        let head =
            format!("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX: {}\r\n\r\n", "x".repeat(bytes));
        // The connection may close before everything is sent.
        _ = stream.write_all(head.as_bytes()).await;
        let mut answer = Vec::new();
        _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    };
    assert!(ask(httpd::HEAD_BYTES_MAX / 2).await.starts_with("HTTP/1.1 200 "));
    let refused = ask(httpd::HEAD_BYTES_MAX + 10).await;
    // The response may be lost in a reset, because more of the head was on its way.
    assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 431 "), "{refused}");
    assert_eq!(site.counters.now().long_heads, 1);
}
