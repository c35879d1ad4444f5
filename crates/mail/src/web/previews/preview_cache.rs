//! What lists show of a mail beyond its summary: the text's beginning, how much is attached, whom its head names.
//!
//! ```text
//!  a list ─▶ summaries ─▶ gists kept? ─┬▶ yes: written as they are
//!                                      └▶ no: the mail is read and taken apart, once; its gist is kept
//! ```
//! Taking a mail apart costs fifty times what writing its line does, and a list is asked for over and over: by each page
//! that is loaded, each client that polls. So it is done once: when there is nothing better to do ([`crate::web::previews::preview_worker`]), or
//! at the first need, and not at the receipt, where it would cost as much as all of the receiving. *Which memory:* [`GISTS_BYTES_MAX`] in all; beyond it those that were
//! made first go, and are made anew when they are asked for. *Who writes:* the web's thread, and the one that makes
//! them ahead. A gist goes with its mail.
//!
//! It is the mail's and not an inbox's: one for all inboxes that have it.
#![expect(
    clippy::disallowed_types,
    reason = "held for a few look-ups, by the web's thread and one of low priority"
)]

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::web::serve::{
    answer::Fault,
    app::App,
    client::Client,
    counters::{Counter, Counters},
};
use crate::{
    api,
    mailbox::mailboxes::{Mail, MailId, Mailboxes, Scope, Summary},
    render::{ParsedMail, StepLimit},
};

/// Memory for all gists: of some twenty thousand mails as most are.
const GISTS_BYTES_MAX: usize = 16 << 20;
/// A larger one is not kept: whoever writes a thousand recipients into a head does not crowd out others' mails.
const GIST_BYTES_MAX: usize = 64 << 10;
/// What a gist takes beside its texts: the table's place, the order's, its own.
const GIST_BYTES_BESIDE: usize = 192;
/// Characters of a snippet, as Mailpit has it.
const SNIPPET_CHARACTERS: usize = 250;

/// See the module.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Preview {
    /// The beginning of the text in one line; empty if there is none.
    pub(crate) snippet: Box<str>,
    /// Parts that are attached, and not shown in place.
    pub(crate) attachments: usize,
    /// Recipients, as said in RCPT TO, whom the head does not name.
    pub(crate) hidden: Box<[HiddenRecipient]>,
    /// The fields of Mailpit's list that are the same whoever asks, as JSON without the braces.
    pub(crate) mailpit: Box<str>,
}

/// A recipient whom the head does not name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HiddenRecipient {
    /// As said in RCPT TO.
    pub(crate) said: Box<str>,
    /// The same as Mailpit's lists have it.
    pub(crate) mailpit: Box<str>,
}

impl Preview {
    /// Of a mail as it is seen over all inboxes.
    pub(crate) fn new(mail: &Mail, until: &StepLimit) -> Self {
        let prepared = ParsedMail::within(&mail.raw, until);
        let reading = prepared.read();
        let snippet = snippet(&reading.text().0);
        let attachments = reading.attachments().iter().filter(|attachment| attachment.attached).count();
        let mailpit = api::mailpit_list_fields(&mail.summary, &reading, &snippet, attachments);
        let hidden = api::mailpit_hidden(mail, &reading);
        let hidden = hidden
            .map(|said| HiddenRecipient { said: said.into(), mailpit: api::mailpit_address(said).into() });
        let hidden = hidden.collect();
        Self { snippet: snippet.into(), attachments, hidden, mailpit: mailpit.into() }
    }

    fn bytes(&self) -> usize {
        let hidden: usize = self
            .hidden
            .iter()
            .map(|of| of.said.len() + of.mailpit.len() + size_of::<HiddenRecipient>())
            .sum();
        GIST_BYTES_BESIDE + self.snippet.len() + self.mailpit.len() + hidden
    }
}

/// The words of a text in one line, as many characters of them as a list shows.
fn snippet(text: &str) -> String {
    let mut snippet = String::new();
    let mut left = SNIPPET_CHARACTERS;
    for word in text.split_whitespace() {
        if !snippet.is_empty() {
            if left <= 1 {
                break;
            }
            snippet.push(' ');
            left -= 1;
        }
        let end = word.char_indices().nth(left).map_or(word.len(), |(at, _)| at);
        snippet.push_str(&word[..end]);
        left -= word[..end].chars().count();
        if left == 0 {
            break;
        }
    }
    snippet
}

/// Those that are kept.
#[derive(Debug)]
pub(crate) struct PreviewCache {
    state: Mutex<State>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct State {
    /// By the mail's name over all inboxes.
    of: HashMap<MailId, Arc<Preview>>,
    /// In the order in which they were made; those forgotten meanwhile are passed over.
    order: VecDeque<MailId>,
    bytes: usize,
}

impl PreviewCache {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self { state: Mutex::default(), counters }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is kept of these mails, in their order.
    pub(crate) fn find(&self, mails: &[Arc<Summary>]) -> Vec<Option<Arc<Preview>>> {
        let state = self.state();
        mails.iter().map(|mail| state.of.get(&mail.letter).cloned()).collect()
    }

    /// Whether that of a mail is kept.
    pub(crate) fn has(&self, letter: MailId) -> bool {
        self.state().of.contains_key(&letter)
    }

    /// Keeps it, and counts those that somebody else did not make in the same moment.
    pub(crate) fn keep(&self, letter: MailId, gist: &Arc<Preview>) {
        let bytes = gist.bytes();
        let mut state = self.state();
        if !state.of.contains_key(&letter) {
            self.counters.add(Counter::GistsMade, 1);
        }
        if bytes > GIST_BYTES_MAX {
            return;
        }
        match state.of.insert(letter, Arc::clone(gist)) {
            // Two who asked at once.
            Some(before) => state.bytes -= before.bytes(),
            None => state.order.push_back(letter),
        }
        state.bytes += bytes;
        while state.bytes > GISTS_BYTES_MAX
            && let Some(oldest) = state.order.pop_front()
        {
            if state.forget(oldest) {
                self.counters.add(Counter::GistsDropped, 1);
            }
        }
        self.counters.set(Counter::GistBytes, state.bytes as u64);
    }

    /// The mail has gone.
    pub(crate) fn forget(&self, letter: MailId) {
        let mut state = self.state();
        if !state.forget(letter) {
            return;
        }
        if state.order.len() > 2 * state.of.len() + 64 {
            let State { order, of, .. } = &mut *state;
            order.retain(|made| of.contains_key(made));
        }
        self.counters.set(Counter::GistBytes, state.bytes as u64);
    }
}

impl State {
    /// Whether there was one.
    fn forget(&mut self, letter: MailId) -> bool {
        let Some(gist) = self.of.remove(&letter) else { return false };
        self.bytes -= gist.bytes();
        true
    }
}

impl<M: Mailboxes> App<M> {
    /// The gist of a mail that a list shows: the one that is kept, or made now; nothing if the mail is gone.
    pub(crate) async fn gist(&self, client: Client, of: &Summary) -> Result<Option<Arc<Preview>>, Fault> {
        let letter = of.letter;
        let kept = self.gists.state().of.get(&letter).cloned();
        if kept.is_some() {
            return Ok(kept);
        }
        let Some(mail) = self.mail_in(client, &Scope::All, letter).await? else { return Ok(None) };
        let gist = Arc::new(self.render(client, mail, Preview::new).await?);
        self.gists.keep(letter, &gist);
        Ok(Some(gist))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gist(bytes: usize) -> Arc<Preview> {
        let mailpit = "x".repeat(bytes - GIST_BYTES_BESIDE).into();
        Arc::new(Preview { snippet: "".into(), attachments: 0, hidden: Box::default(), mailpit })
    }

    #[test]
    fn a_snippet_is_the_first_words_in_one_line() {
        assert_eq!(snippet("  one\r\n\ttwo  three "), "one two three");
        assert_eq!(snippet(""), "");
        let long = snippet(&"grüße ".repeat(100));
        assert_eq!(long.chars().count(), SNIPPET_CHARACTERS);
        assert!(long.ends_with("grüße grüß"), "{long}");
        let blank = "x".repeat(SNIPPET_CHARACTERS - 1);
        assert_eq!(snippet(&format!("{blank} y")), blank, "no blank stands at the end");
        assert_eq!(snippet(&"ü".repeat(1000)).chars().count(), SNIPPET_CHARACTERS);
    }

    #[test]
    fn no_more_is_kept_than_may_be_and_a_gist_goes_with_its_mail() {
        let counters = Arc::new(Counters::new());
        let gists = PreviewCache::new(Arc::clone(&counters));
        gists.keep(MailId(0), &gist(GIST_BYTES_MAX + 1));
        assert_eq!(gists.state().of.len(), 0, "one that is too large is not kept");
        let most = GISTS_BYTES_MAX / GIST_BYTES_MAX;
        for id in 1..=most as u64 + 3 {
            gists.keep(MailId(id), &gist(GIST_BYTES_MAX));
        }
        let state = gists.state();
        assert_eq!((state.bytes, state.of.len()), (GISTS_BYTES_MAX, most));
        assert!(!state.of.contains_key(&MailId(3)) && state.of.contains_key(&MailId(4)), "the oldest goes");
        drop(state);
        for id in 1..=most as u64 + 3 {
            gists.forget(MailId(id));
        }
        let state = gists.state();
        assert_eq!((state.bytes, state.of.len()), (0, 0));
        assert!(state.order.len() <= 64);
    }
}
