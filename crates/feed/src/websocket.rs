//! NATS over WebSocket (RFC 6455): the stream of operations, cut into binary messages anywhere.
//!
//! Each write of ours becomes one message; what a browser sends may be text or binary, cut where it likes.

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
        protocol::WebSocketConfig,
    },
};

use crate::{config::Limits, serve::Duplex};

/// Bytes of one message from a browser, at least; more where `max_payload` is more.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Bytes of one message from a server that we have joined: the longest of NATS, and what stands around it.
const FROM_SERVER_BYTES_MAX: usize = 65 << 20;

/// Bytes that a client may send before it is let in, beside what its CONNECT may have.
const OUTSIDE_BYTES_MAX: usize = 4096;

/// What lies below the frames: lets through so many bytes while nobody knows who sends them. (Frames are as long as
/// their heads say, up to the bound of a message, and one is gathered before we see any of it.)
struct Gate<S> {
    inner: S,
    /// `None`: any number.
    left: Option<usize>,
}

/// A stream of bytes over WebSocket messages.
pub(crate) struct WebStream<S> {
    inner: WebSocketStream<Gate<S>>,
    /// Of the message that is being read.
    incoming: Bytes,
}

/// Does the upgrade, for programs and for the pages that may connect ([`origin_allowed`]).
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
        .write_buffer_size(0)
        .max_write_buffer_size(bytes_max);
    #[expect(clippy::result_large_err, reason = "the library's own type")]
    let look = |request: &Request, response: Response| match origin_allowed(request, web) {
        true => Ok(response),
        false => {
            let why = "this page's origin is not allowed here: allowed_origins (--websocket-origins) names those that are\n";
            let mut refused = ErrorResponse::new(Some(why.to_owned()));
            *refused.status_mut() = StatusCode::FORBIDDEN;
            Err(refused)
        }
    };
    // The upgrade has bounds of the library's own.
    let gate = Gate { inner: stream, left: None };
    let mut inner = accept_hdr_async_with_config(gate, look, Some(config)).await.map_err(io::Error::other)?;
    inner.get_mut().left = is_outside.then_some(limits.max_control_line + OUTSIDE_BYTES_MAX);
    Ok(WebStream { inner, incoming: Bytes::new() })
}

/// Asks a server for an upgrade: the other side of the same. `place` is its host and port.
pub(crate) async fn connect<S>(stream: S, place: &str, path: &str) -> io::Result<WebStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let config = WebSocketConfig::default()
        .max_message_size(Some(FROM_SERVER_BYTES_MAX))
        .max_frame_size(Some(FROM_SERVER_BYTES_MAX))
        .write_buffer_size(0)
        .max_write_buffer_size(FROM_SERVER_BYTES_MAX);
    let gate = Gate { inner: stream, left: None };
    let address = format!("ws://{place}{path}");
    let upgraded = client_async_with_config(address, gate, Some(config)).await;
    let (inner, _) = upgraded.map_err(io::Error::other)?;
    Ok(WebStream { inner, incoming: Bytes::new() })
}

/// In [`crate::config::WebSocket::allowed_origins`]: pages of all origins.
const ANY_ORIGIN: &str = "*";

/// Whether whoever asks may connect. Programs other than browsers send no origin, and may. A page may if its origin is
/// listed, or is this very address. Of names that is not enough: whoever owns a name can have it mean this machine (DNS
/// rebinding), and a browser then calls the page and the address the same.
/// That is for who asks for [`crate::config::WebSocket::same_origin`], which is nats-server's: the name must be the
/// same, and the list, if there is one, must have it as well.
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

/// Whether a page's origin and what it asks for have one name and one port; a port that is not said is the scheme's.
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
}

impl<S: AsyncRead + Unpin> AsyncRead for Gate<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(left) = self.left else { return Pin::new(&mut self.inner).poll_read(cx, buffer) };
        if left == 0 {
            return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()));
        }
        let at_most = left.min(buffer.remaining());
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(at_most));
        ready!(Pin::new(&mut self.inner).poll_read(cx, &mut part))?;
        let bytes = part.filled().len();
        buffer.advance(bytes);
        self.left = Some(left - bytes);
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

fn as_io(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        Error::ConnectionClosed | Error::AlreadyClosed => io::ErrorKind::BrokenPipe.into(),
        other => io::Error::other(other),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WebStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.incoming.is_empty() {
            match ready!(Pin::new(&mut self.inner).poll_next(cx)) {
                Some(Ok(Message::Binary(bytes))) => self.incoming = bytes,
                Some(Ok(Message::Text(text))) => self.incoming = text.into(),
                Some(Ok(Message::Close(_))) | None => return Poll::Ready(Ok(())),
                // The library answers pings by itself.
                Some(Ok(_)) => {}
                Some(Err(Error::ConnectionClosed | Error::AlreadyClosed)) => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(as_io(error))),
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
        Pin::new(&mut self.inner).poll_close(cx).map_err(as_io)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_other_origins_are_refused_unless_they_are_listed() {
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
            // A name that was made to mean this machine.
            ("http://evil.example:8081", "evil.example:8081"),
            ("http://127.0.0.1.evil.example:8081", "127.0.0.1.evil.example:8081"),
        ] {
            assert!(!allowed(Some(origin), host, &[]), "{origin}");
            assert!(!allowed(Some(origin), host, &["https://good.example"]), "{origin}");
            assert!(allowed(Some(origin), host, &["https://good.example", origin]), "{origin}");
            assert!(allowed(Some(origin), host, &["*"]), "{origin}");
        }
        // As nats-server's `same_origin`: the name may be any, and a list must have it, too.
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
