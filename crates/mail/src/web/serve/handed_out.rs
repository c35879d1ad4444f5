//! Inboxes whose pages were handed out a moment ago, so that caches may hold them.
//!
//! Most mail arrives in inboxes that nobody reads; caches need not hear of it. *Memory:* [`PLACES`] words. Two
//! inboxes that share a place are heard of together, which costs a cache at most one needless fetch.

use std::{
    hash::{BuildHasher, RandomState},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use engine::cores::clock;
use tokio::sync::broadcast::{self, Receiver, Sender};

use crate::mailbox::mailboxes::Inbox;

/// Number of places to which inboxes are hashed.
const PLACES: usize = 1 << 14;
/// Milliseconds for which a page counts as handed out: the time in which it can be sent, stored and used.
const FOR_MS: u64 = 15_000;

/// Number of changes that wait for who announces them; if there are more, it learns that it has lost some.
const CHANGES_MAX: usize = 256;

/// A change of an inbox on its page.
#[derive(Debug, Clone)]
pub struct PageChange {
    /// The inbox.
    pub inbox: Inbox,
    /// True if mails were hidden, which will be deleted.
    pub is_deletion: bool,
}

/// Inboxes whose pages were handed out a moment ago, and changes of them that are no events of the store.
#[derive(Debug)]
pub struct HandedOutPages {
    /// Random seed, so that a client cannot choose an inbox that shares another's place.
    seed: RandomState,
    /// Time in milliseconds of the monotonic clock until which caches may hold pages of the inboxes.
    until_ms: Box<[AtomicU64]>,
    changes: Sender<PageChange>,
}

impl Default for HandedOutPages {
    fn default() -> Self {
        Self {
            seed: RandomState::new(),
            until_ms: std::iter::repeat_with(AtomicU64::default).take(PLACES).collect(),
            changes: broadcast::channel(CHANGES_MAX).0,
        }
    }
}

impl HandedOutPages {
    /// Notes that a page of the inbox will be handed out. Must be called before the mails are looked up: a
    /// mail that arrives later is then announced to caches.
    pub(crate) fn note(&self, inbox: &Inbox) {
        self.of(inbox).store(clock::monotonic_ms() + FOR_MS, Relaxed);
    }

    /// Returns whether caches may hold a page of the inbox.
    #[must_use]
    pub fn may_be_cached(&self, inbox: &Inbox) -> bool {
        self.of(inbox).load(Relaxed) > clock::monotonic_ms()
    }

    /// Announces that a user has changed an inbox on a page: has hidden mails that are deleted later, or has
    /// marked some.
    pub(crate) fn announce_change(&self, inbox: &Inbox, is_deletion: bool) {
        if self.may_be_cached(inbox) {
            // Nobody may listen.
            let _ = self.changes.send(PageChange { inbox: inbox.clone(), is_deletion });
        }
    }

    /// Returns a receiver of the changes from now on.
    #[must_use]
    pub fn changes(&self) -> Receiver<PageChange> {
        self.changes.subscribe()
    }

    fn of(&self, inbox: &Inbox) -> &AtomicU64 {
        let hash = self.seed.hash_one(inbox);
        &self.until_ms[hash as usize % PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_inboxes_with_readers_are_announced() {
        let pages = HandedOutPages::default();
        let inbox = |n: u32| Inbox { local: format!("x{n}").into(), domain: "night.test".into() };
        pages.note(&inbox(0));
        assert!(pages.may_be_cached(&inbox(0)));
        let others = (1..=1000).filter(|n| pages.may_be_cached(&inbox(*n))).count();
        assert!(others < 10, "{others} share its place");
    }
}
