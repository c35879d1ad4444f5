//! Requests to a core for monitoring data, and a core's answers.

use std::{collections::HashSet, sync::Arc};

use tokio::sync::oneshot;

use crate::{
    client::connection::ConnId,
    leaf::HubSnapshot,
    monitor::snapshot::{ConnectionSnapshot, SubscriptionSnapshot},
};

/// A request to a core for monitoring data.
pub(crate) enum Look {
    /// Sizes of the core's tables.
    Tables(oneshot::Sender<Tables>),
    /// Open connections, starting at this connection number.
    Open(ConnId, oneshot::Sender<Piece<(ConnId, ConnectionSnapshot)>>),
    /// Closed connections, starting at this index.
    Closed(u32, oneshot::Sender<Piece<ConnectionSnapshot>>),
    /// Hubs that the core joins.
    Hubs(oneshot::Sender<Vec<HubSnapshot>>),
    /// Subscriptions that match the filter, starting at this subscription number.
    Subscriptions(u32, SubscriptionFilter, oneshot::Sender<Piece<ListedSubscription>>),
}

/// A part of a list, and the number at which the next part begins.
pub(crate) struct Piece<T> {
    pub(super) things: Vec<T>,
    /// Number of items in this part that match the filter, including skipped ones.
    pub(super) matched: usize,
    pub(super) next: Option<u32>,
}

/// Sizes of a core's tables.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tables {
    pub(crate) trie_nodes: usize,
    pub(crate) matches_found: u64,
    pub(crate) matches_made: u64,
}

/// A subscription with its connection and account, for a list.
#[derive(Debug, Clone)]
pub(crate) struct ListedSubscription {
    pub(crate) cid: u64,
    pub(crate) account: String,
    pub(crate) subscription: SubscriptionSnapshot,
}

/// Filter of a list of subscriptions.
#[derive(Debug, Clone, Default)]
pub(crate) struct SubscriptionFilter {
    /// Restricts the list to subscriptions of these connections.
    pub(crate) of: Option<Arc<HashSet<ConnId>>>,
    /// Restricts the list to subscriptions of this account.
    pub(crate) account: Option<Arc<str>>,
    /// Restricts the list to subscriptions that match this subject, which is valid and has no wildcards.
    pub(crate) test: Option<Arc<[u8]>>,
    /// Number of matches to skip, and number to return after that; any others are only counted.
    pub(crate) skip: usize,
    pub(crate) take: usize,
}

/// Error: a core did not answer in time.
#[derive(Debug, thiserror::Error)]
#[error("a core did not answer; the server may be stopping")]
pub struct NoAnswer;
