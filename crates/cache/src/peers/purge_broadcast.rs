//! What an accelerator that is one of several has for that: whether it may serve what is stored, and whom it tells of
//! purges that a visitor's request asks for.
//!
//! It does not know who they are or how they are told: that is for whoever starts it (`nighttrain`, with `cluster`).

use std::{fmt, pin::Pin, sync::Arc};

use crate::peers::lease::Membership;

/// What is purged with one word, however much it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalidate {
    /// What has one of these tags.
    Tags(Vec<String>),
    /// What is stored under this URL, with all its variants.
    Url(String),
    /// Everything.
    All,
    /// What this expression holds of (`docs/guide/invalidation.md`).
    Ban(String),
    /// What has any tag.
    Tagged,
    /// Everything, because nobody knows what of it was purged: it may be shown again once its origin has said that it is
    /// still good, and not before.
    Doubted,
}

/// Who tells other accelerators of a purge that has been carried out here.
pub trait PurgeBroadcast: Send + Sync {
    /// Tells them. It is ready when all of them will hear of it.
    ///
    /// # Errors
    /// Why they will not.
    fn tell(&self, what: Invalidate, is_soft: bool) -> BroadcastFuture;
}

/// Being told.
pub type BroadcastFuture = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// What all cores have of it.
#[derive(Clone, Default)]
pub struct ClusterHandle {
    /// Whether what is stored may be served.
    pub membership: Arc<Membership>,
    /// Who is told of purges; `None`: it is alone.
    pub abroad: Option<Arc<dyn PurgeBroadcast>>,
}

impl fmt::Debug for ClusterHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Among").field("membership", &self.membership).finish_non_exhaustive()
    }
}
