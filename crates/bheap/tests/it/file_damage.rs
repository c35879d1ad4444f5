//! Damaged queue files: an error or the right content, never a wrong one and never a panic.
#![cfg(feature = "std")]

use crate::damage::damage;
use crate::memory_disk::Memory;
use crate::random::Random;
use bheap::Heap;
use bheap::file::{BLOCK_BYTES, Disk, Fault, FileHeap, FileLayout, FileRows, StoredItem};
use bheap::layout::PageLayout;
use bheap::rows::Rows;

fn layout() -> PageLayout {
    PageLayout::for_page_bytes::<u64>(512).unwrap()
}

fn content<D: Disk>(rows: &FileRows<u64, D>) -> Vec<u64> {
    let mut items: Vec<u64> = (0..rows.len()).map(|at| rows.item(at).item()).collect();
    items.sort_unstable();
    items
}

/// A file after five checkpoints, the same file after four, and the items of both.
struct Sample {
    bytes: Vec<u8>,
    items: Vec<u64>,
    before: Vec<u8>,
    items_before: Vec<u64>,
}

fn sample() -> Sample {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("queue");
    let mut queue = FileHeap::<u64, _>::create(&path, layout(), 4_000).unwrap();
    let mut random = Random(42);
    let (mut before, mut items_before) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        before = std::fs::read(&path).unwrap();
        items_before = content(queue.heap().rows());
        for _ in 0..700 {
            queue.push(random.below(1 << 40)).unwrap();
        }
        for _ in 0..60 {
            queue.pop();
        }
        queue.checkpoint().unwrap();
    }
    let items = content(queue.heap().rows());
    Sample { bytes: std::fs::read(&path).unwrap(), items, before, items_before }
}

/// Opens `bytes`, and returns the items if that succeeds.
fn open(bytes: &[u8]) -> Option<Vec<u64>> {
    let rows = FileRows::<u64, _>::open_on(Memory(bytes.to_vec()), layout().shape::<u64>(1)).ok()?;
    let items = content(&rows);
    // The opened queue must also be usable.
    let mut heap: Heap<StoredItem<u64>, _, _> = Heap::with_rows(layout(), rows);
    assert!(heap.drain().map(|stored| stored.item()).eq(items.iter().copied()));
    Some(items)
}

#[test]
fn flipped_bits_never_yield_wrong_content() {
    let rounds = std::env::var("BHEAP_DAMAGE_ROUNDS").ok().map_or(5_000, |n| n.parse().unwrap());
    let sample = sample();
    assert_eq!(open(&sample.bytes).as_ref(), Some(&sample.items));
    let (mut right, mut refused) = (0, 0);
    for seed in 0..rounds {
        let mut random = Random(0x5DEE_CE66_D1CE_4E5B ^ (seed as u64) << 17);
        for _ in 0..8 {
            random.index(1);
        }
        let mut bytes = sample.bytes.clone();
        for _ in 0..1 + random.index(4) {
            damage(&mut bytes, &mut random);
        }
        match open(&bytes) {
            Some(items) => {
                assert!(items == sample.items, "seed {seed}: a wrong content");
                right += 1;
            }
            None => refused += 1,
        }
    }
    eprintln!("{rounds} damaged files: {right} right, {refused} refused");
    assert!(right > rounds / 20 && refused > rounds / 5, "{right} right, {refused} refused");
}

#[test]
fn every_bit_in_use_is_checked() {
    let sample = sample();
    let mut random = Random(7);
    let mut bytes = sample.bytes.clone();
    // All bits of one header at a time: the other header says the same.
    for bit in (0..128 * 8).chain((0..128 * 8).map(|bit| bit + BLOCK_BYTES * 8)) {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(open(&bytes).as_ref(), Some(&sample.items), "header bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    // A sample of the bits that are not stored twice: in use (refused) or of an earlier checkpoint (without
    // effect).
    let mut refused = 0;
    for _ in 0..3_000 {
        let bit = random.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        match open(&bytes) {
            Some(items) => assert!(items == sample.items, "bit {bit}"),
            None => refused += 1,
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(refused > 600, "{refused} of 3000: a third of the file is in use");
}

#[test]
fn a_write_that_never_arrived_is_noticed() {
    let sample = sample();
    assert_ne!(sample.items, sample.items_before);
    assert_eq!(open(&sample.before).as_ref(), Some(&sample.items_before));
    let mut refused = 0;
    for block in 0..sample.bytes.len() / BLOCK_BYTES {
        let range = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
        let mut bytes = sample.bytes.clone();
        bytes[range.clone()].copy_from_slice(&sample.before[range]);
        match open(&bytes) {
            Some(items) => assert_eq!(items, sample.items, "block {block}"),
            None => refused += 1,
        }
    }
    assert!(refused >= 2, "the table and at least one block did change: {refused}");
}

#[test]
fn damage_is_located_and_the_file_left_unchanged() {
    let sample = sample();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("queue");
    let mut random = Random(3);
    let mut refused = 0;
    for _ in 0..150 {
        let mut bytes = sample.bytes.clone();
        damage(&mut bytes, &mut random);
        std::fs::write(&path, &bytes).unwrap();
        match FileHeap::<u64, _>::open(&path, layout()) {
            Ok(queue) => assert_eq!(content(queue.heap().rows()), sample.items),
            Err(error) => {
                assert!(error.to_string().starts_with(path.to_str().unwrap()), "{error}");
                match error.fault {
                    Fault::Damaged { .. } => {
                        assert!(error.to_string().contains("damaged at byte "), "{error}")
                    }
                    // Damage over a long range may affect both headers.
                    Fault::Foreign { .. } | Fault::Version { .. } => {}
                    _ => panic!("not what was wrong: {error}"),
                }
                assert!(std::fs::read(&path).unwrap() == bytes, "changed by a refused opening: {error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 10, "{refused}");
}

#[test]
fn a_damaged_header_is_repaired_from_the_other() {
    let sample = sample();
    for slot in [0, BLOCK_BYTES] {
        let mut bytes = sample.bytes.clone();
        bytes[slot..slot + 128].fill(0xA5);
        let rows = FileRows::<u64, _>::open_on(Memory(bytes), layout().shape::<u64>(1)).unwrap();
        // The other header may be damaged now.
        let other = BLOCK_BYTES - slot;
        let mut bytes = rows.into_disk().0;
        assert_eq!(bytes[..128], bytes[BLOCK_BYTES..BLOCK_BYTES + 128]);
        bytes[other..other + 128].fill(0);
        assert_eq!(open(&bytes).as_ref(), Some(&sample.items));
    }
}
