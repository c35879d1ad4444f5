//! The core that owns an inbox or a mail, and the layout of a mail's number.

use crate::{
    mailbox::mailboxes::{Inbox, MailId},
    store::index::hash_of_inbox,
};

/// Bits of a mail's name, from the highest: milliseconds since 2025, what part of one has passed (so that names grow as
/// mails arrive), the core that received it, a hash of its inbox.
pub(super) const HASH_BITS: u32 = 8;
pub(super) const CORE_BITS: u32 = 6;
pub(super) const NUMBER_BITS: u32 = 9;
pub(super) const NS_A_MS: u64 = 1_000_000;
/// 2025-01-01, in milliseconds since 1970.
pub(super) const EPOCH_MS: u64 = 1_735_689_600_000;
/// Cores that names can tell apart.
pub(crate) const CORES_MAX: usize = 1 << CORE_BITS;

/// The core that owns an inbox, from the hash of either its name or one of its mails' names.
pub(crate) fn owner_of_hash(hash8: u64, cores: usize) -> usize {
    (hash8 as usize * cores) >> HASH_BITS
}

/// The core that owns an inbox.
pub(crate) fn owner(inbox: &Inbox, cores: usize) -> usize {
    owner_of_hash(hash8(inbox), cores)
}

/// The core that owns the inbox of a mail.
pub(crate) fn owner_of_mail(id: MailId, cores: usize) -> usize {
    owner_of_hash(id.0 & ((1 << HASH_BITS) - 1), cores)
}

pub(super) fn hash8(inbox: &Inbox) -> u64 {
    hash_of_inbox(&inbox.local, &inbox.domain) >> (64 - HASH_BITS)
}

/// The greatest part of a name that a core has given, for one that starts after it.
pub(crate) fn name_without_inbox(id: MailId) -> u64 {
    id.0 >> (HASH_BITS + CORE_BITS)
}
