//! Tests of exchanges with HTTP/2 origins: `h2`'s own server, and a server whose bytes each test dictates.
#![allow(clippy::disallowed_types, reason = "a test may lock")]

mod answers;
mod raw;

use std::{
    cell::RefCell,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use engine::{meter::CounterSet, sys::span::WordBuffer};
use h2::{RecvStream, server::SendResponse};
use http::{HeaderMap, Method, Request, Response};
use tokio::{
    net::TcpListener,
    sync::mpsc,
    time::{sleep, timeout},
};
use wire::http1::framing::RequestKind;

use crate::{
    config::{Limits, OriginRules, Protocol, Server, ServerRules},
    origin::{
        AnswerHead, BodyRead, Exchange, Member, MemberId, Names, OriginError, OriginRequest, Part, Pools,
        RequestSender, SendError, SendResult, TriedMembers, Upstream, Upstreams, ask, upstream::Streams,
    },
    request::OriginNeed,
};

/// An origin with one server.
struct Only {
    upstream: RefCell<Upstream>,
    limits: Limits,
    tries: u32,
    failures: RefCell<u32>,
}

impl Only {
    fn at(address: SocketAddr, limits: Limits) -> Self {
        let server = Server::Tcp { host: address.ip().to_string(), port: address.port(), is_secured: false };
        let rules = ServerRules { protocol: Protocol::Http2, ..OriginRules::default().server };
        let mut names = Names::new(&[], CounterSet::new(1));
        let member = Member::new(&server, &rules, None, &mut names).expect("a server");
        let upstream = Upstream::new(Arc::new(member), &limits, Streams::new(&limits), |_| {});
        Self { upstream: RefCell::new(upstream), limits, tries: 1, failures: RefCell::new(0) }
    }

    async fn ask(&self, head: &str, sender: &mut Sender) -> Result<Box<AnswerHead>, OriginError> {
        let method = head.split(' ').next().unwrap_or_default();
        let head = format!("{head}\r\n\r\n");
        let asked = OriginRequest {
            head: head.as_bytes(),
            wanted: OriginNeed::Passing,
            client: crate::origin::Client::NOBODY,
            answered: RequestKind::of_method(method),
            is_idempotent: method != "POST",
            why: "test",
            trace: None,
            server: None,
        };
        ask(self, &self.limits, &asked, sender, || {}).await.map_err(|error| match error {
            SendError::Origin(error) => error,
            SendError::Ours(()) => unreachable!("a test's client does not fail"),
        })
    }

    async fn get(&self, path: &str) -> Result<Box<AnswerHead>, OriginError> {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: a.example"), &mut Sender::default()).await
    }
}

impl Pools for Only {
    fn upstream<R>(&self, _: MemberId, with: impl FnOnce(&mut Upstream) -> R) -> Option<R> {
        Some(with(&mut self.upstream.borrow_mut()))
    }
}

impl Upstreams for Only {
    fn choose(&self, tried: &mut TriedMembers) -> Option<MemberId> {
        tried.count += 1;
        (tried.count <= self.tries).then(|| self.upstream.borrow().member.id)
    }

    fn note_retry(&self) {}

    fn note_outcome(&self, _: MemberId, is_well: bool) {
        *self.failures.borrow_mut() += u32::from(!is_well);
    }
}

/// Test client: the request's body, and the interim responses that came before the answer.
#[derive(Default)]
struct Sender {
    body: Option<Vec<u8>>,
    trailers: &'static [u8],
    told: Vec<Vec<u8>>,
    has_begun: bool,
    handed: Option<SendResult>,
}

impl RequestSender for Sender {
    type Error = ();

    fn has_body(&self) -> bool {
        self.body.is_some()
    }

    fn has_begun(&self) -> bool {
        self.has_begun
    }

    async fn send(&mut self, exchange: &mut Exchange) -> Result<SendResult, SendError<()>> {
        let limits = Limits::default();
        // Acts as a client that is slower than the origin's answer.
        if timeout(Duration::from_millis(20), exchange.answered_early(&limits)).await.is_ok() {
            self.handed = Some(SendResult::Answered);
            return Ok(SendResult::Answered);
        }
        self.has_begun = true;
        for piece in self.body.as_deref().unwrap_or_default().chunks(64 << 10) {
            let handed = exchange.send_body(Part::Bytes(piece), true, &limits).await;
            let handed = handed.map_err(SendError::Origin)?;
            self.handed = Some(handed);
            if handed == SendResult::Answered {
                return Ok(handed);
            }
        }
        exchange.send_body(Part::End(self.trailers), true, &limits).await.map_err(SendError::Origin)
    }

    async fn interim(&mut self, head: Vec<u8>) {
        self.told.push(head);
    }
}

/// Reads all of an answer's content.
async fn content(arrived: &mut AnswerHead) -> Result<Vec<u8>, OriginError> {
    if let Some(whole) = arrived.take_whole() {
        return Ok(whole);
    }
    let (room, mut all) = (WordBuffer::new(5_000), Vec::new());
    loop {
        match arrived.read(room.span()).await? {
            BodyRead::Bytes(bytes) => room.span().slice(0..bytes).copy_to(&mut all),
            BodyRead::End => return Ok(all),
        }
    }
}

/// Input of a script: the request with its content, the reply's stream, and the number of the connection.
struct ScriptInput {
    request: Request<RecvStream>,
    reply: SendResponse<Bytes>,
    connection: usize,
}

impl ScriptInput {
    fn answer(mut self, status: u16, body: &[u8]) {
        let response = Response::builder().status(status).body(()).expect("a response");
        if let Ok(mut stream) = self.reply.send_response(response, body.is_empty()) {
            let _ = stream.send_data(Bytes::copy_from_slice(body), true);
        }
    }
}

/// Runs `h2`'s server, which hands each request to the returned receiver. After `goes_after` requests a
/// connection sends GOAWAY.
async fn serve(streams_max: u32, goes_after: usize) -> (SocketAddr, mpsc::UnboundedReceiver<ScriptInput>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let (sender, given) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut connection = 0;
        while let Ok((stream, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut builder = h2::server::Builder::new();
                let shaken = builder.max_concurrent_streams(streams_max).handshake(stream).await;
                let Ok(mut server) = shaken else { return };
                let mut served = 0;
                while let Some(Ok((request, reply))) = server.accept().await {
                    served += 1;
                    if served == goes_after {
                        server.graceful_shutdown();
                    }
                    let _ = sender.send(ScriptInput { request, reply, connection });
                }
            });
            connection += 1;
        }
    });
    (address, given)
}

#[tokio::test(flavor = "local")]
async fn exchanges_share_a_connection() {
    let (address, mut given) = serve(100, usize::MAX).await;
    let connections = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&connections);
    tokio::spawn(async move {
        let mut waiting = Vec::new();
        while let Some(given) = given.recv().await {
            seen.lock().expect("nobody has panicked").push(given.connection);
            waiting.push(given);
            // All 40 requests are answered at once.
            if waiting.len() == 40 {
                for given in waiting.drain(..) {
                    let path = given.request.uri().path().to_owned();
                    given.answer(200, path.as_bytes());
                }
            }
        }
    });
    let only = Only::at(address, Limits::default());
    let paths: Vec<String> = (0..40).map(|number| format!("/{number}")).collect();
    let asked = futures_of(paths.iter().map(|path| async {
        let mut arrived = only.get(path).await?;
        content(&mut arrived).await
    }))
    .await;
    for (path, found) in paths.iter().zip(asked) {
        assert_eq!(found, Ok(path.clone().into_bytes()));
    }
    assert_eq!(connections.lock().expect("nobody has panicked")[..], [0; 40]);
}

/// Runs all futures concurrently on this task.
async fn futures_of<F: Future>(all: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = all.into_iter().map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(|cx| {
        let mut is_pending = false;
        for (one, done) in &mut all {
            if done.is_none() {
                match one.as_mut().poll(cx) {
                    std::task::Poll::Ready(output) => *done = Some(output),
                    std::task::Poll::Pending => is_pending = true,
                }
            }
        }
        if is_pending { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    all.into_iter().filter_map(|(_, done)| done).collect()
}

#[tokio::test(flavor = "local")]
async fn a_low_stream_limit_opens_more_connections() {
    let (address, mut given) = serve(2, usize::MAX).await;
    let only = Only::at(address, Limits::default());
    // The first answer carries the origin's stream limit.
    let first = async {
        let given = given.recv().await.expect("a request");
        given.answer(200, b"x");
    };
    let (arrived, ()) = tokio::join!(only.get("/first"), first);
    drop(arrived.expect("an answer"));
    let all = futures_of((0..6).map(|_| only.get("/")));
    let answers = async {
        let mut waiting = Vec::new();
        while waiting.len() < 6 {
            waiting.push(given.recv().await.expect("a request"));
        }
        let mut connections: Vec<usize> = waiting.iter().map(|given| given.connection).collect();
        connections.sort_unstable();
        for given in waiting {
            given.answer(200, b"y");
        }
        connections
    };
    let (arrived, connections) = tokio::join!(all, answers);
    assert!(arrived.iter().all(Result::is_ok));
    assert_eq!(connections, [0, 0, 1, 1, 2, 2]);
}

/// An answer that is not read buffers one window of bytes, and stalls no other stream of the connection.
#[tokio::test(flavor = "local")]
async fn a_slow_reader_buffers_one_window_only() {
    let (address, mut given) = serve(100, usize::MAX).await;
    let limits = Limits { origin_streams_max: 4, ..Limits::default() };
    let window = limits.origin_stream_bytes_max;
    let only = Only::at(address, limits);
    let (progress, mut sent) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(mut given) = given.recv().await {
            let progress = progress.clone();
            tokio::spawn(async move {
                let response = Response::builder().status(200).body(()).expect("a response");
                let is_endless = given.request.uri().path() == "/endless";
                let mut stream = given.reply.send_response(response, false).expect("a stream");
                let (mut all, most) = (0, if is_endless { usize::MAX } else { 1 << 20 });
                while all < most {
                    stream.reserve_capacity(16 << 10);
                    let Some(Ok(room)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else {
                        return;
                    };
                    let bytes = room.min(most - all);
                    let _ = stream.send_data(Bytes::from(vec![b'x'; bytes]), false);
                    all += bytes;
                    let _ = progress.send((is_endless, all));
                }
                let _ = stream.send_data(Bytes::new(), true);
            });
        }
    });
    // Three of the four streams are not read.
    let mut slow = Vec::new();
    for _ in 0..3 {
        slow.push(only.get("/endless").await.expect("an answer"));
    }
    let mut quick = only.get("/megabyte").await.expect("an answer");
    assert_eq!(content(&mut quick).await.map(|all| all.len()), Ok(1 << 20));
    // The origin has now sent as much on the unread streams as their windows allow.
    let mut most = 0;
    while let Ok((is_endless, all)) = sent.try_recv() {
        if is_endless {
            most = most.max(all);
        }
    }
    assert_eq!(most, window);
    // When a stream is read again, the origin sends another window of bytes on it.
    let room = WordBuffer::new(window);
    let mut read = 0;
    while read < 2 * window {
        match slow[0].read(room.span()).await {
            Ok(BodyRead::Bytes(bytes)) => read += bytes,
            Ok(BodyRead::End) | Err(_) => panic!("it is endless"),
        }
    }
    // A dropped answer is cancelled at the origin, too, and its window goes back to the connection.
    slow.clear();
    let mut quick = only.get("/megabyte").await.expect("an answer");
    assert_eq!(content(&mut quick).await.map(|all| all.len()), Ok(1 << 20));
}

#[tokio::test(flavor = "local")]
async fn what_all_exchanges_may_keep_is_bounded() {
    let (address, mut given) = serve(100, usize::MAX).await;
    let limits = Limits {
        origin_streams_bytes_max: 4 * (64 << 10),
        origin_first_byte_time_max: Duration::from_millis(200),
        ..Limits::default()
    };
    let only = Only::at(address, limits);
    tokio::spawn(async move {
        while let Some(given) = given.recv().await {
            given.answer(200, b"ok");
        }
    });
    // A quarter is reserved for answers that will be stored.
    let mut kept = Vec::new();
    for _ in 0..3 {
        kept.push(only.get("/").await.expect("an answer"));
    }
    let busy = only.get("/").await.err();
    assert_eq!(busy, Some(OriginError::StreamsBusy(Duration::from_millis(200))));
    kept.pop();
    assert!(only.get("/").await.is_ok());
}

#[tokio::test(flavor = "local")]
async fn content_is_streamed_both_ways_intact() {
    let (address, mut given) = serve(100, usize::MAX).await;
    let only = Only::at(address, Limits::default());
    tokio::spawn(async move {
        while let Some(ScriptInput { request, mut reply, .. }) = given.recv().await {
            let (head, mut body) = request.into_parts();
            assert_eq!(head.headers.get("content-length"), None);
            let response = Response::builder().status(200).body(()).expect("a response");
            let mut stream = reply.send_response(response, false).expect("a stream");
            while let Some(Ok(piece)) = body.data().await {
                let _ = body.flow_control().release_capacity(piece.len());
                let _ = stream.send_data(piece, false);
            }
            let trailers = body.trailers().await.expect("an end").expect("trailers");
            let _ = stream.send_trailers(trailers);
        }
    });
    let sent: Vec<u8> = (0..300_000u32).map(|number| (number % 251) as u8).collect();
    let mut sender =
        Sender { body: Some(sent.clone()), trailers: b"X-Sum: 7\r\nx-other:  8 \r\n", ..Sender::default() };
    let head = "POST /echo HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nConnection: close";
    let asked = timeout(Duration::from_secs(20), only.ask(head, &mut sender)).await.expect("in time");
    // The answer may come while the request is being sent; the rest of the request is then not sent.
    let mut arrived = asked.expect("an answer");
    if sender.handed == Some(SendResult::Over) {
        assert_eq!(content(&mut arrived).await.as_deref(), Ok(&sent[..]));
        assert_eq!(arrived.trailers(), b"x-sum: 7\r\nx-other: 8\r\n");
    }
}

#[tokio::test(flavor = "local")]
async fn an_early_answer_ends_a_stalled_upload() {
    let (address, mut given) = serve(100, usize::MAX).await;
    let only = Only::at(address, Limits::default());
    let (go, gone) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(async move {
        let given = given.recv().await.expect("a request");
        let _ = gone.await;
        given.answer(413, b"too much");
    });
    let mut sender = Sender { body: Some(vec![1; 8 << 20]), ..Sender::default() };
    let head = "PUT / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked";
    let mut asking = Box::pin(only.ask(head, &mut sender));
    assert!(timeout(Duration::from_millis(300), &mut asking).await.is_err(), "it is held up");
    let _ = go.send(());
    let mut arrived = asking.await.expect("an answer");
    assert_eq!(arrived.head.head().status, 413);
    assert_eq!(content(&mut arrived).await.as_deref(), Ok(&b"too much"[..]));
    assert_eq!(sender.handed, Some(SendResult::Answered));
}

#[tokio::test(flavor = "local")]
async fn a_goaway_loses_no_request() {
    // Each connection sends GOAWAY after three requests; later requests on it are not processed.
    let (address, mut given) = serve(100, 3).await;
    let only = Only::at(address, Limits::default());
    tokio::spawn(async move {
        while let Some(given) = given.recv().await {
            tokio::spawn(async move {
                sleep(Duration::from_millis(5)).await;
                given.answer(200, b"ok");
            });
        }
    });
    for _ in 0..5 {
        for asked in futures_of((0..8).map(|_| only.get("/"))).await {
            assert!(asked.is_ok(), "{:?}", asked.err());
        }
    }
    assert_eq!(*only.failures.borrow(), 0, "it is no failure");
}

#[tokio::test(flavor = "local")]
async fn answer_heads_match_those_of_http1() {
    let (address, mut given) = serve(100, usize::MAX).await;
    let only = Only::at(address, Limits::default());
    tokio::spawn(async move {
        while let Some(mut given) = given.recv().await {
            let status: u16 = given.request.uri().path()[1..].parse().expect("a status");
            if status == 200 {
                let early = Response::builder().status(103).header("link", "</a>").body(()).expect("one");
                given.reply.send_informational(early).expect("sent");
            }
            let is_head = given.request.method() == Method::HEAD;
            let response = Response::builder().status(status).header("content-length", "5").header("x", "y");
            let response = if status == 204 { Response::builder().status(204) } else { response };
            let is_bare = is_head || matches!(status, 204 | 304);
            let response = response.body(()).expect("a response");
            let mut stream = given.reply.send_response(response, is_bare).expect("a stream");
            if !is_bare {
                let _ = stream.send_data(Bytes::from_static(b"hel"), false);
                let _ = stream.send_data(Bytes::from_static(b"lo"), false);
                let mut trailers = HeaderMap::new();
                trailers.insert("x-sum", "7".parse().expect("a value"));
                let _ = stream.send_trailers(trailers);
            }
        }
    });
    for (method, status, length) in
        [("GET", 200, 5), ("HEAD", 200, 0), ("GET", 204, 0), ("GET", 304, 0), ("GET", 404, 5)]
    {
        let mut sender = Sender::default();
        let head = format!("{method} /{status} HTTP/1.1\r\nHost: a.example");
        let mut arrived = only.ask(&head, &mut sender).await.expect("an answer");
        assert_eq!(arrived.head.head().status, status);
        assert_eq!(content(&mut arrived).await.map(|all| all.len()), Ok(length), "{method} {status}");
        assert!(arrived.is_complete());
        let told: Vec<_> = sender.told.iter().map(|head| String::from_utf8_lossy(head)).collect();
        if status == 200 {
            assert_eq!(told, ["HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n"]);
        }
        let trailers: &[u8] = if length > 0 { b"x-sum: 7\r\n" } else { b"" };
        assert_eq!(arrived.trailers(), trailers);
    }
}
