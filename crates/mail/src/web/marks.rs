//! What programs remember about mails by Mailpit's API: read, and tags. In memory, bounded, gone with the process: they
//! are a test suite's notes, not part of the mail. A mark is its inbox's: who may not see the mail neither sees nor
//! changes nor counts what is said about it.
#![expect(
    clippy::disallowed_types,
    reason = "one thread asks; a lock is what makes that a property of the type"
)]

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::broadcast::error::RecvError;

use super::{
    answer::Fault,
    app::App,
    counters::{Counter, Counters},
};
use crate::{
    mailboxes::{Event, Inbox, MailId, Mailboxes, Scope},
    search,
};

/// Mails with a mark; beyond, the oldest marks are forgotten.
const MARKED_MAX: usize = 50_000;
/// Tags on one mail.
const TAGS_MAX: usize = 50;
/// Bytes of a tag's name.
const TAG_BYTES_MAX: usize = 200;
/// Bytes of all names on the mails of one inbox: they are listed with each of its lists.
const INBOX_TAG_BYTES_MAX: usize = 64 * 1024;
/// Bytes of all names.
const ALL_TAG_BYTES_MAX: usize = 4 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Marks {
    state: Mutex<State>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct State {
    /// Whose a mark is: who may see the inbox may see it, and nobody else.
    of: HashMap<Inbox, InboxMarks>,
    inbox_of: HashMap<MailId, Inbox>,
    /// In the order in which they got their first mark; those forgotten meanwhile are passed over.
    order: VecDeque<MailId>,
    tag_bytes: usize,
}

#[derive(Debug, Default)]
struct InboxMarks {
    mails: HashMap<MailId, Mark>,
    tag_bytes: usize,
}

#[derive(Debug, Default)]
struct Mark {
    read: bool,
    tags: BTreeSet<String>,
}

/// Why tags are not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TagFault {
    #[error("a tag's name has 1 to {TAG_BYTES_MAX} bytes")]
    Name,
    #[error("a mail has {TAGS_MAX} tags at most")]
    TooMany,
    #[error("the tags of this inbox have {INBOX_TAG_BYTES_MAX} bytes in all at most")]
    Inbox,
    #[error("there are too many tags in all; they go with their mails")]
    Full,
}

impl From<TagFault> for Fault {
    fn from(fault: TagFault) -> Self {
        match fault {
            TagFault::Full => Self::Busy("there are too many tags in all; they go with their mails"),
            fault => Self::Bad(fault.to_string()),
        }
    }
}

impl Marks {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self { state: Mutex::default(), counters }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_read(&self, id: MailId, inbox: &Inbox, read: bool) {
        let mut state = self.state();
        self.enter(&mut state, id, inbox);
        if let Some(mark) = state.of.get_mut(inbox).and_then(|marks| marks.mails.get_mut(&id)) {
            mark.read = read;
        }
    }

    /// What a mail is to be tagged with, if these are names.
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

    pub(crate) fn set_tags(
        &self,
        id: MailId,
        inbox: &Inbox,
        names: BTreeSet<String>,
    ) -> Result<(), TagFault> {
        let mut state = self.state();
        self.enter(&mut state, id, inbox);
        state.replace(id, inbox, names).map_err(|fault| self.refuse(fault))
    }

    pub(crate) fn tags(&self, id: MailId) -> Vec<String> {
        self.state().mark(id).map(|mark| mark.tags.iter().cloned().collect()).unwrap_or_default()
    }

    /// Each tag on mails of the scope, and how many of them carry it.
    pub(crate) fn all_tags(&self, scope: &Scope) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        let state = self.state();
        for tag in state.within(scope).flat_map(|marks| marks.mails.values()).flat_map(|mark| &mark.tags) {
            match all.get_mut(tag) {
                Some(count) => *count += 1,
                None => _ = all.insert(tag.clone(), 1),
            }
        }
        all
    }

    /// Takes a tag off all mails of the scope, and puts another there if there is one.
    pub(crate) fn replace_tag(&self, scope: &Scope, tag: &str, with: Option<&str>) -> Result<(), TagFault> {
        if with.is_some_and(|with| with.is_empty() || with.len() > TAG_BYTES_MAX) {
            return Err(self.refuse(TagFault::Name));
        }
        let mut state = self.state();
        let tagged: Vec<(MailId, Inbox, BTreeSet<String>)> = state
            .of
            .iter()
            .filter(|(inbox, _)| scope.contains(inbox))
            .flat_map(|(inbox, marks)| marks.mails.iter().map(move |(id, mark)| (*id, inbox, mark)))
            .filter(|(.., mark)| mark.tags.contains(tag))
            .map(|(id, inbox, mark)| (id, inbox.clone(), mark.tags.clone()))
            .collect();
        for (id, inbox, mut tags) in tagged {
            tags.remove(tag);
            tags.extend(with.map(str::to_owned));
            state.replace(id, &inbox, tags).map_err(|fault| self.refuse(fault))?;
        }
        Ok(())
    }

    pub(crate) fn read_count(&self, scope: &Scope) -> u64 {
        let state = self.state();
        state.within(scope).flat_map(|marks| marks.mails.values()).filter(|mark| mark.read).count() as u64
    }

    fn refuse(&self, fault: TagFault) -> TagFault {
        self.counters.add(Counter::TagsRefused, 1);
        fault
    }

    fn forget(&self, id: MailId) {
        let mut state = self.state();
        if state.forget(id) && state.order.len() > 2 * state.inbox_of.len() + 64 {
            let State { order, inbox_of, .. } = &mut *state;
            order.retain(|marked| inbox_of.contains_key(marked));
        }
    }

    /// A mark for this mail, if it has none.
    fn enter(&self, state: &mut State, id: MailId, inbox: &Inbox) {
        if state.inbox_of.contains_key(&id) {
            return;
        }
        state.inbox_of.insert(id, inbox.clone());
        state.of.entry(inbox.clone()).or_default().mails.insert(id, Mark::default());
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

fn bytes_of(names: &BTreeSet<String>) -> usize {
    names.iter().map(String::len).sum()
}

impl State {
    fn mark(&self, id: MailId) -> Option<&Mark> {
        self.of.get(self.inbox_of.get(&id)?)?.mails.get(&id)
    }

    /// The marks of a scope's mails; those of one inbox are not looked for among all.
    fn within(&self, scope: &Scope) -> impl Iterator<Item = &InboxMarks> {
        let (one, several) = match scope {
            Scope::Inbox(inbox) => (self.of.get(inbox), None),
            wide => (None, Some(self.of.iter().filter(move |(inbox, _)| wide.contains(inbox)))),
        };
        one.into_iter().chain(several.into_iter().flatten().map(|(_, marks)| marks))
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
        mark.tags = names;
        Ok(())
    }

    /// Whether there was a mark.
    fn forget(&mut self, id: MailId) -> bool {
        let Some(inbox) = self.inbox_of.remove(&id) else { return false };
        let Some(marks) = self.of.get_mut(&inbox) else { return false };
        let bytes = marks.mails.remove(&id).map_or(0, |mark| bytes_of(&mark.tags));
        marks.tag_bytes -= bytes;
        self.tag_bytes -= bytes;
        if marks.mails.is_empty() {
            self.of.remove(&inbox);
        }
        true
    }
}

impl search::Marks for Marks {
    fn is_read(&self, id: MailId) -> bool {
        self.state().mark(id).is_some_and(|mark| mark.read)
    }

    fn has_tag(&self, id: MailId, tag: &str) -> bool {
        self.state().mark(id).is_some_and(|mark| mark.tags.iter().any(|own| own.to_lowercase() == tag))
    }

    fn is_tagged(&self, id: MailId) -> bool {
        self.state().mark(id).is_some_and(|mark| !mark.tags.is_empty())
    }
}

/// Marks go with their mail.
pub(super) async fn forget_deleted<M: Mailboxes>(app: Arc<App<M>>) {
    let mut events = app.mailboxes.events();
    loop {
        match events.recv().await {
            Ok(Event::Deleted { id, .. }) => app.marks.forget(id),
            // What was missed is dropped by its age in the end.
            Ok(Event::Arrived(_) | Event::Missed) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inbox(local: &str) -> Inbox {
        Inbox { local: local.into(), domain: "night.test".into() }
    }

    fn tag(marks: &Marks, id: u64, local: &str, name: &str) -> Result<(), TagFault> {
        let names = marks.names(&[name.to_owned()])?;
        marks.set_tags(MailId(id), &inbox(local), names)
    }

    #[test]
    fn names_and_their_sum_are_bounded_and_go_with_their_mails() {
        let marks = Marks::new(Arc::new(Counters::new()));
        assert_eq!(tag(&marks, 1, "ann", &"x".repeat(TAG_BYTES_MAX + 1)), Err(TagFault::Name));
        let many: Vec<String> = (0..=TAGS_MAX).map(|n| n.to_string()).collect();
        assert_eq!(marks.names(&many), Err(TagFault::TooMany));
        let long = "x".repeat(TAG_BYTES_MAX);
        let of_inbox = INBOX_TAG_BYTES_MAX / TAG_BYTES_MAX;
        let mut last = Ok(());
        for id in 0..=of_inbox as u64 {
            last = tag(&marks, id, "ann", &long);
        }
        assert_eq!(last, Err(TagFault::Inbox));
        assert_eq!(tag(&marks, 900, "ben", &long), Ok(()), "another inbox has its own");
        let mut id = 1000;
        while tag(&marks, id, &(id / of_inbox as u64).to_string(), &long).is_ok() {
            id += 1;
        }
        assert_eq!(tag(&marks, id + 1, "carl", &long), Err(TagFault::Full));
        for id in 0..=id + 1 {
            marks.forget(MailId(id));
        }
        let state = marks.state();
        assert_eq!((state.tag_bytes, state.of.len(), state.inbox_of.len()), (0, 0, 0));
    }

    #[test]
    fn no_more_mails_are_marked_than_there_may_be() {
        let marks = Marks::new(Arc::new(Counters::new()));
        for id in 0..=MARKED_MAX as u64 {
            marks.set_read(MailId(id), &inbox("ann"), true);
        }
        assert_eq!(marks.read_count(&Scope::All), MARKED_MAX as u64);
        assert!(!search::Marks::is_read(&marks, MailId(0)));
    }
}
