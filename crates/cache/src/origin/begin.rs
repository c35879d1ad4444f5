//! Start of an exchange: a permit to talk to a server, and a connection from the pool or a new one.
//!
//! ```text
//!  permit ─▶ may the server speak HTTP/2?
//!              no  ─▶ an idle connection, or a new one
//!              yes ─▶ permit for a stream ─▶ a stream on a shared connection ─ none ─▶ one request connects, the others wait;
//!                                            or an idle HTTP/1 connection              a shared connection then serves all
//! ```
//! An https server says at each handshake which protocol it speaks (ALPN); before the first handshake this is
//! unknown. Requests that arrive before then wait, so that they do not each open a connection when one can be
//! shared.

use std::sync::Arc;

use tokio::{sync::Semaphore, time::timeout};

use super::{
    OriginError, OriginEvent,
    exchange::{Exchange, Talk},
    group::MemberId,
    http1, http2,
    line::Line,
    member::{Member, MemberProtocol},
    reply::Patience,
    shares::Client,
    upstream::{Permit, StreamLeave, Upstream, Upstreams},
};
use crate::{config::Limits, request::OriginNeed};

/// Connections that an exchange may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// A connection of the pool, or a new one.
    Any,
    /// Any but a kept HTTP/1 connection, which the origin may have closed without our knowing.
    Fresh,
    /// A new HTTP/1 connection.
    Http1,
}

/// Waits for a permit, then for a connection.
pub(super) async fn begin(
    upstreams: &impl Upstreams,
    id: MemberId,
    limits: &Limits,
    wanted: OriginNeed,
    client: Client,
    over: Over,
    patience: Patience,
) -> Result<Exchange, OriginError> {
    let (permits, member, tell) = of(upstreams, id, |upstream| {
        (Arc::clone(&upstream.permits), Arc::clone(&upstream.member), upstream.tell)
    })?;
    let at_most = limits.origin_first_byte_time_max;
    let mut permit = permits.acquire(wanted, client, at_most, &member, tell).await?;
    permit.busy = Some(member.begin());
    if over != Over::Http1 && member.may_speak_http2() {
        let shared = SharedBegin { upstreams, id, member: &member, limits, wanted, over, patience };
        // Boxed, so that the futures of the other requests stay small.
        return Box::pin(shared.begin(permit)).await;
    }
    if over == Over::Any
        && let Some(line) = of(upstreams, id, Upstream::take)?
    {
        return Ok(of_line(line, id, permit, true, patience));
    }
    let offered = if over == Over::Http1 { MemberProtocol::Http1 } else { MemberProtocol::Any };
    // Boxed: nearly all requests take a kept connection, and their futures stay small.
    match Box::pin(connect(&member, offered, limits)).await {
        Ok((line, false)) => Ok(of_line(line, id, permit, false, patience)),
        // The server has begun to speak HTTP/2; from the next connection on this is known in advance.
        Ok((line, true)) => {
            let leave = of(upstreams, id, |upstream| upstream.streams.clone())?;
            let leave = Box::pin(leave.acquire(wanted, limits.origin_first_byte_time_max)).await?;
            Box::pin(share(upstreams, id, line, limits, leave))
                .await
                .map(|place| of_place(place, id, permit, false, patience))
        }
        Err(error) => {
            not_connected(upstreams, id, &error);
            Err(error)
        }
    }
}

/// Counts a failed connect against the server, unless our own system is at its limits.
fn not_connected(upstreams: &impl Upstreams, id: MemberId, error: &OriginError) {
    if !matches!(error, OriginError::NoSocket(_)) {
        upstreams.note_outcome(id, false);
    }
}

/// Runs `with` on the connections to a server; fails with `NobodyUp` if no configuration contains the server
/// any more.
fn of<R>(
    upstreams: &impl Upstreams,
    id: MemberId,
    with: impl FnOnce(&mut Upstream) -> R,
) -> Result<R, OriginError> {
    upstreams.upstream(id, with).ok_or(OriginError::NobodyUp)
}

/// Opens a connection; returns it and whether it speaks HTTP/2.
async fn connect(
    member: &Member,
    offered: MemberProtocol,
    limits: &Limits,
) -> Result<(Line, bool), OriginError> {
    let at_most = limits.origin_connect_time_max;
    let connected = timeout(at_most, member.connect(offered, at_most)).await;
    connected.unwrap_or(Err(OriginError::ConnectTimeout(at_most)))
}

fn of_line(line: Line, id: MemberId, permit: Permit, reused: bool, patience: Patience) -> Exchange {
    Exchange::over(Talk::Http1(http1::Talk::over(line)), id, permit, reused, patience)
}

fn of_place(place: http2::Place, id: MemberId, permit: Permit, reused: bool, patience: Patience) -> Exchange {
    Exchange::over(Talk::Http2(Box::new(http2::Talk::over(place))), id, permit, reused, patience)
}

/// Starts HTTP/2 on a connection and puts it into the pool for other requests to share. Returns its first
/// stream's slot.
async fn share(
    upstreams: &impl Upstreams,
    id: MemberId,
    line: Line,
    limits: &Limits,
    leave: StreamLeave,
) -> Result<http2::Place, OriginError> {
    let tell = of(upstreams, id, |upstream| upstream.tell)?;
    let connection = http2::open(line, limits, tell).await?;
    tell(OriginEvent::Request);
    of(upstreams, id, |upstream| {
        let place = connection.place(leave);
        upstream.share(connection);
        place
    })
}

/// Start of an exchange with a server that may speak HTTP/2.
struct SharedBegin<'a, U> {
    upstreams: &'a U,
    id: MemberId,
    member: &'a Member,
    limits: &'a Limits,
    wanted: OriginNeed,
    over: Over,
    patience: Patience,
}

/// Result of a search in the pool.
enum PoolResult {
    Place(http2::Place),
    Line(Line),
    /// The pool has no usable connection; the number counts the attempts to connect that have ended by now.
    Nothing(StreamLeave, u64, Arc<Semaphore>),
}

impl<U: Upstreams> SharedBegin<'_, U> {
    async fn begin(self, permit: Permit) -> Result<Exchange, OriginError> {
        let Self { upstreams, id, member, limits, wanted, patience, .. } = self;
        let streams = of(upstreams, id, |upstream| upstream.streams.clone())?;
        let leave = streams.acquire(wanted, limits.origin_first_byte_time_max).await?;
        let (leave, seen, connecting) = match self.find(leave)? {
            PoolResult::Place(place) => return Ok(of_place(place, id, permit, true, patience)),
            PoolResult::Line(line) => return Ok(of_line(line, id, permit, true, patience)),
            PoolResult::Nothing(leave, seen, connecting) => (leave, seen, connecting),
        };
        let at_most = limits.origin_connect_time_max;
        let Ok(Ok(turn)) = timeout(at_most, connecting.acquire_owned()).await else {
            return Err(OriginError::ConnectTimeout(at_most));
        };
        // The request that connected before may have left a connection to share, or have found the server
        // unreachable.
        let failed = of(upstreams, id, |upstream| upstream.attempts.failed.clone())?;
        if let Some((_, error)) = failed.filter(|(at, _)| *at > seen) {
            return Err(error);
        }
        let leave = match self.find(leave)? {
            PoolResult::Place(place) => return Ok(of_place(place, id, permit, true, patience)),
            PoolResult::Line(line) => return Ok(of_line(line, id, permit, true, patience)),
            PoolResult::Nothing(leave, ..) => leave,
        };
        let is_known = member.spoken() == MemberProtocol::Http1;
        // The server speaks HTTP/1 after all, so each request connects for itself.
        let turn = (!is_known).then_some(turn);
        let connected = connect(member, MemberProtocol::Any, limits).await;
        of(upstreams, id, |upstream| {
            upstream.attempts.count += 1;
            if let Err(error) = &connected {
                upstream.attempts.failed = Some((upstream.attempts.count, error.clone()));
            }
        })?;
        let exchange = match connected {
            Ok((line, false)) => Ok(of_line(line, id, permit, false, patience)),
            Ok((line, true)) => share(upstreams, id, line, limits, leave)
                .await
                .map(|place| of_place(place, id, permit, false, patience)),
            Err(error) => {
                not_connected(upstreams, id, &error);
                Err(error)
            }
        };
        drop(turn);
        exchange
    }

    /// Takes a connection that is immediately available.
    fn find(&self, leave: StreamLeave) -> Result<PoolResult, OriginError> {
        of(self.upstreams, self.id, |upstream| match upstream.place(leave) {
            Ok(place) => {
                (upstream.tell)(OriginEvent::Request);
                PoolResult::Place(place)
            }
            Err(leave) => match (self.over == Over::Any).then(|| upstream.take()).flatten() {
                Some(line) => PoolResult::Line(line),
                None => PoolResult::Nothing(leave, upstream.attempts.count, Arc::clone(&upstream.connecting)),
            },
        })
    }
}
