//! Who is connected, and what waits for each: the second of a core's three parts (`core` draws them).
//!
//! ```text
//!   put (a message) ─┐
//!   say (an answer) ─┴─▶ outbox of a connection ─▶ at the end of the turn: one write ─▶ socket, or its own task
//!                            │ chunks, lent and given back
//!                            └ marks: too much waits ─▶ `backpressure`
//! ```
//!
//! Nothing here knows who wants what. What must be told to producers on other cores is given to the links.

use std::{cell::Cell, rc::Rc};

use engine::{cores::Rounds, journal::Scribe, meter::CoreCounters};
use tokio::sync::Notify;
use wire::nats::{leaf, rejection::Rejection, write};

use crate::{
    client::{
        connection::{CloseReason, ConnId, Connection, Subscription},
        keepalive,
        log_rate_limit::LogRateLimit,
    },
    counters::Counter,
    delivery::{
        backpressure::{Marks, Producer},
        free_holds::FreeHolds,
        outbox::Chunks,
        run::Run,
        victims::OPERATION_HELD_MIN,
    },
    mesh::links::Links,
    routing::slab::Slab,
};

/// A message of so many bytes is written by itself, with no copy of it made unless the socket is full; a shorter one
/// is cheaper copied, and written together with others.
const LENT_BYTES_MIN: usize = 16 * 1024;

/// The clients of a core.
pub(crate) struct Outputs {
    /// Which core's.
    pub(crate) core: usize,
    pub(crate) connections: Slab<Box<Connection>>,
    pub(crate) chunks: Chunks,
    /// Memory of operations that have not come whole, of all connections.
    pub(crate) unfinished_bytes: usize,
    /// Memory of requests that clients may answer (`allow_responses`), of all connections.
    pub(crate) replies_bytes: Rc<Cell<usize>>,
    /// Those that got something in this turn.
    dirty: Vec<ConnId>,
    /// Consumers that have a backlog: above the lowest mark.
    pub(crate) over_mark: Vec<ConnId>,
    /// Holds that cost a consumer nothing.
    pub(crate) free_holds: FreeHolds,
    /// A producer was held.
    pub(crate) hold_begun: Rc<Notify>,
    pub(crate) marks: Marks,
    /// For control lines that are put together.
    line: Vec<u8>,
    /// When somebody looks after deadlines.
    pub(crate) rounds: Rc<Rounds>,
    pub(crate) counters: Rc<CoreCounters<Counter>>,
    /// Slow consumers that the log names.
    pub(crate) told_of_slow: LogRateLimit,
    /// By which the log hears of all of them.
    pub(crate) scribe: Option<Scribe>,
}

/// What became of messages for a subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PutOutcome {
    /// It gets none.
    Nothing,
    /// So many were appended.
    Appended(usize),
    /// The same, and now more waits for it than the lowest mark: [`Outputs::note_backlog`] is to be told.
    Backlogged(usize),
    /// There is no room below `max_pending`.
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
            over_mark: Vec::new(),
            free_holds: FreeHolds::default(),
            hold_begun: Rc::new(Notify::new()),
            marks,
            line: Vec::with_capacity(4096),
            rounds: Rc::new(Rounds::new(keepalive::EVERY)),
            counters,
            told_of_slow: LogRateLimit::default(),
            scribe,
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
        // The subject may be another's, and longer.
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

    /// Appends a run to a hub's output, with the names of the queue groups there that get it.
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
                // With the line end behind it.
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

    /// Appends what a hub is told beside messages; whether there was room.
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

    /// Appends an answer to a connection's output, for its own task or the end of the turn to write. Answers count like
    /// messages: who lets more wait than it may is cut off; and who lets many wait is not read from (`backpressure`).
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
            // Only what the socket does not take waits.
            counters.add(Counter::Writes, connection.flush(chunks));
            if connection.outbox.answer_bytes() > marks.answers {
                connection.is_held_for_answers = true;
                counters.add(Counter::HeldForAnswers, 1);
            }
        }
    }

    /// Tells a requester that nobody was there to answer.
    pub(crate) fn say_no_responders(&mut self, id: ConnId, reply: &[u8], sid: &[u8], subject: &[u8]) {
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        write::no_responders(&mut line, reply, sid, subject);
        self.say(id, &line);
        self.line = line;
    }

    /// Says what is wrong, and closes if the protocol says so.
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

    /// Ends a connection: its task does the rest.
    pub(crate) fn close(&mut self, id: ConnId, why: CloseReason) {
        let Self { connections, chunks, unfinished_bytes, .. } = self;
        let connection = &mut connections[id];
        if connection.closing.is_none() {
            connection.closing = Some(why);
            // Its task lets go of it as soon as it runs.
            *unfinished_bytes -= std::mem::take(&mut connection.unfinished_bytes);
            if why.is_slow_consumer() || matches!(why, CloseReason::SlowProducer | CloseReason::SlowOperation)
            {
                connection.outbox.clear(chunks);
            }
        }
        connection.wake();
    }

    /// An operation of this connection has not come whole, and takes so much memory.
    #[inline]
    pub(crate) fn note_unfinished(&mut self, id: ConnId, bytes: usize, now_ms: u64) {
        let connection = &mut self.connections[id];
        // Of one that was cut it is as good as gone.
        if connection.closing.is_none() {
            if connection.unfinished_bytes == 0 && bytes > 0 {
                connection.operation_since = (now_ms, connection.received);
            }
            if connection.unfinished_bytes < OPERATION_HELD_MIN && bytes >= OPERATION_HELD_MIN {
                // Its deadline begins.
                self.rounds.stir();
            }
            self.unfinished_bytes = self.unfinished_bytes - connection.unfinished_bytes + bytes;
            connection.unfinished_bytes = bytes;
        }
    }

    /// Bytes of a client have come.
    #[inline]
    pub(crate) fn note_received(&mut self, id: ConnId, bytes: usize, now_ms: u64) {
        let connection = &mut self.connections[id];
        connection.last_in_ms = now_ms;
        connection.received += bytes as u64;
    }

    /// An operation of a client was whole, and what is behind it begins another.
    #[inline]
    pub(crate) fn note_operation(&mut self, id: ConnId, now_ms: u64) {
        let connection = &mut self.connections[id];
        connection.operation_since = (now_ms, connection.received);
    }

    /// Memory that clients make this core hold.
    #[inline]
    pub(crate) fn held_bytes(&self) -> usize {
        self.chunks.lent() + self.unfinished_bytes + self.replies_bytes.get()
    }

    /// How many got something in this turn: so many writes will end it.
    #[inline]
    pub(crate) fn dirty(&self) -> usize {
        self.dirty.len()
    }

    /// Writes what this turn has for clients, one write each.
    pub(crate) fn flush(&mut self, links: &mut Links) {
        let mut writes = 0;
        while let Some(id) = self.dirty.pop() {
            let Some(connection) = self.connections.find_mut(id) else { continue };
            connection.is_dirty = false;
            writes += connection.flush(&mut self.chunks);
            if !connection.outbox.is_empty() {
                // Its deadline begins.
                self.rounds.stir();
            }
            self.relieve(id, links);
        }
        if writes > 0 {
            self.counters.add(Counter::Writes, writes);
        }
    }

    /// A client is not read from until another core has taken what is under way to it; whether that is new.
    pub(crate) fn wait_for_core(&mut self, id: ConnId) -> bool {
        // What the program publishes itself is no connection's.
        let Some(connection) = self.connections.find_mut(id) else { return false };
        let is_new = !std::mem::replace(&mut connection.waits_for_core, true);
        if is_new {
            self.counters.add(Counter::ProducersHeldForCores, 1);
        }
        is_new
    }

    /// The clients that waited for other cores are read from again.
    pub(crate) fn resume(&mut self, ids: impl IntoIterator<Item = ConnId>) {
        for id in ids {
            if let Some(connection) = self.connections.find_mut(id) {
                connection.waits_for_core = false;
                connection.wake();
            }
        }
    }
}

/// Appends messages of a run, each as a line and what stands from `tail_at` on in it.
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
        // Not through a chunk: a long message is written from where it lies, to each of its consumers.
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

/// Requests of whoever has asked a client most were forgotten: it may answer them no more.
#[cold]
fn note_forgotten(counters: &CoreCounters<Counter>, cid: u64, producer: Producer, forgotten: usize) {
    counters.add(Counter::RepliesForgotten, forgotten as u64);
    tracing::debug!(
        cid,
        by = producer.cid,
        forgotten,
        "too many requests are open for a client with allow_responses: the oldest of those that ask most are forgotten",
    );
}

/// Notes that a connection's output got something in this turn.
#[inline]
fn mark_dirty(dirty: &mut Vec<ConnId>, id: ConnId, connection: &mut Connection) {
    if !connection.is_dirty {
        connection.is_dirty = true;
        dirty.push(id);
    }
}
