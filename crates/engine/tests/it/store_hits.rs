//! Hit rates of the store compared with an LRU of the same bytes, the slow twin.
//!
//! ```text
//!              popular objects stay,        popular objects
//!              a tenth come once            change all the time
//!   LRU        lets everything in           is at its best
//!   store      a small probation            a large one: objects that come back enlarge it
//! ```
#![cfg(not(feature = "loom"))]

use std::collections::{BTreeMap, HashMap};

use engine::store::{BodyLength, Hash, Lookup, NewObject, StoreConfig, open_anon};

/// Fixed seed, so that a failure is reproducible.
const SEED: u64 = 0x5eed;
const CAPACITY_BYTES: u64 = 4 << 20;
const OBJECTS: usize = 20_000;
const REQUESTS: usize = 120_000;
/// Number of requests after which other objects become popular, in the second trace.
const SHIFT_EVERY: usize = 2_000;

struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Returns object numbers distributed by Zipf's law; `scanned` percent of them are requested only once.
fn requests(is_shifting: bool, scanned: f64) -> Vec<usize> {
    let mut sum = 0.0;
    let upto: Vec<f64> = (1..=OBJECTS)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    let mut random = Random(SEED);
    (0..REQUESTS)
        .map(|number| {
            if random.unit() * 100.0 < scanned {
                return OBJECTS + number;
            }
            let share = random.unit() * sum;
            let rank = upto.partition_point(|upto| *upto < share);
            let moved = if is_shifting { number / SHIFT_EVERY * 97 } else { 0 };
            // A multiplier without a common divisor, so that neighbours in rank are not neighbours in number.
            (rank * 7_919 + moved) % OBJECTS
        })
        .collect()
}

/// Returns the size of an object, 200 bytes to 4 KiB.
fn bytes(number: usize) -> usize {
    200 + number.wrapping_mul(2_654_435_761) % 3_900
}

/// Returns the hit rate of the second half of the requests in percent.
fn hits(requests: &[usize], mut is_hit: impl FnMut(usize) -> bool) -> f64 {
    let hits = requests.iter().map(|number| is_hit(*number)).collect::<Vec<bool>>();
    let counted = &hits[hits.len() / 2..];
    counted.iter().filter(|hit| **hit).count() as f64 * 100.0 / counted.len() as f64
}

fn ours(requests: &[usize]) -> (f64, u64) {
    let config =
        StoreConfig { capacity_bytes: CAPACITY_BYTES, hash_seed: Some(SEED), ..StoreConfig::default() };
    let (store, mut shards) = open_anon(&config).unwrap();
    let reader = store.reader(0);
    let body = vec![1; 8 << 10];
    let hits = hits(requests, |number| {
        let key = number.to_le_bytes();
        let hash = Hash::seeded(&key, SEED);
        if matches!(reader.turn().lookup(hash, &key), Lookup::Hit(_)) {
            return true;
        }
        let new = NewObject {
            expires_s: 1_000_000,
            ..NewObject::bare(hash, &key, BodyLength::Exact(bytes(number) as u64))
        };
        shards[0].insert(new, &body[..bytes(number)], b"").unwrap();
        false
    });
    shards[0].invariants();
    (hits, store.usage().probation_bytes)
}

/// Returns the hit rate of an LRU, without any overhead besides the bodies.
fn lru(requests: &[usize]) -> f64 {
    let (mut at, mut order, mut used) = (HashMap::new(), BTreeMap::new(), 0);
    let mut now = 0;
    hits(requests, |number| {
        now += 1;
        let before = at.insert(number, now);
        order.insert(now, number);
        if let Some(before) = before {
            order.remove(&before);
            return true;
        }
        used += bytes(number);
        while used > CAPACITY_BYTES as usize {
            let (_, oldest) = order.pop_first().unwrap();
            at.remove(&oldest);
            used -= bytes(oldest);
        }
        false
    })
}

#[test]
fn scans_do_not_push_out_what_is_popular() {
    let requests = requests(false, 10.0);
    let ((ours, probation_bytes), lru) = (ours(&requests), lru(&requests));
    assert!(ours > lru + 5.0, "{ours:.1} of 100 where an LRU has {lru:.1}");
    assert!(probation_bytes < CAPACITY_BYTES / 10, "{probation_bytes} bytes of probation");
}

#[test]
fn what_was_popular_once_does_not_stay() {
    let requests = requests(true, 0.0);
    let ((ours, probation_bytes), lru) = (ours(&requests), lru(&requests));
    assert!(ours > lru - 0.5, "{ours:.1} of 100 where an LRU has {lru:.1}");
    assert!(probation_bytes > CAPACITY_BYTES / 5, "{probation_bytes} bytes of probation");
}
