//! One exchange with an origin: a request out, an answer's head and body in. Which protocol its connection speaks, nobody
//! beyond this file knows.
//!
//! ```text
//!             Exchange ── answer ──▶ AnswerHead          who asks: fetch, pass          Talk, Body: probe, too
//!  Talk::Http1 (http1)               Body::Http1       a connection of its own
//!  Talk::Http2 (http2::talk)         Body::Http2       a stream of one that many share
//! ```

use std::{sync::Arc, time::Duration};

use engine::{cores::clock, sys::span::Span};
use tokio::time::{Instant, timeout};
use wire::http1::{
    framing::{Framing, RequestKind},
    head::KeptResponse,
    known::KnownHeader,
};

use super::{
    OriginError,
    group::MemberId,
    http1, http2,
    line::Line,
    request_half::{Part, RequestHalf},
    upstream::{Permit, Pools},
};
use crate::{config::Limits, log::transaction::Draft, peers::Peer};

/// What came of sending a part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendResult {
    /// The origin has it, or its kernel has.
    Over,
    /// The origin answered instead of reading on.
    Answered,
}

/// What a read of the body brought.
pub(crate) enum BodyRead {
    /// So many bytes were written to the span.
    Bytes(usize),
    /// The body is complete.
    End,
}

/// How long each next part of an answer is waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) between_bytes: Duration,
    /// When all of it has to be there, and within what time that is.
    pub(super) whole: Option<(Instant, Duration)>,
}

impl Patience {
    /// Beginning now.
    pub(super) fn of(limits: &Limits) -> Self {
        let within = limits.origin_request_time_max;
        let whole = (!within.is_zero()).then(|| (Instant::now() + within, within));
        Self { between_bytes: limits.origin_between_bytes_time_max, whole }
    }

    /// Waits for what comes next.
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

    /// Whether there is time left, for who does not have to wait.
    fn is_time_left(&self) -> Result<(), OriginError> {
        match self.whole {
            Some((until, within)) if Instant::now() >= until => Err(OriginError::TooSlow(within)),
            Some(_) | None => Ok(()),
        }
    }
}

/// A request on its way, by one of the protocols.
pub(super) enum Talk {
    Http1(http1::Talk),
    /// On the heap: others would be larger by it.
    Http2(Box<http2::Talk>),
}

/// What an origin says to it.
pub(super) enum OriginReply {
    /// The answer's head.
    Final {
        head: KeptResponse,
        framing: Framing,
        body: Body,
        /// The half that sends the rest of the request, where the answer came before all of it was sent.
        half: Option<RequestHalf>,
    },
    /// What comes before it, as it is told on; the answer is still to come.
    Interim(Talk, Vec<u8>),
    /// It speaks another protocol from here on; `early` came behind its head.
    Switched { line: Line, head: KeptResponse, early: Vec<u8> },
}

/// An answer's body, by one of the protocols.
pub(super) enum Body {
    Http1(http1::Body),
    Http2(Box<http2::Body>),
}

impl Talk {
    /// Sends the request's head, as one of HTTP/1.
    pub(super) async fn send(&mut self, head: &[u8], at_most: Duration) -> Result<(), OriginError> {
        match self {
            Self::Http1(talk) => talk.send(head, at_most).await,
            Self::Http2(talk) => talk.send(head),
        }
    }

    /// Waits for the head of the answer, or of an interim one that is told on.
    pub(super) async fn answer(
        self,
        answered: RequestKind,
        limits: &Limits,
        deadline: Instant,
    ) -> Result<OriginReply, OriginError> {
        match self {
            Self::Http1(talk) => talk.answer(answered, limits, deadline).await,
            Self::Http2(talk) => talk.answer(answered, limits, deadline).await,
        }
    }
}

impl Body {
    /// Reads body bytes into `into`, as many as there are; waits for at least one.
    pub(super) async fn read(
        &mut self,
        into: Span<'_>,
        patience: &Patience,
    ) -> Result<BodyRead, OriginError> {
        patience.is_time_left()?;
        match self {
            Self::Http1(body) => body.read(into, patience).await,
            Self::Http2(body) => body.read(into, patience).await,
        }
    }
}

/// A request to an origin that is under way, with leave for it.
pub(crate) struct Exchange {
    talk: Talk,
    permit: Permit,
    /// Whose it is.
    member: MemberId,
    /// Over a connection that was there before: it may have been closed by the other side without our knowing.
    pub(crate) reused: bool,
    /// When it began to be sent.
    requested_ms: u64,
    patience: Patience,
}

/// What came back.
pub(super) enum ExchangeResult {
    /// The answer.
    Final(Box<AnswerHead>),
    /// What the origin says before it, as it is told on; the answer is still to come.
    Interim(Box<Exchange>, Vec<u8>),
    /// It speaks another protocol from here on.
    Switched(Box<UpgradedConnection>),
}

/// A connection on which the origin speaks another protocol.
pub(crate) struct UpgradedConnection {
    pub(crate) line: Line,
    pub(crate) permit: Permit,
    /// The head of its 101, as it was parsed.
    pub(crate) head: KeptResponse,
    /// What came behind it.
    pub(crate) early: Vec<u8>,
}

/// An answer whose head was read.
pub(crate) struct AnswerHead {
    /// When the request was sent, in milliseconds since 1970.
    pub(crate) requested_ms: u64,
    /// Its head, as it was parsed; that of HTTP/2 as one of HTTP/1.
    pub(crate) head: KeptResponse,
    /// How the body is delimited; one of HTTP/2 of no told length as if it were in chunks.
    pub(crate) framing: Framing,
    body: Body,
    /// The half that sends the rest of the request, where the answer came before all of it was sent.
    half: Option<Box<RequestHalf>>,
    permit: Permit,
    member: MemberId,
    patience: Patience,
    /// What the log will say of it.
    log: Draft,
    /// The peer that sent it; `None`: an origin has.
    pub(crate) peer: Option<Arc<Peer>>,
    /// It is stored where it may be, and not only shared with those who wait for it.
    pub(crate) is_kept: bool,
    /// It is for who asked alone, as the peer says that sent it.
    pub(crate) is_for_one: bool,
}

impl Exchange {
    pub(super) fn over(
        talk: Talk,
        member: MemberId,
        permit: Permit,
        reused: bool,
        patience: Patience,
    ) -> Self {
        Self { talk, member, permit, reused, requested_ms: clock::unix_ms(), patience }
    }

    /// Sends the request's head.
    pub(super) async fn send(&mut self, head: &[u8], at_most: Duration) -> Result<(), OriginError> {
        self.talk.send(head, at_most).await
    }

    /// Sends part of the request's body, unless the origin answers before it has taken it. The body is in chunks where
    /// the head says so.
    pub(crate) async fn send_body(
        &mut self,
        part: Part<'_>,
        is_chunked: bool,
        limits: &Limits,
    ) -> Result<SendResult, OriginError> {
        match &mut self.talk {
            Talk::Http1(talk) => talk.send_body(part, is_chunked, limits).await,
            Talk::Http2(talk) => talk.send_body(part, limits).await,
        }
    }

    /// Gives the place of this exchange to others, while the client sends nothing of the request's body.
    pub(crate) fn pause(&mut self) {
        self.permit.pause();
        if let Talk::Http2(talk) = &mut self.talk {
            talk.leave().pause();
        }
    }

    /// Takes a place again, if the exchange has none; waits for it up to `at_most`.
    pub(crate) async fn resume(&mut self, at_most: Duration) -> Result<(), OriginError> {
        // In the order in which an exchange begins: whoever has leave for a stream waits for no permit.
        self.permit.resume(at_most).await?;
        match &mut self.talk {
            Talk::Http1(_) => Ok(()),
            Talk::Http2(talk) => talk.leave().resume(at_most).await,
        }
    }

    /// Takes a place again because the origin answers. Over HTTP/2 the answer comes whether it is read or not, so what would
    /// have to be kept without leave ends the exchange.
    pub(crate) async fn resume_answered(&mut self, at_most: Duration) -> Result<(), OriginError> {
        if let Talk::Http2(talk) = &mut self.talk {
            talk.leave().resume_now()?;
        }
        self.permit.resume(at_most).await
    }

    /// Waits until the origin answers although it does not have the whole request (RFC 9112 §9.5, RFC 9113 §8.1).
    /// Nothing is lost where the wait is given up.
    pub(crate) async fn answered_early(&mut self, limits: &Limits) -> Result<(), OriginError> {
        match &mut self.talk {
            Talk::Http1(talk) => talk.answered_early(limits).await,
            Talk::Http2(talk) => talk.answered_early().await,
        }
    }

    /// Waits for the head of the final answer, or of an interim one that is told on.
    pub(super) async fn answer(
        self,
        answered: RequestKind,
        limits: &Limits,
        deadline: Instant,
    ) -> Result<ExchangeResult, OriginError> {
        let Self { talk, permit, member, reused, requested_ms, patience } = self;
        Ok(match talk.answer(answered, limits, deadline).await? {
            // Moved through many hands from here on, so on the heap.
            OriginReply::Final { head, framing, body, half } => ExchangeResult::Final(Box::new(AnswerHead {
                requested_ms,
                head,
                framing,
                body,
                half: half.map(Box::new),
                permit,
                member,
                patience,
                log: Draft::none(),
                peer: None,
                is_kept: true,
                is_for_one: false,
            })),
            OriginReply::Interim(talk, head) => {
                let waiting = Self { talk, permit, member, reused, requested_ms, patience };
                ExchangeResult::Interim(Box::new(waiting), head)
            }
            OriginReply::Switched { line, head, early } => {
                ExchangeResult::Switched(Box::new(UpgradedConnection { line, permit, head, early }))
            }
        })
    }
}

impl AnswerHead {
    /// Each next part of the body is waited for this long and no longer.
    pub(crate) fn wait_between_bytes(&mut self, at_most: Duration) {
        self.patience.between_bytes = at_most;
    }

    /// Takes the half that sends the rest of the request, where the answer came before all of it was sent. The answer
    /// may wait for that rest, so it may take `at_most` from one byte to the next.
    pub(crate) fn take_half(&mut self, at_most: Duration) -> Option<RequestHalf> {
        let half = self.half.take()?;
        self.wait_between_bytes(at_most.max(self.patience.between_bytes));
        Some(*half)
    }

    /// Returns whether the answer is an event stream (HTML, "Server-sent events"), on which nothing may come for long.
    pub(crate) fn is_event_stream(&self) -> bool {
        let essence =
            |value: &[u8]| value.split(|&b| b == b';').next().unwrap_or_default().trim_ascii().to_vec();
        let said = self.head.head().known(KnownHeader::ContentType).map(essence);
        said.is_some_and(|said| said.eq_ignore_ascii_case(b"text/event-stream"))
    }

    /// Reads body bytes into `into`, as many as there are; waits for at least one.
    pub(crate) async fn read(&mut self, into: Span<'_>) -> Result<BodyRead, OriginError> {
        let read = self.body.read(into, &self.patience).await?;
        self.note(&read);
        Ok(read)
    }

    /// As [`read`](Self::read), but does not wait; `None`: there is nothing yet.
    pub(crate) fn read_now(&mut self, into: Span<'_>) -> Option<Result<BodyRead, OriginError>> {
        let read = match &mut self.body {
            Body::Http1(body) => body.read_now(into),
            Body::Http2(body) => body.read_now(into),
        };
        if let Some(Ok(read)) = &read {
            self.note(read);
        }
        read
    }

    /// Tells the log what came.
    fn note(&mut self, read: &BodyRead) {
        match read {
            BodyRead::Bytes(bytes) => self.log.came(*bytes, self.is_complete()),
            BodyRead::End => self.log.came(0, true),
        }
    }

    /// The log is told of it by this from now on.
    pub(super) fn is_logged_by(&mut self, mut draft: Draft) {
        draft.heard(self.head.head().status);
        draft.came(0, self.is_complete());
        self.log = draft;
    }

    /// The log is told that it broke off.
    pub(crate) fn broke_off(&mut self, error: &OriginError) {
        self.log.failed(error);
    }

    /// The whole body, if its length is known and all of it came with the head.
    pub(crate) fn take_whole(&mut self) -> Option<Vec<u8>> {
        let whole = match &mut self.body {
            Body::Http1(body) => body.take_whole(),
            Body::Http2(body) => body.take_whole(),
        }?;
        self.log.came(whole.len(), true);
        Some(whole)
    }

    /// Whether all of the body was read.
    pub(crate) fn is_complete(&self) -> bool {
        match &self.body {
            Body::Http1(body) => body.is_complete(),
            Body::Http2(body) => body.is_complete(),
        }
    }

    /// Trailer lines as they came, once the body is complete.
    pub(crate) fn trailers(&self) -> &[u8] {
        match &self.body {
            Body::Http1(body) => body.trailers(),
            Body::Http2(body) => body.trailers(),
        }
    }

    /// Who sent it.
    pub(crate) fn member(&self) -> MemberId {
        self.member
    }

    /// Gives the connection back, if it can be used again. A stream goes without being given back.
    pub(crate) fn finish(self, pools: &impl Pools, limits: &Limits) {
        if let Body::Http1(body) = self.body
            && let Some(line) = body.into_line()
        {
            pools.upstream(self.member, |upstream| upstream.put(line, limits.origin_idle_connections_max));
        }
    }

    /// What is passed may last (events, long polls, a client that reads slowly): it leaves the count of exchanges, and
    /// is counted among those that last, if there is room.
    pub(crate) fn outlast(&mut self) {
        self.permit.outlast();
    }
}
