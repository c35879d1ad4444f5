//! Operations from a hub: its interest in subjects, and messages for local subscribers.
//!
//! ```text
//!   LMSG a.b 5␍␊hello␍␊LMSG a.b 5␍␊…   a run, like a client's: delivered directly from the read buffer
//!   LMSG a.b | q 5␍␊hello␍␊            rewritten without its groups; then delivered to one member of each group
//!   LMSG _INBOX.x $JS.ACK.…@s 5␍␊…     a message stored by JetStream: matched by `_INBOX.x`, shown as `s`
//! ```

use wire::nats::{
    Progress, client,
    leaf::{self, LeafOp, Limits, Message},
    write,
};

use super::trouble::Trouble;
use crate::{
    accounts::mapping::By,
    client::{
        connection::ConnId,
        session::{RUN_BYTES_MAX, ReadOutcome},
    },
    counters::Counter,
    delivery::{
        origin::Origin,
        producer::Producer,
        run::Run,
        suspended::{GroupRefusals, SuspendedDelivery},
        work::Work,
    },
    leaf::limits::PAYLOAD_BYTES_MAX,
    mesh::core::Core,
};

/// Length of the verb and the space before the subject in `LMSG` and `HMSG`.
const VERB_BYTES: usize = "LMSG ".len();

impl Core {
    /// Executes a hub's operations at the start of `bytes`. Returns how many bytes were processed, and why it
    /// stopped.
    pub(crate) fn process_hub(&mut self, id: ConnId, bytes: &[u8]) -> (usize, ReadOutcome) {
        let mut at = 0;
        loop {
            let connection = &self.outputs.connections[id];
            if connection.closing.is_some() {
                return (at, ReadOutcome::Closing);
            }
            let Some(of) = connection.hub else { return (at, ReadOutcome::Closing) };
            let limits = Limits { payload_bytes_max: PAYLOAD_BYTES_MAX, ..Limits::default() };
            let rest = &bytes[at..];
            match leaf::parse(rest, &limits) {
                Ok(Progress::NeedMore(need)) => return (at, ReadOutcome::More { need }),
                Err(fault) => {
                    self.close_hub(id, Trouble::Protocol(fault.to_string()));
                    return (at, ReadOutcome::Closing);
                }
                Ok(Progress::Complete(LeafOp::Message(message), taken)) => {
                    self.turn.work.add(1);
                    match self.take_from_hub(id, &message, rest) {
                        Some(more) => at += taken + more,
                        None => return (at, ReadOutcome::Over),
                    }
                }
                Ok(Progress::Complete(op, taken)) => {
                    at += taken;
                    self.turn.work.add(1);
                    match op {
                        LeafOp::Interest { subject, queue } => self.hear_interest(id, of, subject, queue),
                        LeafOp::NoInterest { subject, queue } => {
                            self.hear_no_interest(id, of, subject, queue)
                        }
                        LeafOp::Info { json } => self.hear_info(id, of, json),
                        LeafOp::Error { text } => self.hear_error(id, of, text),
                        LeafOp::Ping => _ = self.outputs.tell_hub(id, b"PONG\r\n"),
                        LeafOp::Pong => self.take_pong(id),
                        LeafOp::Ok | LeafOp::Connect { .. } | LeafOp::Message(_) => {}
                    }
                }
            }
            if self.outputs.connections[id].is_held() {
                return (at, ReadOutcome::Held);
            }
            if self.is_turn_over() {
                return (at, ReadOutcome::Over);
            }
        }
    }

    /// Publishes a message from a hub and the similar messages that follow it. Returns the length in bytes of
    /// those that follow; `None` if the delivery continues in another turn.
    fn take_from_hub(&mut self, id: ConnId, first: &Message<'_>, bytes: &[u8]) -> Option<usize> {
        let begun = self.outputs.connections[id].begun.take();
        let stored = stored_subject(first.reply);
        if !first.is_plain || stored.is_some() {
            let mut rewritten = std::mem::take(&mut self.turn.buffers.rewritten);
            let (shown, reply) = stored.map_or((None, first.reply), |(shown, reply)| (Some(shown), reply));
            let usual = rewrite(first, reply, &mut rewritten);
            let run = Run { bytes: &rewritten, shown, ..usual };
            let is_done = self.take_run_of_hub(id, &run, first, begun);
            self.turn.buffers.rewritten = rewritten;
            return is_done.then_some(0);
        }
        let stride = first.whole.len();
        let mut end = stride;
        if let Some(begun) = &begun {
            end = begun.run_bytes;
        } else {
            while end < RUN_BYTES_MAX
                && client::repeats(&bytes[end..], first.line, first.body.len()).is_some()
            {
                end += stride;
            }
        }
        let run = Run {
            bytes: &bytes[..end],
            stride,
            tail_at: VERB_BYTES + first.subject.len(),
            body_bytes: first.body.len(),
            header_bytes: first.header_bytes,
            subject: first.subject,
            shown: None,
            reply: first.reply,
        };
        let is_done = self.take_run_of_hub(id, &run, first, begun);
        is_done.then_some(end - stride)
    }

    /// Counts and publishes a hub's messages, or resumes a suspended delivery. Returns whether everything is
    /// done.
    fn take_run_of_hub(
        &mut self,
        id: ConnId,
        run: &Run<'_>,
        message: &Message<'_>,
        begun: Option<Box<SuspendedDelivery>>,
    ) -> bool {
        if begun.is_none() {
            let connection = &mut *self.outputs.connections[id];
            let count = run.count() as u64;
            connection.messages_in += count;
            connection.payload_in_bytes += count * run.body_bytes as u64;
            self.observers.counters.add(Counter::LeafMessagesIn, count);
            self.observers.counters.add(Counter::LeafPayloadIn, count * run.body_bytes as u64);
            let hub = self.outputs.connections[id].hub.and_then(|of| self.hubs.find(of));
            if hub.is_some_and(|hub| !hub.rules.may_come(run.subject)) {
                self.observers.counters.add(Counter::LeafDenied, count);
                return true;
            }
        }
        if self.routing.mappings.is_some() || begun.as_ref().is_some_and(|begun| begun.mapped.is_some()) {
            self.publish_mapped(id, run, begun, By::Hub(message))
        } else {
            self.publish_from_hub(id, run, Some(message), begun)
        }
    }

    /// Delivers a hub's messages, or resumes a suspended delivery. Returns whether everything is done. If
    /// `message` is given, the queue groups that it names get the message; otherwise the groups that match
    /// the subject, as for messages published by local clients.
    pub(crate) fn publish_from_hub(
        &mut self,
        id: ConnId,
        run: &Run<'_>,
        message: Option<&Message<'_>>,
        begun: Option<Box<SuspendedDelivery>>,
    ) -> bool {
        let connection = &*self.outputs.connections[id];
        let (account, root) = (connection.account, connection.root);
        let reserved = &self.settings.config.authorization.reserved;
        if run.subject.is_empty() || reserved.is_of_program(account, run.subject) {
            // A mapping may drop a share of the messages on purpose; these do not count as denied.
            let denied = if run.subject.is_empty() { 0 } else { run.count() as u64 };
            self.observers.counters.add(Counter::LeafDenied, denied);
            return true;
        }
        // Producers at the hub cannot be paused for a slow consumer here.
        let nobody = Producer::nobody(self.index);
        let deals = self.routing.subjects.abroad.has_imports(account);
        let of = Origin {
            from: id,
            is_from_hub: true,
            are_groups_named: message.is_some(),
            deals,
            ..Origin::of_nobody(nobody, account, root)
        };
        match self.hand_out(&of, run, begun) {
            Ok(_) => {
                if let Some(message) = message.filter(|message| !message.queues.is_empty()) {
                    self.hand_to_groups(&of, run, message);
                }
                self.end_finished();
                true
            }
            Err(begun) => {
                self.end_finished();
                self.outputs.connections[id].begun = Some(begun);
                false
            }
        }
    }

    /// Delivers a message to one member of each queue group that the hub names. The cost grows with the
    /// number of groups, which the operator's own hub determines.
    fn hand_to_groups(&mut self, of: &Origin, run: &Run<'_>, message: &Message<'_>) {
        let work = std::mem::replace(&mut self.turn.work, Work::of(u64::MAX));
        let (slot, matched) = self.routing.subjects.matches.take(
            &self.routing.subjects.trie,
            of.root,
            run.subject,
            &mut self.turn.work,
        );
        for queue in message.queue_names() {
            if let Some(group) = matched.group_of_name(&self.routing.subjects.trie, queue) {
                self.deliver_to_group(group, of, run, &mut GroupRefusals::default());
            }
        }
        self.routing.subjects.matches.put_back(slot, matched);
        let done = std::mem::replace(&mut self.turn.work, work).done();
        self.turn.work.add(done + message.queues.len() as u64);
    }
}

/// Splits the reply subject of a message stored by JetStream into the subject under which the message is
/// stored, and the reply subject without it. (The form is nats-server's for routes and leaf nodes: `$JS.ACK.`
/// and at least six tokens, then `@` and the subject.)
fn stored_subject(reply: &[u8]) -> Option<(&[u8], &[u8])> {
    const TOKENS_MIN: usize = 8;
    if !reply.starts_with(b"$JS.ACK.") {
        return None;
    }
    let mut dots = 0;
    let at = reply.iter().position(|&byte| {
        dots += usize::from(byte == b'.');
        byte == b'@' && dots >= TOKENS_MIN
    })?;
    let (reply, shown) = (&reply[..at], &reply[at + 1..]);
    (!shown.is_empty()).then_some((shown, reply))
}

/// Rewrites a hub's message in the form that clients send, without the names of queue groups.
fn rewrite<'a>(message: &Message<'a>, reply: &'a [u8], into: &mut Vec<u8>) -> Run<'a> {
    into.clear();
    leaf::begin_message(into, message.header_bytes.is_some(), message.subject, reply, b"");
    for size in message.header_bytes.into_iter().chain([message.body.len()]) {
        into.push(b' ');
        write::number(into, size);
    }
    into.extend_from_slice(b"\r\n");
    into.extend_from_slice(message.body);
    into.extend_from_slice(b"\r\n");
    Run {
        bytes: &[],
        stride: into.len(),
        tail_at: VERB_BYTES + message.subject.len(),
        body_bytes: message.body.len(),
        header_bytes: message.header_bytes,
        subject: message.subject,
        shown: None,
        reply,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subject_of_a_stored_message() {
        let acknowledged = b"$JS.ACK.S.C.1.2.3.1700000000000000000.0";
        assert_eq!(stored_subject(acknowledged), None);
        let with = [&acknowledged[..], b"@orders.eu@x"].concat();
        assert_eq!(stored_subject(&with), Some((&b"orders.eu@x"[..], &acknowledged[..])));
        let without = [&acknowledged[..], b"@"].concat();
        assert_eq!(stored_subject(&without), None);
        // Names of streams and consumers may contain `@`.
        let named = b"$JS.ACK.S@x.C@y.1.2.3.4.0@k";
        assert_eq!(stored_subject(named), Some((&b"k"[..], &b"$JS.ACK.S@x.C@y.1.2.3.4.0"[..])));
        assert_eq!(stored_subject(b"_INBOX.a.b.c.d.e.f.g.h@x"), None);
        assert_eq!(stored_subject(b""), None);
    }
}
