//! Models of the invariants I1 to I7 of `docs/decisions/003-store-concurrency.md`, and of the journal's ring,
//! over the store's own code with loom's atomics: `cargo test -p engine --features loom --test loom`. (I8,
//! the ring between threads, is in `loom_ring.rs`.)
//!
//! Loom tries the interleavings and the values that the memory model allows, up to the preemptions named
//! below; with three, all of these finish in seconds. It cannot find a load that sees a store from its future
//! (it runs in program order), which a missing Release when a pin is dropped would allow on some processors.
#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use engine::store::{
    BodyLength, Hash, Lookup, NewObject, StoreConfig,
    directory::IndexOwner,
    index::{Index, Slot, SlotLookup},
    open_anon,
    segments::{SegmentState, Segments},
    turns::Epochs,
};
use loom::{
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    thread,
};

fn model(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(run);
}

fn hash(prefix: u32) -> Hash {
    Hash::from_word(u64::from(prefix) << 32 | 1)
}

/// Builds a slot whose words all follow from one number.
fn slot(hash: Hash, number: u32) -> Slot {
    Slot::new(hash, u64::from(number), number, number, false)
}

fn assert_whole(found: Slot, numbers: &[u32]) {
    let number = found.expires_s();
    assert!(numbers.contains(&number), "slot of nobody: {number}");
    assert_eq!(found, slot(found.hash(), number), "words of two objects (I4)");
}

struct Shared {
    index: Index,
    turns: Epochs,
}

fn shared(pages: usize) -> (Arc<Shared>, IndexOwner) {
    let shared = Arc::new(Shared { index: Index::reserve(pages, 1).unwrap(), turns: Epochs::new(2) });
    let owner = IndexOwner::new(&shared.index, 0, 1);
    (shared, owner)
}

#[test]
fn a_lookup_returns_a_consistent_slot() {
    model(3, || {
        let (shared, mut owner) = shared(2);
        let hash = hash(0);
        let at = owner.insert(&shared.index, &shared.turns, slot(hash, 1)).unwrap();
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.turns.begin(1);
                match shared.index.lookup(hash) {
                    SlotLookup::Slot(found, _) => assert_whole(found, &[1, 2, 3]),
                    SlotLookup::Contended => {}
                    SlotLookup::Absent => panic!("a linked object is always found (I5)"),
                }
                shared.turns.end(1);
            })
        };
        owner.update(&shared.index, at, slot(hash, 2));
        owner.update(&shared.index, at, slot(hash, 3));
        reader.join().unwrap();
    });
}

#[test]
fn a_reused_slot_is_never_torn() {
    model(3, || {
        let (shared, mut owner) = shared(2);
        let (one, two) = (hash(0), hash(2));
        let at = owner.insert(&shared.index, &shared.turns, slot(one, 1)).unwrap();
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.turns.begin(1);
                for (hash, number) in [(one, 1), (two, 2)] {
                    if let SlotLookup::Slot(found, _) = shared.index.lookup(hash) {
                        assert_eq!(found, slot(hash, number));
                    }
                }
                shared.turns.end(1);
            })
        };
        owner.remove(&shared.index, at);
        owner.insert(&shared.index, &shared.turns, slot(two, 2)).unwrap();
        reader.join().unwrap();
    });
}

/// Looks an object up while others are inserted, numbered `come` (after those before), and split pages.
fn found_through(come: std::ops::Range<u32>, shift: u32, preemptions: usize) {
    model(preemptions, move || {
        let (shared, mut owner) = shared(8);
        let Shared { index, turns } = &*shared;
        let still = hash(0xf000_0000);
        owner.insert(index, turns, slot(still, 7)).unwrap();
        for number in 1..come.start {
            owner.insert(index, turns, slot(hash(number << shift), number)).unwrap();
        }
        let reader = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for _ in 0..2 {
                    shared.turns.begin(1);
                    let found = shared.index.lookup(still);
                    assert_ne!(found, SlotLookup::Absent, "a linked object was missed (I5, I7)");
                    if let SlotLookup::Slot(found, _) = found {
                        assert_eq!(found, slot(still, 7));
                    }
                    shared.turns.end(1);
                }
            })
        };
        // These inserts split pages; later splits reuse the first's pages, if no epoch holds them.
        for number in come.clone() {
            owner.insert(index, turns, slot(hash(number << shift), number)).unwrap();
        }
        reader.join().unwrap();
        assert_eq!(owner.invariants(index), come.end as usize);
    });
}

#[test]
fn a_linked_object_is_found_through_page_reuse() {
    found_through(4..8, 28, 2);
}

#[test]
fn a_linked_object_is_found_through_directory_growth() {
    // The hashes are close together, so that one insert splits and grows twice, and reuses a page that a
    // reader may reach through a directory entry that is not written yet.
    found_through(5..6, 27, 3);
}

#[test]
fn an_unlinked_object_is_not_found_later() {
    model(3, || {
        let (shared, mut owner) = shared(2);
        let done = Arc::new(AtomicU64::new(0));
        let hash = hash(0);
        let at = owner.insert(&shared.index, &shared.turns, slot(hash, 1)).unwrap();
        let reader = {
            let (shared, done) = (Arc::clone(&shared), Arc::clone(&done));
            thread::spawn(move || {
                let unlinked = done.load(Acquire) == 1;
                shared.turns.begin(1);
                let found = shared.index.lookup(hash);
                assert!(!unlinked || found == SlotLookup::Absent, "found after unlink returned (I6)");
                shared.turns.end(1);
            })
        };
        owner.remove(&shared.index, at);
        done.store(1, Release);
        reader.join().unwrap();
    });
}

/// A segment with one word in it, and the index entry that leads to it.
struct Place {
    segments: Segments,
    turns: Epochs,
    linked: AtomicU64,
    word: AtomicU64,
}

const WRITTEN: u64 = 7;
const REUSED: u64 = 9;

fn place() -> Arc<Place> {
    let place = Place {
        segments: Segments::new(2, 2),
        turns: Epochs::new(2),
        linked: AtomicU64::new(1),
        word: AtomicU64::new(WRITTEN),
    };
    for segment in 0..2 {
        place.segments.advance(segment, SegmentState::Open);
        place.segments.advance(segment, SegmentState::Sealed);
    }
    Arc::new(place)
}

impl Place {
    fn read(&self) {
        assert_eq!(self.word.load(Relaxed), WRITTEN, "a word that is reachable was written (I1, I2)");
    }

    /// Unlinks, retires, and reuses the segment as soon as that is allowed.
    fn recycle(&self, tries: usize) {
        self.linked.store(0, Relaxed);
        let epoch = self.segments.retire(0, &self.turns);
        for _ in 0..tries {
            if self.segments.reclaim(0, epoch, &self.turns) {
                self.segments.advance(0, SegmentState::Open);
                self.word.store(REUSED, Relaxed);
                return;
            }
            thread::yield_now();
        }
    }
}

#[test]
fn a_visible_segment_is_not_reused() {
    model(3, || {
        let place = place();
        let reader = {
            let place = Arc::clone(&place);
            thread::spawn(move || {
                for _ in 0..2 {
                    place.turns.begin(1);
                    if place.linked.load(Relaxed) == 1 {
                        place.read();
                        place.read();
                    }
                    place.turns.end(1);
                }
            })
        };
        place.recycle(2);
        reader.join().unwrap();
    });
}

#[test]
fn a_pin_holds_until_another_core_drops_it() {
    model(2, || {
        let place = place();
        let pinned = Arc::new(AtomicU64::new(0));
        let reader = {
            let (place, pinned) = (Arc::clone(&place), Arc::clone(&pinned));
            thread::spawn(move || {
                place.turns.begin(1);
                if place.linked.load(Relaxed) == 1 {
                    place.segments.pins.take(1, 0);
                    pinned.store(1, Release);
                }
                place.turns.end(1);
                // A later epoch: an owner that sees it must also see the pin.
                place.turns.begin(1);
                place.turns.end(1);
            })
        };
        let dropper = {
            let (place, pinned) = (Arc::clone(&place), Arc::clone(&pinned));
            thread::spawn(move || {
                if pinned.load(Acquire) == 1 {
                    place.read();
                    place.segments.pins.release(1, 0);
                }
            })
        };
        place.recycle(2);
        reader.join().unwrap();
        dropper.join().unwrap();
    });
}

#[test]
fn a_held_pin_keeps_its_segment() {
    model(3, || {
        let place = place();
        let reader = {
            let place = Arc::clone(&place);
            thread::spawn(move || {
                place.turns.begin(1);
                let linked = place.linked.load(Relaxed) == 1;
                if linked {
                    place.segments.pins.take(1, 0);
                }
                place.turns.end(1);
                place.turns.begin(1);
                place.turns.end(1);
                linked
            })
        };
        place.recycle(2);
        if reader.join().unwrap() {
            place.read();
            assert_eq!(place.segments.state(0), SegmentState::Draining);
        }
    });
}

#[test]
fn concurrent_retirements_keep_their_own_epochs() {
    model(2, || {
        let place = place();
        let other_owner = {
            let place = Arc::clone(&place);
            thread::spawn(move || {
                place.segments.retire(1, &place.turns);
            })
        };
        let reader = {
            let place = Arc::clone(&place);
            thread::spawn(move || {
                place.turns.begin(1);
                if place.linked.load(Relaxed) == 1 {
                    place.read();
                }
                place.turns.end(1);
            })
        };
        place.recycle(1);
        other_owner.join().unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn a_store_serves_whole_objects_while_replacing() {
    model(1, || {
        let config = StoreConfig {
            capacity_bytes: 12 << 10,
            segment_bytes: Some(1 << 10),
            object_bytes_max: None,
            cores: 1,
            hash_seed: Some(7),
        };
        let (store, mut shards) = open_anon(&config).unwrap();
        let shard = &mut shards[0];
        let object = |key: &'static [u8]| NewObject {
            expires_s: 100,
            ..NewObject::bare(Hash::seeded(key, 7), key, BodyLength::Exact(64))
        };
        shard.insert(object(b"a"), &[1; 64], b"").unwrap();
        let reader = store.reader(0);
        let reading = thread::spawn(move || {
            let turn = reader.turn();
            match turn.lookup(Hash::seeded(b"a", 7), b"a") {
                Lookup::Hit(hit) => {
                    let mut body = Vec::new();
                    hit.body(0).copy_to(&mut body);
                    assert!(body == [1; 64] || body == [2; 64], "bytes of nobody or of two: {body:?}");
                }
                Lookup::Miss => panic!("a replaced object is there, old or new"),
                Lookup::Contended => {}
            }
        });
        shard.insert(object(b"a"), &[2; 64], b"").unwrap();
        reading.join().unwrap();
    });
}

/// Words of a ring that two threads share.
#[derive(Clone)]
struct Words(Arc<Vec<AtomicU64>>);

impl std::ops::Deref for Words {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// The journal's ring (`docs/decisions/044-log.md`): each record that is read is whole, records come in
/// order, and skipped ones are counted, while the writer laps the reader.
#[test]
fn a26_a_record_that_is_read_is_whole() {
    use engine::journal::ring::{HEAD_WORDS, Reader, Writer};
    model(3, || {
        let words = Words(Arc::new((0..HEAD_WORDS + 4).map(|_| AtomicU64::new(0)).collect()));
        let mut reader = Reader::new(words.clone());
        let writer = thread::spawn(move || {
            let writer = Writer::new(words);
            for number in 0..3_u64 {
                writer.write(&[&number.to_ne_bytes()]);
            }
        });
        let (mut into, mut read) = (Vec::new(), 0);
        for _ in 0..3 {
            if reader.read(&mut into) {
                let number = u64::from_ne_bytes(into[..].try_into().unwrap());
                assert_eq!(number, read + reader.lost(), "in order, and what is missing is counted");
                read += 1;
            }
        }
        writer.join().unwrap();
    });
}
