//! The index compared with a map, with many similar hashes, visits, and reused pages.
#![cfg(not(feature = "loom"))]

use std::collections::HashMap;

use engine::store::{
    Hash,
    directory::IndexOwner,
    index::{BUCKETS, Index, PROBES, SLOTS, Slot, SlotLookup, VISITS_MAX},
    turns::Epochs,
};
use proptest::prelude::*;

/// Fixed seed, so that a failure is reproducible.
const SEED: u64 = 0x5eed;

fn hash_of(key: &[u8]) -> Hash {
    Hash::seeded(key, SEED)
}

struct Run {
    index: Index,
    owner: IndexOwner,
    turns: Epochs,
    twin: HashMap<u64, (Slot, u64)>,
}

impl Run {
    fn new(pages: usize) -> Self {
        let index = Index::reserve(pages, 2).unwrap();
        let owner = IndexOwner::new(&index, 0, 2);
        Self { index, owner, turns: Epochs::new(2), twin: HashMap::new() }
    }

    fn put(&mut self, hash: Hash, number: u32) -> bool {
        let slot = Slot::new(hash, u64::from(number), number >> 8, number, number.is_multiple_of(2));
        match self.owner.find(&self.index, hash) {
            Some((_, at)) => self.owner.update(&self.index, at, slot),
            None => {
                if self.owner.insert(&self.index, &self.turns, slot).is_err() {
                    return false;
                }
            }
        }
        let visits = self.twin.get(&hash.word()).map_or(0, |(_, visits)| *visits);
        self.twin.insert(hash.word(), (slot, visits));
        true
    }

    fn remove(&mut self, hash: Hash) {
        let found = self.owner.find(&self.index, hash);
        assert_eq!(found.map(|(slot, _)| slot), self.twin.remove(&hash.word()).map(|(slot, _)| slot));
        if let Some((_, at)) = found {
            self.owner.remove(&self.index, at);
        }
    }

    fn visit(&mut self, hash: Hash, core: usize) {
        if let SlotLookup::Slot(_, at) = self.index.lookup(hash) {
            self.index.visit(core, at);
            let visits = &mut self.twin.get_mut(&hash.word()).unwrap().1;
            *visits = (*visits + 1).min(VISITS_MAX);
        }
    }

    fn forgive(&mut self, hash: Hash, kept: u64) {
        if let SlotLookup::Slot(_, at) = self.index.lookup(hash) {
            self.owner.set_visits(&self.index, at, kept);
            let visits = &mut self.twin.get_mut(&hash.word()).unwrap().1;
            *visits = kept.min(*visits);
        }
    }

    fn check(&self) {
        assert_eq!(self.owner.invariants(&self.index), self.twin.len());
        for (hash, (slot, visits)) in &self.twin {
            let SlotLookup::Slot(found, at) = self.index.lookup(Hash::from_word(*hash)) else {
                panic!("hash {hash:x} is not found")
            };
            assert_eq!(found, *slot);
            assert_eq!(self.owner.visits(&self.index, at), *visits, "visits of {hash:x}");
            let due = self.owner.find_due(&self.index, found.hash().prefix(), found.expires_s());
            assert!(
                due.iter().any(|(due, _)| due == slot),
                "the expiry entry of {hash:x} would find nothing"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: unify::cases(40, 400), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_index_agrees_with_a_map(
        steps in prop::collection::vec((0..9_u8, any::<u64>(), 0..4_u8), 1..4000),
        crowd in any::<u32>(),
    ) {
        let mut run = Run::new(64);
        let mut known = Vec::new();
        for (number, (what, random, shape)) in steps.into_iter().enumerate() {
            let hash = match (shape, known.is_empty()) {
                // Hashes with a few leading bits in common, or with all of the prefix except the bucket: some
                // will not fit.
                (0, _) => Hash::from_word(u64::from(crowd & 0xfff0_0000) << 32 | random >> 12),
                (1, _) => Hash::from_word(u64::from(crowd & 0xffff_ffe0) << 32 | ((random % 2048) << 26) | (random % 64)),
                (_, false) if what > 2 => known[random as usize % known.len()],
                _ => Hash::from_word(random),
            };
            match what {
                0..=4 => if run.put(hash, number as u32) { known.push(hash) },
                5 => run.remove(hash),
                8 => run.forgive(hash, random % VISITS_MAX),
                _ => run.visit(hash, usize::from(what) % 2),
            }
            if number % 500 == 0 {
                run.check();
            }
        }
        run.check();
        for hash in known {
            run.remove(hash);
        }
        prop_assert_eq!(run.owner.invariants(&run.index), 0);
    }
}

#[test]
fn an_overfull_bucket_refuses_without_harming_others() {
    let mut run = Run::new(64);
    assert!(run.put(Hash::from_word(7 << 40), 1));
    // The hashes share their prefix, so they have the same page and home bucket at every depth.
    let stored = (1..1000_u64).take_while(|low| run.put(Hash::from_word(0xabcd_ef01 << 32 | low), 2)).count();
    assert_eq!(stored, PROBES * SLOTS, "as many as lie within reach of one bucket");
    run.check();
    assert!(run.put(Hash::from_word(9 << 40), 3));
    run.check();
    const { assert!(BUCKETS == 32) };
}

#[test]
fn split_pages_are_reused_until_the_index_fills() {
    let mut run = Run::new(40);
    let mut number = 0;
    let full = loop {
        number += 1;
        if !run.put(hash_of(&u32::to_le_bytes(number)), number) {
            break number;
        }
    };
    run.check();
    // 40 pages of 160 slots; pages left by a split are reused, so nearly all of them are in use.
    assert!(full > 38 * 60, "full at {full}");
}

#[test]
fn a_turn_keeps_old_pages_from_being_reused() {
    let mut run = Run::new(400);
    let bytes = |pages: usize| {
        let mut number = 0_u32;
        let mut run = Run::new(pages);
        while number < 4000 {
            number += 1;
            assert!(run.put(hash_of(&number.to_le_bytes()), number));
        }
        run.owner.bytes(&run.index)
    };
    run.turns.begin(1);
    for number in 1..=4000_u32 {
        assert!(run.put(hash_of(&number.to_le_bytes()), number));
    }
    let held = run.owner.bytes(&run.index);
    assert!(held > bytes(400) * 3 / 2, "nothing was reused under the turn: {held}");
    run.turns.end(1);
    run.check();
}
