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
//! A producer on another core is held by a word across (`across`): between the consumer's passing of the mark and the
//! word's arrival there may come what the producer had sent by then, which the room between mark and bound takes up.

use crate::{
    connection::{Closed, ConnId},
    core::Core,
    counters::Counter,
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

impl Core {
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
            self.rounds.stir();
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
