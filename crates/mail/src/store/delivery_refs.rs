//! Reference counts of mails that were delivered to several inboxes: one record in the log, which stays until
//! the last inbox has dropped the mail.
//!
//! ```text
//!   owner of the first inbox                         owners of the other inboxes
//!   DeliveryRefs: ID ─▶ inboxes that have it, markers ◀── LetGo ── an entry goes: by age, count, or deletion
//!   Index:   the first inbox's entry, in the list
//!            of all mails until the last has gone
//! ```
//! The core that owns the first inbox is responsible for the mail: it counts the inboxes, and deletes the
//! record. Messages of other cores may come before the mail itself (each pair of cores has its own ring): the
//! count is negative until then.

use std::collections::HashMap;

use crate::mailbox::mailboxes::MailId;

#[derive(Debug, Default)]
struct MailRefs {
    /// Number of inboxes that have the mail; negative if removals are reported before the mail itself has
    /// arrived.
    inboxes: i64,
    /// Locations of the deletion records that inboxes have written for the mail.
    markers: Vec<u64>,
}

/// Reference counts by the mail's ID in its first inbox.
#[derive(Debug, Default)]
pub(crate) struct DeliveryRefs {
    links: HashMap<u64, MailRefs>,
}

impl DeliveryRefs {
    /// Adds a mail's inboxes to its count.
    pub(crate) fn add_inboxes(&mut self, letter: MailId, inboxes: usize) {
        self.links.entry(letter.0).or_default().inboxes += i64::try_from(inboxes).unwrap_or(i64::MAX);
    }

    /// Returns whether only one inbox still has the mail.
    pub(crate) fn is_last(&self, letter: MailId) -> bool {
        self.links.get(&letter.0).is_some_and(|links| links.inboxes == 1)
    }

    /// Decrements the count. Returns whether the inbox was the last one.
    pub(crate) fn release(&mut self, letter: MailId) -> bool {
        let links = self.links.entry(letter.0).or_default();
        links.inboxes -= 1;
        links.inboxes == 0
    }

    /// Remembers the location of an inbox's deletion record, which is needed as long as the mail's record
    /// exists.
    pub(crate) fn let_go_by(&mut self, letter: MailId, marker: u64) {
        self.links.entry(letter.0).or_default().markers.push(marker);
    }

    /// Forgets a mail whose record is deleted, and returns the locations of its deletion records.
    pub(crate) fn forget(&mut self, letter: MailId) -> Vec<u64> {
        self.links.remove(&letter.0).map_or_else(Vec::new, |links| links.markers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_to_let_go_is_known() {
        let mut letters = DeliveryRefs::default();
        letters.add_inboxes(MailId(7), 3);
        assert!(!letters.release(MailId(7)));
        letters.let_go_by(MailId(7), 100);
        assert!(!letters.is_last(MailId(7)));
        assert!(!letters.release(MailId(7)));
        assert!(letters.is_last(MailId(7)));
        assert!(letters.release(MailId(7)));
        assert_eq!(letters.forget(MailId(7)), [100]);
        assert!(letters.links.is_empty());
    }

    #[test]
    fn a_release_before_the_mail_is_counted() {
        let mut letters = DeliveryRefs::default();
        assert!(!letters.release(MailId(7)));
        assert!(!letters.release(MailId(7)));
        letters.add_inboxes(MailId(7), 3);
        assert!(letters.is_last(MailId(7)));
        assert!(letters.release(MailId(7)));
    }
}
