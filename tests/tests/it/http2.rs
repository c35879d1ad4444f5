//! HTTP/2 with a third-party client, hyper's `h2`: many streams at once, small windows, bodies in both
//! directions, and every way for a stream to end.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use h2::client::{self, SendRequest};
use http::{HeaderMap, Request, Response, StatusCode};
use rustix::process::Signal;
use tests::{
    Accelerator, Answer, Gate, Next, PATIENCE, ScriptedOrigin, content::content, eventually, on_one_core,
    on_one_core_and_on_two,
};
use tokio::{net::TcpStream, runtime::Builder, time::timeout};

on_one_core! {
    a13_small_windows_are_kept_to,
    a13_bodies_and_trailers_go_both_ways,
    a13_what_a_client_gives_up_is_given_up,
    a13_an_answer_cut_short_is_seen_to_be,
    silent_uploads_hold_no_origin_exchange,
}

on_one_core_and_on_two! {
    a13_many_streams_at_once_are_each_whole,
    a13_a_drain_ends_what_has_begun,
}

/// Runs a future on the test's thread, with a timeout.
fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { timeout(PATIENCE, future).await.expect("it comes to its end") })
}

async fn connect(accelerator: &Accelerator, windows: u32) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(accelerator.address()).await.expect("connected");
    let mut builder = client::Builder::new();
    builder.initial_window_size(windows).initial_connection_window_size(windows.max(65_535));
    let (sender, connection) = builder.handshake(stream).await.expect("a connection");
    tokio::spawn(connection);
    sender.ready().await.expect("ready")
}

fn get(path: &str) -> Request<()> {
    Request::get(format!("http://site{path}")).body(()).expect("a request")
}

async fn ask(
    sender: &SendRequest<Bytes>,
    request: Request<()>,
) -> (Response<()>, Vec<u8>, Option<HeaderMap>) {
    let mut sender = sender.clone().ready().await.expect("room");
    let (answer, _) = sender.send_request(request, true).expect("sent");
    let (head, mut body) = answer.await.expect("an answer").into_parts();
    let mut bytes = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.expect("content");
        body.flow_control().release_capacity(piece.len()).expect("released");
        bytes.extend_from_slice(&piece);
    }
    let trailers = body.trailers().await.expect("an end");
    (Response::from_parts(head, ()), bytes, trailers)
}

const SIZES: [usize; 8] = [0, 1, 1000, 16_384, 16_385, 65_536, 300_000, 1_000_000];

fn sized(origin: &ScriptedOrigin) {
    for size in SIZES {
        let body = content(size as u64, 0, size);
        origin.answers(&format!("/{size}"), Answer::new(200, body).header("Cache-Control", "max-age=600"));
        let body = content(size as u64, 0, size);
        origin
            .answers(&format!("/passed/{size}"), Answer::new(200, body).header("Cache-Control", "no-store"));
    }
}

async fn all_sizes(accelerator: &Accelerator, windows: u32, rounds: usize) {
    let sender = connect(accelerator, windows).await;
    for _ in 0..rounds {
        let asked = SIZES.iter().flat_map(|size| [format!("/{size}"), format!("/passed/{size}")]);
        let asked: Vec<_> = asked
            .map(|path| {
                let sender = sender.clone();
                tokio::spawn(async move { (ask(&sender, get(&path)).await, path) })
            })
            .collect();
        for answer in asked {
            let ((head, body, _), path) = answer.await.expect("answered");
            let size: usize = path.rsplit('/').next().expect("a size").parse().expect("a number");
            assert_eq!(head.status(), StatusCode::OK, "{path}");
            assert_eq!(head.headers()["content-length"], size.to_string(), "{path}");
            assert!(head.headers().get("connection").is_none() && head.headers().get("via").is_some());
            assert!(body == content(size as u64, 0, size), "{path}: {} bytes", body.len());
        }
    }
}

fn a13_many_streams_at_once_are_each_whole(cores: &str) {
    let origin = ScriptedOrigin::start();
    sized(&origin);
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    run(async {
        let several = (0..6).map(|_| all_sizes(&accelerator, 1 << 20, 4));
        futures_util::future::join_all(several).await;
    });
    for size in SIZES {
        assert_eq!(origin.count(&format!("/{size}")), 1, "{size} is fetched once");
    }
    assert_eq!(accelerator.stat().count("requests.http2_connections"), 6);
    assert_eq!(accelerator.stat().count("requests.http2_received"), 6 * 4 * 16);
}

fn a13_small_windows_are_kept_to(cores: &str) {
    let origin = ScriptedOrigin::start();
    sized(&origin);
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    // `h2` ends the connection with FLOW_CONTROL_ERROR if a window is overrun.
    for windows in [1000, 16_383, 65_535] {
        run(all_sizes(&accelerator, windows, 1));
    }
    assert_eq!(accelerator.stat().count("limits.http2_tiny_windows"), 0);
}

fn a13_bodies_and_trailers_go_both_ways(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.on("/upload", |request, reply| {
        let answer = Answer::new(200, &request.body);
        let said = request.header("X-Said").unwrap_or("nothing").to_owned();
        reply.answer(&answer.header("X-Said", &said))
    });
    let trailers = [("Checksum", "abc"), ("X-More", "1")];
    let answer = Answer::chunked(200, &[b"with ", b"trailers"], &trailers);
    origin.answers("/trailers", answer.header("Cache-Control", "max-age=600"));
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    run(async {
        let sender = connect(&accelerator, 1 << 20).await;
        for size in [0, 1, 100_000, 2_000_000] {
            for is_told in [true, false] {
                let body = content(7, 0, size);
                let mut request = Request::post("http://site/upload").header("X-Said", "hello");
                if is_told {
                    request = request.header("Content-Length", size);
                }
                let mut sender = sender.clone().ready().await.expect("room");
                let request = request.body(()).expect("a request");
                let (answer, mut upload) = sender.send_request(request, false).expect("sent");
                let mut left = Bytes::from(body.clone());
                while !left.is_empty() {
                    upload.reserve_capacity(left.len());
                    let room = std::future::poll_fn(|cx| upload.poll_capacity(cx)).await;
                    let room = room.expect("open").expect("room").min(left.len());
                    upload.send_data(left.split_to(room), false).expect("sent");
                }
                upload.send_data(Bytes::new(), true).expect("sent");
                let (head, mut content) = answer.await.expect("an answer").into_parts();
                let mut received = Vec::new();
                while let Some(piece) = content.data().await {
                    let piece = piece.expect("content");
                    content.flow_control().release_capacity(piece.len()).expect("released");
                    received.extend_from_slice(&piece);
                }
                assert_eq!(head.headers["x-said"], "hello");
                assert!(received == body, "{size} bytes, told: {is_told}: {}", received.len());
            }
        }
        // First from the origin, then from the store.
        for _ in 0..2 {
            let (head, body, trailers) = ask(&sender, get("/trailers")).await;
            assert_eq!((head.status(), body), (StatusCode::OK, b"with trailers".to_vec()));
            let trailers = trailers.expect("trailers");
            assert_eq!(
                (&trailers["checksum"], &trailers["x-more"]),
                (&"abc".parse().expect("a value"), &"1".parse().expect("a value"))
            );
        }
        // A HEAD and a range.
        let (head, body, _) =
            ask(&sender, Request::head("http://site/trailers").body(()).expect("a request")).await;
        assert_eq!((head.status(), body.len()), (StatusCode::OK, 0));
        let broken =
            Request::get("http://site/trailers").header("Range", "bytes=5-7").body(()).expect("a request");
        let (head, body, _) = ask(&sender, broken).await;
        assert_eq!((head.status(), body), (StatusCode::PARTIAL_CONTENT, b"tra".to_vec()));
    });
    assert_eq!(origin.count("/trailers"), 1);
}

fn a13_what_a_client_gives_up_is_given_up(cores: &str) {
    let origin = ScriptedOrigin::start();
    let gate = Gate::new();
    let held = gate.clone();
    origin.on("/slow", move |_, reply| {
        held.pass();
        reply.answer(&Answer::new(200, "slow").header("Cache-Control", "no-store"))
    });
    origin
        .answers("/large", Answer::new(200, content(1, 0, 2_000_000)).header("Cache-Control", "max-age=600"));
    origin.answers("/", Answer::new(200, "here").header("Cache-Control", "max-age=600"));
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    run(async {
        let sender = connect(&accelerator, 65_535).await;
        ask(&sender, get("/large")).await;
        for _ in 0..20 {
            // Two streams: the first waits for its origin, the second for its window.
            let mut ready = sender.clone().ready().await.expect("room");
            let (slow, _) = ready.send_request(get("/slow"), true).expect("sent");
            let mut ready = sender.clone().ready().await.expect("room");
            let (large, _) = ready.send_request(get("/large"), true).expect("sent");
            let large = large.await.expect("a head");
            drop((slow, large));
            let (head, body, _) = ask(&sender, get("/")).await;
            assert_eq!((head.status(), body), (StatusCode::OK, b"here".to_vec()));
        }
    });
    gate.open();
    eventually("each is counted", || accelerator.stat().count("requests.http2_streams_reset") >= 40);
    run(async {
        let sender = connect(&accelerator, 65_535).await;
        let (_, body, _) = ask(&sender, get("/slow")).await;
        assert_eq!(body, b"slow", "no connection to the origin was lost for good");
    });
}

fn a13_an_answer_cut_short_is_seen_to_be(cores: &str) {
    let origin = ScriptedOrigin::start();
    origin.sends("/short", &b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"[..], Next::Close);
    origin.sends(
        "/chunks",
        &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nonly\r\n"[..],
        Next::Close,
    );
    origin.answers("/", Answer::new(200, "here").header("Cache-Control", "max-age=600"));
    let accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    run(async {
        let sender = connect(&accelerator, 65_535).await;
        for path in ["/short", "/chunks"] {
            let mut ready = sender.clone().ready().await.expect("room");
            let (answer, _) = ready.send_request(get(path), true).expect("sent");
            let mut body = answer.await.expect("a head").into_body();
            let mut end = None;
            while let Some(piece) = body.data().await {
                if let Err(error) = piece {
                    end = Some(error);
                    break;
                }
            }
            let end = end.expect("it does not look whole");
            assert!(end.is_reset(), "{path}: {end}");
        }
        let (_, body, _) = ask(&sender, get("/")).await;
        assert_eq!(body, b"here", "the others go on");
    });
}

fn a13_a_drain_ends_what_has_begun(cores: &str) {
    let origin = ScriptedOrigin::start();
    let gate = Gate::new();
    let held = gate.clone();
    origin.on("/slow", move |_, reply| {
        held.pass();
        reply.answer(&Answer::new(200, content(1, 0, 500_000)).header("Cache-Control", "no-store"))
    });
    origin.answers("/", Answer::new(200, "here").header("Cache-Control", "max-age=600"));
    let mut accelerator = Accelerator::before(&origin.url()).flag("--cores", cores).start();
    run(async {
        let idle = connect(&accelerator, 65_535).await;
        ask(&idle, get("/")).await;
        let sender = connect(&accelerator, 1 << 20).await;
        let asking = tokio::spawn(async move { ask(&sender, get("/slow")).await });
        while origin.count("/slow") == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        accelerator.signal(Signal::TERM);
        // An idle connection gets a GOAWAY.
        let gone = async {
            while idle.clone().ready().await.is_ok() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        gone.await;
        gate.open();
        let (head, body, _) = asking.await.expect("answered");
        assert_eq!((head.status(), body.len()), (StatusCode::OK, 500_000));
    });
    assert!(accelerator.wait().success());
}

/// Streams of one client begin uploads and then send nothing. Meanwhile they hold neither an exchange with
/// the origin nor the slots of other clients.
fn silent_uploads_hold_no_origin_exchange(cores: &str) {
    const UPLOADS: u64 = 8;
    let origin = ScriptedOrigin::start();
    origin.answers("/up", Answer::new(200, "taken"));
    origin.answers("/mine", Answer::new(200, "mine").header("Cache-Control", "no-store"));
    let accelerator = Accelerator::before(&origin.url())
        .flag("--cores", cores)
        .limit("origin_connections_max", "1")
        .limit("origin_first_byte_time_max", "120s")
        .start();
    run(async {
        let mut sender = connect(&accelerator, 65_535).await;
        let mut uploads = Vec::new();
        for _ in 0..UPLOADS {
            let request = Request::post("http://site/up").header("content-length", "10");
            let request = request.body(()).expect("a request");
            sender = sender.ready().await.expect("room");
            let (answer, mut body) = sender.send_request(request, false).expect("sent");
            body.send_data(Bytes::from_static(b"hello"), false).expect("sent");
            uploads.push((answer, body));
        }
        while origin.connections() < UPLOADS {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for stream in [&sender, &connect(&accelerator, 65_535).await] {
            let request = Request::delete("http://site/mine").body(()).expect("a request");
            let (head, body, _) = ask(stream, request).await;
            assert_eq!((head.status(), body.as_slice()), (StatusCode::OK, &b"mine"[..]));
        }
        for (answer, mut body) in uploads {
            body.send_data(Bytes::from_static(b"world"), true).expect("sent");
            let (head, mut body) = answer.await.expect("an answer").into_parts();
            assert_eq!(head.status, StatusCode::OK);
            assert_eq!(body.data().await.expect("content").expect("content"), "taken");
        }
    });
    assert!(origin.seen("/up").iter().all(|seen| seen.body == b"helloworld"));
}
