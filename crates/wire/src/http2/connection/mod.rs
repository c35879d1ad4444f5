//! Server side of one connection (RFC 9113 §5 and §6): which frames are allowed now, which streams are open,
//! how much each side may send, and how much cost the client may cause. It uses neither sockets nor clocks:
//! bytes and the time are passed in, events are returned, and frames to send are appended to the caller's
//! buffer.
//!
//! ```text
//!                          HEADERS                 END_STREAM
//!      idle ───────────────────────────▶ open ───────────────────▶ half-closed (remote)
//!       │ beyond streams_max              │ RST_STREAM, a fault      │ our END_STREAM, RST_STREAM
//!       ▼                                 ▼                          ▼
//!      closed: for the last 128 numbers we remember whether the stream was opened and whether we reset it
//! ```
//!
//! Memory of a connection: this struct (about 600 bytes), the decoder's table (4.8 KiB), 48 bytes for each
//! stream, at most `streams_max` of them, and a field block while it arrives in more than one frame, at most
//! `header_block_bytes_max`. A test checks these figures. Fields are decoded into the caller's section;
//! content stays in the caller's buffer.
//!
//! - [`Limits`], [`Limit`]: bounds on the memory and cost that a client may cause.
//! - [`Event`], [`ConnectionError`]: results of received frames.

mod event;
mod limits;
mod receive;
mod send;
mod streams;

pub use event::{ConnectionError, ConnectionFault, Event, StreamFault};
pub use limits::{Limit, Limits, Rate, SMALL_BYTES, STREAMS_CAP, UPDATES_PER_FRAME};

use self::{limits::Credits, streams::Streams};
use super::{
    error::{ErrorCode, Rule},
    frame::{self, FRAME_BYTES_MIN, Setting, TABLE_BYTES_AT_START, WINDOW_AT_START, WINDOW_MAX},
    hpack::{Decoder, FieldSection},
    priority::Priority,
};

/// A field block that has begun but not ended: only its CONTINUATION frames may follow.
#[derive(Debug)]
struct OpenBlock {
    stream: u32,
    end_stream: bool,
    continuations: u32,
    bytes: Vec<u8>,
}

/// Stage of the connection's setup (RFC 9113 §3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Preface,
    FirstSettings,
    Running,
}

/// Stage of the graceful shutdown (RFC 9113 §6.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drain {
    No,
    /// The client has been told to open no more streams; streams already on their way are accepted.
    Announced,
    /// Streams with a higher number than this are ignored.
    After(u32),
}

/// Owner of the window that a response waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowOwner {
    /// The window of this stream.
    Stream(u32),
    /// The connection's window.
    Connection,
}

/// State of a response's wait for a flow-control window.
#[derive(Debug, Clone, Copy, Default)]
struct Wait {
    is_on: bool,
    /// Start of the wait: the clock's low 32 bits.
    since_ms: u32,
    /// Number of bytes sent since the wait began.
    progress: u32,
}

impl Wait {
    /// Records whether the window is too small for all the data to be sent; starts or ends the wait.
    #[inline]
    fn note(&mut self, is_short: bool, now_ms: u64) {
        if !is_short {
            self.is_on = false;
        } else if !self.is_on {
            *self = Self { is_on: true, since_ms: now_ms as u32, progress: 0 };
        }
    }

    #[inline]
    fn sent(&mut self, bytes: usize, bytes_min: u32) {
        self.progress = self.progress.saturating_add(bytes as u32);
        self.is_on &= self.progress < bytes_min;
    }

    fn is_overdue(&self, now_ms: u64, ms_max: u32) -> bool {
        self.is_on && (now_ms as u32).wrapping_sub(self.since_ms) > ms_max
    }
}

/// Server side of one connection.
#[derive(Debug)]
pub struct Connection {
    limits: Limits,
    decoder: Decoder,
    streams: Streams,
    credits: Credits,
    open_block: Option<OpenBlock>,
    stage: Stage,
    drain: Drain,
    /// Number of bytes that we may send, over all streams.
    send_window: i32,
    wait: Wait,
    /// Number of bytes that the client may send; `owed` counts the bytes consumed but not yet returned to its
    /// window.
    receive_window: i32,
    owed: u32,
    /// Values of the client's settings.
    peer_initial_window: i32,
    peer_frame_bytes_max: u32,
    peer_table_bytes: u32,
    /// True if the next field block must announce a dynamic table of size 0.
    table_update_is_due: bool,
    /// Time at which our SETTINGS were sent, until they are acknowledged.
    settings_sent_ms: Option<u64>,
    /// The last PRIORITY_UPDATE that arrived before its stream (RFC 9218 §7.1 lets us bound their number).
    early_priority: Option<(u32, Priority)>,
    /// Number of DATA frames sent so far; it decides which of several incremental streams of equal urgency
    /// sends next.
    turn: u32,
}

impl Connection {
    /// Creates a connection from which nothing has been read.
    ///
    /// # Panics
    /// Panics if the limits allow more streams than [`STREAMS_CAP`], or windows smaller than the protocol's
    /// initial ones.
    pub fn new(limits: Limits, now_ms: u64) -> Self {
        assert!((1..=STREAMS_CAP).contains(&limits.streams_max), "streams_max is within its bounds");
        let windows = WINDOW_AT_START..=WINDOW_MAX;
        assert!(windows.contains(&limits.stream_window), "a stream's window is not below that at the start");
        assert!(windows.contains(&limits.connection_window), "the window is not below that at the start");
        Self {
            limits,
            decoder: Decoder::new(),
            streams: Streams::new(),
            credits: Credits::full(&limits, now_ms),
            open_block: None,
            stage: Stage::Preface,
            drain: Drain::No,
            send_window: WINDOW_AT_START as i32,
            wait: Wait::default(),
            receive_window: limits.connection_window as i32,
            owed: 0,
            peer_initial_window: WINDOW_AT_START as i32,
            peer_frame_bytes_max: FRAME_BYTES_MIN,
            peer_table_bytes: TABLE_BYTES_AT_START,
            table_update_is_due: false,
            settings_sent_ms: None,
            early_priority: None,
            turn: 0,
        }
    }

    /// Appends a server's first frames: SETTINGS, and a WINDOW_UPDATE for the connection's window. `section`
    /// is the section into which field blocks will be decoded; its size limit is announced.
    pub fn greet(&mut self, section: &FieldSection, now_ms: u64, out: &mut Vec<u8>) {
        let settings = [
            (Setting::MAX_CONCURRENT_STREAMS, self.limits.streams_max),
            (Setting::INITIAL_WINDOW_SIZE, self.limits.stream_window),
            (Setting::MAX_HEADER_LIST_SIZE, section.list_bytes_max() as u32),
            (Setting::NO_RFC7540_PRIORITIES, 1),
            (Setting::ENABLE_CONNECT_PROTOCOL, 1),
        ];
        let count = if self.limits.extended_connect { 5 } else { 4 };
        frame::settings(out, &settings[..count]);
        if self.limits.connection_window > WINDOW_AT_START {
            frame::window_update(out, 0, self.limits.connection_window - WINDOW_AT_START);
        }
        self.settings_sent_ms = Some(now_ms);
    }

    /// Returns the number of open streams.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Returns whether a field block has begun but not ended: only its CONTINUATION frames may follow.
    pub fn is_in_field_block(&self) -> bool {
        self.open_block.is_some()
    }

    /// Returns the highest stream number that the client has opened.
    pub fn last_stream(&self) -> u32 {
        self.streams.last()
    }

    /// Returns the heap memory held, in bytes, without this struct.
    pub fn held_bytes(&self) -> usize {
        let block = self.open_block.as_ref().map_or(0, |block| block.bytes.capacity());
        self.decoder.held_bytes() + self.streams.held_bytes() + block
    }

    /// Frees memory that an idle connection does not need.
    pub fn rest(&mut self) {
        self.streams.rest();
    }

    /// Returns an error if the client has not acknowledged our SETTINGS in time (RFC 9113 §6.5.3).
    pub fn overdue(&self, now_ms: u64) -> Option<ConnectionError> {
        let waited_ms = now_ms.saturating_sub(self.settings_sent_ms?);
        (waited_ms > self.limits.settings_ack_ms_max.into()).then_some(ConnectionError {
            code: ErrorCode::SETTINGS_TIMEOUT,
            why: ConnectionFault::Rule(Rule::SettingsTimeout),
        })
    }

    /// Returns the owner of a window that has blocked a response for too long with almost nothing sent (the
    /// "HTTP/2 bomb" holds responses back with tiny windows). The caller resets the stream ([`Self::reset`])
    /// or ends the connection, and frees its memory.
    pub fn stalled(&self, now_ms: u64) -> Option<WindowOwner> {
        let is_overdue = |wait: &Wait| wait.is_overdue(now_ms, self.limits.stall_ms_max);
        if self.streams.len() > 0 && is_overdue(&self.wait) {
            return Some(WindowOwner::Connection);
        }
        self.streams.iter().find(|open| is_overdue(&open.wait)).map(|open| WindowOwner::Stream(open.id))
    }
}
