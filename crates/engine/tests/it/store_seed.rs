//! The seed of a store's hash: clients cannot choose keys that share a bucket, and a file keeps its own seed.

use std::time::Duration;

use engine::store::{
    BodyLength, Hash, NewObject, Shard, StoreConfig, open_anon,
    tier::{FileConfig, FileStore, open_on_file},
};

/// More keys than fit into the eight buckets in which an object may be stored.
const ADDRESSES: usize = 48;

/// Returns URLs of one site whose hashes with `seed` have the same leading bits and the same home bucket.
fn aimed(seed: u64) -> Vec<Vec<u8>> {
    let place = |prefix: u32| (prefix >> 18, prefix & 31);
    let wanted = place(Hash::seeded(b"site.example\0/", seed).prefix());
    (0_u64..)
        .map(|number| format!("site.example\0/?{number:x}").into_bytes())
        .filter(|key| place(Hash::seeded(key, seed).prefix()) == wanted)
        .take(ADDRESSES)
        .collect()
}

fn store_all(shard: &mut Shard, keys: &[Vec<u8>]) -> usize {
    let store = |key: &Vec<u8>| {
        let (hash, body) = (shard.store().hash(key), BodyLength::Unknown);
        let new = NewObject {
            hash,
            key,
            head: b"head",
            extra: b"",
            meta: Default::default(),
            body,
            expires_s: 100,
            now_s: 0,
        };
        shard.insert(new, b"body", b"").is_ok() && shard.lookup_owned(hash, key).is_some()
    };
    keys.iter().map(store).filter(|is_stored| *is_stored).count()
}

fn stored(hash_seed: Option<u64>, keys: &[Vec<u8>]) -> usize {
    let config = StoreConfig {
        capacity_bytes: 1 << 20,
        segment_bytes: Some(16 << 10),
        hash_seed,
        ..StoreConfig::default()
    };
    let (_, mut shards) = open_anon(&config).unwrap();
    let stored = store_all(&mut shards[0], keys);
    shards[0].invariants();
    stored
}

#[test]
fn another_seed_defeats_chosen_collisions() {
    let keys = aimed(0);
    assert!(stored(Some(0), &keys) < ADDRESSES, "they were chosen well");
    assert_eq!(stored(Some(1), &keys), ADDRESSES);
    // A store chooses a random seed by default.
    assert_eq!(stored(None, &keys), ADDRESSES);
}

#[test]
fn a_store_takes_its_files_seed() {
    let directory = tempfile::tempdir().unwrap();
    let config = StoreConfig { capacity_bytes: 8 << 20, ..StoreConfig::default() };
    let hash = |name: &str| {
        let file = FileConfig {
            path: directory.path().join(name),
            bytes: 16 << 20,
            flush: Duration::from_millis(5),
            paging: Default::default(),
            admission: Default::default(),
            objects_max: u64::MAX,
        };
        let FileStore { store, .. } = open_on_file(&config, &file, 0).unwrap();
        store.hash(b"site.example\0/")
    };
    let first = hash("one");
    assert_eq!(hash("one"), first, "opened again");
    assert_ne!(hash("another"), first);
    assert_ne!(first, Hash::seeded(b"site.example\0/", 0));
}
