//! The client side for origins: the choice of a server, a pool of connections to each server per core, and
//! exchanges: one at a time on an HTTP/1 connection, many on an HTTP/2 connection.
//!
//! ```text
//!  ask: member ─▶ permit ─▶ a connection of the pool, or addresses ─▶ connect ─▶ head, body out ─▶ the answer's head ─▶ AnswerHead
//!   (group,   ▲   (upstream) (begin)             (resolve)  (connect, line)  (exchange: http1, http2)  │ on a kept connection
//!    balance) │      └◀────────────── once more, where that is safe ◀──────────────────────────────────┤ that had ended
//!             └◀───── another member, where that is safe ◀─────────────────────────────────────────────┘ it failed
//!  probe: asks a server by itself ─▶ health: may the server be chosen?
//! ```
//! *Memory:* a response's head is read into a buffer of its own (bounded by `response_head_bytes_max`). Its
//! body goes from the socket straight into the caller's memory; HTTP/2 and TLS use a buffer in between.
//! *Waiting:* the fetch's task waits, never the loop. Connections are reused last in, first out, so that a
//! quiet site keeps few of them open.

mod answer_head;
mod ask;
mod balance;
mod begin;
mod connect;
mod exchange;
mod group;
mod health;
mod http1;
mod http2;
mod line;
mod member;
mod names;
mod pool;
mod probe;
mod reply;
mod request_half;
mod resolve;
mod said;
mod shares;
mod upstream;

use std::{io, time::Duration};

use crate::error_page::Rule;

pub(crate) use answer_head::interim;
pub(crate) use ask::{OriginRequest, RequestSender, SendError, ask, switch};
pub(crate) use balance::mixed;
pub(crate) use exchange::{AnswerHead, Exchange, ExchangeResult, UpgradedConnection};
pub(crate) use group::{Group, MemberId, TriedMembers, Wish};
pub use health::{ByHand, HealthState};
pub(crate) use line::Line;
pub(crate) use member::Member;
pub use member::{MemberSaid, SetUpError};
pub(crate) use pool::Pool;
pub(crate) use probe::probe;
pub(crate) use reply::{BodyRead, SendResult};
pub(crate) use request_half::{Part, RequestHalf};
pub(crate) use resolve::{NameCounter, Names};
pub(crate) use said::Servers;
pub(crate) use shares::Client;
pub(crate) use upstream::{Permit, Pools, Upstream, Upstreams};

/// Events of HTTP/2 connections and of waiting requests, for the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OriginEvent {
    /// A connection was opened.
    Begun,
    /// A connection has ended.
    Ended,
    /// The origin did not answer a PING.
    Silent,
    /// A request was sent over a shared connection.
    Request,
    /// The origin did not process a request, which is sent again.
    Unprocessed,
    /// A request waited long for an exchange with a server.
    LongWait,
}

/// Callback for events.
pub(crate) type Tell = fn(OriginEvent);

/// Failure on the origin's side.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OriginError {
    /// The origin's name has no address.
    #[error("cannot resolve the origin's name {0}")]
    Unresolved(String),
    /// The origin refused the connection.
    #[error("the origin refused the connection")]
    Refused,
    /// The origin did not accept the connection in time.
    #[error("the origin did not accept a connection within {0:?}")]
    ConnectTimeout(Duration),
    /// Connecting failed for another reason.
    #[error("the connection to the origin failed: {0}")]
    Connect(String),
    /// The TLS handshake failed, for example because the certificate is for another name.
    #[error("TLS with the origin failed: {0}")]
    Tls(String),
    /// The origin has no usable server: probes fail, or an operator has taken the servers out of rotation.
    #[error("no server of the origin is available")]
    NobodyUp,
    /// The origin's name was not resolved in time.
    #[error("resolving the origin's name took longer than {0:?}")]
    ResolveTimeout(Duration),
    /// The origin declared the request unprocessed (HTTP/2), so any request may be sent again.
    #[error("the origin did not process the request")]
    Unprocessed,
    /// The origin demands HTTP/1.1, or HTTP/2 cannot express the request.
    #[error("the request must be sent over HTTP/1.1")]
    Http1Required,
    /// The core has reached its limit of exchanges over HTTP/2.
    #[error("no receive budget for HTTP/2 answers became free within {0:?}")]
    StreamsBusy(Duration),
    /// The limit of exchanges with the origin is reached, and the queue is full.
    #[error("too many requests ({0}) are queued for a connection to the origin")]
    Queue(usize),
    /// The limit of exchanges with the origin is reached, and the time in the queue is up.
    #[error("no connection to the origin became free within {0:?}")]
    Busy(Duration),
    /// Our own system could not open a connection: descriptors, ports or memory are used up.
    #[error("cannot open a connection to the origin: {0}")]
    NoSocket(String),
    /// An established connection failed, other than by closing.
    #[error("the connection to the origin broke: {0}")]
    Broken(String),
    /// The origin closed the connection before it answered.
    #[error("the origin closed the connection before it had answered")]
    Closed,
    /// The origin reset the connection before it answered.
    #[error("the origin reset the connection before it had answered")]
    Reset,
    /// The first byte, or the rest of the head, did not come in time.
    #[error("the origin did not answer within {0:?}")]
    FirstByteTimeout(Duration),
    /// The head of the answer is larger than the limit.
    #[error("the head of the origin's answer is larger than {0} bytes")]
    HeadTooLarge(usize),
    /// The answer breaks a rule of the protocol.
    #[error("the origin's answer is not valid HTTP: {0}")]
    Invalid(Rule),
    /// The origin closed the connection in the middle of the head.
    #[error("the origin closed the connection in the middle of its response head")]
    HeadShort,
    /// The origin switched to a protocol that was not asked for.
    #[error("the origin switched to a protocol that was not requested")]
    Switched,
    /// The origin answered without switching protocols.
    #[error("the origin did not switch to the requested protocol")]
    NotSwitched,
    /// The origin answered 304 to a request without conditions (RFC 9110 §15.4.5).
    #[error("the origin answered 304 to an unconditional request")]
    UnaskedNotModified,
    /// The body ended before its declared length.
    #[error("the origin ended the body too early")]
    BodyShort,
    /// The origin stopped sending in the middle of the body.
    #[error("the origin sent nothing for {0:?} in the middle of the body")]
    BodyStalled(Duration),
    /// The exchange as a whole took too long.
    #[error("the origin's answer was not complete within {0:?}")]
    TooSlow(Duration),
}

impl OriginError {
    /// Returns whether the origin ended the connection before it answered; a kept connection may have ended
    /// before the request arrived.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::Closed | Self::Reset)
    }

    /// Returns whether the origin cannot be connected to, so that other requests to it would fail, too.
    pub(crate) fn is_unreachable(&self) -> bool {
        match self {
            Self::Unresolved(_)
            | Self::Refused
            | Self::ConnectTimeout(_)
            | Self::Connect(_)
            | Self::Tls(_)
            | Self::NobodyUp
            | Self::ResolveTimeout(_) => true,
            Self::Unprocessed
            | Self::Http1Required
            | Self::StreamsBusy(_)
            | Self::TooSlow(_)
            | Self::Queue(_)
            | Self::Busy(_)
            | Self::NoSocket(_)
            | Self::Broken(_)
            | Self::Closed
            | Self::Reset
            | Self::FirstByteTimeout(_)
            | Self::HeadTooLarge(_)
            | Self::Invalid(_)
            | Self::HeadShort
            | Self::Switched
            | Self::NotSwitched
            | Self::UnaskedNotModified
            | Self::BodyShort
            | Self::BodyStalled(_) => false,
        }
    }

    /// Returns whether the origin had the request and did not answer.
    pub(crate) fn is_silence(&self) -> bool {
        self.is_end() || matches!(self, Self::FirstByteTimeout(_))
    }

    /// Returns whether the exchange ended with its connection, in any way. A kept connection may have ended
    /// before the request.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_end() || matches!(self, Self::Broken(_))
    }

    /// Converts the error of a failed connect.
    pub(crate) fn of_connect(error: &io::Error) -> Self {
        match error.kind() {
            // The Unix socket does not exist yet, or has no listener.
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Self::Refused,
            _ if is_ours(error) => Self::NoSocket(error.to_string()),
            _ => Self::Connect(error.to_string()),
        }
    }

    /// Converts an error on an established connection. None of the results means that the origin is
    /// unreachable.
    pub(crate) fn of_exchange(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset => Self::Reset,
            io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Broken(error.to_string()),
        }
    }
}

/// Returns whether the error comes from our own system, and does not indicate a fault of the origin.
fn is_ours(error: &io::Error) -> bool {
    // ENOMEM, ENFILE, EMFILE, ENOBUFS (errno(3)); EADDRNOTAVAIL: no port is left.
    const OURS: [i32; 4] = [12, 23, 24, 105];
    error.kind() == io::ErrorKind::AddrNotAvailable
        || error.raw_os_error().is_some_and(|errno| OURS.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_error_ejects_no_origin() {
        let of = io::Error::from_raw_os_error;
        // EIO, EHOSTUNREACH, ETIMEDOUT, EPROTO in the middle of an exchange.
        for errno in [5, 113, 110, 71] {
            let error = OriginError::of_exchange(&of(errno));
            assert!(matches!(error, OriginError::Broken(_)), "{errno}: {error}");
            assert!(!error.is_unreachable() && !error.is_silence() && error.is_cut(), "{errno}");
        }
        // A refusal by our own system does not count against the origin.
        for errno in [12, 23, 24, 99, 105] {
            let error = OriginError::of_connect(&of(errno));
            assert!(matches!(error, OriginError::NoSocket(_)), "{errno}: {error}");
            assert!(!error.is_unreachable() && !error.is_cut(), "{errno}");
        }
        // EHOSTUNREACH, ETIMEDOUT, ECONNREFUSED while connecting.
        for errno in [113, 110, 111] {
            assert!(OriginError::of_connect(&of(errno)).is_unreachable(), "{errno}");
        }
    }
}
