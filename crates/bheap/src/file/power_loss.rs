//! Tests with power failures at any moment, on a disk that distinguishes written from durable bytes.
//!
//! The disk keeps two copies: the one that the program sees, and the one that would be found after a failure.
//! At any time it may copy pieces of the first to the second, in any order and torn at any eighth byte, as a
//! kernel and a drive may. Only a sync copies everything. A failure leaves the second copy and nothing else.

use super::disk::Disk;
use super::header::{BLOCK_BYTES, SLOTS};
use super::{FileLayout, FileRows, StoredItem};
use crate::heap::Heap;
use crate::layout::{Binary, PageLayout};
use crate::rows::Rows;
use std::cell::RefCell;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::vec;
use std::vec::Vec;

/// Random numbers by xorshift64.
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

#[derive(Debug, Clone)]
pub(super) struct Faulty {
    pub(super) seen: Vec<u8>,
    durable: Vec<u8>,
    random: Random,
    /// Number of syncs until the power fails during one.
    pub(super) syncs_left: u64,
    syncs: u64,
    /// Flags of the blocks that were reserved.
    reserved: Vec<bool>,
    /// Number of bytes that can still be reserved on this disk.
    pub(super) room: usize,
    /// State of the disk when the power failed during a sync: the disk's owner may be gone.
    pub(super) wreck: Rc<RefCell<Option<Faulty>>>,
}

impl Faulty {
    pub(super) fn new(bytes: usize, seed: u64) -> Self {
        Self {
            seen: vec![0; bytes],
            durable: vec![0; bytes],
            random: Random(seed),
            syncs_left: u64::MAX,
            syncs: 0,
            reserved: vec![false; bytes / BLOCK_BYTES],
            room: usize::MAX,
            wreck: Rc::default(),
        }
    }

    /// Makes some of the written bytes durable: each differing piece with a chance of `chance` percent.
    pub(super) fn write_back(&mut self, chance: u64) {
        let piece = [8, 64, 512, 4096][self.random.below(4) as usize];
        for (seen, durable) in self.seen.chunks(piece).zip(self.durable.chunks_mut(piece)) {
            if seen != durable && self.random.below(100) < chance {
                durable.copy_from_slice(seen);
            }
        }
    }

    /// Returns the disk as the next process finds it after this one was killed: no stored byte is lost, but a
    /// header may be half stored.
    pub(super) fn process_death(&self, under_way: bool) -> Self {
        let mut after = Self { wreck: Rc::default(), syncs_left: u64::MAX, ..self.clone() };
        let slot = SLOTS[after.random.below(2) as usize];
        if under_way && after.seen[slot..][..128] != after.durable[slot..][..128] {
            let stored = 8 * after.random.below(17) as usize;
            let header = slot + stored..slot + 128;
            after.seen[header.clone()].copy_from_slice(&self.durable[header]);
        }
        after
    }

    /// Returns the disk as it is found after a power failure.
    pub(super) fn power_failure(mut self) -> Self {
        let chance = [0, 10, 50, 90, 100][self.random.below(5) as usize];
        self.write_back(chance);
        let mut after = Self::new(0, self.random.0);
        after.seen = self.durable.clone();
        after.reserved = self.reserved;
        after.durable = self.durable;
        after
    }
}

impl Disk for Faulty {
    fn path(&self) -> &Path {
        Path::new("faulty")
    }
    fn bytes(&self) -> &[u8] {
        &self.seen
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.seen
    }
    fn reserve(&mut self, from: usize, bytes: usize) -> io::Result<()> {
        let blocks = &mut self.reserved[from / BLOCK_BYTES..(from + bytes).div_ceil(BLOCK_BYTES)];
        let fresh = blocks.iter().filter(|reserved| !**reserved).count();
        self.room = self.room.checked_sub(fresh * BLOCK_BYTES).ok_or(io::ErrorKind::StorageFull)?;
        blocks.fill(true);
        Ok(())
    }
    fn sync(&mut self) -> io::Result<()> {
        self.syncs += 1;
        if self.syncs_left == 0 {
            *self.wreck.borrow_mut() = Some(Self { wreck: Rc::default(), ..self.clone() });
            return Err(io::Error::other("the power failed"));
        }
        self.syncs_left -= 1;
        self.durable.copy_from_slice(&self.seen);
        Ok(())
    }
}

type Queue<L> = Heap<StoredItem<u64>, L, FileRows<u64, Faulty>>;

fn content(rows: &FileRows<u64, Faulty>) -> Vec<u64> {
    let mut items: Vec<u64> = (0..rows.len()).map(|at| rows.item(at).item()).collect();
    items.sort_unstable();
    items
}

/// Numbers of failures by kind.
#[derive(Debug, Default)]
struct Outcome {
    /// Failures that only ended the process, without a power failure.
    killed: u32,
    /// Failures between checkpoints.
    between: u32,
    /// Failures during a checkpoint that the next opening did not find.
    before: u32,
    /// Failures during a checkpoint that the next opening found.
    after: u32,
    /// Failures while an opening repaired the headers.
    opening: u32,
}

/// Runs a queue repeatedly, each time until a power failure.
fn lives<L: FileLayout + Copy>(layout: L, seed: u64, rounds: u32) -> Outcome {
    let shape = layout.shape::<u64>(6 * BLOCK_BYTES / 8);
    let plan = shape.plan().unwrap();
    let mut random = Random(seed);
    let mut rows = FileRows::<u64, _>::create_on(Faulty::new(plan.file_bytes, seed), shape).unwrap();
    let mut kept: Vec<u64> = Vec::new();
    let mut outcome = Outcome::default();
    for round in 0..rounds {
        let mut queue: Queue<L> = Heap::with_rows(layout, rows);
        let mut under_way = None;
        let mut checkpoints = random.below(4);
        loop {
            let pushes = random.below(101);
            for _ in 0..random.below(400) {
                if random.below(100) < pushes {
                    let _ = queue.try_push(StoredItem::new(random.below(1 << 40)));
                } else {
                    queue.pop();
                }
                if random.below(50) == 0 {
                    queue.rows_mut().disk_mut().write_back(20);
                }
            }
            if checkpoints == 0 {
                break;
            }
            checkpoints -= 1;
            let present = content(queue.rows());
            if checkpoints == 0 && random.below(2) == 0 {
                queue.rows_mut().disk_mut().syncs_left = random.below(3);
                queue.rows_mut().checkpoint().unwrap_err();
                assert!(
                    queue.is_empty() && queue.try_push(StoredItem::new(1)).is_err() && queue.pop().is_none()
                );
                queue.rows_mut().checkpoint().unwrap_err();
                under_way = Some(present);
                break;
            }
            queue.rows_mut().checkpoint().unwrap();
            kept = present;
        }
        let disk = queue.rows_mut().disk_mut();
        let mut disk = if random.below(3) == 0 {
            outcome.killed += 1;
            disk.process_death(under_way.is_some())
        } else {
            disk.clone().power_failure()
        };
        rows = loop {
            if random.below(2) == 0 {
                disk.syncs_left = random.below(3);
            }
            let wreck = Rc::clone(&disk.wreck);
            match FileRows::open_on(disk, shape) {
                Ok(mut rows) => {
                    rows.disk_mut().syncs_left = u64::MAX;
                    break rows;
                }
                Err(error) => {
                    let wrecked = wreck.take();
                    assert!(wrecked.is_some(), "seed {seed}, life {round}: {error}");
                    disk = wrecked.unwrap().power_failure();
                    outcome.opening += 1;
                }
            }
        };
        let found = content(&rows);
        match under_way {
            None => {
                assert_eq!(found, kept, "seed {seed}, life {round}: the last checkpoint");
                outcome.between += 1;
            }
            Some(_) if found == kept => outcome.before += 1,
            Some(under_way) => {
                assert_eq!(found, under_way, "seed {seed}, life {round}: neither checkpoint");
                outcome.after += 1;
                kept = found;
            }
        }
    }
    outcome
}

#[test]
fn the_last_checkpoint_survives_every_power_failure() {
    let rounds = if cfg!(debug_assertions) { 150 } else { 1500 };
    let mut all = Outcome::default();
    for seed in 1..=12 {
        let one = match seed % 3 {
            0 => lives(Binary, seed * 7919, rounds),
            1 => lives(PageLayout::for_page_bytes::<u64>(4096).unwrap(), seed * 7919, rounds),
            _ => lives(PageLayout::for_page_bytes::<u64>(64).unwrap(), seed * 7919, rounds),
        };
        all.killed += one.killed;
        all.between += one.between;
        all.before += one.before;
        all.after += one.after;
        all.opening += one.opening;
    }
    std::eprintln!("power failures: {all:?}");
    // Each kind must have occurred, or the test would prove nothing.
    assert!(all.between > 100 && all.before > 100 && all.after > 100 && all.opening > 20, "{all:?}");
}

#[test]
fn a_full_disk_refuses_and_changes_nothing() {
    let layout = PageLayout::for_page_bytes::<u64>(4096).unwrap();
    let shape = layout.shape::<u64>(100_000);
    let mut disk = Faulty::new(shape.plan().unwrap().file_bytes, 5);
    disk.room = shape.plan().unwrap().images[0] + 2 * 10 * BLOCK_BYTES;
    let mut queue: Queue<PageLayout> = Heap::with_rows(layout, FileRows::create_on(disk, shape).unwrap());
    let mut pushed = 0;
    while queue.try_push(StoredItem::new(1_000_000 - pushed)).is_ok() {
        pushed += 1;
    }
    assert_eq!(pushed, 10 * 512 - 1, "all the room there is, in both images, is used");
    for _ in 0..3 {
        let why = queue.rows_mut().room().unwrap_err();
        assert!(std::format!("{why}").contains("reserve room for items"), "{why}");
        assert_eq!((content(queue.rows()).len(), queue.is_ordered()), (pushed as usize, true));
        queue.rows_mut().checkpoint().unwrap();
    }
    queue.rows_mut().disk_mut().room = usize::MAX;
    queue.try_push(StoredItem::new(3)).unwrap();
    assert_eq!(queue.pop().map(|stored| stored.item()), Some(3));
}

#[test]
fn a_disk_too_small_for_tables_is_refused() {
    let shape = Binary.shape::<u64>(100_000);
    let mut disk = Faulty::new(shape.plan().unwrap().file_bytes, 5);
    disk.room = BLOCK_BYTES;
    assert!(FileRows::<u64, _>::create_on(disk, shape).is_err());
}
