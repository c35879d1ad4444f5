//! Inbox of a core: batches from other cores, applied and delivered in the order in which they were sent.
//!
//! ```text
//!   ring ─▶ batch: announcements and messages ─ within the turn's budget ─▶ delivered, its buffer is returned
//!                   └─ over budget: announcements first, messages wait ─▶ queue ─ turn by turn ─▶ delivered
//! ```
//! *Order.* Messages from one core keep their order, and so do the program's own messages. Announcements of
//! subscriptions do not wait behind messages, so that a client whose SUB was answered receives messages. If
//! there are more announcements than a turn can apply, a client's message is published here only once the
//! announcements that arrived before its bytes are applied. While messages wait, a client's later operations
//! that need an answer (`PING`, `SUB`, `UNSUB`) wait for them, so that a `PONG` still means that everything
//! published before is delivered. Later messages of a client do not wait: messages of two producers on two
//! cores may then overtake each other. *Bound:* waiting batches still count as under way to this core
//! (`links`), which pauses their producers.

use std::{future::poll_fn, rc::Rc, task::Poll};

use crate::{
    client::accept,
    delivery::work::{WORK_ON_THE_WAY, Work},
    mesh::{
        core::{Core, Local, Turn},
        links::{Message, Record, Records},
        waiting::{BatchSource, WaitingBatch},
    },
    monitor::inspector,
    routing::trie::tokens_of,
};

impl Local {
    /// Receives and delivers batches from other cores, in an endless loop.
    pub(crate) async fn attend_inbox(self: Rc<Self>) {
        loop {
            tokio::task::coop::consume_budget().await;
            poll_fn(|cx| {
                let inbox = &mut *self.inbox.borrow_mut();
                if !inbox.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    inbox.waker = Some(cx.waker().clone());
                }
                match inbox.receiver.poll_recv_batch(cx, &mut inbox.batch) {
                    Poll::Pending if inbox.queue.is_empty() => Poll::Pending,
                    _ => Poll::Ready(()),
                }
            })
            .await;
            let is_waiting = {
                let core = &mut *self.core.borrow_mut();
                core.begin_turn();
                self.apply(core);
                self.hear_waiting(core);
                self.deliver_waiting(core);
                core.end_turn();
                !self.inbox.borrow().queue.is_empty()
            };
            if is_waiting {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Takes the batches that have arrived, without waiting. Their cost is not charged to the client that is
    /// served next.
    pub(crate) fn take_inbox(self: &Rc<Self>, core: &mut Core) {
        let received = {
            let inbox = &mut *self.inbox.borrow_mut();
            inbox.receiver.try_recv_batch(&mut inbox.batch)
        };
        if received > 0 || core.turn.backlog.unheard > 0 {
            let work = std::mem::replace(&mut core.turn.work, Work::of(WORK_ON_THE_WAY));
            self.apply(core);
            self.hear_waiting(core);
            core.turn.work = work;
            let inbox = self.inbox.borrow();
            if let Some(waker) = inbox.waker.as_ref().filter(|_| !inbox.queue.is_empty()) {
                waker.wake_by_ref();
            }
        }
    }

    fn apply(self: &Rc<Self>, core: &mut Core) {
        let mut batch = std::mem::take(&mut self.inbox.borrow_mut().batch);
        for message in batch.drain(..) {
            match message {
                Message::Batch { from, records, weight } => {
                    self.take_batch(core, BatchSource::Core { core: from, records, weight });
                }
                Message::Spent { from, buffer } => {
                    let resumed = core.links.came_back(from, buffer);
                    core.outputs.resume(resumed);
                }
                Message::Accept(socket, address, door) => {
                    accept::take_over(self, core, socket, address, door)
                }
                Message::Look(look) => inspector::step(core, look),
                Message::Publish(batch) => self.take_batch(core, BatchSource::Program(batch)),
                Message::Reload(settings) => core.reload(settings),
            }
        }
        self.inbox.borrow_mut().batch = batch;
    }

    fn take_batch(&self, core: &mut Core, from: BatchSource) {
        let queue = &mut self.inbox.borrow_mut().queue;
        let mut batch =
            WaitingBatch { from, at: 0, heard: Some(0), has_messages: false, is_unheard: false, begun: None };
        if queue.is_empty() && batch.deliver(core) {
            return batch.end(core);
        }
        // Announcements must be applied in the order in which they were sent, so these wait behind earlier
        // ones.
        let is_heard = core.turn.backlog.unheard == 0 && batch.hear(core);
        if is_heard && !batch.has_messages {
            return batch.end(core);
        }
        batch.is_unheard = !is_heard;
        core.turn.backlog.unheard += usize::from(!is_heard);
        core.turn.backlog.queued += 1;
        queue.push_back(batch);
    }

    /// Continues to apply announcements, within the turn's budget.
    fn hear_waiting(&self, core: &mut Core) {
        if core.turn.backlog.unheard == 0 {
            return;
        }
        let queue = &mut self.inbox.borrow_mut().queue;
        let before = core.turn.backlog.unheard;
        for batch in queue.iter_mut().filter(|batch| batch.is_unheard) {
            if !batch.hear(core) {
                break;
            }
            batch.is_unheard = false;
            core.turn.backlog.unheard -= 1;
        }
        if core.turn.backlog.unheard < before {
            core.wake_waiting();
        }
    }

    /// Continues to deliver messages, within the turn's budget.
    pub(crate) fn deliver_waiting(&self, core: &mut Core) {
        let queue = &mut self.inbox.borrow_mut().queue;
        while let Some(mut batch) = queue.pop_front() {
            if !batch.deliver(core) {
                queue.push_front(batch);
                return;
            }
            core.turn.backlog.unheard -= usize::from(batch.is_unheard);
            batch.end(core);
            core.turn.backlog.done += 1;
            core.wake_waiting();
        }
    }
}

impl Core {
    /// Wakes the clients that waited for announcements from other cores, if these are all applied.
    fn wake_waiting(&mut self) {
        let Self { outputs, turn: Turn { backlog, .. }, .. } = self;
        let heard = backlog.heard();
        backlog.waiting.retain(|id| {
            let Some(connection) = outputs.connections.find_mut(*id) else { return false };
            if connection.behind > heard {
                return true;
            }
            connection.waits_for_inbox = false;
            connection.wake();
            false
        });
    }
}

impl WaitingBatch {
    /// Delivers the remainder of the batch. Returns whether all was done within the turn's budget.
    fn deliver(&mut self, core: &mut Core) -> bool {
        let Self { from, at, heard, begun, .. } = self;
        let (from, bytes) = match from {
            BatchSource::Program(batch) => return core.publish_own(batch, at, begun),
            BatchSource::Core { core: from, records, .. } => (*from, &records[..]),
        };
        let mut records = Records::new(&bytes[*at..]);
        while let Some(record) = records.next() {
            match record {
                Record::Run(relayed) => {
                    if begun.is_none() && core.is_turn_over() {
                        return false;
                    }
                    core.turn.work.add(1);
                    *begun = core.deliver_from_core(&relayed, begun.take());
                    if begun.is_some() {
                        return false;
                    }
                }
                Record::ToHub { hub, queues, producer, run } => {
                    if core.is_turn_over() {
                        return false;
                    }
                    core.deliver_to_hub(hub, queues, producer, &run);
                }
                word if heard.is_some_and(|heard| heard <= *at) => {
                    if core.turn.work.lacks(steps_of(&word)) {
                        return false;
                    }
                    apply_record(core, from, &word);
                    core.turn.work.pay(core.routing.subjects.trie.take_steps());
                    *heard = Some(bytes.len() - records.bytes_left());
                }
                _ => {}
            }
            *at = bytes.len() - records.bytes_left();
        }
        true
    }

    /// Applies the batch's announcements, holds and releases. Returns whether all was done within the turn's
    /// budget.
    fn hear(&mut self, core: &mut Core) -> bool {
        let Self { from, at, heard, has_messages, .. } = self;
        let (BatchSource::Core { core: from, records: bytes, .. }, Some(done)) = (from, *heard) else {
            *has_messages = true;
            return true;
        };
        let begin = done.max(*at);
        let mut records = Records::new(&bytes[begin..]);
        while let Some(record) = records.next() {
            *has_messages |= matches!(record, Record::Run(_) | Record::ToHub { .. });
            if core.turn.work.lacks(steps_of(&record)) {
                return false;
            }
            core.turn.work.step();
            apply_record(core, *from, &record);
            core.turn.work.pay(core.routing.subjects.trie.take_steps());
            *heard = Some(bytes.len() - records.bytes_left());
        }
        *heard = None;
        true
    }

    fn end(self, core: &mut Core) {
        if let BatchSource::Core { core: from, records, weight } = self.from {
            core.links.give_back(from, records, weight);
        }
    }
}

/// Returns the largest cost of a record: its pattern is walked once to find the node, and once to remove it.
fn steps_of(record: &Record<'_>) -> u64 {
    match record {
        Record::Interest { pattern, .. }
        | Record::Members { pattern, .. }
        | Record::HubInterest { pattern, .. }
        | Record::HubMembers { pattern, .. } => 2 * tokens_of(pattern) as u64,
        _ => 1,
    }
}

fn apply_record(core: &mut Core, from: usize, record: &Record<'_>) {
    match *record {
        Record::Interest { account, pattern, has } => {
            core.routing.subjects.apply_interest(from, account, pattern, has, &mut core.links);
        }
        Record::Members { account, pattern, queue, count } => {
            core.routing.subjects.apply_members(from, account, pattern, queue, count, &mut core.links);
        }
        Record::HubInterest { hub, account, pattern, has } => {
            core.routing.subjects.apply_hub_interest(hub, account, pattern, has);
        }
        Record::HubMembers { hub, account, pattern, queue, count } => {
            core.routing.subjects.apply_hub_members(hub, account, pattern, queue, count);
        }
        Record::HubLoop { hub, connection } => core.close_for_loop(hub, connection),
        Record::HubsUp { mask, up } => core.hubs.up = core.hubs.up & !mask | up,
        Record::Run(_) | Record::ToHub { .. } => {}
        Record::Hold(producer) => core.outputs.held(producer),
        Record::Release(producer) => core.outputs.let_go(producer),
    }
}
