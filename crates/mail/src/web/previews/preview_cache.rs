//! Cache of previews: the beginning of a mail's text, its number of attachments, and the recipients that its
//! head does not name.
//!
//! ```text
//!  a list ─▶ summaries ─▶ previews cached? ─┬▶ yes: written as they are
//!                                           └▶ no: the mail is read and parsed, once; its preview is cached
//! ```
//! Parsing a mail costs fifty times as much as writing its row, and a list is requested repeatedly: by each
//! page load and by each client that polls. A preview is therefore built only once: by the idle
//! [`crate::web::previews::preview_worker`] or when it is first needed, but not on arrival, where it would
//! cost as much as the rest of receiving. *Memory:* [`GISTS_BYTES_MAX`] in total; when it is used up, the
//! oldest previews are dropped, and rebuilt when needed. *Writers:* the web's thread and the preview worker.
//! A preview is removed with its mail.
//!
//! A preview belongs to the mail, not to an inbox: all inboxes of a mail share it.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use engine::cold_mutex::ColdMutex;

use crate::{
    mailbox::mailboxes::{Mail, MailId, Summary},
    render::{ParsedMail, StepLimit},
    web::{
        previews::mailpit_fields,
        serve::counters::{Counter, Counters},
    },
};

/// Memory for all previews: enough for some twenty thousand typical mails.
const GISTS_BYTES_MAX: usize = 16 << 20;
/// Largest preview that is cached, so that a head with a thousand recipients does not displace other
/// previews.
const GIST_BYTES_MAX: usize = 64 << 10;
/// Memory of a preview in addition to its texts: its entries in the table and in the order, and the struct.
const GIST_BYTES_BESIDE: usize = 192;
/// Maximum number of characters of a snippet, as in Mailpit.
const SNIPPET_CHARACTERS: usize = 250;

/// Preview of a mail; see the module.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Preview {
    /// Beginning of the text as one line; empty if there is no text.
    pub(crate) snippet: Box<str>,
    /// Number of attachments, excluding inline parts.
    pub(crate) attachments: usize,
    /// Recipients from RCPT TO that the head does not name.
    pub(crate) hidden: Box<[HiddenRecipient]>,
    /// Fields of Mailpit's list that are the same for all clients, as JSON without the braces.
    pub(crate) mailpit: Box<str>,
}

/// A recipient that the head does not name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HiddenRecipient {
    /// Address as given in RCPT TO.
    pub(crate) said: Box<str>,
    /// Address in the form of Mailpit's lists.
    pub(crate) mailpit: Box<str>,
}

impl Preview {
    /// Builds the preview of a mail as shown in the list of all mails.
    pub(crate) fn new(mail: &Mail, until: &StepLimit) -> Self {
        let prepared = ParsedMail::within(&mail.raw, until);
        let reading = prepared.read();
        let snippet = snippet(&reading.text().0);
        let attachments = reading.attachments().iter().filter(|attachment| attachment.attached).count();
        let mailpit = mailpit_fields::list_fields(&mail.summary, &reading, &snippet, attachments);
        let hidden = mailpit_fields::hidden(mail, &reading);
        let hidden = hidden.map(|said| HiddenRecipient {
            said: said.into(),
            mailpit: mailpit_fields::said_address(said).into(),
        });
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

/// Returns the beginning of a text as one line, cut to the length that lists show.
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

/// The cached previews.
#[derive(Debug)]
pub(crate) struct PreviewCache {
    /// Locked for a few lookups.
    state: ColdMutex<State>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct State {
    /// Previews by the mail's ID in its first inbox.
    of: HashMap<MailId, Arc<Preview>>,
    /// Mails in the order in which their previews were built; removed ones are skipped.
    order: VecDeque<MailId>,
    bytes: usize,
}

impl PreviewCache {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self { state: ColdMutex::default(), counters }
    }

    /// Returns the cached previews of these mails, in the same order.
    pub(crate) fn find(&self, mails: &[Arc<Summary>]) -> Vec<Option<Arc<Preview>>> {
        let state = self.state.lock();
        mails.iter().map(|mail| state.of.get(&mail.letter).cloned()).collect()
    }

    /// Returns the cached preview of a mail.
    pub(crate) fn of(&self, letter: MailId) -> Option<Arc<Preview>> {
        self.state.lock().of.get(&letter).cloned()
    }

    /// Returns whether the preview of a mail is cached.
    pub(crate) fn has(&self, letter: MailId) -> bool {
        self.state.lock().of.contains_key(&letter)
    }

    /// Caches a preview, and counts it unless another request built the same one at the same time.
    pub(crate) fn keep(&self, letter: MailId, gist: &Arc<Preview>) {
        let bytes = gist.bytes();
        let mut state = self.state.lock();
        if !state.of.contains_key(&letter) {
            self.counters.add(Counter::GistsMade, 1);
        }
        if bytes > GIST_BYTES_MAX {
            return;
        }
        match state.of.insert(letter, Arc::clone(gist)) {
            // Two requests built this preview at the same time.
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

    /// Removes the preview of a deleted mail.
    pub(crate) fn forget(&self, letter: MailId) {
        let mut state = self.state.lock();
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
    /// Removes a preview. Returns whether there was one.
    fn forget(&mut self, letter: MailId) -> bool {
        let Some(gist) = self.of.remove(&letter) else { return false };
        self.bytes -= gist.bytes();
        true
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
    fn a_snippet_holds_the_first_words() {
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
    fn previews_are_bounded_and_go_with_their_mails() {
        let counters = Arc::new(Counters::new());
        let gists = PreviewCache::new(Arc::clone(&counters));
        gists.keep(MailId(0), &gist(GIST_BYTES_MAX + 1));
        assert_eq!(gists.state.lock().of.len(), 0, "one that is too large is not kept");
        let most = GISTS_BYTES_MAX / GIST_BYTES_MAX;
        for id in 1..=most as u64 + 3 {
            gists.keep(MailId(id), &gist(GIST_BYTES_MAX));
        }
        let state = gists.state.lock();
        assert_eq!((state.bytes, state.of.len()), (GISTS_BYTES_MAX, most));
        assert!(!state.of.contains_key(&MailId(3)) && state.of.contains_key(&MailId(4)), "the oldest goes");
        drop(state);
        for id in 1..=most as u64 + 3 {
            gists.forget(MailId(id));
        }
        let state = gists.state.lock();
        assert_eq!((state.bytes, state.of.len()), (0, 0));
        assert!(state.order.len() <= 64);
    }
}
