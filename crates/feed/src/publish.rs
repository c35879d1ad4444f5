//! From a producer's bytes to the consumers' outputs.
//!
//! ```text
//!   PUB a.b 100␍␊…␍␊PUB a.b 100␍␊…␍␊PUB a.b 100␍␊…␍␊      a run: the same control line again and again
//!      └─subject─┘└──── tail ────┘
//!   for each subscriber of a.b:    MSG a.b 7 + tail, MSG a.b 7 + tail, …   into its chunk: two copies a message
//! ```
//!
//! What follows the subject in a PUB is byte for byte what follows the sid in the MSG, so a delivery is a prefix, made
//! once a run and subscriber, and a tail, copied from the read buffer. Going subscriber by subscriber through a run
//! keeps one prefix, one source and one destination in the nearest cache; a chunk that fills up is written at once and
//! goes round, so that a hundred subscribers of a large read share a few chunks instead of filling a hundred.
//!
//! A run never holds a message that is not whole.

use wire::nats::{client::Publish, rejection::Rejection, subject, write};

use crate::{
    backpressure::{Producer, high_mark_bytes},
    connection::{Closed, ConnId},
    core::Core,
    counters::Counter,
    matching::Match,
    trie::SubId,
};

/// Messages of one producer with one control line, one after the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    /// All of them; a multiple of `stride`.
    pub(crate) bytes: &'a [u8],
    /// Bytes of one, control line and line ends included.
    pub(crate) stride: usize,
    /// Where in each the part begins that is passed on as it is.
    pub(crate) tail_at: usize,
    /// Bytes of header and payload.
    pub(crate) body_bytes: usize,
    /// Bytes of the header of HPUB.
    pub(crate) header_bytes: Option<usize>,
    pub(crate) subject: &'a [u8],
    /// Empty: no answer is wanted.
    pub(crate) reply: &'a [u8],
}

impl<'a> Run<'a> {
    /// A run of a message and those behind it that are alike: `bytes` are all of them.
    pub(crate) fn new(first: &Publish<'a>, bytes: &'a [u8]) -> Self {
        let verb = if first.header_bytes.is_some() { "HPUB ".len() } else { "PUB ".len() };
        Self {
            bytes,
            stride: first.whole.len(),
            tail_at: verb + first.subject.len(),
            body_bytes: first.body.len(),
            header_bytes: first.header_bytes,
            subject: first.subject,
            reply: first.reply,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.bytes.len() / self.stride
    }

    /// One message of it.
    pub(crate) fn one(&self, at: usize) -> Self {
        Self { bytes: &self.bytes[at * self.stride..(at + 1) * self.stride], ..*self }
    }
}

impl Core {
    /// Takes messages of a client.
    pub(crate) fn publish(&mut self, id: ConnId, run: &Run<'_>) {
        let index = self.index;
        let connection = &mut self.connections[id];
        let count = run.count() as u64;
        connection.messages_in += count;
        connection.payload_in_bytes += count * run.body_bytes as u64;
        self.counters.add(Counter::MessagesIn, count);
        self.counters.add(Counter::PayloadIn, count * run.body_bytes as u64);
        if connection.permissions.is_some() && !self.may_publish(id, run) {
            return;
        }
        let connection = &self.connections[id];
        let (root, account, cid) = (connection.root, connection.account, connection.cid);
        if connection.pedantic && !subject::is_valid_literal(run.subject) {
            self.reject(id, Rejection::InvalidPublishSubject);
        }
        #[expect(clippy::cast_possible_truncation, reason = "there are at most 64 cores")]
        let producer = Producer { core: index as u16, conn: id, cid };
        let (slot, matched) = self.matches.take(&self.trie, root, run.subject);
        let reached = !matched.is_empty() && self.spread(id, account, producer, run, &matched);
        self.matches.put_back(slot, matched);
        if !reached && !run.reply.is_empty() && !self.answer_for_server(id, run) {
            self.tell_no_responders(id, run);
        }
        self.end_finished();
    }

    /// Whether the client may publish this; it is told if not.
    #[cold]
    fn may_publish(&mut self, id: ConnId, run: &Run<'_>) -> bool {
        let now_ms = self.now_ms;
        let connection = &mut *self.connections[id];
        // Borrowed: a count of those who share it would be written by every core.
        let (Some(permissions), replies) = (&connection.permissions, &mut connection.replies) else {
            return true;
        };
        let rejection = if !permissions.may_publish(run.subject)
            && !replies.as_mut().is_some_and(|replies| replies.may_answer(run.subject, now_ms))
        {
            Rejection::PublishDenied { subject: run.subject }
        } else if !run.reply.is_empty() && !permissions.may_publish(run.reply) {
            Rejection::ReplyDenied { reply: run.reply }
        } else {
            return true;
        };
        for _ in 0..run.count() {
            self.count(Counter::PermissionsDenied);
            self.reject(id, rejection);
        }
        false
    }

    /// Delivers to whoever matches; whether anybody was reached.
    pub(crate) fn spread(
        &mut self,
        from: ConnId,
        account: u16,
        producer: Producer,
        run: &Run<'_>,
        matched: &Match,
    ) -> bool {
        let mut delivered = 0;
        for &sub in &matched.subscribers {
            delivered += self.deliver(sub, producer, run);
        }
        let mut reached = delivered > 0;
        self.count_out(delivered, run);
        for &(node, group) in &matched.groups {
            for at in 0..run.count() {
                reached |= self.deliver_to_group(node, group as usize, account, producer, &run.one(at));
            }
        }
        let mut cores = matched.cores;
        while cores != 0 {
            let to = cores.trailing_zeros() as usize;
            cores &= cores - 1;
            reached = true;
            self.send_across(from, to, account, producer, None, run);
        }
        reached
    }

    pub(crate) fn count_out(&self, delivered: u64, run: &Run<'_>) {
        if delivered > 0 {
            self.counters.add(Counter::MessagesOut, delivered);
            self.counters.add(Counter::PayloadOut, delivered * run.body_bytes as u64);
        }
    }

    pub(crate) fn send_across(
        &mut self,
        from: ConnId,
        to: usize,
        account: u16,
        producer: Producer,
        group: Option<(&[u8], &[u8])>,
        run: &Run<'_>,
    ) {
        self.count(Counter::RunsAcross);
        let has_room = self.links.run(to, account, producer, group, run);
        if !has_room && usize::from(producer.core) == self.index {
            // What the program publishes itself is no connection's.
            let Some(connection) = self.connections.find_mut(from) else { return };
            if !connection.waits_for_core {
                connection.waits_for_core = true;
                self.links.pause(from);
                self.count(Counter::ProducersHeldForCores);
            }
        }
    }

    /// What another core's producer sent, for this core's subscribers.
    pub(crate) fn deliver_from_core(
        &mut self,
        account: u16,
        producer: Producer,
        group: Option<(&[u8], &[u8])>,
        run: &Run<'_>,
    ) {
        let root = self.root_of(account);
        if let Some((pattern, queue)) = group {
            let Some(node) = self.trie.find(root, pattern) else { return };
            let more = self.trie.more(node);
            let place = more.and_then(|more| more.groups.iter().position(|group| *group.name == *queue));
            if let Some(group) = place {
                for at in 0..run.count() {
                    self.deliver_to_own_members(node, group, account, producer, &run.one(at));
                }
            }
        } else {
            let (slot, matched) = self.matches.take(&self.trie, root, run.subject);
            let mut delivered = 0;
            for &sub in &matched.subscribers {
                delivered += self.deliver(sub, producer, run);
            }
            self.count_out(delivered, run);
            self.matches.put_back(slot, matched);
        }
        self.end_finished();
    }

    /// Appends a run to a subscriber's output; how many messages of it.
    pub(crate) fn deliver(&mut self, sub: SubId, producer: Producer, run: &Run<'_>) -> u64 {
        let Self { connections, subscriptions, ends_after, chunks, dirty, line, settings, .. } = self;
        let Self { finished, counters, .. } = self;
        let subscription = &mut subscriptions[sub];
        let id = subscription.conn;
        let connection = &mut *connections[id];
        let is_own = producer.conn == id && usize::from(producer.core) == self.index;
        if connection.closing.is_some() || (is_own && !connection.echo) {
            return 0;
        }
        if subscription.is_filtered
            && connection
                .permissions
                .as_ref()
                .is_some_and(|permissions| !permissions.may_receive(run.subject))
        {
            return 0;
        }
        let mut count = run.count();
        if subscription.ends {
            let max = ends_after.get(&sub).copied().unwrap_or(u64::MAX);
            let remaining = max.saturating_sub(subscription.delivered);
            if remaining <= count as u64 {
                if remaining > 0 {
                    finished.push(sub);
                }
                count = remaining as usize;
            }
        }
        let limits = &settings.config.limits;
        let bytes_max = count * (run.stride + subscription.sid.len() + 8);
        if connection.outbox.bytes() + bytes_max > limits.max_pending {
            connection.flush(chunks, self.now_ms);
            if connection.outbox.bytes() + bytes_max > limits.max_pending {
                self.cut_slow(id, Closed::SlowConsumerPending);
                return 0;
            }
        }
        subscription.delivered += count as u64;
        connection.messages_out += count as u64;
        connection.payload_out_bytes += (count * run.body_bytes) as u64;
        if connection.outbox.is_empty() {
            // A consumer's time to take something begins when there is something to take.
            connection.last_written_ms = self.now_ms;
        }
        if let Some(replies) = connection.replies.as_mut().filter(|_| !run.reply.is_empty()) {
            replies.requested(run.reply, self.now_ms);
        }
        line.clear();
        if run.header_bytes == Some(0) || (run.header_bytes.is_some() && !connection.headers) {
            for at in 0..count {
                line.clear();
                let body = &run.bytes[(at + 1) * run.stride - 2 - run.body_bytes..(at + 1) * run.stride - 2];
                write::msg(
                    line,
                    run.subject,
                    &subscription.sid,
                    run.reply,
                    &body[run.header_bytes.unwrap_or(0)..],
                );
                connection.outbox.append(chunks, line);
            }
        } else {
            line.extend_from_slice(if run.header_bytes.is_some() { b"HMSG " } else { b"MSG " });
            line.extend_from_slice(run.subject);
            line.push(b' ');
            line.extend_from_slice(&subscription.sid);
            let bytes = line.len() + run.stride - run.tail_at;
            for message in run.bytes.chunks_exact(run.stride).take(count) {
                if !connection.outbox.has_room(bytes) && !connection.is_blocked {
                    counters.add(Counter::Writes, connection.flush(chunks, self.now_ms));
                }
                let chunk = connection.outbox.chunk(chunks, bytes);
                chunk.extend_from_slice(line);
                chunk.extend_from_slice(&message[run.tail_at..]);
            }
        }
        Self::mark_dirty(dirty, id, connection);
        if connection.outbox.bytes() > high_mark_bytes(limits.max_pending) {
            self.hold_back(id, producer);
        }
        count as u64
    }

    /// Nobody was there to answer: the requester is told, if it wants to know and listens for the answer.
    #[cold]
    fn tell_no_responders(&mut self, id: ConnId, run: &Run<'_>) {
        let connection = &self.connections[id];
        if !connection.no_responders {
            return;
        }
        let root = connection.root;
        let (slot, matched) = self.matches.take(&self.trie, root, run.reply);
        let mine = matched.subscribers.iter().find(|&&sub| self.subscriptions[sub].conn == id);
        if let Some(&sub) = mine {
            let mut line = std::mem::take(&mut self.line);
            for _ in 0..run.count() {
                line.clear();
                write::no_responders(&mut line, run.reply, &self.subscriptions[sub].sid, run.subject);
                self.say(id, &line);
                self.count(Counter::NoResponders);
            }
            self.line = line;
        }
        self.matches.put_back(slot, matched);
    }

    /// Ends the subscriptions that have had their last message.
    pub(crate) fn end_finished(&mut self) {
        while let Some(sub) = self.finished.pop() {
            self.unsubscribe(sub);
        }
    }
}
