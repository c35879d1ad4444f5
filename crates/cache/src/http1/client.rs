//! A client's connection, as what answers are sent to and bodies come from: the socket, and how long its client is waited
//! for.

use std::{
    future::poll_fn,
    io,
    sync::Arc,
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
    core::with_core,
    counters::Counter,
    pipe::Duplex,
    sink::{Gone, Sent, Sink, TrySend},
    taking::Taking,
    transport::Transport,
};

/// A client's connection.
pub(super) struct Client {
    pub(super) transport: Transport,
    pub(super) watch: Arc<Watch>,
    pub(super) send_stall_max: Duration,
    /// Bytes that the transport took.
    pub(super) sent_bytes: u64,
    pub(super) taking: Taking,
}

impl TrySend for Client {
    fn lends(&self) -> bool {
        self.transport.lends()
    }

    fn try_send(&mut self, parts: &[Part<'_>]) -> Result<usize, Gone> {
        match self.transport.try_send(parts) {
            Ok(bytes) => {
                self.sent_bytes += bytes as u64;
                with_core(|core| core.add(Counter::BytesSent, bytes as u64));
                self.taking.took(bytes, clock::monotonic_ms);
                Ok(bytes)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(_) => Err(Gone::Closed),
        }
    }
}

impl Sink for Client {
    async fn send_some(&mut self, parts: &[Part<'_>], patience: Option<Duration>) -> Result<Sent, Gone> {
        let sent = self.try_send(parts)?;
        if sent > 0 {
            self.watch.work();
            return Ok(Sent::Bytes(sent));
        }
        self.wait_for_reader();
        let writable = poll_fn(|cx| {
            if self.watch.expired() {
                return Poll::Ready(Err(self.too_slow()));
            }
            loop {
                match self.transport.poll_write_ready(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(Gone::Closed)),
                    Poll::Ready(Ok(())) => match self.try_send(parts) {
                        Ok(0) => {}
                        done => return Poll::Ready(done),
                    },
                }
            }
        });
        let sent = match patience {
            None => writable.await?,
            Some(patience) => match tokio::time::timeout(patience, writable).await {
                Ok(sent) => sent?,
                Err(_) => return Ok(Sent::Nothing),
            },
        };
        self.watch.work();
        Ok(Sent::Bytes(sent))
    }

    /// Trailers of HTTP/1 are part of the content in chunks.
    async fn send_trailers(&mut self, _: &[u8]) -> Result<(), Gone> {
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Gone> {
        if self.transport.is_flushed() {
            return Ok(());
        }
        self.wait_for_reader();
        let flushed = poll_fn(|cx| {
            if self.watch.expired() {
                return Poll::Ready(Err(self.too_slow()));
            }
            self.transport.poll_flush(cx).map_err(|_| Gone::Closed)
        })
        .await;
        self.watch.work();
        flushed
    }

    fn sent_bytes(&self) -> u64 {
        self.sent_bytes
    }

    fn cut(&mut self) {
        self.transport.reset_on_close();
    }
}

/// A client's connection as one side of a pipe, with what it sent before.
pub(super) struct Piped<'c>(pub(super) &'c mut Client);

impl Duplex for Piped<'_> {
    fn poll_take(&mut self, cx: &mut Context<'_>, into: &mut Vec<u8>) -> Poll<Result<usize, Gone>> {
        with_core(|core| {
            let room = &mut core.scratch.borrow_mut().read;
            let came = ready!(self.0.transport.poll_read(cx, room)).map_err(|_| Gone::Closed)?;
            into.extend_from_slice(&room[..came]);
            Poll::Ready(Ok(came))
        })
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Gone>> {
        loop {
            match self.0.try_send(&[Part::Plain(bytes)]) {
                Ok(0) => ready!(self.0.transport.poll_write_ready(cx)).map_err(|_| Gone::Closed)?,
                sent => return Poll::Ready(sent),
            }
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        self.0.transport.poll_flush(cx).map_err(|_| Gone::Closed)
    }
}

impl Client {
    /// Gives the client so long to read; a caller that asks again does not start its deadline anew.
    fn wait_for_reader(&mut self) {
        if self.watch.phase() != Phase::Send {
            let now_ms = clock::monotonic_ms();
            let at_most = self.send_stall_max.min(self.taking.wait(now_ms));
            self.watch.wait(Phase::Send, now_ms, at_most);
        }
    }

    /// Why it is not waited for any longer.
    fn too_slow(&self) -> Gone {
        if self.taking.is_over(clock::monotonic_ms()) { Gone::Slow } else { Gone::Stalled }
    }

    /// Appends more of a request's body, as much as there is room for in `into`; `Ok(0)` is the end of the stream.
    pub(super) async fn append_body(&mut self, into: &mut Vec<u8>, at_most: Duration) -> Result<usize, Gone> {
        self.watch.wait(Phase::Body, clock::monotonic_ms(), at_most);
        let Self { transport, watch, .. } = self;
        let read = poll_fn(|cx| {
            if watch.expired() {
                return Poll::Ready(Err(Gone::Stalled));
            }
            transport.poll_append(cx, into).map_err(|_| Gone::Closed)
        })
        .await;
        self.watch.work();
        read
    }
}
