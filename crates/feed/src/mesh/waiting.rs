//! Batches from other cores that wait in a core's inbox.

use std::{collections::VecDeque, task::Waker};

use engine::cores::mesh;

use crate::{
    delivery::{batch::Batch, suspended::SuspendedDelivery},
    mesh::links::Message,
};

/// Receiver of batches from other cores, with the queue of those that are not delivered yet.
pub(crate) struct Inbox {
    pub(super) receiver: mesh::Receiver<Message>,
    pub(super) batch: Vec<Message>,
    pub(super) queue: VecDeque<WaitingBatch>,
    /// Waker of the task that delivers waiting batches.
    pub(super) waker: Option<Waker>,
}

/// A batch that is being delivered.
pub(super) struct WaitingBatch {
    pub(super) from: BatchSource,
    /// Number of bytes of the batch that have been processed.
    pub(super) at: usize,
    /// Offset up to which the batch's announcements are applied; `None`: all are.
    pub(super) heard: Option<usize>,
    /// The part of the batch whose announcements have been applied contains messages.
    pub(super) has_messages: bool,
    /// The batch is counted in the core's `Backlog::unheard`.
    pub(super) is_unheard: bool,
    /// Progress of the message at `at`, if it is not delivered to all subscribers.
    pub(super) begun: Option<Box<SuspendedDelivery>>,
}

/// Sender of a batch, with its content.
pub(super) enum BatchSource {
    Core { core: usize, records: Vec<u8>, weight: usize },
    Program(Batch),
}

impl Inbox {
    pub(crate) fn new(receiver: mesh::Receiver<Message>) -> Self {
        Self { receiver, batch: Vec::new(), queue: VecDeque::new(), waker: None }
    }
}
