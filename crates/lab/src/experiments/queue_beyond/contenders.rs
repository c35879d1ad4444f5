//! Queues that are timed in RAM, behind one interface: `u64` keys with `u64` handles, in growing memory.
//!
//! There are two orders, because libraries differ in what they can compare: by the key alone, which every
//! queue can do (`orx-priority-queue` keeps key and handle apart and compares nothing else), and by key and
//! handle together, so that equal keys leave in the same order everywhere.

use std::cmp::{Ordering, Reverse};

use bheap::heap::Heap;
use bheap::layout::{Binary, Dary, Layout, PageLayout, PageSizeError};
use bheap::memory::AlignedRows;
use bheap::{PageQueue, Rows};

use crate::experiments::bheap_sim::article::PAGE_BYTES;

/// A generated key with its handle.
pub type Item = (u64, u64);

/// Name of the page queue.
pub const OURS: &str = "page queue";

/// Order of the items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemOrder {
    /// Comparison by key; items of equal keys leave in any order.
    Key,
    /// Comparison by key, then by handle.
    KeyAndHandle,
}

impl ItemOrder {
    /// Returns the order in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Key => "compared by key",
            Self::KeyAndHandle => "compared by key and handle",
        }
    }
}

/// An item that is compared by its key alone.
#[derive(Debug, Clone, Copy)]
struct ByKey {
    key: u64,
    handle: u64,
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}
impl Eq for ByKey {}
impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for ByKey {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

impl From<Item> for ByKey {
    fn from((key, handle): Item) -> Self {
        Self { key, handle }
    }
}

impl From<ByKey> for Item {
    fn from(item: ByKey) -> Self {
        (item.key, item.handle)
    }
}

/// Operations of a queue that is timed.
pub trait TimedQueue {
    /// Adds an item.
    fn push(&mut self, item: Item);
    /// Removes and returns the smallest item.
    fn pop(&mut self) -> Option<Item>;
}

/// A queue whose own item type is built from key and handle.
struct QueueAdapter<Q, T>(Q, std::marker::PhantomData<T>);

impl<T: Ord + From<Item> + Into<Item>, L: Layout, R: Rows<T>> TimedQueue for QueueAdapter<Heap<T, L, R>, T> {
    fn push(&mut self, item: Item) {
        self.0.push(item.into());
    }
    fn pop(&mut self) -> Option<Item> {
        self.0.pop().map(Into::into)
    }
}

impl<T: Ord + Copy + From<Item> + Into<Item>> TimedQueue for QueueAdapter<PageQueue<T>, T> {
    fn push(&mut self, item: Item) {
        self.0.push(item.into());
    }
    fn pop(&mut self) -> Option<Item> {
        self.0.pop().map(Into::into)
    }
}

impl<T: Ord + From<Item> + Into<Item>> TimedQueue
    for QueueAdapter<std::collections::BinaryHeap<Reverse<T>>, T>
{
    fn push(&mut self, item: Item) {
        self.0.push(Reverse(item.into()));
    }
    fn pop(&mut self) -> Option<Item> {
        self.0.pop().map(|item| item.0.into())
    }
}

impl<T: Ord + From<Item> + Into<Item>, const D: usize> TimedQueue
    for QueueAdapter<dary_heap::DaryHeap<Reverse<T>, D>, T>
{
    fn push(&mut self, item: Item) {
        self.0.push(Reverse(item.into()));
    }
    fn pop(&mut self) -> Option<Item> {
        self.0.pop().map(|item| item.0.into())
    }
}

/// In `orx-priority-queue` the node is the handle; its key is either the key alone, or key and handle
/// together.
impl<T: Clone + PartialOrd + From<Item> + Into<Item>, const D: usize> TimedQueue
    for QueueAdapter<orx_priority_queue::DaryHeap<u64, T, D>, T>
{
    fn push(&mut self, item: Item) {
        orx_priority_queue::PriorityQueue::push(&mut self.0, item.1, item.into());
    }
    fn pop(&mut self) -> Option<Item> {
        orx_priority_queue::PriorityQueue::pop(&mut self.0).map(|(node, key)| (key.into().0, node))
    }
}

/// A key that is compared without its handle, which the node holds.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
struct Key(u64);

impl From<Item> for Key {
    fn from(item: Item) -> Self {
        Self(item.0)
    }
}

impl From<Key> for Item {
    fn from(key: Key) -> Self {
        (key.0, 0)
    }
}

/// Names of the queues that are timed in this process; the page queue is first.
pub const NAMES: [&str; 10] = [
    OURS,
    "binary heap",
    "4-ary heap",
    "8-ary heap, aligned",
    "B-heap",
    "std BinaryHeap",
    "dary_heap, 4",
    "dary_heap, 8",
    "orx-priority-queue, 4",
    "orx-priority-queue, 8",
];

/// Creates the queue at index `at` of [`NAMES`], empty and with almost no memory allocated.
///
/// # Errors
/// [`PageSizeError`] never occurs with the page sizes used here.
///
/// # Panics
/// Panics if `at` is not an index of [`NAMES`].
pub fn make(at: usize, compared: ItemOrder) -> Result<Box<dyn TimedQueue>, PageSizeError> {
    match (compared, at) {
        (ItemOrder::Key, 8) => Ok(of::<_, Key>(orx_priority_queue::DaryHeap::<u64, Key, 4>::default())),
        (ItemOrder::Key, 9) => Ok(of::<_, Key>(orx_priority_queue::DaryHeap::<u64, Key, 8>::default())),
        (_, 8) => Ok(of::<_, Item>(orx_priority_queue::DaryHeap::<u64, Item, 4>::default())),
        (_, 9) => Ok(of::<_, Item>(orx_priority_queue::DaryHeap::<u64, Item, 8>::default())),
        (ItemOrder::Key, _) => made::<ByKey>(at),
        (ItemOrder::KeyAndHandle, _) => made::<Item>(at),
    }
}

fn of<Q, T>(queue: Q) -> Box<dyn TimedQueue>
where
    QueueAdapter<Q, T>: TimedQueue + 'static,
{
    Box::new(QueueAdapter(queue, std::marker::PhantomData))
}

fn made<T: Ord + Copy + From<Item> + Into<Item> + 'static>(
    at: usize,
) -> Result<Box<dyn TimedQueue>, PageSizeError> {
    Ok(match at {
        0 => of::<_, T>(PageQueue::<T>::new(PAGE_BYTES)?),
        1 => of::<_, T>(Heap::with_rows(Binary, Vec::<T>::new())),
        2 => of::<_, T>(Heap::with_rows(Dary::<4>, Vec::<T>::new())),
        // The children of a node begin at a boundary of two cache lines.
        3 => of::<_, T>(Heap::with_rows(Dary::<8>, AlignedRows::<T>::new(128, 7)?)),
        4 => {
            let rows = AlignedRows::<T>::new(PAGE_BYTES, PageLayout::INDEX_OF_ROOT)?;
            of::<_, T>(Heap::with_rows(PageLayout::for_page_bytes::<T>(PAGE_BYTES)?, rows))
        }
        5 => of::<_, T>(std::collections::BinaryHeap::<Reverse<T>>::new()),
        6 => of::<_, T>(dary_heap::DaryHeap::<Reverse<T>, 4>::new()),
        7 => of::<_, T>(dary_heap::DaryHeap::<Reverse<T>, 8>::new()),
        _ => panic!("there is no queue number {at}"),
    })
}

/// Keys and handles of a run, from a xorshift generator that is simple enough to be the same in every
/// language.
#[derive(Debug, Clone)]
pub struct Items(u64);

impl Items {
    /// Creates the generator with this seed, which must not be zero.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next item; its key has 31 bits, as from random(3).
    #[inline]
    pub const fn take(&mut self) -> Item {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33, self.0)
    }
}

/// Adds a key to the checksum of the removed keys; equal checksums mean equal work.
#[inline]
#[must_use]
pub const fn checked(sum: u64, key: u64) -> u64 {
    sum.rotate_left(5) ^ key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
