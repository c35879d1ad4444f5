//! NATS over WebSocket (RFC 6455): the stream of operations, cut into messages at any point.
//!
//! Each write of the server is one binary message. A browser's messages may be text or binary, cut anywhere.
//!
//! ```text
//!   socket or TLS ─▶ Gate: counts frames and bytes ─▶ the library: gathers a message ─▶ WebStream: a stream of bytes
//! ```
//! *Bounds.* The library reads for as long as there are bytes, and returns nothing for a frame without
//! payload. So the gate parses the frames' heads, lets at most [`FRAMES_A_READ`] frames through in one read,
//! and each frame is charged to the client's turn. The part of an incomplete message that the library holds
//! counts as an incomplete operation ([`Duplex::held_bytes`]).

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async_with_config, client_async_with_config,
    tungstenite::{
        Bytes, Error, Message,
        handshake::server::{ErrorResponse, Request, Response},
        http::{HeaderValue, StatusCode, header},
        protocol::{
            WebSocketConfig,
            frame::{CloseFrame, coding::CloseCode},
        },
    },
};

use crate::{
    client::stream::{Duplex, Frames},
    config::Limits,
};
use wire::http1::url::{self, Scheme};

/// Default bound on the bytes of one message from a browser; twice `max_payload` if that is larger.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Largest message accepted from a server that the feed connects to: the longest NATS message with its
/// control line.
const FROM_SERVER_BYTES_MAX: usize = 65 << 20;

/// Bytes that a client may send before it is admitted, in addition to the maximum length of its CONNECT.
const OUTSIDE_BYTES_MAX: usize = 4096;

/// Size of the read buffer that the WebSocket library allocates for each connection.
const READ_BUFFER_BYTES: usize = 16 * 1024;

/// Frames that the gate lets through in one read.
const FRAMES_A_READ: u64 = 512;

/// Stream below the WebSocket library. It limits the bytes from a client that is not admitted yet. (A frame
/// may be as long as the bound on a message, and the library collects a whole frame before it returns any of
/// it.)
struct Gate<S> {
    inner: S,
    /// Bytes that may still pass; `None`: any number.
    left: Option<usize>,
    /// Parser of the frames' headers, set once the upgrade is done; `None`: the number of frames is not
    /// limited.
    walker: Option<FrameWalker>,
    /// Bytes passed since the last complete message.
    since_message: usize,
}

impl<S> Gate<S> {
    fn new(inner: S) -> Self {
        Self { inner, left: None, walker: None, since_message: 0 }
    }
}

/// Finds the starts of frames in a stream of bytes (RFC 6455 §5.2).
#[derive(Debug, Default)]
struct FrameWalker {
    /// Bytes received so far of an incomplete frame header.
    head: [u8; HEAD_BYTES_MAX],
    have: usize,
    /// Bytes of the frame's payload that are still to come.
    payload_left: u64,
    /// Frame headers parsed since the count was last taken.
    frames: u64,
    /// Frame headers that the current read may still let through.
    allowed: u64,
    /// The current read has let through as many frame headers as allowed.
    is_spent: bool,
}

/// Longest header of a frame: two bytes, eight of length, four of mask.
const HEAD_BYTES_MAX: usize = 14;
/// Shortest header of a client's frame: two bytes and the mask.
const HEAD_BYTES_MIN: u64 = 6;
/// Longest header of a client's ping or pong frame.
const CONTROL_HEAD_BYTES: usize = 6;

impl FrameWalker {
    /// Returns how many bytes may be read now without passing more frames than allowed.
    fn bytes_allowed(&self) -> usize {
        usize::try_from(self.payload_left.saturating_add(self.allowed * HEAD_BYTES_MIN)).unwrap_or(usize::MAX)
    }

    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let payload =
                usize::try_from(self.payload_left).map_or(bytes.len(), |left| left.min(bytes.len()));
            bytes = &bytes[payload..];
            self.payload_left -= payload as u64;
            while let Some((&first, rest)) = bytes.split_first() {
                if self.payload_left > 0 {
                    break;
                }
                self.head[self.have] = first;
                self.have += 1;
                bytes = rest;
                if self.have == self.head_bytes() {
                    self.payload_left = self.payload_bytes();
                    self.have = 0;
                    self.frames += 1;
                    self.allowed = self.allowed.saturating_sub(1);
                }
            }
        }
    }

    /// Returns the length of the current frame header, as far as it is known: at least two bytes.
    fn head_bytes(&self) -> usize {
        if self.have < 2 {
            return 2;
        }
        let length = match self.head[1] & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        2 + length + if self.head[1] & 0x80 == 0 { 0 } else { 4 }
    }

    fn payload_bytes(&self) -> u64 {
        let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |number, &byte| number << 8 | u64::from(byte));
        match self.head[1] & 0x7f {
            126 => number(&self.head[2..4]),
            127 => number(&self.head[2..10]),
            short => short.into(),
        }
    }
}

/// A stream of bytes over WebSocket messages.
pub(crate) struct WebStream<S> {
    inner: WebSocketStream<Gate<S>>,
    /// Remainder of the message that is being read.
    incoming: Bytes,
    /// Close code for the peer's protocol error (RFC 6455 §7.4.1).
    fault: Option<CloseCode>,
}

/// Accepts the upgrade from programs, and from web pages whose origin may connect ([`origin_allowed`]).
pub(crate) async fn accept<S>(
    stream: S,
    web: &crate::config::WebSocket,
    limits: &Limits,
    is_outside: bool,
) -> io::Result<WebStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let bytes_max = MESSAGE_BYTES_MAX.max(limits.max_payload.saturating_mul(2));
    let config = WebSocketConfig::default()
        .max_message_size(Some(bytes_max))
        .max_frame_size(Some(bytes_max))
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(bytes_max);
    #[expect(clippy::result_large_err, reason = "the library's own type")]
    let look = |request: &Request, response: Response| match origin_allowed(request, web) {
        _ if !names_one_host(request) => {
            let mut refused = ErrorResponse::new(Some("the request names more than one host\n".to_owned()));
            *refused.status_mut() = StatusCode::BAD_REQUEST;
            Err(refused)
        }
        true => Ok(response),
        false => {
            let origin = request.headers().get(header::ORIGIN).map(HeaderValue::as_bytes).unwrap_or_default();
            let origin = String::from_utf8_lossy(origin);
            tracing::info!(%origin, "WebSocket refused: allowed_origins (--websocket-origins) does not name the page's origin");
            let why = "origin not allowed: allowed_origins (--websocket-origins) does not list this page's origin\n";
            let mut refused = ErrorResponse::new(Some(why.to_owned()));
            *refused.status_mut() = StatusCode::FORBIDDEN;
            Err(refused)
        }
    };
    // The WebSocket library itself limits the size of the upgrade request.
    let mut inner = accept_hdr_async_with_config(Gate::new(stream), look, Some(config))
        .await
        .map_err(io::Error::other)?;
    // The library refuses clients that send anything after the request before they receive the response.
    let gate = inner.get_mut();
    gate.left = is_outside.then_some(limits.max_control_line + OUTSIDE_BYTES_MAX);
    gate.walker = Some(FrameWalker::default());
    gate.since_message = 0;
    Ok(WebStream { inner, incoming: Bytes::new(), fault: None })
}

/// Requests the upgrade from a server, as a client. `place` is the server's host and port.
pub(crate) async fn connect<S>(stream: S, place: &str, path: &str) -> io::Result<WebStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let config = WebSocketConfig::default()
        .max_message_size(Some(FROM_SERVER_BYTES_MAX))
        .max_frame_size(Some(FROM_SERVER_BYTES_MAX))
        .write_buffer_size(0)
        .max_write_buffer_size(FROM_SERVER_BYTES_MAX);
    let gate = Gate::new(stream);
    let address = format!("ws://{place}{path}");
    let upgraded = client_async_with_config(address, gate, Some(config)).await;
    let (inner, _) = upgraded.map_err(io::Error::other)?;
    Ok(WebStream { inner, incoming: Bytes::new(), fault: None })
}

/// Returns whether a request has at most one `Host` field, equal to the host of an absolute-form target (RFC
/// 9112 §3.2, §3.2.2). The page's origin is compared with `Host`, so the host must be unambiguous.
fn names_one_host(request: &Request) -> bool {
    let uri = request.uri();
    let scheme = match uri.scheme_str() {
        Some("https" | "wss") => Scheme::Https,
        _ => Scheme::Http,
    };
    let authority = uri.scheme().and(uri.authority()).map(|authority| authority.as_str().as_bytes());
    let hosts = request.headers().get_all(header::HOST).iter().map(HeaderValue::as_bytes);
    url::names_one_host(scheme, authority, hosts)
}

/// Entry of [`crate::config::WebSocket::allowed_origins`] that allows every origin.
const ANY_ORIGIN: &str = "*";

/// Returns whether a request's origin may connect. Programs other than browsers send no origin, and may. A
/// page may connect if its origin is listed, or is the very IP address that it connects to. An equal host
/// name is not enough: the owner of a name can point it at this machine (DNS rebinding), and the browser then
/// sees page and server under the same name.
///
/// [`crate::config::WebSocket::same_origin`] selects nats-server's rule instead: the names must be equal, and
/// the list, if there is one, must contain the origin as well.
fn origin_allowed(request: &Request, web: &crate::config::WebSocket) -> bool {
    let Some(origin) = request.headers().get(header::ORIGIN) else { return true };
    let host = request.headers().get(header::HOST);
    let is = |one: &String| one == ANY_ORIGIN || one.as_bytes().eq_ignore_ascii_case(origin.as_bytes());
    let is_listed = web.allowed_origins.iter().any(is);
    if web.same_origin {
        return is_same_name(origin, host, web.tls.is_some())
            && (is_listed || web.allowed_origins.is_empty());
    }
    is_listed || is_same_address(origin, host)
}

/// Returns whether a page's origin and the requested host have the same name and port. A missing port is the
/// scheme's default.
fn is_same_name(origin: &HeaderValue, host: Option<&HeaderValue>, is_tls: bool) -> bool {
    let (Ok(origin), Some(Ok(host))) = (origin.to_str(), host.map(HeaderValue::to_str)) else { return false };
    let Some((scheme, origin_host)) = origin.split_once("://") else { return false };
    let with_port = |text: &str, is_secure: bool| match text.rsplit_once(':') {
        Some((_, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            text.to_ascii_lowercase()
        }
        _ => format!("{}:{}", text.to_ascii_lowercase(), if is_secure { 443 } else { 80 }),
    };
    with_port(origin_host, scheme.eq_ignore_ascii_case("https")) == with_port(host, is_tls)
}

fn is_same_address(origin: &HeaderValue, host: Option<&HeaderValue>) -> bool {
    let (Ok(origin), Some(Ok(host))) = (origin.to_str(), host.map(HeaderValue::to_str)) else { return false };
    let Some((_, origin_host)) = origin.split_once("://") else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let is_address =
        name.eq_ignore_ascii_case("localhost") || name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    is_address && origin_host.eq_ignore_ascii_case(host)
}

impl<S: AsyncRead + AsyncWrite + Unpin> Duplex for WebStream<S> {
    fn let_in(&mut self) {
        self.inner.get_mut().left = None;
    }

    fn take_frames(&mut self) -> Frames {
        let Some(walker) = &mut self.inner.get_mut().walker else { return Frames::default() };
        Frames {
            count: std::mem::take(&mut walker.frames),
            may_have_more: std::mem::take(&mut walker.is_spent),
        }
    }

    fn held_bytes(&self) -> usize {
        self.inner.get_ref().since_message + self.incoming.len()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Gate<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { inner, left, walker, since_message } = &mut *self;
        let mut at_most = buffer.remaining();
        if let Some(left) = *left {
            if left == 0 {
                return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()));
            }
            at_most = at_most.min(left);
        }
        if let Some(walker) = walker {
            at_most = at_most.min(walker.bytes_allowed());
            if at_most == 0 {
                // Other tasks run first. `is_spent` tells the reader that the stream may still have bytes.
                walker.is_spent = true;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(at_most));
        ready!(Pin::new(inner).poll_read(cx, &mut part))?;
        let bytes = part.filled().len();
        if let Some(walker) = walker {
            walker.pass(part.filled());
        }
        buffer.advance(bytes);
        *since_message += bytes;
        if let Some(left) = left {
            *left -= bytes;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gate<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

fn fault_of(error: &Error) -> Option<CloseCode> {
    Some(match error {
        Error::Protocol(_) => CloseCode::Protocol,
        Error::Utf8(_) => CloseCode::Invalid,
        Error::Capacity(_) => CloseCode::Size,
        _ => return None,
    })
}

fn as_io(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        Error::ConnectionClosed | Error::AlreadyClosed => io::ErrorKind::BrokenPipe.into(),
        other => io::Error::other(other),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebStream<S> {
    fn take_message(&mut self, bytes: Bytes) {
        self.incoming = bytes;
        self.inner.get_mut().since_message = 0;
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WebStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(walker) = &mut self.inner.get_mut().walker {
            walker.allowed = FRAMES_A_READ;
        }
        while self.incoming.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_next(cx)) {
                Some(Ok(Message::Binary(bytes))) => self.take_message(bytes),
                Some(Ok(Message::Text(text))) => self.take_message(text.into()),
                Some(Ok(Message::Close(_))) | None => return Poll::Ready(Ok(())),
                // The library answers pings itself. A ping may come between the frames of a message, so only
                // the ping's bytes are subtracted from the count.
                Some(Ok(Message::Ping(bytes) | Message::Pong(bytes))) => {
                    let gate = self.inner.get_mut();
                    gate.since_message = gate.since_message.saturating_sub(bytes.len() + CONTROL_HEAD_BYTES);
                }
                Some(Ok(_)) => {}
                Some(Err(Error::ConnectionClosed | Error::AlreadyClosed)) => return Poll::Ready(Ok(())),
                Some(Err(error)) => {
                    self.fault = fault_of(&error);
                    return Poll::Ready(Err(as_io(error)));
                }
            }
        }
        let bytes = self.incoming.len().min(buffer.remaining());
        let taken = self.incoming.split_to(bytes);
        buffer.put_slice(&taken);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WebStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(Pin::new(&mut self.inner).poll_ready(cx)).map_err(as_io)?;
        let message = Message::Binary(Bytes::copy_from_slice(bytes));
        Pin::new(&mut self.inner).start_send(message).map_err(as_io)?;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx).map_err(as_io)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.fault.is_some() {
            ready!(Pin::new(&mut self.inner).poll_ready(cx)).map_err(as_io)?;
            let frame = self.fault.take().map(|code| CloseFrame { code, reason: "".into() });
            Pin::new(&mut self.inner).start_send(Message::Close(frame)).map_err(as_io)?;
        }
        Pin::new(&mut self.inner).poll_close(cx).map_err(as_io)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gate finds every frame header, for all kinds and lengths of frames, split anywhere.
    #[test]
    fn the_gate_finds_every_frame() {
        let mut bytes = Vec::new();
        let lengths = [0_usize, 1, 125, 126, 300, 65_535, 65_536, 0, 0, 7];
        for &length in &lengths {
            bytes.push(0x82);
            match length {
                0..=125 => bytes.push(0x80 | length as u8),
                126..=65_535 => {
                    bytes.push(0x80 | 126);
                    bytes.extend_from_slice(&(length as u16).to_be_bytes());
                }
                _ => {
                    bytes.push(0x80 | 127);
                    bytes.extend_from_slice(&(length as u64).to_be_bytes());
                }
            }
            bytes.extend_from_slice(&[1, 2, 3, 4]);
            bytes.extend(std::iter::repeat_n(0xff, length));
        }
        for step in [1, 2, 3, 5, 13, 64, 1000, bytes.len()] {
            let mut walker = FrameWalker { allowed: 20, ..FrameWalker::default() };
            bytes.chunks(step).for_each(|chunk| walker.pass(chunk));
            assert_eq!(walker.frames, lengths.len() as u64, "{step}");
            assert_eq!((walker.payload_left, walker.have, walker.allowed), (0, 0, 10), "{step}");
        }
    }

    #[test]
    fn a_read_lets_so_many_frames_through() {
        let mut walker = FrameWalker { allowed: FRAMES_A_READ, ..FrameWalker::default() };
        let empty = [0x82, 0x80, 0, 0, 0, 0].repeat(10_000);
        let mut at = 0;
        while walker.bytes_allowed() > 0 {
            let end = (at + walker.bytes_allowed()).min(empty.len());
            walker.pass(&empty[at..end]);
            at = end;
        }
        assert_eq!(walker.frames, FRAMES_A_READ);
    }

    #[test]
    fn foreign_origins_are_refused_unless_listed() {
        let web = |list: &[&str], same_origin| crate::config::WebSocket {
            listen: ([127, 0, 0, 1], 0).into(),
            tls: None,
            allowed_origins: list.iter().map(|one| (*one).to_owned()).collect(),
            same_origin,
        };
        let asked = |origin: Option<&str>, host: &str, web: &crate::config::WebSocket| {
            let mut request = Request::builder().uri("/").header("host", host);
            if let Some(origin) = origin {
                request = request.header("origin", origin);
            }
            origin_allowed(&request.body(()).expect("a request"), web)
        };
        let allowed =
            |origin: Option<&str>, host: &str, list: &[&str]| asked(origin, host, &web(list, false));
        let here = "127.0.0.1:8081";
        assert!(allowed(None, here, &[]), "a program");
        for (origin, host) in [
            ("http://127.0.0.1:8081", here),
            ("http://localhost:8081", "LOCALHOST:8081"),
            ("http://[::1]:8081", "[::1]:8081"),
        ] {
            assert!(allowed(Some(origin), host, &[]), "{origin}");
        }
        for (origin, host) in [
            ("https://evil.example", here),
            ("http://127.0.0.1:8000", here),
            ("null", here),
            // Host names that were pointed at this machine.
            ("http://evil.example:8081", "evil.example:8081"),
            ("http://127.0.0.1.evil.example:8081", "127.0.0.1.evil.example:8081"),
        ] {
            assert!(!allowed(Some(origin), host, &[]), "{origin}");
            assert!(!allowed(Some(origin), host, &["https://good.example"]), "{origin}");
            assert!(allowed(Some(origin), host, &["https://good.example", origin]), "{origin}");
            assert!(allowed(Some(origin), host, &["*"]), "{origin}");
        }
        // nats-server's `same_origin`: an equal name is allowed, unless there is a list that does not contain
        // it.
        let same = |origin: &str, host: &str, list: &[&str]| asked(Some(origin), host, &web(list, true));
        assert!(same("http://shop.example", "shop.example:80", &[]));
        assert!(same("http://shop.example:8081", "Shop.Example:8081", &["http://shop.example:8081"]));
        assert!(!same("http://shop.example", "shop.example:8081", &[]));
        assert!(!same("https://shop.example", "shop.example", &[]));
        assert!(!same("http://evil.example", "shop.example:80", &["http://evil.example"]));
        assert!(!same("http://shop.example", "shop.example:80", &["http://good.example"]));
        assert!(asked(None, here, &web(&[], true)), "a program");
    }
}
