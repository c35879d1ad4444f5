//! One turn of the event loop on an HTTP/1 connection: reads once and answers all requests that memory can answer.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use engine::{
    cores::{clock, watch::Phase},
    sys::span::Part,
};
use wire::{
    http1::{
        framing::Framing,
        head::{Progress, may_end_in, parse_request},
    },
    http2::frame::PREFACE,
};

use super::{
    ANSWER_BYTES_A_REQUEST, AnswerProgress, Connection, OUT_BYTES_MAX, READ_BYTES_LITTLE, READ_BYTES_SHARED,
    StopReason, TURN_REQUESTS_LITTLE, TURN_REQUESTS_MAX, TURN_REQUESTS_SHARED, TurnOutcome, head_limits,
};
use crate::{
    client::{front, limits::turns::Length},
    core::{Core, Scratch, with_core},
    counters::Counter,
    deliver::{self, AnswerContext, Remainder, Rest, send, sink::TrySend},
    error_page::Fault,
    fetch,
    log::{
        request_meta,
        transaction::{self, Draft, Moment},
    },
    request::{Request, Sender},
    states::{
        hit,
        state::{Slow, Trust},
    },
};

impl Connection {
    /// Reads once and answers every request that can be answered from memory, within one turn's budget, which
    /// is counted from the connection's last wait.
    #[inline]
    pub(super) fn turn(&mut self, cx: &mut Context<'_>, length: Length) -> Poll<TurnOutcome> {
        let (work_max, read_max) = match length {
            Length::Long => (TURN_REQUESTS_MAX, usize::MAX),
            Length::Short => (TURN_REQUESTS_SHARED, READ_BYTES_SHARED),
            Length::Little => (TURN_REQUESTS_LITTLE, READ_BYTES_LITTLE),
        };
        self.had = 0;
        self.client.watch.task(cx.waker());
        // An idle connection is closed, unless a request has just arrived.
        let closing = self.client.watch.expired();
        if closing && self.client.watch.phase() != Phase::Idle {
            return Poll::Ready(with_core(|core| self.time_is_up(core)));
        }
        with_core(|core| self.read_and_answer(core, cx, work_max, read_max, closing))
    }

    /// Reads, and answers the requests that have arrived, until the turn's budget is spent, nothing more has
    /// arrived, or an answer needs more than memory. `closing` means that the connection ends if nothing has
    /// arrived.
    #[inline]
    fn read_and_answer(
        &mut self,
        core: &Core,
        cx: &mut Context<'_>,
        work_max: usize,
        read_max: usize,
        closing: bool,
    ) -> Poll<TurnOutcome> {
        let mut scratch = core.buffers.scratch.borrow_mut();
        let scratch = &mut *scratch;
        let mut have = self.client.pending.len();
        scratch.read[..have].copy_from_slice(&self.client.pending);
        // Number of bytes that were parsed without finding a whole request.
        let mut seen = if std::mem::take(&mut self.unexamined) { 0 } else { have };
        loop {
            if self.spent >= work_max {
                core.count(Counter::TurnsCut);
                self.keep(&scratch.read[..have]);
                self.unexamined = seen < have;
                self.client.watch.work();
                return Poll::Ready(TurnOutcome::Cut);
            }
            if seen == have {
                match self.client.transport.poll_read(cx, &mut scratch.read[have..], read_max) {
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
                    self.keep(&scratch.read[..have]);
                    return Poll::Ready(TurnOutcome::Http2);
                }
            }
            // A head that arrives byte by byte is parsed when it may be complete, not at each byte.
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
                // Bytes after the request that is being answered are kept.
                self.keep(&scratch.read[answered..have]);
                self.unexamined = !self.client.pending.is_empty();
                return Poll::Ready(turned);
            }
            scratch.read.copy_within(answered..have, 0);
            have -= answered;
            seen = if unexamined { 0 } else { have };
        }
    }

    /// Keeps received bytes for the next turn.
    #[inline]
    fn keep(&mut self, received: &[u8]) {
        self.client.pending.clear();
        self.client.pending.extend_from_slice(received);
    }

    /// Answers the requests in `scratch.read[..have]`, up to an answer that needs a write of its own, within
    /// a budget of `work_max` requests.
    fn answer_all(
        &mut self,
        core: &Core,
        scratch: &mut Scratch,
        have: usize,
        work_max: usize,
    ) -> AnswerProgress {
        let Scratch { read, head: stored_head, out, slots, key, drafts } = scratch;
        let limits = head_limits(&core.config);
        out.clear();
        let sender = |visitor| Sender { visitor, auth: self.client.transport.client_auth().clone() };
        let turn = core.storage.reader.turn();
        let (now_s, moment) = (clock::unix_s(), Moment::now());
        let (mut at, mut requests, mut stopped) = (0, 0, None);
        // Refreshes begin when the turn is over and the answers are written.
        let mut refreshes = Vec::new();
        while at < have && stopped.is_none() && requests + out.len() / ANSWER_BYTES_A_REQUEST < work_max {
            let ((head, visitor), head_bytes) = match parse_request(&read[at..have], slots, &limits) {
                Ok(Progress::NeedMore) => break,
                Ok(Progress::Complete((head, bytes))) => {
                    (self.peer.asks(head, &core.config.trusted_proxies), bytes)
                }
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
                &head,
                &read[at..at + head_bytes],
                visitor,
                self.client.transport.session(),
                &mut self.last_said,
            );
            let framing = match front::framing(core, &head) {
                Ok(framing) => framing,
                Err(fault) => {
                    stopped = Some(StopReason::Refused(fault, draft));
                    break;
                }
            };
            at += head_bytes;
            requests += 1;
            self.is_last |= front::count_request(core, &mut self.requests);
            let asked = AnswerContext { persists: asked.persists && !self.is_last, ..asked };
            if let Err(fault) = front::admit(core, &head, visitor.address, self.client.transport.session()) {
                stopped = Some(StopReason::Refused(fault, draft));
                break;
            }
            let buffers = hit::Buffers { key: &mut *key, head: &mut *stored_head };
            let looked_up = hit::LookupRequest {
                head: &head,
                has_body: !matches!(framing, Framing::None | Framing::Length(0)),
                trust: Trust::Fresh,
                visitor,
                came: self.client.transport.client_auth(),
                showing: hit::CodingChoice::Accepted,
            };
            match hit::answer(core, &turn, &looked_up, now_s, buffers) {
                Ok(answer) => {
                    let refresh = answer.refresh;
                    let before = self.client.sent_bytes + out.len() as u64;
                    let sending = deliver::begin(core, answer, asked, out, &mut draft, before);
                    let is_alone = sending.close || !matches!(sending.rest, Rest::None);
                    if is_alone || out.len() >= OUT_BYTES_MAX {
                        stopped = Some(StopReason::Sending(sending));
                    }
                    if let Some(keyed) = refresh {
                        let who = sender(visitor);
                        let mut request =
                            Request::new(&head, head_bytes, key, keyed, framing, who, &core.in_force);
                        request.trace = draft.trace();
                        refreshes.push(Arc::new(request));
                    }
                    drafts.extend(draft.is_some().then_some(draft));
                }
                Err(Slow { keyed, state, fwd }) => {
                    let who = sender(visitor);
                    let mut request =
                        Request::new(&head, head_bytes, key, keyed, framing, who, &core.in_force);
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
        // The socket accepted the whole body at once, so the following requests can be parsed.
        let unexamined = is_stopped && turned.is_none();
        AnswerProgress { bytes: at, unexamined, work, turned }
    }

    /// Writes the gathered answers once. If the socket does not accept all, the outcome holds the rest.
    #[inline]
    fn write_out(&mut self, core: &Core, out: &[u8], stopped: Option<StopReason>) -> Option<TurnOutcome> {
        if let Some(StopReason::Sending(Remainder {
            rest: Rest::Pinned { mut object, from, to, ending },
            close,
            head_bytes,
        })) = stopped
        {
            let Ok((prefix_sent, from)) =
                send::send_without_waiting(core, &mut self.client, out, &object, from, to)
            else {
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

    /// Keeps the beginning of a head, and sets the deadline for the rest.
    #[inline]
    pub(super) fn wait(&mut self, core: &Core, unfinished: &[u8]) {
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

    /// Handles a deadline that the sweep found to have passed, or a drain that ends the connection.
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
}
