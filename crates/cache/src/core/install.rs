//! Setup of a thread as a core: creates the core's state from what the server passes in.

use std::{cell::Cell, rc::Rc, sync::Arc};

use engine::{
    cores::{clock, listener::Balance, mesh::Sender},
    journal::Scribe,
    meter::CoreCounters,
    store::{Shard, Store},
};

use super::{
    Budgets, Buffers, CORE, Clients, Core, Fetches, FileReads, Message, Names, Observers, Origins, Own,
    Purges, Storage, count_http2, with_core,
};
use crate::{
    body::growing::PassingBudget,
    client::{
        limits::{client_memory::ClientMemory, request_tasks},
        tls_terms::TlsTerms,
    },
    counters::Counter,
    encoding::codec_pool::Coders,
    head::response_head::Identity,
    log::transaction::{self},
    origin::Pool,
    peers::{Peers, purge_broadcast::ClusterHandle},
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
        let invalidations = Invalidations::new(purged);
        // Momentary changes were not kept: answers from before this start may lack some.
        invalidations.momentary.forget_until(clock::unix_ms());
        let parts_max = file.as_ref().map_or(0, |file| file.parts_max);
        let own = Own {
            index,
            names: Names { identity, pseudonym, requests: Cell::new(0), started_ms: clock::unix_ms() },
            sender,
            is_draining: Cell::new(false),
            storage: Storage::new(store.reader(index), store, shard, file),
            fetches: Fetches::new(coders),
            origins: Origins::new(Pool::new(&config.limits, count_http2), peers),
            purges: Purges { invalidations, purge_log: book, cluster: among },
            clients: Clients::new(balance, terms),
            budgets: Budgets {
                accounts: request_tasks::accounts(&config.limits, client_memory, parts_max),
                held_bytes: client_memory.answers(&config.limits),
                connection_memory: client_memory.connections(&config.limits),
                copied_bytes: Cell::new(0),
                passing,
            },
            buffers: Buffers::new(config),
            observers: Observers::new(counters),
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
