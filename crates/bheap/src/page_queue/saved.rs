//! The queue's own state as a file keeps it: everything but the blocks.
//!
//! Words are eight bytes in the machine's order. In sequence: items in the small heap and in the front, then both;
//! the number of levels; for each its bound, its log, its source, whether it is being opened and what it is divided
//! around, and its children with their bounds.

use crate::file::FileBlocks;
use crate::page_queue::levels::{CHILDREN_MAX, Child, Level};
use crate::page_queue::list::{List, take_items, take_word};
use crate::page_queue::{FRONT_MAX, HEAP_MAX, PageQueue};
use alloc::vec::Vec;
use bytemuck::Pod;

impl<T: Ord + Pod> PageQueue<T, FileBlocks<T>> {
    pub(crate) fn store_mut(&mut self) -> &mut FileBlocks<T> {
        &mut self.store
    }

    pub(crate) fn save(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let word = |out: &mut Vec<u8>, value: usize| out.extend_from_slice(&(value as u64).to_ne_bytes());
        word(&mut out, self.near.heap.len());
        word(&mut out, self.near.front.len());
        out.extend_from_slice(bytemuck::cast_slice(&self.near.heap));
        out.extend_from_slice(bytemuck::cast_slice(&self.near.front));
        word(&mut out, self.levels.len());
        for (level, bound) in self.levels.iter().zip(&self.bounds) {
            out.extend_from_slice(bytemuck::bytes_of(bound));
            level.log.save(&mut out);
            level.source.save(&mut out);
            word(&mut out, usize::from(level.opening));
            word(&mut out, usize::from(level.around.is_some()));
            if let Some(around) = &level.around {
                out.extend_from_slice(bytemuck::bytes_of(around));
            }
            word(&mut out, level.children.len());
            for child in &level.children {
                out.extend_from_slice(bytemuck::bytes_of(&child.lo));
                child.list.save(&mut out);
            }
        }
        out
    }

    /// The queue that [`PageQueue::save`] described; `None` if the bytes describe none.
    pub(crate) fn restore(store: FileBlocks<T>, mut input: &[u8], fan_out: usize) -> Option<Self> {
        let input = &mut input;
        let count = |input: &mut &[u8], most: usize| {
            take_word(input).and_then(|word| usize::try_from(word).ok()).filter(|word| *word <= most)
        };
        let mut queue = Self::with_store(store, fan_out);
        let heap = count(input, HEAP_MAX + 2)?;
        let front = count(input, FRONT_MAX)?;
        queue.near.heap = take_items(input, heap)?;
        queue.near.front = take_items(input, front)?;
        let levels = count(input, usize::from(u8::MAX))?;
        for _ in 0..levels {
            queue.bounds.push(*take_items(input, 1)?.first()?);
            let mut level = Level::new(List::restore(input, &queue.store)?);
            level.source = List::restore(input, &queue.store)?;
            level.opening = count(input, 1)? == 1;
            if count(input, 1)? == 1 {
                level.around = Some(*take_items(input, 1)?.first()?);
            }
            for _ in 0..count(input, CHILDREN_MAX)? {
                let lo = *take_items(input, 1)?.first()?;
                level.children.push(Child { lo, list: List::restore(input, &queue.store)? });
            }
            queue.levels.push(level);
        }
        if !input.is_empty() || (!queue.levels.is_empty() && front == 0) {
            return None;
        }
        // The front is sorted again, and the heap ordered: what their order was is not written.
        queue.near.reorder(&queue.store);
        queue.len = queue.near.len() + queue.levels.iter().map(Level::len).sum::<usize>();
        Some(queue)
    }
}
