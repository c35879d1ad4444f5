//! Sweep: removes unwanted items, a block at a time.
//!
//! A list's blocks are swept from the newest to the oldest. Removed items are replaced by the newest items of
//! the list, so that every block but the newest stays full, and at most two blocks are touched.

use crate::blocks::Blocks;
use crate::page_queue::list::List;
use crate::page_queue::{PageQueue, levels};

impl<T: Ord + Copy, B: Blocks<T>> PageQueue<T, B> {
    /// Examines one block's items, and removes those for which `keep` returns false. Repeated calls cycle
    /// through the queue.
    ///
    /// Items in the front and the small heap are not examined. `keep` is called once for an item that it
    /// rejects, and rejects at most a block's items.
    ///
    /// Does nothing while a step is due, see [`PageQueue::prepare_sweep`]. Items are not compared.
    pub(crate) fn sweep(&mut self, keep: impl FnMut(&T) -> bool) {
        if self.spare > 0 {
            let gone = self.sweep_block(keep);
            self.len -= gone;
            self.spare = self.spare.saturating_sub(gone);
            self.rest = self.rest.min(self.spare / 4);
        }
    }

    /// Performs one step if one is due.
    pub(crate) fn prepare_sweep(&mut self) {
        // A sweep may remove up to a block of items that precede a level at once, so steps begin earlier by
        // that many.
        self.margin = levels::MARGIN + self.store.block_items();
        self.tend();
    }

    fn sweep_block(&mut self, mut keep: impl FnMut(&T) -> bool) -> usize {
        for again in [false, true] {
            if again {
                self.sweep_pass = self.sweep_pass.wrapping_add(1);
            }
            for level in self.levels.iter_mut().rev() {
                let Self { store, scratch, sweep_pass, .. } = self;
                let children = level.children.iter_mut().rev().map(|child| &mut child.list);
                for list in children.chain([&mut level.source, &mut level.log]) {
                    if !list.is_empty() && list.swept != *sweep_pass {
                        return list.sweep(store, scratch, *sweep_pass, &mut keep);
                    }
                }
            }
        }
        0
    }
}

impl<T: Copy> List<T> {
    /// Sweeps the next block; records `pass` if it was the last. Returns the number of removed items.
    fn sweep(
        &mut self,
        store: &mut impl Blocks<T>,
        scratch: &mut alloc::vec::Vec<T>,
        pass: u32,
        keep: &mut impl FnMut(&T) -> bool,
    ) -> usize {
        let (block, len) = self.sweep_block(store.block_items());
        scratch.clear();
        scratch.extend(store.read(block, len).iter().filter(|item| keep(item)));
        let gone = len - scratch.len();
        if gone > 0 {
            let uniform = self.uniform;
            store.write(block, 0, scratch);
            self.fill_up(store, block, scratch.len(), gone);
            self.uniform = uniform;
        }
        self.sweep_next(store, block, pass);
        gone
    }
}
