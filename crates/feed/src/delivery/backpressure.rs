//! What happens when a consumer takes less than it is sent.
//!
//! ```text
//!   bytes waiting for the consumer
//!   0 ── 1/16: noted ───────── low mark 11/16 ─────── high mark ¾ ───────── max_pending
//!        │                         │                       │                    └─ cut off at once
//!        │                         │                       └─ producers with a sixteenth of it or more are held: 20 ms at a time …
//!        │                         └─ … until this is reached again; or, after producer_hold_max, the consumer is cut off
//!        └─ from here on the server notes which producer puts in how much (`contributions`), and what the consumer takes
//! ```
//!
//! *A hold* pauses a producer's reads for [`HOLD`], or for a part of it: a producer that put in less than half of what
//! the largest one did is held for its proportion of that time and then let go; one with less than a sixteenth of the
//! backlog is never held. A hold goes on for another [`HOLD`] only for what the consumer took meanwhile: a second of
//! holds costs a sixteenth of `max_pending`, so that by default a consumer that takes 4 MiB in a second slows those
//! producers down to what it takes, and loses nothing. One that takes nothing has held the producers
//! that filled its backlog for [`HOLD`], once, and nobody else; and that as long as its address has a free hold left
//! (`free_holds`), so that who reconnects again and again holds nobody. What a connection took since its last backlog counts
//! for the next one.
//!
//! What a client makes the server say to itself (`PONG`, `+OK`, `-ERR`, 503) counts towards the same bound. Above a
//! sixteenth of it the client's own reads are paused, so that who pipelines and reads late is slowed and not cut; one
//! operation's answers may go beyond the mark, and a run of messages that are refused one by one beyond the bound: then
//! it is cut.
//!
//! *`write_deadline`.* Each period of that length, a client must take what waited for it when the period began, but not
//! more than a sixteenth of `max_pending`; then the next period begins. So taking a little now and then does not help:
//! with the defaults it is all, or 4 MiB in ten seconds. nats-server asks for all that waited when a write began (up to
//! `max_pending`, within the deadline), which a consumer that lives but is slow may fail.
//!
//! *In sum.* `max_pending_total` bounds what waits for all clients (`share`). While half of it is used, marks are those
//! of a sixteenth of `max_pending`, so that many consumers that live are slowed down before one is cut off.
//!
//! A producer on another core is held by a word across (`across`): between the consumer's passing of the mark and the
//! word's arrival there may come what the producer had sent by then, which the room between mark and bound takes up.

use std::{rc::Rc, time::Duration};

use engine::{accounts::ClientKey, cores::clock};

use crate::{
    client::{
        connection::{CloseReason, ConnId, Connection, FOREIGN},
        transaction,
    },
    counters::Counter,
    delivery::{contributions::Contributions, outbox::Outbox, outputs::Outputs},
    mesh::{core::Local, links::Links},
};

/// A producer, wherever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Producer {
    pub(crate) core: u16,
    pub(crate) conn: ConnId,
    /// The connection with this number at `conn`, and no later one.
    pub(crate) cid: u64,
}

/// The longest time for which a producer is held before the consumer must have taken something.
pub(crate) const HOLD: Duration = Duration::from_millis(20);

/// A second of holds, for which a consumer takes a sixteenth of `max_pending`.
const HOLDS_A_SECOND: usize = 50;

/// How much may wait for one client before what happens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marks {
    /// More never waits: whoever lets it is cut off.
    pub(crate) max_pending: usize,
    /// Above this, the server notes who puts in how much.
    pub(crate) noted: usize,
    /// Above this, producers are held.
    pub(crate) high: usize,
    /// Down here, they are let go.
    low: usize,
    /// Above this in answers, nothing is read from the client that they are for.
    pub(crate) answers: usize,
    /// So much must be taken within a write deadline, if so much waits; within `producer_hold_max`, if producers are
    /// to be held for so long.
    due: usize,
    /// What a consumer must take for another [`HOLD`].
    hold_price: usize,
    /// Much waits for all clients together: `noted`, `high` and `low` are lower than they would be.
    is_crowded: bool,
}

/// What the marks are lowered to then.
const CROWDED_SHARE: usize = 16;

impl Marks {
    /// Has producers wait earlier while much waits for all clients together.
    #[inline]
    pub(crate) fn crowd(&mut self, is_crowded: bool) {
        if is_crowded != self.is_crowded {
            let sixteenth = if is_crowded { self.max_pending / CROWDED_SHARE } else { self.max_pending } / 16;
            (self.noted, self.high, self.low) = (sixteenth, sixteenth * 12, sixteenth * 11);
            self.is_crowded = is_crowded;
        }
    }

    /// The marks for these settings.
    pub(crate) fn of(max_pending: usize) -> Self {
        let sixteenth = max_pending / 16;
        Self {
            max_pending,
            noted: sixteenth,
            high: sixteenth * 12,
            low: sixteenth * 11,
            answers: sixteenth,
            due: sixteenth,
            // A quarter less than the pace, so that a clock which ticks unevenly costs nobody a hold.
            hold_price: (sixteenth / HOLDS_A_SECOND / 4 * 3).max(1),
            is_crowded: false,
        }
    }
}

/// What is known of a consumer for which more than the lowest mark waits.
#[derive(Debug)]
pub(crate) struct ConsumerBacklog {
    contributions: Contributions,
    /// When a producer was first held for it, since less than the low mark waited, or since it last took enough within
    /// `producer_hold_max`; and the bytes that were written by then.
    held_since: Option<(u64, u64)>,
    holds: Vec<Hold>,
    /// Until then producers may be held. 0: no longer than until now.
    window_until_ms: u64,
    /// What the consumer took and was not spent on holds; at most what a second of them costs.
    credit: usize,
    /// Bytes written when the credit was last reckoned.
    written: u64,
    /// The connection's first backlog, in which it has not asked its address for a free hold yet.
    may_ask_address: bool,
}

/// The credit that a connection's last backlog left: bytes that it took and did not spend on holds, and the bytes written by then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HoldCredit {
    credit: usize,
    written: u64,
}

/// A producer whose reads are paused for a consumer.
#[derive(Debug)]
struct Hold {
    producer: Producer,
    /// `None`: as long as the consumer's window is open.
    until_ms: Option<u64>,
}

impl ConsumerBacklog {
    /// `left`: what the connection's last backlog left, if this is not the first.
    fn new(written: u64, left: Option<HoldCredit>) -> Self {
        let HoldCredit { credit, written } = left.unwrap_or(HoldCredit { credit: 0, written });
        Self {
            contributions: Contributions::default(),
            held_since: None,
            holds: Vec::new(),
            window_until_ms: 0,
            credit,
            written,
            may_ask_address: left.is_none(),
        }
    }

    /// Credits the consumer with what it took.
    fn reckon(&mut self, written: u64, at_most: usize) {
        let taken = usize::try_from(written - self.written).unwrap_or(usize::MAX);
        self.credit = self.credit.saturating_add(taken).min(at_most);
        self.written = written;
    }

    /// Whether producers may be held now: in a window that is open, or in a new one that the consumer has paid for.
    fn may_hold(&mut self, price: usize, now_ms: u64) -> bool {
        if now_ms < self.window_until_ms {
            return true;
        }
        let is_paid = self.credit >= price;
        if is_paid {
            self.credit -= price;
            self.window_until_ms = now_ms + HOLD.as_millis() as u64;
        }
        is_paid
    }

    /// When something ends next: a hold, or the window. `None`: nobody is held.
    fn due_ms(&self) -> Option<u64> {
        self.holds.iter().map(|hold| hold.until_ms.unwrap_or(self.window_until_ms)).min()
    }
}

/// What a client must take, and since when. Looked at now and then: a period begins with a look.
#[derive(Debug, Default)]
pub(crate) struct Due {
    since_ms: u64,
    /// Bytes written since the connection began, when enough of them are.
    until_written: u64,
}

impl Due {
    /// Whether the time is up and the client has not taken enough.
    pub(crate) fn is_over(
        &mut self,
        outbox: &Outbox,
        bytes_max: usize,
        write_deadline: Duration,
        now_ms: u64,
    ) -> bool {
        if outbox.is_empty() || outbox.written_bytes() >= self.until_written {
            let bytes = outbox.bytes().min(bytes_max) as u64;
            *self = Self { since_ms: now_ms, until_written: outbox.written_bytes() + bytes };
            return false;
        }
        Duration::from_millis(now_ms.saturating_sub(self.since_ms)) > write_deadline
    }
}

impl Outputs {
    /// The consumer `id` is above the lowest mark, and `producer` has just sent it `bytes` bytes: noted, and where it is
    /// above the high mark, too, the producer may be held.
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
            self.over_mark.push(id);
            self.rounds.stir();
        }
        backlog.contributions.add(producer, bytes, waits);
        // Who writes to itself would wait for itself; the program's own messages are no connection's.
        let is_own = is_here && producer.conn == id;
        if waits <= high || is_own || producer.conn >= FOREIGN {
            return;
        }
        if backlog.holds.iter().any(|hold| hold.producer == producer) {
            return;
        }
        let Some(part) = backlog.contributions.part_of(producer) else { return };
        backlog.reckon(written, due);
        let mut may_hold = backlog.may_hold(hold_price, now_ms);
        if !may_hold && std::mem::take(&mut backlog.may_ask_address) {
            // Loopback is one address here, too: else each new connection from there would be another client.
            if self.free_holds.take(ClientKey::of(connection.address.ip()), now_ms) {
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
        self.hold_begun.notify_one();
        if is_here {
            self.held(producer);
        } else {
            links.hold(producer);
        }
    }

    /// Lets those producers go whose time is up, and has those wait on for whose consumer has taken something. When
    /// something ends next.
    pub(crate) fn end_holds(&mut self, now_ms: u64, links: &mut Links) -> Option<u64> {
        let Marks { due, hold_price, .. } = self.marks;
        let mut due_ms: Option<u64> = None;
        let mut released: Vec<Producer> = Vec::new();
        for &id in &self.over_mark {
            let connection = &mut *self.connections[id];
            let written = connection.outbox.written_bytes();
            let Some(backlog) = connection.backlog.as_deref_mut() else { continue };
            if backlog.holds.is_empty() {
                continue;
            }
            backlog.reckon(written, due);
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

    /// A producer of this core is held back by one consumer more.
    pub(crate) fn held(&mut self, producer: Producer) {
        if let Some(connection) = self.connections.find_mut(producer.conn).filter(|c| c.cid == producer.cid) {
            connection.holds += 1;
            self.counters.add(Counter::ProducersHeld, 1);
        }
    }

    /// A producer of this core is held back by one consumer less.
    pub(crate) fn let_go(&mut self, producer: Producer) {
        if let Some(connection) = self.connections.find_mut(producer.conn).filter(|c| c.cid == producer.cid) {
            connection.holds = connection.holds.saturating_sub(1);
            if connection.holds == 0 {
                connection.wake();
            }
        }
    }

    /// Lets the producers of `id` go if it has caught up.
    #[inline]
    pub(crate) fn relieve(&mut self, id: ConnId, links: &mut Links) {
        if !self.over_mark.is_empty() && self.connections[id].backlog.is_some() {
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

    /// Lets all producers of `id` go, and forgets who they were.
    pub(crate) fn release_all(&mut self, id: ConnId, links: &mut Links) {
        let connection = &mut *self.connections[id];
        let Some(backlog) = connection.backlog.take() else { return };
        connection.hold_credit = Some(HoldCredit { credit: backlog.credit, written: backlog.written });
        self.over_mark.retain(|&over| over != id);
        backlog.holds.into_iter().for_each(|hold| self.release(hold.producer, links));
    }

    /// Whether a client that was not read from for the answers that wait for it may be read from again.
    #[cold]
    pub(crate) fn has_taken_answers(&mut self, id: ConnId) -> bool {
        let connection = &mut self.connections[id];
        connection.is_held_for_answers = connection.outbox.answer_bytes() > self.marks.answers;
        !connection.is_held_for_answers
    }

    /// A consumer for which producers were held, and that has neither come down to the low mark in time nor taken a
    /// sixteenth of `max_pending`.
    pub(crate) fn held_too_long(&mut self, at_most: Duration, now_ms: u64) -> Option<ConnId> {
        let due = self.marks.due as u64;
        let Self { over_mark, connections, .. } = self;
        over_mark.iter().copied().find(|&id| {
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

    /// Whether a client has not taken within its time what it must.
    pub(crate) fn is_overdue(&mut self, id: ConnId, write_deadline: Duration, now_ms: u64) -> bool {
        let Connection { due, outbox, .. } = &mut *self.connections[id];
        due.is_over(outbox, self.marks.due, write_deadline, now_ms)
    }

    /// Cuts a consumer off, and says so to the operator, as far as strangers may make us write. `subject`: one that it
    /// subscribes to.
    #[cold]
    pub(crate) fn cut_slow(&mut self, id: ConnId, why: CloseReason, subject: &str) {
        let connection = &self.connections[id];
        if connection.closing.is_some() {
            return;
        }
        let name = connection.told.as_ref().map_or("", |told| &told.name);
        if let Some(others) = self.told_of_slow.may_write(clock::monotonic_ms()) {
            tracing::warn!(
                cid = connection.cid, address = %connection.address, name, pending_bytes = connection.outbox.bytes(),
                subject, reason = why.reason(), others, "a slow consumer is cut off (others: not named before)",
            );
        }
        transaction::cut_off(self.scribe.as_ref(), connection, why, subject);
        self.close(id, why);
    }
}

impl Local {
    /// Ends holds when their time is up, for ever; sleeps while nobody is held.
    pub(crate) async fn attend_holds(self: Rc<Self>) {
        let begun = Rc::clone(&self.core.borrow().outputs.hold_begun);
        loop {
            let due_in = {
                let core = &mut *self.core.borrow_mut();
                core.begin_turn();
                let due_ms = core.outputs.end_holds(core.now_ms, &mut core.links);
                core.end_turn();
                due_ms.map(|due_ms| Duration::from_millis(due_ms.saturating_sub(core.now_ms).max(1)))
            };
            match due_in {
                None => begun.notified().await,
                // One that began meanwhile may end earlier.
                Some(due_in) => _ = tokio::time::timeout(due_in, begun.notified()).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::outbox::Chunks;

    const MAX_PENDING: usize = 16_000;
    const DEADLINE_S: u64 = 10;

    /// What is appended and taken in each of some rounds of nine seconds; whether the client is cut in one of them.
    fn is_cut(rounds: &[(usize, usize)]) -> bool {
        let (mut outbox, mut chunks, mut due) = (Outbox::default(), Chunks::default(), Due::default());
        (1..).zip(rounds).any(|(round, &(append, take))| {
            outbox.append(&mut chunks, &vec![0; append]);
            if take > 0 {
                outbox.written(&mut chunks, take);
            }
            due.is_over(&outbox, Marks::of(MAX_PENDING).due, Duration::from_secs(DEADLINE_S), round * 9000)
        })
    }

    #[test]
    fn each_period_what_waited_must_be_taken() {
        assert!(is_cut(&[(100, 0), (100, 0), (100, 0)]), "nothing is taken");
        assert!(is_cut(&[(100, 0), (0, 1), (0, 1)]), "a little now and then is not all that waited");
        assert!(!is_cut(&[(100, 0), (0, 50), (0, 50), (100, 0), (0, 100)]), "all, within the period");
        assert!(
            !is_cut(&[(100, 0), (100, 100), (100, 100), (100, 100), (100, 100)]),
            "never empty, but it lives"
        );
        assert!(!is_cut(&[(9000, 0), (0, 1000), (0, 1000), (0, 1000)]), "a sixteenth of the bound is enough");
        assert!(is_cut(&[(9000, 0), (0, 900), (0, 50), (0, 1000)]), "less than that is not");
    }
}
