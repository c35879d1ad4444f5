//! Storage of the queues: memory that is backed by a file, as an array and as blocks.
//!
//! Every access is a load or a store in a mapping. The kernel decides what is paged in and out; the queues do
//! not notice.

use std::io;
use std::path::Path;

use bheap::blocks::{Blocks, NO_BLOCK};
use bheap::{Full, Rows};
use engine::sys::mapping::{PagedMemory, Pattern, WriteOut};

/// Array of a heap with a fixed maximum size; item 0 is `lead` words after the start of a page.
#[derive(Debug)]
pub struct PagedRows {
    memory: PagedMemory,
    lead: usize,
    /// Invariant: `lead + len <= memory.len()`.
    len: usize,
}

impl PagedRows {
    /// Creates an array for `items` items, and advises the kernel of random access.
    ///
    /// # Errors
    /// Returns the errors of [`PagedMemory::create`].
    pub fn create(directory: &Path, lead: usize, items: usize) -> io::Result<Self> {
        let memory = PagedMemory::create(directory, lead + items)?;
        memory.expect(Pattern::Random)?;
        Ok(Self { memory, lead, len: 0 })
    }

    /// Returns a handle that writes changes to the file.
    ///
    /// # Errors
    /// Returns the errors of [`PagedMemory::write_out`].
    pub fn write_out(&self) -> io::Result<WriteOut> {
        self.memory.write_out()
    }

    fn live(&self) -> &[u64] {
        &self.memory[self.lead..self.lead + self.len]
    }

    fn live_mut(&mut self) -> &mut [u64] {
        &mut self.memory[self.lead..self.lead + self.len]
    }
}

impl Rows<u64> for PagedRows {
    fn len(&self) -> usize {
        self.len
    }
    #[inline]
    fn item(&self, at: usize) -> &u64 {
        &self.live()[at]
    }
    #[inline]
    fn swap(&mut self, a: usize, b: usize) {
        self.live_mut().swap(a, b);
    }
    #[inline]
    fn replace(&mut self, at: usize, item: u64) -> u64 {
        std::mem::replace(&mut self.live_mut()[at], item)
    }
    #[inline]
    fn push(&mut self, item: u64) -> Result<(), Full<u64>> {
        let Some(place) = self.memory.get_mut(self.lead + self.len) else { return Err(Full(item)) };
        *place = item;
        self.len += 1;
        Ok(())
    }
    #[inline]
    fn pop(&mut self) -> Option<u64> {
        self.len = self.len.checked_sub(1)?;
        Some(self.memory[self.lead + self.len])
    }
}

/// Blocks of a page each, up to a fixed number; their chains are kept in separate memory, 4 bytes per block.
#[derive(Debug)]
pub struct PagedBlocks {
    memory: PagedMemory,
    block_words: usize,
    /// Successor of each block.
    links: Vec<u32>,
    /// First block of the chain of free blocks.
    free: u32,
    free_blocks: usize,
    /// Number of blocks that were allocated at least once. Invariant: `fresh <= links.len()`.
    fresh: usize,
}

impl PagedBlocks {
    /// Creates storage for `blocks` blocks of `block_bytes` bytes, a multiple of 8.
    ///
    /// # Errors
    /// Returns the errors of [`PagedMemory::create`].
    pub fn create(directory: &Path, blocks: usize, block_bytes: usize) -> io::Result<Self> {
        let block_words = block_bytes / 8;
        let memory = PagedMemory::create(directory, blocks * block_words)?;
        memory.expect(Pattern::Random)?;
        Ok(Self {
            memory,
            block_words,
            links: vec![NO_BLOCK; blocks],
            free: NO_BLOCK,
            free_blocks: 0,
            fresh: 0,
        })
    }

    /// Returns a handle that writes changes to the file.
    ///
    /// # Errors
    /// Returns the errors of [`PagedMemory::write_out`].
    pub fn write_out(&self) -> io::Result<WriteOut> {
        self.memory.write_out()
    }
}

impl Blocks<u64> for PagedBlocks {
    fn block_items(&self) -> usize {
        self.block_words
    }

    fn allocate(&mut self) -> Option<u32> {
        if self.free != NO_BLOCK {
            let block = self.free;
            self.free = self.next(block);
            self.free_blocks -= 1;
            return Some(block);
        }
        let block = u32::try_from(self.fresh).ok().filter(|_| self.fresh < self.links.len())?;
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
        self.free_blocks + (self.links.len() - self.fresh) >= blocks
    }

    fn read(&self, block: u32, len: usize) -> &[u64] {
        assert!(len <= self.block_words, "within the block");
        let start = block as usize * self.block_words;
        &self.memory[start..start + len]
    }

    fn write(&mut self, block: u32, at: usize, items: &[u64]) {
        assert!(at + items.len() <= self.block_words, "within the block");
        let start = block as usize * self.block_words + at;
        self.memory[start..start + items.len()].copy_from_slice(items);
    }

    fn next(&self, block: u32) -> u32 {
        self.links[block as usize]
    }

    fn set_next(&mut self, block: u32, next: u32) {
        self.links[block as usize] = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::scratch::Scratch;

    #[test]
    fn full_rows_give_the_item_back() {
        let scratch = Scratch::on_disk(None).unwrap();
        let mut rows = PagedRows::create(scratch.path(), 1, 3).unwrap();
        for item in 0..3 {
            rows.push(item).unwrap();
        }
        assert_eq!(rows.push(9), Err(Full(9)));
        rows.swap(0, 2);
        assert_eq!(
            (rows.replace(1, 7), rows.pop(), rows.pop(), rows.pop(), rows.pop()),
            (1, Some(0), Some(7), Some(2), None)
        );
    }

    #[test]
    fn blocks_are_bounded_and_reused_in_lifo_order() {
        let scratch = Scratch::on_disk(None).unwrap();
        let mut blocks = PagedBlocks::create(scratch.path(), 3, 4096).unwrap();
        assert!(blocks.reserve(3) && !blocks.reserve(4));
        let given: Vec<u32> = (0..3).map(|_| blocks.allocate().unwrap()).collect();
        assert_eq!((given.as_slice(), blocks.allocate()), ([0, 1, 2].as_slice(), None));
        blocks.write(1, 510, &[5, 6]);
        assert_eq!(blocks.read(1, 512)[509..], [0, 5, 6]);
        assert!(blocks.read(2, 512).iter().all(|word| *word == 0), "the neighbour is untouched");
        blocks.release(0);
        blocks.release(2);
        assert!(blocks.reserve(2) && !blocks.reserve(3));
        assert_eq!((blocks.allocate(), blocks.allocate(), blocks.allocate()), (Some(2), Some(0), None));
    }
}
