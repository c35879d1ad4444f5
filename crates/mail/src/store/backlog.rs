//! Messages for other cores whose rings were full, in one queue per core.
//!
//! ```text
//!   mail is kept ─▶ publish ─▶ ring to the owner of its inbox ── full ──▶ the owner's queue here ─▶ ring, a round later
//!        ▲                                                                       │ has BEHIND_MAX messages
//!        └────────────────── no mail for that core is kept: it waits for room ◀──┘
//! ```
//! A stalled core takes nothing out of its rings. *Bounds:* once [`BEHIND_MAX`] messages wait for a core, no
//! mail for one of its inboxes is stored; mails that sessions have already stored in the same turn may still
//! be added. Such a core gets no connections, and no request to make room, as `make_room` asks again anyway.
//! A [`Message::LetGo`] replaces the entry that it removes, so there are never more of these than mails in
//! the index.

use std::collections::VecDeque;

use crate::store::core::Message;

/// Maximum number of messages that wait for a core; at this bound mails to the core's inboxes wait for room.
pub(crate) const BEHIND_MAX: usize = 1024;

/// Waiting messages, one queue per core: a stalled core does not delay messages for other cores.
#[derive(Default)]
pub(crate) struct Backlog {
    queues: Vec<VecDeque<Message>>,
}

impl Backlog {
    /// Creates empty queues for `cores` cores.
    pub(crate) fn new(cores: usize) -> Self {
        Self { queues: std::iter::repeat_with(VecDeque::new).take(cores).collect() }
    }

    /// Returns whether messages wait for a core.
    pub(crate) fn has(&self, to: usize) -> bool {
        !self.queues[to].is_empty()
    }

    /// Returns whether the queue of a core has reached its bound.
    pub(crate) fn is_full(&self, to: usize) -> bool {
        self.queues[to].len() >= BEHIND_MAX
    }

    /// Returns whether no message waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }

    /// Number of waiting messages, across all cores.
    pub(crate) fn len(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    /// Appends a message to the queue of a core.
    pub(crate) fn push(&mut self, to: usize, message: Message) {
        self.queues[to].push_back(message);
    }

    /// Sends each core its messages in order, until `send` returns a message because the core's ring is full.
    pub(crate) fn give(&mut self, mut send: impl FnMut(usize, Message) -> Result<(), Message>) {
        for (to, queue) in self.queues.iter_mut().enumerate() {
            while let Some(message) = queue.pop_front() {
                if let Err(message) = send(to, message) {
                    queue.push_front(message);
                    break;
                }
            }
            // The memory of a long queue is freed once it is empty.
            if queue.is_empty() && queue.capacity() > BEHIND_MAX / 8 {
                *queue = VecDeque::new();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::{
        config::Config,
        counters::Counter,
        mailbox::mailboxes::Inbox,
        smtp::{
            ListenerKind,
            session::{Session, TurnEnd, TurnOutcome},
        },
        store::{
            accept_path_tests::{RING_MESSAGES, core_beside},
            core::{Core, owner},
        },
    };

    /// Returns the name of an inbox that the given core owns if there are two cores.
    fn inbox_of(core: usize) -> String {
        let mut names = (0..).map(|number| format!("inbox{number}"));
        let is_its = |name: &String| owner(&Inbox::of(name, "inbox.test").expect("an inbox"), 2) == core;
        names.find(is_its).expect("each core owns inboxes")
    }

    /// Sends a mail and returns its reply; `None` if the mail waits for room.
    async fn deliver(core: &Core, session: &mut Session, inbox: &str) -> Option<String> {
        let lines = [
            "MAIL FROM:<a@b.test>\r\n".to_owned(),
            format!("RCPT TO:<{inbox}@inbox.test>\r\n"),
            "DATA\r\n".to_owned(),
            "Subject: one\r\n\r\n.\r\n".to_owned(),
        ];
        let mut said = String::new();
        for line in lines {
            let mut turn = TurnOutcome::begin(core);
            let (_, stop) = session.handle_input(core, line.as_bytes(), core.now_ms(), &mut turn);
            if stop == TurnEnd::Room {
                return None;
            }
            assert!(turn.settle(core).await, "it is kept");
            said = String::from_utf8_lossy(&turn.out).into_owned();
            turn.end(core);
        }
        Some(said)
    }

    #[test]
    fn mails_wait_for_a_core_far_behind() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (_log, core, mut others) =
                core_beside(2, Config { store_bytes: 256 << 20, ..Config::default() });
            let (here, there) = (inbox_of(0), inbox_of(1));
            let mut session = Session::new(&core, Ipv4Addr::LOCALHOST.into(), ListenerKind::Smtp);
            session.handle_input(&core, b"EHLO x\r\n", core.now_ms(), &mut TurnOutcome::default());
            let mut kept = 0;
            while deliver(&core, &mut session, &there).await.is_some() {
                kept += 1;
                assert!(kept <= RING_MESSAGES + BEHIND_MAX, "no more than that waits for a core");
            }
            assert_eq!(core.rings.backlog.borrow().len(), BEHIND_MAX);
            assert_eq!(core.observers.counters.value(Counter::CoreBehind), 1);
            for _ in 0..5 {
                let tried = session.resume_mail(&core, core.now_ms(), &mut TurnOutcome::default());
                assert_eq!(tried, Some(TurnEnd::Room));
            }
            assert_eq!(
                core.observers.counters.value(Counter::CoreBehind),
                1,
                "a mail that waits is counted once"
            );
            // Mails for other cores do not wait.
            let mut other = Session::new(&core, Ipv4Addr::LOCALHOST.into(), ListenerKind::Smtp);
            other.handle_input(&core, b"EHLO x\r\n", core.now_ms(), &mut TurnOutcome::default());
            let said = deliver(&core, &mut other, &here).await.expect("it need not wait");
            assert!(said.starts_with("250"), "{said}");
            // Once the core continues, it receives all messages in order, and the waiting mail is stored.
            let mut seen = Vec::new();
            while !core.rings.backlog.borrow().is_empty() {
                others[0].try_recv_batch(&mut seen);
                core.send_backlog();
            }
            let mut turn = TurnOutcome::begin(&core);
            assert_eq!(session.resume_mail(&core, core.now_ms(), &mut turn), None);
            assert!(turn.settle(&core).await && turn.out.starts_with(b"250"));
            // The ring may still be full of earlier messages.
            others[0].try_recv_batch(&mut seen);
            core.send_backlog();
            others[0].try_recv_batch(&mut seen);
            let arrived = seen.iter().map(|message| match message {
                Message::Arrived(arrivals) => arrivals[0].entry.id,
                _ => panic!("a mail"),
            });
            let arrived: Vec<_> = arrived.collect();
            assert_eq!(arrived.len(), kept + 1);
            assert!(arrived.is_sorted(), "in the order in which they came");
        });
    }

    #[test]
    fn a_mail_that_waited_in_vain_gets_451() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let (_log, core, _others) = core_beside(2, Config::default());
            (0..RING_MESSAGES + BEHIND_MAX).for_each(|segment| {
                core.give(1, Message::Reclaim(segment.try_into().expect("a small number")));
            });
            assert!(core.is_far_behind(1) && !core.is_far_behind(0));
            let mut session = Session::new(&core, Ipv4Addr::LOCALHOST.into(), ListenerKind::Smtp);
            session.handle_input(&core, b"EHLO x\r\n", core.now_ms(), &mut TurnOutcome::default());
            assert_eq!(deliver(&core, &mut session, &inbox_of(1)).await, None);
            let mut turn = TurnOutcome::default();
            assert_eq!(session.give_up_mail(&core, &mut turn), TurnEnd::Read);
            let said = String::from_utf8_lossy(&turn.out).into_owned();
            assert!(said.starts_with("451 4.3.2 "), "{said}");
            assert_eq!(core.observers.counters.value(Counter::StoreFull), 0, "the store has room");
        });
    }
}
