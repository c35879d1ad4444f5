//! No operation compares or moves more than 4,096 items: counted, not timed.
//!
//! `BHEAP_ITEMS=16000000` sets the number of items of every sequence; by default it is a million in one of
//! them, fewer in the others.

use crate::random::Random;
use bheap::blocks::{Arena, TracedBlocks};
use bheap::indexed::Entry;
use bheap::trace::Trace;
use bheap::{Handle, HandleQueue, LazyQueue, PageQueue};
use std::cell::Cell;
use std::cmp::Ordering;
use std::rc::Rc;

thread_local!(static COMPARED: Cell<u64> = const { Cell::new(0) });

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counted(u64, u64);

impl PartialOrd for Counted {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Counted {
    fn cmp(&self, other: &Self) -> Ordering {
        COMPARED.set(COMPARED.get() + 1);
        self.0.cmp(&other.0)
    }
}

/// Number of bytes written.
#[derive(Default)]
struct Moves(Cell<usize>);

impl Trace for Moves {
    fn read(&self, _: usize, _: usize) {}
    fn write(&self, _: usize, bytes: usize) {
        self.0.set(self.0.get() + bytes);
    }
}

const LIMIT: u64 = 4096;

/// Greatest counts of any operation.
#[derive(Default)]
struct Longest {
    moves: Rc<Moves>,
    compared: u64,
    moved: usize,
}

impl Longest {
    fn watch<R>(&mut self, item_bytes: usize, operation: impl FnOnce() -> R) -> R {
        COMPARED.set(0);
        self.moves.0.set(0);
        let result = operation();
        self.compared = self.compared.max(COMPARED.get());
        self.moved = self.moved.max(self.moves.0.get() / item_bytes);
        result
    }

    fn assert_short(&self, what: &str) {
        eprintln!("{what}: compared {}, moved {}", self.compared, self.moved);
        assert!(self.compared <= LIMIT, "{what}: {} comparisons", self.compared);
        assert!(self.moved <= LIMIT as usize, "{what}: {} moves", self.moved);
    }
}

fn items(otherwise: u64) -> u64 {
    std::env::var("BHEAP_ITEMS").ok().map_or(otherwise, |n| n.parse().unwrap())
}

/// Number of key sequences: uniform, sorted, reversed, time-like, all equal, clustered.
const KINDS: u64 = 6;

fn key(kind: u64, step: u64, now: u64, random: &mut Random) -> u64 {
    let seed = random.next();
    match kind {
        0 => seed >> 33,
        1 => step,
        2 => u64::MAX - step,
        3 => now + [60_000, 3_600_000, 86_400_000][(seed >> 40) as usize % 3] + seed % 16,
        4 => 42,
        _ => ((seed >> 20) % 7) << 40 | seed & 0xFF,
    }
}

fn no_operation_is_long(kind: u64, fan_out: usize, items: u64) {
    let mut longest = Longest::default();
    let store = TracedBlocks::new(Arena::<Counted>::new(4096).unwrap(), Rc::clone(&longest.moves));
    let mut queue = PageQueue::with_store(store, fan_out);
    let mut random = Random(0x2545_F491_4F6C_DD1D ^ kind);
    let mut now = 0;
    let mut run = |queue: &mut PageQueue<Counted, _>, push: bool, step: u64| {
        let key = key(kind, step, now, &mut random);
        if push {
            longest.watch(16, || queue.push(Counted(key, step)));
        } else if let Some(item) = longest.watch(16, || queue.pop()) {
            now = item.0;
        }
    };
    for step in 0..items {
        run(&mut queue, true, step);
    }
    for step in 0..items {
        run(&mut queue, step % 2 == 1, items + step);
    }
    while !queue.is_empty() {
        run(&mut queue, false, 0);
    }
    longest.assert_short(&format!("{items} items, fan-out {fan_out}, kind {kind}"));
    assert_eq!(queue.late_steps(), 0, "fan-out {fan_out}, kind {kind}");
}

#[test]
fn no_operation_is_long_whatever_the_keys() {
    for fan_out in [4, 16] {
        for kind in 0..KINDS {
            no_operation_is_long(kind, fan_out, items(60_000));
        }
    }
    no_operation_is_long(0, 16, items(1_000_000));
    // Enough items that a list of equal items, with smaller arrivals, once had to be divided in a hurry.
    no_operation_is_long(3, 4, items(4_000_000));
}

type Timers = LazyQueue<Counted, TracedBlocks<Arena<Entry<Counted>>, Rc<Moves>>>;

/// A queue with handles, and the handles sorted by key.
struct Adversary {
    queue: Timers,
    held: Vec<(u64, Handle)>,
    longest: Longest,
    updates: Longest,
    random: Random,
    kind: u64,
    step: u64,
    now: u64,
}

const ENTRY_BYTES: usize = size_of::<Entry<Counted>>();

impl Adversary {
    fn new(kind: u64, fan_out: usize) -> Self {
        let longest = Longest::default();
        let updates = Longest { moves: Rc::clone(&longest.moves), ..Longest::default() };
        let store = TracedBlocks::new(Arena::new(4096).unwrap(), Rc::clone(&longest.moves));
        let queue = LazyQueue::with_store(store, fan_out);
        Self { queue, held: Vec::new(), longest, updates, random: Random(99 + kind), kind, step: 0, now: 0 }
    }

    fn key(&mut self) -> Counted {
        self.step += 1;
        Counted(key(self.kind, self.step, self.now, &mut self.random), self.step)
    }

    fn insert(&mut self, count: u64) {
        for _ in 0..count {
            let key = self.key();
            let handle = self.longest.watch(ENTRY_BYTES, || self.queue.insert(key)).unwrap();
            self.held.push((key.0, handle));
        }
    }

    fn pop(&mut self, count: u64) {
        for _ in 0..count {
            if let Some((key, _)) = self.longest.watch(ENTRY_BYTES, || self.queue.pop()) {
                self.now = key.0;
            }
        }
    }

    /// Removes the smallest `count` items, the nearest last: until then, none of the removed is the head.
    fn remove_smallest(&mut self, count: u64, nearest_last: bool) {
        self.held.retain(|(_, handle)| self.queue.contains(*handle));
        self.held.sort_by_key(|(key, _)| *key);
        let count = self.held.len().min(count as usize);
        let mut gone: Vec<_> = self.held.drain(..count).collect();
        if nearest_last {
            gone.reverse();
        }
        for (_, handle) in gone {
            self.longest.watch(ENTRY_BYTES, || self.queue.remove(handle)).unwrap();
        }
    }

    fn update(&mut self, count: u64) {
        for _ in 0..count {
            let at = (self.random.next() % self.held.len() as u64) as usize;
            let key = self.key();
            let (_, handle) = self.held[at];
            if let Ok(new) = self.updates.watch(ENTRY_BYTES, || self.queue.update(handle, key)) {
                self.held[at] = (key.0, new);
            }
        }
    }
}

fn no_removal_is_long(kind: u64, fan_out: usize, items: u64) {
    let mut it = Adversary::new(kind, fan_out);
    it.insert(items);
    let mut garbage = 0;
    for (round, share) in [4, 3, 10, 2, 20, 3].into_iter().enumerate() {
        it.remove_smallest(items / share, round % 3 != 1);
        garbage = garbage.max(it.queue.garbage());
        // The nearest items leave at once, and the next smallest must be found.
        it.pop(items / 50);
        it.update(items / 10);
        it.insert(items / share);
        it.pop(items / 10);
        it.insert(items / 10);
    }
    let handles = it.queue.len() as u64;
    it.pop(handles / 2);
    it.remove_smallest(handles, true);
    assert_eq!(it.queue.len(), 0);
    let what =
        format!("{items} items with handles, fan-out {fan_out}, kind {kind}, {garbage} removed at once");
    it.longest.assert_short(&what);
    it.updates.assert_short(&format!("{what}, updates"));
    assert_eq!(it.queue.late_steps(), 0, "{what}");
}

#[test]
fn operations_stay_short_after_mass_removals() {
    for fan_out in [4, 16] {
        for kind in 0..KINDS {
            no_removal_is_long(kind, fan_out, items(30_000));
        }
    }
    no_removal_is_long(0, 16, items(300_000));
}
