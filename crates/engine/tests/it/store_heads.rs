//! Newer heads on the file: an object is restored with its latest head and its body, or not at all.

#![cfg(not(feature = "loom"))]

use std::sync::Arc;

use engine::{
    log::{FileOptions, Header, Log, LogRecovery, Options, format::SEGMENTS_AT, simulated::SimulatedDisk},
    store::{
        BodyLength, NewHead, NewObject, Shard, StoreConfig,
        tier::{WRITERS_PER_CORE, image::RecordImage, open_stepped},
    },
};

const SEGMENT_BYTES: u64 = 256 << 10;
const SEGMENTS: u64 = 24;
const NOW_S: u32 = 1000;
const KEY: &[u8] = b"site.example\0/picture";
const BODY_BYTES: usize = 50_000;

struct Life {
    disk: SimulatedDisk,
    header: Header,
    shard: Shard,
    log: Log,
}

impl Life {
    fn begin(disk: SimulatedDisk, header: Option<Header>, now_s: u32) -> Self {
        let options = Options {
            file: FileOptions {
                purpose: "cache",
                bytes: SEGMENTS_AT + SEGMENTS * SEGMENT_BYTES,
                segment_bytes: Some(SEGMENT_BYTES as u32),
                ..FileOptions::default()
            },
            writers: WRITERS_PER_CORE,
            unwritten_bytes_max: 6 * SEGMENT_BYTES,
            keep_free: 3,
            ..Options::default()
        };
        let opening = LogRecovery::on(Arc::new(disk.clone()), header, options).unwrap();
        let header = *opening.header();
        // A body fits into one record of such segments.
        let segment_bytes = Some(SEGMENT_BYTES as u32);
        let config = StoreConfig { capacity_bytes: 4 << 20, segment_bytes, ..StoreConfig::default() };
        let (_, mut shards, log) = open_stepped(&config, opening, now_s).unwrap();
        Self { disk, header, shard: shards.remove(0), log }
    }

    fn new() -> Self {
        Self::begin(SimulatedDisk::new(SEGMENTS_AT + SEGMENTS * SEGMENT_BYTES), None, NOW_S)
    }

    /// Writes everything, then simulates a kill and a new start.
    fn killed(mut self, now_s: u32) -> Self {
        self.settle();
        let Self { disk, header, shard, log } = self;
        log.crash();
        drop(shard);
        Self::begin(disk.after_kill(), Some(header), now_s)
    }

    fn settle(&mut self) {
        for _ in 0..20 {
            self.shard.copy_to_file();
            self.log.turn();
        }
    }

    fn insert(&mut self, key: &[u8], version: u8, expires_s: u32) {
        let new = NewObject {
            hash: self.shard.store().hash(key),
            key,
            head: b"the first head",
            extra: b"extra",
            meta: [u64::from(version), 0, 0, 0, 0, 0, 0, 0],
            body: BodyLength::Unknown,
            expires_s,
            now_s: NOW_S,
        };
        self.shard.insert(new, &[version; BODY_BYTES], b"tail").unwrap();
        self.settle();
    }

    fn replace_head(&mut self, number: u64, expires_s: u32) -> bool {
        let hash = self.shard.store().hash(KEY);
        let version = self.shard.lookup_owned(hash, KEY).map_or(0, |object| object.meta()[0]);
        let head = format!("head {number}").repeat(number as usize);
        let meta = [version, number, 0, 0, 0, 0, 0, 0];
        let new = NewHead { head: head.as_bytes(), extra: b"other", meta, expires_s };
        let was_there = self.shard.replace_head(hash, KEY, new).unwrap();
        self.settle();
        was_there
    }

    /// Restores the object from the file, compares each byte, and returns its version and head number.
    fn cold(&mut self, now_s: u32) -> Option<(u8, u64)> {
        let hash = self.shard.store().hash(KEY);
        assert!(self.shard.lookup_owned(hash, KEY).is_none(), "it is in memory");
        let at = self.shard.find_on_file(hash, now_s)?;
        let read = |at: engine::store::tier::FileRecord| {
            self.log.reader().read(at.location, at.payload_bytes as usize).unwrap().payload().to_vec()
        };
        let payload = read(at);
        let head = self.shard.cold_head(hash).map(|at| (at, read(at)));
        let own = RecordImage::parse(at, &payload).unwrap();
        let head = head.as_ref().map(|(at, payload)| RecordImage::parse(*at, payload).unwrap());
        assert!(self.shard.restore(hash, KEY, &own, head.as_ref(), now_s).unwrap());
        let object = self.shard.lookup_owned(hash, KEY).unwrap();
        let (version, number) = (object.meta()[0] as u8, object.meta()[1]);
        let expected = format!("head {number}").repeat(number as usize);
        assert!(object.head().eq(if number == 0 { b"the first head" } else { expected.as_bytes() }));
        assert!(object.extra().eq(if number == 0 { b"extra" } else { b"other" }));
        assert!(object.body_bytes() == BODY_BYTES as u64 && object.body(0).eq(&[version; BODY_BYTES]));
        assert!(object.tail().eq(b"tail"));
        assert!(number == 0 || object.on_file().is_none(), "its body lies behind another head");
        self.shard.invariants();
        Some((version, number))
    }
}

#[test]
fn a_newer_head_costs_little_and_extends_lifetime() {
    let mut life = Life::new();
    life.insert(KEY, 1, NOW_S + 100);
    let before = life.log.usage().live_bytes;
    for number in 1..=5 {
        assert!(life.replace_head(number, NOW_S + 1000 * number as u32));
    }
    assert_eq!(life.shard.store().usage().file_heads, 5);
    let live = life.log.usage().live_bytes;
    assert!(live - before < 1000, "{} bytes for a head, and the older ones are dead", live - before);
    // The first record's own expiry has passed by then.
    let mut life = life.killed(NOW_S + 4000);
    assert_eq!(life.cold(NOW_S + 4000), Some((1, 5)));
    assert!(life.replace_head(6, NOW_S + 9000));
    let mut life = life.killed(NOW_S + 6000);
    assert_eq!(life.cold(NOW_S + 6000), Some((1, 6)));
    // The expiry of the last head has passed, too.
    let mut life = life.killed(NOW_S + 9000);
    assert_eq!(life.cold(NOW_S + 9000), None);
    let live = life.log.usage().live_bytes;
    assert!(live < 1000, "a body without a head is dead, and {live} bytes are more than the log's own ends");
}

#[test]
fn heads_never_revive_dropped_or_replaced_objects() {
    let mut life = Life::new();
    life.insert(KEY, 1, NOW_S + 10_000);
    life.replace_head(1, NOW_S + 20_000);
    let mut life = life.killed(NOW_S);
    let hash = life.shard.store().hash(KEY);
    assert!(life.shard.unlink(hash, KEY));
    let mut life = life.killed(NOW_S);
    assert_eq!(life.cold(NOW_S), None, "neither with its last head nor with its first");

    life.insert(KEY, 2, NOW_S + 10_000);
    life.replace_head(1, NOW_S + 20);
    life.replace_head(2, NOW_S + 20_000);
    life.insert(KEY, 3, NOW_S + 5_000);
    let mut life = life.killed(NOW_S);
    assert_eq!(life.cold(NOW_S), Some((3, 0)));
    // An expiry of a head that is earlier than the object's own also applies.
    life.replace_head(1, NOW_S + 30);
    let mut life = life.killed(NOW_S + 30);
    assert_eq!(life.cold(NOW_S + 30), None, "the first head would have been good for longer");
}

#[test]
fn no_object_returns_with_an_older_head() {
    let mut life = Life::new();
    let mut kept = 0;
    for round in 0..12_u64 {
        life.insert(KEY, 1, NOW_S + 10_000);
        // Heads of all lifetime classes, and among them enough filler to overfill the file: some segments are
        // given up with the object's record, some with a replaced head, some with the latest.
        for number in 1..=4 {
            let lifetime_s = [50, 3000, 100_000][(round + number) as usize % 3];
            assert!(life.replace_head(number, NOW_S + lifetime_s));
            for filler in 0..(round * 7 + number * 3) % 40 {
                life.insert(
                    format!("filler {filler}").as_bytes(),
                    9,
                    NOW_S + [50, 3000, 100_000][filler as usize % 3],
                );
            }
            // If the object was evicted for the filler, it is restored, or stored again.
            let hash = life.shard.store().hash(KEY);
            if life.shard.lookup_owned(hash, KEY).is_none() && life.cold(NOW_S).is_none() {
                life.insert(KEY, 1, NOW_S + 10_000);
                break;
            }
        }
        let hash = life.shard.store().hash(KEY);
        let last = life.shard.lookup_owned(hash, KEY).unwrap().meta()[1];
        life = life.killed(NOW_S);
        let found = life.cold(NOW_S);
        assert!(found.is_none() || found == Some((1, last)), "{found:?} in place of head {last}");
        kept += u32::from(found.is_some());
    }
    assert!(kept >= 4, "only {kept} of 12 came back");
}
