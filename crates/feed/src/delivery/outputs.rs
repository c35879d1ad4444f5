//! Connections of a core and their backlogs: the second of the three parts of a core that a message meets (see
//! the diagram in `core`).
//!
//! ```text
//!   put (a message) ─┐
//!   say (an answer) ─┴─▶ outbox of a connection ─▶ at the end of the turn: one write ─▶ socket, or its own task
//!                            │ chunks, lent and returned
//!                            └ watermarks: the backlog is too large ─▶ `backpressure`
//! ```
//!
//! This module knows nothing of subscriptions. Holds of producers on other cores are passed to the links.

use std::{cell::Cell, rc::Rc, time::Duration};

use engine::{cores::Rounds, journal::Scribe, meter::CoreCounters};
use tokio::sync::Notify;
use wire::nats::{leaf, rejection::Rejection, write};

use crate::{
    client::{
        connection::{CloseReason, ConnId, Connection, Subscription},
        log_rate_limit::LogRateLimit,
    },
    counters::Counter,
    delivery::{backlog::Marks, free_holds::FreeHolds, outbox::Chunks, producer::Producer, run::Run},
    mesh::links::{Destination, Links},
    routing::slab::Slab,
};

/// Length from which a message is written to the socket directly, and copied only if the socket is full.
/// Shorter messages are cheaper to copy, and are written together.
const LENT_BYTES_MIN: usize = 16 * 1024;
/// Memory held by an incomplete operation, in bytes, above which the operation has a deadline.
pub(crate) const OPERATION_HELD_MIN: usize = 8 * 1024;
/// Interval between rounds of checks while a connection is new, has a backlog, or is soon due for a ping.
const ROUND_EVERY: Duration = Duration::from_millis(50);

/// Connections of a core, with their backlogs and shared output buffers.
pub(crate) struct Outputs {
    /// Index of the core.
    pub(crate) core: usize,
    pub(crate) connections: Slab<Box<Connection>>,
    pub(crate) chunks: Chunks,
    /// Memory, in bytes, of the incomplete operations of all connections.
    pub(crate) unfinished_bytes: usize,
    /// Memory, in bytes, of the requests that clients may answer (`allow_responses`), for all connections.
    pub(crate) replies_bytes: Rc<Cell<usize>>,
    /// Connections whose output has grown in this turn.
    dirty: Vec<ConnId>,
    pub(crate) slow: SlowConsumers,
    pub(crate) marks: Marks,
    /// Buffer in which control lines are built.
    line: Vec<u8>,
    /// Schedule of the deadline checks.
    pub(crate) rounds: Rc<Rounds>,
    pub(crate) counters: Rc<CoreCounters<Counter>>,
}

/// Consumers of a core that read more slowly than messages come, and what holds producers back for them.
pub(crate) struct SlowConsumers {
    /// Consumers whose backlog is above the lowest watermark.
    pub(crate) over_mark: Vec<ConnId>,
    /// Free holds by consumer address: first holds of producers, which cost the consumer nothing.
    pub(crate) free_holds: FreeHolds,
    /// Notified when a consumer begins to hold a producer.
    pub(crate) hold_begun: Rc<Notify>,
    /// Rate limit of the log lines about slow consumers.
    pub(crate) log_rate: LogRateLimit,
    /// Writer of the journal records about slow consumers.
    pub(crate) scribe: Option<Scribe>,
}

/// Result of appending messages to a subscriber's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PutOutcome {
    /// No message was appended; the subscriber may not get them.
    Nothing,
    /// This many messages were appended.
    Appended(usize),
    /// This many messages were appended, and the backlog is now above the lowest watermark: the caller must
    /// call [`Outputs::note_backlog`].
    Backlogged(usize),
    /// The messages do not fit below `max_pending`.
    NoRoom,
}

impl Outputs {
    pub(crate) fn new(
        core: usize,
        marks: Marks,
        counters: Rc<CoreCounters<Counter>>,
        scribe: Option<Scribe>,
    ) -> Self {
        Self {
            core,
            connections: Slab::default(),
            chunks: Chunks::default(),
            unfinished_bytes: 0,
            replies_bytes: Rc::default(),
            dirty: Vec::new(),
            slow: SlowConsumers {
                over_mark: Vec::new(),
                free_holds: FreeHolds::default(),
                hold_begun: Rc::new(Notify::new()),
                log_rate: LogRateLimit::default(),
                scribe,
            },
            marks,
            line: Vec::with_capacity(4096),
            rounds: Rc::new(Rounds::new(ROUND_EVERY)),
            counters,
        }
    }

    /// Appends `count` messages of a run to a subscriber's output.
    pub(crate) fn put(
        &mut self,
        subscription: &mut Subscription,
        count: usize,
        producer: Producer,
        run: &Run<'_>,
        now_ms: u64,
    ) -> PutOutcome {
        let Self { connections, chunks, dirty, line, counters, marks, core, .. } = self;
        let id = subscription.conn;
        let connection = &mut *connections[id];
        let is_own = producer.conn == id && usize::from(producer.core) == *core;
        if connection.closing.is_some() || (is_own && !connection.echo) || count == 0 {
            return PutOutcome::Nothing;
        }
        // The subject shown to the subscriber may differ from the run's and be longer.
        let subject = run.shown.unwrap_or(run.subject);
        let bytes_max = count * (run.stride - run.tail_at + subject.len() + subscription.sid.len() + 8);
        if connection.outbox.bytes() + bytes_max > marks.max_pending {
            counters.add(Counter::Writes, connection.flush(chunks));
            if connection.outbox.bytes() + bytes_max > marks.max_pending {
                return PutOutcome::NoRoom;
            }
        }
        subscription.delivered += count as u64;
        connection.messages_out += count as u64;
        connection.payload_out_bytes += (count * run.body_bytes) as u64;
        if let Some(replies) = connection.replies.as_mut().filter(|_| !run.reply.is_empty()) {
            let forgotten = replies.requested(producer.cid, run.reply, now_ms);
            if forgotten > 0 {
                note_forgotten(counters, connection.cid, producer, forgotten);
            }
        }
        line.clear();
        if run.header_bytes == Some(0) || (run.header_bytes.is_some() && !connection.headers) {
            for at in 0..count {
                line.clear();
                let body = &run.bytes[(at + 1) * run.stride - 2 - run.body_bytes..(at + 1) * run.stride - 2];
                write::msg(
                    line,
                    subject,
                    &subscription.sid,
                    run.reply,
                    &body[run.header_bytes.unwrap_or(0)..],
                );
                connection.outbox.append(chunks, line);
            }
        } else {
            line.extend_from_slice(if run.header_bytes.is_some() { b"HMSG " } else { b"MSG " });
            line.extend_from_slice(subject);
            line.push(b' ');
            line.extend_from_slice(&subscription.sid);
            pour(connection, chunks, counters, line, run, run.tail_at, count);
        }
        mark_dirty(dirty, id, connection);
        if connection.outbox.bytes() > marks.noted {
            PutOutcome::Backlogged(count)
        } else {
            PutOutcome::Appended(count)
        }
    }

    /// Appends a run (consecutive messages to one subject) to a hub's output, with the names of the queue
    /// groups at the hub that get it.
    pub(crate) fn put_to_hub(&mut self, id: ConnId, queues: &[u8], run: &Run<'_>) -> PutOutcome {
        let Self { connections, chunks, dirty, line, counters, marks, .. } = self;
        let connection = &mut *connections[id];
        if connection.closing.is_some() {
            return PutOutcome::Nothing;
        }
        let count = run.count();
        let bytes_max = count * (run.stride + run.subject.len() + queues.len() + 8);
        if connection.outbox.bytes() + bytes_max > marks.max_pending {
            counters.add(Counter::Writes, connection.flush(chunks));
            if connection.outbox.bytes() + bytes_max > marks.max_pending {
                return PutOutcome::NoRoom;
            }
        }
        connection.messages_out += count as u64;
        connection.payload_out_bytes += (count * run.body_bytes) as u64;
        let has_header = connection.headers && run.header_bytes.is_some_and(|bytes| bytes > 0);
        line.clear();
        leaf::begin_message(line, has_header, run.subject, run.reply, queues);
        if run.header_bytes.is_some() && !has_header {
            let (begun, left_out) = (line.len(), run.header_bytes.unwrap_or(0));
            for message in run.bytes.chunks_exact(run.stride) {
                line.truncate(begun);
                line.push(b' ');
                write::number(line, run.body_bytes - left_out);
                line.extend_from_slice(b"\r\n");
                // The rest of the message includes the line end after the payload.
                line.extend_from_slice(&message[run.stride - 2 - run.body_bytes + left_out..]);
                connection.outbox.append(chunks, line);
            }
        } else {
            let with_blank = |bytes: usize| if bytes > 0 { bytes + 1 } else { 0 };
            let sizes_at = run.tail_at + with_blank(run.reply.len());
            pour(connection, chunks, counters, line, run, sizes_at, count);
        }
        mark_dirty(dirty, id, connection);
        if connection.outbox.bytes() > marks.noted {
            PutOutcome::Backlogged(count)
        } else {
            PutOutcome::Appended(count)
        }
    }

    /// Appends operations other than messages to a hub's output. Returns whether there was room.
    pub(crate) fn tell_hub(&mut self, id: ConnId, words: &[u8]) -> bool {
        let Self { connections, chunks, dirty, marks, counters, .. } = self;
        let connection = &mut *connections[id];
        if connection.closing.is_some() {
            return true;
        }
        if connection.outbox.bytes() + words.len() > marks.max_pending {
            counters.add(Counter::Writes, connection.flush(chunks));
            if connection.outbox.bytes() + words.len() > marks.max_pending {
                return false;
            }
        }
        connection.outbox.append(chunks, words);
        mark_dirty(dirty, id, connection);
        true
    }

    /// Appends an answer to a connection's output, which its own task or the end of the turn writes. Answers
    /// count like messages: a client whose backlog exceeds the bound is disconnected, and reads from a client
    /// with many unread answers are paused (`backpressure`).
    pub(crate) fn say(&mut self, id: ConnId, bytes: &[u8]) {
        let Self { connections, chunks, dirty, counters, marks, .. } = self;
        let connection = &mut *connections[id];
        if connection.closing.is_some() {
            return;
        }
        if connection.outbox.bytes() + bytes.len() > marks.max_pending {
            counters.add(Counter::Writes, connection.flush(chunks));
            if connection.outbox.bytes() + bytes.len() > marks.max_pending {
                self.cut_slow(id, CloseReason::SlowConsumerPending, "");
                return;
            }
        }
        connection.outbox.append_answer(chunks, bytes);
        mark_dirty(dirty, id, connection);
        if !connection.is_held_for_answers && connection.outbox.answer_bytes() > marks.answers {
            // Only bytes that the socket does not accept stay in the backlog.
            counters.add(Counter::Writes, connection.flush(chunks));
            if connection.outbox.answer_bytes() > marks.answers {
                connection.is_held_for_answers = true;
                counters.add(Counter::HeldForAnswers, 1);
            }
        }
    }

    /// Tells a requester that there are no responders.
    pub(crate) fn say_no_responders(&mut self, id: ConnId, reply: &[u8], sid: &[u8], subject: &[u8]) {
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        write::no_responders(&mut line, reply, sid, subject);
        self.say(id, &line);
        self.line = line;
    }

    /// Sends a protocol error, and closes the connection if the protocol demands it.
    pub(crate) fn reject(&mut self, id: ConnId, rejection: Rejection<'_>) {
        let mut line = Vec::new();
        rejection.write(&mut line);
        if !line.is_empty() {
            self.say(id, &line);
        }
        if rejection.closes() {
            self.close(id, CloseReason::of_rejection(rejection));
        }
    }

    /// Marks a connection as closing; its task does the actual closing.
    pub(crate) fn close(&mut self, id: ConnId, why: CloseReason) {
        let Self { connections, chunks, unfinished_bytes, .. } = self;
        let connection = &mut connections[id];
        if connection.closing.is_none() {
            connection.closing = Some(why);
            // The connection's task frees the operation as soon as it runs.
            *unfinished_bytes -= std::mem::take(&mut connection.unfinished_bytes);
            if why.is_slow_consumer() || matches!(why, CloseReason::SlowProducer | CloseReason::SlowOperation)
            {
                connection.outbox.clear(chunks);
            }
        }
        connection.wake();
    }

    /// Notes how much memory an incomplete operation of a connection takes.
    #[inline]
    pub(crate) fn note_unfinished(&mut self, id: ConnId, bytes: usize, now_ms: u64) {
        let connection = &mut self.connections[id];
        // A closing connection's operation is about to be freed.
        if connection.closing.is_none() {
            if connection.unfinished_bytes == 0 && bytes > 0 {
                connection.operation_since = (now_ms, connection.received);
            }
            if connection.unfinished_bytes < OPERATION_HELD_MIN && bytes >= OPERATION_HELD_MIN {
                // The time limit for completing the operation begins.
                self.rounds.stir();
            }
            self.unfinished_bytes = self.unfinished_bytes - connection.unfinished_bytes + bytes;
            connection.unfinished_bytes = bytes;
        }
    }

    /// Notes that bytes of a client have arrived.
    #[inline]
    pub(crate) fn note_received(&mut self, id: ConnId, bytes: usize, now_ms: u64) {
        let connection = &mut self.connections[id];
        connection.last_in_ms = now_ms;
        connection.received += bytes as u64;
    }

    /// Notes that a client's operation is complete and that the bytes after it begin another one.
    #[inline]
    pub(crate) fn note_operation(&mut self, id: ConnId, now_ms: u64) {
        let connection = &mut self.connections[id];
        connection.operation_since = (now_ms, connection.received);
    }

    /// Returns the memory that the core holds on behalf of its clients.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        self.chunks.lent() + self.unfinished_bytes + self.replies_bytes.get()
    }

    /// Returns the number of connections whose output has grown in this turn, which is the number of writes
    /// at its end.
    #[inline]
    pub(crate) fn dirty(&self) -> usize {
        self.dirty.len()
    }

    /// Writes this turn's output, with one write for each connection.
    pub(crate) fn flush(&mut self, links: &mut Links) {
        let mut writes = 0;
        while let Some(id) = self.dirty.pop() {
            let Some(connection) = self.connections.find_mut(id) else { continue };
            connection.is_dirty = false;
            writes += connection.flush(&mut self.chunks);
            if !connection.outbox.is_empty() {
                // The write deadline begins.
                self.rounds.stir();
            }
            self.relieve(id, links);
        }
        if writes > 0 {
            self.counters.add(Counter::Writes, writes);
        }
    }

    /// Pauses a client's reads until another core has taken the messages on their way to it. Returns whether
    /// the reads were not paused for that reason before.
    pub(crate) fn wait_for_core(&mut self, id: ConnId) -> bool {
        // The program's own messages belong to no connection.
        let Some(connection) = self.connections.find_mut(id) else { return false };
        let is_new = !std::mem::replace(&mut connection.waits_for_core, true);
        if is_new {
            self.counters.add(Counter::ProducersHeldForCores, 1);
        }
        is_new
    }

    /// Resumes reads from the clients that waited for other cores.
    pub(crate) fn resume(&mut self, ids: impl IntoIterator<Item = ConnId>) {
        for id in ids {
            if let Some(connection) = self.connections.find_mut(id) {
                connection.waits_for_core = false;
                connection.wake();
            }
        }
    }
}

/// Sends messages to another core's subscribers. If too many bytes are on their way to that core, reads from
/// the connection `from` are paused; a producer on another core is paused by its own core.
#[inline]
pub(crate) fn send_across(
    outputs: &mut Outputs,
    links: &mut Links,
    from: ConnId,
    to: Destination<'_>,
    producer: Producer,
    run: &Run<'_>,
) {
    outputs.counters.add(Counter::RunsAcross, 1);
    let has_room = links.run(to, producer, run);
    if !has_room && usize::from(producer.core) == outputs.core && outputs.wait_for_core(from) {
        links.pause(from);
    }
}

/// Appends the messages of a run. Each consists of a control line and the part of the message that begins at
/// `tail_at`.
#[inline]
fn pour(
    connection: &mut Connection,
    chunks: &mut Chunks,
    counters: &CoreCounters<Counter>,
    line: &[u8],
    run: &Run<'_>,
    tail_at: usize,
    count: usize,
) {
    let bytes = line.len() + run.stride - tail_at;
    let mut messages = run.bytes.chunks_exact(run.stride).take(count);
    if bytes >= LENT_BYTES_MIN {
        // A long message is written to each consumer directly, without a copy into a chunk.
        messages.for_each(|message| {
            counters.add(Counter::Writes, connection.lend(chunks, line, &message[tail_at..]));
        });
        return;
    }
    while messages.len() > 0 {
        if !connection.outbox.has_room(bytes) && !connection.is_blocked {
            counters.add(Counter::Writes, connection.flush(chunks));
        }
        let (chunk, fitting) = connection.outbox.chunk_for(chunks, bytes, messages.len());
        for message in messages.by_ref().take(fitting) {
            chunk.extend_from_slice(line);
            chunk.extend_from_slice(&message[tail_at..]);
        }
    }
}

/// Counts and logs requests that were forgotten because their requester had the most requests open; the
/// client can no longer answer them.
#[cold]
fn note_forgotten(counters: &CoreCounters<Counter>, cid: u64, producer: Producer, forgotten: usize) {
    counters.add(Counter::RepliesForgotten, forgotten as u64);
    tracing::debug!(
        cid,
        by = producer.cid,
        forgotten,
        "too many pending replies for a client with allow_responses: the oldest reply permissions of the busiest requesters were dropped",
    );
}

/// Notes that a connection's output has grown in this turn.
#[inline]
fn mark_dirty(dirty: &mut Vec<ConnId>, id: ConnId, connection: &mut Connection) {
    if !connection.is_dirty {
        connection.is_dirty = true;
        dirty.push(id);
    }
}
