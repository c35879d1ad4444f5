//! A client's connection: one read, many answers, one write.
//!
//! ```text
//!   wait ──readable──▶ turn: read into the thread's scratch ─▶ parse ─▶ hit::answer ─▶ … ─▶ one write ──▶ wait
//!                        │ (no .await, no allocation, no lock)                          │
//!                        ├─ a large body did not fit the socket ──▶ deliver, waiting ◀──┘
//!                        └─ not a hit ─────────────────────────────▶ slow::respond, waiting
//! ```
//!
//! Where the data lives: in the scratch of the thread while a turn lasts. A connection that waits keeps only what it
//! has received of an unfinished head (`pending`), nothing when it is idle.

use std::{
    future::poll_fn,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use engine::{
    cores::{
        clock,
        watch::{Phase, Watch},
    },
    store::PinnedObject,
};
use tokio::{
    io::{AsyncRead, AsyncWriteExt, ReadBuf},
    net::TcpStream,
};
use wire::http1::{
    framing::{Framing, request_framing},
    head::{HeadLimits, Progress, may_end_in, parse_request},
};

use crate::{
    client::Client,
    config::Config,
    core::{Core, READ_BYTES, Scratch, with_core},
    counters::Counter,
    error_page::Fault,
    hit::{self, Outcome, Slow},
    miss,
    parts::{self, InParts},
    request::Request,
    slow, synth,
};

/// Answers gathered before they are written although more requests are waiting: bounds the scratch.
const OUT_BYTES_MAX: usize = 256 * 1024;
/// After a refusal so many bytes are read and thrown away, so that the client sees the answer and not a reset.
const LINGER_BYTES_MAX: usize = 1 << 20;
/// … for at most so long.
const LINGER_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(2);

/// Connections over the limit that one core is taking leave of at once.
const TURNING_AWAY_MAX: usize = 256;
/// How long that may take.
const TURN_AWAY_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(3);

/// A client's connection.
pub(crate) struct Connection {
    pub(crate) client: Client,
    pub(crate) address: IpAddr,
    /// Received and not answered: the beginning of a head, or requests behind one that is being answered.
    pub(crate) pending: Vec<u8>,
    /// `pending` may hold a whole request.
    unexamined: bool,
}

/// What a turn came to, where it did not simply go on waiting.
enum Turned {
    /// The connection has ended.
    Closed,
    /// Answers that the socket did not take.
    Spilled { rest: Vec<u8>, close: bool },
    /// A hit whose body the socket did not take at once.
    Large { prefix: Vec<u8>, object: PinnedObject, from: u64, to: u64, chunked: bool, close: bool },
    /// A hit whose body is on the file in parts.
    InParts { before: Vec<u8>, request: Arc<Request>, answer: Box<InParts> },
    /// Not a hit.
    Slow { before: Vec<u8>, request: Arc<Request>, slow: hit::Slow },
    /// The client broke a rule or a limit: it is told, and the connection is closed.
    Refused { before: Vec<u8>, fault: Fault },
}

/// What became of bytes that were received.
struct Answered {
    /// So many of them are answered.
    bytes: usize,
    /// What is behind them has not been looked at.
    unexamined: bool,
    /// The turn is over.
    turned: Option<Turned>,
}

fn head_limits(config: &Config) -> HeadLimits {
    let head_bytes_max = config.limits.request_head_bytes_max;
    HeadLimits { head_bytes_max, line_bytes_max: head_bytes_max.min(hit::REQUEST_LINE_BYTES_MAX) }
}

/// Serves one client until it leaves.
pub(crate) async fn serve(stream: TcpStream, address: SocketAddr) {
    let mut connection = Connection::new(stream, address);
    let watch = Arc::clone(&connection.client.watch);
    let number = with_core(|core| core.watches.borrow_mut().add(watch));
    connection.run().await;
    with_core(|core| core.watches.borrow_mut().remove(number));
}

/// Answers 503 to a connection over the limit. If many such connections come at once they are closed without an answer:
/// a client over the limit must not cost more than one within it.
pub(crate) fn turn_away(core: &Core, stream: TcpStream, address: SocketAddr) {
    if core.turning_away.get() >= TURNING_AWAY_MAX {
        return;
    }
    core.turning_away.set(core.turning_away.get() + 1);
    tokio::spawn(async move {
        let mut connection = Connection::new(stream, address);
        let refused = synth::refuse(&mut connection, None, Fault::TooManyConnections);
        // The sweep does not look at this connection, so it has a timer of its own.
        let _ = tokio::time::timeout(TURN_AWAY_TIME_MAX, refused).await;
        drop(connection);
        with_core(|core| core.turning_away.set(core.turning_away.get() - 1));
    });
}

impl Connection {
    fn new(stream: TcpStream, address: SocketAddr) -> Self {
        // Answers are written whole; waiting for more would only add latency.
        let _ = stream.set_nodelay(true);
        let send_stall_max = with_core(|core| core.config.limits.send_stall_max);
        let client = Client { stream, watch: Watch::new(), send_stall_max };
        Self { client, address: address.ip(), pending: Vec::new(), unexamined: false }
    }

    async fn run(&mut self) {
        loop {
            let turned = poll_fn(|cx| self.turn(cx)).await;
            if !matches!(turned, Turned::Closed) {
                // A request that came just as its deadline passed is answered all the same: the ended wait is taken
                // back.
                self.client.watch.renew();
            }
            let open = match turned {
                Turned::Closed => false,
                Turned::Spilled { rest, close } => miss::send_hit(self, &rest, None, close).await,
                Turned::Large { prefix, object, from, to, chunked, close } => {
                    miss::send_hit(self, &prefix, Some((object, from, to, chunked)), close).await
                }
                Turned::InParts { before, request, answer } => {
                    miss::send_hit(self, &before, None, false).await
                        && parts::respond(self, &request, *answer).await
                }
                Turned::Slow { before, request, slow } => {
                    miss::send_hit(self, &before, None, false).await
                        && slow::respond(self, &request, slow).await
                }
                Turned::Refused { before, fault } => {
                    if miss::send_hit(self, &before, None, false).await {
                        synth::refuse(self, None, fault).await;
                    }
                    false
                }
            };
            if !open || with_core(|core| core.draining.get()) {
                return;
            }
            self.client.watch.work();
        }
    }

    /// Reads once and answers all that can be answered from memory.
    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<Turned> {
        self.client.watch.task(cx.waker());
        // What is idle is closed, unless a request has come in just now.
        let closing = self.client.watch.expired();
        if closing && self.client.watch.phase() != Phase::Idle {
            return Poll::Ready(self.time_is_up());
        }
        with_core(|core| {
            let mut scratch = core.scratch.borrow_mut();
            let scratch = &mut *scratch;
            let mut have = self.pending.len();
            scratch.read[..have].copy_from_slice(&self.pending);
            // Bytes of it that hold no whole request, as far as they have been looked at.
            let mut seen = if std::mem::take(&mut self.unexamined) { 0 } else { have };
            loop {
                if seen == have {
                    let mut buffer = ReadBuf::new(&mut scratch.read[have..]);
                    match Pin::new(&mut self.client.stream).poll_read(cx, &mut buffer) {
                        Poll::Pending if closing => return Poll::Ready(Turned::Closed),
                        Poll::Pending => {
                            self.wait(core, &scratch.read[..have]);
                            return Poll::Pending;
                        }
                        Poll::Ready(Ok(())) if !buffer.filled().is_empty() => have += buffer.filled().len(),
                        Poll::Ready(_) => {
                            if have > 0 {
                                core.count(Counter::ClientsGoneInHead);
                            }
                            return Poll::Ready(Turned::Closed);
                        }
                    }
                }
                // A head that comes byte by byte is parsed when it may be complete, not at each byte.
                let limits = head_limits(&core.config);
                let answered = if seen > 0 && !may_end_in(&scratch.read[..have], seen, &limits) {
                    Answered { bytes: 0, unexamined: false, turned: None }
                } else {
                    self.answer_all(core, scratch, have)
                };
                let Answered { bytes: answered, unexamined, turned } = answered;
                if let Some(turned) = turned {
                    // What is behind the request that is being answered waits for its turn.
                    self.pending.clear();
                    self.pending.extend_from_slice(&scratch.read[answered..have]);
                    self.unexamined = !self.pending.is_empty();
                    return Poll::Ready(turned);
                }
                scratch.read.copy_within(answered..have, 0);
                have -= answered;
                seen = if unexamined { 0 } else { have };
            }
        })
    }

    /// Answers the requests in `scratch.read[..have]`, up to one that is sent by itself.
    fn answer_all(&mut self, core: &Core, scratch: &mut Scratch, have: usize) -> Answered {
        let Scratch { read, head: stored_head, out, slots, key } = scratch;
        let mut buffers = hit::Buffers { key, head: stored_head, out };
        let head_limits = head_limits(&core.config);
        buffers.out.clear();
        let turn = core.reader.turn();
        let now_s = clock::unix_s();
        let mut at = 0;
        let mut stopped = None;
        while at < have && stopped.is_none() {
            let (head, bytes) = match parse_request(&read[at..have], slots, &head_limits) {
                Ok(Progress::NeedMore) => break,
                Ok(Progress::Complete(complete)) => complete,
                Err(error) => {
                    core.count(Counter::of_head_error(&error));
                    stopped = Some(Turned::Refused { before: Vec::new(), fault: Fault::from(&error) });
                    break;
                }
            };
            let framing = match request_framing(&head) {
                Ok(framing) => framing,
                Err(error) => {
                    core.count(Counter::BadRequests);
                    stopped = Some(Turned::Refused { before: Vec::new(), fault: Fault::from(error) });
                    break;
                }
            };
            let raw = at..at + bytes;
            at += bytes;
            core.count(Counter::Requests);
            let has_body = !matches!(framing, Framing::None | Framing::Length(0));
            match hit::answer(core, &turn, &head, has_body, now_s, &mut buffers) {
                Outcome::Written { close } => {
                    if close || core.draining.get() {
                        stopped = Some(Turned::Spilled { rest: Vec::new(), close: true });
                    } else if buffers.out.len() >= OUT_BYTES_MAX {
                        stopped = Some(Turned::Spilled { rest: Vec::new(), close: false });
                    }
                }
                Outcome::Large { object, from, to, chunked, close } => {
                    stopped = Some(Turned::Large { prefix: Vec::new(), object, from, to, chunked, close });
                }
                Outcome::InParts { answer, hash, primary_bytes } => {
                    let key = &*buffers.key;
                    let request = Request::new(&read[raw], key, primary_bytes, hash, framing, self.address);
                    stopped =
                        Some(Turned::InParts { before: Vec::new(), request: Arc::new(request), answer });
                }
                Outcome::Slow(slow) => {
                    let Slow { hash, primary_bytes, .. } = slow;
                    let key = &*buffers.key;
                    let request = Request::new(&read[raw], key, primary_bytes, hash, framing, self.address);
                    stopped = Some(Turned::Slow { before: Vec::new(), request: Arc::new(request), slow });
                }
            }
        }
        let is_stopped = stopped.is_some();
        let turned = self.write_out(core, buffers.out, stopped);
        // The socket took at once the body that the requests behind it were kept back for.
        let unexamined = is_stopped && turned.is_none();
        Answered { bytes: at, unexamined, turned }
    }

    /// Writes what was gathered, once; the socket's refusal becomes part of what stopped us.
    fn write_out(&self, core: &Core, out: &[u8], stopped: Option<Turned>) -> Option<Turned> {
        if let Some(Turned::Large { mut object, from, to, chunked, close, .. }) = stopped {
            let Ok((prefix_sent, from)) = hit::send_large(core, &self.client, out, &object, from, to) else {
                core.count(Counter::ClientsGone);
                return Some(Turned::Closed);
            };
            if from == to && prefix_sent == out.len() && !chunked {
                return close.then_some(Turned::Spilled { rest: Vec::new(), close });
            }
            object.release_before(from);
            let prefix = out[prefix_sent..].to_vec();
            return Some(Turned::Large { prefix, object, from, to, chunked, close });
        }
        if out.is_empty() {
            return stopped;
        }
        let Ok(sent) = self.client.try_send(&[engine::sys::span::Part::Plain(out)]) else {
            core.count(Counter::ClientsGone);
            return Some(Turned::Closed);
        };
        let rest = &out[sent..];
        match stopped {
            None if rest.is_empty() => None,
            None => Some(Turned::Spilled { rest: rest.to_vec(), close: false }),
            Some(Turned::Spilled { close, .. }) => Some(Turned::Spilled { rest: rest.to_vec(), close }),
            Some(Turned::Slow { request, slow, .. }) => {
                Some(Turned::Slow { before: rest.to_vec(), request, slow })
            }
            Some(Turned::InParts { request, answer, .. }) => {
                Some(Turned::InParts { before: rest.to_vec(), request, answer })
            }
            Some(Turned::Refused { fault, .. }) => Some(Turned::Refused { before: rest.to_vec(), fault }),
            other => other,
        }
    }

    /// Keeps what there is of a head, and notes until when the rest must come.
    fn wait(&mut self, core: &Core, unfinished: &[u8]) {
        let watch = &self.client.watch;
        if unfinished.is_empty() {
            // An idle connection holds no memory.
            self.pending = Vec::new();
            watch.wait(Phase::Idle, clock::monotonic_ms(), core.config.limits.idle_time_max);
            return;
        }
        self.pending.clear();
        self.pending.extend_from_slice(unfinished);
        if watch.phase() != Phase::Head {
            watch.wait(Phase::Head, clock::monotonic_ms(), core.config.limits.request_head_time_max);
        }
    }

    /// The sweep found this connection's deadline passed, or a drain ends it.
    fn time_is_up(&self) -> Turned {
        match self.client.watch.phase() {
            Phase::Head => {
                with_core(|core| core.count(Counter::SlowHeads));
                self.client.watch.renew();
                Turned::Refused { before: Vec::new(), fault: Fault::RequestTimeout }
            }
            _ => Turned::Closed,
        }
    }

    /// Puts back what was read beyond a request's body.
    pub(crate) fn keep_pending(&mut self, bytes: Vec<u8>) {
        assert!(bytes.len() <= READ_BYTES, "what was read beyond a body fits the scratch");
        self.unexamined = !bytes.is_empty();
        self.pending = bytes;
    }

    /// Lets the client read the last answer before the connection is closed: closing with unread bytes would reset it.
    pub(crate) async fn linger(&mut self) {
        if self.client.stream.shutdown().await.is_err() {
            return;
        }
        let drain = async {
            let mut thrown_away = 0;
            let mut buffer = [0; 4096];
            while thrown_away < LINGER_BYTES_MAX {
                match self.client.read_body(&mut buffer, LINGER_TIME_MAX).await {
                    Ok(0) | Err(_) => break,
                    Ok(bytes) => thrown_away += bytes,
                }
            }
        };
        // Whether the client closed or the time passed: we are done with it.
        let _ = tokio::time::timeout(LINGER_TIME_MAX, drain).await;
    }
}
