//! Bounds on connections: how many, and how long one may be silent.

use std::{
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use tokio::{
    io::{self, AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, Sleep, sleep},
};

use super::counters::{Counter, Counters};

/// A connection on which nothing moves for so long is closed. Live streams say something every 15 seconds, and the
/// longest wait of the API is five minutes.
const SILENT_MAX: Duration = Duration::from_secs(330);
/// A connection that has not sent its first request by then.
const FIRST_REQUEST_MAX: Duration = Duration::from_secs(20);

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

impl Connected<IncomingStream<'_, Bounded>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Bounded>) -> Self {
        Self(*stream.remote_addr())
    }
}

/// A listener that has a bounded number of connections open.
pub(super) struct Bounded {
    listener: TcpListener,
    free: Arc<Semaphore>,
    counters: Arc<Counters>,
}

impl Bounded {
    pub(super) fn new(listener: TcpListener, connections_max: usize, counters: Arc<Counters>) -> Self {
        Self { listener, free: Arc::new(Semaphore::new(connections_max)), counters }
    }
}

impl Listener for Bounded {
    type Io = Held;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Held, SocketAddr) {
        if self.free.available_permits() == 0 {
            self.counters.add(Counter::ConnectionsWaited, 1);
        }
        // The semaphore is never closed, so the permit is always there in the end.
        let permit = Arc::clone(&self.free).acquire_owned().await.ok();
        let (stream, address) = Listener::accept(&mut self.listener).await;
        // Without it the second packet of an answer waits for the first one's acknowledgement.
        let _ = stream.set_nodelay(true);
        self.counters.add(Counter::Connections, 1);
        let held = Held {
            stream,
            counters: Arc::clone(&self.counters),
            silence: Box::pin(sleep(FIRST_REQUEST_MAX)),
            moved: false,
            _permit: permit,
        };
        (held, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection, its place among them, and its alarm.
pub(super) struct Held {
    stream: TcpStream,
    counters: Arc<Counters>,
    silence: Pin<Box<Sleep>>,
    /// Something moved since the alarm was set: it is set again when it rings, not at each byte.
    moved: bool,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Held {
    fn check_silence(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.silence.as_mut().poll(cx).is_ready() {
            if !self.moved {
                self.counters.add(Counter::ConnectionsIdle, 1);
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.moved = false;
            self.silence.as_mut().reset(Instant::now() + SILENT_MAX);
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.counters.sub(Counter::Connections, 1);
    }
}

impl AsyncRead for Held {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        match read {
            Poll::Pending => match self.check_silence(cx) {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            },
            Poll::Ready(_) => {
                self.moved = true;
                read
            }
        }
    }
}

impl AsyncWrite for Held {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        match written {
            Poll::Pending => match self.check_silence(cx) {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            },
            Poll::Ready(_) => {
                self.moved = true;
                written
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[std::io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        match written {
            Poll::Pending => match self.check_silence(cx) {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            },
            Poll::Ready(_) => {
                self.moved = true;
                written
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
