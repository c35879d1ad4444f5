//! The items that leave next: a sorted front, and a small heap of items that arrived after it was sorted.
//!
//! No item of the front is above the bound of the lowest level, and while there are levels the front is not
//! empty: the smaller of the two heads is therefore the smallest item of all. The heap also takes new items
//! for the lower levels, and passes them on in batches, so that it is not necessary to keep a page in memory
//! for each of their logs.
//!
//! ```text
//!   front   [ larger, unsorted … | sorted, smallest at the end ]     taken from the end
//!   heap    [ four-ary min-heap ]
//! ```

use crate::blocks::{Area, Blocks};
use crate::page_queue::{HEAP_ALONE_MAX, HEAP_MAX};
use alloc::vec::Vec;

/// Maximum number of items sorted at once, so that no operation compares too often: 160 · log2(160) ≈ 1,200.
const SORT_MAX: usize = 160;

#[derive(Debug, Clone)]
pub(crate) struct NearHeap<T> {
    pub(crate) heap: Vec<T>,
    /// The front. Invariant: `front[sorted_from..]` is in descending order, and none of its items is larger
    /// than any item of `front[..sorted_from]`. If `front` is not empty, neither is the sorted part.
    pub(crate) front: Vec<T>,
    sorted_from: usize,
}

impl<T: Ord + Copy> NearHeap<T> {
    pub(crate) const fn new() -> Self {
        Self { heap: Vec::new(), front: Vec::new(), sorted_from: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.heap.len() + self.front.len()
    }

    #[inline]
    pub(crate) fn peek(&self, store: &impl Blocks<T>) -> Option<&T> {
        self.touch_heads(store);
        match (self.front.last(), self.heap.first()) {
            (Some(front), Some(heap)) => Some(if heap < front { heap } else { front }),
            (front, heap) => front.or(heap),
        }
    }

    fn touch_heads(&self, store: &impl Blocks<T>) {
        store.touch(Area::Near, 0, self.heap.len().min(1), false);
        if let Some(last) = self.front.len().checked_sub(1) {
            store.touch(Area::Front, last, 1, false);
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, store: &impl Blocks<T>, item: T) {
        store.touch(Area::Near, self.heap.len(), 1, true);
        self.heap.push(item);
        let at = self.heap.len() - 1;
        sift_up(&mut self.heap, at, store);
    }

    #[inline]
    pub(crate) fn pop(&mut self, store: &impl Blocks<T>) -> Option<T> {
        self.touch_heads(store);
        let from_heap = match (self.front.last(), self.heap.first()) {
            (Some(front), Some(heap)) => heap < front,
            (None, Some(_)) => true,
            (_, None) => false,
        };
        if from_heap { self.pop_heap(store) } else { self.pop_front(store) }
    }

    /// Returns whether the next item to leave the front is the last sorted one: removing it causes more items
    /// to be sorted.
    pub(crate) fn is_about_to_sort(&self) -> bool {
        self.front.len() == self.sorted_from + 1 && self.sorted_from > 0
    }

    fn pop_front(&mut self, store: &impl Blocks<T>) -> Option<T> {
        if self.is_about_to_sort() {
            // The last sorted item is about to leave: more items are sorted first, while it is still held
            // here.
            let item = self.front.swap_remove(self.sorted_from);
            let held = PopGuard { near: self, item: Some(item) };
            held.near.sort_more(store);
            let mut held = held;
            return held.item.take();
        }
        self.front.pop()
    }

    fn pop_heap(&mut self, store: &impl Blocks<T>) -> Option<T> {
        let last = self.heap.pop()?;
        let Some(root) = self.heap.first_mut() else { return Some(last) };
        let item = core::mem::replace(root, last);
        let mut held = PopGuard { near: self, item: Some(item) };
        sift_down(&mut held.near.heap, 0, store);
        held.item.take()
    }

    /// Sorts the beginning of a newly filled front.
    pub(crate) fn load(&mut self, store: &impl Blocks<T>) {
        self.sort_more(store);
    }

    /// Restores both parts from saved items in any order.
    #[cfg(feature = "std")]
    pub(crate) fn restore(&mut self, heap: Vec<T>, front: Vec<T>, store: &impl Blocks<T>) {
        (self.heap, self.front) = (heap, front);
        self.front.sort_unstable_by(|a, b| b.cmp(a));
        self.sorted_from = 0;
        for node in (0..self.heap.len().div_ceil(4)).rev() {
            sift_down(&mut self.heap, node, store);
        }
    }

    /// Sorts the smallest of the unsorted items; the sorted part must be empty.
    fn sort_more(&mut self, store: &impl Blocks<T>) {
        // If a comparison panics, the whole front counts as sorted: the order is then unspecified, but no
        // item is lost.
        self.sorted_from = 0;
        let mut from = 0;
        let end = self.front.len();
        store.touch(Area::Front, 0, end, true);
        while end - from > SORT_MAX {
            // Only the smallest quarter is sorted: the rest is not needed yet, and this operation stays
            // short.
            let (cut, equal) = split(&mut self.front[from..end], 3);
            from += cut;
            if equal {
                break;
            }
        }
        if end - from <= SORT_MAX {
            self.front[from..end].sort_unstable_by(|a, b| b.cmp(a));
        }
        self.sorted_from = from;
    }

    /// Arranges the heap for a spill: the larger half first, the rest as a heap after it. Returns the length
    /// of the larger half.
    pub(crate) fn split_heap(&mut self, store: &impl Blocks<T>) -> usize {
        store.touch(Area::Near, 0, self.heap.len(), true);
        let (cut, _) = split(&mut self.heap, 2);
        if self.front.is_empty() {
            // The kept items become the front, which is sorted anyway.
            return cut;
        }
        let kept = &mut self.heap[cut..];
        for node in (0..kept.len().div_ceil(4)).rev() {
            sift_down(kept, node, store);
        }
        cut
    }

    /// Arranges the front so that the items above `bound` come first; returns their number.
    pub(crate) fn split_front(&mut self, bound: T, store: &impl Blocks<T>) -> usize {
        store.touch(Area::Front, 0, self.front.len(), true);
        let mut cut = 0;
        for at in 0..self.sorted_from {
            let above = self.front[at] > bound;
            self.front.swap(cut, at);
            cut += usize::from(above);
        }
        // The unsorted items are at least as large as any sorted one.
        if cut == self.sorted_from {
            cut += self.front[self.sorted_from..].partition_point(|item| *item > bound);
        }
        cut
    }

    /// Removes the first `cut` items of the front.
    pub(crate) fn forget_front(&mut self, cut: usize) {
        self.front.drain(..cut);
        self.sorted_from = self.sorted_from.saturating_sub(cut);
    }
}

/// Rearranges so that no item of `items[cut..]` is larger than any of `items[..cut]`, with `cut` about
/// `quarters` quarters of the length; `0 < cut < len` for two items or more. Also returns whether all of
/// `items[cut..]` are known to be equal.
fn split<T: Ord + Copy>(items: &mut [T], quarters: usize) -> (usize, bool) {
    const PICKS: usize = 31;
    let len = items.len();
    let mut picks: Vec<T> = (0..PICKS).filter_map(|n| items.get(n * len / PICKS)).copied().collect();
    picks.sort_unstable();
    let at = PICKS * (4 - quarters) / 4;
    let Some(&pivot) = picks.get(at) else { return (0, true) };
    // A pick that occurs twice indicates that many items may be equal. Otherwise the picks were unlucky, and
    // a second pass would only double the comparisons. (If no item is above the pivot, the picks beyond it
    // equal it.)
    let is_repeated = [at - 1, at + 1].iter().any(|near| picks[*near].cmp(&pivot).is_eq());
    let mut above = 0;
    for at in 0..len {
        let is_above = items[at] > pivot;
        items.swap(above, at);
        above += usize::from(is_above);
    }
    let wanted = len * quarters / 4;
    let mut equal = above;
    if is_repeated && above + len / 8 < wanted {
        // Equal items may be on either side: they are brought together, and the cut is made among them.
        for at in above..len {
            let is_equal = items[at] >= pivot;
            items.swap(equal, at);
            equal += usize::from(is_equal);
        }
    }
    (wanted.clamp(above, equal).clamp(1, len - 1), equal == len)
}

/// Gap in the heap for an item that is being moved; the item is put into the gap even if a comparison panics.
struct Hole<'a, T: Copy> {
    items: &'a mut [T],
    at: usize,
    item: T,
}

impl<T: Copy> Hole<'_, T> {
    fn take_from(&mut self, other: usize) {
        self.items[self.at] = self.items[other];
        self.at = other;
    }
}

impl<T: Ord + Copy> Hole<'_, T> {
    /// Moves the gap up the heap to the item's position, but not above `top`.
    fn rise(&mut self, top: usize, store: &impl Blocks<T>) {
        while self.at > top {
            let parent = (self.at - 1) / 4;
            store.touch(Area::Near, parent, 1, true);
            if self.items[parent] <= self.item {
                break;
            }
            self.take_from(parent);
        }
    }
}

impl<T: Copy> Drop for Hole<'_, T> {
    fn drop(&mut self) {
        self.items[self.at] = self.item;
    }
}

fn sift_up<T: Ord + Copy>(items: &mut [T], at: usize, store: &impl Blocks<T>) {
    let item = items[at];
    Hole { items, at, item }.rise(0, store);
}

/// Moves the gap down to a leaf along the smallest children, then up again: the item came from a leaf and
/// usually belongs near one, so a test on each level would cost more comparisons, and branches that no
/// processor predicts.
fn sift_down<T: Ord + Copy>(items: &mut [T], at: usize, store: &impl Blocks<T>) {
    let Some(&item) = items.get(at) else { return };
    let len = items.len();
    let mut hole = Hole { items, at, item };
    loop {
        let first = 4 * hole.at + 1;
        if first + 3 >= len {
            break;
        }
        store.touch(Area::Near, first, 4, true);
        let children = &hole.items[first..first + 4];
        // Compares two pairs of children, then the smaller one of each pair; the choice is made by
        // arithmetic, without branches.
        let left = usize::from(children[1] < children[0]);
        let right = 2 + usize::from(children[3] < children[2]);
        let least = if children[right] < children[left] { right } else { left };
        hole.take_from(first + least);
    }
    let first = 4 * hole.at + 1;
    if first < len {
        store.touch(Area::Near, first, len - first, true);
        let mut least = first;
        for child in first + 1..len {
            if hole.items[child] < hole.items[least] {
                least = child;
            }
        }
        hole.take_from(least);
    }
    hole.rise(at, store);
}

/// Guard of an item being popped: the guard returns the item to the heap if a comparison panics.
struct PopGuard<'a, T: Ord + Copy> {
    near: &'a mut NearHeap<T>,
    item: Option<T>,
}

impl<T: Ord + Copy> Drop for PopGuard<'_, T> {
    fn drop(&mut self) {
        self.near.heap.extend(self.item.take());
    }
}

impl<T> NearHeap<T> {
    /// Returns whether the heap holds its maximum number of items.
    pub(crate) fn is_full(&self) -> bool {
        self.heap.len() >= HEAP_MAX && (!self.front.is_empty() || self.heap.len() >= HEAP_ALONE_MAX)
    }

    pub(crate) fn shrink_to_fit(&mut self) {
        self.heap.shrink_to_fit();
        self.front.shrink_to_fit();
    }
}
