//! The queues under test, by kind: each can be filled, pushed and popped.

use std::io;
use std::path::Path;

use bheap::blocks::Blocks;
use bheap::heap::Heap;
use bheap::layout::{Binary, Layout, PageLayout};
use bheap::{PageQueue, Rows};
use engine::sys::mapping::WriteOut;
use serde::{Deserialize, Serialize};

use super::storage::{PagedBlocks, PagedRows};

/// Kind of queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The textbook's binary heap.
    BinaryHeap,
    /// The B-heap as published.
    BHeap,
    /// Our page queue.
    PageQueue,
}

impl Kind {
    /// Kinds of queues, the slowest first.
    pub const ALL: [Self; 3] = [Self::BinaryHeap, Self::BHeap, Self::PageQueue];

    /// Returns the name for reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BinaryHeap => "binary heap",
            Self::BHeap => "B-heap",
            Self::PageQueue => "page queue",
        }
    }

    /// Returns the numbers of pairs in the warm-up and in the measurement of a queue of `items` keys. `pairs`
    /// suffice for the heaps, where every pair causes about as many faults. The page queue works in waves,
    /// the longest of which takes as many pairs as there are items, so it is measured over that many.
    #[must_use]
    pub const fn pairs(self, pairs: (u64, u64), items: usize) -> (u64, u64) {
        match self {
            Self::BinaryHeap | Self::BHeap => pairs,
            Self::PageQueue => (items as u64 / 4, items as u64),
        }
    }
}

/// A queue of 8-byte keys that returns the smallest first.
pub trait PagedQueue {
    /// Removes the smallest key, inserts another, and returns the removed one. These are two operations, as
    /// in the B-heap article, and not a combined replacement.
    fn remove_insert(&mut self, key: u64) -> Option<u64>;
    /// Returns the number of keys.
    fn held(&self) -> usize;
}

impl<L: Layout, R: Rows<u64>> PagedQueue for Heap<u64, L, R> {
    fn remove_insert(&mut self, key: u64) -> Option<u64> {
        let removed = self.pop()?;
        self.push(key);
        Some(removed)
    }
    fn held(&self) -> usize {
        self.len()
    }
}

impl<B: Blocks<u64>> PagedQueue for PageQueue<u64, B> {
    fn remove_insert(&mut self, key: u64) -> Option<u64> {
        let removed = self.pop()?;
        self.push(key);
        Some(removed)
    }
    fn held(&self) -> usize {
        self.len()
    }
}

/// Number of parts into which a level of the page queue is divided; its own constructor chooses this for a
/// memory of 64 pages or more.
const FAN_OUT: usize = 16;

/// Creates a queue of this kind with `items` keys and storage in a file below `directory`, and a handle that
/// writes the file out. The heaps are built at once, in O(n); the page queue is filled item by item.
///
/// # Errors
/// Returns an error if the disk is full, or if the page size does not suit the items.
pub fn filled(
    kind: Kind,
    directory: &Path,
    items: usize,
    page_bytes: usize,
    mut key: impl FnMut() -> u64,
) -> io::Result<(Box<dyn PagedQueue>, WriteOut)> {
    if kind == Kind::PageQueue {
        if !page_bytes.is_power_of_two() || page_bytes < 4 * size_of::<u64>() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a page's bytes are no power of two, or too few",
            ));
        }
        // The storage has twice the items' bytes: the queue's lists end in blocks that are not full, and it
        // divides them by copying.
        let blocks = 2 * items.div_ceil(page_bytes / size_of::<u64>()) + 1024;
        let storage = PagedBlocks::create(directory, blocks, page_bytes)?;
        let out = storage.write_out()?;
        let mut queue = PageQueue::with_store(storage, FAN_OUT);
        for _ in 0..items {
            queue.try_push(key()).map_err(|full| io::Error::other(full.to_string()))?;
        }
        return Ok((Box::new(queue), out));
    }
    let mut rows = PagedRows::create(directory, PageLayout::INDEX_OF_ROOT, items)?;
    for _ in 0..items {
        rows.push(key()).map_err(|full| io::Error::other(full.to_string()))?;
    }
    let out = rows.write_out()?;
    if kind == Kind::BinaryHeap {
        return Ok((Box::new(Heap::with_rows(Binary, rows)), out));
    }
    let layout = PageLayout::for_page_bytes::<u64>(page_bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error.to_string()))?;
    Ok((Box::new(Heap::with_rows(layout, rows)), out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::memory_ladder::random::Random;
    use crate::experiments::scratch::Scratch;

    #[test]
    fn all_take_what_the_library_takes() {
        let scratch = Scratch::on_disk(None).unwrap();
        for kind in Kind::ALL {
            let mut random = Random::new(4);
            let mut twin = std::collections::BinaryHeap::new();
            let (mut queue, out) = filled(kind, scratch.path(), 5000, 4096, || {
                let key = random.word() >> 33;
                twin.push(std::cmp::Reverse(key));
                key
            })
            .unwrap();
            out.now().unwrap();
            for _ in 0..20_000 {
                let key = random.word() >> 33;
                let least = twin.pop().unwrap().0;
                twin.push(std::cmp::Reverse(key));
                assert_eq!(queue.remove_insert(key), Some(least), "{kind:?}");
            }
            assert_eq!(queue.held(), 5000);
        }
    }

    #[test]
    fn page_sizes_must_be_a_power_of_two() {
        let scratch = Scratch::on_disk(None).unwrap();
        for kind in [Kind::BHeap, Kind::PageQueue] {
            assert!(filled(kind, scratch.path(), 10, 3000, || 1).is_err(), "{kind:?}");
        }
    }
}
