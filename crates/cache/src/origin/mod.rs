//! Talking to an origin: which of its servers, a pool of connections to each per core, one exchange at a time on each.
//!
//! ```text
//!  ask: member ─▶ permit ─▶ idle connection, or addresses ─▶ connect ─▶ head, body out ─▶ head of the answer ─▶ Arrived
//!   (group,   ▲   (upstream)                  (resolve)  (connect, line) (exchange)           │ on a kept connection that
//!    balance) │      └◀────────────── once more, where that is safe ◀─────────────────────────┤ had ended: nothing came
//!             └◀───── another member, where that is safe ◀────────────────────────────────────┘ it failed
//!  probe: asks a server by itself ─▶ health: may it be asked?
//! ```
//! Where the data lives: a response's head is read into a buffer of its own (bounded by `response_head_bytes_max`);
//! its body goes from the socket straight into the memory that the caller hands in. Who waits: the task of the fetch,
//! never the loop. Connections are reused, last in first out, so that a quiet site keeps few of them open.

mod ask;
mod balance;
mod connect;
mod exchange;
mod group;
mod health;
mod line;
mod member;
mod pool;
mod probe;
mod resolve;
mod upstream;

use std::{io, time::Duration};

use crate::error_page::Rule;

pub(crate) use ask::{Answered, Asked, RequestSender, SendError, ask, switch};
pub(crate) use exchange::{Arrived, Exchange, Handed, Read, Switched, interim};
pub(crate) use group::{Group, MemberId, Tried, Wish};
pub use health::{ByHand, Standing};
pub(crate) use line::Line;
pub(crate) use member::Member;
pub use member::{MemberSaid, SetUpError};
pub(crate) use pool::Pool;
pub(crate) use probe::probe;
pub(crate) use upstream::{Permit, Pools, Upstream, Upstreams};

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
    /// Every connection is busy and the queue is full.
    #[error("{0} requests wait for a connection to the origin already")]
    Queue(usize),
    /// Every connection is busy and the queue's time is up.
    #[error("no connection to the origin became free within {0:?}")]
    Busy(Duration),
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
    /// It ended the body before the length that it had stated.
    #[error("the origin ended the body too early")]
    BodyShort,
    /// It stopped in the middle of the body.
    #[error("the origin sent nothing for {0:?} in the middle of the body")]
    BodyStalled(Duration),
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
            Self::Queue(_)
            | Self::Busy(_)
            | Self::Closed
            | Self::Reset
            | Self::FirstByteTimeout(_)
            | Self::HeadTooLarge(_)
            | Self::Invalid(_)
            | Self::HeadShort
            | Self::Switched
            | Self::NotSwitched
            | Self::BodyShort
            | Self::BodyStalled(_) => false,
        }
    }

    /// It had the request and said nothing.
    pub(crate) fn is_silence(&self) -> bool {
        self.is_end() || matches!(self, Self::FirstByteTimeout(_))
    }

    pub(super) fn of_connect(error: &io::Error) -> Self {
        match error.kind() {
            // A Unix socket that nobody has made yet, or that nobody listens at.
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Self::Refused,
            _ => Self::Connect(error.to_string()),
        }
    }

    pub(crate) fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::ConnectionReset => Self::Reset,
            io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Connect(error.to_string()),
        }
    }
}
