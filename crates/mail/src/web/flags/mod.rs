//! Flags and tags of mails (Mailpit's API): in memory, bounded. Each change is also written to the log that
//! holds the mail, so that a restart restores it ([`crate::store::annotations`]). An entry belongs to its
//! inbox: a client that may not see the mail can neither see nor change nor count its flags and tags. A mail
//! in several inboxes has, in the list of all mails, the entry of its first inbox. Counts over all mails are
//! kept up to date, because each list shows them.
//!
//! *Bound:* [`MARKED_MAX`] entries; when they are used up, the oldest entry is dropped. One client may use
//! half of the entries that other clients leave free; after that, its own oldest entry is dropped, so that a
//! client that reads fast does not displace the entries of all others.

mod changes;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
};

use engine::cold_mutex::ColdMutex;

use crate::web::serve::{
    client::Client,
    counters::{Counter, Counters},
    fault::Fault,
};
use crate::{
    mailbox::mailboxes::{Inbox, MailId, Scope, Summary},
    search,
    store::annotations::{Note, RecoveredNote},
};

pub(super) use changes::forget_deleted;

/// Maximum number of mails with flags or tags; when it is reached, the oldest entry is dropped.
const MARKED_MAX: usize = 50_000;
/// Maximum number of tags on one mail.
const TAGS_MAX: usize = 50;
/// Longest tag, in bytes.
const TAG_BYTES_MAX: usize = 200;
/// Maximum number of bytes of all tags of one inbox, because each of its lists contains all of them.
const INBOX_TAG_BYTES_MAX: usize = 64 * 1024;
/// Maximum total size of all tags, in bytes.
const ALL_TAG_BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct FlagTable {
    /// Never contended: only the web's thread locks it. The mutex makes the table `Sync`.
    state: ColdMutex<State>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct State {
    /// Entries by inbox: only clients that may see the inbox may see them.
    of: HashMap<Inbox, InboxFlags>,
    inbox_of: HashMap<MailId, Inbox>,
    /// Mails in the order of their first entry; dropped ones are skipped.
    order: VecDeque<MailId>,
    /// Entries created by each client, except for clients on this machine.
    of_client: HashMap<Client, ClientFlags>,
    tag_bytes: usize,
    /// Counts over all mails, each mail once: the number of read mails, and the number of mails with each
    /// tag.
    all_read: u64,
    all_tags: BTreeMap<String, u64>,
}

/// Entries that one client has created.
#[derive(Debug, Default)]
struct ClientFlags {
    count: usize,
    /// Mails in the order of creation; dropped ones are skipped.
    order: VecDeque<MailId>,
}

#[derive(Debug, Default)]
struct InboxFlags {
    mails: HashMap<MailId, MailFlags>,
    tag_bytes: usize,
}

/// Flags and tags of a mail, as lists show them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RowFlags {
    pub(crate) is_read: bool,
    pub(crate) tags: Vec<String>,
}

#[derive(Debug, Default)]
struct MailFlags {
    read: bool,
    tags: BTreeSet<String>,
    /// True if the entry belongs to the mail's first inbox; the list of all mails shows such entries.
    is_letter: bool,
    /// True if the inbox has dropped the mail, which only the list of all mails still shows.
    is_let_go: bool,
    /// Client whose share the entry uses; `None` for this machine, and for entries from before the start.
    client: Option<Client>,
}

/// Reason why tags are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TagFault {
    #[error("invalid tag: a tag has 1 to {TAG_BYTES_MAX} bytes")]
    Name,
    #[error("too many tags: a mail has at most {TAGS_MAX}")]
    TooMany,
    #[error("too many tags: the tags of an inbox may take at most {INBOX_TAG_BYTES_MAX} bytes in total")]
    Inbox,
    #[error("too many tags in the store; delete mails to free some")]
    Full,
}

impl From<TagFault> for Fault {
    fn from(fault: TagFault) -> Self {
        match fault {
            TagFault::Full => Self::Busy("too many tags in the store; delete mails to free some"),
            fault => Self::Bad(fault.to_string()),
        }
    }
}

impl FlagTable {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self { state: ColdMutex::default(), counters }
    }

    /// Restores the entries of earlier runs.
    pub(crate) fn begin(&self, noted: Vec<RecoveredNote>) {
        let mut state = self.state.lock();
        for RecoveredNote { id, inbox, is_letter, is_let_go, note } in noted {
            self.enter(&mut state, None, id, &inbox, is_letter);
            // Restoring tags fails only if a limit was lowered since the tags were written.
            let _ = state.replace(id, &inbox, note.tags);
            state.change(id, |mark| (mark.read, mark.is_let_go) = (note.read, is_let_go));
        }
    }

    /// Returns the notes of these mails to be written to the log.
    fn notes(&self, ids: &[MailId]) -> Vec<(MailId, Note)> {
        let state = self.state.lock();
        let note = |id: &MailId| {
            let mark = state.mark(*id);
            (*id, mark.map_or_else(Note::default, |mark| Note { read: mark.read, tags: mark.tags.clone() }))
        };
        ids.iter().map(note).collect()
    }

    /// Sets the read flag. Returns whether that changed it.
    fn set_read(&self, client: Client, of: &Summary, read: bool) -> bool {
        let mut state = self.state.lock();
        let before = state.mark(of.id).is_some_and(|mark| mark.read);
        if before != read {
            self.enter(&mut state, Some(client), of.id, &of.inbox, of.is_letter());
            state.change(of.id, |mark| mark.read = read);
        }
        before != read
    }

    /// Validates tags and returns them without duplicates.
    pub(crate) fn names(&self, tags: &[String]) -> Result<BTreeSet<String>, TagFault> {
        let names: BTreeSet<String> =
            tags.iter().map(|tag| tag.trim().to_owned()).filter(|tag| !tag.is_empty()).collect();
        let fault = match () {
            () if names.iter().any(|name| name.len() > TAG_BYTES_MAX) => TagFault::Name,
            () if names.len() > TAGS_MAX => TagFault::TooMany,
            () => return Ok(names),
        };
        Err(self.refuse(fault))
    }

    fn set_tags(&self, client: Client, of: &Summary, names: BTreeSet<String>) -> Result<(), TagFault> {
        let mut state = self.state.lock();
        self.enter(&mut state, Some(client), of.id, &of.inbox, of.is_letter());
        state.replace(of.id, &of.inbox, names).map_err(|fault| self.refuse(fault))
    }

    /// Returns the flags and tags of a mail.
    pub(crate) fn of(&self, id: MailId) -> RowFlags {
        let state = self.state.lock();
        let Some(mark) = state.mark(id) else { return RowFlags::default() };
        RowFlags { is_read: mark.read, tags: mark.tags.iter().cloned().collect() }
    }

    pub(crate) fn tags(&self, id: MailId) -> Vec<String> {
        self.of(id).tags
    }

    /// Returns each tag in the scope, with the number of mails that have it.
    pub(crate) fn all_tags(&self, scope: &Scope) -> BTreeMap<String, u64> {
        let state = self.state.lock();
        if *scope == Scope::All {
            return state.all_tags.clone();
        }
        let mut all = BTreeMap::new();
        for tag in state.within(scope).flat_map(|mark| &mark.tags) {
            match all.get_mut(tag) {
                Some(count) => *count += 1,
                None => _ = all.insert(tag.clone(), 1),
            }
        }
        all
    }

    /// Removes a tag from all mails of the scope, and adds `with` in its place if given. Returns these mails.
    /// If one of them cannot have the new tag, none is changed.
    fn replace_tag(&self, scope: &Scope, tag: &str, with: Option<&str>) -> Result<Vec<MailId>, TagFault> {
        if with.is_some_and(|with| with.is_empty() || with.len() > TAG_BYTES_MAX) {
            return Err(self.refuse(TagFault::Name));
        }
        let (mut state, wide) = (self.state.lock(), *scope == Scope::All);
        let tagged: Vec<(MailId, Inbox, BTreeSet<String>)> = state
            .of
            .iter()
            .filter(|(inbox, _)| scope.contains(inbox))
            .flat_map(|(inbox, marks)| marks.mails.iter().map(move |(id, mark)| (*id, inbox, mark)))
            .filter(|(.., mark)| mark.tags.contains(tag) && (wide || !mark.is_let_go))
            .map(|(id, inbox, mark)| (id, inbox.clone(), mark.tags.clone()))
            .collect();
        for (at, (id, inbox, before)) in tagged.iter().enumerate() {
            let mut tags = before.clone();
            tags.remove(tag);
            tags.extend(with.map(str::to_owned));
            if let Err(fault) = state.replace(*id, inbox, tags) {
                for (id, inbox, before) in tagged[..at].iter().rev() {
                    // The undo cannot fail: in reverse order each step restores tags that fitted before.
                    let _ = state.replace(*id, inbox, before.clone());
                }
                return Err(self.refuse(fault));
            }
        }
        Ok(tagged.into_iter().map(|(id, ..)| id).collect())
    }

    pub(crate) fn read_count(&self, scope: &Scope) -> u64 {
        let state = self.state.lock();
        match scope {
            Scope::All => state.all_read,
            _ => state.within(scope).filter(|mark| mark.read).count() as u64,
        }
    }

    fn refuse(&self, fault: TagFault) -> TagFault {
        self.counters.add(Counter::TagsRefused, 1);
        fault
    }

    fn forget(&self, id: MailId) {
        self.state.lock().forget(id);
    }

    /// Notes that an inbox has dropped a mail that other inboxes still have: the list of all mails keeps the
    /// entry.
    fn let_go(&self, id: MailId) {
        self.state.lock().change(id, |mark| mark.is_let_go = true);
    }

    /// Creates an entry for this mail, if there is none.
    fn enter(&self, state: &mut State, client: Option<Client>, id: MailId, inbox: &Inbox, is_letter: bool) {
        if state.inbox_of.contains_key(&id) {
            return;
        }
        // Loopback may be any client behind the accelerator, so it has no share, only the total limit.
        let client = client.filter(|client| !client.is_here());
        if let Some(client) = client {
            if state.has_its_share(client) && state.forget_oldest_of(client) {
                self.counters.add(Counter::MarksDropped, 1);
            }
            let own = state.of_client.entry(client).or_default();
            own.count += 1;
            own.order.push_back(id);
        }
        state.inbox_of.insert(id, inbox.clone());
        let mark = MailFlags { is_letter, client, ..MailFlags::default() };
        state.of.entry(inbox.clone()).or_default().mails.insert(id, mark);
        state.order.push_back(id);
        while state.inbox_of.len() > MARKED_MAX
            && let Some(oldest) = state.order.pop_front()
        {
            if state.forget(oldest) {
                self.counters.add(Counter::MarksDropped, 1);
            }
        }
    }
}

/// Subtracts an entry from the counts over all mails.
fn uncount(mark: &MailFlags, all_read: &mut u64, all_tags: &mut BTreeMap<String, u64>) {
    if !mark.is_letter {
        return;
    }
    *all_read -= u64::from(mark.read);
    for tag in &mark.tags {
        match all_tags.get_mut(tag) {
            Some(count) if *count > 1 => *count -= 1,
            Some(_) => _ = all_tags.remove(tag),
            None => unreachable!("a tag of a mail is counted"),
        }
    }
}

fn bytes_of(names: &BTreeSet<String>) -> usize {
    names.iter().map(String::len).sum()
}

impl State {
    fn mark(&self, id: MailId) -> Option<&MailFlags> {
        self.of.get(self.inbox_of.get(&id)?)?.mails.get(&id)
    }

    /// Changes an entry, and the counts over all mails with it.
    fn change(&mut self, id: MailId, change: impl FnOnce(&mut MailFlags)) {
        let Self { of, inbox_of, all_read, all_tags, .. } = self;
        let marks = inbox_of.get(&id).and_then(|inbox| of.get_mut(inbox));
        let Some(mark) = marks.and_then(|marks| marks.mails.get_mut(&id)) else { return };
        uncount(mark, all_read, all_tags);
        change(mark);
        if mark.is_letter {
            *all_read += u64::from(mark.read);
            for tag in &mark.tags {
                match all_tags.get_mut(tag) {
                    Some(count) => *count += 1,
                    None => _ = all_tags.insert(tag.clone(), 1),
                }
            }
        }
    }

    /// Returns the entries that a scope shows. For a single inbox they are found without a search of all
    /// entries.
    fn within(&self, scope: &Scope) -> impl Iterator<Item = &MailFlags> {
        let (one, several) = match scope {
            Scope::Inbox(inbox) => (self.of.get(inbox), None),
            wide => (None, Some(self.of.iter().filter(move |(inbox, _)| wide.contains(inbox)))),
        };
        let marks = one.into_iter().chain(several.into_iter().flatten().map(|(_, marks)| marks));
        let is_shown =
            |mark: &&MailFlags| if *scope == Scope::All { mark.is_letter } else { !mark.is_let_go };
        marks.flat_map(|marks| marks.mails.values()).filter(is_shown)
    }

    fn replace(&mut self, id: MailId, inbox: &Inbox, names: BTreeSet<String>) -> Result<(), TagFault> {
        let Some(marks) = self.of.get_mut(inbox) else { return Ok(()) };
        let Some(mark) = marks.mails.get_mut(&id) else { return Ok(()) };
        let (before, after) = (bytes_of(&mark.tags), bytes_of(&names));
        if names.len() > TAGS_MAX.max(mark.tags.len()) {
            return Err(TagFault::TooMany);
        }
        if after > before && marks.tag_bytes - before + after > INBOX_TAG_BYTES_MAX {
            return Err(TagFault::Inbox);
        }
        if after > before && self.tag_bytes - before + after > ALL_TAG_BYTES_MAX {
            return Err(TagFault::Full);
        }
        marks.tag_bytes = marks.tag_bytes - before + after;
        self.tag_bytes = self.tag_bytes - before + after;
        self.change(id, |mark| mark.tags = names);
        Ok(())
    }

    /// Returns whether a client has used up its share, which is half of the entries that other clients leave
    /// free.
    fn has_its_share(&self, client: Client) -> bool {
        let own = self.of_client.get(&client).map_or(0, |own| own.count);
        own >= Client::share(MARKED_MAX, self.inbox_of.len(), own)
    }

    /// Drops the oldest entry of a client. Returns whether there was one.
    fn forget_oldest_of(&mut self, client: Client) -> bool {
        while let Some(oldest) = self.of_client.get_mut(&client).and_then(|own| own.order.pop_front()) {
            if self.mark(oldest).is_some_and(|mark| mark.client == Some(client)) {
                return self.forget(oldest);
            }
        }
        false
    }

    /// Removes an entry from its client's count.
    fn give_back(&mut self, client: Client) {
        let Some(own) = self.of_client.get_mut(&client) else { return };
        own.count -= 1;
        if own.count == 0 {
            self.of_client.remove(&client);
        } else if own.order.len() > 2 * own.count + 64 {
            let mut order = std::mem::take(&mut own.order);
            order.retain(|id| self.mark(*id).is_some_and(|mark| mark.client == Some(client)));
            if let Some(own) = self.of_client.get_mut(&client) {
                own.order = order;
            }
        }
    }

    /// Drops an entry. Returns whether there was one.
    fn forget(&mut self, id: MailId) -> bool {
        let Some(inbox) = self.inbox_of.remove(&id) else { return false };
        let Some(marks) = self.of.get_mut(&inbox) else { return false };
        let mark = marks.mails.remove(&id).unwrap_or_default();
        uncount(&mark, &mut self.all_read, &mut self.all_tags);
        let bytes = bytes_of(&mark.tags);
        marks.tag_bytes -= bytes;
        self.tag_bytes -= bytes;
        if marks.mails.is_empty() {
            self.of.remove(&inbox);
        }
        if let Some(client) = mark.client {
            self.give_back(client);
        }
        if self.order.len() > 2 * self.inbox_of.len() + 64 {
            let Self { order, inbox_of, .. } = self;
            order.retain(|marked| inbox_of.contains_key(marked));
        }
        true
    }
}

impl search::FlagLookup for FlagTable {
    fn is_read(&self, id: MailId) -> bool {
        self.state.lock().mark(id).is_some_and(|mark| mark.read)
    }

    fn has_tag(&self, id: MailId, tag: &str) -> bool {
        self.state.lock().mark(id).is_some_and(|mark| mark.tags.iter().any(|own| search::fold(own) == tag))
    }

    fn is_tagged(&self, id: MailId) -> bool {
        self.state.lock().mark(id).is_some_and(|mark| !mark.tags.is_empty())
    }
}
