//! What other cores have sent: applied and delivered in the order in which it was sent.

use std::{future::poll_fn, rc::Rc};

use engine::cores::clock;

use crate::{
    across::{Message, Record, Records},
    core::{Core, Local},
    server,
};

impl Local {
    /// Waits for what other cores send, for ever.
    pub(crate) async fn attend_inbox(self: Rc<Self>) {
        loop {
            tokio::task::coop::consume_budget().await;
            poll_fn(|cx| {
                let inbox = &mut *self.inbox.borrow_mut();
                inbox.receiver.poll_recv_batch(cx, &mut inbox.batch).map(|_| ())
            })
            .await;
            let core = &mut *self.core.borrow_mut();
            core.now_ms = clock::monotonic_ms();
            self.apply(core);
            core.end_turn();
        }
    }

    /// Takes what is there now, without waiting.
    pub(crate) fn take_inbox(self: &Rc<Self>, core: &mut Core) {
        let received = {
            let inbox = &mut *self.inbox.borrow_mut();
            inbox.receiver.try_recv_batch(&mut inbox.batch)
        };
        if received > 0 {
            self.apply(core);
        }
    }

    fn apply(self: &Rc<Self>, core: &mut Core) {
        let mut batch = std::mem::take(&mut self.inbox.borrow_mut().batch);
        for message in batch.drain(..) {
            match message {
                Message::Batch { from, records } => {
                    core.apply_records(from, &records);
                    core.links.give_back(from, records);
                }
                Message::Spent { from, buffer, bytes } => core.came_back(from, buffer, bytes),
                Message::Accept(socket, address, door) => {
                    server::take_over(self, core, socket, address, door)
                }
                Message::Snapshot(answer) => {
                    // Who asked may have stopped waiting.
                    let _ = answer.send(core.snapshot());
                }
                Message::Publish(batch) => core.publish_own(&batch),
                Message::Reload(settings) => core.reload(settings),
            }
        }
        self.inbox.borrow_mut().batch = batch;
    }
}

impl Core {
    fn apply_records(&mut self, from: usize, records: &[u8]) {
        for record in Records::new(records) {
            match record {
                Record::Interest { account, pattern, has } => {
                    self.apply_interest(from, account, pattern, has)
                }
                Record::Members { account, pattern, queue, count } => {
                    self.apply_members(from, account, pattern, queue, count);
                }
                Record::Run { account, producer, group, run } => {
                    self.deliver_from_core(account, producer, group, &run);
                }
                Record::Hold(producer) => self.held(producer),
                Record::Release(producer) => self.let_go(producer),
            }
        }
    }

    fn apply_interest(&mut self, from: usize, account: u16, pattern: &[u8], has: bool) {
        let root = self.root_of(account);
        let node = self.trie.insert(root, pattern);
        let more = self.trie.more_mut(node);
        if has {
            more.remote |= 1 << from;
        } else {
            more.remote &= !(1 << from);
            self.trie.let_go_of_more(node);
            self.trie.prune(node);
        }
    }

    fn apply_members(&mut self, from: usize, account: u16, pattern: &[u8], queue: &[u8], count: u32) {
        let root = self.root_of(account);
        let node = self.trie.insert(root, pattern);
        let place = self.group_of(node, queue);
        let remote = &mut self.trie.group_mut(node, place).remote;
        remote.retain(|&mut (core, _)| usize::from(core) != from);
        if count > 0 {
            #[expect(clippy::cast_possible_truncation, reason = "there are at most 64 cores")]
            remote.push((from as u16, count));
        }
        self.drop_group_if_empty(node, place);
        self.trie.prune(node);
    }

    fn came_back(&mut self, from: usize, buffer: Vec<u8>, bytes: usize) {
        let mut resume = Vec::new();
        self.links.came_back(from, buffer, bytes, &mut resume);
        for id in resume {
            if let Some(connection) = self.connections.find_mut(id) {
                connection.waits_for_core = false;
                connection.wake();
            }
        }
    }
}
