//! *pipe*: a WebSocket (RFC 6455) through to its origin.
//!
//! ```text
//!   request ─▶ switch: a connection of its own, the request with its Upgrade ─▶ 101 ─▶ bytes both ways ─▶ the end of either
//!                                                       │ any other answer
//!                                                       ▼ is the request's, as one that was passed
//! ```
//! Nothing of what the client sends behind its request goes on before the origin has said 101: until then it would be
//! another request to it. WebSocket is the only protocol that is asked for; `h2c` among others would be a way past every
//! rule here.
//!
//! Where the data lives: what one side sends is read into the scratch of the thread, where the other takes it; what it does
//! not take waits in the lane, and nothing more is read on that side meanwhile. *Bounds:* a lane holds what one read
//! brought ([`READ_BYTES`], or a stream's window of HTTP/2), and both count among what clients make us
//! [hold](crate::client::limits::client_budget); pipes are counted among the origin's lasting answers, and one for which there is no room there is
//! answered 503; one on which nothing moves for `pipe_idle_time_max`, or whose reader takes nothing for
//! `send_stall_max`, ends. A drain ends them: whoever was connected connects anew.

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

/// Read at once of one side.
const READ_BYTES: usize = 16 << 10;
/// Reads of one turn; then it is the others'.
const TURN_READS_MAX: usize = 16;
/// How often it is looked whether a pipe has idled for too long, or a drain ends it.
const LOOK_EVERY: Duration = Duration::from_secs(1);

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// Whether a request asks for a WebSocket (RFC 6455 §4.1).
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

/// What an origin has switched to another protocol.
pub(crate) struct Pipe {
    pub(crate) line: Line,
    pub(crate) permit: Permit,
    /// The head of its 101: a status line and field lines, without those for one hop.
    pub(crate) head: Vec<u8>,
    /// What came behind it.
    pub(crate) early: Vec<u8>,
}

/// The client's side.
pub(crate) trait Duplex: Send {
    /// Appends what came, waits for at least one byte; 0: nothing follows.
    fn poll_take(&mut self, cx: &mut Context<'_>, into: &mut Vec<u8>) -> Poll<Result<usize, SinkError>>;

    /// Sends as many bytes as the client takes; waits for at least one.
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, SinkError>>;

    /// Waits until what was taken is on its way.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SinkError>>;
}

/// How a pipe ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// A side has said that nothing follows, or a drain did; all that came before was passed on.
    Closed,
    /// A side is gone.
    Gone,
    /// Nothing moved for too long.
    Idle,
    /// The client did not read.
    Stalled,
    /// The client would have made us hold more than it may.
    Full,
}

impl End {
    /// What the log says of it, where it is not what its sides wanted.
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

/// Bytes on their way in one direction.
struct Lane {
    waiting: Vec<u8>,
    at: usize,
    held: ClientMemoryGuard,
    /// Nothing follows them.
    is_ended: bool,
    /// When some of them went on last.
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

    /// Some of them went on; memory that is not needed goes back.
    fn passed(&mut self, bytes: usize) {
        self.at += bytes;
        self.moved = clock::now();
        if self.is_empty() {
            (self.waiting, self.at) = (Vec::new(), 0);
            self.held.resize(0);
        }
    }

    /// What one side brought and the other did not take at once.
    fn keep(&mut self, bytes: &[u8]) -> Result<(), End> {
        self.waiting.extend_from_slice(bytes);
        self.count()
    }

    fn count(&mut self) -> Result<(), End> {
        if self.held.resize(self.waiting.len()) { Ok(()) } else { Err(End::Full) }
    }
}

impl Pipe {
    /// Passes bytes on until one side ends; `early` is what the client has sent behind its request.
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
        // It may have gone before.
        let _ = flow.origin.shutdown().await;
        end
    }
}

fn count(end: End) {
    let counter = match end {
        // Who opened too much was counted there.
        End::Closed | End::Full => return,
        End::Gone => Counter::PipesBroken,
        End::Idle => Counter::PipesIdle,
        End::Stalled => Counter::ClientsStalled,
    };
    with_core(|core| core.count(counter));
}

/// Both directions.
struct Flow {
    origin: Line,
    up: Lane,
    down: Lane,
}

impl Flow {
    /// Passes on what there is.
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

    /// The end, once one side has said so and the other has all that came before.
    fn poll_end(&mut self, cx: &mut Context<'_>, client: &mut impl Duplex) -> Poll<End> {
        let is_over = |lane: &Lane| lane.is_ended && lane.is_empty();
        let is_end = is_over(&self.down) || is_over(&self.up) && self.down.is_empty();
        if client.poll_flush(cx).is_pending() || !is_end {
            return Poll::Pending;
        }
        Poll::Ready(End::Closed)
    }

    /// From the origin to the client, a step; whether there may be another.
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

    /// From the client to the origin, likewise.
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

    /// Whether it has to end although neither side does.
    fn look(&self, idle_max: Duration, stall_max: Duration) -> Option<End> {
        let now = clock::now();
        if with_core(|core| core.draining.get()) {
            return Some(End::Closed);
        }
        if !self.down.is_empty() && now.duration_since(self.down.moved) > stall_max {
            return Some(End::Stalled);
        }
        let moved = self.up.moved.max(self.down.moved);
        (now.duration_since(moved) > idle_max).then_some(End::Idle)
    }
}

/// A pipe that is counted while it lasts.
struct OpenPipe;

impl OpenPipe {
    fn new() -> Self {
        with_core(|core| {
            core.pipes.set(core.pipes.get() + 1);
            core.count(Counter::Pipes);
            core.gauge(Counter::PipesOpen, core.pipes.get());
        });
        Self
    }
}

impl Drop for OpenPipe {
    fn drop(&mut self) {
        with_core(|core| {
            core.pipes.set(core.pipes.get() - 1);
            core.gauge(Counter::PipesOpen, core.pipes.get());
        });
    }
}
