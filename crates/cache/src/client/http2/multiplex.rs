//! One client's connection of HTTP/2, as its streams share it: the socket, what waits to be written, who waits for whom.
//!
//! ```text
//!   a stream's task ── send_content ─▶ frames ─▶ socket            took part of a frame: the rest waits in `out`
//!                         │ no window, no room
//!                         ▼
//!                   its waker is kept ◀── the connection's task: the socket has room, a window has opened
//! ```
//! One stream is woken at a time, the most urgent of those that have something to send and a window for it (RFC 9218);
//! whoever has sent something, or cannot, wakes the next.
//!
//! *Bounds:* `out` holds what one turn answers and what is left of a frame; while something waits in it, nothing is
//! read and nobody sends. It counts among what clients make us [hold](crate::client::limits::client_budget), as content of requests does that
//! waits for its origin, of which a connection has its window.

use std::{io, task::Waker};

use engine::{cores::clock, sys::span::Part, tls::session::RECORD_CONTENT_BYTES_MAX};
use slab::Slab;
use tokio::task::AbortHandle;
use wire::{
    http1::head::HEADERS_MAX,
    http2::{
        connection::{Connection, ConnectionError},
        error::ErrorCode,
        frame::HEADER_BYTES,
        hpack::FieldSection,
        request::HeadRoom,
    },
};

use crate::client::http2::{
    gather::{Frames, List},
    hpack_cache::HpackBlockCache,
};
use crate::{
    client::{
        limits::{client_budget::ClientMemoryGuard, send_rate::SendRate},
        transport::Transport,
    },
    config::Config,
    core::{Core, with_core},
    counters::Counter,
    deliver::sink::SinkError,
};

/// Content of one frame at most: what every client takes (RFC 9113 §4.2).
const FRAME_BYTES: usize = 16 << 10;
/// The same under TLS: with its header it is one record.
const FRAME_BYTES_SECURED: usize = RECORD_CONTENT_BYTES_MAX - HEADER_BYTES;
/// The least that a section of fields may be bounded by: what a table holds.
const SECTION_BYTES_MIN: usize = 4096;

/// Buffers of the thread for HTTP/2.
pub(crate) struct Scratch {
    /// The fields of the request that is read.
    pub(super) section: FieldSection,
    /// The same as a head of HTTP/1.
    pub(super) head: HeadRoom,
    /// An answer's head as text, and its content if it is small.
    pub(super) text: Vec<u8>,
    /// Heads as field blocks.
    pub(super) blocks: HpackBlockCache,
    /// What a turn has to write.
    pub(super) out: Vec<u8>,
}

impl Scratch {
    pub(crate) fn new(config: &Config) -> Self {
        let list_bytes = config.limits.request_head_bytes_max.max(SECTION_BYTES_MIN);
        Self {
            section: FieldSection::new(list_bytes, HEADERS_MAX),
            head: HeadRoom::new(4096),
            text: Vec::with_capacity(32 << 10),
            blocks: HpackBlockCache::new(),
            out: Vec::with_capacity(512 << 10),
        }
    }
}

/// All connections of HTTP/2 of one core.
#[derive(Default)]
pub(crate) struct Multiplexes {
    places: Slab<Multiplex>,
    serial: u64,
}

/// Which connection; one that is gone is not mistaken for the next in its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    place: usize,
    serial: u64,
}

impl Number {
    /// A number that no other connection of this core has had.
    pub(super) const fn serial(self) -> u64 {
        self.serial
    }
}

#[cfg(test)]
impl Number {
    /// The number of no connection.
    pub(super) const NOBODY: Self = Self { place: usize::MAX, serial: 0 };
}

impl Multiplexes {
    pub(super) fn enter(&mut self, mut multiplex: Multiplex) -> Number {
        self.serial += 1;
        multiplex.serial = self.serial;
        Number { place: self.places.insert(multiplex), serial: self.serial }
    }

    pub(super) fn get(&mut self, number: Number) -> Option<&mut Multiplex> {
        self.places.get_mut(number.place).filter(|multiplex| multiplex.serial == number.serial)
    }

    pub(super) fn remove(&mut self, number: Number) -> Option<Multiplex> {
        self.get(number)?;
        self.places.try_remove(number.place)
    }
}

/// Runs `with` on a connection of this core; `None` if it is gone.
pub(super) fn with<R>(number: Number, with: impl FnOnce(&Core, &mut Multiplex) -> R) -> Option<R> {
    with_core(|core| core.multiplexes.borrow_mut().get(number).map(|multiplex| with(core, multiplex)))
}

/// A stream whose request is answered by a task.
pub(super) struct Stream {
    pub(super) id: u32,
    pub(super) task: AbortHandle,
    /// It has something to send, and waits for a window or the socket.
    pub(super) sending: Option<Waker>,
    /// It waits for content of its request.
    pub(super) receiving: Option<Waker>,
    /// Content that came and was not asked for yet.
    pub(super) content: Vec<u8>,
    /// Nothing follows it.
    pub(super) is_whole: bool,
    /// Trailer lines.
    pub(super) trailers: Vec<u8>,
}

/// One connection.
pub(super) struct Multiplex {
    serial: u64,
    pub(super) wire: Connection,
    pub(super) transport: Transport,
    /// Frames to be written, and how much of them was.
    pub(super) out: Vec<u8>,
    out_at: usize,
    held: ClientMemoryGuard,
    /// The socket has not taken all that it was given.
    is_blocked: bool,
    /// Since when nothing of what waits could be written, by the monotonic clock.
    pub(super) stuck_since_ms: Option<u64>,
    /// How slowly its client takes what waits.
    pub(super) taking: SendRate,
    /// Requests that it has brought.
    pub(super) requests: usize,
    /// In order of their numbers.
    pub(super) streams: Vec<Stream>,
    /// Content of requests that waits, of all streams.
    pub(super) content_bytes: usize,
    /// Received, and not whole frames.
    pub(super) pending: Vec<u8>,
    /// It may be.
    pub(super) unexamined: bool,
    /// When the frame or field block that is under way began, in milliseconds of the monotonic clock.
    pub(super) frame_since_ms: Option<u64>,
    /// The connection's task.
    pub(super) waker: Option<Waker>,
    /// What the client has done that ends the connection.
    pub(super) ended: Option<ConnectionError>,
    /// The client has been told that the connection will end.
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

    /// Keeps what is left of a turn's frames.
    pub(super) fn keep(&mut self, rest: Vec<u8>) {
        (self.out, self.out_at) = (rest, 0);
    }

    /// Gives back memory that an idle connection does not need.
    pub(super) fn rest(&mut self) {
        self.wire.rest();
        (self.out, self.out_at, self.pending) = (Vec::new(), 0, Vec::new());
        self.streams = Vec::new();
    }

    pub(super) fn stream(&mut self, id: u32) -> Option<&mut Stream> {
        let place = self.streams.binary_search_by_key(&id, |stream| stream.id).ok()?;
        Some(&mut self.streams[place])
    }

    /// Forgets a stream; its task is the caller's to end.
    pub(super) fn leave(&mut self, id: u32) -> Option<Stream> {
        let place = self.streams.binary_search_by_key(&id, |stream| stream.id).ok()?;
        let stream = self.streams.remove(place);
        self.content_bytes -= stream.content.len();
        // Nobody takes what came: it is the connection's window again.
        self.wire.release(id, stream.content.len(), &mut self.out);
        Some(stream)
    }

    /// Has the connection's task look at what there is to do.
    pub(super) fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// Whether nothing waits for the socket.
    pub(super) fn is_flushed(&self) -> bool {
        !self.is_blocked
    }

    /// Bytes that wait to be written.
    pub(super) fn unwritten(&self) -> usize {
        self.out.len() - self.out_at
    }

    /// Writes what waits, as far as the socket takes it; whether nothing is left.
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

    /// Counts what the client makes us hold.
    pub(super) fn hold(&mut self) -> Result<(), SinkError> {
        let bytes = self.unwritten() + self.content_bytes + self.pending.len();
        if self.held.resize(bytes) { Ok(()) } else { Err(SinkError::Closed) }
    }

    /// Wakes the stream that is to send next, if the socket has room for it.
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

    /// Sends on a stream what its windows and the socket take now of `parts`; how many bytes. `is_last`: the stream's
    /// content ends with them.
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
            // The socket is waited for with the next frame in hand.
            begun = begun.and_next(&frames);
        }
        for (place, bytes) in begun.lengths().iter().enumerate() {
            let is_end = ends && place + 1 == frames.lengths().len();
            self.wire.sends_data(stream, *bytes, is_end);
        }
        // A frame that has begun must come to its end before any other, so what the socket left of it is ours.
        let rest = list.copy(sent..waited.len() + begun.framed_bytes());
        self.is_blocked = !rest.is_empty() || !self.transport.is_flushed();
        // Within a turn it is the thread's buffer.
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

/// Ends a stream with an error, if it is there.
pub(super) fn reset(multiplex: &mut Multiplex, stream: u32, code: ErrorCode) {
    multiplex.wire.reset(stream, code, &mut multiplex.out);
}
