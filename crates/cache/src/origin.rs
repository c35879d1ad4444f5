//! Talking to the origin: a pool of connections per core, one exchange at a time on each.
//!
//! Where the data lives: a response's head is read into a buffer of its own (bounded by `response_head_bytes_max`);
//! its body goes from the socket straight into the memory that the caller hands in. Who waits: the task of the fetch,
//! never the loop. Connections are reused, last in first out, so that a quiet site keeps few of them open.

use std::{
    io,
    os::fd::AsFd,
    sync::Arc,
    time::{Duration, Instant},
};

use engine::{
    cores::clock,
    sys::span::{Span, recv_span},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, Interest},
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use wire::http1::{
    fields::persists,
    framing::{Answered, BodyDecoder, Framing, response_framing},
    head::{HeadLimits, HeadRule, HeaderSlots, Progress, parse_response},
};

use crate::{
    config::{Limits, Origin},
    error_page::Rule,
};

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
    /// It switched to another protocol, which we never ask for.
    #[error("the origin switched to another protocol unasked")]
    Switched,
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

    fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::ConnectionReset => Self::Reset,
            io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof => Self::Closed,
            _ => Self::Connect(error.to_string()),
        }
    }
}

/// An idle connection and since when.
struct Idle {
    stream: TcpStream,
    since: Instant,
}

/// Idle connections older than this are not used again: many servers close them after a minute or less.
const IDLE_TIME_MAX: Duration = Duration::from_secs(20);

/// One core's connections to one origin.
///
/// A permit stands for an exchange under way; idle connections hold none, so whoever waits for a permit finds an idle
/// connection as soon as there is one. Bounds: `origin_connections_max` busy, `origin_idle_connections_max` idle.
pub(crate) struct Pool {
    idle: Vec<Idle>,
    free: Arc<Semaphore>,
}

impl Pool {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { idle: Vec::new(), free: Arc::new(Semaphore::new(limits.origin_connections_max)) }
    }

    /// The youngest idle connection that is still good.
    fn take(&mut self) -> Option<TcpStream> {
        while let Some(Idle { stream, since }) = self.idle.pop() {
            // Anything to read on an idle connection is its end, or an answer that nobody asked for.
            let quiet =
                matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
            if quiet && clock::now().duration_since(since) < IDLE_TIME_MAX {
                return Some(stream);
            }
        }
        None
    }

    fn put(&mut self, stream: TcpStream, idle_max: usize) {
        if self.idle.len() < idle_max {
            self.idle.push(Idle { stream, since: clock::now() });
        }
    }
}

/// Gives access to the pool of the core that runs; the pool is plain memory of that core.
pub(crate) trait Pools {
    /// Runs `with` on the pool.
    fn pool<R>(&self, with: impl FnOnce(&mut Pool) -> R) -> R;
}

/// A connection to the origin with a request under way.
pub(crate) struct Exchange {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
    /// From the pool: it may have been closed by the other side without our knowing.
    pub(crate) reused: bool,
    /// Received and not yet taken: the beginning of the answer.
    received: Vec<u8>,
    /// The origin answered before it had the whole request. It may take the rest for the next request, so the
    /// connection is not used again.
    cut_short: bool,
}

/// What came of sending a part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handed {
    /// The origin has it, or its kernel has.
    Over,
    /// The origin answered instead of reading on.
    Answered,
}

/// An answer whose head was read.
pub(crate) struct Answer {
    exchange: Exchange,
    /// When the request was sent, in milliseconds since 1970.
    pub(crate) requested_ms: u64,
    /// The head as it came, with its last empty line; it was parsed and is valid.
    pub(crate) head: Vec<u8>,
    /// How the body is delimited.
    pub(crate) framing: Framing,
    /// Bytes of the body that came with the head and were not taken yet.
    early: Vec<u8>,
    early_at: usize,
    decoder: BodyDecoder,
    /// The connection can be used again once the body is read.
    reusable: bool,
    /// The connection ended where the body may end.
    ended: bool,
    between_bytes: Duration,
}

/// What a read of the body brought.
pub(crate) enum Read {
    /// So many bytes were written to the span.
    Bytes(usize),
    /// The body is complete.
    End,
}

/// Opens or reuses a connection.
pub(crate) async fn connect(
    pools: &impl Pools,
    origin: &Origin,
    limits: &Limits,
    fresh: bool,
) -> Result<Exchange, OriginError> {
    let free = pools.pool(|pool| Arc::clone(&pool.free));
    let at_most = limits.origin_first_byte_time_max;
    let permit = match timeout(at_most, free.acquire_owned()).await {
        Ok(Ok(permit)) => permit,
        // The semaphore is never closed.
        Ok(Err(_)) | Err(_) => return Err(OriginError::Busy(at_most)),
    };
    if !fresh && let Some(stream) = pools.pool(Pool::take) {
        return Ok(Exchange::over(stream, permit, true));
    }
    let at_most = limits.origin_connect_time_max;
    let connecting = async {
        if let Ok(address) = origin.host.parse::<std::net::IpAddr>() {
            return TcpStream::connect((address, origin.port)).await;
        }
        TcpStream::connect((origin.host.as_str(), origin.port)).await
    };
    let stream = match timeout(at_most, connecting).await {
        Err(_) => return Err(OriginError::ConnectTimeout(at_most)),
        Ok(Err(error)) if error.raw_os_error().is_none() => {
            return Err(OriginError::Unresolved(origin.host.clone()));
        }
        Ok(Err(error)) => return Err(OriginError::from_io(&error)),
        Ok(Ok(stream)) => stream,
    };
    // Small requests leave at once; a failure to say so costs latency only.
    let _ = stream.set_nodelay(true);
    Ok(Exchange::over(stream, permit, false))
}

impl Exchange {
    fn over(stream: TcpStream, permit: OwnedSemaphorePermit, reused: bool) -> Self {
        Self { stream, _permit: permit, reused, received: Vec::new(), cut_short: false }
    }

    /// Sends part of the request.
    pub(crate) async fn send(&mut self, bytes: &[u8], at_most: Duration) -> Result<(), OriginError> {
        match timeout(at_most, self.stream.write_all(bytes)).await {
            Ok(sent) => sent.map_err(|error| OriginError::from_io(&error)),
            Err(_) => Err(OriginError::FirstByteTimeout(at_most)),
        }
    }

    /// Sends part of the request's body, unless the origin answers before it has taken it.
    pub(crate) async fn send_body(
        &mut self,
        bytes: &[u8],
        at_most: Duration,
        limits: &Limits,
    ) -> Result<Handed, OriginError> {
        let Self { stream, received, cut_short, .. } = self;
        let (mut reader, mut writer) = stream.split();
        tokio::select! {
            biased;
            heard = hear(&mut reader, received, limits) => {
                *cut_short = true;
                heard.map(|()| Handed::Answered)
            }
            sent = timeout(at_most, writer.write_all(bytes)) => match sent {
                Ok(sent) => sent.map(|()| Handed::Over).map_err(|error| OriginError::from_io(&error)),
                Err(_) => Err(OriginError::FirstByteTimeout(at_most)),
            }
        }
    }

    /// Waits until the origin answers although it does not have the whole request (RFC 9112 §9.5). Nothing is lost
    /// where the wait is given up.
    pub(crate) async fn answered_early(&mut self, limits: &Limits) -> Result<(), OriginError> {
        hear(&mut self.stream, &mut self.received, limits).await?;
        self.cut_short = true;
        Ok(())
    }

    /// Waits for the head of the final answer; interim ones (1xx) are skipped (RFC 9110 §15.2).
    pub(crate) async fn answer(mut self, answered: Answered, limits: &Limits) -> Result<Answer, OriginError> {
        let requested_ms = clock::unix_ms();
        let mut buffer = std::mem::take(&mut self.received);
        buffer.reserve(4096);
        let mut slots = HeaderSlots::new();
        let head_limits = head_limits(limits);
        let head_bytes_max = limits.response_head_bytes_max;
        let first_byte = limits.origin_first_byte_time_max;
        let deadline = tokio::time::Instant::now() + first_byte;
        loop {
            match parse_response(&buffer, &mut slots, &head_limits) {
                Ok(Progress::NeedMore) => {}
                Ok(Progress::Complete((head, head_bytes))) => {
                    if head.is_interim() {
                        buffer.drain(..head_bytes);
                        continue;
                    }
                    if head.status == 101 {
                        // We never ask for another protocol (Upgrade is not forwarded).
                        return Err(OriginError::Switched);
                    }
                    let framing = response_framing(&head, answered)
                        .map_err(|error| OriginError::Invalid(Rule::Framing(error)))?;
                    let reusable = persists(head.version, &head.headers)
                        && framing != Framing::UntilClose
                        && !self.cut_short;
                    let early = buffer.split_off(head_bytes);
                    return Ok(Answer {
                        exchange: self,
                        requested_ms,
                        head: buffer,
                        framing,
                        early,
                        early_at: 0,
                        decoder: BodyDecoder::new(framing),
                        reusable,
                        ended: false,
                        between_bytes: limits.origin_between_bytes_time_max,
                    });
                }
                Err(error)
                    if matches!(
                        error.rule,
                        HeadRule::LineTooLong | HeadRule::HeadersTooLarge | HeadRule::TooManyHeaders
                    ) =>
                {
                    return Err(OriginError::HeadTooLarge(head_bytes_max));
                }
                Err(error) => return Err(OriginError::Invalid(Rule::Head(error.rule))),
            }
            match tokio::time::timeout_at(deadline, self.stream.read_buf(&mut buffer)).await {
                Err(_) => return Err(OriginError::FirstByteTimeout(first_byte)),
                Ok(Ok(0)) if buffer.is_empty() => return Err(OriginError::Closed),
                Ok(Ok(0)) => return Err(OriginError::HeadShort),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(OriginError::from_io(&error)),
            }
        }
    }
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
    loop {
        let interim_bytes = match parse_response(received, &mut HeaderSlots::new(), &head_limits(limits)) {
            Ok(Progress::NeedMore) => None,
            Ok(Progress::Complete((head, bytes))) if head.is_interim() => Some(bytes),
            Ok(Progress::Complete(_)) | Err(_) => return Ok(()),
        };
        if let Some(bytes) = interim_bytes {
            received.drain(..bytes);
            continue;
        }
        match reader.read_buf(received).await {
            Ok(0) if received.is_empty() => return Err(OriginError::Closed),
            Ok(0) => return Err(OriginError::HeadShort),
            Ok(_) => {}
            Err(error) => return Err(OriginError::from_io(&error)),
        }
    }
}

impl Answer {
    /// Reads body bytes into `into`, as many as there are; waits for at least one.
    pub(crate) async fn read(&mut self, into: Span<'_>) -> Result<Read, OriginError> {
        loop {
            if self.is_complete() {
                return Ok(Read::End);
            }
            let raw = self.decoder.raw_max();
            if self.early_at == self.early.len() && raw > 0 {
                // Payload for certain: no byte needs a look, so it goes where it is kept.
                let room = usize::try_from(raw).unwrap_or(usize::MAX).min(into.len());
                let received = self.receive(into.slice(0..room)).await?;
                if received == 0 {
                    return self.end_of_stream();
                }
                self.decoder.take_raw(received as u64);
                return Ok(Read::Bytes(received));
            }
            if let Some(read) = self.decode(into)? {
                return Ok(read);
            }
            self.fill().await?;
        }
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
                return Ok(Some(Read::Bytes(data.len())));
            }
            if self.decoder.is_done() {
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
        let reading = self.exchange.stream.read_buf(&mut self.early);
        match timeout(self.between_bytes, reading).await {
            Err(_) => Err(OriginError::BodyStalled(self.between_bytes)),
            Ok(Ok(0)) => self.end_of_stream().map(|_| ()),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(OriginError::BodyShort),
        }
    }

    async fn receive(&self, target: Span<'_>) -> Result<usize, OriginError> {
        let stream = &self.exchange.stream;
        loop {
            match stream.try_io(Interest::READABLE, || recv_span(stream.as_fd(), target)) {
                Ok(received) => return Ok(received),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match timeout(self.between_bytes, stream.readable()).await {
                        Err(_) => return Err(OriginError::BodyStalled(self.between_bytes)),
                        Ok(Err(_)) => return Err(OriginError::BodyShort),
                        Ok(Ok(())) => {}
                    }
                }
                Err(_) => return Err(OriginError::BodyShort),
            }
        }
    }

    fn end_of_stream(&mut self) -> Result<Read, OriginError> {
        self.reusable = false;
        if self.decoder.at_eof().is_err() {
            return Err(OriginError::BodyShort);
        }
        self.ended = true;
        Ok(Read::End)
    }

    /// Whether all of the body was read.
    pub(crate) fn is_complete(&self) -> bool {
        self.decoder.is_done() || self.ended
    }

    /// Trailer lines as they came, once the body is complete.
    pub(crate) fn trailers(&self) -> &[u8] {
        self.decoder.trailers()
    }

    /// Gives the connection back, if it can be used again.
    pub(crate) fn finish(self, pools: &impl Pools, limits: &Limits) {
        let clean = self.reusable && self.decoder.is_done() && self.early_at == self.early.len();
        if clean {
            pools.pool(|pool| pool.put(self.exchange.stream, limits.origin_idle_connections_max));
        }
    }
}
