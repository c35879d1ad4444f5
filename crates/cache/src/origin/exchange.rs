//! One exchange: a request out, an answer's head and body in.

use std::{
    cell::RefCell,
    future::poll_fn,
    io,
    pin::Pin,
    task::{Poll, ready},
    time::Duration,
};

use engine::{cores::clock, sys::span::Span};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, split},
    time::{Instant, timeout, timeout_at},
};
use wire::http1::{
    fields::{append_field, is_hop_by_hop, persists},
    framing::{Answered, BodyDecoder, Framing, response_framing},
    head::{
        HeadLimits, HeadRule, HeaderSlots, KeptResponse, Progress, ResponseHead, may_end_in, parse_response,
    },
    known::KnownHeader,
};

use super::{
    OriginError,
    group::MemberId,
    line::Line,
    upstream::{Permit, Pools},
};
use crate::{config::Limits, error_page::Rule, transaction::Draft};

/// Read at once while a head is waited for: nearly all heads, and a small body with them.
const READ_BYTES: usize = 8 * 1024;

thread_local! {
    /// Where the beginning of an answer is read, so that an exchange keeps as much memory as has come, and none while it
    /// waits.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// Appends what comes next; 0 is the end of the stream.
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

/// Sends all of it; what seals it does not keep some back.
async fn write_all(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

/// A connection to the origin with a request under way.
pub(crate) struct Exchange {
    line: Line,
    permit: Permit,
    /// Whose it is.
    member: MemberId,
    /// From the pool: it may have been closed by the other side without our knowing.
    pub(crate) reused: bool,
    /// When it began to be sent.
    requested_ms: u64,
    /// Received and not yet taken: the beginning of the answer.
    received: Vec<u8>,
    /// A body goes with the request. The origin may answer without having read it, and then takes it for the next
    /// request: some never read that of a GET (Python's file server), or know no chunks. So the connection ends with
    /// the answer, and nobody else's request comes behind it.
    is_last: bool,
}

/// What came of sending a part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handed {
    /// The origin has it, or its kernel has.
    Over,
    /// The origin answered instead of reading on.
    Answered,
}

/// What came back.
pub(super) enum Heard {
    /// The answer.
    Final(Box<Arrived>),
    /// What the origin says before it, as it is told on; the answer is still to come.
    Interim(Exchange, Vec<u8>),
    /// It speaks another protocol from here on.
    Switched(Box<Switched>),
}

/// A connection on which the origin speaks another protocol.
pub(crate) struct Switched {
    pub(crate) line: Line,
    pub(crate) permit: Permit,
    /// The head of its 101, as it was parsed.
    pub(crate) head: KeptResponse,
    /// What came behind it.
    pub(crate) early: Vec<u8>,
}

/// An answer whose head was read.
pub(crate) struct Arrived {
    exchange: Exchange,
    /// When the request was sent, in milliseconds since 1970.
    pub(crate) requested_ms: u64,
    /// Its head, as it was parsed.
    pub(crate) head: KeptResponse,
    /// How the body is delimited.
    pub(crate) framing: Framing,
    /// What was read and may hold bytes of the body that were not taken yet: from here on.
    early: Vec<u8>,
    early_at: usize,
    decoder: BodyDecoder,
    /// The connection can be used again once the body is read.
    reusable: bool,
    /// The connection ended where the body may end.
    ended: bool,
    between_bytes: Duration,
    /// What the log will say of it.
    log: Draft,
}

/// What a read of the body brought.
pub(crate) enum Read {
    /// So many bytes were written to the span.
    Bytes(usize),
    /// The body is complete.
    End,
}

impl Exchange {
    pub(super) fn over(line: Line, member: MemberId, permit: Permit, reused: bool) -> Self {
        let requested_ms = clock::unix_ms();
        Self { line, member, permit, reused, requested_ms, received: Vec::new(), is_last: false }
    }

    /// Sends part of the request.
    pub(crate) async fn send(&mut self, bytes: &[u8], at_most: Duration) -> Result<(), OriginError> {
        // As a rule the socket takes it at once, and nobody needs a timer.
        let sent = self.line.try_write(bytes);
        let bytes = &bytes[sent..];
        if bytes.is_empty() {
            return Ok(());
        }
        // On the heap, because it is rare: every exchange would be larger by it.
        match Box::pin(timeout(at_most, write_all(&mut self.line, bytes))).await {
            Ok(sent) => sent.map_err(|error| OriginError::from_io(&error)),
            Err(_) => Err(OriginError::FirstByteTimeout(at_most)),
        }
    }

    /// Sends part of the request's body, unless the origin answers before it has taken it.
    pub(crate) async fn send_body(&mut self, bytes: &[u8], limits: &Limits) -> Result<Handed, OriginError> {
        let at_most = limits.origin_between_bytes_time_max;
        self.is_last = true;
        let Self { line, received, .. } = self;
        // Where the socket takes it, an answer that has come already is seen before the next part.
        let bytes = &bytes[line.try_write(bytes)..];
        if bytes.is_empty() {
            return Ok(Handed::Over);
        }
        let (mut reader, mut writer) = split(line);
        tokio::select! {
            biased;
            heard = hear(&mut reader, received, limits) => heard.map(|()| Handed::Answered),
            sent = timeout(at_most, write_all(&mut writer, bytes)) => match sent {
                Ok(sent) => sent.map(|()| Handed::Over).map_err(|error| OriginError::from_io(&error)),
                Err(_) => Err(OriginError::FirstByteTimeout(at_most)),
            }
        }
    }

    /// Waits until the origin answers although it does not have the whole request (RFC 9112 §9.5). Nothing is lost
    /// where the wait is given up.
    pub(crate) async fn answered_early(&mut self, limits: &Limits) -> Result<(), OriginError> {
        self.is_last = true;
        hear(&mut self.line, &mut self.received, limits).await
    }

    /// Waits for the head of the final answer, or of an interim one that is told on.
    pub(super) async fn answer(
        mut self,
        answered: Answered,
        limits: &Limits,
        deadline: Instant,
    ) -> Result<Heard, OriginError> {
        let requested_ms = self.requested_ms;
        let mut buffer = std::mem::take(&mut self.received);
        // Bytes that were parsed and are no whole head: it is parsed again when one may end in what came since.
        let mut seen = 0;
        loop {
            if !buffer.is_empty() && (seen == 0 || may_end_in(&buffer, seen, &head_limits(limits))) {
                match final_head(&buffer, answered, limits)? {
                    Parsed::Final { head, head_bytes, framing, persists } => {
                        let reusable = persists && framing != Framing::UntilClose && !self.is_last;
                        // Moved through many hands from here on, so on the heap.
                        return Ok(Heard::Final(Box::new(Arrived {
                            exchange: self,
                            requested_ms,
                            head,
                            framing,
                            early: buffer,
                            early_at: head_bytes,
                            decoder: BodyDecoder::new(framing),
                            reusable,
                            ended: false,
                            between_bytes: limits.origin_between_bytes_time_max,
                            log: Draft::none(),
                        })));
                    }
                    Parsed::Interim { head_bytes, told_on } => {
                        buffer.drain(..head_bytes);
                        if let Some(head) = told_on {
                            self.received = buffer;
                            return Ok(Heard::Interim(self, head));
                        }
                        seen = 0;
                        continue;
                    }
                    Parsed::Switched { head, head_bytes } => {
                        let early = buffer.split_off(head_bytes);
                        let Self { line, permit, .. } = self;
                        return Ok(Heard::Switched(Box::new(Switched { line, permit, head, early })));
                    }
                    Parsed::NeedMore => seen = buffer.len(),
                }
            }
            match timeout_at(deadline, append(&mut self.line, &mut buffer)).await {
                Err(_) => return Err(OriginError::FirstByteTimeout(limits.origin_first_byte_time_max)),
                Ok(Ok(0)) if buffer.is_empty() => return Err(OriginError::Closed),
                Ok(Ok(0)) => return Err(OriginError::HeadShort),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(OriginError::from_io(&error)),
            }
        }
    }
}

/// What the beginning of an answer is.
enum Parsed {
    Final { head: KeptResponse, head_bytes: usize, framing: Framing, persists: bool },
    Interim { head_bytes: usize, told_on: Option<Vec<u8>> },
    Switched { head: KeptResponse, head_bytes: usize },
    NeedMore,
}

fn final_head(bytes: &[u8], answered: Answered, limits: &Limits) -> Result<Parsed, OriginError> {
    match parse_response(bytes, &mut HeaderSlots::new(), &head_limits(limits)) {
        Ok(Progress::NeedMore) => Ok(Parsed::NeedMore),
        Ok(Progress::Complete((head, head_bytes))) if head.status == 101 => {
            Ok(Parsed::Switched { head: KeptResponse::new(&head, head_bytes), head_bytes })
        }
        Ok(Progress::Complete((head, head_bytes))) if head.is_interim() => {
            // The client has its own `100 Continue` of us.
            let told_on = (head.status != 100).then(|| interim(&head));
            Ok(Parsed::Interim { head_bytes, told_on })
        }
        Ok(Progress::Complete((head, head_bytes))) => {
            let framing = response_framing(&head, answered)
                .map_err(|error| OriginError::Invalid(Rule::Framing(error)))?;
            let persists = persists(head.version, &head.headers);
            Ok(Parsed::Final { head: KeptResponse::new(&head, head_bytes), head_bytes, framing, persists })
        }
        Err(error)
            if matches!(
                error.rule,
                HeadRule::LineTooLong | HeadRule::HeadersTooLarge | HeadRule::TooManyHeaders
            ) =>
        {
            Err(OriginError::HeadTooLarge(limits.response_head_bytes_max))
        }
        Err(error) => Err(OriginError::Invalid(Rule::Head(error.rule))),
    }
}

/// The head of an interim response as it is told on: without what is for one hop (RFC 9110 §7.6.1), and without a length,
/// which none has.
pub(crate) fn interim(head: &ResponseHead<'_, '_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    for part in [
        b"HTTP/1.1 ",
        itoa::Buffer::new().format(head.status).as_bytes(),
        b" ",
        head.reason.as_bytes(),
        b"\r\n",
    ] {
        out.extend_from_slice(part);
    }
    for (known, name, value) in head.headers.classified() {
        if known != Some(KnownHeader::ContentLength) && !is_hop_by_hop(name, &head.headers) {
            append_field(&mut out, name, value);
        }
    }
    out
}

fn head_limits(limits: &Limits) -> HeadLimits {
    let head_bytes_max = limits.response_head_bytes_max;
    HeadLimits { line_bytes_max: head_bytes_max, head_bytes_max }
}

/// Reads until `received` begins with the head of a final answer, or with what is none: whoever parses it says so.
async fn hear(
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
            Err(error) => return Err(OriginError::from_io(&error)),
        }
    }
}

impl Arrived {
    /// Reads body bytes into `into`, as many as there are; waits for at least one.
    pub(crate) async fn read(&mut self, into: Span<'_>) -> Result<Read, OriginError> {
        loop {
            if self.is_complete() {
                return Ok(Read::End);
            }
            if let Some(target) = self.raw_room(into) {
                let received = self.receive(target).await?;
                return self.took_raw(received);
            }
            if let Some(read) = self.decode(into)? {
                return Ok(read);
            }
            self.fill().await?;
        }
    }

    /// The whole body, if its length is known and all of it came with the head.
    pub(crate) fn take_whole(&mut self) -> Option<Vec<u8>> {
        let bytes = usize::try_from(self.decoder.remaining_known()?).ok()?;
        let end = self.early_at.checked_add(bytes).filter(|&end| end <= self.early.len())?;
        // Bytes behind it are no answer to anything that was asked.
        self.reusable &= end == self.early.len();
        let mut whole = std::mem::take(&mut self.early);
        whole.truncate(end);
        whole.drain(..std::mem::take(&mut self.early_at));
        if bytes > 0 {
            self.decoder.take_raw(bytes as u64);
        }
        self.log.came(bytes, true);
        Some(whole)
    }

    /// As [`read`](Self::read), but does not wait; `None`: there is nothing yet.
    pub(crate) fn read_now(&mut self, into: Span<'_>) -> Option<Result<Read, OriginError>> {
        if self.is_complete() {
            return Some(Ok(Read::End));
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

    /// Where payload for certain goes: no byte of it needs a look, so it is received where it is kept. `None`: the next
    /// byte needs one.
    fn raw_room<'a>(&self, into: Span<'a>) -> Option<Span<'a>> {
        let raw = usize::try_from(self.decoder.raw_max()).unwrap_or(usize::MAX);
        let is_next = self.early_at == self.early.len() && raw > 0;
        is_next.then(|| into.slice(0..raw.min(into.len())))
    }

    /// Accounts for what was received where it is kept.
    fn took_raw(&mut self, bytes: usize) -> Result<Read, OriginError> {
        if bytes == 0 {
            return self.end_of_stream();
        }
        self.decoder.take_raw(bytes as u64);
        self.log.came(bytes, self.decoder.is_done());
        Ok(Read::Bytes(bytes))
    }

    /// Moves decoded bytes from `early` to `into`; `None` if more must be read first.
    fn decode(&mut self, into: Span<'_>) -> Result<Option<Read>, OriginError> {
        while self.early_at < self.early.len() {
            let rest = &self.early[self.early_at..];
            // Payload is never longer than what carries it, so what fits in `into` bounds what we decode.
            let piece = &rest[..rest.len().min(into.len())];
            let step =
                self.decoder.decode(piece).map_err(|error| OriginError::Invalid(Rule::Body(error.rule)))?;
            let data = &piece[step.data.clone()];
            self.early_at += step.consumed;
            if !data.is_empty() {
                into.slice(0..data.len()).write_from(data);
                self.log.came(data.len(), self.decoder.is_done());
                return Ok(Some(Read::Bytes(data.len())));
            }
            if self.decoder.is_done() {
                self.log.came(0, true);
                return Ok(Some(Read::End));
            }
            if step.consumed == 0 {
                break;
            }
        }
        Ok(None)
    }

    /// Reads more into `early`.
    async fn fill(&mut self) -> Result<(), OriginError> {
        self.early.drain(..self.early_at);
        self.early_at = 0;
        self.early.reserve(16 * 1024);
        let reading = self.exchange.line.read_buf(&mut self.early);
        match Box::pin(timeout(self.between_bytes, reading)).await {
            Err(_) => Err(OriginError::BodyStalled(self.between_bytes)),
            Ok(Ok(0)) => self.end_of_stream().map(|_| ()),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(OriginError::BodyShort),
        }
    }

    async fn receive(&mut self, target: Span<'_>) -> Result<usize, OriginError> {
        if let Some(received) = self.receive_now(target)? {
            return Ok(received);
        }
        match Box::pin(timeout(self.between_bytes, self.exchange.line.receive(target))).await {
            Err(_) => Err(OriginError::BodyStalled(self.between_bytes)),
            Ok(received) => received.map_err(|_| OriginError::BodyShort),
        }
    }

    /// What the connection has; `None`: nothing yet.
    fn receive_now(&mut self, target: Span<'_>) -> Result<Option<usize>, OriginError> {
        self.exchange.line.receive_now(target).map_err(|_| OriginError::BodyShort)
    }

    fn end_of_stream(&mut self) -> Result<Read, OriginError> {
        self.reusable = false;
        if self.decoder.at_eof().is_err() {
            return Err(OriginError::BodyShort);
        }
        self.ended = true;
        self.log.came(0, true);
        Ok(Read::End)
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

    /// Whether all of the body was read.
    pub(crate) fn is_complete(&self) -> bool {
        self.decoder.is_done() || self.ended
    }

    /// Trailer lines as they came, once the body is complete.
    pub(crate) fn trailers(&self) -> &[u8] {
        self.decoder.trailers()
    }

    /// Who sent it.
    pub(crate) fn member(&self) -> MemberId {
        self.exchange.member
    }

    /// Gives the connection back, if it can be used again.
    pub(crate) fn finish(self, pools: &impl Pools, limits: &Limits) {
        let clean = self.reusable && self.decoder.is_done() && self.early_at == self.early.len();
        if clean {
            pools.upstream(self.exchange.member, |upstream| {
                upstream.put(self.exchange.line, limits.origin_idle_connections_max);
            });
        }
    }

    /// What is passed may last (events, long polls, a client that reads slowly): it leaves the count of exchanges, and
    /// is counted among those that last, if there is room.
    pub(crate) fn outlast(&mut self) {
        self.exchange.permit.outlast();
    }
}
