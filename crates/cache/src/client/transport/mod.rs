//! A client's socket, plain or under TLS, used by the HTTP protocols to read and write.
//!
//! ```text
//!   plain   socket ────────────────────────────▶ caller's buffer           parts ─▶ socket
//!   TLS     socket ─▶ scratch ─ Session::receive ─▶ caller's buffer        parts ─▶ scratch ─ Session::seal ─▶ socket
//!                       │ less than a record: kept                                      │ not accepted: kept, counted
//! ```
//! Location of the data: in the thread's scratch during a call. A TLS connection keeps the beginning of an
//! incomplete record, and sealed bytes that the socket did not accept, which count towards the
//! [budget](crate::client::limits::client_budget) for memory held for clients. An idle TLS connection keeps
//! only its keys.

pub(crate) mod scratch;
mod secured;

use std::{
    io,
    os::fd::AsFd,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::BufMut as _;
use engine::{
    cores::watch::Watch,
    sys::span::{Part, send_parts},
    tls::session::{RECORD_BYTES_MAX, Session},
};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, Interest, ReadBuf},
    net::TcpStream,
};

use self::secured::TlsStream;
pub(crate) use self::secured::shake_hands;
use crate::{core::with_core, request::client_auth::ClientAuth};

/// A client's socket.
pub(crate) struct Transport {
    stream: TcpStream,
    secured: Option<Box<TlsStream>>,
}

impl Transport {
    pub(crate) fn plain(stream: TcpStream) -> Self {
        // Answers are written whole, so Nagle's algorithm would only add latency.
        let _ = stream.set_nodelay(true);
        Self { stream, secured: None }
    }

    /// Returns the TLS session; `None` for a plain connection.
    pub(crate) fn session(&self) -> Option<&Session> {
        self.secured.as_deref().map(TlsStream::session)
    }

    /// Returns how the client has authenticated itself.
    pub(crate) fn client_auth(&self) -> &ClientAuth {
        const PLAIN: &ClientAuth = &ClientAuth::Plain;
        self.secured.as_deref().map_or(PLAIN, TlsStream::client_auth)
    }

    /// Returns whether pages of the store may be lent to the kernel for this socket (plain connections only).
    pub(crate) fn lends(&self) -> bool {
        self.secured.is_none()
    }

    /// Reads once into `room`, at most `bytes_max`; 0 is the end of the stream. Under TLS a longer record is
    /// still read to its end, so `room` must hold a whole record ([`RECORD_BYTES_MAX`]).
    #[inline]
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        room: &mut [u8],
        bytes_max: usize,
    ) -> Poll<io::Result<usize>> {
        let bytes_max = bytes_max.min(room.len());
        match &mut self.secured {
            None => {
                let mut buffer = ReadBuf::new(&mut room[..bytes_max]);
                ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer))?;
                Poll::Ready(Ok(buffer.filled().len()))
            }
            Some(secured) => {
                assert!(room.len() >= RECORD_BYTES_MAX, "a read from TLS has room for a record");
                let mut at = 0;
                secured.poll_read(&mut self.stream, cx, bytes_max, &mut |content| {
                    room[at..at + content.len()].copy_from_slice(content);
                    at += content.len();
                })
            }
        }
    }

    /// Reads once and appends to `into`, at most `bytes_max` or, under TLS, one longer record; 0 is the end
    /// of the stream.
    pub(crate) fn poll_append(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Poll<io::Result<usize>> {
        match &mut self.secured {
            None => {
                into.reserve(bytes_max);
                pin!(self.stream.read_buf(&mut into.limit(bytes_max))).poll(cx)
            }
            Some(secured) => {
                let take = &mut |content: &[u8]| into.extend_from_slice(content);
                secured.poll_read(&mut self.stream, cx, bytes_max, take)
            }
        }
    }

    /// Sends once, without waiting. Returns the number of accepted bytes of `parts`, some of which may still
    /// be buffered here.
    pub(crate) fn try_send(&mut self, parts: &[Part<'_>]) -> io::Result<usize> {
        let stream = &self.stream;
        if let Some(secured) = &mut self.secured {
            return secured.try_send(stream, parts);
        }
        let send = || {
            if !parts.iter().any(|part| matches!(part, Part::Lent(_))) {
                return send_parts(stream.as_fd(), parts);
            }
            with_core(|core| match &mut *core.storage.lender.borrow_mut() {
                Some(lender) => lender.send_parts(stream.as_fd(), parts),
                None => send_parts(stream.as_fd(), parts),
            })
        };
        stream.try_io(Interest::WRITABLE, send)
    }

    /// Returns whether the kernel has all accepted bytes.
    pub(crate) fn is_flushed(&self) -> bool {
        self.secured.as_deref().is_none_or(TlsStream::is_flushed)
    }

    /// Writes buffered bytes without waiting. Returns whether none are left.
    pub(crate) fn try_flush(&mut self) -> io::Result<bool> {
        match &mut self.secured {
            None => Ok(true),
            Some(secured) => secured.try_flush(&self.stream),
        }
    }

    /// Writes buffered bytes, waiting for the socket.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.secured {
            None => Poll::Ready(Ok(())),
            Some(secured) => secured.poll_flush(&self.stream, cx),
        }
    }

    /// Waits until the socket may accept more bytes.
    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_write_ready(cx)
    }

    /// Waits until the client has reset the connection, or has closed both directions and answered our bytes
    /// with a reset. No bytes are read.
    pub(crate) async fn reset(&self) {
        while let Ok(ready) = self.stream.ready(Interest::ERROR).await {
            if ready.is_error() || ready.is_write_closed() {
                return;
            }
        }
    }

    /// Closes the sending half.
    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        if let Some(secured) = &mut self.secured {
            secured.say_goodbye(&self.stream);
        }
        self.stream.shutdown().await
    }

    /// Makes the coming close a reset, which discards what the kernel has not sent yet. If the end of the
    /// connection delimits a body, only a reset can signal that the body is incomplete. RFC 9112 §9.6 warns
    /// that the client may lose bytes that it has not read.
    pub(crate) fn reset_on_close(&mut self) {
        // If the option cannot be set, the socket is already gone.
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
        self.secured = None;
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        if let Some(secured) = &mut self.secured {
            secured.say_goodbye(&self.stream);
        }
    }
}

/// Registers the task with the watch and returns whether its deadline has passed.
pub(crate) fn is_over(watch: &Watch, cx: &Context<'_>) -> bool {
    watch.task(cx.waker());
    watch.expired()
}
