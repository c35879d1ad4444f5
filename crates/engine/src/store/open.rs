//! Opening of a store in memory, with one shard for each core.

use std::sync::Arc;

use super::{
    config::{Geometry, StoreConfig, StoreError},
    shard::Shard,
    shared::{Local, Store},
};
use crate::random;

/// Opens a store in anonymous memory: returns the part that all cores share, and one shard for each core.
///
/// Memory is touched on first use, in huge pages where the kernel has them.
///
/// # Errors
/// Returns a [`StoreError`] that states the configured numbers and the numbers that would be accepted.
pub fn open_anon(config: &StoreConfig) -> Result<(Arc<Store>, Vec<Shard>), StoreError> {
    let seed = config.hash_seed.map_or_else(|| random::number().map_err(StoreError::Seed), Ok)?;
    open_with(config, seed)
}

/// Opens a store like [`open_anon`], with the given hash seed, such as the one in a store's file.
pub(super) fn open_with(
    config: &StoreConfig,
    hash_seed: u64,
) -> Result<(Arc<Store>, Vec<Shard>), StoreError> {
    let geometry = Geometry::of(config)?;
    let store = Arc::new(Store::reserve(geometry, hash_seed)?);
    let shards = (0..geometry.cores)
        .map(|core| Shard::new(Arc::new(Local { store: Arc::clone(&store), core })))
        .collect();
    Ok((store, shards))
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_refused_mapping_names_its_size() {
        let config = StoreConfig::default();
        // 2^60 bytes is larger than any address space; it must be refused before any structure of that size
        // is made.
        let geometry =
            Geometry { segments_per_core: 1 << 40, segment_bytes: 1 << 20, ..Geometry::of(&config).unwrap() };
        let Err(error) = Store::reserve(geometry, 0) else { panic!("mapped") };
        let words = error.to_string();
        assert!(words.contains("reserve 1048576TiB of address space for segments"), "{words}");
        assert!(words.contains("ulimit -v"), "{words}");
    }
}
