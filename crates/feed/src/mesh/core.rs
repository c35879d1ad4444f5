//! State of one core in parts. A message meets three of the parts:
//!
//! ```text
//!   a connection's task             the inbox's task
//!     │ read, parse (`session`)       │ batches of other cores (`inbox`)
//!     └───────────────┬───────────────┘
//!                     ▼ `publish`: the one place where a message meets all three parts
//!   ┌─ routing.subjects ──────┐  ┌─ outputs ────────────────┐  ┌─ links ──────────────────┐
//!   │ trie       subscribers  │  │ connections  of clients  │  │ a batch for each other   │
//!   │ matches    cached       │  │ chunks       lent, back  │  │ core, bytes under way,   │
//!   │ subscriptions           │  │ watermarks   who waits   │  │ who waits for room       │
//!   └──┬──────────────────────┘  └──┬───────────────────────┘  └──────────▲───────────────┘
//!      │ interest, members          │ hold, release                       │
//!      └────────────────────────────┴─────────────────────────────────────┘
//!   end_turn: 1. links: batches leave (announcements of subscriptions before any answer)
//!             2. outputs: connections with new output are flushed, one write each
//! ```
//!
//! No part calls the one to its left: subjects and outputs pass to the links what other cores must know.
//! Subjects and outputs do not know each other, except for a connection's table of sids and a subscription's
//! connection, which are passed to them. So the parameters of a function that takes one part, or two, show
//! what it can change. Functions on the whole [`Core`] are a client's operations (`session`), connecting and
//! disconnecting (`lifecycle`), publishing (`publish`), and the turn (`turn`).
//!
//! Everything is owned by this core's thread; a turn borrows all of it and does not wait. Other cores see
//! only what is sent to them.

use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    rc::Rc,
    sync::Arc,
};

use engine::{
    accounts::{Accounts, Category, Limit},
    cores::{clock, fair::TurnScheduler, listener::Balance, mesh},
    heap::HeapTrimmer,
    journal::Scribe,
    meter::CoreCounters,
    share::Share,
};
use tokio::sync::mpsc;

use crate::{
    accounts::{dice::Dice, identity::Mappings, pending_calls::Requests},
    client::{check_slots::Checks, connection::ConnId, handshakes::Handshakes},
    counters::Counter,
    delivery::{
        backlog::Marks,
        buffers::Buffers,
        outputs::Outputs,
        work::{WORK_A_TURN, Work},
    },
    leaf::Hubs,
    mesh::{
        links::{Links, Message},
        settings::Settings,
        shared::SharedState,
        waiting::Inbox,
    },
    monitor::{snapshot::ConnectionSnapshot, system::question::SystemEvent},
    routing::subjects::Subjects,
};

/// Category of the subscriptions' memory in the core's accounts.
pub(crate) const SUBSCRIPTION_MEMORY: Category = Category(0);

/// State of one core.
pub(crate) struct Core {
    pub(crate) index: usize,
    pub(crate) cores: usize,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) turn: Turn,
    pub(crate) routing: Routing,
    pub(crate) outputs: Outputs,
    pub(crate) links: Links,
    /// Hubs that this core joins.
    pub(crate) hubs: Hubs,
    pub(crate) clients: Clients,
    pub(crate) memory: Memory,
    pub(crate) observers: Observers,
}

/// State that the core's turns work with: time and budget of the current turn, batches that wait for later
/// turns, and buffers that every turn reuses.
pub(crate) struct Turn {
    /// Monotonic time at the start of the turn.
    pub(crate) now_ms: u64,
    /// Cost and budget of the turn.
    pub(crate) work: Work,
    /// Counts of the batches from other cores that are not delivered yet.
    pub(crate) backlog: Backlog,
    pub(crate) buffers: Buffers,
}

/// Choice of a message's destinations.
pub(crate) struct Routing {
    pub(crate) subjects: Subjects,
    /// Mappings by account; `None` if no account has any, so that messages cost nothing extra.
    pub(crate) mappings: Option<Rc<HashMap<u16, Mappings>>>,
    /// Random numbers for the choice among a mapping's destinations.
    pub(crate) dice: Dice,
    /// Pending requests to services of other accounts.
    pub(crate) requests: Requests,
}

/// Clients that connect and log in.
pub(crate) struct Clients {
    pub(crate) balance: Arc<Balance>,
    pub(crate) is_lame: bool,
    /// TLS and WebSocket handshakes in progress.
    pub(crate) handshakes: Handshakes,
    /// Password checks that helper threads run for this core.
    pub(crate) checks: Checks,
}

/// Memory that clients may use.
pub(crate) struct Memory {
    /// This core's share of the memory for connections.
    pub(super) connections: Share,
    /// This core's share of the memory for backlogs.
    pub(crate) pending: Share,
    /// Memory of subscriptions, charged to their clients.
    pub(crate) subscriptions: Accounts,
    /// Policy that decides when unused memory is freed.
    pub(crate) trimmer: HeapTrimmer,
}

/// Observations for the operator.
pub(crate) struct Observers {
    pub(crate) counters: Rc<CoreCounters<Counter>>,
    /// Channel to the thread that answers requests in the system account.
    pub(crate) system: mpsc::Sender<SystemEvent>,
    /// Snapshots of the connections that were closed last.
    pub(crate) closed: VecDeque<ConnectionSnapshot>,
}

/// Counts of the queued batches from other cores.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    /// Number of batches queued so far, and how many of these are delivered.
    pub(crate) queued: u64,
    pub(crate) done: u64,
    /// Number of queued batches whose announcements of subscriptions are not all applied; these are the last
    /// in the queue. A client whose bytes arrived after such a batch publishes only once its announcements
    /// are applied.
    pub(crate) unheard: usize,
    /// Clients whose reads are paused until the batches that arrived before the clients' bytes are processed.
    pub(crate) waiting: Vec<ConnId>,
}

impl Backlog {
    /// Returns the number of batches queued so far whose announcements are all applied.
    pub(crate) fn heard(&self) -> u64 {
        self.queued - self.unheard as u64
    }
}

/// A core with its inbox, for the tasks of its thread.
pub(crate) struct Local {
    pub(crate) core: RefCell<Core>,
    pub(crate) inbox: RefCell<Inbox>,
    /// Distributes turns fairly among the busy connections.
    pub(crate) fair: Rc<TurnScheduler>,
}

/// Resources from which a core is built.
pub(crate) struct CoreSeed {
    pub(crate) index: usize,
    pub(crate) shared: Arc<SharedState>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) sender: mesh::Sender<Message>,
    pub(crate) receiver: mesh::Receiver<Message>,
    pub(crate) counters: CoreCounters<Counter>,
    pub(crate) balance: Arc<Balance>,
    pub(crate) cores: usize,
    pub(crate) system: mpsc::Sender<SystemEvent>,
    pub(crate) scribe: Option<Scribe>,
}

impl Local {
    pub(crate) fn new(seed: CoreSeed) -> Rc<Self> {
        let CoreSeed { index, shared, settings, sender, receiver, counters, balance, cores, system, scribe } =
            seed;
        let limits = &settings.config.limits;
        let counters = Rc::new(counters);
        let mut core = Core {
            index,
            cores,
            turn: Turn {
                now_ms: clock::monotonic_ms(),
                work: Work::of(WORK_A_TURN),
                backlog: Backlog::default(),
                buffers: Buffers::new(limits.max_control_line),
            },
            routing: Routing {
                subjects: Subjects::new(Rc::clone(&counters), cores),
                mappings: settings.identities.all_mappings(),
                dice: Dice::new(),
                requests: Requests::new(settings.config.waiting_requests_bytes_max, cores),
            },
            outputs: Outputs::new(index, Marks::of(limits.max_pending), Rc::clone(&counters), scribe),
            links: Links::new(index, cores, sender, limits.max_pending),
            hubs: Hubs::new(index, cores),
            clients: Clients {
                balance,
                is_lame: false,
                handshakes: Handshakes::default(),
                checks: Checks::default(),
            },
            memory: Memory {
                connections: Share::new(Arc::clone(&shared.connections), usize::MAX / 2, cores),
                pending: Share::new(Arc::clone(&shared.pending), limits.max_pending_total, cores),
                subscriptions: Accounts::new(vec![Limit::of_cores(
                    Arc::clone(&shared.subscription_memory),
                    limits.max_subscription_memory,
                    cores,
                )]),
                trimmer: HeapTrimmer::default(),
            },
            observers: Observers { counters, system, closed: VecDeque::new() },
            shared,
            settings,
        };
        core.take_exchange();
        Rc::new(Self {
            core: RefCell::new(core),
            inbox: RefCell::new(Inbox::new(receiver)),
            fair: Rc::default(),
        })
    }
}

impl Core {
    #[inline]
    pub(crate) fn count(&self, counter: Counter) {
        self.observers.counters.add(counter, 1);
    }
}
