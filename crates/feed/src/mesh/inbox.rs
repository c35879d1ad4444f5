//! What other cores have sent: applied and delivered in the order in which it was sent.
//!
//! ```text
//!   ring ─▶ batch: words and messages ─ within the turn's work ─▶ delivered, its buffer goes back
//!                   └─ more than that: the words first, the messages wait ─▶ queue ─ a turn each ─▶ delivered
//! ```
//! *Order.* Messages of one core stay in their order, and so do those of the program itself. What cores say of their
//! subscriptions does not wait behind messages, so that whoever has been answered is reached: where there is more of it
//! than a turn applies, no client publishes here before all is applied that had come before its bytes. While messages
//! wait, a client's questions (`PING`, `SUB`, `UNSUB`) that came after them wait for them, so that a `PONG` still says
//! that all is delivered that was published before; its messages do not: those of two producers on two cores may pass
//! each other then. *Bound:* what waits counts as under way to here (`across`), by which its producers are paused.

use std::{
    collections::VecDeque,
    future::poll_fn,
    rc::Rc,
    task::{Poll, Waker},
};

use engine::cores::mesh;

use crate::{
    delivery::{
        publish::SuspendedDelivery,
        publisher::Batch,
        work::{WORK_ON_THE_WAY, Work},
    },
    mesh::{
        core::{Core, Local},
        links::{Message, Record, Records},
    },
    monitor::inspector,
    routing::trie::tokens_of,
    server,
};

/// What other cores send.
pub(crate) struct Inbox {
    receiver: mesh::Receiver<Message>,
    batch: Vec<Message>,
    queue: VecDeque<WaitingBatch>,
    /// Of the task that delivers what waits.
    waker: Option<Waker>,
}

/// A batch that is being delivered.
struct WaitingBatch {
    from: From,
    /// How many of its bytes are done.
    at: usize,
    /// Up to here what is said of subscriptions has been applied; `None`: all of it.
    heard: Option<usize>,
    /// There are messages in what was heard.
    has_messages: bool,
    /// It is counted among those that are not heard to the end.
    is_unheard: bool,
    /// The message at `at` has not reached all.
    begun: Option<Box<SuspendedDelivery>>,
}

enum From {
    Core { core: usize, records: Vec<u8>, weight: usize },
    Program(Batch),
}

impl Inbox {
    pub(crate) fn new(receiver: mesh::Receiver<Message>) -> Self {
        Self { receiver, batch: Vec::new(), queue: VecDeque::new(), waker: None }
    }
}

impl Local {
    /// Waits for what other cores send, for ever.
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

    /// Takes what is there now, without waiting. What it costs is not the client's who is about to be looked at.
    pub(crate) fn take_inbox(self: &Rc<Self>, core: &mut Core) {
        let received = {
            let inbox = &mut *self.inbox.borrow_mut();
            inbox.receiver.try_recv_batch(&mut inbox.batch)
        };
        if received > 0 || core.backlog.unheard > 0 {
            let work = std::mem::replace(&mut core.work, Work::of(WORK_ON_THE_WAY));
            self.apply(core);
            self.hear_waiting(core);
            core.work = work;
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
                    self.take_batch(core, From::Core { core: from, records, weight });
                }
                Message::Spent { from, buffer, bytes, weight } => {
                    let resumed = core.links.came_back(from, buffer, (bytes, weight));
                    core.outputs.resume(resumed);
                }
                Message::Accept(socket, address, door) => {
                    server::take_over(self, core, socket, address, door)
                }
                Message::Look(look) => inspector::step(core, look),
                Message::Publish(batch) => self.take_batch(core, From::Program(batch)),
                Message::Reload(settings) => core.reload(settings),
            }
        }
        self.inbox.borrow_mut().batch = batch;
    }

    fn take_batch(&self, core: &mut Core, from: From) {
        let queue = &mut self.inbox.borrow_mut().queue;
        let mut batch =
            WaitingBatch { from, at: 0, heard: Some(0), has_messages: false, is_unheard: false, begun: None };
        if queue.is_empty() && batch.deliver(core) {
            return batch.end(core);
        }
        // What cores say is applied in the order in which it was said.
        let is_heard = core.backlog.unheard == 0 && batch.hear(core);
        if is_heard && !batch.has_messages {
            return batch.end(core);
        }
        batch.is_unheard = !is_heard;
        core.backlog.unheard += usize::from(!is_heard);
        core.backlog.queued += 1;
        queue.push_back(batch);
    }

    /// Goes on to apply what was said of subscriptions, as far as the turn's work allows.
    fn hear_waiting(&self, core: &mut Core) {
        if core.backlog.unheard == 0 {
            return;
        }
        let queue = &mut self.inbox.borrow_mut().queue;
        let before = core.backlog.unheard;
        for batch in queue.iter_mut().filter(|batch| batch.is_unheard) {
            if !batch.hear(core) {
                break;
            }
            batch.is_unheard = false;
            core.backlog.unheard -= 1;
        }
        if core.backlog.unheard < before {
            core.wake_waiting();
        }
    }

    /// Goes on to deliver, as far as the turn's work allows.
    pub(crate) fn deliver_waiting(&self, core: &mut Core) {
        let queue = &mut self.inbox.borrow_mut().queue;
        while let Some(mut batch) = queue.pop_front() {
            if !batch.deliver(core) {
                queue.push_front(batch);
                return;
            }
            core.backlog.unheard -= usize::from(batch.is_unheard);
            batch.end(core);
            core.backlog.done += 1;
            core.wake_waiting();
        }
    }
}

impl Core {
    /// Wakes the clients for which all has been applied that other cores had said before them.
    fn wake_waiting(&mut self) {
        let Self { backlog, outputs, .. } = self;
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
    /// Delivers what is left of it; whether that was all before the turn's work was done.
    fn deliver(&mut self, core: &mut Core) -> bool {
        let Self { from, at, heard, begun, .. } = self;
        match from {
            From::Program(batch) => core.publish_own(batch, at, begun),
            From::Core { core: from, records: bytes, .. } => {
                let mut records = Records::new(&bytes[*at..]);
                while let Some(record) = records.next() {
                    match record {
                        Record::Run { account, is_imported, producer, group, run } => {
                            if begun.is_none() && core.is_turn_over() {
                                return false;
                            }
                            core.work.add(1);
                            let to = (account, is_imported);
                            *begun = core.deliver_from_core(to, producer, group, &run, begun.take());
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
                            if core.work.lacks(steps_of(&word)) {
                                return false;
                            }
                            hear(core, *from, &word);
                            core.work.pay(core.subjects.trie.take_steps());
                            *heard = Some(bytes.len() - records.bytes_left());
                        }
                        _ => {}
                    }
                    *at = bytes.len() - records.bytes_left();
                }
                true
            }
        }
    }

    /// Applies what is said of subscriptions and of who waits; whether that was all before the turn's work was done.
    fn hear(&mut self, core: &mut Core) -> bool {
        let Self { from, at, heard, has_messages, .. } = self;
        let (From::Core { core: from, records: bytes, .. }, Some(done)) = (from, *heard) else {
            *has_messages = true;
            return true;
        };
        let begin = done.max(*at);
        let mut records = Records::new(&bytes[begin..]);
        while let Some(record) = records.next() {
            *has_messages |= matches!(record, Record::Run { .. } | Record::ToHub { .. });
            if core.work.lacks(steps_of(&record)) {
                return false;
            }
            core.work.step();
            hear(core, *from, &record);
            core.work.pay(core.subjects.trie.take_steps());
            *heard = Some(bytes.len() - records.bytes_left());
        }
        *heard = None;
        true
    }

    fn end(self, core: &mut Core) {
        if let From::Core { core: from, records, weight } = self.from {
            core.links.give_back(from, records, weight);
        }
    }
}

/// What a word of another core's may take: its pattern is walked to be found, and to be pruned.
fn steps_of(record: &Record<'_>) -> u64 {
    match record {
        Record::Interest { pattern, .. }
        | Record::Members { pattern, .. }
        | Record::HubInterest { pattern, .. }
        | Record::HubMembers { pattern, .. } => 2 * tokens_of(pattern) as u64,
        _ => 1,
    }
}

fn hear(core: &mut Core, from: usize, record: &Record<'_>) {
    match *record {
        Record::Interest { account, pattern, has } => {
            core.subjects.apply_interest(from, account, pattern, has, &mut core.links);
        }
        Record::Members { account, pattern, queue, count } => {
            core.subjects.apply_members(from, account, pattern, queue, count, &mut core.links);
        }
        Record::HubInterest { hub, account, pattern, has } => {
            core.subjects.apply_hub_interest(hub, account, pattern, has);
        }
        Record::HubMembers { hub, account, pattern, queue, count } => {
            core.subjects.apply_hub_members(hub, account, (pattern, queue), count);
        }
        Record::HubLoop { hub, connection } => core.close_for_loop(hub, connection),
        Record::HubsUp { mask, up } => core.hubs_up = core.hubs_up & !mask | up,
        Record::Run { .. } | Record::ToHub { .. } => {}
        Record::Hold(producer) => core.outputs.held(producer),
        Record::Release(producer) => core.outputs.let_go(producer),
    }
}
