//! Batch of the program's own messages, on its way to a core.

use std::sync::{Arc, atomic::AtomicU64};

use wire::nats::write;

use crate::accounts::identity::AccountId;

/// Consecutive complete PUB operations.
pub(crate) struct Batch {
    pub(super) operations: Vec<u8>,
    pub(super) lost: Arc<AtomicU64>,
    pub(super) account: AccountId,
}

impl Batch {
    /// Builds a batch with one message that the server itself publishes.
    pub(crate) fn of_server(account: AccountId, subject: &[u8], body: &[u8]) -> Self {
        let mut operations = Vec::with_capacity(body.len() + subject.len() + 32);
        write::publish(&mut operations, subject, b"", body);
        Self { operations, lost: Arc::default(), account }
    }
}
