//! A connection with a slot: its stream, and the timer for its current phase.
//!
//! Each connection has one timer. The timer is set when a read or a write must wait, and set again only when
//! it fires too early: a request that is answered at once costs no timer operation.

use std::{
    future::Future,
    io::IoSlice,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{self, AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep},
};

use super::{Bounds, ConnectionSlot, Phase, places::CloseReason};
use crate::cores::clock;

/// Maximum bytes of one read. The reader doubles its buffer each time a read fills it: without this limit,
/// hyper's buffer grew to 400 KiB per connection.
const READ_BYTES_MAX: usize = 16 * 1024;

/// A connection and its slot; dropping it frees the slot.
pub struct Connection {
    stream: TcpStream,
    place: ConnectionSlot,
    alarm: Pin<Box<Sleep>>,
    /// Time at which the alarm fires, in milliseconds of the monotonic clock.
    rings_ms: u64,
    /// True if the last write had to wait.
    has_unsent: bool,
    /// True if a write has had to wait since the peer last accepted all sent data.
    is_behind: bool,
    /// Number of bytes of the current head received so far.
    head_bytes: usize,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, place: ConnectionSlot) -> Self {
        let first = place.shared.with(|places| places.bounds().head_time_max);
        let first_ms = u64::try_from(first.as_millis()).unwrap_or(u64::MAX);
        let rings_ms = clock::monotonic_ms().saturating_add(first_ms);
        Self {
            stream,
            place,
            alarm: Box::pin(sleep(first)),
            rings_ms,
            has_unsent: false,
            is_behind: false,
            head_bytes: 0,
        }
    }

    /// Returns the connection's slot.
    #[must_use]
    pub fn place(&self) -> &ConnectionSlot {
        &self.place
    }

    /// Checks whether the connection may still wait for the peer; called when a read or a write must wait.
    fn look(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            let now_ms = clock::monotonic_ms();
            let ticket = self.place.ticket;
            let next_ms = match self.place.shared.with(|places| places.look(ticket, now_ms, cx.waker())) {
                Ok(next_ms) => next_ms,
                Err(end) => return Err(self.end(end)),
            };
            // Either there is no deadline, or the alarm fires before it; the deadline is checked again when
            // it fires.
            let Some(next_ms) = next_ms else { return Ok(()) };
            if next_ms < self.rings_ms || self.rings_ms <= now_ms {
                let wait = Duration::from_millis(next_ms.saturating_sub(now_ms).max(1));
                // A deadline beyond the range of the clock is never reached.
                if let Some(at) = Instant::now().checked_add(wait) {
                    self.alarm.as_mut().reset(at);
                    self.rings_ms = next_ms;
                }
            }
            if self.alarm.as_mut().poll(cx).is_pending() {
                return Ok(());
            }
            self.rings_ms = 0;
        }
    }

    fn end(&self, end: CloseReason) -> io::Error {
        if end == CloseReason::WithWords && !self.has_unsent {
            let words =
                self.place.shared.with(|places: &mut super::ConnectionSlots| late_words(places.bounds()));
            // Nothing else is on its way to the peer, so either these few bytes fit into the socket buffer,
            // or the peer is gone.
            _ = self.stream.try_write(words);
        }
        io::ErrorKind::TimedOut.into()
    }

    /// Returns how many bytes may be read now.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if the current head has reached its maximum length.
    fn readable(&mut self) -> io::Result<usize> {
        let ticket = self.place.ticket;
        let phase = self.place.shared.with(|places| places.phase(ticket));
        if phase != Some(Phase::Head) {
            self.head_bytes = 0;
        }
        if !matches!(phase, Some(Phase::Head | Phase::Idle)) {
            return Ok(READ_BYTES_MAX);
        }
        let (most, words) = self.place.shared.with(|places| {
            let bounds: &Bounds = places.bounds();
            (bounds.head_bytes_max, bounds.long_words)
        });
        if self.head_bytes < most {
            return Ok(READ_BYTES_MAX.min(most - self.head_bytes));
        }
        self.place.shared.with(|places| places.long_head(ticket));
        if !self.has_unsent {
            // This short answer fits into the socket buffer, like the answer to a late head.
            _ = self.stream.try_write(words);
        }
        Err(io::ErrorKind::InvalidData.into())
    }

    /// Handles the result of a write.
    fn wrote(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        let must_wait = written.is_pending();
        if must_wait || self.has_unsent {
            // Any progress ends a stall, and the next wait begins another.
            let since_ms = must_wait.then(clock::monotonic_ms);
            let ticket = self.place.ticket;
            self.place.shared.with(|places| places.unsent(ticket, since_ms));
            self.has_unsent = must_wait;
            self.is_behind |= must_wait;
        }
        if must_wait && let Err(error) = self.look(cx) {
            return Poll::Ready(Err(error));
        }
        written
    }
}

fn late_words(bounds: &Bounds) -> &'static [u8] {
    bounds.late_words
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.place.leave();
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        // Checked before the read, because a peer that sends one byte at a time always has something to read.
        if let Err(error) = self.look(cx) {
            return Poll::Ready(Err(error));
        }
        let readable = match self.readable() {
            Ok(readable) => readable,
            Err(error) => return Poll::Ready(Err(error)),
        };
        // `part` shares the memory of `buf`, so bytes filled in `part` are filled in `buf`.
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(readable.min(buf.remaining())));
        let read = Pin::new(&mut self.stream).poll_read(cx, &mut part);
        let filled = part.filled().len();
        buf.advance(filled);
        self.head_bytes += filled;
        if read.is_ready() && buf.filled().len() > before {
            let ticket = self.place.ticket;
            self.place.shared.with(|places| {
                if places.phase(ticket) == Some(Phase::Idle) {
                    places.wait(ticket, Phase::Head, clock::monotonic_ms());
                }
            });
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        // A completed flush means that the peer is no longer behind, because writers flush once everything is
        // written.
        if flushed.is_ready() && !self.has_unsent && std::mem::take(&mut self.is_behind) {
            let ticket = self.place.ticket;
            self.place.shared.with(|places| places.taken(ticket));
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
