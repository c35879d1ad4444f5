//! Walks over an inbox, a domain or all mails, newest first.

use super::chain::NONE;
use super::{BY_ALL, BY_DOMAIN, BY_INBOX, Index, Place, Role};
use crate::mailbox::mailboxes::Scope;

impl Index {
    /// Begins a walk over the entries with [`Role::Other`].
    pub(crate) fn walk_others(&self) -> Walk {
        let at = self.others.newest;
        let id = if at == NONE { 0 } else { self.entries[at].id };
        Walk { chain: BY_ALL, at, id, prefix: Box::default() }
    }

    /// Begins a walk over a scope, newest first.
    pub(crate) fn walk(&self, scope: &Scope) -> Walk {
        let (chain, at) = match scope {
            Scope::All => (BY_ALL, self.all.newest),
            Scope::Inbox(inbox) => {
                let slot = self.find_inbox(&inbox.local, &inbox.domain);
                (BY_INBOX, slot.map_or(NONE, |slot| self.inboxes[slot].chain.newest))
            }
            Scope::Prefix { domain, .. } => {
                let slot = self.find_domain(domain);
                (BY_DOMAIN, slot.map_or(NONE, |slot| self.domains[slot].chain.newest))
            }
        };
        let prefix = match scope {
            Scope::Prefix { local, .. } => local.clone(),
            _ => Box::default(),
        };
        let id = if at == NONE { 0 } else { self.entries[at].id };
        Walk { chain, at, id, prefix }
    }

    /// Visits up to `steps` mails of a walk. Each mail that is within the scope and has not expired is passed
    /// to `found`, until `found` returns [`WalkControl::Yes`].
    pub(crate) fn step(
        &self,
        walk: &mut Walk,
        steps: usize,
        now_ms: u64,
        mut found: impl FnMut(Place) -> WalkControl,
    ) -> StepOutcome {
        for _ in 0..steps {
            if walk.at == NONE {
                return StepOutcome::End;
            }
            // The slot may no longer exist if the index was emptied.
            let Some(entry) = self.entries.get(walk.at).filter(|entry| entry.id == walk.id) else {
                return StepOutcome::Lost;
            };
            walk.at = entry.links[walk.chain].older;
            walk.id = if walk.at == NONE { 0 } else { self.entries[walk.at].id };
            let wanted = walk.prefix.is_empty() || self.inboxes[entry.inbox].local.starts_with(&*walk.prefix);
            let expires_ms = match entry.role {
                // The list of all mails keeps the mail for the other inboxes after its first inbox drops it.
                Role::First if walk.chain == BY_ALL => self.of_age_ms(entry),
                _ => self.expires_ms(entry),
            };
            if expires_ms <= now_ms {
                if !entry.is_hurried {
                    // All older mails have expired, too.
                    walk.at = NONE;
                }
            } else if wanted && found(self.place_of(entry)) == WalkControl::Yes {
                return StepOutcome::End;
            }
        }
        StepOutcome::More
    }
}

/// Position of a walk: the slot of the next mail, and its ID, which shows whether the mail has been removed
/// since.
#[derive(Debug)]
pub(crate) struct Walk {
    chain: usize,
    at: u32,
    id: u64,
    prefix: Box<str>,
}

/// Answer of a walk's callback: `Yes` if it has found enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkControl {
    Yes,
    No,
}

/// Result of a step of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepOutcome {
    /// There are more mails to visit.
    More,
    /// All mails were visited, or enough were found.
    End,
    /// The mail to continue from has been removed: the walk must restart.
    Lost,
}
