//! The page queue: a sample sort that is delayed as long as possible.
//!
//! ```text
//! smallest                                                                            largest
//! [ front │ small heap ] [ level: children + log ] [ level: children + log ] … [ top level: log ]
//!   sorted  new, small     unsorted lists of whole pages, divided more finely the sooner they are needed
//! ```
//! - *Memory:* blocks of one page each from a [`Blocks`] store; lists chain them. Only the front, the small heap
//!   and the lists' headers are elsewhere.
//! - *Invariant:* bounds fall from the top level to the lowest; no item of a level is below its bound or above the
//!   next; no item of the front is above the lowest bound; while there are levels the front is not empty. The smaller
//!   of the two heads is therefore the smallest item ([`PageQueue::assert_invariants`] checks the whole invariant).
//! - *Cost:* each operation performs at most one due step ([`PageQueue::late_steps`] counts steps that were not
//!   performed in time).
//!
//! The reasons, the costs and the rejected alternatives: `docs/decisions/020-page-queue.md`.

mod invariants;
mod levels;
mod list;
mod near;
#[cfg(feature = "std")]
mod saved;
mod sweep;

use crate::blocks::{Area, Arena, Blocks};
use crate::layout::PageSizeError;
use crate::rows::Full;
use alloc::vec::Vec;
use levels::Level;
use list::List;
use near::NearHeap;

/// Maximum number of items in the small heap.
pub(crate) const HEAP_MAX: usize = 256;

/// Maximum number of items in the small heap while there are no levels, so that small sets stay a plain heap.
/// One operation can divide this number of items.
pub(crate) const HEAP_ALONE_MAX: usize = 1056;

/// Maximum number of items loaded to the front at once.
pub(crate) const FRONT_MAX: usize = 1536;

/// Number of items moved in one step.
pub(crate) const BURST: usize = 512;

/// Number of items sorted by destination at a time: a step does this a few times, in memory that stays in the
/// first-level cache and takes no page of its own.
pub(crate) const CHUNK: usize = 64;

/// Maximum number of parts into which a level is divided.
pub const FAN_OUT_MAX: usize = 32;

/// Number of blocks that a push leaves free, so that no `pop` lacks one: each list may end in a partly filled
/// block, and a step may begin one for each part.
const RESERVE_BLOCKS: usize = 8 * FAN_OUT_MAX;

/// A priority queue that divides its items no earlier than necessary.
///
/// Items are `Copy`, because they are moved in blocks; larger items can be referred to by an index or a
/// handle.
#[derive(Debug)]
pub struct PageQueue<T, B = Arena<T>> {
    store: B,
    near: NearHeap<T>,
    /// Levels, largest keys first; the last is the lowest. Invariant: `levels` and `bounds` have the same
    /// length.
    levels: Vec<Level<T>>,
    /// Lower bound of each level, in descending order: no item of a level is smaller, all items of lower
    /// levels are smaller or equal, and no item of the front is larger than the last bound.
    bounds: Vec<T>,
    scratch: Vec<T>,
    len: usize,
    /// Number of operations until the levels are examined again.
    rest: usize,
    fan_out: usize,
    /// Length in blocks at which a log is distributed among its level's children, even if no child is needed
    /// yet.
    log_blocks_max: usize,
    /// Number of levels, from the top, to which new items are appended directly; items for lower levels wait
    /// in the small heap.
    direct: usize,
    /// Lower bound of the number of items that may leave before a step on any level must begin.
    spare: usize,
    /// Number of items by which steps begin earlier than necessary.
    margin: usize,
    /// Number of the current sweep pass.
    sweep_pass: u32,
    /// Number of steps that an operation had to perform because they were late.
    late: u64,
}

impl<T: Ord + Copy> PageQueue<T> {
    /// Creates an empty queue with blocks of `page_bytes` bytes.
    ///
    /// # Errors
    /// Returns a [`PageSizeError`] if `page_bytes` is not a power of two or fewer than four items fit.
    pub fn new(page_bytes: usize) -> Result<Self, PageSizeError> {
        Self::with_memory(page_bytes, 64)
    }

    /// Creates an empty queue that works well with about `pages` pages of memory or more: it writes to about
    /// a quarter of those pages at a time.
    ///
    /// # Errors
    /// Returns the errors of [`PageQueue::new`].
    pub fn with_memory(page_bytes: usize, pages: usize) -> Result<Self, PageSizeError> {
        Ok(Self::with_store(Arena::new(page_bytes)?, (pages / 4).clamp(4, 16)))
    }
}

impl<T: Ord + Copy> PageQueue<T> {
    /// Frees the memory of empty blocks by copying the others, in O(n); the copy temporarily needs up to
    /// twice the memory. Otherwise, as with a `Vec`, memory that was once used stays for reuse.
    pub fn shrink_to_fit(&mut self) {
        let mut store = self.store.empty_like();
        let lists = |level: &Level<T>| {
            let children: usize = level.children.iter().map(|child| child.list.blocks()).sum();
            children + level.source.blocks() + level.log.blocks()
        };
        // Without memory for the copy, the blocks stay as they are.
        if store.reserve(self.levels.iter().map(lists).sum()) {
            for level in &mut self.levels {
                let children = level.children.iter_mut().map(|child| &mut child.list);
                for list in children.chain([&mut level.source, &mut level.log]) {
                    list.move_to(&self.store, &mut store);
                }
            }
            self.store = store;
        }
        self.scratch = Vec::new();
        self.near.shrink_to_fit();
    }

    /// Returns the bytes in use: blocks (including those waiting for reuse), the front, the small heap, and
    /// the lists with their samples.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let near = self.near.front.capacity() + self.near.heap.capacity() + self.scratch.capacity();
        let levels: usize = self.levels.iter().map(Level::bytes).sum();
        self.store.touched_bytes() + (near + self.bounds.capacity()) * size_of::<T>() + levels
    }
}

impl<T: Ord + Copy, B: Blocks<T>> PageQueue<T, B> {
    /// Creates an empty queue over `store`.
    pub fn with_store(store: B, fan_out: usize) -> Self {
        Self {
            store,
            near: NearHeap::new(),
            levels: Vec::new(),
            bounds: Vec::new(),
            scratch: Vec::new(),
            len: 0,
            rest: 0,
            fan_out: fan_out.clamp(2, FAN_OUT_MAX),
            log_blocks_max: if fan_out < 8 { usize::MAX } else { 4 },
            direct: 1,
            spare: 0,
            margin: levels::MARGIN,
            sweep_pass: 0,
            late: 0,
        }
    }

    /// Adds many items at once, in O(n): no item is compared earlier than necessary.
    ///
    /// # Errors
    /// [`Full`] with the number of items if there is no room for all of them; none has been added.
    pub fn try_extend(&mut self, items: &[T]) -> Result<(), Full<usize>> {
        if !self.levels.is_empty() || items.len() < FRONT_MAX {
            let blocks = items.len().div_ceil(self.store.block_items()) + RESERVE_BLOCKS;
            if !self.store.reserve(blocks) {
                return Err(Full(items.len()));
            }
            items.iter().for_each(|item| self.push(*item));
            return Ok(());
        }
        // The present items go into the list too: all items form one level, from which the front is then
        // filled.
        let all = self.near.len() + items.len();
        if !self.store.reserve(all.div_ceil(self.store.block_items()) + RESERVE_BLOCKS) {
            return Err(Full(items.len()));
        }
        let Some(&first) = items.iter().chain(&self.near.front).chain(&self.near.heap).min() else {
            return Ok(());
        };
        let mut log = List::new();
        log.append(&mut self.store, items);
        log.append(&mut self.store, &self.near.front);
        log.append(&mut self.store, &self.near.heap);
        self.near = NearHeap::new();
        self.levels.push(Level::new(log));
        self.bounds.push(first);
        self.len += items.len();
        (self.rest, self.spare) = (0, 0);
        let late = self.late;
        self.refill();
        self.late = late;
        Ok(())
    }

    /// Removes every item, smallest first. Dropping the iterator early leaves the rest in the queue.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        core::iter::from_fn(|| self.pop())
    }

    /// Removes the smallest item, then adds another; returns the removed one.
    ///
    /// # Panics
    /// Panics like [`PageQueue::push`].
    pub fn pop_push(&mut self, item: T) -> Option<T> {
        let smallest = self.pop();
        let mut held = PopGuard { queue: self, item: smallest };
        held.queue.push(item);
        held.item.take()
    }

    /// Returns the number of items.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the queue is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of steps that an operation had to perform at once because they were late: 0 unless
    /// samples misled several times in a row.
    #[must_use]
    pub const fn late_steps(&self) -> u64 {
        self.late
    }

    /// Returns the present number of levels.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Calls `look` with each item, in no particular order.
    pub fn for_each(&self, mut look: impl FnMut(&T)) {
        self.near.front.iter().chain(&self.near.heap).for_each(&mut look);
        for level in &self.levels {
            let children = level.children.iter().map(|child| &child.list);
            for list in children.chain([&level.source, &level.log]) {
                list.for_each(&self.store, |items| items.iter().for_each(&mut look));
            }
        }
    }

    /// Returns the smallest item; O(1).
    #[must_use]
    pub fn peek(&self) -> Option<&T> {
        self.near.peek(&self.store)
    }

    /// Adds an item.
    ///
    /// # Panics
    /// Panics if there is no room for it.
    pub fn push(&mut self, item: T) {
        assert!(self.try_push(item).is_ok(), "no room in the queue");
    }

    /// Adds an item, or returns it if there is no room.
    ///
    /// # Errors
    /// [`Full`] with the item if the store has no more blocks. Some are left free, so that all items can
    /// leave again.
    pub fn try_push(&mut self, item: T) -> Result<(), Full<T>> {
        // The spill comes before the item is placed, because it lowers the bound of the near items.
        let spills = self.near.is_full();
        if spills && !self.spill() {
            return Err(Full(item));
        }
        for at in 0..self.direct.min(self.levels.len()) {
            if item >= self.bounds[at] {
                let log = &mut self.levels[at].log;
                if log.blocks_to_add(1, self.store.block_items()) > 0 && !self.store.reserve(RESERVE_BLOCKS) {
                    return Err(Full(item));
                }
                self.store.touch(Area::Lists, at * (self.fan_out + 2), 1, true);
                log.append(&mut self.store, &[item]);
                self.len += 1;
                if !spills {
                    self.tend();
                }
                return Ok(());
            }
        }
        self.len += 1;
        self.near.push(&self.store, item);
        if !spills {
            self.tend();
        }
        Ok(())
    }

    /// Removes and returns the smallest item.
    pub fn pop(&mut self) -> Option<T> {
        let work = self.near.front.len() <= 1 && !self.levels.is_empty();
        if work {
            // The last item of the front waits in the heap, so that a panic in the meantime does not lose it.
            if let Some(last) = self.near.front.pop() {
                self.near.push(&self.store, last);
            }
            self.refill();
        }
        // The step comes before the item is taken, so that a panicking comparison loses no item. It is
        // skipped if this operation loads or sorts: both together would exceed the limit.
        if !work && !self.near.is_about_to_sort() {
            self.tend();
        }
        let item = self.near.pop(&self.store)?;
        self.len -= 1;
        Some(item)
    }

    /// Returns whether there is room for one more item, whatever its key. If so, the next push is not
    /// refused.
    pub fn has_room(&mut self) -> bool {
        if self.levels.is_empty() && !self.near.is_full() {
            return true;
        }
        let most = self.spill_blocks();
        self.store.reserve(most)
    }

    /// Puts back an item that was taken by mistake; the order is unspecified afterwards.
    pub(crate) fn put_back(&mut self, item: T) {
        self.near.heap.push(item);
        self.len += 1;
    }

    /// Returns the number of blocks that a spill may need, including those that are left free.
    fn spill_blocks(&self) -> usize {
        (HEAP_ALONE_MAX + FRONT_MAX) / self.store.block_items() + self.levels.len() + 2 + RESERVE_BLOCKS
    }

    /// Moves the larger half of the small heap to the levels; returns false if there is no room.
    fn spill(&mut self) -> bool {
        if !self.has_room() {
            return false;
        }
        // The heap exceeds that size only after comparisons that panicked; the order is unspecified then.
        let cut = self.near.split_heap(&self.store).min(HEAP_ALONE_MAX);
        let Some(&bound) = self.near.heap[..cut].iter().min() else { return true };
        // All comparisons come first: they find each item's level, counted from the top; items below all
        // levels go to the lowest, whose bound is lowered.
        let mut places = [0_u8; HEAP_ALONE_MAX];
        for (item, place) in self.near.heap[..cut].iter().zip(&mut places) {
            *place = self.bounds.partition_point(|bound| bound > item) as u8;
        }
        let lowest = self.levels.len();
        let lowered = places[..cut].contains(&(lowest as u8));
        let front_cut = if lowered { self.near.split_front(bound, &self.store) } else { 0 };
        for at in 0..=lowest {
            self.scratch.clear();
            let mine =
                self.near.heap[..cut].iter().zip(places).filter(|(_, place)| usize::from(*place) == at);
            self.scratch.extend(mine.map(|(item, _)| *item));
            if at == lowest && lowered {
                self.scratch.extend_from_slice(&self.near.front[..front_cut]);
                match self.levels.last_mut() {
                    // A level that begins with equal items receives no other items: the mixture would have to
                    // be divided at short notice.
                    Some(level) if !level.begins_uniform() => {
                        level.log.append(&mut self.store, &self.scratch);
                        self.bounds[at - 1] = bound;
                        if let Some(child) = level.children.last_mut() {
                            child.lo = bound;
                        }
                    }
                    _ => {
                        let mut log = List::new();
                        log.append(&mut self.store, &self.scratch);
                        self.levels.push(Level::new(log));
                        self.bounds.push(bound);
                    }
                }
            } else if !self.scratch.is_empty() {
                self.levels[at].log.append(&mut self.store, &self.scratch);
            }
        }
        self.near.heap.drain(..cut);
        self.near.forget_front(front_cut);
        if self.near.front.is_empty() {
            // While there are levels the front must not be empty: it gets the heap's remaining items.
            core::mem::swap(&mut self.near.heap, &mut self.near.front);
            self.near.load(&self.store);
        }
        (self.rest, self.spare) = (0, 0);
        true
    }
}

/// Guard of an item being popped: the guard returns the item to the small heap if a comparison panics in the
/// meantime.
struct PopGuard<'a, T: Ord + Copy, B: Blocks<T>> {
    queue: &'a mut PageQueue<T, B>,
    item: Option<T>,
}

impl<T: Ord + Copy, B: Blocks<T>> Drop for PopGuard<'_, T, B> {
    fn drop(&mut self) {
        if let Some(item) = self.item.take() {
            self.queue.put_back(item);
        }
    }
}
