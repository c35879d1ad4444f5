//! An SMTP or LMTP connection: reads, runs the session on the bytes, waits until the session's mails are
//! stored, and writes all replies at once.
//!
//! ```text
//!   wait ──readable──▶ read into the core's scratch ─▶ Session::handle_input ─▶ mails: wait until they are kept ─▶ write ─▶ wait
//!                        (no .await, no lock)                             (one write of the log for all sessions)
//! ```
//! A session that waits for its peer holds no buffer except for an incomplete line that it has received.

use std::{
    future::poll_fn,
    net::SocketAddr,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use engine::cores::{
    clock,
    fair::Member,
    watch::{Phase, Watch},
};
use tokio::net::TcpStream;
use wire::{proxy, smtp::reply::Reply};

use super::{
    ListenerKind,
    session::{
        SESSION_OVER, SLOW_MAIL, STOPPING, Session, TIMEOUT, TOO_MANY_CONNECTIONS, TurnEnd, TurnOutcome,
    },
    stream::Stream,
};
use crate::{
    abuse::{self, ConnectionSlot, Judgement},
    counters::Counter,
    mailbox::mailboxes::MailId,
    store::core::{Core, READ_BYTES},
};

/// A connection that sends this much in one turn must from then on share turns with the other connections
/// from its address (`engine::cores::fair`), until it sends less. A turn stops reading from a connection once
/// it has read this much.
const MUCH_BYTES: usize = READ_BYTES / 2;
/// Interval between attempts to store a mail that waits for room.
pub(crate) const ROOM_EVERY: Duration = Duration::from_millis(5);
/// Factor by which a part of a large mail may wait longer for room than a whole mail.
const PART_ROOM_TIMES: u32 = 5;
/// Maximum amount and duration of input that is discarded after the last reply, so that a reset does not
/// destroy the reply.
const LINGER_BYTES_MAX: usize = 1 << 20;
/// Memory of a connection without its mail, and of its TLS state, measured and rounded up.
const CONNECTION_BYTES: usize = 4 << 10;
const TLS_BYTES: usize = 20 << 10;
const LINGER_TIME_MAX: Duration = Duration::from_secs(2);

/// Memory charged to the core until this guard is dropped.
struct MemoryCharge {
    core: Rc<Core>,
    bytes: usize,
}

impl MemoryCharge {
    fn new(core: &Rc<Core>, bytes: usize) -> Self {
        core.clients.connection_memory.add(bytes);
        Self { core: Rc::clone(core), bytes }
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.core.clients.connection_memory.give_back(self.bytes);
    }
}

/// Registration of a connection with its core. Dropping the guard removes the registration, however the task
/// ends.
struct ConnectionGuard {
    core: Rc<Core>,
    watch: Rc<Watch>,
    number: usize,
    _memory: MemoryCharge,
    _open: Option<ConnectionSlot>,
}

impl ConnectionGuard {
    fn new(core: &Rc<Core>, watch: &Rc<Watch>) -> Self {
        core.shared.balance.opened(core.number);
        core.observers.counters.set(Counter::Connections, core.shared.balance.held(core.number) as u64);
        core.note_memory();
        let number = core.clients.watches.borrow_mut().add(Rc::clone(watch));
        core.rounds.stir();
        Self {
            core: Rc::clone(core),
            watch: Rc::clone(watch),
            number,
            _memory: MemoryCharge::new(core, CONNECTION_BYTES),
            _open: None,
        }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.core.clients.watches.borrow_mut().remove(self.number);
        self.watch.work();
        self.core.shared.balance.closed(self.core.number);
        self.core.note_memory();
        self.core
            .observers
            .counters
            .set(Counter::Connections, self.core.shared.balance.held(self.core.number) as u64);
    }
}

struct Connection {
    core: Rc<Core>,
    stream: Stream,
    /// Memory charge of the TLS state.
    tls_memory: Option<MemoryCharge>,
    watch: Rc<Watch>,
    /// Bytes that were read but not consumed yet.
    pending: Vec<u8>,
    /// True if the session has not seen `pending` yet.
    unexamined: bool,
    /// True if the last turn read at least `MUCH_BYTES`.
    brings_much: bool,
    /// Monotonic time at which the session reaches its maximum duration.
    until_ms: u64,
    /// The mail being received, and its deadline.
    coming: Option<(MailId, u64)>,
}

/// Result of a wait for bytes.
enum WaitOutcome {
    /// The session processed the bytes that were read.
    Turned(TurnOutcome, TurnEnd),
    /// The session processed bytes without a reply; there may be more bytes to read.
    Over,
    /// The peer has closed the connection.
    Gone,
    /// A deadline has passed, or a drain has ended the wait.
    Expired,
}

/// Serves a connection until it closes.
pub(crate) async fn serve(core: Rc<Core>, stream: TcpStream, address: SocketAddr, kind: ListenerKind) {
    let watch = Watch::new();
    let mut booked = ConnectionGuard::new(&core, &watch);
    let mut connection = Connection {
        core: Rc::clone(&core),
        stream: Stream::Plain(stream),
        tls_memory: None,
        watch,
        pending: Vec::new(),
        unexamined: false,
        brings_much: false,
        until_ms: clock::monotonic_ms().saturating_add(millis(core.config().limits.session_time_max)),
        coming: None,
    };
    let mut peer = address.ip().to_canonical();
    if core.config().proxy_protocol && kind != ListenerKind::Smtps {
        match connection.proxy_header().await {
            Some(said) => peer = said.map_or(peer, |said| said.ip().to_canonical()),
            None => return core.count(Counter::BadProxyHeaders),
        }
    }
    let (refusal, slow) = admit(&core, peer, &mut booked);
    if let Some(reply) = refusal {
        // With implicit TLS the reply would cost a handshake.
        if kind != ListenerKind::Smtps {
            connection.close_with(reply).await;
        }
        return;
    }
    if kind == ListenerKind::Smtps && !connection.begin_tls().await {
        return;
    }
    let mut session = Session::new(&core, peer, kind);
    let mut turn = TurnOutcome { slow, ..TurnOutcome::default() };
    session.greet(core.config(), &mut turn.out);
    let member = core.clients.turns.join(peer);
    connection.run_session(&mut session, &member, turn).await;
    if session.forget(&core) && session.dialog.is_receiving() {
        core.count(Counter::GoneInMail);
    }
}

/// Decides whether a peer is refused and with which reply, and whether its replies are delayed.
fn admit(core: &Rc<Core>, peer: std::net::IpAddr, booked: &mut ConnectionGuard) -> (Option<Reply>, bool) {
    let is_full = core.shared.balance.held(core.number) > core.config().limits.connections_max;
    if is_full || !core.clients.connection_memory.has_room(0) {
        core.count(Counter::ConnectionsRefused);
        return (Some(TOO_MANY_CONNECTIONS), false);
    }
    let abuse = core.clients.abuse.borrow();
    match abuse.connection(peer, core.now_ms()) {
        Judgement::Refuse(reply, counter) => {
            core.count(counter);
            (Some(reply), false)
        }
        judgement => match abuse.peers.open(peer) {
            None => {
                core.count(Counter::AddressConnectionsRefused);
                (Some(abuse::CONNECTIONS_OPEN), false)
            }
            open => {
                booked._open = open;
                (None, judgement == Judgement::Slow)
            }
        },
    }
}

impl Connection {
    /// Runs the whole session, beginning with the greeting.
    async fn run_session(&mut self, session: &mut Session, member: &Member, first: TurnOutcome) {
        let core = Rc::clone(&self.core);
        let (mut turn, mut stop) = (first, TurnEnd::Read);
        loop {
            if stop == TurnEnd::Room {
                stop = self.retry_append(session, &mut turn).await;
            }
            // The replies tell the peer which mails were not stored.
            let _ = turn.settle(&core).await;
            if turn.slow && !core.config().rates.tarpit.is_zero() {
                core.count(Counter::Tarpitted);
                tokio::time::sleep(core.config().rates.tarpit).await;
            }
            if stop == TurnEnd::Read && core.is_draining.get() && session.dialog.is_idle() {
                STOPPING.write(&mut turn.out);
                stop = TurnEnd::Close;
            }
            if !self.send(&turn.out).await {
                return;
            }
            turn.end(&core);
            match stop {
                // The peer reads nothing after the reply to QUIT, so an immediate close saves both sides a
                // wait.
                TurnEnd::Quit if self.pending.is_empty() => return,
                TurnEnd::Quit | TurnEnd::Close => return self.drain_input().await,
                TurnEnd::StartTls => {
                    // Commands pipelined in clear text after STARTTLS are discarded (RFC 3207, 6).
                    self.pending.clear();
                    self.unexamined = false;
                    if !self.begin_tls().await {
                        return;
                    }
                    session.dialog.tls_begun();
                }
                TurnEnd::Read | TurnEnd::Room => {}
            }
            (turn, stop) = match self.next_turn(session, member).await {
                WaitOutcome::Turned(turn, stop) => (turn, stop),
                WaitOutcome::Over => unreachable!("a turn with nothing to be said is followed by another"),
                WaitOutcome::Gone => return,
                WaitOutcome::Expired => {
                    self.watch.renew();
                    let (reply, counter) = match () {
                        () if core.is_draining.get() => (STOPPING, None),
                        () if self.is_mail_slow() => (SLOW_MAIL, Some(Counter::SlowMails)),
                        () if self.is_late() => (SESSION_OVER, Some(Counter::LongSessions)),
                        () => (TIMEOUT, Some(Counter::Timeouts)),
                    };
                    counter.into_iter().for_each(|counter| core.count(counter));
                    return self.close_with(reply).await;
                }
            };
        }
    }

    /// Waits for bytes and runs the session on them.
    async fn next_turn(&mut self, session: &mut Session, member: &Member) -> WaitOutcome {
        let idle = self.pending.is_empty() && session.dialog.is_idle();
        let phase = if idle { Phase::Idle } else { Phase::Head };
        self.set_deadline(phase, session);
        if self.is_mail_slow() {
            return WaitOutcome::Expired;
        }
        loop {
            let woken = match self.brings_much {
                true => self.take_turn(session, member).await,
                false => None,
            };
            match woken {
                Some(WaitOutcome::Over) => {}
                Some(woken) => return woken,
                None => match poll_fn(|cx| self.poll_next(cx, session)).await {
                    WaitOutcome::Over => {}
                    woken => return woken,
                },
            }
        }
    }

    /// Waits until this connection may run among the connections from its address, then processes the
    /// available bytes; `None` if there are none.
    async fn take_turn(&mut self, session: &mut Session, member: &Member) -> Option<WaitOutcome> {
        self.brings_much = false;
        let core = Rc::clone(&self.core);
        let note_wait = || core.count(Counter::TurnsWaited);
        member.poll_in_turn(note_wait, |cx| self.poll_next(cx, session)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, session: &mut Session) -> Poll<WaitOutcome> {
        let core = Rc::clone(&self.core);
        self.watch.task(cx.waker());
        if self.watch.expired() {
            return Poll::Ready(WaitOutcome::Expired);
        }
        let mut scratch = core.buffers.scratch.borrow_mut();
        let polled = self.poll_turn(cx, session, &core, &mut scratch);
        // Further bytes of a mail do not extend the time limit of the mail.
        if !matches!(polled, Poll::Pending | Poll::Ready(WaitOutcome::Over)) {
            self.watch.work();
        }
        polled
    }

    fn poll_turn(
        &mut self,
        cx: &mut Context<'_>,
        session: &mut Session,
        core: &Core,
        scratch: &mut [u8],
    ) -> Poll<WaitOutcome> {
        let mut brought = 0;
        loop {
            let before = self.pending.len();
            scratch[..before].copy_from_slice(&self.pending);
            let mut filled = before;
            if !std::mem::take(&mut self.unexamined) {
                match self.stream.poll_read(cx, &mut scratch[before..before + READ_BYTES]) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(WaitOutcome::Gone),
                    Poll::Ready(Ok(bytes)) => {
                        filled += bytes;
                        brought += bytes;
                        self.brings_much = brought >= MUCH_BYTES;
                    }
                }
            }
            let mut turn = TurnOutcome::begin(core);
            session.is_late = self.is_late();
            let (used, stop) = session.handle_input(core, &scratch[..filled], core.now_ms(), &mut turn);
            let rest = &scratch[used..filled];
            if rest.is_empty() {
                // A waiting session holds no memory.
                self.pending = Vec::new();
            } else {
                self.pending.clear();
                self.pending.extend_from_slice(rest);
            }
            self.unexamined = stop == TurnEnd::Room && !rest.is_empty();
            if stop != TurnEnd::Read || !turn.out.is_empty() {
                return Poll::Ready(WaitOutcome::Turned(turn, stop));
            }
            turn.end(core);
            // Further bytes of a mail restart the silence timer. A command that comes a byte at a time does
            // not.
            if session.dialog.is_receiving() {
                self.set_deadline(Phase::Body, session);
                if self.is_mail_slow() {
                    return Poll::Ready(WaitOutcome::Expired);
                }
            }
            if self.brings_much {
                return Poll::Ready(WaitOutcome::Over);
            }
        }
    }

    /// Returns whether the mail being received is past its deadline. The deadlines of waits do not stop a
    /// peer that always has bytes ready, because the connection never waits for such a peer.
    fn is_mail_slow(&self) -> bool {
        self.coming.is_some_and(|(_, until_ms)| until_ms <= clock::monotonic_ms())
    }

    /// Returns whether the session has reached its maximum duration.
    fn is_late(&self) -> bool {
        self.until_ms <= clock::monotonic_ms()
    }

    /// Sets the deadline of the next wait: for the next command, for more of a mail, or for the whole mail.
    fn set_deadline(&mut self, phase: Phase, session: &Session) {
        let limits = &self.core.config().limits;
        let now_ms = clock::monotonic_ms();
        let begun = |coming: MailId| self.coming.filter(|(id, _)| *id == coming);
        self.coming = session
            .incoming_mail()
            .map(|id| begun(id).unwrap_or((id, now_ms.saturating_add(millis(limits.mail_time_max)))));
        let silence = match session.dialog.is_receiving() {
            true => limits.data_time_max,
            false => limits.command_time_max,
        };
        let until_ms = self.coming.map_or(self.until_ms, |(_, until_ms)| until_ms);
        let rest = Duration::from_millis(until_ms.saturating_sub(now_ms));
        self.watch.wait(phase, now_ms, rest.min(silence));
    }

    /// Retries storing a mail until there is room or the time is up.
    async fn retry_append(&mut self, session: &mut Session, turn: &mut TurnOutcome) -> TurnEnd {
        let core = Rc::clone(&self.core);
        let mut room_time = core.config().limits.room_time_max;
        if !session.is_whole() {
            // Part of a large mail: the session may be waiting for the disk to keep up.
            room_time *= PART_ROOM_TIMES;
        }
        let until_ms = clock::monotonic_ms().saturating_add(millis(room_time));
        core.count(Counter::Waits);
        loop {
            core.make_room();
            tokio::time::sleep(ROOM_EVERY).await;
            match session.resume_mail(&core, core.now_ms(), turn) {
                None => return TurnEnd::Read,
                Some(TurnEnd::Room) if clock::monotonic_ms() < until_ms => {}
                Some(TurnEnd::Room) => return session.give_up_mail(&core, turn),
                Some(stop) => return stop,
            }
        }
    }

    /// Sends all of `bytes`; returns false if the peer is gone or does not read.
    async fn send(&mut self, mut bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            return true;
        }
        self.watch.wait(Phase::Send, clock::monotonic_ms(), self.core.config().limits.reply_time_max);
        let sent = poll_fn(|cx| {
            self.watch.task(cx.waker());
            loop {
                match self.stream.poll_write(cx, bytes) {
                    Poll::Pending if self.watch.expired() => {
                        self.core.count(Counter::Stalled);
                        return Poll::Ready(false);
                    }
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(_) | Ok(0)) => return Poll::Ready(false),
                    Poll::Ready(Ok(sent)) => bytes = &bytes[sent..],
                }
                if bytes.is_empty() {
                    return Poll::Ready(true);
                }
            }
        })
        .await;
        self.watch.work();
        sent
    }

    async fn close_with(&mut self, reply: Reply) {
        let mut out = Vec::new();
        reply.write(&mut out);
        if self.send(&out).await {
            self.drain_input().await;
        }
    }

    /// Closes only after the peer could read the last reply: closing with unread bytes would reset the
    /// connection.
    async fn drain_input(&mut self) {
        let drain = async {
            if poll_fn(|cx| self.stream.poll_shutdown(cx)).await.is_err() {
                return;
            }
            let mut thrown_away = 0;
            while thrown_away < LINGER_BYTES_MAX {
                let read = poll_fn(|cx| {
                    let mut scratch = self.core.buffers.scratch.borrow_mut();
                    self.stream.poll_read(cx, &mut scratch)
                });
                match read.await {
                    Ok(0) | Err(_) => break,
                    Ok(bytes) => thrown_away += bytes,
                }
            }
        };
        // The connection ends in either case: the peer closes, or the time is up.
        let _ = tokio::time::timeout(LINGER_TIME_MAX, drain).await;
    }

    /// Runs the TLS handshake; returns false if it fails.
    async fn begin_tls(&mut self) -> bool {
        let core = Rc::clone(&self.core);
        let Some(acceptor) = &core.shared.tls else { return false };
        let Stream::Plain(stream) = std::mem::replace(&mut self.stream, Stream::Between) else {
            return false;
        };
        self.tls_memory = Some(MemoryCharge::new(&core, TLS_BYTES));
        let handshake =
            tokio::time::timeout(core.config().limits.handshake_time_max, acceptor.accept(stream));
        match handshake.await {
            Ok(Ok(stream)) => {
                core.count(Counter::TlsSessions);
                self.stream = Stream::Tls(Box::new(stream));
                true
            }
            _ => {
                core.count(Counter::TlsFailures);
                false
            }
        }
    }

    /// Reads the PROXY header and returns the peer address in it; the outer `None` means an invalid header.
    async fn proxy_header(&mut self) -> Option<Option<SocketAddr>> {
        self.watch.wait(Phase::Idle, clock::monotonic_ms(), self.core.config().limits.handshake_time_max);
        let core = Rc::clone(&self.core);
        let header = poll_fn(|cx| {
            self.watch.task(cx.waker());
            loop {
                if self.watch.expired() {
                    return Poll::Ready(None);
                }
                match proxy::header(&self.pending) {
                    proxy::Header::Wrong => return Poll::Ready(None),
                    proxy::Header::Whole { bytes, peer, .. } => {
                        self.pending.drain(..bytes);
                        return Poll::Ready(Some(peer));
                    }
                    proxy::Header::NeedMore => {
                        let mut scratch = core.buffers.scratch.borrow_mut();
                        let room = proxy::HEADER_BYTES_MAX;
                        match self.stream.poll_read(cx, &mut scratch[..room]) {
                            Poll::Pending => return Poll::Pending,
                            Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(None),
                            Poll::Ready(Ok(bytes)) => self.pending.extend_from_slice(&scratch[..bytes]),
                        }
                    }
                }
            }
        })
        .await;
        self.unexamined = !self.pending.is_empty();
        self.watch.work();
        header
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
