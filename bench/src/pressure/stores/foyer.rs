//! The foyer library: memory only, and memory with a disk ("hybrid").

use std::io;

use foyer::{
    BlockEngineConfig, Cache, CacheBuilder, DeviceBuilder, EvictionConfig, FsDeviceBuilder, HybridCache,
    HybridCacheBuilder, LfuConfig, LruConfig, PsyncIoEngineConfig, S3FifoConfig,
};

use super::{Contender, Location, Replay, ReplayCounter, Task, checked_body, make};

/// Block size of foyer's file, equal to the segment size of our store. foyer's default of 16 MiB would be a
/// twentieth of the file here.
const BLOCK_BYTES: usize = 4 << 20;
/// Number of foyer's shards: a single loop sends requests, so more shards would only add locks.
const SHARDS: usize = 1;

fn eviction(contender: Contender) -> EvictionConfig {
    match contender {
        Contender::FoyerLfu => LfuConfig::default().into(),
        Contender::FoyerS3Fifo | Contender::FoyerS3FifoOnDisk => S3FifoConfig::default().into(),
        _ => LruConfig::default().into(),
    }
}

pub(super) fn replayed(task: &Task) -> io::Result<Replay> {
    if task.contender.has_file() { on_disk(task) } else { in_memory(task) }
}

fn in_memory(task: &Task) -> io::Result<Replay> {
    let mut counting = ReplayCounter::new(task);
    let cache: Cache<u64, Vec<u8>> = CacheBuilder::new(bytes(task.memory_bytes)?)
        .with_shards(SHARDS)
        .with_eviction_config(eviction(task.contender))
        .with_weighter(|_, body: &Vec<u8>| size_of::<u64>() + body.len())
        .build();
    for id in task.ids() {
        let found = match cache.get(&id) {
            Some(entry) => {
                checked_body(id, entry.value())?;
                Location::InMemory
            }
            None => Location::Nowhere,
        };
        if found == Location::Nowhere {
            let mut body = Vec::new();
            make(id, &mut body);
            cache.insert(id, body);
        }
        counting.answered(found)?;
    }
    Ok(counting.end(task, None))
}

fn on_disk(task: &Task) -> io::Result<Replay> {
    let mut counting = ReplayCounter::new(task);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let device = FsDeviceBuilder::new(&task.directory)
            .with_capacity(bytes(task.file_bytes())?)
            .with_direct(true)
            .build()
            .map_err(io::Error::other)?;
        let cache: HybridCache<u64, Vec<u8>> = HybridCacheBuilder::new()
            .memory(bytes(task.memory_bytes)?)
            .with_shards(SHARDS)
            .with_eviction_config(eviction(task.contender))
            .with_weighter(|_, body: &Vec<u8>| size_of::<u64>() + body.len())
            .storage()
            .with_io_engine_config(PsyncIoEngineConfig::new())
            .with_engine_config(BlockEngineConfig::new(device).with_block_size(BLOCK_BYTES))
            .build()
            .await
            .map_err(io::Error::other)?;
        for id in task.ids() {
            let asked = cache.get(&id);
            let here = if asked.need_await() { Location::OnDisk } else { Location::InMemory };
            let found = match asked.await.map_err(io::Error::other)? {
                Some(entry) => {
                    checked_body(id, entry.value())?;
                    here
                }
                None => Location::Nowhere,
            };
            if found == Location::Nowhere {
                let mut body = Vec::new();
                make(id, &mut body);
                let bytes = body.len();
                cache.insert(id, body);
                if counting.is_settling(bytes) {
                    cache.storage().wait().await;
                }
            }
            counting.answered(found)?;
        }
        let replayed = counting.end(task, None);
        cache.close().await.map_err(io::Error::other)?;
        Ok(replayed)
    })
}

fn bytes(count: u64) -> io::Result<usize> {
    usize::try_from(count).map_err(io::Error::other)
}
