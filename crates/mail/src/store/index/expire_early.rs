//! Early expiry: mails that a reader asked to be deleted before their age (`delete=5m`).
//!
//! An early expiry takes one more word in the expiry queue and 24 bytes outside of the entry: few mails
//! expire early, and the 64 bytes of an entry have no room for a second time. The mail's original word stays
//! in the queue; when its time comes, it matches no mail that is due. *Bound:* the expiry of a mail is
//! brought forward [`TIMES_MAX`] times at most, which limits the growth of queue and log.

use super::{Entry, Index, due_s};
use crate::mailbox::mailboxes::MailId;

/// Maximum number of times that a mail's expiry is changed; each change adds a record to the log and a word
/// to the queue.
const TIMES_MAX: u8 = 8;
/// Capacity that the table keeps after its last entry is removed.
const SPARE_MAX: usize = 1024;

/// Early expiry of a mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EarlyExpiry {
    pub(crate) expires_ms: u64,
    /// Location of the record in the log.
    pub(crate) marker: u64,
    times: u8,
}

/// Answer to a request to bring a mail's expiry forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EarlyExpiryOutcome {
    /// The expiry can be brought forward.
    Yes,
    /// The mail expires by then anyway.
    NoNeed,
    /// The expiry was brought forward too often.
    TooOften,
    /// The mail does not exist.
    Gone,
}

impl Index {
    /// Returns whether a mail's expiry can be brought forward to `expires_ms`.
    pub(crate) fn check_early_expiry(&self, id: MailId, expires_ms: u64, now_ms: u64) -> EarlyExpiryOutcome {
        let Some(slot) = self.find(id) else { return EarlyExpiryOutcome::Gone };
        let entry = &self.entries[slot];
        match self.expires_ms(entry) {
            _ if entry.is_let_go => EarlyExpiryOutcome::Gone,
            at_ms if at_ms <= now_ms => EarlyExpiryOutcome::Gone,
            at_ms if at_ms <= expires_ms => EarlyExpiryOutcome::NoNeed,
            _ if self.hurried.get(&id.0).is_some_and(|hurried| hurried.times >= TIMES_MAX) => {
                EarlyExpiryOutcome::TooOften
            }
            _ => EarlyExpiryOutcome::Yes,
        }
    }

    /// Brings a mail's expiry forward, as recorded at `marker`. Returns the location of the earlier record,
    /// which is obsolete.
    pub(crate) fn set_early_expiry(&mut self, id: MailId, expires_ms: u64, marker: u64) -> Option<u64> {
        let slot = self.find(id)?;
        let before = self.hurried.get(&id.0).copied();
        let times = before.map_or(0, |hurried| hurried.times).saturating_add(1);
        self.hurried.insert(id.0, EarlyExpiry { expires_ms, marker, times });
        self.entries[slot].is_hurried = true;
        self.expiry.push(due_s(expires_ms) << 32 | u64::from(slot));
        before.map(|hurried| hurried.marker)
    }

    /// Forgets the early expiry of an entry that is removed, and returns the location of its record, if any.
    pub(super) fn clear_early_expiry(&mut self, entry: &Entry) -> Option<u64> {
        if !entry.is_hurried {
            return None;
        }
        let hurried = self.hurried.remove(&entry.id);
        if self.hurried.is_empty() && self.hurried.capacity() > SPARE_MAX {
            self.hurried.shrink_to(SPARE_MAX);
        }
        hurried.map(|hurried| hurried.marker)
    }
}
