//! Frames (RFC 9113 §4 and §6, RFC 9218 §7.1): bytes to values and back.
//!
//! ```text
//!  +-----------------+---------+----------+---+-----------------+---------~ ~--+
//!  | Length (24)     | Type (8)| Flags (8)| R | Stream (31)     | Payload       |
//!  +-----------------+---------+----------+---+-----------------+---------~ ~--+
//! ```
//! A frame is returned once all of it has arrived; its parts are slices of the caller's buffer. Nothing is
//! copied, and no state is kept: the connection decides whether a frame is allowed *now*.

mod settings;
mod write;

pub use settings::{
    FRAME_BYTES_CAP, FRAME_BYTES_MIN, SETTING_BYTES, Setting, Settings, TABLE_BYTES_AT_START,
    WINDOW_AT_START, WINDOW_MAX,
};
pub use write::{
    data_header, goaway, headers, ping, priority_update, reset, settings, settings_ack, window_update, write,
};

use super::{
    Progress,
    error::{ErrorCode, Fault, Rule},
};

/// Length of a frame's header in bytes.
pub const HEADER_BYTES: usize = 9;

/// Bytes that a client sends before its first frame (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The frame types, by number.
pub mod kind {
    #![allow(missing_docs, reason = "the names are those of RFC 9113 §6 and RFC 9218 §7.1")]
    pub const DATA: u8 = 0x0;
    pub const HEADERS: u8 = 0x1;
    pub const PRIORITY: u8 = 0x2;
    pub const RST_STREAM: u8 = 0x3;
    pub const SETTINGS: u8 = 0x4;
    pub const PUSH_PROMISE: u8 = 0x5;
    pub const PING: u8 = 0x6;
    pub const GOAWAY: u8 = 0x7;
    pub const WINDOW_UPDATE: u8 = 0x8;
    pub const CONTINUATION: u8 = 0x9;
    pub const PRIORITY_UPDATE: u8 = 0x10;
}

/// Frame flags. The same bit means different things in different types.
pub mod flag {
    #![allow(missing_docs, reason = "the names are those of RFC 9113 §6")]
    pub const ACK: u8 = 0x1;
    pub const END_STREAM: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// A frame's header: its first nine bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Length of the payload in bytes, below 2^24.
    pub length: u32,
    /// The type: see [`kind`].
    pub kind: u8,
    /// The flags: see [`flag`]. Flags that the type does not define are ignored.
    pub flags: u8,
    /// The stream; 0 is the connection. The reserved bit above it is ignored.
    pub stream: u32,
}

impl FrameHeader {
    /// Reads the header at the start of `bytes`; `None` if it is incomplete.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, kind, flags, s, t, u, v] = bytes.first_chunk::<HEADER_BYTES>()?;
        let length = u32::from_be_bytes([0, a, b, c]);
        Some(Self { length, kind, flags, stream: u32::from_be_bytes([s & 0x7f, t, u, v]) })
    }

    /// Returns the header's nine bytes.
    #[inline]
    pub fn bytes(self) -> [u8; HEADER_BYTES] {
        let [_, a, b, c] = self.length.to_be_bytes();
        let [s, t, u, v] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, s, t, u, v]
    }

    fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn connection_fault<T>(self, rule: Rule, code: ErrorCode) -> Result<T, Fault> {
        Err(Fault::of_connection(rule, code))
    }

    /// Returns the fault for a frame whose size does not match its type. It ends the connection if the frame
    /// affects the connection's state (RFC 9113 §4.2).
    fn wrong_size<T>(self) -> Result<T, Fault> {
        let alters_the_connection = self.stream == 0
            || matches!(
                self.kind,
                kind::HEADERS
                    | kind::PUSH_PROMISE
                    | kind::CONTINUATION
                    | kind::SETTINGS
                    | kind::RST_STREAM
                    | kind::WINDOW_UPDATE
            );
        let stream = (!alters_the_connection).then_some(self.stream);
        Err(Fault { rule: Rule::FrameSize, code: ErrorCode::FRAME_SIZE_ERROR, stream })
    }
}

/// A stream's priority as in RFC 7540; ignored since RFC 9113 §5.3.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dependency {
    /// True if this stream becomes the only one that depends on `stream`.
    pub exclusive: bool,
    /// The stream on which this one depends.
    pub stream: u32,
    /// The weight, minus one.
    pub weight: u8,
}

/// A complete frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'b> {
    /// Content of a message.
    Data {
        /// Identifier of the stream.
        stream: u32,
        /// The content without the padding.
        payload: &'b [u8],
        /// Number of bytes consumed from the windows: the payload and its padding (RFC 9113 §6.9.1).
        flow_bytes: u32,
        /// True if the frame is the stream's last.
        end_stream: bool,
    },
    /// The start of a field section.
    Headers {
        /// Identifier of the stream.
        stream: u32,
        /// The part of the field block in this frame.
        fragment: &'b [u8],
        /// True if only CONTINUATION frames follow on the stream.
        end_stream: bool,
        /// True if the field block ends in this frame.
        end_headers: bool,
        /// The RFC 7540 priority, which is ignored.
        dependency: Option<Dependency>,
    },
    /// An RFC 7540 priority, which is ignored (RFC 9113 §6.3).
    Priority {
        /// Identifier of the stream, which may be idle or closed.
        stream: u32,
        /// The priority, which is ignored.
        dependency: Dependency,
    },
    /// Abrupt end of a stream (RST_STREAM).
    Reset {
        /// Identifier of the stream.
        stream: u32,
        /// Error code of the reset.
        code: ErrorCode,
    },
    /// The peer's settings.
    Settings(Settings<'b>),
    /// Acknowledgement of our settings.
    SettingsAck,
    /// A push promise; only servers send it.
    PushPromise {
        /// The stream on which the promise is made.
        stream: u32,
        /// The promised stream.
        promised: u32,
        /// The part of the field block in this frame.
        fragment: &'b [u8],
        /// True if the field block ends in this frame.
        end_headers: bool,
    },
    /// A PING, to check that the peer is alive.
    Ping {
        /// True if the frame answers a PING.
        ack: bool,
        /// Data that the answer must repeat.
        opaque: [u8; 8],
    },
    /// The peer accepts no more streams.
    GoAway {
        /// Number of the last stream that the frame's sender may have processed.
        last_stream: u32,
        /// Error code with which the connection ends.
        code: ErrorCode,
        /// Additional debug data.
        debug: &'b [u8],
    },
    /// Increase of a window.
    WindowUpdate {
        /// Identifier of the stream, or 0 for the connection.
        stream: u32,
        /// Increment, 1 to 2^31-1.
        increment: u32,
    },
    /// A further part of a field block.
    Continuation {
        /// Identifier of the stream.
        stream: u32,
        /// The part of the field block in this frame.
        fragment: &'b [u8],
        /// True if the field block ends in this frame.
        end_headers: bool,
    },
    /// New priority of a request (RFC 9218 §7.1).
    PriorityUpdate {
        /// Identifier of the stream, which may be idle or closed.
        stream: u32,
        /// Value in the syntax of the Priority field.
        value: &'b [u8],
    },
    /// A frame of unknown type, to be ignored (RFC 9113 §4.1).
    Unknown {
        /// The frame's header.
        header: FrameHeader,
        /// The frame's payload.
        payload: &'b [u8],
    },
}

/// Parses one frame at the front of `bytes`; `frame_bytes_max` is the SETTINGS_MAX_FRAME_SIZE that we
/// announced.
///
/// # Errors
/// Returns the rule that the frame breaks, as soon as the bytes that break it have arrived. If the fault ends
/// only a stream, the frame is complete, and [`FrameHeader::parse`] gives its length.
#[inline]
pub fn parse(bytes: &[u8], frame_bytes_max: u32) -> Result<Progress<Frame<'_>>, Fault> {
    let Some(header) = FrameHeader::parse(bytes) else {
        return Ok(Progress::NeedMore(HEADER_BYTES));
    };
    // This ends the connection even where RFC 9113 §4.2 would end only the stream: skipping the frame would
    // mean reading up to 16 MiB.
    if header.length > frame_bytes_max {
        return header.connection_fault(Rule::FrameTooLarge, ErrorCode::FRAME_SIZE_ERROR);
    }
    let total = HEADER_BYTES + header.length as usize;
    let Some(payload) = bytes.get(HEADER_BYTES..total) else {
        return Ok(Progress::NeedMore(total));
    };
    let frame = match header.kind {
        kind::DATA => data(header, payload)?,
        kind::HEADERS => field_block(header, payload)?,
        kind::PUSH_PROMISE => push_promise(header, payload)?,
        kind::CONTINUATION => {
            on_stream(header)?;
            let end_headers = header.has(flag::END_HEADERS);
            Frame::Continuation { stream: header.stream, fragment: payload, end_headers }
        }
        kind::PRIORITY | kind::RST_STREAM | kind::WINDOW_UPDATE => short(header, payload)?,
        kind::SETTINGS | kind::PING | kind::GOAWAY | kind::PRIORITY_UPDATE => of_connection(header, payload)?,
        _ => Frame::Unknown { header, payload },
    };
    Ok(Progress::Complete(frame, total))
}

fn on_stream(header: FrameHeader) -> Result<(), Fault> {
    if header.stream != 0 {
        return Ok(());
    }
    header.connection_fault(Rule::StreamZero, ErrorCode::PROTOCOL_ERROR)
}

/// Removes the padding and the byte that holds its length.
fn without_padding(header: FrameHeader, payload: &[u8]) -> Result<&[u8], Fault> {
    if !header.has(flag::PADDED) {
        return Ok(payload);
    }
    let Some((&padding, rest)) = payload.split_first() else {
        return header.wrong_size();
    };
    match rest.len().checked_sub(padding.into()) {
        Some(len) => Ok(&rest[..len]),
        None => header.connection_fault(Rule::Padding, ErrorCode::PROTOCOL_ERROR),
    }
}

#[inline]
fn data(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, Fault> {
    on_stream(header)?;
    Ok(Frame::Data {
        stream: header.stream,
        payload: without_padding(header, payload)?,
        flow_bytes: header.length,
        end_stream: header.has(flag::END_STREAM),
    })
}

#[inline]
fn field_block(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, Fault> {
    on_stream(header)?;
    let mut fragment = without_padding(header, payload)?;
    let mut dependency = None;
    if header.has(flag::PRIORITY) {
        let Some((priority, rest)) = fragment.split_first_chunk::<5>() else {
            return header.wrong_size();
        };
        dependency = Some(depends(priority));
        fragment = rest;
    }
    Ok(Frame::Headers {
        stream: header.stream,
        fragment,
        end_stream: header.has(flag::END_STREAM),
        end_headers: header.has(flag::END_HEADERS),
        dependency,
    })
}

fn depends(bytes: &[u8; 5]) -> Dependency {
    let &[a, b, c, d, weight] = bytes;
    let stream = u32::from_be_bytes([a & 0x7f, b, c, d]);
    Dependency { exclusive: a & 0x80 != 0, stream, weight }
}

fn push_promise(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, Fault> {
    on_stream(header)?;
    let Some((promised, fragment)) = without_padding(header, payload)?.split_first_chunk::<4>() else {
        return header.wrong_size();
    };
    let promised = number(promised);
    if promised == 0 || promised % 2 == 1 {
        return header.connection_fault(Rule::PromisedStream, ErrorCode::PROTOCOL_ERROR);
    }
    let end_headers = header.has(flag::END_HEADERS);
    Ok(Frame::PushPromise { stream: header.stream, promised, fragment, end_headers })
}

/// Reads a 31-bit number.
fn number(bytes: &[u8; 4]) -> u32 {
    u32::from_be_bytes(*bytes) & WINDOW_MAX
}

/// Parses the frames of fixed size that belong to a stream.
fn short(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, Fault> {
    let stream = header.stream;
    if header.kind != kind::WINDOW_UPDATE {
        on_stream(header)?;
    }
    if header.kind == kind::PRIORITY {
        let Some(dependency) = payload.as_array::<5>() else { return header.wrong_size() };
        return Ok(Frame::Priority { stream, dependency: depends(dependency) });
    }
    let Some(word) = payload.as_array::<4>() else { return header.wrong_size() };
    if header.kind == kind::RST_STREAM {
        return Ok(Frame::Reset { stream, code: ErrorCode(u32::from_be_bytes(*word)) });
    }
    match number(word) {
        0 => Err(Fault {
            rule: Rule::ZeroIncrement,
            code: ErrorCode::PROTOCOL_ERROR,
            stream: (stream != 0).then_some(stream),
        }),
        increment => Ok(Frame::WindowUpdate { stream, increment }),
    }
}

/// Parses the frames that are allowed on stream 0 only.
fn of_connection(header: FrameHeader, payload: &[u8]) -> Result<Frame<'_>, Fault> {
    if header.stream != 0 {
        return header.connection_fault(Rule::StreamNotZero, ErrorCode::PROTOCOL_ERROR);
    }
    match header.kind {
        kind::SETTINGS if !header.has(flag::ACK) => Ok(Frame::Settings(Settings::parse(payload)?)),
        kind::SETTINGS if payload.is_empty() => Ok(Frame::SettingsAck),
        kind::PING if payload.len() == 8 => {
            let mut opaque = [0; 8];
            opaque.copy_from_slice(payload);
            Ok(Frame::Ping { ack: header.has(flag::ACK), opaque })
        }
        kind::GOAWAY if payload.len() >= 8 => {
            let (last, rest) = payload.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
            let (code, debug) = rest.split_first_chunk::<4>().unwrap_or((&[0; 4], &[]));
            let code = ErrorCode(u32::from_be_bytes(*code));
            Ok(Frame::GoAway { last_stream: number(last), code, debug })
        }
        kind::PRIORITY_UPDATE => {
            let Some((stream, value)) = payload.split_first_chunk::<4>() else { return header.wrong_size() };
            match number(stream) {
                0 => header.connection_fault(Rule::PriorityUpdateStream, ErrorCode::PROTOCOL_ERROR),
                stream => Ok(Frame::PriorityUpdate { stream, value }),
            }
        }
        _ => header.wrong_size(),
    }
}
