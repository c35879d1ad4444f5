//! Body of a request, read from the HTTP/1 connection on which it arrives.
//!
//! Limits on its size and rate: [`body_rate`](crate::client::limits::body_rate).

use std::{
    future::poll_fn,
    task::{Context, Poll, ready},
    time::Duration,
};

use engine::sys::span::Part;
use wire::http1::{
    framing::{BodyDecoder, Framing},
    head::Version,
};

use super::client::Client;
use crate::{
    client::limits::body_rate::{BodyRate, refused},
    core::with_core,
    counters::Counter,
    deliver::{
        downstream::{BodyError, Downstream, READ_BYTES},
        sink::{SendOutcome, Sink, SinkError, TrySend, send_within},
    },
    error_page::{Fault, Rule},
    request::Request,
    states::full_duplex::{BodySource, Onward},
};

/// The body of a request that is being answered.
pub(super) struct Upload<'c> {
    client: &'c mut Client,
    body: Body,
    wants_continue: bool,
    /// True if the client speaks HTTP/1.1, so that it understands 1xx answers (RFC 9110 §15.2).
    knows_interim: bool,
    onward: Option<Box<Onward>>,
}

/// The state of a body that is being read.
struct Body {
    decoder: BodyDecoder,
    pace: BodyRate,
}

/// The rest of a request's body when the answer begins.
pub(super) struct Rest {
    body: Body,
    /// Forwards the rest to an origin that still accepts it while it answers.
    onward: Option<Box<Onward>>,
}

impl Rest {
    /// Returns whether some of the body was not read. If so, the bytes that follow must not be parsed as a
    /// request.
    pub(super) fn is_unread(&self) -> bool {
        !self.body.decoder.is_done()
    }

    /// Makes the client the sink of an answer while the rest of the request is forwarded to the origin.
    /// Returns `None` if nothing is left to forward.
    pub(super) fn through(self, client: &mut Client) -> Option<Through<'_>> {
        let Self { body, onward } = self;
        Some(Through { client, body, onward: onward? })
    }
}

impl Body {
    /// Moves received bytes of the body to `into`. Returns whether there were any.
    fn decode(&mut self, pending: &mut Vec<u8>, into: &mut Vec<u8>) -> Result<bool, BodyError> {
        let (before, mut at) = (into.len(), 0);
        while !self.decoder.is_done() && at < pending.len() && into.len() - before < READ_BYTES {
            let rest = &pending[at..];
            let rest = &rest[..rest.len().min(READ_BYTES)];
            let step = self
                .decoder
                .decode(rest)
                .map_err(|error| refused(Fault::BadRequest(Rule::Body(error.rule))))?;
            let data = &rest[step.data.clone()];
            into.extend_from_slice(data);
            let bytes = data.len();
            self.pace.count(bytes)?;
            at += step.consumed;
            if step.consumed == 0 {
                break;
            }
        }
        pending.drain(..at);
        Ok(into.len() > before)
    }
}

impl<'c> Upload<'c> {
    pub(super) fn new(client: &'c mut Client, request: &Request) -> Self {
        Self {
            client,
            body: Body { decoder: BodyDecoder::new(request.framing), pace: BodyRate::new(request) },
            wants_continue: request.framing != Framing::None && request.expects_continue(),
            knows_interim: request.head().version == Version::Http11,
            onward: None,
        }
    }

    /// Returns the rest of the body, once the answer has arrived.
    pub(super) fn rest(self) -> Rest {
        let Self { body, onward, .. } = self;
        Rest { body, onward }
    }
}

impl Downstream for Upload<'_> {
    async fn read(&mut self, into: &mut Vec<u8>) -> Result<bool, BodyError> {
        let Self { client, body, .. } = self;
        if std::mem::take(&mut self.wants_continue) && client.pending.is_empty() {
            // RFC 9110 §10.1.1: the client waits for this before it sends the body.
            client.send_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.map_err(gone)?;
        }
        loop {
            if body.decode(&mut client.pending, into)? {
                return Ok(true);
            }
            if body.decoder.is_done() {
                return Ok(false);
            }
            body.pace.check()?;
            // Reads straight into the target if no byte needs to be parsed.
            let raw = if client.pending.is_empty() { body.decoder.raw_max() } else { 0 };
            // `pending` never holds more than one read of the connection.
            let bytes_max = READ_BYTES - client.pending.len().min(READ_BYTES - 1);
            let before = into.len();
            let target = (raw > 0).then_some(&mut *into);
            let bytes = client.append_body(target, bytes_max, body.pace.pause_max()).await.map_err(gone)?;
            if bytes == 0 {
                return Err(gone(SinkError::Closed));
            }
            if raw >= bytes as u64 {
                body.decoder.take_raw(bytes as u64);
                body.pace.count(bytes)?;
                return Ok(true);
            }
            if raw > 0 {
                // The read went beyond the body or the chunk.
                client.pending.extend_from_slice(&into[before..]);
                into.truncate(before);
            }
        }
    }

    fn trailers(&self) -> &[u8] {
        self.body.decoder.trailers()
    }

    async fn gone(&mut self) {
        self.client.gone().await;
    }

    fn goes_on(&mut self, onward: Box<Onward>) {
        self.onward = Some(onward);
    }

    async fn interim(&mut self, head: &[u8]) {
        if self.knows_interim {
            with_core(|core| core.count(Counter::InterimsPassed));
            // The departure of a client is noticed when the answer is sent.
            let _ = self.client.send_all(&[head, b"\r\n"].concat()).await;
        }
    }
}

/// A client that is answered while the rest of its request is forwarded to the origin. Whenever sending the
/// answer has to wait, for the client or for the origin, more of the request is forwarded.
pub(super) struct Through<'c> {
    client: &'c mut Client,
    body: Body,
    onward: Box<Onward>,
}

/// A client and the state of its body, as the source of the bytes that are forwarded to the origin.
struct Source<'t> {
    client: &'t mut Client,
    body: &'t mut Body,
}

impl BodySource for Source<'_> {
    fn poll_body(&mut self, cx: &mut Context<'_>, into: &mut Vec<u8>) -> Poll<Result<bool, BodyError>> {
        let Self { client, body } = self;
        loop {
            if body.decode(&mut client.pending, into)? {
                return Poll::Ready(Ok(true));
            }
            if body.decoder.is_done() {
                return Poll::Ready(Ok(false));
            }
            let Client { transport, pending, .. } = &mut **client;
            let bytes_max = READ_BYTES - pending.len().min(READ_BYTES - 1);
            match ready!(transport.poll_append(cx, pending, bytes_max)) {
                Ok(1..) => {}
                Ok(0) | Err(_) => return Poll::Ready(Err(BodyError::Gone)),
            }
        }
    }

    fn trailers(&self) -> &[u8] {
        self.body.decoder.trailers()
    }
}

impl Through<'_> {
    /// Returns whether a part of the body is unread.
    pub(super) fn is_unread(&self) -> bool {
        !self.body.decoder.is_done()
    }

    /// Forwards the body's bytes as they arrive; ready when nothing is left to forward.
    fn poll_onward(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SinkError>> {
        let Self { client, body, onward } = self;
        onward.poll(cx, &mut Source { client, body }).map_err(|_| SinkError::Closed)
    }
}

impl TrySend for Through<'_> {
    fn lends(&self) -> bool {
        self.client.lends()
    }

    fn try_send(&mut self, parts: &[Part<'_>]) -> Result<usize, SinkError> {
        self.client.try_send(parts)
    }
}

impl Sink for Through<'_> {
    async fn send_some(
        &mut self,
        parts: &[Part<'_>],
        patience: Option<Duration>,
    ) -> Result<SendOutcome, SinkError> {
        let sent = self.client.try_send(parts)?;
        if sent > 0 || parts.iter().all(Part::is_empty) {
            return Ok(SendOutcome::Bytes(sent));
        }
        let sending = poll_fn(|cx| {
            if let Poll::Ready(Err(gone)) = self.poll_onward(cx) {
                return Poll::Ready(Err(gone));
            }
            self.client.poll_send(cx, parts)
        });
        send_within(patience, sending).await
    }

    async fn send_trailers(&mut self, lines: &[u8]) -> Result<(), SinkError> {
        self.client.send_trailers(lines).await
    }

    async fn flush(&mut self) -> Result<(), SinkError> {
        self.client.flush().await
    }

    async fn gone(&mut self) -> SinkError {
        match poll_fn(|cx| self.poll_onward(cx)).await {
            Ok(()) => self.client.gone().await,
            Err(gone) => gone,
        }
    }

    fn ends_at_fin(&mut self) {
        self.client.ends_at_fin();
    }

    fn sent_bytes(&self) -> u64 {
        self.client.sent_bytes()
    }

    fn cut(&mut self) {
        self.client.cut();
    }
}

/// Counts a client that left in the middle of its body, or stopped sending it.
fn gone(gone: SinkError) -> BodyError {
    with_core(|core| {
        core.count(match gone {
            SinkError::Stalled => Counter::ClientsStalled,
            SinkError::Closed | SinkError::Slow | SinkError::Wanted | SinkError::GaveWay => {
                Counter::ClientsGone
            }
        });
    });
    BodyError::Gone
}
