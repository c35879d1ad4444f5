//! What other cores have sent: applied and delivered in the order in which it was sent.

use std::{future::poll_fn, rc::Rc};

use engine::cores::clock;

use crate::{
    across::{Message, Record, Records},
    core::{Core, Local},
    look, server,
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
                    apply_records(core, from, &records);
                    core.links.give_back(from, records);
                }
                Message::Spent { from, buffer, bytes } => {
                    let resumed = core.links.came_back(from, buffer, bytes);
                    core.outputs.resume(resumed);
                }
                Message::Accept(socket, address, door) => {
                    server::take_over(self, core, socket, address, door)
                }
                Message::Look(look) => look::step(core, look),
                Message::Publish(batch) => core.publish_own(&batch),
                Message::Reload(settings) => core.reload(settings),
            }
        }
        self.inbox.borrow_mut().batch = batch;
    }
}

fn apply_records(core: &mut Core, from: usize, records: &[u8]) {
    for record in Records::new(records) {
        match record {
            Record::Interest { account, pattern, has } => {
                core.subjects.apply_interest(from, account, pattern, has);
            }
            Record::Members { account, pattern, queue, count } => {
                core.subjects.apply_members(from, account, pattern, queue, count);
            }
            Record::Run { account, producer, group, run } => {
                core.deliver_from_core(account, producer, group, &run);
            }
            Record::Hold(producer) => core.outputs.held(producer),
            Record::Release(producer) => core.outputs.let_go(producer),
        }
    }
}
