//! A connection's task: read, execute, write, wait.
//!
//! ```text
//!   wait ─readable─▶ one read into the core's scratch ─▶ inbox of other cores ─▶ operations ─▶ end_turn ─▶ again / wait
//!        ─writable─▶ the client's backlog
//! ```
//!
//! While a connection waits, it keeps only the bytes of an unfinished operation, in a buffer that it borrows
//! from the core; an idle connection has no buffer. A long payload is collected in that buffer. A short
//! incomplete operation is copied into the scratch, in front of the next read.

use std::{
    future::poll_fn,
    io,
    net::{IpAddr, SocketAddr},
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use engine::cores::{clock, fair::Member};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf},
    net::TcpStream,
};
use wire::nats::rejection::Rejection;

use crate::{
    accounts::identity::{SlowCheck, certificate::Names},
    client::{
        connection::{CloseReason, ConnId, Connection, Stage, Transport, Writer},
        password_checks,
        session::ReadOutcome,
        stream::{Duplex, Stream},
    },
    counters::Counter,
    delivery::{buffers::SMALL_LEFTOVER_BYTES_MAX, outputs::Outputs, work::FRAME},
    mesh::{
        core::{Core, Local},
        shared,
    },
};

/// Largest number of reads from one connection before other tasks run.
const READS_A_TURN: usize = 4;
/// Smallest growth of the buffer for a long operation; a buffer larger than this doubles.
const GROWTH_BYTES: usize = 128 * 1024;
/// Largest number of subscriptions of a departed client that are removed in one step.
pub(super) const ENDED_IN_ONE_GO: usize = 512;
/// Number of table slots whose scan costs one unit of the turn's budget.
pub(super) const TABLE_PLACES_A_STEP: usize = 64;

/// Time limit for shutting down a TLS or WebSocket stream.
const GOODBYE_TIME_MAX: Duration = Duration::from_millis(500);

/// Input of a connection.
struct Input {
    stream: Stream,
    /// Bytes that have been received but not executed yet.
    leftover: Vec<u8>,
    /// Minimum length of the operation at the start of `leftover`.
    need: usize,
    /// `leftover` may contain complete operations.
    is_unexamined: bool,
    /// This pass examined bytes from earlier reads and read nothing new. The inbox of other cores was
    /// processed after those reads.
    was_examined: bool,
}

impl Input {
    /// Returns how many bytes of memory an incomplete operation takes.
    fn held_bytes(&self) -> usize {
        self.leftover.capacity() + self.stream.held_bytes()
    }
}

/// Result of a turn that ended for a reason other than waiting for the socket.
enum TurnOutcome {
    Closed,
    /// The turn's budget is used up, and there may be more to do.
    Over,
    Check(SlowCheck),
}

/// Data about a client that is known before its first operation.
pub(crate) struct Arrival {
    pub(crate) cid: u64,
    pub(crate) address: SocketAddr,
    pub(crate) transport: Transport,
    pub(crate) nonce: Option<Box<str>>,
    pub(crate) certificate: Option<Box<Names>>,
}

impl Arrival {
    /// Builds the data of a new client, with a connection number and, if users sign with nkeys, a nonce.
    pub(crate) fn new(core: &Core, address: SocketAddr, transport: Transport) -> Self {
        let nonce = core.settings.identities.wants_nonce().then(shared::nonce);
        Self { cid: core.shared.next_cid(), address, transport, nonce, certificate: None }
    }
}

/// Serves a client over a plain socket.
pub(crate) async fn serve_plain(local: Rc<Local>, socket: TcpStream, arrival: Arrival) {
    let (read, write) = socket.into_split();
    serve(local, Stream::Plain(read), Writer::Socket(write), arrival, false).await;
}

/// Serves a client until it leaves. `was_informed`: INFO has been sent already.
pub(crate) async fn serve(
    local: Rc<Local>,
    stream: Stream,
    writer: Writer,
    arrival: Arrival,
    was_informed: bool,
) {
    let address = arrival.address.ip();
    let id = {
        let core = &mut *local.core.borrow_mut();
        core.turn.now_ms = clock::monotonic_ms();
        let id = core.enter(arrival, writer, was_informed);
        core.end_turn();
        id
    };
    attend(&local, id, stream, Vec::new(), address).await;
}

/// Reads from and writes to a connection until it is closed, then removes it. Returns why it was closed.
/// `received`: bytes that have arrived already.
pub(crate) async fn attend(
    local: &Rc<Local>,
    id: ConnId,
    stream: Stream,
    received: Vec<u8>,
    address: IpAddr,
) -> CloseReason {
    let is_unexamined = !received.is_empty();
    let mut input = Input { stream, leftover: received, need: 0, is_unexamined, was_examined: false };
    let member = local.fair.join(address);
    let mut works_much = false;
    loop {
        let turned = match works_much {
            true => take_turn(local, id, &mut input, &member).await,
            false => Some(poll_fn(|cx| turn(local, cx, id, &mut input)).await),
        };
        works_much = false;
        match turned {
            None => {}
            Some(TurnOutcome::Closed) => break,
            Some(TurnOutcome::Over) => {
                works_much = true;
                // This task runs again after all ready tasks have run and the sockets have been polled. (A
                // task that wakes itself would run up to sixty-one times before that:
                // `engine::cores::CoresConfig::event_interval`.)
                tokio::task::yield_now().await;
            }
            Some(TurnOutcome::Check(check)) => {
                let checked = password_checks::check(local, id, &input.stream, check).await;
                let core = &mut *local.core.borrow_mut();
                if let Some(checked) = checked {
                    core.slowly_checked(id, checked);
                }
                core.end_turn();
            }
        }
    }
    if let Stream::Wrapped(stream) = &mut input.stream {
        // TLS and WebSocket have a closing handshake. If the client does not complete it in time, the
        // connection is closed without it.
        let _ = tokio::time::timeout(GOODBYE_TIME_MAX, stream.shutdown()).await;
    }
    loop {
        // Removing many subscriptions is costly, so it waits for its turn among the connections of the
        // address.
        let is_much = !local.core.borrow().outputs.connections[id].sids.is_empty();
        let _turn = if is_much { Some(member.turn().await) } else { None };
        let left = {
            let core = &mut *local.core.borrow_mut();
            core.begin_turn();
            if let Some(begun) = core.outputs.connections[id].begun.take() {
                core.let_go(*begun);
            }
            // Other cores are told of each removal, but only as fast as their queues accept it.
            let is_done = !core.links.is_full_for_words() && core.end_some(id);
            let left = is_done.then(|| {
                core.turn.buffers.give_back_leftover(std::mem::take(&mut input.leftover));
                core.leave(id)
            });
            core.end_turn();
            left
        };
        if let Some(why) = left {
            return why;
        }
        tokio::task::yield_now().await;
    }
}

/// Runs a turn when this client is due among the busy connections of its address. `None` if the connection
/// then waits for the socket.
async fn take_turn(local: &Rc<Local>, id: ConnId, input: &mut Input, member: &Member) -> Option<TurnOutcome> {
    let note_wait = || local.core.borrow().count(Counter::TurnsWaited);
    member.poll_in_turn(note_wait, |cx| turn(local, cx, id, input)).await
}

fn turn(local: &Rc<Local>, cx: &mut Context<'_>, id: ConnId, input: &mut Input) -> Poll<TurnOutcome> {
    let core = &mut *local.core.borrow_mut();
    core.begin_turn();
    note_waker(&mut core.outputs.connections[id], cx);
    give_way(core, cx, id);
    write_waiting(core, cx, id, &mut input.stream);
    let mut is_over = false;
    for _ in 0..READS_A_TURN {
        let connection = &core.outputs.connections[id];
        if connection.closing.is_some() {
            return Poll::Ready(TurnOutcome::Closed);
        }
        // A delivery that has begun is finished even while reads are paused.
        if connection.begun.is_none() {
            if connection.is_held_for_answers && !core.outputs.has_taken_answers(id) {
                return Poll::Pending;
            }
            if core.outputs.connections[id].is_held() {
                return Poll::Pending;
            }
        }
        if let Stream::Wrapped(stream) = &mut input.stream
            && core.outputs.connections[id].stage == Stage::Connected
        {
            stream.let_in();
        }
        let mut read = std::mem::take(&mut core.turn.buffers.read);
        let taken = take_in(core, cx, id, input, &mut read);
        let frames = input.stream.take_frames();
        core.turn.work.add(frames.count * FRAME);
        let processed = match taken {
            Poll::Pending => {
                core.turn.buffers.read = read;
                core.outputs.note_unfinished(id, input.held_bytes(), core.turn.now_ms);
                core.bound_sum();
                return if frames.may_have_more { Poll::Ready(TurnOutcome::Over) } else { Poll::Pending };
            }
            Poll::Ready(Err(why)) => {
                core.outputs.close(id, why);
                core.turn.buffers.read = read;
                return Poll::Ready(TurnOutcome::Closed);
            }
            Poll::Ready(Ok(have)) => {
                if core.links.has_others() && !input.was_examined {
                    local.take_inbox(core);
                    core.outputs.connections[id].behind = core.turn.backlog.queued;
                }
                carry_out(core, id, input, &read, have)
            }
        };
        core.turn.buffers.read = read;
        core.outputs.note_unfinished(id, input.held_bytes(), core.turn.now_ms);
        core.end_turn();
        match processed {
            ReadOutcome::More { need } => input.need = need,
            // The input is examined again at once, because the end of the turn may have written the answers
            // that paused it.
            ReadOutcome::Held | ReadOutcome::Behind => input.is_unexamined = true,
            ReadOutcome::Over => {
                input.is_unexamined = true;
                is_over = true;
            }
            ReadOutcome::Closing => {}
            ReadOutcome::Check(check) => {
                input.is_unexamined = !input.leftover.is_empty();
                return Poll::Ready(TurnOutcome::Check(check));
            }
        }
        if let Stream::Wrapped(_) = input.stream {
            write_waiting(core, cx, id, &mut input.stream);
        }
        if is_over || core.is_turn_over() {
            break;
        }
    }
    Poll::Ready(TurnOutcome::Over)
}

/// Reads once: either into the core's scratch, behind a short remainder of the last read, or into the buffer
/// of a long operation. `Some(have)`: the scratch holds that many bytes; `None`: all bytes are in `leftover`.
fn take_in(
    core: &mut Core,
    cx: &mut Context<'_>,
    id: ConnId,
    input: &mut Input,
    read: &mut [u8],
) -> Poll<Result<Option<usize>, CloseReason>> {
    input.was_examined = input.is_unexamined;
    if std::mem::take(&mut input.is_unexamined) {
        return Poll::Ready(Ok(None));
    }
    loop {
        let Input { stream, leftover, need, .. } = input;
        if leftover.len() > SMALL_LEFTOVER_BYTES_MAX {
            // Reads only up to the end of the operation; later bytes go into the scratch and need no copy.
            // The buffer grows with the bytes that arrive, not with the announced length.
            leftover.reserve_exact(
                need.saturating_sub(leftover.len()).clamp(1, leftover.len().max(GROWTH_BYTES)),
            );
            let polled = match stream {
                Stream::Plain(socket) => pin!(socket.read_buf(leftover)).poll(cx),
                Stream::Wrapped(stream) => pin!(stream.read_buf(leftover)).poll(cx),
            };
            let bytes = bytes_read(ready!(polled))?;
            core.outputs.note_received(id, bytes, core.turn.now_ms);
            if leftover.len() >= *need {
                return Poll::Ready(Ok(None));
            }
            continue;
        }
        let kept = leftover.len();
        let mut buffer = ReadBuf::new(&mut read[kept..]);
        let polled = match stream {
            Stream::Plain(socket) => Pin::new(socket).poll_read(cx, &mut buffer),
            Stream::Wrapped(stream) => Pin::new(stream).poll_read(cx, &mut buffer),
        };
        let bytes = bytes_read(ready!(polled).map(|()| buffer.filled().len()))?;
        core.outputs.note_received(id, bytes, core.turn.now_ms);
        read[..kept].copy_from_slice(leftover);
        if kept + bytes >= *need {
            return Poll::Ready(Ok(Some(kept + bytes)));
        }
        // A long payload begins here and is collected in its own buffer.
        if leftover.capacity() == 0 {
            *leftover = core.turn.buffers.take_leftover();
        }
        leftover.extend_from_slice(&read[kept..kept + bytes]);
    }
}

fn bytes_read(read: io::Result<usize>) -> Result<usize, CloseReason> {
    match read {
        Ok(0) => Err(CloseReason::ClientClosed),
        Ok(bytes) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(CloseReason::ClientClosed),
        Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => Err(CloseReason::MaximumControlLine),
        Err(_) => Err(CloseReason::ReadError),
    }
}

/// Executes the complete operations and keeps the bytes of an incomplete one.
fn carry_out(
    core: &mut Core,
    id: ConnId,
    input: &mut Input,
    read: &[u8],
    have: Option<usize>,
) -> ReadOutcome {
    if let Some(have) = have {
        let (done, processed) = process(core, id, &read[..have]);
        let rest = &read[done..have];
        if done > 0 && !rest.is_empty() {
            core.outputs.note_operation(id, core.turn.now_ms);
        }
        if rest.is_empty() {
            core.turn.buffers.give_back_leftover(std::mem::take(&mut input.leftover));
        } else {
            if input.leftover.capacity() == 0 {
                input.leftover = core.turn.buffers.take_leftover();
            }
            input.leftover.clear();
            if let ReadOutcome::More { need } = processed {
                input.leftover.reserve_exact(need.min(rest.len().max(GROWTH_BYTES)));
            }
            input.leftover.extend_from_slice(rest);
        }
        return processed;
    }
    let (done, processed) = process(core, id, &input.leftover);
    if done > 0 {
        core.outputs.note_operation(id, core.turn.now_ms);
    }
    input.leftover.drain(..done);
    if input.leftover.is_empty() {
        core.turn.buffers.give_back_leftover(std::mem::take(&mut input.leftover));
    }
    processed
}

/// Executes the operations of a client, or of a hub.
fn process(core: &mut Core, id: ConnId, bytes: &[u8]) -> (usize, ReadOutcome) {
    if core.outputs.connections[id].hub.is_some() {
        return core.process_hub(id, bytes);
    }
    core.process(id, bytes)
}

/// Closes a client whose subscriptions take memory that other clients need.
fn give_way(core: &mut Core, cx: &Context<'_>, id: ConnId) {
    if let Some(memory) = &core.outputs.connections[id].subscription_memory
        && memory.poll_cut(cx).is_ready()
    {
        core.outputs.reject(id, Rejection::SubscriptionsExceeded);
        core.outputs.close(id, CloseReason::SubscriptionMemory);
    }
}

fn note_waker(connection: &mut Connection, cx: &Context<'_>) {
    match &connection.waker {
        Some(waker) if waker.will_wake(cx.waker()) => {}
        _ => connection.waker = Some(cx.waker().clone()),
    }
}

/// Writes as much of the client's backlog as the socket accepts, and registers the task to be woken when it
/// accepts more.
fn write_waiting(core: &mut Core, cx: &mut Context<'_>, id: ConnId, stream: &mut Stream) {
    let mut writes = 0;
    let Outputs { connections, chunks, .. } = &mut core.outputs;
    let connection = &mut *connections[id];
    if let Stream::Wrapped(stream) = stream {
        let was_blocked = connection.is_blocked;
        writes += write_wrapped(connection, chunks, cx, &mut **stream);
        if writes > 0 || !was_blocked {
            connection.last_out_ms = core.turn.now_ms;
        }
    }
    while connection.is_blocked {
        let Writer::Socket(socket) = &connection.writer else { break };
        match socket.as_ref().poll_write_ready(cx) {
            Poll::Pending => break,
            Poll::Ready(_) => {
                connection.is_blocked = false;
                connection.last_out_ms = core.turn.now_ms;
                writes += connection.flush_socket(chunks);
            }
        }
    }
    if writes > 0 {
        core.observers.counters.add(Counter::Writes, writes);
        core.outputs.relieve(id, &mut core.links);
    }
}

fn write_wrapped(
    connection: &mut Connection,
    chunks: &mut crate::delivery::outbox::Chunks,
    cx: &mut Context<'_>,
    stream: &mut dyn Duplex,
) -> u64 {
    let mut writes = 0;
    let mut stream = Pin::new(stream);
    loop {
        let polled = if connection.outbox.is_empty() {
            stream.as_mut().poll_flush(cx).map_ok(|()| 0)
        } else {
            stream.as_mut().poll_write(cx, connection.outbox.front())
        };
        match polled {
            Poll::Pending => {
                connection.is_blocked = !connection.outbox.is_empty();
                return writes;
            }
            Poll::Ready(Ok(0)) if connection.outbox.is_empty() => {
                connection.is_blocked = false;
                return writes;
            }
            Poll::Ready(Ok(bytes)) => {
                writes += 1;
                connection.outbox.written(chunks, bytes);
            }
            Poll::Ready(Err(_)) => {
                connection.closing.get_or_insert(CloseReason::WriteError);
                connection.outbox.clear(chunks);
                return writes;
            }
        }
    }
}
