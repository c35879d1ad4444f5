//! Owners and readers on separate threads: every byte that is read, in an epoch or under a pin that outlives
//! the segment's use, belongs to one object that was stored under that key.
#![cfg(not(feature = "loom"))]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc::sync_channel,
    },
    thread,
};

use engine::store::{
    BodyLength, Extent, Hash, InsertRefusal, Lookup, NewObject, PinnedObject, Shard, Store, StoreConfig,
    open_anon,
};

/// Fixed seed, so that a failure is reproducible.
const SEED: u64 = 0x5eed;

fn hash_of(key: &[u8]) -> Hash {
    Hash::seeded(key, SEED)
}

const KEYS: u64 = 400;
/// Minimum objects that each owner stores, and minimum pinned objects that each reader checks again.
const STORED_MIN: u64 = 15_000;
const PINS_MIN: u64 = 300;
const CORES: usize = 2;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn key(number: u64) -> [u8; 12] {
    let mut key = *b"/k/---------";
    key[4..].copy_from_slice(&number.to_le_bytes());
    key
}

/// Returns a body that contains its key and its version in every 16 bytes.
fn body(number: u64, version: u64, len: usize) -> Vec<u8> {
    let pair = [number.to_le_bytes(), version.to_le_bytes()].concat();
    pair.into_iter().cycle().take(len).collect()
}

fn check(number: u64, version: u64, body_bytes: u64, mut run: impl FnMut(u64, &mut Vec<u8>)) {
    let mut read = Vec::new();
    while (read.len() as u64) < body_bytes {
        let before = read.len();
        run(before as u64, &mut read);
        assert!(read.len() > before, "no bytes at {before} of {body_bytes}");
    }
    assert!(read == body(number, version, read.len()), "bytes of another object under key {number}");
}

/// Stores until enough was stored and the reader has read enough; counted, so that the test does not depend
/// on a clock.
fn own(shard: &mut Shard, stop: &AtomicBool, pins: &AtomicU64) {
    let mut random = Random(shard.core() as u64 + 17);
    let mut stored = 0;
    let mut round = 0;
    while stored < STORED_MIN || pins.load(Relaxed) < PINS_MIN {
        round += 1;
        let number = random.below(KEYS);
        let key = key(number);
        let hash = hash_of(&key);
        if shard.store().owner(hash) != shard.core() {
            continue;
        }
        let len = if random.below(8) == 0 { 4000 + random.below(30_000) } else { random.below(900) } as usize;
        let object = NewObject {
            hash,
            key: &key,
            head: b"head",
            extra: b"",
            meta: [number, round, len as u64, 0, 0, 0, 0, 0],
            body: BodyLength::Unknown,
            expires_s: round as u32 / 100 + 1 + random.below(300) as u32,
            now_s: round as u32 / 100,
        };
        match shard.insert(object, &body(number, round, len), b"") {
            Ok(()) => stored += 1,
            // All segments are held by epochs of readers that are not scheduled.
            Err(refused) => {
                assert_eq!(refused, InsertRefusal::NoRoom);
                thread::yield_now();
            }
        }
        match random.below(16) {
            0 => drop(shard.unlink(hash, &key)),
            1 => drop(shard.expire(round as u32 / 100, 10)),
            2 => drop(shard.maintain(20)),
            _ => {}
        }
        if round % 10_000 == 0 {
            shard.invariants();
        }
    }
    stop.store(true, Relaxed);
}

fn read(store: &Arc<Store>, core: usize, stop: &AtomicBool, pins: &AtomicU64) {
    let reader = store.reader(core);
    let mut random = Random(core as u64 + 99);
    let mut held: Vec<(u64, u64, PinnedObject)> = Vec::new();
    while !stop.load(Relaxed) {
        let turn = reader.turn();
        for _ in 0..8 {
            let number = random.below(KEYS);
            let key = key(number);
            let Lookup::Hit(hit) = turn.lookup(hash_of(&key), &key) else { continue };
            let [named, version, len, ..] = hit.meta();
            assert_eq!((named, len), (number, hit.body_bytes()));
            assert!(hit.head().eq(b"head"));
            check(number, version, hit.body_bytes(), |at, out| hit.body(at).copy_to(out));
            if held.len() < 6
                && random.below(4) == 0
                && let Some(pinned) = hit.pin()
            {
                held.push((number, version, pinned));
            }
        }
        drop(turn);
        // Pins are held across many epochs, and so across the recycling of their segments.
        if held.len() == 6 && random.below(10) == 0 {
            let (number, version, pinned) = held.swap_remove(random.below(6) as usize);
            pins.fetch_add(1, Relaxed);
            check(number, version, pinned.body_bytes(), |at, out| pinned.body(at).copy_to(out));
        }
    }
    for (number, version, pinned) in held {
        check(number, version, pinned.body_bytes(), |at, out| pinned.body(at).copy_to(out));
    }
}

#[test]
fn readers_see_whole_objects_despite_concurrent_owners() {
    // Two owners and, on cores of their own, two readers: the epochs of all four must end.
    let config = StoreConfig {
        capacity_bytes: 4 * 24 * (16 << 10),
        segment_bytes: Some(16 << 10),
        object_bytes_max: None,
        cores: 2 * CORES,
        hash_seed: Some(SEED),
    };
    let (store, mut shards) = open_anon(&config).unwrap();
    let stops = [const { AtomicBool::new(false) }; CORES];
    let pins = [const { AtomicU64::new(0) }; CORES];
    thread::scope(|scope| {
        for (number, shard) in shards[..CORES].iter_mut().enumerate() {
            let (store, stop, pins) = (&store, &stops[number], &pins[number]);
            scope.spawn(move || read(store, CORES + number, stop, pins));
            scope.spawn(move || own(shard, stop, pins));
        }
    });
    let usage = store.usage();
    assert!(usage.reclaims > 1000, "segments are recycled: {usage:?}");
    for shard in &mut shards {
        while shard.maintain(1000) {}
        shard.invariants();
    }
    let usage = store.usage();
    assert_eq!(usage.pinned_bytes, 0);
}

#[test]
fn followers_read_a_body_while_it_arrives() {
    let config = StoreConfig {
        capacity_bytes: 4 << 20,
        segment_bytes: Some(64 << 10),
        object_bytes_max: None,
        cores: 1,
        hash_seed: Some(SEED),
    };
    let (store, mut shards) = open_anon(&config).unwrap();
    let shard = &mut shards[0];
    let len = 300_000_usize;
    for (number, length) in [BodyLength::Exact(len as u64), BodyLength::Unknown].into_iter().enumerate() {
        let (send, receive) = sync_channel::<Arc<Extent>>(64);
        let published = AtomicU64::new(0);
        let whole = body(number as u64, 1, len);
        thread::scope(|scope| {
            let follower = scope.spawn(|| {
                let mut read = Vec::new();
                for extent in receive {
                    let mut taken = 0;
                    while taken < extent.len() && read.len() < len {
                        let there = published
                            .load(std::sync::atomic::Ordering::Acquire)
                            .saturating_sub(extent.first());
                        let there = (there as usize).min(extent.len());
                        extent.span().slice(taken..there.max(taken)).copy_to(&mut read);
                        taken = there.max(taken);
                    }
                }
                read
            });
            let key = key(number as u64);
            let object = NewObject { expires_s: 9, ..NewObject::bare(hash_of(&key), &key, length) };
            let mut filling = shard.begin(object).unwrap();
            while (filling.body_bytes() as usize) < len {
                let extent = filling.extend(shard).unwrap();
                send.send(Arc::clone(&extent)).unwrap();
                let room = extent.len().min(len - filling.body_bytes() as usize);
                for from in (0..room).step_by(1000) {
                    let to = (from + 1000).min(room);
                    let at = filling.body_bytes() as usize;
                    extent.span().slice(from..to).write_from(&whole[at..at + to - from]);
                    filling.written((to - from) as u64);
                    published.store(filling.body_bytes(), std::sync::atomic::Ordering::Release);
                }
            }
            shard.finish(filling, b"").unwrap();
            drop(send);
            assert!(follower.join().unwrap() == whole, "a follower read other bytes than were written");
        });
    }
    drop(store);
}
