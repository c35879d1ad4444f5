//! What programs remember about mails by Mailpit's API: read, and tags. In memory, bounded; each change is written down
//! beside the mail, so that a restart finds it again ([`crate::store::annotations`]). A mark is its inbox's: who may not see the mail neither sees nor
//! changes nor counts what is said about it. A mail that came into several inboxes has over all of them the mark of the
//! first; what is counted over all is kept counted, because each list says it.
//!
//! *Bound:* [`MARKED_MAX`] marks; beyond, the oldest is forgotten. One client has half of the room that the others leave;
//! beyond, its own oldest mark is forgotten, so that nobody who reads fast takes the marks of everybody else.
#![expect(
    clippy::disallowed_types,
    reason = "one thread asks; a lock is what makes that a property of the type"
)]

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use crate::web::serve::{
    answer::Fault,
    app::App,
    client::Client,
    counters::{Counter, Counters},
};
use crate::{
    mailbox::mailboxes::{Event, Inbox, MailId, Mailboxes, RemainingName, Scope, Summary},
    search,
    store::annotations::{Note, RecoveredNote},
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
pub(crate) struct FlagTable {
    state: Mutex<State>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct State {
    /// Whose a mark is: who may see the inbox may see it, and nobody else.
    of: HashMap<Inbox, InboxFlags>,
    inbox_of: HashMap<MailId, Inbox>,
    /// In the order in which they got their first mark; those forgotten meanwhile are passed over.
    order: VecDeque<MailId>,
    /// FlagTable of each client that has a share.
    of_client: HashMap<Client, ClientFlags>,
    tag_bytes: usize,
    /// Of the mails as they are shown over all inboxes: how many are read, and how many carry each tag.
    all_read: u64,
    all_tags: BTreeMap<String, u64>,
}

/// The marks that one client has set.
#[derive(Debug, Default)]
struct ClientFlags {
    count: usize,
    /// In the order in which they were set; those forgotten meanwhile are passed over.
    order: VecDeque<MailId>,
}

#[derive(Debug, Default)]
struct InboxFlags {
    mails: HashMap<MailId, MailFlags>,
    tag_bytes: usize,
}

#[derive(Debug, Default)]
struct MailFlags {
    read: bool,
    tags: BTreeSet<String>,
    /// It is how the mail is shown over all inboxes.
    is_letter: bool,
    /// Its inbox has it no more: it is shown over all alone.
    is_let_go: bool,
    /// The client whose share it takes. `None`: this machine, or one before the start.
    client: Option<Client>,
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

impl FlagTable {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self { state: Mutex::default(), counters }
    }

    /// With what was said before the start.
    pub(crate) fn begin(&self, noted: Vec<RecoveredNote>) {
        let mut state = self.state();
        for RecoveredNote { id, inbox, is_letter, is_let_go, note } in noted {
            self.enter(&mut state, None, id, &inbox, is_letter);
            // More than there may be is not possible, unless a bound is a lower one now.
            let _ = state.replace(id, &inbox, note.tags);
            state.change(id, |mark| (mark.read, mark.is_let_go) = (note.read, is_let_go));
        }
    }

    /// What is to be written down about these mails.
    fn notes(&self, ids: &[MailId]) -> Vec<(MailId, Note)> {
        let state = self.state();
        let note = |id: &MailId| {
            let mark = state.mark(*id);
            (*id, mark.map_or_else(Note::default, |mark| Note { read: mark.read, tags: mark.tags.clone() }))
        };
        ids.iter().map(note).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether that is something new.
    fn set_read(&self, client: Client, of: &Summary, read: bool) -> bool {
        let mut state = self.state();
        let before = state.mark(of.id).is_some_and(|mark| mark.read);
        if before != read {
            self.enter(&mut state, Some(client), of.id, &of.inbox, of.is_letter());
            state.change(of.id, |mark| mark.read = read);
        }
        before != read
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

    fn set_tags(&self, client: Client, of: &Summary, names: BTreeSet<String>) -> Result<(), TagFault> {
        let mut state = self.state();
        self.enter(&mut state, Some(client), of.id, &of.inbox, of.is_letter());
        state.replace(of.id, &of.inbox, names).map_err(|fault| self.refuse(fault))
    }

    /// Whether a mail was read, and its tags.
    pub(crate) fn of(&self, id: MailId) -> (bool, Vec<String>) {
        let state = self.state();
        state.mark(id).map(|mark| (mark.read, mark.tags.iter().cloned().collect())).unwrap_or_default()
    }

    pub(crate) fn tags(&self, id: MailId) -> Vec<String> {
        self.state().mark(id).map(|mark| mark.tags.iter().cloned().collect()).unwrap_or_default()
    }

    /// Each tag on mails of the scope, and how many of them carry it.
    pub(crate) fn all_tags(&self, scope: &Scope) -> BTreeMap<String, u64> {
        let state = self.state();
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

    /// Removes a tag from all mails of the scope, and adds `with` in its place if there is one. Returns these mails.
    /// Where one mail cannot have the new tag, all keep what they have.
    fn replace_tag(&self, scope: &Scope, tag: &str, with: Option<&str>) -> Result<Vec<MailId>, TagFault> {
        if with.is_some_and(|with| with.is_empty() || with.len() > TAG_BYTES_MAX) {
            return Err(self.refuse(TagFault::Name));
        }
        let (mut state, wide) = (self.state(), *scope == Scope::All);
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
                    // The undo finds room: backwards each step restores tags that fitted before.
                    let _ = state.replace(*id, inbox, before.clone());
                }
                return Err(self.refuse(fault));
            }
        }
        Ok(tagged.into_iter().map(|(id, ..)| id).collect())
    }

    pub(crate) fn read_count(&self, scope: &Scope) -> u64 {
        let state = self.state();
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
        self.state().forget(id);
    }

    /// An inbox has let a mail go that others have: over all it keeps its mark.
    fn let_go(&self, id: MailId) {
        self.state().change(id, |mark| mark.is_let_go = true);
    }

    /// Makes a mark for this mail, if it has none.
    fn enter(&self, state: &mut State, client: Option<Client>, id: MailId, inbox: &Inbox, is_letter: bool) {
        if state.inbox_of.contains_key(&id) {
            return;
        }
        // This machine stands for everybody behind the accelerator: it has no share, only the whole's bound.
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

/// Takes a mark out of what is counted over all.
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

    /// Changes a mark, and what is counted over all with it.
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

    /// The marks of the mails that a scope shows; those of one inbox are not looked for among all.
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

    /// Returns whether a client has half of the room that the others leave.
    fn has_its_share(&self, client: Client) -> bool {
        let own = self.of_client.get(&client).map_or(0, |own| own.count);
        own >= Client::share(MARKED_MAX, self.inbox_of.len(), own)
    }

    /// Forgets the oldest mark of a client. Returns whether there was one.
    fn forget_oldest_of(&mut self, client: Client) -> bool {
        while let Some(oldest) = self.of_client.get_mut(&client).and_then(|own| own.order.pop_front()) {
            if self.mark(oldest).is_some_and(|mark| mark.client == Some(client)) {
                return self.forget(oldest);
            }
        }
        false
    }

    /// Takes a mark out of its client's share.
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

    /// Forgets a mark. Returns whether there was one.
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
        self.state().mark(id).is_some_and(|mark| mark.read)
    }

    fn has_tag(&self, id: MailId, tag: &str) -> bool {
        self.state().mark(id).is_some_and(|mark| mark.tags.iter().any(|own| search::fold(own) == tag))
    }

    fn is_tagged(&self, id: MailId) -> bool {
        self.state().mark(id).is_some_and(|mark| !mark.tags.is_empty())
    }
}

impl<M: Mailboxes> App<M> {
    /// FlagTable mails read or unread, and has it written down.
    pub(crate) async fn set_read(
        &self,
        client: Client,
        mails: &[Arc<Summary>],
        read: bool,
    ) -> Result<(), Fault> {
        let changed = mails.iter().filter(|mail| self.marks.set_read(client, mail, read));
        let ids: Vec<MailId> = changed.map(|mail| mail.id).collect();
        self.write_marks(&ids).await
    }

    /// Gives mails these tags in the place of those that they have, and has it written down.
    pub(crate) async fn set_tags(
        &self,
        client: Client,
        mails: &[Arc<Summary>],
        names: &BTreeSet<String>,
    ) -> Result<(), Fault> {
        for mail in mails {
            self.marks.set_tags(client, mail, names.clone())?;
        }
        let ids: Vec<MailId> = mails.iter().map(|mail| mail.id).collect();
        self.write_marks(&ids).await
    }

    /// Takes a tag off all mails of the scope, puts another there if there is one, and has it written down.
    pub(crate) async fn replace_tag(
        &self,
        scope: &Scope,
        tag: &str,
        with: Option<&str>,
    ) -> Result<(), Fault> {
        let changed = self.marks.replace_tag(scope, tag, with)?;
        self.write_marks(&changed).await
    }

    async fn write_marks(&self, ids: &[MailId]) -> Result<(), Fault> {
        if ids.is_empty() {
            return Ok(());
        }
        Ok(self.mailboxes.note(self.marks.notes(ids)).await?)
    }
}

/// How often it is looked what has gone: while many mails come, to be woken for each would cost more than taking it.
const FORGET_EVERY: Duration = Duration::from_millis(10);

/// FlagTable go with their mail, and so do what lists show of it and what was made of it.
pub(super) async fn forget_deleted<M: Mailboxes>(app: Arc<App<M>>) {
    let mut events = app.mailboxes.events();
    loop {
        let mut next = events.recv().await;
        loop {
            match next {
                Ok(Event::Deleted { id, remains: RemainingName::ThisName, .. }) => app.marks.let_go(id),
                Ok(Event::Deleted { id, remains: RemainingName::OtherName, .. }) => app.marks.forget(id),
                Ok(Event::Deleted { id, .. } | Event::Over { letter: id }) => {
                    app.marks.forget(id);
                    app.gists.forget(id);
                    app.renderings.forget(id);
                }
                // What was missed is dropped by its age in the end.
                Ok(Event::Arrived(_) | Event::Missed) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
            next = match events.try_recv() {
                Ok(event) => Ok(event),
                Err(TryRecvError::Lagged(missed)) => Err(RecvError::Lagged(missed)),
                Err(TryRecvError::Closed) => Err(RecvError::Closed),
                Err(TryRecvError::Empty) => break,
            };
        }
        tokio::time::sleep(FORGET_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inbox(local: &str) -> Inbox {
        Inbox { local: local.into(), domain: "night.test".into() }
    }

    fn mail(id: u64, local: &str) -> Summary {
        Summary {
            id: MailId(id),
            letter: MailId(id),
            inboxes: 1,
            inbox: inbox(local),
            envelope_from: "".into(),
            from: Box::default(),
            subject: Box::default(),
            arrived_ms: 0,
            expires_ms: 0,
            size_bytes: 0,
        }
    }

    fn tag(marks: &FlagTable, id: u64, local: &str, name: &str) -> Result<(), TagFault> {
        let names = marks.names(&[name.to_owned()])?;
        marks.set_tags(here(), &mail(id, local), names)
    }

    fn here() -> Client {
        Client::of(httpd::Client([127, 0, 0, 1].into()))
    }

    #[test]
    fn one_client_leaves_the_marks_of_others() {
        let marks = FlagTable::new(Arc::new(Counters::new()));
        let client = |n: u8| Client::of(httpd::Client([192, 0, 2, n].into()));
        let is_read = |id| search::FlagLookup::is_read(&marks, MailId(id));
        for id in 0..100 {
            marks.set_read(client(1), &mail(id, "ann"), true);
        }
        let first = 1_000;
        let last = first + 2 * MARKED_MAX as u64;
        for id in first..=last {
            marks.set_read(client(2), &mail(id, "ben"), true);
        }
        assert!((0..100).all(is_read), "the marks of others are there");
        assert!(!is_read(first) && is_read(last), "its own oldest are forgotten");
        assert_eq!(marks.read_count(&Scope::All), (MARKED_MAX as u64 - 100) / 2 + 100);
        assert!(
            marks.state().order.len() <= 2 * MARKED_MAX + 64,
            "what is forgotten is in no order for ever"
        );
        // Forgotten marks are in no share any more.
        for id in 0..=last {
            marks.forget(MailId(id));
        }
        assert!(marks.state().of_client.is_empty());
    }

    #[test]
    fn a_mail_of_several_inboxes_has_over_all_the_mark_of_the_first() {
        let marks = FlagTable::new(Arc::new(Counters::new()));
        let first = Summary { inboxes: 2, ..mail(1, "ann") };
        let second = Summary { id: MailId(2), ..mail(1, "ben") };
        let names = marks.names(&["late".to_owned()]).unwrap();
        marks.set_read(here(), &first, true);
        marks.set_read(here(), &second, true);
        marks.set_tags(here(), &second, names.clone()).unwrap();
        marks.set_tags(here(), &first, names).unwrap();
        let of = |local: &str| Scope::Inbox(inbox(local));
        let late = BTreeMap::from([("late".to_owned(), 1)]);
        assert_eq!((marks.read_count(&Scope::All), marks.all_tags(&Scope::All)), (1, late.clone()));
        marks.let_go(MailId(1));
        assert_eq!((marks.read_count(&of("ann")), marks.all_tags(&of("ann"))), (0, BTreeMap::new()));
        assert_eq!((marks.read_count(&Scope::All), marks.all_tags(&Scope::All)), (1, late));
        marks.replace_tag(&Scope::All, "late", Some("later")).unwrap();
        assert_eq!(marks.all_tags(&Scope::All).into_keys().collect::<Vec<_>>(), ["later"]);
        marks.forget(MailId(1));
        assert_eq!((marks.read_count(&Scope::All), marks.all_tags(&Scope::All)), (0, BTreeMap::new()));
        assert_eq!((marks.read_count(&of("ben")), marks.all_tags(&of("ben")).len()), (1, 1));
    }

    #[test]
    fn a_tag_is_replaced_on_all_mails_or_none() {
        let marks = FlagTable::new(Arc::new(Counters::new()));
        let mails = 2 * (INBOX_TAG_BYTES_MAX / TAG_BYTES_MAX) as u64;
        for id in 0..mails {
            tag(&marks, id, "ann", "x").unwrap();
        }
        let before = marks.all_tags(&Scope::All);
        let long = "y".repeat(TAG_BYTES_MAX);
        assert_eq!(marks.replace_tag(&Scope::All, "x", Some(&long)), Err(TagFault::Inbox));
        assert_eq!(marks.all_tags(&Scope::All), before, "none was changed");
        assert!((0..mails).all(|id| marks.tags(MailId(id)) == ["x"]));
        assert_eq!(marks.replace_tag(&Scope::All, "x", Some("z")).map(|ids| ids.len() as u64), Ok(mails));
    }

    #[test]
    fn names_and_their_sum_are_bounded_and_go_with_their_mails() {
        let marks = FlagTable::new(Arc::new(Counters::new()));
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
        let marks = FlagTable::new(Arc::new(Counters::new()));
        for id in 0..=MARKED_MAX as u64 {
            marks.set_read(here(), &mail(id, "ann"), true);
        }
        assert_eq!(marks.read_count(&Scope::All), MARKED_MAX as u64);
        assert!(!search::FlagLookup::is_read(&marks, MailId(0)));
    }
}
