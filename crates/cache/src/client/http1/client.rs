//! A client's HTTP/1 connection, to which answers are sent and from which request bodies are read: its socket
//! and its time limits.

use std::{
    future::poll_fn,
    io,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use engine::{
    cores::{
        clock,
        watch::{Phase, Watch},
    },
    sys::span::Part,
};

use crate::{
    client::{
        limits::{client_budget::ClientMemoryGuard, send_rate::SendRate},
        transport::Transport,
    },
    config::Limits,
    core::with_core,
    counters::Counter,
    deliver::sink::{SendOutcome, Sink, SinkError, TrySend, send_within},
    states::pipe::Duplex,
};

/// Maximum number of bytes that a client may send while it is being answered; a FIN that follows them is
/// noticed. If a client sends more, its departure is noticed only when it resets the connection.
const AHEAD_BYTES_MAX: usize = 4 << 10;

/// A client's HTTP/1 connection: its socket, its time limits, and its received bytes.
pub(in crate::client) struct Client {
    pub(in crate::client) transport: Transport,
    pub(in crate::client) watch: Rc<Watch>,
    pub(in crate::client) send_stall_max: Duration,
    /// Bytes that the transport has accepted.
    pub(in crate::client) sent_bytes: u64,
    pub(in crate::client) taking: SendRate,
    /// Bytes received and not yet answered: the beginning of a head, or requests that follow the current one.
    pub(in crate::client) pending: Vec<u8>,
    /// Charge for bytes of `pending` that arrived while an answer was being sent.
    ahead: ClientMemoryGuard,
    /// True once the client has closed its sending half.
    is_ended: bool,
    /// True if the client's FIN ends the current exchange.
    pub(in crate::client) ends_at_fin: bool,
}

impl TrySend for Client {
    fn lends(&self) -> bool {
        self.transport.lends()
    }

    fn try_send(&mut self, parts: &[Part<'_>]) -> Result<usize, SinkError> {
        match self.transport.try_send(parts) {
            Ok(bytes) => {
                self.sent_bytes += bytes as u64;
                with_core(|core| core.add(Counter::BytesSent, bytes as u64));
                self.taking.took(bytes, clock::monotonic_ms);
                Ok(bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(_) => Err(SinkError::Closed),
        }
    }
}

impl Sink for Client {
    async fn send_some(
        &mut self,
        parts: &[Part<'_>],
        patience: Option<Duration>,
    ) -> Result<SendOutcome, SinkError> {
        let sent = self.try_send(parts)?;
        if sent > 0 {
            self.watch.work();
            return Ok(SendOutcome::Bytes(sent));
        }
        send_within(patience, poll_fn(|cx| self.poll_send(cx, parts))).await
    }

    /// HTTP/1 trailers are sent as part of the chunked content.
    async fn send_trailers(&mut self, _: &[u8]) -> Result<(), SinkError> {
        Ok(())
    }

    async fn gone(&mut self) -> SinkError {
        if !self.is_ended {
            match poll_fn(|cx| self.poll_ahead(cx)).await {
                Ahead::Reset => return SinkError::Closed,
                Ahead::Full => {}
                Ahead::End => self.is_ended = true,
            }
        }
        if self.is_ended && self.ends_at_fin {
            return SinkError::Closed;
        }
        self.transport.reset().await;
        SinkError::Closed
    }

    async fn flush(&mut self) -> Result<(), SinkError> {
        if self.transport.is_flushed() {
            return Ok(());
        }
        self.wait_for_reader();
        let flushed = poll_fn(|cx| {
            if self.watch.expired() {
                return Poll::Ready(Err(self.too_slow()));
            }
            self.transport.poll_flush(cx).map_err(|_| SinkError::Closed)
        })
        .await;
        self.watch.work();
        flushed
    }

    fn ends_at_fin(&mut self) {
        self.ends_at_fin = true;
    }

    fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    fn cut(&mut self) {
        self.transport.reset_on_close();
    }
}

/// A client's connection as one side of a pipe, with the bytes that the client has already sent.
pub(in crate::client) struct PipeEnd<'c>(pub(super) &'c mut Client);

impl Duplex for PipeEnd<'_> {
    fn poll_take(&mut self, cx: &mut Context<'_>, into: &mut Vec<u8>) -> Poll<Result<usize, SinkError>> {
        with_core(|core| {
            let room = &mut core.buffers.scratch.borrow_mut().read;
            let came =
                ready!(self.0.transport.poll_read(cx, room, usize::MAX)).map_err(|_| SinkError::Closed)?;
            into.extend_from_slice(&room[..came]);
            Poll::Ready(Ok(came))
        })
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, SinkError>> {
        loop {
            match self.0.try_send(&[Part::Plain(bytes)]) {
                Ok(0) => ready!(self.0.transport.poll_write_ready(cx)).map_err(|_| SinkError::Closed)?,
                sent => return Poll::Ready(sent),
            }
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SinkError>> {
        self.0.transport.poll_flush(cx).map_err(|_| SinkError::Closed)
    }
}

/// Reason why reading from a client stops while the client is being answered.
enum Ahead {
    /// The client has closed its sending half.
    End,
    /// The connection is broken, or there is no memory for the received bytes.
    Reset,
    /// The client has sent the maximum number of bytes ahead ([`AHEAD_BYTES_MAX`]).
    Full,
}

impl Client {
    pub(in crate::client) fn new(transport: Transport, watch: Rc<Watch>, limits: &Limits) -> Self {
        Self {
            transport,
            watch,
            send_stall_max: limits.send_stall_max,
            sent_bytes: 0,
            taking: SendRate::new(limits),
            pending: Vec::new(),
            ahead: ClientMemoryGuard::nothing(),
            is_ended: false,
            ends_at_fin: false,
        }
    }

    /// Reads and keeps the bytes that the client sends while it is being answered, and notices a FIN that
    /// follows them.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<Ahead> {
        while self.pending.len() < AHEAD_BYTES_MAX {
            let Self { transport, pending, ahead, .. } = self;
            let came = with_core(|core| {
                let room = &mut core.buffers.scratch.borrow_mut().read;
                let came = ready!(transport.poll_read(cx, room, AHEAD_BYTES_MAX)).ok();
                pending.extend_from_slice(&room[..came.unwrap_or(0)]);
                Poll::Ready(came)
            });
            match ready!(came) {
                Some(0) => return Poll::Ready(Ahead::End),
                Some(_) if ahead.resize(pending.len()) => {}
                Some(_) | None => return Poll::Ready(Ahead::Reset),
            }
        }
        Poll::Ready(Ahead::Full)
    }

    /// Ends an exchange. Bytes received during the exchange are parsed next and are no longer charged.
    pub(in crate::client) fn end_exchange(&mut self) {
        self.ends_at_fin = false;
        self.ahead.resize(0);
    }

    /// Sends some of `parts`. Waits until the client accepts at least one byte, up to its deadline.
    pub(in crate::client) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        parts: &[Part<'_>],
    ) -> Poll<Result<usize, SinkError>> {
        self.wait_for_reader();
        if self.watch.expired() {
            return Poll::Ready(Err(self.too_slow()));
        }
        loop {
            match ready!(self.transport.poll_write_ready(cx)) {
                Err(_) => return Poll::Ready(Err(SinkError::Closed)),
                Ok(()) => match self.try_send(parts) {
                    Ok(0) => {}
                    done => {
                        self.watch.work();
                        return Poll::Ready(done);
                    }
                },
            }
        }
    }

    /// Sets the deadline for the client to read; repeated calls do not restart it.
    fn wait_for_reader(&mut self) {
        if self.watch.phase() != Phase::Send {
            let now_ms = clock::monotonic_ms();
            let at_most = self.send_stall_max.min(self.taking.wait(now_ms));
            self.watch.wait(Phase::Send, now_ms, at_most);
        }
    }

    /// Returns the reason why the connection no longer waits for the client.
    fn too_slow(&self) -> SinkError {
        if self.taking.is_over(clock::monotonic_ms()) { SinkError::Slow } else { SinkError::Stalled }
    }

    /// Appends more of a request's body to `into`, or to `pending` if `into` is `None`: at most `bytes_max`
    /// bytes, or one TLS record if that is longer. `Ok(0)` is the end of the stream.
    pub(in crate::client) async fn append_body(
        &mut self,
        into: Option<&mut Vec<u8>>,
        bytes_max: usize,
        at_most: Duration,
    ) -> Result<usize, SinkError> {
        self.watch.wait(Phase::Body, clock::monotonic_ms(), at_most);
        let Self { transport, watch, pending, .. } = self;
        let into = into.unwrap_or(pending);
        let read = poll_fn(|cx| {
            if watch.expired() {
                return Poll::Ready(Err(SinkError::Stalled));
            }
            transport.poll_append(cx, into, bytes_max).map_err(|_| SinkError::Closed)
        })
        .await;
        self.watch.work();
        read
    }
}
