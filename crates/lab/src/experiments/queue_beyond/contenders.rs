//! The queues that are timed in RAM, behind one interface: `u64` keys with `u64` handles, in memory that grows.

use std::cmp::Reverse;

use bheap::blocks::Arena;
use bheap::heap::Heap;
use bheap::layout::{Binary, Dary, Layout, PageSizeError, Paged};
use bheap::memory::AlignedRows;
use bheap::{PageQueue, Rows};

use crate::experiments::bheap_sim::article::PAGE_BYTES;

/// A key and the handle of what it stands for. Ties leave in the handles' order, except with
/// `orx-priority-queue`, which compares keys alone.
pub type Item = (u64, u64);

/// The queue that is ours.
pub const OURS: &str = "page queue";

/// What is timed.
pub trait Timed {
    /// Adds an item.
    fn push(&mut self, item: Item);
    /// Takes the smallest.
    fn pop(&mut self) -> Option<Item>;
}

impl<L: Layout, R: Rows<Item>> Timed for Heap<Item, L, R> {
    fn push(&mut self, item: Item) {
        Self::push(self, item);
    }
    fn pop(&mut self) -> Option<Item> {
        Self::pop(self)
    }
}

impl Timed for PageQueue<Item> {
    fn push(&mut self, item: Item) {
        Self::push(self, item);
    }
    fn pop(&mut self) -> Option<Item> {
        Self::pop(self)
    }
}

impl Timed for std::collections::BinaryHeap<Reverse<Item>> {
    fn push(&mut self, item: Item) {
        self.push(Reverse(item));
    }
    fn pop(&mut self) -> Option<Item> {
        self.pop().map(|item| item.0)
    }
}

impl<const D: usize> Timed for dary_heap::DaryHeap<Reverse<Item>, D> {
    fn push(&mut self, item: Item) {
        self.push(Reverse(item));
    }
    fn pop(&mut self) -> Option<Item> {
        self.pop().map(|item| item.0)
    }
}

/// Its node is the handle, its key the key.
struct Orx<const D: usize>(orx_priority_queue::DaryHeap<u64, u64, D>);

impl<const D: usize> Timed for Orx<D> {
    fn push(&mut self, item: Item) {
        orx_priority_queue::PriorityQueue::push(&mut self.0, item.1, item.0);
    }
    fn pop(&mut self) -> Option<Item> {
        orx_priority_queue::PriorityQueue::pop(&mut self.0).map(|(node, key)| (key, node))
    }
}

/// A queue's name and how an empty one is made.
pub struct Contender {
    /// What it is called in a report.
    pub name: &'static str,
    make: fn() -> Result<Box<dyn Timed>, PageSizeError>,
}

impl std::fmt::Debug for Contender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Contender {
    /// An empty queue that has allocated next to nothing.
    ///
    /// # Errors
    /// Never with the page sizes used here.
    pub fn make(&self) -> Result<Box<dyn Timed>, PageSizeError> {
        (self.make)()
    }
}

/// All that are timed in this process, ours first.
pub const ALL: [Contender; 10] = [
    Contender { name: OURS, make: || Ok(Box::new(PageQueue::with_store(Arena::new(PAGE_BYTES)?, 16))) },
    Contender { name: "binary heap", make: || Ok(Box::new(Heap::with_rows(Binary, Vec::new()))) },
    Contender { name: "4-ary heap", make: || Ok(Box::new(Heap::with_rows(Dary::<4>, Vec::new()))) },
    Contender {
        // The children of a node begin where two cache lines begin.
        name: "8-ary heap, aligned",
        make: || Ok(Box::new(Heap::with_rows(Dary::<8>, AlignedRows::new(128, 7)?))),
    },
    Contender {
        name: "B-heap",
        make: || {
            let layout = Paged::for_page_bytes::<Item>(PAGE_BYTES)?;
            Ok(Box::new(Heap::with_rows(layout, AlignedRows::new(PAGE_BYTES, Paged::INDEX_OF_ROOT)?)))
        },
    },
    Contender { name: "std BinaryHeap", make: || Ok(Box::new(std::collections::BinaryHeap::new())) },
    Contender { name: "dary_heap, 4", make: || Ok(Box::new(dary_heap::DaryHeap::<_, 4>::new())) },
    Contender { name: "dary_heap, 8", make: || Ok(Box::new(dary_heap::DaryHeap::<_, 8>::new())) },
    Contender {
        name: "orx-priority-queue, 4",
        make: || Ok(Box::new(Orx(orx_priority_queue::DaryHeap::<_, _, 4>::default()))),
    },
    Contender {
        name: "orx-priority-queue, 8",
        make: || Ok(Box::new(Orx(orx_priority_queue::DaryHeap::<_, _, 8>::default()))),
    },
];

/// The keys and handles of a run: a xorshift generator, simple enough to be the same in every language.
#[derive(Debug, Clone)]
pub struct Items(u64);

impl Items {
    /// The sequence of this seed, which is not zero.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next item: 31 bits of key, as random(3) gives.
    #[inline]
    pub const fn take(&mut self) -> Item {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33, self.0)
    }
}

/// The checksum of the keys that left, in their order: two queues that did the same work have the same.
#[inline]
#[must_use]
pub const fn checked(sum: u64, key: u64) -> u64 {
    sum.rotate_left(5) ^ key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
