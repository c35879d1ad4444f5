//! An entry of the index: one mail in one inbox.

use super::chain::{Chain, Link};
use crate::{
    mailbox::mailboxes::{Inbox, MailId},
    store::record::Part,
};
use std::sync::Arc;

/// The three chains that an entry is in.
pub(super) const BY_INBOX: usize = 0;
pub(super) const BY_DOMAIN: usize = 1;
/// Of all mails, or of those beside them.
pub(super) const BY_ALL: usize = 2;

/// What an inbox's entry is to the mail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Role {
    /// It came into this inbox alone.
    #[default]
    Only,
    /// This is the first of several inboxes: by its name there the mail is known among all.
    First,
    /// It is another of several.
    Other,
}

/// One mail in one inbox.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Entry {
    /// 0: the slot is vacant.
    pub(super) id: u64,
    pub(super) location: u64,
    pub(super) arrived_ms: u64,
    pub(super) links: [Link; 3],
    pub(super) record_bytes: u32,
    pub(super) mail_bytes: u32,
    /// [`NONE`] of one that is let go.
    pub(super) inbox: u32,
    pub(super) role: Role,
    /// Its inbox has it no more; other inboxes have.
    pub(super) is_let_go: bool,
    /// It goes before its age, as [`EarlyExpiry`] says.
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

/// A mail to be entered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewEntry {
    pub(crate) id: MailId,
    /// Its name in its first inbox, and how many inboxes it came into.
    pub(crate) letter: MailId,
    pub(crate) inboxes: u16,
    /// Of its record in the log.
    pub(crate) location: u64,
    pub(crate) record_bytes: u32,
    pub(crate) mail_bytes: u32,
    pub(crate) arrived_ms: u64,
    /// Of a large mail: where what its record does not have is.
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

/// Where a mail lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) id: MailId,
    pub(crate) location: u64,
    pub(crate) record_bytes: u32,
    pub(crate) arrived_ms: u64,
    /// When it is forgotten.
    pub(crate) expires_ms: u64,
    pub(crate) role: Role,
    /// Its own inbox has it no more.
    pub(crate) is_let_go: bool,
}

/// A mail that an inbox has no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemovedMail {
    pub(crate) place: Place,
    pub(crate) inbox: Inbox,
    /// Its name in its first inbox.
    pub(crate) letter: MailId,
    /// Where it is written that it was to go before its age, if it was.
    pub(crate) hurried_by: Option<u64>,
    /// Of a large mail that nobody else has under this name: its parts.
    pub(crate) parts: Option<Arc<[Part]>>,
}
