//! Talking to an origin: which of its servers, a pool of connections to each per core, and exchanges: one at a time on a
//! connection of HTTP/1, many on one of HTTP/2.
//!
//! ```text
//!  ask: member ─▶ permit ─▶ a connection of the pool, or addresses ─▶ connect ─▶ head, body out ─▶ the answer's head ─▶ AnswerHead
//!   (group,   ▲   (upstream) (begin)             (resolve)  (connect, line)  (exchange: http1, http2)  │ on a kept connection
//!    balance) │      └◀────────────── once more, where that is safe ◀──────────────────────────────────┤ that had ended
//!             └◀───── another member, where that is safe ◀─────────────────────────────────────────────┘ it failed
//!  probe: asks a server by itself ─▶ health: may it be asked?
//! ```
//! Where the data lives: a response's head is read into a buffer of its own (bounded by `response_head_bytes_max`);
//! its body goes from the socket straight into the memory that the caller hands in (that of HTTP/2, and what is under TLS,
//! by way of a buffer). Who waits: the task of the fetch,
//! never the loop. Connections are reused, last in first out, so that a quiet site keeps few of them open.

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
mod request_half;
mod resolve;
mod said;
mod shares;
mod upstream;

use std::{io, time::Duration};

use crate::error_page::Rule;

pub(crate) use answer_head::interim;
pub(crate) use ask::{OriginRequest, RequestSender, SendError, UpgradeOutcome, ask, switch};
pub(crate) use balance::mixed;
pub(crate) use exchange::{AnswerHead, BodyRead, Exchange, SendResult, UpgradedConnection};
pub(crate) use group::{Group, MemberId, TriedMembers, Wish};
pub use health::{ByHand, HealthState};
pub(crate) use line::Line;
pub(crate) use member::Member;
pub use member::{MemberSaid, SetUpError};
pub(crate) use pool::Pool;
pub(crate) use probe::probe;
pub(crate) use request_half::{Part, RequestHalf};
pub(crate) use resolve::{NameCounter, Names};
pub(crate) use said::Servers;
pub(crate) use shares::Client;
pub(crate) use upstream::{Permit, Pools, Upstream, Upstreams};

/// Events on connections of HTTP/2, and of requests that wait, for the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OriginEvent {
    /// One is there.
    Begun,
    /// It has ended.
    Ended,
    /// Its origin did not answer a ping.
    Silent,
    /// A request goes over one.
    Request,
    /// The origin did not take a request, which is sent again.
    Unprocessed,
    /// A request waited long for an exchange with a server.
    LongWait,
}

/// Who is told.
pub(crate) type Tell = fn(OriginEvent);

/// What went wrong on the origin's side.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OriginError {
    /// Its name has no address.
    #[error("the origin's name {0} could not be resolved")]
    Unresolved(String),
    /// Nothing accepts connections there.
    #[error("the origin refused the connection")]
    Refused,
    /// It did not accept the connection in time.
    #[error("the origin did not accept a connection within {0:?}")]
    ConnectTimeout(Duration),
    /// The connection failed otherwise.
    #[error("the connection to the origin failed: {0}")]
    Connect(String),
    /// TLS with it failed: its certificate is not for its name, say.
    #[error("TLS with the origin failed: {0}")]
    Tls(String),
    /// None of its servers can be asked: by their probes, or because an operator says so.
    #[error("none of the origin's servers is up")]
    NobodyUp,
    /// Its name was not looked up in time.
    #[error("the origin's name was not resolved within {0:?}")]
    ResolveTimeout(Duration),
    /// It has not looked at the request, and says so (HTTP/2): it may be sent again whatever it is.
    #[error("the origin did not take the request")]
    Unprocessed,
    /// It wants the request over HTTP/1.1; or HTTP/2 has no word for it.
    #[error("the request has to be made over HTTP/1.1")]
    Http1Required,
    /// As many exchanges over HTTP/2 are under way as a core may have.
    #[error("no more bytes of answers over HTTP/2 may be kept, and none became free within {0:?}")]
    StreamsBusy(Duration),
    /// Every connection is busy and the queue is full.
    #[error("{0} requests wait for a connection to the origin already")]
    Queue(usize),
    /// Every connection is busy and the queue's time is up.
    #[error("no connection to the origin became free within {0:?}")]
    Busy(Duration),
    /// Our own system opened no connection: no descriptor, no port or no memory is left.
    #[error("no connection to the origin could be opened here: {0}")]
    NoSocket(String),
    /// An established connection failed in another way than by its end.
    #[error("the connection to the origin broke: {0}")]
    Broken(String),
    /// It closed the connection before it had answered.
    #[error("the origin closed the connection before it had answered")]
    Closed,
    /// It reset the connection before it had answered.
    #[error("the origin reset the connection before it had answered")]
    Reset,
    /// The first byte, or the rest of the head, did not come in time.
    #[error("the origin did not answer within {0:?}")]
    FirstByteTimeout(Duration),
    /// Its head is larger than the limit.
    #[error("the head of the origin's answer is larger than {0} bytes")]
    HeadTooLarge(usize),
    /// Its head breaks a rule of the protocol.
    #[error("the origin's answer is not valid HTTP: {0}")]
    Invalid(Rule),
    /// It ended in the middle of the head.
    #[error("the origin closed the connection in the middle of its answer's head")]
    HeadShort,
    /// It switched to another protocol than was asked for.
    #[error("the origin switched to another protocol than it was asked for")]
    Switched,
    /// It answered, and did not switch.
    #[error("the origin did not switch to the protocol that it was asked for")]
    NotSwitched,
    /// The origin says that nothing has changed (304), to a request without conditions (RFC 9110 §15.4.5).
    #[error("the origin answered 304 to a request without conditions")]
    UnaskedNotModified,
    /// It ended the body before the length that it had stated.
    #[error("the origin ended the body too early")]
    BodyShort,
    /// It stopped in the middle of the body.
    #[error("the origin sent nothing for {0:?} in the middle of the body")]
    BodyStalled(Duration),
    /// The whole of it took too long.
    #[error("the origin's answer was not whole within {0:?}")]
    TooSlow(Duration),
}

impl OriginError {
    /// It ended the connection before it had answered; on a connection that was kept, perhaps before the request came.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::Closed | Self::Reset)
    }

    /// No connection to it can be had: whatever else is asked of it fails, too.
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

    /// It had the request and said nothing.
    pub(crate) fn is_silence(&self) -> bool {
        self.is_end() || matches!(self, Self::FirstByteTimeout(_))
    }

    /// Returns whether the exchange ended with its connection, in whichever way. On a kept connection the end may have
    /// come before the request.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_end() || matches!(self, Self::Broken(_))
    }

    /// The error of a failed connect.
    pub(crate) fn of_connect(error: &io::Error) -> Self {
        match error.kind() {
            // A Unix socket that nobody has made yet, or that nobody listens at.
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Self::Refused,
            _ if is_ours(error) => Self::NoSocket(error.to_string()),
            _ => Self::Connect(error.to_string()),
        }
    }

    /// The error of an exchange on an established connection. None of these says that the origin cannot be reached.
    pub(crate) fn of_exchange(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionReset => Self::Reset,
            io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Broken(error.to_string()),
        }
    }
}

/// Returns whether our own system refused the connection, which says nothing of the origin.
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
        // A refusal by our own system is no fault of the origin.
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
