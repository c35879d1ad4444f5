//! Page-aligned memory: the crate's only unsafe code besides the mapping of files.
//!
//! A `Vec` guarantees only the alignment of its item (8 bytes for a `u64`), and common allocators put 16
//! bytes of their own before a large block. A layout that relies on pages is then off by two items in *every*
//! page, and each walk touches pages that it was meant to avoid (Varnish's published heap is misaligned in
//! this way). The block is therefore allocated with the page as its alignment, and grown with the same
//! alignment.
//!
//! ```text
//!   base (a multiple of page_bytes)
//!   │ lead unused cells │ item 0 │ item 1 │ … │ item len−1 │ reserved, never touched │
//! ```

#![allow(unsafe_code)]

use crate::layout::PageSizeError;
use crate::rows::{Full, Rows};
use alloc::alloc::{alloc, dealloc, realloc};
use core::alloc::Layout as Block;
use core::ptr::NonNull;

/// An array whose cell 0 is at the start of a page, with `lead` unused cells before item 0.
pub struct AlignedRows<T> {
    /// Base of the block; dangling while `cells == 0`. Invariant: aligned to `page_bytes`.
    base: NonNull<T>,
    /// Number of cells in the block. Invariant: the block was allocated with `block(cells)`.
    cells: usize,
    /// Number of initialised items. Invariant: `lead + len <= cells`, or `cells == 0 && len == 0`; cells
    /// `lead..lead + len` are initialised and no others.
    len: usize,
    lead: usize,
    page_bytes: usize,
    /// Maximum number of items.
    items_max: usize,
}

// SAFETY: the array owns its items as a `Vec` does; sending it sends them, sharing it shares them.
unsafe impl<T: Send> Send for AlignedRows<T> {}
// SAFETY: nothing in the array can be changed through a shared reference; sharing it shares its items.
unsafe impl<T: Sync> Sync for AlignedRows<T> {}

impl<T> AlignedRows<T> {
    /// Creates an empty array, without an allocation. `lead` cells stay unused before the first item.
    ///
    /// # Errors
    /// Returns a [`PageSizeError`] if `page_bytes` is not a power of two or is smaller than the alignment of
    /// `T`, or `T` has no size.
    pub const fn new(page_bytes: usize, lead: usize) -> Result<Self, PageSizeError> {
        if size_of::<T>() == 0 {
            return Err(PageSizeError::ZeroSized);
        }
        if !page_bytes.is_power_of_two() {
            return Err(PageSizeError::NotPowerOfTwo(page_bytes));
        }
        if page_bytes < align_of::<T>() {
            return Err(PageSizeError::TooSmall(page_bytes));
        }
        let items_max = isize::MAX as usize / size_of::<T>() / 2;
        Ok(Self { base: NonNull::dangling(), cells: 0, len: 0, lead, page_bytes, items_max })
    }

    /// Limits the array to `items_max` items: [`Rows::push`] returns any further item.
    #[must_use]
    pub const fn limited(mut self, items_max: usize) -> Self {
        if items_max < self.items_max {
            self.items_max = items_max;
        }
        self
    }

    /// Returns the page size in bytes.
    #[must_use]
    pub const fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Returns the page, counted from the block's first, that holds the item at `at`: computed from the
    /// item's real address, not from index arithmetic.
    ///
    /// # Panics
    /// Panics if there is no such item.
    #[must_use]
    pub fn page_of(&self, at: usize) -> usize {
        let address = core::ptr::from_ref(self.item(at)).addr();
        address / self.page_bytes - self.base.as_ptr().addr() / self.page_bytes
    }

    /// Returns the items in order.
    #[must_use]
    pub fn as_slice(&self) -> &[T] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: `len > 0` means that a block exists and that cells `lead..lead + len` are initialised (struct
        // invariant); the borrow of `self` keeps them so. Without it the slice would read unset memory.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr().wrapping_add(self.lead), self.len) }
    }

    fn as_mut_slice(&mut self) -> &mut [T] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: as in `as_slice`; the exclusive borrow makes this the only path to the items.
        unsafe { core::slice::from_raw_parts_mut(self.base.as_ptr().wrapping_add(self.lead), self.len) }
    }

    /// Returns the layout of a block of `cells` cells, or `None` if it is larger than the address space
    /// allows.
    fn block(&self, cells: usize) -> Option<Block> {
        let bytes = cells.checked_mul(size_of::<T>())?.checked_next_multiple_of(self.page_bytes)?;
        Block::from_size_align(bytes, self.page_bytes).ok()
    }

    /// Makes room for at least one more item; returns false if there is no memory.
    fn grow(&mut self) -> bool {
        let page_cells = (self.page_bytes / size_of::<T>()).max(1);
        let wanted = (self.cells * 2).max(self.lead + 1).max(page_cells).next_multiple_of(page_cells);
        let Some(new) = self.block(wanted) else { return false };
        let old = self.block(self.cells).filter(|_| self.cells > 0);
        let base = match old {
            // SAFETY: the size is not zero: `wanted >= 1` and `T` has a size (checked by `new`). The result is
            // aligned to `page_bytes`, because the layout asks for that.
            None => unsafe { alloc(new) },
            // SAFETY: `base` came from this allocator with exactly the layout `old` (struct invariant), and the
            // new size is not zero nor, rounded up to the alignment, above `isize::MAX` (checked by
            // `Block::from_size_align`). The allocator copies the cells and keeps the alignment.
            Some(old) => unsafe { realloc(self.base.as_ptr().cast(), old, new.size()) },
        };
        let Some(base) = NonNull::new(base.cast::<T>()) else { return false };
        self.base = base;
        self.cells = wanted;
        assert!(self.base.as_ptr().addr().is_multiple_of(self.page_bytes), "rows begin where a page begins");
        true
    }
}

impl<T> Rows<T> for AlignedRows<T> {
    #[inline]
    fn len(&self) -> usize {
        self.len
    }
    #[inline]
    fn item(&self, at: usize) -> &T {
        &self.as_slice()[at]
    }
    #[inline]
    fn swap(&mut self, a: usize, b: usize) {
        self.as_mut_slice().swap(a, b);
    }
    #[inline]
    fn replace(&mut self, at: usize, item: T) -> T {
        core::mem::replace(&mut self.as_mut_slice()[at], item)
    }
    #[inline]
    fn push(&mut self, item: T) -> Result<(), Full<T>> {
        if self.len >= self.items_max || (self.lead + self.len >= self.cells && !self.grow()) {
            return Err(Full(item));
        }
        let cell = self.base.as_ptr().wrapping_add(self.lead + self.len);
        // SAFETY: `lead + len < cells`, so the cell lies in the block; it is not initialised (struct invariant),
        // so nothing is overwritten that would need dropping.
        unsafe { cell.write(item) };
        self.len += 1;
        Ok(())
    }
    #[inline]
    fn pop(&mut self) -> Option<T> {
        self.len = self.len.checked_sub(1)?;
        let cell = self.base.as_ptr().wrapping_add(self.lead + self.len);
        // SAFETY: the cell is initialised; since `len` has been lowered, it now counts as uninitialised, so
        // it is read exactly once.
        Some(unsafe { cell.read() })
    }
}

impl<T> Drop for AlignedRows<T> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
        if let Some(block) = self.block(self.cells).filter(|_| self.cells > 0) {
            // SAFETY: `base` came from this allocator with exactly this layout, and every item has been moved
            // out, so that nothing refers to the block.
            unsafe { dealloc(self.base.as_ptr().cast(), block) };
        }
    }
}

impl<T: core::fmt::Debug> core::fmt::Debug for AlignedRows<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("AlignedRows")
            .field("page_bytes", &self.page_bytes)
            .field("lead", &self.lead)
            .field("items", &self.as_slice())
            .finish()
    }
}

/// A fixed number of uninitialised, page-aligned cells, written in order block by block.
///
/// The cells are divided into blocks of `block_cells`; in each block, only the prefix that has been written
/// can be read. Every read therefore covers initialised cells only, whatever the arguments.
pub(crate) struct Segment<T> {
    /// Invariant: from `alloc` with `Self::block(cells)`, aligned to `align`.
    base: NonNull<T>,
    cells: usize,
    align: usize,
    block_cells: usize,
    /// Number of initialised cells at the start of each block. Invariant: `written[b] <= block_cells`.
    written: alloc::boxed::Box<[u32]>,
}

// SAFETY: a segment owns its cells; `T: Copy` has no drop and nothing refers to them from outside.
unsafe impl<T: Copy + Send> Send for Segment<T> {}
// SAFETY: cells change only through `&mut self`.
unsafe impl<T: Copy + Sync> Sync for Segment<T> {}

impl<T: Copy> Segment<T> {
    fn block(cells: usize, align: usize) -> Option<Block> {
        Block::from_size_align(cells.checked_mul(size_of::<T>())?, align).ok()
    }

    /// Allocates `blocks` blocks of `block_cells` cells, reserved but not touched; `None` if there is no
    /// memory.
    pub(crate) fn new(blocks: usize, block_cells: usize, align: usize) -> Option<Self> {
        let cells = blocks.checked_mul(block_cells)?;
        let layout = Self::block(cells, align.max(align_of::<T>()))?;
        if layout.size() == 0 {
            return None;
        }
        // SAFETY: the size is not zero, as just checked.
        let base = unsafe { alloc(layout) };
        Some(Self {
            base: NonNull::new(base.cast::<T>())?,
            cells,
            align: layout.align(),
            block_cells,
            written: alloc::vec![0; blocks].into_boxed_slice(),
        })
    }

    /// Returns the first `len` cells of block `block`.
    #[inline]
    pub(crate) fn read(&self, block: usize, len: usize) -> &[T] {
        assert!(len <= self.written[block] as usize, "a block is read only where it was written");
        let first = self.base.as_ptr().wrapping_add(block * self.block_cells);
        // SAFETY: `block` is below the number of blocks (indexing `written` checked it), so that the cells lie in
        // the allocation; the first `written[block] >= len` of them are initialised; `&self` keeps them so.
        unsafe { core::slice::from_raw_parts(first, len) }
    }

    /// Writes `items` to cells `at..` of block `block`; `at` is at most the number of cells written so far.
    #[inline]
    pub(crate) fn write(&mut self, block: usize, at: usize, items: &[T]) {
        let end = at + items.len();
        let written = &mut self.written[block];
        assert!(at <= *written as usize && end <= self.block_cells, "a block is written without gaps");
        if end > *written as usize {
            *written = end as u32;
        }
        let first = self.base.as_ptr().wrapping_add(block * self.block_cells + at);
        // SAFETY: `block` is below the number of blocks and `end <= block_cells`, so that the target lies in the
        // allocation; `items` cannot overlap it, because `&mut self` excludes borrowed cells.
        unsafe { core::ptr::copy_nonoverlapping(items.as_ptr(), first, items.len()) };
    }

    /// Returns the address of a block's first cell, for tests of alignment.
    #[cfg(test)]
    pub(crate) fn address(&self, block: usize) -> usize {
        self.base.as_ptr().wrapping_add(block * self.block_cells).addr()
    }
}

impl<T> Drop for Segment<T> {
    fn drop(&mut self) {
        if let Ok(layout) = Block::from_size_align(self.cells * size_of::<T>(), self.align) {
            // SAFETY: allocated in `new` with this very size and alignment; items are `Copy` and need no drop.
            unsafe { dealloc(self.base.as_ptr().cast(), layout) };
        }
    }
}

impl<T> core::fmt::Debug for Segment<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Segment")
            .field("cells", &self.cells)
            .field("align", &self.align)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::rc::Rc;

    #[test]
    fn rows_are_aligned_to_every_page_size() {
        for shift in 6..=21 {
            let mut rows = AlignedRows::<u64>::new(1 << shift, 1).unwrap();
            for n in 0..(3_u64 << shift) / 8 {
                rows.push(n).unwrap();
            }
            for at in [0, 1, (1 << shift) / 8 - 2, (1 << shift) / 8 - 1, (2 << shift) / 8 - 1] {
                assert_eq!(rows.page_of(at), (at + 1) / ((1 << shift) / 8), "position {at} at 2^{shift}");
                assert_eq!(*rows.item(at), at as u64);
            }
        }
    }

    #[test]
    fn items_are_dropped_once() {
        let token = Rc::new(());
        let mut rows = AlignedRows::new(64, 1).unwrap();
        for _ in 0..100 {
            rows.push(Rc::clone(&token)).unwrap();
        }
        drop(rows.pop());
        drop(rows.replace(3, Rc::clone(&token)));
        assert_eq!(Rc::strong_count(&token), 100);
        drop(rows);
        assert_eq!(Rc::strong_count(&token), 1);
    }

    #[test]
    fn every_block_of_a_segment_begins_a_page() {
        let segment = Segment::<u64>::new(8, 512, 4096).unwrap();
        assert!((0..8).all(|block| segment.address(block).is_multiple_of(4096)));
    }

    #[test]
    fn above_its_limit_an_item_comes_back() {
        let mut rows = AlignedRows::new(64, 1).unwrap().limited(3);
        for n in 0..3 {
            rows.push(n).unwrap();
        }
        assert_eq!(rows.push(9), Err(Full(9)));
        assert_eq!(rows.as_slice(), [0, 1, 2]);
    }

    #[test]
    fn odd_pages_are_refused() {
        assert!(matches!(AlignedRows::<u64>::new(100, 1), Err(PageSizeError::NotPowerOfTwo(100))));
        assert!(matches!(AlignedRows::<u64>::new(4, 1), Err(PageSizeError::TooSmall(4))));
        assert!(matches!(AlignedRows::<()>::new(64, 1), Err(PageSizeError::ZeroSized)));
    }
}
