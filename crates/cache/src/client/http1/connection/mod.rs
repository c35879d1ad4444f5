//! A client's connection: one read, many answers, one write.
//!
//! ```text
//!   wait ──readable──▶ turn: read into the thread's scratch ─▶ parse ─▶ hit::answer ─▶ … ─▶ one write ──▶ wait
//!                        │ (no .await, no allocation, no lock)                          │
//!                        ├─ the socket did not take it all ─────▶ deliver::finish ◀─────┘
//!                        ├─ not a hit ──▶ respond: the states ──▶ deliver::begin, finish
//!                        └─ the turn's budget is spent ──▶ the other connections, then its turn among those of its address
//! ```
//!
//! Where the data lives: in the scratch of the thread while a turn lasts. A connection that waits keeps only what it
//! has received of an unfinished head (`pending`), nothing when it is idle; what it holds while its client is slow is
//! counted over all connections of the core ([`client_budget`](crate::client::limits::client_budget)).

mod turn;

use std::{future::poll_fn, sync::Arc};

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
            turns::{Turns, after_the_others},
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

/// Work, in requests, that one connection has done in one turn; then it is the others'. About a millisecond's.
const TURN_REQUESTS_MAX: usize = 512;
/// The same while clients of other addresses are here.
const TURN_REQUESTS_SHARED: usize = 64;
/// … and its address has had its part: what anybody asks at once who waits for answers.
const TURN_REQUESTS_LITTLE: usize = 2;
/// So many bytes of answers count for a request: the kernel's copy of them costs as much.
const ANSWER_BYTES_A_REQUEST: usize = 2 * 1024;
/// An answer that is sent by itself counts for so many requests: beside its content they are little.
const ANSWER_ALONE_REQUESTS: usize = 16;
/// What such a connection reads at once; the rest may wait in its socket.
const READ_BYTES_SHARED: usize = 16 * 1024;
const READ_BYTES_LITTLE: usize = 2 * 1024;
/// Answers gathered before they are written although more requests are waiting: bounds the scratch, and what a client that
/// does not read makes us hold.
const OUT_BYTES_MAX: usize = 64 * 1024;
/// After a refusal so many bytes are read and thrown away, so that the client sees the answer and not a reset.
const LINGER_BYTES_MAX: usize = 1 << 20;
/// Of these, how many one read takes.
const LINGER_PIECE_BYTES: usize = 4 << 10;
/// … for at most so long.
const LINGER_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(2);

/// Connections over the limit that one core is taking leave of at once.
const TURNING_AWAY_MAX: usize = 256;
/// How long that may take.
const TURN_AWAY_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(3);

/// A client's connection.
pub(super) struct Connection {
    pub(super) client: Client,
    peer: Peer,
    /// The pending bytes may hold a whole request.
    unexamined: bool,
    /// Requests that it has brought.
    requests: usize,
    /// Work that it has had since it last waited for its client, or for its turn, in requests.
    spent: usize,
    /// … and in this look at its socket.
    had: usize,
    /// It may bring no more than those.
    is_last: bool,
    /// What came so far could be the beginning of HTTP/2 by prior knowledge (RFC 9113 §3.3).
    may_be_http2: bool,
    /// What the log will say of answers that the client has not got all of.
    drafts: Vec<Draft>,
    /// What the log said of its last request; nothing while nobody reads.
    last_said: Option<Box<LastSaid>>,
}

/// What a turn came to, where it did not simply go on waiting.
enum TurnOutcome {
    /// The connection has ended.
    Closed,
    /// It has had its part, and has more to do.
    Cut,
    /// The client speaks HTTP/2.
    Http2,
    /// What the socket did not take of an answer.
    Sending { prefix: Vec<u8>, sending: Remainder },
    /// Not a hit.
    Slow { before: Vec<u8>, request: Arc<Request>, state: State, fwd: Fwd, draft: Draft },
    /// The client broke a rule or a limit: it is told, and the connection is closed.
    Refused { before: Vec<u8>, fault: Fault, draft: Draft },
}

/// Why no more requests are answered before what there is has been written.
enum StopReason {
    /// An answer whose content is sent from where it is, the last one, or enough of them.
    Sending(Remainder),
    Slow(Arc<Request>, State, Fwd, Draft),
    Refused(Fault, Draft),
}

/// What became of bytes that were received.
struct AnswerProgress {
    /// So many of them are answered.
    bytes: usize,
    /// What is behind them has not been looked at.
    unexamined: bool,
    /// How much that was, in requests.
    work: usize,
    /// The turn is over.
    turned: Option<TurnOutcome>,
}

/// What a request's head may measure.
pub(crate) fn head_limits(config: &Config) -> HeadLimits {
    let head_bytes_max = config.limits.request_head_bytes_max;
    HeadLimits { head_bytes_max, line_bytes_max: head_bytes_max.min(config.limits.request_line_bytes_max) }
}

/// Serves one client until it leaves, or begins with HTTP/2: then its socket, and what came of it. `early` is what came
/// already. The sweep looks at `watch`; what is much has its turn as a `member`.
pub(crate) async fn serve(
    transport: Transport,
    watch: Arc<Watch>,
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

/// How a connection's service ends.
enum ServiceEnd {
    Closed,
    /// It goes on as HTTP/2.
    Http2,
}

/// Answers 503 to a connection over the limit. If many such connections come at once they are closed without an answer:
/// a client over the limit must not cost more than one within it.
pub(crate) fn turn_away(core: &Core, stream: TcpStream, peer: Peer) {
    if core.turning_away.get() >= TURNING_AWAY_MAX {
        return;
    }
    core.turning_away.set(core.turning_away.get() + 1);
    tokio::spawn(async move {
        let mut connection = Connection::new(Transport::plain(stream), Watch::new(), peer);
        let draft = Draft::of_nothing(peer.address());
        let refused = connection.refuse(Fault::TooManyConnections, draft);
        // The sweep does not look at this connection, so it has a timer of its own.
        let _ = tokio::time::timeout(TURN_AWAY_TIME_MAX, refused).await;
        drop(connection);
        with_core(|core| core.turning_away.set(core.turning_away.get() - 1));
    });
}

impl TurnOutcome {
    /// Bytes of answers that wait for the client.
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
    fn new(transport: Transport, watch: Arc<Watch>, peer: Peer) -> Self {
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
                    look.was_much();
                }
                turned
            })
            .await;
            if !matches!(turned, TurnOutcome::Closed) {
                // A request that came just as its deadline passed is answered all the same: the ended wait is taken
                // back.
                self.client.watch.renew();
            }
            // What a slow client makes us hold is counted for as long as it is held.
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
            if !open || with_core(|core| core.draining.get()) {
                return ServiceEnd::Closed;
            }
            self.client.is_next();
            self.client.watch.work();
        }
    }

    /// Answers a request that is not a hit; whether the connection can go on.
    async fn respond(&mut self, request: &Arc<Request>, state: State, fwd: Fwd, draft: Draft) -> bool {
        self.client.watch.work();
        let client = request.client_key();
        let kept_head = with_core(|core| KeptHead::new(&core.accounts, client, request.head_bytes()));
        let Some(kept_head) = kept_head else {
            with_core(|core| core.count(Counter::ClientsOverBytes));
            self.refuse(Fault::Overloaded, draft).await;
            return false;
        };
        after_the_others().await;
        self.client.ends_at_fin = fin::ends_exchange(request);
        let mut upload = Upload::new(&mut self.client, request);
        // On the heap: a connection that idles, or has hits alone, would be larger by two KiB.
        let responding = Box::pin(respond(request, state, fwd, &mut upload));
        let response = tokio::select! {
            biased;
            response = responding => response,
            // Other clients need room, and this client has most of it.
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
                // On the heap: every connection would be larger by it.
                Box::pin(self.pipe(*pipe, draft)).await;
                false
            }
        }
    }

    /// Says that the protocol is another from here on, and passes on what both sides say until one ends.
    async fn pipe(&mut self, pipe: Pipe, mut draft: Draft) {
        let head = [&pipe.head, &b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"[..]].concat();
        draft.opened(101, self.client.sent_bytes, head.len() as u64);
        if self.client.send_all(&head).await.is_err() || self.client.flush().await.is_err() {
            return;
        }
        self.client.watch.work();
        let early = std::mem::take(&mut self.client.pending);
        let end = pipe.run(early, &mut PipeEnd(&mut self.client)).await;
        draft.end(end.word(), self.client.sent_bytes);
        match end {
            pipe::End::Closed => {}
            // A close would pass for the end of what was said.
            pipe::End::Gone | pipe::End::Idle | pipe::End::Stalled | pipe::End::Full => self.client.cut(),
        }
    }

    /// Says what the client did wrong, and ends the connection.
    async fn refuse(&mut self, fault: Fault, draft: Draft) {
        self.deliver(synth(None, fault), AnswerContext::NOTHING, None, draft).await;
    }

    /// Sends an answer, while `upload`, the rest of the request, goes on to an origin that wants it. Unread bytes of a
    /// request (`None`: its end is unknown) would be taken for the next request: the connection ends, once the client
    /// has had time to read.
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
            let out = &mut core.scratch.borrow_mut().out;
            out.clear();
            let sending = deliver::begin(core, answer, asked, out, (&mut draft, self.client.sent_bytes));
            draft.leaves();
            if draft.is_some() {
                self.drafts.push(draft);
            }
            // As a rule the socket takes at once what is there; whether it fails is found out again by who goes on.
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
                // This future is on the heap: it is rare, and every connection would be larger by it.
                let is_sent = Box::pin(deliver::finish(&mut through, prefix, rest, &mut self.drafts)).await;
                is_unread = through.is_unread();
                is_sent
            }
        };
        let open = is_sent && !close;
        if is_unread {
            // On the heap, with its buffer: every connection would be larger by it.
            Box::pin(self.linger()).await;
        }
        open
    }

    /// Lets the client read the last answer before the connection is closed: closing with unread bytes would reset it.
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
        // Whether the client closed or the time passed: we are done with it.
        let _ = tokio::time::timeout(LINGER_TIME_MAX, drain).await;
    }
}
