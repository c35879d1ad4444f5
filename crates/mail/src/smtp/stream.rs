//! The stream of a peer's connection, in clear text or over TLS.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

/// Plain or TLS stream.
#[derive(Debug)]
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// Placeholder during the TLS handshake.
    Between,
}

impl Stream {
    /// Reads some bytes; 0 means end of stream.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(into);
        let read = match self {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
            Self::Between => return Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        };
        ready!(read)?;
        Poll::Ready(Ok(buffer.filled().len()))
    }

    /// Writes some bytes; a TLS stream is also flushed.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => {
                let written = ready!(Pin::new(&mut *stream).poll_write(cx, bytes))?;
                // Bytes that are not flushed now are flushed by the next write or read.
                match Pin::new(stream).poll_flush(cx) {
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                    _ => Poll::Ready(Ok(written)),
                }
            }
            Self::Between => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Shuts down our side of the connection.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Between => Poll::Ready(Ok(())),
        }
    }
}
