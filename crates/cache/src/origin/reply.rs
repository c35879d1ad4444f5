//! Replies of an origin, in a form that does not depend on the protocol, and the time limits of waiting for
//! them.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use wire::http1::{framing::Framing, head::KeptResponse};

use super::{OriginError, line::Line, request_half::RequestHalf};
use crate::config::Limits;

/// Outcome of sending a part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendResult {
    /// The part has been handed to the origin, or at least to the kernel's socket buffer.
    Over,
    /// The origin answered instead of reading on.
    Answered,
}

/// Result of a read of the body.
pub(crate) enum BodyRead {
    /// Number of bytes that were written to the span.
    Bytes(usize),
    /// The body is complete.
    End,
}

/// Time limits for the next part of an answer, and for the whole answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) between_bytes: Duration,
    /// Deadline for the whole exchange, and the time limit that it comes from.
    pub(super) whole: Option<(Instant, Duration)>,
}

impl Patience {
    /// Creates the time limits of an exchange that starts now.
    pub(super) fn of(limits: &Limits) -> Self {
        let within = limits.origin_request_time_max;
        let whole = (!within.is_zero()).then(|| (Instant::now() + within, within));
        Self { between_bytes: limits.origin_between_bytes_time_max, whole }
    }

    /// Waits for the next part within the limits.
    pub(super) async fn wait<T>(&self, coming: impl Future<Output = T>) -> Result<T, OriginError> {
        let Some((until, within)) = self.whole else {
            let came = timeout(self.between_bytes, coming).await;
            return came.map_err(|_| OriginError::BodyStalled(self.between_bytes));
        };
        let left = until.saturating_duration_since(Instant::now());
        match timeout(self.between_bytes.min(left), coming).await {
            Ok(came) => Ok(came),
            Err(_) if left <= self.between_bytes => Err(OriginError::TooSlow(within)),
            Err(_) => Err(OriginError::BodyStalled(self.between_bytes)),
        }
    }

    /// Returns an error if the deadline has passed; for reads that do not have to wait.
    #[inline]
    pub(super) fn check_time_left(&self) -> Result<(), OriginError> {
        match self.whole {
            Some((until, within)) if Instant::now() >= until => Err(OriginError::TooSlow(within)),
            Some(_) | None => Ok(()),
        }
    }
}

/// Event of an exchange that waits for its answer.
pub(super) enum AnswerEvent {
    /// An interim response, ready to be forwarded; the final answer is still to come.
    Interim(Vec<u8>),
    /// The head of the final answer has arrived, and the exchange can return it.
    Head,
}

/// Final reply of an origin to a request; `B` is the protocol's body of an answer.
pub(super) enum OriginReply<B> {
    /// The head of the final answer.
    Final {
        head: KeptResponse,
        framing: Framing,
        body: B,
        /// The half that sends the rest of the request, if the answer came before all of the request was
        /// sent.
        half: Option<RequestHalf>,
    },
    /// The origin has switched to another protocol; `early` holds the bytes that came after the head.
    Switched { line: Line, head: KeptResponse, early: Vec<u8> },
}

impl<B> OriginReply<B> {
    /// Converts the body.
    #[inline]
    pub(super) fn map<C>(self, content: impl FnOnce(B) -> C) -> OriginReply<C> {
        match self {
            Self::Final { head, framing, body, half } => {
                OriginReply::Final { head, framing, body: content(body), half }
            }
            Self::Switched { line, head, early } => OriginReply::Switched { line, head, early },
        }
    }
}
