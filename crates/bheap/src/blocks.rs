//! Blocks of items, one page each, and their allocation.

use crate::layout::PageSizeError;
use crate::memory::Segment;
use crate::trace::Trace;
use alloc::vec::Vec;

/// Marker for no block: the end of a chain.
pub const NO_BLOCK: u32 = u32::MAX;

/// Areas of a queue's working memory other than its blocks; named so that a recorder of memory accesses can
/// assign addresses to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    /// The small heap of the newest small items.
    Near,
    /// The sorted items that are popped next.
    Front,
    /// Buffer in which a block's items are sorted by destination.
    Scratch,
    /// List headers and samples; a unit is one list.
    Lists,
}

/// A store of blocks of `block_items` items each, chained by number.
///
/// Blocks are reused in the reverse order of their release: the one used last is most likely still in memory.
pub trait Blocks<T: Copy> {
    /// Returns the number of items in a block.
    fn block_items(&self) -> usize;
    /// Returns a block with unspecified items, or `None` if there is no room.
    fn allocate(&mut self) -> Option<u32>;
    /// Releases a block.
    fn release(&mut self, block: u32);
    /// Makes sure that the next `blocks` calls of [`Blocks::allocate`] succeed; returns false if they might
    /// not.
    fn reserve(&mut self, blocks: usize) -> bool;
    /// Returns the first `len` items of a block. Panics if fewer were written.
    fn read(&self, block: u32, len: usize) -> &[T];
    /// Writes items from position `at`, which is at most the number written so far.
    fn write(&mut self, block: u32, at: usize, items: &[T]);
    /// Returns the block after this one in its chain.
    fn next(&self, block: u32) -> u32;
    /// Sets the block after this one.
    fn set_next(&mut self, block: u32, next: u32);
    /// Reports an access to working memory outside the blocks, in items; for recorders.
    #[inline]
    fn touch(&self, area: Area, at: usize, items: usize, write: bool) {
        let _ = (area, at, items, write);
    }
}

/// Blocks in anonymous memory, allocated a segment at a time and never moved.
#[derive(Debug)]
pub struct Arena<T> {
    segments: Vec<Segment<T>>,
    /// Successor of each block, per segment.
    links: Vec<alloc::boxed::Box<[u32]>>,
    /// Head of the chain of released blocks.
    free: u32,
    free_blocks: usize,
    /// Number of blocks that have been allocated at least once.
    fresh: usize,
    block_items: usize,
    page_bytes: usize,
    /// Binary logarithm of the number of blocks in a segment.
    shift: u32,
    blocks_max: usize,
}

/// Approximate size of a segment: large enough for a short table of segments, small enough for a small queue.
const SEGMENT_BYTES: usize = 1 << 20;

impl<T: Copy> Arena<T> {
    /// Creates an empty arena of blocks of `page_bytes` bytes.
    ///
    /// # Errors
    /// [`PageSizeError::NotPowerOfTwo`] or [`PageSizeError::TooSmall`] if `page_bytes` is not a power of two
    /// or fewer than four items fit; [`PageSizeError::ZeroSized`] if an item has no size.
    pub fn new(page_bytes: usize) -> Result<Self, PageSizeError> {
        if size_of::<T>() == 0 {
            return Err(PageSizeError::ZeroSized);
        }
        if !page_bytes.is_power_of_two() {
            return Err(PageSizeError::NotPowerOfTwo(page_bytes));
        }
        let block_items = page_bytes / size_of::<T>();
        if block_items < 4 {
            return Err(PageSizeError::TooSmall(block_items));
        }
        Ok(Self {
            segments: Vec::new(),
            links: Vec::new(),
            free: NO_BLOCK,
            free_blocks: 0,
            fresh: 0,
            block_items,
            page_bytes,
            shift: (SEGMENT_BYTES / page_bytes).max(1).ilog2(),
            blocks_max: NO_BLOCK as usize,
        })
    }

    /// Limits the arena to `blocks_max` blocks.
    #[must_use]
    pub fn limited(mut self, blocks_max: usize) -> Self {
        self.blocks_max = blocks_max.min(NO_BLOCK as usize);
        self
    }

    /// Returns an empty arena for blocks of the same size, with the same limit.
    pub(crate) const fn empty_like(&self) -> Self {
        Self {
            segments: Vec::new(),
            links: Vec::new(),
            free: NO_BLOCK,
            free_blocks: 0,
            fresh: 0,
            block_items: self.block_items,
            page_bytes: self.page_bytes,
            shift: self.shift,
            blocks_max: self.blocks_max,
        }
    }

    /// Returns the bytes used by blocks that hold items and by blocks waiting for reuse; memory beyond these
    /// blocks is untouched.
    #[must_use]
    pub fn touched_bytes(&self) -> usize {
        self.fresh * (self.page_bytes + 2 * size_of::<u32>())
    }

    #[inline]
    const fn place(&self, block: u32) -> (usize, usize) {
        (block as usize >> self.shift, block as usize & ((1 << self.shift) - 1))
    }

    fn room(&self) -> usize {
        self.free_blocks + (self.segments.len() << self.shift).min(self.blocks_max) - self.fresh
    }
}

impl<T: Copy> Blocks<T> for Arena<T> {
    #[inline]
    fn block_items(&self) -> usize {
        self.block_items
    }

    fn allocate(&mut self) -> Option<u32> {
        if self.free != NO_BLOCK {
            let block = self.free;
            self.free = self.next(block);
            self.free_blocks -= 1;
            return Some(block);
        }
        if !self.reserve(1) {
            return None;
        }
        let block = self.fresh as u32;
        self.fresh += 1;
        Some(block)
    }

    fn release(&mut self, block: u32) {
        let free = self.free;
        self.set_next(block, free);
        self.free = block;
        self.free_blocks += 1;
    }

    fn reserve(&mut self, blocks: usize) -> bool {
        while self.room() < blocks {
            if self.segments.len() << self.shift >= self.blocks_max {
                return false;
            }
            let Some(segment) = Segment::new(1 << self.shift, self.block_items, self.page_bytes) else {
                return false;
            };
            self.segments.push(segment);
            self.links.push(alloc::vec![NO_BLOCK; 1 << self.shift].into_boxed_slice());
        }
        true
    }

    #[inline]
    fn read(&self, block: u32, len: usize) -> &[T] {
        let (segment, at) = self.place(block);
        self.segments[segment].read(at, len)
    }

    #[inline]
    fn write(&mut self, block: u32, at: usize, items: &[T]) {
        let (segment, slot) = self.place(block);
        self.segments[segment].write(slot, at, items);
    }

    #[inline]
    fn next(&self, block: u32) -> u32 {
        let (segment, at) = self.place(block);
        self.links[segment][at]
    }

    #[inline]
    fn set_next(&mut self, block: u32, next: u32) {
        let (segment, at) = self.place(block);
        self.links[segment][at] = next;
    }
}

/// Blocks whose accesses are all reported to a [`Trace`].
///
/// Addresses: working memory first (each area on pages of its own), then block `b` at `(AREA_PAGES + b) ·
/// page_bytes`.
#[derive(Debug)]
pub struct TracedBlocks<B, M> {
    blocks: B,
    trace: M,
    item_bytes: usize,
    page_bytes: usize,
    areas: [usize; 4],
    first_block: usize,
}

/// Size of a list's header in a trace: bounds, counters, and its sample of keys.
const LIST_BYTES: usize = 64;

impl<B, M: Trace> TracedBlocks<B, M> {
    /// Records accesses to `blocks`, whose items are `T`s.
    pub fn new<T: Copy>(blocks: B, trace: M) -> Self
    where
        B: Blocks<T>,
    {
        let page_bytes = blocks.block_items() * size_of::<T>();
        // The small heap, the sort buffer and the lists' headers are adjacent; the front follows them. (With
        // so few items that there are no lists, the heap is longer and extends into their area.)
        let (heap, chunk) = (256 * size_of::<T>(), 64 * size_of::<T>());
        let front = (heap + chunk + 8192 * LIST_BYTES).next_multiple_of(page_bytes);
        let areas = [0, front, heap, heap + chunk];
        let first_block = front + (2048 * size_of::<T>()).next_multiple_of(page_bytes);
        Self { blocks, trace, item_bytes: size_of::<T>(), page_bytes, areas, first_block }
    }

    const fn address(&self, block: u32, at: usize) -> usize {
        self.first_block + block as usize * self.page_bytes + at * self.item_bytes
    }
}

impl<T: Copy, B: Blocks<T>, M: Trace> Blocks<T> for TracedBlocks<B, M> {
    fn block_items(&self) -> usize {
        self.blocks.block_items()
    }
    fn allocate(&mut self) -> Option<u32> {
        self.blocks.allocate()
    }
    fn release(&mut self, block: u32) {
        self.blocks.release(block);
    }
    fn reserve(&mut self, blocks: usize) -> bool {
        self.blocks.reserve(blocks)
    }
    fn read(&self, block: u32, len: usize) -> &[T] {
        if len > 0 {
            self.trace.read(self.address(block, 0), len * self.item_bytes);
        }
        self.blocks.read(block, len)
    }
    fn write(&mut self, block: u32, at: usize, items: &[T]) {
        if !items.is_empty() {
            self.trace.write(self.address(block, at), size_of_val(items));
        }
        self.blocks.write(block, at, items);
    }
    fn next(&self, block: u32) -> u32 {
        self.blocks.next(block)
    }
    fn set_next(&mut self, block: u32, next: u32) {
        self.blocks.set_next(block, next);
    }
    fn touch(&self, area: Area, at: usize, items: usize, write: bool) {
        let unit = if area == Area::Lists { LIST_BYTES } else { self.item_bytes };
        let address = self.areas[area as usize] + at * unit;
        if items == 0 {
        } else if write {
            self.trace.write(address, items * unit);
        } else {
            self.trace.read(address, items * unit);
        }
    }
}
