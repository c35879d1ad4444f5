//! The cost of every single operation: the items that it compares and moves, counted, and its time.
//!
//! ```text
//! counted   keys ─▶ PageQueue<CountedItem> over traced blocks ─▶ comparisons, items written, of each operation
//! timed     the same keys, three times ─▶ nanoseconds of each operation in each pass
//! ```
//! The counts are reproducible. Times are not: an interrupt or another process delays some operations. No
//! interrupt hits the same operation in three passes, however, so the minimum of the three is the operation's
//! own time.

use std::cell::Cell;
use std::cmp::Ordering;
use std::time::Instant;

use bheap::PageQueue;
use bheap::blocks::{Arena, TracedBlocks};
use bheap::layout::PageSizeError;
use bheap::trace::Trace;

use super::contenders::{self, Item, ItemOrder, Items};
use super::keys::Keys;
use crate::experiments::bheap_sim::article::PAGE_BYTES;

/// Maximum number of items that one operation may compare, and move.
pub const LIMIT: u32 = 4096;
/// Number of passes; the minimum time over all passes counts.
pub const PASSES: usize = 3;

thread_local!(static COMPARED: Cell<u32> = const { Cell::new(0) });

/// An item whose comparisons are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CountedItem(u64, u64);

impl PartialOrd for CountedItem {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CountedItem {
    fn cmp(&self, other: &Self) -> Ordering {
        COMPARED.set(COMPARED.get() + 1);
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// Recorder that counts the items written.
#[derive(Default)]
struct Moves(Cell<u32>);

impl Trace for &Moves {
    fn read(&self, _: usize, _: usize) {}
    fn write(&self, _: usize, bytes: usize) {
        self.0.set(self.0.get() + (bytes / size_of::<CountedItem>()) as u32);
    }
}

/// Counts of one operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OperationCost {
    /// Number of comparisons.
    pub compared: u32,
    /// Number of items written.
    pub moved: u32,
}

/// Counts over all operations of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum of each count, not necessarily in the same operation.
    pub most: OperationCost,
    /// Number of operations that had to catch up on deferred steps.
    pub late: u64,
}

/// Counts comparisons and moves of every operation of the three phases: the inserts, then alternating removes
/// and inserts, then the removals. `each` receives the counts of every operation.
///
/// # Errors
/// [`PageSizeError`] never occurs with the page size used here.
pub fn counted(
    items: usize,
    fan_out: usize,
    mut next: impl FnMut(u64) -> Item,
    mut each: impl FnMut(OperationCost),
) -> Result<Bounds, PageSizeError> {
    let moves = Moves::default();
    let store = TracedBlocks::new(Arena::<CountedItem>::new(PAGE_BYTES)?, &moves);
    let mut queue = PageQueue::with_store(store, fan_out);
    let mut bounds = Bounds::default();
    let mut now = 0;
    for operation in operations(items) {
        COMPARED.set(0);
        moves.0.set(0);
        if operation == Operation::Insert {
            let (key, handle) = next(now);
            queue.push(CountedItem(key, handle));
        } else {
            match queue.pop() {
                Some(item) => now = item.0,
                None => unreachable!("as many inserts as removals"),
            }
        }
        let work = OperationCost { compared: COMPARED.get(), moved: moves.0.get() };
        bounds.most.compared = bounds.most.compared.max(work.compared);
        bounds.most.moved = bounds.most.moved.max(work.moved);
        each(work);
    }
    bounds.late = queue.late_steps();
    Ok(bounds)
}

/// An operation on the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Inserts an item.
    Insert,
    /// Removes the smallest item.
    Remove,
}

/// Returns the operations of the three phases, in their order.
pub fn operations(items: usize) -> impl Iterator<Item = Operation> {
    (0..4 * items).map(move |at| match at {
        _ if at < items => Operation::Insert,
        _ if at < 3 * items && (at - items) % 2 == 1 => Operation::Insert,
        _ => Operation::Remove,
    })
}

/// Returns the phase of operation `at` of a run over `items`, in words.
#[must_use]
pub fn phase(at: usize, items: usize) -> &'static str {
    match at / items {
        0 => "insert",
        1 | 2 if (at - items).is_multiple_of(2) => "remove, holding",
        1 | 2 => "insert, holding",
        _ => "remove",
    }
}

/// Returns the nanoseconds of every operation of the three phases for a queue, by its number in
/// [`contenders::NAMES`], over uniform keys with handles.
///
/// # Errors
/// [`PageSizeError`] never occurs with the page sizes of [`super::contenders`].
pub fn timed(contender: usize, items: usize) -> Result<Vec<u32>, PageSizeError> {
    let mut queue = contenders::make(contender, ItemOrder::KeyAndHandle)?;
    let mut source = Items::new(SEED);
    let mut times_ns = Vec::with_capacity(4 * items);
    let mut last = Instant::now();
    for operation in operations(items) {
        if operation == Operation::Insert {
            queue.push(source.take());
        } else {
            std::hint::black_box(queue.pop());
        }
        let now = Instant::now();
        times_ns.push(u32::try_from((now - last).as_nanos()).unwrap_or(u32::MAX));
        last = now;
    }
    Ok(times_ns)
}

/// Seed of the keys that are both counted and timed.
pub const SEED: u64 = 0x2545_f491_4f6c_dd1d;

/// Returns the keys of [`timed`], as [`counted`] takes them.
pub fn uniform() -> impl FnMut(u64) -> Item {
    let mut source = Items::new(SEED);
    move |_| source.take()
}

/// Returns the keys of another sequence, each with a handle, as [`counted`] takes them.
pub fn with_handles(keys: Keys) -> impl FnMut(u64) -> Item {
    let (mut sequence, mut handle) = (keys.sequence(), 0);
    move |now| {
        handle += 1;
        (sequence(now), handle)
    }
}

/// A distribution of operation times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times {
    sorted_ns: Vec<u32>,
}

impl Times {
    /// Creates the distribution of these times.
    #[must_use]
    pub fn of(mut times_ns: Vec<u32>) -> Self {
        times_ns.sort_unstable();
        Self { sorted_ns: times_ns }
    }

    /// Returns the time that this share of the operations does not exceed.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> u32 {
        let last = self.sorted_ns.len().saturating_sub(1);
        let at = (share * self.sorted_ns.len() as f64).ceil() as usize;
        self.sorted_ns.get(at.saturating_sub(1).min(last)).copied().unwrap_or(0)
    }

    /// Returns the number of operations that took longer than `ns` nanoseconds.
    #[must_use]
    pub fn longer_than(&self, ns: u32) -> usize {
        self.sorted_ns.len() - self.sorted_ns.partition_point(|&time| time <= ns)
    }

    /// Returns a curve for two logarithmic scales: times, twelve per decade, and the share of operations that
    /// took longer than each.
    #[must_use]
    pub fn curve(&self) -> Vec<(f64, f64)> {
        let all = self.sorted_ns.len() as f64;
        let places = (0..=84).map(|step| 10_f64.powf(1.0 + f64::from(step) / 12.0));
        places
            .map(|ns| (ns / 1000.0, self.longer_than(ns as u32) as f64 / all))
            .take_while(|&(_, share)| share > 0.0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_stays_within_the_limit() {
        for keys in Keys::OTHERS {
            for fan_out in [4, 16] {
                let mut operations = 0;
                let bounds = counted(8_000, fan_out, with_handles(keys), |_| operations += 1).unwrap();
                assert_eq!(operations, 32_000);
                assert!(bounds.most.compared > 100, "something was counted: {bounds:?}");
                assert!(bounds.most.compared <= LIMIT && bounds.most.moved <= LIMIT, "{keys:?}: {bounds:?}");
            }
        }
    }

    #[test]
    fn counts_are_the_same_each_time() {
        let run = || {
            let mut all = Vec::new();
            counted(3_000, 16, uniform(), |work| all.push(work)).unwrap();
            all
        };
        assert_eq!(run(), run());
    }

    #[test]
    fn phases_are_in_their_order() {
        let all: Vec<Operation> = operations(2).collect();
        use Operation::{Insert, Remove};
        assert_eq!(all, [Insert, Insert, Remove, Insert, Remove, Insert, Remove, Remove]);
        let named: Vec<&str> = (0..8).map(|at| phase(at, 2)).collect();
        assert_eq!(named[1..4], ["insert", "remove, holding", "insert, holding"]);
        assert_eq!(named[7], "remove");
    }

    #[test]
    fn operations_are_timed_with_correct_quantiles() {
        assert_eq!(timed(0, 500).unwrap().len(), 2000);
        let times = Times::of((1..=1000).rev().collect());
        assert_eq!(
            (times.quantile_ns(0.5), times.quantile_ns(0.999), times.quantile_ns(1.0)),
            (500, 999, 1000)
        );
        assert_eq!((times.longer_than(1000), times.longer_than(999), times.longer_than(0)), (0, 1, 1000));
        let curve = times.curve();
        assert!((curve[0].1 - 0.99).abs() < 1e-9 && curve.windows(2).all(|pair| pair[0].1 >= pair[1].1));
    }
}
