//! State of a page queue in a queue file, besides the blocks: everything needed to continue where it was.
//!
//! In sequence (`docs/formats/queue.md`): the small heap, the front, the number of levels, and for each
//! level, largest keys first: its bound, its log, its source, whether it is being opened, the key around
//! which it is being divided, and its children, each with its bound.

use crate::blocks::Blocks;
use crate::file::state::{put, put_items, put_pages, take, take_item, take_items, take_pages};
use crate::file::{Disk, FileError, Item, Pages, StoredItem};
use crate::page_queue::levels::{CHILDREN_MAX, Child, LEVELS_MAX, Level};
use crate::page_queue::list::{List, Sample};
use crate::page_queue::{FRONT_MAX, HEAP_ALONE_MAX, PageQueue, RESERVE_BLOCKS};
use alloc::vec::Vec;
use core::slice;

impl<T: Item, D: Disk> PageQueue<StoredItem<T>, Pages<T, D>> {
    pub(crate) const fn store(&self) -> &Pages<T, D> {
        &self.store
    }

    pub(crate) const fn store_mut(&mut self) -> &mut Pages<T, D> {
        &mut self.store
    }

    pub(crate) fn into_store(self) -> Pages<T, D> {
        self.store
    }

    pub(crate) fn save(&self, out: &mut Vec<u8>) {
        put_items(out, &self.near.heap);
        put_items(out, &self.near.front);
        put(out, self.levels.len());
        for (level, bound) in self.levels.iter().zip(&self.bounds) {
            put_items(out, slice::from_ref(bound));
            level.log.save(&self.store, out);
            level.source.save(&self.store, out);
            put(out, usize::from(level.opening));
            put_items(out, level.around.as_slice());
            put(out, level.children.len());
            for child in &level.children {
                put_items(out, slice::from_ref(&child.lo));
                child.list.save(&self.store, out);
            }
        }
    }

    /// Restores the queue that [`PageQueue::save`] wrote to the beginning of `input`.
    pub(crate) fn restore(store: Pages<T, D>, fan_out: usize, input: &mut &[u8]) -> Result<Self, FileError> {
        let mut queue = Self::with_store(store, fan_out);
        let mut pages = Vec::new();
        if queue.take(input, &mut pages).is_none() {
            return Err(queue.store.damaged("the state of the queue is invalid"));
        }
        queue.store.claim(pages)?;
        // The blocks that a push leaves free, so that all items can leave.
        if !queue.store.reserve(RESERVE_BLOCKS) {
            return Err(queue.store.full());
        }
        queue.len = queue.near.len() + queue.levels.iter().map(Level::len).sum::<usize>();
        // The checksums were right, so the state is unchanged since it was written, but any program may have
        // written it.
        match queue.broken_invariant() {
            None => Ok(queue),
            Some(what) => Err(queue.store.damaged(what)),
        }
    }

    fn take(&mut self, input: &mut &[u8], pages: &mut Vec<u32>) -> Option<()> {
        let heap = take_items(input, HEAP_ALONE_MAX)?;
        let front = take_items(input, FRONT_MAX)?;
        self.near.restore(heap, front, &self.store);
        for _ in 0..take(input, LEVELS_MAX)? {
            self.bounds.push(take_item(input)?);
            let mut level = Level::new(List::restore(input, &mut self.store, pages)?);
            level.source = List::restore(input, &mut self.store, pages)?;
            level.opening = take(input, 1)? == 1;
            level.around = take_items(input, 1)?.first().copied();
            for _ in 0..take(input, CHILDREN_MAX)? {
                let lo = take_item(input)?;
                level.children.push(Child { lo, list: List::restore(input, &mut self.store, pages)? });
            }
            self.levels.push(level);
        }
        Some(())
    }
}

impl<T: Item> List<StoredItem<T>> {
    fn save<D: Disk>(&self, store: &Pages<T, D>, out: &mut Vec<u8>) {
        put(out, self.len());
        put(out, usize::from(self.uniform));
        put(out, self.stride() as usize);
        put_items(out, self.sample());
        let chain: Vec<u32> = self.chain(store).collect();
        put_pages(out, chain.into_iter());
    }

    fn restore<D: Disk>(input: &mut &[u8], store: &mut Pages<T, D>, pages: &mut Vec<u32>) -> Option<Self> {
        let len = take(input, usize::MAX)?;
        let uniform = take(input, 1)? == 1;
        let stride = take(input, 40)? as u32;
        let sample = Sample::with_items(take_items(input, Self::SAMPLE_MAX)?, stride);
        let chain = take_pages(input)?;
        if chain.iter().any(|page| !store.exists(*page)) {
            return None;
        }
        pages.extend_from_slice(&chain);
        Self::with_chain(len, uniform, sample, &chain, store)
    }
}
