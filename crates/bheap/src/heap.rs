//! The implicit heap: a tree in an array, each node no larger than its children.
//!
//! One algorithm serves every [`Layout`] and every [`Rows`]. Items are moved only by swapping, and an item
//! that is being removed returns to the end of the array if a comparison panics before the order is restored:
//! no item is lost or duplicated. (The order is then unspecified, as with the standard library's heap;
//! [`Heap::rebuild`] restores it.)

use crate::layout::{Binary, Layout, PageLayout, PageSizeError};
use crate::memory::AlignedRows;
use crate::rows::{Full, Rows};
use alloc::vec::Vec;
use core::marker::PhantomData;

/// The textbook binary heap, smallest first: the baseline for all comparisons, and the reference
/// implementation in the tests.
///
/// ```
/// let mut heap = bheap::BinaryHeap::from_vec(vec![30_u64, 10, 20]);
/// heap.push(5);
/// assert_eq!(heap.peek(), Some(&5));
/// assert_eq!(heap.pop_push(40), Some(5));
/// assert_eq!(heap.drain().collect::<Vec<_>>(), [10, 20, 30, 40]);
/// ```
pub type BinaryHeap<T> = Heap<T, Binary, Vec<T>>;

/// The B-heap as published, in memory aligned to a page.
///
/// ```
/// let mut heap = bheap::BHeap::new(4096)?;
/// heap.push((9_u64, 1_u64));
/// heap.push((3, 2));
/// assert_eq!(heap.pop(), Some((3, 2)));
/// # Ok::<(), bheap::layout::PageSizeError>(())
/// ```
pub type BHeap<T> = Heap<T, PageLayout, AlignedRows<T>>;

impl<T: Ord> BHeap<T> {
    /// Creates an empty B-heap for pages of `page_bytes` bytes.
    ///
    /// # Errors
    /// Returns a [`PageSizeError`] if fewer than four items fill a page, or their number is not a power of
    /// two.
    pub fn new(page_bytes: usize) -> Result<Self, PageSizeError> {
        let layout = PageLayout::for_page_bytes::<T>(page_bytes)?;
        let rows = AlignedRows::new(page_bytes, PageLayout::INDEX_OF_ROOT)?;
        Ok(Self { layout, rows, item: PhantomData })
    }

    /// Creates an empty B-heap that holds at most `items_max` items; [`Heap::try_push`] returns any further
    /// item.
    ///
    /// # Errors
    /// Returns the errors of [`BHeap::new`].
    pub fn with_limit(page_bytes: usize, items_max: usize) -> Result<Self, PageSizeError> {
        let mut heap = Self::new(page_bytes)?;
        heap.rows = heap.rows.limited(items_max);
        Ok(heap)
    }

    /// Iterates over the items in storage order, which is not sorted.
    pub fn iter(&self) -> core::slice::Iter<'_, T> {
        self.rows.as_slice().iter()
    }
}

/// A min-heap over any layout and any storage.
#[derive(Debug, Clone)]
pub struct Heap<T, L, R> {
    layout: L,
    /// Invariant: for every position `c > 0`, `rows[parent(c)] <= rows[c]`.
    rows: R,
    item: PhantomData<T>,
}

impl<T: Ord> BinaryHeap<T> {
    /// Creates an empty heap, without an allocation.
    #[must_use]
    pub const fn new() -> Self {
        Self { layout: Binary, rows: Vec::new(), item: PhantomData }
    }

    /// Creates an empty heap with room for `capacity` items; the memory is reserved but not touched.
    ///
    /// # Panics
    /// Panics if `capacity` items exceed `isize::MAX` bytes.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { layout: Binary, rows: Vec::with_capacity(capacity), item: PhantomData }
    }

    /// Builds a heap from all of `items`, in O(n).
    #[must_use]
    pub fn from_vec(items: Vec<T>) -> Self {
        let mut heap = Self { layout: Binary, rows: items, item: PhantomData };
        heap.rebuild();
        heap
    }

    /// Iterates over the items in storage order, which is not sorted.
    pub fn iter(&self) -> core::slice::Iter<'_, T> {
        self.rows.iter()
    }

    /// Returns the items in storage order; the inverse of [`BinaryHeap::from_vec`].
    #[must_use]
    pub fn into_vec(self) -> Vec<T> {
        self.rows
    }

    /// Returns the number of items that fit before the next allocation.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.rows.capacity()
    }

    /// Drops every item and keeps the memory.
    pub fn clear(&mut self) {
        self.rows.clear();
    }
}

impl<T: Ord> Default for BinaryHeap<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Ord> FromIterator<T> for BinaryHeap<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self::from_vec(items.into_iter().collect())
    }
}

impl<T: Ord, L: Layout, R: Rows<T>> Heap<T, L, R> {
    /// Builds a heap over `rows`, which may hold items in any order: they are put in order in O(n).
    pub fn with_rows(layout: L, rows: R) -> Self {
        let mut heap = Self { layout, rows, item: PhantomData };
        heap.rebuild();
        heap
    }

    /// Returns the number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether the heap is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 0
    }

    /// Returns the smallest item.
    #[must_use]
    pub fn peek(&self) -> Option<&T> {
        (!self.is_empty()).then(|| self.rows.item(0))
    }

    /// Adds an item, in O(log n).
    ///
    /// # Panics
    /// Panics if there is no room; [`Heap::try_push`] returns the item instead. If a comparison panics, the
    /// item is in the heap and the order is unspecified.
    pub fn push(&mut self, item: T) {
        assert!(self.try_push(item).is_ok(), "no room in the queue");
    }

    /// Adds an item, or returns it if there is no room.
    pub fn try_push(&mut self, item: T) -> Result<(), Full<T>> {
        let mut at = self.rows.len();
        self.rows.push(item)?;
        self.sift_up(&mut at);
        Ok(())
    }

    /// Removes and returns the smallest item, in O(log n).
    pub fn pop(&mut self) -> Option<T> {
        self.remove_at(0)
    }

    /// Replaces the smallest item with another, in one walk down instead of two.
    ///
    /// Returns the item that was smallest *before*; on an empty heap the item is pushed and `None` returned.
    ///
    /// # Panics
    /// Panics on an empty heap without room, like [`Heap::push`].
    pub fn pop_push(&mut self, item: T) -> Option<T> {
        if self.is_empty() {
            self.push(item);
            return None;
        }
        Some(self.replace_at(0, item))
    }

    /// Adds all of `items` at once, in O(n), where n is the number of items in the heap afterwards.
    ///
    /// # Errors
    /// [`Full`] with all of the items if there is no room for all; none has been added.
    pub fn load(&mut self, items: Vec<T>) -> Result<(), Full<Vec<T>>> {
        let before = self.rows.len();
        let mut items = items.into_iter();
        while let Some(item) = items.next() {
            if let Err(Full(refused)) = self.rows.push(item) {
                let mut all: Vec<T> = Vec::new();
                while self.rows.len() > before {
                    all.extend(self.rows.pop());
                }
                all.reverse();
                all.push(refused);
                all.extend(items);
                return Err(Full(all));
            }
        }
        if self.rows.len() > before {
            self.rebuild();
        }
        Ok(())
    }

    /// Removes every item, smallest first. Dropping the iterator early leaves the rest in the heap.
    pub fn drain(&mut self) -> Drain<'_, T, L, R> {
        Drain { heap: self }
    }

    /// Removes the item at `position` of the storage, in O(log n); `None` if there is none.
    pub fn remove_at(&mut self, position: usize) -> Option<T> {
        if position >= self.rows.len() {
            return None;
        }
        let last = self.rows.pop()?;
        if position == self.rows.len() { Some(last) } else { Some(self.replace_at(position, last)) }
    }

    /// Replaces the item at `position` and restores the order, in O(log n); returns the replaced item.
    ///
    /// # Panics
    /// Panics if there is no such position.
    pub fn replace_at(&mut self, position: usize, item: T) -> T {
        let old = self.rows.replace(position, item);
        let mut held = ReplaceGuard { heap: self, item: Some(old), at: position };
        held.settle();
        match held.item.take() {
            Some(old) => old,
            None => unreachable!("only a panic takes the held item back"),
        }
    }

    /// Replaces the item at `position` with its new version, and restores the order, in O(log n). The
    /// replacement stays even if a comparison panics.
    ///
    /// # Panics
    /// Panics if there is no such position.
    pub fn update_at(&mut self, position: usize, item: T) {
        self.rows.replace(position, item);
        let mut at = position;
        self.sift_down(&mut at);
        if at == position {
            self.sift_up(&mut at);
        }
    }

    /// Restores the heap order of all items, whatever their present order, in O(n) (Floyd's method).
    pub fn rebuild(&mut self) {
        let len = self.rows.len();
        let Some(parent) = len.checked_sub(1).and_then(|last| self.last_parent(last)) else { return };
        for mut node in (0..=parent).rev() {
            self.sift_down(&mut node);
        }
    }

    /// Returns the storage.
    pub fn rows(&self) -> &R {
        &self.rows
    }

    /// Returns the storage, mutably. After a change of items [`Heap::rebuild`] must be called.
    pub fn rows_mut(&mut self) -> &mut R {
        &mut self.rows
    }

    /// Returns the index arithmetic.
    pub fn layout(&self) -> &L {
        &self.layout
    }

    /// Checks the invariant of every node, in O(n); for tests and for suspect files.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        (1..self.rows.len())
            .all(|node| self.layout.parent(node).is_some_and(|up| self.rows.item(up) <= self.rows.item(node)))
    }

    /// Returns the largest position that has a child, given the last position.
    fn last_parent(&self, last: usize) -> Option<usize> {
        // In a page layout the parent of the last node is not always the largest parent, so every position
        // from the end is tried.
        (0..=last).rev().find(|&node| self.layout.children(node).first <= last)
    }

    /// Moves the item at `node` up to its position; `node` follows it.
    fn sift_up(&mut self, node: &mut usize) {
        while let Some(parent) = self.layout.parent(*node) {
            if self.rows.item(parent) <= self.rows.item(*node) {
                break;
            }
            self.rows.swap(parent, *node);
            *node = parent;
        }
    }

    /// Moves the item at `node` down to its position; `node` follows it.
    fn sift_down(&mut self, node: &mut usize) {
        let end = self.rows.len();
        loop {
            let children = self.layout.children(*node);
            if children.first >= end {
                return;
            }
            let mut least = children.first;
            for child in children.first + 1..end.min(children.first + children.count) {
                if self.rows.item(child) < self.rows.item(least) {
                    least = child;
                }
            }
            if self.rows.item(least) >= self.rows.item(*node) {
                return;
            }
            self.rows.swap(*node, least);
            *node = least;
        }
    }
}

/// Guard of a replaced item while its successor is moved into position: the item returns if a comparison
/// panics.
struct ReplaceGuard<'a, T: Ord, L: Layout, R: Rows<T>> {
    heap: &'a mut Heap<T, L, R>,
    item: Option<T>,
    /// Position of the item's successor.
    at: usize,
}

impl<T: Ord, L: Layout, R: Rows<T>> ReplaceGuard<'_, T, L, R> {
    fn settle(&mut self) {
        let position = self.at;
        self.heap.sift_down(&mut self.at);
        if self.at == position {
            self.heap.sift_up(&mut self.at);
        }
    }
}

impl<T: Ord, L: Layout, R: Rows<T>> Drop for ReplaceGuard<'_, T, L, R> {
    fn drop(&mut self) {
        // The item is still here only after a panic. It goes to the end; if there is no room there, it
        // replaces its successor.
        if let Some(item) = self.item.take()
            && let Err(Full(item)) = self.heap.rows.push(item)
        {
            self.heap.rows.replace(self.at, item);
        }
    }
}

/// Iterator that removes items, smallest first; made by [`Heap::drain`].
#[derive(Debug)]
pub struct Drain<'a, T: Ord, L: Layout, R: Rows<T>> {
    heap: &'a mut Heap<T, L, R>,
}

impl<T: Ord, L: Layout, R: Rows<T>> Iterator for Drain<'_, T, L, R> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.heap.pop()
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.heap.len(), Some(self.heap.len()))
    }
}

impl<T: Ord, L: Layout, R: Rows<T>> ExactSizeIterator for Drain<'_, T, L, R> {}
