//! Mails that go before their age, because somebody who saw them asked for it (`delete=5m`).
//!
//! One more word in the expiry queue, and 24 bytes beside the entry: few mails are hurried, and the entry's 64 bytes
//! have no room for a second time. The word that the queue had for the mail stays; it finds nothing due there.
//! *Bound:* a mail is hurried [`TIMES_MAX`] times at most, so queue and log grow by no more than that for each.

use super::{Entry, Index, due_s};
use crate::mailbox::mailboxes::MailId;

/// How often a mail's end may be brought forward: each time costs a record in the log and a word in the queue.
const TIMES_MAX: u8 = 8;
/// Room in the table that is kept when the last hurried mail has gone.
const SPARE_MAX: usize = 1024;

/// A mail that goes before its age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EarlyExpiry {
    pub(crate) expires_ms: u64,
    /// Where that is written in the log.
    pub(crate) marker: u64,
    times: u8,
}

/// Whether a mail's end can be brought forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EarlyExpiryOutcome {
    /// It can.
    Yes,
    /// It goes by then anyway.
    NoNeed,
    /// It was brought forward too often.
    TooOften,
    /// There is no such mail.
    Gone,
}

impl Index {
    /// Whether a mail's end can be brought forward to `expires_ms`.
    pub(crate) fn may_hurry(&self, id: MailId, expires_ms: u64, now_ms: u64) -> EarlyExpiryOutcome {
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

    /// Brings a mail's end forward, as is written at `marker`. What was written before, which counts no more.
    pub(crate) fn hurry(&mut self, id: MailId, expires_ms: u64, marker: u64) -> Option<u64> {
        let slot = self.find(id)?;
        let before = self.hurried.get(&id.0).copied();
        let times = before.map_or(0, |hurried| hurried.times).saturating_add(1);
        self.hurried.insert(id.0, EarlyExpiry { expires_ms, marker, times });
        self.entries[slot].is_hurried = true;
        self.expiry.push(due_s(expires_ms) << 32 | u64::from(slot));
        before.map(|hurried| hurried.marker)
    }

    /// The entry goes; where it was written that it should, if it was.
    pub(super) fn forget_hurry(&mut self, entry: &Entry) -> Option<u64> {
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
