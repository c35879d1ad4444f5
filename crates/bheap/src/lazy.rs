//! The page queue with handles: removal is a mark, and a sweep takes out what is marked.
//!
//! ```text
//!   handle ─▶ slots[slot]: live, with a generation │ dead, its entry still queued │ free
//! ```
//! An entry never moves its slot: only leaving the queue touches it. A slot is given out again only after its
//! entry has left, so that an entry's slot always speaks of that entry. Each removal also sweeps one block, so
//! that a pass over all n entries ends after about n / (entries a block) removals: marked entries are at most
//! about two passes' worth, a small part of the whole.

use crate::blocks::Arena;
use crate::indexed::{Entry, queue_number};
use crate::layout::PageSizeError;
use crate::page_queue::PageQueue;
use crate::queue::{Handle, HandleQueue, Stale};
use crate::rows::Full;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Slots in a part of the table; parts never move, so that no operation copies the table.
const PART: usize = 1 << 16;

/// Set in a slot whose entry is live.
const LIVE: u32 = 1 << 31;

/// Set in a slot whose entry is marked.
const DEAD: u32 = 1 << 30;

/// A priority queue with handles that touches no page for each move of an item.
#[derive(Debug)]
pub struct Lazy<K> {
    queue: PageQueue<Entry<K>>,
    slots: Slots,
    live: usize,
    number: u32,
}

/// Per slot: a state and a generation of 30 bits.
#[derive(Debug, Default)]
struct Slots {
    parts: Vec<Box<[u32]>>,
    used: usize,
    free: Vec<u32>,
}

impl Slots {
    fn at(&self, slot: u32) -> Option<u32> {
        self.parts.get(slot as usize / PART).map(|part| part[slot as usize % PART])
    }

    fn set(&mut self, slot: u32, state: u32) {
        self.parts[slot as usize / PART][slot as usize % PART] = state;
    }

    fn take(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            return Some(slot);
        }
        let slot = u32::try_from(self.used).ok()?;
        if self.used == self.parts.len() * PART {
            self.parts.push(alloc::vec![0; PART].into_boxed_slice());
        }
        self.used += 1;
        Some(slot)
    }

    /// Whether the entry of this slot is live; if not, the slot is free from now on.
    fn keep(&mut self, slot: u32) -> bool {
        let state = self.at(slot).unwrap_or(0);
        if state & DEAD != 0 {
            self.set(slot, (state & !DEAD).wrapping_add(1) & (DEAD - 1));
            self.free.push(slot);
        }
        state & LIVE != 0
    }
}

impl<K: Ord + Copy> Lazy<K> {
    /// An empty queue with blocks of `page_bytes` bytes.
    ///
    /// # Errors
    /// As [`PageQueue::new`].
    pub fn new(page_bytes: usize) -> Result<Self, PageSizeError> {
        Ok(Self::over(PageQueue::new(page_bytes)?))
    }

    /// An empty queue that holds at most `blocks_max` blocks.
    ///
    /// # Errors
    /// As [`PageQueue::new`].
    pub fn with_limit(page_bytes: usize, blocks_max: usize) -> Result<Self, PageSizeError> {
        Ok(Self::over(PageQueue::with_store(Arena::new(page_bytes)?.limited(blocks_max), 16)))
    }

    fn over(queue: PageQueue<Entry<K>>) -> Self {
        Self { queue, slots: Slots::default(), live: 0, number: queue_number() }
    }

    /// Marked entries that are still queued.
    #[must_use]
    pub const fn garbage(&self) -> usize {
        self.queue.len() - self.live
    }

    /// Bytes in use: entries, marked ones and slots included.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.queue.bytes()
            + self.slots.used * size_of::<u32>()
            + self.slots.free.capacity() * size_of::<u32>()
    }

    fn handle(&self, slot: u32) -> Handle {
        let generation = self.slots.at(slot).unwrap_or(0) & (DEAD - 1);
        Handle { slot, generation, queue: self.number }
    }

    fn find(&self, handle: Handle) -> Result<(), Stale> {
        let live = self.slots.at(handle.slot) == Some(LIVE | handle.generation);
        if live && handle.queue == self.number { Ok(()) } else { Err(Stale) }
    }

    /// Takes marked entries from the head, so that what is smallest is live.
    fn clean_head(&mut self) {
        while let Some(head) = self.queue.peek() {
            let slot = head.slot;
            if self.slots.at(slot).is_some_and(|state| state & DEAD == 0) {
                return;
            }
            self.queue.pop();
            self.slots.keep(slot);
        }
    }
}

impl<K: Ord + Copy> HandleQueue<K> for Lazy<K> {
    fn insert(&mut self, key: K) -> Result<Handle, Full<K>> {
        let Some(slot) = self.slots.take() else { return Err(Full(key)) };
        if self.queue.try_push(Entry { key, slot }).is_err() {
            self.slots.free.push(slot);
            return Err(Full(key));
        }
        let generation = self.slots.at(slot).unwrap_or(0) & (DEAD - 1);
        self.slots.set(slot, LIVE | generation);
        self.live += 1;
        Ok(self.handle(slot))
    }

    fn peek(&self) -> Option<(&K, Handle)> {
        let entry = self.queue.peek()?;
        Some((&entry.key, self.handle(entry.slot)))
    }

    fn pop(&mut self) -> Option<(K, Handle)> {
        let entry = self.queue.pop()?;
        let handle = self.handle(entry.slot);
        self.slots.set(entry.slot, handle.generation.wrapping_add(1) & (DEAD - 1));
        self.slots.free.push(entry.slot);
        self.live -= 1;
        self.clean_head();
        Some((entry.key, handle))
    }

    fn remove(&mut self, handle: Handle) -> Result<(), Stale> {
        self.find(handle)?;
        self.slots.set(handle.slot, DEAD | handle.generation);
        self.live -= 1;
        let slots = &mut self.slots;
        self.queue.sweep(|entry| slots.keep(entry.slot));
        self.clean_head();
        Ok(())
    }

    fn update(&mut self, handle: Handle, key: K) -> Result<Handle, Stale> {
        self.find(handle)?;
        // The new entry first: if there is no room for it, the old one stays as it is.
        let Ok(new) = self.insert(key) else { return Err(Stale) };
        self.remove(handle)?;
        Ok(new)
    }

    fn len(&self) -> usize {
        self.live
    }
}
