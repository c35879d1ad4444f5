//! Events that a client's frames produce, and the errors that end a stream or a connection.

use super::{
    super::{
        error::{ErrorCode, Rule},
        hpack::{DecodeError, Overflow},
        priority::Priority,
        request::{Request, RequestRule, Trailers},
    },
    limits::Limit,
};

/// Result of receiving one frame. [`Connection::reply`](super::Connection::reply) writes the frames that must
/// answer it.
#[derive(Debug, Clone, Copy)]
pub enum Event<'b, 's> {
    /// The caller has nothing to do.
    Nothing,
    /// A request; its stream is open until both sides have ended it.
    Request {
        /// Identifier of the stream.
        stream: u32,
        /// The decoded request.
        request: Request<'s>,
        /// True if neither content nor trailers follow.
        end: bool,
    },
    /// A request with too many or too large fields. Its stream is open; the caller should answer 431.
    HeadTooLarge {
        /// Identifier of the stream.
        stream: u32,
        /// The bound that the fields exceed.
        overflow: Overflow,
        /// True if neither content nor trailers follow.
        end: bool,
    },
    /// Content of a request.
    Data {
        /// Identifier of the stream.
        stream: u32,
        /// The content; the caller reports consumed bytes with
        /// [`Connection::release`](super::Connection::release).
        payload: &'b [u8],
        /// True if this is the end of the request.
        end: bool,
    },
    /// Trailer fields after the content; they end the request.
    Trailers {
        /// Identifier of the stream.
        stream: u32,
        /// The trailer fields.
        trailers: Trailers<'s>,
    },
    /// The client reset a stream; the stream is removed.
    Reset {
        /// Identifier of the stream.
        stream: u32,
        /// Error code that the client sent.
        code: ErrorCode,
    },
    /// The client broke a rule on a stream; the stream is removed, and an RST_STREAM must be sent to the
    /// client.
    Broken {
        /// Identifier of the stream.
        stream: u32,
        /// True if the stream's request was returned to the caller earlier.
        was_open: bool,
        /// Error code to send to the client.
        code: ErrorCode,
        /// The rule that was broken.
        why: StreamFault,
    },
    /// The client opened a stream beyond the announced maximum; the client must be told that it was not
    /// processed.
    Refused {
        /// Identifier of the stream.
        stream: u32,
    },
    /// A PING that must be acknowledged.
    PingToAck([u8; 8]),
    /// The acknowledgement of our PING.
    Pong([u8; 8]),
    /// SETTINGS that must be acknowledged. The windows of all streams may have changed.
    SettingsToAck,
    /// The window of a stream, or of the connection (0), has grown.
    WindowOpened {
        /// Identifier of the stream, or 0 for the connection.
        stream: u32,
    },
    /// An open stream has a new priority.
    Prioritised {
        /// Identifier of the stream.
        stream: u32,
        /// The stream's new priority.
        priority: Priority,
    },
    /// The client will open no more streams (GOAWAY); open ones may be finished.
    GoAway {
        /// Error code that the client sent.
        code: ErrorCode,
    },
}

/// The rule that a client broke on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamFault {
    /// A rule for frames and streams is broken.
    #[error("{0} ({section})", section = .0.section())]
    Rule(Rule),
    /// A rule for requests is broken.
    #[error("{0} ({section})", section = .0.section())]
    Request(RequestRule),
}

/// Error that ends a connection because of its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct ConnectionError {
    /// Error code to send to the client.
    pub code: ErrorCode,
    /// Reason why the connection ends.
    pub why: ConnectionFault,
}

/// Reason why a connection ends with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionFault {
    /// A rule for frames and streams is broken.
    #[error("{0} ({section})", section = .0.section())]
    Rule(Rule),
    /// A field block cannot be decoded.
    #[error(transparent)]
    FieldBlock(DecodeError),
    /// A limit is exceeded.
    #[error("more than the limit {name} allows", name = .0.name())]
    Limit(Limit),
}

impl ConnectionError {
    pub(super) const fn protocol(rule: Rule) -> Self {
        Self { code: ErrorCode::PROTOCOL_ERROR, why: ConnectionFault::Rule(rule) }
    }

    pub(super) const fn limit(limit: Limit) -> Self {
        Self { code: ErrorCode::ENHANCE_YOUR_CALM, why: ConnectionFault::Limit(limit) }
    }
}
