//! Cache of documents rendered from mails' HTML: a page and its frame request the same document shortly after
//! each other.
//!
//! ```text
//!  (mail, remote, dark) ─▶ RenderedHtml, shared ─▶ least recently used goes first, above RENDERED_BYTES_MAX
//! ```
//! A mail never changes, so its document stays valid until the mail is deleted. A request reads the mail
//! first (`app.mail_in`), so no client gets a document of a deleted mail, or of a mail that the client may
//! not see.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use axum::body::Bytes;
use engine::cold_mutex::ColdMutex;

use crate::web::serve::counters::{Counter, Counters};
use crate::{
    mailbox::mailboxes::MailId,
    render::{
        StepLimit,
        cost::HtmlLimit,
        findings::{self, Link},
        html::{RemoteContent, SanitizedHtml},
    },
};

/// Memory for all cached documents.
const RENDERED_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Largest document that is cached; a larger one is rendered each time.
const ONE_BYTES_MAX: usize = RENDERED_BYTES_MAX / 8;

/// Key of a document: the mail and the display options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RenderKey {
    pub(crate) id: MailId,
    pub(crate) remote: RemoteContent,
    pub(crate) dark: bool,
}

/// A rendered document with the data that its page shows about it.
pub(crate) struct RenderedHtml {
    pub(crate) html: Bytes,
    /// Result of sanitizing, without its `html`.
    pub(crate) clean: SanitizedHtml,
    pub(crate) links: Vec<Link>,
}

impl RenderedHtml {
    pub(crate) fn new(mut clean: SanitizedHtml, until: &StepLimit) -> Self {
        let mut links = Vec::new();
        if clean.over.is_none() {
            findings::in_html(&clean.html, &mut links, until);
        }
        if until.has_ended() {
            // Links may be missing because the time ran out.
            clean.over.get_or_insert(HtmlLimit::Time);
        }
        let html = Bytes::from(std::mem::take(&mut clean.html));
        Self { html, clean, links }
    }

    fn bytes(&self) -> usize {
        let links = self.links.iter().map(|link| link.link.len() + link.text.len() + size_of::<Link>());
        self.html.len() + links.sum::<usize>() + size_of::<Self>()
    }
}

pub(crate) struct RenderedCache {
    /// Locked to look up one document; no loop of the mail service takes it.
    state: ColdMutex<State>,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct State {
    kept: HashMap<RenderKey, (u64, Arc<RenderedHtml>)>,
    /// Keys by time of last use.
    order: BTreeMap<u64, RenderKey>,
    bytes: usize,
    asked: u64,
}

impl RenderedCache {
    pub(crate) fn new(counters: Arc<Counters>) -> Self {
        Self { state: ColdMutex::default(), counters }
    }

    pub(crate) fn find(&self, made: RenderKey) -> Option<Arc<RenderedHtml>> {
        let mut state = self.state.lock();
        let State { kept, order, asked, .. } = &mut *state;
        let (last, rendered) = kept.get_mut(&made)?;
        order.remove(last);
        *asked += 1;
        *last = *asked;
        order.insert(*asked, made);
        self.counters.add(Counter::RenderedFound, 1);
        Some(Arc::clone(rendered))
    }

    /// Caches a document, unless it is too large, or incomplete because time ran out.
    pub(crate) fn keep(&self, made: RenderKey, rendered: &Arc<RenderedHtml>) {
        let bytes = rendered.bytes();
        if rendered.clean.over == Some(HtmlLimit::Time) || bytes > ONE_BYTES_MAX {
            return;
        }
        let mut state = self.state.lock();
        state.forget(made);
        state.asked += 1;
        let asked = state.asked;
        state.order.insert(asked, made);
        state.kept.insert(made, (asked, Arc::clone(rendered)));
        state.bytes += bytes;
        while state.bytes > RENDERED_BYTES_MAX
            && let Some((_, oldest)) = state.order.first_key_value()
        {
            let oldest = *oldest;
            state.forget(oldest);
            self.counters.add(Counter::RenderedDropped, 1);
        }
        self.counters.set(Counter::RenderedBytes, state.bytes as u64);
    }

    /// Removes the documents of a deleted mail.
    pub(crate) fn forget(&self, id: MailId) {
        let mut state = self.state.lock();
        for remote in [RemoteContent::Blocked, RemoteContent::Loaded] {
            for dark in [false, true] {
                state.forget(RenderKey { id, remote, dark });
            }
        }
        self.counters.set(Counter::RenderedBytes, state.bytes as u64);
    }
}

impl State {
    fn forget(&mut self, made: RenderKey) {
        if let Some((asked, rendered)) = self.kept.remove(&made) {
            self.order.remove(&asked);
            self.bytes -= rendered.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{
        StepLimit,
        html::{DisplayOptions, clean},
    };

    fn made(id: u64) -> RenderKey {
        RenderKey { id: MailId(id), remote: RemoteContent::Blocked, dark: false }
    }

    fn rendered(text: &str) -> Arc<RenderedHtml> {
        let clean = clean(text, &DisplayOptions::default(), HashMap::new(), &StepLimit::default());
        Arc::new(RenderedHtml::new(clean, &StepLimit::default()))
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_recent_entries() {
        let renderings = RenderedCache::new(Arc::new(Counters::new()));
        let large = rendered(&"x".repeat(RENDERED_BYTES_MAX / 16));
        renderings.keep(made(0), &large);
        for id in 1..100 {
            renderings.keep(made(id), &large);
            assert!(renderings.find(made(0)).is_some(), "it is asked for again and again");
            assert!(renderings.state.lock().bytes <= RENDERED_BYTES_MAX);
        }
        assert!(renderings.find(made(1)).is_none() && renderings.find(made(99)).is_some());
        renderings.keep(made(200), &rendered(&"x".repeat(ONE_BYTES_MAX)));
        assert!(renderings.find(made(200)).is_none(), "it is too long");
        for id in 0..100 {
            renderings.forget(MailId(id));
        }
        let state = renderings.state.lock();
        assert_eq!((state.bytes, state.kept.len(), state.order.len()), (0, 0, 0));
    }

    #[test]
    fn what_took_too_long_is_tried_again() {
        let renderings = RenderedCache::new(Arc::new(Counters::new()));
        let late = clean("<p>x", &DisplayOptions::default(), HashMap::new(), &StepLimit::new(|| true));
        renderings.keep(made(1), &Arc::new(RenderedHtml::new(late, &StepLimit::default())));
        assert!(renderings.find(made(1)).is_none());
    }
}
