//! A walk through a shard in bounded steps, while the index grows and shrinks.
#![cfg(not(feature = "loom"))]

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
};

use engine::store::{BodyLength, Hash, Lookup, NewObject, Shard, StoreConfig, Sweep, open_anon};
use proptest::prelude::*;

const SEED: u64 = 0x5eed;

fn put(shard: &mut Shard, number: u32) {
    let key = number.to_le_bytes();
    let new = NewObject { now_s: 1, ..NewObject::bare(Hash::seeded(&key, SEED), &key, BodyLength::Exact(0)) };
    shard.insert(new, &[], &[]).unwrap();
}

fn remove(shard: &mut Shard, number: u32) {
    let key = number.to_le_bytes();
    shard.unlink(Hash::seeded(&key, SEED), &key);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Objects present during the whole walk are seen exactly once, whatever is added and removed meanwhile;
    /// objects to drop are dropped; a step examines no more than its limit plus one page.
    #[test]
    fn a_sweep_sees_every_lasting_object_once(
        at_first in 0u32..6_000,
        between in 0u32..400,
        objects in 1usize..500,
        to_go in 1u32..9,
    ) {
        // Capacity for the most objects that are added: up to 400 are put in for each page that is walked, so
        // there are forty times as many at the end, and an evicted object would be neither seen nor found.
        let config = StoreConfig { capacity_bytes: 64 << 20, cores: 1, hash_seed: Some(SEED), ..StoreConfig::default() };
        let (store, mut shards) = open_anon(&config).unwrap();
        let reader = store.reader(0);
        let mut shard = shards.remove(0);
        (0..at_first).for_each(|number| put(&mut shard, number));
        let mut next_new = 1_000_000;
        let mut stays: BTreeSet<u32> = (0..at_first).collect();
        let seen = RefCell::new(HashMap::<u32, u32>::new());
        let (mut at, mut steps, mut dropped) = (Some(Sweep::default()), 0, 0);
        while let Some(from) = at {
            let swept = shard.sweep(from, objects, |object| {
                let mut key = [0; 4];
                object.key().copy_to_slice(&mut key);
                let number = u32::from_le_bytes(key);
                *seen.borrow_mut().entry(number).or_default() += 1;
                number.is_multiple_of(to_go)
            });
            prop_assert!(swept.seen < objects + 160, "{} objects in a step of {objects}", swept.seen);
            dropped += swept.dropped;
            at = swept.next;
            steps += 1;
            for _ in 0..between {
                put(&mut shard, next_new);
                next_new += 1;
            }
            // This object may have been seen or not.
            if let Some(number) = stays.pop_first() {
                remove(&mut shard, number);
            }
        }
        shard.invariants();
        let seen = seen.into_inner();
        prop_assert!(seen.values().all(|times| *times == 1));
        prop_assert!(stays.iter().all(|number| seen.contains_key(number)));
        prop_assert_eq!(dropped, seen.keys().filter(|number| number.is_multiple_of(to_go)).count());
        let turn = reader.turn();
        for number in &stays {
            let key = number.to_le_bytes();
            let is_there = matches!(turn.lookup(Hash::seeded(&key, SEED), &key), Lookup::Hit(_));
            prop_assert_eq!(is_there, !number.is_multiple_of(to_go), "{}", number);
        }
        prop_assert!(steps >= (stays.len() / (objects + 160)).max(1));
    }
}
