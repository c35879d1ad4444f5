//! A client's HTTP/2 connection, shared by its streams: the socket, the pending output, and the streams'
//! wakers.
//!
//! ```text
//!   a stream's task ── send_content ─▶ frames ─▶ socket            accepted part of a frame: the rest waits in `out`
//!                         │ no window, no room
//!                         ▼
//!                   its waker is kept ◀── the connection's task: the socket has room, a window has opened
//! ```
//! One stream is woken at a time: the most urgent one that has something to send and a window for it (RFC
//! 9218). A stream that has sent something, or cannot send, wakes the next.
//!
//! *Bounds:* `out` holds the answers of one turn and the rest of a frame; while it is not empty, nothing is
//! read and no stream sends. Its bytes count towards the [budget](crate::client::limits::client_budget) for
//! memory held for clients, and so do the bytes of request bodies that wait for their origin, at most one
//! window per connection.

use std::{cell::RefCell, io, task::Waker};

use engine::{cores::clock, sys::span::Part, tls::session::RECORD_CONTENT_BYTES_MAX};
use slab::Slab;
use tokio::task::AbortHandle;
use wire::http2::{
    connection::{Connection, ConnectionError},
    error::ErrorCode,
    frame::HEADER_BYTES,
};

use crate::client::http2::gather::{Frames, List};
use crate::{
    client::{
        limits::{client_budget::ClientMemoryGuard, send_rate::SendRate},
        transport::Transport,
    },
    core::{Core, with_core},
    counters::Counter,
    deliver::sink::SinkError,
};

/// Maximum content of one frame: the size that every client accepts (RFC 9113 §4.2).
const FRAME_BYTES: usize = 16 << 10;
/// Maximum content of one frame under TLS: with its header the frame fits into one TLS record.
const FRAME_BYTES_SECURED: usize = RECORD_CONTENT_BYTES_MAX - HEADER_BYTES;
thread_local! {
    /// HTTP/2 connections of this thread's core.
    static ALL: RefCell<Multiplexes> = RefCell::default();
}

/// All HTTP/2 connections of one core.
#[derive(Default)]
struct Multiplexes {
    places: Slab<Multiplex>,
    serial: u64,
}

/// Number of a connection. The serial prevents a closed connection from being mistaken for the next one in
/// its slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    place: usize,
    serial: u64,
}

impl Number {
    /// Returns a number that no other connection of this core has had.
    pub(super) const fn serial(self) -> u64 {
        self.serial
    }
}

#[cfg(test)]
impl Number {
    /// Placeholder number that belongs to no connection.
    pub(super) const NOBODY: Self = Self { place: usize::MAX, serial: 0 };
}

impl Multiplexes {
    fn enter(&mut self, mut multiplex: Multiplex) -> Number {
        self.serial += 1;
        multiplex.serial = self.serial;
        Number { place: self.places.insert(multiplex), serial: self.serial }
    }

    fn get(&mut self, number: Number) -> Option<&mut Multiplex> {
        self.places.get_mut(number.place).filter(|multiplex| multiplex.serial == number.serial)
    }

    fn remove(&mut self, number: Number) -> Option<Multiplex> {
        self.get(number)?;
        self.places.try_remove(number.place)
    }
}

/// Adds a connection of this core.
pub(super) fn enter(multiplex: Multiplex) -> Number {
    ALL.with_borrow_mut(|all| all.enter(multiplex))
}

/// Removes a connection of this core; returns `None` if it is gone.
pub(super) fn remove(number: Number) -> Option<Multiplex> {
    ALL.with_borrow_mut(|all| all.remove(number))
}

/// Runs `with` on a connection of this core; returns `None` if the connection is gone.
pub(super) fn with<R>(number: Number, with: impl FnOnce(&Core, &mut Multiplex) -> R) -> Option<R> {
    with_core(|core| ALL.with_borrow_mut(|all| all.get(number).map(|multiplex| with(core, multiplex))))
}

/// A stream whose request is answered by a task.
pub(super) struct Stream {
    pub(super) id: u32,
    pub(super) task: AbortHandle,
    /// Set while the stream has something to send and waits for a window or the socket.
    pub(super) sending: Option<Waker>,
    /// Set while the stream waits for content of its request.
    pub(super) receiving: Option<Waker>,
    /// Content that has arrived and was not yet read by the task.
    pub(super) content: Vec<u8>,
    /// True once the request's content is complete.
    pub(super) is_whole: bool,
    /// Trailer lines of the request.
    pub(super) trailers: Vec<u8>,
}

/// State of one HTTP/2 connection.
pub(super) struct Multiplex {
    serial: u64,
    pub(super) wire: Connection,
    pub(super) transport: Transport,
    /// Frames to be written; the first `out_at` bytes are already written.
    pub(super) out: Vec<u8>,
    out_at: usize,
    held: ClientMemoryGuard,
    /// True if the socket has not accepted all of the output.
    is_blocked: bool,
    /// Monotonic time in milliseconds from which none of the pending output could be written.
    pub(super) stuck_since_ms: Option<u64>,
    /// Rate at which the client accepts the output.
    pub(super) taking: SendRate,
    /// Number of requests on this connection so far.
    pub(super) requests: usize,
    /// Streams in order of their numbers.
    pub(super) streams: Vec<Stream>,
    /// Bytes of request content that wait to be read, over all streams.
    pub(super) content_bytes: usize,
    /// Received bytes that do not form whole frames.
    pub(super) pending: Vec<u8>,
    /// True if `pending` may contain whole frames, because the last turn stopped before it had parsed them.
    pub(super) unexamined: bool,
    /// Start of the frame or field block that is arriving, in milliseconds of the monotonic clock.
    pub(super) frame_since_ms: Option<u64>,
    /// Waker of the connection's task.
    pub(super) waker: Option<Waker>,
    /// Fault of the client that ends the connection.
    pub(super) ended: Option<ConnectionError>,
    /// True once a GOAWAY has told the client that the connection will end.
    pub(super) is_draining: bool,
}

impl Multiplex {
    pub(super) fn new(
        wire: Connection,
        transport: Transport,
        out: Vec<u8>,
        pending: Vec<u8>,
        taking: SendRate,
    ) -> Self {
        Self {
            serial: 0,
            wire,
            transport,
            out,
            out_at: 0,
            held: ClientMemoryGuard::nothing(),
            is_blocked: false,
            stuck_since_ms: None,
            taking,
            requests: 0,
            streams: Vec::new(),
            content_bytes: 0,
            unexamined: !pending.is_empty(),
            pending,
            frame_since_ms: None,
            waker: None,
            ended: None,
            is_draining: false,
        }
    }

    /// Keeps the output of a turn that the socket did not accept.
    pub(super) fn keep(&mut self, rest: Vec<u8>) {
        (self.out, self.out_at) = (rest, 0);
    }

    /// Frees memory that an idle connection does not need.
    pub(super) fn rest(&mut self) {
        self.wire.rest();
        (self.out, self.out_at, self.pending) = (Vec::new(), 0, Vec::new());
        self.streams = Vec::new();
    }

    pub(super) fn stream(&mut self, id: u32) -> Option<&mut Stream> {
        let place = self.streams.binary_search_by_key(&id, |stream| stream.id).ok()?;
        Some(&mut self.streams[place])
    }

    /// Removes a stream; the caller must end its task.
    pub(super) fn leave(&mut self, id: u32) -> Option<Stream> {
        let place = self.streams.binary_search_by_key(&id, |stream| stream.id).ok()?;
        let stream = self.streams.remove(place);
        self.content_bytes -= stream.content.len();
        // Content that is no longer read is returned to the connection's window.
        self.wire.release(id, stream.content.len(), &mut self.out);
        Some(stream)
    }

    /// Wakes the connection's task.
    pub(super) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// Returns whether no output is pending.
    pub(super) fn is_flushed(&self) -> bool {
        !self.is_blocked
    }

    /// Returns the number of pending output bytes.
    pub(super) fn unwritten(&self) -> usize {
        self.out.len() - self.out_at
    }

    /// Writes as much pending output as the socket accepts. Returns whether all of it was written.
    pub(super) fn flush(&mut self) -> Result<bool, SinkError> {
        while self.out_at < self.out.len() {
            match self.transport.try_send(&[Part::Plain(&self.out[self.out_at..])]) {
                Ok(sent) => self.wrote(sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_blocked = true;
                    return self.hold().map(|()| false);
                }
                Err(_) => return Err(SinkError::Closed),
            }
        }
        self.out.clear();
        self.out_at = 0;
        self.hold()?;
        self.is_blocked = !self.transport.try_flush().map_err(|_| SinkError::Closed)?;
        Ok(!self.is_blocked)
    }

    fn wrote(&mut self, bytes: usize) {
        self.out_at += bytes;
        self.stuck_since_ms = None;
        self.taking.took(bytes, clock::monotonic_ms);
        with_core(|core| core.add(Counter::BytesSent, bytes as u64));
    }

    /// Updates the charge for the memory held for the client.
    pub(super) fn hold(&mut self) -> Result<(), SinkError> {
        let bytes = self.unwritten() + self.content_bytes + self.pending.len();
        if self.held.resize(bytes) { Ok(()) } else { Err(SinkError::Closed) }
    }

    /// Wakes the stream that sends next, if the socket has room for it.
    pub(super) fn pass_on(&mut self) {
        if !self.is_flushed() {
            return;
        }
        let streams = &self.streams;
        let waits = |id: u32| {
            let place = streams.binary_search_by_key(&id, |stream| stream.id);
            place.is_ok_and(|place| streams[place].sending.is_some())
        };
        let next = self.wire.next(waits);
        if let Some(waker) = next.and_then(|id| self.stream(id)).and_then(|stream| stream.sending.take()) {
            waker.wake();
        }
    }

    /// Sends as much of `parts` on a stream as its windows and the socket accept now. Returns the number of
    /// bytes. `is_last` means that the stream's content ends with `parts`.
    pub(super) fn send_content(
        &mut self,
        stream: u32,
        parts: &[Part<'_>],
        is_last: bool,
        now_ms: u64,
    ) -> Result<usize, SinkError> {
        if !self.wire.is_open(stream) {
            return Err(SinkError::Closed);
        }
        if self.is_blocked && !self.flush()? {
            return Ok(0);
        }
        let total: usize = parts.iter().map(Part::len).sum();
        let allowed = self.wire.sendable(stream, total, now_ms).map_err(|ended| {
            self.ended = Some(ended);
            self.wake();
            SinkError::Closed
        })?;
        if allowed == 0 {
            return Ok(0);
        }
        let frame_bytes = if self.transport.session().is_some() { FRAME_BYTES_SECURED } else { FRAME_BYTES };
        let frames = Frames::of(self.wire.window(stream).min(total), frame_bytes);
        let ends = is_last && frames.bytes() == total;
        let headers = frames.headers(stream, ends);
        let mut out = std::mem::take(&mut self.out);
        let waited = &out[self.out_at..];
        let list = List::new(waited, &headers, &frames, parts);
        let sent = match self.transport.try_send(list.parts()) {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(_) => return Err(SinkError::Closed),
        };
        let mut begun = frames.begun(sent.saturating_sub(waited.len()));
        let is_between = waited.len() + begun.framed_bytes() == sent;
        if is_between && begun != frames && self.transport.is_flushed() {
            // The next frame is added, so that some output is pending and the connection waits for the
            // socket.
            begun = begun.and_next(&frames);
        }
        for (place, bytes) in begun.lengths().iter().enumerate() {
            let is_end = ends && place + 1 == frames.lengths().len();
            self.wire.sends_data(stream, *bytes, is_end);
        }
        // A frame that has begun must be completed before any other frame is sent, so its rest is kept here.
        let rest = list.copy(sent..waited.len() + begun.framed_bytes());
        self.is_blocked = !rest.is_empty() || !self.transport.is_flushed();
        // During a turn `out` is the thread's buffer.
        out.clear();
        out.extend_from_slice(&rest);
        (self.out, self.out_at) = (out, 0);
        if sent > 0 {
            self.stuck_since_ms = None;
            self.taking.took(sent, clock::monotonic_ms);
            with_core(|core| core.add(Counter::BytesSent, sent as u64));
        }
        self.hold()?;
        if !self.is_flushed() {
            self.wake();
        }
        Ok(begun.bytes())
    }
}

/// Resets a stream with an error code, if the stream exists.
pub(super) fn reset(multiplex: &mut Multiplex, stream: u32, code: ErrorCode) {
    multiplex.wire.reset(stream, code, &mut multiplex.out);
}
