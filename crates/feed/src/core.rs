//! What one core knows, and what a turn of it does at its end.
//!
//! ```text
//!   a connection's task            the inbox' task
//!     │ read, parse, deliver         │ batches of other cores, deliver
//!     └────────────┬─────────────────┘
//!                  ▼
//!              end_turn: 1. batches for other cores are sent (what they say of subscriptions before any answer leaves)
//!                        2. outputs that got something are written, one write each
//! ```
//!
//! Everything here has one owner, this core's thread; a turn borrows it whole and does not wait. Other cores see only
//! what is sent to them.

use std::{cell::RefCell, collections::HashMap, rc::Rc, sync::Arc};

use engine::{
    cores::{Rounds, clock, listener::Balance, mesh},
    meter::CoreCounters,
};

use crate::{
    across::{Links, Message},
    config::Config,
    connection::{Closed, ConnId, Connection, Subscription},
    counters::Counter,
    identity::Identities,
    keep,
    matching::Matches,
    outbox::Chunks,
    shared::Shared,
    slab::Slab,
    transport::Acceptors,
    trie::{NodeId, SubId, Trie},
};

/// Bytes read from a socket at once.
pub(crate) const READ_BYTES: usize = 128 * 1024;
/// Buffers for unfinished operations that a core keeps for the next connection.
const SPARE_LEFTOVERS_MAX: usize = 64;
/// What a new one has room for: most control lines with a short payload.
const LEFTOVER_BYTES: usize = 2048;
/// A buffer that has grown beyond this is not kept.
const SPARE_LEFTOVER_BYTES_MAX: usize = 64 * 1024;

/// What a reload changes.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    pub(crate) identities: Identities,
    pub(crate) acceptors: Acceptors,
}

/// One core.
pub(crate) struct Core {
    pub(crate) index: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) connections: Slab<Box<Connection>>,
    pub(crate) subscriptions: Slab<Subscription>,
    /// After how many messages those end of which [`Subscription::ends`] says that they do.
    pub(crate) ends_after: HashMap<SubId, u64>,
    pub(crate) trie: Trie,
    /// The trie's root of each account.
    roots: Vec<NodeId>,
    pub(crate) matches: Matches,
    pub(crate) chunks: Chunks,
    pub(crate) dirty: Vec<ConnId>,
    /// Consumers whose outputs are above the high mark.
    pub(crate) over_mark: Vec<ConnId>,
    pub(crate) links: Links,
    pub(crate) counters: CoreCounters<Counter>,
    pub(crate) balance: Arc<Balance>,
    /// What is read from sockets; taken out during a turn.
    pub(crate) read: Vec<u8>,
    leftovers: Vec<Vec<u8>>,
    /// For control lines that are put together.
    pub(crate) line: Vec<u8>,
    /// For messages whose control line must be put into its usual form.
    pub(crate) rewritten: Vec<u8>,
    /// Subscriptions that have had their last message; they end after the run.
    pub(crate) finished: Vec<SubId>,
    pub(crate) is_lame: bool,
    /// Handshakes of TLS and WebSocket under way.
    pub(crate) handshakes: usize,
    /// Those closed last.
    pub(crate) closed: std::collections::VecDeque<crate::snapshot::ConnectionSnapshot>,
    /// The monotonic time of this turn.
    pub(crate) now_ms: u64,
    /// When somebody looks after deadlines.
    pub(crate) rounds: Rc<Rounds>,
}

/// A core and what it receives from others, for the tasks of its thread.
pub(crate) struct Local {
    pub(crate) core: RefCell<Core>,
    pub(crate) inbox: RefCell<Inbox>,
}

/// What other cores send.
pub(crate) struct Inbox {
    pub(crate) receiver: mesh::Receiver<Message>,
    pub(crate) batch: Vec<Message>,
}

/// What a core is made from.
pub(crate) struct Parts {
    pub(crate) index: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) sender: mesh::Sender<Message>,
    pub(crate) receiver: mesh::Receiver<Message>,
    pub(crate) counters: CoreCounters<Counter>,
    pub(crate) balance: Arc<Balance>,
    pub(crate) cores: usize,
}

impl Local {
    pub(crate) fn new(parts: Parts) -> Rc<Self> {
        let Parts { index, shared, settings, sender, receiver, counters, balance, cores } = parts;
        let limits = &settings.config.limits;
        // An unfinished operation and a read behind it fit: what is longer is refused by the parser.
        let read_bytes = READ_BYTES + SMALL_LEFTOVER_BYTES_MAX + limits.max_control_line;
        let core = Core {
            index,
            connections: Slab::default(),
            subscriptions: Slab::default(),
            ends_after: HashMap::new(),
            trie: Trie::new(),
            roots: Vec::new(),
            matches: Matches::new(),
            chunks: Chunks::default(),
            dirty: Vec::new(),
            over_mark: Vec::new(),
            links: Links::new(index, cores, sender, limits.max_pending),
            counters,
            balance,
            read: vec![0; read_bytes],
            leftovers: Vec::new(),
            line: Vec::with_capacity(4096),
            rewritten: Vec::new(),
            finished: Vec::new(),
            is_lame: false,
            handshakes: 0,
            closed: std::collections::VecDeque::new(),
            now_ms: clock::monotonic_ms(),
            rounds: Rc::new(Rounds::new(keep::EVERY)),
            shared,
            settings,
        };
        Rc::new(Self { core: RefCell::new(core), inbox: RefCell::new(Inbox { receiver, batch: Vec::new() }) })
    }
}

/// An unfinished operation that is longer is read on in place instead of being copied into the scratch.
pub(crate) const SMALL_LEFTOVER_BYTES_MAX: usize = 16 * 1024;

impl Core {
    #[inline]
    pub(crate) fn count(&self, counter: Counter) {
        self.counters.add(counter, 1);
    }

    /// The trie's root of an account.
    pub(crate) fn root_of(&mut self, account: u16) -> NodeId {
        while self.roots.len() <= usize::from(account) {
            self.roots.push(self.trie.add_root());
        }
        self.roots[usize::from(account)]
    }

    /// Notes that a connection's output got something in this turn.
    #[inline]
    pub(crate) fn mark_dirty(dirty: &mut Vec<ConnId>, id: ConnId, connection: &mut Connection) {
        if !connection.is_dirty {
            connection.is_dirty = true;
            dirty.push(id);
        }
    }

    /// Appends to a connection's output, for its own task or the end of the turn to write.
    pub(crate) fn say(&mut self, id: ConnId, bytes: &[u8]) {
        let Self { connections, chunks, dirty, .. } = self;
        let connection = &mut connections[id];
        connection.outbox.append(chunks, bytes);
        Self::mark_dirty(dirty, id, connection);
    }

    /// Ends a connection: its task does the rest.
    pub(crate) fn close(&mut self, id: ConnId, why: Closed) {
        let Self { connections, chunks, .. } = self;
        let connection = &mut connections[id];
        if connection.closing.is_none() {
            connection.closing = Some(why);
            if why.is_slow_consumer() {
                connection.outbox.clear(chunks);
            }
        }
        connection.wake();
    }

    /// Sends what this turn has for other cores, and writes what it has for clients.
    pub(crate) fn end_turn(&mut self) {
        self.links.flush();
        let mut writes = 0;
        while let Some(id) = self.dirty.pop() {
            let Some(connection) = self.connections.find_mut(id) else { continue };
            connection.is_dirty = false;
            writes += connection.flush(&mut self.chunks, self.now_ms);
            if !connection.outbox.is_empty() {
                // Its deadline begins.
                self.rounds.stir();
            }
            self.relieve(id);
        }
        if writes > 0 {
            self.counters.add(Counter::Writes, writes);
        }
    }

    /// What has changed in the configuration; who is connected stays as it is, except for the limits.
    pub(crate) fn reload(&mut self, settings: Arc<Settings>) {
        self.settings = settings;
        self.rounds.stir();
        for id in 0..self.connections.end() {
            let Some(connection) = self.connections.find(id) else { continue };
            if connection.takes_info && connection.closing.is_none() {
                let info = self.shared.info(&self.settings, &(&**connection).into(), true, self.is_lame);
                self.say(id, &info);
                // Written at once, so that all of them need one chunk and not one each.
                self.end_turn();
            }
        }
    }

    /// A buffer for an unfinished operation.
    pub(crate) fn take_leftover(&mut self) -> Vec<u8> {
        self.leftovers.pop().unwrap_or_else(|| Vec::with_capacity(LEFTOVER_BYTES))
    }

    /// Takes such a buffer back.
    pub(crate) fn give_back_leftover(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > 0
            && buffer.capacity() <= SPARE_LEFTOVER_BYTES_MAX
            && self.leftovers.len() < SPARE_LEFTOVERS_MAX
        {
            buffer.clear();
            self.leftovers.push(buffer);
        }
    }
}
