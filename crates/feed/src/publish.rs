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

use wire::nats::{client::Publish, rejection::Rejection, subject};

use crate::{
    across::{Destination, Links},
    backpressure::Producer,
    connection::{Closed, ConnId},
    core::Core,
    counters::Counter,
    groups::Turn,
    identity::AccountId,
    matching::Match,
    outputs::{Outputs, Put},
    protocol_log,
    trie::{NodeId, SubId},
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
    #[inline]
    pub(crate) fn publish(&mut self, id: ConnId, run: &Run<'_>) {
        if self.mappings.is_some() {
            self.publish_mapped(id, run);
        } else {
            self.publish_as_it_is(id, run);
        }
    }

    /// Takes messages of a client whose subject is not another's.
    pub(crate) fn publish_as_it_is(&mut self, id: ConnId, run: &Run<'_>) {
        let connection = &mut self.outputs.connections[id];
        let count = run.count() as u64;
        if protocol_log::is_wanted() {
            protocol_log::messages(connection.cid, "PUB", run, run.count());
        }
        connection.messages_in += count;
        connection.payload_in_bytes += count * run.body_bytes as u64;
        self.counters.add(Counter::MessagesIn, count);
        self.counters.add(Counter::PayloadIn, count * run.body_bytes as u64);
        if connection.permissions.is_some() && !may_publish(&mut self.outputs, id, run, self.now_ms) {
            return;
        }
        let connection = &self.outputs.connections[id];
        let (root, account, cid) = (connection.root, connection.account, connection.cid);
        if connection.pedantic && !subject::is_valid_literal(run.subject) {
            self.outputs.reject(id, Rejection::InvalidPublishSubject);
        }
        #[expect(clippy::cast_possible_truncation, reason = "there are at most 64 cores")]
        let producer = Producer { core: self.index as u16, conn: id, cid };
        let (slot, matched) = self.subjects.matches.take(&self.subjects.trie, root, run.subject);
        let reached = !matched.is_empty() && self.spread(id, account, producer, run, &matched);
        self.subjects.matches.put_back(slot, matched);
        if !run.reply.is_empty() {
            // Whoever else listens there, the server is asked, too.
            let is_asked =
                account == AccountId::SYSTEM.0 && (self.ask_system(run) || self.answer_user_info(id, run));
            if !reached && !is_asked && !self.answer_user_info(id, run) {
                self.tell_no_responders(id, run);
            }
        }
        self.end_finished();
    }

    /// Takes messages of a client that are to be lost.
    pub(crate) fn publish_to_nobody(&mut self, id: ConnId, run: &Run<'_>) {
        let connection = &mut self.outputs.connections[id];
        let count = run.count() as u64;
        connection.messages_in += count;
        connection.payload_in_bytes += count * run.body_bytes as u64;
        self.counters.add(Counter::MessagesIn, count);
        self.counters.add(Counter::PayloadIn, count * run.body_bytes as u64);
        if !run.reply.is_empty() {
            self.tell_no_responders(id, run);
        }
    }

    /// Delivers to whoever matches; whether anybody was reached.
    ///
    /// `from` is who made this happen: it waits if too much is under way to another core.
    pub(crate) fn spread(
        &mut self,
        from: ConnId,
        account: u16,
        producer: Producer,
        run: &Run<'_>,
        matched: &Match,
    ) -> bool {
        let mut reached = self.deliver_to_all(&matched.subscribers, producer, run);
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
            let to = Destination { core: to, account, group: None };
            send_across(&mut self.outputs, &mut self.links, from, to, producer, run);
        }
        reached
    }

    /// What another core's producer sent, for this core's subscribers.
    pub(crate) fn deliver_from_core(
        &mut self,
        account: u16,
        producer: Producer,
        group: Option<(&[u8], &[u8])>,
        run: &Run<'_>,
    ) {
        let root = self.subjects.root_of(account);
        if let Some((pattern, queue)) = group {
            let Some((node, group)) = self.subjects.find_group(root, pattern, queue) else { return };
            for at in 0..run.count() {
                self.deliver_to_own_members(node, group, account, producer, &run.one(at));
            }
        } else {
            let (slot, matched) = self.subjects.matches.take(&self.subjects.trie, root, run.subject);
            self.deliver_to_all(&matched.subscribers, producer, run);
            self.subjects.matches.put_back(slot, matched);
        }
        self.end_finished();
    }

    /// Gives a run to each of some subscribers; whether any took something.
    fn deliver_to_all(&mut self, subscribers: &[SubId], producer: Producer, run: &Run<'_>) -> bool {
        let mut delivered = 0;
        for &sub in subscribers {
            delivered += self.deliver(sub, producer, run);
        }
        self.count_out(delivered, run);
        delivered > 0
    }

    /// Gives one message to a member of a group; whether there was one.
    fn deliver_to_group(
        &mut self,
        node: NodeId,
        group: usize,
        account: u16,
        producer: Producer,
        run: &Run<'_>,
    ) -> bool {
        let to = match self.subjects.whose_turn(node, group) {
            Turn::Nobody => return false,
            Turn::Core(to) => Some(to),
            Turn::Own if self.deliver_to_own_member(node, group, producer, run) => return true,
            Turn::Own => self.subjects.other_core_with_members(node, group),
        };
        to.is_some_and(|to| {
            self.pass_on(to, node, group, account, producer, run);
            true
        })
    }

    /// The same for a message that another core has sent to one of our members. The last of them may have left while it
    /// was on its way; another core's gets it then. That core was told of the leaving before it sees this, so nothing
    /// goes round in a circle.
    fn deliver_to_own_members(
        &mut self,
        node: NodeId,
        group: usize,
        account: u16,
        producer: Producer,
        run: &Run<'_>,
    ) {
        if self.deliver_to_own_member(node, group, producer, run) {
            return;
        }
        if let Some(to) = self.subjects.other_core_with_members(node, group) {
            self.pass_on(to, node, group, account, producer, run);
        }
    }

    fn deliver_to_own_member(
        &mut self,
        node: NodeId,
        group: usize,
        producer: Producer,
        run: &Run<'_>,
    ) -> bool {
        for _ in 0..self.subjects.own_members(node, group) {
            let member = self.subjects.next_own_member(node, group);
            let delivered = self.deliver(member, producer, run);
            if delivered > 0 {
                self.count_out(delivered, run);
                return true;
            }
        }
        false
    }

    fn pass_on(
        &mut self,
        to: usize,
        node: NodeId,
        group: usize,
        account: u16,
        producer: Producer,
        run: &Run<'_>,
    ) {
        let group = Some(self.subjects.words_of_group(node, group));
        let to = Destination { core: to, account, group };
        send_across(&mut self.outputs, &mut self.links, producer.conn, to, producer, run);
    }

    /// Appends a run to a subscriber's output; how many messages of it.
    fn deliver(&mut self, sub: SubId, producer: Producer, run: &Run<'_>) -> u64 {
        let Self { subjects, outputs, links, now_ms, .. } = self;
        let (subscription, count) = subjects.still_gets(sub, run.count());
        let (id, ends) = (subscription.conn, subscription.ends);
        let put = outputs.put(subscription, count, producer, run, *now_ms);
        let delivered = match put {
            Put::Appended(count) => count,
            Put::AboveMark(count) => {
                outputs.hold_back(id, producer, *now_ms, links);
                count
            }
            Put::Nothing => 0,
            Put::NoRoom => {
                let subject = subjects.a_subject_of(&outputs.connections[id]);
                outputs.cut_slow(id, Closed::SlowConsumerPending, &subject);
                0
            }
        };
        if delivered > 0 && protocol_log::is_wanted() {
            protocol_log::messages(outputs.connections[id].cid, "MSG", run, delivered);
        }
        if ends && delivered > 0 {
            subjects.had_some(sub);
        }
        delivered as u64
    }

    fn count_out(&self, delivered: u64, run: &Run<'_>) {
        if delivered > 0 {
            self.counters.add(Counter::MessagesOut, delivered);
            self.counters.add(Counter::PayloadOut, delivered * run.body_bytes as u64);
        }
    }

    /// Nobody was there to answer: the requester is told, if it wants to know and listens for the answer.
    #[cold]
    fn tell_no_responders(&mut self, id: ConnId, run: &Run<'_>) {
        let Self { subjects, outputs, .. } = self;
        let connection = &outputs.connections[id];
        if !connection.no_responders {
            return;
        }
        let (slot, matched) = subjects.matches.take(&subjects.trie, connection.root, run.reply);
        let mut all = matched.subscribers.iter().map(|&sub| subjects.subscription(sub));
        if let Some(subscription) = all.find(|subscription| subscription.conn == id) {
            for _ in 0..run.count() {
                outputs.say_no_responders(id, run.reply, &subscription.sid, run.subject);
                self.counters.add(Counter::NoResponders, 1);
            }
        }
        subjects.matches.put_back(slot, matched);
    }

    /// Ends the subscriptions that have had their last message.
    pub(crate) fn end_finished(&mut self) {
        while let Some((sub, id)) = self.subjects.take_finished() {
            self.subjects.unsubscribe(sub, &mut self.outputs.connections[id], &mut self.links);
        }
    }
}

/// Whether the client may publish this; it is told if not.
#[cold]
fn may_publish(outputs: &mut Outputs, id: ConnId, run: &Run<'_>, now_ms: u64) -> bool {
    let connection = &mut *outputs.connections[id];
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
        outputs.counters.add(Counter::PermissionsDenied, 1);
        outputs.reject(id, rejection);
    }
    false
}

/// Sends messages to another core's subscribers. If too much is under way to that one, `from` waits; where the producer
/// is another core's, that one made it wait.
fn send_across(
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
