//! Requests for the list of stored objects, and their pages ([`listing`](crate::admin::listing) finds the objects).

use std::sync::Arc;

use engine::store::Sweep;
use tokio::sync::oneshot;

use crate::purging::bans::Ban;

/// Rows of an answer.
pub const OBJECTS_MAX: usize = 10_000;

/// Why there is no list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectsError {
    /// The expression is none, or is about who asks.
    #[error("{0}")]
    NotAnExpression(String),
    /// A core did not answer in time.
    #[error("a core did not answer; it has too much to do, or the server is stopping")]
    NoAnswer,
}

/// A stored answer as the operator sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectSeen {
    /// Its address.
    pub url: String,
    /// It is one of several answers to this address.
    pub is_variant: bool,
    /// Its status.
    pub status: u16,
    /// Content-Type, where it says one.
    pub content_type: Option<String>,
    /// Bytes of its body.
    pub body_bytes: u64,
    /// Seconds since it was made.
    pub age_s: u64,
    /// Seconds for which it is fresh; less than 0: it has been stale for so long.
    pub ttl_s: i64,
    /// Tags that it can be purged by.
    pub tags: usize,
}

impl ObjectSeen {
    pub(crate) fn text_bytes(&self) -> usize {
        self.url.len() + self.content_type.as_ref().map_or(0, String::len)
    }
}

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Objects {
    /// The rows, in no order.
    pub seen: Vec<ObjectSeen>,
    /// Answers in memory that were looked at.
    pub looked_at: u64,
    /// Those were all.
    pub is_all: bool,
}

/// A step of a walk, for one core.
pub(crate) struct Step {
    pub(crate) from: Sweep,
    /// `None`: all.
    pub(crate) expression: Option<Arc<Ban>>,
    pub(crate) rows_max: usize,
    pub(crate) reply: oneshot::Sender<ObjectsPage>,
}

/// What it found.
pub(crate) struct ObjectsPage {
    pub(crate) seen: Vec<ObjectSeen>,
    pub(crate) looked_at: u64,
    pub(crate) is_cut: bool,
    pub(crate) next: Option<Sweep>,
}
