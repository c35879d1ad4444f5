//! The `h2` crate's client against our side of the connection, over an in-memory pipe: many fields, content
//! in both directions, trailers, resets, windows larger and smaller than the content.

use bytes::Bytes;
use h2::client;
use http::{HeaderMap, Request, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use wire::{
    http1::{
        head::{HeadLimits, HeaderSlots, Progress as Head, parse_request},
        known::KnownHeader,
    },
    http2::{
        Progress,
        connection::{Connection, Event, Limits},
        error::ErrorCode,
        hpack::{self, FieldSection, Strings},
    },
};

/// State of a request in the echo server.
#[derive(Default)]
struct Exchange {
    stream: u32,
    head: Vec<u8>,
    content: Vec<u8>,
    trailers: Vec<u8>,
    has_ended: bool,
    has_begun: bool,
    sent: usize,
}

/// Answers each request with its own head and content, and its trailers as trailers; `/reset` is reset,
/// `/forget` is never answered. Returns the number of streams that the client reset.
async fn echo(mut pipe: DuplexStream, limits: Limits) -> usize {
    let mut section = FieldSection::new(64 << 10, 200);
    let mut connection = Connection::new(limits, 0);
    let (mut input, mut out, mut resets) = (Vec::new(), Vec::new(), 0);
    let mut exchanges: Vec<Exchange> = Vec::new();
    connection.greet(&section, 0, &mut out);
    loop {
        pipe.write_all(&out).await.expect("a client that reads");
        out.clear();
        if pipe.read_buf(&mut input).await.expect("a pipe") == 0 {
            return resets;
        }
        let mut at = 0;
        loop {
            let event = match connection.receive(&input[at..], &mut section, 0) {
                Ok(Progress::Complete(event, total)) => {
                    at += total;
                    event
                }
                Ok(Progress::NeedMore(_)) => break,
                Err(ended) => panic!("{ended}"),
            };
            connection.reply(&event, &mut out);
            match event {
                Event::Request { stream, request, end } => {
                    let mut exchange = Exchange { stream, has_ended: end, ..Exchange::default() };
                    request.render_head(&mut exchange.head);
                    exchanges.push(exchange);
                }
                Event::Data { stream, payload, end } => {
                    let exchange = exchanges.iter_mut().find(|e| e.stream == stream).expect("it is open");
                    exchange.content.extend_from_slice(payload);
                    exchange.has_ended = end;
                    connection.release(stream, payload.len(), &mut out);
                }
                Event::Trailers { stream, trailers } => {
                    let exchange = exchanges.iter_mut().find(|e| e.stream == stream).expect("it is open");
                    assert_eq!(trailers.render(&mut exchange.trailers), 0);
                    exchange.has_ended = true;
                }
                Event::Reset { stream, .. } => {
                    resets += 1;
                    exchanges.retain(|exchange| exchange.stream != stream);
                }
                Event::Nothing
                | Event::SettingsToAck
                | Event::WindowOpened { .. }
                | Event::PingToAck(_)
                | Event::Pong(_)
                | Event::GoAway { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        input.drain(..at);
        exchanges.retain_mut(|exchange| !answer(&mut connection, exchange, &mut out));
    }
}

/// Continues a response. Returns whether it is complete.
fn answer(connection: &mut Connection, exchange: &mut Exchange, out: &mut Vec<u8>) -> bool {
    let stream = exchange.stream;
    if exchange.head.starts_with(b"GET /reset ") {
        return connection.reset(stream, ErrorCode::INTERNAL_ERROR, out);
    }
    if !exchange.has_ended || exchange.head.starts_with(b"GET /forget ") {
        return false;
    }
    let mut block = Vec::new();
    if !exchange.has_begun {
        hpack::status(&mut block, 200);
        hpack::field(
            &mut block,
            b"X-Head-Bytes",
            exchange.head.len().to_string().as_bytes(),
            Strings::Shorter,
        );
        assert!(connection.send_headers(stream, &block, false, out));
        exchange.has_begun = true;
    }
    let body = [&exchange.head[..], &exchange.content].concat();
    while exchange.sent < body.len() {
        let left = body.len() - exchange.sent;
        let bytes = connection.sendable(stream, left, 0).expect("no crumbs");
        if bytes == 0 {
            return false;
        }
        let is_last = bytes == left && exchange.trailers.is_empty();
        out.extend_from_slice(&connection.data_header(stream, bytes, is_last));
        out.extend_from_slice(&body[exchange.sent..][..bytes]);
        exchange.sent += bytes;
    }
    if !exchange.trailers.is_empty() {
        block.clear();
        for line in exchange.trailers.split(|&b| b == b'\n').filter(|line| !line.is_empty()) {
            let colon = line.iter().position(|&b| b == b':').expect("a field");
            let value = line[colon + 2..].trim_ascii_end();
            hpack::field(&mut block, &line[..colon], value, Strings::Plain);
        }
        assert!(connection.send_headers(stream, &block, true, out));
    }
    true
}

/// Sends a request, and returns the head as the server saw it, the content after it, and the trailers.
async fn ask(
    client: &mut client::SendRequest<Bytes>,
    request: Request<()>,
    content: &[u8],
    trailers: Option<HeaderMap>,
) -> Result<(Vec<u8>, Vec<u8>, Option<HeaderMap>), h2::Error> {
    let is_empty = content.is_empty() && trailers.is_none();
    std::future::poll_fn(|context| client.poll_ready(context)).await?;
    let (response, mut sender) = client.send_request(request, is_empty)?;
    if !is_empty {
        // The client's library obeys our windows itself.
        sender.send_data(Bytes::copy_from_slice(content), trailers.is_none())?;
        if let Some(trailers) = trailers {
            sender.send_trailers(trailers)?;
        }
    }
    let response = response.await?;
    assert_eq!((response.status().as_u16(), response.version()), (200, Version::HTTP_2));
    let head_bytes: usize =
        response.headers()["x-head-bytes"].to_str().expect("text").parse().expect("a number");
    let mut receiver = response.into_body();
    let mut body = Vec::new();
    while let Some(part) = receiver.data().await {
        let part = part?;
        receiver.flow_control().release_capacity(part.len())?;
        body.extend_from_slice(&part);
    }
    let content = body.split_off(head_bytes);
    Ok((body, content, receiver.trailers().await?))
}

fn get(path: &str) -> http::request::Builder {
    Request::builder().uri(format!("https://a.example{path}"))
}

async fn exchange(client: &mut client::SendRequest<Bytes>) {
    // Each request has equal fields, many of them: from the second request on they are in the table.
    for number in 0..30 {
        let mut request = get(&format!("/page/{number}?x=y"));
        for field in 0..40 {
            request =
                request.header(format!("x-field-{field}"), format!("value \u{e9} {}", field * number % 7));
        }
        let request = request.header("cookie", "a=b").header("cookie", "c=d").body(()).expect("a request");
        let (head, content, trailers) = ask(client, request, b"", None).await.expect("an answer");
        let mut slots = HeaderSlots::new();
        let parsed = parse_request(&head, &mut slots, &HeadLimits::default());
        let Ok(Head::Complete((head, _))) = parsed else { panic!("{parsed:?}") };
        assert_eq!((head.method, head.target), ("GET", &format!("/page/{number}?x=y")[..]));
        assert_eq!(head.known(KnownHeader::Host), Some(b"a.example".as_slice()));
        assert_eq!(head.known(KnownHeader::Cookie), Some(b"a=b; c=d".as_slice()));
        assert_eq!(head.header("x-field-39"), Some(format!("value \u{e9} {}", 39 * number % 7).as_bytes()));
        assert_eq!(head.headers.len(), 42);
        assert!(content.is_empty() && trailers.is_none());
    }
    for bytes in [0, 1, 16_384, 16_385, 65_535, 65_536, 300_000] {
        let content: Vec<u8> = (0..bytes).map(|at: usize| (at % 251) as u8).collect();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", bytes.to_string().parse().expect("a value"));
        for trailers in [None, Some(trailers)] {
            let post = get("/echo").method("POST").body(()).expect("a request");
            let (head, echoed, ended) =
                ask(client, post, &content, trailers.clone()).await.expect("an answer");
            assert!(head.starts_with(b"POST /echo HTTP/1.1\r\nhost: a.example\r\n"));
            assert!(echoed == content, "{} of {bytes} bytes", echoed.len());
            assert_eq!(ended, trailers);
        }
    }
    let reset = ask(client, get("/reset").body(()).expect("a request"), b"", None).await;
    assert_eq!(reset.expect_err("a reset").reason(), Some(h2::Reason::INTERNAL_ERROR));
    // The client resets some streams.
    for _ in 0..20 {
        std::future::poll_fn(|context| client.poll_ready(context)).await.expect("a connection");
        let forget = get("/forget").body(()).expect("a request");
        drop(client.send_request(forget, true).expect("a stream"));
        ask(client, get("/").body(()).expect("a request"), b"", None).await.expect("an answer");
    }
    // Many concurrent requests.
    let asks = (0..50).map(|_| {
        let mut client = client.clone();
        tokio::task::spawn_local(async move {
            let post = get("/").method("PUT").body(()).expect("a request");
            ask(&mut client, post, &[7; 40_000], None).await.expect("an answer").1.len()
        })
    });
    for asked in asks.collect::<Vec<_>>() {
        assert_eq!(asked.await.expect("no panic"), 40_000);
    }
}

fn talk(limits: Limits, builder: &client::Builder, pipe_bytes: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (resets, ()) = tokio::task::LocalSet::new().block_on(&runtime, async {
        let (ours, theirs) = duplex(pipe_bytes);
        let server = tokio::task::spawn_local(echo(ours, limits));
        let (mut client, connection) = builder.handshake::<_, Bytes>(theirs).await.expect("a handshake");
        let driver = tokio::task::spawn_local(async move { connection.await.expect("a sound connection") });
        exchange(&mut client).await;
        drop(client);
        driver.await.expect("no panic");
        (server.await.expect("no panic"), ())
    });
    assert_eq!(resets, 20);
}

#[test]
fn a_client_of_others_is_answered() {
    talk(Limits::default(), &client::Builder::new(), 1 << 16);
}

#[test]
fn and_with_large_windows_and_frames() {
    let limits = Limits { stream_window: 1 << 24, connection_window: 1 << 24, ..Limits::default() };
    let mut builder = client::Builder::new();
    builder.initial_window_size(1 << 24).initial_connection_window_size(1 << 25).max_frame_size(1 << 20);
    talk(limits, &builder, 1 << 16);
}

#[test]
fn a_client_with_small_windows_is_answered() {
    let limits = Limits { streams_max: 8, ..Limits::default() };
    let mut builder = client::Builder::new();
    builder.initial_window_size(2000).header_table_size(0).max_concurrent_reset_streams(100);
    talk(limits, &builder, 1000);
}
