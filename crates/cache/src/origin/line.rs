//! A connection to a server of an origin: TCP, a Unix socket, or TLS.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    os::fd::AsFd,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use engine::{
    sys::span::{Span, recv_span},
    tls::client::TlsStream,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf, ReadHalf},
    net::{TcpStream, UnixStream},
};

/// Number of bytes read at once from TLS: the maximum length of a record.
const RECORD_BYTES: usize = 16 << 10;

/// A connection to a server.
pub(crate) enum Line {
    /// Plain TCP.
    Tcp(TcpStream),
    /// Unix socket on this machine.
    Unix(UnixStream),
    /// TLS over TCP. Boxed, because it takes a kilobyte and the enum stays small.
    Secured(Box<TlsStream<TcpStream>>),
    /// Read half that carries the answer, while the write half still sends the rest of the request.
    Answering(Box<ReadHalf<Line>>),
}

impl Line {
    /// Writes as many bytes as the socket accepts without waiting, and returns their number. The caller's
    /// waiting write sends the rest, and reports errors.
    pub(super) fn try_write(&mut self, bytes: &[u8]) -> usize {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes).unwrap_or(0),
            Self::Unix(stream) => stream.try_write(bytes).unwrap_or(0),
            Self::Secured(_) | Self::Answering(_) => 0,
        }
    }

    /// Returns whether the connection is open and has no unexpected bytes.
    pub(super) fn is_quiet(&mut self) -> bool {
        let is_nothing =
            |read: io::Result<usize>| matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        match self {
            Self::Tcp(stream) => is_nothing(stream.try_read(&mut [0])),
            Self::Unix(stream) => is_nothing(stream.try_read(&mut [0])),
            // A TLS 1.3 server sends session tickets at any time; this read processes them.
            Self::Secured(stream) => {
                let mut room = [0];
                let mut cx = Context::from_waker(Waker::noop());
                Pin::new(stream).poll_read(&mut cx, &mut ReadBuf::new(&mut room)).is_pending()
            }
            // A connection that was split into halves ends with its answer, and is never reused.
            Self::Answering(_) => false,
        }
    }

    /// Receives available bytes into `target`; `None` if there are none yet.
    pub(super) fn receive_now(&mut self, target: Span<'_>) -> io::Result<Option<usize>> {
        let received = match self {
            Self::Tcp(stream) => stream.try_io(Interest::READABLE, || recv_span(stream.as_fd(), target)),
            Self::Unix(stream) => stream.try_io(Interest::READABLE, || recv_span(stream.as_fd(), target)),
            Self::Secured(_) | Self::Answering(_) => {
                let mut cx = Context::from_waker(Waker::noop());
                return match poll_span(self, &mut cx, target) {
                    Poll::Ready(received) => received.map(Some),
                    Poll::Pending => Ok(None),
                };
            }
        };
        match received {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            received => received.map(Some),
        }
    }

    /// Waits for bytes, and receives them into `target`.
    pub(super) async fn receive(&mut self, target: Span<'_>) -> io::Result<usize> {
        loop {
            if let Self::Secured(_) | Self::Answering(_) = self {
                return poll_fn(|cx| poll_span(self, cx, target)).await;
            }
            if let Some(received) = self.receive_now(target)? {
                return Ok(received);
            }
            match self {
                Self::Tcp(stream) => stream.readable().await?,
                Self::Unix(stream) => stream.readable().await?,
                Self::Secured(_) | Self::Answering(_) => {}
            }
        }
    }
}

/// Receives into a local buffer and copies to `target`, because other threads may be reading the span's
/// memory.
fn poll_span(line: &mut Line, cx: &mut Context<'_>, target: Span<'_>) -> Poll<io::Result<usize>> {
    let mut room = [0; RECORD_BYTES];
    let mut buffer = ReadBuf::new(&mut room[..target.len().min(RECORD_BYTES)]);
    ready!(Pin::new(line).poll_read(cx, &mut buffer))?;
    let came = buffer.filled();
    target.slice(0..came.len()).write_from(came);
    Poll::Ready(Ok(came.len()))
}

impl AsyncRead for Line {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Secured(stream) => Pin::new(stream).poll_read(cx, into),
            Self::Answering(half) => Pin::new(half).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Line {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Secured(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Answering(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Self::Secured(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Self::Answering(_) => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
        }
    }

    /// Returns true, because HTTP/2 sends a frame's header and its content from two buffers.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Self::Secured(stream) => Pin::new(stream).poll_flush(cx),
            Self::Answering(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Secured(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Answering(_) => Poll::Ready(Ok(())),
        }
    }
}
