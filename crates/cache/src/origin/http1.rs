//! An exchange over HTTP/1, which has its connection to itself from the request's first byte to the answer's
//! last.

use std::{
    cell::RefCell,
    future::poll_fn,
    io,
    pin::Pin,
    task::{Poll, ready},
    time::Duration,
};

use engine::sys::span::Span;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, split},
    time::{Instant, timeout, timeout_at},
};
use wire::http1::{
    framing::{BodyDecoder, Framing, RequestKind},
    head::{HeaderSlots, Progress, may_end_in, parse_response},
};

use super::{
    OriginError,
    answer_head::{HeadProgress, final_head, head_limits},
    line::Line,
    reply::{AnswerEvent, BodyRead, OriginReply, Patience, SendResult},
    request_half::{Part, RequestHalf, Way, append_framed},
};
use crate::{config::Limits, error_page::Rule};

/// Bytes read at once while a head is awaited: room for nearly all heads, with a small body.
const READ_BYTES: usize = 8 * 1024;

thread_local! {
    /// Buffer for the beginning of an answer. An exchange allocates only as much memory as has arrived, and
    /// none while it waits.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// Reads once from the stream and appends the bytes; 0 is the end of the stream.
async fn append(stream: &mut (impl AsyncRead + Unpin), to: &mut Vec<u8>) -> io::Result<usize> {
    poll_fn(|cx| {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer))?;
            to.extend_from_slice(buffer.filled());
            Poll::Ready(Ok(buffer.filled().len()))
        })
    })
    .await
}

/// Sends all bytes, and flushes, so that the TLS layer keeps none in its buffer.
async fn write_all(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

/// A request over an HTTP/1 connection.
pub(super) struct Talk {
    line: Line,
    /// Received bytes that have not been processed yet: the beginning of the answer.
    received: Vec<u8>,
    /// The request has a body. The origin may answer without having read it, and then mistake the body for
    /// the next request: some servers never read the body of a GET (Python's file server), or do not know
    /// chunks. So the connection ends with the answer, and no other request follows on it.
    is_last: bool,
    /// The chunk of the request's body that is being sent.
    chunk: Vec<u8>,
    /// Bytes of the body that the origin had not taken when it answered.
    unsent: Vec<u8>,
    /// The last part of the body was taken.
    has_ended: bool,
    /// Head of the final answer, once it has arrived; the rest of `received` follows it.
    answer: Option<HeadProgress>,
}

/// Body of an answer over an HTTP/1 connection.
pub(super) struct Body {
    line: Line,
    /// Bytes that were read; those from `early_at` on have not been decoded yet.
    early: Vec<u8>,
    early_at: usize,
    decoder: BodyDecoder,
    /// The connection can be used again once the body is read.
    reusable: bool,
    /// The connection ended where the body may end.
    ended: bool,
}

impl Talk {
    pub(super) fn over(line: Line) -> Self {
        Self {
            line,
            received: Vec::new(),
            is_last: false,
            chunk: Vec::new(),
            unsent: Vec::new(),
            has_ended: false,
            answer: None,
        }
    }

    /// Sends the request's head.
    pub(super) async fn send(&mut self, bytes: &[u8], at_most: Duration) -> Result<(), OriginError> {
        // Usually the socket takes all bytes at once, and no timer is needed.
        let sent = self.line.try_write(bytes);
        let bytes = &bytes[sent..];
        if bytes.is_empty() {
            return Ok(());
        }
        // Boxed, because it is rare and every exchange's future would be larger otherwise.
        match Box::pin(timeout(at_most, write_all(&mut self.line, bytes))).await {
            Ok(sent) => sent.map_err(|error| OriginError::of_exchange(&error)),
            Err(_) => Err(OriginError::FirstByteTimeout(at_most)),
        }
    }

    /// Sends a part of the request's body, unless the origin answers before it has taken the part.
    pub(super) async fn send_body(
        &mut self,
        part: Part<'_>,
        is_chunked: bool,
        limits: &Limits,
    ) -> Result<SendResult, OriginError> {
        let at_most = limits.origin_between_bytes_time_max;
        self.is_last = true;
        self.has_ended = matches!(part, Part::End(_));
        let Self { line, received, chunk, unsent, .. } = self;
        let bytes = match part {
            Part::Bytes(bytes) if !is_chunked => bytes,
            part => {
                chunk.clear();
                append_framed(chunk, part, is_chunked);
                chunk
            }
        };
        // If the socket takes all bytes, an answer that has already come is noticed before the next part.
        let mut at = line.try_write(bytes);
        if at == bytes.len() {
            return Ok(SendResult::Over);
        }
        let (mut reader, mut writer) = split(line);
        let writing = async {
            // A write that is dropped while it waits has sent nothing, so `at` is still correct.
            while at < bytes.len() {
                match writer.write(&bytes[at..]).await? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    sent => at += sent,
                }
            }
            writer.flush().await
        };
        let handed = tokio::select! {
            biased;
            heard = read_final_head(&mut reader, received, limits) => heard.map(|()| SendResult::Answered),
            sent = timeout(at_most, writing) => match sent {
                Ok(sent) => sent.map(|()| SendResult::Over).map_err(|error| OriginError::of_exchange(&error)),
                Err(_) => Err(OriginError::FirstByteTimeout(at_most)),
            }
        };
        if let Ok(SendResult::Answered) = handed {
            unsent.extend_from_slice(&bytes[at..]);
        }
        handed
    }

    /// Waits until the origin answers before it has the whole request (RFC 9112 §9.5). The future may be
    /// dropped without loss.
    pub(super) async fn answered_early(&mut self, limits: &Limits) -> Result<(), OriginError> {
        self.is_last = true;
        read_final_head(&mut self.line, &mut self.received, limits).await
    }

    /// Splits off the half that sends the rest of the request, if the answer came before all of the request
    /// was sent. Returns the connection that carries the answer, and that half.
    fn halves(self) -> (Line, Option<RequestHalf>) {
        if !self.is_last || self.has_ended && self.unsent.is_empty() {
            return (self.line, None);
        }
        let (reader, writer) = split(self.line);
        let half = RequestHalf::new(Way::Http1(writer), self.unsent, self.has_ended);
        (Line::Answering(Box::new(reader)), Some(half))
    }

    /// Waits for the head of the final answer, or of an interim response to forward. The future may be dropped
    /// without loss.
    pub(super) async fn next_event(
        &mut self,
        answered: RequestKind,
        limits: &Limits,
        deadline: Instant,
    ) -> Result<AnswerEvent, OriginError> {
        let Self { line, received, answer, .. } = self;
        // Number of bytes that were parsed without reaching the end of the head. The head is parsed again
        // only if the bytes received since may contain that end.
        let mut seen = 0;
        loop {
            if !received.is_empty() && (seen == 0 || may_end_in(received, seen, &head_limits(limits))) {
                match final_head(received, answered, limits)? {
                    HeadProgress::Interim { head_bytes, told_on } => {
                        received.drain(..head_bytes);
                        if let Some(head) = told_on {
                            return Ok(AnswerEvent::Interim(head));
                        }
                        seen = 0;
                        continue;
                    }
                    HeadProgress::NeedMore => seen = received.len(),
                    arrived => {
                        *answer = Some(arrived);
                        return Ok(AnswerEvent::Head);
                    }
                }
            }
            match timeout_at(deadline, append(line, received)).await {
                Err(_) => return Err(OriginError::FirstByteTimeout(limits.origin_first_byte_time_max)),
                Ok(Ok(0)) if received.is_empty() => return Err(OriginError::Closed),
                Ok(Ok(0)) => return Err(OriginError::HeadShort),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(OriginError::of_exchange(&error)),
            }
        }
    }

    /// Returns the answer whose head has arrived ([`AnswerEvent::Head`]).
    pub(super) fn answer(mut self) -> Result<OriginReply<Body>, OriginError> {
        match self.answer.take() {
            Some(HeadProgress::Final { head, head_bytes, framing, persists }) => {
                let reusable = persists && framing != Framing::UntilClose && !self.is_last;
                let early = std::mem::take(&mut self.received);
                let (line, half) = self.halves();
                let decoder = BodyDecoder::of_answer(framing);
                let body = Body { line, early, early_at: head_bytes, decoder, reusable, ended: false };
                Ok(OriginReply::Final { head, framing, body, half })
            }
            Some(HeadProgress::Switched { head, head_bytes }) => {
                let early = self.received.split_off(head_bytes);
                Ok(OriginReply::Switched { line: self.line, head, early })
            }
            // No head has arrived.
            Some(HeadProgress::Interim { .. } | HeadProgress::NeedMore) | None => Err(OriginError::Closed),
        }
    }
}

/// Reads until `received` begins with the head of a final answer, or with an invalid head, which the parser
/// reports later.
async fn read_final_head(
    reader: &mut (impl AsyncRead + Unpin),
    received: &mut Vec<u8>,
    limits: &Limits,
) -> Result<(), OriginError> {
    let mut seen = 0;
    loop {
        if !received.is_empty() && (seen == 0 || may_end_in(received, seen, &head_limits(limits))) {
            match parse_response(received, &mut HeaderSlots::new(), &head_limits(limits)) {
                Ok(Progress::NeedMore) => seen = received.len(),
                Ok(Progress::Complete((head, bytes))) if head.is_interim() => {
                    received.drain(..bytes);
                    seen = 0;
                    continue;
                }
                Ok(Progress::Complete(_)) | Err(_) => return Ok(()),
            }
        }
        match append(reader, received).await {
            Ok(0) if received.is_empty() => return Err(OriginError::Closed),
            Ok(0) => return Err(OriginError::HeadShort),
            Ok(_) => {}
            Err(error) => return Err(OriginError::of_exchange(&error)),
        }
    }
}

impl Body {
    /// Reads available body bytes into `into`; waits for at least one.
    pub(super) async fn read(
        &mut self,
        into: Span<'_>,
        patience: &Patience,
    ) -> Result<BodyRead, OriginError> {
        loop {
            if self.is_complete() {
                return Ok(BodyRead::End);
            }
            if let Some(target) = self.raw_room(into) {
                let received = self.receive(target, patience).await?;
                return self.took_raw(received);
            }
            if let Some(read) = self.decode(into)? {
                return Ok(read);
            }
            self.fill(patience).await?;
        }
    }

    /// Takes the whole body, if its length is known and all of it came with the head.
    pub(super) fn take_whole(&mut self) -> Option<Vec<u8>> {
        let bytes = usize::try_from(self.decoder.remaining_known()?).ok()?;
        let end = self.early_at.checked_add(bytes).filter(|&end| end <= self.early.len())?;
        // Bytes after the body belong to no request, so the connection is not reused.
        self.reusable &= end == self.early.len();
        let mut whole = std::mem::take(&mut self.early);
        whole.truncate(end);
        whole.drain(..std::mem::take(&mut self.early_at));
        if bytes > 0 {
            self.decoder.take_raw(bytes as u64);
        }
        Some(whole)
    }

    /// Reads as [`read`](Self::read) does, but does not wait; `None` if no byte is available yet.
    pub(super) fn read_now(&mut self, into: Span<'_>) -> Option<Result<BodyRead, OriginError>> {
        if self.is_complete() {
            return Some(Ok(BodyRead::End));
        }
        match self.decode(into) {
            Ok(None) => {}
            decoded => return decoded.transpose(),
        }
        let target = self.raw_room(into)?;
        match self.receive_now(target) {
            Ok(received) => received.map(|bytes| self.took_raw(bytes)),
            Err(error) => Some(Err(error)),
        }
    }

    /// Returns the part of `into` that the next bytes can be received into directly, because all of them are
    /// payload. `None` if the next byte needs decoding.
    fn raw_room<'a>(&self, into: Span<'a>) -> Option<Span<'a>> {
        let raw = usize::try_from(self.decoder.raw_max()).unwrap_or(usize::MAX);
        let is_next = self.early_at == self.early.len() && raw > 0;
        is_next.then(|| into.slice(0..raw.min(into.len())))
    }

    /// Accounts for bytes that were received directly into their destination.
    fn took_raw(&mut self, bytes: usize) -> Result<BodyRead, OriginError> {
        if bytes == 0 {
            return self.end_of_stream();
        }
        self.decoder.take_raw(bytes as u64);
        Ok(BodyRead::Bytes(bytes))
    }

    /// Moves decoded bytes from `early` to `into`; `None` if more must be read first.
    fn decode(&mut self, into: Span<'_>) -> Result<Option<BodyRead>, OriginError> {
        while self.early_at < self.early.len() {
            let rest = &self.early[self.early_at..];
            // Decoded payload is never longer than its framed form, so the room in `into` limits the bytes to
            // decode.
            let piece = &rest[..rest.len().min(into.len())];
            let step =
                self.decoder.decode(piece).map_err(|error| OriginError::Invalid(Rule::Body(error.rule)))?;
            let data = &piece[step.data.clone()];
            self.early_at += step.consumed;
            if !data.is_empty() {
                into.slice(0..data.len()).write_from(data);
                return Ok(Some(BodyRead::Bytes(data.len())));
            }
            if self.decoder.is_done() {
                return Ok(Some(BodyRead::End));
            }
            if step.consumed == 0 {
                break;
            }
        }
        Ok(None)
    }

    /// Reads more into `early`.
    async fn fill(&mut self, patience: &Patience) -> Result<(), OriginError> {
        self.early.drain(..self.early_at);
        self.early_at = 0;
        self.early.reserve(16 * 1024);
        let reading = self.line.read_buf(&mut self.early);
        match Box::pin(patience.wait(reading)).await? {
            Ok(0) => self.end_of_stream().map(|_| ()),
            Ok(_) => Ok(()),
            Err(_) => Err(OriginError::BodyShort),
        }
    }

    async fn receive(&mut self, target: Span<'_>, patience: &Patience) -> Result<usize, OriginError> {
        if let Some(received) = self.receive_now(target)? {
            return Ok(received);
        }
        let received = Box::pin(patience.wait(self.line.receive(target))).await?;
        received.map_err(|_| OriginError::BodyShort)
    }

    /// Receives available bytes; `None` if there are none yet.
    fn receive_now(&mut self, target: Span<'_>) -> Result<Option<usize>, OriginError> {
        self.line.receive_now(target).map_err(|_| OriginError::BodyShort)
    }

    fn end_of_stream(&mut self) -> Result<BodyRead, OriginError> {
        self.reusable = false;
        if self.decoder.at_eof().is_err() {
            return Err(OriginError::BodyShort);
        }
        self.ended = true;
        Ok(BodyRead::End)
    }

    /// Returns whether all of the body was read.
    pub(super) fn is_complete(&self) -> bool {
        self.decoder.is_done() || self.ended
    }

    /// Returns the trailer lines as received, once the body is complete.
    pub(super) fn trailers(&self) -> &[u8] {
        self.decoder.trailers()
    }

    /// Returns the connection if it can be used again.
    pub(super) fn into_line(self) -> Option<Line> {
        let is_clean = self.reusable && self.decoder.is_done() && self.early_at == self.early.len();
        is_clean.then_some(self.line)
    }
}
