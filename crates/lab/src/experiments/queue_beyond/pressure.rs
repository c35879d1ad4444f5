//! Transfers per operation when memory is short: perfect LRU, every size at once, first touches charged, no
//! hints.
//!
//! The page queue's working memory (its small heap, its front, the headers of its lists, its sort buffer) is
//! counted like any other page.

use bheap::PageQueue;
use bheap::blocks::{Arena, TracedBlocks};
use bheap::heap::Heap;
use bheap::layout::{Binary, PageLayout, PageSizeError};
use bheap::trace::TracedRows;

use super::keys::Keys;
use crate::experiments::bheap_sim::article::PAGE_BYTES;
use crate::experiments::bheap_sim::lru::LruTransfers;
use crate::experiments::bheap_sim::three_phases;

/// Queue to simulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueChoice {
    /// The textbook's binary heap.
    Binary,
    /// The B-heap as published.
    BHeap,
    /// The page queue as constructed for a memory of this many pages.
    PageQueue(usize),
}

/// Simulated memory of one queue after the three phases.
#[derive(Debug)]
pub struct SimulatedQueue {
    /// Queue that was simulated.
    pub which: QueueChoice,
    /// Maximum number of items in the queue.
    pub items: usize,
    /// Transfers in a memory of each size.
    pub memory: LruTransfers,
}

/// Memory sizes in pages for the report, from the smallest to those at which everything is resident.
pub const RESIDENT: [usize; 15] = [8, 9, 10, 12, 16, 32, 64, 128, 256, 512, 1024, 1800, 1954, 1980, 2100];

impl QueueChoice {
    /// Returns the name for reports.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Binary => "binary heap".to_owned(),
            Self::BHeap => "B-heap".to_owned(),
            Self::PageQueue(pages) => format!("page queue for {pages}"),
        }
    }

    /// Runs the queue through the phases with items of 8 bytes and the article's pages.
    ///
    /// # Errors
    /// [`PageSizeError`] never occurs with the page size used here.
    pub fn simulate(self, items: usize, keys: Keys) -> Result<SimulatedQueue, PageSizeError> {
        let memory = LruTransfers::new(PAGE_BYTES);
        match self {
            // Position 0 is one item past the boundary, as in the article's simulation.
            Self::Binary => {
                let rows = TracedRows::new(Vec::<u64>::new(), &memory, size_of::<u64>());
                three_phases(&mut Heap::with_rows(Binary, rows), items, keys.sequence());
            }
            Self::BHeap => {
                let rows = TracedRows::new(Vec::<u64>::new(), &memory, size_of::<u64>());
                let layout = PageLayout::for_page_bytes::<u64>(PAGE_BYTES)?;
                three_phases(&mut Heap::with_rows(layout, rows), items, keys.sequence());
            }
            Self::PageQueue(pages) => {
                let blocks = TracedBlocks::new(Arena::<u64>::new(PAGE_BYTES)?, &memory);
                let mut queue = PageQueue::with_store(blocks, fan_out(pages));
                three_phases(&mut queue, items, keys.sequence());
            }
        }
        Ok(SimulatedQueue { which: self, items, memory })
    }
}

/// Returns the fan-out that [`PageQueue::with_memory`] chooses for `pages` pages: the queue writes to about a
/// quarter of them at the same time.
fn fan_out(pages: usize) -> usize {
    (pages / 4).clamp(4, 16)
}

impl SimulatedQueue {
    /// Returns the transfers per operation in a memory of `resident` pages, first touches charged.
    #[must_use]
    pub fn an_operation(&self, resident: usize) -> f64 {
        self.memory.transfers(resident).charged() as f64 / (4 * self.items) as f64
    }

    /// Returns the memory sizes within `sizes` at which this queue transfers more than `other`.
    pub fn above<'a>(
        &'a self,
        other: &'a Self,
        sizes: std::ops::RangeInclusive<usize>,
    ) -> impl Iterator<Item = usize> + 'a {
        sizes.filter(|&resident| {
            self.memory.transfers(resident).charged() > other.memory.transfers(resident).charged()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unordered_keys_favour_the_page_queue() {
        for keys in [Keys::Uniform(1), Keys::Uniform(20_250_101), Keys::Clustered] {
            let heap = QueueChoice::BHeap.simulate(60_000, keys).unwrap();
            let binary = QueueChoice::Binary.simulate(60_000, keys).unwrap();
            let queue = QueueChoice::PageQueue(9).simulate(60_000, keys).unwrap();
            assert_eq!(queue.above(&heap, 8..=90).next(), None, "{keys:?}");
            assert!(binary.above(&heap, 8..=90).count() == 83, "{keys:?}");
        }
    }

    #[test]
    fn transfers_are_reproducible_and_fall_with_memory() {
        let once = QueueChoice::PageQueue(64).simulate(30_000, Keys::Expiries).unwrap();
        let again = QueueChoice::PageQueue(64).simulate(30_000, Keys::Expiries).unwrap();
        for resident in 1..80 {
            assert_eq!(once.memory.transfers(resident), again.memory.transfers(resident));
            assert!(once.memory.transfers(resident + 1).reads <= once.memory.transfers(resident).reads);
        }
        // First touches are charged, so they remain when everything fits.
        let pages = once.memory.pages();
        assert!((once.an_operation(pages) * 120_000.0 - pages as f64).abs() < 1e-6);
    }
}
