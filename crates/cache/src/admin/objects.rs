//! Requests for the list of stored objects, and the pages of the list ([`listing`](crate::admin::listing)
//! finds the objects).

use std::sync::Arc;

use engine::store::Sweep;
use tokio::sync::oneshot;

use crate::purging::bans::Ban;

/// Maximum number of rows in a list.
pub const OBJECTS_MAX: usize = 10_000;

/// Reason why the list cannot be given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectsError {
    /// The expression is invalid, or tests request fields that are not stored.
    #[error("{0}")]
    NotAnExpression(String),
    /// A core did not answer in time.
    #[error("a core did not answer: it is overloaded, or the server is stopping")]
    NoAnswer,
}

/// A stored answer as shown to the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectSeen {
    /// The address of the answer.
    pub url: String,
    /// True if the answer is one of several variants of this address.
    pub is_variant: bool,
    /// Status of the answer.
    pub status: u16,
    /// Content-Type, if the answer has one.
    pub content_type: Option<String>,
    /// Length of the body in bytes.
    pub body_bytes: u64,
    /// Age of the answer in seconds.
    pub age_s: u64,
    /// Seconds of freshness left; negative: seconds since the answer became stale.
    pub ttl_s: i64,
    /// Number of tags by which the answer can be purged.
    pub tags: usize,
}

impl ObjectSeen {
    pub(crate) fn text_bytes(&self) -> usize {
        self.url.len() + self.content_type.as_ref().map_or(0, String::len)
    }
}

/// A list of stored objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Objects {
    /// The rows, in no particular order.
    pub seen: Vec<ObjectSeen>,
    /// Number of answers in memory that were looked at.
    pub looked_at: u64,
    /// True if the list is complete.
    pub is_all: bool,
}

/// A step of a listing, for one core.
pub(crate) struct Step {
    pub(crate) from: Sweep,
    /// The expression to match; `None` matches every object.
    pub(crate) expression: Option<Arc<Ban>>,
    pub(crate) rows_max: usize,
    pub(crate) reply: oneshot::Sender<ObjectsPage>,
}

/// Result of a step.
pub(crate) struct ObjectsPage {
    pub(crate) seen: Vec<ObjectSeen>,
    pub(crate) looked_at: u64,
    pub(crate) is_cut: bool,
    pub(crate) next: Option<Sweep>,
}
