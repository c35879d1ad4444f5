//! Key of a mail in the order of lists: newest first.

use crate::mailbox::mailboxes::MailId;

/// Time of arrival of a mail and its ID across all inboxes; keys sort by arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MailKey {
    /// Time of arrival, in milliseconds since 1970.
    pub arrived_ms: u64,
    /// ID in the list of all mails.
    pub id: MailId,
}
