//! The queues that page: one that is asked for by name, filled, and pushed and popped.

use std::io;
use std::path::Path;

use bheap::blocks::Blocks;
use bheap::heap::Heap;
use bheap::layout::{Binary, Layout, PageLayout};
use bheap::{PageQueue, Rows};
use engine::sys::mapping::WriteOut;
use serde::{Deserialize, Serialize};

use super::storage::{PagedBlocks, PagedRows};

/// Which queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The textbook's.
    BinaryHeap,
    /// As published.
    BHeap,
    /// Ours.
    PageQueue,
}

impl Kind {
    /// All of them, the slowest first.
    pub const ALL: [Self; 3] = [Self::BinaryHeap, Self::BHeap, Self::PageQueue];

    /// What it is called in a report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BinaryHeap => "binary heap",
            Self::BHeap => "B-heap",
            Self::PageQueue => "page queue",
        }
    }

    /// Pairs before the measurement and in it, of a queue of `items` keys, where `pairs` are enough for one whose
    /// every pair faults alike. The page queue's work comes in waves, of which the longest takes as many pairs as
    /// there are items: it does so many.
    #[must_use]
    pub const fn pairs(self, pairs: (u64, u64), items: usize) -> (u64, u64) {
        match self {
            Self::BinaryHeap | Self::BHeap => pairs,
            Self::PageQueue => (items as u64 / 4, items as u64),
        }
    }
}

/// A queue of keys of 8 bytes that gives the smallest.
pub trait PagedQueue {
    /// Removes the smallest and inserts another; says what was removed. Two operations, as the article's phase has
    /// them, and not the one that both could be made of.
    fn remove_insert(&mut self, key: u64) -> Option<u64>;
    /// How many keys it holds.
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

/// Parts into which a level of the page queue is divided: what its own constructor chooses for a memory of 64 pages
/// or more.
const FAN_OUT: usize = 16;

/// A queue of this kind that holds `items` keys, with its storage in a file below `directory`, and the way to write
/// that out. The heaps are put in order at once, in O(n); the page queue is filled an item at a time.
///
/// # Errors
/// If the disk is full, or a page holds no sensible number of items.
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
        // Twice the items' own bytes: its lists end in blocks that are not full, and it divides them by copying.
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
    fn a_page_size_that_is_no_power_of_two_is_refused() {
        let scratch = Scratch::on_disk(None).unwrap();
        for kind in [Kind::BHeap, Kind::PageQueue] {
            assert!(filled(kind, scratch.path(), 10, 3000, || 1).is_err(), "{kind:?}");
        }
    }
}
