//! Asking an origin: a connection, the request out, the head of the answer in; and once more where that is safe.

use tokio::{net::TcpStream, time::timeout};
use wire::http1::framing;

use super::{
    OriginError,
    connect::connect_any,
    exchange::{Arrived, Exchange, Handed, Heard, Switched},
    upstream::Upstreams,
};
use crate::{config::Limits, request::Wanted};

/// Bytes of the heads of interim responses that are told on, for one answer; what comes beyond is not.
const INTERIM_BYTES_MAX: usize = 16 << 10;

/// Who asks: sends the body of the request behind its head, and is told what comes before the answer.
pub(crate) trait RequestSender: Send {
    /// Why it did not reach the origin for another reason than the origin.
    type Error: Send;

    /// Whether there is one: then the request cannot be repeated.
    fn has_body(&self) -> bool;

    /// Sends it, until its end or until the origin answers.
    fn send(
        &mut self,
        exchange: &mut Exchange,
    ) -> impl Future<Output = Result<Handed, SendError<Self::Error>>> + Send;

    /// Takes the head of an interim response (RFC 9110 §15.2), as it is told on.
    fn interim(&mut self, head: Vec<u8>) -> impl Future<Output = ()> + Send;
}

/// Why a body was not sent to its end.
pub(crate) enum SendError<E> {
    /// The origin's side.
    Origin(OriginError),
    /// The other.
    Ours(E),
}

/// What is asked.
pub(crate) struct Asked<'a> {
    /// The head as it is sent.
    pub(crate) head: &'a [u8],
    pub(crate) wanted: Wanted,
    /// What decides whether the answer has a body.
    pub(crate) answered: framing::Answered,
    /// It may be sent again although the origin may have seen it (RFC 9110 §9.2.2).
    pub(crate) is_idempotent: bool,
}

/// Sends a request and waits for the head of the answer. A connection that was kept may have been closed by the origin in
/// the meantime; what may be repeated is then asked once more over a fresh one, and what may not goes over a fresh one
/// from the start.
pub(crate) async fn ask<S: RequestSender>(
    upstreams: &impl Upstreams,
    limits: &Limits,
    asked: &Asked<'_>,
    body: &mut S,
    connected: impl Fn(),
) -> Result<Box<Arrived>, SendError<S::Error>> {
    let mut fresh = body.has_body() || !asked.is_idempotent;
    loop {
        let mut exchange = begin(upstreams, limits, asked.wanted, fresh).await.map_err(SendError::Origin)?;
        let reused = exchange.reused;
        if !reused {
            connected();
        }
        let mut sent = exchange.send(asked.head, limits.origin_first_byte_time_max).await;
        if sent.is_ok() && body.has_body() {
            // The origin may answer before it has read all, and close: its answer counts.
            match body.send(&mut exchange).await {
                Ok(Handed::Over | Handed::Answered) => {}
                Err(SendError::Origin(error)) => sent = Err(error),
                Err(ours @ SendError::Ours(_)) => return Err(ours),
            }
        }
        let answered = match sent {
            Err(error) if !error.is_end() => Err(error),
            Ok(()) | Err(_) => match answer(exchange, asked.answered, limits, body).await {
                Ok(Answered::Here(arrived)) => Ok(arrived),
                // Nobody asked for that.
                Ok(Answered::Switched(_)) => Err(OriginError::Switched),
                Err(error) => Err(error),
            },
        };
        match answered {
            Err(error) if reused && !fresh && error.is_end() => fresh = true,
            answered => return answered.map_err(SendError::Origin),
        }
    }
}

/// What came of asking for another protocol.
pub(crate) enum Answered {
    /// An answer as to any request.
    Here(Box<Arrived>),
    /// The connection, on which that protocol is spoken now.
    Switched(Box<Switched>),
}

/// Sends a request that asks for another protocol, over a connection of its own, and once: what was said there is not
/// repeated.
pub(crate) async fn switch<S: RequestSender>(
    upstreams: &impl Upstreams,
    limits: &Limits,
    asked: &Asked<'_>,
    asker: &mut S,
    connected: impl Fn(),
) -> Result<Answered, OriginError> {
    let mut exchange = begin(upstreams, limits, asked.wanted, true).await?;
    connected();
    exchange.send(asked.head, limits.origin_first_byte_time_max).await?;
    answer(exchange, asked.answered, limits, asker).await
}

/// Waits for the final answer; who asks is told of interim ones.
async fn answer<S: RequestSender>(
    mut exchange: Exchange,
    answered: framing::Answered,
    limits: &Limits,
    asker: &mut S,
) -> Result<Answered, OriginError> {
    let deadline = tokio::time::Instant::now() + limits.origin_first_byte_time_max;
    let mut told_bytes = 0;
    loop {
        match exchange.answer(answered, limits, deadline).await? {
            Heard::Final(arrived) => return Ok(Answered::Here(arrived)),
            Heard::Switched(switched) => return Ok(Answered::Switched(switched)),
            Heard::Interim(waiting, head) => {
                exchange = waiting;
                told_bytes += head.len();
                if told_bytes <= INTERIM_BYTES_MAX {
                    asker.interim(head).await;
                }
            }
        }
    }
}

/// Leave to talk to the origin, and a connection: one that was kept, or a `fresh` one.
async fn begin(
    upstreams: &impl Upstreams,
    limits: &Limits,
    wanted: Wanted,
    fresh: bool,
) -> Result<Exchange, OriginError> {
    let permits = upstreams.upstream(|upstream| upstream.permits.clone());
    let permit = permits.acquire(wanted, limits.origin_first_byte_time_max).await?;
    if !fresh && let Some(stream) = upstreams.upstream(|upstream| upstream.take()) {
        return Ok(Exchange::over(stream, permit, true));
    }
    let at_most = limits.origin_connect_time_max;
    // On the heap: nearly all requests take a connection that was kept, and would be larger by it.
    let stream = Box::pin(timeout(at_most, connect(upstreams, at_most)))
        .await
        .unwrap_or(Err(OriginError::ConnectTimeout(at_most)))?;
    // Small requests leave at once; a failure to say so costs latency only.
    let _ = stream.set_nodelay(true);
    Ok(Exchange::over(stream, permit, false))
}

async fn connect(upstreams: &impl Upstreams, at_most: std::time::Duration) -> Result<TcpStream, OriginError> {
    let resolver = upstreams.upstream(|upstream| std::sync::Arc::clone(&upstream.resolver));
    let mut addresses = resolver.addresses(at_most).await?.to_vec();
    // What answered last is asked first.
    let good = upstreams.upstream(|upstream| upstream.good);
    if let Some(at) = addresses.iter().position(|address| Some(*address) == good) {
        addresses[..=at].rotate_right(1);
    }
    let stream = connect_any(&addresses).await?;
    upstreams.upstream(|upstream| upstream.good = stream.peer_addr().ok());
    Ok(stream)
}
