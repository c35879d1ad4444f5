//! Delivery of messages to hubs: from the match that includes a hub's interest, to the output of the hub's
//! connection.

use super::hub::Hub;
use crate::{
    accounts::identity::covers,
    client::connection::CloseReason,
    counters::Counter,
    delivery::{
        origin::Origin,
        outputs::{PutOutcome, send_across},
        producer::Producer,
        run::Run,
        suspended::AtHubs,
        work::{self, Work},
    },
    mesh::{
        core::Core,
        links::{Destination, To},
    },
    routing::trie::{HubId, HubMask},
};

impl Core {
    /// Sends a run (consecutive messages to one subject) to hubs: those with subscribers outside of queue
    /// groups, and those whose queue groups get it. Each hub gets the run once. Returns whether any hub gets
    /// it.
    #[cold]
    pub(crate) fn send_to_hubs(
        &mut self,
        of: &Origin,
        run: &Run<'_>,
        hubs: HubMask,
        at_hubs: &AtHubs,
    ) -> bool {
        let mut left = at_hubs.iter().fold(hubs, |mask, &(hub, _)| mask | 1 << hub) & self.hubs.up;
        // Only the account and subject under which the message was published matter here, not its subject in
        // the hub's account.
        if self.settings.config.authorization.reserved.keeps_from_hub(of.account, run.subject) {
            self.observers
                .counters
                .add(Counter::LeafDenied, run.count() as u64 * u64::from(left.count_ones()));
            return false;
        }
        let mut is_sent = false;
        let mut queues = std::mem::take(&mut self.turn.buffers.queues);
        while left != 0 {
            #[expect(clippy::cast_possible_truncation, reason = "a mask has sixteen bits")]
            let hub = left.trailing_zeros() as HubId;
            left &= left - 1;
            queues.clear();
            for &(_, part) in at_hubs.iter().filter(|&&(of, _)| of == hub) {
                // The queue group may have been removed since the match.
                if let Some(group) = self.routing.subjects.trie.group(part) {
                    if !queues.is_empty() {
                        queues.push(b' ');
                    }
                    queues.extend_from_slice(&group.name);
                }
            }
            if queues.is_empty() && hubs & 1 << hub == 0 {
                continue;
            }
            let seed = self.settings.hubs.iter().find(|seed| seed.hub == hub);
            match seed.map(|seed| seed.account) {
                Some(account) if account == of.account => is_sent |= self.send_to_hub(hub, &queues, of, run),
                Some(account) => {
                    let is_for_all = hubs & 1 << hub != 0;
                    is_sent |= self.send_abroad_to_hub(hub, account, &queues, is_for_all, of, run);
                }
                // A reload has just removed the hub.
                None => {}
            }
        }
        self.turn.buffers.queues = queues;
        is_sent
    }

    /// Sends a run (consecutive messages to one subject) to a hub, which any core may have joined. Returns
    /// whether it is on its way.
    fn send_to_hub(&mut self, hub: HubId, queues: &[u8], of: &Origin, run: &Run<'_>) -> bool {
        self.turn.work.add(work::delivery(run.count(), run.bytes.len()));
        let core = usize::from(hub) % self.cores;
        if core == self.index {
            return self.deliver_to_hub(hub, queues, of.producer, run);
        }
        let to = To::Hub { hub, queues };
        let to = Destination { core, account: of.account, is_imported: of.is_imported, to };
        send_across(&mut self.outputs, &mut self.links, of.from, to, of.producer, run);
        true
    }

    /// Sends a run to a hub whose account imports it as a stream, under its subject in that account.
    /// `is_for_all`: the hub also has subscribers outside of queue groups.
    fn send_abroad_to_hub(
        &mut self,
        hub: HubId,
        account: u16,
        queues: &[u8],
        is_for_all: bool,
        of: &Origin,
        run: &Run<'_>,
    ) -> bool {
        // A message that arrived through a service import is not delivered through a stream import as well
        // (nats-server's rule).
        if of.is_imported {
            return false;
        }
        let mut streams = self.routing.subjects.abroad.streams(account, of.account);
        streams.retain(|stream| covers(stream.path.source().as_bytes(), run.subject));
        let mut subject = std::mem::take(&mut self.turn.buffers.imported);
        let mut is_sent = false;
        for stream in &streams {
            stream.path.apply(run.subject, &mut subject);
            let named = Run { subject: &subject, ..*run };
            if streams.len() == 1 {
                // With a single stream, the hub's interest can only have matched through it.
                is_sent |= self.send_to_hub(hub, queues, of, &named);
                continue;
            }
            // Several streams carry the subject: the hub gets the message under each name in which it has
            // interest.
            let (is_wanted, there) = self.wants(hub, account, &subject, queues);
            if is_wanted && is_for_all || !there.is_empty() {
                is_sent |= self.send_to_hub(hub, &there, of, &named);
            }
        }
        self.turn.buffers.imported = subject;
        is_sent
    }

    /// Returns whether a hub has subscribers to a subject outside of queue groups, and which of the queue
    /// groups in `queues` have members for that subject at the hub.
    fn wants(&mut self, hub: HubId, account: u16, subject: &[u8], queues: &[u8]) -> (bool, Vec<u8>) {
        let root = self.routing.subjects.root_of(account);
        // The search counts as one step; if it is costly, the turn ends after it.
        let mut work = Work::of(u64::MAX);
        let (slot, matched) =
            self.routing.subjects.matches.take(&self.routing.subjects.trie, root, subject, &mut work);
        self.turn.work.add(work.done());
        let wants = matched.hubs & 1 << hub != 0;
        let mut there = Vec::new();
        for queue in queues.split(|byte| *byte == b' ').filter(|queue| !queue.is_empty()) {
            let trie = &self.routing.subjects.trie;
            if matched.group_of_name(trie, queue).is_some_and(|group| group.is_at_hub(trie, hub)) {
                there.extend_from_slice(if there.is_empty() { b"" } else { b" " });
                there.extend_from_slice(queue);
            }
        }
        self.routing.subjects.matches.put_back(slot, matched);
        (wants, there)
    }

    /// Appends a run to the output of a hub that this core has joined. Returns whether the hub gets it.
    pub(crate) fn deliver_to_hub(
        &mut self,
        of: HubId,
        queues: &[u8],
        producer: Producer,
        run: &Run<'_>,
    ) -> bool {
        let count = run.count() as u64;
        let found = self.hubs.find(of).and_then(|hub| hub.conn.map(|id| (hub, id)));
        let Some((hub, id)) = found.filter(|(hub, _)| hub.is_up) else {
            // The hub was lost while the run was on its way.
            self.observers.counters.add(Counter::LeafDropped, count);
            return false;
        };
        let is_kept =
            self.settings.config.authorization.reserved.keeps_from_hub(hub.seed.account, run.subject);
        if let Some(counter) = is_kept.then_some(Counter::LeafDenied).or_else(|| refused(hub, run)) {
            self.observers.counters.add(counter, count);
            return false;
        }
        // The subscription for the answer must reach the hub before the request.
        if self.links.tellers.is_waiting {
            self.tell_hubs();
        }
        match self.outputs.put_to_hub(id, queues, run) {
            PutOutcome::Nothing => {
                self.observers.counters.add(Counter::LeafDropped, count);
                return false;
            }
            PutOutcome::NoRoom => {
                self.observers.counters.add(Counter::LeafDropped, count);
                self.outputs.cut_slow(
                    id,
                    CloseReason::SlowConsumerPending,
                    &String::from_utf8_lossy(run.subject),
                );
                return false;
            }
            PutOutcome::Appended(_) => {}
            PutOutcome::Backlogged(count) => {
                self.outputs.note_backlog(
                    id,
                    producer,
                    count * run.stride,
                    self.turn.now_ms,
                    &mut self.links,
                );
            }
        }
        self.observers.counters.add(Counter::LeafMessagesOut, count);
        self.observers.counters.add(Counter::LeafPayloadOut, count * run.body_bytes as u64);
        true
    }
}

/// Returns the counter for the reason why a run may not be sent to a hub; `None` if it may.
fn refused(hub: &Hub, run: &Run<'_>) -> Option<Counter> {
    if run.body_bytes > hub.max_payload {
        return Some(Counter::LeafTooLarge);
    }
    (!hub.rules.allows_all() && !hub.rules.may_send(run.subject)).then_some(Counter::LeafDenied)
}
