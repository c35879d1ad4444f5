//! The store as the accelerator opens it: memory alone, or memory above a file.

use std::{cell::Cell, sync::Arc};

use engine::{
    cores::clock,
    io::{Completions, ReadPool, ReadPoolConfig},
    log::{self, Log, Recovered},
    meter::Registry,
    store::{
        Shard, Store, StoreConfig, open_anon,
        tier::{FileConfig, OnFile, open_on_file},
    },
};

use crate::{
    config::Config,
    core::{FileReads, store_s},
    server::StartError,
};

/// Threads that read the file: what gave the most of 8, 16 and 32 at little cost (`docs/decisions/009`).
const READ_HELPERS: usize = 16;

/// A store that is open.
pub(crate) struct Opened {
    pub(crate) store: Arc<Store>,
    pub(crate) shards: Vec<Shard>,
    pub(crate) file: Option<OpenFile>,
    /// For each core: how it reads the file.
    pub(crate) reads: Vec<Option<(FileReads, Completions)>>,
    pub(crate) recovered: Option<Recovered>,
}

/// What must live as long as the loops do, and end after them: the reading first, then the log, which writes out what is
/// left.
pub(crate) struct OpenFile {
    reads: ReadPool,
    log: Log,
}

impl OpenFile {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(self.reads.counters());
        for latencies in self.reads.latencies() {
            registry.register(latencies);
        }
        registry.register(Arc::new(self.log.reader()));
    }
}

/// Opens the store that the configuration asks for.
pub(crate) fn open_store(config: &Config, memory: &StoreConfig) -> Result<Opened, StartError> {
    let Some(path) = &config.store else {
        let (store, shards) = open_anon(memory)?;
        let reads = shards.iter().map(|_| None).collect();
        return Ok(Opened { store, shards, file: None, reads, recovered: None });
    };
    let file = FileConfig {
        path: path.clone(),
        bytes: config.store_bytes,
        flush: config.flush,
        paging: config.paging,
    };
    let OnFile { store, shards, log, source, recovered } =
        open_on_file(memory, &file, store_s(clock::unix_s()))?;
    let pool = ReadPoolConfig { cores: shards.len(), helpers: READ_HELPERS, ..ReadPoolConfig::default() };
    // What is read is memory too, beside that of the store; the pool takes no less than it needs.
    let of_memory = usize::try_from(config.memory_bytes / 8).unwrap_or(usize::MAX);
    let pool = ReadPoolConfig { buffer_bytes: pool.buffer_bytes.min(of_memory), ..pool };
    let (reads, by_core) = ReadPool::start(&pool, vec![source])?;
    let by_core = by_core
        .into_iter()
        .map(|(reads, completions)| {
            Some((
                FileReads { reads, log: log::Reader::clone(&log.reader()), large: Cell::new(0) },
                completions,
            ))
        })
        .collect();
    let file = Some(OpenFile { reads, log });
    Ok(Opened { store, shards, file, reads: by_core, recovered: Some(recovered) })
}
