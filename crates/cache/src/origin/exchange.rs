//! One exchange with an origin: sends a request, and receives the answer's head and body. Code outside this
//! file does not know which protocol the connection speaks.
//!
//! ```text
//!             Exchange ── answer ──▶ AnswerHead          users: fetch, pass           Talk, Body: used by probe, too
//!  Talk::Http1 (http1)               Body::Http1       a connection of its own
//!  Talk::Http2 (http2::talk)         Body::Http2       a stream on a shared connection
//! ```

use std::{sync::Arc, time::Duration};

use engine::{cores::clock, sys::span::Span};
use tokio::time::Instant;
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
    reply::{AnswerEvent, BodyRead, OriginReply, Patience, SendResult},
    request_half::{Part, RequestHalf},
    upstream::{Permit, Pools},
};
use crate::{config::Limits, log::transaction::Draft, peers::Peer};

/// A request under way, in either protocol.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all requests are of the large variant, and a box would cost each an allocation"
)]
pub(super) enum Talk {
    Http1(http1::Talk),
    /// Boxed, so that the enum stays small.
    Http2(Box<http2::Talk>),
}

/// Body of an answer, in either protocol.
pub(super) enum Body {
    Http1(http1::Body),
    Http2(Box<http2::Body>),
}

impl Talk {
    /// Sends the request's head, given in HTTP/1's form.
    pub(super) async fn send(&mut self, head: &[u8], at_most: Duration) -> Result<(), OriginError> {
        match self {
            Self::Http1(talk) => talk.send(head, at_most).await,
            Self::Http2(talk) => talk.send(head),
        }
    }

    /// Waits for the head of the answer, or of an interim response to forward. The future may be dropped
    /// without loss.
    pub(super) async fn next_event(
        &mut self,
        answered: RequestKind,
        limits: &Limits,
        deadline: Instant,
    ) -> Result<AnswerEvent, OriginError> {
        match self {
            Self::Http1(talk) => talk.next_event(answered, limits, deadline).await,
            // Boxed, so that the futures of exchanges over HTTP/1 stay small.
            Self::Http2(talk) => Box::pin(talk.next_event(answered, limits, deadline)).await,
        }
    }

    /// Returns the answer whose head has arrived ([`AnswerEvent::Head`]).
    pub(super) fn answer(
        self,
        answered: RequestKind,
        limits: &Limits,
    ) -> Result<OriginReply<Body>, OriginError> {
        Ok(match self {
            Self::Http1(talk) => talk.answer()?.map(Body::Http1),
            Self::Http2(talk) => talk.answer(answered, limits)?.map(Body::Http2),
        })
    }
}

impl Body {
    /// Reads available body bytes into `into`; waits for at least one.
    pub(super) async fn read(
        &mut self,
        into: Span<'_>,
        patience: &Patience,
    ) -> Result<BodyRead, OriginError> {
        patience.check_time_left()?;
        match self {
            Self::Http1(body) => body.read(into, patience).await,
            Self::Http2(body) => body.read(into, patience).await,
        }
    }
}

/// A request to an origin that is under way, with the permit that it holds.
pub(crate) struct Exchange {
    talk: Talk,
    permit: Permit,
    /// Server that the exchange is with.
    member: MemberId,
    /// The connection is a kept one, which the origin may have closed without our knowing.
    pub(crate) reused: bool,
    /// Time at which the request was sent.
    requested_ms: u64,
    patience: Patience,
}

/// Final reply to an exchange's request.
pub(crate) enum ExchangeResult {
    /// An ordinary answer.
    Final(Box<AnswerHead>),
    /// The origin has switched to another protocol.
    Switched(Box<UpgradedConnection>),
}

/// A connection on which the origin speaks another protocol.
pub(crate) struct UpgradedConnection {
    pub(crate) line: Line,
    pub(crate) permit: Permit,
    /// Parsed head of the 101 response.
    pub(crate) head: KeptResponse,
    /// Bytes that came after the head.
    pub(crate) early: Vec<u8>,
}

/// An answer whose head has been read.
pub(crate) struct AnswerHead {
    /// Time at which the request was sent, in milliseconds since 1970.
    pub(crate) requested_ms: u64,
    /// Parsed head of the answer; an HTTP/2 head is converted to the form of HTTP/1.
    pub(crate) head: KeptResponse,
    /// Framing of the body; an HTTP/2 body of unknown length counts as chunked.
    pub(crate) framing: Framing,
    body: Body,
    /// The half that sends the rest of the request, if the answer came before all of the request was sent.
    half: Option<Box<RequestHalf>>,
    permit: Permit,
    member: MemberId,
    patience: Patience,
    /// Log record of the exchange.
    log: Draft,
    /// The peer that sent the answer; `None` for an origin.
    pub(crate) peer: Option<Arc<Peer>>,
    /// The answer may be stored, and not only shared with the requests that wait for it.
    pub(crate) is_kept: bool,
    /// The peer that sent the answer says that it is for the requesting client alone.
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

    /// Sends a part of the request's body, unless the origin answers before it has taken the part. The body
    /// is chunked if the head says so.
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

    /// Gives this exchange's slot to other requests while the client sends nothing of the request's body.
    pub(crate) fn pause(&mut self) {
        self.permit.pause();
        if let Talk::Http2(talk) = &mut self.talk {
            talk.leave().pause();
        }
    }

    /// Takes a slot again if the exchange has none; waits for it up to `at_most`.
    pub(crate) async fn resume(&mut self, at_most: Duration) -> Result<(), OriginError> {
        // Same order as at the start of an exchange: a holder of a stream's permit never waits for an
        // exchange's permit.
        self.permit.resume(at_most).await?;
        match &mut self.talk {
            Talk::Http1(_) => Ok(()),
            Talk::Http2(talk) => talk.leave().resume(at_most).await,
        }
    }

    /// Takes a slot again because the origin answers. Over HTTP/2 the answer arrives whether it is read or
    /// not, so the exchange ends with an error if there is no permit to buffer it.
    pub(crate) async fn resume_answered(&mut self, at_most: Duration) -> Result<(), OriginError> {
        if let Talk::Http2(talk) = &mut self.talk {
            talk.leave().resume_now()?;
        }
        self.permit.resume(at_most).await
    }

    /// Waits until the origin answers before it has the whole request (RFC 9112 §9.5, RFC 9113 §8.1). The
    /// future may be dropped without loss.
    pub(crate) async fn answered_early(&mut self, limits: &Limits) -> Result<(), OriginError> {
        match &mut self.talk {
            Talk::Http1(talk) => talk.answered_early(limits).await,
            Talk::Http2(talk) => talk.answered_early().await,
        }
    }

    /// Waits for the head of the final answer, or of an interim response to forward. The future may be dropped
    /// without loss.
    pub(super) async fn next_event(
        &mut self,
        answered: RequestKind,
        limits: &Limits,
        deadline: Instant,
    ) -> Result<AnswerEvent, OriginError> {
        self.talk.next_event(answered, limits, deadline).await
    }

    /// Returns the answer whose head has arrived ([`AnswerEvent::Head`]) to a request that did not ask for another
    /// protocol.
    pub(super) fn ordinary_answer(
        self,
        answered: RequestKind,
        limits: &Limits,
    ) -> Result<Box<AnswerHead>, OriginError> {
        match self.answer(answered, limits)? {
            ExchangeResult::Final(arrived) => Ok(arrived),
            ExchangeResult::Switched(_) => Err(OriginError::Switched),
        }
    }

    /// Returns the answer whose head has arrived ([`AnswerEvent::Head`]).
    pub(super) fn answer(
        self,
        answered: RequestKind,
        limits: &Limits,
    ) -> Result<ExchangeResult, OriginError> {
        let Self { talk, permit, member, requested_ms, patience, .. } = self;
        Ok(match talk.answer(answered, limits)? {
            // Boxed, because it is moved many times from here on.
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
            OriginReply::Switched { line, head, early } => {
                ExchangeResult::Switched(Box::new(UpgradedConnection { line, permit, head, early }))
            }
        })
    }
}

impl AnswerHead {
    /// Sets the time limit for each next part of the body.
    pub(crate) fn wait_between_bytes(&mut self, at_most: Duration) {
        self.patience.between_bytes = at_most;
    }

    /// Takes the half that sends the rest of the request, if the answer came before all of the request was
    /// sent. The answer may wait for that rest, so the time limit between two bytes is raised to `at_most`.
    pub(crate) fn take_half(&mut self, at_most: Duration) -> Option<RequestHalf> {
        let half = self.half.take()?;
        self.wait_between_bytes(at_most.max(self.patience.between_bytes));
        Some(*half)
    }

    /// Returns whether the answer is an event stream (HTML, "Server-sent events"), which may be silent for a
    /// long time.
    pub(crate) fn is_event_stream(&self) -> bool {
        let head = self.head.head();
        let said = head.known(KnownHeader::ContentType).and_then(|value| value.split(|&b| b == b';').next());
        said.is_some_and(|said| said.trim_ascii().eq_ignore_ascii_case(b"text/event-stream"))
    }

    /// Reads available body bytes into `into`; waits for at least one.
    pub(crate) async fn read(&mut self, into: Span<'_>) -> Result<BodyRead, OriginError> {
        let read = self.body.read(into, &self.patience).await?;
        self.note(&read);
        Ok(read)
    }

    /// Reads as [`read`](Self::read) does, but does not wait; `None` if no byte is available yet.
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

    /// Logs the bytes that were read.
    fn note(&mut self, read: &BodyRead) {
        match read {
            BodyRead::Bytes(bytes) => self.log.note_content(*bytes, self.is_complete()),
            BodyRead::End => self.log.note_content(0, true),
        }
    }

    /// Attaches the log record of the answer.
    pub(super) fn attach_log(&mut self, mut draft: Draft) {
        draft.note_head(self.head.head().status);
        draft.note_content(0, self.is_complete());
        self.log = draft;
    }

    /// Logs that the answer broke off.
    pub(crate) fn broke_off(&mut self, error: &OriginError) {
        self.log.failed(error);
    }

    /// Takes the whole body, if its length is known and all of it came with the head.
    pub(crate) fn take_whole(&mut self) -> Option<Vec<u8>> {
        let whole = match &mut self.body {
            Body::Http1(body) => body.take_whole(),
            Body::Http2(body) => body.take_whole(),
        }?;
        self.log.note_content(whole.len(), true);
        Some(whole)
    }

    /// Returns whether all of the body was read.
    pub(crate) fn is_complete(&self) -> bool {
        match &self.body {
            Body::Http1(body) => body.is_complete(),
            Body::Http2(body) => body.is_complete(),
        }
    }

    /// Returns the trailer lines as received, once the body is complete.
    pub(crate) fn trailers(&self) -> &[u8] {
        match &self.body {
            Body::Http1(body) => body.trailers(),
            Body::Http2(body) => body.trailers(),
        }
    }

    /// Returns the server that sent the answer.
    pub(crate) fn member(&self) -> MemberId {
        self.member
    }

    /// Puts the connection back into the pool if it can be used again. An HTTP/2 stream needs no return.
    pub(crate) fn finish(self, pools: &impl Pools, limits: &Limits) {
        if let Body::Http1(body) = self.body
            && let Some(line) = body.into_line()
        {
            pools.upstream(self.member, |upstream| upstream.put(line, limits.origin_idle_connections_max));
        }
    }

    /// Counts a passed exchange that may last long (events, long polls, a client that reads slowly) as a
    /// long-lived exchange and no longer as an ordinary one, if there is room for another of those.
    pub(crate) fn count_as_lasting(&mut self) {
        self.permit.outlast();
    }
}
