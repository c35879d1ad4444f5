//! What programs remember about mails by Mailpit's API: read, and tags. In memory, bounded, gone with the process: they
//! are a test suite's notes, not part of the mail.
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
    app::App,
    counters::{Counter, Counters},
};
use crate::{
    mailboxes::{Event, MailId, Mailboxes},
    search,
};

/// Mails with a mark; beyond, the oldest marks are forgotten.
const MARKED_MAX: usize = 50_000;
/// Tags on one mail.
pub(crate) const TAGS_MAX: usize = 50;
/// Characters of a tag.
pub(crate) const TAG_CHARACTERS_MAX: usize = 100;

#[derive(Debug)]
pub(crate) struct Marks {
    state: Mutex<State>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct State {
    of: HashMap<MailId, Mark>,
    /// In the order in which they got their first mark.
    order: VecDeque<MailId>,
}

#[derive(Debug, Default)]
struct Mark {
    read: bool,
    tags: BTreeSet<String>,
}

impl Marks {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self { state: Mutex::default(), counters }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_read(&self, id: MailId, read: bool) {
        self.change(id, |mark| mark.read = read);
    }

    pub(crate) fn set_tags(&self, id: MailId, tags: &[String]) {
        self.change(id, |mark| {
            let clean = tags.iter().map(|tag| tag.trim()).filter(|tag| !tag.is_empty());
            mark.tags =
                clean.map(|tag| tag.chars().take(TAG_CHARACTERS_MAX).collect()).take(TAGS_MAX).collect();
        });
    }

    pub(crate) fn tags(&self, id: MailId) -> Vec<String> {
        self.state().of.get(&id).map(|mark| mark.tags.iter().cloned().collect()).unwrap_or_default()
    }

    /// Each tag and how many mails carry it.
    pub(crate) fn all_tags(&self) -> BTreeMap<String, u64> {
        let mut all = BTreeMap::new();
        for tag in self.state().of.values().flat_map(|mark| &mark.tags) {
            *all.entry(tag.clone()).or_default() += 1;
        }
        all
    }

    /// Takes a tag off all mails, and puts another there if there is one.
    pub(crate) fn replace_tag(&self, tag: &str, with: Option<&str>) {
        for mark in self.state().of.values_mut() {
            if mark.tags.remove(tag)
                && let Some(with) = with
            {
                mark.tags.insert(with.to_owned());
            }
        }
    }

    pub(crate) fn read_count(&self) -> u64 {
        self.state().of.values().filter(|mark| mark.read).count() as u64
    }

    fn forget(&self, id: MailId) {
        let mut state = self.state();
        if state.of.remove(&id).is_some() {
            state.order.retain(|marked| *marked != id);
        }
    }

    fn change(&self, id: MailId, change: impl FnOnce(&mut Mark)) {
        let mut state = self.state();
        if !state.of.contains_key(&id) {
            state.order.push_back(id);
            if state.order.len() > MARKED_MAX
                && let Some(oldest) = state.order.pop_front()
            {
                state.of.remove(&oldest);
                self.counters.add(Counter::MarksDropped, 1);
            }
        }
        change(state.of.entry(id).or_default());
    }
}

impl search::Marks for Marks {
    fn is_read(&self, id: MailId) -> bool {
        self.state().of.get(&id).is_some_and(|mark| mark.read)
    }

    fn has_tag(&self, id: MailId, tag: &str) -> bool {
        self.state().of.get(&id).is_some_and(|mark| mark.tags.iter().any(|own| own.to_lowercase() == tag))
    }

    fn is_tagged(&self, id: MailId) -> bool {
        self.state().of.get(&id).is_some_and(|mark| !mark.tags.is_empty())
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
