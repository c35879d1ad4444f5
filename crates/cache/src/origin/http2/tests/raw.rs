//! An origin whose bytes each test dictates, and the fate of requests when it closes, refuses or is silent.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::*;

/// Encodes a frame (RFC 9113 §4.1).
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a short one").to_be_bytes();
    let mut out = vec![length[1], length[2], length[3], kind, flags];
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

pub(super) const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Encodes HEADERS with a status, if any, and the fields uncompressed (RFC 7541 §6.2.2).
pub(super) fn headers(stream: u32, status: &str, fields: &[(&str, &str)], flags: u8) -> Vec<u8> {
    let status = if status.is_empty() { None } else { Some((":status", status)) };
    let mut block = Vec::new();
    for (name, value) in status.iter().chain(fields) {
        block.push(0);
        for text in [name, value] {
            let bytes = text.as_bytes();
            // RFC 7541 §5.1: a 7-bit prefix, then the remainder.
            if bytes.len() < 127 {
                block.push(u8::try_from(bytes.len()).expect("short"));
            } else {
                let mut rest = bytes.len() - 127;
                block.push(127);
                while rest >= 128 {
                    block.push(u8::try_from(rest % 128).expect("small") | 128);
                    rest /= 128;
                }
                block.push(u8::try_from(rest).expect("small"));
            }
            block.extend(bytes);
        }
    }
    frame(1, flags | END_HEADERS, stream, &block)
}

pub(super) fn data(stream: u32, bytes: &[u8], flags: u8) -> Vec<u8> {
    frame(0, flags, stream, bytes)
}

pub(super) fn reset(stream: u32, code: u32) -> Vec<u8> {
    frame(3, 0, stream, &code.to_be_bytes())
}

pub(super) fn window_update(stream: u32, by: u32) -> Vec<u8> {
    frame(8, 0, stream, &by.to_be_bytes())
}

fn go_away(last: u32, code: u32) -> Vec<u8> {
    frame(7, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat())
}

/// Reaction of the scripted server to a request.
pub(super) enum Do {
    Send(Vec<u8>),
    Close(Vec<u8>),
}

/// Runs a server that calls `script` with the numbers of the connection and the stream of each request, and
/// does what it returns.
pub(super) async fn say(script: impl Fn(usize, u32) -> Do + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let script = Arc::new(script);
    tokio::spawn(async move {
        let mut connection = 0;
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(converse(stream, connection, Arc::clone(&script)));
            connection += 1;
        }
    });
    address
}

async fn converse(
    mut stream: TcpStream,
    connection: usize,
    script: Arc<impl Fn(usize, u32) -> Do + Send + Sync + 'static>,
) -> Option<()> {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await.ok()?;
    if !preface.starts_with(b"PRI ") {
        // The server speaks HTTP/1 as well.
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhttp1";
        stream.write_all(answer).await.ok()?;
        return stream.read(&mut preface).await.ok().map(|_| ());
    }
    stream.write_all(&frame(4, 0, 0, &[])).await.ok()?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.ok()?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload).await.ok()?;
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let out = match (head[3], head[4] & 1) {
            (1, _) => match script(connection, id) {
                Do::Send(out) => out,
                Do::Close(out) => {
                    stream.write_all(&out).await.ok()?;
                    return Some(());
                }
            },
            (4, 0) => frame(4, 1, 0, &[]),
            _ => continue,
        };
        stream.write_all(&out).await.ok()?;
    }
}

fn ok(stream: u32) -> Vec<u8> {
    [headers(stream, "200", &[], 0), data(stream, b"ok", END_STREAM)].concat()
}

async fn post(only: &Only) -> Result<Vec<u8>, OriginError> {
    let mut arrived = only.ask("POST / HTTP/1.1\r\nHost: a.example", &mut Sender::default()).await?;
    content(&mut arrived).await
}

async fn get(only: &Only) -> Result<Vec<u8>, OriginError> {
    content(&mut *only.get("/").await?).await
}

#[tokio::test(flavor = "local")]
async fn unprocessed_requests_of_any_method_are_retried() {
    // REFUSED_STREAM; then GOAWAY with a last stream before this one.
    for (at, refusal) in [(0, reset(1, 7)), (1, go_away(0, 0))] {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let address = say(move |_, stream| {
            let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
            Do::Send(if is_first { refusal.clone() } else { ok(stream) })
        })
        .await;
        let only = Only::at(address, Limits::default());
        assert_eq!(post(&only).await.as_deref(), Ok(&b"ok"[..]), "{at}");
        assert_eq!((asked.load(Ordering::Relaxed), *only.failures.borrow()), (2, 0));
    }
    // A server that refuses every stream is given up after three attempts.
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let address = say(move |_, stream| {
        count.fetch_add(1, Ordering::Relaxed);
        Do::Send(reset(stream, 7))
    })
    .await;
    let only = Only::at(address, Limits::default());
    assert_eq!(post(&only).await, Err(OriginError::Unprocessed));
    assert_eq!(asked.load(Ordering::Relaxed), 3);
}

#[tokio::test(flavor = "local")]
async fn only_safe_requests_are_retried_after_connection_loss() {
    for close in [Vec::new(), go_away(3, 2)] {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        // The second request of each connection ends it.
        let address = say(move |_, stream| {
            count.fetch_add(1, Ordering::Relaxed);
            if stream == 1 { Do::Send(ok(stream)) } else { Do::Close(close.clone()) }
        })
        .await;
        let only = Only::at(address, Limits::default());
        assert!(get(&only).await.is_ok());
        assert_eq!(get(&only).await.as_deref(), Ok(&b"ok"[..]));
        assert_eq!(asked.load(Ordering::Relaxed), 3, "over another connection");
        assert!(post(&only).await.is_err_and(|error| error.is_end()), "it may have been done");
        assert_eq!(asked.load(Ordering::Relaxed), 4);
    }
}

#[tokio::test(flavor = "local")]
async fn an_answer_that_is_cut_is_never_whole() {
    for cut in [Vec::new(), reset(1, 0), reset(1, 2), go_away(1, 2)] {
        for length in [&[("content-length", "5")][..], &[]] {
            let (cut, head) = (cut.clone(), headers(1, "200", length, 0));
            let address = say(move |_, _| Do::Close([&head[..], &data(1, b"abc", 0), &cut].concat())).await;
            let only = Only::at(address, Limits::default());
            let mut arrived = only.get("/").await.expect("a head");
            assert!(content(&mut arrived).await.is_err(), "{length:?}");
        }
    }
}

#[tokio::test(flavor = "local")]
async fn what_has_to_go_by_http1_does() {
    let address = say(|_, stream| Do::Send(reset(stream, 13))).await;
    let only = Only::at(address, Limits::default());
    assert_eq!(post(&only).await.as_deref(), Ok(&b"http1"[..]), "HTTP_1_1_REQUIRED");
    let mut arrived = only.get("/`").await.expect("a path that HTTP/2's types do not have");
    assert_eq!(content(&mut arrived).await.as_deref(), Ok(&b"http1"[..]));
}

/// An origin that vanished silently is detected by its missing PING answer, long before the time limit for an
/// answer.
#[tokio::test(flavor = "local", start_paused = true)]
async fn an_origin_without_ping_answer_is_abandoned() {
    let address = say(|_, _| Do::Send(Vec::new())).await;
    let only = Only::at(address, Limits::default());
    let begun = tokio::time::Instant::now();
    assert_eq!(post(&only).await, Err(OriginError::Closed));
    let took = begun.elapsed();
    assert!((15..20).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test(flavor = "local")]
async fn the_whole_of_an_answer_has_its_time() {
    let address = say(|_, stream| Do::Send(headers(stream, "200", &[], 0))).await;
    let within = Duration::from_millis(150);
    let only = Only::at(address, Limits { origin_request_time_max: within, ..Limits::default() });
    let mut arrived = only.get("/").await.expect("a head");
    assert_eq!(content(&mut arrived).await, Err(OriginError::TooSlow(within)));
    let address = say(|_, _| Do::Send(Vec::new())).await;
    let only = Only::at(address, Limits { origin_request_time_max: within, ..Limits::default() });
    assert_eq!(only.get("/").await.err(), Some(OriginError::TooSlow(within)));
}

#[tokio::test(flavor = "local")]
async fn who_speaks_no_http2_is_told_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").await;
        }
    });
    let only = Only::at(address, Limits::default());
    assert!(only.get("/").await.is_err());
}
