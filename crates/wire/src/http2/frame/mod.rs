//! Frames (RFC 9113 §4 and §6, RFC 9218 §7.1): bytes to values and back.
//!
//! ```text
//!  +-----------------+---------+----------+---+-----------------+---------~ ~--+
//!  | Length (24)     | Type (8)| Flags (8)| R | Stream (31)     | Payload       |
//!  +-----------------+---------+----------+---+-----------------+---------~ ~--+
//! ```
//! A frame is handed out when all of it is there; its parts are slices of the caller's buffer. Nothing is copied, and
//! nothing remembered: whether a frame may come *now* is the connection's to say.

mod settings;
mod write;

pub use settings::{
    FRAME_BYTES_CAP, FRAME_BYTES_MIN, SETTING_BYTES, Setting, Settings, TABLE_BYTES_AT_START,
    WINDOW_AT_START, WINDOW_MAX,
};
pub use write::{
    continuation_header, data_header, goaway, headers, headers_header, ping, priority_update, reset,
    settings, settings_ack, window_update, write,
};

use super::{
    Progress,
    error::{ErrorCode, Fault, Rule},
};

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 9;

/// What a client sends before its first frame (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The types of frames, by number.
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

/// Flags of frames. The same bit means different things in different types.
pub mod flag {
    #![allow(missing_docs, reason = "the names are those of RFC 9113 §6")]
    pub const ACK: u8 = 0x1;
    pub const END_STREAM: u8 = 0x1;
    pub const END_HEADERS: u8 = 0x4;
    pub const PADDED: u8 = 0x8;
    pub const PRIORITY: u8 = 0x20;
}

/// The first nine bytes of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the payload, below 2^24.
    pub length: u32,
    /// The type: see [`kind`].
    pub kind: u8,
    /// The flags: see [`flag`]. What a type does not define is ignored.
    pub flags: u8,
    /// The stream; 0 is the connection. The bit above is ignored.
    pub stream: u32,
}

impl FrameHeader {
    /// Reads the header at the start of `bytes`, if it is there.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, kind, flags, s, t, u, v] = bytes.first_chunk::<HEADER_BYTES>()?;
        let length = u32::from_be_bytes([0, a, b, c]);
        Some(Self { length, kind, flags, stream: u32::from_be_bytes([s & 0x7f, t, u, v]) })
    }

    /// The nine bytes.
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

    /// A frame with another size than its type has. It ends the connection where the connection's state hangs on
    /// it (RFC 9113 §4.2).
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

/// What RFC 7540 said about a stream's priority, and RFC 9113 §5.3.2 has ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dependency {
    /// Whether this stream alone depends on the other.
    pub exclusive: bool,
    /// The stream on which it depends.
    pub stream: u32,
    /// The weight, less one.
    pub weight: u8,
}

/// A frame, whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'b> {
    /// Content of a message.
    Data {
        /// Whose.
        stream: u32,
        /// Without the padding.
        payload: &'b [u8],
        /// What it takes of the windows: the payload and its padding (RFC 9113 §6.9.1).
        flow_bytes: u32,
        /// Whether it is the stream's last.
        end_stream: bool,
    },
    /// The beginning of a field section.
    Headers {
        /// Whose.
        stream: u32,
        /// As much of the field block as the frame holds.
        fragment: &'b [u8],
        /// Whether nothing but CONTINUATION follows on the stream.
        end_stream: bool,
        /// Whether the field block ends here.
        end_headers: bool,
        /// What is ignored.
        dependency: Option<Dependency>,
    },
    /// What is ignored (RFC 9113 §6.3).
    Priority {
        /// Whose; it may be idle or closed.
        stream: u32,
        /// What is ignored.
        dependency: Dependency,
    },
    /// The end of a stream by force.
    Reset {
        /// Which.
        stream: u32,
        /// Why.
        code: ErrorCode,
    },
    /// What the peer wants.
    Settings(Settings<'b>),
    /// The peer has seen our settings.
    SettingsAck,
    /// A promise; only servers send it.
    PushPromise {
        /// The stream on which it is made.
        stream: u32,
        /// The stream that is promised.
        promised: u32,
        /// As much of the field block as the frame holds.
        fragment: &'b [u8],
        /// Whether the field block ends here.
        end_headers: bool,
    },
    /// "Are you there?"
    Ping {
        /// Whether it answers ours.
        ack: bool,
        /// What the answer must repeat.
        opaque: [u8; 8],
    },
    /// The peer takes no more streams.
    GoAway {
        /// The last stream of ours that it may have acted on.
        last_stream: u32,
        /// Why.
        code: ErrorCode,
        /// Whatever it says besides.
        debug: &'b [u8],
    },
    /// A larger window.
    WindowUpdate {
        /// Whose; 0: the connection's.
        stream: u32,
        /// By how much, 1 to 2^31-1.
        increment: u32,
    },
    /// More of a field block.
    Continuation {
        /// Whose.
        stream: u32,
        /// As much of the field block as the frame holds.
        fragment: &'b [u8],
        /// Whether the field block ends here.
        end_headers: bool,
    },
    /// How urgent a request is (RFC 9218 §7.1).
    PriorityUpdate {
        /// Whose; it may be idle or closed.
        stream: u32,
        /// A Priority field's value.
        value: &'b [u8],
    },
    /// Of a type that nobody knows: to be ignored (RFC 9113 §4.1).
    Unknown {
        /// What it says.
        header: FrameHeader,
        /// What it holds.
        payload: &'b [u8],
    },
}

/// Takes one frame off the front of `bytes`; `frame_bytes_max` is the SETTINGS_MAX_FRAME_SIZE that we announced.
///
/// # Errors
/// The rule that the frame breaks, as soon as the bytes that break it are there. Where it ends only a stream, the frame is
/// whole, and [`FrameHeader::parse`] says how long it is.
#[inline]
pub fn parse(bytes: &[u8], frame_bytes_max: u32) -> Result<Progress<Frame<'_>>, Fault> {
    let Some(header) = FrameHeader::parse(bytes) else {
        return Ok(Progress::NeedMore(HEADER_BYTES));
    };
    // Also where RFC 9113 §4.2 would end only the stream: to pass over the frame, up to 16 MiB would have to be read.
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

/// The payload without the padding and the byte that says how long it is.
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

/// 31 bits.
fn number(bytes: &[u8; 4]) -> u32 {
    u32::from_be_bytes(*bytes) & WINDOW_MAX
}

/// The frames of a fixed size that come on streams.
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

/// The frames that come on stream 0 alone.
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
