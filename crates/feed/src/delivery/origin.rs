//! Origin that accompanies a run from its publisher to the subscribers.

use crate::{client::connection::ConnId, delivery::producer::Producer, routing::trie::NodeId};

/// Source of messages that are delivered, and the set of subscribers that may get them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    /// Connection that caused the delivery. Its reads are paused if too many bytes are on their way to
    /// another core.
    pub(crate) from: ConnId,
    pub(crate) producer: Producer,
    pub(crate) account: u16,
    pub(crate) root: NodeId,
    /// Another core has sent the messages, only for this core's subscribers outside of queue groups; the
    /// sending core serves the queue groups.
    pub(crate) is_from_core: bool,
    /// A hub has sent the messages, so no hub gets them.
    pub(crate) is_from_hub: bool,
    /// The hub has named the queue groups that get the messages, so groups are served by name.
    pub(crate) are_groups_named: bool,
    /// The account exports or imports a service.
    pub(crate) deals: bool,
    /// The messages arrived through a service import, so no stream import delivers them.
    pub(crate) is_imported: bool,
}

impl Origin {
    /// Builds the origin of messages that no client has published, in an account without exports and imports.
    #[inline]
    pub(crate) fn of_nobody(producer: Producer, account: u16, root: NodeId) -> Self {
        Self {
            from: producer.conn,
            producer,
            account,
            root,
            is_from_core: false,
            is_from_hub: false,
            are_groups_named: false,
            deals: false,
            is_imported: false,
        }
    }
}
