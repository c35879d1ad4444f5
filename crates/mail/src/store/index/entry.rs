//! An entry of the index: one mail in one inbox.

use std::sync::Arc;

use super::chain::{Chain, Link};
use crate::{
    mailbox::mailboxes::{Inbox, MailId},
    store::record::Part,
};

/// Indexes of the three chains that an entry is in.
pub(super) const BY_INBOX: usize = 0;
pub(super) const BY_DOMAIN: usize = 1;
/// The chain of all mails; for [`Role::Other`], the chain of the entries in inboxes other than the first.
pub(super) const BY_ALL: usize = 2;

/// Relation of an inbox's entry to its mail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// The mail was delivered to this inbox only.
    #[default]
    Only,
    /// The first of several inboxes: the mail's ID here identifies it in the list of all mails.
    First,
    /// Another one of several inboxes.
    Other,
}

/// Entry of one mail in one inbox.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Entry {
    /// ID of the mail; 0 if the slot is vacant.
    pub(super) id: u64,
    pub(super) location: u64,
    pub(super) arrived_ms: u64,
    pub(super) links: [Link; 3],
    pub(super) record_bytes: u32,
    pub(super) mail_bytes: u32,
    /// Slot of the inbox; [`NONE`] if the inbox has dropped the mail.
    pub(super) inbox: u32,
    pub(super) role: Role,
    /// True if this inbox has dropped the mail, which other inboxes still have.
    pub(super) is_let_go: bool,
    /// True if the mail expires early, at the time in [`EarlyExpiry`].
    pub(super) is_hurried: bool,
}

const _: () = assert!(size_of::<Entry>() <= 64);

#[derive(Debug, Default)]
pub(super) struct InboxSlot {
    pub(super) local: Box<str>,
    pub(super) domain: u32,
    pub(super) chain: Chain,
}

#[derive(Debug, Default)]
pub(super) struct DomainSlot {
    pub(super) name: Box<str>,
    pub(super) chain: Chain,
    pub(super) inboxes: u32,
}

/// A mail to be inserted into the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewEntry {
    pub(crate) id: MailId,
    /// ID of the mail in its first inbox, and the number of its inboxes.
    pub(crate) letter: MailId,
    pub(crate) inboxes: u16,
    /// Location of the mail's record in the log.
    pub(crate) location: u64,
    pub(crate) record_bytes: u32,
    pub(crate) mail_bytes: u32,
    pub(crate) arrived_ms: u64,
    /// Locations of the parts of a large mail, which its record does not contain.
    pub(crate) parts: Option<Arc<[Part]>>,
}

impl NewEntry {
    pub(crate) fn role(&self) -> Role {
        match () {
            () if self.inboxes <= 1 => Role::Only,
            () if self.id == self.letter => Role::First,
            () => Role::Other,
        }
    }
}

/// Location of a mail, with its times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) id: MailId,
    pub(crate) location: u64,
    pub(crate) record_bytes: u32,
    pub(crate) arrived_ms: u64,
    /// Time of expiry.
    pub(crate) expires_ms: u64,
    pub(crate) role: Role,
    /// True if the inbox itself has dropped the mail.
    pub(crate) is_let_go: bool,
}

/// A mail that was removed from an inbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemovedMail {
    pub(crate) place: Place,
    pub(crate) inbox: Inbox,
    /// ID of the mail in its first inbox.
    pub(crate) letter: MailId,
    /// Location of the record of an early expiry, if there is one.
    pub(crate) hurried_by: Option<u64>,
    /// Parts of a large mail, if this was its last entry on the core under this ID.
    pub(crate) parts: Option<Arc<[Part]>>,
}
