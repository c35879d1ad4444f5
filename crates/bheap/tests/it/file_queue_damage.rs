//! Page queues in damaged, foreign and absurd files: an error or the right content, never a panic.
#![cfg(feature = "std")]

use crate::damage::damage;
use crate::memory_disk::Memory;
use crate::random::Random;
use bheap::file::{BLOCK_BYTES, Fault, FileError, FileHeap, FileQueue, FileTimers};
use bheap::layout::Binary;

const ITEMS: usize = 9_000;

fn queue() -> (Vec<u8>, Vec<u64>) {
    let disk = Memory(vec![0; FileQueue::<u64, Memory>::disk_bytes(ITEMS).unwrap()]);
    let mut queue = FileQueue::<u64, Memory>::create_on(disk, ITEMS).unwrap();
    let mut random = Random(42);
    for _ in 0..3 {
        (0..2_500).for_each(|_| queue.push(random.below(1 << 40)).unwrap());
        queue.pop();
        queue.checkpoint().unwrap();
    }
    let mut items = Vec::new();
    queue.for_each(|item| items.push(item));
    items.sort_unstable();
    (queue.into_disk().0, items)
}

fn open_queue(disk: Memory) -> Result<Vec<u64>, FileError> {
    let mut queue = FileQueue::<u64, Memory>::open_on(disk)?;
    let len = queue.len();
    let items: Vec<u64> = queue.drain().collect();
    assert_eq!(items.len(), len);
    Ok(items)
}

fn timers() -> (Vec<u8>, Vec<u64>) {
    let disk = Memory(vec![0; FileTimers::<u64, Memory>::disk_bytes(ITEMS).unwrap()]);
    let mut timers = FileTimers::<u64, Memory>::create_on(disk, ITEMS).unwrap();
    let mut random = Random(43);
    for _ in 0..3 {
        let handles: Vec<_> = (0..2_500).map(|_| timers.insert(random.below(1 << 40)).unwrap()).collect();
        handles.iter().step_by(40).for_each(|handle| timers.remove(*handle).unwrap());
        timers.pop();
        timers.checkpoint().unwrap();
    }
    let mut keys = Vec::new();
    timers.for_each(|key, _| keys.push(key));
    keys.sort_unstable();
    (timers.into_disk().0, keys)
}

fn open_timers(disk: Memory) -> Result<Vec<u64>, FileError> {
    let mut timers = FileTimers::<u64, Memory>::open_on(disk)?;
    let len = timers.len();
    let keys: Vec<u64> = timers.drain().map(|(key, _)| key).collect();
    assert_eq!(keys.len(), len);
    Ok(keys)
}

fn is_never_wrong(sample: (Vec<u8>, Vec<u64>), open: impl Fn(Memory) -> Result<Vec<u64>, FileError>) {
    let rounds: u64 = std::env::var("BHEAP_DAMAGE_ROUNDS").ok().map_or(250, |n| n.parse().unwrap());
    let (bytes, items) = sample;
    assert_eq!(open(Memory(bytes.clone())).unwrap(), items);
    let (mut right, mut refused) = (0, 0);
    for seed in 0..rounds {
        let mut random = Random(0x5DEE_CE66_D1CE_4E5B ^ seed << 17);
        let mut damaged = Memory(bytes.clone());
        for _ in 0..1 + random.index(3) {
            damage(&mut damaged.0, &mut random);
        }
        match open(damaged) {
            Ok(found) => {
                assert!(found == items, "seed {seed}: a wrong content");
                right += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(right > 0 && refused > rounds / 5, "{right} right, {refused} refused");
}

#[test]
fn damaged_page_queues_never_yield_wrong_content() {
    is_never_wrong(queue(), open_queue);
}

#[test]
fn damaged_handle_queues_never_yield_wrong_content() {
    is_never_wrong(timers(), open_timers);
}

#[test]
fn a_write_that_never_arrived_is_noticed() {
    let disk = Memory(vec![0; FileQueue::<u64, Memory>::disk_bytes(ITEMS).unwrap()]);
    let mut queue = FileQueue::<u64, Memory>::create_on(disk, ITEMS).unwrap();
    (0..5_000).for_each(|n| queue.push(n * 7919 % 10_007).unwrap());
    queue.checkpoint().unwrap();
    let before = queue.into_disk().0;
    let mut queue = FileQueue::<u64, Memory>::open_on(Memory(before.clone())).unwrap();
    (0..3_000).for_each(|n| queue.push(n * 31 % 10_007).unwrap());
    queue.checkpoint().unwrap();
    let mut items = Vec::new();
    queue.for_each(|item| items.push(item));
    items.sort_unstable();
    let after = queue.into_disk().0;
    let mut refused = 0;
    for block in 0..after.len() / BLOCK_BYTES {
        let range = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
        if before[range.clone()] != after[range.clone()] {
            let mut bytes = after.clone();
            bytes[range.clone()].copy_from_slice(&before[range]);
            match open_queue(Memory(bytes)) {
                Ok(found) => assert_eq!(found, items, "block {block}"),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 5, "{refused} blocks");
}

fn message<Q>(opened: Result<Q, FileError>) -> String {
    opened.err().unwrap().to_string()
}

#[test]
fn files_of_another_queue_type_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("queue");
    drop(FileHeap::<u64, _>::create(&path, Binary, 10).unwrap());
    let text = message(FileQueue::<u64>::open(&path));
    assert!(text.contains("created with layout 1, opened with 3: open it with 1"), "{text}");
    assert!(message(FileQueue::<u64>::create(&path, 10)).contains("File exists"));
    std::fs::remove_file(&path).unwrap();

    let mut queue = FileQueue::<u64>::create(&path, 10).unwrap();
    queue.push(7).unwrap();
    queue.checkpoint().unwrap();
    assert!(message(FileQueue::<u64>::open(&path)).contains("already open"));
    drop(queue);
    assert!(
        message(FileTimers::<u32>::open(&path)).contains("created with items \"u64\", opened with \"u32\"")
    );
    assert!(message(FileTimers::<u64>::open(&path)).contains("an item size of 8, opened with 16"));
    assert!(
        message(FileQueue::<i64>::open(&path)).contains("created with items \"u64\", opened with \"i64\"")
    );
    let mut queue = FileQueue::<u64>::open(&path).unwrap();
    assert_eq!((queue.sequence(), queue.pop(), queue.pop()), (1, Some(7), None));
    drop(queue);

    std::fs::write(&path, vec![7; 100_000]).unwrap();
    assert!(message(FileQueue::<u64>::open(&path)).contains("not a queue file"));
    assert!(message(FileTimers::<u64>::open(folder.path().join("none"))).contains("cannot open the file"));
}

#[test]
fn impossible_capacities_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("queue");
    for capacity in [0, usize::MAX, usize::MAX / 16, 1 << 45] {
        let refused = FileQueue::<u64>::create(&path, capacity).err().unwrap();
        assert!(matches!(refused.fault, Fault::Impossible { .. }), "{refused}");
        let refused = FileTimers::<u64>::create(&path, capacity).err().unwrap();
        assert!(matches!(refused.fault, Fault::Impossible { .. }), "{refused}");
        assert!(!path.exists());
    }
}
