//! A client's HTTP/2 connection: one read, many frames, one write.
//!
//! ```text
//!   wait ──readable──▶ turn: read ─▶ frames ─▶ a request ─▶ hit::answer ─▶ head and content into `out` ─▶ … ─▶ one write
//!     ▲                  │ not a hit, or a window is too small ─▶ a task for the stream
//!     └── writable ── pending output is written first; while the client does not accept it, nothing is read
//! ```
//! Location of the data: a turn's data in the scratch of the thread. A waiting connection keeps the beginning of
//! a frame, and its [`Multiplex`].

mod deadlines;
#[cfg(test)]
mod tests;

use std::{
    future::poll_fn,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use engine::{
    cores::{clock, fair::Member, watch::Watch},
    store::EpochGuard,
};
use wire::http2::{
    Progress,
    connection::{Connection, ConnectionError, ConnectionFault, Event, Limits},
    error::ErrorCode,
    request::RequestTarget,
};

use super::{
    multiplex::{self, Multiplex, Number, Stream},
    stream::{self, AnswerBuffers, StreamContext, StreamId},
};
use crate::{
    client::{
        front,
        http1::head_limits,
        limits::{
            send_rate::SendRate,
            turns::{Length, Turns},
        },
        transport::Transport,
    },
    core::{Core, Scratch, with_core},
    counters::Counter,
    deliver::sink::SinkError,
    error_page::Fault,
    fetch,
    log::transaction::Draft,
    request::{Request, client_ip::Peer},
};

/// Number of pending output bytes at which a turn stops reading frames. This bounds the scratch buffer, and
/// the memory held for a client that does not read.
const OUT_BYTES_MAX: usize = 128 * 1024;
/// Maximum number of frames that one connection may process per turn before other connections get a turn.
const TURN_FRAMES_MAX: usize = 2048;
/// Maximum number of frames per turn while clients of other addresses are active.
const TURN_FRAMES_SHARED: usize = 128;
/// Maximum number of frames per turn while other addresses are active and this address has used its share of
/// the event loop's round.
const TURN_FRAMES_LITTLE: usize = 8;
/// Time for the client to read the final frames of a connection that ends.
const LAST_WORDS_TIME_MAX: Duration = Duration::from_millis(500);
/// Maximum number of bytes from the client that are read and discarded while it reads the final frames.
const LAST_WORDS_BYTES_MAX: usize = 64 * 1024;
/// Buffer size for discarding up to [`LAST_WORDS_BYTES_MAX`] bytes.
const LAST_WORDS_PIECE_BYTES: usize = 4 << 10;

/// Reason why a connection ends.
enum End {
    /// The client is gone, or does not read.
    Gone,
    /// There is nothing more to do.
    Done,
    /// The client broke a rule or a limit.
    Fault(ConnectionError),
}

impl From<SinkError> for End {
    fn from(_: SinkError) -> Self {
        Self::Gone
    }
}

/// Serves one client until it leaves. `early` holds bytes that were already received. The periodic sweep
/// checks `watch` for passed deadlines; `member` is the connection's place in the fair scheduling of long
/// turns.
pub(crate) async fn serve(
    transport: Transport,
    watch: Rc<Watch>,
    peer: Peer,
    early: Vec<u8>,
    member: &Member,
) {
    let number = with_core(|core| {
        core.count(Counter::ConnectionsHttp2);
        let now_ms = clock::monotonic_ms();
        let mut wire = Connection::new(limits(core), now_ms);
        let mut out = Vec::new();
        wire.greet(&core.buffers.http2.borrow().section, now_ms, &mut out);
        multiplex::enter(Multiplex::new(wire, transport, out, early, SendRate::new(&core.config.limits)))
    });
    let client = Client { number, peer };
    let leaving = ConnectionCleanup(number);
    let mut turns = Turns::new(member);
    let end = loop {
        let turned = poll_fn(|cx| {
            let look = turns.look();
            let frames_max = match look.length {
                Length::Long => TURN_FRAMES_MAX,
                Length::Short => TURN_FRAMES_SHARED,
                Length::Little => TURN_FRAMES_LITTLE,
            };
            let mut frames_left = frames_max;
            let turned = turn(client, &watch, &mut frames_left, cx);
            if frames_max - frames_left > TURN_FRAMES_LITTLE {
                look.note_large_turn();
            }
            turned
        });
        match turned.await {
            Err(end) => break end,
            Ok(Cut) => turns.wait().await,
        }
    };
    if let Some(multiplex) = leaving.leave() {
        watch.renew();
        // Boxed: this happens once, but unboxed it would enlarge every connection's task.
        Box::pin(say_goodbye(multiplex, end)).await;
    }
}

fn limits(core: &Core) -> Limits {
    let limits = &core.config.limits;
    let millis = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    let (stall, progress) = match limits.send_rate_min {
        0 => (limits.send_stall_max, 1),
        rate => {
            let time = limits.send_stall_max.min(limits.send_rate_grace);
            let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            (time, rate.saturating_mul(millis) / 1000)
        }
    };
    Limits {
        stall_ms_max: millis(stall),
        progress_bytes_min: u32::try_from(progress).unwrap_or(u32::MAX).max(1),
        extended_connect: true,
        ..Limits::default()
    }
}

/// A client's address, and the number of its connection on this core.
#[derive(Clone, Copy)]
struct Client {
    number: Number,
    peer: Peer,
}

/// Cleans up everything that a connection has started when it is dropped, however the connection's task ends.
struct ConnectionCleanup(Number);

impl ConnectionCleanup {
    fn leave(&self) -> Option<Multiplex> {
        let multiplex = multiplex::remove(self.0)?;
        multiplex.streams.iter().for_each(|stream| stream.task.abort());
        Some(multiplex)
    }
}

impl Drop for ConnectionCleanup {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Tells the client why the connection ends, and gives it time to read that: closing with unread bytes would
/// reset the connection.
async fn say_goodbye(mut multiplex: Multiplex, end: End) {
    let code = match end {
        End::Gone => return multiplex.transport.reset_on_close(),
        End::Done => ErrorCode::NO_ERROR,
        End::Fault(ended) => {
            with_core(|core| core.count(Counter::of_http2_end(&ended)));
            tracing::debug!(why = %ended, "HTTP/2 connection closed");
            ended.code
        }
    };
    multiplex.wire.goaway(code, &mut multiplex.out);
    let farewell = async {
        poll_fn(|cx| match multiplex.flush() {
            Ok(false) => multiplex.transport.poll_write_ready(cx).map(drop),
            Ok(true) | Err(_) => Poll::Ready(()),
        })
        .await;
        if multiplex.transport.shutdown().await.is_err() {
            return;
        }
        let (mut piece, mut thrown_away) = (Vec::with_capacity(LAST_WORDS_PIECE_BYTES), 0);
        while thrown_away < LAST_WORDS_BYTES_MAX {
            match poll_fn(|cx| multiplex.transport.poll_append(cx, &mut piece, LAST_WORDS_PIECE_BYTES)).await
            {
                Ok(0) | Err(_) => break,
                Ok(bytes) => thrown_away += bytes,
            }
            piece.clear();
        }
    };
    // The connection is finished whether the client closed or the time passed.
    let _ = tokio::time::timeout(LAST_WORDS_TIME_MAX, farewell).await;
}

/// A connection has spent its budget and has more to do.
struct Cut;

/// Writes pending output, reads once, and answers every request that can be answered from memory. Repeats
/// this until the connection has to wait or its budget of frames is spent.
fn turn(
    client: Client,
    watch: &Watch,
    frames_left: &mut usize,
    cx: &mut Context<'_>,
) -> Poll<Result<Cut, End>> {
    watch.task(cx.waker());
    let turned = multiplex::with(client.number, |core, multiplex| {
        if multiplex.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            multiplex.waker = Some(cx.waker().clone());
        }
        match go_on(core, multiplex, client, watch, frames_left, cx) {
            Ok(None) => Poll::Pending,
            Ok(Some(cut)) => Poll::Ready(Ok(cut)),
            Err(end) => Poll::Ready(Err(end)),
        }
    });
    turned.unwrap_or(Poll::Ready(Err(End::Gone)))
}

fn go_on(
    core: &Core,
    multiplex: &mut Multiplex,
    client: Client,
    watch: &Watch,
    frames_left: &mut usize,
    cx: &mut Context<'_>,
) -> Result<Option<Cut>, End> {
    if let Some(ended) = multiplex.ended.take() {
        return Err(End::Fault(ended));
    }
    let now_ms = clock::monotonic_ms();
    if watch.expired() {
        deadlines::check(core, multiplex, watch, now_ms)?;
    }
    loop {
        if !multiplex.flush()? {
            match multiplex.transport.poll_write_ready(cx) {
                Poll::Ready(Ok(())) => continue,
                Poll::Ready(Err(_)) => return Err(End::Gone),
                Poll::Pending => {
                    multiplex.stuck_since_ms.get_or_insert(now_ms);
                    multiplex.taking.wait(now_ms);
                    deadlines::set(core, multiplex, watch, now_ms);
                    return Ok(None);
                }
            }
        }
        multiplex.pass_on();
        if multiplex.is_draining && multiplex.streams.is_empty() && multiplex.wire.streams() == 0 {
            return Err(End::Done);
        }
        if *frames_left == 0 {
            core.count(Counter::TurnsCut);
            multiplex.unexamined = true;
            watch.work();
            return Ok(Some(Cut));
        }
        if !read(core, multiplex, client, cx, frames_left)? {
            deadlines::set(core, multiplex, watch, now_ms);
            return Ok(None);
        }
    }
}

/// Reads once and processes the received frames. Returns false if there was nothing to read.
fn read(
    core: &Core,
    multiplex: &mut Multiplex,
    client: Client,
    cx: &mut Context<'_>,
    frames_left: &mut usize,
) -> Result<bool, End> {
    let scratch = &mut *core.buffers.scratch.borrow_mut();
    let mut have = multiplex.pending.len();
    scratch.read[..have].copy_from_slice(&multiplex.pending);
    if !std::mem::take(&mut multiplex.unexamined) {
        match multiplex.transport.poll_read(cx, &mut scratch.read[have..], usize::MAX) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(read @ 1..)) => have += read,
            Poll::Ready(_) => return Err(End::Gone),
        }
    }
    let http2 = &mut *core.buffers.http2.borrow_mut();
    // Answers are gathered in the thread's buffer until they are written.
    std::mem::swap(&mut multiplex.out, &mut http2.out);
    let taken = take_frames(core, multiplex, client, scratch, http2, have, frames_left);
    let flushed = multiplex.flush();
    let left = multiplex.unwritten();
    let from = multiplex.out.len() - left;
    let rest = multiplex.out[from..].to_vec();
    std::mem::swap(&mut multiplex.out, &mut http2.out);
    multiplex.keep(rest);
    http2.out.clear();
    let taken = taken?;
    flushed?;
    multiplex.pending.clear();
    multiplex.pending.extend_from_slice(&scratch.read[taken..have]);
    Ok(true)
}

/// Processes the frames in `scratch.read[..have]`. Returns the number of bytes processed.
fn take_frames(
    core: &Core,
    multiplex: &mut Multiplex,
    client: Client,
    scratch: &mut Scratch,
    http2: &mut super::Scratch,
    have: usize,
    frames_left: &mut usize,
) -> Result<usize, End> {
    let now_ms = clock::monotonic_ms();
    let turn = core.storage.reader.turn();
    let head_limits = head_limits(&core.config);
    let Scratch { read, head: stored_head, key, .. } = scratch;
    let super::Scratch { section, head, text, blocks, .. } = http2;
    let mut at = 0;
    let mut refreshes = Vec::new();
    while at < have && *frames_left > 0 && multiplex.unwritten() < OUT_BYTES_MAX {
        let was_in_block = multiplex.wire.is_in_field_block();
        let received = multiplex.wire.receive(&read[at..have], section, now_ms).map_err(End::Fault)?;
        let Progress::Complete(event, bytes) = received else { break };
        at += bytes;
        *frames_left -= 1;
        multiplex.wire.reply(&event, &mut multiplex.out);
        if !was_in_block || !multiplex.wire.is_in_field_block() {
            // The next frame or field block gets a deadline of its own.
            multiplex.frame_since_ms = None;
        }
        match event {
            Event::Request { stream, request, end } => {
                core.count(Counter::RequestsHttp2);
                if front::count_request(core, &mut multiplex.requests) {
                    // Streams that the client opened beyond the limit were not processed, and may be retried
                    // (RFC 9113 §6.8).
                    multiplex.wire.drain(&mut multiplex.out);
                    multiplex.is_draining = true;
                }
                let asked = request.as_head(head, &head_limits);
                let is_connect = matches!(request.ask, RequestTarget::Upgrade { .. });
                let asker = StreamContext {
                    number: client.number,
                    stream,
                    peer: client.peer,
                    is_whole: end,
                    is_connect,
                };
                let buffers = stream::Buffers { stored_head, key, answer: AnswerBuffers { text, blocks } };
                let refresh = stream::answer(core, &turn, multiplex, asker, asked, buffers, now_ms)?;
                refreshes.extend(refresh);
            }
            Event::HeadTooLarge { stream, .. } => {
                core.count(Counter::Requests);
                core.count(Counter::HeadsTooLarge);
                stream::refuse(
                    core,
                    multiplex,
                    StreamId { number: client.number, stream },
                    Fault::HeadTooLarge,
                    AnswerBuffers { text, blocks },
                    now_ms,
                    Draft::of_nothing(client.peer.address()),
                )?;
            }
            event => take_other(core, multiplex, event)?,
        }
    }
    multiplex.unexamined = at < have && (*frames_left == 0 || multiplex.unwritten() >= OUT_BYTES_MAX);
    finish_turn(core, turn, refreshes);
    Ok(at)
}

/// Releases the epoch guard of the store, then starts the background refreshes.
fn finish_turn(core: &Core, turn: EpochGuard<'_>, refreshes: Vec<Request>) {
    drop(turn);
    refreshes.into_iter().for_each(|request| fetch::refresh(core, Arc::new(request)));
}

/// Processes a frame for an existing stream.
fn take_other(core: &Core, multiplex: &mut Multiplex, event: Event<'_, '_>) -> Result<(), End> {
    match event {
        Event::Data { stream, payload, end } => match multiplex.stream(stream) {
            Some(asking) => {
                asking.content.extend_from_slice(payload);
                asking.is_whole |= end;
                wake(&mut asking.receiving);
                multiplex.content_bytes += payload.len();
                multiplex.hold()?;
            }
            None => multiplex.wire.release(stream, payload.len(), &mut multiplex.out),
        },
        Event::Trailers { stream, trailers } => {
            if let Some(asking) = multiplex.stream(stream) {
                let dropped = trailers.render(&mut asking.trailers);
                core.add(Counter::TrailersDropped, dropped as u64);
                asking.is_whole = true;
                wake(&mut asking.receiving);
            }
        }
        Event::Reset { stream, .. } => {
            core.count(Counter::StreamsReset);
            give_up(multiplex, stream);
        }
        Event::Broken { stream, why, .. } => {
            core.count(Counter::BadRequests);
            tracing::debug!(%why, "HTTP/2 stream closed");
            give_up(multiplex, stream);
        }
        Event::Refused { .. } => core.count(Counter::StreamsRefused),
        Event::GoAway { .. } => multiplex.is_draining = true,
        Event::WindowOpened { stream } => match multiplex.stream(stream) {
            Some(waiting) => wake(&mut waiting.sending),
            None => multiplex.pass_on(),
        },
        Event::SettingsToAck => multiplex.streams.iter_mut().for_each(|stream| wake(&mut stream.sending)),
        Event::Nothing
        | Event::PingToAck(_)
        | Event::Pong(_)
        | Event::Prioritised { .. }
        | Event::Request { .. }
        | Event::HeadTooLarge { .. } => {}
    }
    Ok(())
}

fn wake(waker: &mut Option<std::task::Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

/// Ends the task of a stream that its client has reset.
fn give_up(multiplex: &mut Multiplex, id: u32) {
    if let Some(Stream { task, .. }) = multiplex.leave(id) {
        task.abort();
    }
    multiplex.pass_on();
}

impl Counter {
    /// Returns the counter for a connection that ended through its client's fault.
    fn of_http2_end(ended: &ConnectionError) -> Self {
        match ended.why {
            ConnectionFault::Limit(limit) => Self::of_http2_limit(limit),
            ConnectionFault::Rule(_) | ConnectionFault::FieldBlock(_) => Self::BadRequests,
        }
    }
}
