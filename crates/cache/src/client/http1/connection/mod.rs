//! A client's HTTP/1 connection: one read, many answers, one write.
//!
//! ```text
//!   wait ──readable──▶ turn: read into the thread's scratch ─▶ parse ─▶ hit::answer ─▶ … ─▶ one write ──▶ wait
//!                        │ (no .await, no allocation, no lock)                          │
//!                        ├─ the socket did not accept all ──────▶ deliver::finish ◀─────┘
//!                        ├─ not a hit ──▶ respond: the states ──▶ deliver::begin, finish
//!                        └─ the turn's budget is spent ──▶ other connections, then the next turn of this address
//! ```
//!
//! Location of the data: in the thread's scratch while a turn lasts. A waiting connection keeps only the bytes
//! of an unfinished head (`pending`), and nothing when it is idle. Bytes held for slow clients are counted
//! over all connections of the core ([`client_budget`](crate::client::limits::client_budget)).

mod turn;

use std::{future::poll_fn, rc::Rc, sync::Arc};

use engine::{
    cores::{fair::Member, watch::Watch},
    sys::span::Part,
};
use tokio::net::TcpStream;
use wire::http1::head::HeadLimits;

use super::{
    client::{Client, PipeEnd},
    upload::{self, Upload},
};
use crate::{
    client::{
        fin,
        limits::{
            client_budget::ClientMemoryGuard,
            request_tasks::KeptHead,
            turns::{Turns, yield_to_ready},
        },
        transport::Transport,
    },
    config::Config,
    core::{Core, with_core},
    counters::Counter,
    deliver::{
        self, AnswerContext, Remainder, Rest,
        answer::Answer,
        sink::{Sink, TrySend},
    },
    error_page::Fault,
    head::response_head::Fwd,
    log::{
        last_logged::LastSaid,
        transaction::{self, Draft},
    },
    request::{Request, client_ip::Peer},
    states::{
        pipe::{self, Pipe},
        respond::{Response, respond},
        state::State,
        synth::synth,
    },
};

/// Maximum number of requests that one connection may process in a turn before other connections get a turn:
/// about a millisecond of processor time.
const TURN_REQUESTS_MAX: usize = 512;
/// Maximum number of requests per turn while clients of other addresses are active.
const TURN_REQUESTS_SHARED: usize = 64;
/// Maximum number of requests per turn while other addresses are active and this address has used its share
/// of the event loop's round. A client that waits for its answers sends no more than this at once.
const TURN_REQUESTS_LITTLE: usize = 2;
/// Number of answer bytes that cost as much as one request, because the kernel copies them.
const ANSWER_BYTES_A_REQUEST: usize = 2 * 1024;
/// Cost, in requests, of an answer that is sent in a write of its own; small compared with sending its
/// content.
const ANSWER_ALONE_REQUESTS: usize = 16;
/// Maximum number of bytes per read while clients of other addresses are active; the rest may wait in the
/// socket.
const READ_BYTES_SHARED: usize = 16 * 1024;
const READ_BYTES_LITTLE: usize = 2 * 1024;
/// Maximum number of answer bytes gathered before a write, even if more requests are waiting. This limits the
/// scratch buffer, and the memory held for a client that does not read.
const OUT_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of bytes read and discarded after a refusal, so that the client sees the answer and not a
/// reset.
const LINGER_BYTES_MAX: usize = 1 << 20;
/// Buffer size for discarding up to [`LINGER_BYTES_MAX`] bytes.
const LINGER_PIECE_BYTES: usize = 4 << 10;
/// Time limit for discarding bytes after a refusal.
const LINGER_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(2);

/// Maximum number of connections over the limit to which one core sends a 503 at the same time.
const TURNING_AWAY_MAX: usize = 256;
/// Time limit for answering 503 to a connection over the limit.
const TURN_AWAY_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(3);

/// A client's HTTP/1 connection.
pub(super) struct Connection {
    pub(super) client: Client,
    peer: Peer,
    /// True if the pending bytes may hold a whole request.
    unexamined: bool,
    /// Number of requests on this connection so far.
    requests: usize,
    /// Cost of processed requests, in requests, since the connection last waited for its client or for a
    /// turn.
    spent: usize,
    /// Cost of requests processed in the current poll of the socket, in requests.
    had: usize,
    /// True once `requests_per_connection_max` is reached: the current request is the last.
    is_last: bool,
    /// True while the received bytes could be the beginning of HTTP/2 by prior knowledge (RFC 9113 §3.3).
    may_be_http2: bool,
    /// Log records of answers that have not been sent completely.
    drafts: Vec<Draft>,
    /// Log fields of the connection's last request; `None` while nobody reads the log.
    last_said: Option<Box<LastSaid>>,
}

/// Outcome of a turn, if the connection does not just wait for more bytes.
enum TurnOutcome {
    /// The connection has ended.
    Closed,
    /// The connection has spent its budget and has more to do.
    Cut,
    /// The client speaks HTTP/2.
    Http2,
    /// The socket did not accept all of an answer; the variant holds the rest.
    Sending { prefix: Vec<u8>, sending: Remainder },
    /// A request that is not a hit.
    Slow { before: Vec<u8>, request: Arc<Request>, state: State, fwd: Fwd, draft: Draft },
    /// The client broke a rule or a limit: an error is sent and the connection closed.
    Refused { before: Vec<u8>, fault: Fault, draft: Draft },
}

/// Reason for writing the gathered answers before more requests are answered.
enum StopReason {
    /// An answer whose content is sent from the store, the connection's last answer, or enough gathered
    /// answers.
    Sending(Remainder),
    Slow(Arc<Request>, State, Fwd, Draft),
    Refused(Fault, Draft),
}

/// Progress in answering received bytes.
struct AnswerProgress {
    /// Number of bytes that are answered.
    bytes: usize,
    /// True if the bytes after them have not been parsed.
    unexamined: bool,
    /// Cost of the answers, in requests.
    work: usize,
    /// Outcome, if the turn is over.
    turned: Option<TurnOutcome>,
}

/// Returns the size limits of a request's head.
pub(crate) fn head_limits(config: &Config) -> HeadLimits {
    let head_bytes_max = config.limits.request_head_bytes_max;
    HeadLimits { head_bytes_max, line_bytes_max: head_bytes_max.min(config.limits.request_line_bytes_max) }
}

/// Serves one client until it leaves. If the client begins to speak HTTP/2, returns its socket and the bytes
/// received. `early` holds bytes that were already received. The periodic sweep checks `watch` for passed
/// deadlines; `member` is the connection's place in the fair scheduling of long turns.
pub(crate) async fn serve(
    transport: Transport,
    watch: Rc<Watch>,
    peer: Peer,
    early: Vec<u8>,
    member: &Member,
) -> Option<(Transport, Vec<u8>)> {
    let mut connection = Connection::new(transport, watch, peer);
    connection.unexamined = !early.is_empty();
    connection.client.pending = early;
    match connection.run(member).await {
        ServiceEnd::Closed => None,
        ServiceEnd::Http2 => Some((connection.client.transport, connection.client.pending)),
    }
}

/// Outcome of serving a connection.
enum ServiceEnd {
    Closed,
    /// The connection continues as HTTP/2.
    Http2,
}

/// Answers 503 to a connection over the limit. If many of these connections arrive at once they are closed
/// without an answer, because a client over the limit must not cost more than a client within it.
pub(crate) fn turn_away(core: &Core, stream: TcpStream, peer: Peer) {
    if core.clients.turning_away.get() >= TURNING_AWAY_MAX {
        return;
    }
    core.clients.turning_away.set(core.clients.turning_away.get() + 1);
    tokio::task::spawn_local(async move {
        let mut connection = Connection::new(Transport::plain(stream), Watch::new(), peer);
        let draft = Draft::of_nothing(peer.address());
        let refused = connection.refuse(Fault::TooManyConnections, draft);
        // The periodic sweep does not check this connection, so a timer limits its time.
        let _ = tokio::time::timeout(TURN_AWAY_TIME_MAX, refused).await;
        drop(connection);
        with_core(|core| core.clients.turning_away.set(core.clients.turning_away.get() - 1));
    });
}

impl TurnOutcome {
    /// Returns the number of answer bytes that wait for the client.
    fn held_bytes(&self) -> usize {
        match self {
            TurnOutcome::Closed | TurnOutcome::Cut | TurnOutcome::Http2 => 0,
            TurnOutcome::Sending { prefix: bytes, .. }
            | TurnOutcome::Slow { before: bytes, .. }
            | TurnOutcome::Refused { before: bytes, .. } => bytes.len(),
        }
    }
}

impl Connection {
    fn new(transport: Transport, watch: Rc<Watch>, peer: Peer) -> Self {
        let client = with_core(|core| Client::new(transport, watch, &core.config.limits));
        Self {
            client,
            peer,
            unexamined: false,
            requests: 0,
            spent: 0,
            had: 0,
            is_last: false,
            may_be_http2: true,
            drafts: Vec::new(),
            last_said: None,
        }
    }

    async fn run(&mut self, member: &Member) -> ServiceEnd {
        let mut turns = Turns::new(member);
        loop {
            let turned = poll_fn(|cx| {
                let look = turns.look();
                let turned = self.turn(cx, look.length);
                if self.had > TURN_REQUESTS_LITTLE {
                    look.note_large_turn();
                }
                turned
            })
            .await;
            if !matches!(turned, TurnOutcome::Closed) {
                // A request that arrives just as its deadline passes is still answered: the expired deadline
                // is cleared.
                self.client.watch.renew();
            }
            // Bytes held for a slow client are counted for as long as they are held.
            let holds = self.client.pending.len() + turned.held_bytes();
            let Some(_held) = ClientMemoryGuard::reserve(holds) else { return ServiceEnd::Closed };
            let open = match turned {
                TurnOutcome::Closed => false,
                TurnOutcome::Cut => {
                    turns.wait().await;
                    self.spent = 0;
                    true
                }
                TurnOutcome::Http2 => return ServiceEnd::Http2,
                TurnOutcome::Sending { prefix, sending: Remainder { rest, close, .. } } => {
                    self.spent += ANSWER_ALONE_REQUESTS;
                    let is_sent = deliver::finish(&mut self.client, prefix, rest, &mut self.drafts).await;
                    self.unexamined = !self.client.pending.is_empty();
                    is_sent && !close
                }
                TurnOutcome::Slow { before, request, state, fwd, draft } => {
                    deliver::finish(&mut self.client, before, Rest::None, &mut self.drafts).await
                        && self.respond(&request, state, fwd, draft).await
                }
                TurnOutcome::Refused { before, fault, draft } => {
                    if deliver::finish(&mut self.client, before, Rest::None, &mut self.drafts).await {
                        self.refuse(fault, draft).await;
                    }
                    false
                }
            };
            if !open || with_core(|core| core.is_draining.get()) {
                return ServiceEnd::Closed;
            }
            self.client.end_exchange();
            self.client.watch.work();
        }
    }

    /// Answers a request that is not a hit. Returns whether the connection can carry further requests.
    async fn respond(&mut self, request: &Arc<Request>, state: State, fwd: Fwd, draft: Draft) -> bool {
        self.client.watch.work();
        let client = request.client_key();
        let kept_head = with_core(|core| KeptHead::new(&core.budgets.accounts, client, request.head_bytes()));
        let Some(kept_head) = kept_head else {
            with_core(|core| core.count(Counter::ClientsOverBytes));
            self.refuse(Fault::Overloaded, draft).await;
            return false;
        };
        yield_to_ready().await;
        self.client.ends_at_fin = fin::ends_exchange(request);
        let mut upload = Upload::new(&mut self.client, request);
        // Boxed, because it would make connections that are idle or serve only hits 2 KiB larger.
        let responding = Box::pin(respond(request, state, fwd, &mut upload));
        let response = tokio::select! {
            biased;
            response = responding => response,
            // Other clients need room, and this client holds most of it.
            () = kept_head.cut() => None,
        };
        let upload = upload.rest();
        match response {
            None => false,
            Some(Response::Answer(answer)) => {
                let open =
                    self.deliver(*answer, AnswerContext::of(&request.head()), Some(upload), draft).await;
                self.unexamined = !self.client.pending.is_empty();
                open
            }
            Some(Response::Pipe(pipe)) => {
                // Boxed: a pipe is rare, but unboxed it would enlarge every connection's task.
                Box::pin(self.pipe(*pipe, draft)).await;
                false
            }
        }
    }

    /// Answers 101 and forwards bytes in both directions until one side ends.
    async fn pipe(&mut self, pipe: Pipe, mut draft: Draft) {
        let head = [&pipe.head, &b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"[..]].concat();
        draft.note_websocket(101, self.client.sent_bytes, head.len() as u64);
        if self.client.send_all(&head).await.is_err() || self.client.flush().await.is_err() {
            return;
        }
        self.client.watch.work();
        let early = std::mem::take(&mut self.client.pending);
        let end = pipe.run(early, &mut PipeEnd(&mut self.client)).await;
        draft.end(end.word(), self.client.sent_bytes);
        match end {
            pipe::End::Closed => {}
            // A regular close would look like a proper end of the stream.
            pipe::End::Gone | pipe::End::Idle | pipe::End::Stalled | pipe::End::Full => self.client.cut(),
        }
    }

    /// Answers with an error page and ends the connection.
    async fn refuse(&mut self, fault: Fault, draft: Draft) {
        self.deliver(synth(None, fault), AnswerContext::NOTHING, None, draft).await;
    }

    /// Sends an answer. Meanwhile the unread rest of the request, `upload`, is forwarded to an origin that
    /// still accepts it. If bytes of the request stay unread (`upload` is `None` if the end of the request is
    /// unknown), they would be parsed as the next request, so the connection ends once the client has had
    /// time to read the answer.
    async fn deliver(
        &mut self,
        answer: Answer<'static>,
        asked: AnswerContext,
        upload: Option<upload::Rest>,
        mut draft: Draft,
    ) -> bool {
        let mut is_unread = upload.as_ref().is_none_or(upload::Rest::is_unread);
        let asked = AnswerContext { persists: asked.persists && !is_unread && !self.is_last, ..asked };
        let (prefix, sending) = with_core(|core| {
            let out = &mut core.buffers.scratch.borrow_mut().out;
            out.clear();
            let sending = deliver::begin(core, answer, asked, out, &mut draft, self.client.sent_bytes);
            draft.note_body_begun();
            if draft.is_some() {
                self.drafts.push(draft);
            }
            // The socket usually accepts everything at once. An error is ignored here, because sending the
            // rest fails with it again.
            let sent = if sending.is_done() { self.client.try_send(&[Part::Plain(out)]) } else { Ok(0) };
            (out[sent.unwrap_or(0)..].to_vec(), sending)
        });
        let Remainder { rest, close, .. } = sending;
        let is_all = prefix.is_empty() && matches!(rest, Rest::None) && self.client.transport.is_flushed();
        if is_all {
            transaction::end_all(&mut self.drafts, None, self.client.sent_bytes);
        }
        let through = if is_all { None } else { upload.and_then(|upload| upload.through(&mut self.client)) };
        let is_sent = match through {
            None => {
                is_all || Box::pin(deliver::finish(&mut self.client, prefix, rest, &mut self.drafts)).await
            }
            Some(mut through) => {
                // Boxed: this future is rare, but unboxed it would enlarge every connection's task.
                let is_sent = Box::pin(deliver::finish(&mut through, prefix, rest, &mut self.drafts)).await;
                is_unread = through.is_unread();
                is_sent
            }
        };
        let open = is_sent && !close;
        if is_unread {
            // Boxed together with its buffer, which would enlarge every connection's task.
            Box::pin(self.linger()).await;
        }
        open
    }

    /// Gives the client time to read the last answer before the connection is closed, because closing a
    /// socket with unread bytes resets the connection.
    async fn linger(&mut self) {
        if self.client.transport.shutdown().await.is_err() {
            return;
        }
        let drain = async {
            let mut thrown_away = 0;
            let mut piece = Vec::with_capacity(LINGER_PIECE_BYTES);
            while thrown_away < LINGER_BYTES_MAX {
                match self.client.append_body(Some(&mut piece), LINGER_PIECE_BYTES, LINGER_TIME_MAX).await {
                    Ok(0) | Err(_) => break,
                    Ok(bytes) => thrown_away += bytes,
                }
                piece.clear();
            }
        };
        // The connection is finished whether the client closed or the time passed.
        let _ = tokio::time::timeout(LINGER_TIME_MAX, drain).await;
    }
}
