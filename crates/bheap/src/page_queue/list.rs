//! An unsorted list of items in whole blocks, with a sample of them.
//!
//! ```text
//!   head ─▶ [ newest block, `fill` items ] ─▶ [ full ] ─▶ … ─▶ [ full ] ◀─ last
//! ```
//! Items are added to and removed from the newest block, which is the one most likely to be in memory.

use crate::blocks::{Blocks, NO_BLOCK};
use alloc::vec::Vec;

/// Minimum number of items in the sample of a list that is longer than this; the maximum is `2 · SAMPLE`.
const SAMPLE: usize = 32;

/// An unsorted list of items.
#[derive(Debug, Clone)]
pub(crate) struct List<T> {
    head: u32,
    last: u32,
    /// Number of items in the head block. Invariant: `fill == 0` if and only if the list is empty; every
    /// other block is full.
    fill: usize,
    len: usize,
    blocks: usize,
    sample: Sample<T>,
    /// True if all items are known to be equal, and nothing was added since that was found.
    pub(crate) uniform: bool,
    /// Number of the sweep pass that last went through the whole list.
    pub(crate) swept: u32,
    /// Next block to sweep; [`NO_BLOCK`] before a pass begins in this list.
    sweep_at: u32,
}

/// Sample of a list: about one item per interval is kept; when the sample is full, every second item is
/// dropped.
#[derive(Debug, Clone)]
pub(crate) struct Sample<T> {
    items: Vec<T>,
    /// Binary logarithm of the sampling interval: one item in `2^stride` is kept.
    stride: u32,
    /// Number of items to skip before the next is kept.
    pass: usize,
    random: u32,
}

impl<T: Copy> Sample<T> {
    const fn new() -> Self {
        Self { items: Vec::new(), stride: 0, pass: 0, random: 0x9E37_79B9 }
    }

    /// Restores the sample of a saved list.
    #[cfg(feature = "std")]
    pub(crate) fn with_items(items: Vec<T>, stride: u32) -> Self {
        Self { items, stride, ..Self::new() }
    }

    fn see(&mut self, items: &[T]) {
        let mut at = 0;
        while items.len() - at > self.pass {
            at += self.pass;
            self.items.push(items[at]);
            at += 1;
            if self.items.len() == 2 * SAMPLE {
                self.halve();
            }
            // The gap is random between 0 and twice the stride, so that no pattern in the input coincides
            // with it.
            self.random ^= self.random << 13;
            self.random ^= self.random >> 17;
            self.random ^= self.random << 5;
            self.pass = ((u64::from(self.random) * ((2 << self.stride) - 1)) >> 32) as usize;
        }
        self.pass -= items.len() - at;
    }

    fn halve(&mut self) {
        let mut nth = 0_usize;
        self.items.retain(|_| {
            nth += 1;
            nth.is_multiple_of(2)
        });
        self.stride += 1;
    }

    fn join(&mut self, mut other: Self) {
        while self.stride < other.stride {
            self.halve();
        }
        while other.stride < self.stride {
            other.halve();
        }
        self.items.append(&mut other.items);
        while self.items.len() >= 2 * SAMPLE {
            self.halve();
        }
    }
}

impl<T: Copy> List<T> {
    pub(crate) const fn new() -> Self {
        Self {
            head: NO_BLOCK,
            last: NO_BLOCK,
            fill: 0,
            len: 0,
            blocks: 0,
            sample: Sample::new(),
            uniform: false,
            swept: 0,
            sweep_at: NO_BLOCK,
        }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) const fn blocks(&self) -> usize {
        self.blocks
    }

    /// Returns a sample of the items, in which each item is about equally likely to occur.
    pub(crate) fn sample(&self) -> &[T] {
        &self.sample.items
    }

    /// Returns the size of the sample in bytes.
    pub(crate) fn sample_bytes(&self) -> usize {
        self.sample.items.capacity() * size_of::<T>()
    }

    /// Returns the number of blocks that adding `items` items will take.
    pub(crate) const fn blocks_to_add(&self, items: usize, block_items: usize) -> usize {
        let room = if self.len == 0 { 0 } else { block_items - self.fill };
        items.saturating_sub(room).div_ceil(block_items)
    }

    /// Adds items. The blocks that they need (see [`List::blocks_to_add`]) must have been reserved.
    pub(crate) fn append(&mut self, store: &mut impl Blocks<T>, items: &[T]) {
        self.sample.see(items);
        self.uniform = false;
        self.len += items.len();
        let mut rest = items;
        while !rest.is_empty() {
            if self.blocks == 0 || self.fill == store.block_items() {
                let Some(block) = store.allocate() else {
                    unreachable!("blocks are reserved before they are filled")
                };
                store.set_next(block, self.head);
                if self.blocks == 0 {
                    self.last = block;
                }
                self.head = block;
                self.blocks += 1;
                self.fill = 0;
            }
            let (now, later) = rest.split_at(rest.len().min(store.block_items() - self.fill));
            store.write(self.head, self.fill, now);
            self.fill += now.len();
            rest = later;
        }
    }

    /// Returns up to `most` of the newest items; [`List::forget`] removes the same items.
    pub(crate) fn newest<'a>(&self, store: &'a impl Blocks<T>, most: usize) -> &'a [T] {
        if self.len == 0 {
            return &[];
        }
        let block = store.read(self.head, self.fill);
        &block[self.fill - self.fill.min(most)..]
    }

    /// Removes the `count` newest items, which must all be in the newest block.
    pub(crate) fn forget(&mut self, store: &mut impl Blocks<T>, count: usize) {
        self.fill -= count;
        self.len -= count;
        if self.fill == 0 && self.blocks > 0 {
            let block = self.head;
            self.head = store.next(block);
            self.blocks -= 1;
            self.fill = if self.blocks == 0 { 0 } else { store.block_items() };
            if self.sweep_at == block {
                self.sweep_at = if self.blocks == 0 { NO_BLOCK } else { self.head };
            }
            store.release(block);
            if self.blocks == 0 {
                *self = Self::new();
            }
        }
    }

    /// Removes every item.
    pub(crate) fn clear(&mut self, store: &mut impl Blocks<T>) {
        while self.len > 0 {
            let fill = self.fill;
            self.forget(store, fill);
        }
    }

    /// Adds all items of another list: at most one block's items are moved.
    pub(crate) fn join(&mut self, store: &mut impl Blocks<T>, mut other: Self) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            *self = other;
            return;
        }
        let sample = core::mem::replace(&mut other.sample, Sample::new());
        if other.fill < store.block_items() {
            let loose: Vec<T> = other.newest(store, usize::MAX).to_vec();
            let count = loose.len();
            other.forget(store, count);
            let kept = core::mem::replace(&mut self.sample, Sample::new());
            self.append(store, &loose);
            self.sample = kept;
        }
        self.sample.join(sample);
        if !other.is_empty() {
            // Full blocks are linked below the newest block of this list.
            let below = store.next(self.head);
            let below = if self.blocks == 1 { NO_BLOCK } else { below };
            store.set_next(self.head, other.head);
            store.set_next(other.last, below);
            if self.blocks == 1 {
                self.last = other.last;
            }
            self.blocks += other.blocks;
            self.len += other.len;
        }
        self.uniform = false;
        // The blocks have been mixed, so a sweep pass in progress starts again.
        self.sweep_at = NO_BLOCK;
        self.swept = self.swept.wrapping_sub(1);
    }

    /// Returns the block to sweep now and its number of items. The block is recorded, so that its release is
    /// noticed.
    pub(crate) const fn sweep_block(&mut self, block_items: usize) -> (u32, usize) {
        if self.sweep_at == NO_BLOCK {
            self.sweep_at = self.head;
        }
        (self.sweep_at, if self.sweep_at == self.head { self.fill } else { block_items })
    }

    /// Replaces the last `gone` items of a block, which were removed, with the newest items of the list.
    pub(crate) fn fill_up(&mut self, store: &mut impl Blocks<T>, block: u32, kept: usize, gone: usize) {
        if block == self.head {
            self.forget(store, gone);
            return;
        }
        let mut kept = kept;
        let end = kept + gone;
        while kept < end && block != self.head {
            let items: Vec<T> = self.newest(store, end - kept).to_vec();
            store.write(block, kept, &items);
            kept += items.len();
            self.forget(store, items.len());
        }
        if block == self.head {
            self.forget(store, end - kept);
        }
    }

    /// Moves the sweep on to the block after `block`, or records that the pass is over.
    pub(crate) fn sweep_next(&mut self, store: &impl Blocks<T>, block: u32, pass: u32) {
        if self.len == 0 {
            return;
        }
        if self.sweep_at != block {
            // The block was emptied and released: `forget` has already moved on to the next.
            return;
        }
        let is_last = block == self.last;
        self.sweep_at = if is_last { NO_BLOCK } else { store.next(block) };
        if is_last {
            self.swept = pass;
        }
    }

    /// Iterates over the blocks, newest first.
    #[cfg(feature = "std")]
    pub(crate) fn chain<'a>(&self, store: &'a impl Blocks<T>) -> impl Iterator<Item = u32> + 'a {
        let first = (self.blocks > 0).then_some(self.head);
        core::iter::successors(first, |block| Some(store.next(*block))).take(self.blocks)
    }

    /// Returns the binary logarithm of the number of items that each sampled item represents.
    #[cfg(feature = "std")]
    pub(crate) const fn stride(&self) -> u32 {
        self.sample.stride
    }

    /// Maximum size of a sample.
    #[cfg(feature = "std")]
    pub(crate) const SAMPLE_MAX: usize = 2 * SAMPLE;

    /// Builds a list of `len` items in the blocks of `chain`, newest first, with their sample, and links the
    /// blocks; `None` if such a list is impossible.
    #[cfg(feature = "std")]
    pub(crate) fn with_chain(
        len: usize,
        uniform: bool,
        sample: Sample<T>,
        chain: &[u32],
        store: &mut impl Blocks<T>,
    ) -> Option<Self> {
        let block_items = store.block_items();
        // A non-empty list must have a sample, which is used to divide it.
        if chain.len() != len.div_ceil(block_items) || sample.items.is_empty() != (len == 0) {
            return None;
        }
        let mut list = Self::new();
        let (Some(&head), Some(&last)) = (chain.first(), chain.last()) else { return Some(list) };
        for (at, &block) in chain.iter().enumerate() {
            store.set_next(block, chain.get(at + 1).copied().unwrap_or(NO_BLOCK));
        }
        (list.head, list.last, list.len, list.blocks) = (head, last, len, chain.len());
        list.fill = len - (chain.len() - 1) * block_items;
        list.uniform = uniform;
        list.sample = sample;
        Some(list)
    }

    /// Copies the blocks to another store, in which room for them must have been reserved.
    pub(crate) fn move_to(&mut self, from: &impl Blocks<T>, to: &mut impl Blocks<T>) {
        let (mut block, mut fill) = (self.head, self.fill);
        let mut above = NO_BLOCK;
        for _ in 0..self.blocks {
            let Some(copy) = to.allocate() else {
                unreachable!("blocks are reserved before they are filled")
            };
            to.write(copy, 0, from.read(block, fill));
            if above == NO_BLOCK {
                self.head = copy;
            } else {
                to.set_next(above, copy);
            }
            (above, self.last) = (copy, copy);
            block = from.next(block);
            fill = from.block_items();
        }
        // A sweep in progress starts again.
        self.sweep_at = NO_BLOCK;
    }

    /// Calls `f` with the items of each block.
    pub(crate) fn for_each(&self, store: &impl Blocks<T>, mut f: impl FnMut(&[T])) {
        let (mut block, mut fill) = (self.head, self.fill);
        for _ in 0..self.blocks {
            f(store.read(block, fill));
            block = store.next(block);
            fill = store.block_items();
        }
    }
}
