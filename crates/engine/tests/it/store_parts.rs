//! Objects in parts are kept whole or not at all, on a simulated disk, in simulated time.
//!
//! After each kill or loss of power, a found object must have all its parts and every byte of them, of the
//! last stored version; and an object whose list was acknowledged as written must be found. `PARTS_RUNS` sets
//! the number of seeded runs (`make soak`).

#![cfg(not(feature = "loom"))]

use std::{collections::BTreeMap, sync::Arc};

use crate::common::Random;
use engine::{
    log::{FileOptions, Header, Log, LogRecovery, Options, format::SEGMENTS_AT, simulated::SimulatedDisk},
    store::{
        BodyLength, Hash, NewHead, NewObject, Shard, Store, StoreConfig,
        tier::{PartsList, WRITERS_PER_CORE, image::RecordImage, open_stepped},
    },
};

const SEGMENT_BYTES: u64 = 64 << 10;
const SEGMENTS: u64 = 40;
const NOW_S: u32 = 1000;
/// Lifetimes of each class, so that a replacement is in another segment than the object it replaces.
const LIFETIMES_S: [u32; 3] = [50, 3000, 100_000];
/// Number of keys that are stored, replaced and dropped.
const KEYS: usize = 5;

fn key(number: usize) -> Vec<u8> {
    format!("film {number}").into_bytes()
}

/// Returns an object's head of a generation; heads of different generations differ in length.
fn head(generation: u64) -> Vec<u8> {
    format!("head {generation}").repeat(1 + generation as usize % 7).into_bytes()
}

fn byte(version: u64, at: u64) -> u8 {
    ((at ^ version.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn body(version: u64, len: u64) -> Vec<u8> {
    (0..len).map(|at| byte(version, at)).collect()
}

/// Returns the length of a version: one record, or one to five parts.
fn len_of(version: u64) -> u64 {
    match version % 6 {
        0 => 1000 + version,
        1 => 65_000 + version,
        2 | 3 => 20_000 + version * 101 % 30_000,
        _ => 130_000 + version * 3001 % 190_000,
    }
}

struct Run {
    random: Random,
    disk: SimulatedDisk,
    header: Option<Header>,
    /// Shards are dropped before the log, as in a program.
    opened: Option<(Arc<Store>, Vec<Shard>, Log)>,
    /// Version last stored under each key; `None`: dropped.
    last: BTreeMap<usize, Option<u64>>,
    /// Generation of each key's latest head.
    heads: BTreeMap<usize, u64>,
    next_version: u64,
    whole: u64,
    heads_alone: u64,
    /// True after a crash before which not everything was written.
    may_be_older: bool,
    crashes: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut run = Self {
            random: Random::new(seed),
            disk: SimulatedDisk::new(SEGMENTS_AT + SEGMENTS * SEGMENT_BYTES),
            header: None,
            opened: None,
            last: BTreeMap::new(),
            heads: BTreeMap::new(),
            next_version: 1,
            whole: 0,
            heads_alone: 0,
            may_be_older: false,
            crashes: 0,
        };
        run.start();
        run
    }

    fn start(&mut self) {
        let options = Options {
            file: FileOptions {
                purpose: "cache",
                bytes: SEGMENTS_AT + SEGMENTS * SEGMENT_BYTES,
                segment_bytes: Some(SEGMENT_BYTES as u32),
                ..FileOptions::default()
            },
            writers: WRITERS_PER_CORE,
            unwritten_bytes_max: 8 * SEGMENT_BYTES,
            keep_free: 4,
            ..Options::default()
        };
        let opening = LogRecovery::on(Arc::new(self.disk.clone()), self.header, options).unwrap();
        self.header = Some(*opening.header());
        // Some of the objects fit into memory and are copied from there, the others go to the file as they
        // arrive.
        let config = StoreConfig {
            capacity_bytes: 4 << 20,
            object_bytes_max: Some(200_000),
            ..StoreConfig::default()
        };
        self.opened = Some(open_stepped(&config, opening, NOW_S).unwrap());
    }

    fn hash(&self, key: &[u8]) -> Hash {
        self.opened.as_ref().unwrap().0.hash(key)
    }

    fn parts(&mut self) -> (&mut Shard, &mut Log) {
        let (_, shards, log) = self.opened.as_mut().unwrap();
        (&mut shards[0], log)
    }

    /// Runs the steps of housekeeping and helpers this many times.
    fn turn(&mut self, times: usize) {
        let (shard, log) = self.parts();
        for _ in 0..times {
            shard.copy_to_file();
            log.turn();
        }
    }

    fn store(&mut self, number: usize) {
        let version = self.next_version;
        self.next_version += 1;
        let (key, body) = (key(number), body(version, len_of(version)));
        let turns = self.random.below(3);
        let new = NewObject {
            hash: self.hash(&key),
            key: &key,
            head: &head(0),
            extra: b"",
            meta: [version, 0, 0, 0, 0, 0, 0, 0],
            body: BodyLength::Exact(body.len() as u64),
            expires_s: NOW_S + LIFETIMES_S[version as usize % LIFETIMES_S.len()],
            now_s: NOW_S,
        };
        let (shard, _) = self.parts();
        if body.len() as u64 <= shard.store().object_bytes_max() {
            shard.insert(new, &body, b"").unwrap();
            self.stored(number, version);
            return;
        }
        let Some(mut filling) = shard.begin_large(&new) else { panic!("the file takes it") };
        let mut at = 0;
        while filling.next_bytes() > 0 {
            let end = at + filling.next_bytes();
            let (shard, _) = self.parts();
            if shard.append_part(&mut filling, &body[at..end]).is_ok() {
                at = end;
            } else if self.random.below(20) == 0 {
                // Abandoned: the object stored before stays.
                return;
            }
            self.turn(turns);
        }
        let mut filling = Some(filling);
        for _ in 0..100 {
            let (shard, _) = self.parts();
            if shard.finish_large(&mut filling).is_ok() {
                self.stored(number, version);
                return;
            }
            self.turn(1);
        }
        panic!("the log has no room for a list");
    }

    fn stored(&mut self, number: usize, version: u64) {
        self.last.insert(number, Some(version));
        self.heads.insert(number, 0);
    }

    /// Returns the version of an object after comparing each byte of it.
    fn read(&mut self, number: usize) -> Option<u64> {
        let key = key(number);
        let hash = self.hash(&key);
        let (shard, log) = self.parts();
        if shard.lookup_owned(hash, &key).is_none() {
            let cold = shard.find_on_file(hash, NOW_S)?;
            let Ok(record) = log.reader().read(cold.location, cold.payload_bytes as usize) else {
                // After a loss of power a table may exist without its records.
                shard.damaged(hash, cold.location);
                return None;
            };
            let own = RecordImage::parse(cold, record.payload()).unwrap();
            let head = match shard.cold_head(hash) {
                None => None,
                Some(at) => match log.reader().read(at.location, at.payload_bytes as usize) {
                    Ok(record) => Some((at, record)),
                    Err(_) => {
                        shard.damaged(hash, at.location);
                        assert!(shard.find_on_file(hash, NOW_S).is_none());
                        return None;
                    }
                },
            };
            // A body cannot be restored without its newer head.
            assert!(head.is_none() || !shard.restore(hash, &key, &own, None, NOW_S).unwrap());
            let head = head.as_ref().map(|(at, record)| RecordImage::parse(*at, record.payload()).unwrap());
            self.heads_alone += u64::from(head.is_some());
            let (shard, _) = self.opened.as_mut().map(|(_, shards, log)| (&mut shards[0], log)).unwrap();
            if !shard.restore(hash, &key, &own, head.as_ref(), NOW_S).unwrap() {
                return None;
            }
        }
        let (shard, log) = self.opened.as_mut().map(|(_, shards, log)| (&mut shards[0], log)).unwrap();
        let object = shard.lookup_owned(hash, &key).unwrap();
        let [version, generation, ..] = object.meta();
        assert!(object.head().eq(&head(generation)), "a head and the words of another");
        let last_head = self.heads.insert(number, generation);
        let mut found = Vec::new();
        match object.parts() {
            Some(list) => {
                let id = list.id();
                if !read_parts(&list, log, &mut found) {
                    // A segment was given up meanwhile.
                    shard.lost_part(hash, &key, id);
                    assert!(shard.lookup_owned(hash, &key).is_none());
                    return None;
                }
            }
            None => {
                while (found.len() as u64) < object.body_bytes() {
                    object.body(found.len() as u64).copy_to(&mut found);
                }
            }
        }
        assert!(found == body(version, len_of(version)), "version {version} of {number} has other bytes");
        self.whole += 1;
        let is_last = self.last.get(&number).copied().flatten() == Some(version);
        assert!(
            self.may_be_older || !is_last || last_head == Some(generation),
            "{number} has head {generation} and was given {last_head:?}"
        );
        Some(version)
    }

    /// Replaces the head of an object, as after a 304.
    fn replace_head(&mut self, number: usize) {
        let Some(version) = self.read(number) else { return };
        let (key, generation) = (key(number), self.heads[&number] + 1);
        let (hash, lifetime_s) = (self.hash(&key), LIFETIMES_S[self.random.below(LIFETIMES_S.len())]);
        let new = NewHead {
            head: &head(generation),
            extra: &[],
            meta: [version, generation, 0, 0, 0, 0, 0, 0],
            expires_s: NOW_S + lifetime_s,
        };
        assert!(self.parts().0.replace_head(hash, &key, new).unwrap());
        self.heads.insert(number, generation);
        assert_eq!(self.read(number), Some(version));
    }

    fn step(&mut self) {
        let number = self.random.below(KEYS);
        match self.random.below(13) {
            0..4 => self.store(number),
            4 => {
                let key = key(number);
                let hash = self.hash(&key);
                self.parts().0.unlink(hash, &key);
                self.last.insert(number, None);
            }
            5 | 6 => {
                let version = self.read(number);
                let last = self.last.get(&number).copied().flatten();
                assert!(version.is_none() || version == last, "{version:?} of {number} in place of {last:?}");
            }
            7 if self.random.below(4) == 0 => self.crash(),
            10.. => self.replace_head(number),
            _ => {
                let turns = self.random.below(12);
                self.turn(turns);
            }
        }
        if self.random.below(50) == 0 {
            self.parts().0.invariants();
        }
    }

    fn crash(&mut self) {
        self.crashes += 1;
        let is_power = self.random.below(2) == 0;
        // Sometimes everything is written before; it must then survive a kill.
        let is_settled = self.random.below(2) == 0;
        if is_settled {
            self.turn(60);
        }
        let before: Vec<(usize, bool)> = (0..KEYS).map(|number| (number, self.is_on_file(number))).collect();
        let (_, shards, log) = self.opened.take().unwrap();
        // The log crashes before its writers are dropped, so that segments sealed by the drop are not
        // written.
        log.crash();
        drop(shards);
        let random = &mut self.random;
        self.disk = if is_power {
            self.disk.after_power_loss(|states| random.below(states))
        } else {
            self.disk.after_kill()
        };
        self.start();
        self.may_be_older = !is_settled || is_power;
        for (number, was_on_file) in before {
            let version = self.read(number);
            let last = self.last.get(&number).copied().flatten();
            if is_settled && !is_power {
                assert!(version.is_none() || version == last, "{version:?} of {number} in place of {last:?}");
                assert!(version.is_some() || !was_on_file, "{number} was on the file and is lost");
            }
            // An older version may be back, whole, if its deletion or its replacement was not written yet.
            self.last.insert(number, version);
        }
        self.may_be_older = false;
        // Unclaimed parts are dead: the live bytes are those of the objects that exist.
        let live = self.parts().1.usage().live_bytes;
        let claimed: u64 = self.last.values().flatten().map(|version| len_of(*version) + 4096).sum();
        // The log's own deletions take some bytes; a part would take more.
        assert!(live <= claimed + SEGMENT_BYTES / 2, "{live} bytes are live, and {claimed} are claimed");
    }

    /// Returns whether the directory has an object with all its parts.
    fn is_on_file(&mut self, number: usize) -> bool {
        let hash = self.hash(&key(number));
        self.parts().0.find_on_file(hash, NOW_S).is_some()
    }
}

fn read_parts(list: &PartsList, log: &Log, found: &mut Vec<u8>) -> bool {
    for number in 0..=list.number_at(list.body_bytes() - 1) {
        let part = list.part(number).unwrap();
        let Ok(record) = log.reader().read(part.cold.location, part.cold.payload_bytes as usize) else {
            return false;
        };
        found.extend_from_slice(list.body_of(number, record.payload()).unwrap());
    }
    true
}

#[test]
fn an_object_in_parts_is_whole_or_absent() {
    let runs = std::env::var("PARTS_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(6);
    let (mut whole, mut crashes, mut heads_alone) = (0, 0, 0);
    for seed in 1..=runs {
        let mut run = Run::new(seed);
        (0..400).for_each(|_| run.step());
        (whole, crashes) = (whole + run.whole, crashes + run.crashes);
        heads_alone += run.heads_alone;
    }
    assert!(heads_alone > runs, "{heads_alone} objects came back with a younger head");
    assert!(whole > 10 * runs && crashes > runs, "{whole} objects were read over {crashes} crashes");
}
