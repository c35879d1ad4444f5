//! The sending half of a client connection: parts of plain and of shared memory, without a copy in between.

use std::{future::poll_fn, os::fd::AsFd, pin::pin, sync::Arc, task::Poll, time::Duration};

use engine::{
    cores::{
        clock,
        watch::{Phase, Watch},
    },
    sys::span::{Part, send_parts},
};
use tokio::{
    io::{AsyncReadExt, Interest},
    net::TcpStream,
};

use crate::{core::with_core, counters::Counter};

/// Why a response could not be sent to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    /// The client closed or reset the connection.
    Closed,
    /// The client did not read for as long as the limit allows.
    Stalled,
    /// The client read too slowly while the store needed the memory that it held.
    Wanted,
}

/// What a bounded attempt to send came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing: the client did not read for the given time.
    Nothing,
}

/// A client's connection.
pub(super) struct Client {
    pub(super) stream: TcpStream,
    pub(super) watch: Arc<Watch>,
    pub(super) send_stall_max: Duration,
}

impl Client {
    /// Tries once, without waiting; how many bytes went out (0: the socket is full).
    pub(super) fn try_send(&self, parts: &[Part<'_>]) -> Result<usize, Gone> {
        let send = || {
            if !parts.iter().any(|part| matches!(part, Part::Lent(_))) {
                return send_parts(self.stream.as_fd(), parts);
            }
            with_core(|core| match &mut *core.lender.borrow_mut() {
                Some(lender) => lender.send_parts(self.stream.as_fd(), parts),
                None => send_parts(self.stream.as_fd(), parts),
            })
        };
        match self.stream.try_io(Interest::WRITABLE, send) {
            Ok(bytes) => {
                with_core(|core| core.add(Counter::BytesSent, bytes as u64));
                Ok(bytes)
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(0),
            Err(_) => Err(Gone::Closed),
        }
    }

    /// Sends some of `parts`, waiting until the client takes at least one byte, at most for `patience`.
    pub(super) async fn send_some(
        &self,
        parts: &[Part<'_>],
        patience: Option<Duration>,
    ) -> Result<Sent, Gone> {
        let sent = self.try_send(parts)?;
        if sent > 0 {
            self.watch.work();
            return Ok(Sent::Bytes(sent));
        }
        // A caller that asks again after `patience` does not start the client's deadline anew.
        if self.watch.phase() != Phase::Send {
            self.watch.wait(Phase::Send, clock::monotonic_ms(), self.send_stall_max);
        }
        let writable = poll_fn(|cx| {
            if self.watch.expired() {
                return Poll::Ready(Err(Gone::Stalled));
            }
            loop {
                match self.stream.poll_write_ready(cx) {
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

    /// Sends all of `bytes`.
    pub(super) async fn send_all(&self, mut bytes: &[u8]) -> Result<(), Gone> {
        while !bytes.is_empty() {
            if let Sent::Bytes(sent) = self.send_some(&[Part::Plain(bytes)], None).await? {
                bytes = &bytes[sent..];
            }
        }
        Ok(())
    }

    /// Appends more of a request's body, as much as there is room for in `into`; `Ok(0)` is the end of the stream.
    pub(super) async fn append_body(&mut self, into: &mut Vec<u8>, at_most: Duration) -> Result<usize, Gone> {
        self.watch.wait(Phase::Body, clock::monotonic_ms(), at_most);
        let Self { stream, watch, .. } = self;
        let mut reading = pin!(stream.read_buf(into));
        let read = poll_fn(|cx| {
            if watch.expired() {
                return Poll::Ready(Err(Gone::Stalled));
            }
            reading.as_mut().poll(cx).map_err(|_| Gone::Closed)
        })
        .await;
        self.watch.work();
        read
    }
}
