//! Small HTTP pages on the engine's bounded listener: admin, monitoring, the web pages of mail.
//!
//! ```text
//!  engine::bounded::Listener ──Connection──▶ axum (HTTP/1.1) ──head──▶ mark ──▶ router ──▶ body ──▶ dropped when sent
//!        ▲ a slot: idle, in a head, …             │              │ receiving, working        │ answered
//!        └────────────────────────────────────────┴──────────────┴───────────────────────────┘
//! ```
//! The engine sees bytes and measures their times; this crate knows HTTP, and reports when a head is complete
//! and a response sent. The crate is not meant for a hot path: the accelerator has its own HTTP.

mod door;
mod forwarded;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;

use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes, HttpBody},
    extract::{ConnectInfo, Request, State, connect_info::Connected},
    http::{HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    serve::IncomingStream,
};
use engine::{
    bounded::{self, Bounds, ConnectionSlot},
    network::Network,
    tls::TlsAcceptor,
};
use http_body::{Frame, SizeHint};
use wire::http1::url::{self, Scheme};

use self::door::BoundedListener;

/// Time limit for receiving a head, equal to the accelerator's `request-head-time-max`.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum length of a head in bytes. Browsers limit cookies to 16 KiB.
pub const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Time limit for an idle kept-alive connection: longer than the five minutes that tools wait between
/// requests.
pub const IDLE_TIME_MAX: Duration = Duration::from_secs(330);
/// Time limit for receiving a body: 32 MiB at 1 Mbit/s.
pub const BODY_TIME_MAX: Duration = Duration::from_secs(300);
/// Longest time for which a client may stop reading its response, equal to the accelerator's
/// `send-stall-max`.
pub const STALL_TIME_MAX: Duration = Duration::from_secs(30);

/// Time limit for sending a response, counted from the first time that we have to wait for the client to
/// read; equal to the limit for a request's body.
pub const ANSWER_TIME_MAX: Duration = BODY_TIME_MAX;

/// Minimum size of a body whose release is reported, so that its memory can be returned to the system.
const LARGE_BYTES: usize = 64 << 10;

/// RFC 9110 §15.5.9: the response to a head that arrives too slowly. The client has sent the beginning of a
/// head, so the 408 is a valid response to it.
const TOO_LATE: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 16\r\n\r\ntoo slow a head\n";
/// RFC 6585 §5: the response to a head that is too long.
const TOO_LONG: &[u8] =
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 16\r\n\r\ntoo long a head\n";
/// RFC 6585 §4: the response to a client with too many connections.
const TOO_MANY: &[u8] =
    b"HTTP/1.1 429 Too Many Requests\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 40\r\n\r\ntoo many connections from this address\r\n";
/// RFC 9112 §3.2, §3.2.2: the text of a 400 response.
const NOT_ONE_HOST: &str = "the request names more than one host\n";
/// Text of a 429 response to a client behind a proxy, whose connection stays open.
const TOO_MANY_ASKED: &str = "too many requests from this address are being answered\n";

/// Returns the bounds for a TLS listener, without plain-text error responses: they would not be encrypted.
#[must_use]
pub fn bounds_under_tls(bounds: Bounds) -> Bounds {
    Bounds { late_words: b"", long_words: b"", refused_words: b"", ..bounds }
}

/// Returns the bounds for small pages: `places_max` connection slots, `places_per_address_max` for one
/// address, and the time limits of this module.
#[must_use]
pub fn bounds(places_max: usize, places_per_address_max: usize) -> Bounds {
    Bounds {
        places_max,
        client_budget: None,
        places_per_address_max,
        idle_time_max: IDLE_TIME_MAX,
        head_time_max: HEAD_TIME_MAX,
        body_time_max: BODY_TIME_MAX,
        stall_time_max: STALL_TIME_MAX,
        answer_time_max: ANSWER_TIME_MAX,
        head_bytes_max: HEAD_BYTES_MAX,
        long_words: TOO_LONG,
        late_words: TOO_LATE,
        refused_words: TOO_MANY,
    }
}

/// The connection's peer address, in the canonical form that the listener provides: handlers receive it as
/// `ConnectInfo<Peer>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// The client's address: the peer's, or the one that the peer names if it is a trusted proxy. Handlers
/// receive it as `Extension<Client>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client(pub IpAddr);

/// Serves `pages` until `stop` is ready and all requests in progress have ended.
///
/// # Errors
/// Returns the operating system's error of the socket.
pub async fn serve(
    listener: bounded::Listener,
    pages: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    serve_behind(Arc::default(), listener, None, pages, stop).await
}

/// Serves like [`serve`], and trusts these proxies to name the client: a connection slot counts as that
/// client's while its request is answered. Any other peer's claim is ignored. With `tls`, each connection
/// begins with a handshake.
///
/// # Errors
/// Returns the operating system's error of the socket.
pub async fn serve_behind(
    proxies: Arc<[Network]>,
    listener: bounded::Listener,
    tls: Option<TlsAcceptor>,
    pages: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let pages = pages.layer(middleware::from_fn_with_state(proxies, mark));
    let pages = pages.into_make_service_with_connect_info::<Arrival>();
    axum::serve(BoundedListener::new(listener, tls), pages).with_graceful_shutdown(stop).await
}

/// An accepted connection's peer and slot.
#[derive(Clone)]
struct Arrival {
    peer: Peer,
    place: ConnectionSlot,
}

impl Connected<IncomingStream<'_, BoundedListener>> for Arrival {
    fn connect_info(stream: IncomingStream<'_, BoundedListener>) -> Self {
        Self { peer: Peer(*stream.remote_addr()), place: stream.io().place().clone() }
    }
}

/// Reports a request's progress to the connection slot; axum calls it when a head is complete.
async fn mark(
    State(proxies): State<Arc<[Network]>>,
    ConnectInfo(arrival): ConnectInfo<Arrival>,
    mut request: Request,
    next: Next,
) -> Response {
    let Arrival { peer, place } = arrival;
    let client = forwarded::client(peer.0.ip(), request.headers(), &proxies);
    request.extensions_mut().insert(ConnectInfo(peer));
    request.extensions_mut().insert(Client(client));
    if !names_one_host(&request) {
        return refused(StatusCode::BAD_REQUEST, NOT_ONE_HOST, true, place);
    }
    if client != peer.0.ip() && !place.asked_by(client) {
        // A body would not be read, so the connection is closed.
        let closes = !request.body().is_end_stream();
        return refused(StatusCode::TOO_MANY_REQUESTS, TOO_MANY_ASKED, closes, place);
    }
    let request = if request.body().is_end_stream() {
        place.working();
        request
    } else {
        place.receiving();
        request.map(|body| Body::new(RequestBody { body, place: place.clone(), bytes: 0 }))
    };
    let response = next.run(request).await;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        // The connection is no longer HTTP: it stays open as long as both sides want.
        place.working();
        return response;
    }
    answering(response, place)
}

/// Attaches a value to a body; it is dropped once the body has been sent, or the client is gone.
pub fn keep<T: Send + Unpin + 'static>(body: Body, kept: T) -> Body {
    Body::new(GuardedBody { body, _kept: kept })
}

/// A body with an attached value, see [`keep`].
struct GuardedBody<T> {
    body: Body,
    _kept: T,
}

impl<T: Unpin> HttpBody for GuardedBody<T> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns whether a request has at most one `Host`, which agrees with the host of an absolute-form target.
fn names_one_host(request: &Request) -> bool {
    let uri = request.uri();
    let scheme = if uri.scheme_str() == Some("https") { Scheme::Https } else { Scheme::Http };
    let authority = uri.scheme().and(uri.authority()).map(|authority| authority.as_str().as_bytes());
    let hosts = request.headers().get_all(header::HOST).iter().map(HeaderValue::as_bytes);
    url::names_one_host(scheme, authority, hosts)
}

/// Builds the response to a request that is refused before any page handles it.
fn refused(status: StatusCode, text: &'static str, closes: bool, place: ConnectionSlot) -> Response {
    place.working();
    let mut response = (status, text).into_response();
    if closes {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    answering(response, place)
}

/// Attaches a guard to the response's body that informs the slot when the body has been sent, or the client
/// is gone.
fn answering(response: Response, place: ConnectionSlot) -> Response {
    response.map(|body| {
        let bytes = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        keep(body, ResponseGuard { place, bytes })
    })
}

/// A request's body, which reports its progress to the slot.
struct RequestBody {
    body: Body,
    place: ConnectionSlot,
    /// Number of bytes received.
    bytes: usize,
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(frame, Poll::Ready(None)) || self.body.is_end_stream() {
            self.place.received();
        }
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            self.bytes += frame.data_ref().map_or(0, Bytes::len);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        self.place.received();
        if self.bytes >= LARGE_BYTES {
            self.place.let_go(self.bytes);
        }
    }
}

/// Guard of a response in progress.
struct ResponseGuard {
    place: ConnectionSlot,
    /// Size of the body in memory.
    bytes: usize,
}

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        self.place.answered();
        if self.bytes >= LARGE_BYTES {
            self.place.let_go(self.bytes);
        }
    }
}
