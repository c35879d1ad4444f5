//! A heap that tracks the position of each of its items, for removal and update by handle.
//!
//! ```text
//!   handle ─▶ slots[slot] = position ─▶ rows[position] = (key, slot)
//! ```
//! Every move of an item writes its new position to its slot. This has a price: the slots take as many pages
//! again, and an operation touches one of them for each level by which it moves an item (the queue in the
//! original B-heap article has the same cost, since its items carry their index). [`crate::LazyQueue`] avoids
//! this cost.

use crate::heap::Heap;
use crate::layout::{Binary, Layout, PageLayout, PageSizeError};
use crate::memory::AlignedRows;
use crate::queue::{Handle, HandleQueue, Refusal, StaleHandle};
use crate::rows::{Full, Rows};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

/// Number of queues created in this process, used to recognise a handle of another queue.
static QUEUES: AtomicU32 = AtomicU32::new(0);

/// Returns a number that no other queue in memory has (until there have been 2³¹ of them); its highest bit is
/// not set.
pub(crate) fn queue_number() -> u32 {
    QUEUES.fetch_add(1, Ordering::Relaxed) & (u32::MAX >> 1)
}

/// A key and the slot that records its position. Only the key is compared.
#[derive(Debug, Clone, Copy)]
pub struct Entry<K> {
    /// The key, which is compared.
    pub key: K,
    /// Number of the slot that records the item's position.
    pub slot: u32,
}

impl<K: Ord> PartialEq for Entry<K> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl<K: Ord> Eq for Entry<K> {}
impl<K: Ord> PartialOrd for Entry<K> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<K: Ord> Ord for Entry<K> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// Number of times that the slot was freed.
    generation: u32,
    /// The item's position, or the next free slot.
    at: u32,
}

const NONE: u32 = u32::MAX;

/// Storage that records the position of each item.
#[derive(Debug)]
pub struct Positions<R> {
    rows: R,
    slots: Vec<Slot>,
    free: u32,
}

impl<R> Positions<R> {
    /// Returns a free slot; `None` if the maximum number of slots is in use.
    fn take_slot(&mut self) -> Option<u32> {
        if self.free == NONE {
            let slot = u32::try_from(self.slots.len()).ok().filter(|slot| *slot != NONE)?;
            self.slots.try_reserve(1).ok()?;
            self.slots.push(Slot { generation: 0, at: NONE });
            self.free = slot;
        }
        let slot = self.free;
        self.free = self.slots[slot as usize].at;
        Some(slot)
    }

    fn note<K>(&mut self, position: usize)
    where
        R: Rows<Entry<K>>,
    {
        let slot = self.rows.item(position).slot as usize;
        self.slots[slot].at = position as u32;
    }
}

impl<K, R: Rows<Entry<K>>> Rows<Entry<K>> for Positions<R> {
    fn len(&self) -> usize {
        self.rows.len()
    }
    fn item(&self, at: usize) -> &Entry<K> {
        self.rows.item(at)
    }
    fn swap(&mut self, a: usize, b: usize) {
        self.rows.swap(a, b);
        self.note(a);
        self.note(b);
    }
    fn replace(&mut self, at: usize, item: Entry<K>) -> Entry<K> {
        let old = self.rows.replace(at, item);
        self.note(at);
        old
    }
    fn push(&mut self, item: Entry<K>) -> Result<(), Full<Entry<K>>> {
        self.rows.push(item)?;
        self.note(self.rows.len() - 1);
        Ok(())
    }
    fn pop(&mut self) -> Option<Entry<K>> {
        self.rows.pop()
    }
}

/// A heap with handles.
#[derive(Debug)]
pub struct IndexedHeap<K, L, R> {
    heap: Heap<Entry<K>, L, Positions<R>>,
    queue: u32,
}

impl<K: Ord> IndexedHeap<K, Binary, Vec<Entry<K>>> {
    /// Creates an empty binary heap with handles.
    #[must_use]
    pub fn binary() -> Self {
        Self::over(Binary, Vec::new())
    }
}

impl<K: Ord> IndexedHeap<K, PageLayout, AlignedRows<Entry<K>>> {
    /// Creates an empty B-heap with handles, for pages of `page_bytes` bytes.
    ///
    /// # Errors
    /// Returns a [`PageSizeError`] unless the number of entries in a page is a power of two and at least
    /// four.
    pub fn paged(page_bytes: usize) -> Result<Self, PageSizeError> {
        let layout = PageLayout::for_page_bytes::<Entry<K>>(page_bytes)?;
        Ok(Self::over(layout, AlignedRows::new(page_bytes, PageLayout::INDEX_OF_ROOT)?))
    }
}

impl<K: Ord, L: Layout, R: Rows<Entry<K>>> IndexedHeap<K, L, R> {
    fn over(layout: L, rows: R) -> Self {
        let rows = Positions { rows, slots: Vec::new(), free: NONE };
        Self { heap: Heap::with_rows(layout, rows), queue: queue_number() }
    }

    fn position(&self, handle: Handle) -> Result<usize, StaleHandle> {
        let slot = self.heap.rows().slots.get(handle.slot()).ok_or(StaleHandle)?;
        let live = handle.queue == self.queue && slot.generation == handle.generation;
        if live { Ok(slot.at as usize) } else { Err(StaleHandle) }
    }

    fn handle(&self, slot: u32) -> Handle {
        Handle { slot, generation: self.heap.rows().slots[slot as usize].generation, queue: self.queue }
    }

    /// Frees the slots of entries for which there was no room, and returns their keys.
    fn give_up(&mut self, entries: Vec<Entry<K>>) -> Vec<K> {
        for entry in entries.iter().rev() {
            self.release(entry.slot);
        }
        entries.into_iter().map(|entry| entry.key).collect()
    }

    fn release(&mut self, slot: u32) -> Handle {
        let handle = self.handle(slot);
        let rows = self.heap.rows_mut();
        let place = &mut rows.slots[slot as usize];
        place.generation = place.generation.wrapping_add(1);
        place.at = core::mem::replace(&mut rows.free, slot);
        handle
    }
}

impl<K: Ord, L: Layout, R: Rows<Entry<K>>> HandleQueue<K> for IndexedHeap<K, L, R> {
    fn insert(&mut self, key: K) -> Result<Handle, Full<K>> {
        let Some(slot) = self.heap.rows_mut().take_slot() else { return Err(Full(key)) };
        match self.heap.try_push(Entry { key, slot }) {
            Ok(()) => Ok(self.handle(slot)),
            Err(Full(entry)) => {
                self.release(slot);
                Err(Full(entry.key))
            }
        }
    }

    fn load(&mut self, keys: Vec<K>, mut handed: impl FnMut(Handle)) -> Result<(), Full<Vec<K>>> {
        let mut entries = Vec::with_capacity(keys.len());
        let mut keys = keys.into_iter();
        while let Some(key) = keys.next() {
            let Some(slot) = self.heap.rows_mut().take_slot() else {
                let mut all = self.give_up(entries);
                all.push(key);
                all.extend(keys);
                return Err(Full(all));
            };
            entries.push(Entry { key, slot });
        }
        let handles: Vec<Handle> = entries.iter().map(|entry| self.handle(entry.slot)).collect();
        if let Err(Full(entries)) = self.heap.load(entries) {
            return Err(Full(self.give_up(entries)));
        }
        handles.into_iter().for_each(&mut handed);
        Ok(())
    }

    fn for_each(&self, mut look: impl FnMut(&K, Handle)) {
        for at in 0..self.heap.len() {
            let entry = self.heap.rows().item(at);
            look(&entry.key, self.handle(entry.slot));
        }
    }

    fn contains(&self, handle: Handle) -> bool {
        self.position(handle).is_ok()
    }

    fn peek(&self) -> Option<(&K, Handle)> {
        let entry = self.heap.peek()?;
        Some((&entry.key, self.handle(entry.slot)))
    }

    fn pop(&mut self) -> Option<(K, Handle)> {
        let entry = self.heap.pop()?;
        let handle = self.release(entry.slot);
        Some((entry.key, handle))
    }

    fn remove(&mut self, handle: Handle) -> Result<(), StaleHandle> {
        let position = self.position(handle)?;
        let entry = self.heap.remove_at(position).ok_or(StaleHandle)?;
        self.release(entry.slot);
        Ok(())
    }

    fn update(&mut self, handle: Handle, key: K) -> Result<Handle, Refusal> {
        let position = self.position(handle)?;
        self.heap.update_at(position, Entry { key, slot: handle.slot });
        Ok(handle)
    }

    fn len(&self) -> usize {
        self.heap.len()
    }
}
