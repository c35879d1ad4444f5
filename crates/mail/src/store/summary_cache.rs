//! Cache of the summaries of mails that arrived or were requested last, so that most lists need no read of
//! the log.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use crate::mailbox::mailboxes::{MailId, Summary};

/// Number of summaries that a core keeps, which take about 6 MiB.
const RECENT_MAX: usize = 16_384;

/// FIFO cache of summaries.
#[derive(Debug, Default)]
pub(crate) struct SummaryCache {
    by_id: HashMap<MailId, Arc<Summary>>,
    /// IDs in order of insertion; some may be removed already.
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

    /// Changes the expiry time of a cached summary.
    pub(crate) fn expires(&mut self, id: MailId, expires_ms: u64) {
        if let Some(summary) = self.by_id.get_mut(&id) {
            Arc::make_mut(summary).expires_ms = expires_ms;
        }
    }

    /// Puts a summary that was just removed back at its old position.
    pub(crate) fn put_back(&mut self, summary: Arc<Summary>) {
        self.by_id.insert(summary.id, summary);
    }

    pub(crate) fn remove(&mut self, id: MailId) -> Option<Arc<Summary>> {
        self.by_id.remove(&id)
    }
}
