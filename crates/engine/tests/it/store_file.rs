//! A store on a file: stored objects are there after a restart, dropped ones are not, and the file may be
//! many times larger than the memory.

#![cfg(not(feature = "loom"))]

use std::{collections::BTreeSet, path::Path, time::Duration};

use engine::{
    log::{DurabilityError, Log},
    size::Size,
    store::{
        BodyLength, NewObject, Shard, StoreConfig,
        tier::{
            Admission, FileConfig, FileStore, OpenOnFileError, ReadMode, StoreContents, UnreadStore,
            begin_on_file, image::RecordImage, open_on_file, write_buffer_bytes_max,
        },
    },
    sys::span::WordBuffer,
};

const NOW_S: u32 = 1000;

fn configs(path: &Path, memory: u64, bytes: u64) -> (StoreConfig, FileConfig) {
    let config = StoreConfig { capacity_bytes: memory, ..StoreConfig::default() };
    let (flush, admission) = (Duration::from_millis(5), Admission::Always);
    (
        config,
        FileConfig {
            path: path.into(),
            bytes,
            flush,
            paging: ReadMode::Direct,
            admission,
            objects_max: u64::MAX,
        },
    )
}

fn open(path: &Path, memory: u64, bytes: u64, now_s: u32) -> FileStore {
    let (config, file) = configs(path, memory, bytes);
    open_on_file(&config, &file, now_s).unwrap()
}

fn key(number: u32) -> Vec<u8> {
    format!("object {number}").into_bytes()
}

fn body(number: u32) -> Vec<u8> {
    let len = match number % 50 {
        7 => 700_000,
        n => n * 97,
    };
    (0..len).map(|at| (number * 7 + at * 13 + at / 255) as u8).collect()
}

fn insert(shard: &mut Shard, number: u32, expires_s: u32) {
    let key = key(number);
    let new = NewObject {
        hash: shard.store().hash(&key),
        key: &key,
        head: b"a head",
        extra: b"",
        meta: [u64::from(number); 8],
        body: BodyLength::Unknown,
        expires_s,
        now_s: NOW_S,
    };
    shard.insert(new, &body(number), b"tail").unwrap();
    while shard.copy_to_file() {}
}

/// Returns the object from memory, or restored from the file.
fn find(shard: &mut Shard, log: &Log, number: u32, now_s: u32) -> Option<(Vec<u8>, u64)> {
    let key = key(number);
    let hash = shard.store().hash(&key);
    if shard.lookup_owned(hash, &key).is_none() {
        let cold = shard.find_on_file(hash, now_s)?;
        let bytes = match shard.held(cold) {
            Some(bytes) => bytes,
            None => log.reader().read(cold.location, cold.payload_bytes as usize).unwrap().payload().to_vec(),
        };
        let own = RecordImage::parse(cold, &bytes).unwrap();
        assert!(shard.restore(hash, &key, &own, None, now_s).unwrap());
        assert!(!shard.restore(hash, b"another key", &own, None, now_s).unwrap());
    }
    let object = shard.lookup_owned(hash, &key)?;
    assert_eq!(object.meta(), [u64::from(number); 8]);
    assert!(object.head().eq(b"a head") && object.tail().eq(b"tail"));
    let mut found = Vec::new();
    while (found.len() as u64) < object.body_bytes() {
        object.body(found.len() as u64).copy_to(&mut found);
    }
    Some((found, object.sequence()))
}

fn until(come_true: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if come_true() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it does not come true");
}

fn wait(shard: &mut Shard) {
    try_wait(shard).unwrap();
}

fn try_wait(shard: &mut Shard) -> Result<(), DurabilityError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(shard.promise().kept())
}

#[test]
fn a_store_larger_than_memory_survives_restarts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let (memory, bytes) = (8 << 20, 160 << 20);
    let mut sequences = Vec::new();
    for life in 0..3 {
        let now_s = NOW_S + life;
        let mut opened = open(&path, memory, bytes, now_s);
        let shard = &mut opened.shards[0];
        if life == 0 {
            for number in 0..2000 {
                insert(shard, number, NOW_S + 500);
                if number % 50 == 0 {
                    // Waits for the helpers, because no real loop stores this fast for long.
                    wait(shard);
                }
            }
            let usage = opened.store.usage();
            assert_eq!((usage.file_objects, usage.file_refused), (2000, 0), "{usage:?}");
            assert!(usage.evictions > 500, "memory held everything: {usage:?}");
        } else {
            assert_eq!(opened.recovered.live, 2000, "life {life}: {:?}", opened.recovered);
            assert_eq!(opened.recovered.records_torn, 0);
        }
        for number in 0..2000 {
            let (found, sequence) = find(shard, &opened.log, number, now_s).unwrap();
            assert_eq!(found, body(number), "object {number} in life {life}");
            if life == 0 {
                sequences.push(sequence);
            } else {
                assert_eq!(sequence, sequences[number as usize], "its number is part of others' names");
            }
        }
        // A newly stored object has a sequence number that was never used before.
        insert(shard, 5000 + life, now_s + 1);
        let (_, sequence) = find(shard, &opened.log, 5000 + life, now_s).unwrap();
        assert!(!sequences.contains(&sequence));
        shard.invariants();
        let usage = opened.store.usage();
        assert!(usage.file_hits > 500 || life == 0, "{usage:?}");
        // The shards are dropped first, then the log, which writes the rest.
        let FileStore { mut shards, log, .. } = opened;
        // Odd processes end with a crash.
        if life == 1 {
            wait(&mut shards[0]);
            log.crash();
            drop(shards);
        } else {
            drop(shards);
            drop(log);
        }
    }
}

#[test]
fn what_was_dropped_replaced_or_refreshed_stays_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    for life in 0..4u32 {
        let mut opened = open(&path, 8 << 20, 64 << 20, NOW_S);
        let shard = &mut opened.shards[0];
        if life > 0 {
            for number in 0..200u32 {
                let found = find(shard, &opened.log, number, NOW_S);
                match number % 4 {
                    0 => assert!(found.is_none(), "{number} was dropped and is back in life {life}"),
                    1 => assert_eq!(found.unwrap().0, body(number)),
                    // Replaced by an object with the same key and another expiry.
                    2 => {
                        let (_, _) = found.unwrap();
                        let (hash, key) = (shard.store().hash(&key(number)), key(number));
                        assert_eq!(
                            shard.lookup_owned(hash, &key).unwrap().expires_s(),
                            NOW_S + 900 + life - 1
                        );
                    }
                    _ => {
                        let (hash, key) = (shard.store().hash(&key(number)), key(number));
                        assert_eq!(shard.lookup_owned(hash, &key).unwrap().expires_s(), NOW_S + 2000);
                    }
                }
            }
        }
        for number in 0..200u32 {
            if number % 20 == 0 {
                // Waits for the helpers, however busy the machine is.
                wait(shard);
            }
            match number % 4 {
                0 => {
                    insert(shard, number, NOW_S + 500);
                    assert!(shard.unlink(shard.store().hash(&key(number)), &key(number)));
                    assert!(!shard.unlink(shard.store().hash(&key(number)), &key(number)));
                    assert!(shard.find_on_file(shard.store().hash(&key(number)), NOW_S).is_none());
                }
                2 => insert(shard, number, NOW_S + 900 + life),
                _ if life > 0 => {}
                1 => insert(shard, number, NOW_S + 500),
                _ => {
                    insert(shard, number, NOW_S + 500);
                    assert!(shard.refresh(shard.store().hash(&key(number)), &key(number), NOW_S + 2000));
                    while shard.copy_to_file() {}
                }
            }
        }
        wait(shard);
        // Simulates a kill.
        let FileStore { shards, log, .. } = opened;
        log.crash();
        drop(shards);
    }
}

#[test]
fn long_lived_objects_outlive_short_lived_churn() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let open = |now_s| open(&path, 4 << 20, 16 << 20, now_s);
    let mut opened = open(NOW_S);
    let segments = opened.log.usage().segments_free;
    let numbers = |from: u32| (from..).filter(|number| number % 50 != 7);
    let lasting: Vec<u32> = numbers(0).take(400).collect();
    let (mut now_s, mut next) = (NOW_S, 1_000);
    let mut come_and_go = |opened: &mut FileStore| {
        for lasting in &lasting {
            insert(&mut opened.shards[0], *lasting, NOW_S + 1_000_000);
            for number in numbers(next).take(100) {
                insert(&mut opened.shards[0], number, now_s + 30);
            }
            next += 200;
            wait(&mut opened.shards[0]);
            // Keeps 7 MiB valid at a time: more than memory holds, where expiry would remove them, and less
            // than the file.
            now_s += 1;
            opened.shards[0].expire(now_s, usize::MAX);
            // Enough steps to examine every segment.
            for _ in 0..segments.div_ceil(64) + 1 {
                opened.shards[0].copy_to_file();
            }
            until(|| opened.log.usage().segments_dying == 0);
        }
        now_s
    };
    let now_s = come_and_go(&mut opened);
    let there = |opened: &mut FileStore, now_s| {
        let FileStore { shards, log, .. } = opened;
        lasting.iter().filter(|number| find(&mut shards[0], log, **number, now_s).is_some()).count()
    };
    let log = opened.log.usage();
    assert!(log.written_bytes > 5 * log.capacity_bytes, "{log:?}");
    assert_eq!(log.given_up, 0, "{log:?}");
    assert!(log.given_up_over > segments, "{log:?}");
    assert_eq!(there(&mut opened, now_s), lasting.len());
    drop(opened);

    // Segments left by the last process also expire in the next one.
    let mut opened = open(now_s);
    let before = opened.log.usage();
    let now_s = now_s + 31;
    opened.shards[0].expire(now_s, usize::MAX);
    for _ in 0..segments.div_ceil(64) + 1 {
        opened.shards[0].copy_to_file();
    }
    until(|| opened.log.usage().segments_dying == 0);
    let after = opened.log.usage();
    assert!(after.segments_free > before.segments_free, "{before:?} {after:?}");
    assert_eq!(there(&mut opened, now_s), lasting.len());
}

#[test]
fn a_full_file_evicts_and_damaged_objects_miss() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let mut opened = open(&path, 4 << 20, 16 << 20, NOW_S);
    let shard = &mut opened.shards[0];
    let mut refused = 0;
    let numbers = || (0..8000u32).filter(|number| number % 50 != 7);
    for number in numbers() {
        insert(shard, number, NOW_S + 500);
        if number % 100 == 0 {
            // A refused deletion is retried, which may happen here.
            let _ = try_wait(shard);
            // Waits for the helpers, however busy the machine is.
            until(|| opened.log.usage().segments_free >= 2);
        }
        refused = opened.store.usage().file_refused;
    }
    let log = opened.log.usage();
    assert!(log.given_up > 10, "{log:?}");
    assert!(refused < 4000, "{refused} of 8000 were refused");
    let found: BTreeSet<u32> = numbers()
        .filter(|number| {
            let found = find(shard, &opened.log, *number, NOW_S);
            assert!(found.as_ref().is_none_or(|(found, _)| *found == body(*number)), "{number}");
            found.is_some()
        })
        .collect();
    assert!(found.len() > 200, "only {} are there", found.len());
    let usage = opened.store.usage();
    assert!(usage.file_directory_bytes < 1 << 20, "{usage:?}");

    let number = numbers()
        .find(|number| {
            let key = key(*number);
            let hash = shard.store().hash(&key);
            shard.lookup_owned(hash, &key).is_none() && shard.find_on_file(hash, NOW_S).is_some()
        })
        .unwrap();
    let hash = shard.store().hash(&key(number));
    let cold = shard.find_on_file(hash, NOW_S).unwrap();
    shard.damaged(hash, cold.location);
    assert!(shard.find_on_file(hash, NOW_S).is_none());
    assert_eq!(opened.store.usage().file_damaged, 1);
    shard.invariants();
}

#[test]
fn helpers_read_whole_records_and_see_damage() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let mut opened = open(&path, 8 << 20, 32 << 20, NOW_S);
    let shard = &mut opened.shards[0];
    insert(shard, 1, NOW_S + 5);
    let object = shard.lookup_owned(shard.store().hash(&key(1)), &key(1)).unwrap();
    let run = object.on_file().unwrap();
    let cold = shard.find_on_file(shard.store().hash(&key(1)), NOW_S).unwrap();
    wait(shard);
    assert_eq!((run.location, run.body_bytes), (cold.location, body(1).len() as u64));
    let file = std::fs::read(&path).unwrap();
    assert_eq!(file[run.body_at as usize..][..body(1).len()], body(1));
    let at = cold.location.offset();
    let bytes = engine::log::record_bytes(cold.payload_bytes as usize);
    let buffer = WordBuffer::new(bytes);
    buffer.span().write_from(&file[at as usize..][..bytes]);
    opened.source.verify(at, buffer.span()).unwrap();
    buffer.span().slice(100..101).write_from(&[file[at as usize + 100] ^ 1]);
    assert!(opened.source.verify(at, buffer.span()).is_err());
}

#[test]
fn a_file_too_small_for_cores_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (config, file) = configs(&directory.path().join("store"), 1 << 30, 8 << 20);
    let config = StoreConfig { cores: 64, ..config };
    let error = open_on_file(&config, &file, NOW_S).unwrap_err();
    let OpenOnFileError::TooSmall { needed, .. } = error else { panic!("{error}") };
    assert!(
        error.to_string().contains("64 cores") && error.to_string().contains(&Size(needed).to_string()),
        "{error}"
    );
}

#[test]
fn many_cores_can_share_a_file() {
    let (config, file) = configs(Path::new("never opened"), 16 << 30, 64 << 30);
    let of = |cores| write_buffer_bytes_max(&StoreConfig { cores, ..config.clone() }, &file).unwrap();
    assert!(of(1) <= of(24) && of(24) < of(100), "{} {} {}", of(1), of(24), of(100));
}

#[test]
fn changes_while_reading_the_file_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let mut opened = open(&path, 8 << 20, 64 << 20, NOW_S);
    for number in 0..400 {
        insert(&mut opened.shards[0], number, NOW_S + 500);
        if number % 50 == 0 {
            wait(&mut opened.shards[0]);
        }
    }
    wait(&mut opened.shards[0]);
    let mut sequences: BTreeSet<u64> = BTreeSet::new();
    for number in 0..400 {
        sequences.insert(find(&mut opened.shards[0], &opened.log, number, NOW_S).unwrap().1);
    }
    let FileStore { shards, log, .. } = opened;
    log.crash();
    drop(shards);

    let (config, file) = configs(&path, 8 << 20, 64 << 20);
    let UnreadStore { store, mut shards, start, may_go_ahead, .. } = begin_on_file(&config, &file).unwrap();
    assert!(may_go_ahead);
    let shard = &mut shards[0];
    assert!(shard.is_warming() && store.usage().file_warming == 1);
    // Objects 0 to 99 are stored with another expiry, 80 to 149 are dropped. Some are evicted again by later
    // ones.
    for number in 0..100 {
        assert!(shard.find_on_file(shard.store().hash(&key(number)), NOW_S).is_none());
        insert(shard, number, NOW_S + 700);
    }
    for number in 80..150 {
        shard.unlink(shard.store().hash(&key(number)), &key(number));
    }
    let promise = shard.promise();
    for number in 1000..2500 {
        insert(shard, number, NOW_S + 500);
    }
    assert!(store.usage().evictions > 0);
    let StoreContents { log, tiers, recovered, objects } = start.read(NOW_S).unwrap();
    assert_eq!((recovered.live, objects), (400, 400));
    for tier in tiers {
        shard.put_on_file(tier);
    }
    // Before the changes are processed, no outdated object is found.
    for number in 0..150 {
        assert!(shard.find_on_file(shard.store().hash(&key(number)), NOW_S).is_none(), "{number}");
    }
    assert!(shard.find_on_file(shard.store().hash(&key(150)), NOW_S).is_some());
    while shard.is_warming() {
        shard.copy_to_file();
        std::thread::yield_now();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(promise.kept()).unwrap();
    assert_eq!((store.usage().file_warming, store.usage().file_lost), (0, 0));
    check_after_warming(shard, &log, &sequences);
    shard.invariants();
    wait(shard);
    log.crash();
    drop(shards);
    let mut opened = open(&path, 8 << 20, 64 << 20, NOW_S);
    check_after_warming(&mut opened.shards[0], &opened.log, &sequences);
}

fn check_after_warming(shard: &mut Shard, log: &Log, sequences: &BTreeSet<u64>) {
    for number in 0..400 {
        let found = find(shard, log, number, NOW_S);
        let expires_s = |shard: &Shard| {
            shard
                .lookup_owned(shard.store().hash(&key(number)), &key(number))
                .map(|object| object.expires_s())
        };
        match number {
            // Evicted before it was on the file: a miss, and not the outdated object.
            0..80 => {
                assert!(expires_s(shard).is_none_or(|expires_s| expires_s == NOW_S + 700), "{number}");
                assert!(found.is_none_or(|(_, sequence)| !sequences.contains(&sequence)), "{number}");
            }
            80..150 => assert!(found.is_none(), "{number} was dropped and is back"),
            _ => {
                assert_eq!(expires_s(shard), Some(NOW_S + 500));
                assert!(sequences.contains(&found.unwrap().1));
            }
        }
    }
}

#[test]
fn a_failed_start_keeps_but_ignores_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let mut opened = open(&path, 8 << 20, 64 << 20, NOW_S);
    insert(&mut opened.shards[0], 1, NOW_S + 500);
    drop(opened.shards);
    drop(opened.log);
    let (config, file) = configs(&path, 8 << 20, 64 << 20);
    let UnreadStore { store, mut shards, start, .. } = begin_on_file(&config, &file).unwrap();
    start.stopper().store(true, std::sync::atomic::Ordering::Relaxed);
    let hash = shards[0].store().hash(&key(1));
    shards[0].unlink(hash, &key(1));
    let promise = shards[0].promise();
    assert!(matches!(start.read(NOW_S), Err(OpenOnFileError::Start { .. })));
    shards[0].go_without_file();
    insert(&mut shards[0], 2, NOW_S + 500);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert!(runtime.block_on(promise.kept()).is_err(), "nothing of it is on the file");
    assert_eq!((store.usage().file_warming, store.usage().file_lost), (0, 1));
    drop(shards);
    let mut opened = open(&path, 8 << 20, 64 << 20, NOW_S);
    assert!(find(&mut opened.shards[0], &opened.log, 1, NOW_S).is_some());
}

#[test]
fn second_request_admission_keeps_only_repeated_objects() {
    let directory = tempfile::tempdir().unwrap();
    let (config, file) = configs(&directory.path().join("store"), 8 << 20, 64 << 20);
    let file = FileConfig { admission: Admission::SecondRequest, ..file };
    let mut opened = open_on_file(&config, &file, NOW_S).unwrap();
    let shard = &mut opened.shards[0];
    for number in 0..100 {
        insert(shard, number, NOW_S + 500);
    }
    shard.copy_to_file();
    let usage = opened.store.usage();
    assert_eq!((usage.file_kept, usage.file_not_admitted), (0, 100));
    // A hit counts as a second request.
    for number in 0..10 {
        assert!(shard.lookup_owned(shard.store().hash(&key(number)), &key(number)).is_some());
    }
    while shard.copy_to_file() {}
    assert_eq!(opened.store.usage().file_kept, 10);
    // An object that replaces one on the file is written at once.
    assert!(shard.refresh(shard.store().hash(&key(3)), &key(3), NOW_S + 600));
    assert_eq!(opened.store.usage().file_kept, 11);
    // A fetch after an eviction (or a drop) also counts as a second request, while the hash is remembered.
    for number in 50..60 {
        assert!(shard.unlink(shard.store().hash(&key(number)), &key(number)));
        insert(shard, number, NOW_S + 500);
    }
    assert_eq!(opened.store.usage().file_kept, 21);
    // A scan that evicts everything else from memory writes nothing to the file.
    for number in 10_000..12_000 {
        insert(shard, number, NOW_S + 500);
    }
    let usage = opened.store.usage();
    assert!(usage.evictions > 500, "{usage:?}");
    assert_eq!((usage.file_kept, usage.file_refused), (21, 0), "{usage:?}");
    for number in (0..10).chain(50..60) {
        assert_eq!(find(shard, &opened.log, number, NOW_S).unwrap().0, body(number), "{number}");
    }
    shard.invariants();
}

/// With directory memory for few objects the newest are known. An object crowded out does not come back, even
/// at a later start with more memory, after a purge that did not find it.
#[test]
fn who_was_crowded_out_is_gone_for_good() {
    const OBJECTS_MAX: u64 = 10_240;
    const OBJECTS: u32 = 15_000;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let (config, file) = configs(&path, 8 << 20, 128 << 20);
    let bounded = FileConfig { objects_max: OBJECTS_MAX, ..file.clone() };
    let mut opened = open_on_file(&config, &bounded, NOW_S).unwrap();
    let small = |store: &engine::store::Store, shard: &mut Shard, number: u32| {
        let key = key(number);
        let hash = store.hash(&key);
        let new = NewObject {
            expires_s: NOW_S + 500,
            now_s: NOW_S,
            ..NewObject::bare(hash, &key, BodyLength::Exact(4))
        };
        shard.insert(new, b"body", b"").unwrap();
    };
    for number in 0..OBJECTS {
        small(&opened.store, &mut opened.shards[0], number);
        if number % 1000 == 0 {
            wait(&mut opened.shards[0]);
        }
    }
    wait(&mut opened.shards[0]);
    let usage = opened.store.usage();
    assert_eq!((usage.file_refused, usage.file_objects + usage.file_crowded_out), (0, OBJECTS.into()));
    assert!(usage.file_objects <= OBJECTS_MAX && usage.file_objects > OBJECTS_MAX * 9 / 10, "{usage:?}");
    let mut known = |number| {
        let hash = opened.store.hash(&key(number));
        opened.shards[0].find_on_file(hash, NOW_S).is_some()
    };
    let there: Vec<bool> = (0..OBJECTS).map(&mut known).collect();
    let count = |part: &[bool]| part.iter().filter(|known| **known).count();
    let (old, new) = there.split_at(there.len() / 2);
    assert!(count(new) > 2 * count(old), "{} of the older half, {} of the newer", count(old), count(new));
    let FileStore { shards, log, .. } = opened;
    drop((shards, log));

    let mut opened = open_on_file(&config, &file, NOW_S).unwrap();
    assert_eq!(opened.store.usage().file_objects, usage.file_objects);
    for (number, was_there) in there.into_iter().enumerate() {
        let hash = opened.store.hash(&key(number as u32));
        assert_eq!(opened.shards[0].find_on_file(hash, NOW_S).is_some(), was_there, "object {number}");
    }
}
