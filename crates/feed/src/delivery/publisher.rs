//! Publisher for the program's own messages, within the process and without a connection.
//!
//! ```text
//!   Publisher ── batch of PUB operations ──▶ ring ──▶ core 0: to its subscribers, and across to the other cores'
//! ```
//! *Who waits:* nobody. Consumers cannot hold the publisher back, because it has no connection; a consumer
//! that falls behind is disconnected when it exceeds its own bounds. *What is bounded:* batches, each up to
//! [`BATCH_BYTES_MAX`], share the ring of the server's occasional messages; a batch that finds no room is
//! returned to the caller. If a core is so far behind that producers would be held back for it, messages are
//! dropped, and counted in `feed_own_lost` and by [`Publisher::lost`].

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use engine::{cold_mutex::ColdMutex, cores::mesh};
use wire::nats::{
    Progress,
    client::{self, ClientOp},
    write,
};

use crate::{
    accounts::identity::AccountId,
    counters::Counter,
    delivery::{batch::Batch, origin::Origin, producer::Producer, run::Run, suspended::SuspendedDelivery},
    mesh::{core::Core, links::Message},
};

/// Size in bytes at which a batch accepts no more messages; its last message may exceed this size.
pub const BATCH_BYTES_MAX: usize = 64 << 10;

/// Longest subject of the program's own messages, in bytes.
const SUBJECT_BYTES_MAX: usize = 2048;
/// Longest payload of the program's own messages, in bytes.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// Sender to the cores from threads beside the loops. Locked for a push into a ring; no client's message
/// passes here.
pub(crate) type Outside = ColdMutex<mesh::Sender<Message>>;

/// Publishes into the global account, on any subject, including the subjects reserved for the program
/// ([`crate::accounts::identity::ReservedSubjects`]).
pub struct Publisher {
    outside: Arc<Outside>,
    batch: Vec<u8>,
    lost: Arc<AtomicU64>,
}

/// Error: the ring was full, or the feed has ended. The batch is kept for another attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the feed is not accepting messages now")]
pub struct NotTaken;

impl Publisher {
    pub(crate) fn new(outside: Arc<Outside>) -> Self {
        Self { outside, batch: Vec::new(), lost: Arc::default() }
    }

    /// Appends a message to the batch. Returns false if the batch is full and must be sent first.
    ///
    /// # Panics
    /// If the subject is invalid or longer than 2 KiB, or the payload is longer than 1 MiB.
    #[must_use]
    pub fn add(&mut self, subject: &str, payload: &[u8]) -> bool {
        assert!(
            subject.len() <= SUBJECT_BYTES_MAX && payload.len() <= PAYLOAD_BYTES_MAX,
            "a message of our own is small"
        );
        assert!(
            wire::nats::subject::is_valid_literal(subject.as_bytes()),
            "a subject of our own: {subject:?}"
        );
        if self.batch.len() >= BATCH_BYTES_MAX {
            return false;
        }
        write::publish(&mut self.batch, subject.as_bytes(), b"", payload);
        true
    }

    /// Sends the batch, unless it is empty.
    ///
    /// # Errors
    /// [`NotTaken`] if the ring is full or the feed has ended.
    pub fn send(&mut self) -> Result<(), NotTaken> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = Batch {
            operations: std::mem::take(&mut self.batch),
            lost: Arc::clone(&self.lost),
            account: AccountId::GLOBAL,
        };
        let outside = self.outside.lock();
        // All batches go to the same core, which keeps their order.
        match outside.send(0, Message::Publish(batch)) {
            Ok(()) => {
                outside.flush();
                Ok(())
            }
            Err(Message::Publish(batch)) => {
                self.batch = batch.operations;
                Err(NotTaken)
            }
            Err(_) => unreachable!("what was not sent comes back"),
        }
    }

    /// Returns the number of messages that were accepted but dropped.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl Core {
    /// Delivers a batch of the program's own messages, starting at offset `at`. Returns whether all was done
    /// within the turn's budget.
    pub(crate) fn publish_own(
        &mut self,
        batch: &Batch,
        at: &mut usize,
        begun: &mut Option<Box<SuspendedDelivery>>,
    ) -> bool {
        if batch.account == AccountId::SYSTEM {
            self.publish_as_server(batch.account.0, &batch.operations);
            return true;
        }
        // Limits for the program's own messages, which `add` has checked already.
        const OWN: client::Limits = client::Limits {
            control_line_bytes_max: 2 * SUBJECT_BYTES_MAX,
            payload_bytes_max: PAYLOAD_BYTES_MAX,
            headers: false,
        };
        let root = self.routing.subjects.root_of(AccountId::GLOBAL.0);
        let nobody = Producer::nobody(self.index);
        let account = AccountId::GLOBAL.0;
        // The global account has no exports and no imports.
        let of = Origin::of_nobody(nobody, account, root);
        let mut rest = &batch.operations[*at..];
        while let Ok(Progress::Complete(ClientOp::Publish(publish), taken)) = client::parse(rest, &OWN) {
            let run = Run::new(&publish, &rest[..taken]);
            if begun.is_none() && self.is_turn_over() {
                return false;
            }
            if begun.is_none() && self.links.is_any_full() {
                self.count(Counter::OwnLost);
                batch.lost.fetch_add(1, Ordering::Relaxed);
            } else {
                if begun.is_none() {
                    self.count(Counter::MessagesIn);
                    self.observers.counters.add(Counter::PayloadIn, run.body_bytes as u64);
                }
                *begun = self.hand_out(&of, &run, begun.take()).err();
                self.end_finished();
                if begun.is_some() {
                    return false;
                }
            }
            rest = &rest[taken..];
            *at += taken;
        }
        assert!(rest.is_empty(), "a batch of our own has whole messages alone");
        true
    }
}
