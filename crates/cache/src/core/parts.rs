//! Parts of a core's state, each for one purpose.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::HashMap,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use engine::{
    accounts::Accounts,
    cores::{
        Rounds, SteadyClock, behind::BackgroundBudget, fair::TurnScheduler, listener::Balance, watch::Watches,
    },
    holding::ClientMemoryBudget,
    io::Reads,
    log,
    meter::CoreCounters,
    store::{Reader, Shard, Store},
    sys::lend::Lender,
};
use tokio::{sync::Notify, task::AbortHandle};
use wire::http1::head::HeaderSlots;

use crate::{
    admin::{cookie_names::CookieNames, cookie_samples::Samples, last_clients::LastClients},
    body::{growing::PassingBudget, parts_in_memory::PartsInMemory},
    client::{
        http2,
        tls_terms::TlsTerms,
        transport::scratch::{READ_BYTES, Scratch as TlsScratch},
    },
    config::Config,
    core::direct_mapped_table::DirectMappedTable,
    counters::Counter,
    encoding::codec_pool::Coders,
    fetch::{
        in_flight::InFlight, query_shares::Queries, refresh_throttle::RefreshThrottle, variants::Variants,
    },
    head::response_head::Identity,
    log::transaction::Draft,
    origin::{MemberId, Pool},
    peers::{ASKED_PLACES, Peers, purge_broadcast::ClusterHandle},
    purging::{invalidations::Invalidations, purge_log::Book},
};

/// Initial capacity of the buffer for answers: the maximum of gathered answers plus one more, so that no hit
/// makes the buffer grow.
const OUT_BYTES: usize = 512 * 1024;

/// Milliseconds during which requests for an object do not wait for another request's fetch, after some
/// requests have waited in vain.
const VAIN_MS: u64 = 60_000;

/// Milliseconds within which a second version change of a sliced object marks the object as hit-for-miss, so
/// that it is passed.
const VERSIONS_DIFFER_MS: u64 = 600_000;

/// Interval of a core's housekeeping while deadlines, expiries or evictions are pending.
const HOUSEKEEPING_EVERY: Duration = Duration::from_millis(100);

/// Names under which the core speaks to clients and origins, and what its request identifiers are made of.
pub(crate) struct Names {
    /// Name for `Via` and `Cache-Status`, ready to be copied.
    pub(crate) identity: Identity,
    /// Name for the `Via` field of requests to origins, unique to this instance.
    pub(crate) pseudonym: Arc<str>,
    pub(super) requests: Cell<u64>,
    pub(super) started_ms: u64,
}

/// The core's share of the store, in memory and in the file, and its housekeeping.
pub(crate) struct Storage {
    pub(crate) store: Arc<Store>,
    pub(crate) reader: Reader,
    /// Shard of the store; use [`Core::shard_mut`](super::Core::shard_mut) to change it.
    pub(crate) shard: RefCell<Shard>,
    /// Access to the store's file; `None` if the store is in memory only.
    pub(crate) file: Option<FileReads>,
    /// Budget for background steps, so that fetches for the store wait until ready answers have been sent.
    pub(crate) behind: Rc<BackgroundBudget>,
    /// Schedule of housekeeping.
    pub(crate) rounds: Rc<Rounds>,
    pub(super) expiry_clock: SteadyClock,
    /// Sender that lends large bodies to the kernel without a copy; `None` if the store or the kernel does
    /// not support that.
    pub(crate) lender: RefCell<Option<Lender>>,
    /// Number of new variants that each address may still store.
    pub(crate) variants: Variants,
    /// Bytes of the store used by URLs that differ only in their query, by path.
    pub(crate) queries: Queries,
}

impl Storage {
    pub(super) fn new(reader: Reader, store: Arc<Store>, shard: Shard, file: Option<FileReads>) -> Self {
        Self {
            reader,
            shard: RefCell::new(shard),
            file,
            behind: Rc::default(),
            rounds: Rc::new(Rounds::new(HOUSEKEEPING_EVERY)),
            expiry_clock: SteadyClock::new(),
            lender: RefCell::new(if store.lends() { Lender::open().ok() } else { None }),
            variants: Variants::default(),
            queries: Queries::default(),
            store,
        }
    }
}

/// A core's access to the store's file.
pub(crate) struct FileReads {
    pub(crate) reads: Reads,
    /// Log of the file; empty while the file is being read at the start.
    pub(crate) log: OnceCell<log::Reader>,
    /// Current number of reads of large objects, each of which waits for the disk on a separate thread.
    pub(crate) large: Cell<usize>,
    /// Current number of answers that are stored in parts while they are sent to a client.
    pub(crate) storing: Cell<usize>,
    /// Parts that are being sent to clients.
    pub(crate) parts: RefCell<PartsInMemory>,
    /// Maximum number of parts in memory for clients
    /// ([`PartsRoom`](crate::client::limits::request_tasks::PartsRoom)).
    pub(crate) parts_max: usize,
    /// Wakes answers that wait for room for parts.
    pub(crate) parts_freed: Arc<Notify>,
}

/// Fetches and encodings in progress, and recent events that decide whether another one starts or waits.
pub(crate) struct Fetches {
    pub(crate) in_flight: RefCell<InFlight>,
    /// Objects that were refreshed a moment ago.
    pub(crate) refreshed_lately: RefreshThrottle,
    /// Objects for whose fetch some requests have waited in vain. For [`VAIN_MS`] each request for them
    /// fetches from the origin itself and does not wait.
    pub(crate) waited_in_vain: RefreshThrottle,
    /// Sliced objects for which a slice of another version arrived. If this happens again within
    /// [`VERSIONS_DIFFER_MS`], the object is marked as hit-for-miss.
    pub(crate) versions_differ: RefreshThrottle,
    /// Encoded variants that the owner was recently asked to make.
    pub(crate) coded_lately: RefreshThrottle,
    /// Handle to the coding thread; `None` in a test of a single core, where nothing is encoded.
    pub(crate) coders: Option<Coders>,
}

impl Fetches {
    pub(super) fn new(coders: Option<Coders>) -> Self {
        Self {
            in_flight: RefCell::default(),
            refreshed_lately: RefreshThrottle::default(),
            waited_in_vain: RefreshThrottle::lasting(VAIN_MS),
            versions_differ: RefreshThrottle::lasting(VERSIONS_DIFFER_MS),
            coded_lately: RefreshThrottle::default(),
            coders,
        }
    }
}

/// Connections to origins and to peers that share keys with this accelerator.
pub(crate) struct Origins {
    pub(crate) pool: RefCell<Pool>,
    /// Probe tasks of the origins' servers, on the first core only.
    pub(super) probes: RefCell<HashMap<MemberId, AbortHandle>>,
    /// Number of open HTTP/2 connections to origins.
    pub(crate) http2_connections: Cell<u64>,
    /// Peers that share keys with this accelerator.
    pub(crate) peers: Option<Arc<Peers>>,
    /// Time at which a peer was last asked for an address, by the address's hash.
    pub(crate) asked_of_peers: DirectMappedTable<u64>,
    /// Hashes of addresses that a client of this accelerator has changed by an unsafe request and that were
    /// not yet reported to the owning peer.
    pub(crate) changed_here: DirectMappedTable<bool>,
}

impl Origins {
    pub(super) fn new(pool: Pool, peers: Option<Arc<Peers>>) -> Self {
        let asked_places = if peers.is_some() { ASKED_PLACES } else { 1 };
        Self {
            pool: RefCell::new(pool),
            probes: RefCell::default(),
            http2_connections: Cell::new(0),
            peers,
            asked_of_peers: DirectMappedTable::new(asked_places),
            changed_here: DirectMappedTable::new(asked_places),
        }
    }
}

/// Reasons for which a stored answer may no longer be served.
pub(crate) struct Purges {
    pub(crate) invalidations: Invalidations,
    pub(crate) purge_log: Arc<Book>,
    /// Handle to the cluster, which decides whether stored answers may be served, and broadcasts purges.
    pub(crate) cluster: ClusterHandle,
}

/// Connections of clients.
pub(crate) struct Clients {
    pub(crate) balance: Arc<Balance>,
    /// Deadlines of connections.
    pub(crate) watches: RefCell<Watches>,
    /// Scheduler for the turns of connections with a lot of work.
    pub(crate) turns: Rc<TurnScheduler>,
    /// TLS terms; `None` without TLS.
    pub(crate) terms: Option<Arc<TlsTerms>>,
    /// Number of TLS handshakes in progress.
    pub(crate) handshakes: Cell<usize>,
    /// Number of open WebSockets.
    pub(crate) pipes: Cell<u64>,
    /// Number of connections that are being answered with 503 because there is no room for them.
    pub(crate) turning_away: Cell<usize>,
    /// True while the limit on connections is below `connections_max`, because connections use all the memory
    /// that they are allowed.
    pub(crate) are_connections_fitted: Cell<bool>,
}

impl Clients {
    pub(super) fn new(balance: Arc<Balance>, terms: Option<Arc<TlsTerms>>) -> Self {
        Self {
            balance,
            watches: RefCell::default(),
            turns: Rc::default(),
            terms,
            handshakes: Cell::new(0),
            pipes: Cell::new(0),
            turning_away: Cell::new(0),
            are_connections_fitted: Cell::new(false),
        }
    }
}

/// Memory that clients may use.
pub(crate) struct Budgets {
    /// Accounts of clients: their connections, stream tasks, request heads and parts of large objects on this
    /// core.
    pub(crate) accounts: Accounts,
    /// Current bytes held for clients.
    pub(crate) held_bytes: ClientMemoryBudget,
    /// Budget for the memory of connections, each counted by its kind.
    pub(crate) connection_memory: ClientMemoryBudget,
    /// Current number of bytes copied out of the store for slow readers.
    pub(crate) copied_bytes: Cell<usize>,
    /// Memory budget for content that is passed through and waits for its readers.
    pub(crate) passing: Arc<PassingBudget>,
}

/// Buffers of the thread; idle connections hold none.
pub(crate) struct Buffers {
    pub(crate) scratch: RefCell<Scratch>,
    pub(crate) tls: RefCell<TlsScratch>,
    pub(crate) http2: RefCell<http2::Scratch>,
}

impl Buffers {
    pub(super) fn new(config: &Config) -> Self {
        // The parser refuses a head over the limit before the buffer is full; the rest has room for a TLS
        // record.
        let read_bytes = READ_BYTES.max(config.limits.request_head_bytes_max + READ_BYTES / 2);
        Self {
            scratch: RefCell::new(Scratch {
                read: vec![0; read_bytes],
                head: Vec::with_capacity(4096),
                out: Vec::with_capacity(OUT_BYTES),
                slots: HeaderSlots::new(),
                key: Vec::with_capacity(4096),
                drafts: Vec::new(),
            }),
            tls: RefCell::new(TlsScratch::new()),
            http2: RefCell::new(http2::Scratch::new(config)),
        }
    }
}

/// Buffers of one turn of a connection.
pub(crate) struct Scratch {
    /// Buffer for bytes read from a client; at least as long as the largest head and
    /// [`READ_BYTES`].
    pub(crate) read: Vec<u8>,
    /// Copy of a stored head that is not sent unchanged.
    pub(crate) head: Vec<u8>,
    /// Answers gathered for the next write.
    pub(crate) out: Vec<u8>,
    /// Slots for the header fields of the request.
    pub(crate) slots: HeaderSlots,
    pub(crate) key: Vec<u8>,
    /// Log records of the gathered answers.
    pub(crate) drafts: Vec<Draft>,
}

/// Observations for the operator.
pub(crate) struct Observers {
    pub(crate) counters: CoreCounters<Counter>,
    /// Last client of each object answered on this core.
    pub(crate) last_clients: LastClients,
    pub(crate) cookie_leaks: RefCell<Samples>,
    pub(crate) cookie_names: RefCell<CookieNames>,
}

impl Observers {
    pub(super) fn new(counters: CoreCounters<Counter>) -> Self {
        Self {
            counters,
            last_clients: LastClients::default(),
            cookie_leaks: RefCell::default(),
            cookie_names: RefCell::default(),
        }
    }
}
