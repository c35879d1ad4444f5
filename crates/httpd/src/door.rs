//! Adapter that lets axum use the engine's listener, with or without TLS.
//!
//! Handshakes do not delay other connections: a handshake runs when its connection is first read from, within
//! the time limit for a head.

use std::{
    future::Future as _,
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::serve::Listener;
use engine::{
    bounded::{self, Connection, ConnectionSlot},
    tls::{Accept, ServerStream, TlsAcceptor},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A listener, and the TLS configuration of its connections.
pub(crate) struct BoundedListener {
    listener: bounded::Listener,
    tls: Option<TlsAcceptor>,
}

impl BoundedListener {
    pub(crate) fn new(listener: bounded::Listener, tls: Option<TlsAcceptor>) -> Self {
        Self { listener, tls }
    }
}

impl Listener for BoundedListener {
    type Io = Stream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Stream, SocketAddr) {
        let (connection, address) = self.listener.accept().await;
        let place = connection.place().clone();
        let state = match &self.tls {
            None => State::Plain(connection),
            Some(tls) => State::Shaking(Box::new(tls.accept(connection))),
        };
        (Stream { place, state }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// An accepted connection.
pub(crate) struct Stream {
    place: ConnectionSlot,
    state: State,
}

enum State {
    Plain(Connection),
    /// The handshake is in progress.
    Shaking(Box<Accept<Connection>>),
    Secured(Box<ServerStream<Connection>>),
    /// The handshake has failed.
    Broken,
}

impl Stream {
    /// Returns the connection's slot.
    pub(crate) fn place(&self) -> &ConnectionSlot {
        &self.place
    }

    /// Continues the handshake until it is complete.
    fn poll_shaken(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let State::Shaking(accept) = &mut self.state {
            let shaken = ready!(Pin::new(accept.as_mut()).poll(cx));
            self.state = State::Broken;
            self.state = State::Secured(Box::new(shaken?));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_shaken(cx))?;
        match &mut self.state {
            State::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            State::Secured(stream) => Pin::new(stream.as_mut()).poll_read(cx, buf),
            State::Shaking(_) | State::Broken => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_shaken(cx))?;
        match &mut self.state {
            State::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            State::Secured(stream) => Pin::new(stream.as_mut()).poll_write(cx, buf),
            State::Shaking(_) | State::Broken => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_shaken(cx))?;
        match &mut self.state {
            State::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            State::Secured(stream) => Pin::new(stream.as_mut()).poll_write_vectored(cx, bufs),
            State::Shaking(_) | State::Broken => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Plain(stream) => Pin::new(stream).poll_flush(cx),
            State::Secured(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
            // Nothing has been written yet.
            State::Shaking(_) | State::Broken => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            State::Secured(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
            // Dropping the connection closes it.
            State::Shaking(_) | State::Broken => Poll::Ready(Ok(())),
        }
    }
}
