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
//! By default a consumer that takes 4 MiB in a second lives, and thus slows its producers down to what it takes; one that
//! is stuck costs each of them `producer_hold_max` once. Producers that do not publish to it never notice.
//!
//! What a client makes the server say to itself (`PONG`, `+OK`, `-ERR`, 503) counts towards the same bound. Above a sixteenth
//! of it the client's own reads are paused, so that who pipelines and reads late is slowed and not cut; one operation's
//! answers may go beyond the mark, and a run of messages that are refused one by one beyond the bound: then it is cut.
//!
//! *`write_deadline`.* Each period of that length, a client must take what waited for it when the period began, but not more than
//! a sixteenth of `max_pending`; then the next period begins. So taking a little now and then does not help: with the
//! defaults it is all, or 4 MiB in ten seconds. nats-server asks for all that waited when a write began (up to
//! `max_pending`, within the deadline), which a consumer that lives but is slow may fail.
//!
//! A producer on another core is held by a word across (`across`): between the consumer's passing of the mark and the
//! word's arrival there may come what the producer had sent by then, which the room between mark and bound takes up.

use std::time::Duration;

use crate::{
    connection::{Closed, ConnId},
    core::Core,
    counters::Counter,
    outbox::Outbox,
};

/// A producer, wherever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Producer {
    pub(crate) core: u16,
    pub(crate) conn: ConnId,
    /// The connection with this number at `conn`, and no later one.
    pub(crate) cid: u64,
}

/// Above this, producers are held back.
pub(crate) fn high_mark_bytes(max_pending: usize) -> usize {
    max_pending / 4 * 3
}

/// Below this, they are let go.
fn low_mark_bytes(max_pending: usize) -> usize {
    max_pending / 16 * 11
}

/// Above this, nothing is read from the client whose answers they are.
pub(crate) fn answers_mark_bytes(max_pending: usize) -> usize {
    max_pending / 16
}

/// So much a client must take within a write deadline, if so much waits for it.
fn due_bytes_max(max_pending: usize) -> usize {
    max_pending / 16
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
        max_pending: usize,
        write_deadline: Duration,
        now_ms: u64,
    ) -> bool {
        if outbox.is_empty() || outbox.written_bytes() >= self.until_written {
            let bytes = outbox.bytes().min(due_bytes_max(max_pending)) as u64;
            *self = Self { since_ms: now_ms, until_written: outbox.written_bytes() + bytes };
            return false;
        }
        Duration::from_millis(now_ms.saturating_sub(self.since_ms)) > write_deadline
    }
}

impl Core {
    /// Whether a client that was not read from for the answers that wait for it may be read from again.
    #[cold]
    pub(crate) fn has_taken_answers(&mut self, id: ConnId) -> bool {
        let mark = answers_mark_bytes(self.settings.config.limits.max_pending);
        let connection = &mut self.connections[id];
        connection.is_held_for_answers = connection.outbox.answer_bytes() > mark;
        !connection.is_held_for_answers
    }

    /// The consumer `id` is above the high mark, and `producer` has just sent it something.
    #[cold]
    pub(crate) fn hold_back(&mut self, id: ConnId, producer: Producer) {
        let now_ms = self.now_ms;
        let connection = &mut self.connections[id];
        if connection.closing.is_some() {
            return;
        }
        if connection.over_mark_since_ms.is_none() {
            connection.over_mark_since_ms = Some(now_ms);
            self.over_mark.push(id);
        }
        let connection = &mut self.connections[id];
        // Who writes to itself would wait for itself.
        let is_itself = usize::from(producer.core) == self.index && producer.conn == id;
        if is_itself || connection.holding.contains(&producer) {
            return;
        }
        connection.holding.push(producer);
        if usize::from(producer.core) == self.index {
            self.held(producer);
        } else {
            self.links.hold(producer);
        }
    }

    /// A producer of this core is held back by one consumer more.
    pub(crate) fn held(&mut self, producer: Producer) {
        if let Some(connection) = self.connections.find_mut(producer.conn).filter(|c| c.cid == producer.cid) {
            connection.holds += 1;
            self.count(Counter::ProducersHeld);
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
    pub(crate) fn relieve(&mut self, id: ConnId) {
        if !self.over_mark.is_empty() {
            let low = low_mark_bytes(self.settings.config.limits.max_pending);
            let connection = &self.connections[id];
            if connection.over_mark_since_ms.is_some() && connection.outbox.bytes() <= low {
                self.release_all(id);
            }
        }
    }

    /// Lets all producers of `id` go.
    pub(crate) fn release_all(&mut self, id: ConnId) {
        let connection = &mut self.connections[id];
        if connection.over_mark_since_ms.take().is_some() {
            self.over_mark.retain(|&over| over != id);
        }
        for producer in std::mem::take(&mut self.connections[id].holding) {
            if usize::from(producer.core) == self.index {
                self.let_go(producer);
            } else {
                self.links.release(producer);
            }
        }
    }

    /// Cuts off who has held its producers back for too long.
    pub(crate) fn cut_holders(&mut self) {
        let at_most_ms = self.settings.config.limits.producer_hold_max.as_millis() as u64;
        let now_ms = self.now_ms;
        let due = |core: &Self, id: ConnId| {
            core.connections[id]
                .over_mark_since_ms
                .is_some_and(|since_ms| now_ms.saturating_sub(since_ms) >= at_most_ms)
        };
        let mut at = 0;
        while at < self.over_mark.len() {
            let id = self.over_mark[at];
            if due(self, id) {
                // Takes it out of the list.
                self.release_all(id);
                self.cut_slow(id, Closed::SlowConsumerHold);
            } else {
                at += 1;
            }
        }
    }

    /// Cuts a consumer off, and says so to the operator.
    #[cold]
    pub(crate) fn cut_slow(&mut self, id: ConnId, why: Closed) {
        let connection = &self.connections[id];
        if connection.closing.is_some() {
            return;
        }
        let name = connection.told.as_ref().map_or("", |told| &told.name);
        tracing::warn!(
            cid = connection.cid, address = %connection.address, name, pending_bytes = connection.outbox.bytes(),
            subject = %self.a_subject_of(id), reason = why.reason(), "a slow consumer is cut off",
        );
        self.close(id, why);
    }

    /// One of the subjects that a client subscribes to, for the log.
    fn a_subject_of(&self, id: ConnId) -> String {
        let connection = &self.connections[id];
        let first = connection.sids.iter().next();
        first.map_or_else(String::new, |sub| {
            String::from_utf8_lossy(&self.trie.pattern_of(self.subscriptions[sub].node)).into_owned()
        })
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
            due.is_over(&outbox, MAX_PENDING, Duration::from_secs(DEADLINE_S), round * 9000)
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
