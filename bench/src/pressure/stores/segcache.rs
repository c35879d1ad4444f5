//! Segcache (Yang, Yue, Vigfusson, NSDI 2021) in its authors' Rust version: memory only.

use std::io;
use std::time::Duration;

use segcache::{Policy, Segcache, Value};

use super::{Contender, Location, Replay, ReplayCounter, Task, checked_body, key, make};

/// Segment size, the default of Segcache's own server.
const SEGMENT_BYTES: i32 = 1 << 20;
/// Minimum size of the hash table, as a power of two.
const HASH_POWER_MIN: u8 = 16;
const LIFETIME: Duration = Duration::from_secs(1_000_000);

pub(super) fn replayed(task: &Task) -> io::Result<Replay> {
    let mut counting = ReplayCounter::new(task);
    let policy = match task.contender {
        Contender::SegcacheMerge => Policy::Merge { max: 8, merge: 4, compact: 2 },
        _ => Policy::S3Fifo { admission_ratio: 0.1 },
    };
    // Seven eighths of the table's slots are for objects. The table has room for twice the objects that fit
    // the memory, so that it refuses none.
    let objects = task.memory_bytes / super::OBJECT_BYTES;
    let power = (0..32).find(|power| 1_u64 << power > objects * 8 / 7 * 2).unwrap_or(HASH_POWER_MIN);
    let cache = Segcache::builder()
        .heap_size(usize::try_from(task.memory_bytes).map_err(io::Error::other)?)
        .segment_size(SEGMENT_BYTES)
        .hash_power(power.max(HASH_POWER_MIN))
        .eviction(policy)
        .build()?;
    let (mut body, mut refused) = (Vec::new(), 0_u64);
    for id in task.ids() {
        let key = key(id);
        let found = match cache.get(&key) {
            Some(item) => {
                let Value::Bytes(bytes) = item.value() else {
                    return Err(io::Error::other("a body came back as a number"));
                };
                checked_body(id, bytes)?;
                Location::InMemory
            }
            None => Location::Nowhere,
        };
        if found == Location::Nowhere {
            make(id, &mut body);
            refused += u64::from(cache.insert(&key, body.as_slice(), None, LIFETIME).is_err());
        }
        counting.answered(found)?;
    }
    let remark = (refused > 0).then(|| format!("{refused} objects refused"));
    Ok(counting.end(task, remark))
}
