//! State of one core in parts, and the beginning and end of its turns. A message meets three of the parts:
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
//! disconnecting (`lifecycle`), publishing (`publish`), and the turn, here.
//!
//! Everything is owned by this core's thread; a turn borrows all of it and does not wait. Other cores see
//! only what is sent to them.

use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    rc::Rc,
    sync::{Arc, atomic::Ordering},
};

use engine::{
    accounts::{Accounts, Category, Limit},
    cores::{clock, fair::TurnScheduler, listener::Balance, mesh},
    heap::HeapTrimmer,
    journal::Scribe,
    meter::CoreCounters,
    share::Share,
    tls::session::HANDSHAKE_BYTES_MAX,
};

use tokio::sync::mpsc;
use wire::nats::rejection::Rejection;

use crate::{
    accounts::{
        dice::Dice,
        identity::{Exchange, Identities, Mappings},
        pending_calls::Requests,
    },
    client::{
        acceptors::Acceptors,
        check_slots::Checks,
        connection::{CloseReason, ConnId},
        handshakes::Handshakes,
    },
    config::Config,
    counters::Counter,
    delivery::{
        backlog::Marks,
        buffers::Buffers,
        outputs::Outputs,
        victims::Victim,
        work::{self, WORK_A_TURN, Work},
    },
    leaf::{self, Hubs},
    mesh::{
        inbox::Inbox,
        links::{Links, Message},
        shared::SharedState,
    },
    monitor::{snapshot::ConnectionSnapshot, system::question::SystemEvent},
    routing::subjects::Subjects,
};

/// Memory of a connection, and the additional memory of its TLS session; measured and rounded up.
const CONNECTION_BYTES: usize = 2 << 10;
const TLS_BYTES: usize = 16 << 10;
/// Memory in bytes of a handshake without TLS: a PROXY header, or a WebSocket upgrade.
const PLAIN_HANDSHAKE_BYTES: usize = 8 << 10;
/// Largest number of handshakes displaced at once for lack of memory; each displacement searches all
/// handshakes.
const DISPLACED_AT_ONCE: usize = 16;
/// Category of the subscriptions' memory in the core's accounts.
pub(crate) const SUBSCRIPTION_MEMORY: Category = Category(0);

/// Settings that a reload replaces.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    pub(crate) identities: Identities,
    pub(crate) acceptors: Acceptors,
    /// Hubs of all cores.
    pub(crate) hubs: Arc<[Arc<leaf::Seed>]>,
}

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

/// State of the current turn.
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
    connections: Share,
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
    pub(crate) fair: Arc<TurnScheduler>,
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
        let CoreSeed { index, shared, settings, sender, receiver, counters, balance, cores, system, .. } =
            seed;
        let scribe = seed.scribe;
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
            fair: Arc::default(),
        })
    }
}

impl Core {
    #[inline]
    pub(crate) fn count(&self, counter: Counter) {
        self.observers.counters.add(counter, 1);
    }

    /// Begins a turn.
    #[inline]
    pub(crate) fn begin_turn(&mut self) {
        self.turn.now_ms = clock::monotonic_ms();
        self.turn.work = Work::of(WORK_A_TURN);
    }

    /// Sends this turn's records to other cores, and writes the clients' output.
    pub(crate) fn end_turn(&mut self) {
        if self.links.tellers.is_waiting {
            self.tell_hubs();
        }
        self.turn.work.add(self.outputs.dirty() as u64 * work::WRITE);
        self.links.flush();
        self.outputs.flush(&mut self.links);
        self.observers.counters.set(Counter::MatchesFound, self.routing.subjects.matches.found);
        self.observers.counters.set(Counter::MatchesMade, self.routing.subjects.matches.made);
        self.observers.counters.set(Counter::MatchesDropped, self.routing.subjects.matches.dropped);
        self.observers.counters.set(Counter::MatchesBytes, self.routing.subjects.matches.bytes() as u64);
        self.bound_sum();
    }

    /// Disconnects clients until all clients together hold no more memory than allowed: first those that make
    /// no progress, with a large backlog or an incomplete operation.
    #[inline]
    pub(crate) fn bound_sum(&mut self) {
        while !self.memory.pending.allows(self.outputs.held_bytes()) {
            let Some(Victim { id, is_unfinished }) = self.outputs.choose_victim(self.turn.now_ms) else {
                return;
            };
            self.outputs.release_all(id, &mut self.links);
            if is_unfinished {
                self.outputs.close(id, CloseReason::SlowProducer);
            } else {
                self.count(Counter::SlowTotal);
                let subject = self.routing.subjects.a_subject_of(&self.outputs.connections[id]);
                self.outputs.cut_slow(id, CloseReason::SlowConsumerPending, &subject);
            }
            self.links.flush();
        }
        let is_crowded = self.memory.pending.is_crowded(self.outputs.held_bytes());
        self.outputs.marks.set_crowded(is_crowded);
    }

    /// Returns whether there is memory for one more connection. A handshake in progress is counted at the
    /// maximum that it may take.
    pub(crate) fn has_connection_memory(&mut self) -> bool {
        self.displace_handshakes(self.bytes_of_a_connection())
    }

    /// Frees memory that other cores or servers need, if this core uses more than its own share.
    pub(crate) fn give_way(&mut self) {
        self.memory.subscriptions.give_way();
        self.displace_handshakes(0);
    }

    /// Displaces handshakes, up to a fixed number per call, until `more` bytes are available for connections.
    /// Returns whether they are.
    fn displace_handshakes(&mut self, more: usize) -> bool {
        for _ in 0..DISPLACED_AT_ONCE {
            if self.memory.connections.allows(self.connection_bytes() + more) {
                return true;
            }
            if !self.clients.handshakes.make_room() {
                return false;
            }
            self.count(Counter::HandshakesDisplaced);
        }
        self.memory.connections.allows(self.connection_bytes() + more)
    }

    /// Returns whether this core uses memory beyond its own share, which others may need.
    pub(crate) fn has_taken_memory(&self) -> bool {
        self.memory.connections.has_taken()
            || self.memory.pending.has_taken()
            || self.memory.subscriptions.has_taken()
    }

    fn connection_bytes(&self) -> usize {
        let of_handshake =
            if self.settings.acceptors.has_tls() { HANDSHAKE_BYTES_MAX } else { PLAIN_HANDSHAKE_BYTES };
        self.clients() * self.bytes_of_a_connection() + self.clients.handshakes.under_way() * of_handshake
    }

    fn bytes_of_a_connection(&self) -> usize {
        CONNECTION_BYTES + if self.settings.acceptors.has_tls() { TLS_BYTES } else { 0 }
    }

    /// Closes this core's share of the connections that exceed a lowered limit, the newest first.
    /// (nats-server closes arbitrary ones.)
    fn close_surplus(&mut self) {
        let surplus = self.shared.surplus.load(Ordering::Acquire);
        if surplus == 0 {
            return;
        }
        let own = self.clients();
        let share = (surplus * own).div_ceil(self.clients.balance.total().max(own).max(1));
        let open = self.outputs.connections.iter();
        let open = open.filter(|(_, connection)| connection.closing.is_none() && connection.hub.is_none());
        let mut open: Vec<(u64, ConnId)> = open.map(|(id, connection)| (connection.cid, id)).collect();
        open.sort_unstable_by(|one, other| other.cmp(one));
        for (_, id) in open.into_iter().take(share) {
            let taken = self
                .shared
                .surplus
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |surplus| surplus.checked_sub(1));
            if taken.is_err() {
                break;
            }
            self.outputs.reject(id, Rejection::ConnectionsExceeded);
            self.end_turn();
        }
    }

    /// Activates the current imports: services, and the streams that the connected clients' subscriptions
    /// match.
    fn take_exchange(&mut self) {
        let Self { outputs, links, settings, routing: Routing { subjects, requests, .. }, .. } = self;
        let now = settings.identities.exchange().map(Arc::clone);
        let Some(before) = subjects.take_exchange(now.as_ref(), &requests.pattern(), links) else { return };
        requests.close_gone();
        let streams = |exchange: Option<&Exchange>, account| {
            exchange
                .and_then(|exchange| exchange.of(account))
                .map_or(&[][..], |imports| &imports.streams)
                .to_vec()
        };
        let is_changed = |account| streams(before.as_deref(), account) != streams(now.as_deref(), account);
        for (_, connection) in outputs.connections.iter_mut() {
            connection.deals = subjects.abroad.has_imports(connection.account);
            if is_changed(connection.account) {
                subjects.follow_again(connection, links);
            }
        }
        self.refresh_hub_imports(is_changed);
        // Only the operator can cause a reload, so no client is charged for these steps.
        _ = self.routing.subjects.trie.take_steps();
    }

    /// Activates a new configuration: limits and permissions, also for connected clients.
    pub(crate) fn reload(&mut self, settings: Arc<Settings>) {
        self.settings = settings;
        self.routing.mappings = self.settings.identities.all_mappings();
        self.take_exchange();
        self.leave_hubs_not_configured();
        self.tell_hubs_what_stands();
        self.outputs.rounds.stir();
        let limits = &self.settings.config.limits;
        self.outputs.marks = Marks::of(limits.max_pending);
        self.memory.pending.resize(self.settings.config.limits.max_pending_total, self.cores);
        self.memory.subscriptions.resize(
            SUBSCRIPTION_MEMORY,
            self.settings.config.limits.max_subscription_memory,
            self.cores,
        );
        self.close_surplus();
        for id in 0..self.outputs.connections.end() {
            if self.outputs.connections.find(id).is_none() {
                continue;
            }
            self.judge_again(id);
            let connection = &self.outputs.connections[id];
            if connection.takes_info && connection.closing.is_none() {
                let info =
                    self.shared.info(&self.settings, &(&**connection).into(), true, self.clients.is_lame);
                self.outputs.say(id, &info);
                // Output is written after each connection, so that all of it takes one chunk instead of one
                // per connection.
                self.end_turn();
            }
        }
    }
}
