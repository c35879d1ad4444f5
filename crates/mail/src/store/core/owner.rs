//! The core that owns an inbox or a mail, and the layout of a mail's ID.

use crate::{
    mailbox::mailboxes::{Inbox, MailId},
    store::index::hash_of_inbox,
};

/// Bits of a mail's ID, from the highest: milliseconds since 2025, the fraction of the millisecond (so that
/// IDs grow in order of arrival), the core that received the mail, a hash of its inbox.
pub(super) const HASH_BITS: u32 = 8;
pub(super) const CORE_BITS: u32 = 6;
pub(super) const NUMBER_BITS: u32 = 9;
pub(super) const NS_A_MS: u64 = 1_000_000;
/// 2025-01-01, in milliseconds since 1970.
pub(super) const EPOCH_MS: u64 = 1_735_689_600_000;
/// Maximum number of cores, limited by the core bits of an ID.
pub(crate) const CORES_MAX: usize = 1 << CORE_BITS;

/// Returns the core that owns an inbox, from the 8-bit hash of the inbox or of one of its mail IDs.
pub(crate) fn owner_of_hash(hash8: u64, cores: usize) -> usize {
    (hash8 as usize * cores) >> HASH_BITS
}

/// Returns the core that owns an inbox.
pub(crate) fn owner(inbox: &Inbox, cores: usize) -> usize {
    owner_of_hash(hash8(inbox), cores)
}

/// Returns the core that owns the inbox of a mail.
pub(crate) fn owner_of_mail(id: MailId, cores: usize) -> usize {
    owner_of_hash(id.0 & ((1 << HASH_BITS) - 1), cores)
}

pub(super) fn hash8(inbox: &Inbox) -> u64 {
    hash_of_inbox(&inbox.local, &inbox.domain) >> (64 - HASH_BITS)
}

/// Returns the ID without the bits of core and inbox. A restarted core continues from the greatest value.
pub(crate) fn name_without_inbox(id: MailId) -> u64 {
    id.0 >> (HASH_BITS + CORE_BITS)
}
