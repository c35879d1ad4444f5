//! Parts of a core's state, each for one purpose.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use engine::{
    cores::{SteadyClock, fair::TurnScheduler, mesh::Sender, watch::Watches},
    heap::HeapTrimmer,
    holding::ClientMemoryBudget,
    journal::Scribe,
    log::{Progress, Writer},
    meter::CoreCounters,
};
use tokio::sync::Notify;

use super::messages::Message;
use crate::{
    abuse::Abuse,
    counters::Counter,
    smtp::pending::PendingReply,
    store::{
        annotations::Notes, backlog::Backlog, delivery_refs::DeliveryRefs, index::Index,
        shared_bodies::RecentBodies, summary_cache::SummaryCache,
    },
};

/// Mails of the inboxes that the core owns, and what new mails need: their IDs, their time, bodies to share.
pub(crate) struct Mails {
    pub(crate) index: RefCell<Index>,
    /// Reference counts of the mails that were delivered to several inboxes.
    pub(crate) delivery_refs: RefCell<DeliveryRefs>,
    pub(crate) notes: RefCell<Notes>,
    /// Summaries of recent mails.
    pub(crate) summaries: RefCell<SummaryCache>,
    /// Bodies of recent mails that the log already has.
    pub(crate) recent_bodies: RefCell<RecentBodies>,
    /// Greatest mail ID assigned so far, without the bits of core and inbox.
    pub(crate) last_name: Cell<u64>,
    /// Clock for arrival and expiry; it never goes back.
    pub(super) clock: SteadyClock,
}

/// The core's part of the log.
pub(crate) struct LogPart {
    pub(crate) writer: RefCell<Writer>,
    pub(crate) progress: Arc<Progress>,
    /// Wakes the task that makes room when the store gets full.
    pub(crate) wants_room: Notify,
}

/// Connections of clients, and what they may use.
pub(crate) struct Clients {
    pub(crate) abuse: RefCell<Abuse>,
    /// Deadlines of connections.
    pub(crate) watches: RefCell<Watches>,
    /// Fair scheduler for the turns of connections that send much at once.
    pub(crate) turns: Rc<TurnScheduler>,
    /// Memory budget of mails being received.
    pub(crate) receiving: ClientMemoryBudget,
    /// Memory budget of the core's connections.
    pub(crate) connection_memory: ClientMemoryBudget,
}

/// Bytes of one read: enough for many pipelined mails.
pub(crate) const READ_BYTES: usize = 64 << 10;
/// Size of the scratch buffer: the rest of the last read, and one more read.
pub(crate) const SCRATCH_BYTES: usize = 2 * READ_BYTES;

/// Buffers that the core's connections share and reuse.
pub(crate) struct Buffers {
    /// Buffer into which sockets are read.
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// Buffer in which the beginning of a record is built.
    pub(crate) meta: RefCell<Vec<u8>>,
    /// Spare buffers for mails being received.
    pub(crate) spare_mails: RefCell<Vec<Vec<u8>>>,
    /// Spare lists of replies that wait until their mails are stored.
    pub(crate) spare_replies: RefCell<Vec<Vec<PendingReply>>>,
    /// Date text of the Received field, and the second for which it is valid.
    pub(crate) date: RefCell<(u64, String)>,
    /// Trims the heap after connections and received mails have freed much memory.
    pub(crate) trimmer: RefCell<HeapTrimmer>,
}

/// Rings to the other cores.
pub(crate) struct Rings {
    pub(crate) sender: Sender<Message>,
    /// Messages to other cores that wait for room in their rings.
    pub(crate) backlog: RefCell<Backlog>,
}

/// State of the events that are sent to listeners.
pub(crate) struct Listeners {
    pub(crate) must_tell: Cell<bool>,
    /// True while a loss of events has not yet been reported to the listeners.
    pub(super) missed: Cell<bool>,
    /// Wakes the task that wakes the listeners after an event.
    pub(crate) told: Notify,
}

/// Observations for the operator.
pub(crate) struct Observers {
    pub(crate) counters: CoreCounters<Counter>,
    /// Writer of the transaction log, if there is one.
    pub(crate) scribe: Option<Scribe>,
}
