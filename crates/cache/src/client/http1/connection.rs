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

use std::{
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use engine::{
    cores::{
        clock,
        fair::Member,
        watch::{Phase, Watch},
    },
    sys::span::Part,
};
use tokio::net::TcpStream;
use wire::{
    http1::{
        framing::{Framing, request_framing},
        head::{HeadLimits, Progress, may_end_in, parse_request},
    },
    http2::frame::PREFACE,
};

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
            turns::{Length, Turns, after_the_others},
        },
        transport::Transport,
    },
    config::Config,
    core::{Core, Scratch, with_core},
    counters::Counter,
    deliver::{
        self, AnswerContext, Remainder, Rest,
        answer::Answer,
        send,
        sink::{Sink, TrySend},
    },
    error_page::Fault,
    fetch,
    head::response_head::Fwd,
    log::{
        last_logged::LastSaid,
        request_meta,
        transaction::{self, Draft, Moment},
    },
    request::{Request, client_ip::Peer},
    states::{
        hit,
        pipe::{self, Pipe},
        respond::{Response, respond},
        state::{Slow, State, Trust},
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

    /// Reads once and answers all that can be answered from memory, up to a turn's work since it last had to wait.
    fn turn(&mut self, cx: &mut Context<'_>, length: Length) -> Poll<TurnOutcome> {
        let (work_max, read_max) = match length {
            Length::Long => (TURN_REQUESTS_MAX, usize::MAX),
            Length::Short => (TURN_REQUESTS_SHARED, READ_BYTES_SHARED),
            Length::Little => (TURN_REQUESTS_LITTLE, READ_BYTES_LITTLE),
        };
        self.had = 0;
        self.client.watch.task(cx.waker());
        // What is idle is closed, unless a request has come in just now.
        let closing = self.client.watch.expired();
        if closing && self.client.watch.phase() != Phase::Idle {
            return Poll::Ready(with_core(|core| self.time_is_up(core)));
        }
        with_core(|core| {
            let mut scratch = core.scratch.borrow_mut();
            let scratch = &mut *scratch;
            let mut have = self.client.pending.len();
            scratch.read[..have].copy_from_slice(&self.client.pending);
            // Bytes of it that hold no whole request, as far as they have been looked at.
            let mut seen = if std::mem::take(&mut self.unexamined) { 0 } else { have };
            loop {
                if self.spent >= work_max {
                    core.count(Counter::TurnsCut);
                    self.client.pending.clear();
                    self.client.pending.extend_from_slice(&scratch.read[..have]);
                    self.unexamined = seen < have;
                    self.client.watch.work();
                    return Poll::Ready(TurnOutcome::Cut);
                }
                if seen == have {
                    let room = &mut scratch.read[have..];
                    match self.client.transport.poll_read(cx, room, read_max) {
                        Poll::Pending if closing => return Poll::Ready(TurnOutcome::Closed),
                        Poll::Pending => {
                            self.spent = 0;
                            self.wait(core, &scratch.read[..have]);
                            return Poll::Pending;
                        }
                        Poll::Ready(Ok(read @ 1..)) => have += read,
                        Poll::Ready(_) => {
                            if have > 0 {
                                core.count(Counter::ClientsGoneInHead);
                            }
                            return Poll::Ready(TurnOutcome::Closed);
                        }
                    }
                }
                if self.may_be_http2 {
                    let there = have.min(PREFACE.len());
                    self.may_be_http2 = scratch.read[..there] == PREFACE[..there];
                    if self.may_be_http2 && have < PREFACE.len() {
                        seen = have;
                        continue;
                    }
                    if self.may_be_http2 {
                        self.client.pending.clear();
                        self.client.pending.extend_from_slice(&scratch.read[..have]);
                        return Poll::Ready(TurnOutcome::Http2);
                    }
                }
                // A head that comes byte by byte is parsed when it may be complete, not at each byte.
                let limits = head_limits(&core.config);
                let answered = if seen > 0 && !may_end_in(&scratch.read[..have], seen, &limits) {
                    AnswerProgress { bytes: 0, unexamined: false, work: 0, turned: None }
                } else {
                    self.answer_all(core, scratch, have, work_max - self.spent)
                };
                let AnswerProgress { bytes: answered, unexamined, work: more, turned } = answered;
                self.spent += more;
                self.had += more;
                if let Some(turned) = turned {
                    // What is behind the request that is being answered waits for its turn.
                    self.client.pending.clear();
                    self.client.pending.extend_from_slice(&scratch.read[answered..have]);
                    self.unexamined = !self.client.pending.is_empty();
                    return Poll::Ready(turned);
                }
                scratch.read.copy_within(answered..have, 0);
                have -= answered;
                seen = if unexamined { 0 } else { have };
            }
        })
    }

    /// Answers the requests in `scratch.read[..have]`, up to one that is sent by itself, at most so much work.
    fn answer_all(
        &mut self,
        core: &Core,
        scratch: &mut Scratch,
        have: usize,
        work_max: usize,
    ) -> AnswerProgress {
        let Scratch { read, head: stored_head, out, slots, key, drafts } = scratch;
        let limits = head_limits(&core.config);
        let proxies = &core.config.trusted_proxies[..];
        out.clear();
        let came = || self.client.transport.came().clone();
        let turn = core.reader.turn();
        let now_s = clock::unix_s();
        let moment = Moment::now();
        let given = self.client.sent_bytes;
        let (mut at, mut requests) = (0, 0);
        let mut stopped = None;
        // Begun when the turn is over and the answers are out.
        let mut refreshes = Vec::new();
        while at < have && stopped.is_none() && requests + out.len() / ANSWER_BYTES_A_REQUEST < work_max {
            let ((head, visitor), head_bytes) = match parse_request(&read[at..have], slots, &limits) {
                Ok(Progress::NeedMore) => break,
                Ok(Progress::Complete((head, bytes))) => (self.peer.asks(head, proxies), bytes),
                Err(error) => {
                    core.count(Counter::of_head_error(&error));
                    let draft = Draft::of_nothing(self.peer.address());
                    stopped = Some(StopReason::Refused(Fault::from(&error), draft));
                    break;
                }
            };
            let asked = AnswerContext::of(&head);
            let mut draft = request_meta::begin_http1(
                core,
                moment,
                (&head, &read[at..at + head_bytes]),
                visitor,
                self.client.transport.session(),
                &mut self.last_said,
            );
            let framing = match request_framing(&head) {
                Ok(framing) => framing,
                Err(error) => {
                    core.count(Counter::BadRequests);
                    stopped = Some(StopReason::Refused(Fault::from(error), draft));
                    break;
                }
            };
            at += head_bytes;
            requests += 1;
            core.count(Counter::Requests);
            self.requests += 1;
            if self.requests == core.config.limits.requests_per_connection_max {
                core.count(Counter::ConnectionsUsedUp);
                self.is_last = true;
            }
            let asked = AnswerContext { persists: asked.persists && !self.is_last, ..asked };
            if head.headers.len() > core.config.limits.request_headers_max {
                core.count(Counter::HeadsTooLarge);
                stopped = Some(StopReason::Refused(Fault::HeadTooLarge, draft));
                break;
            }
            if let Err(fault) = core.admit(visitor.address) {
                stopped = Some(StopReason::Refused(fault, draft));
                break;
            }
            if core.is_misdirected(self.client.transport.session(), &head) {
                core.count(Counter::Misdirected);
                stopped = Some(StopReason::Refused(Fault::Misdirected, draft));
                break;
            }
            let has_body = !matches!(framing, Framing::None | Framing::Length(0));
            let buffers = hit::Buffers { key: &mut *key, head: &mut *stored_head };
            let looked_up = hit::LookupRequest {
                head: &head,
                has_body,
                trust: Trust::Fresh,
                visitor,
                came: self.client.transport.came(),
                showing: hit::CodingChoice::Accepted,
            };
            match hit::answer(core, &turn, &looked_up, now_s, buffers) {
                Ok(answer) => {
                    let refresh = answer.refresh;
                    let before = given + out.len() as u64;
                    let sending = deliver::begin(core, answer, asked, out, (&mut draft, before));
                    let is_alone = sending.close || !matches!(sending.rest, Rest::None);
                    if is_alone || out.len() >= OUT_BYTES_MAX {
                        stopped = Some(StopReason::Sending(sending));
                    }
                    if let Some(keyed) = refresh {
                        let who = (visitor, came());
                        let mut request =
                            Request::new((&head, head_bytes), key, keyed, framing, who, &core.in_force);
                        request.trace = draft.trace();
                        refreshes.push(Arc::new(request));
                    }
                    if draft.is_some() {
                        drafts.push(draft);
                    }
                }
                Err(Slow { keyed, state, fwd }) => {
                    let who = (visitor, came());
                    let mut request =
                        Request::new((&head, head_bytes), key, keyed, framing, who, &core.in_force);
                    request.trace = draft.trace();
                    stopped = Some(StopReason::Slow(Arc::new(request), state, fwd, draft));
                }
            }
        }
        let work = requests + out.len() / ANSWER_BYTES_A_REQUEST;
        let is_stopped = stopped.is_some() || work >= work_max;
        let turned = self.write_out(core, out, stopped);
        transaction::end_sent(drafts, self.client.sent_bytes, &mut self.drafts);
        drop(turn);
        refreshes.into_iter().for_each(|request| fetch::refresh(core, request));
        // The socket took at once the body that the requests behind it were kept back for.
        let unexamined = is_stopped && turned.is_none();
        AnswerProgress { bytes: at, unexamined, work, turned }
    }

    /// Writes what was gathered, once; what the socket refuses is left to be sent.
    fn write_out(&mut self, core: &Core, out: &[u8], stopped: Option<StopReason>) -> Option<TurnOutcome> {
        if let Some(StopReason::Sending(Remainder {
            rest: Rest::Pinned { mut object, from, to, ending },
            close,
            head_bytes,
        })) = stopped
        {
            let Ok((prefix_sent, from)) = send::now(core, &mut self.client, out, &object, from, to) else {
                core.count(Counter::ClientsGone);
                return Some(TurnOutcome::Closed);
            };
            let is_done = from == to && prefix_sent == out.len() && !ending.takes_trailers();
            if is_done && self.client.transport.is_flushed() {
                return close.then_some(TurnOutcome::Closed);
            }
            object.release_before(from);
            let prefix = out[prefix_sent..].to_vec();
            let rest = Rest::Pinned { object, from, to, ending };
            return Some(TurnOutcome::Sending { prefix, sending: Remainder { head_bytes, rest, close } });
        }
        let sent = match out {
            [] => 0,
            out => match self.client.try_send(&[Part::Plain(out)]) {
                Ok(sent) => sent,
                Err(_) => {
                    core.count(Counter::ClientsGone);
                    return Some(TurnOutcome::Closed);
                }
            },
        };
        let rest = &out[sent..];
        let is_sent = rest.is_empty() && self.client.transport.is_flushed();
        match stopped {
            None if is_sent => None,
            None => Some(TurnOutcome::Sending { prefix: rest.to_vec(), sending: Remainder::nothing(false) }),
            Some(StopReason::Sending(sending)) if is_sent && !sending.close && sending.is_done() => None,
            Some(StopReason::Sending(sending)) => {
                Some(TurnOutcome::Sending { prefix: rest.to_vec(), sending })
            }
            Some(StopReason::Slow(request, state, fwd, draft)) => {
                Some(TurnOutcome::Slow { before: rest.to_vec(), request, state, fwd, draft })
            }
            Some(StopReason::Refused(fault, draft)) => {
                Some(TurnOutcome::Refused { before: rest.to_vec(), fault, draft })
            }
        }
    }

    /// Keeps what there is of a head, and notes until when the rest must come.
    fn wait(&mut self, core: &Core, unfinished: &[u8]) {
        let watch = &self.client.watch;
        if unfinished.is_empty() {
            // An idle connection holds no memory.
            self.client.pending = Vec::new();
            watch.wait(Phase::Idle, clock::monotonic_ms(), core.config.limits.idle_time_max);
            return;
        }
        self.client.pending.clear();
        self.client.pending.extend_from_slice(unfinished);
        if watch.phase() != Phase::Head {
            watch.wait(Phase::Head, clock::monotonic_ms(), core.config.limits.request_head_time_max);
        }
    }

    /// The sweep found this connection's deadline passed, or a drain ends it.
    fn time_is_up(&self, core: &Core) -> TurnOutcome {
        match self.client.watch.phase() {
            Phase::Head => {
                core.count(Counter::SlowHeads);
                self.client.watch.renew();
                let draft = Draft::of_nothing(self.peer.address());
                TurnOutcome::Refused { before: Vec::new(), fault: Fault::RequestTimeout, draft }
            }
            _ => TurnOutcome::Closed,
        }
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
