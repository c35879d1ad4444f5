//! The store compared with its slow twin, a map of the stored objects, under random sequences in a store so
//! small that segments, pages and expiry entries are recycled all the time.
//!
//! The store may forget (it is a cache) but never invent: a found object equals the twin's, byte for byte; an
//! object that was unlinked, expired or never completed is not found; a pinned object reads as it did when it
//! was pinned.
#![cfg(not(feature = "loom"))]

use std::{collections::HashMap, sync::Arc};

use engine::store::{
    BodyLength, Hash, Lookup, NewHead, NewObject, ObjectWriter, PinnedObject, Reader, Shard, Store,
    StoreConfig, open_anon,
};
use proptest::prelude::*;

/// Fixed seed, so that a failure is reproducible.
const SEED: u64 = 0x5eed;

fn hash_of(key: &[u8]) -> Hash {
    Hash::seeded(key, SEED)
}

const KEYS: u8 = 60;

#[derive(Debug, Clone)]
enum Step {
    Insert {
        key: u8,
        bytes: usize,
        lifetime_s: u32,
        tail: bool,
    },
    Begin {
        key: u8,
        bytes: usize,
        known: bool,
        lifetime_s: u32,
    },
    /// Writes some of the bytes of an object that was begun.
    Write {
        filling: usize,
        bytes: usize,
    },
    Finish {
        filling: usize,
    },
    Abandon {
        filling: usize,
        dropped: bool,
    },
    Lookup {
        key: u8,
    },
    Pin {
        key: u8,
    },
    Unpin {
        pin: usize,
        half: bool,
    },
    Unlink {
        key: u8,
    },
    Refresh {
        key: u8,
        lifetime_s: u32,
    },
    ReplaceHead {
        key: u8,
        lifetime_s: u32,
    },
    Pass {
        seconds: u32,
        limit: usize,
    },
    Maintain {
        records: usize,
    },
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0..400_usize, 3 => 400..2000_usize, 2 => 2000..9000_usize, 1 => 9000..40_000_usize]
}

fn step() -> impl Strategy<Value = Step> {
    let lifetime_s = || prop_oneof![1..100_u32, 100..10_000_u32, Just(u32::MAX / 2)];
    let index = || 0..8_usize;
    prop_oneof![
        12 => (0..KEYS, size(), lifetime_s(), any::<bool>())
            .prop_map(|(key, bytes, lifetime_s, tail)| Step::Insert { key, bytes, lifetime_s, tail }),
        4 => (0..KEYS, size(), any::<bool>(), lifetime_s())
            .prop_map(|(key, bytes, known, lifetime_s)| Step::Begin { key, bytes, known, lifetime_s }),
        6 => (index(), 1..20_000_usize).prop_map(|(filling, bytes)| Step::Write { filling, bytes }),
        4 => index().prop_map(|filling| Step::Finish { filling }),
        1 => (index(), any::<bool>()).prop_map(|(filling, dropped)| Step::Abandon { filling, dropped }),
        12 => (0..KEYS).prop_map(|key| Step::Lookup { key }),
        2 => (0..KEYS).prop_map(|key| Step::Pin { key }),
        3 => (index(), any::<bool>()).prop_map(|(pin, half)| Step::Unpin { pin, half }),
        2 => (0..KEYS).prop_map(|key| Step::Unlink { key }),
        2 => (0..KEYS, lifetime_s()).prop_map(|(key, lifetime_s)| Step::Refresh { key, lifetime_s }),
        4 => (0..KEYS, lifetime_s()).prop_map(|(key, lifetime_s)| Step::ReplaceHead { key, lifetime_s }),
        2 => (1..200_u32, 1..50_usize).prop_map(|(seconds, limit)| Step::Pass { seconds, limit }),
        1 => (1..100_usize).prop_map(|records| Step::Maintain { records }),
    ]
}

#[derive(Debug, Clone, PartialEq)]
struct Twin {
    head: Vec<u8>,
    extra: Vec<u8>,
    body: Vec<u8>,
    tail: Vec<u8>,
    expires_s: u32,
}

struct InFlight {
    filling: ObjectWriter,
    key: Vec<u8>,
    twin: Twin,
    extent: Option<Arc<engine::store::Extent>>,
}

struct Run {
    store: Arc<Store>,
    shard: Shard,
    reader: Reader,
    twins: HashMap<Vec<u8>, Twin>,
    fillings: Vec<InFlight>,
    pins: Vec<(PinnedObject, Twin, u64)>,
    now_s: u32,
    written: u32,
}

fn key(number: u8) -> Vec<u8> {
    format!("/key/{number}").into_bytes()
}

fn twin(seed: u32, bytes: usize, tail: bool, expires_s: u32) -> Twin {
    let body = (0..bytes as u32).map(|i| (i.wrapping_mul(seed | 1) >> 3).wrapping_add(seed) as u8).collect();
    let head = seed.to_le_bytes().repeat(1 + seed as usize % 7);
    let extra = vec![seed as u8; seed as usize >> 4 & 15];
    Twin { head, extra, body, tail: if tail { b"a: trailer".to_vec() } else { Vec::new() }, expires_s }
}

impl Run {
    fn new(segment_bytes: u32, segments: u64) -> Self {
        let config = StoreConfig {
            capacity_bytes: u64::from(segment_bytes) * segments,
            segment_bytes: Some(segment_bytes),
            object_bytes_max: None,
            cores: 1,
            hash_seed: Some(SEED),
        };
        let (store, mut shards) = open_anon(&config).unwrap();
        let (shard, reader) = (shards.remove(0), store.reader(0));
        let (twins, fillings, pins) = (HashMap::new(), Vec::new(), Vec::new());
        Self { store, shard, reader, twins, fillings, pins, now_s: 1000, written: 0 }
    }

    fn object<'a>(&self, key: &'a [u8], twin: &'a Twin, body: BodyLength) -> NewObject<'a> {
        NewObject {
            hash: hash_of(key),
            key,
            head: &twin.head,
            extra: &twin.extra,
            meta: [twin.body.len() as u64; 8],
            body,
            expires_s: twin.expires_s,
            now_s: self.now_s,
        }
    }

    fn next_twin(&mut self, bytes: usize, tail: bool, lifetime_s: u32) -> Twin {
        self.written += 1;
        twin(self.written.wrapping_mul(0x9e37_79b9), bytes, tail, self.now_s + lifetime_s)
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Insert { key: number, bytes, lifetime_s, tail } => {
                let (key, twin) = (key(number), self.next_twin(bytes, tail, lifetime_s));
                let object = self.object(&key, &twin, BodyLength::Unknown);
                if self.shard.insert(object, &twin.body, &twin.tail).is_ok() {
                    self.twins.insert(key, twin);
                }
            }
            Step::Begin { key: number, bytes, known, lifetime_s } => {
                if self.fillings.len() == 6 {
                    return;
                }
                let (key, twin) = (key(number), self.next_twin(bytes, !known, lifetime_s));
                let length = if known { BodyLength::Exact(bytes as u64) } else { BodyLength::Unknown };
                if let Ok(filling) = self.shard.begin(self.object(&key, &twin, length)) {
                    self.fillings.push(InFlight { filling, key, twin, extent: None });
                }
            }
            Step::Write { filling, bytes } => self.write(filling, bytes),
            Step::Finish { filling } => self.finish(filling),
            Step::Abandon { filling, dropped } => {
                if filling < self.fillings.len() {
                    let in_flight = self.fillings.swap_remove(filling);
                    if dropped { drop(in_flight) } else { self.shard.abandon(in_flight.filling) }
                }
            }
            Step::Lookup { key: number } => self.lookup(&key(number)),
            Step::Pin { key: number } => {
                let key = key(number);
                let turn = self.reader.turn();
                if self.pins.len() < 4
                    && let Lookup::Hit(hit) = turn.lookup(hash_of(&key), &key)
                {
                    let pinned = hit.pin().expect("what is linked does not drain");
                    self.pins.push((pinned, self.twins[&key].clone(), 0));
                }
            }
            Step::Unpin { pin, half } => {
                if pin >= self.pins.len() {
                } else if half {
                    let (pinned, twin, from) = &mut self.pins[pin];
                    *from = (*from).max(twin.body.len() as u64 / 2);
                    pinned.release_before(*from);
                } else {
                    self.check_pin(pin);
                    self.pins.swap_remove(pin);
                }
            }
            Step::Unlink { key: number } => {
                let key = key(number);
                let found = self.shard.unlink(hash_of(&key), &key);
                assert!(!found || self.twins.contains_key(&key));
                self.twins.remove(&key);
                self.lookup(&key);
            }
            Step::Refresh { key: number, lifetime_s } => {
                let key = key(number);
                let expires_s = self.now_s + lifetime_s;
                if self.shard.refresh(hash_of(&key), &key, expires_s) {
                    self.twins.get_mut(&key).expect("never invented").expires_s = expires_s;
                } else {
                    self.twins.remove(&key);
                }
            }
            Step::ReplaceHead { key: number, lifetime_s } => self.replace_head(&key(number), lifetime_s),
            Step::Pass { seconds, limit } => {
                self.now_s += seconds;
                while self.shard.next_expiry_s().is_some_and(|next| next <= self.now_s) {
                    self.shard.expire(self.now_s, limit);
                }
                let now_s = self.now_s;
                self.twins.retain(|_, twin| twin.expires_s > now_s);
            }
            Step::Maintain { records } => {
                self.shard.maintain(records);
            }
        }
    }

    fn replace_head(&mut self, key: &[u8], lifetime_s: u32) {
        let Twin { head, extra, expires_s, .. } = self.next_twin(0, false, lifetime_s);
        let Some(bytes) = self.twins.get(key).map(|twin| twin.body.len()) else {
            return self.lookup(key);
        };
        let meta = [bytes as u64; 8];
        let before = self.shard.lookup_owned(hash_of(key), key).map(|object| object.sequence());
        let new = NewHead { head: &head, extra: &extra, meta, expires_s };
        match self.shard.replace_head(hash_of(key), key, new) {
            Ok(true) => {
                let object = self.shard.lookup_owned(hash_of(key), key);
                assert_eq!(object.map(|object| object.sequence()), before, "it is the same object");
                let twin = self.twins.get_mut(key).expect("never invented");
                *twin = Twin { head, extra, expires_s, ..twin.clone() };
            }
            // The object is gone, possibly evicted for the room that the new record needed.
            Ok(false) => assert!(self.shard.lookup_owned(hash_of(key), key).is_none()),
            Err(_) => {}
        }
        self.lookup(key);
    }

    fn write(&mut self, number: usize, bytes: usize) {
        let Some(InFlight { filling, twin, extent, .. }) = self.fillings.get_mut(number) else { return };
        let mut left = bytes.min(twin.body.len() - filling.body_bytes() as usize);
        while left > 0 {
            let at = filling.body_bytes();
            let current = match extent.take().filter(|extent| at < extent.first() + extent.len() as u64) {
                Some(current) => current,
                None => match filling.extend(&mut self.shard) {
                    Ok(next) => next,
                    Err(_) => {
                        let in_flight = self.fillings.swap_remove(number);
                        return drop(in_flight);
                    }
                },
            };
            let from = (at - current.first()) as usize;
            let len = left.min(current.len() - from);
            current.span().slice(from..from + len).write_from(&twin.body[at as usize..at as usize + len]);
            filling.written(len as u64);
            left -= len;
            // A follower reads all bytes published in this extent.
            let published = &twin.body[current.first() as usize..at as usize + len];
            assert!(current.span().slice(0..from + len).eq(published));
            *extent = Some(current);
        }
    }

    fn finish(&mut self, number: usize) {
        if number >= self.fillings.len() {
            return;
        }
        let InFlight { filling, key, mut twin, extent } = self.fillings.swap_remove(number);
        let written = filling.body_bytes() as usize;
        let known = twin.tail.is_empty();
        let finished = self.shard.finish(filling, &twin.tail);
        if known && written < twin.body.len() {
            assert_eq!(finished, Err(engine::store::InsertRefusal::Short));
        }
        if let Some(extent) = extent {
            // A follower may lag behind.
            let len = written - extent.first() as usize;
            assert!(extent.span().slice(0..len).eq(&twin.body[extent.first() as usize..written]));
        }
        if finished.is_ok() {
            twin.body.truncate(written);
            self.twins.insert(key, twin);
        }
    }

    fn lookup(&mut self, key: &[u8]) {
        let hash = hash_of(key);
        let sure = self.shard.lookup_owned(hash, key).is_some();
        let turn = self.reader.turn();
        match turn.lookup(hash, key) {
            Lookup::Hit(hit) => {
                let twin = self.twins.get(key).expect("the store invented an object");
                assert!(hit.extra().eq(&twin.extra));
                assert!(hit.head().eq(&twin.head) && hit.tail().eq(&twin.tail) && hit.key().eq(key));
                assert_eq!((hit.expires_s(), hit.body_bytes()), (twin.expires_s, twin.body.len() as u64));
                let mut body = Vec::new();
                while (body.len() as u64) < hit.body_bytes() {
                    hit.body(body.len() as u64).copy_to(&mut body);
                }
                assert!(body == twin.body, "{} body bytes of {key:?} differ", body.len());
                let middle = body.len() / 2;
                let run = hit.body(middle as u64);
                assert!(run.eq(&body[middle..middle + run.len()]));
                assert!(sure);
            }
            Lookup::Miss => {
                assert!(!sure);
                self.twins.remove(key);
            }
            Lookup::Contended => panic!("nobody writes"),
        }
    }

    fn check_pin(&self, number: usize) {
        let (pinned, twin, from) = &self.pins[number];
        assert!(
            pinned.extra().eq(&twin.extra) && pinned.head().eq(&twin.head) && pinned.tail().eq(&twin.tail)
        );
        let mut at = *from;
        while at < pinned.body_bytes() {
            let run = pinned.body(at);
            assert!(run.eq(&twin.body[at as usize..at as usize + run.len()]), "pinned bytes changed at {at}");
            at += run.len() as u64;
        }
    }

    fn check(&self) {
        self.shard.invariants();
        (0..self.pins.len()).for_each(|number| self.check_pin(number));
        assert!(self.store.usage().objects as usize <= self.twins.len(), "more stored than the twin has");
    }
}

fn run(segment_bytes: u32, segments: u64, steps: &[Step]) -> Run {
    let mut run = Run::new(segment_bytes, segments);
    for (number, step) in steps.iter().enumerate() {
        run.step(step);
        if number % 16 == 0 {
            run.check();
        }
    }
    run.check();
    (0..KEYS).for_each(|number| run.lookup(&key(number)));
    run
}

proptest! {
    #![proptest_config(ProptestConfig { cases: unify::cases(128, 1_024), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_never_invents(steps in prop::collection::vec(step(), 1..800)) {
        run(16 << 10, 12, &steps);
    }

    #[test]
    fn nor_with_more_room(steps in prop::collection::vec(step(), 1..600)) {
        run(64 << 10, 24, &steps);
    }
}

#[test]
fn a_long_run_recycles_everything() {
    use proptest::{
        strategy::ValueTree,
        test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let steps = prop::collection::vec(step(), 30_000).new_tree(&mut runner).unwrap().current();
    let run = run(16 << 10, 16, &steps);
    let usage = run.store.usage();
    for (name, count) in [
        ("reclaims", usage.reclaims),
        ("evictions", usage.evictions),
        ("promotions", usage.promotions),
        ("ghost hits", usage.ghost_hits),
        ("expiries", usage.expiries),
        ("unlinks", usage.unlinks),
        ("replacements", usage.replacements),
        ("short", usage.refused_short),
        ("too large", usage.refused_too_large),
        ("abandoned", usage.abandoned),
    ] {
        assert!(count > 20, "the sequence does not reach {name}: {count} ({usage:?})");
    }
}
