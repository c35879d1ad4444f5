//! Mails that came into several inboxes: one record in the log, which stays until the last inbox has let it go.
//!
//! ```text
//!   owner of the first inbox                         owners of the others
//!   DeliveryRefs: name ─▶ inboxes that have it, notes ◀── LetGo ── an entry goes: by age, count, or somebody's wish
//!   Index:   the first inbox's entry, in the list
//!            of all mails until the last has gone
//! ```
//! The core that owns the first inbox answers for the mail: it counts, and gives the record up. What other cores say may
//! come before the mail itself does (each pair of cores has a ring of its own): the count is below zero until then.

use std::collections::HashMap;

use crate::mailbox::mailboxes::MailId;

#[derive(Debug, Default)]
struct MailRefs {
    /// That have it. Less than those who let go while the arrival is on its way.
    inboxes: i64,
    /// Where it is written that one of its inboxes has deleted it.
    markers: Vec<u64>,
}

/// By the mail's name in its first inbox.
#[derive(Debug, Default)]
pub(crate) struct DeliveryRefs {
    links: HashMap<u64, MailRefs>,
}

impl DeliveryRefs {
    /// So many inboxes have it.
    pub(crate) fn link(&mut self, letter: MailId, inboxes: usize) {
        self.links.entry(letter.0).or_default().inboxes += i64::try_from(inboxes).unwrap_or(i64::MAX);
    }

    /// Whether one inbox alone has it.
    pub(crate) fn is_last(&self, letter: MailId) -> bool {
        self.links.get(&letter.0).is_some_and(|links| links.inboxes == 1)
    }

    /// One inbox less has it. Whether that was the last.
    pub(crate) fn let_go(&mut self, letter: MailId) -> bool {
        let links = self.links.entry(letter.0).or_default();
        links.inboxes -= 1;
        links.inboxes == 0
    }

    /// Notes where it is written that an inbox has deleted it; that is needed as long as the record is there.
    pub(crate) fn let_go_by(&mut self, letter: MailId, marker: u64) {
        self.links.entry(letter.0).or_default().markers.push(marker);
    }

    /// The record is gone; gives what was written about it.
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
        letters.link(MailId(7), 3);
        assert!(!letters.let_go(MailId(7)));
        letters.let_go_by(MailId(7), 100);
        assert!(!letters.is_last(MailId(7)));
        assert!(!letters.let_go(MailId(7)));
        assert!(letters.is_last(MailId(7)));
        assert!(letters.let_go(MailId(7)));
        assert_eq!(letters.forget(MailId(7)), [100]);
        assert!(letters.links.is_empty());
    }

    #[test]
    fn who_lets_go_before_the_mail_is_heard_of_is_counted() {
        let mut letters = DeliveryRefs::default();
        assert!(!letters.let_go(MailId(7)));
        assert!(!letters.let_go(MailId(7)));
        letters.link(MailId(7), 3);
        assert!(letters.is_last(MailId(7)));
        assert!(letters.let_go(MailId(7)));
    }
}
