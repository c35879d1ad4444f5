//! Simulation of the two classic heaps with memories of every size.

use bheap::heap::Heap;
use bheap::layout::{Binary, Layout, PageLayout};
use bheap::trace::{Trace, TracedRows};

use super::article;
use super::keys::Random3;
use super::lru::{LruTransfers, Transfers};
use super::phases::three_phases;
use crate::experiment::Refusal;

/// Sizes of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Number of items that are inserted.
    pub items: usize,
    /// Bytes of a page, a power of two.
    pub page_bytes: usize,
    /// Bytes of an item: 4, 8 or 16.
    pub item_bytes: usize,
}

/// Result of a simulation: the simulated memory of each heap, and the number of pages.
#[derive(Debug)]
pub struct SimulatedHeaps {
    /// Sizes of the simulation.
    pub shape: Shape,
    /// Memory of the textbook heap.
    pub binary: LruTransfers,
    /// Memory of the B-heap.
    pub paged: LruTransfers,
    /// Number of pages that the larger heap touches: in a memory of this size nothing is transferred.
    pub pages: usize,
}

/// Layout of a heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeapLayout {
    /// The textbook's layout.
    Binary,
    /// The B-heap's layout.
    Paged,
}

impl Shape {
    /// Returns the number of items in a page.
    #[must_use]
    pub const fn page_items(self) -> usize {
        self.page_bytes / self.item_bytes
    }

    /// Returns the number of inserts and removes in the three phases: four per item.
    #[must_use]
    pub const fn operations(self) -> usize {
        4 * self.items
    }

    /// Returns whether these are the article's sizes.
    #[must_use]
    pub const fn is_the_articles(self) -> bool {
        self.items == article::ITEMS
            && self.page_bytes == article::PAGE_BYTES
            && self.item_bytes == article::ITEM_BYTES
    }

    /// Checks that pages and items of these sizes are possible.
    ///
    /// # Errors
    /// [`Refusal::Usage`] with the right range if they are not.
    pub fn check(self) -> Result<(), Refusal> {
        if !matches!(self.item_bytes, 4 | 8 | 16) {
            return Err(Refusal::Usage(format!("--item-bytes {}: 4, 8 or 16", self.item_bytes)));
        }
        if !self.page_bytes.is_power_of_two() || self.page_bytes > 1 << 30 {
            return Err(Refusal::Usage(format!(
                "--page-bytes {}: a power of two, at most 1 GiB; for instance 4096",
                self.page_bytes
            )));
        }
        if self.items == 0 || self.items > 100_000_000 {
            return Err(Refusal::Usage(format!("--items {}: from 1 to 100000000", self.items)));
        }
        if self.page_items() < 4 {
            return Err(Refusal::Usage(format!(
                "--page-bytes {}: at least four items of {} bytes must fit",
                self.page_bytes, self.item_bytes
            )));
        }
        Ok(())
    }

    /// Runs both classic heaps through the phases, each on its own thread.
    ///
    /// # Panics
    /// Panics if a heap loses an item.
    #[must_use]
    pub fn simulate(self, seed: u32) -> SimulatedHeaps {
        let (binary, paged) = std::thread::scope(|scope| {
            let other = scope.spawn(|| self.memory_of(HeapLayout::Binary, seed));
            let paged = self.memory_of(HeapLayout::Paged, seed);
            (other.join(), paged)
        });
        let Ok(binary) = binary else { panic!("the simulation of the binary heap panicked") };
        let pages = binary.pages().max(paged.pages());
        SimulatedHeaps { shape: self, binary, paged, pages }
    }

    /// Returns the memory of one classic heap after the three phases.
    #[must_use]
    pub fn memory_of(self, which: HeapLayout, seed: u32) -> LruTransfers {
        let memory = LruTransfers::new(self.page_bytes);
        self.drive(which, seed, &memory);
        memory
    }

    /// Runs one classic heap through the phases with any recorder.
    pub fn drive(self, which: HeapLayout, seed: u32, trace: impl Trace) {
        match self.item_bytes {
            4 => self.drive_items::<u32>(which, seed, trace),
            16 => self.drive_items::<u128>(which, seed, trace),
            _ => self.drive_items::<u64>(which, seed, trace),
        }
    }

    fn drive_items<T: Ord + Copy + TryFrom<u64> + TryInto<u64>>(
        self,
        which: HeapLayout,
        seed: u32,
        trace: impl Trace,
    ) {
        match which {
            HeapLayout::Binary => drive_layout::<T>(Binary, self.items, seed, trace),
            HeapLayout::Paged => {
                let Ok(layout) = PageLayout::for_page_bytes::<T>(self.page_bytes) else {
                    panic!("a page of {} bytes", self.page_bytes)
                };
                drive_layout::<T>(layout, self.items, seed, trace);
            }
        }
    }
}

/// Runs a heap of this layout through the phases. Positions count from 0, the published indices from 1:
/// position 0 is one item past a page boundary, so that index `P` begins a page.
pub fn drive_layout<T: Ord + Copy + TryFrom<u64> + TryInto<u64>>(
    layout: impl Layout,
    items: usize,
    seed: u32,
    trace: impl Trace,
) {
    let rows = TracedRows::new(Vec::<T>::new(), trace, size_of::<T>());
    let mut random = Random3::new(seed);
    three_phases(&mut Heap::with_rows(layout, rows), items, |_| random.next().map_or(0, u64::from));
}

impl SimulatedHeaps {
    /// Returns the transfers of both heaps in a memory of `resident` pages.
    #[must_use]
    pub fn at(&self, resident: usize) -> (Transfers, Transfers) {
        (self.binary.transfers(resident), self.paged.transfers(resident))
    }

    /// Returns the transfers of both heaps in a memory that lacks `missing` pages.
    #[must_use]
    pub fn missing(&self, missing: usize) -> (Transfers, Transfers) {
        self.at(self.pages - missing)
    }

    /// Returns a number of transfers per operation.
    #[must_use]
    pub fn an_operation(&self, transfers: u64) -> f64 {
        transfers as f64 / self.shape.operations() as f64
    }
}

/// Recorder adapter for rows as Varnish allocates them: each has 64 Ki pointers in a mapping of its own, 16
/// bytes past a page boundary.
#[derive(Debug)]
pub struct MisalignedRows<'a> {
    memory: &'a LruTransfers,
}

impl<'a> MisalignedRows<'a> {
    /// Bytes of a row of 8-byte pointers.
    const ROW_BYTES: usize = 65_536 * 8;
    /// Offset of a row from the page boundary, caused by the allocator.
    const OFF_BYTES: usize = 16;

    /// Wraps the recorder `memory`.
    #[must_use]
    pub const fn new(memory: &'a LruTransfers) -> Self {
        Self { memory }
    }

    const fn moved(address: usize) -> usize {
        let (row, within) = (address / Self::ROW_BYTES, address % Self::ROW_BYTES);
        // A row's mapping has one page more than the row, for the bytes beyond its last page.
        row * (Self::ROW_BYTES + article::PAGE_BYTES) + Self::OFF_BYTES + within
    }
}

impl Trace for MisalignedRows<'_> {
    fn read(&self, address: usize, bytes: usize) {
        self.memory.read(Self::moved(address), bytes);
    }
    fn write(&self, address: usize, bytes: usize) {
        self.memory.write(Self::moved(address), bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes each of a million slots once, from index 1, and returns the number of touched pages.
    fn pages_of(trace: impl Trace, memory: &LruTransfers) -> usize {
        for index in 1..=article::ITEMS {
            trace.write(index * article::ITEM_BYTES, article::ITEM_BYTES);
        }
        memory.pages()
    }

    #[test]
    fn rows_past_the_boundary_take_fifteen_pages_more() {
        let aligned = LruTransfers::new(article::PAGE_BYTES);
        assert_eq!(pages_of(&aligned, &aligned), 1954);
        let memory = LruTransfers::new(article::PAGE_BYTES);
        // Fifteen whole rows take 129 pages instead of 128, and the last row takes 34.
        assert_eq!(pages_of(MisalignedRows::new(&memory), &memory), 15 * 129 + 34);
    }

    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        let right = Shape { items: 10, page_bytes: 64, item_bytes: 16 };
        assert_eq!(right.check(), Ok(()));
        for wrong in [
            Shape { items: 0, ..right },
            Shape { page_bytes: 0, ..right },
            Shape { page_bytes: 96, ..right },
            Shape { page_bytes: 32, ..right },
            Shape { item_bytes: 12, ..right },
        ] {
            assert!(matches!(wrong.check(), Err(Refusal::Usage(_))), "{wrong:?}");
        }
    }
}
