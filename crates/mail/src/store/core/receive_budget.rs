//! Memory budget of the incomplete mails of a core: its own part of the limit, then steps of the common half.

use std::sync::Arc;

use engine::share::{CommonPart, Share};

/// A mail may only begin if this much memory is free: the rest is reserved for mails that have already begun.
const BEGIN_BYTES: usize = 1 << 20;
const BEGIN_SHARE: usize = 8;

/// Memory of the incomplete mails of a core.
#[derive(Debug)]
pub(crate) struct ReceiveBudget {
    share: Share,
    bytes: usize,
}

impl ReceiveBudget {
    pub(crate) fn new(common: &Arc<CommonPart>, total: usize, cores: usize) -> Self {
        Self { share: Share::new(Arc::clone(common), total, cores), bytes: 0 }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether there is memory for another mail; `most` is the limit for all mails being received.
    #[inline]
    pub(crate) fn may_begin(&mut self, most: usize) -> bool {
        let Self { share, bytes } = self;
        // If the total for all servers' clients is small, the core's own part is enough to begin.
        let begin_bytes = BEGIN_BYTES.min(most / BEGIN_SHARE).min(share.own());
        share.allows(*bytes + begin_bytes)
    }

    /// Changes the charge of a mail from `before` to `after` bytes. Returns whether there is memory for it;
    /// the charge is made in any case.
    #[inline]
    pub(crate) fn rebook(&mut self, before: usize, after: usize) -> bool {
        let Self { share, bytes } = self;
        *bytes = *bytes - before + after;
        share.allows(*bytes)
    }
}
