//! What a client's frames come to, and how a connection ends.

use super::{
    super::{
        error::{ErrorCode, Rule},
        hpack::{DecodeError, Overflow},
        priority::Priority,
        request::{Request, RequestRule, Trailers},
    },
    limits::Limit,
};

/// What one frame came to. [`Connection::reply`](super::Connection::reply) writes what the client must be told of it.
#[derive(Debug, Clone, Copy)]
pub enum Event<'b, 's> {
    /// Nothing that concerns anybody.
    Nothing,
    /// A request; its stream is open until both sides have ended it.
    Request {
        /// Its stream.
        stream: u32,
        /// What is asked.
        request: Request<'s>,
        /// Whether nothing follows.
        end: bool,
    },
    /// A request whose fields are too many or too large. Its stream is open: it should be answered, with 431.
    HeadTooLarge {
        /// Its stream.
        stream: u32,
        /// Which bound it is beyond.
        overflow: Overflow,
        /// Whether nothing follows.
        end: bool,
    },
    /// Content of a request.
    Data {
        /// Whose.
        stream: u32,
        /// The content; whoever has taken it says so by [`Connection::release`](super::Connection::release).
        payload: &'b [u8],
        /// Whether it is the last.
        end: bool,
    },
    /// Fields after the content; nothing follows.
    Trailers {
        /// Whose.
        stream: u32,
        /// The fields.
        trailers: Trailers<'s>,
    },
    /// The client gave a stream up; it is gone.
    Reset {
        /// Which.
        stream: u32,
        /// ConnectionFault.
        code: ErrorCode,
    },
    /// The client broke a rule on a stream; it is gone, and the client to be told.
    Broken {
        /// Which.
        stream: u32,
        /// Whether a request of it was handed out before.
        was_open: bool,
        /// What the client is told.
        code: ErrorCode,
        /// The rule.
        why: StreamFault,
    },
    /// A stream beyond those that were announced; the client is to be told that it was not looked at.
    Refused {
        /// Which.
        stream: u32,
    },
    /// A question that is to be answered.
    PingToAck([u8; 8]),
    /// The answer to a question of ours.
    Pong([u8; 8]),
    /// Settings that are to be acknowledged. Windows may have changed, all of them.
    SettingsToAck,
    /// A window grew: of a stream, or (0) of the connection.
    WindowOpened {
        /// Whose.
        stream: u32,
    },
    /// An open stream is now as urgent as this.
    Prioritised {
        /// Which.
        stream: u32,
        /// Its priority.
        priority: Priority,
    },
    /// The client takes its leave; what is open may be finished.
    GoAway {
        /// ConnectionFault.
        code: ErrorCode,
    },
}

/// What broke a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StreamFault {
    /// A rule of frames and streams.
    #[error("{0} ({section})", section = .0.section())]
    Rule(Rule),
    /// A rule of requests.
    #[error("{0} ({section})", section = .0.section())]
    Request(RequestRule),
}

/// The end of a connection by its client's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct ConnectionError {
    /// What the client is told.
    pub code: ErrorCode,
    /// ConnectionFault.
    pub why: ConnectionFault,
}

/// ConnectionFault a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionFault {
    /// A rule is broken.
    #[error("{0} ({section})", section = .0.section())]
    Rule(Rule),
    /// A field block cannot be decoded.
    #[error(transparent)]
    FieldBlock(DecodeError),
    /// A limit is reached.
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
