//! Summaries of the mails that came last or were asked for last: what most lists show, without a read of the log.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use crate::mailbox::mailboxes::{MailId, Summary};

/// Summaries kept by a core: some 6 MiB.
const RECENT_MAX: usize = 16_384;

/// The newest come in, the oldest go out.
#[derive(Debug, Default)]
pub(crate) struct SummaryCache {
    by_id: HashMap<MailId, Arc<Summary>>,
    /// In the order in which they came; some may be gone already.
    order: VecDeque<MailId>,
}

impl SummaryCache {
    pub(crate) fn find(&self, id: MailId) -> Option<Arc<Summary>> {
        self.by_id.get(&id).map(Arc::clone)
    }

    pub(crate) fn insert(&mut self, summary: Arc<Summary>) {
        let id = summary.id;
        if self.by_id.insert(id, summary).is_none() {
            self.order.push_back(id);
        }
        while self.order.len() > RECENT_MAX {
            if let Some(oldest) = self.order.pop_front() {
                self.by_id.remove(&oldest);
            }
        }
    }

    /// A mail is to be forgotten earlier: whoever asks from now on is told so.
    pub(crate) fn expires(&mut self, id: MailId, expires_ms: u64) {
        if let Some(summary) = self.by_id.get_mut(&id) {
            Arc::make_mut(summary).expires_ms = expires_ms;
        }
    }

    /// Takes back what was removed just now, in its old place.
    pub(crate) fn put_back(&mut self, summary: Arc<Summary>) {
        self.by_id.insert(summary.id, summary);
    }

    pub(crate) fn remove(&mut self, id: MailId) -> Option<Arc<Summary>> {
        self.by_id.remove(&id)
    }
}
