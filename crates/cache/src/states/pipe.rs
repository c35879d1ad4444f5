//! *pipe*: a WebSocket (RFC 6455) between a client and its origin.
//!
//! ```text
//!   request ─▶ switch: a connection of its own, the request with its Upgrade ─▶ 101 ─▶ bytes both ways ─▶ one side ends
//!                                                       │ any other answer
//!                                                       ▼ is sent to the client, as for a pass
//! ```
//! Bytes that the client sends after its request are held back until the origin has answered 101: until then
//! the origin would take them for another request. WebSocket is the only protocol that may be switched to;
//! `h2c`, for one, would be a way around every rule here.
//!
//! *Memory:* bytes of one side are read into the thread's scratch buffer and written to the other side. Bytes
//! that the other side does not take wait in the lane; until they are sent, nothing more is read from the
//! first side. *Bounds:* a lane holds the bytes of one read ([`READ_BYTES`], or an HTTP/2 stream's window),
//! and both lanes are charged to the memory that [clients hold](crate::client::limits::client_budget). Pipes
//! count among the origin's long-lived answers; a request for which there is no room is answered 503. A pipe
//! ends if nothing moves for `pipe_idle_time_max`, or if its client takes nothing for `send_stall_max`. A
//! drain ends all pipes; their clients connect again.

use std::{
    cell::RefCell,
    future::{Future as _, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use engine::cores::clock;
use tokio::io::{AsyncRead as _, AsyncWrite as _, AsyncWriteExt as _, ReadBuf};
use wire::http1::{
    fields::list,
    head::{RequestHead, Version},
    known::KnownHeader,
};

use crate::{
    client::limits::client_budget::ClientMemoryGuard,
    core::with_core,
    counters::Counter,
    deliver::sink::SinkError,
    origin::{Line, Permit},
};

/// Bytes read at once from one side.
const READ_BYTES: usize = 16 << 10;
/// Maximum number of reads in one turn of the loop, after which other tasks run.
const TURN_READS_MAX: usize = 16;
/// Interval between checks whether a pipe is idle or the server is draining.
const LOOK_EVERY: Duration = Duration::from_secs(1);

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// Returns whether a request asks for a WebSocket (RFC 6455 §4.1).
#[inline]
pub(crate) fn is_asked_for(head: &RequestHead<'_, '_>) -> bool {
    head.headers.has(KnownHeader::Upgrade) && asks(head)
}

#[cold]
fn asks(head: &RequestHead<'_, '_>) -> bool {
    let is_upgrade = |value: &[u8]| list(value).any(|token| token.eq_ignore_ascii_case(b"upgrade"));
    head.version == Version::Http11
        && head.method == "GET"
        && !head.headers.is_repeated(KnownHeader::Upgrade)
        && head.known(KnownHeader::Upgrade).is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"))
        && head.headers("connection").any(is_upgrade)
}

/// A connection that an origin has switched to another protocol.
pub(crate) struct Pipe {
    pub(crate) line: Line,
    pub(crate) permit: Permit,
    /// Head of the 101 response: a status line and field lines, without hop-by-hop fields.
    pub(crate) head: Vec<u8>,
    /// Bytes that came after the head.
    pub(crate) early: Vec<u8>,
}

/// Client's side of a pipe.
pub(crate) trait Duplex {
    /// Appends received bytes; waits for at least one. 0 means the end.
    fn poll_take(&mut self, cx: &mut Context<'_>, into: &mut Vec<u8>) -> Poll<Result<usize, SinkError>>;

    /// Sends as many bytes as the client takes; waits for at least one.
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, SinkError>>;

    /// Waits until the bytes taken so far are flushed.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SinkError>>;
}

/// Reason for the end of a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// One side has closed, or a drain ended the pipe; all earlier bytes were forwarded.
    Closed,
    /// The connection of one side has failed.
    Gone,
    /// No byte moved for too long.
    Idle,
    /// The client did not read.
    Stalled,
    /// The client has used up its memory budget.
    Full,
}

impl End {
    /// Returns the log's word for an end that neither side wanted.
    pub(crate) const fn word(self) -> Option<&'static str> {
        match self {
            Self::Closed => None,
            Self::Gone => Some("client-gone"),
            Self::Idle => Some("idle"),
            Self::Stalled => Some("client-stalled"),
            Self::Full => Some("too-much-held"),
        }
    }
}

/// Bytes that are being forwarded in one direction.
struct Lane {
    waiting: Vec<u8>,
    at: usize,
    held: ClientMemoryGuard,
    /// The sending side has closed.
    is_ended: bool,
    /// Time at which bytes were last forwarded.
    moved: Instant,
}

impl Lane {
    fn new(waiting: Vec<u8>) -> Result<Self, End> {
        let held = ClientMemoryGuard::reserve(waiting.len()).ok_or(End::Full)?;
        Ok(Self { waiting, at: 0, held, is_ended: false, moved: clock::now() })
    }

    fn is_empty(&self) -> bool {
        self.at == self.waiting.len()
    }

    /// Accounts for forwarded bytes, and frees memory that is no longer needed.
    fn passed(&mut self, bytes: usize) {
        self.at += bytes;
        self.moved = clock::now();
        if self.is_empty() {
            (self.waiting, self.at) = (Vec::new(), 0);
            self.held.resize(0);
        }
    }

    /// Keeps bytes that the other side did not take at once.
    fn keep(&mut self, bytes: &[u8]) -> Result<(), End> {
        self.waiting.extend_from_slice(bytes);
        self.count()
    }

    fn count(&mut self) -> Result<(), End> {
        if self.held.resize(self.waiting.len()) { Ok(()) } else { Err(End::Full) }
    }
}

impl Pipe {
    /// Forwards bytes until one side ends; `early` holds the bytes that the client sent after its request.
    pub(crate) async fn run(self, early: Vec<u8>, client: &mut impl Duplex) -> End {
        let Self { line, permit: _permit, early: answered, head: _ } = self;
        let _open = OpenPipe::new();
        let (idle_max, stall_max) =
            with_core(|core| (core.config.limits.pipe_idle_time_max, core.config.limits.send_stall_max));
        let (Ok(up), Ok(down)) = (Lane::new(early), Lane::new(answered)) else { return End::Full };
        let mut flow = Flow { origin: line, up, down };
        let mut look = pin!(tokio::time::sleep(LOOK_EVERY));
        let end = poll_fn(|cx| {
            if let Poll::Ready(end) = flow.poll(cx, client) {
                return Poll::Ready(end);
            }
            while look.as_mut().poll(cx).is_ready() {
                if let Some(end) = flow.look(idle_max, stall_max) {
                    return Poll::Ready(end);
                }
                look.as_mut().reset(tokio::time::Instant::now() + LOOK_EVERY);
            }
            Poll::Pending
        })
        .await;
        count(end);
        // The origin may already have closed the connection.
        let _ = flow.origin.shutdown().await;
        end
    }
}

fn count(end: End) {
    let counter = match end {
        // `Full` is counted where the budget is exceeded.
        End::Closed | End::Full => return,
        End::Gone => Counter::PipesBroken,
        End::Idle => Counter::PipesIdle,
        End::Stalled => Counter::ClientsStalled,
    };
    with_core(|core| core.count(counter));
}

/// Both directions of a pipe.
struct Flow {
    origin: Line,
    up: Lane,
    down: Lane,
}

impl Flow {
    /// Forwards the available bytes.
    fn poll(&mut self, cx: &mut Context<'_>, client: &mut impl Duplex) -> Poll<End> {
        for _ in 0..TURN_READS_MAX {
            let down = self.poll_down(cx, client);
            let up = self.poll_up(cx, client);
            match (up, down) {
                (Err(end), _) | (_, Err(end)) => return Poll::Ready(end),
                (Ok(false), Ok(false)) => return self.poll_end(cx, client),
                (Ok(_), Ok(_)) => {}
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Ends the pipe once one side has closed and the other has received all earlier bytes.
    fn poll_end(&mut self, cx: &mut Context<'_>, client: &mut impl Duplex) -> Poll<End> {
        let is_over = |lane: &Lane| lane.is_ended && lane.is_empty();
        let is_end = is_over(&self.down) || is_over(&self.up) && self.down.is_empty();
        if client.poll_flush(cx).is_pending() || !is_end {
            return Poll::Pending;
        }
        Poll::Ready(End::Closed)
    }

    /// Forwards one step from the origin to the client. Returns whether another step may follow.
    fn poll_down(&mut self, cx: &mut Context<'_>, client: &mut impl Duplex) -> Result<bool, End> {
        let lane = &mut self.down;
        if !lane.is_empty() {
            return match client.poll_send(cx, &lane.waiting[lane.at..]) {
                Poll::Pending => Ok(false),
                Poll::Ready(Ok(sent)) => {
                    lane.passed(sent);
                    Ok(true)
                }
                Poll::Ready(Err(_)) => Err(End::Gone),
            };
        }
        if lane.is_ended {
            return Ok(false);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            match Pin::new(&mut self.origin).poll_read(cx, &mut buffer) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Err(_)) => return Err(End::Gone),
                Poll::Ready(Ok(())) => {}
            }
            let came = buffer.filled();
            lane.is_ended = came.is_empty();
            if lane.is_ended {
                return Ok(true);
            }
            let sent = match client.poll_send(cx, came) {
                Poll::Pending => 0,
                Poll::Ready(Ok(sent)) => sent,
                Poll::Ready(Err(_)) => return Err(End::Gone),
            };
            lane.keep(&came[sent..])?;
            lane.moved = clock::now();
            Ok(true)
        })
    }

    /// Forwards one step from the client to the origin. Returns whether another step may follow.
    fn poll_up(&mut self, cx: &mut Context<'_>, client: &mut impl Duplex) -> Result<bool, End> {
        let lane = &mut self.up;
        if lane.is_empty() {
            if lane.is_ended {
                return Ok(false);
            }
            match client.poll_take(cx, &mut lane.waiting) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Ok(came)) => lane.is_ended = came == 0,
                Poll::Ready(Err(_)) => return Err(End::Gone),
            }
            lane.moved = clock::now();
            if lane.is_ended {
                return Ok(true);
            }
        }
        match Pin::new(&mut self.origin).poll_write(cx, &lane.waiting[lane.at..]) {
            Poll::Pending => lane.count().map(|()| false),
            Poll::Ready(Ok(sent)) => {
                lane.passed(sent);
                lane.count().map(|()| true)
            }
            Poll::Ready(Err(_)) => Err(End::Gone),
        }
    }

    /// Returns the reason why the pipe must end although neither side has closed.
    fn look(&self, idle_max: Duration, stall_max: Duration) -> Option<End> {
        let now = clock::now();
        if with_core(|core| core.is_draining.get()) {
            return Some(End::Closed);
        }
        if !self.down.is_empty() && now.duration_since(self.down.moved) > stall_max {
            return Some(End::Stalled);
        }
        let moved = self.up.moved.max(self.down.moved);
        (now.duration_since(moved) > idle_max).then_some(End::Idle)
    }
}

/// Guard that counts an open pipe.
struct OpenPipe;

impl OpenPipe {
    fn new() -> Self {
        with_core(|core| {
            core.clients.pipes.set(core.clients.pipes.get() + 1);
            core.count(Counter::Pipes);
            core.gauge(Counter::PipesOpen, core.clients.pipes.get());
        });
        Self
    }
}

impl Drop for OpenPipe {
    fn drop(&mut self) {
        with_core(|core| {
            core.clients.pipes.set(core.clients.pipes.get() - 1);
            core.gauge(Counter::PipesOpen, core.clients.pipes.get());
        });
    }
}
