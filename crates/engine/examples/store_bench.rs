//! Cost of the store on one core: metadata per object, inserts and lookups per second.
//!
//! `cargo run --release -p engine --example store_bench -- [OBJECTS] [BODY_BYTES]` (default: 10 million of
//! 200 bytes). Metadata is the growth of the process without the segments in use. Speeds are per second of the
//! thread's CPU time, so that other load on the machine counts only through its use of the caches.
#![allow(clippy::expect_used, reason = "a measurement that cannot be made is to stop")]

use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};

use engine::{
    store::{BodyLength, Hash, Lookup, NewObject, Reader, Shard, StoreConfig, open_anon},
    sys::span::WordBuffer,
};

/// Seed of the random numbers, fixed so that runs can be compared.
const SEED: u64 = 0x5eed;

/// Number of requests in a batched lookup, as if they had been pipelined.
const BATCH: usize = 16;
const KEY_BYTES: usize = 16;
/// Maximum size of a record's header and padding, without key and body.
const RECORD_BYTES_BESIDE: u64 = 128;

/// Results of a run.
pub(crate) struct Outcome {
    /// Number of objects stored at the end.
    pub(crate) objects: u64,
    /// Resident bytes per object, without segments, as the kernel reports them.
    pub(crate) metadata_bytes: f64,
    /// Metadata bytes per object as the store counts them: index, expiry queue, ghosts.
    pub(crate) accounted_bytes: f64,
    /// Part of `accounted_bytes` that the index takes.
    pub(crate) index_bytes: f64,
    /// Inserts per second into fresh memory, which the kernel has to clear first.
    pub(crate) inserts: f64,
    /// Share of the time of `inserts` that was spent in the kernel.
    pub(crate) kernel_share: f64,
    /// Inserts per second into a full store, each of which evicts another object.
    pub(crate) inserts_full: f64,
    /// Name and lookups per second of each kind.
    pub(crate) lookups: Vec<(&'static str, f64)>,
    /// Number of lookups that missed; must be 0.
    pub(crate) misses: u64,
}

fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = *b"/object/00000000";
    let mut rest = number;
    for digit in key[8..].iter_mut().rev() {
        *digit = b"0123456789abcdef"[(rest & 15) as usize];
        rest >>= 4;
    }
    key
}

/// Seconds of processor time that this thread has used.
fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The kernel's part of it: clearing fresh memory.
fn kernel_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("proc is mounted");
    // proc(5): the name in parentheses is field 2, stime is field 15, in hundredths of a second.
    let fields = stat.rsplit(')').next().expect("stat has a name");
    let ticks: u64 =
        fields.split(' ').nth(13).and_then(|ticks| ticks.parse().ok()).expect("stat has its fields");
    ticks as f64 / 100.0
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("proc is mounted");
    let pages: u64 =
        statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("statm has its fields");
    pages * 4096
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Ranks by Zipf with exponent 0.99 (Gray et al., "Quickly generating billion-record synthetic databases", 1994).
fn zipf(objects: u64, count: usize, random: &mut Random) -> Vec<u32> {
    let theta = 0.99_f64;
    let zeta = |n: u64| (1..=n).map(|rank| (rank as f64).powf(-theta)).sum::<f64>();
    let (all, two) = (zeta(objects), zeta(2));
    let alpha = 1.0 / (1.0 - theta);
    let eta = (1.0 - (2.0 / objects as f64).powf(1.0 - theta)) / (1.0 - two / all);
    (0..count)
        .map(|_| {
            let u = (random.next() >> 11) as f64 / (1_u64 << 53) as f64;
            let uz = u * all;
            let rank = if uz < 1.0 {
                0
            } else if uz < two {
                1
            } else {
                (objects as f64 * (eta * u - eta + 1.0).powf(alpha)) as u64
            };
            // Neighbours in rank are not neighbours in memory.
            (rank.min(objects - 1).wrapping_mul(0x9e37_79b1) % objects) as u32
        })
        .collect()
}

fn single(reader: &Reader, numbers: &[u32]) -> u64 {
    let mut misses = 0;
    for number in numbers {
        let key = key(u64::from(*number));
        let turn = reader.turn();
        match turn.lookup(Hash::seeded(&key, SEED), &key) {
            Lookup::Hit(hit) => {
                black_box(hit.body_bytes());
            }
            Lookup::Miss | Lookup::Contended => misses += 1,
        }
    }
    misses
}

fn batched(reader: &Reader, numbers: &[u32]) -> u64 {
    let mut misses = 0;
    for batch in numbers.as_chunks::<BATCH>().0 {
        let keys = batch.map(|number| key(u64::from(number)));
        let hashes = keys.each_ref().map(|key| Hash::seeded(key, SEED));
        let turn = reader.turn();
        hashes.iter().for_each(|hash| turn.prefetch(*hash));
        hashes.iter().for_each(|hash| turn.prefetch_record(*hash));
        for (hash, key) in hashes.iter().zip(&keys) {
            match turn.lookup(*hash, key) {
                Lookup::Hit(hit) => {
                    black_box(hit.body_bytes());
                }
                Lookup::Miss | Lookup::Contended => misses += 1,
            }
        }
    }
    misses
}

/// Nanoseconds to append 1200 bytes of shared words, from an odd place, to a buffer.
pub(crate) fn copy_ns(times: u32) -> f64 {
    let buffer = WordBuffer::new(2048);
    let span = buffer.span().slice(3..1203);
    let mut out = Vec::with_capacity(2048);
    let begun = processor_s();
    for _ in 0..times {
        out.clear();
        black_box(span).copy_to(&mut out);
        black_box(&out);
    }
    (processor_s() - begun) * 1e9 / f64::from(times)
}

/// Fills a store of one core with `objects` objects and looks `lookups` of them up, each way.
pub(crate) fn run(objects: u64, body_bytes: usize, lookups: usize) -> Outcome {
    let capacity_bytes =
        (objects * (KEY_BYTES as u64 + body_bytes as u64 + RECORD_BYTES_BESIDE) * 9 / 8).max(16 << 20);
    let config = StoreConfig {
        capacity_bytes,
        segment_bytes: None,
        object_bytes_max: None,
        cores: 1,
        hash_seed: Some(SEED),
    };
    let body = vec![b'x'; body_bytes];
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let uniform: Vec<u32> = (0..lookups).map(|_| random.below(objects) as u32).collect();
    let by_zipf = zipf(objects, lookups, &mut random);

    let insert = |shard: &mut Shard, number: u64, random: &mut Random| {
        let key = key(number);
        let object = NewObject {
            expires_s: 1000 + (random.next() % 100_000) as u32,
            ..NewObject::bare(Hash::seeded(&key, SEED), &key, BodyLength::Exact(body_bytes as u64))
        };
        shard.insert(object, &body, b"").expect("there is room");
    };
    let before = resident_bytes();
    let (store, mut shards) = open_anon(&config).expect("the store opens");
    let shard = &mut shards[0];
    let begun = processor_s();
    let kernel_begun = kernel_s();
    (0..objects).for_each(|number| insert(shard, number, &mut random));
    let taken = processor_s() - begun;
    let inserts = objects as f64 / taken;
    let kernel_share = (kernel_s() - kernel_begun) / taken;

    let reader = store.reader(0);
    let mut misses = 0;
    let mut measure = |name, numbers: &[u32], look: fn(&Reader, &[u32]) -> u64| {
        let begun = processor_s();
        misses += look(&reader, numbers);
        (name, numbers.len() as f64 / (processor_s() - begun))
    };
    let lookups = vec![
        measure("uniform, one a turn", &uniform, single),
        measure("uniform, 16 a turn, hinted", &uniform, batched),
        measure("Zipf 0.99, one a turn", &by_zipf, single),
        measure("Zipf 0.99, 16 a turn, hinted", &by_zipf, batched),
    ];
    // After the lookups, so that visited bits count.
    let usage = store.usage();
    let segments = (usage.capacity_bytes / store.segment_bytes() as u64 - usage.segments_free)
        * store.segment_bytes() as u64;
    let grown = resident_bytes().saturating_sub(before).saturating_sub(segments);
    let accounted = usage.index_bytes + usage.ghost_bytes + 8 * usage.expiry_entries;
    // New objects until the segments have been through at least half a cycle.
    let fresh = objects / 4;
    (0..fresh).for_each(|number| insert(shard, objects + number, &mut random));
    let begun = processor_s();
    (fresh..2 * fresh).for_each(|number| insert(shard, objects + number, &mut random));
    let inserts_full = fresh as f64 / (processor_s() - begun);
    Outcome {
        objects: usage.objects,
        metadata_bytes: grown as f64 / objects as f64,
        accounted_bytes: accounted as f64 / objects as f64,
        index_bytes: usage.index_bytes as f64 / objects as f64,
        inserts,
        kernel_share,
        inserts_full,
        lookups,
        misses,
    }
}

#[allow(dead_code, reason = "a test takes the file as a module")]
#[expect(clippy::print_stdout, reason = "this is what it is for")]
fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse().expect("a number"));
    let objects = arguments.next().unwrap_or(10_000_000);
    let body_bytes = arguments.next().unwrap_or(200);
    let outcome = run(objects, body_bytes as usize, 10_000_000);
    println!("objects                       {:>12}   ({body_bytes} bytes each)", outcome.objects);
    println!("metadata, resident            {:>12.1}   bytes an object", outcome.metadata_bytes);
    println!("metadata, accounted           {:>12.1}   bytes an object", outcome.accounted_bytes);
    println!("  of these the index          {:>12.1}", outcome.index_bytes);
    println!("inserts, fresh memory         {:>12.2}   million a second", outcome.inserts / 1e6);
    println!("  of the time the kernel      {:>12.0}   %", outcome.kernel_share * 100.0);
    println!("inserts, full store           {:>12.2}   million a second", outcome.inserts_full / 1e6);
    for (name, lookups) in &outcome.lookups {
        println!("{name:<30}{:>12.2}   million lookups a second", lookups / 1e6);
    }
    println!("copy of 1200 bytes            {:>12.1}   ns", copy_ns(2_000_000));
    println!("misses                        {:>12}", outcome.misses);
}
