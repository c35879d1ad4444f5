//! Handle to an accelerator's cluster: whether it may serve stored answers, and how it broadcasts the purges
//! that a visitor's request asks for.
//!
//! The cache does not know the peers or the transport of the broadcast; the program that starts it supplies
//! both (`nighttrain`, with `cluster`).

use std::{fmt, pin::Pin, sync::Arc};

use crate::peers::lease::Membership;

/// Selection of the objects that one purge is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invalidate {
    /// Objects with one of these tags.
    Tags(Vec<String>),
    /// Objects stored under this URL, with all variants.
    Url(String),
    /// All objects.
    All,
    /// Objects that match this ban expression (`docs/guide/invalidation.md`).
    Ban(String),
    /// Objects with any tag.
    Tagged,
    /// All objects, because it is unknown which of them were purged: each is served again only after its
    /// origin has revalidated it.
    Doubted,
}

/// Broadcasts purges to the other accelerators, after the purges were applied here.
pub trait PurgeBroadcast: Send + Sync {
    /// Broadcasts a purge. The future is ready when all accelerators are certain to receive it.
    ///
    /// # Errors
    /// Returns the reason if the purge may not reach all of them.
    fn broadcast(&self, what: Invalidate, is_soft: bool) -> BroadcastFuture;
}

/// Future of a broadcast.
pub type BroadcastFuture = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Handle to the accelerator's cluster, shared by all cores.
#[derive(Clone, Default)]
pub struct ClusterHandle {
    /// State of the lease and of applied purges.
    pub membership: Arc<Membership>,
    /// Broadcast of purges; `None` without a cluster.
    pub abroad: Option<Arc<dyn PurgeBroadcast>>,
}

impl fmt::Debug for ClusterHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterHandle").field("membership", &self.membership).finish_non_exhaustive()
    }
}
