//! Expiry of the store: entries of time and hash, a few popular ttls; due entries leave each second.
//!
//! ```text
//! each second: pop all that is due ─▶ as many objects come, each with now + one of four ttls ─▶ push
//! from time to time: sift ─▶ every entry from one queue to another (those of objects that are gone stay behind)
//! ```
//! The store keeps no handles: when the entry of a replaced object is due, no object is found. The queue
//! therefore needs only push, pop and sift. A heap is sifted from its end, where removal is free; the page
//! queue from its head.

use bheap::heap::Heap;
use bheap::layout::{Binary, Dary, Layout, PageLayout, PageSizeError};
use bheap::memory::AlignedRows;
use bheap::{PageQueue, Rows};
use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;

use crate::experiments::bheap_sim::article::PAGE_BYTES;
use crate::experiments::memory_ladder::random::Random;

/// Lifetimes of objects in seconds, all equally frequent.
const TTLS_S: [u64; 4] = [10, 60, 300, 1800];
/// Mean lifetime: the queue holds the objects of this many seconds.
const MEAN_S: usize = 542;

/// A queue of expiry entries.
pub trait Entries {
    /// Adds an entry.
    fn push(&mut self, word: u64);
    /// Returns the smallest entry.
    fn peek(&mut self) -> Option<u64>;
    /// Removes and returns the smallest entry.
    fn pop(&mut self) -> Option<u64>;
    /// Removes and returns the entry that is cheapest to remove, for sifting.
    fn take(&mut self) -> Option<u64>;
}

impl<L: Layout, R: Rows<u64>> Entries for Heap<u64, L, R> {
    fn push(&mut self, word: u64) {
        Self::push(self, word);
    }
    fn peek(&mut self) -> Option<u64> {
        Self::peek(self).copied()
    }
    fn pop(&mut self) -> Option<u64> {
        Self::pop(self)
    }
    fn take(&mut self) -> Option<u64> {
        // The last entry is a leaf, so that no other entry moves.
        self.remove_at(self.len().checked_sub(1)?)
    }
}

impl Entries for PageQueue<u64> {
    fn push(&mut self, word: u64) {
        Self::push(self, word);
    }
    fn peek(&mut self) -> Option<u64> {
        Self::peek(self).copied()
    }
    fn pop(&mut self) -> Option<u64> {
        Self::pop(self)
    }
    fn take(&mut self) -> Option<u64> {
        Self::pop(self)
    }
}

/// Queues that could keep the store's entries; the first is the one that the store uses.
pub const NAMES: [&str; 5] =
    ["binary heap (the store's)", "4-ary heap", "8-ary heap, aligned", "B-heap", "page queue"];

/// Creates the queue at index `at` of [`NAMES`], empty.
///
/// # Errors
/// [`PageSizeError`] never occurs with the page sizes used here.
pub fn make(at: usize) -> Result<Box<dyn Entries>, PageSizeError> {
    Ok(match at {
        0 => Box::new(Heap::with_rows(Binary, Vec::new())),
        1 => Box::new(Heap::with_rows(Dary::<4>, Vec::new())),
        // The children of a node begin at a cache line's boundary.
        2 => Box::new(Heap::with_rows(Dary::<8>, AlignedRows::new(64, 7)?)),
        3 => {
            let rows = AlignedRows::new(PAGE_BYTES, PageLayout::INDEX_OF_ROOT)?;
            Box::new(Heap::with_rows(PageLayout::for_page_bytes::<u64>(PAGE_BYTES)?, rows))
        }
        _ => Box::new(PageQueue::new(PAGE_BYTES)?),
    })
}

/// Figures of one queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpiryFigures {
    /// Nanoseconds of CPU to push and pop an entry.
    pub entry_ns: f64,
    /// Nanoseconds of CPU to sift an entry.
    pub sift_ns: f64,
    /// Time in nanoseconds that one in ten thousand operations reaches or exceeds.
    pub rare_ns: f64,
    /// Checksum of the removed entries, in order of removal.
    pub checksum: u64,
}

/// Runs a queue second by second until each of about `objects` entries has been replaced twice.
///
/// # Panics
/// Panics if the queue loses an entry or returns one out of order.
///
/// # Errors
/// [`PageSizeError`] never occurs with the page sizes used here.
pub fn measure(at: usize, objects: usize) -> Result<ExpiryFigures, PageSizeError> {
    let mut queue = make(at)?;
    let mut store = Store { random: Random::new(6), now_s: 0, each_s: objects.div_ceil(MEAN_S), checksum: 0 };
    // Fills the queue until as many entries leave as arrive.
    while store.now_s < TTLS_S[3] {
        store.second(queue.as_mut());
    }
    let (start, from_s) = (cpu_s(), store.now_s);
    while store.now_s < from_s + 2 * MEAN_S as u64 {
        store.second(queue.as_mut());
    }
    let pushed = (store.now_s - from_s) as f64 * store.each_s as f64;
    let entry_ns = (cpu_s() - start) * 1e9 / pushed;

    let mut times_ns = Vec::new();
    for _ in 0..MEAN_S / 4 {
        store.timed_second(queue.as_mut(), &mut times_ns);
    }
    times_ns.sort_unstable();
    let rare = times_ns.get(times_ns.len() - 1 - times_ns.len() / 10_000).copied().unwrap_or(0);

    let (mut sifted, mut moved) = (make(at)?, 0_u64);
    let start = cpu_s();
    while let Some(word) = queue.take() {
        sifted.push(word);
        moved += 1;
    }
    let sift_ns = (cpu_s() - start) * 1e9 / moved as f64;
    let mut last = 0;
    while let Some(word) = sifted.pop() {
        assert!(word >= last, "entries leave in order");
        (last, moved) = (word, moved - 1);
    }
    assert_eq!(moved, 0, "no entry was lost");
    Ok(ExpiryFigures { entry_ns, sift_ns, rare_ns: f64::from(rare), checksum: store.checksum })
}

struct Store {
    random: Random,
    now_s: u64,
    /// Number of objects that arrive each second.
    each_s: usize,
    checksum: u64,
}

impl Store {
    fn due(&self, queue: &mut dyn Entries) -> Option<u64> {
        queue.peek().filter(|word| word >> 32 <= self.now_s)?;
        queue.pop()
    }

    fn entry(&mut self) -> u64 {
        let ttl_s = TTLS_S[self.random.below(TTLS_S.len())];
        (self.now_s + ttl_s) << 32 | self.random.word() >> 32
    }

    fn left(&mut self, word: u64) {
        self.checksum = super::contenders::checked(self.checksum, word);
    }

    fn second(&mut self, queue: &mut dyn Entries) {
        self.now_s += 1;
        while let Some(word) = self.due(queue) {
            self.left(word);
        }
        for _ in 0..self.each_s {
            queue.push(self.entry());
        }
    }

    fn timed_second(&mut self, queue: &mut dyn Entries, times_ns: &mut Vec<u32>) {
        let mut last = Instant::now();
        let mut note = || {
            let now = Instant::now();
            times_ns.push(u32::try_from((now - last).as_nanos()).unwrap_or(u32::MAX));
            last = now;
        };
        self.now_s += 1;
        while let Some(word) = self.due(queue) {
            self.left(word);
            note();
        }
        for _ in 0..self.each_s {
            queue.push(self.entry());
            note();
        }
    }
}

fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_queues_return_entries_in_equal_order() {
        let all: Vec<ExpiryFigures> = (0..NAMES.len()).map(|at| measure(at, 3_000).unwrap()).collect();
        assert!(
            all.iter().all(|needed| needed.checksum == all[0].checksum && needed.entry_ns > 0.0),
            "{all:?}"
        );
        assert!(all.iter().all(|needed| needed.sift_ns > 0.0 && needed.rare_ns > 0.0), "{all:?}");
    }

    #[test]
    fn nothing_leaves_before_it_is_due() {
        let mut queue = make(4).unwrap();
        let mut store = Store { random: Random::new(1), now_s: 0, each_s: 5, checksum: 0 };
        (0..9).for_each(|_| store.second(queue.as_mut()));
        assert_eq!(store.checksum, 0, "the shortest ttl is ten seconds");
        (0..40).for_each(|_| store.second(queue.as_mut()));
        assert_ne!(store.checksum, 0);
    }
}
