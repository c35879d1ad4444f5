//! Backpressure: a consumer that reads more slowly than messages arrive slows its producers down; if that is
//! not enough, it is disconnected.
//!
//! ```text
//!   bytes of the consumer's backlog
//!   0 ── 1/16: noted ─────── low watermark 11/16 ──── high watermark ¾ ──── max_pending
//!        │                         │                       │                    └─ cut off at once
//!        │                         │                       └─ producers of a sixteenth of it or more are held: 20 ms at a time …
//!        │                         └─ … until it falls to this level; or, after producer_hold_max, the consumer is cut off
//!        └─ from here on the server records how much each producer adds (`contributions`) and how much the consumer reads
//! ```
//!
//! *A hold* pauses a producer's reads for [`HOLD`], or for a part of it. A producer that added less than half
//! as much to the backlog as the largest one is held for a proportional part of that time. A producer with
//! less than a sixteenth of the backlog is never held. A hold is extended by another [`HOLD`] only if the
//! consumer has paid for it by reading: a second of holds costs a sixteenth of `max_pending`. So by default a
//! consumer that reads 4 MiB per second slows its producers down to that rate, and loses nothing. A consumer
//! that reads nothing may hold the producers that filled its backlog only once, for [`HOLD`], and only while
//! its address has a free hold left (`free_holds`); so a client that reconnects again and again holds nobody.
//! The bytes that a connection has read since its last backlog count as credit for the next one.
//!
//! Answers to the client's own operations (`PONG`, `+OK`, `-ERR`, 503) count towards the same bound. Above a
//! sixteenth of it the client's own reads are paused, so that a client that pipelines and reads late is
//! slowed and not cut off. The answers to one operation may exceed this watermark. The errors for a run of
//! messages that are refused one by one may exceed even `max_pending`; then the client is cut off.
//!
//! *`write_deadline`.* In each period of that length a client must read the backlog that it had when the
//! period began, up to a sixteenth of `max_pending`; then the next period begins. So reading a little now and
//! then is not enough: with the defaults it must read everything, or 4 MiB in ten seconds. nats-server
//! demands that everything queued when a write began is read (up to `max_pending`, within the deadline),
//! which a live but slow consumer may fail to do.
//!
//! *In total.* `max_pending_total` bounds the backlogs of all clients together (`share`). While more than
//! half of it is used, the watermarks are computed from a sixteenth of `max_pending`, so that many live
//! consumers are slowed down before one is cut off.
//!
//! A producer on another core is held by a record sent to that core (`links`). Messages that the producer
//! sends before the record arrives fit between the high watermark and the bound.

use std::{rc::Rc, time::Duration};

use engine::{accounts::ClientKey, cores::clock};

use crate::{
    client::{
        connection::{CloseReason, ConnId, Connection, FOREIGN},
        transaction,
    },
    counters::Counter,
    delivery::{
        backlog::{ConsumerBacklog, HOLD, Hold, HoldCredit, Marks},
        outputs::Outputs,
        producer::Producer,
    },
    mesh::{core::Local, links::Links},
};

impl Outputs {
    /// Notes that `producer` has sent `bytes` bytes to the consumer `id`, whose backlog is above the lowest
    /// watermark. Above the high watermark the producer may be held.
    #[cold]
    pub(crate) fn note_backlog(
        &mut self,
        id: ConnId,
        producer: Producer,
        bytes: usize,
        now_ms: u64,
        links: &mut Links,
    ) {
        let Marks { high, due, hold_price, .. } = self.marks;
        let is_here = usize::from(producer.core) == self.core;
        let connection = &mut *self.connections[id];
        if connection.closing.is_some() {
            return;
        }
        let (waits, written) = (connection.outbox.bytes(), connection.outbox.written_bytes());
        let is_new = connection.backlog.is_none();
        let left = connection.hold_credit;
        let backlog = connection.backlog.get_or_insert_with(|| Box::new(ConsumerBacklog::new(written, left)));
        if is_new {
            self.slow.over_mark.push(id);
            self.rounds.stir();
        }
        backlog.contributions.add(producer, bytes, waits);
        // A client that publishes to itself is not held, because it would wait for itself; nor are the
        // program's own messages, which have no connection.
        let is_own = is_here && producer.conn == id;
        if waits <= high || is_own || producer.conn >= FOREIGN {
            return;
        }
        if backlog.holds.iter().any(|hold| hold.producer == producer) {
            return;
        }
        let Some(part) = backlog.contributions.part_of(producer) else { return };
        backlog.credit_written(written, due);
        let mut may_hold = backlog.may_hold(hold_price, now_ms);
        if !may_hold && std::mem::take(&mut backlog.may_ask_address) {
            // All of loopback counts as one address here; otherwise each new connection from loopback would
            // be a new client with free holds.
            if self.slow.free_holds.take(ClientKey::of(connection.address.ip()), now_ms) {
                backlog.credit += hold_price;
                may_hold = backlog.may_hold(hold_price, now_ms);
            }
        }
        if !may_hold {
            self.counters.add(Counter::HoldsInVain, 1);
            return;
        }
        let until_ms = (part.bytes < part.largest / 2)
            .then(|| now_ms + (HOLD.as_millis() as u64 * part.bytes / part.largest).max(1));
        backlog.holds.push(Hold { producer, until_ms });
        backlog.held_since.get_or_insert((now_ms, written));
        self.slow.hold_begun.notify_one();
        if is_here {
            self.held(producer);
        } else {
            links.hold(producer);
        }
    }

    /// Releases producers whose hold has ended, and extends the holds whose consumer has read enough. Returns
    /// the time at which the next hold ends.
    pub(crate) fn end_holds(&mut self, now_ms: u64, links: &mut Links) -> Option<u64> {
        let Marks { due, hold_price, .. } = self.marks;
        let mut due_ms: Option<u64> = None;
        let mut released: Vec<Producer> = Vec::new();
        for &id in &self.slow.over_mark {
            let connection = &mut *self.connections[id];
            let written = connection.outbox.written_bytes();
            let Some(backlog) = connection.backlog.as_deref_mut() else { continue };
            if backlog.holds.is_empty() {
                continue;
            }
            backlog.credit_written(written, due);
            let is_open = backlog.may_hold(hold_price, now_ms);
            released.extend(
                backlog
                    .holds
                    .extract_if(.., |hold| hold.until_ms.map_or(!is_open, |until_ms| until_ms <= now_ms))
                    .map(|hold| hold.producer),
            );
            due_ms = due_ms.into_iter().chain(backlog.due_ms()).min();
        }
        released.into_iter().for_each(|producer| self.release(producer, links));
        due_ms
    }

    fn release(&mut self, producer: Producer, links: &mut Links) {
        if usize::from(producer.core) == self.core {
            self.let_go(producer);
        } else {
            links.release(producer);
        }
    }

    /// Notes that a consumer holds a producer of this core.
    pub(crate) fn held(&mut self, producer: Producer) {
        if let Some(connection) = self.connections.find_mut(producer.conn).filter(|c| c.cid == producer.cid) {
            connection.holds += 1;
            self.counters.add(Counter::ProducersHeld, 1);
        }
    }

    /// Notes that a consumer has released a producer of this core.
    pub(crate) fn let_go(&mut self, producer: Producer) {
        if let Some(connection) = self.connections.find_mut(producer.conn).filter(|c| c.cid == producer.cid) {
            connection.holds = connection.holds.saturating_sub(1);
            if connection.holds == 0 {
                connection.wake();
            }
        }
    }

    /// Releases the producers that are held for `id` if its backlog is small enough.
    #[inline]
    pub(crate) fn relieve(&mut self, id: ConnId, links: &mut Links) {
        if !self.slow.over_mark.is_empty() && self.connections[id].backlog.is_some() {
            self.relieve_consumer(id, links);
        }
    }

    #[cold]
    fn relieve_consumer(&mut self, id: ConnId, links: &mut Links) {
        let waits = self.connections[id].outbox.bytes();
        if waits <= self.marks.noted {
            self.release_all(id, links);
        } else if waits <= self.marks.low
            && let Some(backlog) = self.connections[id].backlog.as_deref_mut()
        {
            (backlog.held_since, backlog.window_until_ms) = (None, 0);
            let holds = std::mem::take(&mut backlog.holds);
            holds.into_iter().for_each(|hold| self.release(hold.producer, links));
        }
    }

    /// Releases all producers that are held for `id`, and drops the state of its backlog.
    pub(crate) fn release_all(&mut self, id: ConnId, links: &mut Links) {
        let connection = &mut *self.connections[id];
        let Some(backlog) = connection.backlog.take() else { return };
        connection.hold_credit = Some(HoldCredit { credit: backlog.credit, written: backlog.written });
        self.slow.over_mark.retain(|&over| over != id);
        backlog.holds.into_iter().for_each(|hold| self.release(hold.producer, links));
    }

    /// Returns whether a client whose reads were paused because of unread answers may be read from again.
    #[cold]
    pub(crate) fn has_taken_answers(&mut self, id: ConnId) -> bool {
        let connection = &mut self.connections[id];
        connection.is_held_for_answers = connection.outbox.answer_bytes() > self.marks.answers;
        !connection.is_held_for_answers
    }

    /// Returns a consumer that has held producers for too long: its backlog has not fallen to the low
    /// watermark in time, and it has not read a sixteenth of `max_pending`.
    pub(crate) fn held_too_long(&mut self, at_most: Duration, now_ms: u64) -> Option<ConnId> {
        let due = self.marks.due as u64;
        let Self { slow, connections, .. } = self;
        slow.over_mark.iter().copied().find(|&id| {
            let connection = &mut *connections[id];
            let written = connection.outbox.written_bytes();
            let Some(held_since) =
                connection.backlog.as_mut().and_then(|backlog| backlog.held_since.as_mut())
            else {
                return false;
            };
            let (since_ms, written_then) = *held_since;
            if Duration::from_millis(now_ms.saturating_sub(since_ms)) < at_most {
                return false;
            }
            let has_taken = written - written_then >= due;
            if has_taken {
                *held_since = (now_ms, written);
            }
            !has_taken
        })
    }

    /// Returns whether a client has missed its write deadline.
    pub(crate) fn is_overdue(&mut self, id: ConnId, write_deadline: Duration, now_ms: u64) -> bool {
        let Connection { due, outbox, .. } = &mut *self.connections[id];
        due.is_over(outbox, self.marks.due, write_deadline, now_ms)
    }

    /// Disconnects a slow consumer and logs it, within the rate limit of the log. `subject`: a subject that
    /// the consumer subscribes to.
    #[cold]
    pub(crate) fn cut_slow(&mut self, id: ConnId, why: CloseReason, subject: &str) {
        let connection = &self.connections[id];
        if connection.closing.is_some() {
            return;
        }
        let name = connection.told.as_ref().map_or("", |told| &told.name);
        if let Some(others) = self.slow.log_rate.admit_line(clock::monotonic_ms()) {
            tracing::warn!(
                cid = connection.cid, address = %connection.address, name, pending_bytes = connection.outbox.bytes(),
                subject, reason = why.reason(), others, "slow consumer disconnected (others: disconnects not logged since the last message)",
            );
        }
        transaction::cut_off(self.slow.scribe.as_ref(), connection, why, subject);
        self.close(id, why);
    }
}

impl Local {
    /// Ends holds when they expire, in an endless loop; sleeps while no producer is held.
    pub(crate) async fn attend_holds(self: Rc<Self>) {
        let begun = Rc::clone(&self.core.borrow().outputs.slow.hold_begun);
        loop {
            let due_in = {
                let core = &mut *self.core.borrow_mut();
                core.begin_turn();
                let due_ms = core.outputs.end_holds(core.turn.now_ms, &mut core.links);
                core.end_turn();
                due_ms.map(|due_ms| Duration::from_millis(due_ms.saturating_sub(core.turn.now_ms).max(1)))
            };
            match due_in {
                None => begun.notified().await,
                // A hold that begins during this wait may end earlier.
                Some(due_in) => _ = tokio::time::timeout(due_in, begun.notified()).await,
            }
        }
    }
}
