//! Undo of deletions: mails deleted on a page can be restored for some seconds.
//!
//! ```text
//!  delete ─▶ UndoTable: no page shows them ─┬─ 10 s ─▶ deleted permanently, by the store
//!                                         └─ undo ─▶ shown again
//! ```
//! The table is in memory only: if the process crashes within those seconds, the mails reappear, which does
//! less harm than losing them. A server that stops deletes them first. Programs delete at once, and their
//! APIs show these mails as long as the store has them.
//!
//! *Writer:* the web's thread. *Bound:* [`LEAVING_MAX`] mails; mails for which there is no room are deleted
//! at once. One client may use half of the room that other clients leave free, so that no client can take the
//! undo away from all others.

mod deletions;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use engine::cold_mutex::ColdMutex;

use crate::mailbox::mailboxes::{Inbox, MailId, Scope};
use crate::web::serve::{
    client::Client,
    counters::{Counter, Counters},
};

/// Time during which a deletion can be undone.
pub(super) const LEAVING_TIME: Duration = Duration::from_secs(10);
/// Maximum number of mails that wait to be deleted, over all inboxes.
pub(super) const LEAVING_MAX: usize = 10_000;

pub(crate) struct UndoTable {
    /// Never contended: only the web's thread locks it. The mutex makes the table `Sync`.
    state: ColdMutex<State>,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct State {
    batches: BTreeMap<u64, UndoBatch>,
    /// Mails of all batches.
    mails: HashMap<MailId, PendingDelete>,
    last: u64,
}

/// A mail that is waiting to be deleted.
struct PendingDelete {
    /// Inbox of the mail.
    inbox: Inbox,
    /// True if the mail also disappears from the list of all mails: it was deleted there, or no other inbox
    /// has it.
    everywhere: bool,
}

impl PendingDelete {
    /// Returns whether a list of this scope hides the mail.
    fn is_hidden_from(&self, scope: &Scope) -> bool {
        scope.contains(&self.inbox) && (self.everywhere || *scope != Scope::All)
    }
}

/// Mails that were deleted by one action.
struct UndoBatch {
    /// The client that deleted them.
    client: Client,
    /// Scope of the list that they were deleted from: a client without access to it cannot restore them.
    scope: Scope,
    mails: Vec<MailId>,
}

impl State {
    fn of_client(&self, client: Client) -> usize {
        self.batches.values().filter(|batch| batch.client == client).map(|batch| batch.mails.len()).sum()
    }
}

impl UndoTable {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self { state: ColdMutex::default(), counters }
    }

    /// Returns whether a list of this scope hides the mail.
    pub(super) fn has(&self, scope: &Scope, id: MailId) -> bool {
        self.state.lock().mails.get(&id).is_some_and(|leaver| leaver.is_hidden_from(scope))
    }

    /// Returns how many mails a list of this scope hides.
    pub(super) fn count(&self, scope: &Scope) -> u64 {
        self.state.lock().mails.values().filter(|leaver| leaver.is_hidden_from(scope)).count() as u64
    }

    /// Returns how many mails in a batch that was deleted from this list can still be restored.
    pub(super) fn batch(&self, name: u64, scope: &Scope) -> Option<usize> {
        self.state
            .lock()
            .batches
            .get(&name)
            .filter(|batch| batch.scope == *scope)
            .map(|batch| batch.mails.len())
    }

    /// Adds a batch and returns its ID; `None` if there is no room.
    fn enter(&self, client: Client, scope: &Scope, mails: Vec<(MailId, PendingDelete)>) -> Option<u64> {
        let mut state = self.state.lock();
        // Loopback may be any client behind the accelerator, so it may use all the room.
        let own = if client.is_here() { 0 } else { state.of_client(client) };
        let most =
            if client.is_here() { LEAVING_MAX } else { Client::share(LEAVING_MAX, state.mails.len(), own) };
        if state.mails.len() + mails.len() > LEAVING_MAX || own + mails.len() > most {
            self.counters.add(Counter::LeavingFull, 1);
            return None;
        }
        state.last += 1;
        let name = state.last;
        let ids = mails.iter().map(|(id, _)| *id).collect();
        state.mails.extend(mails);
        state.batches.insert(name, UndoBatch { client, scope: scope.clone(), mails: ids });
        self.counters.set(Counter::Leaving, state.mails.len() as u64);
        Some(name)
    }

    /// Removes a batch and returns its mails, which the caller then deletes or shows again.
    fn take(&self, name: u64, allowed: impl Fn(&Scope) -> bool) -> Option<Vec<MailId>> {
        let mut state = self.state.lock();
        if !allowed(&state.batches.get(&name)?.scope) {
            return None;
        }
        let batch = state.batches.remove(&name)?;
        for id in &batch.mails {
            state.mails.remove(id);
        }
        self.counters.set(Counter::Leaving, state.mails.len() as u64);
        Some(batch.mails)
    }

    /// Restores a batch of this list; returns its number of mails.
    pub(super) fn bring_back(&self, name: u64, scope: &Scope) -> Option<usize> {
        self.take(name, |of| of == scope).map(|mails| mails.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mails(ids: std::ops::Range<u64>) -> Vec<(MailId, PendingDelete)> {
        let inbox = || Inbox { local: "ann".into(), domain: "night.test".into() };
        ids.map(|id| (MailId(id), PendingDelete { inbox: inbox(), everywhere: id != 2 })).collect()
    }

    fn here() -> Client {
        Client::of(httpd::Client(std::net::Ipv4Addr::LOCALHOST.into()))
    }

    #[test]
    fn one_client_leaves_undo_to_others() {
        let leaving = UndoTable::new(Arc::new(Counters::new()));
        let client = |last: u8| Client::of(httpd::Client([192, 0, 2, last].into()));
        let half = LEAVING_MAX as u64 / 2;
        assert!(leaving.enter(client(1), &Scope::All, mails(1..half + 1)).is_some());
        assert!(leaving.enter(client(1), &Scope::All, mails(20_000..20_001)).is_none(), "it has its half");
        assert!(leaving.enter(client(2), &Scope::All, mails(30_000..30_100)).is_some(), "others have theirs");
    }

    #[test]
    fn the_undo_table_is_bounded_and_scoped() {
        let leaving = UndoTable::new(Arc::new(Counters::new()));
        let scope = |name: &str| Scope::of(name, "night.test").unwrap();
        let name = leaving.enter(here(), &scope("ann"), mails(0..3)).unwrap();
        let ann = scope("ann");
        assert!(
            leaving.has(&ann, MailId(2))
                && !leaving.has(&ann, MailId(3))
                && !leaving.has(&scope("ben"), MailId(2))
        );
        assert!(!leaving.has(&Scope::All, MailId(2)), "another inbox has it, so it stays over all");
        assert_eq!((leaving.count(&scope("ann")), leaving.count(&scope("ben"))), (3, 0));
        assert_eq!((leaving.count(&Scope::All), leaving.batch(name, &scope("ann"))), (2, Some(3)));
        assert_eq!((leaving.bring_back(name, &scope("ben")), leaving.batch(name, &Scope::All)), (None, None));
        assert_eq!(leaving.bring_back(name, &scope("ann")), Some(3));
        assert_eq!(leaving.bring_back(name, &scope("ann")), None);
        assert!(leaving.enter(here(), &Scope::All, mails(0..LEAVING_MAX as u64)).is_some());
        assert!(leaving.enter(here(), &Scope::All, mails(20_000..20_001)).is_none());
        let state = leaving.state.lock();
        assert_eq!((state.mails.len(), state.batches.len()), (LEAVING_MAX, 1));
    }
}
