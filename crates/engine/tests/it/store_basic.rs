//! Contracts of the store's functions, one at a time.
#![cfg(not(feature = "loom"))]

use std::sync::Arc;

use engine::store::{
    BodyLength, HEAP_BYTES, Hash, InsertRefusal, Lookup, META_WORDS, NewObject, Reader, Shard, Store,
    StoreConfig, open_anon,
};

/// Fixed seed, so that a failure is reproducible.
const SEED: u64 = 0x5eed;

fn hash_of(key: &[u8]) -> Hash {
    Hash::seeded(key, SEED)
}

const SEGMENT: u32 = 64 << 10;

fn small() -> (Arc<Store>, Shard) {
    let config = StoreConfig {
        capacity_bytes: 32 * u64::from(SEGMENT),
        segment_bytes: Some(SEGMENT),
        object_bytes_max: None,
        cores: 1,
        hash_seed: Some(SEED),
    };
    let (store, mut shards) = open_anon(&config).unwrap();
    (store, shards.remove(0))
}

fn object(key: &[u8], body: BodyLength) -> NewObject<'_> {
    NewObject {
        hash: hash_of(key),
        key,
        head: b"a head of 20 bytes..",
        extra: b"17 bytes of extra",
        meta: [1, 2, 3, 4, 5, 6, 7, 8],
        body,
        expires_s: 1000,
        now_s: 10,
    }
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed).wrapping_add((i >> 8) as u8)).collect()
}

/// Returns body and tail as a reader sees them.
fn read(reader: &Reader, key: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let turn = reader.turn();
    let Lookup::Hit(hit) = turn.lookup(hash_of(key), key) else { return None };
    let mut body = Vec::new();
    while (body.len() as u64) < hit.body_bytes() {
        let run = hit.body(body.len() as u64);
        assert!(!run.is_empty());
        run.copy_to(&mut body);
    }
    assert!(hit.body(body.len() as u64).is_empty());
    let mut tail = Vec::new();
    hit.tail().copy_to(&mut tail);
    Some((body, tail))
}

fn fill(shard: &mut Shard, object: NewObject<'_>, body: &[u8], tail: &[u8]) -> Result<(), InsertRefusal> {
    let mut filling = shard.begin(object)?;
    let mut rest = body;
    while !rest.is_empty() {
        let extent = filling.extend(shard)?;
        assert_eq!(extent.first(), (body.len() - rest.len()) as u64);
        let (now, later) = rest.split_at(extent.len().min(rest.len()));
        // Written in two pieces, as bytes arrive.
        let half = now.len() / 2;
        extent.span().slice(0..half).write_from(&now[..half]);
        filling.written(half as u64);
        extent.span().slice(half..now.len()).write_from(&now[half..]);
        filling.written((now.len() - half) as u64);
        rest = later;
    }
    shard.finish(filling, tail)
}

#[test]
fn an_inserted_object_is_found_complete() {
    let (store, mut shard) = small();
    let reader = store.reader(0);
    shard.insert(object(b"/one", BodyLength::Unknown), b"the body", b"the tail").unwrap();
    let turn = reader.turn();
    let Lookup::Hit(hit) = turn.lookup(hash_of(b"/one"), b"/one") else { panic!("not found") };
    assert_eq!((hit.expires_s(), hit.meta(), hit.body_bytes()), (1000, [1, 2, 3, 4, 5, 6, 7, 8], 8));
    assert!(hit.head().eq(b"a head of 20 bytes..") && hit.key().eq(b"/one"));
    assert!(hit.extra().eq(b"17 bytes of extra"));
    assert!(hit.body(0).eq(b"the body") && hit.body(4).eq(b"body") && hit.body(99).is_empty());
    assert!(hit.tail().eq(b"the tail"));
    assert!(matches!(turn.lookup(hash_of(b"/two"), b"/two"), Lookup::Miss));
    assert!(matches!(turn.lookup(hash_of(b"/one"), b"/two"), Lookup::Miss), "the key is compared always");
    drop(turn);
    let first = shard.lookup_owned(hash_of(b"/one"), b"/one").unwrap().sequence();
    shard.insert(object(b"/one", BodyLength::Unknown), b"another", b"").unwrap();
    assert_eq!(read(&reader, b"/one").unwrap(), (b"another".to_vec(), vec![]));
    assert!(shard.lookup_owned(hash_of(b"/one"), b"/one").unwrap().sequence() > first);
    assert!(!shard.unlink(hash_of(b"/one"), b"/other"));
    assert!(shard.unlink(hash_of(b"/one"), b"/one"));
    assert!(!shard.unlink(hash_of(b"/one"), b"/one"));
    assert!(read(&reader, b"/one").is_none());
    let usage = store.usage();
    assert_eq!((usage.inserts, usage.replacements, usage.unlinks, usage.objects), (1, 1, 1, 0));
    shard.invariants();
}

#[test]
fn bodies_of_every_size_and_framing_round_trip() {
    let (store, mut shard) = small();
    let reader = store.reader(0);
    let most = store.object_bytes_max() as usize;
    let record = SEGMENT as usize / 4;
    let sizes =
        [0, 1, 15, 16, 1000, record - 200, record - 100, record, HEAP_BYTES, HEAP_BYTES + 1, 50_000, most];
    for (number, size) in sizes.into_iter().enumerate() {
        for tail in [&b""[..], b"x-trailer: 1"] {
            let body = bytes(size, number as u8);
            for length in [BodyLength::Exact(size as u64), BodyLength::Unknown] {
                let key = format!("/{size}/{length:?}/{}", tail.len());
                fill(&mut shard, object(key.as_bytes(), length), &body, tail).unwrap();
                assert_eq!(read(&reader, key.as_bytes()).unwrap(), (body.clone(), tail.to_vec()), "{key}");
                shard.invariants();
            }
            let key = format!("/{size}/at once/{}", tail.len());
            shard.insert(object(key.as_bytes(), BodyLength::Unknown), &body, tail).unwrap();
            assert_eq!(read(&reader, key.as_bytes()).unwrap(), (body, tail.to_vec()), "{key}");
            shard.invariants();
        }
    }
}

#[test]
fn bodies_of_wrong_length_are_refused_and_counted() {
    let (store, mut shard) = small();
    let reader = store.reader(0);
    shard.insert(object(b"/k", BodyLength::Unknown), b"old", b"").unwrap();
    let filling = shard.begin(object(b"/k", BodyLength::Exact(5))).unwrap();
    assert_eq!(shard.finish(filling, b""), Err(InsertRefusal::Short));
    assert_eq!(read(&reader, b"/k").unwrap().0, b"old", "a body cut short leaves the older one");

    let mut filling = shard.begin(object(b"/k", BodyLength::Exact(5))).unwrap();
    let extent = filling.extend(&mut shard).unwrap();
    extent.span().write_from(b"12345");
    filling.written(5);
    assert_eq!(filling.extend(&mut shard).unwrap_err(), InsertRefusal::TooLarge, "a body longer than said");
    shard.abandon(filling);
    assert!(extent.span().eq(b"12345"), "followers keep what they have");

    let most = store.object_bytes_max();
    assert_eq!(shard.begin(object(b"/k", BodyLength::Exact(most + 1))).unwrap_err(), InsertRefusal::TooLarge);
    let mut filling = shard.begin(object(b"/k", BodyLength::Unknown)).unwrap();
    let refused = loop {
        match filling.extend(&mut shard) {
            Ok(extent) => filling.written(extent.len() as u64),
            Err(refused) => break refused,
        }
    };
    assert_eq!((refused, filling.body_bytes()), (InsertRefusal::TooLarge, most));
    drop(filling);
    let long = vec![b'h'; SEGMENT as usize];
    let wide = NewObject { head: &long, ..object(b"/k", BodyLength::Exact(0)) };
    assert_eq!(shard.begin(wide).unwrap_err(), InsertRefusal::TooLarge);
    let usage = store.usage();
    assert_eq!((usage.refused_short, usage.refused_too_large, usage.abandoned), (1, 4, 3));
    assert_eq!(read(&reader, b"/k").unwrap().0, b"old");
    shard.invariants();
}

#[test]
fn expired_objects_are_removed_refreshed_ones_stay() {
    let (store, mut shard) = small();
    for i in 0..100_u32 {
        let key = i.to_le_bytes();
        let due = NewObject { expires_s: 20 + i, ..object(&key, BodyLength::Unknown) };
        shard.insert(due, b"x", b"").unwrap();
    }
    let five = 5_u32.to_le_bytes();
    assert!(shard.refresh(hash_of(&five), &five, 500));
    assert!(!shard.refresh(hash_of(b"/"), b"/", 500));
    assert_eq!(shard.next_expiry_s(), Some(20));
    assert_eq!(shard.expire(19, 1000), 0);
    assert_eq!(shard.expire(29, 4), 4, "bounded");
    assert_eq!(shard.expire(29, 1000), 5, "0 to 9 but for 5");
    assert!(shard.lookup_owned(hash_of(&five), &five).is_some_and(|hit| hit.expires_s() == 500));
    shard.invariants();
    assert_eq!(shard.expire(u32::MAX - 1, 1000), 91);
    assert_eq!((store.usage().objects, store.usage().expiries), (0, 100));
    shard.invariants();
}

/// Objects that eviction reaches long before they expire have no entry in the expiry queue. If the store slows
/// down, they are nevertheless unlinked when they are due.
#[test]
fn objects_without_queue_entry_expire_when_due() {
    let (store, mut shard) = small();
    let body = [b'x'; 1000];
    let mut number = 0_u32;
    let mut insert = |shard: &mut Shard, now_s: u32, expires_s: u32| {
        number += 1;
        let key = number.to_le_bytes();
        shard
            .insert(NewObject { now_s, expires_s, ..object(&key, BodyLength::Unknown) }, &body, b"")
            .unwrap();
        shard.lookup_owned(hash_of(&key), &key).unwrap();
    };
    // A full store, in which objects stay for about two hundred seconds.
    (0..5000).for_each(|n| insert(&mut shard, n / 10, n / 10 + 10_000 + n % 100));
    let entries = store.usage().expiry_entries;
    (5000..10_000).for_each(|n| insert(&mut shard, n / 10, n / 10 + 10_000 + n % 100));
    let usage = store.usage();
    assert!(usage.evictions > 5000 && usage.expiry_entries == entries, "{usage:?}");
    shard.invariants();

    let mut now_s = 10_000;
    while store.usage().objects > 0 {
        now_s = shard.next_expiry_s().expect("something expires").max(now_s);
        shard.expire(now_s, 7);
        shard.invariants();
    }
    assert!((11_000..11_200).contains(&now_s), "the last object expired at {now_s}");
    assert_eq!(shard.next_expiry_s(), None);

    // The store is not known to evict at this pace: all enter the queue, and a short lifetime always does.
    insert(&mut shard, now_s, now_s + 30);
    assert_eq!(store.usage().expiry_entries, 1);
}

#[test]
fn pins_survive_recycling_and_are_asked_back() {
    let (store, mut shard) = small();
    let reader = store.reader(0);
    let size = store.object_bytes_max() as usize;
    let body = bytes(size, 7);
    let mut pin_and_unlink = |key: &[u8]| {
        fill(&mut shard, object(key, BodyLength::Exact(size as u64)), &body, b"t").unwrap();
        let pinned = {
            let turn = reader.turn();
            let Lookup::Hit(hit) = turn.lookup(hash_of(key), key) else { panic!("not found") };
            hit.pin().unwrap()
        };
        assert!(!pinned.wanted());
        shard.unlink(hash_of(key), key);
        pinned
    };
    let (mut pinned, another) = (pin_and_unlink(b"/large"), pin_and_unlink(b"/another"));
    // Fill the store several times over.
    let filler = bytes(3000, 1);
    for i in 0..5_000_u32 {
        shard.insert(object(&i.to_le_bytes(), BodyLength::Unknown), &filler, b"").unwrap();
    }
    shard.invariants();
    assert!(store.usage().evictions > 1000);
    assert!(store.usage().draining_bytes >= size as u64 && store.usage().pinned_bytes >= size as u64);
    assert!(pinned.wanted(), "more than an eighth of the store drains");
    let mut read = Vec::new();
    while read.len() < body.len() {
        pinned.body(read.len() as u64).copy_to(&mut read);
        pinned.release_before(read.len() as u64);
    }
    assert_eq!(read, body);
    assert!(
        pinned.tail().eq(b"t")
            && pinned.extra().eq(b"17 bytes of extra")
            && pinned.meta() == [1, 2, 3, 4, 5, 6, 7, 8]
    );
    const { assert!(META_WORDS == 8) };
    drop((pinned, another));
    while shard.maintain(1000) {}
    assert_eq!(store.usage().pinned_bytes, 0);
    assert_eq!(store.usage().segments_draining, 0);
    shard.invariants();
}

#[test]
fn a_store_full_of_unfinished_objects_recovers() {
    let (store, mut shard) = small();
    let mut fillings = Vec::new();
    let refused = loop {
        let key = fillings.len().to_le_bytes();
        let mut filling = match shard.begin(object(&key, BodyLength::Exact(10_000))) {
            Ok(filling) => filling,
            Err(refused) => break refused,
        };
        filling.extend(&mut shard).unwrap();
        fillings.push(filling);
    };
    assert_eq!(refused, InsertRefusal::NoRoom);
    assert!(fillings.len() > 100);
    shard.invariants();
    drop(fillings);
    for i in 0..1000_u32 {
        shard.insert(object(&i.to_le_bytes(), BodyLength::Unknown), &[1; 1000], b"").unwrap();
    }
    assert!(store.usage().refused_no_room == 1);
    shard.invariants();
}

#[test]
fn the_visited_outlive_the_unvisited() {
    let (store, mut shard) = small();
    let reader = store.reader(0);
    let body = bytes(1000, 3);
    for i in 0..200_u32 {
        shard.insert(object(&i.to_le_bytes(), BodyLength::Unknown), &body, b"").unwrap();
    }
    for i in 200..20_000_u32 {
        shard.insert(object(&i.to_le_bytes(), BodyLength::Unknown), &body, b"").unwrap();
        let key = (i % 200).to_le_bytes();
        let _ = reader.turn().lookup(hash_of(&key), &key);
    }
    let kept = (0..200_u32).filter(|i| read(&reader, &i.to_le_bytes()).is_some()).count();
    assert!(kept > 190, "{kept} of 200 that were asked for again and again are still there");
    let usage = store.usage();
    assert!(usage.promotions > 0 && usage.evictions > 10_000, "{usage:?}");
    shard.invariants();
}

#[test]
#[should_panic(expected = "do not nest")]
fn a_turn_within_a_turn_is_our_mistake() {
    let (store, _shard) = small();
    let (one, two) = (store.reader(0), store.reader(0));
    let _outer = one.turn();
    let _inner = two.turn();
}

/// With a pinned object in each segment, and more to store than fits, eviction does not empty the store in
/// vain.
#[test]
fn pinned_objects_do_not_empty_the_store() {
    const SEGMENTS: usize = 128;
    let config = StoreConfig {
        capacity_bytes: SEGMENTS as u64 * u64::from(SEGMENT),
        segment_bytes: Some(SEGMENT),
        object_bytes_max: None,
        cores: 1,
        hash_seed: Some(SEED),
    };
    let (store, mut shards) = open_anon(&config).unwrap();
    let (mut shard, reader) = (shards.remove(0), store.reader(0));
    let body = bytes(3000, 1);
    let mut stored = 0_u32;
    let mut store_more = |shard: &mut Shard, count: u32, now_s: u32| {
        let mut refused = 0;
        for _ in 0..count {
            stored += 1;
            let new = NewObject { now_s, ..object(&[], BodyLength::Unknown) };
            let key = stored.to_le_bytes();
            match shard.insert(NewObject { key: &key, hash: hash_of(&key), ..new }, &body, b"") {
                Ok(()) => {}
                Err(InsertRefusal::NoRoom) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
        refused
    };
    let fit = (SEGMENTS - 8) as u32 * (SEGMENT / 3200);
    assert_eq!(store_more(&mut shard, fit, 10), 0);
    let held: Vec<_> = (1..=fit)
        .map(|number| {
            let turn = reader.turn();
            let key = number.to_le_bytes();
            let Lookup::Hit(hit) = turn.lookup(hash_of(&key), &key) else { panic!("{number} is not found") };
            hit.pin().unwrap()
        })
        .collect();
    // At most a sixteenth of the share is emptied in one second, however much must be stored.
    let emptied_max = (SEGMENTS / 16) as u64;
    for now_s in 11..14 {
        let before = store.usage();
        let refused = store_more(&mut shard, 4 * fit, now_s);
        let after = store.usage();
        let emptied = after.segments_draining - before.segments_draining;
        assert!((1..=emptied_max).contains(&emptied), "{emptied} segments emptied in second {now_s}");
        assert!(refused > 0, "and what finds no room is refused");
        assert_eq!(after.refused_no_room - before.refused_no_room, refused, "and counted");
        assert!(held[0].wanted(), "and wanted back");
    }
    shard.invariants();
    // All draining segments are checked, not only the first: releasing the pins of any one is enough.
    let (mut wanted, _held): (Vec<_>, Vec<_>) = held.into_iter().partition(|pin| pin.wanted());
    wanted.truncate(wanted.len() - 3 * (SEGMENT / 3200) as usize);
    let before = store.usage();
    assert_eq!(store_more(&mut shard, 1, 13), 0);
    let after = store.usage();
    assert!(after.reclaims > before.reclaims && after.refused_no_room == before.refused_no_room);
    shard.invariants();
}
