//! Setup of a thread as a core: creates the core's state from what the server passes in.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use engine::{
    cores::{Rounds, SteadyClock, clock, listener::Balance, mesh::Sender},
    journal::Scribe,
    meter::CoreCounters,
    store::{Shard, Store},
    sys::lend::Lender,
};
use wire::http1::head::HeaderSlots;

use super::{
    Budgets, Buffers, CORE, Clients, Core, Fetches, FileReads, HOUSEKEEPING_EVERY, Message, Names, OUT_BYTES,
    Observers, Origins, Own, Purging, READ_BYTES, Scratch, Storage, VAIN_MS, VERSIONS_DIFFER_MS, count_http2,
    with_core,
};
use crate::{
    admin::last_clients::LastClients,
    body::growing::PassingBudget,
    client::{
        http2::{self},
        limits::{client_memory::ClientMemory, request_tasks},
        tls_terms::TlsTerms,
        transport,
    },
    core::direct_mapped_table::DirectMappedTable,
    counters::Counter,
    encoding::codec_pool::Coders,
    fetch::{query_shares::Queries, refresh_throttle::RefreshThrottle, variants::Variants},
    head::response_head::Identity,
    log::transaction::{self},
    origin::Pool,
    peers::{ASKED_PLACES, Peers, purge_broadcast::ClusterHandle},
    purging::{
        invalidations::{Invalidations, Table},
        purge_log::Book,
    },
    request::active_config::ActiveConfig,
};

/// Initial state of a core.
pub(crate) struct CoreSetup<'a> {
    pub(crate) index: usize,
    pub(crate) in_force: Arc<ActiveConfig>,
    pub(crate) identity: Identity,
    /// Name for the `Via` field of requests to origins, unique to this instance.
    pub(crate) pseudonym: Arc<str>,
    pub(crate) terms: Option<Arc<TlsTerms>>,
    pub(crate) book: Arc<Book>,
    /// Purges from earlier runs.
    pub(crate) purged: Table,
    pub(crate) store: Arc<Store>,
    pub(crate) shard: Shard,
    pub(crate) file: Option<FileReads>,
    pub(crate) coders: Option<Coders>,
    pub(crate) sender: Sender<Message>,
    pub(crate) balance: Arc<Balance>,
    pub(crate) counters: CoreCounters<Counter>,
    pub(crate) scribe: Option<Scribe>,
    pub(crate) client_memory: &'a ClientMemory,
    pub(crate) passing: Arc<PassingBudget>,
    pub(crate) among: ClusterHandle,
    pub(crate) peers: Option<Arc<Peers>>,
}

impl Core {
    /// Makes this thread a core of the accelerator.
    pub(crate) fn install(beginning: CoreSetup<'_>) {
        let CoreSetup {
            index,
            in_force,
            identity,
            pseudonym,
            terms,
            book,
            purged,
            store,
            shard,
            file,
            coders,
            sender,
            balance,
            counters,
            scribe,
            client_memory,
            passing,
            among,
            peers,
        } = beginning;
        let config = &in_force.config;
        let parts_max = file.as_ref().map_or(0, |file| file.parts_max);
        let accounts = request_tasks::accounts(&config.limits, client_memory, parts_max);
        let asked_places = if peers.is_some() { ASKED_PLACES } else { 1 };
        let own = Own {
            index,
            names: Names { identity, pseudonym, requests: Cell::new(0), started_ms: clock::unix_ms() },
            sender,
            is_draining: Cell::new(false),
            storage: Storage {
                reader: store.reader(index),
                shard: RefCell::new(shard),
                file,
                behind: Arc::default(),
                rounds: Arc::new(Rounds::new(HOUSEKEEPING_EVERY)),
                expiry_clock: SteadyClock::new(),
                lender: RefCell::new(if store.lends() { Lender::open().ok() } else { None }),
                variants: Variants::default(),
                queries: Queries::default(),
                store,
            },
            fetches: Fetches {
                in_flight: RefCell::default(),
                refreshed_lately: RefreshThrottle::default(),
                waited_in_vain: RefreshThrottle::lasting(VAIN_MS),
                versions_differ: RefreshThrottle::lasting(VERSIONS_DIFFER_MS),
                coded_lately: RefreshThrottle::default(),
                coders,
            },
            origins: Origins {
                pool: RefCell::new(Pool::new(&config.limits, count_http2)),
                probes: RefCell::default(),
                http2_connections: Cell::new(0),
                peers,
                asked_of_peers: DirectMappedTable::new(asked_places),
                changed_here: DirectMappedTable::new(asked_places),
            },
            purging: Purging { invalidations: Invalidations::new(purged), purge_log: book, cluster: among },
            clients: Clients {
                balance,
                watches: RefCell::default(),
                turns: Arc::default(),
                terms,
                handshakes: Cell::new(0),
                multiplexes: RefCell::default(),
                pipes: Cell::new(0),
                turning_away: Cell::new(0),
                are_connections_fitted: Cell::new(false),
            },
            budgets: Budgets {
                accounts,
                held_bytes: client_memory.answers(&config.limits),
                connection_memory: client_memory.connections(&config.limits),
                copied_bytes: Cell::new(0),
                passing,
            },
            buffers: Buffers {
                scratch: RefCell::new(Scratch {
                    // The parser refuses a head over the limit before the buffer is full; the rest has room for
                    // a TLS record.
                    read: vec![0; READ_BYTES.max(config.limits.request_head_bytes_max + READ_BYTES / 2)],
                    head: Vec::with_capacity(4096),
                    out: Vec::with_capacity(OUT_BYTES),
                    slots: HeaderSlots::new(),
                    key: Vec::with_capacity(4096),
                    drafts: Vec::new(),
                }),
                tls: RefCell::new(transport::Scratch::new()),
                http2: RefCell::new(http2::Scratch::new(config)),
            },
            observers: Observers {
                counters,
                last_clients: LastClients::default(),
                cookie_leaks: RefCell::default(),
                cookie_names: RefCell::default(),
            },
        };
        transaction::install(scribe, config.log_secrets.clone());
        let before = CORE.replace(Some(Self::of(Rc::new(own), in_force)));
        assert!(before.is_none(), "a thread is one core");
        with_core(Self::keep_probing);
    }

    pub(super) fn of(own: Rc<Own>, in_force: Arc<ActiveConfig>) -> Self {
        let (config, sites) = (Arc::clone(&in_force.config), Arc::clone(&in_force.sites));
        Self { own, in_force, config, sites }
    }
}
