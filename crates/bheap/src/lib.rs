//! Priority queues for sets that are larger than a cache, or than memory.
//!
//! All queues here are *min*-queues: [`PriorityQueue::pop`] takes the smallest item. (Wrap items in
//! [`core::cmp::Reverse`] for the opposite order.)
//!
//! # The cost of the textbook heap
//!
//! The binary heap writes a tree into an array: the children of `n` are at `2n + 1` and `2n + 2`. A walk from
//! the root to a leaf takes twenty steps in a heap of a million items, and from the tenth step on each is in
//! another page. That is cheap while the pages are in memory. If some are not, each step may wait for a disk,
//! which costs as much as a million instructions; and even if all are in memory, each step misses the cache
//! and the address translation buffer.
//!
//! Poul-Henning Kamp's *B-heap* (ACM Queue, 2010) changes only the arithmetic: pages are filled vertically,
//! each with a small tree, so that a walk of twenty steps touches three pages. [`layout::PageLayout`] is that
//! arithmetic, written out, drawn and inverted; [`BHeap`] is the heap, in memory that is really aligned to a
//! page.
//!
//! [`PageQueue`] uses the fact that most items of a queue stay for a long time, so that their order need not
//! be known yet. It appends them to lists, whole pages at a time, and divides a list only when its items are
//! needed soon: a sample sort that is delayed as long as possible. Each page is written once and read once
//! for each division, and there are few divisions.
//!
//! Page transfers per operation, for a million items of 8 bytes in 1,954 pages, as simulated (inserts, then
//! removes and inserts, then removes):
//!
//! | pages of memory | [`BinaryHeap`] | [`BHeap`] | [`PageQueue`] |
//! |---|---|---|---|
//! | 9 | 11.52 | 1.14 | 0.0157 |
//! | 16 | 7.33 | 0.95 | 0.0100 |
//! | 64 | 4.46 | 0.76 | 0.0045 |
//! | 256 | 2.32 | 0.60 | 0.0035 |
//! | 1,024 | 0.51 | 0.23 | 0.0018 |
//! | 1,954 (all) | 0 | 0 | 0 |
//!
//! (The page queue was configured for nine pages of memory in the first two rows, for 64 in the others; its
//! first touch of each page is included.) In RAM, with a key and a value of eight bytes each, it took 56 ns
//! per operation at a million items and 65 to 75 at sixteen million, where the best of the heaps took 88 and
//! 280.
//!
//! # Choosing a queue
//!
//! | you have | take |
//! |---|---|
//! | up to a few thousand items, or items that are not `Copy` | [`BinaryHeap`], or the standard library's |
//! | many items, most of which stay for long | [`PageQueue`] |
//! | … and timers that are cancelled or moved | [`LazyQueue`] |
//! | … and they must survive a restart, or do not fit into memory | `file::FileQueue`; with handles `file::FileTimers` |
//! | handles that stay the same when a key is changed | [`IndexedHeap`] |
//!
//! ```
//! use bheap::PageQueue;
//!
//! let mut queue = PageQueue::new(4096)?;
//! for n in 0..100_000_u64 {
//!     queue.push((n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32, n));
//! }
//! let first = queue.pop();
//! assert!(first < queue.pop());
//! assert_eq!(queue.len(), 99_998);
//! # Ok::<(), bheap::layout::PageSizeError>(())
//! ```
//!
//! Timers that can be cancelled:
//!
//! ```
//! use bheap::{HandleQueue, LazyQueue};
//!
//! let mut timers = LazyQueue::new(4096)?;
//! let tea = timers.insert(180).expect("memory is not limited");
//! let bread = timers.insert(3600).expect("memory is not limited");
//! timers.remove(tea).expect("it is still there");
//! assert!(timers.remove(tea).is_err(), "but not twice");
//! assert_eq!(timers.pop(), Some((3600, bread)));
//! # Ok::<(), bheap::layout::PageSizeError>(())
//! ```
//!
//! # Guarantees
//!
//! - *No operation is long.* A `PageQueue` moves at most 512 items from list to list in one operation, or
//!   loads 1,344 to its front; including the comparisons for that, every operation stayed below 4,096
//!   comparisons and 4,096 moves in the tests that count them, also in [`LazyQueue`], whatever was
//!   removed before. (The part that depends on samples: `docs/decisions/020-page-queue.md`.) The heaps
//!   take O(log n).
//! - *A comparison that panics* neither loses nor duplicates an item, in any queue. The order is then unspecified.
//! - *Only the order counts.* Items are compared by `Ord`, never by `PartialEq`; equal items leave in any order.
//! - *A full storage* returns the item ([`Full`]); page sizes that cannot be used are errors.
//! - *Handles* of items that have left, and of other queues, are refused ([`StaleHandle`]).
//! - `no_std` with `alloc`, except for the feature `std` (on by default), which adds the queues in files.
//!   Unsafe code is in one module for page-aligned memory, and in one for mapping a file.
//!
//! # Weaknesses
//!
//! Other queues are better for a few thousand items (up to 1,056 this is a plain heap), for inserting alone
//! (an append and a little deferred work: 40 ns where a heap takes 10), and, if memory is short, for keys
//! that arrive sorted, on which a heap hardly moves anything. Memory that was once used stays for reuse until
//! [`PageQueue::shrink_to_fit`]. Only [`IndexedHeap`] has a decrease-key that keeps the handle, queues cannot
//! be merged, and `PageQueue` needs items that are `Copy`: larger items can be referred to by a handle or an
//! index.
//!
//! # Comparison with other crates
//!
//! `std::collections::BinaryHeap`, `dary_heap` and `orx-priority-queue` are heaps in one array; they compare
//! fewer items than the textbook heap, but have the same cache misses (4 or 8 children per node reduce the
//! misses). A *sequence heap* (Sanders, 2000) merges sorted runs where this queue distributes unsorted ones;
//! it is the design of STXXL's queue, whose authors report about twice the speed of a binary heap in RAM and
//! a constant number of transfers for each block of items on disk.

#![no_std]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod blocks;
#[cfg(feature = "std")]
pub mod file;
pub mod heap;
pub mod indexed;
pub mod layout;
pub mod lazy;
pub mod memory;
pub mod page_queue;
pub mod queue;
pub mod rows;
pub mod trace;

#[cfg(feature = "std")]
pub use file::{FileHeap, FileQueue, FileTimers};
pub use heap::{BHeap, BinaryHeap, Heap};
pub use indexed::IndexedHeap;
pub use lazy::LazyQueue;
pub use page_queue::PageQueue;
pub use queue::{Handle, HandleQueue, PriorityQueue, Refusal, StaleHandle};
pub use rows::{Full, Rows};
