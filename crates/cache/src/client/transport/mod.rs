//! A client's socket, plain or under TLS: what the protocols above read from and write to.
//!
//! ```text
//!   plain   socket ────────────────────────────▶ room of the caller        parts ─▶ socket
//!   TLS     socket ─▶ scratch ─ Session::receive ─▶ room of the caller     parts ─▶ scratch ─ Session::seal ─▶ socket
//!                       │ less than a record: kept                                      │ not taken: kept, counted
//! ```
//! Where the data lives: in the scratch of the thread while a call lasts. A connection under TLS keeps the beginning of a
//! record that has not come to its end, and what the socket did not take of what was sealed, which counts among what
//! clients make us [hold](crate::client::limits::client_budget); an idle one keeps its keys.

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
pub(crate) use self::secured::{Scratch, shake_hands};
use crate::{core::with_core, request::client_auth::ClientAuth};

/// A client's socket.
pub(crate) struct Transport {
    stream: TcpStream,
    secured: Option<Box<TlsStream>>,
}

impl Transport {
    pub(crate) fn plain(stream: TcpStream) -> Self {
        // Answers are written whole; waiting for more would only add latency.
        let _ = stream.set_nodelay(true);
        Self { stream, secured: None }
    }

    /// What was agreed upon with a client under TLS.
    pub(crate) fn session(&self) -> Option<&Session> {
        self.secured.as_deref().map(TlsStream::session)
    }

    /// How its client has come, and what it has shown of itself.
    pub(crate) fn came(&self) -> &ClientAuth {
        const PLAIN: &ClientAuth = &ClientAuth::Plain;
        self.secured.as_deref().map_or(PLAIN, TlsStream::came)
    }

    /// Whether pages of the store may be lent to it.
    pub(crate) fn lends(&self) -> bool {
        self.secured.is_none()
    }

    /// Reads once into `room`, at most `bytes_max`; 0: nothing follows. Under TLS a longer record is read to its end
    /// all the same, so `room` takes a whole record ([`RECORD_BYTES_MAX`]).
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

    /// Reads once and appends to `into`, at most `bytes_max` or, under TLS, one longer record; 0: nothing follows.
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

    /// Tries once, without waiting; how many bytes of `parts` it took, not all of which may be on their way.
    pub(crate) fn try_send(&mut self, parts: &[Part<'_>]) -> io::Result<usize> {
        let stream = &self.stream;
        if let Some(secured) = &mut self.secured {
            return secured.try_send(stream, parts);
        }
        let send = || {
            if !parts.iter().any(|part| matches!(part, Part::Lent(_))) {
                return send_parts(stream.as_fd(), parts);
            }
            with_core(|core| match &mut *core.lender.borrow_mut() {
                Some(lender) => lender.send_parts(stream.as_fd(), parts),
                None => send_parts(stream.as_fd(), parts),
            })
        };
        stream.try_io(Interest::WRITABLE, send)
    }

    /// Whether all that it took is on its way.
    pub(crate) fn is_flushed(&self) -> bool {
        self.secured.as_deref().is_none_or(TlsStream::is_flushed)
    }

    /// Writes what is left of what it took, without waiting; whether nothing is.
    pub(crate) fn try_flush(&mut self) -> io::Result<bool> {
        match &mut self.secured {
            None => Ok(true),
            Some(secured) => secured.try_flush(&self.stream),
        }
    }

    /// Writes what is left of what it took; waits for the client.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.secured {
            None => Poll::Ready(Ok(())),
            Some(secured) => secured.poll_flush(&self.stream, cx),
        }
    }

    /// Waits until the socket may take more.
    pub(crate) fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream.poll_write_ready(cx)
    }

    /// Waits until the client has reset the connection, or has closed both directions and answered our bytes with a
    /// reset. Reads nothing.
    pub(crate) async fn reset(&self) {
        while let Ok(ready) = self.stream.ready(Interest::ERROR).await {
            if ready.is_error() || ready.is_write_closed() {
                return;
            }
        }
    }

    /// Says that nothing follows.
    pub(crate) async fn shutdown(&mut self) -> io::Result<()> {
        if let Some(secured) = &mut self.secured {
            secured.say_goodbye(&self.stream);
        }
        self.stream.shutdown().await
    }

    /// Makes the coming close a reset, which gives up what the kernel has not sent yet. Where a body's end is the end of
    /// the connection, it is the only way to say that this was not all (RFC 9112 §9.6 notes what it costs: the client may
    /// lose what it has not read).
    pub(crate) fn reset_on_close(&mut self) {
        // A socket that cannot be told so is gone already.
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

/// Notes who waits, and whether the wait has ended.
pub(crate) fn is_over(watch: &Watch, cx: &Context<'_>) -> bool {
    watch.task(cx.waker());
    watch.expired()
}
