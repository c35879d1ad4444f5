//! `--scenario resident`: the cost of a hit in memory, compared with reading the same bytes at a known
//! address.
//!
//! ```text
//!   unchecked: place[number] ─▶ copy           the bytes lie one after the other, each place is known
//!   hit:       key (at hand) ─▶ hash ─▶ index ─▶ record, key compared ─▶ copy
//! ```
//! Both copy the body to the same buffer, in the same order of objects, in alternating rounds. The measure is
//! the thread's CPU time, so another load on the machine does not count (except for its use of the CPU
//! caches).

use std::hint::black_box;
use std::io;

use engine::store::{BodyLength, Hash, Lookup, NewObject, Reader, StoreConfig, open_anon};
use engine::sys::span::WordBuffer;
use lab::paired::spread::Draws;
use lab::pressure::requests::Requests;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::pressure::stores::key;

/// Body size of a small object.
const BODY_BYTES: usize = 1024;
/// Maximum size of a record's header and padding.
const BESIDE_BYTES: u64 = 192;
const ROUNDS: usize = 7;
const LOOKUPS: usize = 1_000_000;
const LOOKUPS_QUICK: usize = 10_000;
const SEED: u64 = 7;
/// Seed of the store's hash, fixed so that runs are comparable.
const HASH_SEED: u64 = 0x5eed;

/// Results for one number of objects in one order of requests.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Resident {
    pub(crate) objects: u64,
    pub(crate) order: &'static str,
    /// Nanoseconds per unchecked read and per hit, for each round.
    pub(crate) unchecked_ns: Vec<f64>,
    pub(crate) hit_ns: Vec<f64>,
}

/// Measures with a thousand hot objects, and with as many objects as fit a store of 256 MiB.
pub(crate) fn run(quick: bool) -> io::Result<Vec<Resident>> {
    println!("resident hits …");
    let mut found = Vec::new();
    for objects in if quick { [1_000, 5_000] } else { [1_000, 200_000] } {
        found.extend(population(objects, if quick { LOOKUPS_QUICK } else { LOOKUPS })?);
    }
    Ok(found)
}

fn population(objects: u64, lookups: usize) -> io::Result<Vec<Resident>> {
    let capacity_bytes = (objects * (BODY_BYTES as u64 + BESIDE_BYTES) * 5 / 4).max(16 << 20);
    let config = StoreConfig { capacity_bytes, hash_seed: Some(HASH_SEED), ..StoreConfig::default() };
    let (store, mut shards) = open_anon(&config).map_err(io::Error::other)?;
    let shard = shards.first_mut().ok_or_else(|| io::Error::other("no shard"))?;
    let body = vec![b'x'; BODY_BYTES];
    for id in 0..objects {
        let key = key(id);
        let new = NewObject {
            expires_s: 1_000_000,
            ..NewObject::bare(Hash::seeded(&key, HASH_SEED), &key, BodyLength::Exact(BODY_BYTES as u64))
        };
        shard.insert(new, &body, b"").map_err(io::Error::other)?;
    }
    let flat = WordBuffer::new(objects as usize * BODY_BYTES);
    flat.span().write_from(&vec![b'x'; objects as usize * BODY_BYTES]);
    let reader = store.reader(0);
    let mut draws = Draws::new(SEED);
    let evenly: Vec<u64> = (0..lookups).map(|_| draws.below(objects as usize) as u64).collect();
    let zipf: Vec<u64> = Requests::new(objects, SEED).filter(|id| *id < objects).take(lookups).collect();
    [("evenly", evenly), ("by Zipf", zipf)]
        .into_iter()
        .map(|(order, numbers)| {
            // The keys are made in advance, because making one is not part of a hit.
            let asked: Vec<Key> = numbers.into_iter().map(|number| (number, key(number))).collect();
            let mut found = Resident { objects, order, unchecked_ns: Vec::new(), hit_ns: Vec::new() };
            for _ in 0..ROUNDS {
                found.unchecked_ns.push(each_ns(&asked, |(number, _), out| {
                    let at = *number as usize * BODY_BYTES;
                    flat.span().slice(at..at + BODY_BYTES).copy_to(out);
                    true
                })?);
                found.hit_ns.push(each_ns(&asked, |(_, key), out| hit(&reader, key, out))?);
            }
            Ok(found)
        })
        .collect()
}

fn hit(reader: &Reader, key: &[u8], out: &mut Vec<u8>) -> bool {
    match reader.turn().lookup(Hash::seeded(key, HASH_SEED), key) {
        Lookup::Hit(object) => {
            object.body(0).copy_to(out);
            true
        }
        Lookup::Miss | Lookup::Contended => false,
    }
}

/// Number of an object, and its key.
type Key = (u64, [u8; 19]);

/// Returns the nanoseconds that `read` takes on average for each of `asked`.
fn each_ns(asked: &[Key], mut read: impl FnMut(&Key, &mut Vec<u8>) -> bool) -> io::Result<f64> {
    let mut out = Vec::with_capacity(2 * BODY_BYTES);
    let (begun, mut missed) = (thread_s(), 0_u64);
    for one in asked {
        out.clear();
        missed += u64::from(!read(one, &mut out));
        black_box(&out);
    }
    let took = thread_s() - begun;
    if missed > 0 {
        return Err(io::Error::other(format!("{missed} of {} objects are not resident", asked.len())));
    }
    Ok(took * 1e9 / asked.len().max(1) as f64)
}

fn thread_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
