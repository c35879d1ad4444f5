//! Key of a mail: time of arrival, then ID. Keys sort oldest first; lists show them in reverse.

use crate::mailbox::mailboxes::{MailId, Summary};

/// Time of arrival of a mail and its ID across all inboxes; keys sort by arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MailKey {
    /// Time of arrival, in milliseconds since 1970.
    pub arrived_ms: u64,
    /// ID in the list of all mails.
    pub id: MailId,
}

impl MailKey {
    /// Returns the key of a mail across all inboxes.
    pub(crate) fn of(summary: &Summary) -> Self {
        Self { arrived_ms: summary.arrived_ms, id: summary.letter }
    }
}
