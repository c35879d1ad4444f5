//! NATS over WebSocket (RFC 6455): the stream of operations, cut into binary messages anywhere.
//!
//! Each write of ours becomes one message; what a browser sends may be text or binary, cut where it likes.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async_with_config,
    tungstenite::{
        Bytes, Error, Message,
        handshake::server::{ErrorResponse, Request, Response},
        http::{HeaderValue, StatusCode, header},
        protocol::WebSocketConfig,
    },
};

/// Bytes of one message from a browser, at least; more where `max_payload` is more.
const MESSAGE_BYTES_MAX: usize = 4 << 20;

/// A stream of bytes over WebSocket messages.
pub(crate) struct WebStream<S> {
    inner: WebSocketStream<S>,
    /// Of the message that is being read.
    incoming: Bytes,
}

/// Does the upgrade. `allowed_origins` empty: pages of all origins may connect.
pub(crate) async fn accept<S>(
    stream: S,
    allowed_origins: &[String],
    payload_bytes_max: usize,
) -> io::Result<WebStream<S>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let bytes_max = MESSAGE_BYTES_MAX.max(payload_bytes_max.saturating_mul(2));
    let config = WebSocketConfig::default()
        .max_message_size(Some(bytes_max))
        .max_frame_size(Some(bytes_max))
        .write_buffer_size(0)
        .max_write_buffer_size(bytes_max);
    #[expect(clippy::result_large_err, reason = "the library's own type")]
    let look = |request: &Request, response: Response| match origin_allowed(request, allowed_origins) {
        true => Ok(response),
        false => {
            let mut refused = ErrorResponse::new(Some("this page's origin is not allowed here\n".to_owned()));
            *refused.status_mut() = StatusCode::FORBIDDEN;
            Err(refused)
        }
    };
    let inner = accept_hdr_async_with_config(stream, look, Some(config)).await.map_err(io::Error::other)?;
    Ok(WebStream { inner, incoming: Bytes::new() })
}

/// Programs other than browsers send no origin.
fn origin_allowed(request: &Request, allowed: &[String]) -> bool {
    let origin = request.headers().get(header::ORIGIN).map(HeaderValue::as_bytes);
    allowed.is_empty()
        || origin.is_none_or(|origin| allowed.iter().any(|one| one.as_bytes().eq_ignore_ascii_case(origin)))
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
