//! What happens when a consumer takes less than it is sent.
//!
//! ```text
//!   bytes waiting for the consumer
//!   0 ───────────── low mark 11/16 ─────── high mark ¾ ───────── max_pending
//!                      │                       │                    └─ cut off at once
//!                      │                       └─ who publishes to it now is held back: its reads are paused …
//!                      └─ … until this is reached again; or, after producer_hold_max, the consumer is cut off
//! ```
//!
//! By default a consumer that takes 4 MiB in a second lives, and thus slows its producers down to what it takes; one
//! that is stuck costs each of them `producer_hold_max` once. Producers that do not publish to it never notice.
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
//! of a sixteenth of `max_pending`, so that many consumers that live are slowed down before one is cut off; beyond it,
//! the one for which most waits is.
//!
//! A producer on another core is held by a word across (`across`): between the consumer's passing of the mark and the
//! word's arrival there may come what the producer had sent by then, which the room between mark and bound takes up.

use std::time::Duration;

use engine::cores::clock;

use crate::{
    across::Links,
    connection::{Closed, ConnId, Connection},
    counters::Counter,
    outbox::Outbox,
    outputs::Outputs,
    transaction,
};

/// A producer, wherever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Producer {
    pub(crate) core: u16,
    pub(crate) conn: ConnId,
    /// The connection with this number at `conn`, and no later one.
    pub(crate) cid: u64,
}

/// How much may wait for one client before what happens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marks {
    /// More never waits: whoever lets it is cut off.
    pub(crate) max_pending: usize,
    /// Above this, producers are held back.
    pub(crate) high: usize,
    /// Down here, they are let go.
    low: usize,
    /// Above this in answers, nothing is read from the client that they are for.
    pub(crate) answers: usize,
    /// So much must be taken within a write deadline, if so much waits.
    due: usize,
    /// Much waits for all clients together: `high` and `low` are lower than they would be.
    is_crowded: bool,
}

/// What the marks are lowered to then.
const CROWDED_SHARE: usize = 16;

impl Marks {
    /// Has producers wait earlier while much waits for all clients together.
    #[inline]
    pub(crate) fn crowd(&mut self, is_crowded: bool) {
        if is_crowded != self.is_crowded {
            let of = Self::of(if is_crowded { self.max_pending / CROWDED_SHARE } else { self.max_pending });
            (self.high, self.low, self.is_crowded) = (of.high, of.low, is_crowded);
        }
    }

    pub(crate) fn of(max_pending: usize) -> Self {
        let sixteenth = max_pending / 16;
        Self {
            max_pending,
            high: sixteenth * 12,
            low: sixteenth * 11,
            answers: sixteenth,
            due: sixteenth,
            is_crowded: false,
        }
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
    /// The consumer `id` is above the high mark, and `producer` has just sent it something.
    #[cold]
    pub(crate) fn hold_back(&mut self, id: ConnId, producer: Producer, now_ms: u64, links: &mut Links) {
        let is_here = usize::from(producer.core) == self.core;
        let connection = &mut self.connections[id];
        if connection.closing.is_some() {
            return;
        }
        if connection.over_mark_since_ms.is_none() {
            connection.over_mark_since_ms = Some(now_ms);
            self.over_mark.push(id);
            self.rounds.stir();
        }
        let connection = &mut self.connections[id];
        // Who writes to itself would wait for itself.
        if (is_here && producer.conn == id) || connection.holding.contains(&producer) {
            return;
        }
        connection.holding.push(producer);
        if is_here {
            self.held(producer);
        } else {
            links.hold(producer);
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
        if !self.over_mark.is_empty() {
            let connection = &self.connections[id];
            if connection.over_mark_since_ms.is_some() && connection.outbox.bytes() <= self.marks.low {
                self.release_all(id, links);
            }
        }
    }

    /// Lets all producers of `id` go.
    pub(crate) fn release_all(&mut self, id: ConnId, links: &mut Links) {
        let connection = &mut self.connections[id];
        if connection.over_mark_since_ms.take().is_some() {
            self.over_mark.retain(|&over| over != id);
        }
        for producer in std::mem::take(&mut self.connections[id].holding) {
            if usize::from(producer.core) == self.core {
                self.let_go(producer);
            } else {
                links.release(producer);
            }
        }
    }

    /// Whether a client that was not read from for the answers that wait for it may be read from again.
    #[cold]
    pub(crate) fn has_taken_answers(&mut self, id: ConnId) -> bool {
        let connection = &mut self.connections[id];
        connection.is_held_for_answers = connection.outbox.answer_bytes() > self.marks.answers;
        !connection.is_held_for_answers
    }

    /// A consumer that has held its producers back for longer than it may.
    pub(crate) fn held_too_long(&self, at_most: Duration, now_ms: u64) -> Option<ConnId> {
        let is_due = |since_ms: u64| Duration::from_millis(now_ms.saturating_sub(since_ms)) >= at_most;
        self.over_mark.iter().copied().find(|&id| self.connections[id].over_mark_since_ms.is_some_and(is_due))
    }

    /// Whether a client has not taken within its time what it must.
    pub(crate) fn is_overdue(&mut self, id: ConnId, write_deadline: Duration, now_ms: u64) -> bool {
        let Connection { due, outbox, .. } = &mut *self.connections[id];
        due.is_over(outbox, self.marks.due, write_deadline, now_ms)
    }

    /// Cuts a consumer off, and says so to the operator, as far as strangers may make us write. `subject`: one that it
    /// subscribes to.
    #[cold]
    pub(crate) fn cut_slow(&mut self, id: ConnId, why: Closed, subject: &str) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::Chunks;

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
